"""The study itself: the paper's datasets, its baselines, its experiments. The other packages do not import it.

The parts are loaded on first use: listing the datasets does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairflows.paper import baselines as baselines
    from fairflows.paper import datasets as datasets
    from fairflows.paper import experiments as experiments
    from fairflows.paper.datasets import describe_datasets as describe_datasets
    from fairflows.paper.datasets import load_compas as load_compas
    from fairflows.paper.datasets import load_crime as load_crime
    from fairflows.paper.datasets import load_health as load_health
    from fairflows.paper.datasets import load_law_school as load_law_school
    from fairflows.paper.gaussians import make_gaussians as make_gaussians
    from fairflows.paper.gaussians import make_shifted_gaussians as make_shifted_gaussians
    from fairflows.paper.gaussians import make_three_groups as make_three_groups

_SUBMODULES = ["baselines", "datasets", "experiments"]
_HOME = {
    **dict.fromkeys(["describe_datasets", "load_compas", "load_crime", "load_health", "load_law_school"], "datasets"),
    **dict.fromkeys(["make_gaussians", "make_shifted_gaussians", "make_three_groups"], "gaussians"),
}
__all__ = [*_SUBMODULES, *_HOME]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _SUBMODULES:
            return import_module(f"fairflows.paper.{name}")
        if name in _HOME:
            return getattr(import_module(f"fairflows.paper.{_HOME[name]}"), name)
        raise AttributeError(f"module 'fairflows.paper' has no attribute {name!r}")

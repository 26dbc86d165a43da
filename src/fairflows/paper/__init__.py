"""The study itself: the paper's datasets, its baselines, its experiments. The other packages do not import it.

The parts are loaded on first use: listing the datasets does not import torch.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairflows.paper import baselines as baselines
    from fairflows.paper import datasets as datasets
    from fairflows.paper import experiments as experiments

__all__ = ["baselines", "datasets", "experiments"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> ModuleType:
        if name not in __all__:
            raise AttributeError(f"module 'fairflows.paper' has no attribute {name!r}")
        return import_module(f"fairflows.paper.{name}")

"""Densities p̂_a(x): fit, log_prob, sample. They are loaded on first use: densities of cells need no torch."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairflows.density.base import Density as Density
    from fairflows.density.base import GroupDensities as GroupDensities
    from fairflows.density.base import check_density as check_density
    from fairflows.density.known import KnownDensity as KnownDensity
    from fairflows.density.mixture import KernelDensity as KernelDensity
    from fairflows.density.mixture import MixtureDensity as MixtureDensity
    from fairflows.density.trained import AutoregressiveDensity as AutoregressiveDensity
    from fairflows.density.trained import FlowDensity as FlowDensity

_HOME = {
    "AutoregressiveDensity": "fairflows.density.trained",
    "Density": "fairflows.density.base",
    "FlowDensity": "fairflows.density.trained",
    "GroupDensities": "fairflows.density.base",
    "KernelDensity": "fairflows.density.mixture",
    "KnownDensity": "fairflows.density.known",
    "MixtureDensity": "fairflows.density.mixture",
    "check_density": "fairflows.density.base",
}

__all__ = [*_HOME]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'fairflows.density' has no attribute {name!r}")
        return getattr(import_module(_HOME[name]), name)

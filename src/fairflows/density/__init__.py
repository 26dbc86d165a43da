"""Densities p̂_a(x): fit, log_prob, sample. They are loaded on first use: densities of cells need no torch."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairflows.density.base import Density as Density
    from fairflows.density.base import GroupDensities as GroupDensities
    from fairflows.density.base import check_density as check_density
    from fairflows.density.estimated import FlowDensity as FlowDensity
    from fairflows.density.estimated import MixtureDensity as MixtureDensity
    from fairflows.density.known import KnownDensity as KnownDensity

_HOME = {
    "Density": "fairflows.density.base",
    "FlowDensity": "fairflows.density.estimated",
    "GroupDensities": "fairflows.density.base",
    "KnownDensity": "fairflows.density.known",
    "MixtureDensity": "fairflows.density.estimated",
    "check_density": "fairflows.density.base",
}

_BY_NAME = {
    "mixture": ("MixtureDensity", {}),
    "realnvp": ("FlowDensity", {"kind": "realnvp"}),
    "spline": ("FlowDensity", {"kind": "spline"}),
}

__all__ = [*_HOME]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'fairflows.density' has no attribute {name!r}")
        return getattr(import_module(_HOME[name]), name)


def density_of(given: object) -> "Density":
    """Return a density to be fitted, by its name or as it is."""
    from fairflows.density.base import Density

    if isinstance(given, Density):
        return given
    if not (isinstance(given, str) and given in _BY_NAME):
        raise ValueError(f"density must be one of {', '.join(_BY_NAME)}, or a density; got {given!r}.")
    family, settings = _BY_NAME[given]
    return getattr(import_module(_HOME[family]), family)(**settings)

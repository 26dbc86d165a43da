"""Densities p̂_a(x): fit, log_prob, sample."""

from fairflows.density.base import Density
from fairflows.density.groups import GroupDensities
from fairflows.density.known import KnownDensity
from fairflows.density.mixture import KernelDensity, MixtureDensity
from fairflows.density.trained import AutoregressiveDensity, FlowDensity

__all__ = [
    "AutoregressiveDensity",
    "Density",
    "FlowDensity",
    "GroupDensities",
    "KernelDensity",
    "KnownDensity",
    "MixtureDensity",
]

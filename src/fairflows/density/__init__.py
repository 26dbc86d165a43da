"""Densities p̂_a(x): fit, log_prob, sample."""

from fairflows.density.base import Density
from fairflows.density.flow import FlowDensity
from fairflows.density.groups import GroupDensities
from fairflows.density.mixture import MixtureDensity

__all__ = ["Density", "FlowDensity", "GroupDensities", "MixtureDensity"]

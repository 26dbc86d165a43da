"""A density that is known in the table's own units, as a density in model space.

A regulator states p(v) for the values v of the table; encoders work on x, the logit of scaled values. With the codec's
map v(x), elementwise and increasing,

    log p(x) = log p(v(x)) + Σ_j log ∂v_j/∂x_j.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Density(Protocol):
    """What is asked of a density: its logarithm, and draws from it."""

    def log_prob(self, x: Tensor) -> Tensor:
        """log p(x), shape (...), for points (..., D)."""

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """n draws, (n, D)."""


class InModelSpace:
    """A density in table units as the density of the codec's x.

    Parameters
    ----------
    density
        log_prob and sample in table units.
    low, width : Tensor of shape (D,)
        The training range of each dimension, in table units.
    alpha : float
        The range is scaled into [alpha/2, 1 − alpha/2] before the logit, and continued along the tangent outside.
    """

    def __init__(self, density: Density, low: Tensor, width: Tensor, alpha: float) -> None:
        self.density = density
        self.low, self.width, self.alpha = low, width, alpha
        self.limit = torch.logit(torch.tensor(1 - alpha / 2, dtype=torch.float64)).item()

    def log_prob(self, x: Tensor) -> Tensor:
        """log p(x), shape (...), for points (..., D) of model space."""
        low, width = self.low.to(x), self.width.to(x)
        inside = x.clamp(-self.limit, self.limit)
        edge = torch.sigmoid(inside)
        slope = edge * (1 - edge)
        s = edge + (x - inside) * slope
        v = low + width * (s - self.alpha / 2) / (1 - self.alpha)
        return self.density.log_prob(v) + (slope.log() + (width / (1 - self.alpha)).log()).sum(-1)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """n draws of x, (n, D)."""
        v = self.density.sample(n, generator)
        s = self.alpha / 2 + (1 - self.alpha) * (v - self.low.to(v)) / self.width.to(v)
        edge = s.clamp(self.alpha / 2, 1 - self.alpha / 2)
        return torch.logit(edge) + (s - edge) / (edge * (1 - edge))

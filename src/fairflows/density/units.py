"""A density that is known in the table's own units, as a density in model space.

A regulator states p(v) for the values v of the table; encoders work on x, the logit of scaled values. With the codec's
map v(x), elementwise and increasing,

    log p(x) = log p(v(x)) + Σ_j log ∂v_j/∂x_j.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from fairflows.density.base import Density


class InModelSpace(Density):
    """A density in table units as the density of the codec's x.

    Parameters
    ----------
    density
        The density in table units.
    low, width : Tensor of shape (D,)
        The training range of each dimension, in table units; in float64, since a range may be far from zero.
    alpha : float
        The range is scaled into [alpha/2, 1 − alpha/2] before the logit, and continued along the tangent outside.
    """

    low: Tensor
    width: Tensor

    def __init__(self, density: Density, low: Tensor, width: Tensor, alpha: float) -> None:
        super().__init__()
        if density.n_features != len(low):
            raise ValueError(f"a known density must have the table's {len(low)} dimensions; got {density.n_features}.")
        self.density = density
        self.n_features = density.n_features
        self.capturable = density.capturable
        self.register_buffer("low", low)
        self.register_buffer("width", width)
        self.alpha = alpha
        self.limit = torch.logit(torch.tensor(1 - alpha / 2, dtype=torch.float64)).item()

    def log_prob(self, x: Tensor) -> Tensor:
        """log p(x), shape (...), for points (..., D) of model space."""
        inside = x.clamp(-self.limit, self.limit)
        edge = torch.sigmoid(inside)
        slope = edge * (1 - edge)
        s = edge + (x - inside) * slope
        low, width = self.low.to(x), self.width.to(x)
        v = low + width * (s - self.alpha / 2) / (1 - self.alpha)
        return self.density.log_prob(v) + (slope.log() + (width / (1 - self.alpha)).log()).sum(-1)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """n draws of x, (n, D)."""
        v = self.density.sample(n, generator)
        s = self.alpha / 2 + (1 - self.alpha) * (v - self.low.to(v)) / self.width.to(v)
        edge = s.clamp(self.alpha / 2, 1 - self.alpha / 2)
        return torch.logit(edge) + (s - edge) / (edge * (1 - edge))

    def _fit(self, x: Tensor, random_state: int) -> Self:
        return self  # known: there is nothing to estimate

    def to_state(self) -> dict[str, Any]:
        """What is saved: all of it came with the constructor."""
        return super().to_state() | {"fitted": {}}

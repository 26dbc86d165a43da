r"""Kernel density: a Gaussian on every point, with Scott's bandwidth.

.. math:: \hat p(x) = \frac1n \sum_i N(x;\, x_i,\, h^2 \hat\Sigma), \qquad h = n^{-1/(D+4)}.
"""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Tensor

from fairflows.density.base import Density
from fairflows.exceptions import DataError


class KernelDensity(Density):
    """A Gaussian kernel density.

    Parameters
    ----------
    bandwidth
        h, in units of the sample's own covariance; Scott's rule when None.
    n_points
        At most this many rows, drawn at random, carry a kernel: the cost of log_prob grows with them.

    Examples
    --------
    >>> density = KernelDensity().fit(torch.randn(500, 3))
    >>> density.log_prob(torch.zeros(7, 3)).shape
    torch.Size([7])
    """

    points: Tensor
    whitening: Tensor
    width: Tensor

    def __init__(self, bandwidth: float | None = None, *, n_points: int = 2000):
        super().__init__()
        if bandwidth is not None and not bandwidth > 0:
            raise ValueError(f"bandwidth must be positive; got {bandwidth}.")
        self.bandwidth, self.n_points = bandwidth, n_points

    def _fit(self, x: Tensor, random_state: int) -> Self:
        generator = torch.Generator().manual_seed(random_state)
        chosen = torch.randperm(len(x), generator=generator)[: self.n_points].to(x.device)
        covariance = torch.cov(x.double().T).reshape(x.shape[1], x.shape[1])
        factor, failed = torch.linalg.cholesky_ex(covariance)
        if bool(failed):
            raise DataError("a kernel density needs features that are not linear functions of each other.")
        width = self.bandwidth or len(chosen) ** (-1 / (x.shape[1] + 4))
        whitening = torch.linalg.inv(factor).T  # (x W)ᵀ(x W) = xᵀ Σ⁻¹ x
        fitted = {
            "points": x[chosen].double() @ whitening,
            "whitening": whitening,
            "width": torch.tensor(width, dtype=torch.float64),
        }
        return self._keep(x.shape[1], **fitted).to(x)

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-densities (...) of points (..., D)."""
        u = (x @ self.whitening) / self.width
        points = self.points / self.width
        # −½|u − u_i|² without a (rows, points, D) tensor
        exponents = u @ points.T - 0.5 * points.square().sum(-1) - 0.5 * u.square().sum(-1, keepdim=True)
        constant = self.whitening.diagonal().log().sum() - self.n_features * (
            self.width.log() + 0.5 * math.log(2 * math.pi)
        )
        return torch.logsumexp(exponents, dim=-1) + constant - math.log(len(points))

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws (n, D)."""
        points = self.points
        chosen = torch.randint(len(points), (n,), generator=generator, device=points.device)
        noise = torch.randn(n, self.n_features, generator=generator, device=points.device, dtype=points.dtype)
        return (points[chosen] + self.width * noise) @ torch.linalg.inv(self.whitening)

r"""Monotone rational-quadratic splines, and the flow that moves each feature by one given the features before it.

.. math:: z_j = \mathrm{spline}(x_j; \theta_j(x_1, \dots, x_{j-1})), \qquad
          \log|\det| = \textstyle\sum_j \log \mathrm{spline}'(x_j).

Each feature has a network θ_j of its own, and all of them are one batched product. x to z is a single pass; z to x goes
feature by feature.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from fairflows.bijection.base import Bijection
from fairflows.bijection.networks import StackedMLP, apply_networks, augment

# Stated, although it is zuko's default: that changed with zuko 1.5, and a saved model must not change with it.
_LEAST_SLOPE = 1e-3


def n_parameters(n_bins: int) -> int:
    """Return how many numbers describe a spline: widths, heights and inner slopes."""
    return 3 * n_bins - 1


def move_along_spline(
    x: Float[Tensor, "*values"], shape: Float[Tensor, "*values n_parameters"], bound: float, *, inverse: bool = False
) -> tuple[Float[Tensor, "*values"], Float[Tensor, "*values"]]:
    """Return spline(x), or its inverse, and the log of its slope, given the `n_parameters` of each spline.

    The spline maps [−bound, bound] to itself and is the identity outside.
    """
    from zuko.transforms import MonotonicRQSTransform  # only the splines need zuko

    n_bins = (shape.shape[-1] + 1) // 3
    spline = MonotonicRQSTransform(*shape.split([n_bins, n_bins, n_bins - 1], dim=-1), bound=bound, slope=_LEAST_SLOPE)
    return (spline.inv if inverse else spline).call_and_ladj(x)


class AutoregressiveSpline(Bijection):
    """Autoregressive splines for K groups of M models, the densities' best shape for steps, heaps and edges.

    Parameters
    ----------
    n_features, n_groups, hidden, seeds
        As for `RealNVP`; ``hidden`` is of the network of one feature.
    n_bins, bound
        The spline has ``n_bins`` pieces on [−bound, bound] and is the identity outside.

    Examples
    --------
    >>> f = AutoregressiveSpline(3, n_groups=2)
    >>> z, log_det = f.forward(torch.randn(2, 10, 3))
    >>> z.shape, log_det.shape
    (torch.Size([1, 2, 10, 3]), torch.Size([1, 2, 10]))
    """

    capturable = True

    def __init__(
        self,
        n_features: int,
        *,
        n_groups: int = 2,
        hidden: Sequence[int] = (32, 32),
        n_bins: int = 16,
        bound: float = 5.0,
        seeds: Sequence[int] = (0,),
    ):
        super().__init__()
        self.n_features, self.hidden, self.n_bins, self.bound = n_features, tuple(hidden), n_bins, bound
        before = torch.ones(n_features, n_features, dtype=torch.bool).tril(-1)  # network j reads x_1, ..., x_{j−1}
        self.networks = StackedMLP(
            n_features,
            hidden,
            n_parameters(n_bins),
            seeds=seeds,
            lead=(n_groups, n_features),
            stream="autoregressive",
            visible=before,
        )

    def forward(self, x: Float[Tensor, "*points D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return z = f_a(x) and log |det ∂z/∂x|."""
        x = self.stacked(x)
        z, log_slopes = move_along_spline(x.mT, self.networks(x.unsqueeze(2)), self.bound)  # (M, K, D, B)
        return z.mT, log_slopes.sum(2)

    def inverse(self, z: Float[Tensor, "*points D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return x, made feature by feature from those before it, and log |det ∂x/∂z|."""
        z = self.stacked(z)
        layers = [weight.flatten(0, 1) for weight in self.networks.matrices()]  # (M·K, D, w, w')
        x, log_det = torch.zeros_like(z), torch.zeros_like(z[..., 0])
        for j in range(self.n_features):
            shape = apply_networks(augment(x.flatten(0, 1)), [weight[:, j] for weight in layers])
            column, log_slope = move_along_spline(z[..., j], shape.unflatten(0, z.shape[:2]), self.bound, inverse=True)
            x = torch.cat([x[..., :j], column.unsqueeze(-1), x[..., j + 1 :]], dim=-1)
            log_det = log_det + log_slope
        return x, log_det

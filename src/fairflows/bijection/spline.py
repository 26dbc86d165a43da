r"""Rational-quadratic splines (Durkan, Bekasov, Murray and Papamakarios, 2019), through zuko's transform.

On [−bound, bound] a monotone spline, the identity outside: a bijection of the whole line with an inverse in closed
form. :class:`NeuralSpline` is the coupling, whose spline depends on the features that stay; :class:`ElementwiseSpline`
has free knots and serves a single feature, where there is nothing to couple.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from fairflows.bijection.base import Bijection, passive_features
from fairflows.bijection.networks import StackedMLP, generator_of

if TYPE_CHECKING:
    from zuko.transforms import MonotonicRQSTransform

# Stated, although it is zuko's default: that changed with zuko 1.5, and a saved model must not change with it.
_LEAST_SLOPE = 1e-3


def _spline(knots: Tensor, n_bins: int, bound: float) -> MonotonicRQSTransform:
    """Return the transform with unconstrained widths, heights and slopes (..., 3 n_bins − 1)."""
    from zuko.transforms import MonotonicRQSTransform  # only the splines need zuko

    widths, heights, slopes = knots.split([n_bins, n_bins, n_bins - 1], dim=-1)
    return MonotonicRQSTransform(widths, heights, slopes, bound=bound, slope=_LEAST_SLOPE)


class NeuralSpline(Bijection):
    """Spline couplings for K groups of M models.

    Parameters
    ----------
    n_features, n_groups, n_blocks, hidden, seeds
        As for `RealNVP`.
    n_bins, bound
        The spline has ``n_bins`` pieces on [−bound, bound] and is the identity outside.
    passive
        The features that each block leaves alone; two blocks share them out when not given.

    Examples
    --------
    >>> f = NeuralSpline(3, n_groups=2)
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
        n_blocks: int = 4,
        hidden: Sequence[int] = (50, 50),
        n_bins: int = 8,
        bound: float = 5.0,
        passive: Sequence[Sequence[int]] | None = None,
        seeds: Sequence[int] = (0,),
    ):
        super().__init__()
        self.n_features, self.n_blocks, self.hidden = n_features, n_blocks, tuple(hidden)
        self.n_bins, self.bound = n_bins, bound
        # Kept, and saved: they are drawn by torch, whose draws may change from one release to the next.
        self.passive = passive or [row.nonzero()[:, 0].tolist() for row in passive_features(n_features, n_blocks)]
        self._moved = [sorted(set(range(n_features)) - set(stays)) for stays in self.passive]
        self.conditioners = nn.ModuleList(
            StackedMLP(
                len(stays),
                hidden,
                len(moved) * (3 * n_bins - 1),
                seeds=seeds,
                lead=(n_groups,),
                stream=f"spline {block}",
            )
            for block, (stays, moved) in enumerate(zip(self.passive, self._moved, strict=True))
        )

    def anew(self, n_features: int, *, n_groups: int, seeds: Sequence[int]) -> Self:
        """Return the same for other features and groups; `passive` is kept if the number of features is the same."""
        kept = self.settings() if n_features == self.n_features else self.settings() | {"passive": None}
        return type(self)(**kept | {"n_features": n_features, "n_groups": n_groups, "seeds": seeds})

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return z = f_a(x) and log |det ∂z/∂x|."""
        return self._pass(self.stacked(x), list(range(len(self._moved))), inverse=False)

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return x = f_a⁻¹(z) and log |det ∂x/∂z|."""
        return self._pass(self.stacked(z), list(reversed(range(len(self._moved)))), inverse=True)

    def _pass(self, x: Tensor, blocks: Sequence[int], inverse: bool) -> tuple[Tensor, Tensor]:
        columns = list(x.unbind(-1))
        log_det = torch.zeros_like(x[..., 0])
        for block in blocks:
            passive = torch.stack([columns[j] for j in self.passive[block]], dim=-1)
            moved = torch.stack([columns[j] for j in self._moved[block]], dim=-1)
            knots = self.conditioners[block](passive).unflatten(-1, (moved.shape[-1], -1))
            spline = _spline(knots, self.n_bins, self.bound)
            moved, increment = (spline.inv if inverse else spline).call_and_ladj(moved)
            log_det = log_det + increment.sum(-1)
            for j, column in zip(self._moved[block], moved.unbind(-1), strict=True):
                columns[j] = column
        return torch.stack(columns, dim=-1), log_det


class ElementwiseSpline(Bijection):
    r"""A monotone map of every feature by itself: what remains of a coupling when there is one feature.

    :math:`z = \mathrm{spline}(e^{c} x + d)`, with free c, d and knots for each model, group and feature. It starts as
    the identity, up to a little noise in the knots that differs from seed to seed.

    Parameters
    ----------
    n_features
        D, usually one.
    n_groups, n_bins, bound, seeds
        As for `NeuralSpline`.

    Examples
    --------
    >>> f = ElementwiseSpline(1)
    >>> z, log_det = f.forward(torch.randn(2, 10, 1))
    >>> z.shape, log_det.shape
    (torch.Size([1, 2, 10, 1]), torch.Size([1, 2, 10]))
    """

    capturable = True

    def __init__(
        self,
        n_features: int = 1,
        *,
        n_groups: int = 2,
        n_bins: int = 16,
        bound: float = 6.0,
        seeds: Sequence[int] = (0,),
    ):
        super().__init__()
        self.n_features, self.n_bins, self.bound = n_features, n_bins, bound
        shape = (1, 1, n_features, 3 * n_bins - 1)  # one start for all groups, rows on the third axis from the end
        start = torch.stack([0.01 * torch.randn(shape, generator=generator_of(s, "elementwise")) for s in seeds])
        self.knots = nn.Parameter(start.expand(-1, n_groups, -1, -1, -1).clone())
        self.log_scale = nn.Parameter(torch.zeros(len(seeds), n_groups, 1, n_features))
        self.shift = nn.Parameter(torch.zeros(len(seeds), n_groups, 1, n_features))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return z = f_a(x) and log |det ∂z/∂x|."""
        inner = self.stacked(x) * self.log_scale.exp() + self.shift
        z, increment = _spline(self.knots, self.n_bins, self.bound).call_and_ladj(inner)
        return z, (increment + self.log_scale).sum(-1)

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return x = f_a⁻¹(z) and log |det ∂x/∂z|."""
        inner, increment = _spline(self.knots, self.n_bins, self.bound).inv.call_and_ladj(self.stacked(z))
        return (inner - self.shift) * (-self.log_scale).exp(), (increment - self.log_scale).sum(-1)

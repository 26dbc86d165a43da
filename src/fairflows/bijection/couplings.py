r"""Couplings: a block leaves half of the features alone and moves the others in a way that depends on that half.

:class:`RealNVP` (Dinh, Sohl-Dickstein and Bengio, 2017) moves them by a scale and a shift,

.. math:: z = x \odot e^{s} + t, \qquad s = \tanh(\cdot), \qquad \log|\det| = \textstyle\sum s,

with s = t = 0 on the half that stays. One network gives both s and t. Either direction evaluates it once, so encoding
and decoding cost the same.

:class:`NeuralSpline` (Durkan, Bekasov, Murray and Papamakarios, 2019) moves them by monotone rational-quadratic splines
on [−bound, bound], the identity outside, through zuko's transform. :class:`ElementwiseSpline` has free knots and serves
a single feature, where there is nothing to couple.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from fairflows.bijection.base import Bijection
from fairflows.bijection.networks import StackedMLP, apply_networks, augment, generator_of, padded
from fairflows.exceptions import DataError

if TYPE_CHECKING:
    from zuko.transforms import MonotonicRQSTransform

# Stated, although it is zuko's default: that changed with zuko 1.5, and a saved model must not change with it.
_LEAST_SLOPE = 1e-3


def passive_features(n_features: int, n_blocks: int) -> Tensor:
    """Return a mask of the features that each block leaves alone and conditions on, (n_blocks, D), about half.

    Blocks come in pairs, a half and its complement, so that two blocks move every feature; each pair halves the
    features in another way. The halves are part of the architecture and the same for every seed: models of a stack
    differ in weights only.
    """
    if n_features < 2:
        raise DataError(f"a coupling needs two features or more; got {n_features}. Use ElementwiseSpline for one.")
    generator = torch.Generator().manual_seed(0)
    masks: list[Tensor] = []
    while len(masks) < n_blocks:
        half = torch.zeros(n_features, dtype=torch.bool)
        half[torch.randperm(n_features, generator=generator)[: n_features // 2]] = True
        if not masks or not torch.equal(half, masks[-1]):  # two blocks in a row on one half would act as one
            masks += [half, ~half]
    return torch.stack(masks[:n_blocks])


class RealNVP(Bijection):
    """Affine couplings for K groups of M models, all evaluated together.

    Parameters
    ----------
    n_features
        D, at least two.
    n_groups
        K. The encoders of all groups start from the same weights.
    n_blocks
        Coupling blocks; the paper uses 4, and 6 for Health.
    hidden
        Hidden layers of the network of a block.
    seeds
        One per model; its initial weights depend on nothing else.

    Examples
    --------
    >>> f = RealNVP(6, n_groups=2, seeds=[0, 1, 2])
    >>> z, log_det = f.forward(torch.randn(2, 128, 6))  # the same rows for all three models
    >>> z.shape, log_det.shape
    (torch.Size([3, 2, 128, 6]), torch.Size([3, 2, 128]))
    >>> x, _ = f.inverse(z)
    """

    capturable = True

    def __init__(
        self,
        n_features: int,
        *,
        n_groups: int = 2,
        n_blocks: int = 4,
        hidden: Sequence[int] = (50, 50),
        seeds: Sequence[int] = (0,),
    ):
        super().__init__()
        self.n_features, self.n_blocks, self.hidden = n_features, n_blocks, tuple(hidden)
        passive = passive_features(n_features, n_blocks)
        # s and t are as wide as x̄, so that a block is a few whole-tensor operations and no feature is ever gathered.
        moved = torch.nn.functional.pad(~passive, (0, padded(n_features) - n_features))
        self.conditioner = StackedMLP(
            n_features,
            hidden,
            2 * moved.shape[-1],
            seeds=seeds,
            lead=(n_groups, n_blocks),
            stream="coupling",
            visible=passive,
            written=torch.cat([moved, moved], dim=-1),
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return z = f_a(x) and log |det ∂z/∂x|."""
        state = augment(self.stacked(x)).flatten(0, 1)
        log_scale = torch.zeros_like(state)
        for matrices in self._blocks():
            r, t = apply_networks(state, matrices).chunk(2, dim=-1)
            s = torch.tanh(r)
            state = state * torch.exp(s) + t
            log_scale = log_scale + s
        return self._by_model(state[..., : self.n_features]), self._by_model(log_scale.sum(-1))

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return x = f_a⁻¹(z) and log |det ∂x/∂z|."""
        state = augment(self.stacked(z)).flatten(0, 1)
        log_scale = torch.zeros_like(state)
        for matrices in reversed(self._blocks()):
            r, t = apply_networks(state, matrices).chunk(2, dim=-1)
            s = torch.tanh(r)
            state = (state - t) * torch.exp(-s)
            log_scale = log_scale - s
        return self._by_model(state[..., : self.n_features]), self._by_model(log_scale.sum(-1))

    def _blocks(self) -> list[tuple[Tensor, ...]]:
        """Return the effective matrices (M·K, w_l, w_{l+1}) of the network of every block, layer by layer."""
        layers = [weight.flatten(0, 1).unbind(1) for weight in self.conditioner.matrices()]
        return list(zip(*layers, strict=True))

    def _by_model(self, values: Tensor) -> Tensor:
        """Split the axis of networks, M·K, into models and groups."""
        return values.unflatten(0, (self.n_models, self.n_groups))


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

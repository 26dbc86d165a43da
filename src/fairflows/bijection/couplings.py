r"""Couplings: half of the features stay, the others move in a way that depends on that half.

:class:`RealNVP` (Dinh, Sohl-Dickstein and Bengio, 2017) moves them by a scale and a shift,

.. math:: z = x \odot e^{s} + t, \qquad s = \tanh(\cdot), \qquad \log|\det| = \textstyle\sum s,

with s = t = 0 on the half that stays. One network gives both s and t, and either direction evaluates it once.
:class:`NeuralSpline` (Durkan, Bekasov, Murray and Papamakarios, 2019) moves them by monotone rational-quadratic splines
on [−bound, bound], the identity outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fairflows.bijection.base import Bijection
from fairflows.bijection.networks import StackedMLP, apply_networks, augment, padded
from fairflows.bijection.splines import move_along_spline, n_parameters
from fairflows.exceptions import DataError


def passive_features(n_features: int, n_blocks: int) -> Bool[Tensor, "{n_blocks} {n_features}"]:
    """Return a mask of the features that each block leaves alone and conditions on, about half.

    Blocks come in pairs, a half and its complement, so that two blocks move every feature; each pair halves the
    features in another way. The halves are part of the architecture and the same for every seed: models of a stack
    differ in weights only.
    """
    if n_features < 2:  # the map of a single feature depends on nothing
        return torch.zeros(n_blocks, n_features, dtype=torch.bool)
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

    def prepared(self) -> AffineCouplings:
        """Return both directions with the matrices of the networks computed once."""
        return AffineCouplings(self.conditioner.matrices())

    def forward(self, x: Float[Tensor, "*points D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return z = f_a(x) and log |det ∂z/∂x|."""
        return self.prepared().forward(self.stacked(x))

    def inverse(self, z: Float[Tensor, "*points D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return x = f_a⁻¹(z) and log |det ∂x/∂z|."""
        return self.prepared().inverse(self.stacked(z))


@dataclass(frozen=True)
class AffineCouplings:
    """The couplings of a `RealNVP` with the matrices of their networks."""

    layers: list[Float[Tensor, "M K n_blocks _ _"]]  # the matrices W̄ of each layer of the networks

    def forward(self, x: Float[Tensor, "M K B D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return z = x ⊙ eˢ + t, block after block, and Σ s."""
        state, scales = augment(x).flatten(0, 1), []
        for matrices in zip(*(layer.flatten(0, 1).unbind(1) for layer in self.layers), strict=True):
            r, t = apply_networks(state, matrices).chunk(2, dim=-1)
            s = torch.tanh(r)
            state = state * torch.exp(s) + t
            scales.append(s)
        log_det = torch.cat(scales, dim=-1).sum(-1)
        return state[..., : x.shape[-1]].reshape(x.shape), log_det.view(x.shape[:-1])

    def inverse(self, z: Float[Tensor, "M K B D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return x = (z − t) ⊙ e⁻ˢ, from the last block to the first, and −Σ s."""
        state, scales = augment(z).flatten(0, 1), []
        layers = [*self.layers[:-1], -self.layers[-1]]  # the networks then give −r and −t, and tanh(−r) = −s
        for matrices in zip(*(layer.flatten(0, 1).unbind(1)[::-1] for layer in layers), strict=True):
            minus_r, minus_t = apply_networks(state, matrices).chunk(2, dim=-1)
            minus_s = torch.tanh(minus_r)
            state = (state + minus_t) * torch.exp(minus_s)
            scales.append(minus_s)
        log_det = torch.cat(scales, dim=-1).sum(-1)
        return state[..., : z.shape[-1]].reshape(z.shape), log_det.view(z.shape[:-1])


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
                len(moved) * n_parameters(n_bins),
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

    def forward(self, x: Float[Tensor, "*points D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return z = f_a(x) and log |det ∂z/∂x|."""
        return self._pass(self.stacked(x), list(range(len(self._moved))), inverse=False)

    def inverse(self, z: Float[Tensor, "*points D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return x = f_a⁻¹(z) and log |det ∂x/∂z|."""
        return self._pass(self.stacked(z), list(reversed(range(len(self._moved)))), inverse=True)

    def _pass(
        self, x: Float[Tensor, "M K B D"], blocks: Sequence[int], inverse: bool
    ) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        columns = list(x.unbind(-1))
        log_det = torch.zeros_like(x[..., 0])
        for block in blocks:
            stays = [columns[j] for j in self.passive[block]]
            passive = torch.stack(stays, dim=-1) if stays else x[..., :0]
            moved = torch.stack([columns[j] for j in self._moved[block]], dim=-1)
            shape = self.conditioners[block](passive).unflatten(-1, (moved.shape[-1], -1))
            moved, increment = move_along_spline(moved, shape, self.bound, inverse=inverse)
            log_det = log_det + increment.sum(-1)
            for j, column in zip(self._moved[block], moved.unbind(-1), strict=True):
                columns[j] = column
        return torch.stack(columns, dim=-1), log_det


def new_bijection(
    kind: str | Bijection, n_features: int, *, n_groups: int, seeds: Sequence[int], **settings: Any
) -> Bijection:
    """Return a bijection by its name and settings, or one like another bijection, whose own settings are taken."""
    if isinstance(kind, Bijection):
        return kind.anew(n_features, n_groups=n_groups, seeds=seeds)
    kinds = {"realnvp": RealNVP, "spline": NeuralSpline}
    if kind not in kinds:
        raise DataError(f"bijection must be one of {', '.join(kinds)}, or a Bijection; got {kind!r}.")
    return kinds[kind](n_features, n_groups=n_groups, seeds=seeds, **settings)

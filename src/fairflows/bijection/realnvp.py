r"""RealNVP: affine couplings (Dinh, Sohl-Dickstein and Bengio, 2017).

A block leaves half of the features alone and moves the others by a scale and a shift that depend on that half,

.. math:: z = x \odot e^{s} + t, \qquad s = \tanh(\cdot), \qquad \log|\det| = \textstyle\sum s,

with s = t = 0 on the half that stays. One network gives both s and t. Either direction evaluates it once, so encoding
and decoding cost the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fairflows.bijection.base import Bijection, passive_features
from fairflows.bijection.networks import StackedMLP, apply_networks, augment, padded


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

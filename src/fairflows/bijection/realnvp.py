r"""RealNVP: affine couplings (Dinh, Sohl-Dickstein and Bengio, 2017).

A block leaves half of the features alone and moves the others by a scale and a shift that depend on that half,

.. math:: z = x \odot e^{s} + t, \qquad s = \tanh(\cdot), \qquad \log|\det| = \textstyle\sum s,

with s = t = 0 on the half that stays. One network gives both s and t. Either direction evaluates it once, so encoding
and decoding cost the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fairflows.bijection.base import Bijection, passive_features
from fairflows.bijection.networks import StackedMLP, apply_networks, augment, is_transformed, padded


class _Scale(torch.autograd.Function):
    """y = x eˢ + t and s, from x and the network's raw output (artanh s, t)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
        raw_s, t = raw.chunk(2, dim=-1)
        s = torch.tanh(raw_s)
        scale = torch.exp(s)
        ctx.save_for_backward(x, s, scale)
        return torch.addcmul(t, x, scale), s

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_s: Tensor) -> tuple[Tensor, Tensor]:
        x, s, scale = ctx.saved_tensors
        grad_x = grad_y * scale
        return grad_x, _raw_gradient(torch.addcmul(grad_s, grad_x, x), s, grad_y)


class _Unscale(torch.autograd.Function):
    """x = (y − t) e⁻ˢ and s, from y and the network's raw output (artanh s, t)."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
        raw_s, t = raw.chunk(2, dim=-1)
        s = torch.tanh(raw_s)
        scale = torch.exp(-s)
        x = (y - t).mul_(scale)
        ctx.save_for_backward(x, s, scale)
        return x, s

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_x: Tensor, grad_s: Tensor) -> tuple[Tensor, Tensor]:
        x, s, scale = ctx.saved_tensors
        grad_y = grad_x * scale
        return grad_y, _raw_gradient(torch.addcmul(grad_s, grad_x, x, value=-1), s, -grad_y)


def _scale(x: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
    """y = x eˢ + t and s."""
    if not is_transformed():
        return _Scale.apply(x, raw)
    raw_s, t = raw.chunk(2, dim=-1)
    s = torch.tanh(raw_s)
    return x * torch.exp(s) + t, s


def _unscale(y: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
    """x = (y − t) e⁻ˢ and s."""
    if not is_transformed():
        return _Unscale.apply(y, raw)
    raw_s, t = raw.chunk(2, dim=-1)
    s = torch.tanh(raw_s)
    return (y - t) * torch.exp(-s), s


def _raw_gradient(grad_s: Tensor, s: Tensor, grad_t: Tensor) -> Tensor:
    """The gradient by (artanh s, t) from those by s and t."""
    width = s.shape[-1]
    raw = s.new_empty(*s.shape[:-1], 2 * width)
    torch.ops.aten.tanh_backward.grad_input(grad_s, s, grad_input=raw[..., :width])
    raw[..., width:] = grad_t
    return raw


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

    def _blocks(self) -> list[list[Tensor]]:
        """The network of each block, as matrices (M·K, w_l, w_{l+1})."""
        layers = [weight.unbind(2) for weight in self.conditioner.matrices()]
        return [[weight.flatten(0, 1) for weight in block] for block in zip(*layers, strict=True)]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """z = f_a(x) and log |det ∂z/∂x|."""
        return self._pass(x, self._blocks(), _scale)

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """x = f_a⁻¹(z) and log |det ∂x/∂z|."""
        x, log_det = self._pass(z, self._blocks()[::-1], _unscale)
        return x, -log_det

    def _pass(
        self,
        x: Tensor,
        blocks: list[list[Tensor]],
        coupling: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, Tensor]:
        state = augment(self.stacked(x)).flatten(0, 1)
        s_total: Tensor | None = None
        for matrices in blocks:
            state, s = coupling(state, apply_networks(state, matrices))
            s_total = s if s_total is None else s_total + s
        lead = (self.n_models, self.n_groups)
        if s_total is None:
            raise ValueError("n_blocks must be at least 1; got 0.")
        return state[..., : self.n_features].unflatten(0, lead), s_total.sum(-1).unflatten(0, lead)

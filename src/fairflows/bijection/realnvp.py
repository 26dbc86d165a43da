r"""RealNVP: affine couplings (Dinh, Sohl-Dickstein and Bengio, 2017).

A block leaves half of the features alone and moves the others by a scale and a shift that depend on that half,

.. math:: z = x \odot e^{s} + t, \qquad s = \tanh(\cdot), \qquad \log|\det| = \textstyle\sum s,

with s = t = 0 on the half that stays. One network gives both s and t. Either direction evaluates it once, so encoding
and decoding cost the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fairflows.bijection.base import Bijection, passive_features
from fairflows.bijection.networks import StackedMLP, activations, augment, backpropagate, is_transformed, padded
from fairflows.compute.steps import SecondStream

# The elementwise part of a coupling, in both directions, and its gradient: s = tanh(r), where a network gives (r, t).
# On a GPU each of these is one kernel, which torch compiles when it is first used: a step consists of hundreds of small
# kernels, and each of them takes its time to start.
_SCALE = """
template <typename T> void scale(T x, T r, T t, T total, T& y, T& s, T& new_total) {
    s = tanh(r); y = x * exp(s) + t; new_total = total + s;
}"""
_UNSCALE = """
template <typename T> void unscale(T y, T r, T t, T total, T& x, T& s, T& new_total) {
    s = tanh(r); x = (y - t) * exp(-s); new_total = total - s;
}"""
_SCALE_GRADIENT = """
template <typename T> void scale_gradient(T grad_y, T grad_total, T x, T s, T& grad_x, T& grad_r) {
    grad_x = grad_y * exp(s); grad_r = (grad_total + grad_x * x) * (1 - s * s);
}"""
_UNSCALE_GRADIENT = """
template <typename T> void unscale_gradient(T grad_x, T grad_total, T x, T s, T& grad_y, T& grad_r, T& grad_t) {
    grad_y = grad_x * exp(-s); grad_r = -(grad_total + grad_x * x) * (1 - s * s); grad_t = -grad_y;
}"""


@cache
def _kernel(code: str, n_outputs: int) -> Callable[..., tuple[Tensor, ...]]:
    return torch.cuda.jiterator._create_multi_output_jit_fn(code, n_outputs)


def _scale(x: Tensor, raw: Tensor, total: Tensor) -> tuple[Tensor, ...]:
    """The moved points y, s, and the sum of all s so far."""
    r, t = raw.chunk(2, dim=-1)
    if x.is_cuda:
        return _kernel(_SCALE, 3)(x, r, t, total)
    s = torch.tanh(r)
    return torch.addcmul(t, x, torch.exp(s)), s, total + s


def _unscale(y: Tensor, raw: Tensor, total: Tensor) -> tuple[Tensor, ...]:
    """The points x before they were moved, s, and the sum of all −s so far."""
    r, t = raw.chunk(2, dim=-1)
    if y.is_cuda:
        return _kernel(_UNSCALE, 3)(y, r, t, total)
    s = torch.tanh(r)
    return (y - t).mul_(torch.exp(-s)), s, total - s


def _scale_gradient(grad_y: Tensor, grad_total: Tensor, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """From the gradients by y and the sum to those by x and raw."""
    if x.is_cuda:
        grad_x, grad_r = _kernel(_SCALE_GRADIENT, 2)(grad_y, grad_total, x, s)
    else:
        grad_x = grad_y * torch.exp(s)
        grad_r = torch.ops.aten.tanh_backward(torch.addcmul(grad_total, grad_x, x), s)
    return grad_x, torch.cat([grad_r, grad_y], dim=-1)


def _unscale_gradient(grad_x: Tensor, grad_total: Tensor, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """From the gradients by x and the sum to those by y and raw."""
    if x.is_cuda:
        grad_y, grad_r, grad_t = _kernel(_UNSCALE_GRADIENT, 3)(grad_x, grad_total, x, s)
    else:
        grad_y, minus_s = grad_x * torch.exp(-s), torch.addcmul(grad_total, grad_x, x)
        grad_r, grad_t = torch.ops.aten.tanh_backward(minus_s, s).neg_(), -grad_y
    return grad_y, torch.cat([grad_r, grad_t], dim=-1)


class _Couplings(torch.autograd.Function):
    """All blocks of a pass in either direction: x̄ (N, B, w) through networks W̄_l (N, n_blocks, w_l, w_{l+1}).

    Written out by hand, since a step is many small operations: the gradient takes half as many as autograd's.
    """

    @staticmethod
    def forward(ctx: Any, inverse: bool, x: Tensor, *matrices: Tensor) -> tuple[Tensor, Tensor]:
        blocks = _blocks(matrices)
        ctx.inverse, ctx.order = inverse, range(len(blocks))[:: -1 if inverse else 1]
        kept: list[Tensor] = []  # of each block: s, x before or after it, and the layers of its network
        log_det = torch.zeros_like(x)
        for i in ctx.order:
            *layers, raw = activations(x, blocks[i])
            moved, s, log_det = (_unscale if inverse else _scale)(x, raw, log_det)
            if any(ctx.needs_input_grad):
                kept += [s, moved if inverse else x, *layers]
            x = moved
        ctx.save_for_backward(*matrices, *kept)
        return x, log_det.sum(-1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_log_det: Tensor) -> tuple[Tensor | None, ...]:
        depth = len(ctx.needs_input_grad) - 2
        matrices, kept = ctx.saved_tensors[:depth], ctx.saved_tensors[depth:]
        weight_grads = [torch.empty_like(weight) for weight in matrices] if any(ctx.needs_input_grad[2:]) else None
        blocks, block_grads = _blocks(matrices), None if weight_grads is None else _blocks(weight_grads)
        beside = SecondStream(grad.device, "gradients")
        by_s = grad_log_det.unsqueeze(-1).expand_as(grad).contiguous()  # a kernel reads four numbers at once
        for place, i in reversed(list(enumerate(ctx.order))):
            s, x, *layers = kept[place * (2 + depth) : (place + 1) * (2 + depth)]
            grad, raw = (_unscale_gradient if ctx.inverse else _scale_gradient)(grad, by_s, x, s)
            own_grads = None if block_grads is None else block_grads[i]
            through_network = backpropagate(raw, layers, blocks[i], own_grads, beside)
            if place > 0 or ctx.needs_input_grad[1]:
                grad.baddbmm_(through_network, blocks[i][0].mT)
        beside.join()
        grad_x = grad if ctx.needs_input_grad[1] else None
        return (None, grad_x, *([None] * depth if weight_grads is None else weight_grads))


def _blocks(matrices: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """The matrices (N, w_l, w_{l+1}) of each block, which are parts of W̄_l (N, n_blocks, w_l, w_{l+1})."""
    return list(zip(*(weight.unbind(1) for weight in matrices), strict=True))


def _couplings(inverse: bool, x: Tensor, *matrices: Tensor) -> tuple[Tensor, Tensor]:
    """The same by plain operations, which transforms of torch.func see through."""
    log_det = torch.zeros_like(x[..., 0])
    for block in _blocks(matrices)[:: -1 if inverse else 1]:
        raw_s, t = activations(x, block)[-1].chunk(2, dim=-1)
        s = torch.tanh(raw_s)
        x = (x - t) * torch.exp(-s) if inverse else x * torch.exp(s) + t
        log_det = log_det + (-s if inverse else s).sum(-1)
    return x, log_det


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
        """z = f_a(x) and log |det ∂z/∂x|."""
        return self.prepared().forward(x)

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """x = f_a⁻¹(z) and log |det ∂x/∂z|."""
        return self.prepared().inverse(z)

    def prepared(self) -> _PreparedRealNVP:
        """Both directions, with the matrices made once."""
        return _PreparedRealNVP(self, [weight.flatten(0, 1) for weight in self.conditioner.matrices()])


@dataclass(frozen=True)
class _PreparedRealNVP:
    """Both directions of couplings, with matrices W̄_l (M·K, n_blocks, w_l, w_{l+1}) of their present weights."""

    f: RealNVP
    matrices: list[Tensor]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """z = f_a(x) and log |det ∂z/∂x|."""
        return self._pass(x, inverse=False)

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """x = f_a⁻¹(z) and log |det ∂x/∂z|."""
        return self._pass(z, inverse=True)

    def _pass(self, x: Tensor, *, inverse: bool) -> tuple[Tensor, Tensor]:
        couplings = _couplings if is_transformed() else _Couplings.apply
        state, log_det = couplings(inverse, augment(self.f.stacked(x)).flatten(0, 1), *self.matrices)
        lead = (self.f.n_models, self.f.n_groups)
        return state[..., : self.f.n_features].unflatten(0, lead), log_det.unflatten(0, lead)

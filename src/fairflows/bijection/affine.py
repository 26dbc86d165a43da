r"""The elementwise part of an affine coupling, in both directions, and its gradient.

.. math:: y = x e^{s} + t, \qquad x = (y - t) e^{-s}, \qquad s = \tanh(r),

where a network gives raw = (r, t). On a GPU each function is one kernel, which torch compiles when it is first used: a
step consists of hundreds of small kernels, and each of them takes its time to start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

Kernel = Callable[..., tuple[Tensor, ...]]

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
def _kernel(code: str, n_outputs: int) -> Kernel:
    return torch.cuda.jiterator._create_multi_output_jit_fn(code, n_outputs)


def scale(x: Tensor, raw: Tensor, total: Tensor) -> tuple[Tensor, ...]:
    """The moved points y, s, and the sum of all s so far."""
    r, t = raw.chunk(2, dim=-1)
    if x.is_cuda:
        return _kernel(_SCALE, 3)(x, r, t, total)
    s = torch.tanh(r)
    return torch.addcmul(t, x, torch.exp(s)), s, total + s


def unscale(y: Tensor, raw: Tensor, total: Tensor) -> tuple[Tensor, ...]:
    """The points x before they were moved, s, and the sum of all −s so far."""
    r, t = raw.chunk(2, dim=-1)
    if y.is_cuda:
        return _kernel(_UNSCALE, 3)(y, r, t, total)
    s = torch.tanh(r)
    return (y - t).mul_(torch.exp(-s)), s, total - s


def scale_gradient(grad_y: Tensor, grad_total: Tensor, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """From the gradients by y and the sum to those by x and raw."""
    if x.is_cuda:
        grad_x, grad_r = _kernel(_SCALE_GRADIENT, 2)(grad_y, grad_total, x, s)
    else:
        grad_x = grad_y * torch.exp(s)
        grad_r = torch.ops.aten.tanh_backward(torch.addcmul(grad_total, grad_x, x), s)
    return grad_x, torch.cat([grad_r, grad_y], dim=-1)


def unscale_gradient(grad_x: Tensor, grad_total: Tensor, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """From the gradients by x and the sum to those by y and raw."""
    if x.is_cuda:
        grad_y, grad_r, grad_t = _kernel(_UNSCALE_GRADIENT, 3)(grad_x, grad_total, x, s)
    else:
        grad_y, minus_s = grad_x * torch.exp(-s), torch.addcmul(grad_total, grad_x, x)
        grad_r, grad_t = torch.ops.aten.tanh_backward(minus_s, s).neg_(), -grad_y
    return grad_y, torch.cat([grad_r, grad_t], dim=-1)

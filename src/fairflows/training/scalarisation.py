"""Changes to the joint loss of Algorithm 1: Chebyshev's scalarisation, and models that L_KL does not train."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairflows.bijection import Bijection
from fairflows.training.algorithm1 import Scalarise, convex

_SMALLEST_RANGE = 1e-6


@dataclass(frozen=True)
class LossRange:
    """The smallest and the largest value of L_KL and of L_clf, each of shape (2, M) or (2,)."""

    L_KL: Tensor
    L_clf: Tensor


def chebyshev(loss_range: LossRange, gamma_has_risen: Tensor) -> Scalarise:
    """The larger of γ·L_KL and (1 − γ)·L_clf, both normalised to their range (Wei and Niethammer, 2020).

    `gamma_has_risen` is a single truth value, read anew in every step: as long as it is false, the loss is convex.
    """

    def scalarise(L_KL: Tensor, L_clf: Tensor, gamma: Tensor) -> Tensor:
        larger = torch.maximum(
            gamma * _normalised(L_KL, loss_range.L_KL), (1 - gamma) * _normalised(L_clf, loss_range.L_clf)
        )
        return torch.where(gamma_has_risen, larger, convex(L_KL, L_clf, gamma))

    return scalarise


def _normalised(loss: Tensor, bounds: Tensor) -> Tensor:
    low, high = bounds
    return (loss - low) / (high - low).clamp_min(_SMALLEST_RANGE)


# With γ = 0 nothing keeps the draws of one group where the densities of the others are positive. L_KL may then be
# infinite, and 0·∞ in the loss or in its gradient would make the whole model NaN. So such models are trained as if L_KL
# were zero, while its true value is still recorded.


def without_kl(scalarise: Scalarise, kl_is_trained: Tensor) -> Scalarise:
    """The same joint loss, with L_KL replaced by zero in the models that it does not train (`kl_is_trained`, (M,))."""

    def guarded(L_KL: Tensor, L_clf: Tensor, gamma: Tensor) -> Tensor:
        return scalarise(torch.where(kl_is_trained, L_KL, 0.0), L_clf, gamma)

    return guarded


class WithoutKLGradient(Bijection):
    """Encoders f whose inverse passes no gradient on to models that L_KL does not train (`kl_is_trained`, (M,))."""

    def __init__(self, f: Bijection, kl_is_trained: Tensor):
        super().__init__()
        self.f = f
        self.n_features = f.n_features
        self.kl_is_trained = kl_is_trained

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """z = f_a(x) and log |det ∂z/∂x|."""
        return self.f.forward(x)

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """x = f_a⁻¹(z) and log |det ∂x/∂z|."""
        x, log_det = self.f.inverse(z)
        trained = self.kl_is_trained[:, None, None]
        return torch.where(trained[..., None], x, x.detach()), torch.where(trained, log_det, log_det.detach())

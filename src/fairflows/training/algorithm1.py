r"""Algorithm 1 of Fair Normalizing Flows (Balunović, Ruoss and Vechev, ICLR 2022): the loss of one step.

For two groups, as in the paper, with draws :math:`x_a \sim \hat p_a`, :math:`z_a = f_a(x_a)`, and a classifier h:

.. math:: \mathcal L_0 &= E[\log \hat p_{Z_0}(z_0) - \log \hat p_{Z_1}(z_0)] \\
          \mathcal L_1 &= E[\log \hat p_{Z_1}(z_1) - \log \hat p_{Z_0}(z_1)] \\
          \mathcal L   &= \gamma\, \mathcal L_{KL} + (1 - \gamma)\, \mathcal L_{clf},
          \qquad \mathcal L_{KL} = \tfrac12 (\mathcal L_0 + \mathcal L_1).

The paper writes :math:`\mathcal L_0 + \mathcal L_1` without the half; the authors' code has it. For K groups
:math:`\mathcal L_a` is the mean over all groups b other than a, and :math:`\mathcal L_{KL}` the mean over a; with more
than five, each b is compared on a share of the draws. Under equalized odds it is also the mean over the labels, with
draws of :math:`\hat p(x | a, y)`: the authors' code takes this mean, so that γ weighs the divergence against the task
as much as it does under demographic parity.

Below are two changes to the joint loss: Chebyshev's scalarisation, and models that L_KL does not train.

Everything here has leading axes (M models, K groups): the models differ in γ and in their seed, share the densities,
and no number of one reaches another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import cross_entropy

from fairflows.bijection import StackedMLP
from fairflows.bijection.base import BijectiveMap
from fairflows.density import GroupDensities

MOST_COMPARED = 4
"""The other groups that a draw is compared with in a step."""

_SMALLEST_RANGE = 1e-6  # that a loss is normalised to


class Batch(NamedTuple):
    """Inputs of a step; any axes may lead, in a step the M models."""

    x: Tensor  # points to encode, (..., K, B + N, D): B rows of every group, then N draws from its density
    log_p_x: Tensor  # log p̂_a(x) of the draws, (..., K, N)
    y: Tensor | None = None  # labels of the rows, (..., K, B); None when there is no task


class Losses(NamedTuple):
    """The losses of a step, each of shape (M,)."""

    L_clf: Tensor
    L_KL: Tensor
    L: Tensor


Scalarise = Callable[[Tensor, Tensor, Tensor], Tensor]
"""L from L_KL, L_clf and γ, each of shape (M,)."""


def convex(L_KL: Float[Tensor, " M"], L_clf: Float[Tensor, " M"], gamma: Float[Tensor, " M"]) -> Float[Tensor, " M"]:
    """Return the paper's joint loss, γ·L_KL + (1 − γ)·L_clf."""
    return gamma * L_KL + (1 - gamma) * L_clf


def algorithm_1(
    f: BijectiveMap,
    h: StackedMLP | None,
    p: GroupDensities,
    batch: Batch,
    gamma: Float[Tensor, " M"],
    scalarise: Scalarise = convex,
) -> Losses:
    """Return the losses of one step of Algorithm 1, for encoders f_a, classifiers h on z and densities p̂_a of M models.

    Without a task h is None, and L_clf is zero. `gamma` is the trade-off of every model; `scalarise` makes one
    loss of L_KL and L_clf.
    """
    N = batch.log_p_x.shape[-1]
    z, log_det = f.forward(batch.x)  # z_a = f_a(x_a)
    z_rows, z_draws = z.split([z.shape[2] - N, N], dim=2)
    L_clf = classification_loss(h, z_rows, batch.y)
    log_p_z = batch.log_p_x - log_det[..., -N:]  # log p̂_Za(z_a), eq. 4
    z_compared, log_p_z_compared = (draws_compared(values, p.n_labels) for values in (z_draws, log_p_z))
    log_p_z_others = log_prob_under_others(f, p, z_compared)  # log p̂_Zb(z_a) for every b ≠ a
    L_a = (log_p_z_compared - log_p_z_others).mean((2, 3))  # (M, K): L_0, L_1, ...
    L_KL = L_a.mean(1)  # (L_0 + L_1) / 2 for two groups
    L = scalarise(L_KL, L_clf, gamma)
    return Losses(L_clf, L_KL, L)


def draws_compared(
    draws: Shaped[Tensor, "M K N *D"], n_labels: int, most: int = MOST_COMPARED
) -> Shaped[Tensor, "M K K-1 n *D"]:
    """Return the draws that each group b ≠ a is compared on.

    All of them, unless there are so many groups that each draw is compared with `most` others only: then b gets an
    equal share of each label's draws, and the work of a step grows with the groups and not with their pairs.
    """
    n_others = draws.shape[1] - 1
    if n_others <= most:
        return draws.unsqueeze(2).expand(-1, -1, n_others, *draws.shape[2:])
    by_label = draws.unflatten(2, (n_labels, -1))
    N = by_label.shape[3]
    share = -(-N * most // n_others)
    twice = torch.cat([by_label, by_label[:, :, :, :share]], dim=3)  # a share may begin again at the first draw
    shares = [twice.narrow(3, i * N // n_others, share) for i in range(n_others)]
    return torch.stack(shares, dim=2).flatten(3, 4)


def log_prob_under_others(
    f: BijectiveMap, p: GroupDensities, z: Float[Tensor, "M K K-1 N D"]
) -> Float[Tensor, "M K K-1 N"]:
    """Return log p̂_Zb(z_a) of draws z_a for every other group b = a − 1, a − 2, ... (mod K).

    The draws are those that a and b are compared on. With densities by group and label they are
    blocks of equal length, one per label, and a block is evaluated under the densities of its label.
    """
    K = z.shape[1]
    by_label = z.unflatten(3, (p.n_labels, -1)).unbind(2)
    # Group b decodes the draws of the groups b + 1, b + 2, ... (mod K), all in one call.
    shifted = torch.cat([part.roll(-shift, dims=1) for shift, part in enumerate(by_label, start=1)], dim=3)
    x, log_det = f.inverse(shifted.flatten(2, 3))
    log_p_z = p.log_prob(x) + log_det  # eq. 4
    by_shift = log_p_z.unflatten(2, (p.n_labels, K - 1, -1)).unbind(3)
    return torch.stack([part.roll(shift, dims=1) for shift, part in enumerate(by_shift, start=1)], dim=2).flatten(3)


def classification_loss(
    h: StackedMLP | None, z: Float[Tensor, "M K B D"], y: Int[Tensor, "M K B"] | None
) -> Float[Tensor, " M"]:
    """Return L_clf of each model: the mean cross-entropy of h(z) for rows z, or zero without h."""
    if h is None or y is None:
        return z.new_zeros(len(z))
    logits = h(z.flatten(1, 2))
    return cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").unflatten(0, (len(z), -1)).mean(1)


@dataclass(frozen=True)
class LossRange:
    """The smallest and the largest value of L_KL and of L_clf."""

    L_KL: Float[Tensor, " 2 *M"]
    L_clf: Float[Tensor, " 2 *M"]


def chebyshev(loss_range: LossRange, gamma_has_risen: Bool[Tensor, ""]) -> Scalarise:
    """Return the larger of γ·L_KL and (1 − γ)·L_clf, both normalised to their range (Wei and Niethammer, 2020).

    `gamma_has_risen` is a single truth value, read anew in every step: as long as it is false, the loss is convex.
    """

    def scalarise(L_KL: Tensor, L_clf: Tensor, gamma: Tensor) -> Tensor:
        larger = torch.maximum(
            gamma * _normalised(L_KL, loss_range.L_KL), (1 - gamma) * _normalised(L_clf, loss_range.L_clf)
        )
        return torch.where(gamma_has_risen, larger, convex(L_KL, L_clf, gamma))

    return scalarise


def _normalised(loss: Float[Tensor, " M"], bounds: Float[Tensor, " 2 *M"]) -> Float[Tensor, " M"]:
    low, high = bounds
    return (loss - low) / (high - low).clamp_min(_SMALLEST_RANGE)


# With γ = 0 nothing keeps the draws of one group where the densities of the others are positive. L_KL may then be
# infinite, and 0·∞ in the loss or in its gradient would make the whole model NaN. So such models are trained as if L_KL
# were zero, while its true value is still recorded.


def without_kl(scalarise: Scalarise, kl_is_trained: Bool[Tensor, " M"]) -> Scalarise:
    """Return the joint loss with L_KL replaced by zero in models that it does not train."""

    def guarded(L_KL: Tensor, L_clf: Tensor, gamma: Tensor) -> Tensor:
        return scalarise(torch.where(kl_is_trained, L_KL, 0.0), L_clf, gamma)

    return guarded


@dataclass(frozen=True)
class WithoutKLGradient:
    """Encoders f whose inverse passes no gradient on to models that L_KL does not train."""

    f: BijectiveMap
    kl_is_trained: Bool[Tensor, " M"]

    def forward(self, x: Float[Tensor, "M K B D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return z = f_a(x) and log |det ∂z/∂x|."""
        return self.f.forward(x)

    def inverse(self, z: Float[Tensor, "M K B D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return x = f_a⁻¹(z) and log |det ∂x/∂z|."""
        x, log_det = self.f.inverse(z)
        trained = self.kl_is_trained[:, None, None]
        return torch.where(trained[..., None], x, x.detach()), torch.where(trained, log_det, log_det.detach())

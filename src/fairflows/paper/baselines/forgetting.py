"""Adversarial Forgetting: Jaiswal et al., "Invariant Representations through Adversarial Forgetting", AAAI 2020."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from torch import Tensor

from fairflows.bijection.networks import StackedMLP
from fairflows.paper.baselines.adversarial import AdversarialBaseline, check_weights
from fairflows.paper.baselines.game import Objective, Representation, mean_cross_entropy


@dataclass(eq=False, repr=False)
class AdversarialForgetting(AdversarialBaseline):
    r"""A code of the row, and a mask that forgets parts of it.

    The code c and a mask m ∈ (0, 1)^d are both made from x; z = c ⊙ m is released, predicted from, and attacked by the
    discriminator. A decoder keeps c informative, and the mask is driven towards zeros and ones:

    .. math:: \min\; L_{task} + ρ\,\|x - \hat x(c)\|^2 + λ\, \overline{m^T (1 - m)} - δ\, L_{disc}

    Parameters
    ----------
    delta : float
        δ, the weight of the discriminator's loss.
    rho, lam : float
        ρ and λ, the weights of reconstruction and of the mask.
    n_latent : int
        Dimensions of z.
    hidden, head, adversary : sequence of int
        Hidden layers of encoder, mask and decoder; of the predictor; of the discriminator, two of 50 in the comparison
        of Balunović et al. (2022).
    n_epochs, batch_size, learning_rate, weight_decay, sensitive, identifier, device, random_state
        As for `AdversarialEncoder`.

    Examples
    --------
    >>> from fairflows import make_gaussians
    >>> table, _ = make_gaussians(400, random_state=0)
    >>> AdversarialForgetting(n_epochs=2).fit(table.X, table.y, sensitive_features=table.a).transform(table.X).shape
    (400, 50)
    """

    delta: float = 1.0
    _: KW_ONLY
    rho: float = 0.001
    lam: float = 0.1
    n_latent: int = 50
    hidden: Sequence[int] = (50,)
    head: Sequence[int] = (50,)
    adversary: Sequence[int] = (50, 50)

    strength_name: ClassVar[str] = "delta"

    def _objective(self, strength: Tensor) -> Objective:
        for name, weights in (("delta", strength.tolist()), ("rho", [self.rho]), ("lam", [self.lam])):
            check_weights(name, weights)
        return Forgetting(strength, self.rho, self.lam)

    def _representation(self, n_features: int, seeds: Sequence[int]) -> Representation:
        return MaskedCode(
            code=StackedMLP(n_features, self.hidden, self.n_latent, seeds=seeds, stream="encoder"),
            mask=StackedMLP(n_features, self.hidden, self.n_latent, seeds=seeds, stream="mask"),
            decoder=StackedMLP(self.n_latent, self.hidden, n_features, seeds=seeds, stream="decoder"),
        )


@dataclass(frozen=True)
class Forgetting(Objective):
    """The objective of Adversarial Forgetting; the discriminator minimises L_disc, its cross-entropy."""

    delta: Tensor
    rho: float
    lam: float

    def encoder_loss(self, task: Tensor, logits: Tensor, a: Tensor, regularisers: tuple[Tensor, ...]) -> Tensor:
        """L_task + ρ‖x − x̂(c)‖² + λ·mᵀ(1 − m) − δ·L_disc."""
        reconstruction, mask = regularisers
        return task + self.rho * reconstruction + self.lam * mask - self.delta * mean_cross_entropy(logits, a)


class MaskedCode(Representation):
    """z = c ⊙ m, with the regularisers ‖x − x̂(c)‖² and mᵀ(1 − m)."""

    def __init__(self, code: StackedMLP, mask: StackedMLP, decoder: StackedMLP):
        super().__init__()
        self.code, self.mask, self.decoder = code, mask, decoder

    def represent(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """z, and the means of both regularisers over the batch."""
        c, m = self.code(x), self.mask(x).sigmoid()
        reconstruction = (self.decoder(c) - x).square().sum(-1).mean(-1)
        undecided = (m * (1 - m)).sum(-1).mean(-1)
        return c * m, (reconstruction, undecided)

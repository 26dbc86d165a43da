"""MaxEnt-ARL: Roy and Boddeti, "Mitigating Information Leakage: A Maximum Entropy Approach", CVPR 2019."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from torch import Tensor

from fairflows.paper.baselines.adversarial import AdversarialBaseline, check_weights
from fairflows.paper.baselines.game import Objective


@dataclass(eq=False, repr=False)
class MaxEntARL(AdversarialBaseline):
    r"""Maximum-entropy adversarial representation learning.

    The discriminator minimises its cross-entropy. Encoder and predictor minimise

    .. math:: L_{task} - α\, H, \qquad H = -\overline{\textstyle\sum_a p_a(z) \log p_a(z)},

    with H the entropy of the discriminator's probabilities: it is to be unsure, not wrong.

    Parameters
    ----------
    alpha : float
        α, the weight of the entropy.
    n_latent : int
        Dimensions of z.
    hidden, head, adversary : sequence of int
        Hidden layers of encoder, predictor and discriminator; two of 64 in the comparison of Balunović et al. (2022).
    n_epochs, batch_size, learning_rate, weight_decay, sensitive, identifier, device, random_state
        As for `AdversarialEncoder`.

    Examples
    --------
    >>> from fairflows import make_gaussians
    >>> table, _ = make_gaussians(400, random_state=0)
    >>> MaxEntARL(n_epochs=2).fit(table.X, table.y, sensitive_features=table.a).transform(table.X).shape
    (400, 2)
    """

    alpha: float = 10.0
    _: KW_ONLY
    n_latent: int = 2
    hidden: Sequence[int] = (64,)
    head: Sequence[int] = (64, 64)
    adversary: Sequence[int] = (64, 64)

    strength_name: ClassVar[str] = "alpha"

    def _objective(self, strength: Tensor) -> Objective:
        check_weights("alpha", strength.tolist())
        return MaximumEntropy(strength)


@dataclass(frozen=True)
class MaximumEntropy(Objective):
    """The objective of MaxEnt-ARL; the discriminator minimises its cross-entropy."""

    alpha: Tensor

    def encoder_loss(self, task: Tensor, logits: Tensor, a: Tensor, regularisers: tuple[Tensor, ...]) -> Tensor:
        """L_task − α·H."""
        log_p = logits.log_softmax(-1)
        H = -(log_p.exp() * log_p).sum(-1).mean(-1)
        return task - self.alpha * H

"""LAFTR-DP: Madras et al., "Learning Adversarially Fair and Transferable Representations", ICML 2018."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from torch import Tensor
from torch.nn.functional import one_hot

from fairflows.paper.baselines.adversarial import AdversarialBaseline, check_weights
from fairflows.paper.baselines.game import Objective


@dataclass(eq=False, repr=False)
class LAFTR(AdversarialBaseline):
    r"""LAFTR for demographic parity, without reconstruction.

    The adversary maximises its group-normalised L1 objective and the encoder minimises γ times it,

    .. math:: L_{adv} = 1 - \sum_a \frac1{|D_a|} \sum_{i \in D_a} |g(z_i) - a| = \sum_a \overline{p_a(z)} - 1,

    the mean over group a of the probability given to a, summed over the groups: for the best adversary it is the
    demographic parity distance.

    Parameters
    ----------
    gamma : float
        γ, the weight of the adversary's objective.
    n_latent : int
        Dimensions of z.
    hidden, head, adversary : sequence of int
        Hidden layers of encoder, classifier and adversary; one of 8 each in the comparison of Balunović et al. (2022).
    n_epochs, batch_size, learning_rate, weight_decay, sensitive, identifier, device, random_state
        As for `AdversarialEncoder`.

    Examples
    --------
    >>> from fairflows import make_gaussians
    >>> table, _ = make_gaussians(400, random_state=0)
    >>> LAFTR(n_epochs=2).fit(table.X, table.y, sensitive_features=table.a).transform(table.X).shape
    (400, 8)
    """

    gamma: float = 2.0
    _: KW_ONLY
    n_latent: int = 8
    hidden: Sequence[int] = (8,)
    head: Sequence[int] = (8,)
    adversary: Sequence[int] = (8,)

    def _objective(self, strength: Tensor) -> Objective:
        check_weights("gamma", strength.tolist())
        return GroupNormalisedL1(strength)


@dataclass(frozen=True)
class GroupNormalisedL1(Objective):
    """LAFTR's objective for demographic parity."""

    gamma: Tensor

    def encoder_loss(self, task: Tensor, logits: Tensor, a: Tensor, regularisers: tuple[Tensor, ...]) -> Tensor:
        """L_task + γ·L_adv."""
        return task + self.gamma * separation(logits, a)

    def adversary_loss(self, logits: Tensor, a: Tensor) -> Tensor:
        """−L_adv: the adversary maximises it."""
        return -separation(logits, a)


def separation(logits: Tensor, a: Tensor) -> Tensor:
    """L_adv of each model, (M,): the mean over each group of its own probability, summed, less one."""
    member = one_hot(a, logits.shape[-1]).to(logits)  # (M, B, K)
    size = member.sum(1).clamp(min=1)  # a group without a row in the batch adds nothing
    return ((logits.softmax(-1) * member).sum(1) / size).sum(-1) - 1

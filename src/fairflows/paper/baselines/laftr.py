"""LAFTR-DP: Madras et al., "Learning Adversarially Fair and Transferable Representations", ICML 2018."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import one_hot

from fairflows.bijection.networks import StackedMLP
from fairflows.paper.baselines.game import Game
from fairflows.paper.baselines.neural import NeuralBaseline, check_strength


class LAFTR(NeuralBaseline):
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

    def __init__(
        self,
        gamma: float = 2.0,
        *,
        n_latent: int = 8,
        hidden: Sequence[int] = (8,),
        head: Sequence[int] = (8,),
        adversary: Sequence[int] = (8,),
        n_epochs: int = 50,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        sensitive: str | list[str] | None = None,
        identifier: str | None = None,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.gamma = gamma
        self.n_latent = n_latent
        self.hidden = hidden
        self.head = head
        self.adversary = adversary
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.sensitive = sensitive
        self.identifier = identifier
        self.device = device
        self.random_state = random_state

    def _game(self, n_features: int, n_classes: int, n_groups: int, strength: Tensor, seeds: Sequence[int]) -> Game:
        for gamma in strength.tolist():
            check_strength("gamma", gamma)
        encoder = StackedMLP(n_features, self.hidden, self.n_latent, seeds=seeds, stream="encoder")
        predictor = StackedMLP(self.n_latent, self.head, n_classes, seeds=seeds, stream="head")
        adversary = StackedMLP(self.n_latent, self.adversary, n_groups, seeds=seeds, stream="adversary")
        return _LaftrGame(encoder, predictor, adversary, strength)

    def _n_latent(self) -> int:
        return self.n_latent


class _LaftrGame(Game):
    def __init__(self, encoder: StackedMLP, predictor: StackedMLP, adversary: StackedMLP, gamma: Tensor):
        super().__init__()
        self.encoder, self.predictor, self.adversary = encoder, predictor, adversary
        self._gamma = gamma

    def represent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.encoder(x), x.new_zeros(())

    def encoder_loss(self, task: Tensor, logits: Tensor, a: Tensor, penalty: Tensor) -> Tensor:
        return task + self._gamma * separation(logits, a)

    def adversary_loss(self, logits: Tensor, a: Tensor) -> Tensor:
        return -separation(logits, a)


def separation(logits: Tensor, a: Tensor) -> Tensor:
    """L_adv of each model, (M,): the mean over each group of its own probability, summed, less one."""
    member = one_hot(a, logits.shape[-1]).to(logits)  # (M, B, K)
    size = member.sum(1).clamp(min=1)  # a group without a row in the batch adds nothing
    return ((logits.softmax(-1) * member).sum(1) / size).sum(-1) - 1

"""Plain adversarial training (Edwards and Storkey, 2016), as in the motivation of Balunović et al. (2022)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from fairflows.bijection.networks import StackedMLP
from fairflows.paper.baselines.game import Game, mean_cross_entropy
from fairflows.paper.baselines.neural import NeuralBaseline, check_strength


class AdversarialEncoder(NeuralBaseline):
    r"""min over encoder and classifier, max over the adversary, of (1 − γ)·task − γ·cross-entropy of the adversary.

    Parameters
    ----------
    gamma : float
        0 cares for the task alone, 1 for hiding the group alone.
    n_latent : int
        Dimensions of z.
    hidden, head, adversary : sequence of int
        Hidden layers of encoder, classifier and adversary.
    n_epochs, batch_size, learning_rate, weight_decay
        Of Adam, for both sides.
    sensitive, identifier : str, optional
        Columns of X that hold the sensitive attribute and name the person of a row.
    device : str
        "auto" takes a GPU where there is one.
    random_state : int
        Seed of weights and batches.

    Examples
    --------
    >>> from fairflows import make_gaussians
    >>> table, _ = make_gaussians(400, random_state=0)
    >>> encoder = AdversarialEncoder(n_epochs=2).fit(table.X, table.y, sensitive_features=table.a)
    >>> encoder.transform(table.X).shape
    (400, 2)
    """

    _balanced: ClassVar[bool] = True

    def __init__(
        self,
        gamma: float = 0.5,
        *,
        n_latent: int = 2,
        hidden: Sequence[int] = (50,),
        head: Sequence[int] = (50,),
        adversary: Sequence[int] = (50,),
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
            check_strength("gamma", gamma, 1)
        encoder = StackedMLP(n_features, self.hidden, self.n_latent, seeds=seeds, stream="encoder")
        predictor = StackedMLP(self.n_latent, self.head, n_classes, seeds=seeds, stream="head")
        adversary = StackedMLP(self.n_latent, self.adversary, n_groups, seeds=seeds, stream="adversary")
        return _Duel(encoder, predictor, adversary, strength)

    def _n_latent(self) -> int:
        return self.n_latent


class _Duel(Game):
    def __init__(self, encoder: StackedMLP, predictor: StackedMLP, adversary: StackedMLP, gamma: Tensor):
        super().__init__()
        self.encoder, self.predictor, self.adversary = encoder, predictor, adversary
        self._gamma = gamma

    def represent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.encoder(x), x.new_zeros(())

    def encoder_loss(self, task: Tensor, logits: Tensor, a: Tensor, penalty: Tensor) -> Tensor:
        return (1 - self._gamma) * task - self._gamma * mean_cross_entropy(logits, a)

"""MaxEnt-ARL: Roy and Boddeti, "Mitigating Information Leakage: A Maximum Entropy Approach", CVPR 2019."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from fairflows.bijection.networks import StackedMLP
from fairflows.paper.baselines.game import Game
from fairflows.paper.baselines.neural import NeuralBaseline, check_strength


class MaxEntARL(NeuralBaseline):
    """Maximum-entropy adversarial representation learning.

    The discriminator minimises its cross-entropy; encoder and predictor minimise task − α·H, with H the entropy of what
    the discriminator believes: it is to be unsure, not wrong.

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

    _strength: ClassVar[str] = "alpha"

    def __init__(
        self,
        alpha: float = 10.0,
        *,
        n_latent: int = 2,
        hidden: Sequence[int] = (64,),
        head: Sequence[int] = (64, 64),
        adversary: Sequence[int] = (64, 64),
        n_epochs: int = 50,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        sensitive: str | list[str] | None = None,
        identifier: str | None = None,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.alpha = alpha
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
        for alpha in strength.tolist():
            check_strength("alpha", alpha)
        encoder = StackedMLP(n_features, self.hidden, self.n_latent, seeds=seeds, stream="encoder")
        predictor = StackedMLP(self.n_latent, self.head, n_classes, seeds=seeds, stream="head")
        adversary = StackedMLP(self.n_latent, self.adversary, n_groups, seeds=seeds, stream="adversary")
        return _EntropyGame(encoder, predictor, adversary, strength)

    def _n_latent(self) -> int:
        return self.n_latent


class _EntropyGame(Game):
    def __init__(self, encoder: StackedMLP, predictor: StackedMLP, adversary: StackedMLP, alpha: Tensor):
        super().__init__()
        self.encoder, self.predictor, self.adversary = encoder, predictor, adversary
        self._alpha = alpha

    def represent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.encoder(x), x.new_zeros(())

    def encoder_loss(self, task: Tensor, logits: Tensor, a: Tensor, penalty: Tensor) -> Tensor:
        log_p = logits.log_softmax(-1)
        entropy = -(log_p.exp() * log_p).sum(-1).mean(-1)
        return task - self._alpha * entropy

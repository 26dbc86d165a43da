"""Adversarial Forgetting: Jaiswal et al., "Invariant Representations through Adversarial Forgetting", AAAI 2020."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from fairflows.bijection.networks import StackedMLP
from fairflows.paper.baselines.game import Game, mean_cross_entropy
from fairflows.paper.baselines.neural import NeuralBaseline, check_strength


class AdversarialForgetting(NeuralBaseline):
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

    _strength: ClassVar[str] = "delta"

    def __init__(
        self,
        delta: float = 1.0,
        *,
        rho: float = 0.001,
        lam: float = 0.1,
        n_latent: int = 50,
        hidden: Sequence[int] = (50,),
        head: Sequence[int] = (50,),
        adversary: Sequence[int] = (50, 50),
        n_epochs: int = 50,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        sensitive: str | list[str] | None = None,
        identifier: str | None = None,
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.delta = delta
        self.rho = rho
        self.lam = lam
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
        for name, value in (("delta", float(strength.min())), ("rho", self.rho), ("lam", self.lam)):
            check_strength(name, value)
        game = _ForgettingGame(self.rho, self.lam, strength)
        game.code = StackedMLP(n_features, self.hidden, self.n_latent, seeds=seeds, stream="encoder")
        game.mask = StackedMLP(n_features, self.hidden, self.n_latent, seeds=seeds, stream="mask")
        game.decoder = StackedMLP(self.n_latent, self.hidden, n_features, seeds=seeds, stream="decoder")
        game.predictor = StackedMLP(self.n_latent, self.head, n_classes, seeds=seeds, stream="head")
        game.adversary = StackedMLP(self.n_latent, self.adversary, n_groups, seeds=seeds, stream="adversary")
        return game

    def _n_latent(self) -> int:
        return self.n_latent


class _ForgettingGame(Game):
    code: StackedMLP
    mask: StackedMLP
    decoder: StackedMLP

    def __init__(self, rho: float, lam: float, delta: Tensor):
        super().__init__()
        self._rho, self._lam, self._delta = rho, lam, delta

    def represent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        code, mask = self.code(x), self.mask(x).sigmoid()
        reconstruction = (self.decoder(code) - x).square().sum(-1).mean(-1)
        undecided = (mask * (1 - mask)).sum(-1).mean(-1)
        return code * mask, self._rho * reconstruction + self._lam * undecided

    def encoder_loss(self, task: Tensor, logits: Tensor, a: Tensor, penalty: Tensor) -> Tensor:
        return task + penalty - self._delta * mean_cross_entropy(logits, a)

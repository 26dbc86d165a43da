"""The estimator behind all adversarial baselines, and the baselines themselves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import one_hot

from fairflows.bijection.networks import StackedMLP
from fairflows.compute.resources import chosen_device
from fairflows.encoder.base import FloatArray, Learnt, Rows
from fairflows.encoder.group_encoder import GroupEncoder
from fairflows.exceptions import DataError
from fairflows.paper.baselines.game import (
    Objective,
    PlainRepresentation,
    Players,
    Representation,
    mean_cross_entropy,
    play,
)
from fairflows.release.partitions import NumericView


@dataclass(eq=False, repr=False, kw_only=True)
class AdversarialBaseline(GroupEncoder):
    """Base of the adversarial baselines: z = f(x), one network for all groups, trained with a method's objective.

    The sensitive attribute is needed to fit, and not to encode. A subclass is a dataclass whose fields are its
    constructor's parameters; it states its defaults and its `Objective`.

    Parameters
    ----------
    n_latent : int
        Dimensions of z.
    hidden, head, adversary : sequence of int
        Hidden layers of encoder, predictor and adversary.
    n_epochs, batch_size : int
        Length of the training, and rows per step.
    learning_rate, weight_decay : float
        Adam's, for both sides.
    sensitive, identifier : str, optional
        Columns of X that hold the sensitive attribute and name the person of a row.
    device : str
        "auto" takes a GPU where there is one.
    random_state : int
        Seed of weights and batches.
    """

    n_latent: int
    hidden: Sequence[int]
    head: Sequence[int]
    adversary: Sequence[int]
    n_epochs: int = 50
    batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    sensitive: str | list[str] | None = None
    identifier: str | None = None
    device: str = "auto"
    random_state: int = 0
    view_: NumericView = field(init=False)
    players_: Players = field(init=False)

    _balanced: ClassVar[bool] = False
    """Whether a batch has equally many rows of every group."""

    @abstractmethod
    def _objective(self, strength: Tensor) -> Objective:
        """What both sides minimise, given the strength of each model, (M,)."""

    def _representation(self, n_features: int, seeds: Sequence[int]) -> Representation:
        """The encoder networks, one per seed, untrained."""
        network = StackedMLP(n_features, self.hidden, self.n_latent, seeds=seeds, stream="encoder")
        return PlainRepresentation(network)

    @property
    def needs_attribute(self) -> bool:
        """One network encodes the rows of all groups."""
        return False

    def _fit(
        self,
        rows: Rows,
        y: ArrayLike | None,
        sample_weight: FloatArray | None,
        strengths: Sequence[float],
        seeds: Sequence[int],
    ) -> list[Learnt | None]:
        if sample_weight is not None:
            raise DataError(f"{type(self).__name__} does not take sample_weight.")
        labels = self._read_label(y, len(rows.X))
        if labels is None:
            raise DataError(f"{type(self).__name__} trains for a task: pass y.")
        self.view_ = NumericView.fit(rows.X, None, 0)
        device = chosen_device(self.device)
        x = torch.as_tensor(self.view_.features(rows.X), dtype=torch.float32, device=device)
        models = [(strength, seed) for strength in strengths for seed in seeds]
        objective = self._objective(torch.tensor([s for s, _ in models], dtype=torch.float32, device=device))
        model_seeds = [seed for _, seed in models]
        players = Players(
            self._representation(x.shape[1], model_seeds),
            StackedMLP(self.n_latent, self.head, len(self.label_classes), seeds=model_seeds, stream="head"),
            StackedMLP(self.n_latent, self.adversary, len(self.groups_), seeds=model_seeds, stream="adversary"),
        ).to(device)
        play(
            players,
            objective,
            x,
            torch.as_tensor(labels, device=device),
            torch.as_tensor(rows.group, device=device),
            seeds=model_seeds,
            n_epochs=self.n_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            balanced=self._balanced,
        )
        players = players.cpu()
        return [{"players_": players.select(m).requires_grad_(False)} for m in range(len(models))]

    def encode(self, rows: Rows) -> pd.DataFrame:
        """z of every row; the sensitive attribute is not used."""
        return pd.DataFrame(self._latent(rows).double().numpy(), columns=self._names_out())

    def predict_rows(self, rows: Rows) -> npt.NDArray[np.generic]:
        """The class that the predictor reads from z."""
        with torch.no_grad():
            return self.label_classes[self.players_.predictor(self._latent(rows)[None])[0].argmax(-1).numpy()]

    def _latent(self, rows: Rows) -> Tensor:
        """z of every row, (n, n_latent)."""
        features = torch.as_tensor(self.view_.features(rows.X), dtype=torch.float32)
        with torch.no_grad():
            z, _ = self.players_.encoder.represent(features[None])
        return z[0]

    def _names_out(self) -> list[str]:
        return [f"z{j}" for j in range(self.n_latent)]


def check_weights(name: str, weights: Sequence[float], most: float = np.inf) -> None:
    """Refuse weights of an objective's terms that are outside [0, most]."""
    for weight in weights:
        if not 0 <= weight <= most:
            allowed = "at least 0" if np.isinf(most) else f"in [0, {most:g}]"
            raise ValueError(f"{name} must be {allowed}; got {weight!r}.")


@dataclass(eq=False, repr=False)
class AdversarialEncoder(AdversarialBaseline):
    r"""Plain adversarial training (Edwards and Storkey, 2016), as in the motivation of Balunović et al. (2022).

    Encoder and classifier minimise, and the adversary maximises,

    .. math:: (1 - γ)\, L_{task} - γ\, L_{adv},

    with both losses cross-entropies.

    Parameters
    ----------
    gamma : float
        γ in [0, 1]: 0 cares for the task alone, 1 for hiding the group alone.
    n_latent : int
        Dimensions of z.
    hidden, head, adversary : sequence of int
        Hidden layers of encoder, classifier and adversary.
    n_epochs, batch_size, learning_rate, weight_decay, sensitive, identifier, device, random_state
        As for every adversarial baseline: training by Adam, roles of columns, where to train, seed.

    Examples
    --------
    >>> from fairflows import make_gaussians
    >>> table, _ = make_gaussians(400, random_state=0)
    >>> encoder = AdversarialEncoder(n_epochs=2).fit(table.X, table.y, sensitive_features=table.a)
    >>> encoder.transform(table.X).shape
    (400, 2)
    """

    gamma: float = 0.5
    _: KW_ONLY
    n_latent: int = 2
    hidden: Sequence[int] = (50,)
    head: Sequence[int] = (50,)
    adversary: Sequence[int] = (50,)

    _balanced: ClassVar[bool] = True

    def _objective(self, strength: Tensor) -> Objective:
        check_weights("gamma", strength.tolist(), most=1)
        return TradeOff(strength)


@dataclass(frozen=True)
class TradeOff(Objective):
    """A weighted sum of the task's and the adversary's cross-entropies."""

    gamma: Tensor

    def encoder_loss(self, task: Tensor, logits: Tensor, a: Tensor, regularisers: tuple[Tensor, ...]) -> Tensor:
        """(1 − γ)·L_task − γ·L_adv."""
        return (1 - self.gamma) * task - self.gamma * mean_cross_entropy(logits, a)


@dataclass(eq=False, repr=False)
class LAFTR(AdversarialBaseline):
    r"""LAFTR for demographic parity, without reconstruction (Madras et al., ICML 2018).

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


@dataclass(eq=False, repr=False)
class MaxEntARL(AdversarialBaseline):
    r"""Maximum-entropy adversarial representation learning (Roy and Boddeti, CVPR 2019).

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


@dataclass(eq=False, repr=False)
class AdversarialForgetting(AdversarialBaseline):
    r"""A code of the row, and a mask that forgets parts of it (Jaiswal et al., AAAI 2020).

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

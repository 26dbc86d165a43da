"""The estimator behind all adversarial baselines, and the plainest of them (Edwards and Storkey, 2016)."""

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
    r"""Plain adversarial training, as in the motivation of Balunović et al. (2022).

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

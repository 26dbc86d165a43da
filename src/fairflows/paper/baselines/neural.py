"""The estimator behind all baselines that are networks: z = f(x), trained with a method's loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from fairflows.compute.resources import chosen_device
from fairflows.encoder.base import FloatArray, LabelledRows, Learnt, Rows
from fairflows.encoder.group_encoder import GroupEncoder
from fairflows.exceptions import DataError
from fairflows.paper.baselines.game import Learner, TrainingRows, Turns, indicators, play
from fairflows.release.partitions import NumericView


@dataclass(eq=False, repr=False, kw_only=True)
class NeuralBaseline(GroupEncoder):
    """Base of the neural baselines: one network encodes all groups, trained with a method's loss.

    The sensitive attribute is needed to fit; to encode, only where the encoder reads it, as some methods' authors have
    it. A subclass states its defaults, its networks and their loss (`Learner`), and whose turn it is on each batch.

    Parameters
    ----------
    n_latent : int
        Dimensions of z.
    hidden, head : sequence of int
        Hidden layers of encoder and predictor.
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

    n_latent: int = 8
    hidden: Sequence[int] = (50,)
    head: Sequence[int] = (50,)
    n_epochs: int = 200
    batch_size: int = 128
    learning_rate: float = 1e-4
    weight_decay: float = 1e-4
    sensitive: str | list[str] | None = None
    identifier: str | None = None
    device: str = "auto"
    random_state: int = 0
    view_: NumericView = field(init=False)
    shift_: FloatArray = field(init=False)
    scale_: FloatArray = field(init=False)
    players_: Learner = field(init=False)

    _turns: ClassVar[Turns] = (("encoder",),)
    """Whose step it is on each of a cycle of batches."""
    _most: ClassVar[float] = np.inf
    """The greatest strength."""
    _whitens: ClassVar[bool] = False
    """Whether features have mean 0 and deviation 1; if not, each is divided by its greatest absolute value."""
    _balanced: ClassVar[bool] = False
    """Whether a batch has equally many rows of every group."""

    @abstractmethod
    def _learner(self, rows: TrainingRows, seeds: Sequence[int]) -> Learner:
        """The networks of as many models as there are seeds, untrained."""

    @property
    def needs_attribute(self) -> bool:
        """Whether the encoder reads the group beside the features."""
        return False

    def _fit(self, rows: LabelledRows, strengths: Sequence[float], seeds: Sequence[int]) -> list[Learnt | None]:
        check_weights(self.strength_name, strengths, self._most)
        if rows.weight is not None:
            raise DataError(f"{type(self).__name__} does not take sample_weight.")
        labels = self._read_label(rows)
        if labels is None:
            raise DataError(f"{type(self).__name__} trains for a task: pass y.")
        self.view_ = NumericView.fit(rows.X, None, 0, standardise=False)
        self.shift_, self.scale_ = self._scaling(self.view_.features(rows.X))
        device = chosen_device(self.device)
        training = TrainingRows(
            self._features(rows).to(device),
            torch.as_tensor(labels, device=device),
            torch.as_tensor(rows.group, device=device),
            len(self.label_classes),
            len(self.groups_),
        )
        models = [(strength, seed) for strength in strengths for seed in seeds]
        model_seeds = [seed for _, seed in models]
        learner = self._learner(training, model_seeds).to(device)
        play(
            learner,
            training,
            torch.tensor([strength for strength, _ in models], dtype=torch.float32, device=device),
            turns=self._turns,
            seeds=model_seeds,
            n_epochs=self.n_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            balanced=self._balanced,
        )
        learner = learner.cpu().requires_grad_(False)
        finite = torch.stack([p.isfinite().flatten(1).all(1) for p in learner.parameters()]).all(0)
        return [{"players_": learner.select(m)} if finite[m] else None for m in range(len(models))]

    def _scaling(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What is subtracted from each feature, and what it is then divided by."""
        shift = features.mean(axis=0) if self._whitens else np.zeros(features.shape[1])
        scale = features.std(axis=0) if self._whitens else np.abs(features).max(axis=0)
        return shift, np.where(scale > 0, scale, 1.0)

    def _features(self, rows: Rows) -> Tensor:
        """What the encoder network reads of each row."""
        scaled = (self.view_.features(rows.X) - self.shift_) / self.scale_
        x = torch.as_tensor(scaled, dtype=torch.float32)
        if not self.needs_attribute:
            return x
        return torch.cat([x, indicators(torch.as_tensor(rows.group), len(self.groups_))], dim=1)

    def encode(self, rows: Rows) -> pd.DataFrame:
        """z of every row."""
        return pd.DataFrame(self._latent(rows).double().numpy(), columns=self._names_out())

    def predict_rows(self, rows: Rows) -> npt.NDArray[np.generic]:
        """The class that the predictor reads from z."""
        with torch.no_grad():
            return self.label_classes[self.players_.predictor(self._latent(rows)[None])[0].argmax(-1).numpy()]

    def _latent(self, rows: Rows) -> Tensor:
        """z of every row, (n, n_latent)."""
        with torch.no_grad():
            return self.players_.represent(self._features(rows)[None], self._noise(rows)[None])[0]

    def _noise(self, rows: Rows) -> Tensor:
        """The noise that each row is represented with, (n, n_noise)."""
        return torch.empty(len(rows.X), 0)

    def _names_out(self) -> list[str]:
        return [f"z{j}" for j in range(self.n_latent)]


def check_weights(name: str, weights: Sequence[float], most: float = np.inf) -> None:
    """Refuse weights of a loss's terms that are outside [0, most]."""
    for weight in weights:
        if not 0 <= weight <= most:
            allowed = "at least 0" if np.isinf(most) else f"in [0, {most:g}]"
            raise ValueError(f"{name} must be {allowed}; got {weight!r}.")

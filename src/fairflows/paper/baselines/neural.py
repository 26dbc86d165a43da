"""Baselines that are networks: the estimator behind all of them, and how M models are trained at once.

A method has a `BaselineNetworks`: its networks, what it releases for a row, and what each side minimises.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import clone
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fairflows.bijection import StackedMLP
from fairflows.bijection.networks import Stacked, generator_of
from fairflows.encoder.base import EncodedColumns, Encoder, FloatArray, Traits, begin_fit, label_values
from fairflows.encoder.label import LabelsLike
from fairflows.encoder.rows import Rows, RowsLike, TrainingRows
from fairflows.exceptions import DataError
from fairflows.release.partitions import NumericView
from fairflows.steps import AdamSteps, chosen_device
from fairflows.table.keys import NEW_AT_EACH_FIT, KeySetting
from fairflows.table.ledger import Ledger
from fairflows.table.roles import Role
from fairflows.threads import one_thread

Side = Literal["encoder", "adversary"]
Turns = Sequence[Sequence[Side]]
"""Which sides take a step on each of a cycle of batches."""


class TaskRows(NamedTuple):
    """Rows to learn from: features (n, D), labels and groups (n,), and how many of both there are."""

    x: Tensor
    y: Tensor
    a: Tensor
    n_classes: int
    n_groups: int


class BaselineBatch(NamedTuple):
    """A batch of each model: features (M, B, D), labels and groups (M, B), standard normal noise (M, B, n_noise)."""

    x: Tensor
    y: Tensor
    a: Tensor
    noise: Tensor


Loss = Callable[[BaselineBatch, Tensor], Tensor]
"""The loss of each model, (M,), on a batch, given the strength of each, (M,)."""


class BaselineNetworks(Stacked, ABC):
    """The networks of as many models as there are seeds, in the settings of an estimator, and what they minimise.

    The encoder reads x, and writes as many numbers as z has unless `n_written` says otherwise; the predictor reads the
    label's logits from z.
    """

    network: ClassVar[type[StackedMLP]] = StackedMLP
    n_noise: int = 0  # how many standard normal numbers a row needs to be represented

    def __init__(self, method: NeuralBaseline, rows: TaskRows, seeds: Sequence[int], n_written: int | None = None):
        super().__init__()
        n_features, d = rows.x.shape[1], method.n_latent
        self.encoder = self.network(n_features, method.hidden, n_written or d, seeds=seeds, stream="encoder")
        self.predictor = self.network(d, method.head, rows.n_classes, seeds=seeds, stream="head")

    @abstractmethod
    def represent(self, x: Tensor, noise: Tensor) -> Tensor:
        """Return z of rows (M, B, D), with noise (M, B, n_noise)."""

    @abstractmethod
    def loss(self, batch: BaselineBatch, strength: Tensor) -> Tensor:
        """Return the loss of all networks but the adversary, (M,), given the strength of each model, (M,)."""

    def sides(self) -> dict[Side, tuple[Loss, list[nn.Parameter]]]:
        """Return the loss and the parameters of each side."""
        return {"encoder": (self.loss, list(self.parameters()))}

    def settings(self) -> dict[str, object]:
        """Return no settings: they are the estimator's."""
        return {}


def mean_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Return mean cross-entropy of each model, (M,), from logits (M, B, C) and targets (M, B)."""
    return cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").unflatten(0, target.shape).mean(1)


def indicators(code: Tensor, n: int) -> Tensor:
    """Return one column per value but the first, (…, n − 1): a one where the code is that value."""
    return (code[..., None] == torch.arange(1, n, device=code.device)).float()


def rows_by_class(target: Tensor) -> list[Tensor]:
    """Return the row numbers of every class, from class 0 on."""
    return [torch.nonzero(target == c)[:, 0] for c in range(int(target.max()) + 1)]


def random_batches(
    generators: Sequence[torch.Generator], n_batches: int, batch_size: int, strata: Sequence[Tensor]
) -> Tensor:
    """Return row numbers (n_batches, M, batch_size), drawn with replacement: equally many from every list of rows."""
    uniform = torch.stack([torch.rand(n_batches, batch_size, generator=g) for g in generators], dim=1)
    parts = uniform.to(strata[0].device).tensor_split(len(strata), dim=-1)
    return torch.cat([rows[(part * len(rows)).long()] for part, rows in zip(parts, strata, strict=True)], dim=-1)


@dataclass(eq=False, repr=False, kw_only=True)
class NeuralBaseline(Encoder):
    """Base of the neural baselines: one network encodes all groups, trained with a method's loss.

    The sensitive attribute is needed to fit; to encode, only where the encoder reads it, as some methods' authors have
    it. A subclass states its defaults, its networks and their loss (`BaselineNetworks`), and the turns of the sides.

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
    sensitive, identifier, key
        Names of the columns that hold group and person; the secret that seals certificates, at least 16 bytes.
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
    key: KeySetting = NEW_AT_EACH_FIT
    random_state: int = 0
    device: str = "auto"
    view_: NumericView = field(init=False)
    shift_: FloatArray = field(init=False)
    scale_: FloatArray = field(init=False)
    players_: BaselineNetworks = field(init=False)

    _strength: ClassVar[str] = "gamma"
    """The setting that weighs the loss that hides the group."""
    _draws: ClassVar[bool] = False
    """Whether z is drawn at random."""
    _turns: ClassVar[Turns] = (("encoder",),)
    """Whose step it is on each of a cycle of batches."""
    _most: ClassVar[float] = np.inf
    """The greatest strength."""
    _whitens: ClassVar[bool] = False
    """Whether features have mean 0 and deviation 1; if not, each is divided by its greatest absolute value."""
    _balanced: ClassVar[bool] = False
    """Whether a batch has equally many rows of every group."""

    @property
    @abstractmethod
    def _learner(self) -> type[BaselineNetworks]:
        """The networks and what they minimise."""

    @property
    def traits(self) -> Traits:
        """One network encodes all groups."""
        return Traits(needs_attribute=False, randomised=self._draws, strength=self._strength)

    def learn(self, rows: TrainingRows) -> None:
        """Train the networks at their own strength and seed."""
        strength = getattr(self, self.traits.strength)
        (players,) = self._train(rows, [strength], [self.random_state])
        if players is None:
            raise DataError(f"Training of {type(self).__name__} diverged: its weights are not finite.")
        self.players_ = players

    def fit_path(
        self,
        X: RowsLike,
        y: LabelsLike | None = None,
        *,
        sensitive_features: Role | None = None,
        strengths: Sequence[float],
        seeds: Sequence[int],
    ) -> list[Self]:
        """Train the networks of all strengths and seeds as one stack; one that diverged is returned unfitted."""
        shared = clone(self)
        rows = begin_fit(shared, X, y, sensitive_features)
        trained = shared._train(rows, strengths, seeds)
        ledger, found = Ledger.of(rows.X, rows.persons, rows.key), []
        for (strength, seed), players in zip(product(strengths, seeds), trained, strict=True):
            encoder = clone(self) if players is None else copy.copy(shared)
            encoder.set_params(**{self.traits.strength: strength, "random_state": seed})
            if players is not None:
                encoder.players_, encoder.ledger_ = players, ledger
            found.append(encoder)
        return found

    def _train(
        self, rows: TrainingRows, strengths: Sequence[float], seeds: Sequence[int]
    ) -> list[BaselineNetworks | None]:
        """Train the networks for every strength and seed; None stands for networks that diverged."""
        check_weights(self.traits.strength, strengths, self._most)
        label = rows.label_with_classes(type(self).__name__)
        if label is None:
            raise DataError(f"{type(self).__name__} trains for a task: pass y.")
        self.output_ = EncodedColumns.of_numbers(f"z{j}" for j in range(self.n_latent))
        self.view_ = NumericView.fit(rows.X, None, 0, standardise=False)
        self.shift_, self.scale_ = self._scaling(self.view_.features(rows.X))
        device = chosen_device(self.device)
        training = TaskRows(
            self._features(rows).to(device),
            torch.as_tensor(label.values, device=device),
            torch.as_tensor(rows.group, device=device),
            len(label.class_values),
            len(rows.groups),
        )
        models = [(strength, seed) for strength in strengths for seed in seeds]
        model_seeds = [seed for _, seed in models]
        learner = self._learner(self, training, model_seeds).to(device)
        strength = torch.tensor([strength for strength, _ in models], dtype=torch.float32, device=device)
        self._play(learner, training, strength, model_seeds)
        learner = learner.cpu().requires_grad_(False)
        finite = torch.stack([p.isfinite().flatten(1).all(1) for p in learner.parameters()]).all(0)
        return [learner.select(m) if finite[m] else None for m in range(len(models))]

    def _play(self, learner: BaselineNetworks, rows: TaskRows, strength: Tensor, seeds: Sequence[int]) -> None:
        """Train all models in place, given the strength and the seed of each; an epoch draws with replacement.

        On a GPU each side's step is captured once and replayed.
        """
        x, y, a = rows.x, rows.y, rows.a
        different = sorted(set(seeds))
        stream = torch.tensor([different.index(seed) for seed in seeds])
        draws, noises = ([generator_of(seed, purpose) for seed in different] for purpose in ("batches", "noise"))
        strata = rows_by_class(a if self._balanced else torch.zeros_like(a))
        chosen = torch.empty(len(seeds), self.batch_size, dtype=torch.int64, device=x.device)
        noise = torch.empty(len(seeds), self.batch_size, learner.n_noise, device=x.device)

        def batch() -> BaselineBatch:
            return BaselineBatch(x[chosen], y[chosen], a[chosen], noise)

        def steps(loss: Loss, parameters: Sequence[nn.Parameter]) -> AdamSteps:
            settings = {"learning_rate": self.learning_rate, "weight_decay": self.weight_decay}
            capture = x.device.type == "cuda"
            return AdamSteps(lambda: loss(batch(), strength).sum(), parameters, **settings, capture=capture)

        sides = {side: steps(*trained) for side, trained in learner.sides().items()}
        n_batches = -(-len(x) // self.batch_size)
        step = 0
        with one_thread():
            for _ in range(self.n_epochs):
                batches = random_batches(draws, n_batches, self.batch_size, strata)[:, stream]
                normal = torch.stack([torch.randn(n_batches, *noise.shape[1:], generator=g) for g in noises], dim=1)
                added = normal[:, stream].to(x.device)
                for i in range(n_batches):
                    chosen.copy_(batches[i])
                    noise.copy_(added[i])
                    for side in self._turns[step % len(self._turns)]:
                        sides[side].step()
                    step += 1
        if x.device.type == "cuda":
            torch.cuda.synchronize(x.device)  # captured steps must have ended before their graphs are given up

    def _scaling(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the shift and the scale of each feature."""
        shift = features.mean(axis=0) if self._whitens else np.zeros(features.shape[1])
        scale = features.std(axis=0) if self._whitens else np.abs(features).max(axis=0)
        return shift, np.where(scale > 0, scale, 1.0)

    def _features(self, rows: Rows) -> Tensor:
        """Return the inputs of the encoder network."""
        scaled = (self.view_.features(rows.X) - self.shift_) / self.scale_
        x = torch.as_tensor(scaled, dtype=torch.float32)
        if not self.traits.needs_attribute:
            return x
        return torch.cat([x, indicators(torch.as_tensor(rows.encoding_group), len(self.groups_))], dim=1)

    def encode(self, rows: Rows) -> pd.DataFrame:
        """Return z of every row."""
        return pd.DataFrame(self._latent(rows).double().numpy(), columns=list(self.output_.dtypes))

    def predict_rows(self, rows: Rows) -> npt.NDArray[np.generic]:
        """Return the class that the predictor reads from z."""
        with torch.no_grad():
            return label_values(self)[self.players_.predictor(self._latent(rows)[None])[0].argmax(-1).numpy()]

    def _latent(self, rows: Rows) -> Tensor:
        """Return z of every row, (n, n_latent)."""
        with torch.no_grad():
            return self.players_.represent(self._features(rows)[None], self._noise(rows)[None])[0]

    def _noise(self, rows: Rows) -> Tensor:
        """Return the noise that each row is represented with, (n, n_noise)."""
        return torch.empty(len(rows.X), 0)


def check_weights(name: str, weights: Sequence[float], most: float = np.inf) -> None:
    """Refuse weights of a loss's terms that are outside [0, most]."""
    for weight in weights:
        if not 0 <= weight <= most:
            allowed = "at least 0" if np.isinf(most) else f"in [0, {most:g}]"
            raise ValueError(f"{name} must be {allowed}; got {weight!r}.")

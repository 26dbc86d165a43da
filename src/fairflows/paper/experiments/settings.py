"""The paper's settings: datasets, densities, encoders and schedules, and the smaller ones of a quick run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fairflows.exceptions import DataError
from fairflows.paper import datasets
from fairflows.table.table import Table

FIRST_SEED = 100  # the paper's seeds are 100, 101, …


@dataclass(frozen=True)
class Setting:
    """How an experiment is to be run."""

    quick: bool = False
    seeds: int | None = None
    device: str = "auto"

    def seed_list(self, full: int = 5, quick: int = 1) -> list[int]:
        """The seeds: as many as asked for, else the paper's number, else few."""
        n = self.seeds or (quick if self.quick else full)
        return list(range(FIRST_SEED, FIRST_SEED + n))


@dataclass(frozen=True)
class Problem:
    """A dataset with the paper's settings on it.

    Attributes
    ----------
    name : str
        As a reader knows it.
    load : callable
        Gives the table.
    gammas : tuple of float
        The trade-offs of figure 4.
    encoder : dict
        Settings of the encoder.
    adversary_epochs : int
        Epochs of the paper's 2×50 adversary: as many as the encoder's.
    rows : int or None
        Train on a random part of this many rows; all when None.
    """

    name: str
    load: Callable[[], Table]
    gammas: tuple[float, ...]
    encoder: dict[str, Any]
    adversary_epochs: int
    rows: int | None = None

    def tables(self) -> tuple[Table, Table]:
        """Rows to train on (the published training and validation rows) and test rows."""
        table = self.load()
        test = table.take(np.flatnonzero(table.parts == "test"))
        train = np.flatnonzero(table.parts != "test")
        if self.rows is not None and self.rows < len(train):
            train = np.random.default_rng(0).choice(train, self.rows, replace=False)
        return table.take(np.sort(train)), test

    def describe(self, train: Table, test: Table) -> str:
        """Which data this is, for the reader of a result."""
        notes = "".join(f" ({note})" for note in train.notes)
        part = " at random" if self.rows is not None and len(train) == self.rows else ""
        return f"{self.name}: {len(train):,} training rows{part}, {len(test):,} test rows{notes}"

    def at(self, setting: Setting) -> Problem:
        """The problem at the size that a setting asks for."""
        return _quick(self) if setting.quick else self


def apart_from(train: Table, test: Table) -> Table:
    """The training rows of persons who are not among the test persons.

    The paper splits Health by rows, so most test persons are in training too; an adversary must not have met them.
    """
    if train.identifier is None or test.identifier is None:
        return train
    return train.take(np.flatnonzero(~train.identifier.isin(test.identifier).to_numpy()))


def labels_of(table: Table) -> npt.NDArray[Any]:
    """The label, which every experiment on a task needs."""
    if table.y is None:
        raise DataError(f"{table.name} has no label.")
    return table.y.to_numpy(copy=True)


def _mixtures(*components: int) -> list[Any]:
    from fairflows.density import MixtureDensity

    return [MixtureDensity(n) for n in components]


def _health_density(n_steps: int = 8000) -> Any:
    from fairflows.density import FlowDensity

    return FlowDensity("realnvp", n_blocks=4, hidden=(20, 20), n_steps=n_steps)


CONTINUOUS_GAMMAS = (0.0, 0.02, 0.1, 0.2, 0.9)


def crime() -> Problem:
    """Crime, as in the paper: nothing is dequantised."""
    return Problem(
        "Crime",
        datasets.load_crime,
        CONTINUOUS_GAMMAS,
        {
            "density": _mixtures(4, 2),
            "n_epochs": 60,
            "batch_size": 128,
            "ramp_epochs": 50,
            "dequantise": False,
            "validation": 0.01,
        },
        adversary_epochs=60,
    )


def law() -> Problem:
    """Law School."""
    return Problem(
        "Law School",
        datasets.load_law_school,
        (0.0, 0.001, 0.02, 0.1, 0.9),
        {
            "density": _mixtures(8, 8),
            "n_epochs": 100,
            "batch_size": 128,
            "ramp_epochs": 50,
            "validation": 0.01,
        },
        adversary_epochs=100,
    )


def health() -> Problem:
    """Health, the published aggregate; a person's rows share their noise."""
    return Problem(
        "Health",
        datasets.load_health,
        (0.0, 0.05, 0.1, 0.5, 0.95),
        {
            "density": _health_density(),
            "n_blocks": 6,
            "hidden": (100, 100, 50),
            "head": (100, 50, 20),
            "n_epochs": 80,
            "batch_size": 256,
            "ramp_epochs": 10,
            "learning_rate": 0.001,
            "weight_decay": 0.0,
            "validation": 0.01,
        },
        adversary_epochs=80,
    )


def adult() -> Problem:
    """Adult's six text columns."""
    return Problem(
        "Adult", datasets.load_adult, CONTINUOUS_GAMMAS, {"density": "made", "hidden": (50, 50)}, adversary_epochs=60
    )


def compas() -> Problem:
    """Compas in quantile bins."""
    return Problem(
        "Compas", datasets.load_compas, CONTINUOUS_GAMMAS, {"density": "made", "hidden": (20, 20)}, adversary_epochs=60
    )


CONTINUOUS = (crime, law, health)
CATEGORICAL = (adult, compas)


def _quick(problem: Problem) -> Problem:
    """Fewer epochs and rows where the full run takes longer than a minute on one core; Crime is small as it is."""
    if problem.name == "Law School":
        encoder = problem.encoder | {"n_epochs": 40, "ramp_epochs": 20, "batch_size": 256}
        return replace(problem, encoder=encoder, rows=12_000, adversary_epochs=15)
    if problem.name == "Health":
        encoder = problem.encoder | {
            "n_epochs": 30,
            "ramp_epochs": 5,
            "density": _health_density(800),
            "learning_rate": 0.003,
        }
        return replace(problem, encoder=encoder, rows=12_000, adversary_epochs=15)
    if problem.name == "Adult":
        return replace(problem, adversary_epochs=5)
    return replace(problem, adversary_epochs=20)

"""The paper's settings for each dataset, and the models that several experiments share, trained once in a process.

Settings are rows, densities, encoders, schedules, and the smaller ones of a quick run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from fairflows.attack.auditing import Audit, audit
from fairflows.density import FlowDensity, MixtureDensity
from fairflows.encoder.base import Encoder, cells_of, is_fitted
from fairflows.encoder.fair_flow import FairFlow
from fairflows.encoder.fair_matching import FairMatching
from fairflows.exceptions import DataError
from fairflows.paper import datasets
from fairflows.paper.experiments.outcome import Setting, in_processes
from fairflows.table.table import Table
from fairflows.tradeoff import Frontier, frontier

AnyEncoder = TypeVar("AnyEncoder", bound=Encoder)
Made = TypeVar("Made")


@dataclass(frozen=True)
class Problem:
    """A dataset with the paper's settings on it."""

    name: str  # as a reader knows it
    load: Callable[[], Table]  # returns the table
    gammas: tuple[float, ...]  # the trade-offs of figure 4
    encoder: FairFlow | FairMatching  # the paper's encoder, not fitted
    adversary_epochs: int  # epochs of the paper's 2×50 adversary: as many as the encoder's
    rows: int | None = None  # train on a random part of this many rows; all when None

    def tables(self) -> tuple[Table, Table]:
        """Return rows to train on (the published training and validation rows) and test rows."""
        return train_and_test(self.load(), self.rows)

    def describe(self, train: Table, test: Table) -> str:
        """Describe the data for the reader of a result."""
        notes = "".join(f" ({note})" for note in train.notes)
        part = " at random" if self.rows is not None and len(train) == self.rows else ""
        return f"{self.name}: {len(train):,} training rows{part}, {len(test):,} test rows{notes}"

    def at(self, setting: Setting) -> Problem:
        """Return the problem at the size, and on the device, that a setting asks for."""
        problem = _quick(self) if setting.quick else self
        if isinstance(self.encoder, FairMatching):  # on the processor always
            return problem
        return replace(problem, encoder=changed(problem.encoder, device=setting.device))


def changed(encoder: AnyEncoder, **settings: object) -> AnyEncoder:
    """Return the same encoder, not fitted, with some settings changed."""
    return clone(encoder).set_params(**settings)


def train_and_test(table: Table, n_train: int | None = None) -> tuple[Table, Table]:
    """Return all rows but the test rows, or a random part of `n_train` of them, and the test rows."""
    rows = np.flatnonzero(table.parts != "test")
    if n_train is not None and n_train < len(rows):
        rows = np.sort(np.random.default_rng(0).choice(rows, n_train, replace=False))
    return table.take(rows), table.take(np.flatnonzero(table.parts == "test"))


def apart_from(train: Table, test: Table) -> Table:
    """Return the training rows of persons who are not among the test persons.

    The paper splits Health by rows, so most test persons are in training too; an adversary must not have met them.
    """
    if train.identifier is None or test.identifier is None:
        return train
    return train.take(np.flatnonzero(~train.identifier.isin(test.identifier).to_numpy()))


def cells_by_group(encoder: Encoder, table: Table) -> npt.NDArray[np.float64]:
    """Count the rows of each group in each cell that an encoder releases, (K, k)."""
    counts = np.zeros((len(encoder.groups_), int(encoder.n_cells_ or 0)))
    np.add.at(counts, (table.group_numbers(encoder.groups_), cells_of(encoder, table)), 1)
    return counts


def labels_of(table: Table) -> npt.NDArray[np.intp]:
    """Return the label as 0 and 1, which every experiment on a task needs."""
    if table.y is None:
        raise DataError(f"{table.name} has no label.")
    return table.y.to_numpy(copy=True)


def at_hand(makers: Mapping[str, Callable[[], Made]]) -> tuple[dict[str, Made], list[str]]:
    """Call the functions; return their results, and a note for each one whose data are missing.

    Raises
    ------
    DataError
        The data are missing for all of them.
    """
    made, notes = {}, []
    for name, make in makers.items():
        try:
            made[name] = make()
        except DataError as error:
            notes.append(f"{name} was skipped: {error}")
    if not made:
        raise DataError(" ".join(notes))
    return made, notes


AS_PUBLISHED: dict[str, Any] = {"smoothing": 0.0, "turn": False}
"""Settings that the paper does not have."""
CONTINUOUS_GAMMAS = (0.0, 0.02, 0.1, 0.2, 0.9)


def crime() -> Problem:
    """Return Crime, as in the paper: nothing is dequantised.

    The paper's text gives four Gaussians to a = 0 and two to a = 1. Its published numbers are of the authors' code,
    which has it the other way round.
    """
    encoder = FairFlow(
        density=[MixtureDensity(2), MixtureDensity(4)],
        n_epochs=60,
        batch_size=128,
        ramp_epochs=50,
        dequantise=False,
        validation=0.01,
        **AS_PUBLISHED,
    )
    return Problem("Crime", datasets.load_crime, CONTINUOUS_GAMMAS, encoder, adversary_epochs=60)


def law() -> Problem:
    """Return Law School, with new noise in every step, as in the authors' code."""
    encoder = FairFlow(
        density=[MixtureDensity(8), MixtureDensity(8)],
        n_epochs=100,
        batch_size=128,
        ramp_epochs=50,
        validation=0.01,
        **AS_PUBLISHED,
    )
    gammas = (0.0, 0.001, 0.02, 0.1, 0.9)
    return Problem("Law School", datasets.load_law_school, gammas, encoder, adversary_epochs=100)


def health() -> Problem:
    """Return Health, the published aggregate.

    As in the authors' script, a fifth of the training rows is held out, and the noise of all eleven columns is new in
    every step. A person's rows share their noise when they are encoded.
    """
    encoder = FairFlow(
        density=health_density(),
        n_blocks=6,
        hidden=(100, 100, 50),
        head=(100, 50, 20),
        n_epochs=80,
        batch_size=256,
        ramp_epochs=10,
        learning_rate=0.001,
        weight_decay=0.0,
        validation=0.2,
        **AS_PUBLISHED,
    )
    return Problem("Health", datasets.load_health, (0.0, 0.05, 0.1, 0.5, 0.95), encoder, adversary_epochs=80)


AUTHORS_STEPS = 80 * 194
"""How long the authors train the density of Health: 80 epochs, each 194 batches of 256 rows of the smaller group."""


def health_density(n_steps: int = AUTHORS_STEPS) -> FlowDensity:
    """Return the density of one group of Health, as in the authors' code: one hidden layer of 20 units."""
    return FlowDensity("realnvp", n_blocks=4, hidden=(20,), n_steps=n_steps, batch_size=256)


def adult() -> Problem:
    """Return Adult's six text columns."""
    encoder = FairMatching(density="made", hidden=(50, 50))
    return Problem("Adult", datasets.load_adult, CONTINUOUS_GAMMAS, encoder, adversary_epochs=60)


def compas() -> Problem:
    """Return Compas in quantile bins."""
    encoder = FairMatching(density="made", hidden=(20, 20))
    return Problem("Compas", datasets.load_compas, CONTINUOUS_GAMMAS, encoder, adversary_epochs=60)


PROBLEMS = {"crime": crime, "law": law, "health": health, "adult": adult, "compas": compas}
LOADERS: dict[str, Callable[..., Table]] = {
    "Adult": datasets.load_adult,
    "Compas": datasets.load_compas,
    "Crime": datasets.load_crime,
    "Health": datasets.load_health,
    "Law School": datasets.load_law_school,
}


@dataclass(frozen=True, eq=False)  # compared by identity, so that a model's audit can be cached
class Trained:
    """A frontier with the rows behind it."""

    problem: Problem
    frontier: Frontier
    train: Table
    test: Table

    @property
    def data(self) -> str:
        """Which data it is, for the reader of a result."""
        return self.problem.describe(self.train, self.test)

    def fitted(self) -> dict[int, Encoder]:
        """Return the models by their place in the frontier, but for those that diverged."""
        return {i: encoder for i, encoder in enumerate(self.frontier.encoders) if is_fitted(encoder)}

    def frame(self) -> pd.DataFrame:
        """Return the frontier as a frame, in which strengths are called γ."""
        return self.frontier.to_frame().rename(columns={"strength": "gamma"})

    def first_seed(self) -> list[int]:
        """Return the places of the models of the first seed, but for those that diverged."""
        seeds = self.frame()["seed"]
        return [i for i in self.fitted() if seeds[i] == seeds.min()]

    @property
    def held_out_log_likelihood(self) -> npt.NDArray[np.float64]:
        """Of the densities, one number per group: the same for all models, which share them."""
        likelihood = next(iter(self.fitted().values())).held_out_log_likelihood_
        return np.full(2, np.nan) if likelihood is None else likelihood

    def summary(self) -> pd.DataFrame:
        """Return one row per γ: means over seeds, and half-widths of 95 % intervals."""
        summary = self.frontier.summary().rename_axis("gamma").reset_index()
        summary.insert(0, "data", self.problem.name)
        return summary


@lru_cache(maxsize=8)
def trained(name: str, setting: Setting) -> Trained:
    """Return the frontier of a dataset with the paper's γ and seeds."""
    seeds = setting.seed_list(full=5, quick=2 if name == "crime" else 1)
    problem = PROBLEMS[name]().at(setting)
    return fit(problem, seeds, problem.gammas)


def fit_crime(setting: Setting, seeds: Sequence[int], gammas: Sequence[float], **settings: object) -> Trained:
    """Return Crime with some settings of the encoder changed."""
    return fit(crime().at(setting), seeds, gammas, **settings)


def fit(problem: Problem, seeds: Sequence[int], gammas: Sequence[float], **settings: object) -> Trained:
    """Return a problem's frontier with some settings of the encoder changed."""
    train, test = problem.tables()
    encoder = changed(problem.encoder, **settings)
    return Trained(problem, frontier(encoder, train, strengths=gammas, seeds=seeds, validation=test), train, test)


def audited(models: Sequence[Trained], setting: Setting) -> dict[tuple[Trained, int], Audit]:
    """Attack the first seed of every γ with the suite; return the audits by frontier and place of the model in it."""
    wanted = [(model, i) for model in models for i in model.first_seed()]
    targets = [(model.frontier.encoders[i], apart_from(model.train, model.test), model.test) for model, i in wanted]
    return dict(zip(wanted, audits(targets, setting), strict=True))


def audits(targets: Sequence[tuple[Encoder, Table, Table]], setting: Setting) -> list[Audit]:
    """Attack encoders with the suite, each with rows to learn from and test rows of other persons.

    ``setting.n_jobs`` encoders are attacked at once, each in a process of its own.
    """
    # Those of many rows take longest; begun first, they leave no process alone at the end.
    order = sorted(range(len(targets)), key=lambda i: len(targets[i][1]), reverse=True)
    found = in_processes(partial(_audit, quick=setting.quick), [targets[i] for i in order], setting.n_jobs)
    return [attack for _, attack in sorted(zip(order, found, strict=True), key=itemgetter(0))]


def _audit(target: tuple[Encoder, Table, Table], quick: bool) -> Audit:
    return audit(*target, quick=quick)


def all_trained(names: Sequence[str], setting: Setting) -> tuple[dict[str, Trained], list[str]]:
    """Return the frontiers of all datasets at hand, and a note for each that is not."""
    return at_hand({name: partial(trained, name, setting) for name in names})


def summaries(models: Mapping[str, Trained]) -> pd.DataFrame:
    """Return one row per dataset and γ: means over seeds, and half-widths of 95 % intervals."""
    return pd.concat([model.summary() for model in models.values()], ignore_index=True)


def every_model(models: Mapping[str, Trained]) -> pd.DataFrame:
    """Return one row per model."""
    frames = [model.frame().assign(data=model.problem.name) for model in models.values()]
    return pd.concat(frames, ignore_index=True)


def described(models: Mapping[str, Trained]) -> str:
    """Describe the data for the reader of a result."""
    return "; ".join(model.data for model in models.values())


def _quick(problem: Problem) -> Problem:
    """Take fewer epochs and rows where the full run takes longer than a minute on one core."""
    if problem.name == "Law School":
        encoder = changed(problem.encoder, n_epochs=40, ramp_epochs=20, batch_size=256)
        return replace(problem, encoder=encoder, rows=12_000, adversary_epochs=15)
    if problem.name == "Health":
        encoder = changed(problem.encoder, n_epochs=30, ramp_epochs=5, density=health_density(800), learning_rate=0.003)
        return replace(problem, encoder=encoder, rows=12_000, adversary_epochs=15)
    if problem.name == "Adult":
        return replace(problem, adversary_epochs=5)
    return replace(problem, adversary_epochs=20)

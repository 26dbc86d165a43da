"""The models that several experiments share: the frontiers of figure 4, trained once in a process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import pandas as pd

from fairflows.attack.auditing import Audit, audit
from fairflows.frontiers.sweep import Frontier, frontier
from fairflows.paper.experiments import problems
from fairflows.paper.experiments.problems import PROBLEMS, Problem, apart_from, at_hand, changed
from fairflows.paper.experiments.result import Setting
from fairflows.table.table import Table


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

    def summary(self) -> pd.DataFrame:
        """One row per γ: means over seeds, and half-widths of 95 % intervals."""
        summary = self.frontier.summary().reset_index()
        summary.insert(0, "data", self.problem.name)
        return summary


@lru_cache(maxsize=8)
def trained(name: str, setting: Setting) -> Trained:
    """The frontier of a dataset with the paper's γ and seeds."""
    seeds = setting.seed_list(full=5, quick=2 if name == "crime" else 1)
    problem = PROBLEMS[name]().at(setting)
    return _fit(problem, seeds, problem.gammas)


def fit_crime(setting: Setting, seeds: Sequence[int], gammas: Sequence[float], **settings: object) -> Trained:
    """Crime with some settings of the encoder changed."""
    return _fit(problems.crime().at(setting), seeds, gammas, **settings)


def _fit(problem: Problem, seeds: Sequence[int], gammas: Sequence[float], **settings: object) -> Trained:
    train, test = problem.tables()
    encoder = changed(problem.encoder, **settings)
    return Trained(problem, frontier(encoder, train, gammas=gammas, seeds=seeds, validation=test), train, test)


@lru_cache(maxsize=256)
def audited(model: Trained, i: int, quick: bool) -> Audit:
    """What the suite reaches against one encoder of a frontier; it learns from persons who are not test persons."""
    return audit(model.frontier.encoders[i], apart_from(model.train, model.test), model.test, quick=quick)


def all_trained(names: Sequence[str], setting: Setting) -> tuple[dict[str, Trained], list[str]]:
    """The frontiers of all datasets at hand, and a note for each that is not."""
    return at_hand({name: partial(trained, name, setting) for name in names})


def summaries(models: Mapping[str, Trained]) -> pd.DataFrame:
    """One row per dataset and γ: means over seeds, and half-widths of 95 % intervals."""
    return pd.concat([model.summary() for model in models.values()], ignore_index=True)


def every_model(models: Mapping[str, Trained]) -> pd.DataFrame:
    """One row per model."""
    frames = [model.frontier.to_frame().assign(data=model.problem.name) for model in models.values()]
    return pd.concat(frames, ignore_index=True)


def described(models: Mapping[str, Trained]) -> str:
    """Which data, for the reader of a result."""
    return "; ".join(model.data for model in models.values())

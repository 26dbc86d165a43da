"""The models that several experiments share: the frontiers of figure 4, trained once in a process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fairflows.attack.auditing import Audit, audit
from fairflows.encoder.fair_flow import FairFlow
from fairflows.encoder.fair_matching import FairMatching
from fairflows.frontiers.sweep import Frontier, frontier
from fairflows.paper.experiments import settings
from fairflows.paper.experiments.settings import Problem, Setting, apart_from
from fairflows.table.table import Table

PROBLEMS = {
    "crime": settings.crime,
    "law": settings.law,
    "health": settings.health,
    "adult": settings.adult,
    "compas": settings.compas,
}
CATEGORICAL = ("adult", "compas")


@dataclass(frozen=True, eq=False)  # compared by identity, so that what was found of a model can be kept
class Trained:
    """A frontier with the rows behind it."""

    problem: Problem
    frontier: Frontier
    train: Table
    test: Table

    @property
    def data(self) -> str:
        """Which data it is."""
        return self.problem.describe(self.train, self.test)


def encoder_of(name: str, problem: Problem, setting: Setting, **changes: Any) -> Any:
    """The paper's encoder for a dataset."""
    if name in CATEGORICAL:
        device = "cpu" if setting.device == "auto" else setting.device
        return FairMatching(output="one-hot", device=device, **problem.encoder | changes)
    return FairFlow(device=setting.device, **problem.encoder | changes)


@lru_cache(maxsize=8)
def trained(name: str, setting: Setting) -> Trained:
    """The frontier of a dataset with the paper's γ and seeds."""
    problem = PROBLEMS[name]().at(setting)
    train, test = problem.tables()
    seeds = setting.seed_list(full=5, quick=2 if name == "crime" else 1)
    encoder = encoder_of(name, problem, setting)
    return Trained(problem, frontier(encoder, train, gammas=problem.gammas, seeds=seeds, validation=test), train, test)


@lru_cache(maxsize=256)
def audited(model: Trained, i: int, quick: bool) -> Audit:
    """What the suite reaches against one encoder of a frontier; persons to learn from are none of the test persons."""
    return audit(model.frontier.encoders[i], apart_from(model.train, model.test), model.test, quick=quick)


def fit_crime(setting: Setting, seeds: list[int], gammas: tuple[float, ...], **changes: Any) -> Trained:
    """Crime with some settings changed."""
    problem = settings.crime().at(setting)
    train, test = problem.tables()
    encoder = encoder_of("crime", problem, setting, **changes)
    return Trained(problem, frontier(encoder, train, gammas=gammas, seeds=seeds, validation=test), train, test)

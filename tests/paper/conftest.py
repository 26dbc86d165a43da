"""Experiments in a tiny setting: the same code on few rows and epochs."""

import dataclasses

import numpy as np
import pytest

from fairflows import FairMatching, Table
from fairflows.paper.experiments import problems


@pytest.fixture
def few_rows():
    """Makes a loader give the first 600 rows of every part of its table, with all columns or some."""

    def wrap(load, columns=None):
        def loaded(*args) -> Table:
            table = load(*args)
            if columns is not None:
                table.X = table.X[columns]
            kept = [np.flatnonzero(table.parts == part)[:600] for part in ("train", "validation", "test")]
            return table.take(np.sort(np.concatenate(kept)))

        return loaded

    return wrap


def tiny(problem: problems.Problem) -> problems.Problem:
    small = {"density": "counts"} if isinstance(problem.encoder, FairMatching) else {"n_epochs": 2, "ramp_epochs": 1}
    if problem.name == "Health":
        small["density"] = problems.health_density(20)
    encoder = problems.changed(problem.encoder, **small)
    return dataclasses.replace(problem, encoder=encoder, adversary_epochs=1, rows=600)


@pytest.fixture
def tiny_problems(monkeypatch):
    """Every problem with few rows and two epochs, and no models left over from other tests."""
    monkeypatch.setattr(problems, "_quick", tiny)
    problems.trained.cache_clear()
    yield
    problems.trained.cache_clear()

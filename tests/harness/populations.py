"""Populations whose truth is known: persons with rows of finitely many kinds, and the law of the kinds by group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Population:
    """Persons of several groups, and what is known about their rows."""

    name: str
    kinds: pd.DataFrame  # the columns of each kind of row, one line per kind
    law: np.ndarray  # (K, n_kinds): the probability of each kind for a random *row* of a file, in each group
    draw: Callable[[np.random.Generator, int], pd.DataFrame]  # (rng, n_persons): rows of kind, sex, person
    n_persons: int = 2400  # that the command is given
    identifier: str | None = "person"  # the column that names persons in the files

    @property
    def groups(self) -> list[str]:
        return [f"g{a}" for a in range(len(self.law))]

    def rows(self, rng: np.random.Generator, n_persons: int) -> pd.DataFrame:
        """The rows of new persons, as a file holds them, and the kind of each row."""
        drawn = self.draw(rng, n_persons)
        label = rng.random(len(drawn)) < self.kinds["chance"].to_numpy()[drawn["kind"]]
        return self.as_file(drawn).assign(paid=np.where(label, "yes", "no"))

    def as_file(self, drawn: pd.DataFrame) -> pd.DataFrame:
        """The columns of a file for rows that are given by kind, group and person."""
        columns = self.kinds.drop(columns="chance").iloc[drawn["kind"]].reset_index(drop=True)
        rows = columns.assign(sex=drawn["sex"].to_numpy())
        return rows if self.identifier is None else rows.assign(**{self.identifier: drawn["person"].to_numpy()})


def _groups(rng: np.random.Generator, n: int, n_groups: int = 2) -> np.ndarray:
    return rng.integers(n_groups, size=n)


def _persons(group: np.ndarray, n_rows: np.ndarray, kind: np.ndarray, first: int = 0) -> pd.DataFrame:
    """Rows of persons: `kind` has one entry per row, in the order of the persons."""
    person = np.repeat(np.arange(len(group)) + first, n_rows)
    names = np.char.add("p", person.astype(str))
    return pd.DataFrame({"kind": kind, "sex": np.char.add("g", group[person - first].astype(str)), "person": names})


def _new_names(rng: np.random.Generator) -> int:
    """Where the numbering of new persons starts: no two draws share a person."""
    return int(rng.integers(10**9))


VISITS = np.array([[0.7, 0.3], [0.3, 0.7]])
"""Eight visits of each person, one column of two values: with the smallest hash of a row's *content* as the choice,
everybody's random row would be of the same kind."""


def _visits(rng: np.random.Generator, n: int) -> pd.DataFrame:
    group = _groups(rng, n)
    n_rows = np.full(n, 8)
    kind = (rng.random(8 * n) < VISITS[np.repeat(group, 8), 1]).astype(int)
    return _persons(group, n_rows, kind, _new_names(rng))


WORDS = np.array([[0.5, 0.495, 0.005], [0.3, 0.695, 0.005]])
"""Text that reads like booleans where one rare word does not occur."""


def _one_row_each(law: np.ndarray) -> Callable[[np.random.Generator, int], pd.DataFrame]:
    def draw(rng: np.random.Generator, n: int) -> pd.DataFrame:
        group = _groups(rng, n, len(law))
        kind = (rng.random(n)[:, None] > np.cumsum(law, axis=1)[group][:, :-1]).sum(axis=1)
        return _persons(group, np.ones(n, dtype=int), kind, _new_names(rng))

    return draw


HEAVY_ROWS = 8
_HEAVY_PERSONS = np.array([[0.5, 0.5], [0.5, 0.5]])
"""By person the groups are alike; but in the second group, persons of the second kind have eight rows each."""


def _heavy(rng: np.random.Generator, n: int) -> pd.DataFrame:
    group = _groups(rng, n)
    kind = (rng.random(n) < _HEAVY_PERSONS[group, 1]).astype(int)
    n_rows = np.where((group == 1) & (kind == 1), HEAVY_ROWS, 1)
    return _persons(group, n_rows, np.repeat(kind, n_rows), _new_names(rng))


HEAVY = np.array([[0.5, 0.5], [0.5 / (0.5 + 0.5 * HEAVY_ROWS), 0.5 * HEAVY_ROWS / (0.5 + 0.5 * HEAVY_ROWS)]])

FEW = np.array([[0.6, 0.4], [0.4, 0.6]])
"""Few persons with forty identical rows each, in a column that happens to be called "row"."""


def _few(rng: np.random.Generator, n: int) -> pd.DataFrame:
    group = _groups(rng, n)
    kind = (rng.random(n) < FEW[group, 1]).astype(int)
    return _persons(group, np.full(n, 40), np.repeat(kind, 40), _new_names(rng))


ATOMS = np.array(
    [[0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.04, 0.01], [0.1, 0.1, 0.2, 0.2, 0.2, 0.1, 0.08, 0.02],
     [0.125] * 8]
)  # fmt: skip

UNNAMED = np.array([[0.8, 0.2], [0.2, 0.8]])
"""Two values whose ranks differ widely between the groups: only coins of their own make the cells alike."""

FLAGS = pd.DataFrame({"flag": [0, 1], "chance": [0.3, 0.7]})

POPULATIONS = [
    Population("visits", FLAGS, VISITS, _visits, n_persons=1000),
    Population(
        "words",
        pd.DataFrame({"answer": ["true", "false", "unknown"], "chance": [0.7, 0.3, 0.5]}),
        WORDS,
        _one_row_each(WORDS),
    ),
    Population(
        "codes",
        pd.DataFrame({"code": ["10", "20", "X9"], "size": [1.5, 2.5, 3.5], "chance": [0.7, 0.3, 0.5]}),
        WORDS,
        _one_row_each(WORDS),
    ),
    Population(
        "unnamed",
        pd.DataFrame({"score": [1, 2], "chance": [0.2, 0.8]}),
        UNNAMED,
        _one_row_each(UNNAMED),
        identifier=None,
    ),
    Population("heavy", FLAGS, HEAVY, _heavy),
    Population("few", FLAGS, FEW, _few, n_persons=250, identifier="row"),
    Population(
        "three groups",
        pd.DataFrame(
            {
                "town": ["Ulm", "Bonn", "Trier", "Ulm", "Bonn", "Trier", "Köln", "Rom"],
                "age": [20, 20, 20, 40, 40, 40, 40, 60],
                "chance": [0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9],
            }
        ),
        ATOMS,
        _one_row_each(ATOMS),
        n_persons=3000,
    ),
]

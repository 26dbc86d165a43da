"""Populations for the law of blocks, and the exact masses of the leaves of a tree that was cut at their persons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

import fairflows as ff
from fairflows.bounds import blocks_upper_bound
from fairflows.encoder.matched_tree import MatchedTree
from fairflows.table.keys import Key
from fairflows.table.persons import Persons

KEY = Key(range(32))


@dataclass(frozen=True)
class Kinds:
    """Rows of finitely many kinds, and the probability of each kind in each group."""

    name: str
    columns: pd.DataFrame  # one line per kind
    law: np.ndarray  # (K, n_kinds)
    shares: tuple[float, ...] = (0.6, 0.4)  # of the persons, by group
    n_persons: int = 600  # in all; half of them choose the structure
    n_cells: int = 4
    most_rows: int = 1  # of a person; a person has one to so many, of kinds of their own

    def sizes(self, n: int) -> list[int]:
        """Persons of each group among n: fixed, since the law of blocks is given these numbers."""
        return [round(share * n) for share in self.shares]

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw the rows of n persons: the person, the group and the kind of each row."""
        group = np.repeat(np.arange(len(self.law)), self.sizes(n))
        rows = rng.integers(1, self.most_rows + 1, len(group))
        person, group = np.repeat(np.arange(len(group)), rows), np.repeat(group, rows)
        kind = np.empty(len(group), dtype=np.intp)
        for a, law in enumerate(self.law):
            kind[group == a] = rng.choice(len(law), size=(group == a).sum(), p=law)
        return person, group, kind

    def table(self, rng: np.random.Generator, n: int, name: str) -> ff.Table:
        """Return new persons as a table; `name` begins theirs."""
        person, group, kind = self.draw(rng, n)
        rows = self.columns.iloc[kind].reset_index(drop=True)
        rows = rows.assign(group=np.char.add("g", group.astype(str)), person=np.char.add(name, person.astype(str)))
        return ff.Table(rows, sensitive="group", identifier="person")


def _normalised(*weights: np.ndarray) -> np.ndarray:
    return np.stack([w / w.sum() for w in weights])


def _grid(**levels: list) -> pd.DataFrame:
    return pd.MultiIndex.from_product(levels.values(), names=levels).to_frame(index=False)


def _populations() -> list[Kinds]:
    rng = np.random.default_rng(0)
    ties = _grid(grade=[1, 2, 3, 4], flag=[0, 1, 2])
    tied = np.outer([0.55, 0.25, 0.15, 0.05], [0.6, 0.3, 0.1]).ravel()
    towns = pd.DataFrame({"town": [f"t{i}" for i in range(40)], "size": np.arange(40) % 7})
    rare = 0.8 ** np.arange(40)
    gaps = _grid(age=[20.0, 30.0, 40.0, 50.0, np.nan], fee=[1.5, 2.5, np.nan])
    names = pd.DataFrame({"code": [f"c{i}" for i in range(400)], "score": np.arange(400) % 9})
    often = np.r_[np.full(9, 0.7 / 9), np.full(391, 0.3 / 391)]  # three rows of ten have a code of their own
    less_often = np.r_[np.full(9, 0.95 / 9), np.full(391, 0.05 / 391)]
    plain = pd.DataFrame({"x": rng.normal(size=300), "y": rng.normal(size=300)})
    alike = np.exp(plain["x"].to_numpy())
    return [
        Kinds("heavy ties", ties, _normalised(tied, tied[::-1]), n_persons=1000, n_cells=8),
        Kinds("one binary column", pd.DataFrame({"flag": [0, 1]}), np.array([[0.8, 0.2], [0.2, 0.8]]), n_persons=300),
        Kinds("rare categories", towns, _normalised(rare, np.sqrt(rare)), n_persons=1000, n_cells=8),
        Kinds("missing values", gaps, _normalised(rng.random(15), rng.random(15) ** 3), n_persons=800, n_cells=6),
        Kinds("unseen values", names, _normalised(often, less_often), n_persons=1000, n_cells=8),
        Kinds(
            "three groups",
            plain,
            _normalised(alike, alike**-1, np.ones(300)),
            (0.5, 0.3, 0.2),
            n_persons=1000,
            n_cells=8,
        ),
        Kinds("small minority", ties, _normalised(tied, tied[::-1]), (0.97, 0.03), n_persons=5000, n_cells=8),
        Kinds("several rows", ties, _normalised(tied, tied[::-1]), n_persons=1200, n_cells=4, most_rows=3),
        Kinds("many persons", plain, _normalised(alike, alike**-1), n_persons=20_000, n_cells=32),
    ]


POPULATIONS = _populations()


def leaf_masses(tree: MatchedTree, scores: np.ndarray, law: np.ndarray) -> np.ndarray:
    """Compute the mass of each leaf in each group, (K, k), from the scores of each kind; coins are integrated out."""
    structure, found = tree.structure, np.zeros((len(law), tree.structure.n_cells))
    for a, mass in enumerate(law):
        inside = {0: mass} if len(structure.score) else {-1: mass}
        for node in range(len(structure.score)):
            value, threshold = scores[:, structure.score[node]], tree.threshold[node, a]
            left = np.where(value == threshold, tree.coin[node, a], value < threshold)
            for side, share in enumerate((left, 1 - left)):
                inside[int(structure.children[node, side])] = inside[node] * share
        for leaf in range(structure.n_cells):
            found[a, leaf] = inside[-1 - leaf].sum()
    return found


def distance(masses: np.ndarray) -> float:
    """The largest distance between two groups."""
    return max(float(np.abs(one - other).sum() / 2) for one in masses for other in masses)


def cut_tree(population: Kinds, rng: np.random.Generator) -> ff.FairTree:
    """Choose a tree on half of the persons, and cut it at the others: one row of each, by the law of a random row."""
    people = population.table(rng, population.n_persons, f"c{rng.integers(10**9)}-")
    return ff.FairTree(population.n_cells, identifier="person", key=KEY).fit(people)


def true_distance(tree: ff.FairTree, population: Kinds) -> float:
    """Compute the true distance of a tree's leaves, exactly."""
    rows = tree.read(
        population.columns, np.repeat("g0", len(population.columns)), Persons.newly_named(len(population.columns))
    )
    return distance(leaf_masses(tree.tree_, np.concatenate(list(tree._scores(rows))), population.law))


def misses_of(population: Kinds, deltas: tuple[float, ...], n_runs: int, seed: int) -> dict[float, int]:
    """Count how often the true distance is above the bound, for each δ."""
    missed = dict.fromkeys(deltas, 0)
    for run in range(n_runs):
        tree = cut_tree(population, np.random.default_rng([seed, run]))
        found = true_distance(tree, population)
        for delta in deltas:
            missed[delta] += found > blocks_upper_bound(tree.blocks_, delta)
    return missed

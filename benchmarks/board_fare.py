"""FARE's boards: accuracy of a representation within a certified distance, ours beside FARE on the same rows.

    python benchmarks/board_fare.py [acsincome california states age65 race3 race5 race9 transfer] [--jobs 16]
                                    [--seeds 5] [--rows N] [--out docs/results/board-fare.csv]
    python benchmarks/board_fare.py --trials 200 [--jobs 16] [--out docs/results/board-fare-trials.csv]
    python benchmarks/board_fare.py --summary [--out docs/results/board-fare.csv]

Persons are parted into those that are fitted to, validation persons and test persons. For every bound of a board a
setting of each method is chosen on validation persons: the most accurate one whose certificate is foreseen within the
bound. Test persons certify it at δ = .05. So every row of the result is one certificate of one chosen setting. Those
settings of a board share their test persons; each certificate holds by itself, as those that FARE published do.

The cells are used by four classifiers. A cell is one of few values, so that they are trained on the table of cells and
labels with the counts as weights, which is training on all rows. Lines are appended to the result as tasks end, and
tasks whose lines are there already are not computed again.

``--trials`` takes California, without RELP and WKHP, as the population: persons are drawn from it with replacement, so
that the true distance of a fitted map is known. Counted is how often it is above the bound.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from itertools import combinations
from pathlib import Path
from typing import ClassVar

import joblib
import numpy as np
import pandas as pd
from scipy.special import ndtri
from sklearn.base import ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, TargetEncoder

from fairflows.arrays import NDArray
from fairflows.bounds import blocks_upper_bound, cell_radius, cell_upper_bound, fare_upper_bound
from fairflows.bounds.cells import total_variation
from fairflows.encoder.base import Encoder
from fairflows.encoder.cell_programme import BinnedScores, CellProgramme, PlannedProgramme, Solution
from fairflows.encoder.fair_cells import FairCells
from fairflows.encoder.fair_tree import FairTree
from fairflows.encoder.label import Label
from fairflows.encoder.rows import TrainingRows
from fairflows.paper.baselines import FARE
from fairflows.paper.datasets import load_health, read_acs
from fairflows.paper.folktables import load_acs_income
from fairflows.table.domain import Codes
from fairflows.table.table import Table

Ints = NDArray[np.intp]
Floats = NDArray[np.float64]

DELTA = 0.05
CHANCE = 0.7  # that the certificate of a chosen setting comes out within the bound it was chosen for
FIRST_SEED = 400
DISTANCES = (1e-4, 0.005, 0.01, 0.02, 0.03, 0.045, 0.06, 0.08, 0.1, 0.13, 0.17, 0.22, 0.3, 0.4, 0.55)
SLOW_ROWS = 40_000
KEY = b"the coins of FARE's boards"
OUT = Path("docs/results/board-fare.csv")

FEATURES = ["AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RAC1P", "SEX"]
FIVE_RACES = {
    "White alone": "white",
    "Black or African American alone": "black",
    "Asian alone": "asian or pacific",
    "Native Hawaiian and Other Pacific Islander alone": "asian or pacific",
    "Some Other Race alone": "other",
    "Two or More Races": "other",
}  # as in Adult; the others are American Indian or Alaska Native
THREE_RACES = {"White alone": "white", "Asian alone": "asian"}


@dataclass(frozen=True)
class Task:
    """A table with the attribute and the label that a representation is learnt for, and the label it is used for."""

    table: Table
    used_for: Ints


@dataclass(frozen=True)
class Board:
    """One of FARE's boards, or a neighbour of one."""

    task: Callable[[], Task]
    test: float  # share of the persons who certify
    bounds: tuple[float, ...]
    published: dict[float, float] = field(default_factory=dict)  # FARE's accuracy at its certified bound
    note: str = ""


def income(attribute: str, state: str | None = None, several: bool = False) -> Task:
    """Return ACSIncome with an attribute: income above 50,000 dollars, or in FARE's four classes."""
    rows = read_acs(state)
    groups = {
        "SEX": rows["SEX"].astype(str),
        "AGEP": pd.Series(np.where(rows["AGEP"] >= 65, "65 and over", "under 65")),
        "RAC1P": rows["RAC1P"].astype(str),
        "three": rows["RAC1P"].astype(str).map(THREE_RACES).fillna("other"),
        "five": rows["RAC1P"].astype(str).map(FIVE_RACES).fillna("native"),
    }
    hidden = attribute if attribute in FEATURES else "RAC1P"
    y = np.digitize(rows["PINCP"], [20_001, 50_001, 100_001]) if several else (rows["PINCP"] > 50_000).to_numpy()
    table = Table(
        rows[FEATURES].assign(SCHL=rows["SCHL"].cat.codes.astype(np.int64)).drop(columns=hidden),
        sensitive=groups[attribute].rename("group"),
        label=pd.Series(y.astype(np.int64), name="income"),
        identifier=pd.Series(np.arange(len(rows)), name="person"),
    )
    return Task(table, y.astype(np.intp))


def ten_features() -> Task:
    """Return ACSIncome of California with all of its features; sex is the attribute."""
    table = load_acs_income("CA")
    table.identifier = pd.Series(np.arange(len(table)), index=table.X.index, name="person")
    return Task(table, table.y.to_numpy(dtype=np.intp))


def transfer() -> Task:
    """Return Health without condition groups: learnt for the Charlson index, used for METAB3."""
    table = load_health(features="all")
    condition = [name for name in table.X if name.startswith("PrimaryConditionGroup=")]
    used_for = (table.X["PrimaryConditionGroup=METAB3"] > 0).to_numpy().astype(np.intp)
    table.X = table.X.drop(columns=condition)
    table.declared_kinds = {name: kind for name, kind in table.declared_kinds.items() if name not in condition}
    return Task(table, used_for)


CALIFORNIA = {0.028: 0.764, 0.051: 0.786, 0.095: 0.798, 0.127: 0.807, 0.233: 0.813}  # published
BOARDS = {
    "acsincome": Board(
        ten_features,
        0.3,
        (0.028, 0.051, 0.095, 0.127, 0.233),
        CALIFORNIA,
        "sex, California, all ten features; FARE's rows are 2014's; its raw accuracy is .825 at parity .087",
    ),
    "california": Board(
        partial(income, "SEX", "CA"),
        0.55,
        (0.028, 0.051, 0.095, 0.127, 0.233),
        CALIFORNIA,
        "sex, a sample without RELP and WKHP; FARE's rows are 2014's, with both",
    ),
    "states": Board(
        partial(income, "SEX"),
        0.25,
        (0.023, 0.049, 0.1, 0.238),
        {0.023: 0.755, 0.049: 0.785, 0.1: 0.8, 0.238: 0.811},
        "sex, without RELP and WKHP; FARE's rows are 2014's, with both",
    ),
    "age65": Board(partial(income, "AGEP"), 0.25, (0.03, 0.05, 0.1, 0.2, 0.3), note="age 65 and over, all states"),
    "race3": Board(
        partial(income, "three", "CA", several=True),
        0.45,
        (0.066, 0.1, 0.2, 0.317, 0.635, 0.892),
        {0.066: 0.32, 0.317: 0.391, 0.635: 0.45, 0.892: 0.512},
        "white, Asian, other and four classes of income, California, as FARE; its raw accuracy is .540 at parity .656",
    ),
    "race5": Board(partial(income, "five"), 0.4, (0.08, 0.1, 0.15, 0.2, 0.317), note="five groups, all states"),
    "race9": Board(partial(income, "RAC1P"), 0.4, (0.35, 0.4, 0.45, 0.5, 0.635), note="nine groups, all states"),
    "transfer": Board(
        transfer,
        0.25,
        (0.062, 0.1, 0.2, 0.33, 0.422, 0.555),
        {0.062: 0.653, 0.33: 0.687, 0.422: 0.739, 0.555: 0.75},
        "learnt for the Charlson index, used for METAB3; age 60 and over; condition groups left out as in FARE",
    ),
}


@dataclass(frozen=True)
class Part:
    """Rows with the label that the representation is used for."""

    table: Table
    used_for: Ints

    def take(self, places: Ints) -> Part:
        """Return the rows at some places."""
        return Part(self.table.take(places), self.used_for[places])


@dataclass(frozen=True)
class Parts:
    """Persons to fit to, to choose by and to certify with; of the last two one row each."""

    fit: Part
    validation: Part
    test: Part
    not_grown: Ints  # places of the fitted rows that neither FARE's tree nor a score is learnt from, one row each
    groups: list[str]
    n_classes: int
    seed: int

    @staticmethod
    @lru_cache(maxsize=1)  # tasks of a process follow each other by board and seed
    def of(board: str, seed: int, rows: int | None) -> Parts:
        """Part the persons of a board at random, or some of them."""
        task = BOARDS[board].task()
        whole = Part(task.table, task.used_for)
        if rows is not None and rows < len(whole.table):
            whole = whole.take(whole.table.persons.split(1 - rows / len(whole.table), random_state=0)[0])
        fit, test, validation = whole.table.persons.split(BOARDS[board].test, 0.25, random_state=seed)
        held_out = (whole.take(places) for places in (validation, test))
        one_each = (part.take(part.table.persons.one_row_each(part.table.contents(), seed)) for part in held_out)
        fitted = whole.take(fit)
        not_grown = fitted.table.persons.split(0.3, random_state=seed)[1]
        others = fitted.table.take(not_grown)
        not_grown = not_grown[others.persons.one_row_each(others.contents(), seed)]
        n_classes = int(task.used_for.max()) + 1
        return Parts(fitted, *one_each, not_grown, whole.table.groups, n_classes, seed)


def counts_of(cells: Ints, values: Ints, k: int, n: int) -> Floats:
    """Count cells within each value of an attribute or a label, (n, k)."""
    return np.bincount(values * k + cells, minlength=n * k).reshape(n, k).astype(np.float64)


@dataclass(frozen=True)
class Candidate:
    """A setting of a method with the cells of all rows."""

    setting: str
    fit: Ints
    validation: Ints
    test: Ints
    k: int
    foreseen: float  # the certificate to expect, known before the test persons are looked at
    certified: float
    bound: str

    def accuracy_foreseen(self, parts: Parts) -> float:
        """Return the accuracy of each cell's most frequent label on validation persons."""
        known = counts_of(self.fit, parts.fit.used_for, self.k, parts.n_classes).argmax(axis=0)
        return float((known[self.validation] == parts.validation.used_for).mean())


def foreseen_bound(counts: Floats, n: Floats) -> float:
    """Return the certificate to expect from n persons of each group, from the counts (K, k) of others.

    The fewer persons are counted, the larger is the observed distance. How it falls from half of them to all of them
    says how it goes on: by 1/√n where it is noise, not at all where it is a distance.
    """
    counted = counts.sum(axis=1)
    observed = total_variation(counts / counted[:, None])
    rng = np.random.default_rng(0)
    halves = [
        [rng.multivariate_hypergeometric(row, row.sum() // 2) for row in counts.astype(np.int64)] for _ in range(10)
    ]
    of_half = np.mean(
        [total_variation(np.array(half) / np.sum(half, axis=1, keepdims=True)) for half in halves], axis=0
    )
    noise = np.maximum(of_half - observed, 0) / (np.sqrt(2) - 1)  # of the observed distance, if it goes by 1/√n
    scale, scale_counted = (np.sqrt(1 / size[:, None] + 1 / size) for size in (n, counted))
    none = 0.399 * np.sqrt(counts.shape[1] - 1) * scale  # the distance to expect where there is none
    mean = np.maximum(observed - noise * (1 - scale / scale_counted), none)
    deviation = 0.3 * np.hypot(scale, scale_counted)  # of the certificate, and of what is foreseen
    other = ~np.eye(len(n), dtype=bool)
    return float((mean + other * ndtri(CHANCE) * deviation + cell_radius(n, DELTA)).max())


def counted(setting: str, cells: tuple[Ints, Ints, Ints], k: int, parts: Parts, known: Ints | None = None) -> Candidate:
    """Return a setting whose certificate counts the cells of test persons.

    It is foreseen from validation persons, and from the fitted rows at places whose cells nothing was learnt from.
    """
    K = len(parts.groups)
    validation, test = (
        counts_of(found, part.table.group_numbers(parts.groups), k, K)
        for found, part in zip(cells[1:], (parts.validation, parts.test), strict=True)
    )
    if known is not None:
        validation += counts_of(cells[0][known], parts.fit.table.group_numbers(parts.groups)[known], k, K)
    foreseen, certified = foreseen_bound(validation, test.sum(axis=1)), float(cell_upper_bound(test, DELTA))
    return Candidate(setting, *cells, k, foreseen, certified, "counted")


def cells_by(encoder: Encoder, parts: Parts) -> tuple[Ints, Ints, Ints]:
    """Return the cells of all rows."""
    fit, validation, test = (
        encoder.cells(encoder.read(part.table)) for part in (parts.fit, parts.validation, parts.test)
    )
    return fit, validation, test


@dataclass(frozen=True)
class PlacesOnce(BinnedScores):
    """Scores and bins that find the bins of the same rows once."""

    known: dict[str, Ints] = field(default_factory=dict)

    def places(self, codes: Codes, group: Ints) -> Ints:
        """Return each row's bin."""
        name = str(joblib.hash((codes, group)))
        if name not in self.known:
            self.known[name] = super().places(codes, group)
        return self.known[name]


class OwnDistance(PlannedProgramme):
    """A programme whose target is its own Δ: the certificate to expect is foreseen on validation persons instead."""

    def within(self, target: float) -> Solution:
        """Return the best cells at Δ."""
        return self.at(target)


class SweptCells(FairCells):
    """FairCells that fits the scores once for all Δ (its ``target``) and numbers of cells, of one number of bins."""

    plans: ClassVar[dict[int, tuple[BinnedScores, PlannedProgramme]]] = {}  # by the number of cells; 0: as it was made

    def _plan(
        self, rows: TrainingRows, label: Label, train: Ints, rest: Ints, seed: int
    ) -> tuple[BinnedScores, PlannedProgramme]:
        if 0 not in self.plans:
            binned, planned = super()._plan(rows, label, train, rest, seed)
            self.plans[0] = PlacesOnce(binned.label_score, binned.group_score, binned.bins), planned
        if self.n_cells not in self.plans:
            binned, planned = self.plans[0]
            settings = {part.name: getattr(planned, part.name) for part in fields(planned)}
            programme = CellProgramme.of(planned.programme.bins, self.n_cells, seed)
            self.plans[self.n_cells] = binned, OwnDistance(**settings | {"programme": programme, "solved": {}})
        return self.plans[self.n_cells]


def fair_cells(attribute: str, parts: Parts, bounds: tuple[float, ...]) -> Iterator[Candidate]:
    """Yield cells for the label: some numbers of bins and cells, at distances up to the largest bound."""
    # Where the attribute is known, the programme has seen the counts of the persons it was made from.
    known = parts.not_grown if attribute == "training" else None
    for n_bins in (16, 100, 576):  # of few persons, a programme of many bins takes noise for differences
        SweptCells.plans.clear()
        base = SweptCells(attribute=attribute, n_bins=n_bins, key=KEY, random_state=parts.seed)
        for n_cells in (2, 4, 8):
            for distance in (one for one in DISTANCES if one <= max(bounds)):
                encoder = clone(base).set_params(n_cells=n_cells, target=distance).fit(parts.fit.table)
                setting = f"{n_cells} cells of {n_bins} bins, Δ {distance}"
                yield counted(setting, cells_by(encoder, parts), int(encoder.n_cells_ or 0), parts, known)
                if total_variation(encoder.laws_).max() < distance / 2:
                    break  # the best cells are closer than Δ, and remain so


def fair_tree(parts: Parts, bounds: tuple[float, ...]) -> Iterator[Candidate]:
    """Yield matched trees: some numbers of cells, some of the target spent at the root; certified by blocks."""
    spends = (0.0, 0.02, 0.05, 0.1, 0.2) if len(parts.fit.table.labels) == 2 else (0.0,)
    for n_cells in (2, 4, 8, 32, 128):
        for spend in spends if n_cells in (2, 8) else (0.0,):
            tree = FairTree(n_cells, spend=spend, key=KEY, random_state=parts.seed).fit(parts.fit.table)
            bound = float(blocks_upper_bound(tree.blocks_, DELTA))
            if bound <= max(bounds):
                cells, k = cells_by(tree, parts), int(tree.n_cells_ or 0)
                yield Candidate(f"{n_cells} cells, spend {spend}", *cells, k, bound, bound, "blocks")


def fare(parts: Parts, bounds: tuple[float, ...]) -> Iterator[Candidate]:
    """Yield FARE's trees over its authors' settings, each by our bound and by their own.

    A tree grows best first, so that the tree of k leaves is the beginning of the tree of 200. It grows on seven tenths
    of the rows that everything is fitted to; its own certificate takes the others for the groups' shares in cells.
    """
    grown, _ = parts.fit.table.persons.split(0.3, random_state=parts.seed)
    grow, share = parts.fit.take(grown), parts.fit.take(parts.not_grown)
    for gamma in (0.0, 0.1, 0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99, 0.999):
        for min_rows in (100, 1000):
            whole = FARE(gamma, max_leaves=200, min_rows=min_rows, key=KEY).fit(grow.table)
            for k in (2, 3, 4, 5, 6, 8, 10, 14, 20, 50, 100, 200):
                if k > len(whole.tree_.leaves):
                    break
                tree = first_leaves(whole, k)
                setting = f"γ {gamma}, {k} leaves of {min_rows} rows"
                found = counted(setting, cells_by(tree, parts), k, parts, parts.not_grown)
                yield found
                own = partial(fare_bound, tree, grow, share, parts)
                yield replace(found, foreseen=own(parts.validation), certified=own(parts.test), bound="FARE's")


def first_leaves(grown: FARE, k: int) -> FARE:
    """Return the tree as it was when it had k leaves: node numbers follow the order of the splits."""
    tree, found = copy(grown.tree_), copy(grown)
    n = 2 * k - 1
    tree.splits = [split if first < n else None for split, first in zip(tree.splits[:n], tree.child[:n], strict=True)]
    tree.child = [first if first < n else -1 for first in tree.child[:n]]
    found.tree_, found.n_cells_ = tree, k
    return found


def fare_bound(tree: FARE, grow: Part, share: Part, parts: Parts, totals: Part) -> float:
    """Return FARE's own certificate; of more than two groups the worst pair, each at its share of δ."""
    k, K = int(tree.n_cells_ or 0), len(parts.groups)
    group = [part.table.group_numbers(parts.groups) for part in (grow, share, totals)]
    base = np.bincount(group[0], minlength=K)
    counts = counts_of(tree.cells(tree.read(share.table)), group[1], k, K)
    total = counts_of(tree.cells(tree.read(totals.table)), group[2], k, K)
    pairs = list(combinations(range(K), 2))
    each = 1 / len(pairs)
    return max(
        float(
            fare_upper_bound(
                base[list(pair)],
                counts[list(pair)],
                total[list(pair)].sum(axis=0),
                DELTA * each,
                delta_base=0.005 * each,
                delta_sum=0.005 * each,
            )
        )
        for pair in pairs
    )


METHODS: dict[str, Callable[[Parts, tuple[float, ...]], Iterator[Candidate]]] = {
    "FairCells, no attribute": partial(fair_cells, "training"),
    "FairCells": partial(fair_cells, "encoding"),
    "FairTree": fair_tree,
    "FARE": fare,
}
DOWNSTREAM: dict[str, Callable[[], ClassifierMixin]] = {
    "logistic": lambda: LogisticRegression(C=100, max_iter=1000),
    "boosted trees": lambda: HistGradientBoostingClassifier(min_samples_leaf=1, random_state=0),
    "forest": lambda: RandomForestClassifier(50, bootstrap=False, random_state=0),
    "network": lambda: MLPClassifier((50,), solver="lbfgs", max_iter=500, random_state=0),
}


def judged(name: str, validation: Ints, test: Ints, parts: Parts) -> dict[str, object]:
    """Return accuracy and the largest distance between two groups' laws of predictions."""
    law = counts_of(test, parts.test.table.group_numbers(parts.groups), parts.n_classes, len(parts.groups))
    return {
        "downstream": name,
        "validation": float((validation == parts.validation.used_for).mean()),
        "accuracy": float((test == parts.test.used_for).mean()),
        "parity": float(total_variation(law / law.sum(axis=1, keepdims=True)).max()),
    }


def with_best(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Add the classifier that does best on validation persons."""
    return [*rows, max(rows, key=lambda row: float(str(row["validation"]))) | {"downstream": "best"}]


def downstream(chosen: Candidate, parts: Parts) -> list[dict[str, object]]:
    """Return what each classifier makes of the cells."""
    counts = counts_of(chosen.fit, parts.fit.used_for, chosen.k, parts.n_classes)
    cell, label = np.tile(np.arange(chosen.k), parts.n_classes), np.repeat(np.arange(parts.n_classes), chosen.k)
    weight = counts.ravel() / counts.sum() * len(cell)
    used = weight > 0
    rows = []
    for name, make in DOWNSTREAM.items():
        model = make().fit(np.eye(chosen.k)[cell[used]], label[used], sample_weight=weight[used])
        predicted = model.predict(np.eye(chosen.k))
        rows.append(judged(name, predicted[chosen.validation], predicted[chosen.test], parts))
    return with_best(rows)


def raw(parts: Parts) -> list[dict[str, object]]:
    """Return what the classifiers make of the columns themselves; the slow ones of 40,000 rows."""
    table = parts.fit.table
    text = [name for name in table.X if table.X[name].dtype == "category"]
    models = {
        "logistic": LogisticRegression(max_iter=500),
        "boosted trees": HistGradientBoostingClassifier(random_state=0),
        "forest": RandomForestClassifier(100, min_samples_leaf=10, random_state=0),
        "network": MLPClassifier((50,), early_stopping=True, max_iter=50, random_state=0),
    }
    rows = []
    for name, model in models.items():
        slow = name in ("forest", "network") and len(table) > SLOW_ROWS
        part = parts.fit.take(np.arange(SLOW_ROWS)) if slow else parts.fit
        columns = make_column_transformer((TargetEncoder(), text), remainder=StandardScaler())
        fitted = make_pipeline(columns, model).fit(part.table.X, part.used_for)
        predicted = (fitted.predict(held_out.table.X) for held_out in (parts.validation, parts.test))
        rows.append(judged(name, *predicted, parts))
    return with_best(rows)


def measure(board: str, method: str, seed: int, rows: int | None) -> list[dict[str, object]]:
    """Return the lines of one method on one parting of a board's persons."""
    warnings.simplefilter("ignore")
    started, parts, bounds = time.process_time(), Parts.of(board, seed, rows), BOARDS[board].bounds
    about: dict[str, object] = {"board": board, "method": method, "seed": seed}
    if method == "raw":
        return [about | {"setting": "columns"} | row | {"seconds": time.process_time() - started} for row in raw(parts)]
    candidates = list(METHODS[method](parts, bounds))
    accuracy = {id(one): one.accuracy_foreseen(parts) for one in candidates}
    found = []
    for kind in dict.fromkeys(one.bound for one in candidates):
        for limit in bounds:
            within = [one for one in candidates if one.bound == kind and one.foreseen <= limit]
            if within:
                chosen = max(within, key=lambda one: (accuracy[id(one)], -one.foreseen))
                line = about | {"limit": limit, "setting": chosen.setting, "cells": chosen.k, "bound": kind}
                line |= {"foreseen": chosen.foreseen, "certified": chosen.certified}
                found += [line | row for row in downstream(chosen, parts)]
    return [line | {"seconds": time.process_time() - started} for line in found]


def drawn(population: Part, n: int, seed: int) -> Part:
    """Draw persons with replacement, each of them new."""
    part = population.take(np.random.default_rng(seed).integers(0, len(population.used_for), n))
    part.table.identifier = pd.Series(np.arange(n) + 10**6 * (seed + 1), index=part.table.X.index, name="person")
    part.table.X = part.table.X.set_axis(pd.Index(part.table.identifier), axis=0)
    return part


TRIAL_ROWS = {"fit": 4000, "validation": 1500, "test": 3000}
COINS = 20  # times that the population is encoded, where a person's coin decides


def true_distance(encoder: Encoder, population: Part, groups: list[str]) -> float:
    """Return the distance of the groups' laws of cells in the population, over the coins."""
    k, group = int(encoder.n_cells_ or 0), population.table.group_numbers(groups)
    times = COINS if encoder.traits.randomised else 1
    counts = np.zeros((len(groups), k))
    for coin in range(times):
        asked = drawn_as(population, coin)
        counts += counts_of(encoder.cells(encoder.read(asked)), group, k, len(groups))
    return float(total_variation(counts / counts.sum(axis=1, keepdims=True)).max())


def drawn_as(population: Part, coin: int) -> Table:
    """Return the population under other names, which have other coins."""
    table = copy(population.table)
    table.identifier = pd.Series(np.arange(len(table.X)) + 10**9 * (coin + 1), name="person")
    table.X = table.X.set_axis(pd.Index(table.identifier), axis=0)
    return table


@lru_cache(maxsize=1)
def whole_california() -> Part:
    """Return the population of the trials."""
    task = BOARDS["california"].task()
    return Part(task.table, task.used_for)


def trial(seed: int) -> list[dict[str, object]]:
    """Fit and certify on drawn persons; return the bounds beside the truth."""
    warnings.simplefilter("ignore")
    population = whole_california()
    groups = population.table.groups
    parts = {name: drawn(population, n, 3 * seed + i) for i, (name, n) in enumerate(TRIAL_ROWS.items())}
    fit, test = parts["fit"].table, parts["test"].table
    encoders: dict[str, Encoder] = {
        name: FairCells(
            4, attribute=attribute, target=0.15, delta=DELTA, key=KEY, random_state=seed, n_certify=len(test)
        )
        for name, attribute in (("FairCells, no attribute", "training"), ("FairCells", "encoding"))
    }
    encoders |= {"FairTree": FairTree(8, key=KEY, random_state=seed), "FARE": FARE(0.5, max_leaves=8, key=KEY)}
    lines = []
    for method, encoder in encoders.items():
        encoder.fit(fit)
        k, group = int(encoder.n_cells_ or 0), test.group_numbers(groups)
        counts = counts_of(encoder.cells(encoder.read(test)), group, k, len(groups))
        laws = counts / counts.sum(axis=1, keepdims=True)
        bounds = {"counted": float(cell_upper_bound(counts, DELTA)), "none": float(total_variation(laws).max())}
        if isinstance(encoder, FairTree):
            bounds = {"blocks": float(blocks_upper_bound(encoder.blocks_, DELTA))} | bounds
        elif isinstance(encoder, FARE):
            bounds = {"FARE's": encoder.own_upper_bound(fit, parts["validation"].table, test, DELTA)} | bounds
        truth = true_distance(encoder, population, groups)
        lines += [
            {"seed": seed, "method": method, "bound": kind, "certified": bound, "truth": truth, "missed": truth > bound}
            for kind, bound in bounds.items()
        ]
    return lines


def append(lines: list[dict[str, object]], out: Path) -> None:
    """Write lines to the end of a file, at once."""
    exists = out.exists()
    out.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(lines, columns=TRIAL_COLUMNS if "truth" in lines[0] else COLUMNS).to_csv(
        out, mode="a", header=not exists, index=False, float_format="%.4f"
    )


COLUMNS = [
    "board", "method", "seed", "limit", "setting", "cells", "bound", "foreseen", "certified",
    "downstream", "validation", "accuracy", "parity", "seconds",
]  # fmt: skip
TRIAL_COLUMNS = ["seed", "method", "bound", "certified", "truth", "missed"]


def run(work: Callable[..., list[dict[str, object]]], tasks: list[tuple[object, ...]], jobs: int, out: Path) -> None:
    """Do tasks side by side and keep what each found as soon as it ends; one that fails is named, the others go on."""
    started = time.monotonic()
    calls = (joblib.delayed(attempted)(work, task) for task in tasks)
    with joblib.parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
        ended = joblib.Parallel(return_as="generator_unordered")(calls)
    for done, (task, lines, error) in enumerate(ended, 1):
        if lines:
            append(lines, out)
        print(
            f"{time.monotonic() - started:6.0f} s  {done}/{len(tasks)}  {task}  {error or f'{len(lines)} lines'}",
            flush=True,
        )


def attempted(
    work: Callable[..., list[dict[str, object]]], task: tuple[object, ...]
) -> tuple[tuple[object, ...], list[dict[str, object]], str]:
    """Return the task, its lines, and its error."""
    try:
        return task, work(*task), ""
    except Exception as error:  # a task that fails must not lose the others
        return task, [], f"failed: {type(error).__name__}: {error}"


def summary(out: Path) -> str:
    """Return a table of Markdown per board: at each bound the mean over seeds (range) of accuracy and certificate."""
    rows = pd.read_csv(out)
    best = rows[rows["downstream"] == "best"]
    text = []
    for name, part in best.groupby("board", sort=False):
        board, published = BOARDS[str(name)], BOARDS[str(name)].published
        bare = part[part["method"] == "raw"]
        text.append(f"### {name}\n\n{board.note}.")
        if len(bare):
            text.append(f"Columns themselves: accuracy {spread(bare['accuracy'])}, parity {bare['parity'].mean():.3f}.")
        by = part[part["method"] != "raw"].groupby(["method", "bound"], sort=False)
        lines = [
            "| bound ≤ | " + " | ".join(f"{method}, {kind}" for method, kind in by.groups) + " | FARE, published |"
        ]
        lines.append("|---" * (len(by.groups) + 2) + "|")
        for limit in board.bounds:
            shown = []
            for _, own in by:
                at = own[own["limit"] == limit]
                within = f"{(at['certified'] <= limit).sum()}/{len(at)}"
                shown.append(f"{spread(at['accuracy'])} at {at['certified'].mean():.3f}, {within}" if len(at) else "–")
            told = f"{published[limit]:.3f}" if limit in published else "–"
            lines.append(f"| {limit} | " + " | ".join(shown) + f" | {told} |")
        text.append("\n".join(lines))
    return "\n\n".join(text)


def spread(values: pd.Series) -> str:
    """Return the mean with its range."""
    return f"{values.mean():.3f} ({values.min():.3f}–{values.max():.3f})"


def misses(out: Path) -> str:
    """Return how often the truth was above each bound, as a table of Markdown."""
    by = pd.read_csv(out).groupby(["method", "bound"], sort=False)
    found = by.agg(
        trials=("missed", "size"), missed=("missed", "sum"), truth=("truth", "mean"), certified=("certified", "mean")
    )
    lines = ["| method | bound | trials | truth above it | mean truth | mean bound |", "|---|---|---|---|---|---|"]
    for (method, kind), row in found.iterrows():
        lines.append(
            f"| {method} | {kind} | {row.trials:.0f} | {row.missed:.0f} | {row.truth:.3f} | {row.certified:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("boards", nargs="*", help=f"of {', '.join(BOARDS)}; all by default")
    parser.add_argument("--methods", nargs="+", choices=[*METHODS, "raw"], default=[*METHODS, "raw"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, help="about so many rows of each board")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--trials", type=int, default=0, help="only ask how often the truth is above the bound")
    parser.add_argument("--summary", action="store_true", help="only print the tables of a result")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    boards = asked.boards or list(BOARDS)
    if unknown := set(boards) - set(BOARDS):
        parser.error(f"unknown board: {', '.join(unknown)}; choose from {', '.join(BOARDS)}")
    out = asked.out or (OUT.with_stem(f"{OUT.stem}-trials") if asked.trials else OUT)
    if not asked.summary:
        done = pd.read_csv(out) if out.exists() else pd.DataFrame(columns=COLUMNS)
        if asked.trials:
            run(trial, [(seed,) for seed in range(asked.trials) if seed not in set(done["seed"])], asked.jobs, out)
        else:
            known = set(zip(done["board"], done["method"], done["seed"], strict=True))
            seeds = range(FIRST_SEED, FIRST_SEED + asked.seeds)
            tasks = [(board, method, seed) for board in boards for seed in seeds for method in asked.methods]
            run(measure, [(*task, asked.rows) for task in tasks if task not in known], asked.jobs, out)
    print(misses(out) if "truth" in pd.read_csv(out, nrows=1) else summary(out))


if __name__ == "__main__":
    import board_fare  # under its own name, by which other processes find its functions

    board_fare.main()

"""What the cells of a matched tree are certified at, and what they still tell: the label, and other columns.

    python benchmarks/fair_tree.py [--data health adult ...] [--cells 8 16 64 256] [--seeds 5] [--json FILE]
    python benchmarks/fair_tree.py --speed

Split by person: 20 % (Health) or 30 % of the persons certify, and nothing is fitted to them. With unit ``person`` the
tree is calibrated to one row per person and certified on one random row each; with unit ``row`` both follow the law of
a random row of the table. ``certified`` is `cell_upper_bound` at δ = 0.05. ``label`` is the accuracy of the label that
the cell suggests; ``others`` is the mean accuracy on columns that were not singled out in training: the most frequent
value in each cell among training persons, judged on certification persons. ``majority`` is the same without the cell.
``left`` is the number of cells after those that a group cannot fill were merged.

``--speed`` fits Health with all columns and encodes a million rows of it; then a table with two columns of 3,351 and
800 categories, and one of 200 columns.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.bounds import cell_upper_bound
from fairflows.encoder.base import Encoder
from fairflows.encoder.fair_tree import FairTree
from fairflows.exceptions import DataWarning
from fairflows.paper.datasets import load_compas, load_crime, load_health, load_law_school
from fairflows.table.examples import load_adult
from fairflows.table.table import Table

DELTA = 0.05
DATA: dict[str, tuple[Callable[[], Table], float]] = {
    "health": (lambda: load_health(features="all"), 0.2),
    "adult": (load_adult, 0.3),
    "compas": (load_compas, 0.3),
    "law": (load_law_school, 0.3),
    "crime": (load_crime, 0.3),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=DATA, default=["health", "adult"])
    parser.add_argument("--cells", nargs="+", type=int, default=[8, 16, 64, 256])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--units", nargs="+", choices=("person", "row"), default=["person", "row"])
    parser.add_argument("--speed", action="store_true", help="time fitting and encoding instead")
    parser.add_argument("--json", help="write the numbers to this file")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)
    if arguments.speed:
        rows = [on_health_rows(), on_categories(), on_many_columns()]
        print(pd.DataFrame(rows).to_string(index=False, float_format="{:.1f}".format))
    else:
        rows = []
        for name in arguments.data:
            load, share = DATA[name]
            table = load()
            for seed in range(arguments.seeds):
                for unit in arguments.units:
                    rows += on_split(name, table, share, unit, arguments.cells, seed)
        frame = pd.DataFrame(rows)
        measured = frame.drop(columns="seed").groupby(["data", "unit", "cells"], sort=False)
        shown = measured.mean()
        if arguments.seeds > 1:
            spread = measured[["certified", "label", "others"]].agg(["min", "max"])
            shown = shown.join(spread.set_axis([f"{a} {b}" for a, b in spread], axis=1))
        print(shown.to_string(float_format="{:.4f}".format))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=2)


def on_split(
    name: str, table: Table, share: float, unit: str, n_cells: list[int], seed: int
) -> list[dict[str, float | str]]:
    """One row of results per number of cells."""
    train, test = (table.take(part) for part in table.persons.split(share, random_state=seed))
    counted = test.one_row_per_person(seed)
    if unit == "row":
        counted = test.random_rows(seed, int(train.persons.rows_each().max()))
    start = time.perf_counter()
    trees = FairTree(key=bytes(32)).fit_path(train, strengths=n_cells, seeds=[seed])
    seconds = (time.perf_counter() - start) / len(trees)
    weight = 1 / train.persons.rows_each()[train.persons.codes] if unit == "person" else np.ones(len(train))
    columns, of_test = other_columns(name, train.X), other_columns(name, counted.X)
    found: list[dict[str, float | str]] = []
    for asked, tree in zip(n_cells, trees, strict=True):
        before, after = tree.cells(tree.read(train)), tree.cells(tree.read(counted))
        counts = [np.bincount(after[(counted.a == g).to_numpy()], minlength=tree.n_cells_) for g in tree.groups_]
        truth = pd.Series(counted.y).to_numpy()
        others = [accuracy(before, x, weight, after, z) for x, z in zip(columns, of_test, strict=True)]
        nothing = [accuracy(0 * before, x, weight, 0 * after, z) for x, z in zip(columns, of_test, strict=True)]
        found.append(
            {
                "data": name,
                "unit": unit,
                "cells": asked,
                "left": int(tree.n_cells_),
                "seed": seed,
                "persons": len(counted),
                "certified": float(cell_upper_bound(np.stack(counts), DELTA)),
                "label": float((tree.label_.predict(tree.cell_means_[after]) == truth).mean()),
                "others": float(np.mean(others)),
                "majority": float(np.mean(nothing)),
                "fit s": seconds,
            }
        )
    return found


def other_columns(name: str, X: pd.DataFrame) -> list[npt.NDArray]:
    """The columns of the table that are asked for: Health's nine, or all; numbers as above their median or not."""
    if name == "health":
        above = {
            "PrimaryConditionGroup=METAB3": 0, "PrimaryConditionGroup=MSC2a3": 0, "LOS_max": 0, "drugCount_max": 3,
            "no_Claims": 10, "sexFEMALE": 0, "ProcedureGroup=SCS": 0, "PlaceSvc=Urgent Care": 0, "Specialty=Surgery": 0,
        }  # fmt: skip
        return [(X[column] > limit).to_numpy() for column, limit in above.items()]
    numeric = X.select_dtypes("number")
    return [
        (X[column] > numeric[column].median()).to_numpy() if column in numeric else X[column].astype(str).to_numpy()
        for column in X
    ]


def accuracy(
    cell: npt.NDArray, value: npt.NDArray, weight: npt.NDArray, test_cell: npt.NDArray, test_value: npt.NDArray
) -> float:
    """How often the most frequent value of a person's cell is hers."""
    codes, values = pd.factorize(value)
    counts = np.zeros((cell.max() + 1, len(values)))
    np.add.at(counts, (cell, codes), weight)
    return float((values[counts.argmax(axis=1)][np.minimum(test_cell, cell.max())] == test_value).mean())


def timed(what: str, encoder: Encoder, train: Table, rows: Table) -> dict[str, float | str]:
    start = time.perf_counter()
    encoder.fit(train)
    middle = time.perf_counter()
    encoder.transform(rows)
    return {
        "table": what,
        "fitted rows": float(len(train)),
        "fit s": middle - start,
        "encoded rows": float(len(rows)),
        "encode s": time.perf_counter() - middle,
    }


def on_health_rows() -> dict[str, float | str]:
    table = load_health(features="all")
    million = table.take(np.resize(np.arange(len(table)), 1_000_000))
    return timed("Health, 123 columns", FairTree(64), table.take(np.arange(150_000)), million)


def on_categories() -> dict[str, float | str]:
    rng = np.random.default_rng(0)
    n = 200_000
    code, group = rng.integers(0, 3351, n), rng.integers(0, 2, n)
    town = (800 * rng.random(n) ** (1 + group)).astype(int)
    frame = pd.DataFrame({"code": code.astype(str), "town": town.astype(str), "group": group})
    frame["label"] = (rng.random(n) < np.where(code % 5 == 0, 0.8, 0.3)).astype(int)
    table = Table(frame, sensitive="group", label="label")
    return timed("3,351 × 800 categories", FairTree(64), table, table)


def on_many_columns() -> dict[str, float | str]:
    rng = np.random.default_rng(0)
    n, d = 100_000, 200
    group = rng.integers(0, 2, n)
    factors = rng.normal(size=(n, 10)) + group[:, None] / 4
    X = pd.DataFrame(factors @ rng.normal(size=(10, d)) + rng.normal(size=(n, d))).add_prefix("x")
    for j in range(0, d, 4):
        X[f"x{j}"] = pd.cut(X[f"x{j}"], 30, labels=False).astype(str)
    table = Table(X.assign(group=group, label=(factors[:, 0] > 0).astype(int)), sensitive="group", label="label")
    return timed("200 columns", FairTree(64), table, table)


if __name__ == "__main__":
    main()

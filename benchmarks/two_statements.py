"""What a release of trees states: this table exactly, persons to come by blocks, and what its cells tell.

    python benchmarks/two_statements.py                      # every table in FAIRFLOWS_DATA, targets .05 and .1
    python benchmarks/two_statements.py adult-six --rows 200 300 700 2000 5000 --targets auto

Columns of the result: ``cells`` in all; ``table`` is Δ of the table; ``half`` the 95 % point of Δ(½); ``to come`` the
bound on persons to come at δ = .01; ``met`` whether the table and persons to come are within the target; ``label`` the
share of rows whose label is the most frequent one of the other rows of their cell (for numbers, R²), with that of a
blind guess; ``told`` the share of blind-guess errors that the cell removes, mean over columns (numbers in quarters).
Each row is judged by the others of its cell.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from rows import TABLES

import fairflows as ff

DATA = Path(os.environ.get("FAIRFLOWS_DATA", "data"))


def of_source(name: str) -> ff.Table:
    source = TABLES[name](Path())
    return table(source.frame, source.sensitive, source.label)


def table(frame: pd.DataFrame, sensitive: str, label: str | None, **settings: object) -> ff.Table:
    dates = frame.select_dtypes("datetime").columns
    return ff.Table(frame.drop(columns=dates), sensitive=sensitive, label=label, **settings)


def acs(sensitive: str) -> ff.Table:
    frame = pd.read_parquet(DATA / "acs" / "acs-income-2018-holdout.parquet")
    return table(frame, sensitive, "Income")


SOURCES: dict[str, Callable[[], ff.Table]] = {
    "adult-six": ff.load_adult,
    "adult": lambda: of_source("adult"),
    "compas": lambda: of_source("compas"),
    "crime": lambda: ff.paper.load_crime("all"),
    "health, by person": lambda: ff.paper.load_health("all").one_row_per_person(0),
    "health, by row": lambda: ff.paper.load_health("all"),
    "law": lambda: ff.paper.load_law_school("all"),
    "nist": lambda: of_source("nist"),
    "acs": lambda: of_source("acs"),
    "acs, race": lambda: acs("Race"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=list(SOURCES))
    parser.add_argument("--targets", nargs="+", default=["0.05", "0.1"])
    parser.add_argument("--rows", nargs="+", type=int, help="only the first so many rows")
    parser.add_argument("--spend", type=float, default=0.0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.tables:
        whole = SOURCES[name]()
        for n in arguments.rows or [len(whole)]:
            for target in arguments.targets:
                part = whole if n == len(whole) else whole.take(np.arange(n))
                print(name, f"{n:,} rows, target {target}:", stated(part, target, arguments.spend), flush=True)


def stated(table: ff.Table, target: str, spend: float) -> dict[str, object]:
    start = time.perf_counter()
    asked = None if target == "auto" else float(target)
    tree = ff.FairTree()
    release = ff.Release(tree, output="cell", n_cells="auto", target=asked, spend=spend)
    try:
        cells = release.fit_transform(table)["cell"].to_numpy()
    except ff.DataError as error:
        return {"refused": str(error)}
    certificate = ff.certify(release, table, target=release.plan_.target)
    seconds = time.perf_counter() - start
    of_table, to_come = certificate.find("table"), certificate.find("population")
    found: dict[str, object] = {
        "target": release.plan_.target,
        "cells": release.n_cells_,
        "table": round(of_table.distance, 4),
        "half": round(of_table.known_half, 3),
        "to come": None if to_come is None else round(to_come.distance, 3),
        "met": (of_table.met, None if to_come is None else to_come.met),
        "told": round(float(np.mean([told(column, cells) for _, column in table.X.items()])), 3),
        "seconds": round(seconds, 1),
    }
    if table.y is not None:
        found["label"] = label_told(table.y, cells)
    return found


def label_told(y: pd.Series, cells: np.ndarray) -> str:
    if y.nunique() > 20 and y.dtype.kind in "if":
        residual = y.to_numpy() - left_out_means(y.to_numpy(dtype=float), cells)
        return f"R² {1 - residual.var() / y.var():.3f}"
    codes = pd.factorize(y)[0]
    right, blind = guessed(codes, cells)
    return f"{right:.3f} ({blind:.3f})"


def left_out_means(values: np.ndarray, cells: np.ndarray) -> np.ndarray:
    n, sums = np.bincount(cells)[cells], np.bincount(cells, values)[cells]
    return np.where(n > 1, (sums - values) / np.maximum(n - 1, 1), values.mean())


def guessed(codes: np.ndarray, cells: np.ndarray) -> tuple[float, float]:
    """How often the most frequent value of the other rows of a cell is right, and that of all rows."""
    counts = np.zeros((cells.max() + 1, codes.max() + 1), dtype=np.int64)
    np.add.at(counts, (cells, codes), 1)
    others = counts[cells]
    others[np.arange(len(codes)), codes] -= 1
    return float((others.argmax(axis=1) == codes).mean()), float(np.bincount(codes).max() / len(codes))


def told(column: pd.Series, cells: np.ndarray) -> float:
    if column.dtype.kind in "if" and column.nunique() > 20:
        column = pd.qcut(column.rank(), 4, labels=False, duplicates="drop")
    right, blind = guessed(pd.factorize(column.fillna("missing") if column.dtype == object else column)[0] + 1, cells)
    return max(0.0, (right - blind) / (1 - blind)) if blind < 1 else 0.0


if __name__ == "__main__":
    main()

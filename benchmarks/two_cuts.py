"""How many cells a target allows, and how much they tell of persons who are not in the table.

    python benchmarks/two_cuts.py [--data adult nist acs compas adult-1000 adult-2000] [--splits 4] [--target 0.1]

Each split releases four fifths of the persons, or as many as the name says, as cells, and encodes the others. ``told``
is the share of the errors of a blind guess that the most frequent value of the cell avoids, over all columns (numbers
in quarters); ``label`` and ``AUC`` are those of the label's mean in the cell. Values and means are those of the table,
judged on the others; they are empty where a target allows no encoding of persons to come (``--target auto`` takes one
by the number of persons). ``Δ`` is the distance between the cells of the others' groups. Only names that are older than
trees with two cuts are used, so that the sources of an earlier commit can be measured by `PYTHONPATH`.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

import fairflows as ff

SOURCES = {
    "adult": lambda: ff.load_adult("all"),
    "nist": lambda: with_income(ff.paper.load_nist()),
    "acs": lambda: ff.paper.load_acs(),
    "compas": lambda: ff.paper.load_compas(),
}


def with_income(table: ff.Table) -> ff.Table:
    """Return NIST's rows without weights, with the decile of income as their label."""
    frame = table.X.drop(columns=["PWGTP", "WGTP", "PINCP", "POVPIP"])
    frame = frame.assign(SEX=table.a.to_numpy())
    return ff.Table(frame, sensitive="SEX", label="PINCP_DECILE", missing_label="keep")


def named(table: ff.Table) -> ff.Table:
    """Return the same rows with a name for each person."""
    frame = table.X.reset_index(drop=True)
    frame = frame.assign(group_=table.a.to_numpy(), label_=table.y.to_numpy(), person_=np.arange(len(frame)))
    return ff.Table(frame, sensitive="group_", label="label_", identifier="person_")


def quarters(column: pd.Series) -> np.ndarray:
    """Return codes of a column's values; numbers of more than 20 values in quarters."""
    if column.nunique() > 20 and pd.api.types.is_numeric_dtype(column):
        column = pd.qcut(column, 4, labels=False, duplicates="drop")
    return pd.factorize(column, use_na_sentinel=False)[0]


def told(table: ff.Table, codes: dict[str, np.ndarray], places: tuple[np.ndarray, np.ndarray], cells: tuple) -> float:
    """Return the share of a blind guess's errors that the most frequent value of the cell avoids."""
    learn, judge = places
    avoided = errors = 0
    for code in codes.values():
        counts = np.zeros((max(map(np.max, cells)) + 1, code.max() + 1))
        np.add.at(counts, (cells[0], code[learn]), 1)
        by_cell = np.where(counts.any(axis=1), counts.argmax(axis=1), counts.sum(axis=0).argmax())
        blind = code[judge] == counts.sum(axis=0).argmax()
        avoided += (by_cell[cells[1]] == code[judge]).sum() - blind.sum()
        errors += len(judge) - blind.sum()
    return avoided / errors


def measured(table: ff.Table, n_learn: int, target: float | None, seed: int) -> dict[str, float]:
    """Release a random part of the persons, and judge the cells on the others."""
    order = np.random.default_rng(seed).permutation(len(table))
    places = learn, judge = order[:n_learn], order[n_learn:]
    release = ff.Release(ff.FairTree(identifier="person_"), n_cells="auto", output="cell", target=target)
    start = time.perf_counter()
    cells = release.fit_transform(table.take(learn))["cell"].to_numpy()
    seconds = time.perf_counter() - start
    found = {"persons": n_learn, "cells": release.n_cells_, "fit s": seconds}
    try:
        others = release.transform(table.take(judge))["cell"].to_numpy()
    except ff.DataError:  # too few persons for a cut at persons to come
        return found
    codes = {name: quarters(table.X[name]) for name in table.X}
    y = pd.factorize(table.y, sort=True)[0]
    score = np.bincount(cells, y[learn] == 1, release.n_cells_) / np.maximum(
        np.bincount(cells, None, release.n_cells_), 1
    )
    most = np.zeros((release.n_cells_, y.max() + 1))
    np.add.at(most, (cells, y[learn]), 1)
    group = pd.factorize(table.a, sort=True)[0][judge]
    rates = np.stack(
        [np.bincount(others[group == a], minlength=release.n_cells_) / (group == a).sum() for a in range(2)]
    )
    return found | {
        "told": told(table, codes, places, (cells, others)),
        "label": float((most.argmax(axis=1)[others] == y[judge]).mean()),
        "AUC": roc_auc_score(y[judge], score[others]) if y.max() == 1 else float("nan"),
        "Δ": 0.5 * float(np.abs(rates[0] - rates[1]).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["adult", "nist", "acs", "compas", "adult-1000", "adult-2000"])
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--target", type=lambda text: None if text == "auto" else float(text), default=0.1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    for data in arguments.data:
        name, _, size = data.partition("-")
        table = named(SOURCES[name]())
        n_learn = int(size or 0.8 * len(table))
        splits = [measured(table, n_learn, arguments.target, seed) for seed in range(arguments.splits)]
        found.append({"data": data, **pd.DataFrame(splits).mean()})
        print(pd.DataFrame(found[-1:]).to_string(index=False, float_format="{:.3f}".format), flush=True)


if __name__ == "__main__":
    main()

"""What the cells of a release tell of persons who are not in the table.

    python benchmarks/other_persons.py adult-six adult nist compas acs --seeds 4
    python benchmarks/other_persons.py adult-six --rows 1000 2000 --target auto

A release of cells is fitted to four fifths of the rows; the other fifth is encoded later and judged. Columns of the
result, means over the divisions: ``cells``, their number, and ``each`` that of one tree, by which a person who comes
later is encoded; ``to come``, the bound on persons to come; ``told``, the share of blind-guess errors that the most
frequent value of the cell removes, mean over the columns (numbers in quarters); ``label``, the share of persons whose
label is the most frequent one of their cell, and ``auc``, the area under the curve of the mean label of the cell.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from two_statements import SOURCES

import fairflows as ff


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", choices=list(SOURCES))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rows", type=int, nargs="+", default=[0], help="rows to fit to; the others are judged")
    parser.add_argument("--target", default="0.1", help="a distance, or auto")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.tables:
        table = SOURCES[name]()
        for rows in arguments.rows:
            found = [judged(table, rows, arguments.target, seed) for seed in range(arguments.seeds)]
            means = pd.DataFrame(found).mean().round(4)
            print(name, rows or "all", ", ".join(f"{key} {value:g}" for key, value in means.items()), flush=True)


def judged(table: ff.Table, rows: int, target: str, seed: int) -> dict[str, float]:
    """One division of the table."""
    order = np.random.default_rng(seed).permutation(len(table))
    n = rows or int(0.8 * len(table))
    learn, judge = table.take(order[:n]), table.take(order[n:][:60_000])
    start = time.perf_counter()
    asked = None if target == "auto" else float(target)
    release = ff.Release(output="cell", n_cells="auto", target=asked, random_state=seed)
    here = release.fit_transform(learn)["cell"].to_numpy()
    seconds = time.perf_counter() - start
    there = release.transform(judge)["cell"].to_numpy()
    to_come = ff.certify(release, learn).find("population")
    found = {
        "cells": release.n_cells_,
        "each": release.n_cells_ / (len(release.models_) if hasattr(release, "models_") else 1),
        "to come": np.nan if to_come is None else to_come.distance,
        "told": float(np.mean([told(learn.X[c], here, judge.X[c], there) for c in learn.X])),
        "seconds": seconds,
    }
    if table.y is None:
        return found
    classes, y = np.unique(learn.y, return_inverse=True)
    truth = pd.Index(classes).get_indexer(judge.y)
    right, _ = guessed(y, here, truth, there)
    counts = np.zeros((release.n_cells_, len(classes)))
    np.add.at(counts, (here, y), 1)
    score = (counts[:, 1:] @ np.arange(1, len(classes)))[there] / np.maximum(counts.sum(axis=1), 1)[there]
    return found | {"label": right, "auc": float(roc_auc_score(truth > np.median(truth[truth > 0]) - 1, score))}


def guessed(learnt: np.ndarray, cells: np.ndarray, truth: np.ndarray, their_cells: np.ndarray) -> tuple[float, float]:
    """How often the most frequent value of a cell is that of another person in it, and of a blind guess."""
    counts = np.zeros((max(cells.max(), their_cells.max()) + 1, learnt.max() + 1), dtype=np.int64)
    np.add.at(counts, (cells, learnt), 1)
    blind = int(counts.sum(axis=0).argmax())
    return float((counts.argmax(axis=1)[their_cells] == truth).mean()), float((truth == blind).mean())


def told(learnt: pd.Series, cells: np.ndarray, other: pd.Series, their_cells: np.ndarray) -> float:
    """Share of the errors of a blind guess that the cell removes."""
    if learnt.dtype.kind in "if" and learnt.nunique() > 20:
        edges = np.unique(np.nanquantile(learnt, [0.25, 0.5, 0.75]))
        codes = [np.where(c.isna(), -1, np.searchsorted(edges, c, side="right")) + 1 for c in (learnt, other)]
    else:
        levels = pd.factorize(learnt.dropna(), sort=True)[1]
        codes = [pd.Index(levels).get_indexer(c) + 1 for c in (learnt, other)]
    right, blind = guessed(codes[0], cells, codes[1], their_cells)
    return max(0.0, (right - blind) / (1 - blind)) if blind < 1 else 0.0


if __name__ == "__main__":
    main()

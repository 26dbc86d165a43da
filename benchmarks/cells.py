"""What coarse cells after transport are certified at, on the five datasets, beside FARE's bound for the same cells.

    python benchmarks/cells.py [--data adult compas crime health law] [--json FILE]

Split by person into training, validation and certification persons; all columns for Health, the paper's for the others.
One row a person is counted. ``ours`` is `cell_upper_bound` at δ = 0.05 on the certification persons; FARE's certificate
takes its sets from training, validation and certification persons. ``balanced`` is the mean accuracy of the groups.
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

import numpy as np
import pandas as pd

from fairflows.bounds import cell_upper_bound, fare_upper_bound
from fairflows.encoder.fair_transport import FairTransport
from fairflows.exceptions import DataWarning
from fairflows.metrics import count_predictions, group_metrics
from fairflows.paper.datasets import load_compas, load_crime, load_health, load_law_school
from fairflows.release.cell_release import CellRelease
from fairflows.table.adult import load_adult
from fairflows.table.table import Table

DELTA = 0.05
N_CELLS = (2, 8, 16, 64)
DATA = {
    "adult": load_adult,
    "compas": load_compas,
    "crime": load_crime,
    "health": lambda: load_health(features="all"),
    "law": load_law_school,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--json", help="write the numbers to this file")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)
    rows = [row for name in arguments.data for row in on_dataset(name)]
    print(pd.DataFrame(rows).to_string(index=False, float_format="{:.3f}".format))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=2)


def on_dataset(name: str) -> list[dict[str, Any]]:
    train, validation, test = DATA[name]().split(random_state=0)
    encoder = FairTransport(key=bytes(32)).fit(train.X, train.y, sensitive_features=train.a)
    parts = {"train": train, "validation": one_a_person(validation), "test": one_a_person(test)}
    encoded = {part: encoder.transform(t.X, sensitive_features=t.a) for part, t in parts.items()}
    found = []
    for k in N_CELLS:
        release = CellRelease(k, random_state=0).fit(encoded["train"], train.y)
        counts = {part: counted(release, encoded[part], parts[part]) for part in ("validation", "test")}
        predicted = release.predict(encoded["test"])
        held_out = parts["test"]
        tally = count_predictions(held_out.y.to_numpy(), predicted, held_out.a.to_numpy(), 2, 2)
        metrics = group_metrics(tally)
        base = np.bincount(train.a.to_numpy(), minlength=2)
        found.append(
            {
                "data": name,
                "persons": len(held_out),
                "cells": release.n_cells_,
                "accuracy": float(metrics["accuracy"]),
                "balanced": float(metrics["balanced_accuracy"]),
                "parity": float(metrics["parity"]),
                "ours": float(cell_upper_bound(counts["test"], DELTA)),
                "FARE": float(fare_upper_bound(base, counts["validation"], counts["test"].sum(axis=0), DELTA)),
            }
        )
    return found


def one_a_person(table: Table) -> Table:
    """One random row of each person."""
    order = np.random.default_rng(0).permutation(len(table))
    first = np.unique(table.persons[order], return_index=True)[1]
    return table.take(np.sort(order[first]))


def counted(release: CellRelease, Z: pd.DataFrame, table: Table) -> Any:
    cells = release.cells(Z)
    return np.stack([np.bincount(cells[(table.a == g).to_numpy()], minlength=release.n_cells_) for g in (0, 1)])


if __name__ == "__main__":
    main()

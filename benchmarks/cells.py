"""What coarse cells after matching are certified at, on the five datasets, beside FARE's bound for the same cells.

    python benchmarks/cells.py [--data adult compas crime health law] [--json FILE]

Split by person into training, validation and certification persons; all columns for Health, the paper's for the others.
``by row`` is `cell_upper_bound` at δ = 0.05 for a random row of the table, from certification persons who are taken
with a probability proportional to their rows; ``by person`` is that for a random row of a random person. FARE's
certificate takes its sets, one row per person, from training, validation and certification persons. ``balanced`` is the
mean accuracy of the groups.
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

import numpy as np
import pandas as pd

from fairflows.bounds import cell_upper_bound, fare_upper_bound
from fairflows.encoder.base import cells_of, read_repeatable
from fairflows.encoder.fair_matching import FairMatching
from fairflows.exceptions import DataWarning
from fairflows.paper.datasets import load_compas, load_crime, load_health, load_law_school
from fairflows.release.release import Release
from fairflows.table.examples import load_adult
from fairflows.table.table import Table
from fairflows.tradeoff import count_labels, group_metrics

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
    most = int(train.persons.rows_each().max())
    encoder = FairMatching(key=bytes(32), density="counts").fit(train)
    parts = {
        "validation": validation.one_row_per_person(0),
        "persons": test.one_row_per_person(0),
        "rows": test.random_rows(0, most),
    }
    found = []
    for k in N_CELLS:
        release = Release.around(encoder, train, n_cells=k, random_state=0, output="cell")
        counts = {part: counted(release, table) for part, table in parts.items()}
        persons = parts["persons"]
        predicted = release.predict_rows(read_repeatable(release, persons))
        metrics = group_metrics(count_labels([0, 1], persons.y, predicted, persons.a.to_numpy(), 2))
        base = np.bincount(train.a.to_numpy(), minlength=2)
        found.append(
            {
                "data": name,
                "persons": len(persons),
                "cells": release.n_cells_,
                "accuracy": float(metrics["accuracy"]),
                "balanced": float(metrics["balanced_accuracy"]),
                "parity": float(metrics["parity"]),
                "by person": float(cell_upper_bound(counts["persons"], DELTA)),
                "by row": float(cell_upper_bound(counts["rows"], DELTA)),
                "FARE": float(fare_upper_bound(base, counts["validation"], counts["persons"].sum(axis=0), DELTA)),
            }
        )
    return found


def counted(release: Release, table: Table) -> Any:
    cells = cells_of(release, table)
    return np.stack([np.bincount(cells[(table.a == g).to_numpy()], minlength=release.n_cells_) for g in (0, 1)])


if __name__ == "__main__":
    main()

"""What cross-fitting costs and brings: two models and all persons certifying, against one model and 70/30.

    python benchmarks/crossfit.py [--data adult compas crime health law] [--cells 8 16 64] [--seeds N] [--json FILE]

Cells of `FairTree`, at δ = 0.05 on a first look, split by person; all columns for Health, the paper's for the others.
``one model`` is fitted to 70 % of the persons, certified and scored on the others. ``Release`` is fitted to all
persons, certified on all of them, and each is scored by the model that has not seen her. ``Δ ≤`` is the certified
distance for a random row of what is released, ``person`` that for a random person; ``label`` is the accuracy of the
label that a cell suggests, over rows. ``covered`` is the share of the persons that the certificate covers. All numbers
are means over seeds, each with a split, a key and so folds of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd

from fairflows.certificate.certify import certify
from fairflows.encoder.base import Encoder
from fairflows.encoder.fair_tree import FairTree
from fairflows.exceptions import DataWarning
from fairflows.paper.datasets import load_compas, load_crime, load_health, load_law_school
from fairflows.release.release import Release
from fairflows.table.examples import load_adult
from fairflows.table.table import Table

HELD_OUT = 0.3
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
    parser.add_argument("--cells", nargs="+", type=int, default=[8, 16, 64])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", help="write the numbers to this file")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)
    rows = [
        row
        for name in arguments.data
        for row in on_dataset(name, named(DATA[name]()), arguments.cells, range(arguments.seeds))
    ]
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=2)


def named(table: Table) -> Table:
    """The table with a name for every person, where it has none: its rows are then other persons' each."""
    if table.identifier is not None:
        return table
    columns = table.X.assign(**{"the group": table.a, "the label": table.y, "person": np.arange(len(table))})
    return Table(columns, sensitive="the group", label="the label", identifier="person")


def on_dataset(name: str, table: Table, cells: Sequence[int], seeds: Sequence[int]) -> list[dict[str, object]]:
    found = pd.DataFrame([row for k in cells for seed in seeds for row in compare(table, k, seed)])
    means = found.groupby(["cells", "who"], sort=False).mean().drop(columns="seed").reset_index()
    means.insert(0, "data", name)
    print(means.to_string(index=False, float_format="{:.3f}".format), flush=True)
    return means.to_dict("records")


def compare(table: Table, n_cells: int, seed: int) -> list[dict[str, object]]:
    train, held_out = table.split(test=HELD_OUT, validation=0, random_state=seed)
    tree = FairTree(n_cells, unseen="other", key=bytes([seed]) * 32, random_state=seed)
    about = {"cells": n_cells, "seed": seed}
    return [
        about | {"who": "one model"} | measured(tree, train, held_out),
        about | {"who": "Release"} | measured(Release(tree, output="cell"), table, table),
    ]


def measured(model: Encoder, fitted_to: Table, released: Table) -> dict[str, object]:
    start = time.perf_counter()
    model.fit(fitted_to)
    seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:  # a book of looks of its own: a first look
        os.environ["FAIRFLOWS_LEDGER"] = f"{folder}/looks"
        certificate = certify(model, released)
    assert released.y is not None
    return {
        "persons": sum(certificate.n.values()),
        "Δ ≤": certificate.cell_upper,
        "person": certificate.person_upper if certificate.person_upper is not None else certificate.cell_upper,
        "label": float((model.predict(released) == released.y.to_numpy()).mean()),
        "seconds": seconds,
        "covered": 1.0 if len(model.traits.cells) > 1 else HELD_OUT,
    }


if __name__ == "__main__":
    main()

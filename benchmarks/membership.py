"""How well persons of a small table are told from others by the rows that were drawn for the table.

    python benchmarks/membership.py german k401 nist@1000 adult@1000 --seeds 6

Tables are those of `rows.py`; ``nist@1000`` is a sample of 2,000 rows. Half of the rows, 3,000 at most, are fitted and
get a drawn row each. ``told`` is the AUC with which the distance to the nearest drawn row tells fitted persons from the
others (.5: not at all); numbers count by their ranks. Detection and label are those of `rows.py`. All are means over
random halves.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from rows import TABLES, Source, detection, learnt, matrix
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

import fairflows as ff
from fairflows.release.row_law import RowLaw

MOST_FITTED, ROWS_PER_CELL = 3_000, 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--wheels", type=Path, default=Path("wheels"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for text in arguments.tables:
        name, _, size = text.partition("@")
        source = TABLES[name](arguments.wheels)
        frame = source.frame.sample(2 * int(size), random_state=0) if size else source.frame
        found = pd.DataFrame([measured(replace(source, frame=frame), seed) for seed in range(arguments.seeds)])
        error = found["told"].std() / np.sqrt(len(found))
        print(text, *(f"{key} {mean:.3f}" for key, mean in found.mean().items()), f"± {error:.3f}", flush=True)


def measured(source: Source, seed: int) -> dict[str, float]:
    """Fit a random half of the rows, and attack it."""
    frame = source.frame.sample(frac=1, random_state=seed).reset_index(drop=True)
    n = min(len(frame) // 2, MOST_FITTED)
    fitted = ff.Table(frame[:n], sensitive=source.sensitive, label=source.label)
    tree = ff.FairTree(max(4, min(64, n // ROWS_PER_CELL))).fit(fitted)
    cells, n_cells = np.asarray(tree.cells(tree.read(fitted))), tree.n_cells_
    real = frame.drop(columns=source.sensitive)
    members, others = real[:n], real[n : 2 * n].reset_index(drop=True)
    y = None if source.label is None else members[[source.label]]
    law = RowLaw.fit(members.drop(columns=[] if y is None else list(y)), cells, n_cells, y, rules=source.stated)
    drawn = law.sample(cells)[list(real)]
    known = [name for name in real if name not in source.follows and drawn[name].nunique() > 1]
    told = nearness(members, others, drawn)
    return {
        "told": told,
        "detection": detection(others, drawn),
        "label": np.nan if source.label is None else learnt(drawn[known], others[known], source.label),
    }


def nearness(members: pd.DataFrame, others: pd.DataFrame, drawn: pd.DataFrame) -> float:
    """Return the AUC with which the distance to the nearest drawn row tells members from others."""
    x = pd.DataFrame(np.concatenate(matrix(members, others, drawn))).rank(pct=True).fillna(-1).to_numpy()
    targets = len(members) + len(others)
    distance = NearestNeighbors(n_neighbors=1).fit(x[targets:]).kneighbors(x[:targets])[0][:, 0]
    return roc_auc_score(np.arange(targets) < len(members), -distance)


if __name__ == "__main__":
    main()

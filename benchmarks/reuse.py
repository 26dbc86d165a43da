"""Health's cells for other purposes: accuracy on nine columns that nothing was trained for, by the cell's majority.

    python benchmarks/reuse.py [--seeds 5] [--first-seed 200] [--device cpu]

Persons are parted as in `fronts.py`. Printed are means over the seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import pandas as pd
from fronts import Parts, all_strengths, measured, methods

from fairflows.encoder.base import Encoder, cells_of
from fairflows.paper.experiments.outcome import FIRST_SEED

REUSED: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    "METAB3": lambda X: X["PrimaryConditionGroup=METAB3"] > 0,
    "MSC2a3": lambda X: X["PrimaryConditionGroup=MSC2a3"] > 0,
    "LOS_max > 0": lambda X: X["LOS_max"] > 0,
    "drugCount_max > 3": lambda X: X["drugCount_max"] > 3,
    "no_Claims > 10": lambda X: X["no_Claims"] > 10,
    "female": lambda X: X["sexFEMALE"] > 0,
    "SCS": lambda X: X["ProcedureGroup=SCS"] > 0,
    "Urgent Care": lambda X: X["PlaceSvc=Urgent Care"] > 0,
    "Surgery": lambda X: X["Specialty=Surgery"] > 0,
}
"""Health's columns that nothing is trained for, by which the cells' use for other purposes is measured."""
SETTINGS = {
    "FairTree": (8, 16, 64, 256),
    "FairCells": (0.05,),
    "FARE": (0.8, 0.95),
    "FairFlow": (0.9,),
    "raw features": (1.0,),
}


def reuse(encoder: Encoder, parts: Parts) -> dict[str, object]:
    """How well each of other columns is predicted by the cell's most frequent value among the rows it was fitted to."""
    rows = parts.counted("person")
    k = int(encoder.n_cells_ or 0)
    known, asked = cells_of(encoder, parts.fit), cells_of(encoder, rows)
    accuracies, majorities = {}, []
    for name, column in REUSED.items():
        value, truth = column(parts.fit.X).to_numpy(), column(rows.X).to_numpy()
        share = np.bincount(known, value, k) / np.maximum(np.bincount(known, minlength=k), 1)
        accuracies[name] = float(((share > 0.5)[asked] == truth).mean())
        majorities.append(max(truth.mean(), 1 - truth.mean()))
    means = {"mean of nine": float(np.mean(list(accuracies.values()))), "majority": float(np.mean(majorities))}
    return {**means, **accuracies}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    rows = []
    for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
        parts = Parts.of("Health", seed, quick=False)
        estimators = methods(parts.test.persons.n, "person", False, asked.device)
        for method, settings in SETTINGS.items():
            fitted = all_strengths(estimators[method][0], parts.fit, settings, seed)
            for setting, encoder in zip(settings, fitted, strict=True):
                about = {"method": method, "setting": setting}
                rows.append(about | measured(encoder, parts, "person") | reuse(encoder, parts))
    means = pd.DataFrame(rows).groupby(["method", "setting"], sort=False).mean()
    print(means.reset_index().to_string(index=False, float_format="{:.3f}".format))


if __name__ == "__main__":
    main()

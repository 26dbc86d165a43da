"""One front for all methods on the five datasets: accuracy, measured parity and certified Δ, by person and by row.

    python benchmarks/fronts.py [--data Health Adult …] [--methods FairCells …] [--seeds 5] [--first-seed 100]
                                [--settings 0.08 64 …] [--workers 1] [--reuse] [--attack] [--json FILE]

Persons are parted 80/20 into those that are fitted to and those that certify; every (dataset, seed) is a job of its
own, spread over worker processes. ``--reuse`` (Health) adds the accuracy on nine columns that nothing was trained for,
predicted by the cell's most frequent value; ``--attack`` audits every release of the first seed, white-box.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from concurrent.futures import ProcessPoolExecutor

import pandas as pd

from fairflows.exceptions import DataWarning
from fairflows.paper.experiments.fronts import (
    DATA,
    LIMITS,
    METHODS,
    Parts,
    attacked,
    best_within,
    measured,
    points,
    reuse,
    summary,
)
from fairflows.paper.experiments.result import FIRST_SEED

Job = tuple[str, int, list[str], bool, bool, str, list[float] | None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--settings", nargs="+", type=float, help="only these targets, strengths or numbers of cells")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--reuse", action="store_true")
    parser.add_argument("--attack", action="store_true")
    parser.add_argument("--json", help="write every number to this file")
    arguments = parser.parse_args()
    jobs: list[Job] = [
        (name, arguments.first_seed + i, [method], arguments.reuse and name == "Health", arguments.attack and i == 0,
         arguments.device, arguments.settings)
        for name in arguments.data for i in range(arguments.seeds) for method in arguments.methods
    ]  # fmt: skip
    rows: list[dict[str, object]] = []
    with ProcessPoolExecutor(arguments.workers) as pool:
        for found in pool.map(on_job, jobs):
            rows += found
            if arguments.json:
                with open(arguments.json, "w") as file:
                    json.dump(rows, file, indent=1)
    table = pd.DataFrame(rows)
    pd.set_option("display.width", 200)
    summarised = summary(table)
    print(summarised.to_string(index=False, float_format="{:.3f}".format))
    print(best_within(summarised, LIMITS).to_string(index=False, float_format="{:.3f}".format, na_rep="–"))
    if "attack ≥" in table:
        columns = ["data", "method", "setting", "certified", "attack ≥", "by"]
        print(table.dropna(subset="attack ≥")[columns].to_string(index=False, float_format="{:.3f}".format))


def on_job(job: Job) -> list[dict[str, object]]:
    name, seed, methods, with_reuse, with_attack, device, settings = job
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.simplefilter("ignore", DataWarning)
    parts, rows = Parts.of(name, seed), []
    for unit in ("person", "row"):
        for point in points(parts, unit, methods, quick=False, device=device):
            if settings is not None and point.setting not in settings:
                continue
            if with_attack and unit == "row":
                rows.append(attacked(point, parts, quick=False))
            else:
                rows.append((reuse if with_reuse else measured)(point, parts, unit))
    return rows


if __name__ == "__main__":
    main()

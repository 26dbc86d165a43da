"""One front for all methods on the five datasets: accuracy, measured parity and certified Δ, by person and by row.

    python benchmarks/fronts.py [--data Health Adult …] [--methods FairCells …] [--seeds 5] [--first-seed 200]
                                [--settings 0.08 64 …] [--workers 1] [--reuse] [--attack] [--json FILE]

What `fairflows reproduce fronts` does, for a choice of datasets, methods, seeds and settings. Persons are parted 80/20
into those that are fitted to and those that certify. ``--reuse`` (Health) adds the accuracy on nine columns that
nothing was trained for, predicted by the cell's most frequent value; ``--attack`` audits releases of the first seed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from fairflows.paper.experiments.fronts import DATA, LIMITS, METHODS, Task, best_within, measure_all, summary
from fairflows.paper.experiments.result import FIRST_SEED


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
    tasks = [
        Task(name, method, arguments.first_seed + i, device=arguments.device,
             settings=tuple(arguments.settings) if arguments.settings else None,
             reused=arguments.reuse and name == "Health", attacked=arguments.attack and i == 0)
        for name in arguments.data for i in range(arguments.seeds) for method in arguments.methods
    ]  # fmt: skip
    table = measure_all(tasks, arguments.workers)
    if arguments.json:
        Path(arguments.json).write_text(table.to_json(orient="records", indent=1))
    pd.set_option("display.width", 200)
    summarised = summary(table)
    print(summarised.to_string(index=False, float_format="{:.3f}".format))
    print(best_within(summarised, LIMITS).to_string(index=False, float_format="{:.3f}".format, na_rep="–"))
    if "attack ≥" in table:
        columns = ["data", "method", "setting", "certified", "attack ≥", "by"]
        print(table.dropna(subset="attack ≥")[columns].to_string(index=False, float_format="{:.3f}".format))


if __name__ == "__main__":
    main()

"""`fairflows reproduce honest-front` in parts, for machines that are lent by the minute.

    python benchmarks/honest_front.py [--data crime law] [--seeds 5] [--jobs 16] [--quick] [--out reproduction]

The models of one dataset, way and seed are saved as soon as they are judged. A later call judges those that are still
missing, and writes what the experiment writes from all that are there.
"""

from __future__ import annotations

import argparse
import os
import warnings
from concurrent.futures import as_completed
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are loaded

import pandas as pd

from fairflows.exceptions import DataWarning
from fairflows.paper.experiments import honest_front
from fairflows.paper.experiments.honest_front import DEFAULTS, MIXTURE, PAPER, Task, measured
from fairflows.paper.experiments.outcome import Setting, new_pool
from fairflows.paper.experiments.problems import PROBLEMS


def main() -> None:
    """Judge models that are missing, and print what all of them show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--seeds", type=int, help="as many as the experiment takes, where not given")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("reproduction"))
    args = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)
    setting = Setting(args.quick, args.seeds, args.device)
    seeds = setting.seed_list(full=5, quick=2)
    tasks = [Task(*one) for one in product(args.data, (DEFAULTS, MIXTURE), seeds)]
    tasks += [Task(name, PAPER, seeds[0]) for name in args.data]
    args.out.mkdir(parents=True, exist_ok=True)
    with new_pool(args.jobs) as pool:
        missing = {pool.submit(measured, task, setting): task for task in tasks if not _file(args.out, task).exists()}
        for done in as_completed(missing):
            task = missing[done]
            if error := done.exception():
                print(task.data, task.way, task.seed, f"failed: {error}", flush=True)
                continue
            found = done.result()
            found.to_csv(_file(args.out, task), index=False)
            print(task.data, task.way, task.seed, f"{found['refuted'].sum()} of {len(found)} refuted", flush=True)
    models = pd.concat([pd.read_csv(file) for file in sorted(args.out.glob("part-*.csv"))], ignore_index=True)
    outcome = honest_front.outcome(models, ", ".join(models["data"].unique()), [])
    outcome.id = "honest-front"
    outcome.save(args.out)
    print(outcome)


def _file(folder: Path, task: Task) -> Path:
    return folder / f"part-{task.data}-{task.way.replace(' ', '-').replace(chr(39), '')}-{task.seed}.csv"


if __name__ == "__main__":
    main()

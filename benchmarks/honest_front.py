"""`fairflows reproduce honest-front` in parts, for machines that are lent by the minute.

    python benchmarks/honest_front.py [--data crime law] [--ways defaults] [--gammas 0.1] [--seeds 5] [--jobs 16]

Every model is saved as soon as it is judged. A later call judges those that are still missing, and writes what the
experiment writes from all that are there.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import as_completed
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are loaded

import pandas as pd

from fairflows.exceptions import DataWarning
from fairflows.paper.experiments import honest_front
from fairflows.paper.experiments.honest_front import DEFAULTS, MIXTURE, PAPER, Task, gammas_of, judged_models
from fairflows.paper.experiments.outcome import Setting, new_pool
from fairflows.paper.experiments.problems import PROBLEMS


def main() -> None:
    """Judge models that are missing, and print what all of them show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--ways", nargs="+", choices=[DEFAULTS, MIXTURE, PAPER], default=[DEFAULTS, MIXTURE, PAPER])
    parser.add_argument("--gammas", nargs="+", type=float, help="those of the experiment, where not given")
    parser.add_argument("--seeds", type=int, help="as many as the experiment takes, where not given")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("reproduction"))
    args = parser.parse_args()
    setting = Setting(args.quick, args.seeds, args.device)
    seeds = setting.seed_list(full=5, quick=2)
    tasks = [Task(*one) for one in product(args.data, args.ways, seeds) if one[1] != PAPER or one[2] == seeds[0]]
    args.out.mkdir(parents=True, exist_ok=True)
    with new_pool(args.jobs) as pool:
        judged = {
            pool.submit(judge, task, setting, args.gammas or gammas_of(task.data, setting), args.out): task
            for task in tasks
        }
        for done in as_completed(judged):
            print(judged[done], f"failed: {done.exception()}" if done.exception() else done.result(), flush=True)
    models = pd.concat([pd.read_csv(file) for file in sorted(args.out.glob("model-*.csv"))], ignore_index=True)
    outcome = honest_front.outcome(models, ", ".join(models["data"].unique()), [])
    outcome.id = "honest-front"
    outcome.save(args.out)
    print(outcome)


def judge(task: Task, setting: Setting, gammas: Sequence[float], folder: Path) -> str:
    """Judge and save the models of a task that are still missing."""
    warnings.simplefilter("ignore", DataWarning)
    way = {DEFAULTS: "defaults", MIXTURE: "mixture", PAPER: "paper"}[task.way]
    files = {gamma: folder / f"model-{task.data}-{way}-{task.seed}-{gamma}.csv" for gamma in gammas}
    missing = [gamma for gamma, file in files.items() if not file.exists()]
    refuted = 0
    for model in judged_models(task, setting, missing) if missing else ():
        pd.DataFrame([model]).to_csv(files[float(str(model["gamma"]))], index=False)
        refuted += bool(model["refuted"])
    return f"{refuted} of {len(missing)} refuted"


if __name__ == "__main__":
    main()

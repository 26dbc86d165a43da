"""Time a whole accuracy/fairness frontier: 5 gammas × 5 seeds with all metrics, in the paper's settings.

    python benchmarks/sweep.py crime [--device cpu|cuda] [--bijection realnvp|spline] [--json FILE]
    python benchmarks/sweep.py health --device cuda

The settings are those of `fairflows.paper.experiments.problems`, the datasets come from FAIRFLOWS_DATA. Seconds are
wall-clock, of one run, once the libraries are imported; those of the densities and of the training are stated apart.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import torch

from fairflows.encoder import flow_fitting
from fairflows.exceptions import DataWarning
from fairflows.paper.experiments.problems import PROBLEMS, changed
from fairflows.tradeoff import frontier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=["crime", "law", "health"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--bijection", default="realnvp", choices=["realnvp", "spline"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2, help="the first one also loads kernels and modules")
    parser.add_argument("--epochs", type=int, help="fewer than the paper's, for a quick look")
    parser.add_argument("--json", help="write the numbers to this file")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)

    problem = PROBLEMS[arguments.data]()
    train, test = problem.tables()
    settings = {"n_epochs": arguments.epochs} if arguments.epochs else {}
    estimator = changed(
        problem.encoder, bijection=arguments.bijection, device=arguments.device, key=bytes(32), **settings
    )
    torch.zeros(1, device=arguments.device)  # the device is up before the clock starts
    timed = _time_parts()
    runs = []
    for _ in range(arguments.repeats):
        timed.update(densities=0.0, training=0.0)
        start = time.perf_counter()
        front = frontier(estimator, train, strengths=problem.gammas, seeds=arguments.seeds, validation=test)
        total = time.perf_counter() - start
        runs.append({"total": total, **timed, "rest": total - sum(timed.values())})
    n_models = len(front.encoders)
    print(f"{arguments.data}, {n_models} models, {arguments.bijection}, {_name(arguments.device)}")
    for number, seconds in enumerate(runs, start=1):
        print(f"run {number}, seconds: " + ", ".join(f"{name} {value:.2f}" for name, value in seconds.items()))
    print(front.summary().round(3).to_string())
    if arguments.json:
        with open(arguments.json, "w") as file:
            record = {"data": arguments.data, "models": n_models, "device": _name(arguments.device)}
            json.dump({**record, "runs": runs, "frontier": front.to_frame().to_dict("list")}, file, indent=2)


def _time_parts() -> dict[str, float]:
    """Wrap the fitting of densities and the training, so that each adds its seconds to what is returned."""
    seconds = {"densities": 0.0, "training": 0.0}

    def wrapped(name: str, function: Any) -> Any:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = function(*args, **kwargs)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds[name] += time.perf_counter() - start
            return result

        return timed

    flow_fitting.fit_densities = wrapped("densities", flow_fitting.fit_densities)
    flow_fitting.train = wrapped("training", flow_fitting.train)
    return seconds


def _name(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else f"CPU, {torch.get_num_threads()} threads"


if __name__ == "__main__":
    main()

"""Do results move when a GPU trains on its tensor cores? A frontier with equal densities, trained three times.

    python benchmarks/tf32.py [crime|law|health] [--seeds N] [--device cuda]

Once in float32, once in float32 from first weights that differ in their last bit (times 1 + 1e-7 · noise), and once as
`fairflows.training` does it, with factors of products in TF32. Printed are the seconds of each training and, for each
measure and γ, the mean over the seeds and the mean and standard deviation of the differences from float32. What last
bits move is what no result can be held to.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from contextlib import nullcontext
from typing import Any

import pandas as pd
import torch

from fairflows.encoder import flow_fitting
from fairflows.exceptions import DataWarning
from fairflows.frontiers.sweep import frontier
from fairflows.paper.experiments.problems import PROBLEMS, changed
from fairflows.training import loop

MEASURES = ["delta", "balanced_accuracy", "parity"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=["crime", "law", "health"], nargs="?", default="health")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cuda", help="on a CPU the first and the last training are the same")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)
    problem = PROBLEMS[asked.data]()
    train, test = problem.tables()
    estimator = changed(problem.encoder, device=asked.device, key=bytes(32))
    with_equal_densities()
    tensor_cores, trained = loop.tensor_cores, flow_fitting.train
    found: dict[str, pd.DataFrame] = {}
    for name in ("float32", "last bits", "TF32"):
        loop.tensor_cores = tensor_cores if name == "TF32" else lambda device: nullcontext()
        seconds: list[float] = []
        flow_fitting.train = timed(trained, seconds, moved=name == "last bits")
        front = frontier(estimator, train, gammas=problem.gammas, seeds=asked.seeds, validation=test)
        found[name] = front.to_frame().set_index(["gamma", "seed"])[MEASURES]
        print(f"{name}: trained in {sum(seconds):.1f} s", flush=True)
    lines = {}
    for name, frame in found.items():
        differences = (frame - found["float32"]).groupby("gamma")
        lines[name, "mean"] = frame.groupby("gamma").mean()
        if name != "float32":
            lines[name, "moved by"] = differences.mean()
            lines[name, "± sd"] = differences.std()
    for measure in MEASURES:
        print(f"\n{measure}")
        print(pd.DataFrame({key: frame[measure] for key, frame in lines.items()}).round(4).to_string())


def with_equal_densities() -> None:
    """Fit densities once, and give every later run copies of them."""
    fitted: list[Any] = []
    fit = flow_fitting._densities

    def densities(*args: Any, **kwargs: Any) -> Any:
        if not fitted:
            fitted.append(fit(*args, **kwargs))
        return copy.deepcopy(fitted[0])

    flow_fitting._densities = densities


def timed(train: Any, seconds: list[float], *, moved: bool) -> Any:
    """Training that adds its seconds to a list, from first weights that were moved or not."""

    def run(bijection: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        noise = torch.Generator().manual_seed(1)
        for parameter in bijection.parameters() if moved else ():
            parameter.data *= 1 + 1e-7 * torch.randn(parameter.shape, generator=noise).to(parameter.device)
        start = time.perf_counter()
        result = train(bijection, *args, **kwargs)  # the losses that it returns have waited for the device
        seconds.append(time.perf_counter() - start)
        return result

    return run


if __name__ == "__main__":
    main()

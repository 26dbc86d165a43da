"""Whether results move when products round their factors to 10 bits (TF32), as a GPU's tensor cores do.

    python benchmarks/tf32.py [crime|law|health] [--density autoregressive] [--gammas 0.2 0.9] [--device cpu] [--bits 7]

A frontier is trained on equal densities: in float32, in float32 from first weights that differ in their last bit
(times 1 + 1e-7 · noise), with the gradients by weights in TF32, as training does on a GPU, and with all products in
TF32. A GPU's tensor cores round, or a CPU that rounds the factors as they would. Only training is rounded; Δ, accuracy
and parity are computed as always. ``--bits 7`` rounds to bfloat16 instead, which some processors have products for; a
CPU alone does. Printed are the seconds of each training, all models, and the means over the seeds.
What last bits move is what no result can be held to; TF32 must not move more.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from fairflows.bijection import networks
from fairflows.density import AutoregressiveDensity
from fairflows.encoder import flow_fitting
from fairflows.exceptions import DataWarning
from fairflows.frontiers.frontier import frontier
from fairflows.paper.experiments.problems import PROBLEMS, changed

LAST_BITS, WEIGHTS, ALL = "last bits", "gradients by weights", "all products"
MEASURES = ["delta", "balanced_accuracy", "parity"]
AUTOREGRESSIVE = AutoregressiveDensity(n_steps=300, weight_decay=0.01)  # as in figure 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=["crime", "law", "health"], nargs="?", default="crime")
    parser.add_argument("--density", choices=["the paper's", "autoregressive"], default="the paper's")
    parser.add_argument("--gammas", type=float, nargs="+", help="the paper's when not given")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=200, help="200: those of the experiments")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--bits", type=int, choices=[7, 10], default=10, help="of TF32, or of bfloat16, on a CPU")
    asked = parser.parse_args()
    if asked.bits == 7 and asked.device != "cpu":
        parser.error("--bits 7 needs --device cpu")
    warnings.simplefilter("ignore", DataWarning)
    problem = PROBLEMS[asked.data]()
    train, test = problem.tables()
    settings = {"density": AUTOREGRESSIVE} if asked.density == "autoregressive" else {}
    estimator = changed(problem.encoder, device=asked.device, key=bytes(32), **settings)
    gammas = asked.gammas or problem.gammas
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    with_equal_densities()
    trained = flow_fitting.train
    found: dict[str, pd.DataFrame] = {}
    for name in ("float32", LAST_BITS, WEIGHTS, ALL):
        seconds: list[float] = []
        flow_fitting.train = timed(trained, seconds, name, asked.bits)
        front = frontier(estimator, train, gammas=gammas, seeds=seeds, validation=test)
        found[name] = front.to_frame().set_index(["gamma", "seed"])[MEASURES]
        print(f"{name}: trained in {sum(seconds):.1f} s", flush=True)
    for measure in MEASURES:
        models = pd.DataFrame({name: frame[measure] for name, frame in found.items()})
        print(f"\n{measure}\n{models.unstack('gamma').round(3).to_string()}")
        print(f"means\n{models.groupby('gamma').mean().round(3).to_string()}")


def with_equal_densities() -> None:
    """Fit densities once, and give every later run copies of them."""
    fitted: list[Any] = []
    fit = flow_fitting._densities

    def densities(*args: Any, **kwargs: Any) -> Any:
        if not fitted:
            fitted.append(fit(*args, **kwargs))
        return copy.deepcopy(fitted[0])

    flow_fitting._densities = densities


def timed(train: Any, seconds: list[float], name: str, bits: int) -> Any:
    """Training that adds its seconds to a list: as it is, from moved weights, or with rounded products."""

    def run(bijection: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        noise = torch.Generator().manual_seed(1)
        for parameter in bijection.parameters() if name == LAST_BITS else ():
            parameter.data *= 1 + 1e-7 * torch.randn(parameter.shape, generator=noise).to(parameter.device)
        start = time.perf_counter()
        with products(name, bits):
            result = train(bijection, *args, **kwargs)  # the losses that it returns have waited for the device
        seconds.append(time.perf_counter() - start)
        return result

    return run


@contextmanager
def products(name: str, bits: int) -> Iterator[None]:
    """Products of float32 matrices that are rounded where the name says so, on a GPU and on a CPU."""
    product, weight_gradient = torch.bmm, networks._weight_gradient

    def of_rounded(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
        on_cpu = a.dtype == torch.float32 and a.device.type == "cpu"
        return product(rounded(a, bits), rounded(b, bits), out=out) if on_cpu else product(a, b, out=out)

    def by_weights(layer: Tensor, grad: Tensor, out: Tensor) -> None:
        if name == WEIGHTS and grad.is_cuda:
            weight_gradient(layer, grad, out)
        else:
            (of_rounded if name == WEIGHTS else torch.bmm)(layer.mT, grad, out=out)

    networks._weight_gradient = by_weights
    if name == ALL:
        torch.set_float32_matmul_precision("high")
        torch.bmm = of_rounded
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.bmm, networks._weight_gradient = product, weight_gradient


def rounded(x: Tensor, bits: int) -> Tensor:
    """The nearest numbers of so many bits after the first, ties to even; called where no gradient is recorded."""
    left_out, numbers = 23 - bits, x.contiguous().view(torch.int32)
    half = (1 << (left_out - 1)) - 1 + ((numbers >> left_out) & 1)
    return ((numbers + half) >> left_out << left_out).view(torch.float32)


if __name__ == "__main__":
    main()

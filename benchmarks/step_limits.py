"""How far a training step on processors is from its limit, the products of matrices, and what `torch.compile` gains.

    OMP_NUM_THREADS=1 python benchmarks/step_limits.py [--sizes crime health] [--models 1 25] [--compile]

Printed are processor milliseconds per step (the best of some repeats), the share of matrix products in it by torch's
profiler, how fast these products run beside one large product, and what would be gained if all else cost nothing. With
``--compile`` the loss is compiled, too: then both steps, their losses, and the processor seconds of compiling. Sizes
and rows are those of `training_step.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from training_step import SIZES, Size, random_rows

from fairflows.bijection import RealNVP, StackedMLP
from fairflows.steps import AdamSteps
from fairflows.training.algorithm1 import Batch, algorithm_1
from fairflows.training.loop import Feed, FreshDraws, GroupRows

REPEATS = 4
LARGE = 1_024


class Steps:
    """Training steps of some models, compiled or not."""

    def __init__(self, size: Size, n_models: int, *, compiled: bool):
        n = 8 * size.batch_size
        rows, labels = random_rows(size, (n, n), "cpu")
        densities = size.densities(rows, n_steps=5)
        seeds = [m % 5 for m in range(n_models)]
        bijection = RealNVP(size.n_features, n_blocks=size.n_blocks, hidden=size.hidden, seeds=seeds)
        head = StackedMLP(size.n_features, size.head, 2, seeds=seeds)
        gamma = torch.linspace(0.1, 0.9, n_models)

        def loss_of(batch: Batch) -> Tensor:
            return algorithm_1(bijection, head, densities, batch, gamma).L.sum()

        loss: Callable[[Batch], Tensor] = torch.compile(loss_of) if compiled else loss_of
        self._feed = Feed(FreshDraws(GroupRows(rows, labels), densities, seeds=seeds, batch_size=size.batch_size))
        self._adam = AdamSteps(self._loss, [*bijection.parameters(), *head.parameters()], learning_rate=1e-3)
        self._loss_of = loss
        self.last = torch.tensor(torch.nan)

    def _loss(self) -> Tensor:
        loss = self._loss_of(self._feed.next())
        self.last = loss.detach()
        return loss

    def run(self, n: int) -> float:
        """Processor seconds of n steps."""
        start = time.process_time()
        for _ in range(n):
            self._feed.refill_when_empty()
            self._adam.step()
        return time.process_time() - start


def products(steps: Steps, n: int) -> tuple[float, float]:
    """The share of matrix products in the processor time of n steps, and their floating-point operations per second."""
    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as found:
        steps.run(n)
    events = found.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    of_products = [event for event in events if event.key in ("aten::bmm", "aten::baddbmm", "aten::mm", "aten::addmm")]
    microseconds = sum(event.self_cpu_time_total for event in of_products)
    return microseconds / total, sum(event.flops for event in of_products) / (microseconds * 1e-6)


def large_product() -> float:
    """Floating-point operations per second of one large product."""
    one, other = torch.randn(2, LARGE, LARGE)
    seconds = []
    for _ in range(5):
        start = time.process_time()
        torch.mm(one, other)
        seconds.append(time.process_time() - start)
    return 2 * LARGE**3 / min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=["crime", "health"], default=["crime", "health"])
    parser.add_argument("--models", nargs="+", type=int, default=[1, 25])
    parser.add_argument("--compile", action="store_true", help="time the compiled loss too; needs a C++ compiler")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"torch {torch.__version__}, one thread; one product of {LARGE} × {LARGE}: {large_product() / 1e9:.0f} GFLOP/s"
    )
    for size in SIZES:
        if size.name.lower() not in arguments.sizes:
            continue
        for n_models in arguments.models:
            n = 30 if size.name == "Crime" and n_models == 1 else 6 if n_models == 1 or size.name == "Crime" else 2
            steps = Steps(size, n_models, compiled=False)
            steps.run(3)
            milliseconds = 1e3 * min(steps.run(n) for _ in range(REPEATS)) / n
            share, speed = products(steps, n)
            print(
                f"{size.name:7} {n_models:3} models  {milliseconds:8.1f} ms  products {share:4.0%} at "
                f"{speed / 1e9:.0f} GFLOP/s; all else at no cost would gain {1 / share:.1f}",
                flush=True,
            )
            if arguments.compile:
                plain, fast = Steps(size, n_models, compiled=False), Steps(size, n_models, compiled=True)
                plain.run(3)
                compiling = fast.run(3)
                best = 1e3 * min(fast.run(n) for _ in range(REPEATS)) / n
                again = 1e3 * min(plain.run(n) for _ in range(REPEATS)) / n
                print(
                    f"{'':19} compiled {best:8.1f} ms, not compiled {again:.1f} ms; compiling {compiling:.0f} s; "
                    f"losses {fast.last.item():.4f} and {plain.last.item():.4f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

"""Training beside another process that keeps one core busy: with one thread, with all of torch's as they are, and ours.

    env -u OMP_NUM_THREADS python benchmarks/busy_machine.py [--steps N]

Milliseconds for a training step of the paper's Crime flows: first with the machine as it is, then with a loop of Python
pinned to the first processor. "All threads" is what torch does by itself; "ours" is what `fit` does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from unittest import mock

import torch
from training_step import SIZES, random_rows, run

from fairflows.compute.resources import one_thread


@contextmanager
def all_threads(device: torch.device | None = None) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Steps as they are, in the place of `fastest_threads`."""
    yield lambda step: step()


@contextmanager
def busy_core() -> Iterator[None]:
    """Another process that does nothing but compute, on the first processor."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        os.sched_setaffinity(process.pid, {0})
        try:
            yield
        finally:
            process.kill()


def training_step(n_models: int, n_steps: int) -> Callable[[], float]:
    """Seconds for a step of Crime's size, the measurement of threads included."""
    size, per_epoch = SIZES[0], 20
    rows, labels = random_rows(size, (per_epoch * size.batch_size,) * 2, "cpu")
    densities = size.densities(rows, n_steps=0)
    epochs, seeds = max(1, n_steps // per_epoch), [m % 5 for m in range(n_models)]
    return lambda: run(size, densities, rows, labels, n_models, epochs, seeds) / (epochs * per_epoch)


def measure(what: str, seconds: Callable[[], float]) -> None:
    unguarded = mock.patch("fairflows.training.loop.fastest_threads", all_threads)
    ways: list[tuple[str, AbstractContextManager[object]]] = [
        ("one thread", one_thread()),
        ("all threads", unguarded),
        ("ours", nullcontext()),
    ]
    found = []
    for _, guard in ways:
        with guard:
            found.append(1e3 * seconds())
    print(f"  {what:24}" + "".join(f"{ms:13.1f}" for ms in found) + f"{found[1] / found[2]:10.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400, help="training steps of each measurement")
    steps = parser.parse_args().steps
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {os.cpu_count()} processors")
    works = [
        ("step, one model", training_step(1, steps)),
        ("step, 25 models", training_step(25, steps)),
    ]
    for load, neighbour in (("as it is", nullcontext()), ("one core busy", busy_core())):
        print(f"{load:26}{'one thread':>13}{'all threads':>13}{'ours':>13}{'all/ours':>10}   (ms)")
        with neighbour:
            for what, seconds in works:
                seconds()  # kernels and modules are loaded
                measure(what, seconds)


if __name__ == "__main__":
    main()

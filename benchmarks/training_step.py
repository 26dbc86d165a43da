"""One training step, ours against the authors' (github eth-sri/fnf), in one run and on one machine.

    python benchmarks/training_step.py [--reference CHECKOUT] [--jax PYTHON] [--precision medium] [--sweep]
                                       [--json FILE]

Ours is timed as the difference of two runs of ``train``, so that drawing batches, schedules and history count, and
start-up does not. Theirs is timed by calling their own ``train_flow`` from the checkout with loaders that note when a
batch is asked for. The sizes are those of Crime and Health in the paper; the rows are random, since only shapes matter.

``--jax`` names a Python that has JAX (0.10.2 was used), in which `training_step_jax.py` takes the same step.

``--precision`` is that of torch's products of float32 matrices, for all steps: "medium" lets processors that have such
instructions round the factors to bfloat16.

``--sweep`` times 25 models with the row counts and epochs of the paper, densities included.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairflows.bijection import RealNVP, StackedMLP
from fairflows.density import FlowDensity, GroupDensities, MixtureDensity
from fairflows.training.loop import GroupRows, TrainingSettings, train


@dataclass(frozen=True)
class Size:
    """A setting of the paper."""

    name: str
    n_features: int
    batch_size: int
    n_blocks: int
    hidden: tuple[int, ...]
    head: tuple[int, ...]
    learning_rate: float
    weight_decay: float
    epochs: int
    ramp_epochs: int
    n_rows: tuple[int, int]  # of the two groups, for a whole sweep

    def densities(self, rows: list[Tensor], *, n_steps: int) -> GroupDensities:
        """The paper's densities: mixtures for Crime, flows for Health."""
        if self.name == "Crime":
            return GroupDensities.fit([MixtureDensity(2), MixtureDensity(4)], rows)
        return GroupDensities.fit(FlowDensity("realnvp", n_blocks=4, hidden=(20,), n_steps=n_steps), rows)


SIZES = [
    Size("Crime", 6, 128, 4, (50, 50), (100,), 0.01, 1e-4, 60, 50, (916, 663)),
    Size("Health", 11, 256, 6, (100, 100, 50), (100, 50, 20), 0.001, 0.0, 80, 10, (93_857, 45_928)),
]


def random_rows(size: Size, n_rows: tuple[int, int], device: str) -> tuple[list[Tensor], list[Tensor]]:
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(n, size.n_features, generator=generator) + a for a, n in enumerate(n_rows)]
    labels = [(x.sum(1) > a).long().to(device) for a, x in enumerate(rows)]
    return [x.to(device) for x in rows], labels


def finish(device: str) -> float:
    """The time, once the device has done all it was asked to."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def run(
    size: Size,
    densities: GroupDensities,
    rows: list[Tensor],
    labels: list[Tensor],
    n_models: int,
    epochs: int,
    seeds: list[int],
) -> float:
    """Seconds to train ``n_models``."""
    device = rows[0].device.type
    bijection = RealNVP(size.n_features, n_blocks=size.n_blocks, hidden=size.hidden, seeds=seeds).to(device)
    head = StackedMLP(size.n_features, size.head, 2, seeds=seeds).to(device)
    start = finish(device)
    train(
        bijection,
        head,
        densities,
        GroupRows(rows, labels),
        gamma=np.linspace(0, 0.9, n_models).tolist(),
        seeds=seeds,
        settings=TrainingSettings(
            epochs=epochs,
            batch_size=size.batch_size,
            learning_rate=size.learning_rate,
            weight_decay=size.weight_decay,
            ramp_epochs=size.ramp_epochs,
        ),
    )
    return finish(device) - start


def our_step(size: Size, device: str, n_models: int, repeats: int = 3) -> float:
    """Seconds a step for the whole stack; the best of some repeats, as other work only ever adds time."""
    steps_per_epoch = 8
    n = steps_per_epoch * size.batch_size
    rows, labels = random_rows(size, (n, n), device)
    densities = size.densities(rows, n_steps=50)
    seeds = [m % 5 for m in range(n_models)]  # five seeds, as in the paper's sweeps
    few, many = (2, 27) if device == "cuda" else (1, 3 if size.name == "Health" else 6)

    def seconds(epochs: int) -> float:
        return min(run(size, densities, rows, labels, n_models, epochs, seeds) for _ in range(repeats))

    return (seconds(many) - seconds(few)) / ((many - few) * steps_per_epoch)


class _EnoughError(Exception):
    """Ends the authors' loop once enough steps were seen."""


class _Batches:
    """A loader of random batches that notes when each is asked for."""

    def __init__(self, size: Size, device: str, n_steps: int):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.rand(size.batch_size, size.n_features, generator=generator).mul(0.8).add(0.1).to(device)
        self.y = torch.randint(2, (size.batch_size,), generator=generator).to(device)
        self.device, self.n_steps, self.stamps, self.counted = device, n_steps, [], False

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if not self.counted:  # their function first counts the rows
            self.counted = True
            yield self.x, self.y
            return
        while len(self.stamps) <= self.n_steps:
            self.stamps.append(finish(self.device))
            yield self.x, self.y
        raise _EnoughError


def their_step(size: Size, device: str, checkout: Path, n_steps: int = 20) -> float:
    """Seconds a step of the authors' own training function."""
    _stand_in_for_missing_modules()
    sys.path.insert(0, str(checkout))
    import train_fnf
    from generative.gmm import GMM
    from generative.real_nvp import FlowNetwork
    from sklearn.mixture import GaussianMixture
    from torch.distributions import MultivariateNormal

    train_fnf.device = device
    if size.name == "Crime":
        rng = np.random.default_rng(0)
        fitted = [GaussianMixture(k, random_state=0).fit(rng.normal(size=(900, 6))) for k in (4, 2)]
        priors = [[GMM(mixture, device)] for mixture in fitted]
    else:
        zero, one = torch.zeros(size.n_features, device=device), torch.eye(size.n_features, device=device)
        normal = MultivariateNormal(zero, one)
        priors = [[FlowNetwork(normal, size.n_features, [20], 4).to(device)] for _ in range(2)]
    settings = argparse.Namespace(
        n_flows=1,
        batch_size=size.batch_size,
        n_blocks=size.n_blocks,
        n_epochs=1,
        lr=size.learning_rate,
        weight_decay=size.weight_decay,
        kl_start=0,
        kl_end=size.ramp_epochs,
        gamma=0.1,
        scalarization="convex",
        fair_criterion="stat_parity",
        load_enc=False,
        alpha=0.05,
        log_epochs=10,
    )
    first, second = _Batches(size, device, n_steps + 5), _Batches(size, device, n_steps + 5)
    quanta = torch.zeros(1, size.n_features, device=device)
    with contextlib.suppress(_EnoughError), contextlib.redirect_stderr(io.StringIO()):
        train_fnf.train_flow(
            settings,
            size.n_features,
            quanta,
            *priors,
            list(size.hidden),
            list(size.head),
            (first, second),
            (None, None),
            None,
        )
    return float(np.median(np.diff(first.stamps)[5:]))


def _stand_in_for_missing_modules() -> None:
    """Their file imports a plotting library and a progress bar: a bare machine may lack them, a step needs neither."""
    for name in ("matplotlib", "matplotlib.pyplot", "tqdm"):
        try:
            __import__(name)
        except ImportError:
            module: Any = types.ModuleType(name)
            module.__spec__ = ModuleSpec(name, None)
            module.tqdm = _QuietBar
            sys.modules[name] = module


class _QuietBar:
    def __init__(self, items: Any):
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def set_description(self, text: str) -> None:
        """Show nothing."""


def jax_step(size: Size, device: str, n_models: int, python: Path) -> float:
    """Milliseconds a step for the whole stack, in JAX."""
    script = Path(__file__).with_name("training_step_jax.py")
    return float(
        subprocess.run(
            [python, script, json.dumps(asdict(size)), str(n_models)],
            env=os.environ | {"JAX_PLATFORMS": device},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )


def compare(
    devices: list[str], stack_sizes: list[int], reference: Path | None, jax_python: Path | None
) -> list[dict[str, Any]]:
    table = []
    print(f"{'size':8}{'device':8}{'models':>7}{'ms/step':>10}{'per model':>11}{'theirs':>9}{'ratio':>8}{'jax':>9}")
    for size in SIZES:
        for device in devices:
            theirs = their_step(size, device, reference) * 1e3 if reference else None
            for n_models in stack_sizes:
                step = our_step(size, device, n_models) * 1e3
                ratio = theirs / (step / n_models) if theirs else None
                in_jax = jax_step(size, device, n_models, jax_python) / n_models if jax_python else None
                table.append(
                    {
                        "size": size.name,
                        "device": device,
                        "models": n_models,
                        "ms_per_step": step,
                        "ms_per_model_and_step": step / n_models,
                        "reference_ms_per_step": theirs,
                        "ratio": ratio,
                        "jax_ms_per_model_and_step": in_jax,
                    }
                )
                print(
                    f"{size.name:8}{device:8}{n_models:7d}{step:10.3f}{step / n_models:11.4f}"
                    + (f"{theirs:9.1f}{ratio:8.0f}" if theirs and ratio else f"{'–':>9}{'–':>8}")
                    + (f"{in_jax:9.4f}" if in_jax else f"{'–':>9}"),
                    flush=True,
                )
    return table


def sweeps(devices: list[str]) -> list[dict[str, Any]]:
    """25 models, five seeds of five γ, as in the paper."""
    table = []
    for size in SIZES:
        for device in devices:
            if size.name == "Health" and device == "cpu":
                continue  # hours
            rows, labels = random_rows(size, size.n_rows, device)
            start = finish(device)
            densities = size.densities(rows, n_steps=80 * -(-size.n_rows[0] // 512))
            fitted = finish(device)
            seconds = run(size, densities, rows, labels, 25, size.epochs, [m % 5 for m in range(25)])
            table.append({"size": size.name, "device": device, "density_s": fitted - start, "training_s": seconds})
            print(
                f"{size.name} sweep on {device}: densities {fitted - start:.1f} s, 25 models {seconds:.1f} s",
                flush=True,
            )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", type=Path, help="a checkout of the authors' code")
    parser.add_argument("--jax", type=Path, help="a Python that has JAX")
    parser.add_argument("--devices", nargs="+", default=["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
    parser.add_argument("--models", nargs="+", type=int, default=[1, 5, 25])
    parser.add_argument("--precision", choices=["highest", "high", "medium"], default="highest")
    parser.add_argument("--sweep", action="store_true", help="also time whole sweeps of 25 models")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision(arguments.precision)
    device_names = [torch.cuda.get_device_name()] if "cuda" in arguments.devices else []
    print(f"torch {torch.__version__}, {torch.get_num_threads()} CPU threads", *device_names)
    result = {"steps": compare(arguments.devices, arguments.models, arguments.reference, arguments.jax)}
    if arguments.sweep:
        result["sweeps"] = sweeps(arguments.devices)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

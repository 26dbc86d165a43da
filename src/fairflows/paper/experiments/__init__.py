"""The paper's figures and tables, and experiments beyond it: all of them by name, and how one is run.

``run("figure-4a", quick=True)`` prints the paper's numbers beside ours, and saves tables (CSV), everything (JSON) and
the figure (PNG).
"""

from __future__ import annotations

import os
import platform
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from fairflows.exceptions import DataError, DataWarning
from fairflows.paper.experiments.outcome import Outcome, Setting, new_pool

__all__ = ["Outcome", "list_experiments", "run", "run_many"]

EXPERIMENTS = {
    "figure-1": ("drawn_data.run_overview", "Overview: two densities before and after encoding"),
    "figure-2": ("drawn_data.run_samples", "Four Gaussian blobs: samples"),
    "figure-3": (
        "drawn_data.run_recovery",
        "Four Gaussian blobs: how well the group is recovered, adversarial training and FNF",
    ),
    "figure-4a": ("trade_offs.run_continuous", "Accuracy against statistical distance, continuous data"),
    "figure-4b": ("trade_offs.run_categorical", "Accuracy against statistical distance, categorical data"),
    "figure-5": (
        "attacks.run_paper_adversary",
        "The certified bound against trained adversaries: the paper's, and a whole suite",
    ),
    "figure-6": (
        "trade_offs.run_criteria",
        "Demographic parity, equalized odds and equal opportunity against accuracy",
    ),
    "figure-7": ("trade_offs.run_scalarisations", "Convex and Chebyshev scalarisation on Crime"),
    "figure-8": ("trade_offs.run_densities", "Three densities on Crime"),
    "figure-9": ("applications.run_matches", "Who is matched with whom on Crime"),
    "table-1": (
        "attacks.run_baselines",
        "Adversarial baselines and FNF on Adult, attacked from inside and outside their family",
    ),
    "table-2": ("trade_offs.run_bijections", "RealNVP and neural spline encoders on Crime"),
    "table-3": ("dataset_tables.run_rates", "Sizes and rates of every split"),
    "table-4": ("dataset_tables.run_features", "Accuracy before and after dropping features"),
    "table-5": ("trade_offs.run_base_rates", "Base rates on Crime, and what they cost"),
    "recourse": ("applications.run_recourse", "What would have turned a rejection on Law School"),
    "transfer": ("applications.run_transfer", "An encoder for one label, reused for others, on Health"),
    "honest-front": (
        "honest_front.run_honest_front",
        "Bounds that stand up to attack: three ways to fit five datasets",
    ),
    "certificates": (
        "certificates.run_true_bounds",
        "Bounds for the true distribution: ours and FARE's, as rows and cells grow",
    ),
}
"""Where each is (module and function, imported when it runs: listing must not import torch), and what it shows."""
CHAINS = (
    ("honest-front",),
    ("figure-4a", "figure-5", "table-5"),
    ("table-1",),
    ("figure-6",),
    ("figure-3",),
    ("figure-9",),
)
"""Side by side, those that share models share a process; these begin first, since they take longest."""


def list_experiments() -> pd.DataFrame:
    """Return name and title of every experiment, in the paper's order."""
    return pd.DataFrame([(name, title) for name, (_, title) in EXPERIMENTS.items()], columns=["id", "title"])


def function_of(name: str) -> Callable[[Setting], Outcome]:
    """Return the function that runs an experiment; its module is imported here."""
    module, function = EXPERIMENTS[name][0].split(".")
    return getattr(import_module(f"fairflows.paper.experiments.{module}"), function)


def run(
    id: str,  # noqa: A002
    *,
    quick: bool = False,
    seeds: int | None = None,
    device: str = "auto",
    n_jobs: int = 1,
    out: str | Path | None = None,
    show: bool = True,
) -> Outcome:
    """Run an experiment, print its numbers beside the paper's, and save them.

    Parameters
    ----------
    id : str
        One of `list_experiments`.
    quick : bool
        Use fewer seeds, epochs and rows: minutes on two cores. The result says so.
    seeds : int, default=None
        How many seeds; the paper's number when not given, or few with ``quick``.
    device : str
        "auto" takes a GPU where there is one.
    n_jobs : int
        Tasks of the experiment to run side by side, where it has several.
    out : path, default=None
        Folder to save to; ``reproduction/`` in the current folder when not given.
    show : bool
        Print the numbers, and which files were written.

    Returns
    -------
    Outcome
        ``result.skipped`` says why when the data are not at hand.
    """
    if id not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {id!r}; there are {', '.join(EXPERIMENTS)}.")
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds must be at least 1; got {seeds!r}.")
    if n_jobs < 1:
        raise ValueError(f"n_jobs must be at least 1; got {n_jobs!r}.")
    setting = Setting(quick, seeds, device, n_jobs)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # what they would say is in the notes
            result = function_of(id)(setting)
    except DataError as error:
        result = Outcome(pd.DataFrame(), "", skipped=str(error))
    result.id, result.title = id, EXPERIMENTS[id][1]
    result.seconds = time.perf_counter() - start
    result.setting |= {"quick" if quick else "full": "settings", "machine": machine(device)}
    written = result.save(Path("reproduction" if out is None else out))
    if show:
        print(result, *(f"  wrote {path}" for path in written), sep="\n", flush=True)
    return result


def machine(device: str) -> str:
    """Describe the machine: the GPU where one is used, cores, and torch's version."""
    import torch

    cores = f"{os.cpu_count()} cores ({platform.machine()})"
    if device != "cpu" and torch.cuda.is_available():
        cores = f"{torch.cuda.get_device_name()}, {cores}"
    return f"{cores}, torch {torch.__version__}"


def run_many(
    names: Sequence[str],
    *,
    n_jobs: int = 1,
    quick: bool = False,
    seeds: int | None = None,
    device: str = "auto",
    out: str | Path | None = None,
) -> Iterator[Outcome]:
    """Run experiments, several at once if asked, and yield each result when it is there.

    An experiment that fails has its error in ``result.failed``, and the others go on. Those that share models run one
    after the other in one process, so that each model is trained once. Parameters are those of `run`; an experiment of
    several tasks may start ``n_jobs`` processes of its own.
    """
    one = partial(_run_or_fail, n_jobs=n_jobs, quick=quick, seeds=seeds, device=device, out=out)
    if n_jobs == 1:
        yield from map(one, names)
        return
    chained = {name for chain in CHAINS for name in chain}
    chains = [[name for name in chain if name in names] for chain in CHAINS]
    chains += [[name] for name in names if name not in chained]
    with new_pool(n_jobs) as pool:
        for future in as_completed([pool.submit(_run_chain, one, chain) for chain in chains if chain]):
            yield from future.result()


def _run_chain(one: Callable[[str], Outcome], names: Sequence[str]) -> list[Outcome]:
    return [one(name) for name in names]


def _run_or_fail(name: str, **settings: Any) -> Outcome:
    try:
        result = run(name, show=False, **settings)
    except Exception:  # hours of other experiments must not be lost with it; the command then exits with 1
        result = Outcome(pd.DataFrame(), "", failed=traceback.format_exc(), id=name, title=EXPERIMENTS[name][1])
    result.figure = None  # it is saved; between processes it would only be copied
    return result

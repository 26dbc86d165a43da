"""A leaderboard of fair representations: bound, strongest attack and accuracy of every method on five datasets.

    python benchmarks/leaderboard.py --jobs 16 --seeds 2 --out leaderboard.csv
    python benchmarks/leaderboard.py --summary --out leaderboard.csv

Data, divided as in `fairflows reproduce honest-front`: one row of every person, the paper's test rows. Each method is
fitted to all other rows at fixed strengths, writes Z of both parts as a file that `fairflows audit --representation`
reads, and is judged by that audit and by its accuracy: boosted trees on Z, the mean over groups. Networks are trained
for 50 epochs in batches of 256 at a rate of .001, shorter than by their authors.

A bound is FARE's own certificate, the count of test persons for `FairCells`, the blocks of training persons for
`FairTree`, all at δ = .05, and the model's own for flows, which holds if its densities are right (δ = .001). Flows are
also attacked by adversaries who know the encoders (``known ≥``). LEACE needs the package concept-erasure.

A line is appended as soon as a model is judged; a model that cannot be fitted has a line that says why. A later call
judges what is missing. Delete a line to try it again.
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Literal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are loaded

import numpy as np
import pandas as pd
import torch

from fairflows import FairCells, FairFlow, FairMatching, FairTree
from fairflows.attack.auditing import audit
from fairflows.attack.given_representation import GivenRepresentation
from fairflows.bounds import blocks_upper_bound, cell_upper_bound
from fairflows.encoder.base import Encoder, encode_again, is_fitted
from fairflows.exceptions import DataError, DataWarning
from fairflows.paper.baselines import FARE, FCRL, LAFTR, AdversarialForgetting, MaxEntARL
from fairflows.paper.experiments.attacks import model_upper
from fairflows.paper.experiments.outcome import FIRST_SEED, new_pool
from fairflows.paper.experiments.problems import PROBLEMS, cells_by_group, changed, labels_of
from fairflows.release.partitions import NumericView
from fairflows.table.table import Table

Line = dict[str, object]

DELTA = 0.05  # of counted bounds
N_DRAWS = 200_000  # behind the bound of a flow
COLUMNS = [
    "data", "method", "strength", "seed", "bound ≤", "attack ≥", "by", "known ≥", "known by", "accuracy", "columns",
    "fit s", "audit s", "failed",
]  # fmt: skip
SLOW = ("health", "law", "adult", "compas", "crime")  # begun in this order, so that no long fit is left to the end


@dataclass(frozen=True)
class Setting:
    """How all methods are run."""

    epochs: int
    device: str
    quick: bool
    folder: Path  # for representations


@dataclass(frozen=True)
class Task:
    """One method on one dataset with one seed; the strengths that are still missing."""

    data: str
    method: str
    seed: int
    strengths: tuple[float, ...]

    def line(self, strength: float) -> Line:
        """Return what names a model."""
        return {"data": self.data, "method": self.method, "strength": strength, "seed": self.seed}


@dataclass(frozen=True)
class Made:
    """What a fit has made: the beginning of a model's line, and the file to judge unless the line says why not."""

    line: Line
    file: Path | None


Parts = tuple[pd.DataFrame, pd.DataFrame]
"""Z of training and of test rows."""

Represented = tuple[float, Parts | None, Line]
"""A strength, what the rows are represented as, if they are, and what else the line is to hold."""


@lru_cache(maxsize=1)
def tables(data: str) -> tuple[Table, Table]:
    """Return rows to train on and test rows, one of every person."""
    problem = PROBLEMS[data]()
    return replace(problem, load=lambda: problem.load().one_row_per_person(0)).tables()


# Methods --------------------------------------------------------------------------------------------------------------


def as_they_are(task: Task, setting: Setting) -> Iterator[Represented]:
    """Give the rows as they are, as numbers: what every method starts from."""
    train, test = tables(task.data)
    view = NumericView.fit(train.X, None, 0)
    yield 0.0, (pd.DataFrame(view.features(train.X)), pd.DataFrame(view.features(test.X))), {}


def leace(task: Task, setting: Setting) -> Iterator[Represented]:
    """Erase the group linearly, by an eraser fitted to the training rows."""
    from concept_erasure import LeaceEraser

    [(strength, parts, _)] = as_they_are(task, setting)
    train, test = (torch.tensor(part.to_numpy(float)) for part in parts or ())
    eraser = LeaceEraser.fit(train, torch.tensor(tables(task.data)[0].a.to_numpy(float)))
    yield strength, (pd.DataFrame(eraser(train).numpy()), pd.DataFrame(eraser(test).numpy())), {}


def fare(task: Task, setting: Setting) -> Iterator[Represented]:
    """Grow FARE's trees on seven tenths of the training rows; its certificate takes the others and the test rows."""
    train, test = tables(task.data)
    places = train.persons.split(0.3, random_state=task.seed)
    grow, share = (train.take(rows) for rows in places)
    for gamma in task.strengths:
        tree = FARE(gamma).fit(grow)
        yield gamma, encoded(tree, train, test), {"bound ≤": tree.own_upper_bound(grow, share, test, DELTA)}


def neural(method: Encoder, task: Task, setting: Setting) -> Iterator[Represented]:
    """Train the networks of all strengths at once."""
    epochs = {"n_epochs": setting.epochs, "batch_size": 256, "learning_rate": 1e-3, "device": setting.device}
    yield from path(changed(method, **epochs), task, lambda encoder: {})


def flow(method: FairFlow | FairMatching, task: Task, setting: Setting) -> Iterator[Represented]:
    """Fit flows or a matching, bounded by their densities, and attack them with their encoders known."""
    train, test = tables(task.data)
    if isinstance(method, FairFlow):
        method = changed(method, device=setting.device)
        method = changed(method, n_epochs=setting.epochs) if setting.quick else method

    def bounded(encoder: Encoder) -> Line:
        found = audit(encoder, train, test, quick=setting.quick)
        return {"bound ≤": model_upper(encoder, N_DRAWS), "known ≥": found.attack_lower, "known by": found.best}

    yield from path(method, task, bounded)


def fair_cells(attribute: Literal["encoding", "training"], task: Task, setting: Setting) -> Iterator[Represented]:
    """Make cells for targets, certified by test persons; a target that so few cannot certify is refused."""
    train, test = tables(task.data)
    for target in task.strengths:
        cells = FairCells(
            8, target=target, attribute=attribute, n_certify=len(test), delta=DELTA, random_state=task.seed
        )
        try:
            cells.fit(train)
        except DataError as error:
            yield target, None, {"failed": str(error)}
            continue
        bound = float(cell_upper_bound(cells_by_group(cells, test), DELTA))
        yield target, encoded(cells, train, test), {"bound ≤": bound}


def fair_tree(task: Task, setting: Setting) -> Iterator[Represented]:
    """Make matched cells, certified by the numbers of persons in them."""

    def bounded(encoder: Encoder) -> Line:
        return {"bound ≤": float(blocks_upper_bound(encoder.blocks_, DELTA))}

    yield from path(FairTree(), task, bounded)


METHODS: dict[str, tuple[Callable[[Task, Setting], Iterator[Represented]], tuple[float, ...]]] = {
    "FairFlow": (partial(flow, FairFlow()), (0.1, 0.9)),
    "FairMatching": (partial(flow, FairMatching(density="made", hidden=(50, 50))), (0.1, 0.9)),
    "FCRL": (partial(neural, FCRL()), (0.1, 1.0)),
    "Forgetting": (partial(neural, AdversarialForgetting()), (0.1, 1.0)),
    "MaxEnt-ARL": (partial(neural, MaxEntARL()), (10.0, 50.0)),
    "LAFTR": (partial(neural, LAFTR()), (2.0, 8.0)),
    "rows as they are": (as_they_are, (0.0,)),
    "LEACE": (leace, (0.0,)),
    "FARE": (fare, (0.0, 0.5, 0.9)),
    "FairTree": (fair_tree, (64, 16)),
    "FairCells": (partial(fair_cells, "encoding"), (0.4, 0.2, 0.1)),
    "FairCells, no attribute": (partial(fair_cells, "training"), (0.4, 0.2, 0.1)),
}
"""Every method with its strengths, those that hide more last; those that take longest come first."""


def path(method: Encoder, task: Task, bounded: Callable[[Encoder], Line]) -> Iterator[Represented]:
    """Fit an encoder at every strength, and encode both parts."""
    train, test = tables(task.data)
    encoders = method.fit_path(train, strengths=task.strengths, seeds=[task.seed])
    for strength, encoder in zip(task.strengths, encoders, strict=True):
        if is_fitted(encoder):
            yield strength, encoded(encoder, train, test), bounded(encoder)
        else:
            yield strength, None, {"failed": "diverged"}


def encoded(encoder: Encoder, train: Table, test: Table) -> Parts:
    """Encode both parts, as numbers: categories by the place of their level among those of training rows."""
    parts = encode_again(encoder, train, "train"), encode_again(encoder, test, "test")
    levels = {
        name: pd.Index(column.unique())
        for name, column in parts[0].items()
        if not pd.api.types.is_numeric_dtype(column.dtype)
    }
    first, second = (
        part.assign(**{str(name): known.get_indexer(part[name]) for name, known in levels.items()}) for part in parts
    )
    return first, second


# One line a model -----------------------------------------------------------------------------------------------------


def made(task: Task, setting: Setting) -> list[Made]:
    """Fit a method at its strengths, and write Z of every model."""
    warnings.simplefilter("ignore", DataWarning)
    found, fit, start = [], METHODS[task.method][0], time.process_time()
    try:
        for strength, parts, more in fit(task, setting):
            line = task.line(strength) | more | {"fit s": round(time.process_time() - start, 1)}
            file = setting.folder / f"{task.data}-{task.method}-{strength}-{task.seed}.npz".replace(" ", "-")
            if parts is not None:
                save(file, parts, tables(task.data))
                line["columns"] = parts[0].shape[1]
            found.append(Made(line, None if parts is None else file))
            start = time.process_time()
    except Exception as error:  # named in the lines of the strengths that have none
        left = [strength for strength in task.strengths if strength not in {one.line["strength"] for one in found}]
        found += [Made(task.line(strength) | {"failed": f"{type(error).__name__}: {error}"}, None) for strength in left]
    return found


def save(file: Path, parts: Parts, rows: tuple[Table, Table]) -> None:
    """Write Z, groups and labels of both parts, for `fairflows audit --representation`."""
    arrays: dict[str, np.ndarray] = {}
    for name, Z, part in zip(("train", "test"), parts, rows, strict=True):
        arrays |= {f"Z_{name}": Z.to_numpy(np.float32), f"a_{name}": part.a.to_numpy(), f"y_{name}": labels_of(part)}
    np.savez(file, **arrays)


def judged(one: Made, setting: Setting) -> Line:
    """Judge a representation by what anybody can see of it."""
    start = time.process_time()
    assert one.file is not None
    try:
        given = GivenRepresentation.read(one.file)
        found = given.audit(quick=setting.quick)
    except DataError as error:  # such as numbers that are not finite
        return one.line | {"failed": str(error)}
    more = {"attack ≥": found.attack_lower, "by": found.best, "accuracy": given.accuracy()}
    return one.line | more | {"audit s": round(time.process_time() - start, 1)}


def missing(file: Path, data: Sequence[str], methods: Sequence[str], seeds: Sequence[int]) -> list[Task]:
    """Return what has no line yet."""
    done = set()
    if file.exists():
        lines = pd.read_csv(file)
        done = set(zip(lines["data"], lines["method"], lines["strength"], lines["seed"], strict=True))
    tasks = []
    for name, method, seed in product(sorted(data, key=SLOW.index), methods, seeds):
        left = tuple(s for s in METHODS[method][1] if (name, method, s, seed) not in done)
        tasks += [Task(name, method, seed, left)] if left else []
    return tasks


def run(tasks: Sequence[Task], setting: Setting, n_jobs: int, out: Path) -> None:
    """Fit and judge side by side, and append the line of every model."""
    known = out.exists()
    with out.open("a", newline="") as file, new_pool(n_jobs) as pool:
        lines = csv.DictWriter(file, COLUMNS)
        if not known:
            lines.writeheader()
        waiting: dict[Future, str] = {pool.submit(made, task, setting): str(task) for task in tasks}
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                name = waiting.pop(future)
                if future.exception():
                    print(f"{name} has no line: {future.exception()!r}", flush=True)
                    continue
                found = future.result()
                for one in found if isinstance(found, list) else [Made(found, None)]:
                    if one.file is not None:
                        waiting[pool.submit(judged, one, setting)] = str(one.line)
                        continue
                    shown = {name: round(v, 4) if isinstance(v, float) else v for name, v in one.line.items()}
                    lines.writerow(shown)
                    file.flush()
                    print(shown, flush=True)


def summary(lines: pd.DataFrame) -> pd.DataFrame:
    """Return means over the seeds, the strongest attack by name, and why models failed."""
    by = lines.groupby(["data", "method", "strength"], sort=False)
    found = by[["bound ≤", "attack ≥", "known ≥", "accuracy"]].mean()
    for name in ("by", "known by", "failed"):
        found[name] = by[name].agg(lambda names: "; ".join(names.dropna().unique()))
    found["seeds"] = by["accuracy"].count()
    found["refuted"] = by.apply(lambda part: int((part[["attack ≥", "known ≥"]].max(axis=1) > part["bound ≤"]).sum()))
    place = {name: i for i, name in enumerate(METHODS)}
    return found.reset_index().sort_values(["data", "method"], key=lambda column: column.replace(place), kind="stable")


def board(found: pd.DataFrame) -> str:
    """Return a Markdown table: bound / strongest attack / accuracy of every method, at its last strength that fits."""
    names = list(found["data"].unique())
    lines = [f"| method | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for method in METHODS:
        cells = []
        for name in names:
            own = found[(found["method"] == method) & (found["data"] == name)].set_index("strength")
            fits = [strength for strength in METHODS[method][1] if strength in own.index and own["seeds"][strength] > 0]
            if fits:
                at = own.loc[fits[-1]]
                strongest = np.nanmax([at["attack ≥"], at["known ≥"]])
                shown = [at["bound ≤"], strongest, at["accuracy"]]
                cells.append(" / ".join("–" if np.isnan(one) else f"{one:.3f}".lstrip("0") for one in shown))
            else:
                cells.append("none" if len(own) else "not run")
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=50, help="of the networks")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true", help="few adversaries, and flows of as few epochs")
    parser.add_argument("--representations", type=Path, help="folder to keep every Z in")
    parser.add_argument("--out", type=Path, default=Path("leaderboard.csv"))
    parser.add_argument("--summary", action="store_true", help="only print what is there")
    asked = parser.parse_args()
    if not asked.summary:
        tasks = missing(asked.out, asked.data, asked.methods, range(FIRST_SEED, FIRST_SEED + asked.seeds))
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            kept = asked.representations or Path(folder)
            kept.mkdir(parents=True, exist_ok=True)
            run(tasks, Setting(asked.epochs, asked.device, asked.quick, kept), asked.jobs, asked.out)
    found = summary(pd.read_csv(asked.out))
    print(found.to_string(index=False, float_format="{:.3f}".format, na_rep="–"), board(found), sep="\n\n")


if __name__ == "__main__":
    main()

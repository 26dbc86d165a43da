"""One front for all methods: accuracy against what is certified, for the same persons, columns and certificate.

    python benchmarks/fronts.py [--data Health Adult …] [--methods FairCells …] [--seeds 5] [--first-seed 200] [--quick]
                                [--settings 0.08 64 …] [--workers 1] [--attack] [--json FILE] [--figure FILE]

Every method ends in cells: its own, or those of a `Release` around it. Persons are parted 80/20 into those that are
fitted to and those that certify. Cells are counted on certification persons that nothing was fitted to or chosen by,
once with one random row of each person and once with random rows of the table. Methods without cells are cut into 8.

FARE's bound is its own certificate, which parts its rows in three. Neural methods are trained for 50 epochs (2 with
``--quick``), the baselines in batches of 256 at a rate of .001: shorter than their authors do. Published points of the
figure (Health) are other people's, with their own split and columns. ``--attack`` audits releases of the first seed.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.base import clone

from fairflows.attack.auditing import audit
from fairflows.bounds import cell_upper_bound, total_variation
from fairflows.encoder.base import Encoder, is_fitted, label_values, read_repeatable
from fairflows.encoder.fair_cells import FairCells
from fairflows.encoder.fair_flow import FairFlow
from fairflows.encoder.fair_tree import FairTree
from fairflows.exceptions import DataWarning
from fairflows.paper.baselines import FARE, FCRL, LAFTR, AdversarialForgetting, MaxEntARL, RawFeatures
from fairflows.paper.baselines.neural import NeuralBaseline
from fairflows.paper.datasets import load_compas, load_crime, load_health, load_law_school
from fairflows.paper.experiments.outcome import COLOURS, FIRST_SEED, in_processes, new_figure
from fairflows.paper.experiments.problems import cells_by_group, changed, labels_of
from fairflows.release.release import Release
from fairflows.steps import chosen_device
from fairflows.table.examples import load_adult
from fairflows.table.table import Table
from fairflows.tradeoff import count_labels, group_metrics

Unit = Literal["person", "row"]
DELTA = 0.05
QUICK_ROWS = 6000
TARGETS = (0.025, 0.03, 0.035, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1, 0.12, 0.14, 0.17, 0.2, 0.25, 0.3, 0.4)
LIMITS = (0.03, 0.045, 0.065, 0.08, 0.13, 0.2, 0.3)
DATA: dict[str, Callable[[], Table]] = {
    "Health": partial(load_health, features="all"),
    "Adult": load_adult,
    "Compas": load_compas,
    "Law School": load_law_school,
    "Crime": load_crime,
}
# On Health: accuracy, measured parity, certified where there is a certificate; rows as units.
PUBLISHED: dict[str, list[tuple[float, float, float | None]]] = {
    "FARE, published": [(0.807, 0.317, 0.614), (0.789, 0.255, 0.372), (0.759, 0.103, 0.213), (0.754, 0.094, 0.171),
                        (0.745, 0.078, 0.112)],
    "FNF, published": [(0.788, 0.412, None), (0.783, 0.285, None), (0.775, 0.212, None), (0.759, 0.092, None),
                       (0.758, 0.081, None)],
    "FCRL, published": [(0.818, 0.323, None), (0.7615, 0.1415, None), (0.739, 0.094, None)],
}  # fmt: skip


MEASURED = ("cells", "accuracy", "parity", "observed", "certified", "FARE's bound")


@dataclass(frozen=True)
class Parts:
    """A dataset split by person: rows to fit, rows to certify, and both laws of the latter."""

    fit: Table
    test: Table
    seed: int

    @staticmethod
    @lru_cache(maxsize=1)  # the tasks of a process follow each other by dataset and seed
    def of(name: str, seed: int, quick: bool) -> Parts:
        """Four fifths of the persons to fit to, one to certify with; few of either in a quick run."""
        table = DATA[name]()
        if quick and len(table) > QUICK_ROWS:
            chosen, _ = table.persons.split(1 - QUICK_ROWS / len(table), random_state=0)
            table = table.take(chosen)
        fit, test = table.split(validation=0, random_state=seed)
        return Parts(fit, test, seed)

    def counted(self, unit: Unit) -> Table:
        """Independent draws of the law that a certificate is about."""
        if unit == "person":
            return self.test.one_row_per_person(self.seed)
        return self.test.random_rows(self.seed, int(self.fit.persons.rows_each().max()))


def depends_on_unit(method: str) -> bool:
    """Whether a method is fitted differently for a random person and for a random row."""
    estimator, _ = methods(2, "person", True, "cpu")[method]
    return "unit" in estimator.get_params(deep=False)


def in_cells(encoder: Encoder) -> Release:
    """Return a release of eight cells of an encoder, fitted to all training persons."""
    return Release(encoder, n_cells=8, output="cell")


def all_strengths(estimator: Encoder, table: Table, strengths: Sequence[float], seed: int) -> list[Encoder]:
    """Fit an encoder of every strength, and a release around each where one is asked for."""
    if not isinstance(estimator, Release):
        return estimator.fit_path(table, strengths=strengths, seeds=[seed])
    encoders = all_strengths(estimator.encoder, table, strengths, seed)
    settings = {name: value for name, value in estimator.get_params(deep=False).items() if name != "encoder"}
    return [Release.around(e, table, **settings) if is_fitted(e) else e for e in encoders]


def methods(n_certify: int, unit: Unit, quick: bool, device: str) -> dict[str, tuple[Encoder, Sequence[float]]]:
    """Return every method, not fitted, and its strengths."""
    short = 2 if quick else 50
    # A small chance, so that targets near the radius are tried too: what is drawn is the certificate, not the target.
    with_attribute = FairCells(8, n_certify=n_certify, delta=DELTA, chance=0.1)
    settings = {"n_epochs": short, "batch_size": 256, "learning_rate": 1e-3, "device": device}
    neural: dict[str, tuple[NeuralBaseline, Sequence[float]]] = {
        "LAFTR": (LAFTR(), (0.5, 2.0, 8.0)),
        "MaxEnt-ARL": (MaxEntARL(), (1.0, 10.0, 50.0)),
        "Forgetting": (AdversarialForgetting(), (0.1, 1.0)),
        "FCRL": (FCRL(), (0.01, 0.1, 0.5, 1.0, 2.0)),
    }
    return {
        "FairCells": (with_attribute, TARGETS),
        "FairCells, 2 cells": (changed(with_attribute, n_cells=2), TARGETS),
        "FairCells, no attribute": (changed(with_attribute, attribute="training"), TARGETS),
        "FairCells, no attribute, 2 cells": (changed(with_attribute, attribute="training", n_cells=2), TARGETS),
        "FairTree": (FairTree(), (8, 16, 64, 256)),
        "FairFlow": (
            in_cells(FairFlow(n_epochs=short, device=device)),
            (0.02, 0.1, 0.5, 0.9),
        ),
        "FARE": (FARE(), (0.0, 0.5, 0.8, 0.9, 0.95)),
        **{name: (in_cells(changed(one, **settings)), strengths) for name, (one, strengths) in neural.items()},
        "raw features": (in_cells(RawFeatures()), (1.0,)),
    }


METHODS = tuple(methods(2, "person", True, "cpu"))


def measured(encoder: Encoder, parts: Parts, unit: Unit) -> dict[str, object]:
    """What a release keeps and what is certified of it, on certification persons."""
    rows = parts.counted(unit)
    counts, predicted = cells_by_group(encoder, rows), encoder.predict_rows(read_repeatable(encoder, rows))
    groups, y = rows.group_numbers(encoder.groups_), labels_of(rows)
    metrics = group_metrics(count_labels(label_values(encoder), y, predicted, groups, len(counts)))
    found: dict[str, object] = {
        "cells": counts.shape[1],
        "accuracy": float(metrics["accuracy"]),
        "parity": float(metrics["parity"]),
        "observed": float(total_variation(counts / counts.sum(axis=1, keepdims=True)).max()),
        "certified": float(cell_upper_bound(counts, DELTA)),
    }
    if isinstance(encoder, FARE):
        train, validation = parts.fit.split(test=0.2, validation=0, random_state=parts.seed)
        own = clone(encoder).fit(train)
        found["FARE's bound"] = own.own_upper_bound(train, validation, rows, DELTA)
    return found


@dataclass(frozen=True)
class Task:
    """One method on one split of a dataset: what runs side by side with others."""

    data: str
    method: str
    seed: int
    quick: bool = False
    device: str = "cpu"
    settings: tuple[float, ...] | None = None  # only these
    attacked: bool = False


def measure(task: Task) -> list[dict[str, object]]:
    """Every release of the method, by person and by row."""
    parts, method = Parts.of(task.data, task.seed, task.quick), task.method
    units: tuple[Unit, ...] = ("person",) if task.quick else ("person", "row")
    rows, fitted = [], list[Encoder]()
    for unit in units:
        estimator, strengths = methods(parts.test.persons.n, unit, task.quick, task.device)[method]
        if not fitted or depends_on_unit(method):
            fitted = all_strengths(estimator, parts.fit, strengths, task.seed)
        for setting, encoder in zip(strengths, fitted, strict=True):
            if not is_fitted(encoder) or (task.settings is not None and setting not in task.settings):
                continue
            row = {"data": task.data, "method": method, "unit": unit, "setting": float(setting), "seed": task.seed}
            row |= measured(encoder, parts, unit)
            if task.attacked and unit == "row" and setting in ATTACK_AT.get(method, ()):
                found = audit(encoder, parts.fit, parts.test, quick=task.quick)
                row |= {"attack ≥": found.attack_lower, "by": found.best}
            rows.append(row)
    return rows


def measure_all(tasks: Sequence[Task], n_jobs: int) -> pd.DataFrame:
    """Every release of every task, tasks side by side in processes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        found = in_processes(measure, tasks, n_jobs)
    return pd.DataFrame([row for rows in found for row in rows])


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds, and the range of accuracy and certificate."""
    keys = ["data", "unit", "method", "setting"]
    by = rows.groupby(keys, sort=False)
    found = by[[name for name in MEASURED if name in rows]].mean()
    for column in ("accuracy", "certified"):
        found[f"{column} range"] = [f"{low:.3f}–{high:.3f}" for low, high in by[column].agg(["min", "max"]).to_numpy()]
    found["seeds"] = by.size()
    return found.reset_index()


def of_all_seeds(summarised: pd.DataFrame) -> pd.DataFrame:
    """Settings that every seed could keep: a target that only lucky seeds reach has no fair mean."""
    return summarised[summarised["seeds"] == summarised["seeds"].max()]


def best_within(summarised: pd.DataFrame, limits: Sequence[float]) -> pd.DataFrame:
    """The highest mean accuracy of each method at a mean certificate within each limit, of settings that all have."""
    rows = []
    for (data, unit, method), part in of_all_seeds(summarised).groupby(["data", "unit", "method"], sort=False):
        best = {f"≤ {limit}": part.loc[part["certified"] <= limit, "accuracy"].max() for limit in limits}
        rows.append({"data": data, "unit": unit, "method": method, **best})
    return pd.DataFrame(rows)


ATTACK_AT = {
    "FairTree": (64,),
    "FairCells": (0.08, 0.2),
    "FairCells, no attribute": (0.08, 0.2),
    "FairFlow": (0.9,),
    "FARE": (0.8,),
}
"""Settings that are audited."""


def front_figure(table: pd.DataFrame) -> Figure:
    """Accuracy against the certificate, and against measured parity: one row of panels per dataset."""
    names = list(dict.fromkeys(table["data"]))
    figure, axes = new_figure(2, len(names), width=5.2, height=3.6)
    more_colours = ("#999999", "#000000", "#AA4499", "#882255", "#44AA99", "#DDCC77", "#332288")
    colours = dict(zip(METHODS, (*COLOURS, *more_colours), strict=False))
    shown = {"certified": "certified Δ ≤", "parity": "parity, measured"}
    part = of_all_seeds(table)[lambda of_all: of_all["unit"] == table["unit"].iloc[0]]
    for line, name in zip(axes, names, strict=True):
        for ax, (measure, title) in zip(line, shown.items(), strict=True):
            for method, own in part[part["data"] == name].groupby("method", sort=False):
                own = own.sort_values(measure)
                ax.plot(own[measure], own["accuracy"], "o-", ms=3, lw=1, color=colours[str(method)], label=str(method))
            if name == "Health":
                _draw_published(ax, measure)
            ax.set(xlabel=title, ylabel="accuracy", title=name)
    drawn = {str(line.get_label()): line for ax in axes.ravel() for line in ax.get_lines()}
    figure.legend(list(drawn.values()), list(drawn), loc="outside lower center", ncols=4, fontsize=7)
    return figure


def _draw_published(ax: Axes, measure: str) -> None:
    place = {"certified": 2, "parity": 1}[measure]
    for marker, (name, published) in zip("xv^s", PUBLISHED.items(), strict=False):
        drawn = [(told, point[0]) for point in published if (told := point[place]) is not None]
        if drawn:
            ax.plot(*np.transpose(drawn), marker, color="grey", ms=4, label=name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--quick", action="store_true", help="6,000 rows, few epochs, by person alone")
    parser.add_argument("--settings", nargs="+", type=float, help="only these targets, strengths or numbers of cells")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--attack", action="store_true")
    parser.add_argument("--json", type=Path, help="write every number to this file")
    parser.add_argument("--figure", type=Path, help="draw the fronts to this file")
    asked = parser.parse_args()
    device, settings = str(chosen_device(asked.device)), tuple(asked.settings) if asked.settings else None
    tasks = [
        Task(name, method, asked.first_seed + i, asked.quick, device, settings, attacked=asked.attack and i == 0)
        for name in asked.data
        for i in range(asked.seeds)
        for method in asked.methods
    ]
    table = measure_all(tasks, asked.workers)
    summarised = summary(table)
    print(summarised.to_string(index=False, float_format="{:.3f}".format))
    print(best_within(summarised, LIMITS).to_string(index=False, float_format="{:.3f}".format, na_rep="–"))
    if "attack ≥" in table:
        columns = ["data", "method", "setting", "certified", "attack ≥", "by"]
        print(table.dropna(subset="attack ≥")[columns].to_string(index=False, float_format="{:.3f}".format))
    if asked.json:
        asked.json.write_text(table.to_json(orient="records", indent=1))
    if asked.figure:
        front_figure(summarised).savefig(asked.figure, dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    main()

"""What a report says about a model, as plain values."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Hashable, Mapping
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from joblib import Parallel, delayed
from sklearn.decomposition import PCA

from fairflows.attack.auditing import Audit
from fairflows.bounds.cells import FEWEST_PERSONS
from fairflows.certificate.certificate import Certificate
from fairflows.encoder.base import Encoder
from fairflows.encoder.labels import is_continuous
from fairflows.exceptions import DataError, DataWarning
from fairflows.frontiers.selection import Candidate, Target
from fairflows.frontiers.sweep import NAMES
from fairflows.metrics import count_labels, group_metrics
from fairflows.release.crossfit import CrossFit
from fairflows.release.partitions import NumericView
from fairflows.release.released import Released, repeatable_persons
from fairflows.resources import one_thread
from fairflows.table.columns import is_number
from fairflows.table.frames import to_pandas
from fairflows.table.table import Table
from fairflows.tradeoff import Frontier
from fairflows.usefulness import StillTells, boosted_prediction

_MOST_POINTS, _MOST_MATCHES, _BINS = 800, 2_000, 16
_NOT_SHOWN = ("key", "kinds", "progress", "encoder", "release")


def report_contents(
    model: Any,
    table: Table,
    certificate: Certificate,
    *,
    audit: Audit | None = None,
    before: Audit | None = None,
    tells: StillTells | None = None,
    train: Table | None = None,
    encoded: tuple[pd.DataFrame, pd.DataFrame] | None = None,
    frontier: dict[str, Any] | None = None,
    recourse: Any = None,
    settings: dict[str, Any] | None = None,
    split: str = "",
) -> dict[str, Any]:
    """Everything that `Report` prints, computed on the held-out rows of `table`; nothing but JSON values.

    `encoded` is what was released of the rows of `train` and of `table`, where the model need not be asked again.
    """
    released_model = Released.of(model)
    sample = table.one_row_per_person(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # said when the rows were encoded
        points: dict[str, Any] = {"points": None, "bins": None}
        if released_model.n_cells is None:
            points = _latent(released_model.encode_again(sample), sample)
        contents = {
            "made": date.today().isoformat(),
            "certificate": certificate.to_dict(),
            "audit": None if audit is None else audit.to_dict(),
            "before": None if before is None else _raw_attack(before),
            "tells": None if tells is None else tells.to_dict(),
            "frontier": frontier,
            "data": _data(table, split, [] if encoded is not None else _unknown(released_model, table)),
            "metrics": _metrics(released_model, train, sample if encoded is None else table, encoded),
            "cells": _cells(certificate, sample.group_names),
            **points,
            "densities": _densities(released_model.innermost, audit),
            "matches": _matches(released_model.innermost, sample),
            "recourse": None if recourse is None else recourse_contents(recourse),
            "settings": {name: str(value) for name, value in (settings or settings_of(model)).items()},
        }
    return contents


def _raw_attack(before: Audit) -> dict[str, Any]:
    """What adversaries reach on the raw rows, as far as they were tried: no bound, since better ones may exist."""
    best = max(before.attacks, key=lambda attack: attack.validation)
    return {"adversary": best.name, "balanced_accuracy": 0.5 * (1 + best.validation)}


def settings_of(model: Any) -> dict[str, str]:
    """The settings of a model that are not the defaults; never the key."""
    steps = [model.models_[0], model] if isinstance(model, CrossFit) else [model]
    encoder = Released.of(steps[0]).innermost
    if encoder is not None and encoder is not steps[0]:
        steps.insert(0, encoder)
    found = {}
    for step in steps:
        defaults = inspect.signature(type(step)).parameters
        given = {name: v for name, v in step.get_params(deep=False).items() if name not in _NOT_SHOWN}
        changed = [f"{name} = {v!r}" for name, v in given.items() if repr(v) != repr(defaults[name].default)]
        found[type(step).__name__] = ", ".join(changed) or "as by default"
    return found


def _data(table: Table, split: str, unknown: list[str]) -> dict[str, Any]:
    summary = table.summary()
    rates = [name for name in summary if name.startswith("P(")]
    columns = table.columns().reset_index(names="name")[["name", "kind", "values", "missing", "range"]]
    return {
        "name": table.name,
        "rows": len(table),
        "sensitive": str(table.a.name),
        "label": None if table.y is None else str(table.y.name),
        "split": split,
        "group_names": {str(group): str(table.group_names.get(group, group)) for group in table.groups},
        "groups": [
            {
                "name": str(table.group_names.get(group, group)),
                "rows": int(row["rows"]),
                "share": float(row["share"]),
                "rates": [float(row[name]) for name in rates],
            }
            for group, row in summary.iterrows()
        ],
        "rate_names": rates,
        "columns": columns.astype({"name": str, "range": str}).to_dict("records"),
        "notes": [*table.notes, *unknown],
    }


def _unknown(model: Released, table: Table) -> list[str]:
    """How many rows of each group hold values that could not be brought back into the fitted domain."""
    encoder = model.encoder
    if encoder is None or model.kept_counts(table) is not None:  # rows that were released once are not encoded again
        return []
    rows = encoder.read(table, None, repeatable_persons(table))
    encoder.encode(rows)
    counts = rows.count_unknown([str(table.group_names.get(group, group)) for group in encoder.groups_])
    if not any(counts.values()):
        return []
    shown = ", ".join(f"{group}: {count:,}" for group, count in counts.items())
    return [f"rows with values that the training rows did not have take one map, the same for every group ({shown})"]


def _metrics(
    model: Released, train: Table | None, test: Table, encoded: tuple[pd.DataFrame, pd.DataFrame] | None
) -> dict[str, Any] | None:
    """How a classifier of the rows themselves, and one of what is released, treat the groups."""
    if train is None or train.y is None or is_continuous(train.y):
        return None
    labels, groups = train.labels, train.groups
    guesses = [
        delayed(boosted_prediction)(train.X, np.asarray(train.y), test.X, 0),
        delayed(model.predict)(test) if encoded is None else delayed(_predicted)(model, encoded, train.y),
    ]
    with one_thread():
        before, after = Parallel(n_jobs=2, prefer="threads")(guesses)
    sides, overall = {}, {}
    for side, predicted in (("before", before), ("after", after)):
        counts = count_labels(labels, np.asarray(test.y), predicted, test.group_numbers(groups), len(groups))
        with np.errstate(invalid="ignore"):  # of a group without rows nothing is known
            share = counts / counts.sum(axis=(1, 2), keepdims=True)
        by_group = {"rates": share[:, :, -1].sum(axis=1), "accuracy": np.trace(share, axis1=1, axis2=2)}
        sides[side] = {name: [_number(value) for value in values] for name, values in by_group.items()}
        overall[side] = {name: _number(value) for name, value in group_metrics(counts).items()}
    names = {
        "accuracy": "accuracy",
        "balanced_accuracy": "accuracy, all groups counting alike",
        "parity": "demographic parity difference",
        "odds": "equalized odds difference",
        "opportunity": "equal opportunity difference",
    }
    return {
        "groups": [str(test.group_names.get(group, group)) for group in groups],
        "positive": f"{test.y.name} = {labels[-1]}" if test.y is not None else "",
        "before": sides["before"],
        "after": sides["after"],
        "overall": [
            {
                "name": text,
                "before": overall["before"][name],
                "after": overall["after"][name],
                "worse": _is_worse(name, overall["before"][name], overall["after"][name]),
            }
            for name, text in names.items()
        ],
        "caption": "Before: gradient boosting on the rows themselves, without the sensitive column. After: "
        + ("the label that the release suggests" if encoded is None else "the same on what is released")
        + f". Measured on {len(test):,} rows of other persons.",
    }


def _is_worse(name: str, before: float | None, after: float | None) -> bool:
    """Whether a metric got worse: a lower accuracy, or a larger difference between groups."""
    if before is None or after is None:
        return False
    return after < before if "accuracy" in name else after > before


def _predicted(model: Released, encoded: tuple[pd.DataFrame, pd.DataFrame], y: pd.Series) -> np.ndarray:
    """The label that boosted trees learn from released rows, and predict for others."""
    learnt, (fit, judged) = model.label_to_learn(y, encoded)
    if list(fit) == ["cell"]:  # a number without an order: the most frequent label of the cell
        labels, codes = np.unique(np.asarray(learnt), return_inverse=True)
        counts = np.zeros((1 + max(fit["cell"].max(), judged["cell"].max()), len(labels)))
        np.add.at(counts, (fit["cell"], codes), 1)
        return np.asarray(labels[counts.argmax(axis=1)][judged["cell"]])
    return boosted_prediction(fit, np.asarray(learnt), judged, 0)


def _cells(certificate: Certificate, group_names: Mapping[Hashable, str]) -> dict[str, Any] | None:
    """Shares of the cells in every group, from the counts that the certificate prints.

    Other counts beside them, merged in another way, would tell those that are merged there.
    """
    statement = certificate.headline
    if statement is None:
        return None
    labels = list(certificate.cell_odds_upper) if "label" in certificate.released else [""]
    names: list[str] = []
    counts: dict[str, list[int]] = {group: [] for group in statement.n}
    for number, fold in enumerate(statement.counts, start=1):
        part = f"{number}: " if len(statement.counts) > 1 else ""
        pairs = (divmod(cell, len(labels)) for cell in fold.cells)
        names += [f"{part}{cell} · {labels[j]}" if labels[j] else f"{part}{cell}" for cell, j in pairs]
        names += [f"{part}merged"] if any(fold.merged.values()) else []
        for group, row in counts.items():
            row += [*fold.counts[group], *([fold.merged[group]] if any(fold.merged.values()) else [])]
    if len(names) == 1:
        return None
    known = {str(group): str(name) for group, name in group_names.items()}
    return {
        "names": names,
        "shares": {
            known.get(group, group): [count / max(1, statement.n[group]) for count in row]
            for group, row in counts.items()
        },
        "caption": "Cells by number. Where the bars of the groups are equally long, the cell tells nothing. Cells with "
        f"fewer than {FEWEST_PERSONS} people of a group are merged. {sum(statement.n.values()):,} held-out persons.",
    }


def _latent(released: pd.DataFrame, sample: Table) -> dict[str, Any]:
    """Encoded rows along their two main directions: dots for the producer, bins for the public."""
    features = NumericView.fit(released, None, 0).features(released)
    if features.shape[1] == 1:
        features = np.column_stack([features, np.zeros(len(features))])
    plane = PCA(2, random_state=0).fit(features[:20_000]).transform(features)
    edges = [np.linspace(*_range(plane[:, j]), _BINS + 1) for j in range(2)]
    rng, binned, points = np.random.default_rng(0), [], []
    for group in sorted(set(sample.a), key=str):
        name, mine = str(sample.group_names.get(group, group)), np.flatnonzero(sample.a == group)
        counts = np.histogram2d(plane[mine, 0], plane[mine, 1], bins=(edges[0], edges[1]))[0]
        shares = np.where(counts >= FEWEST_PERSONS, counts, 0) / len(mine)
        binned.append({"name": name, "shares": shares.round(6).tolist()})
        points.append({"name": name, "points": plane[rng.permutation(mine)[:_MOST_POINTS]].round(4).tolist()})
    caption = f"Share of each group by bin along two main directions; bins of fewer than {FEWEST_PERSONS} are empty."
    bins = {"groups": binned, "x_edges": edges[0].tolist(), "y_edges": edges[1].tolist(), "caption": caption}
    return {"points": points, "bins": bins}


def _range(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """From the first to the last half percent, so that one far point does not shrink the picture."""
    low, high = np.quantile(values, [0.005, 0.995])
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _densities(encoder: Encoder | None, audit: Audit | None) -> dict[str, Any] | None:
    likelihood = None if encoder is None else encoder.held_out_log_likelihood_
    gaps = {} if audit is None else audit.density_gap_lower
    if encoder is None or (likelihood is None and not gaps):
        return None
    groups = [
        {
            "name": str(group),
            "gap": gaps.get(str(group)),
            "log_likelihood": None if likelihood is None else float(likelihood[a]),
        }
        for a, group in enumerate(encoder.groups_)
    ]
    return {
        "groups": groups,
        "caption": "A classifier tried to tell real rows from rows drawn from the estimated density. What it reached "
        "is a lower bound on how far the density is from the truth, and on the error of the model-based bound.",
    }


def _matches(encoder: Encoder | None, sample: Table) -> dict[str, Any] | None:
    """How far each feature is, on average, between a row and the row of another group with the same representation."""
    if encoder is None or not encoder.is_invertible:
        return None
    few = sample.take(np.arange(min(len(sample), _MOST_MATCHES)))
    group = few.group_numbers(encoder.groups_)
    other = [encoder.groups_[(a + 1) % len(encoder.groups_)] for a in group]
    try:
        match = to_pandas(encoder.inverse_transform(encoder.transform(few), sensitive_features=other))
    except DataError:  # coins that nobody can repeat
        return None
    columns = []
    for name in match:
        one, two = few.X[name].reset_index(drop=True), match[name].reset_index(drop=True)
        if is_number(one.dtype) and is_number(two.dtype):
            spread = float(one.std()) or 1.0
            moved = float((one.astype(float) - two.astype(float)).abs().mean()) / spread
        else:
            moved = float((one.astype(str) != two.astype(str)).mean())
        columns.append({"name": str(name), "moved": moved})
    return {
        "columns": columns,
        "measure": "standard deviations, or share that changes",
        "caption": "A person and her match have the same representation: whoever sees it cannot say which of the two "
        f"it is. Mean over {len(few):,} held-out persons, each matched to the next group: how far numbers move, in "
        "standard deviations, and which share of the categories changes.",
    }


def recourse_contents(found: Any) -> dict[str, Any]:
    """What recourse says, by group."""
    summary = found.summary().reset_index()
    rows = [[_shown(value) for value in row] for row in summary.itertuples(index=False)]
    return {
        "names": [str(name) for name in summary],
        "rows": rows,
        "caption": "What rejected rows would have to change to be accepted, by group.",
    }


def _number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def candidates_contents(candidates: list[Candidate], chosen: Candidate, goal: Target) -> dict[str, Any] | None:
    """For every encoder its best number of cells: the highest use at each point of the frontier."""
    points = []
    for candidate in candidates:
        use = candidate.accuracy if candidate.accuracy is not None else candidate.n_cells
        if use is None:
            continue
        points.append(
            {
                "method": candidate.method,
                "gamma": candidate.gamma,
                "x": candidate.expected,
                "y": float(use),
                "chosen": candidate is chosen,
            }
        )
    if len(points) < 2:
        return None  # nothing was traded off
    points = _upper_left(points)
    has_cells = chosen.n_cells is not None
    return {
        "points": points,
        "x": f"{goal.name} to expect" if has_cells else f"{goal.name} by the model",
        "y": "accuracy" if chosen.accuracy is not None else "cells",
        "target": goal.limit,
        "caption": ("Each point is an encoder with a number of cells; those that another beats in both are left out. "
                    if has_cells else "Each point is an encoder. ")
        + "Judged on validation persons, before the certifying ones were looked at.",
    }  # fmt: skip


def frontier_contents(front: Frontier, model: Any) -> dict[str, Any] | None:
    """Every encoder of a frontier as it is, with the one that is in the model marked."""
    measured = front.measured
    if "accuracy" not in measured:
        return None
    encoder = Released.of(model).innermost
    points = [
        {
            "method": NAMES.get(type(e).__name__, type(e).__name__),
            "gamma": row["strength"],
            "x": row["delta"],
            "y": row["accuracy"],
            "chosen": e is encoder,
            "text": f"{row['strength']:g}",
        }
        for e, row in zip(front.encoders, measured.to_dict("records"), strict=True)
        if np.isfinite(row["delta"])
    ]
    caption = "Each point is an encoder; Δ is by its own densities, the accuracy on held-out rows."
    return {"points": points, "x": "Δ by the model", "y": "accuracy", "target": None, "caption": caption}


def _upper_left(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each method's points, those that no other of it beats in both; the chosen one stays in any case."""
    kept = []
    for method in dict.fromkeys(point["method"] for point in points):
        best = -np.inf
        for point in sorted((p for p in points if p["method"] == method), key=lambda p: (p["x"], -p["y"])):
            if point["y"] > best or point["chosen"]:
                best = max(best, point["y"])
                kept.append(point)
    return kept

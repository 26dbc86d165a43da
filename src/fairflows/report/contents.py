"""Compute the contents of a report about a model, as plain values: nothing but JSON."""

from __future__ import annotations

import inspect
import warnings
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from fairflows.attack.auditing import Audit
from fairflows.certificate.certificate import Certificate
from fairflows.encoder.labels import is_continuous
from fairflows.exceptions import DataWarning
from fairflows.metrics import count_labels, group_metrics
from fairflows.release.release import Release
from fairflows.release.released import Released, repeatable_persons
from fairflows.report.page import Contents
from fairflows.table.table import Table
from fairflows.threads import one_thread
from fairflows.usefulness import StillTells, boosted_prediction

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
    split: str = "",
) -> Contents:
    """Compute what `Report` prints, on the held-out rows of `table`.

    Parameters
    ----------
    model : encoder or pipeline
        The fitted model.
    table : Table
        Held-out rows.
    certificate : Certificate
        Certificate of the model.
    audit, before : Audit, default=None
        Attacks on the release, and on the raw rows.
    tells : StillTells, default=None
        How well each column is predicted from the released rows.
    train : Table, default=None
        Training rows, for group metrics before and after.
    encoded : pair of DataFrame, default=None
        The release of the rows of `train` and of `table`, where the model need not be asked again.
    split : str, default=""
        A sentence about the parts of the rows.
    """
    view = Released.of(model)
    sample = table.one_row_per_person(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # said when the rows were encoded
        return {
            "made": date.today().isoformat(),
            "certificate": certificate.to_dict(),
            "audit": None if audit is None else audit.to_dict(),
            "before": None if before is None else _raw_attack(before),
            "tells": None if tells is None else tells.to_dict(),
            "data": _data(table, split, [*([] if encoded is not None else _unknown(view, table)), *_computed(model)]),
            "metrics": _metrics(view, train, sample if encoded is None else table, encoded),
            "settings": settings_of(model),
        }


def _computed(model: Any) -> list[str]:
    """Say which columns of shared rows follow from others, and which rules they keep."""
    if not isinstance(model, Release):
        return []
    notes = [f"Computed instead of drawn: {text}." for text in model.derived]
    return notes + [f"True in every shared row: {rule}." for rule in model.rules]


def _raw_attack(before: Audit) -> Contents:
    """Return what adversaries reach on the raw rows: not a bound, since better adversaries may exist."""
    best = max(before.attacks, key=lambda attack: attack.validation)
    return {"adversary": best.name, "balanced_accuracy": 0.5 * (1 + best.validation)}


def settings_of(model: Any) -> dict[str, str]:
    """Return the settings of a model that are not the defaults; never the key."""
    steps = [model]
    if "encoder" in model.get_params(deep=False):  # of a release: its own settings, and those of its encoder
        steps.insert(0, model.models_[0].encoder)
    found = {}
    for step in steps:
        defaults = inspect.signature(type(step)).parameters
        given = {name: v for name, v in step.get_params(deep=False).items() if name not in _NOT_SHOWN}
        changed = [f"{name} = {v!r}" for name, v in given.items() if repr(v) != repr(defaults[name].default)]
        found[type(step).__name__] = ", ".join(changed) or "as by default"
    return found


def _data(table: Table, split: str, unknown: list[str]) -> Contents:
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
    """Count the rows of each group with values that could not be brought back into the fitted domain."""
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
) -> Contents | None:
    """Measure how a classifier of the original rows, and one of the release, treat the groups."""
    if train is None or train.y is None or is_continuous(train.y):
        return None
    labels, groups = train.labels, train.groups
    guesses = [
        delayed(boosted_prediction)(train.X, np.asarray(train.y), test.X, 0),
        delayed(model.predict)(test) if encoded is None else delayed(_predicted)(model, encoded, train.y),
    ]
    with one_thread():
        before, after = Parallel(n_jobs=2, prefer="threads")(guesses)
    sides, overall = [], {}
    for side, predicted in (("before", before), ("after", after)):
        counts = count_labels(labels, np.asarray(test.y), predicted, test.group_numbers(groups), len(groups))
        with np.errstate(invalid="ignore"):  # of a group without rows nothing is known
            share = counts / counts.sum(axis=(1, 2), keepdims=True)
        sides.append([share[:, :, -1].sum(axis=1), np.trace(share, axis1=1, axis2=2)])
        overall[side] = {name: _number(value) for name, value in group_metrics(counts).items()}
    names = {
        "accuracy": "accuracy",
        "balanced_accuracy": "accuracy, all groups counting alike",
        "parity": "demographic parity difference",
        "odds": "equalized odds difference",
        "opportunity": "equal opportunity difference",
    }
    return {
        "groups": [
            {
                "name": str(test.group_names.get(group, group)),
                "values": [_number(side[kind][a]) for kind in (0, 1) for side in sides],  # rates, then accuracies
            }
            for a, group in enumerate(groups)
        ],
        "positive": f"{test.y.name} = {labels[-1]}" if test.y is not None else "",
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
    """Learn the label from released rows by boosted trees, and predict it for others."""
    learnt, (fit, judged) = model.label_to_learn(y, encoded)
    if list(fit) == ["cell"]:  # a number without an order: the most frequent label of the cell
        labels, codes = np.unique(np.asarray(learnt), return_inverse=True)
        counts = np.zeros((1 + max(fit["cell"].max(), judged["cell"].max()), len(labels)))
        np.add.at(counts, (fit["cell"], codes), 1)
        return np.asarray(labels[counts.argmax(axis=1)][judged["cell"]])
    return boosted_prediction(fit, np.asarray(learnt), judged, 0)


def _number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)

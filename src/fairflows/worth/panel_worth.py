"""How much shared histories are like real ones: lengths, steps in time, changes from row to row, the next row."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import r2_score, roc_auc_score

from fairflows.encoder.base import Model
from fairflows.exceptions import DataWarning
from fairflows.table.columns import floats, has_order, is_continuous, missing, numbers
from fairflows.table.panels import PERSON, Panels
from fairflows.table.persons import Places
from fairflows.threads import one_thread
from fairflows.worth.coding import Coded, IntArray, tree_features
from fairflows.worth.label_worth import BOOSTING
from fairflows.worth.likeness import variation

_VARIES = 0.001  # share of the rows in which a column differs from the row before, to be compared
_FEWEST = 30  # rows with a row before, to be compared
_LEARNT = 50_000  # rows that a model of the next row learns from
_BINS = (20, 63)


@dataclass(frozen=True)
class PanelWorth:
    """How much shared histories are like real ones.

    A pair of distances is that of the shared ones, and that of real ones of other persons, which differ by chance. A
    pair of other numbers is that of the real ones, and of the shared ones.
    """

    lengths: tuple[float, float]  # total variation between the numbers of rows of a person
    steps: tuple[float, float] | None = None  # and between the steps in time from row to row; None without a time
    unchanged: dict[str, tuple[float, float]] | None = None  # share of rows that have the value of the row before
    autocorrelation: dict[str, tuple[float, float]] | None = None  # of ranks of a number with those in the row before
    # AUC of the next row's label, or R² of a number, given the row before, on real rows of other persons: of a model
    # that learnt from shared rows, and from real ones.
    next_label: tuple[float, float] | None = None


def panel_worth(model: Model, learn: Panels, judge: Panels, seed: int) -> PanelWorth:
    """Compare the histories that a release draws for the persons it was fitted to with theirs, and with others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # these persons keep their cells
        drawn = model.draw(model.cells(model.read(learn)))
    time, label = learn.form.time, None if learn.rows.y is None else str(learn.rows.y.name)
    real, others = (_Steps.of(_whole(part), part.owner, time) for part in (learn, judge))
    shared = _Steps.of(drawn.drop(columns=PERSON), drawn[PERSON].to_numpy() - 1, time)
    sizes = [
        pd.Series(np.bincount(owner, minlength=n))
        for owner, n in ((learn.owner, len(learn)), (shared.owner, len(learn)), (judge.owner, len(judge)))
    ]
    lengths = _apart(sizes[0], sizes[1]), _apart(sizes[0], sizes[2])
    if time is None or min(len(real.now), len(shared.now), len(others.now)) < _FEWEST:
        return PanelWorth(lengths)
    steps = [pd.Series(numbers(part.now[time]) - numbers(part.before[time])) for part in (real, shared, others)]
    same = {name: (real.unchanged(name), shared.unchanged(name)) for name in real.now if name != time}
    varies = {str(name): both for name, both in same.items() if both[0] < 1 - _VARIES}
    ordered = [name for name in varies if has_order(real.now[name].dtype)]
    lags = {name: (real.autocorrelation(name), shared.autocorrelation(name)) for name in ordered}
    return PanelWorth(
        lengths,
        (_apart(steps[0], steps[1]), _apart(steps[0], steps[2])),
        varies,
        {name: both for name, both in lags.items() if not np.isnan(both).any()},
        None if label is None else _next_label(label, (shared, real), others, seed),
    )


@dataclass(frozen=True)
class _Steps:
    """Rows that have a row before, and the rows before them."""

    now: pd.DataFrame
    before: pd.DataFrame
    owner: Places  # of all rows

    @classmethod
    def of(cls, rows: pd.DataFrame, owner: Places, time: str | None) -> _Steps:
        order = np.argsort(owner, kind="stable") if time is None else np.lexsort([numbers(rows[time]), owner])
        rows = rows.iloc[order].reset_index(drop=True)
        later = np.flatnonzero(np.diff(owner[order], prepend=-1) == 0)
        return cls(rows.iloc[later].reset_index(drop=True), rows.iloc[later - 1].reset_index(drop=True), owner)

    def unchanged(self, name: Any) -> float:
        """Return the share of rows in which a column has the value of the row before; two gaps are equal."""
        now, before = self.now[name], self.before[name]
        equal = (now == before).fillna(False).to_numpy(dtype=bool)
        return float((equal | (missing(now) & missing(before))).mean())

    def autocorrelation(self, name: Any) -> float:
        """Return the rank correlation of a number with itself in the row before; NaN where it is always the same.

        Ranks, because the correlation of a number with few large values is that of the persons who have them.
        """
        both = pd.DataFrame({"now": floats(self.now[name]), "before": floats(self.before[name])}).dropna().rank()
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(both["now"].corr(both["before"]))


def _whole(panels: Panels) -> pd.DataFrame:
    """Return all columns of the rows behind persons."""
    rows = panels.rows
    return rows.X.assign(**{str(name): label for name, label in rows.label_columns().items()}).reset_index(drop=True)


def _apart(real: pd.Series, other: pd.Series) -> float:
    """Return the total variation between two columns, of numbers between bins."""
    coded = Coded.of(real, other, _BINS)
    return variation(coded.train[:, None], coded.test[:, None])


def _next_label(label: str, learnt: tuple[_Steps, _Steps], judged: _Steps, seed: int) -> tuple[float, float] | None:
    """Learn the next row's label from the row before, in shared and in real rows; judge both on other persons."""
    names, truth, found = list(learnt[1].before), judged.now[label], list[float]()
    for steps in learnt:
        some = np.random.default_rng(seed).permutation(len(steps.now))[:_LEARNT]
        (X, asked), categories = tree_features(steps.before[names].iloc[some], judged.before[names])
        settings = {**BOOSTING, "categorical_features": categories, "random_state": seed}
        y = steps.now[label].iloc[some]
        with one_thread():
            if is_continuous(learnt[1].now[label]):
                model = HistGradientBoostingRegressor(**settings).fit(X, floats(y))
                found.append(float(r2_score(floats(truth), model.predict(asked))))
                continue
            classes, codes = np.unique(y.astype(str), return_inverse=True)
            if len(classes) < 2:
                return None
            scores = HistGradientBoostingClassifier(**settings).fit(X, codes).predict_proba(asked)
        found.append(_mean_auc(truth.astype(str).to_numpy(), classes, scores))
    return None if np.isnan(found).any() else (found[0], found[1])


def _mean_auc(truth: IntArray, classes: Any, scores: Any) -> float:
    """Return the mean over the classes of how well scores rank a class above the others."""
    places = [place for place, name in enumerate(classes) if 0 < np.mean(truth == name) < 1]
    return float(np.mean([roc_auc_score(truth == classes[place], scores[:, place]) for place in places]))

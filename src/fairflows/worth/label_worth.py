"""What a shared table is worth for predicting a label: to train on, and to decide by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import roc_auc_score

from fairflows.bounds.spending import best_rates
from fairflows.encoder.label import Label
from fairflows.table.columns import floats, places_in
from fairflows.table.table import Table
from fairflows.threads import one_thread
from fairflows.worth.coding import FloatArray, tree_features

_MOST_ROWS = 20_000  # that a prospect is estimated from
BOOSTING: dict[str, Any] = {"max_iter": 60, "learning_rate": 0.15}
# A round grows a tree for each of more than two classes: more classes have fewer rounds, which tell as much.
_MOST_TREES, _FEWEST_ROUNDS = 240, 10

RULES = {
    "raw": "learnt from raw rows, asked about raw rows",
    "trained": "learnt from shared rows, asked about raw rows",
    "score": "the score of the shared row",
    "row": "learnt from shared rows, asked about shared rows",
}
"""Ways to predict the label, by their short names."""


@dataclass(frozen=True)
class JudgedRule:
    """Quality of one way to predict the label, on persons that were not learnt from."""

    right: float  # the share that is right; of a number R², the share of the variance that is explained
    auc: float | None  # how well scores rank a class above the others, mean over the classes; None for a number
    error: float | None  # the mean distance of a number from the truth; None for classes
    gap: float  # largest difference between groups in how often a class is predicted; of numbers of means, in sd
    gap_chance: float  # by how much chance moves this difference, at 95 %


@dataclass(frozen=True)
class LabelWorth:
    """Worth of a shared table for predicting a label."""

    name: str
    classes: tuple[str, ...]  # none for a number
    blind: float  # the share that is right by a blind guess; of a number the mean distance from its median
    rules: dict[str, JudgedRule]  # by the names of `RULES`
    best: dict[str, float]  # by Δ: what the best release within it reaches, for two classes; for a number at Δ = 0


def label_worth(
    name: str, learn: Table, judge: Table, rows: tuple[pd.DataFrame, pd.DataFrame], distance: float, seed: int
) -> LabelWorth | None:
    """Measure a label; return None where the judged rows, or the drawn ones, have a class that is new."""
    own = learn.label_columns()[name]
    label = Label.read(own, len(learn))
    truth, drawn = (_coded(label, column) for column in (judge.label_columns()[name], rows[0].get(name, own)))
    if label.classes is not None and min(truth.min(), drawn.min()) < 0:
        return None
    with one_thread():
        return _LabelRows(label, truth, drawn, name, learn, judge, rows).measured(distance, seed)


@dataclass(frozen=True)
class LabelProspect:
    """What a table could be worth for a label of two classes, before anything is shared."""

    blind: float  # the share that is right by a blind guess
    raw: float  # the share that is right of trees that learnt from original rows
    best: dict[str, float]  # by Δ: the share that is right of the best that any table within it could give


def label_prospect(table: Table, name: str, distances: Sequence[float], seed: int = 0) -> LabelProspect | None:
    """Estimate the best that any table within each Δ could give for a label; None unless it has two classes."""
    known = table.take(table.label_columns()[name].notna().to_numpy())
    some = known.take(np.random.default_rng(seed).permutation(len(known))[:_MOST_ROWS])
    learn, judge = some.split(test=0.5, validation=0, random_state=seed)
    label = Label.read(learn.label_columns()[name], len(learn))
    if label.classes is None or len(label.classes) != 2:
        return None
    truth = _coded(label, judge.label_columns()[name])
    with one_thread():
        rows = _LabelRows(label, truth, label.values, name, learn, judge, (learn.X, judge.X))
        predicted = _boosted(label, learn.X, label.values, [judge.X], seed)[0]
        best = rows._best(predicted, distances)
        return LabelProspect(rows._blind(), rows._judged(predicted).right, best) if best else None


@dataclass(frozen=True)
class _LabelRows:
    """A label of both parts, and the rows that it is predicted from."""

    label: Label
    truth: npt.NDArray  # of the judged rows: class numbers, or numbers
    drawn: npt.NDArray  # of the rows to learn from, as they are shared
    name: str
    learn: Table
    judge: Table
    rows: tuple[pd.DataFrame, pd.DataFrame]

    def measured(self, distance: float, seed: int) -> LabelWorth:
        """Measure every way to predict the label."""
        raw, shared = [self.learn.X, self.judge.X], [part.drop(columns=self._not_learnt(part)) for part in self.rows]
        predicted = {"raw": _boosted(self.label, raw[0], self.label.values, [raw[1]], seed)[0]}
        if list(shared[0]) != ["cell"]:
            asked = {"row": shared[1]} | ({"trained": raw[1]} if list(shared[0]) == list(raw[0]) else {})
            found = _boosted(self.label, shared[0], self.drawn, list(asked.values()), seed)
            predicted |= dict(zip(asked, found, strict=True))
        score = self._scores()
        if score is not None:
            predicted["score"] = score
        rules = {name: self._judged(predicted[name]) for name in RULES if name in predicted}
        classes = () if self.label.classes is None else tuple(map(str, self.label.classes))
        return LabelWorth(self.name, classes, self._blind(), rules, self._best(predicted["raw"], [distance]))

    def _not_learnt(self, rows: pd.DataFrame) -> list[str]:
        """Return the drawn labels and the scores of cells, which raw rows do not have."""
        labels = tuple(map(str, self.learn.label_columns()))
        scores = tuple(f"{name}_score" for name in labels)
        return [name for name in rows if name not in self.learn.X and (name in labels or str(name).startswith(scores))]

    def _scores(self) -> FloatArray | None:
        """Return the score of each judged row: the columns of a release, or the mean label of the cell."""
        if list(self.rows[0]) == ["cell"]:
            means = pd.DataFrame(self._targets(self.label.values)).groupby(self.rows[0]["cell"].to_numpy()).mean()
            return means.reindex(self.rows[1]["cell"]).fillna(means.mean()).to_numpy()
        name, classes = f"{self.name}_score", self.label.class_values
        names = [name] if len(classes) <= 2 else [f"{name}_{value}" for value in classes]
        if not set(names) <= set(self._not_learnt(self.rows[1])):
            return None
        values = self.rows[1][names].to_numpy(dtype=np.float64)
        return np.column_stack([1 - values, values]) if len(self.label.class_values) == 2 else values

    def _targets(self, values: npt.NDArray) -> FloatArray:
        return values[:, None] if self.label.classes is None else np.eye(len(self.label.classes))[values]

    def _judged(self, predicted: FloatArray) -> JudgedRule:
        """Compare predictions, probabilities of the classes or numbers, with the truth."""
        if self.label.classes is None:
            errors, spread = predicted[:, 0] - self.truth, max(float(np.var(self.truth)), 1e-300)
            right = 1 - float(np.mean(errors**2)) / spread
            gap = gap_between(predicted / spread**0.5, *self._groups(), are_rates=False)
            return JudgedRule(right, None, float(np.abs(errors).mean()), *gap)
        chosen, size = predicted.argmax(axis=1), len(self.label.classes)
        known = [c for c in range(size) if 0 < np.mean(self.truth == c) < 1]
        aucs = [roc_auc_score(self.truth == c, predicted[:, c]) for c in known]
        auc = float(np.mean(aucs)) if aucs else None
        return JudgedRule(
            float((chosen == self.truth).mean()),
            auc,
            None,
            *gap_between(np.eye(size)[chosen], *self._groups(), are_rates=True),
        )

    def _groups(self) -> tuple[npt.NDArray, list[Any]]:
        return self.judge.a.to_numpy(), self.judge.groups

    def _blind(self) -> float:
        if self.label.classes is None:
            return float(np.abs(self.truth - np.median(self.label.values)).mean())
        return float((self.truth == np.bincount(self.label.values).argmax()).mean())

    def _best(self, predicted: FloatArray, distances: Sequence[float]) -> dict[str, float]:
        """Estimate the best that any release within Δ could give, from honest scores by group."""
        group, groups = self.judge.group_numbers(self.learn.groups), range(len(self.learn.groups))
        if any(not (group == a).any() for a in groups):
            return {}
        if self.label.classes is None:
            # Alike in all groups and nearest to the scores: the mean over the groups of the quantiles at one's rank.
            alike, scores = np.zeros(len(group)), predicted[:, 0]
            for a in groups:
                rank = (scores[group == a].argsort().argsort() + 0.5) / (group == a).sum()
                parts = [np.mean(group == b) * np.quantile(scores[group == b], rank) for b in groups]
                alike[group == a] = np.sum(parts, axis=0)
            return {"0": self._judged(alike[:, None]).right}
        if len(self.label.classes) != 2:
            return {}
        eta, found = predicted[:, 1], dict[str, float]()
        for spend in sorted({0.0, *distances}):
            right, rates = 0, best_rates([eta[group == a] for a in groups], spend)
            for a, rate in zip(groups, rates, strict=True):
                order = np.argsort(-eta[group == a], kind="stable")
                is_chosen = np.arange(len(order)) < round(rate * len(order))
                right += int((self.truth[group == a][order] == is_chosen).sum())
            found[f"{spend:g}"] = max(right / len(group), *found.values(), 0.0)  # a larger Δ allows no less
        return found


def _coded(label: Label, column: pd.Series) -> npt.NDArray:
    """Return class numbers, −1 for a class that is new; or numbers."""
    if label.classes is None:
        return floats(column)
    return places_in(pd.Index(label.classes, dtype=object), column.astype(object))


def _boosted(label: Label, fit: pd.DataFrame, y: npt.NDArray, asked: Sequence[pd.DataFrame], seed: int) -> list:
    """Return the probabilities of the classes, or the numbers, that boosted trees predict for other rows."""
    (learnt, *others), categories = tree_features(fit, *asked)
    settings = {**BOOSTING, "categorical_features": categories, "random_state": seed}
    if label.classes is None:
        numbers = HistGradientBoostingRegressor(**settings).fit(learnt, y)
        return [numbers.predict(rows)[:, None] for rows in others]
    known = np.unique(y)
    if len(known) < 2:
        return [np.eye(len(label.classes))[np.full(len(rows), known[0])] for rows in others]
    settings["max_iter"] = min(settings["max_iter"], max(_MOST_TREES // len(known), _FEWEST_ROUNDS))
    trees, found = HistGradientBoostingClassifier(**settings).fit(learnt, y), []
    for rows in others:
        found.append(np.zeros((len(rows), len(label.classes))))
        found[-1][:, known] = trees.predict_proba(rows)
    return found


def gap_between(
    values: FloatArray, group: npt.NDArray, groups: Sequence[Any], *, are_rates: bool
) -> tuple[float, float]:
    """Return the largest difference between the means of two groups, and the half width of its 95 % interval."""
    parts = [values[group == a] for a in groups]
    means = np.array([part.mean(axis=0) for part in parts])
    place = int(np.ptp(means, axis=0).argmax())
    pair = [parts[extreme][:, place] for extreme in (means[:, place].argmax(), means[:, place].argmin())]
    if are_rates:  # one of each more, so that 0 of 40 is no certainty
        pair = [np.append(part, [0, 1]) for part in pair]
    error = sum(part.var() / len(part) for part in pair) ** 0.5
    return float(np.ptp(means[:, place])), float(1.96 * error)

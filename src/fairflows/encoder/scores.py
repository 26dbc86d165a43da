"""A score of a label: the prediction of gradient-boosted trees from a table's columns, as a function of rows alone.

Scores are fitted on some persons and used on others, because the law of a score among the persons that it was fitted to
differs from its law among everybody else.

scikit-learn fits the trees, and has no file format but pickle, which runs code on loading. The trees are therefore kept
as plain arrays. The same arrays are evaluated, hashed and saved.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import sklearn
from scipy.special import expit
from sklearn.base import is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.utils.extmath import softmax

from fairflows.codec import Levels, OutsideValues
from fairflows.encoder.base import FloatArray
from fairflows.encoder.rows import TrainingRows
from fairflows.exceptions import DataError
from fairflows.table.columns import check_column, check_features, floats, has_order, is_number, is_time, missing
from fairflows.table.persons import Places

_DIGITS = 9  # of a score that are compared; matrix products differ in the last ones by the size of the batch

_ROWS_PER_CHUNK = 2**10  # whose nodes in all trees stay in a core's own cache
_ROWS_COMPARED = 256
_LEVELS = 4  # to go down before rows that have reached a leaf are left out: finding them takes as long as a level
_MOST_CATEGORIES = 40  # of a column that have an indicator of their own; of more, the means of the target are taken
_ROWS_OF_ALL = 10  # a category's mean counts as many rows more, which have the mean of all
_FOLDS = 5  # a row's own target is not in the mean that the score is fitted to


@dataclass(frozen=True)
class OrderedColumn:
    """A column of numbers or times."""

    holds: Literal["numbers", "times"]
    had_missing: bool  # whether training rows lacked values


BoostingModel: TypeAlias = "HistGradientBoostingClassifier | HistGradientBoostingRegressor"

ScoreColumn: TypeAlias = "Levels | OrderedColumn"
"""The content of a column of a score's table."""


def rounded(scores: FloatArray) -> FloatArray:
    """Round scores to nine significant digits, each by itself, so that equal rows tie in batches of every size.

    A matrix product rounds its last digits differently in another batch. Infinite and missing scores stay as they are.
    """
    mantissa, exponent = np.frexp(scores)
    return np.ldexp(np.round(mantissa, _DIGITS), exponent)


def score_columns(X: pd.DataFrame, kinds: Mapping[str, str]) -> dict[Hashable, ScoreColumn]:
    """Return the content of each column; a declared categorical column holds categories of any type."""
    found: dict[Hashable, ScoreColumn] = {}
    for name, column in X.items():
        check_column(str(name), column)
        if not has_order(column.dtype) or kinds.get(name) == "categorical":
            found[name] = Levels.fit(str(name), column)
        else:
            found[name] = OrderedColumn("times" if is_time(column.dtype) else "numbers", bool(column.hasnans))
    return found


def check_columns(X: pd.DataFrame, columns: Mapping[Hashable, ScoreColumn], found: OutsideValues) -> None:
    """Raise where values are infinite or of another type than in training.

    Categories that fitting did not see, and values that are missing where none was, are noted in `found`.
    """
    check_features(X[list(columns)])
    for name, what in columns.items():
        column = X[name]
        if isinstance(what, Levels):
            what.codes(column, found)
        elif not (is_time if what.holds == "times" else is_number)(column.dtype):
            raise DataError(f"Column {str(name)!r} must hold {what.holds}, as it was fitted; got {column.dtype}.")
        elif not what.had_missing:
            found.note(str(name), "missing", missing(column))


@dataclass(frozen=True)
class LevelNumbers:
    """A column of categories as numbers: indicators, or for many categories the means of the target in each of them.

    The mean of a rare category is drawn towards the mean of all rows.
    """

    levels: Levels
    numbers: FloatArray  # (n_levels, d)

    @classmethod
    def fit(cls, levels: Levels, column: pd.Series, targets: FloatArray) -> LevelNumbers:
        """Find the numbers of each level, with targets (n_rows, n_targets)."""
        if len(levels) <= _MOST_CATEGORIES:
            return cls(levels, np.eye(len(levels)))
        codes = levels.codes(column)
        sums = np.stack([np.bincount(codes, target, len(levels)) for target in targets.T], axis=1)
        counts = np.bincount(codes, minlength=len(levels))[:, None]
        return cls(levels, (sums + _ROWS_OF_ALL * targets.mean(axis=0)) / (counts + _ROWS_OF_ALL))

    def features(self, column: pd.Series) -> FloatArray:
        """Return the numbers of the rows' categories, shape (n_rows, d)."""
        return self.numbers[self.levels.codes(column, OutsideValues(len(column)))]


ScoreFeatures: TypeAlias = "dict[Hashable, LevelNumbers | None]"
"""The columns of a score's matrix in their order: times in seconds, categories by their numbers, then numbers."""


def fit_features(X: pd.DataFrame, columns: Mapping[Hashable, ScoreColumn], targets: FloatArray) -> ScoreFeatures:
    """Find the numbers of categories, from checked rows and their targets (n_rows, d)."""
    levels = {name: what for name, what in columns.items() if isinstance(what, Levels)}
    holds = {name: what.holds for name, what in columns.items() if not isinstance(what, Levels)}
    times, numbers = (dict.fromkeys(name for name in holds if holds[name] == kind) for kind in ("times", "numbers"))
    return times | {name: LevelNumbers.fit(level, X[name], targets) for name, level in levels.items()} | numbers


def feature_matrix(features: ScoreFeatures, X: pd.DataFrame) -> FloatArray:
    """Return the features of rows, shape (n_rows, n_features); missing numbers are NaN."""
    parts = [floats(X[name])[:, None] if of is None else of.features(X[name]) for name, of in features.items()]
    return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class ThresholdTrees:
    """Trees whose inner nodes compare one feature of a row with a threshold.

    The nodes of all trees are numbered together. A row goes left where its feature is at most the threshold, and where
    the feature is missing (NaN) if ``missing_left`` says so. Both children of a leaf are the leaf itself.
    """

    feature: Places  # (n_nodes,)
    threshold: FloatArray  # (n_nodes,)
    missing_left: npt.NDArray[np.bool_]  # (n_nodes,)
    children: Places  # (n_nodes, 2): the node on the right, then the node on the left
    roots: Places  # (n_trees,)

    def leaves(self, x: FloatArray) -> Places:
        """Return the leaf that each row of x (n_rows, n_features) reaches in each tree, shape (n_trees, n_rows)."""
        n, n_trees = len(x), len(self.roots)
        # Rows that go left when a feature is missing read a copy in which missing values are below every threshold.
        columns = np.concatenate([x.T, np.where(np.isnan(x.T), -np.inf, x.T)]).ravel()
        start = (self.feature + x.shape[1] * self.missing_left) * n
        children, is_leaf = self.children.ravel(), self.children[:, 0] == np.arange(len(self.feature))
        reached = np.empty(n_trees * n, dtype=np.intp)
        node, row, place = np.repeat(self.roots, n), np.tile(np.arange(n), n_trees), np.arange(n_trees * n)
        while len(place):
            for _ in range(_LEVELS):  # a leaf leads to itself
                goes_left = columns.take(start.take(node) + row) <= self.threshold.take(node)
                node = children.take(2 * node + goes_left)
            reached[place] = node
            above = np.flatnonzero(~is_leaf.take(node))
            node, row, place = node.take(above), row.take(above), place.take(above)
        return reached.reshape(n_trees, n)


@dataclass(frozen=True)
class Score:
    """A fitted score: a constant plus the values of the leaves that a row reaches in gradient-boosted trees."""

    features: ScoreFeatures
    trees: ThresholdTrees  # iteration by iteration, one tree per score
    value: FloatArray  # (n_nodes,)
    baseline: FloatArray  # (n_scores,)
    classifies: bool  # whether it predicts probabilities of classes instead of the mean of a number

    @classmethod
    def of(cls, features: ScoreFeatures, model: BoostingModel) -> Score:
        """Read the trees of a model that was fitted to these features."""
        # scikit-learn has no public access to these trees: the only place that reads private attributes of it.
        trees = [tree.nodes for iteration in model._predictors for tree in iteration]
        baseline = np.asarray(model._baseline_prediction, dtype=np.float64).ravel()
        nodes = np.concatenate(trees)
        sizes = [len(tree) for tree in trees]
        roots = np.cumsum([0, *sizes[:-1]])
        first = np.repeat(roots, sizes)
        itself, is_leaf = np.arange(len(nodes)), nodes["is_leaf"].astype(bool)
        children = [np.where(is_leaf, itself, first + nodes[side]) for side in ("right", "left")]
        feature = np.where(is_leaf, 0, nodes["feature_idx"]).astype(np.intp)
        threshold = np.where(is_leaf, 0.0, nodes["num_threshold"])
        missing_left = nodes["missing_go_to_left"].astype(bool)
        found = ThresholdTrees(feature, threshold, missing_left, np.stack(children, axis=1), roots)
        return cls(features, found, nodes["value"].copy(), baseline, is_classifier(model))

    def _raw(self, X: pd.DataFrame) -> FloatArray:
        """Return the sums of rows (n_rows, n_scores).

        Trees are added one after the other, as scikit-learn does, so that the sum is the same in every batch.
        """
        x = feature_matrix(self.features, X)
        raw = np.tile(self.baseline, (len(x), 1))
        for start in range(0, len(x), _ROWS_PER_CHUNK):
            rows = slice(start, start + _ROWS_PER_CHUNK)
            for tree, values in enumerate(self.value[self.trees.leaves(x[rows])]):
                raw[rows, tree % len(self.baseline)] += values
        return raw

    def predict_proba(self, X: pd.DataFrame) -> FloatArray:
        """Return the class probabilities of rows, rounded, shape (n_rows, n_classes)."""
        raw = self._raw(X)
        if raw.shape[1] > 1:
            return rounded(softmax(raw))
        positive = expit(raw[:, 0])
        return rounded(np.stack([1 - positive, positive], axis=1))

    def values(self, X: pd.DataFrame) -> FloatArray:
        """Return the mean of a number, the probability of the second of two classes, or of each of more; rounded."""
        if not self.classifies:
            return rounded(self._raw(X))
        probabilities = self.predict_proba(X)
        return probabilities[:, 1:] if probabilities.shape[1] == 2 else probabilities


def fit_score(
    model: BoostingModel, rows: TrainingRows, places: Places, y: npt.NDArray, columns: Mapping[Hashable, ScoreColumn]
) -> Score:
    """Fit a score to the rows at some places.

    y holds class numbers, or numbers, of the rows at these places alone.
    """
    X = rows.X.iloc[places]
    classifies = is_classifier(model)
    targets = np.eye(int(y.max()) + 1)[y.astype(np.intp)][:, 1:] if classifies else np.asarray(y, np.float64)[:, None]
    features = fit_features(X, columns, targets)
    x = feature_matrix(features, X)
    if any(isinstance(what, Levels) and len(what) > _MOST_CATEGORIES for what in columns.values()):
        # A stream of its own: made-up data drawn by the same seed would have targets that follow the folds.
        folds = np.random.default_rng([model.random_state, _FOLDS]).integers(_FOLDS, size=len(X))
        for own in (folds == fold for fold in np.unique(folds)):
            x[own] = feature_matrix(fit_features(X[~own], columns, targets[~own]), X[own])
    x[:, np.isnan(x).all(axis=0)] = 0  # trees cannot bin a column without a value, and do not split a constant one
    model.fit(x, y)
    score, some = Score.of(features, model), X[:_ROWS_COMPARED]
    asked = feature_matrix(features, some)
    told = model.predict_proba(asked) if classifies else model.predict(asked)[:, None]
    found = score.predict_proba(some) if classifies else score.values(some)
    if not np.allclose(found, told):
        raise RuntimeError(f"scikit-learn {sklearn.__version__} lays out its trees in a way that is not known here.")
    return score

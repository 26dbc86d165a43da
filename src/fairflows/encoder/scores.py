"""A score of a label: the prediction of gradient-boosted trees from a table's columns, as a function of rows alone.

Scores are fitted on some persons and used on others, because the law of a score among the persons that it was fitted to
differs from its law among everybody else.

scikit-learn fits the trees, and has no file format but pickle, which runs code on loading. The trees are therefore kept
as plain arrays. The same arrays are evaluated, hashed and saved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import sklearn
from jaxtyping import Bool, Float, Int, Shaped
from scipy.special import expit
from sklearn.base import is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.utils.extmath import softmax

from fairflows.arrays import NDArray
from fairflows.encoder.base import FloatArray
from fairflows.table.domain import BoolArray, Codes, Seen, take
from fairflows.table.persons import Places

_DIGITS = 9  # of a score that are compared; matrix products differ in the last ones by the size of the batch

_ROWS_PER_CHUNK = 2**10  # whose nodes in all trees stay in a core's own cache
_ROWS_COMPARED = 256
_LEVELS = 4  # to go down before rows that have reached a leaf are left out: finding them takes as long as a level
_MOST_CATEGORIES = 40  # of a column that have an indicator of their own; of more, the means of the target are taken
_ROWS_OF_ALL = 10  # a category's mean counts as many rows more, which have the mean of all
_FOLDS = 5  # a row's own target is not in the mean that the score is fitted to


BoostingModel: TypeAlias = "HistGradientBoostingClassifier | HistGradientBoostingRegressor"


def rounded(scores: Float[FloatArray, "*any"]) -> Float[FloatArray, "*any"]:
    """Round scores to nine significant digits, each by itself, so that equal rows tie in batches of every size.

    A matrix product rounds its last digits differently in another batch. Infinite and missing scores stay as they are.
    """
    mantissa, exponent = np.frexp(scores)
    return np.ldexp(np.round(mantissa, _DIGITS), exponent)


@dataclass(frozen=True)
class LevelNumbers:
    """A column of categories as numbers: indicators, or for many categories the means of the target in each of them.

    The mean of a rare category is drawn towards the mean of all rows.
    """

    numbers: Float[FloatArray, "n_codes d"]  # the last row, of a value that is not in the domain, is zero

    @classmethod
    def fit(
        cls, codes: Int[Places, " n"], seen: Bool[BoolArray, " n_levels"], targets: Float[FloatArray, "n n_targets"]
    ) -> LevelNumbers:
        """Find the numbers of the levels that were seen."""
        if seen.sum() <= _MOST_CATEGORIES:
            return cls(np.eye(len(seen) + 1)[:, np.flatnonzero(seen)])
        sums = np.stack([np.bincount(codes, target, len(seen) + 1) for target in targets.T], axis=1)
        counts = np.bincount(codes, minlength=len(seen) + 1)[:, None]
        return cls((sums + _ROWS_OF_ALL * targets.mean(axis=0)) / (counts + _ROWS_OF_ALL))


ScoreFeatures: TypeAlias = "dict[Any, LevelNumbers | None]"
"""The columns of a score's matrix in their order: categories by their numbers, and numbers as they are."""


def fit_features(codes: Codes, seen: Seen, targets: Float[FloatArray, "n n_targets"]) -> ScoreFeatures:
    """Find the numbers of categories, from rows and their targets."""
    return {
        name: LevelNumbers.fit(column, seen.levels[name], targets) if name in seen.levels else None
        for name, column in codes.items()
    }


def feature_matrix(features: ScoreFeatures, codes: Codes) -> Float[FloatArray, "n n_features"]:
    """Return the features of rows; missing numbers are NaN."""
    parts = [codes[name][:, None] if of is None else of.numbers[codes[name]] for name, of in features.items()]
    return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class ThresholdTrees:
    """Trees whose inner nodes compare one feature of a row with a threshold.

    The nodes of all trees are numbered together. A row goes left where its feature is at most the threshold, and where
    the feature is missing (NaN) if ``missing_left`` says so. Both children of a leaf are the leaf itself.
    """

    feature: Int[Places, " n_nodes"]
    threshold: Float[FloatArray, " n_nodes"]
    missing_left: Bool[BoolArray, " n_nodes"]
    children: Int[Places, "n_nodes 2"]  # the node on the right, then the node on the left
    roots: Int[Places, " n_trees"]

    def leaves(self, x: Float[FloatArray, "n n_features"]) -> Int[Places, "n_trees n"]:
        """Return the leaf that each row reaches in each tree."""
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
    value: Float[FloatArray, " n_nodes"]
    baseline: Float[FloatArray, " n_scores"]
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

    def _raw(self, codes: Codes) -> Float[FloatArray, "n n_scores"]:
        """Return the sums of rows.

        Trees are added one after the other, as scikit-learn does, so that the sum is the same in every batch.
        """
        x = feature_matrix(self.features, codes)
        raw = np.tile(self.baseline, (len(x), 1))
        for start in range(0, len(x), _ROWS_PER_CHUNK):
            rows = slice(start, start + _ROWS_PER_CHUNK)
            for tree, values in enumerate(self.value[self.trees.leaves(x[rows])]):
                raw[rows, tree % len(self.baseline)] += values
        return raw

    def predict_proba(self, codes: Codes) -> Float[FloatArray, "n n_classes"]:
        """Return the class probabilities of rows, rounded."""
        raw = self._raw(codes)
        if raw.shape[1] > 1:
            return rounded(softmax(raw))
        positive = expit(raw[:, 0])
        return rounded(np.stack([1 - positive, positive], axis=1))

    def values(self, codes: Codes) -> Float[FloatArray, "n n_scores"]:
        """Return the mean of a number, the probability of the second of two classes, or of each of more; rounded."""
        if not self.classifies:
            return rounded(self._raw(codes))
        probabilities = self.predict_proba(codes)
        return probabilities[:, 1:] if probabilities.shape[1] == 2 else probabilities


def fit_score(model: BoostingModel, codes: Codes, y: Shaped[NDArray, " n"], seen: Seen) -> Score:
    """Fit a score to rows; y holds their class numbers, or numbers."""
    classifies = is_classifier(model)
    targets = np.eye(int(y.max()) + 1)[y.astype(np.intp)][:, 1:] if classifies else np.asarray(y, np.float64)[:, None]
    features = fit_features(codes, seen, targets)
    x = feature_matrix(features, codes)
    if any(levels.sum() > _MOST_CATEGORIES for levels in seen.levels.values()):
        # A stream of its own: made-up data drawn by the same seed would have targets that follow the folds.
        folds = np.random.default_rng([model.random_state, _FOLDS]).integers(_FOLDS, size=len(y))
        for own in (folds == fold for fold in np.unique(folds)):
            others = fit_features(take(codes, ~own), seen, targets[~own])
            x[own] = feature_matrix(others, take(codes, own))
    x[:, np.isnan(x).all(axis=0)] = 0  # trees cannot bin a column without a value, and do not split a constant one
    model.fit(x, y)
    score, some = Score.of(features, model), take(codes, slice(_ROWS_COMPARED))
    asked = feature_matrix(features, some)
    told = model.predict_proba(asked) if classifies else model.predict(asked)[:, None]
    found = score.predict_proba(some) if classifies else score.values(some)
    if not np.allclose(found, told):
        raise RuntimeError(f"scikit-learn {sklearn.__version__} lays out its trees in a way that is not known here.")
    return score

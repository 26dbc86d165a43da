"""A task score as plain arrays: what a fitted scikit-learn pipeline of `FairTransport` becomes in a saved model.

scikit-learn has no file format but pickle, which runs code on loading. What a score needs is little: the columns of
categories, and trees or coefficients. The stand-in gives the same probabilities, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.extmath import softmax

from fairflows.encoder.transported_score import _seconds
from fairflows.exceptions import DataError

FloatArray = npt.NDArray[np.float64]

_NUMBERS_PER_CHUNK = 2**17  # rows times trees: what stays in a core's own cache


@dataclass(frozen=True)
class BoostedTrees:
    """Gradient-boosted trees as arrays over all nodes of all trees.

    Attributes
    ----------
    feature, threshold, missing_left, value : ndarray of shape (n_nodes,)
        A row goes left where its feature is at most the threshold, or missing if so said. A leaf leads to itself.
    children : ndarray of shape (n_nodes, 2)
        The nodes to the left and right.
    roots : ndarray of shape (n_iterations, n_scores)
        Where each tree starts.
    baseline : ndarray of shape (n_scores,)
        What the trees add to.
    depth : int
        Steps to the lowest leaf.
    """

    feature: npt.NDArray[np.int64]
    threshold: FloatArray
    missing_left: npt.NDArray[np.bool_]
    value: FloatArray
    children: npt.NDArray[np.int64]
    roots: npt.NDArray[np.int64]
    baseline: FloatArray
    depth: int

    @classmethod
    def of(cls, model: HistGradientBoostingClassifier, where: str) -> BoostedTrees:
        """The trees of a fitted classifier."""
        trees = [[tree.nodes for tree in iteration] for iteration in model._predictors]
        nodes = np.concatenate([tree for iteration in trees for tree in iteration])
        if nodes["is_categorical"].any():
            raise DataError(
                f"{where}: gradient boosting with categorical features cannot be saved; encode them as numbers first."
            )
        sizes = np.array([[len(tree) for tree in iteration] for iteration in trees])
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).reshape(sizes.shape)
        start = np.repeat(roots.ravel(), sizes.ravel())
        leaf = nodes["is_leaf"].astype(bool)
        itself = np.arange(len(nodes))
        children = np.stack([np.where(leaf, itself, start + nodes[side]) for side in ("left", "right")], axis=1)
        return cls(
            np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64),
            np.where(leaf, np.inf, nodes["num_threshold"]),
            nodes["missing_go_to_left"].astype(bool) & ~leaf,
            np.ascontiguousarray(nodes["value"]),
            children.astype(np.int64),
            roots.astype(np.int64),
            np.asarray(model._baseline_prediction, dtype=np.float64).ravel(),
            int(nodes["depth"].max()),
        )

    def predict_proba(self, x: FloatArray) -> FloatArray:
        """Class probabilities of rows (n, n_features)."""
        n_rows = max(1, _NUMBERS_PER_CHUNK // self.roots.size)
        raw = np.empty((len(x), len(self.baseline)))
        for start in range(0, len(x), n_rows):
            raw[start : start + n_rows] = self._raw(x[start : start + n_rows])
        if raw.shape[1] > 1:
            return softmax(raw)
        positive = expit(raw[:, 0])
        return np.stack([1 - positive, positive], axis=1)

    def _raw(self, x: FloatArray) -> FloatArray:
        """All rows go down all trees, a level at a time; the leaves are added up in the order of the iterations."""
        node = np.broadcast_to(self.roots.ravel(), (len(x), self.roots.size))
        first = np.arange(len(x))[:, None] * x.shape[1]
        flat, children = np.ascontiguousarray(x).ravel(), self.children.ravel()
        some_missing = bool(np.isnan(x).any())
        for _ in range(self.depth):
            value = flat[first + self.feature[node]]
            right = ~(value <= self.threshold[node])
            if some_missing:
                right &= ~(np.isnan(value) & self.missing_left[node])
            node = children[2 * node + right]
        leaves = self.value[node].reshape(len(x), *self.roots.shape)
        raw = np.tile(self.baseline, (len(x), 1))
        for iteration in range(len(self.roots)):
            raw += leaves[:, iteration]
        return raw


@dataclass(frozen=True)
class TextColumn:
    """A column of categories, each with its row of numbers.

    Attributes
    ----------
    name : object
        The column.
    values : list
        The categories, the missing one left out.
    table : ndarray of shape (n_values + 2, n_numbers)
        The numbers of each category; then of a missing value, then of an unknown one.
    """

    name: Any
    values: list[Any]
    table: FloatArray

    def features(self, column: pd.Series) -> FloatArray:
        """Each value's numbers."""
        place = pd.Index(self.values, dtype=object).get_indexer(column.astype(object))
        place = np.where(place < 0, len(self.values) + 1, place)
        return self.table[np.where(column.isna(), len(self.values), place)]


@dataclass(frozen=True)
class StoredScore:
    """Columns as numbers, then trees or a logistic regression.

    Attributes
    ----------
    times : list
        Names of columns that hold times.
    texts : list of TextColumn
        Columns that hold categories.
    numbers : list
        Names of the other columns.
    model : BoostedTrees or LogisticRegression
        What gives the probabilities.
    """

    times: list[Any]
    texts: list[TextColumn]
    numbers: list[Any]
    model: Any

    @classmethod
    def of(cls, score: Any, where: str) -> StoredScore:
        """The stand-in of a fitted pipeline; a stand-in stays itself."""
        if isinstance(score, StoredScore):
            return score
        if not isinstance(score, Pipeline):
            raise DataError(f"{where}: a {type(score).__name__} cannot be saved.")
        columns, model = score[0], score[-1]
        (_, _, times), (_, encoder, texts) = columns.transformers_[:2]
        rest = [name for name in columns.feature_names_in_ if name not in {*times, *texts}]
        if isinstance(model, HistGradientBoostingClassifier):
            model = BoostedTrees.of(model, where)
        elif not isinstance(model, LogisticRegression):
            raise DataError(
                f"{where}: a {type(model).__name__} cannot be saved: of scikit-learn's classifiers, "
                "HistGradientBoostingClassifier and LogisticRegression have a form that is not a pickle."
            )
        return cls(list(times), _text_columns(encoder, list(texts)), rest, model)

    def predict_proba(self, X: pd.DataFrame) -> FloatArray:
        """Class probabilities of rows."""
        parts = [_seconds(X[self.times]).to_numpy(dtype=np.float64)] if self.times else []
        parts += [text.features(X[text.name]) for text in self.texts]
        parts += [X[[name]].to_numpy(dtype=np.float64, na_value=np.nan) for name in self.numbers]
        return self.model.predict_proba(np.concatenate(parts, axis=1))


def _text_columns(encoder: OneHotEncoder, names: list[Any]) -> list[TextColumn]:
    columns = []
    rare = getattr(encoder, "infrequent_categories_", [None] * len(names))
    for name, categories, together in zip(names, encoder.categories_ if names else [], rare, strict=True):
        is_rare = np.isin(np.arange(len(categories)), [] if together is None else _places(together, categories))
        n_columns = int((~is_rare).sum()) + (together is not None)
        one_hot = np.eye(n_columns)[np.where(is_rare, n_columns - 1, np.cumsum(~is_rare) - 1)]
        unknown = np.eye(n_columns)[-1] if together is not None else np.zeros(n_columns)
        missing = pd.isna(categories)
        of_missing = one_hot[missing][0] if missing.any() else unknown
        values = np.asarray(categories, dtype=object)[~missing].tolist()
        columns.append(TextColumn(name, values, np.vstack([one_hot[~missing], of_missing, unknown])))
    return columns


def _places(some: Any, categories: Any) -> npt.NDArray[np.intp]:
    return pd.Index(categories, dtype=object).get_indexer(pd.Index(some, dtype=object))

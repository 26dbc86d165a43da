"""A task score: what some estimator predicts from a table's columns, as a function of rows alone.

Scores are fitted on some persons and used on others: what is learnt about a score's law from the persons that it was
fitted on would be wrong for everybody else.

scikit-learn fits a score, and has no file format but pickle, which runs code on loading. So an encoder keeps what the
score needs as plain arrays (`PlainScore`): columns made numeric, then trees or a logistic regression. The same arrays
are used, hashed and saved.

`ScoredCells` is the base of the encoders that make cells from such scores.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.extensions import ExtensionDtype
from scipy.special import expit
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from sklearn.utils import Tags
from sklearn.utils.extmath import softmax

from fairflows.codec.one_column import Levels
from fairflows.codec.outside import Outside
from fairflows.encoder.base import FloatArray, LabelledRows, Rows, RowsLike
from fairflows.encoder.group_encoder import ColumnEncoder
from fairflows.encoder.labels import Classifier, Label, class_probabilities, predicted_labels
from fairflows.exceptions import DataError
from fairflows.table.columns import (
    TableColumns,
    check_column,
    check_features,
    floats,
    has_order,
    is_number,
    is_time,
    missing,
    places_in,
    seconds,
)
from fairflows.table.table import Role

ScoreColumn = Levels | Literal["numbers", "times"]
"""What a column of a score's table holds: categories, each with its level, or numbers, or times."""

_ROWS_PER_CHUNK = 2**14  # a column of a chunk stays in a core's own cache
_LEAVES = 32  # of a word, a bit each
_FEW_ROWS = 64  # for which going through the tests one by one takes longer than all of them at once
_ROWS_COMPARED = 256
_MOST_CATEGORIES = 40  # of a column that have an indicator of their own, the rare ones together being one


def score_columns(
    X: pd.DataFrame, kinds: Mapping[str, str], unseen: Literal["error", "other"]
) -> dict[Hashable, ScoreColumn]:
    """What each column holds; one that was declared categorical holds categories, whatever its type."""
    return {name: _score_column(str(name), X[name], kinds.get(name), unseen) for name in X}


def _score_column(name: str, column: pd.Series, kind: str | None, unseen: Literal["error", "other"]) -> ScoreColumn:
    check_column(name, column)
    if not has_order(column.dtype) or kind == "categorical":
        return Levels.fit(name, column, unseen=unseen)
    return "times" if is_time(column.dtype) else "numbers"


def checked_columns(
    X: TableColumns, columns: Mapping[Hashable, ScoreColumn], when_missing: str, found: Outside
) -> TableColumns:
    """Rows as the classifiers know them: refused where values are missing, infinite or of another type.

    Categories that were not there are noted in `found`.
    """
    X = X.part(list(columns))
    check_features(X, when_missing)
    changed = {}
    for name, what in columns.items():
        column = X[name]
        if isinstance(what, Levels):
            known = what.known(column, found)
            if known is not column:
                changed[name] = known
        elif not (is_time if what == "times" else is_number)(column.dtype):
            raise DataError(f"Column {str(name)!r} must hold {what}, as it was fitted; got {column.dtype}.")
    return with_plain_gaps(X.with_columns(changed))


def with_plain_gaps(X: TableColumns) -> TableColumns:
    """Rows whose missing values are NaN, as scikit-learn knows them, also where pandas has a marker of its own."""
    marked = {name: X[name] for name in X if _may_hold_na(X[name].dtype) and missing(X[name]).any()}
    return X.with_columns(
        {
            name: column.astype(float) if is_number(column.dtype) else column.astype(object).where(column.notna())
            for name, column in marked.items()
        }
    )


def _may_hold_na(dtype: np.dtype | ExtensionDtype) -> bool:
    """Whether missing numbers or categories of a type can be pandas' `NA`."""
    values = dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype
    if isinstance(values, ExtensionDtype):
        return values.na_value is pd.NA and not is_time(values)
    return values.kind == "O"


def with_values(X: pd.DataFrame) -> pd.DataFrame:
    """Rows to fit trees to, which cannot cut a column without any value: its numbers are 0, so that none splits it."""
    empty = [name for name in X if is_number(X[name].dtype) and not X[name].notna().any()]
    return X.fillna(dict.fromkeys(empty, 0.0)) if empty else X


def category_columns(columns: Mapping[Hashable, ScoreColumn]) -> list[Hashable]:
    """The columns that hold categories."""
    return [name for name, what in columns.items() if isinstance(what, Levels)]


def fit_score(
    estimator: Classifier | None,
    rows: LabelledRows,
    places: npt.NDArray[np.intp],
    y: npt.NDArray,
    columns: Mapping[Hashable, ScoreColumn],
    random_state: int,
) -> PlainScore | Pipeline:
    """Fit a score to the rows at some places; as plain arrays where the estimator has such a form.

    Without an estimator, gradient-boosted trees that classify. The columns of the rows are checked (`checked_columns`);
    y holds class numbers, or numbers, of the rows at these places alone.
    """
    model = HistGradientBoostingClassifier(random_state=random_state) if estimator is None else clone(estimator)
    X = with_values(rows.X.iloc[places])
    pipeline = score_pipeline(model, X, category_columns(columns))
    weight = {} if rows.weight is None else {f"{pipeline.steps[-1][0]}__sample_weight": rows.weight[places]}
    return plain_score(pipeline.fit(X, y, **weight), X)


def score_pipeline(model: object, X: pd.DataFrame, categories: Sequence[Hashable]) -> Pipeline:
    """An estimator behind columns made numeric: categories one-hot, times as seconds."""
    times = [name for name in X if name not in categories and is_time(X[name].dtype)]
    # To find rare categories scikit-learn counts all of them in a Python loop over the rows: not where there are none.
    has_rare = any(X[name].nunique(dropna=False) > _MOST_CATEGORIES for name in categories)
    one_hot = OneHotEncoder(
        handle_unknown="infrequent_if_exist",
        max_categories=_MOST_CATEGORIES if has_rare else None,
        sparse_output=False,
    )
    columns = make_column_transformer(
        (FunctionTransformer(_in_seconds, feature_names_out="one-to-one"), times),
        (one_hot, list(categories)),
        remainder="passthrough",
    )
    return make_pipeline(columns, model)


def predicted_scores(scores: Sequence[PlainScore | Pipeline], X: TableColumns) -> FloatArray:
    """What the scores say of rows, side by side.

    That is the mean of a number, the probability of the second of two classes, or of each of more classes.
    """
    columns = []
    for score in scores:
        if isinstance(score, Pipeline) and is_regressor(score):
            columns.append(np.asarray(score.predict(X.frame), dtype=np.float64)[:, None])
            continue
        if isinstance(score, PlainScore) and not score.classifies:
            columns.append(score.raw_scores(X))
            continue
        probabilities = predicted_probabilities(score, X)
        columns.append(probabilities[:, 1:] if probabilities.shape[1] == 2 else probabilities)
    return np.concatenate(columns, axis=1)


def predicted_probabilities(score: PlainScore | Pipeline, X: TableColumns) -> FloatArray:
    """The class probabilities of rows."""
    return score.predict_proba(X.frame if isinstance(score, Pipeline) else X)


@dataclass(eq=False, repr=False, kw_only=True)
class ScoredCells(ColumnEncoder):
    """Base of the encoders that make cells from scores of the labels: each cell says what to expect of the labels."""

    unit: Literal["row", "person"] = "row"
    delta: float = 0.05
    n_certify: int | None = None

    is_randomised = True  # a coin of the person decides between two cells where the scores do not

    columns_: dict[Hashable, ScoreColumn] = field(init=False)
    labels_: list[Label] = field(init=False)
    levels_: FloatArray = field(init=False)
    n_cells_: int = field(init=False)

    def _labels_and_features(self, rows: LabelledRows) -> tuple[list[Label], LabelledRows]:
        """The labels, and the rows with columns as scores know them; what both are is remembered."""
        labels = self._read_labels(rows, may_be_numbers=True)
        self.labels_ = [replace(label, values=np.empty(0)) for label in labels]
        self.columns_ = score_columns(rows.X, self.kinds or {}, self.unseen)
        return labels, replace(rows, columns=self._features(rows))

    def _features(self, rows: Rows) -> TableColumns:
        """The columns of rows, checked; values that are unknown are noted."""
        return checked_columns(rows.columns, self.columns_, self.missing_, rows.outside)

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """The label that each row's cell suggests: the most frequent class, or the mean of a label of numbers."""
        return predicted_labels(self.labels_, self._levels(rows))

    def predict_proba(self, X: RowsLike, *, sensitive_features: Role | None = None) -> FloatArray | list[FloatArray]:
        """The class probabilities that each row's cell suggests; a list where there are several labels."""
        with self._reading(X, sensitive_features) as rows:
            return class_probabilities(self.labels_, self._levels(rows))

    def _levels(self, rows: Rows) -> FloatArray:
        """What each row's cell says of the labels."""
        if not self.labels_:
            raise DataError(f"{type(self).__name__} was fitted without a label and cannot predict one.")
        return self.levels_[self.cells(rows)]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []  # a cell is a whole number
        return tags


@dataclass(frozen=True)
class BoostedTrees:
    """Gradient-boosted trees as tests that rule out leaves (QuickScorer; Lucchese et al., 2015).

    The leaves of a tree are numbered from left to right. A row that goes right at a node cannot end in a leaf to the
    left of it, and ends in the first leaf that no node rules out. Leaves are the bits of words, so that a test is a
    comparison and an "or" over many rows at once: twice as fast as going down the trees, and bit for bit the same sum.
    """

    # (n_tests,) each: a row goes right where its feature is above the threshold, or missing unless it then goes left
    feature: npt.NDArray[np.int64]
    threshold: FloatArray
    missing_left: npt.NDArray[np.bool_]
    # (n_tests,): the leaves of the test's word that a row which goes right does not reach
    ruled_out: npt.NDArray[np.uint32]
    tests: npt.NDArray[np.int64]  # (n_words + 1,): the first test of each word
    # (n_trees + 1,): the first word of each tree; trees lie iteration by iteration, one per score
    words: npt.NDArray[np.int64]
    value: FloatArray  # (n_words, 32): the value of each leaf
    baseline: FloatArray  # (n_scores,): what the trees add to

    @classmethod
    def of(cls, model: HistGradientBoostingClassifier | HistGradientBoostingRegressor) -> BoostedTrees | None:
        """The trees of a fitted classifier; None where a node tests categories instead of a threshold."""
        trees = [tree.nodes for iteration in model._predictors for tree in iteration]
        if any(nodes["is_categorical"].any() for nodes in trees):
            return None
        of_words, values, words = [], [], [0]
        for nodes in trees:
            leaf = nodes["is_leaf"].astype(bool)
            inner, leaf_values = nodes[~leaf], nodes["value"][leaf]
            # A node comes before those below it, and the left subtree before the right one: it is left:right.
            leaves_before = np.concatenate([[0], np.cumsum(leaf)])
            start, stop = leaves_before[inner["left"]], leaves_before[inner["right"]]
            for first in range(0, len(leaf_values), _LEAVES):
                low, high = (np.clip(bound - first, 0, _LEAVES).astype(np.uint64) for bound in (start, stop))
                bits = (np.uint64(1) << high) - (np.uint64(1) << low)
                of_words.append((inner[bits > 0], bits[bits > 0].astype(np.uint32)))
                values.append(np.resize(leaf_values[first : first + _LEAVES], _LEAVES))
            words.append(len(values))
        nodes = np.concatenate([nodes for nodes, _ in of_words])
        return cls(
            nodes["feature_idx"].astype(np.int64),
            nodes["num_threshold"].copy(),
            nodes["missing_go_to_left"].astype(bool),
            np.concatenate([bits for _, bits in of_words]),
            np.cumsum([0, *(len(bits) for _, bits in of_words)]),
            np.array(words),
            np.stack(values),
            np.asarray(model._baseline_prediction, dtype=np.float64).ravel(),
        )

    def raw_scores(self, x: FloatArray) -> FloatArray:
        """Sums of leaves (n_rows, n_scores) for rows (n_rows, n_features)."""
        if len(x) <= _FEW_ROWS:
            return self._raw_scores_of_few(x)
        raw = np.empty((len(x), len(self.baseline)))
        tests = list(
            zip(self.feature.tolist(), self.threshold.tolist(), self.missing_left.tolist(), self.ruled_out, strict=True)
        )
        of_words = [tests[i:j] for i, j in zip(self.tests[:-1], self.tests[1:], strict=True)]
        x = np.asfortranarray(x)  # each column in one piece
        for start in range(0, len(x), _ROWS_PER_CHUNK):
            columns = x[start : start + _ROWS_PER_CHUNK].T
            total = np.repeat(self.baseline[:, None], columns.shape[1], axis=1)
            for tree in range(len(self.words) - 1):
                total[tree % len(total)] += self._leaf_values(columns, tree, of_words)
            raw[start : start + _ROWS_PER_CHUNK] = total.T
        return raw

    def _raw_scores_of_few(self, x: FloatArray) -> FloatArray:
        """The same sums, all tests of a row at once instead of all rows of a test."""
        value = x.take(self.feature, axis=1)
        goes_right = (value > self.threshold) | (np.isnan(value) & ~self.missing_left)
        gone = np.zeros((len(x), len(self.value)), dtype=np.uint32)
        has_tests = np.flatnonzero(np.diff(self.tests))  # a tree of a single leaf tests nothing
        if len(has_tests):
            ruled_out = goes_right * self.ruled_out
            gone[:, has_tests] = np.bitwise_or.reduceat(ruled_out, self.tests[has_tests], axis=1)
        lowest = ~gone & (gone + np.uint32(1))
        words = np.where(lowest > 0, np.arange(len(self.value)), len(self.value))
        word = np.minimum.reduceat(words, self.words[:-1], axis=1)  # the first of each tree that has a leaf left
        leaf = np.frexp(lowest[np.arange(len(x))[:, None], word].astype(np.float64))[1] - 1
        of_trees = self.value[word, leaf].reshape(len(x), -1, len(self.baseline))
        of_trees[:, 0] += self.baseline
        return np.cumsum(of_trees, axis=1)[:, -1]  # tree by tree, as for many rows

    def _leaf_values(
        self, columns: FloatArray, tree: int, of_words: list[list[tuple[int, float, bool, np.uint32]]]
    ) -> FloatArray:
        """The value of the leaf that each row ends in: the first that is not gone, so words go from last to first."""
        values = np.empty(columns.shape[1])
        bits = np.empty(columns.shape[1], dtype=np.uint32)
        for word in reversed(range(self.words[tree], self.words[tree + 1])):
            gone = np.zeros_like(bits)
            for feature, threshold, missing_left, ruled_out in of_words[word]:
                column = columns[feature]
                goes_right = column > threshold if missing_left else ~(column <= threshold)
                gone |= np.multiply(goes_right, ruled_out, out=bits)
            lowest = ~gone & (gone + np.uint32(1))  # the lowest bit that is not gone; 0 where all are
            leaf = np.frexp(lowest.astype(np.float64))[1] - 1
            values = np.where(lowest > 0, self.value[word].take(leaf, mode="clip"), values)
        return values


@dataclass(frozen=True)
class LogisticScores:
    """A logistic regression."""

    weights: FloatArray  # (n_features, n_scores)
    intercepts: FloatArray  # (n_scores,)

    def raw_scores(self, x: FloatArray) -> FloatArray:
        """Linear scores (n_rows, n_scores) of rows (n_rows, n_features)."""
        missing = ~np.isfinite(x).all(axis=1)
        if missing.any():
            raise DataError(
                f"A logistic regression takes no missing values, and {missing.sum():,} rows have some; "
                "HistGradientBoostingClassifier takes them."
            )
        return x @ self.weights + self.intercepts


@dataclass(frozen=True)
class TextColumn:
    """A column of categories, each with its row of numbers."""

    name: Hashable  # the column
    values: list[Hashable]  # the categories, the missing one left out
    # (n_values + 2, n_numbers): the numbers of each category; then of a missing value, then of an unknown one
    table: FloatArray

    def features(self, column: pd.Series) -> FloatArray:
        """Each value's numbers."""
        place = places_in(self._index, column)
        place = np.where(place < 0, len(self.values) + 1, place)
        return self.table[np.where(missing(column), len(self.values), place)]

    @cached_property
    def _index(self) -> pd.Index:
        return pd.Index(self.values, dtype=object)


@dataclass(frozen=True)
class PlainScore:
    """Columns as numbers, then trees or a logistic regression."""

    times: list[Hashable]  # names of columns that hold times
    texts: list[TextColumn]  # columns that hold categories
    numbers: list[Hashable]  # names of the other columns
    model: BoostedTrees | LogisticScores  # what gives the scores behind the probabilities
    classifies: bool = True  # whether the scores stand for probabilities of classes, and not for the mean of a number

    def predict_proba(self, X: TableColumns) -> FloatArray:
        """Class probabilities of rows."""
        raw = self.raw_scores(X)
        if raw.shape[1] > 1:
            return softmax(raw)
        positive = expit(raw[:, 0])
        return np.stack([1 - positive, positive], axis=1)

    def raw_scores(self, X: TableColumns) -> FloatArray:
        """The scores behind the probabilities, (n_rows, n_scores); of a regression, the mean."""
        width = len(self.times) + sum(text.table.shape[1] for text in self.texts) + len(self.numbers)
        x, at = np.empty((len(X), width), order="F"), 0
        for name in self.times:
            x[:, at] = floats(X[name])
            at += 1
        for text in self.texts:
            x[:, at : at + text.table.shape[1]] = text.features(X[text.name])
            at += text.table.shape[1]
        for name in self.numbers:
            column = X[name]
            plain = isinstance(column.dtype, np.dtype)  # which is converted as it is copied
            x[:, at] = column.to_numpy() if plain else column.to_numpy(dtype=np.float64, na_value=np.nan)
            at += 1
        return self.model.raw_scores(x)


def plain_score(score: Pipeline, X: pd.DataFrame) -> PlainScore | Pipeline:
    """A fitted pipeline of columns and an estimator as plain arrays; the pipeline itself where there is no such form.

    Boosted trees and logistic regressions have one. Some rows are compared: another release of scikit-learn may lay
    out its trees, or make probabilities of its scores, in another way.
    """
    columns, classifier = score[0], score[-1]
    model: BoostedTrees | LogisticScores | None = None
    if isinstance(classifier, HistGradientBoostingClassifier | HistGradientBoostingRegressor):
        model = BoostedTrees.of(classifier)
    elif isinstance(classifier, LogisticRegression):
        model = LogisticScores(np.ascontiguousarray(classifier.coef_.T), np.asarray(classifier.intercept_))
    if model is None:
        return score
    (_, _, times), (_, encoder, texts) = columns.transformers_[:2]
    numbers = [name for name in X if name not in {*times, *texts}]
    classifies = is_classifier(classifier)
    plain = PlainScore(list(times), _text_columns(encoder, list(texts)), numbers, model, classifies)
    some = X.head(_ROWS_COMPARED)
    if classifies:
        same = np.allclose(plain.predict_proba(TableColumns(some)), score.predict_proba(some))
    else:
        same = np.allclose(plain.raw_scores(TableColumns(some))[:, 0], score.predict(some))
    return plain if same else score


def _in_seconds(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.apply(seconds)


def _text_columns(encoder: OneHotEncoder, names: list[Hashable]) -> list[TextColumn]:
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


def _places(some: np.ndarray, categories: np.ndarray) -> npt.NDArray[np.intp]:
    return pd.Index(categories, dtype=object).get_indexer(pd.Index(some, dtype=object))

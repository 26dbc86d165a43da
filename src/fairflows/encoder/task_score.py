"""A task score: what some estimator predicts from a table's columns, as a function of rows alone.

Scores are fitted on some persons and used on others: what is learnt about a score's law from the persons that it was
fitted on would be wrong for everybody else.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.extensions import ExtensionDtype
from sklearn.base import clone, is_regressor
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from fairflows.codec.levels import Levels
from fairflows.codec.outside import Outside
from fairflows.encoder.checks import Classifier
from fairflows.encoder.plain_score import PlainScore, plain_score, seconds
from fairflows.exceptions import DataError
from fairflows.table.columns import check_column, check_complete, is_number, is_time

FloatArray = npt.NDArray[np.float64]

ScoreColumn = Levels | Literal["numbers", "times"]
"""What a column of a score's table holds: categories, each with its level, or numbers, or times."""


def score_columns(
    X: pd.DataFrame, kinds: Mapping[str, str], unseen: Literal["error", "other"]
) -> dict[Hashable, ScoreColumn]:
    """What each column holds; one that was declared categorical holds categories, whatever its type."""
    return {name: _score_column(str(name), X[name], kinds.get(name), unseen) for name in X}


def _score_column(name: str, column: pd.Series, kind: str | None, unseen: Literal["error", "other"]) -> ScoreColumn:
    check_column(name, column)
    ordered = is_number(column.dtype) or is_time(column.dtype)
    if not ordered and kind in ("continuous", "discrete"):
        raise DataError(f"Column {name!r} must hold numbers or times to be {kind}; got {column.dtype}.")
    if not ordered or kind == "categorical":
        return Levels.fit(name, column, unseen=unseen)
    return "times" if is_time(column.dtype) else "numbers"


def checked_columns(
    X: pd.DataFrame, columns: Mapping[Hashable, ScoreColumn], missing: str, found: Outside
) -> pd.DataFrame:
    """Rows as the classifiers know them: refused where values are missing, infinite or of another type.

    Categories that were not there are noted in `found`.
    """
    if missing == "error":
        check_complete(X)
    checked = {}
    for name, what in columns.items():
        column = X[name]
        check_column(str(name), column)
        if isinstance(what, Levels):
            column = what.column(what.codes(column, found)).set_axis(X.index)
        elif not (is_time if what == "times" else is_number)(column.dtype):
            raise DataError(f"Column {str(name)!r} must hold {what}, as it was fitted; got {column.dtype}.")
        checked[name] = column
    return with_plain_gaps(pd.DataFrame(checked, copy=False))


def with_plain_gaps(X: pd.DataFrame) -> pd.DataFrame:
    """Rows whose missing numbers are NaN, as scikit-learn knows them, also where pandas has a marker of its own."""
    marked = [
        name for name in X
        if is_number(X[name].dtype) and isinstance(X[name].dtype, ExtensionDtype) and X[name].hasnans
    ]  # fmt: skip
    return X.astype(dict.fromkeys(marked, np.float64)) if marked else X


def with_values(X: pd.DataFrame) -> pd.DataFrame:
    """Rows to fit trees to, which cannot cut a column without any value: its numbers are 0, so that none splits it."""
    empty = [name for name in X if is_number(X[name].dtype) and not X[name].notna().any()]
    return X.fillna(dict.fromkeys(empty, 0.0)) if empty else X


def category_columns(X: pd.DataFrame) -> list[Hashable]:
    """The columns that hold categories, by their types."""
    return [name for name, what in score_columns(X, {}, "other").items() if isinstance(what, Levels)]


def fit_score(
    estimator: Classifier | None,
    X: pd.DataFrame,
    y: npt.NDArray,
    categories: Sequence[Hashable],
    sample_weight: FloatArray | None,
    random_state: int,
) -> PlainScore | Pipeline:
    """Fit a score to rows; as plain arrays where the estimator has such a form.

    Parameters
    ----------
    estimator : classifier or regressor, optional
        What predicts; gradient-boosted trees that classify when not given.
    X : DataFrame
        The rows, checked (`checked_columns`).
    y : array
        What is predicted: class numbers, or numbers.
    categories : sequence
        The columns that hold categories.
    sample_weight : array, optional
        Weight of each row.
    random_state : int
        Seed of the trees.
    """
    model = HistGradientBoostingClassifier(random_state=random_state) if estimator is None else clone(estimator)
    X = with_values(X)
    pipeline = score_pipeline(model, X, categories)
    weight = {} if sample_weight is None else {f"{pipeline.steps[-1][0]}__sample_weight": sample_weight}
    return plain_score(pipeline.fit(X, y, **weight), X)


def score_pipeline(model: object, X: pd.DataFrame, categories: Sequence[Hashable]) -> Pipeline:
    """An estimator behind columns made numeric: categories one-hot, times as seconds."""
    times = [name for name in X if name not in categories and is_time(X[name].dtype)]
    columns = make_column_transformer(
        (FunctionTransformer(seconds, feature_names_out="one-to-one"), times),
        (
            OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=40, sparse_output=False),
            list(categories),
        ),
        remainder="passthrough",
    )
    return make_pipeline(columns, model)


def predicted_scores(scores: Sequence[PlainScore | Pipeline], X: pd.DataFrame) -> FloatArray:
    """What the scores say of rows, side by side.

    That is the mean of a number, the probability of the second of two classes, or of each of more classes.
    """
    columns = []
    for score in scores:
        if isinstance(score, Pipeline) and is_regressor(score):
            columns.append(np.asarray(score.predict(X), dtype=np.float64)[:, None])
            continue
        if isinstance(score, PlainScore) and not score.classifies:
            columns.append(score.raw_scores(X))
            continue
        probabilities = score.predict_proba(X)
        columns.append(probabilities[:, 1:] if probabilities.shape[1] == 2 else probabilities)
    return np.concatenate(columns, axis=1)

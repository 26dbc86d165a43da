"""Columns as numbers, for adversaries and measurements: scikit-learn's transformers, which are never saved."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder

from fairflows.arrays import NDArray
from fairflows.table.columns import distinct_values, floats, has_order

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def as_floats(frame: pd.DataFrame) -> FloatArray:
    """Return columns of numbers and times as floats; NaN is a missing value."""
    return np.column_stack([floats(frame.iloc[:, j]) for j in range(frame.shape[1])])


def as_texts(frame: pd.DataFrame) -> npt.NDArray[np.object_]:
    """Return columns of categories as texts; the empty text is a missing value."""
    columns = []
    for j in range(frame.shape[1]):
        codes, values = distinct_values(frame.iloc[:, j])
        columns.append(np.array([*map(str, values), ""], dtype=object)[codes])
    return np.column_stack(columns)


class View:
    """The columns of tables as numbers, learnt from one table and applied to others by the places of their columns.

    `numbers` transforms what `as_floats` returns, and `levels` the numbers of the texts of `as_texts`, −1 for a new
    text; `others` is a second one of levels, for the columns in `other_names`. Columns of numbers come first.
    """

    def __init__(
        self,
        numbers: TransformerMixin,
        levels: TransformerMixin,
        other_names: frozenset[Any] = frozenset(),
        others: TransformerMixin | None = None,
    ) -> None:
        self._numbers, self._levels, self._other_names, self._others = numbers, levels, other_names, others

    def fit(self, frame: pd.DataFrame, y: npt.NDArray | None = None) -> View:
        """Learn from a table, and from a target where a transformer needs one."""
        named = frame.columns
        ordered = [j for j, dtype in enumerate(frame.dtypes) if has_order(dtype)]
        rest = [j for j in range(frame.shape[1]) if j not in ordered]
        frame = _numbered(frame)
        parts = [
            ("numbers", make_pipeline(FunctionTransformer(as_floats), self._numbers), ordered),
            ("levels", _of_texts(self._levels), [j for j in rest if named[j] not in self._other_names]),
        ]
        if self._others is not None:
            parts.append(("others", _of_texts(self._others), [j for j in rest if named[j] in self._other_names]))
        self._columns = ColumnTransformer([part for part in parts if part[2]], sparse_threshold=0).fit(frame, y)
        return self

    def numbers(self, frame: pd.DataFrame) -> FloatArray:
        """Return the numbers of a table, (n_rows, n_numbers)."""
        return cast(FloatArray, np.asarray(self._columns.transform(_numbered(frame)), dtype=np.float64))


def _numbered(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.set_axis([f"{j}" for j in range(frame.shape[1])], axis=1)


def _of_texts(levels: TransformerMixin) -> TransformerMixin:
    """Return a transformer of texts by their numbers, which take less time to look up and to count."""
    numbers = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, dtype=np.int64)
    return make_pipeline(FunctionTransformer(as_texts), numbers, levels)

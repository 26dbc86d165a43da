"""Columns as numbers for measurements: for boosted trees, and as bins and frequent values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder

from fairflows.arrays import NDArray
from fairflows.attack.views import View
from fairflows.table.columns import floats, has_order, places_in

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_MOST_LEVELS = 250  # of a category that trees tell apart


def tree_features(fit: pd.DataFrame, *asked: pd.DataFrame) -> tuple[list[FloatArray], list[bool]]:
    """Return tables as numbers for boosted trees, and which of the columns are categories."""
    levels = OrdinalEncoder(max_categories=_MOST_LEVELS, handle_unknown="use_encoded_value", unknown_value=np.nan)
    view = View(FunctionTransformer(), levels).fit(fit)
    tables = [view.numbers(part) for part in (fit, *asked)]
    tables[0][:, np.isnan(tables[0]).all(axis=0)] = 0  # trees cannot cut nothing
    n_numbers = sum(has_order(dtype) for dtype in fit.dtypes)
    return tables, [j >= n_numbers for j in range(fit.shape[1])]


@dataclass(frozen=True)
class Coded:
    """One column of both tables as whole numbers: bins of numbers, or categories."""

    train: IntArray
    test: IntArray

    @classmethod
    def of(cls, train: pd.Series, test: pd.Series, size: tuple[int, int]) -> Coded:
        """Code both columns by bins and categories of `train`; a missing value is one more."""
        if has_order(train.dtype):
            return cls(*_binned(train, test, size[0]))
        levels = train.astype(object).value_counts().index[: size[1]]
        found = [(places_in(levels, column), column.isna().to_numpy()) for column in (train, test)]
        return cls(*(np.where(place < 0, len(levels) + missing, place) for place, missing in found))

    @property
    def majority(self) -> float:
        """How often the most frequent value of `train` is right in `test`."""
        return float((self.test == np.bincount(self.train).argmax()).mean())


def _binned(train: pd.Series, test: pd.Series, n_bins: int) -> list[IntArray]:
    """Code numbers by bins that hold about equally many values of `train`; a missing number is one more."""
    values = [floats(column) for column in (train, test)]
    known = np.sort(values[0][~np.isnan(values[0])])
    above = known[known > known[:1]]  # the smallest
    cuts = known[np.arange(1, n_bins) * len(known) // n_bins] if len(known) else known
    edges = np.intersect1d(cuts, above) if np.isin(cuts, above).any() else above[:1]
    return [np.where(np.isnan(v), len(edges) + 1, np.searchsorted(edges, v, side="right")) for v in values]

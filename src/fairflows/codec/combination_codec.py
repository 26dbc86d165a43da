"""Rows to combinations of levels, each of which is one whole number, and exactly back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import csr_matrix

from fairflows.arrays import NDArray
from fairflows.table.columns import (
    check_features,
    check_same,
    missing,
    numbers,
    training_kinds,
)
from fairflows.table.domain import Levels
from fairflows.table.frames import TEXT_DTYPE

IntArray = NDArray[np.int64]
_MOST_VALUES = 20  # a discrete column with at most so many values keeps them as levels


class BinLevels(Levels):
    """Quantile bins of a number or time column, as levels with readable names such as '[18, 25)'.

    A value equal to an inner edge belongs to the bin above.
    """

    def __init__(self, name: str, edges: np.ndarray, fitted_dtype: Any, has_missing: bool) -> None:
        shown, names = [str(edge) for edge in edges], ["any"]
        if shown:
            names = [f"< {shown[0]}", *(f"[{a}, {b})" for a, b in pairwise(shown)), f"≥ {shown[-1]}"]
        super().__init__(name, names, np.dtype(object) if has_missing else TEXT_DTYPE, has_missing)
        self.edges, self.fitted_dtype = edges, fitted_dtype

    @classmethod
    def cut(cls, name: str, column: pd.Series, n_bins: int) -> BinLevels:
        """Fit bins that hold about equally many of the known values."""
        values = np.sort(numbers(column.dropna()))
        places = np.arange(1, n_bins) * len(values) // n_bins
        edges = np.unique(values[places])
        return cls(name, edges[edges > values[0]], column.dtype, column.isna().any())

    def find(self, column: pd.Series) -> npt.NDArray[np.intp]:
        """Return the bin of each value, or of each name of a bin in a decoded column."""
        is_missing = missing(column)
        known = column[~is_missing]
        if column.dtype != self.fitted_dtype and len(known) and known.isin(self.index).all():
            return super().find(column)
        if len(known):
            check_same(self.name, column, self.fitted_dtype)
        values, codes = numbers(known), np.full(len(column), len(self.index) if self.has_missing else -1)
        # Comparing is exact between integers of any width and times of any unit, where a common type would round.
        codes[~is_missing] = sum((values >= edge for edge in self.edges), np.zeros(len(known), dtype=np.intp))
        return codes


def one_hot(codes: IntArray, levels: Sequence[int]) -> csr_matrix:
    """Return sparse one-hot columns (n, m_1 + ⋯ + m_D) of levels (n, d); those of variables beyond d are zero.

    Examples
    --------
    >>> one_hot(np.array([[0, 2], [1, 0]]), levels=[2, 3]).toarray()
    array([[1., 0., 0., 0., 1.],
           [0., 1., 1., 0., 0.]])
    """
    n, d = codes.shape
    columns = codes + np.cumsum([0, *levels[:-1]])[:d]
    return csr_matrix((np.ones(n * d), columns.ravel(), np.arange(n + 1) * d), shape=(n, sum(levels)))


class CombinationCodec:
    """Rows to numbers of combinations and back, in mixed radix: the last column varies fastest.

    Continuous columns, and discrete ones with many values, are cut into `n_bins` quantile bins. ``levels_`` holds the
    levels or bins of each column, ``shape_`` how many each has, and ``n_combinations_`` their product.

    Examples
    --------
    >>> frame = pd.DataFrame({"town": ["Ulm", "Bonn", "Ulm"], "owns": [True, True, False]})
    >>> codec = CombinationCodec().fit(frame)
    >>> codes = codec.encode(frame)
    >>> codes, codec.n_combinations_
    (array([3, 1, 2]), 4)
    >>> codec.decode(codes).equals(frame)
    True
    """

    def __init__(self, *, n_bins: int = 4) -> None:
        self.n_bins = n_bins

    def fit(self, X: pd.DataFrame, kinds: Mapping[str, str] | None = None) -> CombinationCodec:
        """Learn levels and bins from training rows."""
        kind_of = training_kinds(X, kinds)
        self.levels_ = {name: self._fit_column(str(name), column, kind_of[name]) for name, column in X.items()}
        self.shape_ = tuple(len(levels) for levels in self.levels_.values())
        self.n_combinations_ = prod(self.shape_)
        return self

    def encode(self, X: pd.DataFrame) -> IntArray:
        """Return the combination of each row; the first level stands in for a value that training did not have."""
        X = X[list(self.levels_)]
        check_features(X)
        return self.codes_of([np.maximum(levels.find(X[name]), 0) for name, levels in self.levels_.items()])

    def decode(self, codes: IntArray) -> pd.DataFrame:
        """Return the rows of these combinations: categories as they were, bins by name."""
        return self.from_levels(self.levels_of(codes))

    def codes_of(self, levels: Sequence[npt.NDArray[np.integer]]) -> IntArray:
        """Return the combinations of rows, whose levels are given column by column."""
        return np.ravel_multi_index(tuple(levels), self.shape_).astype(np.int64)

    def levels_of(self, codes: IntArray) -> IntArray:
        """Return the levels of each combination, shape (n_combinations, n_columns)."""
        return np.stack(np.unravel_index(codes, self.shape_), axis=1).astype(np.int64)

    def from_levels(self, levels: IntArray) -> pd.DataFrame:
        """Return one row for each combination of levels."""
        columns = {name: part.values.take(levels[:, j]) for j, (name, part) in enumerate(self.levels_.items())}
        return pd.DataFrame(columns, index=pd.RangeIndex(len(levels)), copy=False)

    def _fit_column(self, name: str, column: pd.Series, kind: str) -> Levels:
        keeps_values = kind == "discrete" and column.nunique() <= _MOST_VALUES
        if kind == "categorical" or keeps_values or not column.notna().any():
            return Levels.of(name, column)[0]
        return BinLevels.cut(name, column, self.n_bins)

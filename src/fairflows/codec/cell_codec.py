"""All-categorical tables: each row is one of finitely many cells, and a cell is one whole number."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import pairwise
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.codec.one_column import Levels, OutsideValues
from fairflows.exceptions import DataError, check_choice
from fairflows.table.columns import check_same, missing, named_features, numbers, training_kinds
from fairflows.table.frames import TEXT_DTYPE

MAX_CELLS = 2**62
"""Beyond this many cells a cell's number does not fit an integer."""


class BinLevels:
    """Quantile bins of a number or time column, as levels with readable names such as '[18, 25)'.

    Parameters
    ----------
    edges : ndarray
        The inner edges, increasing; a value equal to an edge belongs to the bin above.
    name : str
        The column, for error messages.
    dtype : dtype
        The column's type.
    has_missing : bool
        Whether a missing value counts as a level, the last one.
    """

    def __init__(self, name: str, edges: np.ndarray, dtype: Any, has_missing: bool) -> None:
        self.name = name
        self.edges = edges
        self.dtype = dtype
        shown, names = [str(edge) for edge in edges], ["any"]
        if shown:
            names = [f"< {shown[0]}", *(f"[{a}, {b})" for a, b in pairwise(shown)), f"≥ {shown[-1]}"]
        self.levels = Levels(name, names, np.dtype(object) if has_missing else TEXT_DTYPE, has_missing)

    @classmethod
    def fit(cls, name: str, column: pd.Series, n_bins: int) -> BinLevels:
        """Fit bins that hold about equally many of the known values."""
        values = np.sort(numbers(column.dropna()))
        places = np.arange(1, n_bins) * len(values) // n_bins
        edges = np.unique(values[places])
        return cls(name, edges[edges > values[0]], column.dtype, column.isna().any())

    def __len__(self) -> int:
        return len(self.levels)

    def codes(self, column: pd.Series, found: OutsideValues | None = None) -> npt.NDArray[np.intp]:
        """Return the bin of each value, or of each name of a bin in a decoded column."""
        is_missing = missing(column)
        has_gaps = bool(is_missing.any())
        known = column[~is_missing] if has_gaps else column
        if column.dtype != self.dtype and len(known) and known.isin(self.levels.index).all():
            return self.levels.codes(column)
        if len(known):
            check_same(self.name, column, self.dtype)
        values, codes = numbers(known), np.zeros(len(known), dtype=np.intp)
        # Comparing is exact between integers of any width and times of any unit, where a common type would round.
        for edge in self.edges:
            codes += values >= edge
        if not has_gaps:
            return codes
        with_gaps = np.full(len(column), self.levels.code_of_missing(is_missing, found))
        with_gaps[~is_missing] = codes
        return with_gaps


class CellCodec:
    """Rows to cell numbers and back, in mixed radix: the last column varies fastest.

    Parameters
    ----------
    n_bins : int, default=4
        Number columns with more values than `max_values`, and continuous ones, are cut into this many quantile bins.
    max_values : int, default=20
        A discrete column with at most so many values keeps them as they are.
    unseen : {"error", "other"}, default="error"
        Categories that training did not have raise, or are encoded as "other".
    missing : {"error", "category"}, default="error"
        Missing values raise, or are kept as a category of their own.

    Attributes
    ----------
    levels_ : dict
        The levels, or bins, of each column.
    shape_ : tuple of int
        How many each column has.
    n_cells_ : int
        Their product.

    Examples
    --------
    >>> frame = pd.DataFrame({"town": ["Ulm", "Bonn", "Ulm"], "owns": [True, True, False]})
    >>> codec = CellCodec().fit(frame)
    >>> cells = codec.encode(frame)
    >>> cells, codec.n_cells_
    (array([3, 1, 2]), 4)
    >>> codec.decode(cells).equals(frame)
    True
    """

    def __init__(
        self,
        *,
        n_bins: int = 4,
        max_values: int = 20,
        unseen: Literal["error", "other"] = "error",
        missing: Literal["error", "category"] = "error",
    ) -> None:
        if n_bins < 2:
            raise DataError(f"n_bins must be at least 2; got {n_bins!r}.")
        check_choice("unseen", unseen, ("error", "other"))
        check_choice("missing", missing, ("error", "category"))
        self.n_bins = n_bins
        self.max_values = max_values
        self.unseen = unseen
        self.missing = missing

    def fit(self, X: pd.DataFrame, kinds: Mapping[str, str] | None = None) -> CellCodec:
        """Learn levels and bins from training rows."""
        kind_of = training_kinds(X, kinds, self.missing)
        self.levels_ = {name: self._fit_column(str(name), column, kind_of[name]) for name, column in X.items()}
        self.shape_ = tuple(len(levels) for levels in self.levels_.values())
        self.n_cells_ = prod(self.shape_)
        if self.n_cells_ > MAX_CELLS:
            sizes = " × ".join(map(str, self.shape_))
            raise DataError(
                f"The cells of a table must be at most {MAX_CELLS:.0e}; {sizes} are {float(self.n_cells_):.1e}. Use "
                "fewer columns, or fewer bins."
            )
        return self

    def to_levels(self, X: pd.DataFrame, found: OutsideValues | None = None) -> npt.NDArray[np.int64]:
        """Return the level of each value, shape (n_rows, n_columns); `found` is that of `encode`."""
        columns = named_features(X, list(self.levels_), self.missing)
        codes = [levels.codes(columns[name], found) for name, levels in self.levels_.items()]
        return np.column_stack(codes).astype(np.int64, copy=False)

    def encode(self, X: pd.DataFrame, found: OutsideValues | None = None) -> npt.NDArray[np.int64]:
        """Return the cell of each row.

        Parameters
        ----------
        X : DataFrame
            Rows with the columns that the codec was fitted on.
        found : OutsideValues, optional
            Filled in with the values outside of what the codec was fitted on. With ``missing="category"`` it may hold
            rows that miss a value where none was missing in training, which are refused without it: another level
            stands in for the value.
        """
        return self.cells_of(self.to_levels(X, found))

    def decode(self, cells: npt.NDArray[np.int64]) -> pd.DataFrame:
        """Return the rows of these cells: categories as they were, bins by name."""
        return self.from_levels(self.levels_of(cells))

    def cells_of(self, levels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the cell of each combination of levels."""
        return levels @ self._radix()

    def levels_of(self, cells: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the levels of each cell, shape (n_cells, n_columns)."""
        cells = np.asarray(cells, dtype=np.int64)
        if len(cells) and not 0 <= cells.min() <= cells.max() < self.n_cells_:
            raise DataError(f"cells must be in 0 … {self.n_cells_ - 1}; got {cells.min()} … {cells.max()}.")
        return cells[:, None] // self._radix() % np.array(self.shape_, dtype=np.int64)

    def from_levels(self, levels: npt.NDArray[np.int64]) -> pd.DataFrame:
        """Return the rows of these combinations of levels."""
        columns = {name: part.array(levels[:, j]) for j, (name, part) in enumerate(self.decoded_levels.items())}
        return pd.DataFrame(columns, index=pd.RangeIndex(len(levels)), copy=False)

    @property
    def decoded_levels(self) -> dict[Hashable, Levels]:
        """Levels that each column is decoded to; of bins, their names."""
        return {name: part.levels if isinstance(part, BinLevels) else part for name, part in self.levels_.items()}

    def _radix(self) -> npt.NDArray[np.int64]:
        return np.array([prod(self.shape_[j + 1 :]) for j in range(len(self.shape_))], dtype=np.int64)

    def _fit_column(self, name: str, column: pd.Series, kind: str) -> Levels | BinLevels:
        keeps_values = kind == "discrete" and column.nunique() <= self.max_values
        if kind == "categorical" or keeps_values or not column.notna().any():
            return Levels.fit(name, column, unseen=self.unseen)
        return BinLevels.fit(name, column, self.n_bins)

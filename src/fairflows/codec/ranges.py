"""A column of numbers or times as levels that are ranges of its values, and values drawn from these ranges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.table.columns import Dtype, from_numbers, numbers
from fairflows.table.grid import Grid, find_grid

IntArray = npt.NDArray[np.int64]
Places = npt.NDArray[np.number]

_RANGES = 48  # about how many ranges a column is cut into
_FEWEST_ROWS = 8  # in a range
_MOST_VALUES = 64  # a column on a grid with at most so many values, each of which is frequent enough, keeps them
_PARTS = 8  # of a range, which hold equally many rows: values are drawn evenly within a part


@dataclass(frozen=True)
class Ranges:
    """Ranges of a column's values, which hold about equally many rows; a frequent value is a range of its own.

    A value's *place* is its number on the column's grid, or the value itself where the column has no grid; that of a
    missing value is −1 or NaN. What is drawn from a range lies on the grid, and between the smallest and the largest
    value that the range was fitted to.

    Attributes
    ----------
    knots : ndarray of shape (n_ranges, 9)
        Places of the quantiles 0, 1/8, ..., 1 of the rows in each range.
    grid : Grid or None
        The column's grid.
    dtype : dtype
        The column's type.
    has_missing : bool
        Whether a missing value counts as a level, the last one.

    Examples
    --------
    >>> column = pd.Series(np.arange(0, 1000, 5))
    >>> ranges = Ranges.fit(column)
    >>> drawn = ranges.column(ranges.draw(ranges.codes(column), np.random.default_rng(0)))
    >>> bool((drawn % 5 == 0).all()), bool(drawn.between(0, 995).all())
    (True, True)
    """

    knots: Places
    grid: Grid | None
    dtype: Dtype
    has_missing: bool

    @classmethod
    def fit(cls, column: pd.Series) -> Ranges | None:
        """Ranges of the column's known values; None where there are none, or integers too far apart for any grid."""
        known = numbers(column.dropna())
        if not len(known):
            return None
        grid = find_grid(known) or _finest_grid(known)
        if grid is None and known.dtype.kind != "f":
            return None
        values = np.sort(_places(known, grid))
        _, first, counts = np.unique(values, return_index=True, return_counts=True)
        start = first[_begins(counts, on_grid=grid is not None)]
        length = np.diff(np.append(start, len(values)))
        place = start[:, None] + np.linspace(0, 1, _PARTS + 1) * (length[:, None] - 1)
        if grid is None:  # quantiles lie between values, so that few rows in a range do not show theirs
            knots: Places = np.interp(place, np.arange(len(values)), values.astype(np.float64))
        else:
            knots = values[np.rint(place).astype(np.intp)]
        return cls(knots, grid, column.dtype, bool(column.isna().any()))

    def __len__(self) -> int:
        return len(self.knots) + self.has_missing

    def places(self, column: pd.Series) -> Places:
        """The place of each value."""
        known = column.notna().to_numpy()
        places = np.full(len(column), self._missing, dtype=self.knots.dtype)
        places[known] = _places(numbers(column[known]), self.grid)
        return places

    def codes(self, column: pd.Series) -> IntArray:
        """The level of each value that the ranges were fitted to."""
        codes = np.searchsorted(self.knots[:, 0], self.places(column), side="right") - 1
        codes[column.isna().to_numpy()] = len(self.knots)
        return codes

    def draw(self, codes: IntArray, generator: np.random.Generator) -> Places:
        """A place in each of these ranges, at random."""
        known = np.minimum(codes, len(self.knots) - 1)
        part, u = generator.integers(_PARTS, size=len(codes)), generator.random(len(codes))
        low, high = self.knots[known, part], self.knots[known, part + 1]
        if self.grid is None:
            drawn = np.minimum(low + u * (high - low), high)
        else:
            drawn = np.minimum(low + (u * (high - low + 1)).astype(np.int64), high)
        return np.where(codes < len(self.knots), drawn, self._missing)

    def column(self, places: Places) -> pd.Series:
        """The values at these places, in the column's own type."""
        missing = np.isnan(places) if self.grid is None else places < 0
        known = np.where(missing, self.knots[0, 0], places)
        kind = _plain_type(self.dtype)
        values = known.astype(kind) if self.grid is None else self.grid.value(known.astype(np.int64), kind)
        column = from_numbers(values, self.dtype)
        return column.mask(missing) if missing.any() else column

    @property
    def _missing(self) -> float | int:
        return np.nan if self.grid is None else -1


def _finest_grid(known: np.ndarray) -> Grid | None:
    """Every integer or tick of time from the smallest value to the largest, where these are not too far apart."""
    if known.dtype.kind == "f":
        return None
    ticks = known.view(np.int64) if known.dtype.kind in "mM" else known
    low, high = int(ticks.min()), int(ticks.max())
    return Grid(low, 1, 0, high - low + 1) if high - low < 2**62 else None


def _places(known: np.ndarray, grid: Grid | None) -> Places:
    return known.astype(np.float64) if grid is None else grid.index(known)[0]


def _plain_type(dtype: Dtype) -> np.dtype:
    """NumPy's type of what `numbers` gives for a column of this type."""
    return numbers(pd.Series([], dtype=dtype)).dtype


def _begins(counts: IntArray, *, on_grid: bool) -> npt.NDArray[np.bool_]:
    """Which of the distinct values, with these counts, begin a range."""
    n = counts.sum()
    if on_grid and len(counts) <= _MOST_VALUES and n >= _FEWEST_ROWS * len(counts):
        return np.ones(len(counts), dtype=bool)
    size = max(n / _RANGES, _FEWEST_ROWS)
    is_frequent = counts >= size
    range_of = np.cumsum(np.where(is_frequent, 0, counts)) // size
    begins = is_frequent | (np.diff(range_of, prepend=0) > 0)
    begins[1:] |= is_frequent[:-1]
    begins[0] = True
    return begins

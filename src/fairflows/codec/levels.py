"""A column as numbered levels: the values of a categorical column, or ranges of numbers or times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.extensions import ExtensionArray

from fairflows.codec.outside import UNKNOWN, Outside
from fairflows.exceptions import DataError
from fairflows.table.columns import Dtype, from_numbers, missing, numbers, places_in, shown, sorted_values
from fairflows.table.grid import Grid, find_grid
from fairflows.table.schema import kind_of_values

OTHER = "other"
"""The value that stands for all unseen ones where these are accepted."""

IntArray = npt.NDArray[np.int64]
Places = npt.NDArray[np.number]
_RANGES = 48  # about how many ranges a column is cut into
_FEWEST_ROWS = 8  # in a range
_MOST_VALUES = 64  # a column on a grid with at most so many values, each of which is frequent enough, keeps them
_PARTS = 8  # of a range, which hold equally many rows: values are drawn evenly within a part


class Levels:
    """The values of a categorical column, numbered 0, 1, ...

    Parameters
    ----------
    name : str
        The column, for error messages.
    values : sequence
        Its values without the missing one, in the order of their numbers.
    dtype : dtype
        The column's type, which decoded columns get again.
    has_missing : bool
        Whether a missing value counts as a level, the last one.
    unseen : {"error", "other"}
        Whether a value that is not among the levels is refused or counted as the level "other" (text columns only;
        it is added when the column has no such value).
    """

    def __init__(
        self,
        name: str,
        values: list[Any],
        dtype: Any,
        has_missing: bool = False,
        unseen: Literal["error", "other"] = "error",
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.has_missing = has_missing
        self.takes_unseen = unseen == "other" and all(isinstance(value, str) for value in values)
        if self.takes_unseen and OTHER not in values:
            values = [*values, OTHER]
            if isinstance(dtype, pd.CategoricalDtype):
                self.dtype = pd.CategoricalDtype([*dtype.categories, OTHER], ordered=dtype.ordered)
        self.index = pd.Index(values, dtype=object)

    @classmethod
    def fit(
        cls,
        name: str,
        column: pd.Series,
        y: npt.NDArray[np.float64] | None = None,
        unseen: Literal["error", "other"] = "error",
    ) -> Levels:
        """The levels of a column: all that its type declares, or all that occur.

        They are numbered by the mean of `y` over their rows, so that neighbours behave alike; an ordered type keeps
        its own order, and without `y` the values are sorted.
        """
        declared = column.dtype.categories.tolist() if isinstance(column.dtype, pd.CategoricalDtype) else None
        values = sorted_values(column) if declared is None else declared
        is_ordered = declared is not None and column.dtype.ordered
        levels = cls(name, values, column.dtype, bool(column.isna().any()), unseen)
        if y is None or is_ordered:
            return levels
        codes = levels.codes(column)
        counts = np.bincount(codes, minlength=len(levels))
        sums = np.bincount(codes, weights=y, minlength=len(levels))
        rates = (sums + y.mean()) / (counts + 1)  # one row's worth of the overall rate, so that no level is without
        known = np.argsort(rates[: len(levels.index)], kind="stable")
        levels.index = levels.index[known]
        return levels

    def __len__(self) -> int:
        return len(self.index) + self.has_missing

    def codes(self, column: pd.Series, found: Outside | None = None) -> npt.NDArray[np.intp]:
        """The number of each value.

        With `found`, the rows that hold an unseen value, or miss one where none was missing, are noted there; the
        latter are refused otherwise.
        """
        codes = places_in(self.index, column)
        is_missing = missing(column)
        if is_missing.any():
            codes[is_missing] = self.code_of_missing(is_missing, found)
        unseen = codes < 0
        if unseen.any():
            if not self.takes_unseen:
                value = column.to_numpy(dtype=object)[unseen.argmax()]
                raise DataError(
                    f"Column {self.name!r} must hold one of its {len(self.index)} categories from the rows it was "
                    f"fitted on; {unseen.sum():,} values do not, the first is {shown(value)}. Text columns take them "
                    f"as {OTHER!r} with unseen='other'."
                )
            if found is not None:
                found.note(self.name, "unseen", unseen)
            codes[unseen] = self.index.get_loc(OTHER)
        return codes

    named = codes

    def places(self, column: pd.Series) -> Places:
        """The place of each value: as for `Ranges`, what is drawn from a level and becomes a value again."""
        return self.codes(column)

    def draw(self, codes: IntArray, generator: np.random.Generator) -> Places:
        """A place in each of these levels: a level has one."""
        return codes

    def known(self, column: pd.Series, found: Outside) -> pd.Series:
        """The column with a level in place of each value that is none; the column itself where there are none."""
        codes = self.codes(column, found)
        is_changed = column.dtype != self.dtype or any((self.name, reason) in found.rows for reason in UNKNOWN)
        return self.column(codes).set_axis(column.index) if is_changed else column

    def code_of_missing(self, is_missing: npt.NDArray[np.bool_], found: Outside | None) -> int:
        """The number of a missing value; where none was missing in training, that of a level which stands in for it."""
        if self.has_missing or not is_missing.any():
            return len(self.index)
        if found is None:
            raise DataError(
                f"Column {self.name!r} had no missing values in the rows it was fitted on; {is_missing.sum():,} values "
                "are missing now."
            )
        found.note(self.name, "missing", is_missing)
        return int(self.index.get_loc(OTHER)) if self.takes_unseen else 0

    def column(self, codes: Places) -> pd.Series:
        """The values with these numbers; a number outside gets the nearest level."""
        nearest = np.clip(codes, 0, len(self) - 1).astype(np.intp)
        return pd.Series(self.array(nearest), dtype=self.dtype)

    def array(self, codes: IntArray) -> ExtensionArray:
        """The values with these numbers, all of them of levels, as a frame takes them over."""
        return self._values.take(codes)

    @cached_property
    def _values(self) -> ExtensionArray:
        """The value of each level, the missing one last, in the column's type."""
        if isinstance(self.dtype, pd.CategoricalDtype):
            places = self.dtype.categories.get_indexer(self.index)
            return pd.Categorical.from_codes(np.append(places, -1) if self.has_missing else places, dtype=self.dtype)
        return pd.Series([*self.index, *([None] if self.has_missing else [])], dtype=self.dtype).array

    @cached_property
    def kind(self) -> str:
        """The kind of value that the levels are, as a `Schema` names it."""
        return kind_of_values(self.index)


@dataclass(frozen=True)
class Ranges:
    """Ranges of a column's values, which hold about equally many rows; a frequent value is a range of its own.

    A value's *place* is its number on the column's grid, or the value itself where the column has no grid; that of a
    missing value is −1 or NaN. What is drawn from a range lies on the grid, and between the smallest and the largest
    value that the range was fitted to.

    Examples
    --------
    >>> column = pd.Series(np.arange(0, 1000, 5))
    >>> ranges = Ranges.fit(column)
    >>> drawn = ranges.column(ranges.draw(ranges.codes(column), np.random.default_rng(0)))
    >>> bool((drawn % 5 == 0).all()), bool(drawn.between(0, 995).all())
    (True, True)
    """

    knots: Places  # (n_ranges, 9): places of the quantiles 0, 1/8, ..., 1 of the rows in each range
    grid: Grid | None  # the column's grid
    dtype: Dtype  # the column's type
    has_missing: bool  # whether a missing value counts as a level, the last one

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


@cache
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

"""Ranges of a column of numbers or times, each of which holds at least ten persons."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.arrays import NDArray
from fairflows.bounds.cells import FEWEST_PERSONS
from fairflows.encoder.base import FloatArray, IntArray
from fairflows.table.columns import Dtype, from_numbers, numbers
from fairflows.table.grid import Grid, find_grid

Places = NDArray[np.number]
BoolArray = NDArray[np.bool_]

_MOST_RANGES = 250
_MOST = 0.98  # share of the values that decides on the grid of a column
_MOST_DECIMALS = 10
_STEPS_OF_A_STRETCH = 1_000  # a number without a grid is rounded to about this fraction of its stretch


@dataclass(frozen=True)
class NumberRanges:
    """Ranges of a column's values, each of which holds at least ten persons.

    The *place* of a value is its number on the column's grid, or the value itself where the column has no grid. The
    grid is that of nearly all values; other values are rounded to it. A range consists of *stretches*: a value that
    several persons share is a stretch of its own, and all other values of the range lie in one stretch that reaches
    from the smallest to the largest of them. A value that one person has belongs to no stretch if all values below it,
    or all above it, are this person's alone, or if all others of its range are shared.

    Examples
    --------
    >>> column = pd.Series(np.arange(0, 1000, 5))
    >>> ranges, codes = NumberRanges.fit(column, np.arange(200))
    >>> drawn = ranges.column(ranges.draw(codes, np.random.default_rng(0)))
    >>> bool((drawn % 5 == 0).all()), bool(drawn.between(5, 990).all())
    (True, True)
    """

    grid: Grid | None
    dtype: Dtype
    has_missing: bool  # whether a missing value is a level, the last one
    first: Places  # (n_ranges,): smallest place of each range
    start: IntArray  # (n_ranges + 1,): number of rows before each range, and in all ranges
    low: Places  # (n_stretches,): smallest place of each stretch
    high: Places  # (n_stretches,): largest place of each stretch
    total: IntArray  # (n_stretches,): number of rows up to the end of each stretch
    is_drawn: BoolArray  # (n_ranges,): whether a range holds more than extremes and values of one person

    @classmethod
    def fit(cls, column: pd.Series, persons: IntArray) -> tuple[NumberRanges, IntArray] | None:
        """Return the ranges of a column, and the range of each row, given the person of each row.

        None if the column has no values, or integers too far apart for a grid.
        """
        is_known = column.notna().to_numpy()
        known = numbers(column[is_known])
        grid = grid_of_most(known) if len(known) else None
        if not len(known) or (grid is None and known.dtype.kind != "f"):
            return None
        places, is_exact = _places(known, grid)
        # A value that is rounded does not count: the value that it is rounded to may be another person's alone.
        found = _ranges(places[is_exact], persons[is_known][is_exact])
        ranges = cls(grid, column.dtype, not is_known.all(), *found)
        return ranges, ranges.find(column)

    def find(self, column: pd.Series) -> IntArray:
        """Return the range of each value; the nearest one of a value outside, the last level of a missing value."""
        is_known = column.notna().to_numpy()
        codes = np.full(len(column), len(self.first) - (not self.has_missing), dtype=np.int64)
        places, _ = _places(numbers(column[is_known]), self.grid)
        codes[is_known] = np.maximum(np.searchsorted(self.first, places, side="right") - 1, 0)
        return codes

    def __len__(self) -> int:
        return len(self.first) + self.has_missing

    @property
    def missing_place(self) -> float:
        """The place of a missing value."""
        return np.nan if self.grid is None else -1

    def draw(self, codes: IntArray, generator: np.random.Generator) -> Places:
        """Draw a place from each of these ranges."""
        known = np.minimum(codes, len(self.first) - 1)
        begin, end = self.start.take(known), self.start.take(known + 1)
        u = generator.random((2, len(codes)))
        stretch = self.total.searchsorted(begin + (u[0] * (end - begin)).astype(np.int64), side="right")
        drawn = self._within(self.low.take(stretch), self.high.take(stretch), u[1])
        return np.where(codes < len(self.first), drawn, self.missing_place) if self.has_missing else drawn

    def _within(self, low: Places, high: Places, u: FloatArray) -> Places:
        """Return the place at the share u of each stretch."""
        if self.grid is not None:
            return np.minimum(low + (u * (high - low + 1)).astype(np.int64), high)
        with np.errstate(all="ignore"):
            scale = 10.0 ** np.ceil(np.log10(_STEPS_OF_A_STRETCH / (high - low)))
            first, last = np.floor(low * scale) + 1, np.ceil(high * scale) - 1  # multiples inside of the stretch
            rounded = (first + np.floor(u * (last - first + 1))) / scale
            is_inside = np.isfinite(rounded) & (rounded > low) & (rounded < high)
        return np.where(is_inside, rounded, low + u * (high - low))

    def column(self, places: Places) -> pd.Series:
        """Return the values at these places, in the type of the column."""
        is_missing = np.isnan(places) if self.grid is None else places < 0
        known = np.where(is_missing, self.low[0], places) if self.has_missing else places
        kind = _plain_type(self.dtype)
        values = known.astype(kind) if self.grid is None else self.grid.value(known.astype(np.int64), kind)
        column = from_numbers(values, self.dtype)
        return column.mask(is_missing) if self.has_missing and is_missing.any() else column


def is_shared(codes: npt.NDArray[np.integer], persons: npt.NDArray[np.integer], n: int) -> BoolArray:
    """Return whether two persons or more have each of n values, given the value and the person of every row."""
    somebody = np.zeros(n, dtype=persons.dtype)
    somebody[codes] = persons
    return np.bincount(codes, persons != somebody[codes], minlength=n) > 0


def is_within_others(owner: npt.NDArray[np.integer]) -> BoolArray:
    """Return which of rising values are no extremes of one person, given the only person of each value, or −1.

    All values of one person that lie beyond those of all others are extremes, not just the last one.

    Examples
    --------
    >>> is_within_others(np.array([7, -1, 8, 9, 8, 8])).tolist()
    [False, True, True, True, False, False]
    """
    first, last = ((owner != end) | (owner < 0) for end in (owner[0], owner[-1]))
    return np.logical_or.accumulate(first) & np.logical_or.accumulate(last[::-1])[::-1]


def _ranges(places: Places, persons: IntArray) -> tuple[Places, IntArray, Places, Places, IntArray, BoolArray]:
    """Return the first places and rows of the ranges, low, high and rows so far of stretches, and which are drawn."""
    order = np.lexsort([persons, places])
    places, persons = places[order], persons[order]
    start = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]]))  # of each different value
    end = np.append(start[1:], len(places))
    # A person with m rows counts 1/m in each of them, so a sum of ten takes at least ten persons.
    weight = np.add.reduceat(1 / np.bincount(persons)[persons], start)
    value, count, shared = places[start], end - start, persons[start] != persons[end - 1]
    starts = _first_values(weight)
    of_range = np.searchsorted(starts, np.arange(len(value)), side="right") - 1
    stretch = np.where(shared, np.arange(len(value)), len(value))  # all other values of a range are one stretch
    _, number = np.unique(of_range * (len(value) + 1) + stretch, return_inverse=True)
    n_rows = np.bincount(number, count).astype(np.int64)
    is_inner = is_within_others(np.where(shared, -1, persons[start]))
    # Of a stretch of one person alone, the value itself would be drawn.
    alone = is_inner & ~shared
    is_inner &= shared | is_shared(number[alone], persons[start][alone], len(n_rows))[number]
    is_drawn = np.bincount(of_range, is_inner) > 0  # what is left of other ranges is of one person, and is not drawn
    is_left = is_inner | ~is_drawn[of_range]
    is_there = np.bincount(number, is_left) > 0
    low, high = np.empty((2, len(n_rows)), dtype=value.dtype)
    low[number[is_left][::-1]], high[number[is_left]] = value[is_left][::-1], value[is_left]
    range_of = np.zeros(len(n_rows), dtype=np.int64)
    range_of[number] = of_range
    total = np.cumsum(n_rows[is_there])
    first_row = np.append(0, total)[np.searchsorted(range_of[is_there], np.arange(len(starts) + 1))]
    return value[starts], first_row, low[is_there], high[is_there], total, is_drawn


def _first_values(weight: FloatArray) -> IntArray:
    """Return the numbers of the values that begin a range, given how many persons have each value."""
    size = max(weight.sum() / _MOST_RANGES, FEWEST_PERSONS)
    is_frequent = weight >= size
    rest = np.cumsum(np.where(is_frequent, 0, weight))
    # Ranges of one size, and ever smaller ones towards both ends.
    tail = FEWEST_PERSONS * 2.0 ** np.arange(np.log2(size / FEWEST_PERSONS))
    cuts = np.unique(np.concatenate([tail, np.arange(size, rest[-1], size), rest[-1] - tail]))
    part = np.searchsorted(cuts[(cuts > 0) & (cuts < rest[-1])], rest, side="right")
    begins = is_frequent | (np.diff(part, prepend=0) > 0)
    begins[1:] |= is_frequent[:-1]
    begins[0] = True
    start = np.flatnonzero(begins)
    return start[_large_enough(np.add.reduceat(weight, start))]


def _large_enough(persons: FloatArray) -> IntArray:
    """Return which ranges remain after each small one was joined with its smaller neighbour."""
    firsts, sizes = list(range(len(persons))), persons.tolist()
    i = 0
    while i < len(sizes) and len(sizes) > 1:
        if sizes[i] >= FEWEST_PERSONS - 1e-6:
            i += 1
            continue
        left = i > 0 and (i + 1 == len(sizes) or sizes[i - 1] <= sizes[i + 1])
        i -= left
        sizes[i] += sizes.pop(i + 1)
        firsts.pop(i + 1)
    return np.array(firsts)


def grid_of_most(known: np.ndarray) -> Grid | None:
    """Return the grid of nearly all values, which others are rounded to; None for a column without one.

    Examples
    --------
    >>> grid_of_most(np.array([*np.arange(0, 100, 0.1).round(1), 5.699999999999999]))
    Grid(origin=0, step=1, decimals=1, n_steps=1000)
    """
    grid = find_grid(known)
    if known.dtype.kind != "f":
        return grid or _finest_grid(known)
    if grid is not None and grid.decimals <= 0:
        return grid
    sample = known[:: max(1, len(known) // 4_096)].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        for decimals in range(_MOST_DECIMALS):
            if np.mean(np.round(sample, decimals).astype(known.dtype) == sample) >= _MOST:
                rounded = np.round(known.astype(np.float64), decimals)
                return find_grid(rounded.astype(known.dtype)) or _finest_grid(rounded, decimals) or grid
    return grid


def _finest_grid(known: np.ndarray, decimals: int = 0) -> Grid | None:
    """Return all decimals or ticks of time between the smallest and the largest value, unless these are too many."""
    is_real = known.dtype.kind == "f"
    ticks = np.rint(known * 10.0**decimals) if is_real else known.view(np.int64) if known.dtype.kind in "mM" else known
    low, high = int(ticks.min()), int(ticks.max())
    is_held = max(-low, high) < 2**53 if is_real else high - low < 2**62  # larger reals are not told apart
    return Grid(low, 1, decimals, high - low + 1) if is_held else None


def _places(known: np.ndarray, grid: Grid | None) -> tuple[Places, BoolArray]:
    """Return the place of each value, and which values are not rounded."""
    return (known.astype(np.float64), np.ones(len(known), dtype=bool)) if grid is None else grid.index(known)


@cache
def _plain_type(dtype: Dtype) -> np.dtype:
    """Return NumPy's type of the values that `numbers` returns for a column of this type."""
    return numbers(pd.Series([], dtype=dtype)).dtype

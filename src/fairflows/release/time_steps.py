"""The times of a person's rows, drawn as a start, a length, and a step from each row to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.encoder.base import FloatArray, IntArray
from fairflows.release.number_ranges import grid_of_most
from fairflows.release.own_rows import shared_range
from fairflows.release.rules import BoolArray
from fairflows.table.columns import Dtype, from_numbers, numbers

LENGTH, ELAPSED, REST, SINCE, UNTIL = "(length)", "(elapsed)", "(rest)", "(since)", "(until)"


@dataclass(frozen=True)
class TimeSteps:
    """How the times of a person's rows follow each other.

    Steps are counted in units, the largest that all steps of the table are multiples of; steps of real numbers count
    as they are.
    """

    time: str
    unit: float
    decimals: int | None  # of a time that is a real number on a grid
    smallest: float  # step that two persons have, in units
    last: float  # latest time that two persons have

    @classmethod
    def of(cls, time: str, column: pd.Series, owner: IntArray, is_first: BoolArray) -> TimeSteps:
        """Find unit and limits in rows that are sorted by person and time."""
        ticks = _ticks(column)
        step, whose = np.diff(ticks)[~is_first[1:]], owner[1:][~is_first[1:]]
        unit, decimals = 1.0, None
        if ticks.dtype.kind == "i":
            unit = float(max(np.gcd.reduce(step), 1))
        elif (grid := grid_of_most(ticks)) is not None:
            decimals = grid.decimals
        values = ticks.astype(np.float64)
        return cls(time, unit, decimals, shared_range(step / unit, whose)[0], shared_range(values, owner)[1])

    def columns(self, column: pd.Series, is_first: BoolArray, is_last: BoolArray, owner: IntArray) -> pd.DataFrame:
        """Return the length in time of each row's person, and the time to the first and last row and the neighbours."""
        ticks = _ticks(column)
        elapsed = (ticks - ticks[is_first][owner]) / self.unit
        since = np.diff(elapsed, prepend=0.0)
        until = np.where(is_last, np.nan, np.append(since[1:], 0.0))
        length, since = elapsed[is_last][owner], np.where(is_first, 0.0, since)
        return pd.DataFrame({LENGTH: length, ELAPSED: elapsed, REST: length - elapsed, SINCE: since, UNTIL: until})

    def begin(self, rows: pd.DataFrame, left: IntArray) -> Clock:
        """Return the clock of first rows, whose persons get so many rows more.

        A length that ends after the last time of the table, or is too short for the number of rows, is cut, or fewer
        rows are drawn.
        """
        start = _ticks(rows[self.time])
        most = np.maximum(np.floor((self.last - start) / self.unit), 0.0)
        length = np.where(left > 0, np.clip(np.nan_to_num(rows[LENGTH].to_numpy(dtype=np.float64)), 0, most), 0.0)
        if self.smallest > 0:
            left = np.minimum(left, np.floor(length / self.smallest + 1e-9).astype(np.int64))
        return Clock(self, start, length, np.zeros(len(rows)), np.zeros(len(rows)), left)

    def values(self, ticks: npt.NDArray, dtype: Dtype) -> pd.Series:
        """Return times in the type of their column."""
        kind = numbers(pd.Series([], dtype=dtype)).dtype
        if kind.kind in "mM":
            return from_numbers(np.rint(ticks).astype(np.int64).view(kind), dtype)
        if kind.kind in "iu":
            return from_numbers(np.rint(ticks).astype(kind), dtype)
        return from_numbers(ticks if self.decimals is None else np.round(ticks, self.decimals), dtype)


@dataclass(frozen=True)
class Clock:
    """The time at the present row of each of some persons, in units since their first row."""

    steps: TimeSteps
    start: npt.NDArray
    length: FloatArray
    elapsed: FloatArray
    since: FloatArray
    left: IntArray  # rows that are left

    def take(self, places: IntArray) -> Clock:
        """Return the clock of some of the persons."""
        start, length, elapsed = self.start[places], self.length[places], self.elapsed[places]
        return Clock(self.steps, start, length, elapsed, self.since[places], self.left[places])

    def next(self, until: npt.NDArray[Any], left: IntArray) -> Clock:
        """Return the clock at the next row, given the drawn step and the rows that are left after it.

        The last row ends the length. A step that leaves no time for the rows that follow is replaced by an even one.
        """
        rest, smallest = self.length - self.elapsed, self.steps.smallest
        even = rest / (left + 1)
        even = np.floor(even) if self.start.dtype.kind == "i" else even
        step = np.where(until <= rest - smallest * left, until, even)  # the last row has no step, which is NaN
        step = np.maximum(step, smallest)
        step = np.where(left == 0, rest, step)
        return Clock(self.steps, self.start, self.length, self.elapsed + step, step, left)

    def columns(self, dtype: Dtype) -> dict[str, Any]:
        """Return time since the start and the row before, and to the last row, and the time itself."""
        ticks = self.start + (self.elapsed * self.steps.unit).astype(self.start.dtype)
        beside = {ELAPSED: self.elapsed, REST: self.length - self.elapsed, SINCE: self.since}
        return beside | {self.steps.time: self.steps.values(ticks, dtype)}


def _ticks(column: pd.Series) -> npt.NDArray:
    """Return times as whole numbers, or as real numbers where they are."""
    values = numbers(column)
    if values.dtype.kind in "mM":
        return values.view(np.int64)
    return values.astype(np.int64 if values.dtype.kind in "iu" else np.float64)

"""Encoded columns as numbers, whatever they hold: what trees, scores and centres are built on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.encoder.plain_score import seconds
from fairflows.exceptions import DataError
from fairflows.table.columns import is_number, is_time, sorted_values

FloatArray = npt.NDArray[np.float64]

_PRIOR_ROWS = 10  # how many rows at the average rate a level's label rate is mixed with


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, moved to mean 0 and standard deviation 1."""

    mean: float
    scale: float

    def features(self, column: pd.Series) -> FloatArray:
        """One column."""
        return ((_numbers(column) - self.mean) / self.scale)[:, None]


@dataclass(frozen=True)
class LevelColumn:
    """A column of levels; each is a row of a table: its label rates, or a one in its own place.

    A level that fitting did not see has the table's last row.
    """

    levels: list[Any]
    table: FloatArray

    def features(self, column: pd.Series) -> FloatArray:
        """The row of each value's level."""
        return self.table[pd.Index(self.levels, dtype=object).get_indexer(column.astype(object))]


@dataclass(frozen=True)
class NumericView:
    """Every column of a frame as numbers.

    Attributes
    ----------
    columns : list of NumberColumn or LevelColumn
        In the frame's order.
    """

    columns: list[NumberColumn | LevelColumn]

    @classmethod
    def fit(
        cls, frame: pd.DataFrame, y: npt.NDArray[np.intp] | None, n_classes: int, *, standardise: bool = True
    ) -> NumericView:
        """Learn means and levels; levels become the label rates of their rows, or one-hot without a label."""
        targets = None if y is None else np.eye(n_classes)[y][:, 1:]
        return cls([_fit_column(frame.iloc[:, j], targets, standardise) for j in range(frame.shape[1])])

    def features(self, frame: pd.DataFrame) -> FloatArray:
        """The numbers, (n_rows, n_numbers)."""
        if frame.shape[1] != len(self.columns):
            raise DataError(f"The cells were fitted on {len(self.columns)} columns; got {frame.shape[1]}.")
        return np.concatenate([part.features(frame.iloc[:, j]) for j, part in enumerate(self.columns)], axis=1)


def _fit_column(column: pd.Series, targets: FloatArray | None, standardise: bool) -> NumberColumn | LevelColumn:
    if is_number(column.dtype) or is_time(column.dtype):
        if not standardise:
            return NumberColumn(0.0, 1.0)
        values = _numbers(column)
        return NumberColumn(float(values.mean()), float(values.std()) or 1.0)
    levels = sorted_values(column)
    if targets is None:
        return LevelColumn(levels, np.concatenate([np.eye(len(levels)), np.zeros((1, len(levels)))]))
    code = pd.Index(levels, dtype=object).get_indexer(column.astype(object))
    sums = np.stack([np.bincount(code, weights=t, minlength=len(levels)) for t in targets.T], axis=1)
    rows = np.bincount(code, minlength=len(levels))[:, None]
    average = targets.mean(axis=0, keepdims=True)
    return LevelColumn(levels, np.concatenate([(sums + _PRIOR_ROWS * average) / (rows + _PRIOR_ROWS), average]))


def _numbers(column: pd.Series) -> FloatArray:
    if is_time(column.dtype):
        column = seconds(column.to_frame()).iloc[:, 0]
    values = column.to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        raise DataError(f"Column {column.name!r} must hold finite numbers to be cut into cells; it has NaN or inf.")
    return values

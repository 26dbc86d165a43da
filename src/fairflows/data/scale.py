"""A column of numbers or times as positions: grid indices, or places in the training range."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.data.columns import from_numbers, is_number, is_time, numbers
from fairflows.data.grid import Grid, find_grid
from fairflows.exceptions import DataError

Array = npt.NDArray[np.float64]

_N_QUANTILES = 257  # of the known values, from which missing ones are drawn


class Scale:
    """The scale of a number or time column.

    Attributes
    ----------
    grid : Grid or None
        The grid its values lie on; None for a continuous column.
    n : float
        The positions of training values fill [0, n].
    is_noisy : bool
        Whether positions are whole numbers that noise in [0, 1) is added to.
    log_width : float
        log of the training range in table units, from position 0 to n (times: in ticks of the column's own unit).
    """

    def __init__(self, name: str, dtype: Any, grid: Grid | None, low: Any, high: Any, is_noisy: bool) -> None:
        self.name = name
        self.dtype = dtype
        self.grid = grid
        self.low, self.high = low, high
        self.is_noisy = is_noisy
        if grid is None:
            self.n = 1.0
            half_width = float(as_float(high) / 2 - as_float(low) / 2)  # the width itself may overflow
            self.log_width = float(np.log(half_width) + np.log(2))
        else:
            # Without noise the largest value sits at the very end of the range, with noise one step before it.
            self.n = float(grid.n_steps if is_noisy else grid.n_steps - 1)
            self.log_width = float(np.log(self.n) + np.log(grid.quantum))

    @classmethod
    def fit(cls, name: str, known: pd.Series, kind: str, dequantise: bool) -> Scale:
        """The scale of a column from its known values."""
        values = numbers(known)
        grid = None if kind == "continuous" else find_grid(values)
        if kind == "discrete" and grid is None:
            raise DataError(
                f"Column {name!r} is declared discrete, but its values lie on no grid of at most 2**40 steps, such as "
                f"integers or fixed decimals; the first is {known.iloc[0]}. Declare it continuous, or round it."
            )
        scale = cls(name, known.dtype, grid, values.min(), values.max(), is_noisy=dequantise and grid is not None)
        middle = np.linspace(0, 1, _N_QUANTILES)
        scale.quantiles = np.sort(values)[np.rint(middle * (len(values) - 1)).astype(np.intp)]
        return scale

    quantiles: np.ndarray

    @property
    def origin(self) -> float:
        """The value at position 0, in table units."""
        return float(as_float(self.low))

    def position(self, column: pd.Series, outside: str, off_grid: str) -> tuple[Array, int]:
        """Positions without noise, and how many values lie outside the training range."""
        values = self._numbers(column)
        beyond = (values < self.low) | (values > self.high)
        if beyond.any() and outside == "error":
            raise DataError(
                f"Column {self.name!r} must be in its training range {self.low} to {self.high}; {int(beyond.sum()):,} "
                f"values are not, the first is {column.iloc[int(beyond.argmax())]}."
            )
        if outside == "clip":
            values = np.clip(values, self.low, self.high)
        if self.grid is None:
            low, high = as_float(self.low), as_float(self.high)
            return (as_float(values) / 2 - low / 2) / (high / 2 - low / 2), int(beyond.sum())
        k, on_grid = self.grid.index(values)
        if off_grid == "error" and not on_grid.all():
            raise DataError(
                f"Column {self.name!r} must lie on the grid of its training values, in steps of {self.grid.quantum:g} "
                f"from {self.low}; {int((~on_grid).sum()):,} values do not, the first is "
                f"{column.iloc[int((~on_grid).argmax())]}. Round them (off_grid='round'), or declare the column "
                "continuous."
            )
        return k.astype(np.float64), int(beyond.sum())

    def _numbers(self, column: pd.Series) -> np.ndarray:
        """The column's values, comparable with the training range whatever width or time unit they come in."""
        if is_time(self.dtype) and is_time(column.dtype):
            return numbers(column.astype(self.dtype) if column.dtype != self.dtype else column)
        if is_number(self.dtype) and is_number(column.dtype):
            return numbers(column)
        raise DataError(
            f"Column {self.name!r} must hold {'times' if is_time(self.dtype) else 'numbers'}, as in the rows it was "
            f"fitted on ({self.dtype}); got {column.dtype}."
        )

    def column(self, position: Array) -> pd.Series:
        """The values at these positions."""
        dtype = self.quantiles.dtype
        if self.grid is not None:
            k = np.floor(position) if self.is_noisy else np.rint(position)
            return from_numbers(self.grid.value(_whole(k, np.dtype(np.int64)), dtype), self.dtype)
        low, high = as_float(self.low), as_float(self.high)
        values = low * (1 - position) + high * position  # exact at both ends, and never larger than both
        if dtype.kind in "iu":
            return from_numbers(_whole(np.rint(values), dtype), self.dtype)
        if dtype.kind in "mM":
            return from_numbers(_whole(np.rint(values), np.dtype(np.int64)).view(dtype), self.dtype)
        return from_numbers(values.astype(dtype), self.dtype)

    def fill(self, column: pd.Series, draw: Array) -> pd.Series:
        """The column with each missing value replaced by a draw from the known ones."""
        missing = column.isna().to_numpy()
        drawn = self.quantiles[(draw[missing] * len(self.quantiles)).astype(np.intp)]
        filled = column.copy()
        filled[missing] = from_numbers(drawn, self.dtype).to_numpy()
        return filled


def as_float(values: Any) -> Any:
    """Times as ticks; every number as float64."""
    array = np.asarray(values)
    return (array.view(np.int64) if array.dtype.kind in "mM" else array).astype(np.float64)


def _whole(values: Array, dtype: np.dtype) -> np.ndarray:
    """Whole numbers in an integer type, held to its range: a float may round past the end."""
    info = np.iinfo(dtype)
    top = np.nextafter(float(info.max), 0) if float(info.max) > info.max else float(info.max)
    clipped = np.clip(values, float(info.min), top).astype(dtype)
    return np.where(values >= float(info.max), info.max, clipped).astype(dtype)

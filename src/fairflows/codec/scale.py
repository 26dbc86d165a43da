"""A column of numbers or times as positions: grid indices, or places in the training range."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.codec.outside import Outside
from fairflows.exceptions import DataError
from fairflows.table.columns import check_same, from_numbers, has_zone, is_time, numbers, shown, step_text
from fairflows.table.grid import MAX_STEPS, Grid, find_grid

Array = npt.NDArray[np.float64]

_N_QUANTILES = 257  # of the known values, from which missing ones are drawn
_TINY = 2.0**-1000  # a range of numbers below this is measured in this unit


class Scale:
    """The scale of a number or time column: the positions of training values fill [0, n]."""

    def __init__(self, name: str, dtype: Any, grid: Grid | None, low: Any, high: Any, is_noisy: bool) -> None:
        self.name = name
        self.dtype = dtype
        self.grid = grid  # that its values lie on; None for a continuous column
        self.low, self.high = low, high
        self.is_noisy = is_noisy  # whether positions are whole numbers that noise in [0, 1) is added to
        # log_width is the log of the training range in table units (times: in ticks of the column's own unit).
        if grid is None:
            self.n = 1.0
            self.log_width = float(np.log(self._from_low(high)) - np.log(self._unit))
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

    @property
    def _unit(self) -> float:
        """A power of two in which neither the width of the range overflows nor its half vanishes."""
        return 0.5 if max(abs(as_float(self.low)), abs(as_float(self.high))) > _TINY else 1 / _TINY

    def _from_low(self, values: Any) -> Any:
        """How far above the lower end, in the unit."""
        return as_float(values) * self._unit - as_float(self.low) * self._unit

    def position(self, column: pd.Series, outside: str, off_grid: str, found: Outside) -> Array:
        """Positions without noise; values beyond the training range and between grid points are noted in `found`."""
        values, exact = self._numbers(column)
        beyond = (values < self.low) | (values > self.high)
        found.note(self.name, "beyond", beyond)
        if outside == "error":
            self._refuse(beyond, column, f"must lie in its training range {self.low} to {self.high}")
        if outside == "clip":
            values = np.clip(values, self.low, self.high)
        self._refuse(~self._is_held(values), column, f"must fit the type it was fitted with ({self.dtype})")
        if self.grid is None:
            k, on_grid = self._from_low(values) / self._from_low(self.high), exact
            step, remedy = "its unit of time", "Round them (off_grid='round')."
        else:
            with np.errstate(over="ignore"):
                steps = np.abs(as_float(values) - as_float(self.low)) / self.grid.quantum
            rule = "must lie within 2**40 steps of its training range, where noise can still be told from the value"
            self._refuse(steps > self.grid.n_steps + MAX_STEPS, column, rule)
            k, on_grid = self.grid.index(values)
            on_grid &= exact
            step = step_text(self.grid.quantum, self.quantiles.dtype)
            remedy = "Round them (off_grid='round'), or declare the column continuous."
        found.note(self.name, "off grid", ~on_grid)
        if off_grid == "error":
            rule = f"must lie on the grid of its training values, in steps of {step} from {self.low}"
            self._refuse(~on_grid, column, rule, remedy)
        return k.astype(np.float64)

    def _refuse(self, which: npt.NDArray[np.bool_], column: pd.Series, rule: str, remedy: str = "") -> None:
        if which.any():
            raise DataError(
                f"Column {self.name!r} {rule}; {int(which.sum()):,} values do not, the first is "
                f"{shown(column.iloc[int(which.argmax())])}. {remedy}".rstrip()
            )

    def _numbers(self, column: pd.Series) -> tuple[np.ndarray, npt.NDArray[np.bool_]]:
        """The column's values, comparable with the training range, and which of them its time unit holds exactly."""
        check_same(self.name, column, self.dtype)
        values = numbers(column)
        if not is_time(self.dtype):
            return values, np.ones(len(values), dtype=bool)
        dtype = self.quantiles.dtype
        try:
            rounded = pd.Series(values).dt.round(np.datetime_data(dtype)[0]).astype(dtype).to_numpy()
        except (pd.errors.OutOfBoundsDatetime, pd.errors.OutOfBoundsTimedelta):
            raise DataError(
                f"Column {self.name!r} must hold times that its type can hold, as in the rows it was fitted on "
                f"({self.dtype}); some are too far away."
            ) from None
        return rounded, rounded == values

    def _is_held(self, values: np.ndarray) -> npt.NDArray[np.bool_]:
        """Which values the training type can hold: others would come back as something else."""
        dtype = self.quantiles.dtype
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            return (values >= info.min) & (values <= info.max)
        if dtype.kind == "f" and values.dtype.kind in "iu":
            with np.errstate(invalid="ignore"):
                return values.astype(dtype).astype(values.dtype) == values
        return np.ones(len(values), dtype=bool)

    def column(self, position: Array) -> pd.Series:
        """The values at these positions."""
        dtype = self.quantiles.dtype
        if self.grid is not None:
            k = np.floor(position) if self.is_noisy else np.rint(position)
            k = np.clip(k, -MAX_STEPS, self.grid.n_steps + MAX_STEPS)  # what can be encoded again
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
        values = self.quantiles[(draw * len(self.quantiles)).astype(np.intp)]
        if not missing.all():
            check_same(self.name, column, self.dtype)
            known = numbers(column[~missing])
            values = values.astype(np.result_type(values, known))
            values[~missing] = known
        filled = pd.Series(values)
        return filled.dt.tz_localize("UTC") if has_zone(self.dtype) else filled


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

"""Turn one column into numbers and exactly back: levels of categories, positions and ranges of numbers and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.extensions import ExtensionArray

from fairflows.exceptions import DataError, warn_user
from fairflows.table.columns import (
    check_same,
    from_numbers,
    has_zone,
    is_time,
    kind_of_values,
    missing,
    numbers,
    places_in,
    shown,
    sorted_values,
)
from fairflows.table.grid import MAX_STEPS, Grid, find_grid

OTHER = "other"
"""The value that stands for all unseen ones where these are accepted."""

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_N_QUANTILES = 257  # of the known values, from which missing ones are drawn
_TINY = 2.0**-1000  # a range of numbers below this is measured in this unit

BoolArray = npt.NDArray[np.bool_]
Reason = Literal["unseen", "missing", "beyond", "off grid"]

UNKNOWN: tuple[Reason, ...] = ("unseen", "missing")
"""The reasons for which a value cannot be brought back."""


@dataclass(frozen=True)
class OutsideValues:
    """The values of a table that a codec was not fitted on. The codec fills it in while encoding.

    Examples
    --------
    >>> outside = OutsideValues(3)
    >>> outside.note("town", "unseen", np.array([False, True, True]))
    >>> outside.note("age", "beyond", np.array([True, False, False]))
    >>> outside.unknown
    array([False,  True,  True])
    >>> outside.by_column()
    {'town': {'unseen': 2}, 'age': {'beyond': 1}}
    """

    n_rows: int  # rows of the table
    # For a column and a reason, the rows whose value is outside: a category that was not there ("unseen"), missing
    # where none was ("missing"), beyond the training range ("beyond"), between the points of the grid ("off grid").
    rows: dict[tuple[str, Reason], BoolArray] = field(default_factory=dict)

    def note(self, column: str, reason: Reason, rows: BoolArray) -> None:
        """Note rows whose value in a column is outside."""
        if rows.any():
            self.rows[column, reason] = rows

    def note_part(self, places: npt.NDArray[np.intp], part: OutsideValues) -> None:
        """Note the findings in a part of the rows, which are at these places."""
        for at, rows in part.rows.items():
            whole = self.rows.get(at, np.zeros(self.n_rows, dtype=bool))
            whole[places] |= rows
            self.rows[at] = whole

    @property
    def unknown(self) -> BoolArray:
        """The rows with a value that cannot be brought back."""
        unknown = np.zeros(self.n_rows, dtype=bool)
        for (_, reason), rows in self.rows.items():
            if reason in UNKNOWN:
                unknown |= rows
        return unknown

    def warn(self) -> None:
        """Warn once of all values that were brought back or could not be."""
        messages: dict[Reason, str] = {
            "beyond": "Values outside the training range",
            "off grid": "Values between the points of the training grid, rounded to them",
            "unseen": "Categories that the training rows did not have, treated alike in every group",
            "missing": "Values that are missing where none was in training, treated alike in every group",
        }
        if not self.rows:
            return
        counts, said = self.by_column(), []
        for reason, message in messages.items():
            columns = [f"{name!r} ({count[reason]:,})" for name, count in counts.items() if reason in count]
            if columns:
                said.append(f"{message}: column {', '.join(columns)}.")
        if said:
            warn_user(" ".join(said))

    def by_column(self) -> dict[str, dict[str, int]]:
        """Return the number of values outside, by column and reason."""
        counts: dict[str, dict[str, int]] = {}
        for (column, reason), rows in self.rows.items():
            if rows.any():
                counts.setdefault(column, {})[reason] = int(rows.sum())
        return counts


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
        self.takes_unseen = unseen == "other"
        if self.takes_unseen and OTHER not in values and all(isinstance(value, str) for value in values):
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
        """Return the levels of a column: all that its type declares, or all that occur.

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

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments that make these levels again."""
        unseen = "other" if self.takes_unseen else "error"
        given = {"name": self.name, "values": self.index.tolist(), "dtype": self.dtype}
        return given | {"has_missing": self.has_missing, "unseen": unseen}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Levels:
        """Return the levels that `to_dict` described."""
        return cls(**values)

    def __len__(self) -> int:
        return len(self.index) + self.has_missing

    def codes(self, column: pd.Series, found: OutsideValues | None = None) -> npt.NDArray[np.intp]:
        """Return the number of each value.

        With `found`, rows with an unseen value, or with a missing one where none was missing, are noted there. Without
        it, the latter raise.
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
                    f"fitted on; {unseen.sum():,} values do not, the first is {shown(value)}. With unseen='other' they "
                    "are taken for another category."
                )
            if found is not None:
                found.note(self.name, "unseen", unseen)
            codes[unseen] = self._stand_in
        return codes

    def known(self, column: pd.Series, found: OutsideValues) -> pd.Series:
        """Replace each value that is not a level by one that stands in for it."""
        codes = self.codes(column, found)
        is_changed = column.dtype != self.dtype or any((self.name, reason) in found.rows for reason in UNKNOWN)
        return self.column(codes).set_axis(column.index) if is_changed else column

    def code_of_missing(self, is_missing: npt.NDArray[np.bool_], found: OutsideValues | None) -> int:
        """Return the number of a missing value, or of a level that stands in for it if none was missing in training."""
        if self.has_missing or not is_missing.any():
            return len(self.index)
        if found is None:
            raise DataError(
                f"Column {self.name!r} had no missing values in the rows it was fitted on; {is_missing.sum():,} values "
                "are missing now."
            )
        found.note(self.name, "missing", is_missing)
        return self._stand_in

    @property
    def _stand_in(self) -> int:
        """The number of the level that stands in for values without a level: "other", or the first one."""
        return int(self.index.get_loc(OTHER)) if self.takes_unseen and OTHER in self.index else 0

    def column(self, codes: npt.NDArray[np.number]) -> pd.Series:
        """Return the values with these numbers; a number outside gets the nearest level."""
        nearest = np.clip(codes, 0, len(self) - 1).astype(np.intp)
        return pd.Series(self.array(nearest), dtype=self.dtype)

    def array(self, codes: IntArray) -> ExtensionArray:
        """Return the values of these levels as an array for a frame."""
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
        """Fit the scale of a column to its known values."""
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

    @cached_property
    def _unit(self) -> float:
        """A power of two in which neither the width of the range overflows nor its half vanishes."""
        return 0.5 if max(abs(as_float(self.low)), abs(as_float(self.high))) > _TINY else 1 / _TINY

    def _from_low(self, values: Any) -> Any:
        """Return the distance from the lower end, in the unit."""
        return as_float(values) * self._unit - as_float(self.low) * self._unit

    def position(self, column: pd.Series, found: OutsideValues) -> Array:
        """Return positions without noise, and note values beyond the range and between grid points in `found`."""
        values, exact = self._numbers(column)
        found.note(self.name, "beyond", (values < self.low) | (values > self.high))
        self._refuse(~self._is_held(values), column, f"must fit the type it was fitted with ({self.dtype})")
        if self.grid is None:
            found.note(self.name, "off grid", ~exact)  # times between two ticks of the column's unit
            return np.asarray(self._from_low(values) / self._from_low(self.high), dtype=np.float64)
        with np.errstate(over="ignore"):
            steps = np.abs(as_float(values) - as_float(self.low)) / self.grid.quantum
        rule = "must lie within 2**40 steps of its training range, where noise can still be told from the value"
        self._refuse(steps > self.grid.n_steps + MAX_STEPS, column, rule)
        k, on_grid = self.grid.index(values)
        found.note(self.name, "off grid", ~(on_grid & exact))
        return k.astype(np.float64)

    def _refuse(self, which: npt.NDArray[np.bool_], column: pd.Series, rule: str) -> None:
        if which.any():
            raise DataError(
                f"Column {self.name!r} {rule}; {int(which.sum()):,} values do not, the first is "
                f"{shown(column.iloc[int(which.argmax())])}."
            )

    def _numbers(self, column: pd.Series) -> tuple[np.ndarray, npt.NDArray[np.bool_]]:
        """Return values to compare with the training range, and which of them the column's time unit holds exactly."""
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
        """Return which values the training type can hold: others would come back changed."""
        dtype = self.quantiles.dtype
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            return (values >= info.min) & (values <= info.max)
        if dtype.kind == "f" and values.dtype.kind in "iu":
            with np.errstate(invalid="ignore"):
                return values.astype(dtype).astype(values.dtype) == values
        return np.ones(len(values), dtype=bool)

    def column(self, position: Array) -> pd.Series:
        """Return the values at these positions."""
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
        """Replace each missing value by a draw from the known ones."""
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
    """Return numbers as float64, and times as ticks."""
    array = np.asarray(values)
    return (array.view(np.int64) if array.dtype.kind in "mM" else array).astype(np.float64)


def _whole(values: Array, dtype: np.dtype) -> np.ndarray:
    """Convert to an integer type, clipped to its range, because a float may round past the end."""
    info = np.iinfo(dtype)
    top = np.nextafter(float(info.max), 0) if float(info.max) > info.max else float(info.max)
    clipped = np.clip(values, float(info.min), top).astype(dtype)
    return np.where(values >= float(info.max), info.max, clipped).astype(dtype)

"""The domain of a table: the values that each column has, learnt once; the one way from a frame to arrays.

A row with a value that its domain does not have must be treated alike in every group, because a group's own treatment
of such values could give the group away. So `Domain.read` says which rows these are before anything is encoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.extensions import ExtensionArray
from scipy.stats import poisson

from fairflows.arrays import NDArray
from fairflows.exceptions import DataError, warn_user
from fairflows.table.columns import (
    TEXT,
    check_column,
    distinct_values,
    floats,
    has_order,
    is_number,
    is_time,
    kind_of_values,
    missing,
    numbers,
    order_of,
    places_in,
    shown,
    single_precision,
)
from fairflows.table.grid import Grid, find_grid

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Places = NDArray[np.intp]
Codes: TypeAlias = dict[Any, npt.NDArray]
"""Columns as arrays, by name: whole numbers of levels, or float64 for numbers and times; NaN is a missing number.

The level −1 stands for a value that the domain does not have.
"""


def take(codes: Codes, rows: npt.NDArray | slice) -> Codes:
    """Return the columns of some of the rows."""
    return {name: column[rows] for name, column in codes.items()}


Reason = Literal["unseen", "missing", "beyond", "off grid"]
UNKNOWN: tuple[Reason, ...] = ("unseen", "missing")
"""The reasons for which a value cannot be brought back into a domain."""
_SAID: dict[Reason, str] = {
    "beyond": "Values outside the training range, as in another unit",
    "off grid": "Values between the points of the training grid, to which flows round them",
    "unseen": "Categories that the training rows did not have, treated alike in every group",
    "missing": "Values that are missing where none was in training, treated alike in every group",
}
_READS_AS = {
    "numbers": r"^\s*[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][+-]?[0-9]+)?\s*$",
    "truth values": r"^([Tt]rue|TRUE|[Ff]alse|FALSE)$",
    "days": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}",
}
_BY_CHANCE = 1e-4  # probability that fresh rows have so many values beyond the training range


class Levels:
    """The values of a categorical column, numbered 0, 1, ...; a missing value, if any, is the last level.

    Decoded columns have the type `dtype` again.
    """

    def __init__(self, name: str, values: list[Any], dtype: Any, has_missing: bool = False) -> None:
        self.name = name
        self.dtype = dtype
        self.has_missing = has_missing
        self.index = pd.Index(values, dtype=object)

    @classmethod
    def of(cls, name: str, column: pd.Series) -> tuple[Levels, Places]:
        """Return the levels of a column in their order, and the level of each row.

        The levels are the values that occur, or all that the column's type declares.
        """
        codes, values = distinct_values(column)
        if not isinstance(column.dtype, pd.CategoricalDtype):
            order = order_of(values)
            rank = np.empty(len(order) + 1, dtype=np.intp)
            rank[order], rank[-1] = np.arange(len(order)), -1
            codes, values = rank[codes], [values[place] for place in order]
        is_missing = codes < 0
        levels = cls(name, values, column.dtype, bool(is_missing.any()))
        return levels, np.where(is_missing, len(values), codes).astype(np.intp)

    def __len__(self) -> int:
        return len(self.index) + self.has_missing

    def find(self, column: pd.Series) -> Places:
        """Return the level of each value; −1 for a value, or a gap, that the column did not have."""
        found = places_in(self.index, column)
        if self.has_missing:
            found[missing(column)] = len(self.index)
        return found

    def codes(self, column: pd.Series) -> Places:
        """Return the level of each value. Raise for a value that the column did not have."""
        found = self.find(column)
        if (found < 0).any():
            value = column.to_numpy(dtype=object)[(found < 0).argmax()]
            what = "is missing" if pd.isna(value) else f"is {shown(value)}"
            raise DataError(
                f"Column {self.name!r} must hold one of its {len(self)} values from the rows it was fitted on; "
                f"{(found < 0).sum():,} do not, the first {what}."
            )
        return found

    def column(self, codes: npt.NDArray[np.number]) -> pd.Series:
        """Return the values with these numbers; a number outside gets the nearest level."""
        nearest = np.clip(codes, 0, len(self) - 1).astype(np.intp)
        return pd.Series(self.values.take(nearest), dtype=self.dtype)

    @cached_property
    def values(self) -> ExtensionArray:
        """The value of each level, the missing one last, in the column's type."""
        if isinstance(self.dtype, pd.CategoricalDtype):
            places = pd.Index(self.dtype.categories).get_indexer(self.index)  # its own index: rows come in threads
            return pd.Categorical.from_codes(np.append(places, -1) if self.has_missing else places, dtype=self.dtype)
        return pd.Series([*self.index, *([None] if self.has_missing else [])], dtype=self.dtype).array

    @cached_property
    def kind(self) -> str:
        """The kind of value that the levels are, as a `Schema` names it."""
        return kind_of_values(self.index)


@dataclass(frozen=True)
class Numbers:
    """The values of a column of numbers or times."""

    holds: Literal["numbers", "times"]
    grid: Grid | None  # that the training values lie on; None for a continuous column
    unit: str | None  # of the grid of times
    has_missing: bool  # whether a training value was missing
    low: float
    high: float
    n: int  # known training values

    @classmethod
    def of(cls, column: pd.Series, is_continuous: bool) -> tuple[Numbers, FloatArray]:
        """Return the domain of a column, and its values."""
        values = _doubles(column)
        known = values[~np.isnan(values)]
        grid = find_grid(numbers(column.dropna())) if len(known) and not is_continuous else None
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
        holds: Literal["numbers", "times"] = "times" if is_time(column.dtype) else "numbers"
        unit = np.datetime_data(numbers(column[:0]).dtype)[0] if holds == "times" else None
        return cls(holds, grid, unit, len(known) < len(values), low, high, len(known)), values

    def read(self, name: str, column: pd.Series) -> tuple[FloatArray, dict[Reason, BoolArray]]:
        """Return the values of a column, NaN where one is missing, and the rows with values outside the domain."""
        if not (is_time if self.holds == "times" else is_number)(column.dtype):
            raise DataError(f"Column {name!r} must hold {self.holds}, as it was fitted; got {column.dtype}.")
        values = _doubles(column)
        is_missing = np.isnan(values)
        outside: dict[Reason, BoolArray] = {} if self.has_missing else {"missing": is_missing}
        if self.grid is not None:
            outside["off grid"] = np.zeros(len(values), dtype=bool)
            outside["off grid"][~is_missing] = ~self._is_on_grid(self.grid, numbers(column[~is_missing]))
        single = single_precision(values)  # as the training rows or these may have been held
        beyond = (single < single_precision(self.low)) | (single > single_precision(self.high))
        # Of n training rows and one more, each is the largest or the smallest with probability 2/(n + 1) at most.
        if self.n and beyond.any() and poisson.sf(beyond.sum() - 1, 2 * len(values) / (self.n + 1)) < _BY_CHANCE:
            outside["beyond"] = beyond
        return values, outside

    def _is_on_grid(self, grid: Grid, known: npt.NDArray) -> BoolArray:
        if self.unit is None:
            return grid.index(known)[1]
        in_unit = known.astype(f"{known.dtype.kind}8[{self.unit}]")
        return grid.index(in_unit)[1] & (in_unit == known)


def _doubles(column: pd.Series) -> FloatArray:
    """Return numbers in double precision; those of single precision by their decimals, so that 0.7 is 0.7."""
    width = getattr(column.dtype, "itemsize", 8)
    if column.dtype.kind != "f" or width == 8:
        return floats(column)
    narrow = pa.array(column.to_numpy(dtype=f"f{width}", na_value=np.nan))
    return narrow.cast(pa.string()).cast(pa.float64()).to_numpy(zero_copy_only=False)


ColumnDomain: TypeAlias = "Levels | Numbers"


@dataclass(frozen=True)
class Outside:
    """The values of some rows that a domain does not have."""

    n_rows: int
    # For a column and a reason, the rows: with a category that was not there ("unseen"), with a gap where none was
    # ("missing"), beyond the training range ("beyond"), between the points of the grid ("off grid").
    rows: Mapping[tuple[str, Reason], BoolArray] = field(default_factory=dict)

    @cached_property
    def unknown(self) -> BoolArray:
        """The rows with a value that cannot be brought back into the domain."""
        unknown = np.zeros(self.n_rows, dtype=bool)
        for (_, reason), rows in self.rows.items():
            if reason in UNKNOWN:
                unknown |= rows
        return unknown

    def take(self, places: Places) -> Outside:
        """Return the same of some of the rows."""
        return Outside(len(places), {at: rows[places] for at, rows in self.rows.items()})

    def counts(self) -> Counter[tuple[str, Reason]]:
        """Return the number of values outside, by column and reason."""
        counts = {at: int(rows.sum()) for at, rows in self.rows.items()}
        return Counter({at: count for at, count in counts.items() if count})

    def warn(self) -> None:
        """Warn once of all of them."""
        warn_of_outside(self.counts())


def warn_of_outside(counts: Mapping[tuple[str, Reason], int]) -> None:
    """Warn once of all values outside a domain, given their number by column and reason."""
    said = []
    for reason, message in _SAID.items():
        columns = [f"{name!r} ({count:,})" for (name, why), count in counts.items() if why == reason]
        if columns:
            said.append(f"{message}: column {', '.join(columns)}.")
    if said:
        warn_user(" ".join(said))


@dataclass(frozen=True)
class Domain:
    """The values that each column of a table has.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [31, 45, 27], "town": ["Ulm", "Bonn", "Ulm"]})
    >>> domain, codes = Domain.of(frame)
    >>> codes["town"], codes["age"]
    (array([1, 0, 1]), array([31., 45., 27.]))
    >>> _, outside = domain.read(pd.DataFrame({"age": [30, 40], "town": ["Ulm", "Rome"]}))
    >>> outside.unknown
    array([False,  True])
    """

    columns: dict[Any, ColumnDomain]

    @classmethod
    def of(cls, frame: pd.DataFrame, kinds: Mapping[str, str] | None = None) -> tuple[Domain, Codes]:
        """Return the domain of a table, and its columns as arrays.

        `kinds` are declared ones: a categorical column has levels whatever its type, a continuous one has no grid.
        """
        kinds, columns, codes = kinds or {}, dict[Any, ColumnDomain](), Codes()
        for name, column in frame.items():
            check_column(str(name), column)
            kind = kinds.get(str(name))
            if has_order(column.dtype) and kind != "categorical":
                columns[name], codes[name] = Numbers.of(column, kind == "continuous")
            else:
                columns[name], codes[name] = Levels.of(str(name), column)
        return cls(columns), codes

    def read(self, frame: pd.DataFrame) -> tuple[Codes, Outside]:
        """Return the columns of a table as arrays, and the values outside the domain.

        Raise where values are infinite or of another type than in training.
        """
        codes, rows = Codes(), dict[tuple[str, Reason], BoolArray]()
        for name, domain in self.columns.items():
            column = frame[name]
            check_column(str(name), column)
            outside: dict[Reason, BoolArray]
            if isinstance(domain, Levels):
                codes[name] = domain.find(column)
                is_unknown, is_missing = codes[name] < 0, missing(column)
                outside = {"unseen": is_unknown & ~is_missing, "missing": is_unknown & is_missing}
            else:
                codes[name], outside = domain.read(str(name), column)
            rows |= {(str(name), reason): where for reason, where in outside.items() if where.any()}
        return codes, Outside(len(frame), rows)


@dataclass(frozen=True)
class Seen:
    """The values of a domain that some of its rows have, from which a model learnt.

    A value that others alone have is unknown to the model, though it is in the domain.
    """

    levels: dict[Any, BoolArray]  # of each column of categories: which levels were seen
    gaps: dict[Any, bool]  # of each column of numbers or times: whether a missing value was

    @classmethod
    def of(cls, domain: Domain, codes: Codes) -> Seen:
        """Return the values in these rows."""
        levels, gaps = dict[Any, BoolArray](), dict[Any, bool]()
        for name, column in domain.columns.items():
            if isinstance(column, Levels):
                levels[name] = np.bincount(codes[name], minlength=len(column)) > 0
            else:
                gaps[name] = bool(np.isnan(codes[name]).any())
        return cls(levels, gaps)

    def unknown(self, codes: Codes) -> BoolArray:
        """Return the rows with a value that was not seen."""
        unknown = np.zeros(len(next(iter(codes.values()))), dtype=bool)
        for name, seen in self.levels.items():
            unknown |= ~np.append(seen, False)[codes[name]]
        for name, had_gaps in self.gaps.items():
            if not had_gaps:
                unknown |= np.isnan(codes[name])
        return unknown

    def check_texts(self, domain: Domain, stated: Collection[str]) -> None:
        """Raise where the texts that were seen all read as numbers, truth values or days, and others do not.

        The type of a column must not depend on persons whom a model encodes. Columns whose kind is stated are accepted.
        """
        for name, seen in self.levels.items():
            levels = domain.columns[name]
            assert isinstance(levels, Levels)
            texts = pa.array(levels.index, pa.string()) if levels.kind == TEXT and name not in stated else None
            if texts is None or seen.all():
                continue
            is_seen = pa.array(seen[: len(texts)])
            for holds, pattern in _READS_AS.items():
                reads = pc.match_substring_regex(texts, pattern)
                if pc.all(reads.filter(is_seen)).as_py() and not pc.all(reads).as_py():
                    raise DataError(
                        f"Column {str(name)!r} is text because of some persons alone: for the others, who choose the "
                        f"model, all its values read as {holds}. Declare it categorical (kinds=...), or replace the "
                        "values that are not text."
                    )

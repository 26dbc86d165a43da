"""The columns of a table: their kinds, and the checks that each of them passes.

A file of true and false is text when a third word occurs somewhere, and truth values when it does not. A model that was
fitted on the one would take every value of the other for an unseen category. So a model keeps the kind of value of each
column it was fitted on (`Schema`); a later table is brought to these kinds where that loses nothing, and is refused
otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types
from pandas.api.extensions import ExtensionDtype

from fairflows.exceptions import DataError, check_choice
from fairflows.table.frames import check_names
from fairflows.table.grid import find_grid

Kind = Literal["continuous", "discrete", "categorical"]
KINDS: tuple[str, ...] = get_args(Kind)
Dtype: TypeAlias = "np.dtype | ExtensionDtype"
_NOT_PLAIN = {
    "list", "dict", "set", "ndarray", "tuple", "bytes", "time", "Decimal", "UUID", "Interval", "Period", "interval",
    "period",
}  # fmt: skip

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # pandas' units of time
_LARGEST = 1e300  # the width of a column's range is then finite, and so are values far outside
MOST_NUMBERS = 20
"""Different numbers that may still be the names of classes of a label."""

TEXT = "text"
BOOLEANS = "booleans"
WHOLE = "whole numbers"
NUMBERS = "numbers"
TIMES = "times without a time zone"
MOMENTS = "times with a time zone"
DURATIONS = "durations"
NOTHING = "no values"

_KIND_OF = {
    "string": TEXT,
    "boolean": BOOLEANS,
    "integer": WHOLE,
    "floating": NUMBERS,
    "mixed-integer-float": NUMBERS,
    "datetime": TIMES,
    "datetime64": TIMES,
    "timedelta": DURATIONS,
    "timedelta64": DURATIONS,
    "empty": NOTHING,
}


def is_time(dtype: Dtype) -> bool:
    """Return whether a column of this type holds dates, times or durations."""
    return dtype.kind in "mM"


def is_number(dtype: Dtype) -> bool:
    """Return whether a column of this type holds numbers (booleans are categories)."""
    return types.is_numeric_dtype(dtype) and not types.is_bool_dtype(dtype)


def has_order(dtype: Dtype) -> bool:
    """Return whether values of this type have an order: numbers, dates, times, durations."""
    return is_number(dtype) or is_time(dtype)


def numbers(column: pd.Series) -> np.ndarray:
    """Return the values of a number or time column, none of them missing, in a type of NumPy."""
    dtype = column.dtype
    if is_time(dtype):
        return (column.dt.tz_convert(None) if has_zone(dtype) else column).to_numpy()
    kind = getattr(dtype, "numpy_dtype", dtype)  # pandas' nullable and Arrow types name the NumPy type they wrap
    return column.to_numpy(dtype=kind)


def floats(column: pd.Series) -> npt.NDArray[np.float64]:
    """Return numbers, times as seconds since 1970, or durations as seconds; a missing value is NaN."""
    if is_time(column.dtype):  # a difference from 1970 would be in nanoseconds, which end in the year 2262
        times = (column.dt.tz_convert(None) if has_zone(column.dtype) else column).to_numpy()
        unit = np.datetime_data(times.dtype)[0]
        return np.where(np.isnat(times), np.nan, times.view(np.int64) / _PER_SECOND[unit])
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def single_precision(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Round numbers as a file of narrower floats holds them; what is beyond its range is infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(values, dtype=np.float64).astype(np.float32)


def from_numbers(values: np.ndarray, dtype: Dtype) -> pd.Series:
    """Return a column of type `dtype` with the values that `numbers` gave."""
    column = pd.Series(values)
    if column.dtype == dtype:
        return column
    return (column.dt.tz_localize("UTC") if has_zone(dtype) else column).astype(dtype)


def has_zone(dtype: Dtype) -> bool:
    """Return whether a column of this type holds times with a time zone."""
    return isinstance(dtype, pd.DatetimeTZDtype)


def check_same(name: str, column: pd.Series, dtype: Dtype) -> None:
    """Raise if a column changed since fitting: numbers, or times with or without a time zone."""
    came = column.dtype
    is_number_as_before = is_number(came) and is_number(dtype)
    is_time_as_before = is_time(came) and came.kind == dtype.kind and has_zone(came) == has_zone(dtype)
    if not (is_number_as_before or is_time_as_before):
        raise DataError(f"Column {name!r} must hold {dtype}, as in the rows it was fitted on; got {came}.")


def infer_kind(column: pd.Series) -> Kind:
    """Return the kind of a column: categorical, discrete for numbers and times on a grid, or continuous."""
    if not has_order(column.dtype):
        return "categorical"
    known = column.dropna()
    return "discrete" if not len(known) or find_grid(numbers(known)) is not None else "continuous"


def is_continuous(column: pd.Series) -> bool:
    """Return whether a label is a number to predict: it has more different numbers than classes usually are."""
    return is_number(column.dtype) and column.nunique() > MOST_NUMBERS


def sorted_values(column: pd.Series) -> list[Hashable]:
    """Return the distinct known values of a column, in order."""
    found = column.unique()
    values = found[~pd.isna(found)].tolist()
    return [values[place] for place in order_of(values)]


def order_of(values: Sequence[Hashable]) -> list[int]:
    """Return the places of distinct values in their order; values of several types have the order of their text."""
    try:
        return sorted(range(len(values)), key=lambda place: values[place])  # type: ignore[arg-type,return-value]
    except TypeError:
        return sorted(range(len(values)), key=lambda place: str(values[place]))


def shown(value: object) -> str:
    """Return a value as error messages show it: text in quotes, others as they are printed."""
    return repr(value) if isinstance(value, str) else str(value)


def check_column(name: str, column: pd.Series) -> None:
    """Raise if a column cannot be encoded: complex numbers, infinities, values of several types."""
    dtype = column.dtype
    if dtype.kind == "c":
        raise DataError(f"Column {name!r}: Complex data not supported; split it into real and imaginary parts.")
    if dtype.kind in "iu":
        return
    if is_number(dtype):
        is_held = np.abs(floats(column)) <= _LARGEST
        if not is_held.all() and (wrong := ~is_held & ~missing(column)).any():
            raise DataError(
                f"Column {name!r} must hold finite numbers; {int(wrong.sum())} are infinity or too large (above "
                f"{_LARGEST:g}), the first in row {shown(column.index[wrong][0])}."
            )
        return
    found = _types_of_values(column)
    if len(found) > 1:
        raise DataError(f"Column {name!r} must hold values of one type; got {', '.join(found)}.")
    check_plain(name, column)


def check_plain(name: str, column: pd.Series) -> None:
    """Raise if a column holds values that a file of text has no place for."""
    found = next((kind for kind in _types_of_values(column) if kind in _NOT_PLAIN), None)
    if found is not None:
        raise DataError(
            f"Column {name!r} must hold text, numbers, true and false, or dates; got {found}. Convert it to one of "
            "these (text: astype(str))."
        )


def _types_of_values(column: pd.Series) -> list[str]:
    """Return the names of the types of a column's values, where the type of the column does not say it."""
    values = column.cat.categories.to_series() if isinstance(column.dtype, pd.CategoricalDtype) else column
    if isinstance(values.dtype, pd.IntervalDtype | pd.PeriodDtype):
        return [str(values.dtype).partition("[")[0]]
    return sorted({type(v).__name__ for v in values.array[~missing(values)]}) if values.dtype == object else []


def check_kinds(frame: pd.DataFrame, kinds: Mapping[str, str] | None) -> None:
    """Raise if declared kinds are unknown, are of unknown columns, or need numbers where a column has none."""
    if kinds is None:
        return
    if not isinstance(kinds, Mapping):
        raise DataError(f"kinds must be a mapping of columns to their kinds; got {type(kinds).__name__}.")
    for name, kind in kinds.items():
        check_known(name, frame.columns, "declared")
        check_choice(f"kinds[{name!r}]", kind, KINDS)
        if kind != "categorical" and not has_order(frame[name].dtype) and frame[name].notna().any():
            raise DataError(
                f"Column {name!r} is declared {kind}, which needs numbers or times; it holds {frame[name].dtype}."
            )


def check_known(name: Hashable, columns: Collection[Hashable], role: str) -> None:
    """Raise if the table has no column of this name."""
    if name in columns:
        return
    names = [str(column) for column in columns]
    close = get_close_matches(str(name), names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    raise DataError(f"The {role} column {name!r} is not in the table.{hint} Its columns: {shown}.")


def check_features(X: pd.DataFrame) -> None:
    """Raise if a column cannot be encoded."""
    for name in X:
        check_column(str(name), X[name])


def training_kinds(frame: pd.DataFrame, declared: Mapping[str, str] | None) -> dict[Hashable, str]:
    """Return the kind of each column for fitting a codec, as declared or inferred. Raise if one cannot be encoded."""
    if not len(frame):
        raise DataError("A codec needs at least one row to be fitted on; this table is empty.")
    check_names(frame.columns)
    check_kinds(frame, declared)
    check_features(frame)
    return {name: (declared or {}).get(name) or infer_kind(frame[name]) for name in frame}


def with_columns(X: pd.DataFrame, changed: Mapping[Hashable, pd.Series]) -> pd.DataFrame:
    """Return the table with some columns in the place of others."""
    if changed:
        X = X.copy(deep=False)
        for name, column in changed.items():
            X[name] = column
    return X


def missing(column: pd.Series) -> npt.NDArray[np.bool_]:
    """Return which values are missing."""
    return np.asarray(column.isna())


def places_in(values: pd.Index | Sequence[Hashable], column: pd.Series) -> npt.NDArray[np.intp]:
    """Return the place of each value of a column among distinct values, or −1."""
    if column.dtype == object:
        return pd.Index(values, dtype=object).get_indexer(pd.Index(column, dtype=object))  # pandas 2 would guess a type
    codes, found = distinct_values(column)
    places = pd.Index(values, dtype=object).get_indexer(pd.Index(found, dtype=object))
    return np.append(places, -1)[codes]  # the code of a missing value is -1


def printed(value: object) -> str:
    """Return a value as text; a whole number has one text, whether a table holds it as an integer or as a float."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def of_one_type(column: pd.Series) -> pd.Series:
    """Return a column whose values have one type: as text if they have several, because 1 and "1" print alike."""
    values = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
    if values.dtype != object or len({type(value) for value in values.dropna().unique()}) < 2:
        return column
    return column.astype(object).map(printed, na_action="ignore")


def group_numbers(groups: Sequence[Hashable], column: pd.Series) -> npt.NDArray[np.intp]:
    """Return the index of each value in `groups`, or −1 for an unknown one. Values are compared by their text."""
    codes, found = distinct_values(column)
    place_of = {printed(group): place for place, group in enumerate(groups)}
    return np.array([*(place_of.get(printed(value), -1) for value in found), -1], dtype=np.intp)[codes]


def distinct_values(column: pd.Series) -> tuple[npt.NDArray[np.integer], list[Hashable]]:
    """Return the code of each value, −1 for a missing one, and the distinct values.

    The distinct values of a column of categories are all categories, also those that no row has.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.array.codes, column.array.categories.tolist()
    values = column.array
    if isinstance(values, pd.arrays.NumpyExtensionArray):  # which pandas 2 does not take
        values = values.to_numpy()
    codes, found = pd.factorize(values)
    return codes, found.tolist()


@dataclass(frozen=True)
class Schema:
    """The kind of value in each column that a model was fitted on.

    Examples
    --------
    >>> schema = Schema.of(pd.DataFrame({"code": ["7", "X9"], "age": [31, 45]}))
    >>> schema.kinds
    {'code': 'text', 'age': 'whole numbers'}
    >>> schema.apply(pd.DataFrame({"code": ["7", "8"], "age": [27.0, 60.0]}))["age"].tolist()
    [27, 60]
    """

    # Of each column, by its name: text, booleans, whole numbers, numbers, times with or without a time zone, durations;
    # a column of categories has the kind of its categories.
    kinds: dict[Any, str]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Schema:
        """Return the schema of a table."""
        return cls({name: kind_of_values(column) for name, column in frame.items()})

    def with_values(self, values: Mapping[Any, Sequence[Hashable] | np.ndarray]) -> Schema:
        """Return the schema with further columns, whose values are given, none of them missing."""
        return Schema(self.kinds | {name: _kind(taken) for name, taken in values.items()})

    def part(self, columns: Iterable[Any]) -> Schema:
        """Return the schema of the named columns that it has."""
        return Schema({name: self.kinds[name] for name in columns if name in self.kinds})

    def check(self, X: pd.DataFrame) -> None:
        """Raise if a table lacks a column, or has values that cannot be converted to the column's kind."""
        for name in self.kinds:
            self._kind_that_came(name, X)

    def apply(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Convert columns to these kinds, without changing a value; other columns stay as they are.

        Whole numbers may come as floats or numbers as integers, and text and categories as one another. A float between
        whole numbers stays as it is: the codec rounds it, or refuses it.

        Raise if a column is missing or holds another kind of value. Numbers do not become text: 7 may have been written
        "7", "07" or "7.0".
        """
        changed = {}
        for name, fitted in self.kinds.items():
            if (self._kind_that_came(name, frame), fitted) == (NUMBERS, WHOLE):
                changed[name] = whole_where_exact(frame[name])
        return with_columns(frame, changed) if changed else frame

    def _kind_that_came(self, name: Any, columns: pd.DataFrame) -> str:
        """Return the kind of a column of a table. Raise if it cannot be converted to the fitted kind."""
        check_known(name, columns, "fitted")
        column, fitted = columns[name], self.kinds[name]
        came = kind_of_values(column)
        if not (came == fitted or NOTHING in (came, fitted) or {came, fitted} == {WHOLE, NUMBERS}):
            is_text_lost = fitted == TEXT and came in (BOOLEANS, WHOLE, NUMBERS)
            advice = " Which text they were cannot be known: read the column as text." if is_text_lost else ""
            raise DataError(
                f"Column {name!r} must hold {fitted}, as in the rows that the model was fitted on; got {came} "
                f"({column.dtype}).{advice}"
            )
        return came


def kind_of_values(column: pd.Series) -> str:
    """Return the kind of a column, by its type, or by its values if the type allows any."""
    values = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
    return NOTHING if missing(values).all() else _kind(values)


def _kind(values: pd.Series | pd.Index | Sequence[Hashable] | np.ndarray) -> str:
    """Return the kind of values that are not all missing."""
    inferred = pd.api.types.infer_dtype(values, skipna=True)
    kind = _KIND_OF.get(inferred, inferred)
    return MOMENTS if kind == TIMES and pd.Series(values).dropna().iloc[0].tzinfo is not None else kind


def whole_where_exact(column: pd.Series) -> pd.Series:
    """Convert floats to whole numbers, if all of them are whole."""
    values = column.dropna().to_numpy(dtype=np.float64)
    if not ((values == np.rint(values)) & (np.abs(values) < 2**63)).all():
        return column
    return column.astype("Int64" if column.isna().any() else np.int64)


def own_types(rows: pd.DataFrame) -> pd.DataFrame:
    """Convert every column of some rows of a table to the type that these rows alone would have.

    One row with a word makes a column text. A model that must not depend on some rows of a table must not see the types
    that these rows caused either. No value changes.
    """
    columns = {j: own_type(rows.iloc[:, j]) for j in range(rows.shape[1])}
    return pd.DataFrame(columns, index=rows.index).set_axis(rows.columns, axis=1)


def own_type(column: pd.Series) -> pd.Series:
    """Convert a column to the type that its own values have."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.remove_unused_categories()
    if column.dtype == object:
        return column.infer_objects()
    if is_number(column.dtype) and not column.isna().any():
        return whole_where_exact(_plain(column))
    return _plain(column)


def _plain(column: pd.Series) -> pd.Series:
    if not is_number(column.dtype) or isinstance(column.dtype, np.dtype):
        return column
    return column.astype(np.float64 if column.isna().any() else column.dtype.numpy_dtype)

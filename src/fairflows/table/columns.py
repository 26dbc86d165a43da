"""The columns of a table: each taken out of it once, what it holds, and the checks that every one of them passes."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types
from pandas.api.extensions import ExtensionDtype

from fairflows.exceptions import DataError, check_choice
from fairflows.table.frames import check_names, with_plain_times
from fairflows.table.grid import find_grid

Kind = Literal["continuous", "discrete", "categorical"]
_FEW = 8  # values of a column that are looked up one by one: pandas takes longer to prepare for more
KINDS: tuple[str, ...] = get_args(Kind)
Dtype: TypeAlias = "np.dtype | ExtensionDtype"
Places = npt.NDArray[np.intp] | npt.NDArray[np.bool_] | slice
Whole = TypeVar("Whole", bound=np.integer)


class TableColumns:
    """Columns of a table, each taken out of it once, when it is first asked for.

    A frame makes a new object whenever it is asked for a column. For a single row that takes longer than most of what
    is done with the column, and many parts of an encoder ask for it. Names, rows and columns are asked for as those of
    a frame are: ``for name in X``, ``name in X``, ``len(X)``, ``X[name]``.

    Parameters
    ----------
    table : DataFrame or dict of Series
        The table, whose columns have different names; or columns of the same index, by their names.
    names : sequence, optional
        The columns, in their order; all of the table's when not given.

    Examples
    --------
    >>> X = TableColumns(pd.DataFrame({"age": [31, 45], "town": ["Ulm", "Bonn"], "sex": ["f", "m"]})).without(["sex"])
    >>> X.names, len(X), X["age"].tolist()
    (['age', 'town'], 2, [31, 45])
    >>> X.with_columns({"age": pd.Series([32, 46])}).frame.shape
    (2, 2)
    """

    def __init__(
        self, table: pd.DataFrame | dict[Hashable, pd.Series], names: Sequence[Hashable] | None = None
    ) -> None:
        self._table = table
        self.names: list[Hashable] = list(table if names is None else names)
        self._columns: dict[Hashable, pd.Series] = {}  # those taken out of the table
        self._changed: dict[Hashable, pd.Series] = {}  # those that take the place of the table's own

    @classmethod
    def of(cls, X: pd.DataFrame | TableColumns) -> TableColumns:
        """The columns of a frame; those of `TableColumns` as they are."""
        return X if isinstance(X, TableColumns) else cls(X)

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __getitem__(self, name: Hashable) -> pd.Series:
        if name not in self._known:  # the table may have it, but it was left out: the sensitive column, say
            raise KeyError(name)
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._table[name]
        return column

    @cached_property
    def _known(self) -> frozenset[Hashable]:
        return frozenset(self.names)

    @property
    def index(self) -> pd.Index:
        """The names of the rows."""
        table = self._table
        return next(column.index for column in table.values()) if isinstance(table, dict) else table.index

    def part(self, names: Sequence[Hashable]) -> TableColumns:
        """The columns with these names, in this order."""
        if list(names) == self.names:
            return self
        part = TableColumns(self._table, names)
        part._columns, part._changed = self._columns, self._changed
        return part

    def without(self, names: Collection[Hashable]) -> TableColumns:
        """The columns but those with these names."""
        return self.part([name for name in self.names if name not in names])

    def with_columns(self, changed: Mapping[Hashable, pd.Series]) -> TableColumns:
        """The columns with some that take the place of others; they have the same rows."""
        if not changed:
            return self
        whole = TableColumns(self._table, self.names)
        whole._columns, whole._changed = {**self._columns, **changed}, {**self._changed, **changed}
        return whole

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The columns as a frame."""
        if isinstance(self._table, dict):
            return pd.DataFrame({name: self[name] for name in self.names}, index=self.index, copy=False)
        frame = self._table if self._table.columns.tolist() == self.names else self._table[self.names]
        changed = [name for name in self.names if name in self._changed]
        if changed:
            frame = frame.copy(deep=False)
            for name in changed:
                frame[name] = self._changed[name]
        return frame

    def take(self, rows: Places) -> TableColumns:
        """The same columns of some rows."""
        return TableColumns(self.frame.iloc[rows])

    def chunks(self, n_rows: int) -> Iterator[tuple[slice, TableColumns]]:
        """The rows, so many at a time, with their places."""
        if len(self) <= n_rows:
            yield slice(0, len(self)), self
            return
        for start in range(0, len(self), n_rows):
            chunk = slice(start, min(start + n_rows, len(self)))
            yield chunk, self.take(chunk)


def is_time(dtype: Dtype) -> bool:
    """Whether a column of this type holds dates, times or durations."""
    return dtype.kind in "mM"


def is_number(dtype: Dtype) -> bool:
    """Whether a column of this type holds numbers (booleans are categories)."""
    if isinstance(dtype, np.dtype | pd.StringDtype):  # at once, without all else that pandas takes for a type
        return dtype.kind in "iufc"
    return types.is_numeric_dtype(dtype) and not types.is_bool_dtype(dtype)


def has_order(dtype: Dtype) -> bool:
    """Whether values of a column of this type can rise and fall: numbers, dates, times, durations."""
    return is_number(dtype) or is_time(dtype)


def numbers(column: pd.Series) -> np.ndarray:
    """The values of a number or time column without missing ones, as a plain array of NumPy's own type."""
    dtype = column.dtype
    if is_time(dtype):
        plain = with_plain_times(column.to_frame()).iloc[:, 0]
        return (plain.dt.tz_convert(None) if isinstance(plain.dtype, pd.DatetimeTZDtype) else plain).to_numpy()
    kind = getattr(dtype, "numpy_dtype", dtype)  # pandas' nullable and Arrow types name the NumPy type they wrap
    return column.to_numpy(dtype=kind)


def floats(column: pd.Series) -> npt.NDArray[np.float64]:
    """Numbers, or times as seconds; NaN where one is missing."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf":  # which has no other mark of a missing value
        return column.to_numpy(dtype=np.float64)
    return (seconds(column) if is_time(column.dtype) else column).to_numpy(dtype=np.float64, na_value=np.nan)


def seconds(column: pd.Series) -> pd.Series:
    """Times as seconds since 1970, durations as seconds."""
    lasts = column if column.dtype.kind == "m" else column - pd.Timestamp(0, tz=column.dt.tz)
    return lasts.dt.total_seconds()


def from_numbers(values: np.ndarray, dtype: Dtype) -> pd.Series:
    """A column of `dtype` from what `numbers` gave."""
    column = pd.Series(values)
    if column.dtype == dtype:
        return column
    return (column.dt.tz_localize("UTC") if has_zone(dtype) else column).astype(dtype)


def has_zone(dtype: Dtype) -> bool:
    """Whether a column of this type holds times with a time zone."""
    arrow = dtype.pyarrow_dtype if isinstance(dtype, pd.ArrowDtype) else None
    return isinstance(dtype, pd.DatetimeTZDtype) or getattr(arrow, "tz", None) is not None


def describe_dtype(dtype: Dtype) -> str:
    """What a column of this type holds, as error messages name it."""
    if is_number(dtype):
        return "numbers"
    if not is_time(dtype):
        return "categories"
    if dtype.kind == "m":
        return "durations"
    return "times with a time zone" if has_zone(dtype) else "times without a time zone"


def check_same(name: str, column: pd.Series, dtype: Dtype) -> None:
    """Refuse a column that holds something else than at fitting: numbers instead of times, a time zone or none."""
    if describe_dtype(column.dtype) != describe_dtype(dtype):
        raise DataError(
            f"Column {name!r} must hold {describe_dtype(dtype)}, as in the rows it was fitted on ({dtype}); got "
            f"{column.dtype}."
        )


def infer_kind(column: pd.Series) -> Kind:
    """Categorical for text, booleans and categories; discrete for numbers and times on a grid; else continuous.

    Examples
    --------
    >>> infer_kind(pd.Series([38.5, 40.25, 12.0]))
    'discrete'
    >>> infer_kind(pd.Series(["north", "south"]))
    'categorical'
    """
    if not has_order(column.dtype):
        return "categorical"
    known = column.dropna()
    return "discrete" if not len(known) or find_grid(numbers(known)) is not None else "continuous"


def sorted_values(column: pd.Series) -> list[Hashable]:
    """The distinct known values of a column, in order."""
    found = column.unique()
    values = found[~pd.isna(found)].tolist()
    try:
        return sorted(values)
    except TypeError:  # values of several types have no order but that of their text
        return sorted(values, key=str)


def shown(value: object) -> str:
    """A value as an error message names it: text in quotes, numbers and times as a person writes them."""
    return repr(value) if isinstance(value, str) else str(value)


def check_column(name: str, column: pd.Series) -> None:
    """Refuse what cannot be encoded: complex numbers, infinities, several types of value in one column."""
    dtype = column.dtype
    if dtype.kind == "c":
        raise DataError(f"Column {name!r}: Complex data not supported; split it into real and imaginary parts.")
    if dtype.kind in "iu":
        return
    if is_number(dtype):
        is_finite = np.isfinite(floats(column))
        if not is_finite.all() and (wrong := ~is_finite & ~missing(column)).any():
            raise DataError(
                f"Column {name!r} must hold finite numbers; {int(wrong.sum())} are infinity or too large, the first in "
                f"row {shown(column.index[wrong][0])}."
            )
    elif column.dtype == object:
        found = sorted({type(value).__name__ for value in column.array[~missing(column)]})
        if len(found) > 1:
            raise DataError(f"Column {name!r} must hold values of one type; got {', '.join(found)}.")
        if found and found[0] in {"list", "dict", "set", "ndarray", "tuple"}:
            raise DataError(f"Column {name!r} must hold plain values; got {found[0]}.")
        if found == ["bytes"]:  # text, as some programs write it into Parquet files
            for value in column.dropna().unique():
                try:
                    value.decode()
                except UnicodeDecodeError:
                    raise DataError(f"Column {name!r} holds bytes that are not UTF-8 text: {value!r}.") from None


def step_text(step: float, dtype: np.dtype) -> str:
    """The distance between neighbouring values on a grid, as a person writes it."""
    if dtype.kind in "mM":
        return str(pd.Timedelta(int(step), unit=np.datetime_data(dtype)[0])).removesuffix(" 00:00:00")
    return f"{step:g}"


def check_kinds(frame: pd.DataFrame, kinds: Mapping[str, str] | None) -> None:
    """Refuse kinds of unknown columns, kinds that there are not, and kinds of numbers for columns of categories."""
    if kinds is None:
        return
    if not isinstance(kinds, Mapping):
        raise ValueError(f"kinds must be a mapping of columns to their kinds; got {type(kinds).__name__}.")
    for name, kind in kinds.items():
        check_known(name, frame.columns, "declared")
        check_choice(f"kinds[{name!r}]", kind, KINDS)
        if kind != "categorical" and not has_order(frame[name].dtype) and frame[name].notna().any():
            raise DataError(
                f"Column {name!r} is declared {kind}, which needs numbers or times; it holds {frame[name].dtype}."
            )


def check_known(name: Hashable, columns: Collection[Hashable], role: str) -> None:
    """Refuse a column name that the table does not have, naming the ones it has."""
    if name in columns:
        return
    names = [str(column) for column in columns]
    close = get_close_matches(str(name), names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    raise DataError(f"The {role} column {name!r} is not in the table.{hint} Its columns: {shown}.")


def check_features(X: TableColumns, when_missing: str) -> None:
    """Refuse columns that cannot be encoded; missing values, too, where these are an "error"."""
    for name in X:
        check_column(str(name), X[name])
    if when_missing == "error":
        check_complete(X)


def named_features(X: TableColumns, names: list[Hashable], when_missing: str) -> TableColumns:
    """The columns of these names, in their order, if the table has them and they can be encoded."""
    for name in names:
        check_known(name, X, "encoded")
    part = X.part(names)
    check_features(part, when_missing)
    return part


def training_kinds(frame: pd.DataFrame, declared: Mapping[str, str] | None, when_missing: str) -> dict[Hashable, str]:
    """The kind of each column that a codec is to be fitted on, as declared or inferred, if they can be encoded."""
    if not len(frame):
        raise DataError("A codec needs at least one row to be fitted on; this table is empty.")
    check_names(frame.columns)
    check_kinds(frame, declared)
    check_features(TableColumns(frame), when_missing)
    return {name: (declared or {}).get(name) or infer_kind(frame[name]) for name in frame}


def check_complete(X: TableColumns, *, can_drop: bool = False) -> None:
    """Refuse missing values, counting them column by column; the advice names what else `missing` can be."""
    gaps = {name: is_missing for name in X if (is_missing := missing(X[name])).any()}
    if gaps:
        shown = ", ".join(f"{name!r} ({int(is_missing.sum()):,})" for name, is_missing in gaps.items())
        drop = " or drop their rows (missing='drop')" if can_drop else ""
        raise DataError(
            f"Missing values (NaN) are not accepted; found in column {shown}. Keep them as a category of their own "
            f"(missing='category'){drop}."
        )


def missing(column: pd.Series) -> npt.NDArray[np.bool_]:
    """Which values are missing."""
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "iubf":
        values = column.to_numpy()
        return np.isnan(values) if dtype.kind == "f" else np.zeros(len(values), dtype=bool)
    return np.asarray(column.array.isna())  # for a single row many times as fast as asking the column


def distinct(values: npt.NDArray[Whole]) -> npt.NDArray[Whole]:
    """The different values of an array of whole numbers, sorted.

    From numpy 2.3 on `np.unique` puts whole numbers into a hash table, which takes many times as long as to sort
    millions of them.
    """
    ordered = np.sort(values)
    return ordered[np.concatenate([np.ones(min(1, len(ordered)), dtype=bool), ordered[1:] != ordered[:-1]])]


def is_among(values: npt.NDArray[Whole], others: npt.NDArray[Whole]) -> npt.NDArray[np.bool_]:
    """Whether each whole number is one of the others; as for `distinct`, `np.isin` takes many times as long."""
    if not len(others):
        return np.zeros(len(values), dtype=bool)
    ordered = np.sort(others)
    return ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values


def places_in(values: pd.Index | Sequence[Hashable], column: pd.Series) -> npt.NDArray[np.intp]:
    """The place of each value of a column among distinct values; −1 where it is none of them, or missing."""
    if len(column) <= _FEW:
        return _look_up(values, list(column))  # pandas takes longer for column.tolist(), of text twice as long
    if column.dtype == object:
        return pd.Index(values, dtype=object).get_indexer(pd.Index(column, dtype=object))  # pandas 2 would guess a type
    codes, found = distinct_values(column)
    return np.append(_look_up(list(values), found), -1)[codes]  # the code of a missing value is -1


def distinct_values(column: pd.Series) -> tuple[npt.NDArray[np.integer], list[Hashable]]:
    """The place of each value of a column among its distinct values, −1 for a missing one, and these values.

    Categories come as they are, also those that no row has.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.array.codes, column.array.categories.tolist()
    values = column.array
    if isinstance(values, pd.arrays.NumpyExtensionArray):  # which pandas 2 does not take
        values = values.to_numpy()
    codes, found = pd.factorize(values)
    return codes, found.tolist()


def _look_up(values: pd.Index | Sequence[Hashable], wanted: list[Hashable]) -> npt.NDArray[np.intp]:
    if isinstance(values, pd.Index):  # which remembers the place of each value
        places = [values.get_loc(value) if value in values else -1 for value in wanted]
    else:
        place_of = {value: place for place, value in enumerate(values)}
        places = [place_of.get(value, -1) for value in wanted]
    return np.array(places, dtype=np.intp)

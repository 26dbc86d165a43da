"""What the columns of a table hold, so that later tables are read the way the first one was.

A file of true and false is text in one reader's eyes when a third word occurs somewhere, and truth values when it does
not. A model that was fitted on the one would take every value of the other for an unseen category. So a model keeps the
kind of value of each column it was fitted on; a later table is brought to these kinds where that loses nothing, and is
refused otherwise.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairflows.exceptions import DataError
from fairflows.table.columns import check_known, has_zone, is_number, missing, with_columns

TEXT = "text"
BOOLEANS = "booleans"
WHOLE = "whole numbers"
NUMBERS = "numbers"
TIMES = "times without a time zone"
MOMENTS = "times with a time zone"
DURATIONS = "durations"
NOTHING = "no values"

_KINDS = {
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

        Raises
        ------
        DataError
            A column is missing or holds another kind of value. That goes for numbers and booleans in place of text,
            too: 7 may have been written "7", "07" or "7.0".
        """
        changed = {}
        for name, fitted in self.kinds.items():
            if (self._kind_that_came(name, frame), fitted) == (NUMBERS, WHOLE):
                changed[name] = whole_where_exact(frame[name])
        return with_columns(frame, changed)

    def _kind_that_came(self, name: Any, columns: pd.DataFrame) -> str:
        """Return the kind of a column of a table. Raise if it cannot be converted to the fitted kind."""
        check_known(name, columns, "fitted")
        column, fitted = columns[name], self.kinds[name]
        came = kind_of_values(column)
        if not _can_become(came, fitted):
            raise DataError(_refusal(name, fitted, came, column))
        return came


def kind_of_values(column: pd.Series) -> str:
    """Return the kind of a column, by its type, or by its values if the type allows any."""
    values = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
    return NOTHING if missing(values).all() else _kind(values)


def _kind(values: pd.Series | pd.Index | Sequence[Hashable] | np.ndarray) -> str:
    """Return the kind of values that are not all missing."""
    inferred = pd.api.types.infer_dtype(values, skipna=True)
    kind = _KINDS.get(inferred, inferred)
    return MOMENTS if kind == TIMES and _with_zone(pd.Series(values)) else kind


def _with_zone(times: pd.Series) -> bool:
    return times.dropna().iloc[0].tzinfo is not None if times.dtype == object else has_zone(times.dtype)


def _can_become(came: str, fitted: str) -> bool:
    return came == fitted or NOTHING in (came, fitted) or {came, fitted} == {WHOLE, NUMBERS}


def _refusal(name: Any, fitted: str, came: str, column: pd.Series) -> str:
    message = (
        f"Column {name!r} must hold {fitted}, as in the rows that the model was fitted on; got {came} ({column.dtype})."
    )
    if fitted == TEXT and came in (BOOLEANS, WHOLE, NUMBERS):
        message += " Which text they were cannot be known: read the column as text."
    return message


def whole_where_exact(column: pd.Series) -> pd.Series:
    """Convert floats to whole numbers, if all of them are whole."""
    values = column.dropna().to_numpy(dtype=np.float64)
    if not ((values == np.rint(values)) & (np.abs(values) < 2**63)).all():
        return column
    return column.astype("Int64" if column.isna().any() else np.int64)


def own_types(rows: pd.DataFrame) -> pd.DataFrame:
    """Convert every column of some rows of a table to the type that these rows alone would have.

    A column is read as numbers with decimals because one row has decimals, as text because one row holds a word, with a
    list of categories that one row may have brought in. A model that must not depend on some rows of a table must not
    see the types that these rows caused either.

    Categories that do not occur are dropped, numbers become whole numbers where all of them are, and nullable types
    NumPy's own. No value changes.

    Examples
    --------
    >>> table = pd.DataFrame({"age": [31, 45, 27.5], "town": pd.Categorical(["Bonn", "Ulm", "Jena"])})
    >>> part = own_types(table.iloc[:2])
    >>> part["age"].tolist(), part["town"].cat.categories.tolist()
    ([31, 45], ['Bonn', 'Ulm'])
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


def plain_numbers(X: pd.DataFrame) -> pd.DataFrame:
    """Return rows with numbers in NumPy's own types, with NaN where one is missing."""
    return with_columns(X, {name: plain for name, column in X.items() if (plain := _plain(column)) is not column})


def _plain(column: pd.Series) -> pd.Series:
    if not is_number(column.dtype) or isinstance(column.dtype, np.dtype):
        return column
    return column.astype(np.float64 if column.isna().any() else column.dtype.numpy_dtype)


def common_schema(schemas: Sequence[Schema]) -> Schema:
    """Join the schemas of parts of a table. Raise if they differ.

    Whole numbers and numbers are alike: the column then holds numbers.
    """
    first = schemas[0]
    kinds: dict[Hashable, str] = {}
    for name in first.kinds:
        found = {schema.kinds[name] for schema in schemas}
        if len(found) > 1 and found != {WHOLE, NUMBERS}:
            one, other = sorted(found)[:2]
            raise DataError(
                f"Column {name!r} holds {one} in the persons of one fold and {other} in those of another: the type of "
                "a column must not depend on the persons that a model encodes. Convert the column to one type."
            )
        kinds[name] = found.pop() if len(found) == 1 else NUMBERS
    return Schema(kinds)

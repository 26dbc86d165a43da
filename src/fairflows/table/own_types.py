"""Columns in the types that their own rows have, whatever the other rows of a table made of them.

A column is read as numbers with decimals because one row has decimals, as text because one row holds a word, with a
list of categories that one row may have brought in. A model that must not depend on some rows of a table must not see
the types that these rows caused either.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from fairflows.exceptions import DataError, Parameter
from fairflows.table.columns import TableColumns, is_number
from fairflows.table.field_types import column_types
from fairflows.table.schema import NUMBERS, TEXT, WHOLE, Schema, whole_where_exact


def own_types(rows: pd.DataFrame) -> pd.DataFrame:
    """Some rows of a table with every column in the type that these rows alone would have.

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
    """One column in the type that its own values have."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.remove_unused_categories()
    if column.dtype == object:
        return column.infer_objects()
    if is_number(column.dtype) and not column.isna().any():
        return whole_where_exact(_plain(column))
    return _plain(column)


def plain_numbers(X: TableColumns) -> TableColumns:
    """Rows with numbers in NumPy's own types, with NaN where one is missing."""
    return X.with_columns({name: plain for name in X if (plain := _plain(X[name])) is not X[name]})


def _plain(column: pd.Series) -> pd.Series:
    if not is_number(column.dtype) or isinstance(column.dtype, np.dtype):
        return column
    return column.astype(np.float64 if column.isna().any() else column.dtype.numpy_dtype)


def common_schema(schemas: Sequence[Schema]) -> Schema:
    """What the columns of a table hold, by schemas that parts of it gave; refused where these differ.

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


def check_texts(parts: Sequence[pd.DataFrame], stated: Collection[Hashable]) -> None:
    """Refuse a column that is text only because of some parts of a table: in the others it reads as something else.

    Columns that somebody stated to be text are accepted.
    """
    schemas = [Schema.of(part) for part in parts]
    for name in parts[0]:
        if name in stated or any(schema.kinds[name] != TEXT for schema in schemas):
            continue
        reads = [_read_type(part[name]) for part in parts]
        others = [read for read in reads if read != pa.string()]
        if others and len(others) < len(reads):
            raise DataError(
                f"Column {name!r} is text in the persons of one fold, and in those of another all its values read as "
                f"{others[0]}: the type of a column must not depend on the persons that a model encodes. Say that it "
                "is text (",
                Parameter("text_columns", [name]),
                "), or replace the values that are none.",
            )


def _read_type(column: pd.Series) -> pa.DataType:
    """The type that a file with these texts would be read as."""
    texts = pd.Series(column.dropna().unique()).astype(str)
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["column"])
    return column_types([batch])["column"]

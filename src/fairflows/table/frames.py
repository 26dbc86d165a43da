"""Convert tables of any kind (pandas, polars, Arrow, NumPy) to pandas and back, with values unchanged."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeGuard, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from scipy.sparse import sparray, spmatrix

from fairflows.exceptions import DataError

if TYPE_CHECKING:
    import polars

Frame: TypeAlias = "pd.DataFrame | polars.DataFrame | pa.Table | np.ndarray"
"""A table as users get it back."""


@runtime_checkable
class ArrowStream(Protocol):
    """A table that hands over its rows as Arrow: tables and readers of pyarrow, relations of DuckDB, frames."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule with a stream of record batches."""


TableLike: TypeAlias = "Frame | ArrowStream | Mapping[str, Sequence[object]] | npt.ArrayLike"
"""A table as users may bring it."""

ColumnLike: TypeAlias = "pd.Series | polars.Series | npt.ArrayLike"
"""One value per row."""

Given = TypeVar("Given")

NULLABLE = {
    getattr(pa, kind.lower())(): getattr(pd, f"{kind}Dtype")()
    for kind in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
}
"""pandas' types for whole numbers of which some are missing."""
TEXT_DTYPE = pd.Series(["text"]).dtype
"""pandas' type for text; before pandas 3 any objects."""
_INFERRED = ("floating", "mixed-integer-float", "datetime", "timedelta")  # of objects, for which pandas has a type


def is_polars(data: object) -> TypeGuard[polars.DataFrame | polars.Series]:
    """Return whether `data` is a polars frame or series (without importing polars)."""
    loaded = sys.modules.get("polars")
    return loaded is not None and isinstance(data, loaded.DataFrame | loaded.Series)


def is_arrow(data: object) -> TypeGuard[ArrowStream]:
    """Return whether `data` is a table that Arrow can read, but not of pandas or polars, and not a column."""
    if isinstance(data, pa.Table):  # answered at once, unlike whether an object has a method
        return True
    known_otherwise = isinstance(data, pd.DataFrame | pd.Series | pa.ChunkedArray) or is_polars(data)
    return not known_otherwise and isinstance(data, ArrowStream)


def has_names(data: object) -> bool:
    """Return whether a table has names for its columns."""
    return isinstance(data, pd.DataFrame) or is_polars(data) or is_arrow(data)


def materialised(data: Given) -> Given | pa.Table:
    """Read a stream or query into a table, because a second reading may give no rows, or another order.

    A lazy frame is refused; all else is returned as it is.
    """
    loaded = sys.modules.get("polars")
    if loaded is not None and isinstance(data, loaded.LazyFrame):
        raise DataError("A LazyFrame holds no rows yet: call .collect() first.")
    return pa.table(data) if is_arrow(data) and not isinstance(data, pa.Table) else data


def to_pandas(data: TableLike) -> pd.DataFrame:
    """Return a pandas frame of a pandas, polars or Arrow table, a dict of columns, or a two-dimensional array.

    Columns of an array are named x0, x1, ... Duplicate column names are refused, because a value could not be given
    back to the right one.
    """
    data = materialised(data)
    if is_polars(data):
        import polars

        frame = from_arrow((data.to_frame() if isinstance(data, polars.Series) else data).to_arrow())
    elif isinstance(data, pa.Table):
        frame = from_arrow(data)
    elif isinstance(data, pd.DataFrame | dict):
        frame = _without_objects(pd.DataFrame(data) if isinstance(data, dict) else data)
    else:
        frame = _from_array(data)
    check_names(frame.columns)
    return frame


def from_arrow(table: pa.Table) -> pd.DataFrame:
    """Convert an Arrow table: whole numbers with gaps stay whole, and a date becomes its midnight."""
    for j, (name, column) in enumerate(zip(table.schema.names, table.columns, strict=True)):
        if (held := _held(column)) is not column:
            table = table.set_column(j, name, held)
    frame = table.to_pandas()
    for field, column in zip(table.schema, table.columns, strict=True):
        if field.type in NULLABLE and column.null_count and frame.get(field.name) is not None:
            whole = column.to_pandas(types_mapper=NULLABLE.get)
            frame[field.name] = whole.set_axis(frame.index)
    return frame


def is_categories_of_objects(kind: pa.DataType) -> bool:
    """Return whether a type is one of categories that pandas cannot take from Arrow, such as intervals."""
    if not pa.types.is_dictionary(kind):
        return False
    return pa.types.is_nested(kind.value_type) or isinstance(kind.value_type, pa.BaseExtensionType)


def _held(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert a column to a type that pandas can hold."""
    kind = column.type
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("ms"))
    if pa.types.is_decimal(kind):
        return _from_decimal(column)
    if is_categories_of_objects(kind):
        return pa.chunked_array([part.dictionary_decode() for part in column.chunks], kind.value_type)
    if pa.types.is_dictionary(kind) and pa.types.is_unsigned_integer(kind.index_type):
        # As polars counts categories, and pyarrow before 23 cannot hand over.
        return column.cast(pa.dictionary(pa.int64(), kind.value_type, kind.ordered))
    return column


def _from_decimal(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return floats; without decimals whole numbers, or text if 64 bits do not hold them."""
    texts = column.cast(pa.string())
    if column.type.scale > 0:
        return texts.cast(pa.float64())  # Arrow's own way to floats is not the nearest
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return texts  # floats would make one person of several


def _without_objects(frame: pd.DataFrame) -> pd.DataFrame:
    """Convert numbers, dates and times that are Python objects, or of Arrow's types, to types of pandas' own."""
    changed = {j: plain for j in range(frame.shape[1]) if (plain := _plain(frame.iloc[:, j])) is not None}
    if changed:
        frame = frame.copy(deep=False)
        for j, column in changed.items():
            frame.isetitem(j, column)
    return frame


def _plain(column: pd.Series) -> pd.Series | None:
    """Return a column in a type of pandas' own; None if it is, or holds objects that pandas has no type for."""
    if isinstance(column.dtype, pd.ArrowDtype):
        return from_arrow(pa.table({"column": pa.array(column)}))["column"].set_axis(column.index)
    if isinstance(column.dtype, pd.SparseDtype):
        return column.sparse.to_dense()
    if column.dtype != object:
        return None
    inferred = pd.api.types.infer_dtype(column, skipna=True)
    if inferred == "date":
        return column.astype("datetime64[ms]")
    if inferred == "integer":  # not by way of floats, which round large numbers
        low, high = column.dropna().min(), column.dropna().max()
        held = "Int64" if low >= -(2**63) and high < 2**63 else "UInt64" if low >= 0 and high < 2**64 else object
        return column.astype(held)
    return column.infer_objects() if inferred in _INFERRED else None


def check_names(columns: Iterable[Hashable]) -> None:
    """Raise if two columns have one name; 1 and "1" are one name, because they are written alike."""
    names = [str(name) for name in columns]
    if len(set(names)) < len(names):
        repeated = next(name for place, name in enumerate(names) if name in names[:place])
        raise DataError(f"Column names must be unique; {repeated!r} occurs more than once.")


def as_kind_of(original: object, frame: pd.DataFrame) -> Frame:
    """Convert `frame` to the kind of object that `original` is."""
    if is_polars(original):
        import polars

        return polars.from_pandas(frame)
    if is_arrow(original):
        return as_arrow(frame)
    if isinstance(original, np.ndarray):
        return frame.to_numpy()
    return frame


def as_arrow(frame: pd.DataFrame, schema: pa.Schema | None = None) -> pa.Table:
    """Convert a frame without its index to an Arrow table, in the types of a schema or in its own."""
    table = pa.Table.from_pandas(frame, schema, preserve_index=False, nthreads=1)
    return table.replace_schema_metadata()


def _from_array(data: TableLike) -> pd.DataFrame:
    array = data.toarray() if isinstance(data, sparray | spmatrix) else np.asarray(data)
    if array.ndim != 2:
        raise DataError(
            "A table must be a pandas, polars or Arrow table, a dict of columns, or an array of two dimensions; got "
            f"{type(data).__name__} of shape {array.shape}. Reshape your data: a column is array.reshape(-1, 1)."
        )
    return pd.DataFrame(array, columns=[f"x{j}" for j in range(array.shape[1])])

"""Reading a user's file, with an error that says what is wrong with it and where.

A file of text says neither how it is written (its `Dialect`) nor what its columns hold (`column_types`), so rules have
to, and the same ones wherever a file is read, in one piece or in a stream.
"""

from __future__ import annotations

import csv
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

from fairflows.exceptions import DataError, warn_user
from fairflows.table.dialect import Dialect, own_dialect
from fairflows.table.field_types import as_types, column_types, number_marks
from fairflows.table.frames import check_names, from_arrow
from fairflows.table.schema import TEXT, Schema
from fairflows.table.text_files import (
    COMPRESSION,
    CSV_SUFFIXES,
    EXCEL_SUFFIXES,
    PARQUET_SUFFIXES,
    CsvText,
    ExcelText,
    TextFields,
)

_UNNAMED = re.compile(r"__index_level_\d+__")  # as pandas calls an index that has no name


def read_frame(
    path: str | Path, schema: Schema | None = None, identifier: str | None = None, dialect: Dialect | None = None
) -> pd.DataFrame:
    """The table in a CSV (plain or compressed), Excel or Parquet file, its values unchanged.

    A CSV or Excel column is what all its fields can be read as: numbers, true and false, ISO dates and times; else
    text, as is a column with leading zeros. An empty field is missing; NA, NaN, null and the like are missing among
    numbers and times, and text among text. No column becomes the index.

    The `schema`, a model's `schema_`, says what some columns must hold, so that they are read as the model was fitted
    on them. The `identifier` is text, whatever it looks like: of names such as 12e4 numbers would make one person of
    several. What the `dialect` does not state is recognised, and a warning says as what. A `DataError` says what is
    wrong with the file, or could be read in two ways.
    """
    path, stated = Path(path), dialect or Dialect()
    rows = open_table(path, stated)
    with explaining_errors(path), naming_file(path):
        if isinstance(rows, ParquetRows):
            frame = from_arrow(rows.read())
        else:
            batches = list(rows.batches(rows.columns))
            kinds = with_identifier({} if schema is None else schema.kinds, identifier)
            known = number_marks(batches, rows.dialect, kinds)
            say_what_was_recognised(path, stated, known)
            types = column_types(batches, kinds, known)
            frame = from_arrow(as_types(pa.Table.from_batches(batches), types, known))
    if schema is None:
        return frame
    with naming_file(path):
        return schema.apply(frame)


def recognise(
    path: str | Path,
    dialect: Dialect | None = None,
    *,
    kinds: Mapping[str, str] | None = None,
    identifier: str | None = None,
    usual: Dialect | None = None,
) -> Dialect:
    """How a file is written, all of it; a warning says what was recognised. Nothing for a Parquet file.

    `dialect` is what is known of it. Where a model will encode the file, `kinds` says what its columns must hold, as a
    `Schema` has it, and only these are looked at; `usual` is how the file was written that the model was fitted on, and
    decides where this one shows nothing. The column `identifier` is text, whatever it looks like.
    """
    path, stated = Path(path), dialect or Dialect()
    rows = open_table(path, stated, usual)
    if isinstance(rows, ParquetRows):
        return stated
    with explaining_errors(path), naming_file(path):
        columns = [name for name in rows.columns if not kinds or name in kinds]
        batches = rows.batches(columns) if columns else []
        known = number_marks(batches, rows.dialect, with_identifier(kinds or {}, identifier), usual)
    if known != usual:
        say_what_was_recognised(path, stated, known)
    return known


def open_table(path: Path, dialect: Dialect, usual: Dialect | None = None) -> TextFields | ParquetRows:
    """The rows of a file, by its kind. What is read of them later is to be read under the same two guards."""
    if path.is_dir():
        raise DataError(f"{path}: is a folder, not a file; folders of Parquet files are read by `encode --engine ray`.")
    kind = kind_of(path)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    with explaining_errors(path), naming_file(path):
        if kind == "csv":
            return CsvText(path, dialect, usual)
        if kind == "excel":
            return ExcelText(path, dialect)
        if dialect.is_stated:
            name = next(name for name, value in dialect.to_dict().items() if value is not None)
            raise DataError(f"a Parquet file itself says how it is written: leave out {name}.")
        return ParquetRows(path)


def with_identifier(kinds: Mapping[str, str], identifier: str | None) -> dict[str, str]:
    """What columns must hold, with the one that names persons: text, whatever it looks like."""
    return dict(kinds) if identifier is None else {**kinds, identifier: TEXT}


def say_what_was_recognised(path: Path, stated: Dialect, known: Dialect) -> None:
    """Warn of a dialect that nobody stated, and that is not the one that every program writes."""
    usual, said = own_dialect(path).to_dict(), stated.to_dict()
    if any(said[name] is None and value not in (usual[name], None) for name, value in known.to_dict().items()):
        warn_user(f"{path}: read as {known}.")


def kind_of(path: Path) -> Literal["csv", "excel", "parquet"]:
    """The kind of a file, by its name; what is packed and has no other suffix is a CSV file."""
    is_packed = path.suffix.lower() in COMPRESSION
    kind = (Path(path.stem) if is_packed else path).suffix.lower()
    if kind in PARQUET_SUFFIXES | EXCEL_SUFFIXES and is_packed:
        raise DataError(f"{path}: a {kind} file is compressed within; unpack it first.")
    if kind in PARQUET_SUFFIXES:
        return "parquet"
    if kind in EXCEL_SUFFIXES:
        return "excel"
    if kind in CSV_SUFFIXES or (is_packed and not kind):
        return "csv"
    if kind in (".xls", ".xlsb", ".ods"):
        raise DataError(f"{path}: a workbook must be an .xlsx file; save it as one.")
    known = ", ".join(sorted(CSV_SUFFIXES | PARQUET_SUFFIXES | EXCEL_SUFFIXES))
    raise DataError(f"{path}: a table must be a CSV, Excel or Parquet file ({known}); got {kind or 'no suffix'!r}.")


@contextmanager
def explaining_errors(path: Path) -> Iterator[None]:
    """Turn errors while a file is read into a DataError with a message of one line."""
    try:
        yield
    except DataError:
        raise
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not {error.encoding.upper()} text: name its encoding (encoding=...).") from None
    except (
        OSError,
        EOFError,
        ValueError,
        RuntimeError,
        zipfile.BadZipFile,
        lzma.LZMAError,
        zlib.error,
        csv.Error,
    ) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if path.suffix.lower() in COMPRESSION and not isinstance(error, ValueError):
            raise DataError(f"{path}: the compressed file is damaged or cut off ({reason}).") from None
        raise DataError(f"{path}: cannot be read: {reason}") from None


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Put the file's name before the message of a DataError."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


class ParquetRows:
    """The columns of a Parquet file as Arrow tables.

    An index that pandas stored under a name is a column with that name. One without a name is left out: it numbers the
    rows of the frame that was written, and says nothing about them.
    """

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path)
        self.n_rows = self._file.metadata.num_rows
        schema = self._file.schema_arrow
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        unnamed = {name for name in index if isinstance(name, str) and _UNNAMED.fullmatch(name)}
        # pandas stores an index that counts as three numbers; under other tools they may outlive the rows they counted.
        counts = {
            part["name"]: range(part["start"], part["stop"], part["step"])
            for part in index
            if isinstance(part, dict) and part["name"] is not None
        }
        self._counts = {name: count for name, count in counts.items() if len(count) == self.n_rows}
        self.columns = [*(name for name in schema.names if name not in unnamed), *self._counts]
        check_names(self.columns)

    def read(self) -> pa.Table:
        """All rows and columns."""
        return self._completed(self._file.read(self._stored(self.columns)), self.columns, 0)

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.Table]:
        """These columns, so many rows at a time."""
        start = 0
        for batch in self._file.iter_batches(batch_rows, columns=self._stored(columns), use_threads=False):
            yield self._completed(pa.Table.from_batches([batch]), columns, start)
            start += batch.num_rows

    def _stored(self, columns: Sequence[str]) -> list[str]:
        return [name for name in columns if name not in self._counts]

    def _completed(self, table: pa.Table, columns: Sequence[str], start: int) -> pa.Table:
        """The rows from `start` on, with the index that counts, and without pandas' notes about it."""
        stop = start + table.num_rows
        for name in columns:
            if name in self._counts:
                table = table.append_column(name, pa.array(self._counts[name][start:stop], pa.int64()))
        return table.replace_schema_metadata(None).select(list(columns))

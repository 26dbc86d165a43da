"""Reading a user's file, with an error that says what is wrong with it and where."""

from __future__ import annotations

import codecs
import csv
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

import pandas as pd
import pyarrow as pa
import pyarrow.csv

from fairflows.exceptions import DataError
from fairflows.table.csv_types import as_types, column_types
from fairflows.table.frames import from_arrow
from fairflows.table.parquet_rows import ParquetRows
from fairflows.table.schema import Schema

CSV_SUFFIXES = {".csv", ".tsv", ".txt", ".data"}
PARQUET_SUFFIXES = {".parquet", ".pq"}

_BLOCK = 2**22  # bytes parsed at once: the longest row that can be read


def _unpack(codec: str) -> Callable[[Path], IO[bytes]]:
    return lambda path: pa.CompressedInputStream(pa.OSFile(str(path)), codec)


def _unzip(path: Path) -> IO[bytes]:
    files = [file for file in zipfile.ZipFile(path).infolist() if not file.is_dir()]
    if len(files) != 1:
        raise DataError(f"{path}: the archive must hold one file; it holds {len(files)}.")
    return zipfile.ZipFile(path).open(files[0])


COMPRESSION: dict[str, Callable[[Path], IO[bytes]]] = {
    ".gz": _unpack("gzip"),
    ".bz2": _unpack("bz2"),
    ".zst": _unpack("zstd"),
    ".xz": lzma.open,
    ".zip": _unzip,
}


def read_frame(path: str | Path, schema: Schema | None = None) -> pd.DataFrame:
    """The table in a CSV (plain or compressed) or Parquet file, its values unchanged.

    A CSV column is what all its fields can be read as: numbers, true and false, ISO dates and times; else text, as is a
    column with leading zeros. An empty field is missing; NA, NaN, null and the like are missing among numbers and
    times, and text among text. No column becomes the index.

    Parameters
    ----------
    path : path
        The file.
    schema : Schema, optional
        What some columns must hold: a model's `schema_`, so that they are read as the model was fitted on them.

    Raises
    ------
    DataError
        The file is missing, of an unknown kind, empty, cut off, not text, or has two columns of one name; a row has
        more or fewer fields than the header; or a column of the schema is missing or holds something else.
    """
    path = Path(path)
    kind = kind_of(path)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    with explained(path):
        if kind == "parquet":
            rows = ParquetRows(path)
            refuse_repeated(path, rows.columns)
            frame = from_arrow(rows.read())
        else:
            text = CsvText(path)
            batches = list(text.batches(text.columns))
            types = column_types(batches, None if schema is None else schema.kinds)
            frame = from_arrow(as_types(pa.Table.from_batches(batches), types))
    if schema is None:
        return frame
    with named(path):
        return schema.apply(frame)


def kind_of(path: Path) -> Literal["csv", "parquet"]:
    """The kind of a file, by its name."""
    is_packed = path.suffix.lower() in COMPRESSION
    kind = (Path(path.stem) if is_packed else path).suffix.lower()
    if kind in PARQUET_SUFFIXES and is_packed:
        raise DataError(f"{path}: a Parquet file is compressed within; unpack it first.")
    if kind in PARQUET_SUFFIXES:
        return "parquet"
    if kind in CSV_SUFFIXES:
        return "csv"
    known = ", ".join(sorted(CSV_SUFFIXES | PARQUET_SUFFIXES))
    raise DataError(f"{path}: a table must be a CSV or Parquet file ({known}); got {kind or 'no suffix'!r}.")


def refuse_repeated(path: Path, names: list[str]) -> None:
    """Refuse two columns of one name."""
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"{path}: column names must be unique; {repeated[0]!r} occurs more than once.")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors while a file is read into a DataError with a message of one line."""
    try:
        yield
    except DataError:
        raise
    except UnicodeDecodeError:
        raise DataError(f"{path}: not UTF-8 text; save the file as UTF-8.") from None
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
        if "invalid UTF8" in reason:
            raise DataError(f"{path}: not UTF-8 text; save the file as UTF-8.") from None
        raise DataError(f"{path}: cannot be read: {reason}") from None


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Put the file's name before the message of a DataError."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: ", *error.parts) from None


class CsvText:
    """The fields of a CSV file as text, an empty one missing; every row has as many as the header.

    Attributes
    ----------
    columns : list of str
        The names in the header; a column without one is called "Unnamed: j", by its place.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._separator = "\t" if ".tsv" in [suffix.lower() for suffix in path.suffixes] else ","
        with self._open() as stream:
            lines = csv.reader(io.TextIOWrapper(stream, "utf-8-sig", newline=""), delimiter=self._separator)
            header = next(filter(None, lines), None)
        if header is None:
            raise DataError(f"{path}: the file is empty.")
        self.columns = [name or f"Unnamed: {j}" for j, name in enumerate(header)]
        refuse_repeated(path, self.columns)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns, some thousand rows at a time."""
        fields = [f"f{self.columns.index(name)}" for name in columns]
        bad_rows: list[pyarrow.csv.InvalidRow] = []

        def refuse(row: pyarrow.csv.InvalidRow) -> str:
            bad_rows.append(row)
            return "error"

        with self._open() as stream:
            watched = Utf8CheckedStream(stream)
            try:
                # Columns go by their place: the header is read as a row, and dropped. One thread counts the rows.
                reader = pyarrow.csv.open_csv(
                    pa.PythonFile(watched, "r"),
                    pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK, autogenerate_column_names=True),
                    pyarrow.csv.ParseOptions(
                        delimiter=self._separator,
                        newlines_in_values=True,
                        invalid_row_handler=refuse,
                    ),
                    pyarrow.csv.ConvertOptions(
                        include_columns=fields,
                        column_types=dict.fromkeys(fields, pa.string()),
                        strings_can_be_null=True,
                        null_values=[""],
                    ),
                )
                last = None
                for number, batch in enumerate(reader):
                    rows = batch.slice(0 if number else 1)
                    yield pa.RecordBatch.from_arrays(rows.columns, names=list(columns))
                    last = batch[-1][-1].as_py() if batch.num_rows else last
            except pa.ArrowInvalid as error:
                raise self._explained(bad_rows) if bad_rows else error from None
        if columns[-1] == self.columns[-1] and watched.ends_within_quotes(last or "", self._separator):
            raise DataError(f"{self.path}: cannot be read: a quote that opens the last field is never closed.")

    def _explained(self, rows: list[pyarrow.csv.InvalidRow]) -> DataError:
        row = rows[0]
        quote = " It holds a line end in quotes: is one of them never closed?" if "\n" in row.text else ""
        return DataError(
            f"{self.path}: every row must have the {row.expected_columns} fields of the header; row {row.number} (the "
            f"header is row 1) has {row.actual_columns}.{quote}"
        )

    def _open(self) -> IO[bytes]:
        return COMPRESSION.get(self.path.suffix.lower(), lambda path: path.open("rb"))(self.path)


class Utf8CheckedStream(io.RawIOBase):
    """A stream of UTF-8 that remembers how it ended.

    Text is checked here, and not where a row is found to be wrong: there the error could not be raised.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._tail = b""
        self._text = codecs.getincrementaldecoder("utf-8")()

    def read(self, n: int = -1) -> bytes:
        """The next bytes, checked to be UTF-8."""
        data = self._stream.read(n)
        self._text.decode(data, final=not data)
        self._tail = (self._tail + data[-_BLOCK:])[-_BLOCK:] if len(data) < _BLOCK else data
        return data

    def readable(self) -> bool:
        """Always."""
        return True

    def ends_within_quotes(self, last: str, separator: str) -> bool:
        """Whether the last field was opened with a quote and never closed, so that it took all that followed."""
        tail = self._tail
        if tail.rstrip(b"\r\n").endswith(b'"'):
            return False
        return "\n" in last or "\r" in last or tail.rstrip(b"\r\n").endswith(f'{separator}"{last}'.encode())

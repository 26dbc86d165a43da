"""Reading a user's file, with an error that says what is wrong with it and where.

A CSV file has no types, so a rule has to give them, and the same one wherever a file is read, in one piece or in a
stream. A column is what *all* its fields can be read as without loss: whole numbers, numbers, true and false, dates,
times; else it is text, as it stands. So "00123" stays text (a number would drop the zeros), and one word makes a column
of digits text. An empty field is missing in every column; words such as NA are missing among numbers and times, and
text among text.
"""

from __future__ import annotations

import codecs
import csv
import io
import lzma
import re
import zipfile
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from fairflows.exceptions import DataError
from fairflows.table.frames import from_arrow
from fairflows.table.schema import BOOLEANS, DATES, MOMENTS, NUMBERS, TEXT, TIMES, WHOLE, Schema

CSV_SUFFIXES = {".csv", ".tsv", ".txt", ".data"}
PARQUET_SUFFIXES = {".parquet", ".pq"}

_BLOCK = 2**22  # bytes parsed at once: the longest row that can be read
_UNNAMED = re.compile(r"__index_level_\d+__")  # as pandas calls an index that has no name

MARKERS = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None")
"""What stands for a missing value in a column that is not text."""

_NUMBERS = (pa.int64(), pa.uint64(), pa.float64())
_DAYS = (pa.date32(), pa.timestamp("us"))
_MOMENTS = (pa.timestamp("us", "UTC"),)
_ANY = (*_NUMBERS, pa.bool_(), *_DAYS, *_MOMENTS, pa.string())
_OF_KIND = {
    TEXT: (pa.string(),),
    BOOLEANS: (pa.bool_(),),
    WHOLE: _NUMBERS,  # a number in between is for the codec to round or refuse
    NUMBERS: (pa.float64(),),
    DATES: _DAYS,
    TIMES: _DAYS,
    MOMENTS: _MOMENTS,
}
_TRUTHS = pa.array(["True", "TRUE", "true", "False", "FALSE", "false"])
_NOT_A_NUMBER = r"^[+-]?0[0-9xX]"  # leading zeros, which a number would lose; and 0x10, which is no decimal number


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


def read_frame(path: str | Path, schema: Schema | None = None, texts: Sequence[str] = ()) -> pd.DataFrame:
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
    texts : sequence of str
        Columns of a CSV file that are text, whatever it looks like: names such as 12e4, of which numbers would make
        one person of several.

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
            kinds = {} if schema is None else schema.kinds
            types = column_types(batches, kinds | {name: TEXT for name in texts if name in text.columns})
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


def column_types(batches: Iterable[pa.RecordBatch], kinds: Mapping[str, str] | None = None) -> dict[str, pa.DataType]:
    """The type of each column of text, over all batches; a column without a value counts as numbers.

    Parameters
    ----------
    batches : iterable of RecordBatch
        The fields as text.
    kinds : dict, optional
        The kind of value that a column must hold, as a `Schema` has it; the other columns are judged by their fields.

    Raises
    ------
    ValueError
        A field cannot be read as the kind of value that its column must hold.
    """
    kinds = kinds or {}
    types: dict[str, pa.DataType] = {}
    n_rows = 1  # the header
    for batch in batches:
        for name in batch.schema.names:
            before = types.get(name, pa.null())
            if before == pa.string():  # nothing is wider than text
                continue
            candidates = _OF_KIND.get(kinds.get(name, ""), _ANY)
            known = _known(batch[name])
            found = _narrowest(known, candidates)
            if found is None:
                place = _first_unlike(known, candidates[-1])
                raise ValueError(
                    f"column {name!r} must hold {kinds[name]}, as in the rows that the model was fitted on; row "
                    f"{n_rows + place + 1} (the header is row 1) holds {batch[name][place].as_py()!r}."
                )
            types[name] = _join(before, found)
        n_rows += batch.num_rows
    return {name: pa.float64() if pa.types.is_null(kind) else kind for name, kind in types.items()}


def as_types(table: pa.Table, types: dict[str, pa.DataType]) -> pa.Table:
    """Columns of text as columns of these types."""
    columns = {
        name: column if types[name] == pa.string() else pc.cast(_known(column), types[name])
        for name, column in zip(table.schema.names, table.columns, strict=True)
    }
    return pa.table(columns)


class ParquetRows:
    """The columns of a Parquet file as Arrow tables.

    An index that pandas stored under a name is a column with that name. One without a name is left out: it numbers the
    rows of the frame that was written, and says nothing about them.

    Attributes
    ----------
    columns : list of str
        The names of the columns.
    n_rows : int
        How many rows there are.
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


def _known(text: pa.Array) -> pa.Array:
    """The fields without blanks around them, those that mark a missing value set to missing."""
    trimmed = pc.ascii_trim_whitespace(text)
    return pc.if_else(pc.is_in(trimmed, value_set=pa.array(MARKERS)), pa.scalar(None, pa.string()), trimmed)


def _narrowest(known: pa.Array, candidates: tuple[pa.DataType, ...]) -> pa.DataType | None:
    """The first of the types that holds all fields."""
    if candidates == _OF_KIND[TEXT]:
        return pa.string()
    known = known.drop_null()
    return next((kind for kind in candidates if _can_be(known, kind)), None) if len(known) else pa.null()


def _can_be(known: pa.Array, kind: pa.DataType) -> bool:
    if kind == pa.string():
        return True
    if kind == pa.bool_():
        return pc.all(pc.is_in(known, value_set=_TRUTHS)).as_py()
    try:
        pc.cast(known[:64], kind)  # Arrow goes on to the end after a failure: most are found here, at once
        if kind in _NUMBERS and pc.any(pc.match_substring_regex(known, _NOT_A_NUMBER)).as_py():
            return False
        pc.cast(known, kind)
    except pa.ArrowInvalid:
        return False
    return True


def _first_unlike(known: pa.Array, kind: pa.DataType) -> int:
    """The place of the first field that cannot be of a type, by bisection over how many fields are taken."""
    return bisect_left(range(len(known)), True, key=lambda last: not _can_be(known[: last + 1].drop_null(), kind))


def _join(one: pa.DataType, two: pa.DataType) -> pa.DataType:
    """The narrowest type that holds what both hold."""
    if one == two or pa.types.is_null(two):
        return one
    if pa.types.is_null(one):
        return two
    if one in _NUMBERS and two in _NUMBERS:
        return pa.float64()
    if {one, two} == {pa.date32(), pa.timestamp("us")}:
        return pa.timestamp("us")
    return pa.string()

"""Read CSV, Excel and Parquet files, in one piece or in batches.

A CSV file does not say how it is written. Its separator is read off the header line, a decimal comma comes with ``;``,
and everything else is stated (`TextFormat`). A file that could be read in two ways is an error that names the settings
that decide.

Nor does it say what its columns hold. A column holds whole numbers, numbers, true and false, dates or times if every
field can be read so without loss, else text. Leading zeros ("00123") and whole numbers beyond 64 bits make a column
text, because a number would change them. An empty field is missing; NA, null and the like are missing among numbers and
times, and text among text.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from fairflows.exceptions import DataError, warn_user
from fairflows.table.columns import BOOLEANS, MOMENTS, NUMBERS, TEXT, TIMES, WHOLE, Schema, check_known
from fairflows.table.frames import check_names, from_arrow

PACKED_SUFFIXES = {".gz", ".bz2", ".zst", ".lz4"}  # which pyarrow opens
_KINDS: dict[str, Literal["csv", "excel", "parquet"]] = {
    **dict.fromkeys((".csv", ".tsv", ".txt", ".data"), "csv"),
    **dict.fromkeys((".xlsx", ".xlsm"), "excel"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
_SEPARATORS = (",", ";", "\t", "|")
_BLOCK = 2**22  # bytes parsed at once: the longest row that can be read
_OTHER_ENCODING = "state its encoding, such as encoding='cp1252' (Windows in western Europe) or encoding='utf-16'."
_UNNAMED = re.compile(r"__index_level_\d+__")  # pandas' name of an index without a name

_MISSING = pa.array(["NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None"])
_TRUTHS = pa.array(["True", "TRUE", "true", "False", "FALSE", "false"])
_NOT_A_NUMBER = r"^[+-]?0[0-9xX]"  # leading zeros, which a number would lose, and 0x10, which Arrow would take for 16
_LONG = r"^[+-]?[0-9]{19,}$"  # whole numbers that floats would round

_TIME = re.compile(r"[0-9-]{10}(?P<mark>[T ])\d\d:\d\d(?P<seconds>:\d\d)?(?P<zone>Z|\+00:00)?")
TIME_FORMATS = "time formats"

_NUMBERS = (pa.int64(), pa.uint64(), pa.float64())
_DAYS = (pa.date32(), pa.timestamp("us"))
_MOMENTS = (pa.timestamp("us", "UTC"),)
_ANY = (*_NUMBERS, pa.bool_(), *_DAYS, *_MOMENTS, pa.string())
_OF_KIND = {
    TEXT: (pa.string(),),
    BOOLEANS: (pa.bool_(),),
    WHOLE: _NUMBERS,  # the codec rounds or refuses a number in between
    NUMBERS: (pa.float64(),),
    TIMES: _DAYS,
    MOMENTS: _MOMENTS,
}


@dataclass(frozen=True)
class TextFormat:
    """Format of a CSV file, as `Table.read` takes it; None is recognised."""

    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None

    def __post_init__(self) -> None:
        if self.separator is not None and (len(self.separator) != 1 or not self.separator.isascii()):
            raise DataError(f"separator must be one ASCII character; got {self.separator!r}.")
        if self.decimal not in (None, ".", ","):
            raise DataError(f"decimal must be '.' or ','; got {self.decimal!r}.")
        try:
            "".encode(self.encoding or "utf-8")
        except LookupError:
            raise DataError(f"encoding must be one that Python knows; got {self.encoding!r}.") from None


OWN_FORMAT = TextFormat(",", "utf-8", ".")
"""How fairflows itself writes a CSV file."""


def read_frame(
    path: str | Path,
    schema: Schema | None = None,
    identifier: str | None = None,
    text_format: TextFormat | None = None,
) -> pd.DataFrame:
    """Read a CSV (plain or compressed), Excel or Parquet file into a frame, with its values unchanged.

    How a CSV file writes times is kept beside the values, as the frame's attribute "time formats". The `schema` of a
    model says what columns must hold, so that they are read as those the model was fitted on. The `identifier` is read
    as text, because numbers such as 12e4 and 120000 would make one person of two.
    """
    path = Path(path)
    rows = open_table(path, text_format)
    with reading(path):
        frame = from_arrow(rows.read(_stated_kinds(schema, identifier)))
    with naming_file(path):
        frame = frame if schema is None else schema.apply(frame)
    frame.attrs[TIME_FORMATS] = rows.time_formats
    return frame


def open_table(path: Path, text_format: TextFormat | None = None) -> TextRows | ParquetRows:
    """Open a file by its kind. Wrap later reads in `reading`, too."""
    if path.is_dir():
        raise DataError(f"{path}: is a folder, not a file; folders of Parquet files are read by `encode --engine ray`.")
    kind = kind_of(path)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    with reading(path):
        if kind == "csv":
            return TextRows(path, text_format or TextFormat())
        if text_format is not None and text_format != TextFormat():
            raise DataError("only a CSV file is read with separator, encoding and decimal: leave them out.")
        return TextRows(path, OWN_FORMAT, _sheet(path)) if kind == "excel" else ParquetRows(path)


def kind_of(path: Path) -> Literal["csv", "excel", "parquet"]:
    """Return the kind of a file, by its name."""
    packed = path.suffix.lower() in PACKED_SUFFIXES
    suffix = Path(path.stem if packed else path.name).suffix.lower()
    kind = _KINDS.get(suffix)
    if kind is None or (packed and kind != "csv"):
        known = ", ".join(_KINDS)
        raise DataError(
            f"{path}: a table must be a CSV, Excel or Parquet file ({known}), and only a CSV file may be compressed "
            f"({', '.join(sorted(PACKED_SUFFIXES))}); got {''.join(path.suffixes) or 'no suffix'!r}."
        )
    return kind


def read_batches(
    path: Path,
    file: TextRows | ParquetRows,
    columns: Iterable[str],
    batch_rows: int,
    schema: Schema | None = None,
    identifier: str | None = None,
) -> Iterator[pa.Table]:
    """Yield these columns of an open file, each once, `batch_rows` rows at most; for the others see `read_frame`."""
    columns = list(dict.fromkeys(columns))
    for name in columns:
        check_known(name, file.columns, "needed")
    n_rows = 0
    with reading(path):
        for table in file.batches(columns, batch_rows, _stated_kinds(schema, identifier)):
            n_rows += table.num_rows
            yield table
    if not n_rows:
        raise DataError(f"{path}: the table has no rows.")


def _stated_kinds(schema: Schema | None, identifier: str | None) -> dict[str, str]:
    """Return the required kinds of columns, by the schema; the column that names persons holds text."""
    return {**({} if schema is None else schema.kinds), **({} if identifier is None else {identifier: TEXT})}


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Put the file's name before the message of a `DataError`."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors while a file is read into a `DataError` of one line that begins with the file's name."""
    try:
        with naming_file(path):
            yield
    except DataError:
        raise
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not {error.encoding.upper()} text; {_OTHER_ENCODING}") from None
    except (OSError, EOFError, ValueError, RuntimeError, csv.Error) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if "invalid UTF8" in reason:
            raise DataError(f"{path}: is not UTF-8 text; {_OTHER_ENCODING}") from None
        raise DataError(f"{path}: cannot be read: {reason}") from None


class TextRows:
    """The rows of a CSV file, from a path or in memory; every row has as many fields as the header."""

    n_rows: int | None = None  # which a CSV file does not say
    time_formats: Mapping[str, str] = {}  # how columns of times are written, after they were read

    def __init__(self, path: Path, stated: TextFormat, content: pa.Buffer | None = None) -> None:
        self._source = str(path) if content is None else content
        self._encoding = stated.encoding or "utf-8"
        self._separator = stated.separator or self._separator_of_header()
        usual, other = (",", ".") if self._separator == ";" else (".", ",")
        self._decimal = stated.decimal or usual
        self._other_decimal = None if stated.decimal else other  # which numbers must not have
        with self._lines() as lines:
            header = next(filter(None, csv.reader(lines, delimiter=self._separator)), None)
        if header is None:
            raise DataError("the file is empty.")
        self.columns = [name or f"Unnamed: {j}" for j, name in enumerate(header)]
        check_names(self.columns)
        if self._separator not in (",", stated.separator):
            mark = " with a decimal comma (decimal=',')" if self._decimal != (stated.decimal or ".") else ""
            warn_user(f"{path}: read as fields separated by {self._separator!r} (separator={self._separator!r}){mark}.")

    def read(self, kinds: Mapping[str, str]) -> pa.Table:
        """Return all rows; `kinds` states the required kinds of some columns, as a `Schema` does."""
        texts = list(self._texts(self.columns))
        types = column_types(texts, kinds, self._decimal, self._other_decimal)
        table = pa.Table.from_batches(texts)
        formats = {name: _time_format(table[name]) for name, kind in types.items() if kind in (*_DAYS[1:], *_MOMENTS)}
        self.time_formats = {name: found for name, found in formats.items() if found}
        return self._typed(table, types)

    def batches(self, columns: Sequence[str], batch_rows: int, kinds: Mapping[str, str]) -> Iterator[pa.Table]:
        """Yield these columns, at most `batch_rows` rows at a time.

        The file is read twice, because a column of digits may hold a word further down.
        """
        types = column_types(self._texts(columns), kinds, self._decimal, self._other_decimal)
        for texts in self._texts(columns):
            table = pa.Table.from_batches([texts])
            for start in range(0, table.num_rows, batch_rows):
                yield self._typed(table.slice(start, batch_rows), types)

    def _typed(self, table: pa.Table, types: dict[str, pa.DataType]) -> pa.Table:
        for place, (name, column) in enumerate(zip(table.schema.names, table.columns, strict=True)):
            if types[name] != pa.string():
                table = table.set_column(place, name, _cast(_known(column), types[name], self._decimal))
        return table

    def _separator_of_header(self) -> str:
        """Return the separator that the header line has; a comma if it has none."""
        with self._lines() as lines:
            line = next((line for line in lines if line.strip()), "")
        if "\0" in line:
            raise UnicodeDecodeError("utf-8", b"", 0, 1, "bytes of zero")
        found = [mark for mark in _SEPARATORS if line and len(next(csv.reader([line], delimiter=mark))) > 1]
        if len(found) > 1:
            settings = " or ".join(f"separator={mark!r}" for mark in found)
            raise DataError(f"the header line has several separators: state the one between two fields ({settings}).")
        return found[0] if found else ","

    def _lines(self) -> io.TextIOWrapper:
        encoding = "utf-8-sig" if self._encoding.lower() in ("utf-8", "utf8") else self._encoding
        return io.TextIOWrapper(pa.input_stream(self._source), encoding, newline="")

    def _texts(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns as text, with empty fields missing, some thousand rows at a time."""
        fields = [f"f{self.columns.index(name)}" for name in columns]
        # Columns go by their place, because names may be empty: the header is read as a row, and dropped.
        reader = pyarrow.csv.open_csv(
            pa.input_stream(self._source),
            pyarrow.csv.ReadOptions(
                use_threads=False, block_size=_BLOCK, autogenerate_column_names=True, encoding=self._encoding
            ),
            pyarrow.csv.ParseOptions(delimiter=self._separator, newlines_in_values=True),
            pyarrow.csv.ConvertOptions(
                include_columns=fields,
                column_types=dict.fromkeys(fields, pa.string()),
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
        has_line_ends = False
        for number, batch in enumerate(reader):
            rows = batch.slice(0 if number else 1)
            has_line_ends = has_line_ends or any(_matches(column, "[\\r\\n]") for column in rows.columns)
            yield pa.RecordBatch.from_arrays(rows.columns, names=list(columns))
        if has_line_ends:
            self._refuse_open_quotes()

    def _refuse_open_quotes(self) -> None:
        """Raise if a quote is never closed: Arrow would take the rows after it for one field."""
        with self._lines() as lines:
            rows = csv.reader(lines, delimiter=self._separator, strict=True)
            try:
                for _ in rows:
                    pass
            except csv.Error as error:
                raise DataError(f"a quote before line {rows.line_num:,} is never closed ({error}).") from None


def _sheet(path: Path) -> pa.Buffer:
    """Return the first sheet of a workbook as a CSV file. Needs the extra ``fairflows[excel]``."""
    try:
        with pd.ExcelFile(path) as book:
            first, *others = book.sheet_names
            cells = pd.read_excel(book, dtype=str, keep_default_na=False, na_values=[""])
    except ImportError:
        raise DataError("Excel files need openpyxl: pip install 'fairflows[excel]', or save as CSV.") from None
    except Exception as error:  # a damaged archive of XML raises errors of many classes
        raise DataError(f"the workbook cannot be read: {error}") from None
    if others:
        warn_user(f"{path}: only the first sheet, {first!r}, is read.")
    return pa.py_buffer(cells.to_csv(index=False).encode())


class ParquetRows:
    """The rows of a Parquet file, without an index that pandas stored under no name, because it only numbers rows."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path)
        self.time_formats: Mapping[str, str] = {}  # times are not text here
        self.n_rows: int | None = self._file.metadata.num_rows
        self.columns = [name for name in self._file.schema_arrow.names if not _UNNAMED.fullmatch(name)]
        check_names(self.columns)

    def read(self, kinds: Mapping[str, str]) -> pa.Table:
        """Return all rows."""
        return self._file.read(self.columns).replace_schema_metadata(None)

    def batches(self, columns: Sequence[str], batch_rows: int, kinds: Mapping[str, str]) -> Iterator[pa.Table]:
        """Yield these columns, `batch_rows` rows at a time."""
        for batch in self._file.iter_batches(batch_rows, columns=list(columns), use_threads=False):
            yield pa.Table.from_batches([batch]).replace_schema_metadata(None).select(list(columns))


def column_types(
    batches: Iterable[pa.RecordBatch],
    kinds: Mapping[str, str],
    decimal: str = ".",
    other_decimal: str | None = None,
) -> dict[str, pa.DataType]:
    """Return the type of each column of text over all batches; a column without a value counts as numbers.

    A field that does not fit `kinds`, what a column must hold, is a `DataError`. So is text that would be numbers with
    the other decimal mark, if one is given.
    """
    types: dict[str, pa.DataType] = {}
    n_rows = 1  # the header
    for batch in batches:
        for name in batch.schema.names:
            fields, candidates = _known(batch[name]), _OF_KIND.get(kinds.get(name, ""), _ANY)
            found = _narrowest(fields, candidates, decimal)
            if found is None:
                place = next(j for j in range(len(fields)) if not _can_be(fields[j : j + 1], candidates[-1], decimal))
                raise DataError(
                    f"column {name!r} must hold {kinds[name]}, as in the rows that the model was fitted on; row "
                    f"{n_rows + place + 1} (the header is row 1) holds {batch[name][place].as_py()!r}."
                )
            if other_decimal and found == pa.string() and candidates == _ANY:
                _refuse_other_decimal(name, fields, decimal, other_decimal)
            types[name] = _join(types.get(name, pa.null()), found)
        n_rows += batch.num_rows
    return {name: pa.float64() if pa.types.is_null(kind) else kind for name, kind in types.items()}


def _refuse_other_decimal(name: str, fields: pa.Array, decimal: str, other: str) -> None:
    if _narrowest(fields, _ANY, other) == pa.float64():
        example = fields.filter(pc.match_substring(fields, other))[0].as_py()
        raise DataError(
            f"column {name!r} holds numbers with {other!r}, such as {example!r}: state that it is the decimal mark "
            f"(decimal={other!r}), or read the column as text (decimal={decimal!r})."
        )


def _time_format(column: pa.ChunkedArray) -> str:
    """Return how a column of times is written, in the words of `strftime`; empty if in several ways."""
    fields = _known(column).drop_null()
    found = _TIME.fullmatch(fields[0].as_py()) if len(fields) else None
    if found is None:
        return ""
    mark, seconds, zone = found["mark"], found["seconds"], found["zone"] or ""
    alike = rf"^[0-9-]{{10}}{mark}\d\d:\d\d{':[0-9]{2}' if seconds else ''}{re.escape(zone)}$"
    is_alike = pc.all(pc.match_substring_regex(fields, alike)).as_py()
    return f"%Y-%m-%d{mark}%H:%M{':%S' if seconds else ''}{zone}" if is_alike else ""


def _known(text: pa.Array) -> pa.Array:
    """Return the fields without blanks around them; words for a missing value are missing."""
    trimmed = pc.ascii_trim_whitespace(text)
    return pc.if_else(pc.is_in(trimmed, value_set=_MISSING), pa.scalar(None, pa.string()), trimmed)


def _narrowest(known: pa.Array, candidates: tuple[pa.DataType, ...], decimal: str) -> pa.DataType | None:
    """Return the first of the types that holds all fields."""
    if candidates == _OF_KIND[TEXT]:
        return pa.string()
    known = known.drop_null()
    if not len(known):
        return pa.null()
    found = next((kind for kind in candidates if _can_be(known, kind, decimal)), None)
    return pa.string() if found == pa.float64() and candidates == _ANY and _matches(known, _LONG) else found


def _can_be(known: pa.Array, kind: pa.DataType, decimal: str) -> bool:
    # Arrow goes on to the end after a failure: most are found at once, among the first fields.
    return all(_cast(fields, kind, decimal) is not None for fields in (known[:64], known))


def _cast(known: pa.Array, kind: pa.DataType, decimal: str) -> pa.Array | None:
    """Return fields in a type; None if the type does not hold all of them as they are written."""
    if kind == pa.bool_() and not pc.all(pc.is_in(known.drop_null(), value_set=_TRUTHS), min_count=0).as_py():
        return None
    if kind in _NUMBERS:
        if _matches(known, _NOT_A_NUMBER) or (decimal == "," and _matches(known, r"\.")):
            return None
        known = pc.replace_substring(known, ",", ".") if decimal == "," else known
    try:
        return pc.cast(known, kind)
    except pa.ArrowInvalid:
        return None


def _matches(fields: pa.Array, pattern: str) -> bool:
    """Return whether a field matches a regular expression."""
    return bool(pc.any(pc.match_substring_regex(fields, pattern)).as_py())


def _join(one: pa.DataType, two: pa.DataType) -> pa.DataType:
    """Return the narrowest type that holds the values of both."""
    if one == two or pa.types.is_null(two):
        return one
    if pa.types.is_null(one):
        return two
    if pa.float64() in (one, two) and {one, two} <= set(_NUMBERS):
        return pa.float64()
    if {one, two} == set(_DAYS):
        return pa.timestamp("us")
    return pa.string()


def check_texts(parts: Sequence[pd.DataFrame], stated: Collection[Hashable]) -> None:
    """Raise if a column is text only because of some parts of a table, and reads as another type in the others.

    Columns whose kind is stated are accepted.
    """
    schemas = [Schema.of(part) for part in parts]
    for name in parts[0]:
        if name in stated or any(schema.kinds[name] != TEXT for schema in schemas):
            continue
        reads = [_read_type(part[name]) for part in parts]
        others = [read for read in reads if read != pa.string()]
        if others and len(others) < len(reads):
            raise DataError(
                f"Column {name!r} is text in a part of the persons, and in the others all its values read as "
                f"{others[0]}: what is learnt from some persons must not depend on the others. Declare it categorical "
                "(kinds=...), or replace the values that are not text."
            )


def _read_type(column: pd.Series) -> pa.DataType:
    """Return the type that a file with these texts would be read as."""
    texts = pd.Series(column.dropna().unique()).astype(str)
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["column"])
    return column_types([batch], {})["column"]

"""Read CSV, Excel and Parquet files, in one piece or in batches.

A CSV file does not say how it is written. Its separator is read off the header line, a decimal comma comes with ``;``,
and everything else is stated (`TextFormat`). A file that could be read in two ways is an error that names the settings
that decide.

Nor does it say what its columns hold: see `fairflows.table.text_types`.
"""

from __future__ import annotations

import csv
import io
import mmap
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from fairflows.exceptions import DataError, warn_user
from fairflows.table.columns import TEXT, Schema, check_known
from fairflows.table.date_forms import check_form, times_of
from fairflows.table.frames import check_names, from_arrow
from fairflows.table.text_types import DAYS, ZONED, ColumnTypes, any_matches, column_types, time_format

PACKED_SUFFIXES = {".gz", ".bz2", ".zst", ".lz4"}  # which pyarrow opens
_KINDS: dict[str, Literal["csv", "excel", "parquet"]] = {
    **dict.fromkeys((".csv", ".tsv", ".txt", ".data"), "csv"),
    **dict.fromkeys((".xlsx", ".xlsm"), "excel"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
SEPARATORS = (",", ";", "\t", "|")
_BLOCK = 2**22  # bytes parsed at once: the longest row that can be read
_OTHER_ENCODING = "state its encoding, such as encoding='cp1252' (Windows in western Europe) or encoding='utf-16'."
_UNNAMED = re.compile(r"__index_level_\d+__")  # pandas' name of an index without a name


@dataclass(frozen=True)
class TextFormat:
    """Format of a CSV file, or the sheet of a workbook, as `Table.read` takes it; None is recognised."""

    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    sheet: str | None = None
    dates: Mapping[str, str] = field(default_factory=dict)  # the form of a column's dates; empty where it is looked for

    def __post_init__(self) -> None:
        if self.separator is not None and (len(self.separator) != 1 or not self.separator.isascii()):
            raise DataError(f"separator must be one ASCII character; got {self.separator!r}.")
        if self.decimal not in (None, ".", ","):
            raise DataError(f"decimal must be '.' or ','; got {self.decimal!r}.")
        for column, form in self.dates.items():
            if form:
                check_form(column, form)
        try:
            "".encode(self.encoding or "utf-8")
        except (LookupError, ValueError):  # unknown, or no name at all
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

    The `schema` of a model says what columns must hold, so that they are read as those the model was fitted on. The
    `identifier` is read as text, because numbers such as 12e4 and 120000 would make one person of two.
    """
    return read_with_formats(path, schema, identifier, text_format)[0]


def read_with_formats(
    path: str | Path,
    schema: Schema | None = None,
    identifier: str | None = None,
    text_format: TextFormat | None = None,
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Read a frame as `read_frame` does; return also how a CSV file writes its times, by column."""
    path = Path(path)
    rows = open_table(path, text_format)
    for name in () if schema is not None or text_format is None else text_format.dates:
        check_known(name, rows.columns, "dates")
    with reading(path):
        frame = from_arrow(rows.read(_stated_kinds(schema, identifier)))
    with naming_file(path):
        frame = frame if schema is None else schema.apply(frame)
    return frame, dict(rows.time_formats)


def open_table(path: Path, text_format: TextFormat | None = None) -> TextRows | ParquetRows:
    """Open a file by its kind. Wrap later reads in `reading`, too."""
    if path.is_dir():
        raise DataError(f"{path}: is a folder, not a file; folders of Parquet files are read by `encode --engine ray`.")
    kind = kind_of(path)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    stated = text_format or TextFormat()
    with reading(path):
        if stated.sheet is not None and kind != "excel":
            raise DataError(f"only a workbook has sheets; leave out sheet={stated.sheet!r}.")
        if kind == "csv":
            return TextRows(path, stated)
        if replace(stated, sheet=None, dates={}) != TextFormat():
            raise DataError("only a CSV file is read with separator, encoding and decimal: leave them out.")
        if kind == "excel":
            return TextRows(path, replace(OWN_FORMAT, dates=stated.dates), _sheet(path, stated.sheet))
        return ParquetRows(path, stated.dates)


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
    with reading(path):
        yield from file.batches(columns, batch_rows, _stated_kinds(schema, identifier))


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
    dates: Mapping[str, str] = {}  # the form of columns of dates, as stated or, after they were read, found

    def __init__(self, path: Path, stated: TextFormat, content: pa.Buffer | None = None) -> None:
        is_utf8 = (stated.encoding or "utf-8").lower() in ("utf-8", "utf8")
        if content is None and not is_utf8:
            content = _in_utf8(path, str(stated.encoding))
        self._source = str(path) if content is None else content
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
        self._path, self.dates = path, stated.dates
        if self._separator not in (",", stated.separator):
            mark = " with a decimal comma (decimal=',')" if self._decimal != (stated.decimal or ".") else ""
            warn_user(f"{path}: read as fields separated by {self._separator!r} (separator={self._separator!r}){mark}.")

    def read(self, kinds: Mapping[str, str]) -> pa.Table:
        """Return all rows; `kinds` states the required kinds of some columns, as a `Schema` does."""
        texts = list(self.texts(self.columns))
        found = self._types(texts, kinds)
        table = pa.Table.from_batches(texts)
        others = [name for name, kind in found.types.items() if kind in (*DAYS[1:], *ZONED) and name not in found.forms]
        formats = {name: form for name in others if (form := time_format(table[name]))}
        self.time_formats = formats | found.forms
        return self._typed(table, found)

    def batches(self, columns: Sequence[str], batch_rows: int, kinds: Mapping[str, str]) -> Iterator[pa.Table]:
        """Yield these columns, at most `batch_rows` rows at a time.

        The file is read twice, because a column of digits may hold a word further down.
        """
        found = self._types(self.texts(columns), kinds)
        self.time_formats = found.forms
        for texts in self.texts(columns):
            table = pa.Table.from_batches([texts])
            for start in range(0, table.num_rows, batch_rows):
                yield self._typed(table.slice(start, batch_rows), found)

    def _types(self, texts: Iterable[pa.RecordBatch], kinds: Mapping[str, str]) -> ColumnTypes:
        """Return the types of columns; say which were found to hold dates in a form of their own."""
        found = column_types(texts, kinds, self._decimal, self._other_decimal, self.dates)
        for name, form in found.forms.items():
            if name not in self.dates:
                warn_user(f"{self._path}: column {name!r} holds dates, read as dates={ {name: form}!r}.")
        self.dates = {**self.dates, **found.forms}
        return found

    def _typed(self, table: pa.Table, found: ColumnTypes) -> pa.Table:
        for place, (name, column) in enumerate(zip(table.schema.names, table.columns, strict=True)):
            if found.types[name] != pa.string():
                table = table.set_column(place, name, found.typed(name, column, self._decimal))
        return table

    def _separator_of_header(self) -> str:
        """Return the separator that the header line has; a comma if it has none."""
        with self._lines() as lines:
            line = next((line for line in lines if line.strip()), "")
        if "\0" in line:
            raise UnicodeDecodeError("utf-8", b"", 0, 1, "bytes of zero")
        found = [mark for mark in SEPARATORS if line and len(next(csv.reader([line], delimiter=mark))) > 1]
        if len(found) > 1:
            settings = " or ".join(f"separator={mark!r}" for mark in found)
            raise DataError(f"the header line has several separators: state the one between two fields ({settings}).")
        return found[0] if found else ","

    def _lines(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(pa.input_stream(self._source), "utf-8-sig", newline="")

    def texts(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns as text, with empty fields missing, some thousand rows at a time."""
        fields = [f"f{self.columns.index(name)}" for name in columns]
        # Columns go by their place, because names may be empty: the header is read as a row, and dropped.
        reader = pyarrow.csv.open_csv(
            pa.input_stream(self._source),
            pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK, autogenerate_column_names=True),
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
            has_line_ends = has_line_ends or any(any_matches(column, "[\\r\\n]") for column in rows.columns)
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


def _in_utf8(path: Path, encoding: str) -> pa.Buffer:
    """Return a text in UTF-8, by way of a private temporary file.

    Arrow would call Python's decoder in a thread, which aborts the process if Python has ended by then.
    """
    with tempfile.TemporaryFile() as file:
        with io.TextIOWrapper(pa.input_stream(str(path)), encoding, newline="") as text:
            while block := text.read(_BLOCK):
                file.write(block.encode())
        file.flush()
        return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b"")


def sheets_of(path: Path) -> list[str]:
    """Return the names of the sheets of a workbook."""
    with reading(path), pd.ExcelFile(path) as book:
        return list(map(str, book.sheet_names))


def _sheet(path: Path, name: str | None = None) -> pa.Buffer:
    """Return a sheet of a workbook, by default the first, as a CSV file. Needs the extra ``fairflows[excel]``."""
    try:
        with pd.ExcelFile(path) as book:
            names = list(map(str, book.sheet_names))
            if name is not None and name not in names:
                raise DataError(
                    f"the workbook has no sheet {name!r} (sheet=...): it has {', '.join(map(repr, names))}."
                )
            cells = pd.read_excel(book, name or 0, dtype=str, keep_default_na=False, na_values=[""])
    except ImportError:
        raise DataError("Excel files need openpyxl: pip install 'fairflows[excel]', or save as CSV.") from None
    except DataError:
        raise
    except Exception as error:  # a damaged archive of XML raises errors of many classes
        raise DataError(f"the workbook cannot be read: {error}") from None
    if name is None and len(names) > 1:
        others = " or ".join(f"sheet={other!r}" for other in names[1:])
        warn_user(f"{path}: only the first sheet, {names[0]!r}, is read; state another one ({others}).")
    return pa.py_buffer(cells.to_csv(index=False).encode())


class ParquetRows:
    """The rows of a Parquet file, without an index that pandas stored under no name, because it only numbers rows."""

    def __init__(self, path: Path, dates: Mapping[str, str] | None = None) -> None:
        self._file = pq.ParquetFile(path)
        self._dates = dates or {}
        self.time_formats: Mapping[str, str] = {}  # times are not text here
        self.n_rows: int | None = self._file.metadata.num_rows
        self.columns = [name for name in self._file.schema_arrow.names if not _UNNAMED.fullmatch(name)]
        check_names(self.columns)

    def read(self, kinds: Mapping[str, str]) -> pa.Table:
        """Return all rows."""
        return self._dated(self._file.read(self.columns))

    def batches(self, columns: Sequence[str], batch_rows: int, kinds: Mapping[str, str]) -> Iterator[pa.Table]:
        """Yield these columns, `batch_rows` rows at a time."""
        for batch in self._file.iter_batches(batch_rows, columns=list(columns), use_threads=False):
            yield self._dated(pa.Table.from_batches([batch])).select(list(columns))

    def _dated(self, rows: pa.Table) -> pa.Table:
        """Return rows with the columns of text that are stated to be dates as such."""
        rows = rows.replace_schema_metadata(None)
        for name in set(self._dates) & set(rows.column_names):
            if pa.types.is_string(kind := rows.schema.field(name).type) or pa.types.is_large_string(kind):
                times = times_of(rows[name].cast(pa.string()), self._dates[name]) if self._dates[name] else None
                if times is None:
                    raise DataError(
                        f"column {name!r} of a Parquet file is text that has not the stated form everywhere "
                        f"(dates={ {name: self._dates[name]}!r}): state its form, or write it as dates."
                    )
                rows = rows.set_column(rows.column_names.index(name), name, times)
        return rows

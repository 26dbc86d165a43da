"""Files whose fields are text: CSV files, plain or compressed, and sheets of Excel, as a CSV file would hold them.

A CSV file's encoding and separator are recognised only where the file leaves no other reading: one that could be read
in two ways is refused, with the option that decides. So are the marks of numbers, by their fields, in `field_types`.
Errors say what is wrong with a file; `open_table` puts its name before them.
"""

from __future__ import annotations

import codecs
import csv
import datetime
import io
import lzma
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from fairflows.exceptions import DataError
from fairflows.table.dialect import Dialect, is_tab_separated
from fairflows.table.field_types import PLAIN
from fairflows.table.frames import check_names

CSV_SUFFIXES = {".csv", ".tsv", ".txt", ".data"}
EXCEL_SUFFIXES = {".xlsx", ".xlsm"}
PARQUET_SUFFIXES = {".parquet", ".pq"}

OpenFile = Callable[[], IO[bytes]]

_BLOCK = 2**22  # bytes parsed at once: the longest row that can be read
_CHECKED_AT_ONCE = 2**20  # bytes whose encoding is looked at
_SHEET_ROWS = 2**16  # of a sheet, in one batch
_CELL_ERRORS = {
    "#N/A",
    "#DIV/0!",
    "#NAME?",
    "#NULL!",
    "#NUM!",
    "#REF!",
    "#VALUE!",
}  # instead of values
_SEPARATORS = (",", ";", "\t", "|")
_SAMPLE_LINES = 500  # that show which one it is

# That of UTF-32 begins as that of UTF-16 does, so it is looked for first.
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

_HIGH = "À-ÖØ-öø-ÿŠŽŒŸšžœ"
_SYMBOLS = "‚„†‡ˆ‰‹“”•˜™›¡¢£¤¥¦§¨©«¬®¯°±²³µ¶¸¹»¼½¾¿×÷"
_NOT_WESTERN = re.compile(
    "|".join(
        [
            "\ufffd",  # a byte that Windows-1252 does not use
            f"[{_HIGH}]{{4}}",  # a word of such letters alone: Greek, Cyrillic
            f"[A-Za-z{_HIGH}][{_SYMBOLS}][A-Za-z{_HIGH}]",  # a symbol within a word: central European, DOS
            "[a-zß-ÿ][ŠŽŒŸ]|[A-Z][ŠŽŒŸ][a-zß-ÿ]",  # a capital within a word: old Macintosh
            f"[ÂÃ][{_SYMBOLS}ŠŽŒŸšžœ\u00a0’–—]",  # damaged UTF-8
        ]
    )
)


def _unpack(codec: str) -> Callable[[Path], IO[bytes]]:
    return lambda path: pa.CompressedInputStream(pa.OSFile(str(path)), codec)


def _unzip(path: Path) -> IO[bytes]:
    archive = zipfile.ZipFile(path)
    files = [file for file in archive.infolist() if not file.is_dir() and not file.filename.startswith("__MACOSX/")]
    if len(files) != 1:
        raise DataError(f"the archive must hold one file; it holds {len(files)}.")
    if Path(files[0].filename).suffix.lower() in PARQUET_SUFFIXES | EXCEL_SUFFIXES:
        raise DataError(f"the archive must hold a CSV file; it holds {files[0].filename!r}: unpack it first.")
    return archive.open(files[0])


COMPRESSION: dict[str, Callable[[Path], IO[bytes]]] = {
    ".gz": _unpack("gzip"),
    ".bz2": _unpack("bz2"),
    ".zst": _unpack("zstd"),
    ".xz": lzma.open,
    ".zip": _unzip,
}


class CsvText:
    """The fields of a CSV file as text, an empty one missing; every row has as many as the header.

    It is made with the dialect as far as that is known, to which it adds the encoding and the separator; `usual` is how
    such files are written, where this one could be read in several ways.
    """

    def __init__(self, path: Path, dialect: Dialect, usual: Dialect | None = None) -> None:
        if dialect.sheet is not None:
            raise DataError("only Excel files have sheets: leave out sheet.")
        self.path = path
        usual = usual or Dialect()
        encoding = dialect.encoding or _encoding_of(self._open, usual.encoding)
        self.dialect = replace(dialect, encoding=encoding)
        if self.dialect.separator is None:
            with self._lines() as lines:
                separator = "\t" if is_tab_separated(path) else _separator_of(lines, usual.separator)
            self.dialect = replace(self.dialect, separator=separator)
        with self._lines() as lines:
            header = next(filter(None, csv.reader(lines, delimiter=self.separator)), None)
        if header is None:
            raise DataError("the file is empty.")
        header[0] = header[0].removeprefix("\ufeff")  # where an encoding is stated that does not expect the mark
        self.columns = _column_names(header)
        self._quotes_are_checked = False

    @property
    def separator(self) -> str:
        """What separates two fields."""
        return self.dialect.separator or ","

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns, some thousand rows at a time."""
        fields = [f"f{self.columns.index(name)}" for name in columns]
        bad_rows: list[pyarrow.csv.InvalidRow] = []

        def refuse(row: pyarrow.csv.InvalidRow) -> str:
            bad_rows.append(row)
            return "error"

        with self._open() as stream:
            text = Utf8Stream(stream, self.dialect.encoding or "utf-8")
            try:
                # Columns go by their place: the header is read as a row, and dropped. One thread counts the rows.
                reader = pyarrow.csv.open_csv(
                    pa.PythonFile(text, "r"),
                    pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK, autogenerate_column_names=True),
                    pyarrow.csv.ParseOptions(
                        delimiter=self.separator,
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
                last, has_quotes = None, False
                for number, batch in enumerate(reader):
                    rows = batch.slice(0 if number else 1)
                    yield pa.RecordBatch.from_arrays(rows.columns, names=list(columns))
                    last = batch[-1][-1].as_py() if batch.num_rows else last
                    if not (has_quotes or self._quotes_are_checked):
                        has_quotes = any(map(_holds_quotes, rows.columns))
            except pa.ArrowInvalid as error:
                raise self._explained(bad_rows) if bad_rows else error from None
        if columns[-1] == self.columns[-1] and text.ends_within_quotes(last or "", self.separator):
            raise DataError("cannot be read: a quote that opens the last field is never closed.")
        if has_quotes:
            self._refuse_loose_quotes()
        self._quotes_are_checked = True  # the file is read several times

    def _refuse_loose_quotes(self) -> None:
        """Arrow goes on after a quote that ends a field too early, and may take several rows for one field."""
        with self._lines() as lines:
            rows = csv.reader(lines, delimiter=self.separator, strict=True)
            try:
                for _ in rows:
                    pass
            except csv.Error as error:
                if "limit" in str(error):  # a field too long for this check, and not a wrong one
                    return
                raise DataError(
                    f"a quote in line {rows.line_num:,} ends a field, and something else than "
                    f"{self.separator!r} or a line end follows: is one before it never closed? A quote within a field "
                    "is written twice."
                ) from None

    def _explained(self, rows: list[pyarrow.csv.InvalidRow]) -> DataError:
        row = rows[0]
        reason = (
            f"every row must have the {row.expected_columns} fields of the header; row {row.number} (the "
            f"header is row 1) has {row.actual_columns}."
        )
        if "\n" in row.text:
            return DataError(f"{reason} It holds a line end in quotes: is one of them never closed?")
        comma = " A number with a decimal comma must then be in quotes." if self.separator == "," else ""
        return DataError(f"{reason} They are separated by {self.separator!r}: if not, say so (separator=...).{comma}")

    def _lines(self) -> io.TextIOWrapper:
        encoding = "utf-8-sig" if self.dialect.encoding == "utf-8" else self.dialect.encoding
        return io.TextIOWrapper(self._open(), encoding, newline="")

    def _open(self) -> IO[bytes]:
        return COMPRESSION.get(self.path.suffix.lower(), lambda path: path.open("rb"))(self.path)


def _holds_quotes(fields: pa.Array) -> bool:
    """Whether a field holds a quote or a line end, which only quotes can put there."""
    return bool(pc.any(pc.match_substring_regex(fields, '["\\r\\n]')).as_py())


def _encoding_of(open_file: OpenFile, usual: str | None) -> str:
    """A file's encoding: by its byte order mark, else UTF-8 where all of it is, else the usual, or Windows-1252."""
    with open_file() as stream:
        data = stream.read(_CHECKED_AT_ONCE)
        for mark, name in _BYTE_ORDER_MARKS.items():
            if data.startswith(mark):
                return name
        if b"\0" in data:
            raise DataError(
                "holds bytes of zero, which no text has, except UTF-16 without a byte order mark: name its encoding "
                "(encoding='utf-16-le')."
            )
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while data:
                decoder.decode(data)
                data = stream.read(_CHECKED_AT_ONCE)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            pass
        else:
            return "utf-8"
    if usual is not None and usual not in {"utf-8", *_BYTE_ORDER_MARKS.values()}:
        return usual
    with io.TextIOWrapper(open_file(), "cp1252", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.isascii() and (doubtful := _NOT_WESTERN.search(line)):
                word = line[max(doubtful.start() - 8, 0) : doubtful.end() + 8].strip()
                raise DataError(
                    f"neither UTF-8 text nor plainly Windows-1252: line {number:,} would hold {word!r}. Name its "
                    "encoding (encoding=...)."
                )
    return "cp1252"


def _separator_of(text: io.TextIOBase, usual: str | None) -> str:
    """What separates the fields: that by which every row has as many as the header; of two, the usual one."""
    lines = list(islice(text, _SAMPLE_LINES))
    is_whole = len(lines) < _SAMPLE_LINES
    fits = {mark: _share_that_fits(lines, mark, is_whole) for mark in _SEPARATORS}
    best = max(fits.values())
    found = [mark for mark, share in fits.items() if share == best and share >= 0]
    if len(found) > 1 and usual in found:
        return usual
    if len(found) > 1:
        names = " or ".join(repr(mark) for mark in found)
        raise DataError(f"its fields could be separated by {names}: say which (separator={found[0]!r}).")
    return found[0] if found else ","


def _share_that_fits(lines: list[str], separator: str, is_whole: bool) -> float:
    """The share of rows with as many fields as the header has; -1 where the header has only one."""
    try:
        rows = [row for row in csv.reader(lines, delimiter=separator) if row]
    except csv.Error:
        return -1
    rows = rows if is_whole else rows[:-1]  # the last may go on
    if not rows or len(rows[0]) < 2:
        return -1
    header, *rows = rows
    return sum(len(row) == len(header) for row in rows) / len(rows) if rows else 1


class Utf8Stream(io.RawIOBase):
    """A stream of text in any encoding, as UTF-8, that remembers how it ended.

    Text is checked here, and not where a row is found to be wrong: there the error could not be raised.
    """

    def __init__(self, stream: IO[bytes], encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._waiting = b""
        self._tail = b""

    def read(self, n: int = -1) -> bytes:
        """The next bytes, n at most; what the last read gave beyond them waits for the next."""
        while not self._waiting and (data := self._stream.read(n)):
            self._waiting = self._decoder.decode(data).encode()
        if not self._waiting:
            self._waiting = self._decoder.decode(b"", final=True).encode()
        data, self._waiting = self._waiting[:n], self._waiting[n:]
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


class ExcelText:
    """The cells of a sheet as text; an empty one, or one that shows an error, is missing.

    The workbook must have one sheet with rows, unless the dialect names one. Needs the extra ``fairflows[excel]``.
    """

    def __init__(self, path: Path, dialect: Dialect) -> None:
        for name, plain in PLAIN.to_dict().items():
            if name != "sheet" and dialect.to_dict()[name] not in (None, plain):
                raise DataError(f"a workbook itself says how it is written: leave out {name}.")
        sheets = {name: rows for name, rows in _sheets(path, dialect.sheet).items() if rows}
        if not sheets:
            raise DataError("the file is empty.")
        if len(sheets) > 1:
            names = ", ".join(map(repr, sheets))
            raise DataError(f"holds several sheets ({names}): name one (sheet={next(iter(sheets))!r}).")
        ((header, *self._rows),) = sheets.values()
        self.path = path
        self.dialect = replace(PLAIN, sheet=dialect.sheet)  # as `_text` writes numbers
        self.columns = _column_names(header)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns, some thousand rows at a time."""
        places = [self.columns.index(name) for name in columns]
        for start in range(0, max(len(self._rows), 1), _SHEET_ROWS):
            rows = self._rows[start : start + _SHEET_ROWS]
            yield pa.RecordBatch.from_arrays(
                [pa.array([row[j] for row in rows], pa.string()) for j in places], names=list(columns)
            )


def _sheets(path: Path, wanted: str | None) -> dict[str, list[list[str | None]]]:
    """The sheets of a workbook, or one of them, without rows and columns at the end that hold nothing."""
    try:
        import openpyxl
    except ImportError:
        raise DataError(
            "reading Excel files needs openpyxl: pip install 'fairflows[excel]', or save the sheet as CSV."
        ) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of styles and forms, which hold no values
        try:
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        except Exception as error:  # whatever a damaged archive of XML gives rise to
            raise DataError(f"the workbook cannot be read: {error}") from None
        try:
            if wanted is not None and wanted not in book.sheetnames:
                known = ", ".join(map(repr, book.sheetnames))
                raise DataError(f"has no sheet {wanted!r}; it has {known}.")
            names = [sheet.title for sheet in book.worksheets if wanted in (None, sheet.title)]
            for name in names:
                book[name].reset_dimensions()  # what a sheet says of its size may be wrong, and rows would be left out
            return {name: _trimmed(book[name].iter_rows(values_only=True)) for name in names}
        finally:
            book.close()


def _trimmed(cells: Iterator[tuple[object, ...]]) -> list[list[str | None]]:
    rows = [[_text(cell) for cell in row] for row in cells]
    while rows and not any(rows[-1]):
        rows.pop()
    width = max((j + 1 for row in rows for j, cell in enumerate(row) if cell), default=0)
    return [[*row[:width], *[None] * (width - len(row))] for row in rows]


def _text(cell: object) -> str | None:
    """A cell as a CSV file would hold it, without a loss of digits."""
    if cell is None or cell == "" or (isinstance(cell, str) and cell in _CELL_ERRORS):
        return None
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    if isinstance(cell, datetime.datetime):
        return cell.date().isoformat() if cell.time() == datetime.time() else cell.isoformat(sep=" ")
    return str(cell)


TextFields: TypeAlias = CsvText | ExcelText
"""A file whose fields are text, for `column_types` to judge."""


def _column_names(header: Sequence[str | None]) -> list[str]:
    """The names in the first row; a column without one is called "Unnamed: j", by its place."""
    names = [name or f"Unnamed: {j}" for j, name in enumerate(header)]
    check_names(names)
    return names

"""The cells of an Excel sheet as text, in the form in which a CSV file would hold them."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from fairflows.exceptions import DataError, Parameter
from fairflows.table.dialect import Dialect
from fairflows.table.frames import check_names

EXCEL_SUFFIXES = {".xlsx", ".xlsm"}

_BATCH_ROWS = 2**16
_WRITTEN = {"separator": None, "encoding": None, "decimal": ".", "thousands": ""}  # here, as text
_ERRORS = {"#N/A", "#DIV/0!", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!"}


class ExcelText:
    """The cells of a sheet as text; an empty one, or one that shows an error, is missing.

    The workbook must have one sheet with rows, unless the dialect names one. Needs the extra ``fairflows[excel]``. The
    first row names the columns; one without a name is called "Unnamed: j", by its place.
    """

    def __init__(self, path: Path, dialect: Dialect) -> None:
        for name, value in dialect.to_dict().items():
            if name != "sheet" and value not in (None, _WRITTEN[name]):
                raise DataError(f"{path}: a workbook itself says how it is written: leave out ", Parameter(name), ".")
        sheets = {name: rows for name, rows in _sheets(path, dialect.sheet).items() if rows}
        if not sheets:
            raise DataError(f"{path}: the file is empty.")
        if len(sheets) > 1:
            names = ", ".join(map(repr, sheets))
            raise DataError(
                f"{path}: holds several sheets ({names}): name one (", Parameter("sheet", next(iter(sheets))), ")."
            )
        ((header, *self._rows),) = sheets.values()
        self.path = path
        self.dialect = Dialect(**_WRITTEN, sheet=dialect.sheet)  # the form of the text here: plain numbers
        self.columns = [name or f"Unnamed: {j}" for j, name in enumerate(header)]
        check_names(self.columns, path)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns, some thousand rows at a time."""
        places = [self.columns.index(name) for name in columns]
        for start in range(0, max(len(self._rows), 1), _BATCH_ROWS):
            rows = self._rows[start : start + _BATCH_ROWS]
            yield pa.RecordBatch.from_arrays(
                [pa.array([row[j] for row in rows], pa.string()) for j in places], names=list(columns)
            )


def _sheets(path: Path, wanted: str | None) -> dict[str, list[list[str | None]]]:
    """The sheets of a workbook, or one of them, without rows and columns at the end that hold nothing."""
    try:
        import openpyxl
    except ImportError:
        raise DataError(
            f"{path}: reading Excel files needs openpyxl: pip install 'fairflows[excel]', or save the sheet as CSV."
        ) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of styles and forms, which hold no values
        try:
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        except Exception as error:  # whatever a damaged archive of XML gives rise to
            raise DataError(f"{path}: the workbook cannot be read: {error}") from None
        try:
            if wanted is not None and wanted not in book.sheetnames:
                known = ", ".join(map(repr, book.sheetnames))
                raise DataError(f"{path}: has no sheet {wanted!r}; it has {known}.")
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
    if cell is None or cell == "" or (isinstance(cell, str) and cell in _ERRORS):
        return None
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    if isinstance(cell, datetime.datetime):
        return cell.date().isoformat() if cell.time() == datetime.time() else cell.isoformat(sep=" ")
    return str(cell)

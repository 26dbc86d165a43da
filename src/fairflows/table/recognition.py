"""Recognising how a text file writes its table: encoding, separator, decimal mark and thousands mark.

Each is recognised only where the file leaves no other reading: a file that could be read in two ways is refused, with
the option that decides.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from fairflows.exceptions import DataError, Parameter
from fairflows.table.dialect import Dialect
from fairflows.table.field_types import LEADING_ZEROS, known_fields
from fairflows.table.schema import NUMBERS, WHOLE

OpenFile = Callable[[], IO[bytes]]
Evidence = dict[str, "Found"]

_BLOCK = 2**20
_SEPARATORS = (",", ";", "\t", "|")
_SAMPLE_LINES = 500
_THOUSANDS = (",", ".", " ", "'")

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

_SIGN, _EXPONENT = "[+-]?", "(?:[eE][+-]?[0-9]+)?"
_GAPS = " \u00a0\u202f"
_LOOKS = {
    "decimal .": rf"^{_SIGN}(?:[0-9]+\.[0-9]*|\.[0-9]+){_EXPONENT}$",
    "decimal ,": rf"^{_SIGN}(?:[0-9]+,[0-9]*|,[0-9]+){_EXPONENT}$",
    "perhaps .": rf"^{_SIGN}[1-9][0-9]{{0,2}}\.[0-9]{{3}}$",
    "perhaps ,": rf"^{_SIGN}[1-9][0-9]{{0,2}},[0-9]{{3}}$",
    "thousands ,": rf"^{_SIGN}[1-9][0-9]{{0,2}}(?:(?:,[0-9]{{3}}){{2,}}|(?:,[0-9]{{3}})+\.[0-9]+)$",
    "thousands .": rf"^{_SIGN}[1-9][0-9]{{0,2}}(?:(?:\.[0-9]{{3}}){{2,}}|(?:\.[0-9]{{3}})+,[0-9]+)$",
    # A single group may be a code such as 560 001; a no-break space is only written within numbers.
    "thousands  ": rf"^{_SIGN}[1-9][0-9]{{0,2}}"
    "(?:(?:[\u00a0\u202f][0-9]{3})+|(?: [0-9]{3}){2,}|(?: [0-9]{3})+[.,][0-9]+)(?:[.,][0-9]+)?$",
    "thousands '": rf"^{_SIGN}[1-9][0-9]{{0,2}}(?:(?:['’][0-9]{{3}}){{2,}}|(?:['’][0-9]{{3}})+[.,][0-9]+)$",
    "grouped .": rf"^{_SIGN}[0-9]+(?:[{_GAPS}'’][0-9]{{3}})+\.[0-9]+$",
    "grouped ,": rf"^{_SIGN}[0-9]+(?:[{_GAPS}'’][0-9]{{3}})+,[0-9]+$",
}
"""How a number may show its marks; "perhaps" where 1.234 is 1234 in one convention and a little more than 1 in another.
"""
_ANY_NUMBER = "|".join(
    [
        *_LOOKS.values(),
        rf"^{_SIGN}[0-9]+{_EXPONENT}$",
        rf"^{_SIGN}[1-9][0-9]{{0,2}}(?:[ '’][0-9]{{3}})$",
    ]
)


@dataclass(frozen=True)
class Found:
    """A field that shows how numbers are written."""

    column: str
    row: int
    text: str

    def __str__(self) -> str:
        return f"column {self.column!r} holds {self.text!r} in row {self.row:,} (the header is row 1)"


def encoding_of(open_file: OpenFile, path: Path, usual: str | None = None) -> str:
    """The encoding of a file: by its byte order mark, else UTF-8 where all of it is, else the usual, or Windows-1252.

    Raises
    ------
    DataError
        The file is not UTF-8, and would not read as text of a western language either.
    """
    with open_file() as stream:
        data = stream.read(_BLOCK)
        for mark, name in _BYTE_ORDER_MARKS.items():
            if data.startswith(mark):
                return name
        if b"\0" in data:
            raise DataError(
                f"{path}: holds bytes of zero, which no text has, except UTF-16 without a byte order mark: name its "
                "encoding (",
                Parameter("encoding", "utf-16-le"),
                ").",
            )
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while data:
                decoder.decode(data)
                data = stream.read(_BLOCK)
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
                    f"{path}: neither UTF-8 text nor plainly Windows-1252: line {number:,} would hold {word!r}. Name "
                    "its encoding (",
                    Parameter("encoding", ...),
                    ").",
                )
    return "cp1252"


def separator_of(text: io.TextIOBase, path: Path, usual: str | None = None) -> str:
    """What separates the fields: that by which every row has as many as the header.

    Raises
    ------
    DataError
        Two do, and neither is the usual one.
    """
    lines = list(islice(text, _SAMPLE_LINES))
    is_whole = len(lines) < _SAMPLE_LINES
    fits = {mark: _share_that_fits(lines, mark, is_whole) for mark in _SEPARATORS}
    best = max(fits.values())
    found = [mark for mark, share in fits.items() if share == best and share >= 0]
    if len(found) > 1 and usual in found:
        return usual
    if len(found) > 1:
        names = " or ".join(repr(mark) for mark in found)
        raise DataError(
            f"{path}: its fields could be separated by {names}: say which (", Parameter("separator", found[0]), ")."
        )
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


def number_marks(
    batches: Iterable[pa.RecordBatch],
    dialect: Dialect,
    path: Path,
    kinds: Mapping[str, str] | None = None,
    usual: Dialect | None = None,
) -> Dialect:
    """The dialect with the marks of numbers that the columns show, all of whose fields look like numbers.

    A mark that the dialect states stays. Columns that must hold no numbers, by their `kinds`, are not looked at.
    `usual`, how the file was written that a model was fitted on, decides where this one, with the same separator, shows
    nothing; where two readings are possible, a DataError names the file.
    """
    if dialect.decimal is not None and dialect.thousands is not None:
        return dialect
    shown = _evidence(batches, kinds or {})
    same = usual if usual is not None and usual.separator == dialect.separator else Dialect()
    decimal = dialect.decimal or _decimal(shown, dialect, same, path)
    if dialect.thousands is not None:
        return replace(dialect, decimal=decimal)
    return replace(dialect, decimal=decimal, thousands=_thousands(shown, decimal, same, path))


def _decimal(shown: Evidence, dialect: Dialect, usual: Dialect, path: Path) -> str:
    if dialect.thousands in (".", ","):
        return "," if dialect.thousands == "." else "."
    point = shown.get("decimal .") or shown.get("thousands ,") or shown.get("grouped .")
    comma = shown.get("decimal ,") or shown.get("thousands .") or shown.get("grouped ,")
    either = Parameter("decimal", "."), Parameter("decimal", ",")
    if point and comma:
        raise _ambiguous(path, f"{point}, and {comma}: say which is the decimal mark", *either)
    if comma and dialect.separator == "," and usual.decimal != ",":
        raise _ambiguous(path, f"{comma}, and commas separate the fields: say which is the decimal mark", *either)
    if point or comma:
        return "." if point else ","
    if usual.decimal is not None:
        return usual.decimal
    for mark in (",",) if dialect.separator == "," else (",", "."):
        if perhaps := shown.get(f"perhaps {mark}"):
            reason = f"{perhaps}, which may have thousands or decimals: say what the mark is"
            raise _ambiguous(path, reason, Parameter("thousands", mark), Parameter("decimal", mark))
    return "."


def _thousands(shown: Evidence, decimal: str, usual: Dialect, path: Path) -> str:
    proven = [mark for mark in _THOUSANDS if mark != decimal and f"thousands {mark}" in shown]
    if len(proven) > 1:
        one, other = (shown[f"thousands {mark}"] for mark in proven[:2])
        either = (Parameter("thousands", mark) for mark in proven[:2])
        raise _ambiguous(path, f"{one}, and {other}: say what groups thousands", *either)
    if proven:
        return proven[0]
    if usual.decimal == decimal and usual.thousands is not None:
        return usual.thousands
    other_mark = "," if decimal == "." else "."
    if perhaps := shown.get(f"perhaps {other_mark}"):
        reason = f"{perhaps}: say whether that groups thousands, or is text"
        raise _ambiguous(path, reason, Parameter("thousands", other_mark), Parameter("thousands", ""))
    return ""


def _ambiguous(path: Path, reason: str, one: Parameter, other: Parameter) -> DataError:
    return DataError(f"{path}: {reason} (", one, " or ", other, ").")


def _evidence(batches: Iterable[pa.RecordBatch], kinds: Mapping[str, str]) -> Evidence:
    """The first field of each look, over the columns whose fields all look like numbers."""
    of_columns: dict[str, Evidence | None] = {}
    n_rows = 1  # the header
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            found = of_columns.setdefault(name, {} if kinds.get(name, NUMBERS) in (NUMBERS, WHOLE) else None)
            if found is None or _shows_nothing_new(column, found):
                continue
            if not _add_looks(found, name, known_fields(column), n_rows):
                of_columns[name] = None
        n_rows += batch.num_rows
    shown: Evidence = {}
    for found in of_columns.values():
        shown = {**(found or {}), **shown}
    return shown


def _shows_nothing_new(column: pa.Array, found: Evidence) -> bool:
    """Whether all fields are whole numbers, or plain ones where a decimal point was found before: the usual columns."""
    return _are_all(column, pa.int64()) or ("decimal ." in found and _are_all(column, pa.float64()))


def _add_looks(found: Evidence, name: str, fields: pa.Array, n_rows: int) -> bool:
    """Add the looks of a column's fields to those found before; False where one looks like no number."""
    values = fields.drop_null()
    if _are_all(values, pa.float64()):
        looks = ["perhaps .", "decimal ."]
    else:
        values = values.unique()
        if not (_look_like_numbers(values[:64]) and _look_like_numbers(values)):
            return False
        if pc.any(pc.match_substring_regex(values, LEADING_ZEROS)).as_py():
            return False
        looks = list(_LOOKS)
    for look in looks:
        if look in found:
            continue
        matches = pc.match_substring_regex(values, _LOOKS[look])
        if look in ("decimal .", "decimal ,"):
            perhaps = pc.match_substring_regex(values, _LOOKS[look.replace("decimal", "perhaps")])
            matches = pc.and_not(matches, perhaps)
        place = pc.index(matches, True).as_py()
        if place >= 0:
            text = values[place].as_py()
            found[look] = Found(name, n_rows + pc.index(fields, text).as_py() + 1, text)
    return True


def _are_all(values: pa.Array, kind: pa.DataType) -> bool:
    """Whether all fields are numbers of this type, as Python writes them."""
    try:
        pc.cast(values[:64], kind)
        pc.cast(values, kind)
    except pa.ArrowInvalid:
        return False
    return True


def _look_like_numbers(values: pa.Array) -> bool:
    return bool(pc.all(pc.match_substring_regex(values, _ANY_NUMBER)).as_py())

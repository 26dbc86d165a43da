"""The type of a column of text fields: what all of them can be read as without loss.

A column is whole numbers, numbers, true and false, dates or times where every field is; else it is text, as it stands.
So "00123" stays text (a number would drop the zeros), as do whole numbers of more digits than 64 bits hold, and one
word makes a column of digits text. An empty field is missing in every column; words such as NA are missing among
numbers and times, and text among text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from fairflows.table.dialect import Dialect
from fairflows.table.schema import BOOLEANS, DATES, MOMENTS, NUMBERS, TEXT, TIMES, WHOLE

PLAIN = Dialect(decimal=".", thousands="")
"""Numbers as Python writes them."""

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
LEADING_ZEROS = r"^[+-]?0[0-9xX]"
"""Of what is no number: leading zeros, which a number would lose; and 0x10, which is no decimal number."""

_LONG_CODES = r"^[+-]?[0-9]{21,}$"
"""Whole numbers of more digits than 64 bits hold: a float would make one of several."""

_MARKS = {",": ",", ".": r"\.", " ": " \u00a0\u202f", "'": "'’"}
"""What stands for a mark of numbers, in a set of a regular expression."""


def column_types(
    batches: Iterable[pa.RecordBatch], kinds: Mapping[str, str] | None = None, dialect: Dialect = PLAIN
) -> dict[str, pa.DataType]:
    """The type of each column of text, over all batches; a column without a value counts as numbers.

    `kinds` says what some columns must hold, as a `Schema` has it, and a field that cannot be read so is a ValueError;
    the other columns are judged by their fields.
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
            known = known_fields(batch[name])
            found = _narrowest(known, candidates, dialect)
            if found is None:
                place = _first_unlike(known, candidates[-1], dialect)
                raise ValueError(
                    f"column {name!r} must hold {kinds[name]}, as in the rows that the model was fitted on; row "
                    f"{n_rows + place + 1} (the header is row 1) holds {batch[name][place].as_py()!r}."
                )
            types[name] = _join(before, found)
        n_rows += batch.num_rows
    return {name: pa.float64() if pa.types.is_null(kind) else kind for name, kind in types.items()}


def as_types(table: pa.Table, types: dict[str, pa.DataType], dialect: Dialect = PLAIN) -> pa.Table:
    """Columns of text as columns of these types."""
    return pa.table({name: _as_type(table[name], types[name], dialect) for name in table.schema.names})


def _as_type(column: pa.ChunkedArray, kind: pa.DataType, dialect: Dialect) -> pa.ChunkedArray:
    if kind == pa.string():
        return column
    fields = known_fields(column)
    return pc.cast(_with_points(fields, dialect) if kind in _NUMBERS else fields, kind)


def _is_written(fields: pa.Array, dialect: Dialect) -> bool:
    """Whether all fields are numbers as the dialect writes them."""
    decimal, whole = _MARKS[dialect.decimal or "."], "[0-9]+"
    if dialect.thousands:
        whole = f"(?:{whole}|[1-9][0-9]{{0,2}}(?:[{_MARKS[dialect.thousands]}][0-9]{{3}})+)"
    number = f"^[+-]?(?:(?:{whole}(?:[{decimal}][0-9]*)?|[{decimal}][0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity))$"
    return bool(pc.all(pc.match_substring_regex(fields, number)).as_py())


def _with_points(fields: pa.Array, dialect: Dialect) -> pa.Array:
    """Numbers of the dialect as Arrow reads them: with a decimal point, and nothing between thousands."""
    if dialect.thousands:
        fields = pc.replace_substring_regex(fields, f"[{_MARKS[dialect.thousands]}]", "")
    return pc.replace_substring(fields, ",", ".") if dialect.decimal == "," else fields


def known_fields(text: pa.Array) -> pa.Array:
    """The fields without blanks around them, those that mark a missing value set to missing."""
    trimmed = pc.ascii_trim_whitespace(text)
    return pc.if_else(pc.is_in(trimmed, value_set=pa.array(MARKERS)), pa.scalar(None, pa.string()), trimmed)


def _narrowest(known: pa.Array, candidates: tuple[pa.DataType, ...], dialect: Dialect) -> pa.DataType | None:
    """The first of the types that holds all fields."""
    if candidates == _OF_KIND[TEXT]:
        return pa.string()
    known = known.drop_null()
    if not len(known):
        return pa.null()
    found = next((kind for kind in candidates if _can_be(known, kind, dialect)), None)
    is_free = found == pa.float64() and candidates == _ANY
    if is_free and pc.any(pc.match_substring_regex(_with_points(known, dialect), _LONG_CODES)).as_py():
        return pa.string()
    return found


def _can_be(known: pa.Array, kind: pa.DataType, dialect: Dialect) -> bool:
    if kind == pa.string():
        return True
    if kind == pa.bool_():
        return pc.all(pc.is_in(known, value_set=_TRUTHS)).as_py()
    # Arrow goes on to the end after a failure: most are found among the first fields, at once.
    return _can_be_cast(known[:64], kind, dialect) and _can_be_cast(known, kind, dialect)


def _can_be_cast(known: pa.Array, kind: pa.DataType, dialect: Dialect) -> bool:
    if kind in _NUMBERS:
        if not (dialect.reads_plain_numbers or _is_written(known, dialect)):
            return False
        if pc.any(pc.match_substring_regex(known, LEADING_ZEROS)).as_py():
            return False
        known = _with_points(known, dialect)
    try:
        pc.cast(known, kind)
    except pa.ArrowInvalid:
        return False
    return True


def _first_unlike(known: pa.Array, kind: pa.DataType, dialect: Dialect) -> int:
    """The place of the first field that cannot be of a type, by bisection over how many fields are taken."""

    def is_unlike(last: int) -> bool:
        return not _can_be(known[: last + 1].drop_null(), kind, dialect)

    return bisect_left(range(len(known)), True, key=is_unlike)


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

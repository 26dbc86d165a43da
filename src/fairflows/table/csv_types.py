"""What a CSV column holds, judged from the text of all its fields.

A CSV file has no types, so a rule has to give them, and the same one wherever a file is read, in one piece or in a
stream. A column is what *all* its fields can be read as without loss: whole numbers, numbers, true and false, dates,
times; else it is text, as it stands. So "00123" stays text (a number would drop the zeros), and one word makes a column
of digits text. An empty field is missing in every column; words such as NA are missing among numbers and times, and
text among text.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

MARKERS = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None")
"""What stands for a missing value in a column that is not text."""

_NUMBERS = (pa.int64(), pa.uint64(), pa.float64())
_TIMES = (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"))
_TRUTHS = pa.array(["True", "TRUE", "true", "False", "FALSE", "false"])
_NOT_A_NUMBER = r"^[+-]?0[0-9xX]"  # leading zeros, which a number would lose; and 0x10, which is no decimal number


def column_types(batches: Iterable[pa.RecordBatch]) -> dict[str, pa.DataType]:
    """The type of each column of text, over all batches; a column without a value counts as numbers."""
    types: dict[str, pa.DataType] = {}
    for batch in batches:
        for name in batch.schema.names:
            before = types.get(name, pa.null())
            if before != pa.string():  # nothing is wider than text
                types[name] = _join(before, _narrowest(_known(batch[name])))
    return {name: pa.float64() if pa.types.is_null(kind) else kind for name, kind in types.items()}


def as_types(table: pa.Table, types: dict[str, pa.DataType]) -> pa.Table:
    """Columns of text as columns of these types."""
    columns = {
        name: column if types[name] == pa.string() else pc.cast(_known(column), types[name])
        for name, column in zip(table.schema.names, table.columns, strict=True)
    }
    return pa.table(columns)


def _known(text: pa.Array) -> pa.Array:
    """The fields without blanks around them, those that mark a missing value set to missing."""
    trimmed = pc.ascii_trim_whitespace(text)
    return pc.if_else(pc.is_in(trimmed, value_set=pa.array(MARKERS)), pa.scalar(None, pa.string()), trimmed)


def _narrowest(known: pa.Array) -> pa.DataType:
    known = known.drop_null()
    if not len(known):
        return pa.null()
    if not pc.any(pc.match_substring_regex(known, _NOT_A_NUMBER)).as_py():
        for kind in _NUMBERS:
            if _can_be(known, kind):
                return kind
    if pc.all(pc.is_in(known, value_set=_TRUTHS)).as_py():
        return pa.bool_()
    return next((kind for kind in _TIMES if _can_be(known, kind)), pa.string())


def _can_be(known: pa.Array, kind: pa.DataType) -> bool:
    try:
        pc.cast(known[:64], kind)  # Arrow goes on to the end after a failure: most are found here, at once
        pc.cast(known, kind)
    except pa.ArrowInvalid:
        return False
    return True


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

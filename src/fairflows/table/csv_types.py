"""What a CSV column holds, judged from the text of all its fields.

A CSV file has no types, so a rule has to give them, and the same one wherever a file is read, in one piece or in a
stream. A column is what *all* its fields can be read as without loss: whole numbers, numbers, true and false, dates,
times; else it is text, as it stands. So "00123" stays text (a number would drop the zeros), and one word makes a column
of digits text. An empty field is missing in every column; words such as NA are missing among numbers and times, and
text among text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from fairflows.table.schema import BOOLEANS, DATES, MOMENTS, NUMBERS, TEXT, TIMES, WHOLE

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

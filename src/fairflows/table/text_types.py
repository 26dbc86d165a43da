"""The types of texts: what the columns of a CSV file hold, which the file does not say.

A column holds whole numbers, numbers, true and false, dates or times if every field can be read so without loss, else
text. Leading zeros ("00123") and whole numbers beyond 64 bits make a column text, because a number would change them.
An empty field is missing; NA, null and the like are missing among numbers and times, and text among text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from fairflows.exceptions import DataError
from fairflows.table.columns import BOOLEANS, MOMENTS, NUMBERS, TEXT, TIMES, WHOLE

MISSING_WORDS = pa.array(["NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None"])
_TRUTHS = pa.array(["True", "TRUE", "true", "False", "FALSE", "false"])
_NOT_A_NUMBER = r"^[+-]?0[0-9xX]"  # leading zeros, which a number would lose, and 0x10, which Arrow would take for 16
_LONG = r"^[+-]?[0-9]{19,}$"  # whole numbers that floats would round

_TIME = re.compile(r"[0-9-]{10}(?P<mark>[T ])\d\d:\d\d(?P<seconds>:\d\d)?(?P<zone>Z|\+00:00)?")

_NUMBERS = (pa.int64(), pa.uint64(), pa.float64())
DAYS = (pa.date32(), pa.timestamp("us"))
ZONED = (pa.timestamp("us", "UTC"),)
_ANY = (*_NUMBERS, pa.bool_(), *DAYS, *ZONED, pa.string())
_OF_KIND = {
    TEXT: (pa.string(),),
    BOOLEANS: (pa.bool_(),),
    WHOLE: _NUMBERS,  # the codec rounds or refuses a number in between
    NUMBERS: (pa.float64(),),
    TIMES: DAYS,
    MOMENTS: ZONED,
}


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
            fields, candidates = known_texts(batch[name]), _OF_KIND.get(kinds.get(name, ""), _ANY)
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


def time_format(column: pa.ChunkedArray) -> str:
    """Return how a column of times is written, in the words of `strftime`; empty if in several ways."""
    fields = known_texts(column).drop_null()
    found = _TIME.fullmatch(fields[0].as_py()) if len(fields) else None
    if found is None:
        return ""
    mark, seconds, zone = found["mark"], found["seconds"], found["zone"] or ""
    alike = rf"^[0-9-]{{10}}{mark}\d\d:\d\d{':[0-9]{2}' if seconds else ''}{re.escape(zone)}$"
    is_alike = pc.all(pc.match_substring_regex(fields, alike)).as_py()
    return f"%Y-%m-%d{mark}%H:%M{':%S' if seconds else ''}{zone}" if is_alike else ""


def known_texts(text: pa.Array) -> pa.Array:
    """Return the fields without blanks around them; words for a missing value are missing."""
    trimmed = pc.ascii_trim_whitespace(text)
    return pc.if_else(pc.is_in(trimmed, value_set=MISSING_WORDS), pa.scalar(None, pa.string()), trimmed)


def _narrowest(known: pa.Array, candidates: tuple[pa.DataType, ...], decimal: str) -> pa.DataType | None:
    """Return the first of the types that holds all fields."""
    if candidates == _OF_KIND[TEXT]:
        return pa.string()
    known = known.drop_null()
    if not len(known):
        return pa.null()
    found = next((kind for kind in candidates if _can_be(known, kind, decimal)), None)
    return pa.string() if found == pa.float64() and candidates == _ANY and any_matches(known, _LONG) else found


def _can_be(known: pa.Array, kind: pa.DataType, decimal: str) -> bool:
    # Arrow goes on to the end after a failure: most are found at once, among the first fields.
    return all(cast_texts(fields, kind, decimal) is not None for fields in (known[:64], known))


def cast_texts(known: pa.Array, kind: pa.DataType, decimal: str) -> pa.Array | None:
    """Return fields in a type; None if the type does not hold all of them as they are written."""
    if kind == pa.bool_() and not pc.all(pc.is_in(known.drop_null(), value_set=_TRUTHS), min_count=0).as_py():
        return None
    if kind in _NUMBERS:
        if any_matches(known, _NOT_A_NUMBER) or (decimal == "," and any_matches(known, r"\.")):
            return None
        known = pc.replace_substring(known, ",", ".") if decimal == "," else known
    try:
        return pc.cast(known, kind)
    except pa.ArrowInvalid:
        return None


def any_matches(fields: pa.Array, pattern: str) -> bool:
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
    if {one, two} == set(DAYS):
        return pa.timestamp("us")
    return pa.string()

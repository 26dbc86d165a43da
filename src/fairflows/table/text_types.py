"""The types of texts: what the columns of a CSV file hold, which the file does not say.

A column holds whole numbers, numbers, true and false, dates or times if every field can be read so without loss, else
text. Dates and times are YYYY-MM-DD, or in another form (`fairflows.table.date_forms`) that is stated, or that alone of
the common ones fits all fields. Leading zeros ("00123") and whole numbers beyond 64 bits make a column text, because a
number would change them.
An empty field is missing; NA, null and the like are missing among numbers and times, and text among text.
"""

from __future__ import annotations

import copy
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from fairflows.exceptions import DataError
from fairflows.table.columns import BOOLEANS, MOMENTS, NUMBERS, TEXT, TIMES, WHOLE
from fairflows.table.date_forms import COMMON, distinct, fitting, has_time, times_of, variants

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


@dataclass(frozen=True)
class ColumnTypes:
    """The type of each column of text, and the form of its dates, where they are not YYYY-MM-DD."""

    types: dict[str, pa.DataType]
    forms: dict[str, str]

    def typed(self, name: str, fields: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray:
        """Return the fields of a column in its type."""
        kind = self.types[name]
        if kind == pa.string():
            return fields
        known = known_texts(fields)
        return times_of(known, self.forms[name]) if name in self.forms else cast_texts(known, kind, decimal)


def column_types(
    batches: Iterable[pa.RecordBatch],
    kinds: Mapping[str, str],
    decimal: str = ".",
    other_decimal: str | None = None,
    dates: Mapping[str, str] | None = None,
) -> ColumnTypes:
    """Return the type of each column of text over all batches; a column without a value counts as numbers.

    A field that does not fit `kinds`, what a column must hold, is a `DataError`. So is text that would be numbers with
    the other decimal mark, if one is given. The columns of `dates` must hold dates or times: YYYY-MM-DD, or in the form
    that is stated there, or for an empty text in the one common form that fits all fields.
    """
    dates, found = dates or {}, dict[str, _Fields]()
    n_rows = 1  # the header
    for batch in batches:
        for name in batch.schema.names:
            column = found.setdefault(name, _Fields(kinds.get(name), dates.get(name), decimal))
            fields, before = known_texts(batch[name]), copy.copy(column)
            if not column.take(fields):
                place = bisect_left(range(len(fields)), 1, key=lambda j: not copy.copy(before).take(fields[: j + 1]))
                held = f"dates in one form, as stated (dates={ {name: dates.get(name)}!r})"
                if name in kinds:
                    held = f"{kinds[name]}, as in the rows that the model was fitted on"
                raise DataError(
                    f"column {name!r} must hold {held}; row {n_rows + place + 1} (the header is row 1) holds "
                    f"{batch[name][place].as_py()!r}."
                )
            if other_decimal and column.is_text and not column.forms and column.candidates == _ANY:
                _refuse_other_decimal(name, fields, decimal, other_decimal)
        n_rows += batch.num_rows
    forms = {name: form for name, column in found.items() if (form := column.form(name))}
    types = {name: column.type for name, column in found.items()}
    types |= {name: pa.timestamp("us") if has_time(form) else pa.date32() for name, form in forms.items()}
    return ColumnTypes({name: pa.float64() if pa.types.is_null(kind) else kind for name, kind in types.items()}, forms)


class _Fields:
    """The type that holds all fields of a column so far, and of text the forms of dates that fit all of them."""

    def __init__(self, kind: str | None, stated: str | None, decimal: str) -> None:
        self.type, self._decimal = pa.null(), decimal
        self.candidates = _OF_KIND.get(kind or "", _ANY)
        if stated is not None and self.candidates == _ANY:
            self.candidates = (*DAYS, *ZONED)
        has_dates = set(DAYS) <= set(self.candidates)
        self.forms = [] if not has_dates else variants(stated) if stated else list(COMMON)

    @property
    def is_text(self) -> bool:
        """Whether some field is no number, truth value or time, as it is written."""
        return bool(self.type == pa.string())

    def take(self, fields: pa.Array) -> bool:
        """Take some more fields; return whether the column can hold them."""
        known = fields.drop_null()
        if not len(known):
            return True
        found = _narrowest(known, self.candidates, self._decimal)
        is_text = found is None or found == pa.string()
        if not pa.types.is_null(self.type) and is_text != self.is_text:
            self.forms = []  # some fields are in such a form, and others are not
        elif is_text:
            self.forms = fitting(known, self.forms)
        self.type = _join(self.type, pa.string() if found is None else found)
        return bool(found is not None or self.forms)

    def form(self, name: str) -> str | None:
        """Return the one form of dates that fits all fields; None if the column is no text, or stays one."""
        left = distinct(self.forms) if self.is_text else []
        if len(left) > 1 and self.candidates != _ANY:
            raise DataError(
                f"column {name!r} holds dates that can be read in several ways: state which "
                f"({' or '.join(f'dates={ {name: form}!r}' for form in left)})."
            )
        return left[0] if len(left) == 1 else None


def _refuse_other_decimal(name: str, fields: pa.Array, decimal: str, other: str) -> None:
    if _narrowest(fields.drop_null(), _ANY, other) == pa.float64():
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
    """Return the first of the types that holds all fields, none of them missing."""
    if candidates == _OF_KIND[TEXT]:
        return pa.string()
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

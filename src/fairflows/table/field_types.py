"""What the fields of a text file hold: how its numbers are written, and the type of each column.

Marks of numbers are recognised only where the file leaves no other reading. A column then is whole numbers, numbers,
true and false, dates or times where every field can be read so without loss; else it is text, as it stands. So "00123"
stays text (a number would drop the zeros), as do whole numbers of more digits than 64 bits hold, and one word makes a
column of digits text. An empty field is missing in every column; words such as NA are missing among numbers and times,
and text among text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from fairflows.exceptions import DataError
from fairflows.table.dialect import Dialect
from fairflows.table.schema import BOOLEANS, DATES, MOMENTS, NUMBERS, TEXT, TIMES, WHOLE, Schema

PLAIN = Dialect(decimal=".", thousands="")
"""Numbers as Python writes them."""

_MARKERS = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None")
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
_LEADING_ZEROS = r"^[+-]?0[0-9xX]"
"""Of what is no number: leading zeros, which a number would lose; and 0x10, which is no decimal number."""

_LONG_CODES = r"^[+-]?[0-9]{21,}$"
"""Whole numbers of more digits than 64 bits hold: a float would make one of several."""

_MARKS = {",": ",", ".": r"\.", " ": " \u00a0\u202f", "'": "'’"}
"""What stands for a mark of numbers, in a set of a regular expression."""

_SIGN, _EXPONENT = "[+-]?", "(?:[eE][+-]?[0-9]+)?"
_GAPS = _MARKS[" "] + _MARKS["'"]
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
    "grouped .": rf"^{_SIGN}[0-9]+(?:[{_GAPS}][0-9]{{3}})+\.[0-9]+$",
    "grouped ,": rf"^{_SIGN}[0-9]+(?:[{_GAPS}][0-9]{{3}})+,[0-9]+$",
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


Evidence = dict[str, Found]
"""The first field of each look."""


def number_marks(
    batches: Iterable[pa.RecordBatch],
    dialect: Dialect,
    kinds: Mapping[str, str],
    usual: Dialect | None = None,
) -> Dialect:
    """The dialect with the marks of numbers that the columns show, all of whose fields look like numbers.

    A mark that the dialect states stays. Columns that must hold no numbers, by their `kinds`, are not looked at.
    `usual`, how the file was written that a model was fitted on, decides where this one, with the same separator, shows
    nothing; where two readings are possible, a DataError names both.
    """
    if dialect.decimal is not None and dialect.thousands is not None:
        return dialect
    shown = _evidence(batches, kinds)
    same = usual if usual is not None and usual.separator == dialect.separator else Dialect()
    decimal = dialect.decimal or _decimal(shown, dialect, same)
    if dialect.thousands is not None:
        return replace(dialect, decimal=decimal)
    return replace(dialect, decimal=decimal, thousands=_thousands(shown, decimal, same))


def _decimal(shown: Evidence, dialect: Dialect, usual: Dialect) -> str:
    if dialect.thousands in (".", ","):
        return "," if dialect.thousands == "." else "."
    point = shown.get("decimal .") or shown.get("thousands ,") or shown.get("grouped .")
    comma = shown.get("decimal ,") or shown.get("thousands .") or shown.get("grouped ,")
    either = "decimal='.'", "decimal=','"
    if point and comma:
        raise _ambiguous(f"{point}, and {comma}: say which is the decimal mark", *either)
    if comma and dialect.separator == "," and usual.decimal != ",":
        raise _ambiguous(f"{comma}, and commas separate the fields: say which is the decimal mark", *either)
    if point or comma:
        return "." if point else ","
    if usual.decimal is not None:
        return usual.decimal
    for mark in (",",) if dialect.separator == "," else (",", "."):
        if perhaps := shown.get(f"perhaps {mark}"):
            reason = f"{perhaps}, which may have thousands or decimals: say what the mark is"
            raise _ambiguous(reason, f"thousands={mark!r}", f"decimal={mark!r}")
    return "."


def _thousands(shown: Evidence, decimal: str, usual: Dialect) -> str:
    proven = [mark for mark in _MARKS if mark != decimal and f"thousands {mark}" in shown]
    if len(proven) > 1:
        one, other = (shown[f"thousands {mark}"] for mark in proven[:2])
        either = (f"thousands={mark!r}" for mark in proven[:2])
        raise _ambiguous(f"{one}, and {other}: say what groups thousands", *either)
    if proven:
        return proven[0]
    if usual.decimal == decimal and usual.thousands is not None:
        return usual.thousands
    other_mark = "," if decimal == "." else "."
    if perhaps := shown.get(f"perhaps {other_mark}"):
        reason = f"{perhaps}: say whether that groups thousands, or is text"
        raise _ambiguous(reason, f"thousands={other_mark!r}", "thousands=''")
    return ""


def _ambiguous(reason: str, one: str, other: str) -> DataError:
    return DataError(f"{reason} ({one} or {other}).")


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
        if not (_all_match(values[:64], _ANY_NUMBER) and _all_match(values, _ANY_NUMBER)):
            return False
        if _one_matches(values, _LEADING_ZEROS):
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
    return _can_cast(values[:64], kind) and _can_cast(values, kind)


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


def as_types(table: pa.Table, types: dict[str, pa.DataType], dialect: Dialect) -> pa.Table:
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
    return _all_match(fields, number)


def _with_points(fields: pa.Array, dialect: Dialect) -> pa.Array:
    """Numbers of the dialect as Arrow reads them: with a decimal point, and nothing between thousands."""
    if dialect.thousands:
        fields = pc.replace_substring_regex(fields, f"[{_MARKS[dialect.thousands]}]", "")
    return pc.replace_substring(fields, ",", ".") if dialect.decimal == "," else fields


def known_fields(text: pa.Array) -> pa.Array:
    """The fields without blanks around them, those that mark a missing value set to missing."""
    trimmed = pc.ascii_trim_whitespace(text)
    return pc.if_else(pc.is_in(trimmed, value_set=pa.array(_MARKERS)), pa.scalar(None, pa.string()), trimmed)


def _narrowest(known: pa.Array, candidates: tuple[pa.DataType, ...], dialect: Dialect) -> pa.DataType | None:
    """The first of the types that holds all fields."""
    if candidates == _OF_KIND[TEXT]:
        return pa.string()
    known = known.drop_null()
    if not len(known):
        return pa.null()
    found = next((kind for kind in candidates if _can_be(known, kind, dialect)), None)
    is_free = found == pa.float64() and candidates == _ANY
    return pa.string() if is_free and _one_matches(_with_points(known, dialect), _LONG_CODES) else found


def _can_be(known: pa.Array, kind: pa.DataType, dialect: Dialect) -> bool:
    if kind == pa.string():
        return True
    if kind == pa.bool_():
        return pc.all(pc.is_in(known, value_set=_TRUTHS)).as_py()
    # Arrow goes on to the end after a failure: most are found among the first fields, at once.
    return _can_be_cast(known[:64], kind, dialect) and _can_be_cast(known, kind, dialect)


def _can_be_cast(known: pa.Array, kind: pa.DataType, dialect: Dialect) -> bool:
    if kind in _NUMBERS:
        if not (dialect.reads_plain_numbers or _is_written(known, dialect)) or _one_matches(known, _LEADING_ZEROS):
            return False
        known = _with_points(known, dialect)
    return _can_cast(known, kind)


def _can_cast(fields: pa.Array, kind: pa.DataType) -> bool:
    try:
        pc.cast(fields, kind)
    except pa.ArrowInvalid:
        return False
    return True


def _all_match(fields: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(fields, pattern)).as_py())


def _one_matches(fields: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(fields, pattern)).as_py())


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


def check_texts(parts: Sequence[pd.DataFrame], stated: Collection[Hashable]) -> None:
    """Refuse a column that is text only because of some parts of a table: in the others it reads as something else.

    Columns that somebody stated to be text are accepted.
    """
    schemas = [Schema.of(part) for part in parts]
    for name in parts[0]:
        if name in stated or any(schema.kinds[name] != TEXT for schema in schemas):
            continue
        reads = [_read_type(part[name]) for part in parts]
        others = [read for read in reads if read != pa.string()]
        if others and len(others) < len(reads):
            raise DataError(
                f"Column {name!r} is text in the persons of one fold, and in those of another all its values read as "
                f"{others[0]}: the type of a column must not depend on the persons that a model encodes. Say that it "
                f"is text (text_columns={[name]!r}), or replace the values that are none."
            )


def _read_type(column: pd.Series) -> pa.DataType:
    """The type that a file with these texts would be read as."""
    texts = pd.Series(column.dropna().unique()).astype(str)
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["column"])
    return column_types([batch])["column"]

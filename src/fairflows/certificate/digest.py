"""A digest of what a table holds, whatever the form of its file and the order of its rows and columns.

The SHA-256 of a file tells that not a byte was changed. It is another one as soon as a receiver has saved the file in a
spreadsheet. So a certificate states a digest of the contents, too. Each value becomes text by the kind of its column
(`canonical_text`); the values of a row, in the order of the columns' names, each after its length in bytes and a colon,
have a SHA-256; those of all rows, sorted, after the names and kinds of the columns, have the one that is stated:

    SHA-256( "fairflows contents 1" LF  { length ":" name length ":" kind } LF  { SHA-256( { length ":" value } ) } )

So a file of one row more, or of one value that was changed, has another digest, and a second table cannot be found with
the same one. A browser computes it from a CSV file by `fairflows/report/check.js`.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from fairflows.exceptions import DataError
from fairflows.table.columns import BOOLEANS, DURATIONS, MOMENTS, NUMBERS, TEXT, TIMES, WHOLE
from fairflows.table.reading import SEPARATORS, ParquetRows, TextFormat, TextRows, kind_of, open_table, reading
from fairflows.table.text_types import MISSING_WORDS

SINGLE = "numbers in single precision"
"""A column of floats of 32 bits, whose decimal digits would be those of another float of 64 bits."""

_ROWS_READ = 2**16  # at a time
_HEADING = "fairflows contents 1\n"
_WHOLE = r"^[+]?(-?)0*([0-9]+)(\.0*)?$"
_TIME = (
    r"^(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ](?P<minute>[0-9]{2}:[0-9]{2})(?P<second>:[0-9]{2})?"
    r"(?P<below>\.[0-9]+)?)? ?(?P<zone>Z|[+-][0-9:]{2,6})?$"
)
_PARTS = ("day", "minute", "second", "below", "zone")
_WITH_ZONE, _UTC = r"^(.{10}[T ].*?) ?(Z|[+-][0-9:]+)$", r"^(Z|[+-]00(:?00)?)$"
_FIFTEEN_DIGITS = Context(prec=15, rounding=ROUND_HALF_UP)
_BLOCK = 2**22  # bytes decoded at once


Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class Contents:
    """Contents of a released table, as a certificate states them.

    Attributes
    ----------
    rows : int
        Number of rows.
    kinds : dict
        Kind of the values of each column, by its name: text, booleans, whole numbers, numbers, numbers in single
        precision, times with or without a time zone, durations.
    sha256 : str
        Digest of the values, which the order of rows and columns and the form of the file do not change.
    """

    rows: int
    kinds: dict[str, str]
    sha256: Sha256


def kinds_of(schema: pa.Schema) -> dict[str, str]:
    """Return the kind of each column of an Arrow table."""
    return {field.name: _kind_of(field.type) for field in schema}


def contents_of(path: Path, kinds: Mapping[str, str]) -> Contents:
    """Read the contents of a file whose columns are of these kinds.

    Raise a DataError with the first difference where the file has other columns, or values of another kind.
    """
    names, digests, n_rows = sorted(kinds), [], 0
    for columns in released_columns(path, kinds):
        rows = _joined(columns[name] for name in names)
        digests.append(b"".join([sha256(row).digest() for row in rows.cast(pa.binary()).to_pylist()]))
        n_rows += len(rows)
    of_columns = "".join(_with_length(text) for name in names for text in (name, kinds[name]))
    of_rows = np.sort(np.frombuffer(b"".join(digests), dtype="S32")).tobytes()
    return Contents(n_rows, dict(kinds), sha256(f"{_HEADING}{of_columns}\n".encode() + of_rows).hexdigest())


def released_columns(path: Path, kinds: Mapping[str, str]) -> Iterator[dict[str, pa.Array]]:
    """Yield the canonical text of each column of a file, some thousand rows at a time."""
    file = open_released(path, kinds)
    with reading(path):
        others = [name for name in file.columns if name not in kinds]
        lacking = [name for name in kinds if name not in file.columns]
        if lacking:
            raise DataError(f"it lacks the column {lacking[0]!r}.")
        if others:
            raise DataError(f"it holds the column {others[0]!r}, which was not released.")
        n_before = 0
        for table in _tables(file, list(kinds)):
            columns = {name: table[name].combine_chunks() for name in kinds}
            yield {name: _checked_text(name, columns[name], kind, n_before) for name, kind in kinds.items()}
            n_before += table.num_rows


def canonical_text(values: pa.Array, kind: str) -> pa.Array:
    """Return values as text, one for each value, in whatever form they come; missing for a value of another kind.

    A missing value and an empty text are empty. Text stays as it is, but for its ends of lines, which become line
    feeds. A boolean is true or false, a whole number its digits, and a number the 16 hexadecimal digits of a float of
    64 bits, after rounding to 15 significant digits (8 digits for 32 bits). A time is written as 2024-02-29T13:30:00,
    in UTC where it has a time zone, and with decimals of the second where there are any; a duration in microseconds.

    Examples
    --------
    >>> canonical_text(pa.array(["1", "1.0", "1e0", None]), "whole numbers").to_pylist()
    ['1', '1', '1', '']
    >>> canonical_text(pa.array([0.1, -0.0]), "numbers").to_pylist()
    ['3fb999999999999a', '0000000000000000']
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    if pa.types.is_null(values.type):
        values = values.cast(pa.string())
    if pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type):
        values = values.cast(pa.string())
    is_text = pa.types.is_string(values.type)
    if kind == TEXT:
        return pc.fill_null(pc.replace_substring_regex(values.cast(pa.string()), r"\r\n?", "\n"), "")
    if is_text:
        values = pc.utf8_trim_whitespace(values)
        words = pc.is_in(values, value_set=MISSING_WORDS)
        values = pc.if_else(pc.or_(words, pc.equal(values, "")), pa.scalar(None, pa.string()), values)
    found = _TEXTS_OF[kind](values) if is_text else _TYPED_TEXTS_OF[kind](values)
    return pc.if_else(values.is_null(), "", found)


def difference(stated: Contents, found: Contents) -> str:
    """Say how contents differ from those that a certificate states."""
    if found.rows != stated.rows:
        return f"it has {found.rows:,} rows; {stated.rows:,} were released."
    return "as many rows and the same columns, but a value in them is another one."


def _tables(file: TextRows | ParquetRows, columns: list[str]) -> Iterator[pa.Table]:
    if isinstance(file, TextRows):
        yield from (pa.Table.from_batches([batch]) for batch in file.texts(columns))
    else:
        yield from file.batches(columns, _ROWS_READ, {})


def open_released(path: Path, columns: Collection[str]) -> TextRows | ParquetRows:
    """Open a file; a CSV file with the separator by which its header has the columns, if there is one."""
    if not path.is_file() or kind_of(path) != "csv":
        return open_table(path)
    with reading(path):
        encoding = _encoding_of(path)
        for separator in SEPARATORS:
            file = TextRows(path, TextFormat(separator, encoding))
            if set(file.columns) == set(columns):
                return file
        return TextRows(path, TextFormat(",", encoding))


def _encoding_of(path: Path) -> str:
    """Return the encoding of a CSV file: UTF-8, or one that spreadsheets write."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with pa.input_stream(str(path)) as stream:
        start = block = stream.read(_BLOCK)
        try:
            while block:
                decoder.decode(block)
                block = stream.read(_BLOCK)
        except UnicodeDecodeError:
            return "utf-16" if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "cp1252"
    return "utf-8"


def _kind_of(of: pa.DataType) -> str:
    """Return the kind of the values of an Arrow type."""
    if pa.types.is_dictionary(of):
        return _kind_of(of.value_type)
    if pa.types.is_timestamp(of):
        return TIMES if of.tz is None else MOMENTS
    is_of = {
        BOOLEANS: pa.types.is_boolean,
        WHOLE: pa.types.is_integer,
        SINGLE: pa.types.is_float32,
        NUMBERS: lambda of: pa.types.is_floating(of) or pa.types.is_decimal(of),
        TIMES: pa.types.is_date,
        DURATIONS: pa.types.is_duration,
    }
    return next((kind for kind, is_one in is_of.items() if is_one(of)), TEXT)


def _checked_text(name: str, values: pa.Array, kind: str, n_before: int) -> pa.Array:
    """Return the canonical text of some values of a column. Raise if one is of another kind."""
    try:
        texts = canonical_text(values, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError, ValueError):
        texts = None  # values of a type that cannot be converted at all
    if texts is None or texts.null_count:
        place = 0 if texts is None else texts.is_null().to_numpy(zero_copy_only=False).argmax()
        raise DataError(
            f"its column {name!r} holds {values[place].as_py()!r} in row {n_before + place + 1:,}, and {kind} were "
            "released."
        )
    return texts


def _with_length(text: str) -> str:
    return f"{len(text.encode())}:{text}"


def _joined(columns: Iterable[pa.Array]) -> pa.Array:
    """Return one text for each row: its values, each after its length in bytes and a colon."""
    parts: list[pa.Array | str] = []
    for column in columns:
        parts += [pc.binary_length(column).cast(pa.string()), ":", column]
    return pc.binary_join_element_wise(*parts, "")


def _hexadecimal(values: pa.Array, bits: int) -> pa.Array:
    """Return the hexadecimal digits of each number as a float, big-endian; a missing one has those of 0."""
    numbers = (_with_15_digits(values) if bits == 64 else values).fill_null(0).to_numpy(zero_copy_only=False)
    held = (numbers + 0.0).astype(f">f{bits // 8}")  # -0.0 becomes 0.0
    digits = held.tobytes().hex().encode()
    offsets = np.arange(0, len(digits) + 1, bits // 4, dtype=np.int32)
    return pa.StringArray.from_buffers(len(held), pa.py_buffer(offsets), pa.py_buffer(digits))


def _with_15_digits(numbers: pa.Array) -> pa.Array:
    """Round floats to 15 significant digits, halves away from zero: spreadsheets keep no more."""
    digits = pc.replace_substring_regex(numbers.cast(pa.string()), r"e.*|\.|-", "")
    is_long = pc.fill_null(pc.greater(pc.binary_length(pc.utf8_ltrim(digits, "0")), 15), False)
    rounded = [float(_FIFTEEN_DIGITS.create_decimal_from_float(x)) for x in numbers.filter(is_long).to_pylist()]
    return pc.replace_with_mask(numbers, is_long, pa.array(rounded, pa.float64())) if rounded else numbers


def _number_of(texts: pa.Array) -> pa.Array:
    """Return texts as numbers, with a decimal point or a decimal comma; missing where a text is not a number."""
    plain = pc.replace_substring_regex(pc.replace_substring(texts, ",", "."), r"^\+", "")
    is_number = pc.match_substring_regex(plain, r"^-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$")
    return pc.if_else(is_number, plain, pa.scalar(None, pa.string())).cast(pa.float64())


def _texts_of_numbers(bits: int) -> Callable[[pa.Array], pa.Array]:
    def of(texts: pa.Array) -> pa.Array:
        numbers = _number_of(texts)
        return pc.if_else(numbers.is_null(), pa.scalar(None, pa.string()), _hexadecimal(numbers, bits))

    return of


def _whole_numbers(texts: pa.Array) -> pa.Array:
    is_plain = pc.match_substring_regex(texts, _WHOLE)
    digits = pc.replace_substring_regex(pc.replace_substring_regex(texts, _WHOLE, r"\1\2"), "^-0$", "0")
    others = pc.if_else(is_plain, pa.scalar(None, pa.string()), texts)
    return digits if pc.all(is_plain, min_count=0).as_py() else pc.if_else(is_plain, digits, _whole(_number_of(others)))


def _whole(numbers: pa.Array) -> pa.Array:
    """Return the digits of floats that are whole numbers; missing for others."""
    is_whole = pc.and_(pc.equal(pc.round(numbers), numbers), pc.less(pc.abs(numbers), 2.0**63))
    return pc.if_else(is_whole, numbers, pa.scalar(None, pa.float64())).cast(pa.int64()).cast(pa.string())


def _booleans(texts: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(texts)
    return pc.if_else(pc.is_in(lower, pa.array(["true", "false"])), lower, pa.scalar(None, pa.string()))


def _times(texts: pa.Array) -> pa.Array:
    """Return times without a time zone as text."""
    parts = pc.extract_regex(texts, _TIME)
    day, minute, second, below, zone = (pc.struct_field(parts, name) for name in _PARTS)
    minute, second = (pc.if_else(pc.equal(part, ""), zero, part) for part, zero in ((minute, "00:00"), (second, ":00")))
    below = pc.replace_substring_regex(below, r"\.?0*$", "")
    found = pc.binary_join_element_wise(day, "T", minute, second, below, "")
    return pc.if_else(pc.equal(zone, ""), found, pa.scalar(None, pa.string()))


def _moments(texts: pa.Array) -> pa.Array:
    """Return times with a time zone as text, in UTC."""
    has_zone = pc.match_substring_regex(texts, _WITH_ZONE)
    known = pc.if_else(has_zone, texts, pa.scalar(None, pa.string()))
    zone = pc.struct_field(pc.extract_regex(known, _TIME), "zone")
    is_utc = pc.fill_null(pc.match_substring_regex(zone, _UTC), True)
    if pc.all(is_utc, min_count=0).as_py():
        return _times(pc.replace_substring_regex(known, _WITH_ZONE, r"\1"))
    return _typed_times(pa.array(pd.to_datetime(known.to_pandas(), utc=True, format="ISO8601")))


def _typed_times(times: pa.Array) -> pa.Array:
    kind = times.type
    if pa.types.is_timestamp(kind):
        times = times.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.timestamp(kind.unit)) if kind.tz else times
    return _times(times.cast(pa.string()))


def _durations(texts: pa.Array) -> pa.Array:
    return _typed_durations(pa.array(pd.to_timedelta(texts.to_pandas(), errors="coerce")))


def _typed_durations(durations: pa.Array) -> pa.Array:
    return durations.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.string())


def _typed_numbers(bits: int) -> Callable[[pa.Array], pa.Array]:
    return lambda values: _hexadecimal(_floats(values), bits)


def _floats(values: pa.Array) -> pa.Array:
    """Return numbers of any type as the nearest floats."""
    return (values.cast(pa.string()) if pa.types.is_decimal(values.type) else values).cast(pa.float64(), safe=False)


def _typed_whole(values: pa.Array) -> pa.Array:
    return values.cast(pa.string()) if pa.types.is_integer(values.type) else _whole(_floats(values))


_TEXTS_OF: dict[str, Callable[[pa.Array], pa.Array]] = {
    BOOLEANS: _booleans,
    WHOLE: _whole_numbers,
    NUMBERS: _texts_of_numbers(64),
    SINGLE: _texts_of_numbers(32),
    TIMES: _times,
    MOMENTS: _moments,
    DURATIONS: _durations,
}
"""How texts of each kind become canonical."""

_TYPED_TEXTS_OF: dict[str, Callable[[pa.Array], pa.Array]] = {
    BOOLEANS: lambda values: values.cast(pa.string()),
    WHOLE: _typed_whole,
    NUMBERS: _typed_numbers(64),
    SINGLE: _typed_numbers(32),
    TIMES: _typed_times,
    MOMENTS: _typed_times,
    DURATIONS: _typed_durations,
}
"""How values of Arrow's types become canonical, by their kind."""

"""Forms in which texts write dates and times, in the words of `strftime`: 08.07.1993, 7/8/2016 12:47 AM.

A form fits a text if the text is what the form writes of a day of the calendar. So a column that is read by its form
is written as it was. ``%-d`` is a day without a leading zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

from fairflows.exceptions import DataError

_MONTH, _DAY, _HOUR, _HALF = "0[1-9]|1[0-2]", "0[1-9]|[12][0-9]|3[01]", "[01][0-9]|2[0-3]", "0[1-9]|1[0-2]"
_PARTS = {
    "%Y": "1[0-9]{3}|2[01][0-9]{2}",
    "%y": "[0-9]{2}",
    "%m": _MONTH,
    "%-m": _MONTH.replace("0", "", 1),
    "%b": "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec",
    "%d": _DAY,
    "%-d": _DAY.replace("0", "", 1),
    "%H": _HOUR,
    "%-H": "[0-9]|1[0-9]|2[0-3]",
    "%I": _HALF,
    "%-I": _HALF.replace("0", "", 1),
    "%M": "[0-5][0-9]",
    "%S": "[0-5][0-9]",
    "%p": "AM|PM",
}
_PART = re.compile("%-?[A-Za-z%]?")
_FEWEST_DIGITS = 3  # of a year and a day

_DAYS = (
    "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y.%m.%d", "%d-%b-%Y", "%d %b %Y",
    "%-d.%-m.%Y", "%-d/%-m/%Y", "%-m/%-d/%Y", "%-d-%-m-%Y", "%-m-%-d-%Y", "%Y-%-m-%-d", "%Y/%-m/%-d", "%-d-%b-%Y",
    "%-d %b %Y",
)  # fmt: skip
_TIMES = (
    "", " %H:%M", " %H:%M:%S", "T%H:%M:%S", " %-H:%M", " %-H:%M:%S", " %I:%M %p", " %I:%M:%S %p", " %-I:%M %p",
    " %-I:%M:%S %p",
)  # fmt: skip
COMMON = tuple(day + time for day, time in product(_DAYS, _TIMES))
"""The forms that are looked for; YYYY-MM-DD is read without one."""


def check_form(column: str, form: str) -> None:
    """Raise if a stated form has parts that are not known, or no year, month and day."""
    parts = _PART.findall(form)
    names = {{"%y": "%Y", "%b": "%m", "%I": "%H"}.get(_padded(part), _padded(part)) for part in parts}
    if set(parts) - set(_PARTS) or not {"%Y", "%m", "%d"} <= names or len(parts) > len(names):
        raise DataError(
            f"The form of dates in column {column!r} must have a year, a month and a day, of {' '.join(_PARTS)}, such "
            f"as %d.%m.%Y or %m/%d/%Y %H:%M; got {form!r}."
        )


def fitting(texts: pa.Array, forms: Iterable[str] = COMMON) -> list[str]:
    """Return the forms that fit all texts, none of them missing."""
    if not len(texts):
        return list(forms)
    first = texts[0].as_py()
    if sum(map(str.isdigit, first)) < _FEWEST_DIGITS:
        return []
    likely = [form for form in forms if re.fullmatch(_pattern(form), first)]
    return [form for form in likely if all(times_of(part, form) is not None for part in (texts[:64], texts))]


def proposed_forms(texts: pa.Array) -> list[str]:
    """Return the common forms that fit all texts, or where there is none those with a year of two digits."""
    return distinct(fitting(texts)) or distinct(fitting(texts, [form.replace("%Y", "%y") for form in COMMON]))


def distinct(forms: Sequence[str]) -> list[str]:
    """Return forms without those that only leave out zeros that another form of them writes."""
    with_most_zeros: dict[str, str] = {}
    for form in sorted(forms, key=lambda form: form.count("%-")):
        with_most_zeros.setdefault(_padded(form), form)
    return [form for form in forms if with_most_zeros[_padded(form)] == form]


def variants(form: str) -> list[str]:
    """Return a stated form, and the same without leading zeros."""
    return list(dict.fromkeys([form, re.sub("%([mdHI])", r"%-\1", form)]))


def times_of(texts: pa.Array, form: str) -> pa.Array | None:
    """Return the times that texts write in a form, days without a time of day; None if one of them does not."""
    known = texts.drop_null()
    if not pc.all(pc.match_substring_regex(known, f"^{_pattern(form)}$"), min_count=0).as_py():
        return None
    padded = pc.replace_substring_regex(texts, r"\b([0-9])\b", r"0\1") if _padded(form) != form else texts
    times = pc.strptime(padded, _padded(form), "s", error_is_null=True)
    again = pc.strftime(times, _padded(form))  # of 31.02.2016 another day
    if not pc.all(pc.equal(again, padded), min_count=0).as_py() or times.null_count > texts.null_count:
        return None
    return times.cast(pa.timestamp("us") if has_time(form) else pa.date32())


def has_time(form: str) -> bool:
    """Return whether a form writes a time of day."""
    return "%H" in _padded(form) or "%I" in _padded(form)


def _padded(form: str) -> str:
    return form.replace("%-", "%")


@cache
def _pattern(form: str) -> str:
    """Return the regular expression of texts in a form."""
    between = [re.escape(text) for text in _PART.split(form)]
    parts = [f"(?:{_PARTS[part]})" for part in _PART.findall(form)]
    return "".join(text + part for text, part in zip(between, [*parts, ""], strict=True))

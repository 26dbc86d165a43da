"""The Columns screen: the contents of each column, and all findings at once, each with its remedies."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
import pandas as pd

from fairflows.app.outlook import default_target
from fairflows.app.work import Work
from fairflows.exceptions import DataError
from fairflows.release.derived_columns import find_derived, relations
from fairflows.release.drawn_columns import declared_columns
from fairflows.release.rules import proposed_rules
from fairflows.report.numbers import percent
from fairflows.table.columns import floats, has_order, infer_kind, is_number, shown
from fairflows.table.gaps import unlike
from fairflows.table.names import columns_of_own_values, numbers_like_names
from fairflows.table.prospects import check_groups, find_names, find_problems
from fairflows.table.table import Table

T = TypeVar("T")
_BARS = 12
_FREQUENT = 5
_REMEDY = re.compile(
    r"\b(drop|identifier|keep_numbers|merge_small|cuts|dates)="
    r"(\[.*?\]|\{.*?\}|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d+)"
)
_IN_BRACKETS = re.compile(
    r"\s*\((?:drop|identifier|household|keep_numbers|merge_small|cuts|dates|missing_\w+|unit)=[^()]*\)"
    r"|: cuts=.*?--groups \S+(?=\.)"
)


@dataclass(frozen=True)
class Finding:
    """A finding about the table, and what a click can do about it."""

    text: str
    remedies: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # the button, and the settings it makes
    stops: bool = False  # whether the table cannot be shared like this


@dataclass(frozen=True)
class Change:
    """The settings that a button of the screen makes, as its form states them."""

    roles: dict[str, str] = field(default_factory=dict)
    cuts: dict[str, list[float]] = field(default_factory=dict)
    dates: dict[str, str] = field(default_factory=dict)
    merge_small: Annotated[int, msgspec.Meta(ge=0, le=10**9)] | None = None
    missing_group: Literal["error", "drop", "group"] | None = None
    missing_label: Literal["error", "drop", "keep"] | None = None


def decoded(text: str, kind: type[T]) -> T:
    """Return what a hidden field of a form states."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:
        raise DataError(f"The form cannot be read: {error}.") from None


def columns_of(work: Work) -> list[dict[str, Any]]:
    """Return each column's role, kind, gaps, frequent values and bars, for the page."""
    found = work.once("columns", lambda: _columns(work))
    return [column | {"role": work.roles.get(column["name"], "feature")} for column in found]


def _columns(work: Work) -> list[dict[str, Any]]:
    found = []
    for name, column in work.frame.items():
        times = column.value_counts()
        found.append(
            {
                "name": str(name),
                "kind": infer_kind(column) if len(times) else "empty",
                "gaps": int(column.isna().sum()),
                "values": len(times),
                "is number": is_number(column.dtype),
                "frequent": [
                    (value if isinstance(value, str) else shown(value), int(n))
                    for value, n in times.head(_FREQUENT).items()
                ],
                "bars": _bars(column, times),
            }
        )
    return found


def _bars(column: pd.Series, times: pd.Series) -> list[float]:
    """Return the heights of a small histogram, of the values' order where they have one."""
    known = column.dropna()
    if has_order(column.dtype) and len(times) > _BARS:
        values = floats(known)
        heights = np.histogram(values[np.isfinite(values)], bins=_BARS)[0]
    else:
        heights = times.head(_BARS).to_numpy()
    top = max([1, *heights])
    return [round(float(height) / top, 3) for height in heights]


def findings_of(work: Work) -> tuple[list[Finding], list[str], Table | None]:
    """Return all findings, the rules that every row keeps, and the table if there can be one."""
    return work.once("findings", lambda: _findings(work))


def _findings(work: Work) -> tuple[list[Finding], list[str], Table | None]:
    found = list(_gaps(work))
    try:
        instead = {
            "missing_group": "drop" if work.missing_group == "error" else work.missing_group,
            "missing_label": "drop" if work.missing_label == "error" else work.missing_label,
        }
        roles = [name for name, role in work.roles.items() if role not in ("time", "number")]
        names = find_names(work.frame, roles)
        found += [Finding(text, [_leave_out([name]), _person(name)], stops=True) for name, text in names.items()]
        table = work.table(**instead, drop=[*work.named("out"), *names])
    except DataError as error:
        return [*found, Finding(str(error), stops=True)], [], None
    found += map(Finding, work.table_notes)
    own = columns_of_own_values(table)
    found += [Finding(_IN_BRACKETS.sub("", text), [_leave_out([name])]) for name, text in own.items()]
    stopping = {text for _, text, stops in numbers_like_names(table) if stops}
    found += [Finding(_IN_BRACKETS.sub("", text), _remedies(text), text in stopping) for text in find_problems(table)]
    try:
        check_groups(table)
    except DataError as error:
        text = _IN_BRACKETS.sub("", str(error))
        found = [other for other in found if not text.startswith(other.text)]
        found.append(Finding(text, _remedies(str(error)), stops=True))
    try:
        if default_target(table) is None:
            found = [replace(each, stops=each.stops or "too few persons for a distance" in each.text) for each in found]
    except DataError as error:  # persons whose rows are of several groups
        found.append(Finding(_IN_BRACKETS.sub("", str(error)), stops=True))
    return found, proposed_rules(_rows(table)), table


def follows(work: Work) -> str:
    """Say which columns follow from others; this takes seconds in a wide table, so the page asks for it apart.

    Return "" if none does, or if the table has changed meanwhile: its page asks again.
    """
    table = findings_of(work)[2]
    with work.one_search:
        if table is None or table is not findings_of(work)[2]:
            return ""
        rows, labels = _rows(table), list(table.label_columns())
        derived = find_derived(rows, declared_columns(rows, labels, table.declared_kinds), table.persons.codes, labels)[
            1
        ]
    text = "; ".join(relations(derived))
    return f"Computed anew in shared rows, because they follow from other columns: {text}." if text else ""


def _rows(table: Table) -> pd.DataFrame:
    return pd.concat([table.X, table.label_columns()], axis=1)


def _gaps(work: Work) -> Iterator[Finding]:
    """Find rows without a group or a label, and say how they differ from the rest."""
    for role, setting, keep in (("sensitive", "missing_group", "group"), ("label", "missing_label", "keep")):
        named = work.named(role)
        is_missing = work.frame[named].isna().any(axis=1).to_numpy() if named else np.zeros(0, dtype=bool)
        if not is_missing.any():
            continue
        n, share = int(is_missing.sum()), percent(is_missing.mean())
        chosen = getattr(work, setting)
        text = f"{' and '.join(named)} is unknown in {n:,} rows ({share})."
        differ = unlike(work.frame.drop(columns=named), is_missing)
        text += f" These rows differ from the others: {'; '.join(differ)}." if differ else ""
        if chosen != "error":
            yield Finding(f"{text} They are {'left out' if chosen == 'drop' else 'kept as a group of their own'}.")
            continue
        kept = "Make them a group" if role == "sensitive" else "Keep them, without a label"
        yield Finding(text, [("Leave these rows out", {setting: "drop"}), (kept, {setting: keep})], stops=True)


def _remedies(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the buttons for the parameters that a sentence proposes."""
    found = []
    for name, value in _REMEDY.findall(text):
        given = ast.literal_eval(value)
        if name == "drop":
            found.append(_leave_out(given))
        elif name == "identifier":
            found.append(_person(given))
        elif name == "cuts":
            found += [(f"Cut {column} at {at[0]:g}", {"cuts": given}) for column, at in given.items()]
        elif name == "dates":
            forms = {column: datetime(2026, 12, 31, 18, 30).strftime(form) for column, form in given.items()}
            found += [(f"{column} holds dates such as {form}", {"dates": given}) for column, form in forms.items()]
        elif name == "keep_numbers":
            found.append((f"{', '.join(given)} is a measurement", {"roles": dict.fromkeys(given, "number")}))
        else:
            found.append((f"Merge groups under {given:,} persons", {"merge_small": given}))
    return found


def _leave_out(names: list[str]) -> tuple[str, dict[str, Any]]:
    return f"Leave {', '.join(names)} out", {"roles": dict.fromkeys(names, "out")}


def _person(name: str) -> tuple[str, dict[str, Any]]:
    return f"{name} names the person", {"roles": {name: "person"}}

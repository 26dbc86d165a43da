"""Before any training: what about a table will go wrong, or can be had from it at best.

Every finding names the column, what was found, and what to do about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.bounds.planning import delta_of_look, planned_cell_bound, rows_needed
from fairflows.table.columns import has_order, is_number, is_time, shown
from fairflows.table.table import Table, naming_rows

CELLS = (8, 16, 64)
"""Numbers of cells that the best bounds are planned for."""

_FEWEST_ROWS = 50  # below, a column of as many values as rows says nothing
_NEARLY_ALL = 0.95  # of the rows have a value of their own: a name
_MOSTLY = 0.8  # of the values look like numbers: a column of numbers, with exceptions
_TOLD = 0.8  # of the errors of a blind guess are gone when a column is known
_BINS = 20  # that numbers are cut into, to see what a column tells
_MANY_GROUPS = 8
_MODEST, _GOOD = 0.25, 0.1  # distances: a group that cannot reach the first is too small; the second is worth having
_FEWEST_OF_A_CLASS = 10
_MOST_LISTED = 8  # names in one finding

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_CODE = re.compile(r"0\d+")  # leading zeros: text on purpose
_DISGUISES = {
    "numbers with thousands separators": re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?"),
    "amounts of money": re.compile(r"[+-]?[$€£]\s?\d[\d,]*(\.\d+)?|\d[\d,]*(\.\d+)?\s?[$€£]"),
    "percentages": re.compile(r"[+-]?\d+(\.\d+)?\s?%"),
    "numbers with decimal commas": re.compile(r"[+-]?\d+,\d{1,2}"),
    "dates": re.compile(r"\d{1,2}[/.-]\d{1,2}[/.-](\d{2}|\d{4})"),
}


@dataclass(frozen=True)
class Finding:
    """One thing about a table that its owner should know before fitting: the column it is about, and the words."""

    column: str | None
    text: str

    def __str__(self) -> str:
        return self.text


def find_names(frame: pd.DataFrame, apart_from: Sequence[str]) -> list[Finding]:
    """Text columns in which every row differs, which cannot be features; some columns are none anyway."""
    return [
        Finding(str(name), naming_rows(str(name), f"{name} is text", len(frame)))
        for name, column in frame.items()
        if name not in apart_from and _is_text(column) and 2 < len(frame) == column.nunique(dropna=False)
    ]


def find_needed(table: Table, *, missing: str, multiclass: bool) -> list[Finding]:
    """The settings without which the table would be refused."""
    found = []
    counts = table.X.isna().sum()
    if missing == "error" and counts.any():
        gaps = _first([f"{name} ({count:,})" for name, count in counts[counts > 0].sort_values().items()])
        keep = "Keep them as a category of their own (missing='category') or drop their rows (missing='drop')."
        found.append(Finding(None, f"Values are missing: {gaps}. {keep}"))
    if table.y is not None and len(table.labels) > 2 and not multiclass:
        said = f"{table.y.name} has {len(table.labels):,} values: say multiclass=True."
        found.append(Finding(str(table.y.name), said))
    return found


def find_problems(table: Table, *, certifying: float, delta: float = 0.05) -> list[Finding]:
    """What will go wrong with a table, or help it: columns first, then the groups.

    `certifying` is the share of the persons who will be counted for a certificate, and `delta` its δ.

    Examples
    --------
    >>> rows = pd.DataFrame({"fee": ["$500", "$1,200", "$80"] * 20, "x": np.arange(60) / 7, "sex": ["f", "m"] * 30})
    >>> print(find_problems(Table(rows, sensitive="sex"), certifying=0.3)[0])
    fee holds text: 60 of 60 values are amounts of money, such as '$1,200'. Each is taken for a category of its own: \
write plain numbers.
    """
    found = [finding for name, column in table.X.items() for finding in _of_column(str(name), column, table)]
    return [*_of_constants(table), *found, *_of_label(table), *_of_groups(table, certifying, delta)]


def best_bounds(table: Table, *, certifying: float, delta: float = 0.05) -> pd.DataFrame:
    """The distance that can be certified at best, if the groups are alike in the cells, by the number of cells.

    That is the bound to expect on the distance Δ between the two groups that are told apart worst, and how often the
    best guess between these two would then be right at most. The arguments are those of `find_problems`.
    """
    n = np.maximum(certifying * _persons_by_group(table), 1)
    bounds = [_planned(n, k, delta) for k in CELLS]
    return pd.DataFrame({"cells": CELLS, "distance": bounds, "accuracy": [(1 + bound) / 2 for bound in bounds]})


def _of_column(name: str, column: pd.Series, table: Table) -> Iterator[Finding]:
    n_values = column.nunique(dropna=False)
    if n_values == 1:
        return  # said of all such columns at once
    if _may_be_a_name(column, n_values):
        yield Finding(
            name,
            f"{name} has {n_values:,} different values in {len(column):,} rows: if it names persons or rows, make it "
            f"the identifier (identifier={name!r}) or drop it (drop=[{name!r}]).",
        )
    if disguised := _disguised(column):
        yield Finding(name, f"{name} holds text: {disguised}")
    if (right := _guessed_right(column, table)) is not None:
        largest = table.a.value_counts(normalize=True).max()
        yield Finding(
            name,
            f"{name} alone tells {table.a.name} for {right:.0%} of the rows (the largest group has {largest:.0%}): "
            f"hiding the group then hides this column too. Drop it if it is not needed (drop=[{name!r}]).",
        )


def _of_constants(table: Table) -> Iterator[Finding]:
    same = [str(name) for name, column in table.X.items() if column.nunique(dropna=False) == 1]
    if same:
        found = f"The same in every row, or empty: {_first(same)}. Such columns tell nothing: drop them (drop={same})."
        yield Finding(same[0] if len(same) == 1 else None, found)


def _of_label(table: Table) -> Iterator[Finding]:
    if table.y is None:
        return
    name = str(table.y.name)
    if disguised := _disguised(table.y):
        yield Finding(name, f"{name} holds text: {disguised}")
    counts = table.y.value_counts()
    rare = int((counts < _FEWEST_OF_A_CLASS).sum())
    if rare:
        word = "value" if rare == 1 else "values"
        yield Finding(
            name,
            f"{name} has {rare:,} {word} with fewer than {_FEWEST_OF_A_CLASS} rows, such as "
            f"{shown(counts.index[-1])}: these cannot be learnt. Join them, or cut numbers into classes.",
        )


def _of_groups(table: Table, certifying: float, delta: float) -> Iterator[Finding]:
    name, groups, persons = str(table.a.name), table.groups, _persons_by_group(table)
    columns = list(table.grouping.kinds)
    if (disguised := _disguised(table.a)) and len(columns) == 1:
        yield Finding(name, f"{name} holds text: {disguised}")
    uncut = [column for column in columns if column not in table.grouping.cuts]
    if len(groups) > _MANY_GROUPS and len(columns) == 1 and uncut and is_number(table.a.dtype):
        median = float(table.a.median())
        yield Finding(
            name,
            f"{name} holds numbers with {len(groups):,} different values, each of which is a group. Cut it at a value "
            f"of your choice, such as the median (groups={ {name: [median]} }), or into groups of about equal size "
            f"(groups={ {name: 'quantiles=4'} }).",
        )
        return
    n, largest = certifying * persons, max(certifying * persons.max(), 1)
    small = [
        a for a in range(len(groups)) if n[a] < 1 or _planned(np.array([n[a], largest]), CELLS[0], delta) > _MODEST
    ]
    if not small:
        return
    alike = np.full((2, CELLS[0]), 1 / CELLS[0])
    first = delta_of_look(delta, 1)
    modest, good = (
        int(rows_needed(distance, first, probabilities=alike)[0] / certifying) for distance in (_MODEST, _GOOD)
    )
    listed = _first([f"{groups[a]} ({persons[a]:,})" for a in sorted(small, key=lambda a: persons[a])])
    said = (
        f"{name}: too few persons to certify a distance of {_MODEST} in {len(small):,} group{'s' * (len(small) > 1)}: "
        f"{listed}. That takes about {modest:,} persons of each group in the file with {CELLS[0]} cells; a distance of "
        f"{_GOOD} takes {good:,}."
    )
    least = min(modest, persons.max(), persons.sum() - persons.max())  # more would leave one group
    if len(groups) > 2 and least > persons.min():
        said += f" Small groups can be merged into one (merge_small={int(least)})."
    yield Finding(name, said)


def _persons_by_group(table: Table) -> npt.NDArray[np.int64]:
    return table.persons.count_by(table.group_numbers(table.groups), len(table.groups))


def _planned(n: npt.NDArray[np.float64], n_cells: int, delta: float) -> float:
    """The bound to expect where the groups are alike, as the first certificate from these persons gives it."""
    return float(planned_cell_bound(np.full((len(n), n_cells), 1 / n_cells), n, delta_of_look(delta, 1)))


def _may_be_a_name(column: pd.Series, n_values: int) -> bool:
    """Whole numbers or text of which nearly every row has its own; measurements may have that without being names."""
    if len(column) < _FEWEST_ROWS or n_values < _NEARLY_ALL * len(column) or is_time(column.dtype):
        return False
    if not is_number(column.dtype):
        return True
    values = column.dropna().to_numpy(dtype=np.float64)
    return bool((values == np.rint(values)).all())


def _disguised(column: pd.Series) -> str | None:
    """What text looks like, and what to do about it, where most of it could be numbers or dates."""
    if not _is_text(column):
        return None
    counts = column.dropna().astype(str).str.strip().value_counts()
    total = int(counts.sum())
    if not total or all(_CODE.fullmatch(value) for value in counts.index[:20]):
        return None
    plain = counts[[_NUMBER.fullmatch(value) is not None for value in counts.index]]
    if _MOSTLY * total <= plain.sum() < total:
        strange = counts.drop(plain.index)
        return (
            f"{int(plain.sum()):,} of {total:,} values are numbers, and {int(strange.sum()):,} are not, such as "
            f"{strange.index[0]!r}. Leave these fields empty, so that they count as missing."
        )
    for what, pattern in _DISGUISES.items():
        like = counts[[pattern.fullmatch(value) is not None for value in counts.index]]
        with_plain = int(like.sum() + (0 if what == "dates" else plain.sum()))
        if len(like) and with_plain >= _MOSTLY * total:
            advice = "write dates as 2020-12-31" if what == "dates" else "write plain numbers"
            example = max(like.index, key=lambda value: (len(value), value))
            return (
                f"{int(like.sum()):,} of {total:,} values are {what}, such as {example!r}. Each is taken for a "
                f"category of its own: {advice}."
            )
    return None


def _guessed_right(column: pd.Series, table: Table) -> float | None:
    """How often a column's value tells the group; None where it does so rarely.

    Learnt on one half of the rows and tried on the other, where at least four of five errors of the blind guess must be
    gone.
    """
    values = pd.Series(_binned(column), name="value")
    group = pd.Series(table.a.astype(str).to_numpy(), name="group")
    learnt = np.random.default_rng(0).random(len(values)) < 0.5
    if learnt.all() or not learnt.any():
        return None
    counts = pd.crosstab(values[learnt], group[learnt])
    blind = group[learnt].mode().iloc[0]
    guesses = values[~learnt].map(counts.idxmax(axis=1)).fillna(blind)
    right, base = float((guesses == group[~learnt]).mean()), float((group[~learnt] == blind).mean())
    return right if base < 1 and right - base >= _TOLD * (1 - base) else None


def _binned(column: pd.Series) -> npt.NDArray[np.intp]:
    """Values by number; those of numbers and times cut into bins, missing ones a value of their own."""
    if has_order(column.dtype) and column.nunique() > _BINS:
        return np.asarray(pd.qcut(column.rank(), _BINS, labels=False, duplicates="drop").fillna(-1), dtype=np.intp)
    return pd.factorize(column)[0]


def _is_text(column: pd.Series) -> bool:
    return pd.api.types.infer_dtype(column, skipna=True) == "string"


def _first(texts: Sequence[str]) -> str:
    """A list in words, cut short where it is long."""
    more = f" and {len(texts) - _MOST_LISTED:,} more" if len(texts) > _MOST_LISTED else ""
    return ", ".join(texts[:_MOST_LISTED]) + more

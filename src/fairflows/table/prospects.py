"""Problems of a table, and the statements that it allows, before anything is fitted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from fairflows.bounds.ages import plan_ranks, spread_within
from fairflows.bounds.planning import TARGETS, CellPlan, allows_two_cells, plan_cells
from fairflows.exceptions import DataError
from fairflows.table.columns import floats, has_order, is_continuous, is_number
from fairflows.table.date_forms import proposed_forms
from fairflows.table.names import names_of_histories, numbers_like_names, values_of_households
from fairflows.table.table import Table, naming_rows

PLANNED = (0.05, *TARGETS)
"""Targets that statements are planned for."""

_MOSTLY = 0.8  # share of the values that look like numbers or dates, in a column of these with exceptions
_ISO_DATE = r"\d{4}-\d\d-\d\d\b"
_OTHER_DATE = (
    r"(?:\d{1,2}([./-])\d{1,2}\1(?:\d{4}|\d\d)|\d{4}([./])\d{1,2}\2\d{1,2}|\d{1,2}[- ]?[A-Z][a-z]{2}[- ]?\d{2,4})\b"
)
_TOLD = 0.3  # share of the errors of a blind guess that a column removes if it gives the group away
_COPY = 0.95  # the same of a column that is a copy of the label
_IN_STEP = 0.99  # rank correlation of a column with a label of numbers that it gives away
_MOST_LABELS = 20  # of a label that a column may be a copy of
_MOST_ROWS = 20_000  # that a column is tried on
_BINS = 20  # of the numbers of a column that may reveal the group
_MANY_GROUPS = 8
_FEWEST_OF_A_NUMBER = 100  # persons of each of many groups that are numbers; with fewer, the numbers are not codes
_MOST_LISTED = 8  # names in one finding


def find_names(frame: pd.DataFrame, apart_from: Sequence[str]) -> dict[str, str]:
    """Return the text columns in which every row differs, which cannot be features, and a sentence about each."""
    return {
        str(name): naming_rows(str(name), f"{name} is text", len(frame))
        for name, column in frame.items()
        if name not in apart_from and _is_text(column) and 2 < len(frame) == column.nunique(dropna=False)
    }


def find_problems(table: Table) -> list[str]:
    """Return a sentence about each problem of a table: columns first, then groups.

    Examples
    --------
    >>> rows = pd.DataFrame({"fee": ["$500", "$1,200", "$80"] * 20, "x": np.arange(60) / 7, "sex": ["f", "m"] * 30})
    >>> print(find_problems(Table(rows, sensitive="sex"))[0])
    fee holds text, such as '$500': each value is a category of its own. Write plain numbers, or dates as YYYY-MM-DD, \
and leave unknown values empty.
    """
    table, found = table.in_halves(), []
    if same := [str(name) for name, column in table.X.items() if column.nunique(dropna=False) == 1]:
        found.append(
            f"The same in every row, or empty: {_first(same)}. Such columns tell nothing: drop them (drop={same})."
        )
    for name, column in table.X.items():
        found += [] if str(name) in same else _of_column(str(name), column)
    found += [*names_of_histories(table), *(said for _, said, _ in numbers_like_names(table))]
    return [*found, *values_of_households(table), *_of_columns_that_tell(table), *_of_groups(table)]


def best_bounds(table: Table, *, delta: float = 0.01) -> tuple[list[CellPlan], float | None]:
    """Return the statements that `share` can make with so many persons, for some targets, and the default target."""
    persons, n = _persons_by_group(table)
    if table.grouping.is_uncut:
        within = spread_within(table.grouping.n_narrow, table.grouping.wide or 0)
        usual = plan_ranks(n, None, delta, within)
        found = (plan_ranks(n, target, delta, within) for target in PLANNED)
        return [plan for plan in found if plan is not None], None if usual is None else usual.target
    matched = None if table.persons.n == len(table) else table.persons.accepted_share * persons
    default = plan_cells(n, None, delta, n_matched=matched)
    plans = (plan_cells(n, target, delta, n_matched=matched) for target in PLANNED)
    return [plan for plan in plans if plan is not None], None if default is None else default.target


def _of_column(name: str, column: pd.Series) -> Iterator[str]:
    times = column.value_counts(sort=False) if _is_text(column) else None  # in the order of the rows
    if times is None:
        return
    texts = pd.Series(times.index.astype(str)).str.strip()
    if not (example := _example_of_others(texts, times.to_numpy())):
        return
    if forms := proposed_forms(pa.array(texts.unique())):
        stated = " or ".join(f"dates={ {name: form}!r}" for form in forms)
        yield f"{name} holds dates as text, such as {example!r}. State their form ({stated})."
    else:
        yield (
            f"{name} holds text, such as {example!r}: each value is a category of its own. Write plain numbers, or "
            "dates as YYYY-MM-DD, and leave unknown values empty."
        )


def _of_columns_that_tell(table: Table) -> Iterator[str]:
    """Find the columns that give the group away, most first, and copies of a label, by some of the rows."""
    table = table.take(np.random.default_rng(0).permutation(len(table))[:_MOST_ROWS])
    blind = 1 / len(table.groups)
    told = [(right, name) for name, right in _guessed_right(table.X, table.a).items()]
    told = sorted([found for found in told if found[0] - blind >= _TOLD * (1 - blind)], reverse=True)
    if told:
        names = [name for _, name in told]
        yield (
            f"Columns that give {table.a.name} away by themselves, most first: "
            f"{_first([f'{name} ({right:.0%})' for right, name in told])} (so often a guess from the column is right, "
            f"all groups counted alike; a blind guess {blind:.0%}). Hiding the group hides them too: drop those that "
            f"are not needed (drop={names[:_MOST_LISTED]})."
        )
    for label_name, label in table.label_columns().items():
        n = label.nunique()
        for name, right in _guessed_right(table.X, label).items() if n <= _MOST_LABELS else ():
            if right - 1 / n >= _COPY * (1 - 1 / n):
                yield (
                    f"{name} tells the label {label_name} for {right:.0%} of the rows, all labels counted alike: if it "
                    f"is a copy of the label, or follows from it, drop it (drop=[{name!r}])."
                )
        if is_continuous(label):
            yield from _of_columns_in_step(table.X, label)


def _of_columns_in_step(X: pd.DataFrame, label: pd.Series) -> Iterator[str]:
    """Find the columns of numbers that rise or fall with a label of numbers, such as its logarithm."""
    for name, column in X.items():
        if not is_number(column.dtype) or column.nunique() <= _MOST_LABELS:
            continue
        known = (column.notna() & label.notna()).to_numpy()
        ranks = [pd.Series(floats(part)).rank() for part in (column[known], label[known])]
        step = abs(float(np.corrcoef(*ranks)[0, 1])) if known.sum() > _MOST_LABELS else 0.0
        if step >= _IN_STEP:
            yield (
                f"{name} tells the label {label.name}: the one rises or falls with the other (rank correlation "
                f"{step:.3f}). If it is the label in another form, or follows from it, drop it (drop=[{name!r}])."
            )


def check_groups(table: Table) -> None:
    """Raise if a sensitive column of numbers was not cut, so that groups are small; propose a cut."""
    persons, name = _persons_by_group(table)[0], str(table.a.name)
    if _is_not_cut(table) and persons.min() < _FEWEST_OF_A_NUMBER:
        smallest = table.groups[int(persons.argmin())]
        raise DataError(f"{_proposed_cut(table)} The smallest, {name} = {smallest}, has {persons.min():,} persons.")


def _is_not_cut(table: Table) -> bool:
    return len(table.groups) > _MANY_GROUPS and not table.grouping.cuts and is_number(table.a.dtype)


def _proposed_cut(table: Table) -> str:
    name, median = str(table.a.name), f"{table.a.median():g}"
    return (
        f"{name} holds numbers with {len(table.groups):,} different values, each of which is a group. Cut it at values "
        f"of your choice, such as the median (cuts={{{name!r}: [{median}]}})."
    )


def _of_groups(table: Table) -> Iterator[str]:
    groups, (persons, n) = table.groups, _persons_by_group(table)
    if _is_not_cut(table):
        yield _proposed_cut(table)
        return
    for target in (TARGETS[-1], TARGETS[0]):  # what no promise is possible for, and what raises the promise
        small = [a for a in range(len(groups)) if not allows_two_cells([n[a], n.max()], target)]
        if small and (target == TARGETS[-1] or len(small) < len(groups)):
            yield _of_small_groups(table, sorted(small, key=lambda a: persons[a]), persons, n, target)
            return


def _of_small_groups(
    table: Table, small: list[int], persons: npt.NDArray[np.int64], n: npt.NDArray[np.float64], target: float
) -> str:
    """Name the groups that are too small for a target, the smallest first, and propose to merge them."""
    listed = _first([f"{table.groups[a]} ({persons[a]:,})" for a in small])
    needed = 22 + bisect_left(range(22, 10_000), True, key=lambda m: allows_two_cells([m, n.max()], target))
    said = (
        f"{table.a.name}: too few persons for a distance of {target} in {len(small):,} group{'s' * (len(small) > 1)}: "
        f"{listed}. That takes about {needed:,} persons of each group."
    )
    ascending = np.sort(persons)
    enough = int(np.searchsorted(ascending.cumsum(), min(needed, persons.sum() - persons.max())))
    least = ascending[min(enough, len(ascending) - 2)] + 1  # all but one group at most
    if len(persons) > 2 and (target == TARGETS[-1] or enough < len(small)):
        said += f" Small groups can be merged into one (merge_small={int(least)})."
    return said


def _persons_by_group(table: Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the persons of each group, and those of equal weight that their rows stand for."""
    group, K = table.group_numbers(table.groups), len(table.groups)
    return table.persons.count_by(group, K), table.persons.equal_weight(group, K)


def _example_of_others(texts: pd.Series, times: npt.NDArray[np.int64]) -> str | None:
    """Return a text that keeps a column from being numbers or dates: a currency, a thousands mark, a word.

    `times` is how often each text occurs. Return None if most texts are neither, or some are codes with leading zeros,
    which are text on purpose.
    """
    is_plain = pd.to_numeric(texts, errors="coerce").notna() | texts.str.match(_ISO_DATE)
    bare = texts.str.replace(r"[\s,$€£%]", "", regex=True)
    is_meant = pd.to_numeric(bare, errors="coerce").notna() | texts.str.match(_ISO_DATE) | texts.str.match(_OTHER_DATE)
    has_codes = texts.str.match(r"0\d+$").any()
    is_column_of_these = times[is_meant].sum() >= _MOSTLY * times.sum()
    return [*texts[~is_plain], *texts][0] if is_column_of_these and not has_codes else None


def _guessed_right(X: pd.DataFrame, wanted: pd.Series) -> dict[str, float]:
    """Return the balanced accuracy with which each column alone predicts the wanted value.

    The guess is learnt on one half of the rows and tried on the other.
    """
    truth = pd.factorize(wanted.astype(str))[0]
    K, learnt = int(truth.max()) + 1, np.random.default_rng(0).random(len(truth)) < 0.5
    n_learnt, n_tried = (np.bincount(truth[part], minlength=K) for part in (learnt, ~learnt))
    if (n_learnt > 0).sum() < 2 or (n_tried > 0).sum() < 2:
        return {}
    found = {}
    for name, column in X.items():
        values = _binned(column) + 1
        counts = np.bincount(values[learnt] * K + truth[learnt], minlength=(values.max() + 1) * K).reshape(-1, K)
        likely = np.where(counts.any(axis=1), (counts / np.maximum(n_learnt, 1)).argmax(axis=1), -1)
        is_right = likely[values[~learnt]] == truth[~learnt]
        right = np.bincount(truth[~learnt], is_right, minlength=K)[n_tried > 0] / n_tried[n_tried > 0]
        found[str(name)] = float(right.mean())
    return found


def _binned(column: pd.Series) -> npt.NDArray[np.intp]:
    """Return the number of each value; numbers and times are cut into bins, and missing values have their own."""
    if has_order(column.dtype) and column.nunique() > _BINS:
        return np.asarray(pd.qcut(column.rank(), _BINS, labels=False, duplicates="drop").fillna(-1), dtype=np.intp)
    return pd.factorize(column)[0]


def _is_text(column: pd.Series) -> bool:
    return pd.api.types.infer_dtype(column, skipna=True) == "string"


def _first(texts: Sequence[str]) -> str:
    """Return a list in words, cut short if it is long."""
    more = f" and {len(texts) - _MOST_LISTED:,} more" if len(texts) > _MOST_LISTED else ""
    return ", ".join(texts[:_MOST_LISTED]) + more

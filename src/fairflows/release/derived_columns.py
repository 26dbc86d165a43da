"""Columns that follow from others: recognised on the training rows, then computed instead of drawn.

Every computed column is a `Lookup` (its value follows from the value of one other column) or a `Formula` (arithmetic).
Other relations are brought to these two by helper columns, which are drawn in place of columns of the table: which of
several flags is 1, the day and the time of day of a moment, the residual of a formula, and the class of a code, which
is drawn before the code, and then looked up by it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.encoder.base import IntArray
from fairflows.release.formulas import (
    LINEAR,
    LOCAL_TIME,
    NEARLY_ALL,
    OF_OTHERS,
    ROWS_COMPARED,
    Columns,
    Formula,
    find_formulas,
    residual_of_rows,
)
from fairflows.release.number_ranges import is_shared
from fairflows.release.rules import BoolArray
from fairflows.table.columns import floats, has_order, has_zone, is_number
from fairflows.table.domain import Levels

Coded = tuple[Levels, IntArray]
"""The levels of a column, and the level of each row."""

_ROWS_BY_CHANCE = 10  # in which two flags that exclude each other would both be 1
_ROWS_PER_VALUE, _ROWS_PER_NUMBER = 3, 5  # mean number of rows with one value of a column that determines another
_MOST_VALUES = 2_000  # of a column of numbers that may determine another one
_MOST_CODES = 400  # columns that may determine others: the time grows with the second power


def without_undrawn(levels: Levels, is_drawn: BoolArray) -> Levels:
    """Return levels whose type does not name the categories that are not drawn."""
    if not isinstance(levels.dtype, pd.CategoricalDtype) or is_drawn.all():
        return levels
    drawn = set(levels.index[is_drawn[: len(levels.index)]])
    dtype = pd.CategoricalDtype([c for c in levels.dtype.categories if c in drawn], levels.dtype.ordered)
    return Levels(levels.name, levels.index.tolist(), dtype, levels.has_missing)


@dataclass(frozen=True)
class Lookup:
    """A column whose value follows from the value of another one, as a name follows from a code."""

    column: Hashable
    source: Hashable
    keys: Levels  # the values of the source
    values: Levels  # the values of the column
    place: IntArray  # the value of the column for each value of the source
    is_exact: bool  # whether all training rows have these values, not just nearly all

    @classmethod
    def fit(cls, column: Hashable, source: Hashable, value: Coded, key: Coded, persons: IntArray) -> Lookup:
        """Take the most frequent value of the column for each value of its source, and none that only one person has.

        Both are given with their levels; `persons` is the person of each row.
        """
        (values, of_value), (keys, of_key) = value, key
        may_follow = is_shared(of_value, persons, len(values))
        pairs, counts = np.unique(of_key * len(values) + of_value, return_counts=True)
        usual = np.where(may_follow, np.bincount(of_value, minlength=len(values)), -1).argmax()
        place = np.full(len(keys), usual, dtype=np.int64)
        by_count = pairs[np.argsort(counts, kind="stable")]
        by_count = by_count[may_follow[by_count % len(values)]]
        place[by_count // len(values)] = by_count % len(values)  # the most frequent one comes last, and stays
        is_exact = bool((place[of_key] == of_value).all())
        return cls(column, source, keys, without_undrawn(values, may_follow), place, is_exact)

    def compute(self, columns: Columns) -> pd.Series:
        """Look the values up."""
        return self.values.column(self.place[self.keys.codes(columns[self.source])])


Derived = Lookup | Formula


def relations(computed: Sequence[Derived]) -> list[str]:
    """Say how columns follow from others, one sentence for each formula and for each column that others follow from."""
    by_source: dict[Hashable, list[str]] = {}
    for found in computed:
        if isinstance(found, Lookup):
            by_source.setdefault(found.source, []).append(str(found.column))
    lookups = [
        f"{', '.join(sorted(columns))} {'follows' if len(columns) == 1 else 'follow'} from {source}"
        for source, columns in by_source.items()
    ]
    return [*(str(found) for found in computed if isinstance(found, Formula)), *lookups]


def find_derived(
    frame: pd.DataFrame,
    declared: set[Hashable],
    persons: IntArray,
    labels: Sequence[Hashable] = (),
    known: Mapping[Hashable, Coded] | None = None,
    given: Sequence[Hashable] = (),
) -> tuple[Columns, list[Derived]]:
    """Return the columns that are drawn, and how the others follow from them, in the order of computing.

    Columns of `declared` are categories, whatever their type; `persons` is the person of each row; `known` has the
    levels of columns that were coded before. Labels are not drawn together with features, because no row of one person
    may be drawn without its label either. Columns of `given` come first in the frame and are known when others are
    drawn: these may be computed from them.
    """
    columns: Columns = dict(frame.items())
    last: list[Derived] = []
    features = frame.drop(columns=[*labels, *given])
    moments = features.drop(columns=[name for name in declared if name in features])
    for helpers, found in [*_flags(features, persons, frame), *_times(moments, frame)]:
        last += found
        columns = helpers | {name: column for name, column in columns.items() if all(f.column != name for f in found)}
    formulas = find_formulas({name: column for name, column in columns.items() if name not in declared})
    formulas = [f if f.residual is None else replace(f, residual=_new_name(f.residual, frame)) for f in formulas]
    formulas = [f for f in formulas if f.column not in given]
    residuals = {f.residual: residual_of_rows(f, columns) for f in formulas if f.residual is not None}
    computed = {formula.column for formula in formulas}
    columns = {name: column for name, column in columns.items() if name not in computed} | residuals
    apart = {name: column for name, column in columns.items() if name not in given}
    lookups = list(_classes(apart, declared, persons, known or {})) if apart else []
    for lookup in lookups:
        column = columns.pop(lookup.column)
        if len(lookup.values) < len(lookup.keys):
            columns[_new_name(f"{lookup.column}: class of {lookup.source}", frame)] = column.astype(str)
    return columns, [*lookups, *formulas, *last]


def _new_name(name: str, frame: pd.DataFrame) -> str:
    """Return the name of a helper column that no column of the table has."""
    return name if name not in frame else _new_name(f"{name} (helper)", frame)


def _flags(frame: pd.DataFrame, persons: IntArray, whole: pd.DataFrame) -> Iterator[tuple[Columns, list[Derived]]]:
    """Yield, for flags that exclude each other, the column that says which of them is 1, and their lookups."""
    names = [name for name, column in frame.items() if _is_flag(column)]
    if len(names) < 2:
        return
    ones = np.stack([floats(frame[name].astype(float)) for name in names], axis=1).astype(np.float32)
    for group in _exclusive_groups(ones):
        is_one = ones[:, group] > 0
        which = np.where(is_one.any(axis=1), is_one.argmax(axis=1), -1).astype(str)
        helper = _new_name(f"which of {', '.join(str(names[place]) for place in group)}", whole)
        source = pd.Series(which, name=helper)
        key = Levels.of(helper, source)
        flags = [(names[place], Levels.of(str(names[place]), frame[names[place]])) for place in group]
        yield {helper: source}, [Lookup.fit(name, helper, flag, key, persons) for name, flag in flags]


def _is_flag(column: pd.Series) -> bool:
    if not (is_number(column.dtype) or column.dtype == bool) or column.isna().any():
        return False
    return set(column.unique().tolist()) == {0, 1}


def _exclusive_groups(ones: npt.NDArray[np.float32]) -> Iterator[list[int]]:
    """Yield groups of columns of zeros and ones, of which at most one is 1.

    Neighbours of which exactly one is 1 in every row are a group. So are columns that never are 1 together, though by
    chance ten rows or more would have both.
    """
    n, n_flags = ones.shape
    together = ones.T @ ones  # whole numbers
    counts = np.diagonal(together)
    total = np.concatenate([[0], np.cumsum(counts, dtype=np.float64)])
    free = list(range(n_flags))
    for start in range(n_flags):
        end = int(np.searchsorted(total, total[start] + n))
        is_whole = end <= n_flags and end > start + 1 and together[start:end, start:end].sum() == n
        if is_whole and start in free:
            yield list(range(start, end))
            free = [place for place in free if not start <= place < end]
    by_chance = np.outer(counts, counts) / n
    while free:
        group = [free.pop(0)]
        for other in free:
            if not together[other, group].any() and (by_chance[other, group] >= _ROWS_BY_CHANCE).any():
                group.append(other)
        free = [place for place in free if place not in group]
        if len(group) > 1:
            yield group


def _times(frame: pd.DataFrame, whole: pd.DataFrame) -> Iterator[tuple[Columns, list[Derived]]]:
    """Yield day and time of day of every column of moments, so that hours keep their shares, and their sum."""
    for name, column in frame.items():
        if column.dtype.kind != "M" or not column.notna().any():
            continue
        times = column.dt.tz_localize(None)  # the hours of the clocks there, which go back and forth
        days = times.dt.normalize()
        if has_zone(column.dtype) or (times.dropna() != days.dropna()).mean() > 1 - NEARLY_ALL:
            day, time = (_new_name(f"{name}: {part}", whole) for part in ("day", "time of day"))
            helpers: Columns = {day: days, time: times - days}
            form = LOCAL_TIME if has_zone(column.dtype) else LINEAR
            yield helpers, [Formula(name, list(helpers), form, 0.0, [1.0, 1.0], None, column.dtype)]


def _classes(
    columns: Columns, declared: set[Hashable], persons: IntArray, known: Mapping[Hashable, Coded]
) -> Iterator[Lookup]:
    """Find columns that hold the class of a finer code, or another name of a code."""
    n_rows = len(next(iter(columns.values())))
    most = min(_MOST_VALUES, n_rows / _ROWS_PER_NUMBER)
    is_list = {n: n in declared or not has_order(c.dtype) for n, c in columns.items()}
    may_be_code = [n for n, c in columns.items() if is_list[n] or c.nunique() <= most]
    coded = {n: known[n] if n in known else Levels.of(str(n), columns[n]) for n in may_be_code[:_MOST_CODES]}
    codes = {name: code.astype(np.int64) for name, (_, code) in coded.items()}
    sizes = {name: len(levels) for name, (levels, _) in coded.items()}
    some = np.random.default_rng(0).permutation(n_rows)[:ROWS_COMPARED]
    drawn: list[Hashable] = []  # the column with the fewest values comes first
    for name in sorted(codes, key=sizes.__getitem__)[::-1]:
        if not 1 < sizes[name] <= n_rows / _ROWS_PER_VALUE:
            continue
        likely = [o for o in drawn if _largest(codes[o][some], codes[name][some]).sum() >= OF_OTHERS * len(some)]
        source = next((other for other in likely if _determines(codes[other], codes[name], is_list[other])), None)
        if source is None:
            drawn.insert(0, name)
        else:
            of = [(coded[n][0], codes[n]) for n in (name, source)]
            yield Lookup.fit(name, source, of[0], of[1], persons)


def _largest(code: IntArray, class_: IntArray) -> IntArray:
    """Return in how many rows each code has its most frequent class."""
    n_classes = int(class_.max()) + 1
    pairs, counts = np.unique(code * n_classes + class_, return_counts=True)
    largest = np.zeros(int(code.max()) + 1, dtype=np.int64)
    np.maximum.at(largest, pairs // n_classes, counts)
    return largest


def _determines(code: IntArray, class_: IntArray, is_list: bool) -> bool:
    """Whether rows with the same code have the same class, nearly always, and far more often than by chance.

    Values of a number that only one row has count against it, because a number that is looked up by is not drawn from
    ranges.
    """
    largest, majority = _largest(code, class_), np.bincount(class_).max()
    # A row does not count for itself, so that a code that only one row has tells nothing.
    right, n = np.maximum(largest - 1, 0).sum(), len(code) - (np.count_nonzero(largest) if is_list else 0)
    by_chance = n * majority / len(code)
    return bool(largest.sum() >= NEARLY_ALL * len(code) and right - by_chance >= 0.9 * (n - by_chance))

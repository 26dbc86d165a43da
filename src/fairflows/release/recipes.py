"""Columns that follow from others: recognised on the training rows, then computed instead of drawn.

A recipe says which columns it makes, from which other columns, and which helper columns are drawn in their place. One
kind of relation has no recipe: a finer code and its class are both drawn, the code among the codes of the class.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.codec import Levels
from fairflows.release.formulas import Columns, Formula, find_formulas
from fairflows.table.columns import floats, from_numbers, has_order, is_number, is_time, numbers

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


_NEARLY_ALL = 0.999  # share of the rows in which a relation must hold
_ROWS_COMPARED = 1_000
_ROWS_BY_CHANCE = 10
_ROWS_PER_VALUE = 5  # mean number of rows with one value of a column that determines another one


@dataclass(frozen=True)
class Flags:
    """Columns of zeros and ones, of which at most one is 1: drawn as one category."""

    columns: list[Hashable]
    dtypes: list[Any]

    @property
    def helper(self) -> str:
        """The name of the column that is drawn instead."""
        return f"which of {', '.join(map(str, self.columns))}"

    def helpers(self, frame: pd.DataFrame) -> Columns:
        """Return the column that is drawn instead: the place of the 1, or −1 where there is none."""
        is_one = np.stack([floats(frame[name].astype(float)) > 0 for name in self.columns], axis=1)
        which = np.where(is_one.any(axis=1), is_one.argmax(axis=1), -1)
        return {self.helper: pd.Series(which).astype(str)}

    def compute(self, columns: Columns) -> Columns:
        """Return zeros and ones."""
        which = columns[self.helper].astype(int).to_numpy()
        made = enumerate(zip(self.columns, self.dtypes, strict=True))
        return {name: pd.Series(which == place).astype(dtype) for place, (name, dtype) in made}

    def __str__(self) -> str:
        return f"at most one of {', '.join(map(str, self.columns))} is 1"


@dataclass(frozen=True)
class Lookup:
    """A column whose value follows from the value of another one, as a name follows from a code."""

    column: Hashable
    source: Hashable
    keys: Levels  # the values of the source
    values: Levels  # the values of the column
    place: IntArray  # the value of the column for each value of the source

    @property
    def columns(self) -> list[Hashable]:
        """The columns that are computed."""
        return [self.column]

    def helpers(self, frame: pd.DataFrame) -> Columns:
        """Return no column: nothing is drawn instead."""
        return {}

    def compute(self, columns: Columns) -> Columns:
        """Look the values up."""
        return {self.column: self.values.column(self.place[self.keys.codes(columns[self.source])])}

    def __str__(self) -> str:
        return f"{self.column} follows from {self.source}"


@dataclass(frozen=True)
class DayAndTime:
    """A column of times: the day and the time of day are drawn one after the other, so that hours keep their shares."""

    column: Hashable
    dtype: Any

    @property
    def columns(self) -> list[Hashable]:
        """The columns that are computed."""
        return [self.column]

    @property
    def inputs(self) -> list[Hashable]:
        """The names of the columns that are drawn instead."""
        return [f"{self.column}: day", f"{self.column}: time of day"]

    def helpers(self, frame: pd.DataFrame) -> Columns:
        """Return the day, and the time that has passed since it began."""
        times = pd.Series(_plain_times(frame[self.column]))
        days = times.dt.normalize()
        return dict(zip(self.inputs, (days, times - days), strict=True))

    def compute(self, columns: Columns) -> Columns:
        """Add the time of day to the day; where one of them is missing, so is the sum."""
        day, time = (columns[name] for name in self.inputs)
        total = day + time
        is_known = total.notna().to_numpy()
        if is_known.all():
            return {self.column: from_numbers(total.to_numpy(), self.dtype)}
        filled = total.fillna(total[is_known].iloc[0] if is_known.any() else pd.Timestamp(0))
        return {self.column: from_numbers(filled.to_numpy(), self.dtype).mask(~is_known)}

    def __str__(self) -> str:
        return f"{self.column} is drawn as day and time of day"


def _plain_times(column: pd.Series) -> np.ndarray:
    """Return times without a zone, with NaT where they are missing."""
    is_known = column.notna().to_numpy()
    known = numbers(column[is_known])
    times = np.full(len(column), np.datetime64("NaT"), dtype=known.dtype)
    times[is_known] = known
    return times


Recipe = Flags | Lookup | DayAndTime | Formula


def find_recipes(frame: pd.DataFrame) -> list[Recipe]:
    """Find columns that follow from others, in the order in which they are computed.

    Formulas are looked for among days and times of day instead of times.
    """
    times, flags = list(_times(frame)), list(_flags(frame))
    apart = take_apart(frame, [*times, *flags])
    return [*find_formulas(drawn_columns(apart, [*times, *flags])), *times, *flags]


def take_apart(frame: pd.DataFrame, recipes: Sequence[Recipe]) -> pd.DataFrame:
    """Return the table with the columns that are drawn instead of computed ones, beside these."""
    columns = dict(frame.items())
    for recipe in reversed(recipes):
        columns |= recipe.helpers(pd.DataFrame(columns))
    return pd.DataFrame(columns)


def drawn_columns(apart: pd.DataFrame, recipes: Sequence[Recipe]) -> pd.DataFrame:
    """Return the columns of a table that was taken apart which no recipe computes."""
    computed = {name for recipe in recipes for name in recipe.columns}
    return apart[[name for name in apart if name not in computed]]


def _times(frame: pd.DataFrame) -> Iterator[DayAndTime]:
    for name, column in frame.items():
        if is_time(column.dtype) and column.dtype.kind == "M" and column.notna().any():
            times = pd.Series(_plain_times(column)).dropna()
            if (times != times.dt.normalize()).mean() > 1 - _NEARLY_ALL:
                yield DayAndTime(name, column.dtype)


def _flags(frame: pd.DataFrame) -> Iterator[Flags]:
    """Find groups of columns of zeros and ones that exclude each other.

    Neighbours of which exactly one is 1 in every row are a group. So are columns that never are 1 together, though by
    chance ten rows or more would have both.
    """
    names = [name for name, column in frame.items() if _is_flag(column)]
    if len(names) < 2:
        return
    ones = np.stack([floats(frame[name].astype(float)) for name in names], axis=1).astype(np.float32)
    together, share = ones.T @ ones, ones.mean(axis=0)
    excludes = (together == 0) & (np.outer(share, share) * len(frame) >= _ROWS_BY_CHANCE)
    free = set(range(len(names)))
    groups = [*_neighbours(together, len(frame)), *_exclusive(together, excludes)]
    for group in groups:
        if len(group) > 1 and free.issuperset(group):
            free -= set(group)
            columns = [names[i] for i in group]
            yield Flags(columns, [frame[name].dtype for name in columns])


def _neighbours(together: npt.NDArray[np.float32], n_rows: int) -> Iterator[list[int]]:
    """Yield runs of columns of which exactly one is 1 in every row; the counts are whole numbers."""
    start = 0
    while start < len(together):
        group = [start]
        while together[group, group].sum() < n_rows and group[-1] + 1 < len(together):
            if together[group[-1] + 1, group].any():
                break
            group.append(group[-1] + 1)
        is_whole = len(group) > 1 and together[group, group].sum() == n_rows
        if is_whole:
            yield group
        start = group[-1] + 1 if is_whole else start + 1


def _exclusive(together: npt.NDArray[np.float32], excludes: BoolArray) -> Iterator[list[int]]:
    """Yield groups of columns that are never 1 together, each of which would by chance be so with one of the others."""
    free = list(range(len(together)))
    while free:
        group = [free.pop(0)]
        for other in list(free):
            if not together[other, group].any() and excludes[other, group].any():
                group.append(other)
        free = [other for other in free if other not in group]
        yield group


def _is_flag(column: pd.Series) -> bool:
    if not (is_number(column.dtype) or column.dtype == bool) or column.isna().any():
        return False
    values = np.asarray(column.unique())
    return len(values) == 2 and set(values.tolist()) == {0, 1}


@dataclass(frozen=True)
class Classes:
    """Which columns other columns determine."""

    parents: dict[Hashable, Hashable]  # a finer code, and the column that holds its class
    lookups: list[Lookup]


def find_classes(frame: pd.DataFrame, codes: dict[Hashable, IntArray]) -> Classes:
    """Find columns that hold the class of a finer code, and columns that hold another name of a code.

    `codes` numbers the values of the columns that may determine others.
    """
    sizes = {name: int(code.max(initial=0)) + 1 for name, code in codes.items()}
    names = [name for name in codes if sizes[name] > 1 and len(frame) >= _ROWS_PER_VALUE * sizes[name]]
    names.sort(key=lambda name: sizes[name])
    may = _may_determine(names, codes)
    source_of = _other_names(names, sizes, codes, may)
    free = [name for name in names if name not in source_of]
    parents: dict[Hashable, Hashable] = {}
    for place, name in enumerate(free):
        finer = [other for other in free[place + 1 :] if (other, name) in may and sizes[other] > sizes[name]]
        source = next((o for o in finer if o not in source_of and _determines(codes[o], codes[name])), None)
        if source is None:
            continue
        if source in parents:  # a code is drawn among those of one class; other classes follow from it
            source_of[name] = source
        else:
            parents[source] = name
    for child in [child for child in parents if child in source_of]:  # which is computed, and so is its class
        source_of[parents.pop(child)] = child
    return Classes(parents, _in_order([_lookup(frame, name, source) for name, source in source_of.items()]))


def _other_names(
    names: list[Hashable],
    sizes: dict[Hashable, int],
    codes: dict[Hashable, IntArray],
    may: set[tuple[Hashable, Hashable]],
) -> dict[Hashable, Hashable]:
    """Return columns that are another name of a later column, and that column."""
    found: dict[Hashable, Hashable] = {}
    for place, name in enumerate(names):
        same = [other for other in names[place + 1 :] if (other, name) in may and sizes[other] == sizes[name]]
        source = next((other for other in same if _determines(codes[other], codes[name])), None)
        if source is not None:
            found[name] = source
    return found


def _may_determine(names: list[Hashable], codes: dict[Hashable, IntArray]) -> set[tuple[Hashable, Hashable]]:
    """Return pairs of columns of which the first may determine the second, by what some rows show."""
    if len(names) < 2:
        return set()
    n = len(codes[names[0]])
    rows = np.random.default_rng(0).permutation(n)[:_ROWS_COMPARED]
    matrix = np.stack([codes[name][rows] for name in names], axis=1)
    found = set()
    for place, name in enumerate(names):
        ordered = matrix[np.argsort(matrix[:, place], kind="stable")]
        same = ordered[1:, place] == ordered[:-1, place]
        differs = (ordered[1:][same] != ordered[:-1][same]).sum(axis=0)
        found |= {(name, names[other]) for other in np.flatnonzero(differs <= 0.01 * same.sum()).tolist()}
    return found


def _determines(code: IntArray, class_: IntArray) -> bool:
    """Whether rows with the same code have the same class, nearly always, and far more often than by chance."""
    n_codes, n_classes = int(code.max()) + 1, int(class_.max()) + 1
    pairs, counts = np.unique(code * n_classes + class_, return_counts=True)
    if len(pairs) > 1.01 * n_codes + 1:
        return False
    largest = np.zeros(n_codes, dtype=np.int64)
    np.maximum.at(largest, pairs // n_classes, counts)
    majority = np.bincount(class_).max()
    # A row does not count for itself, so that a code that only one row has tells nothing.
    right = np.maximum(largest - 1, 0).sum()
    return bool(largest.sum() >= _NEARLY_ALL * len(code) and right - majority >= 0.9 * (len(code) - majority))


def _lookup(frame: pd.DataFrame, name: Hashable, source: Hashable) -> Lookup:
    """Return the most frequent value of a column for each value of its source."""
    keys, values = Levels.fit(str(source), frame[source]), Levels.fit(str(name), frame[name])
    pairs = keys.codes(frame[source]) * len(values) + values.codes(frame[name])
    met, counts = np.unique(pairs, return_counts=True)
    place = np.zeros(len(keys), dtype=np.int64)
    by_count = met[np.argsort(counts, kind="stable")]
    place[by_count // len(values)] = by_count % len(values)  # the most frequent one comes last, and stays
    return Lookup(name, source, keys, values, place)


def value_codes(column: pd.Series) -> IntArray:
    """Return numbers of the different values of a column in their order; a missing value is the last one."""
    codes, _ = pd.factorize(column, sort=has_order(column.dtype), use_na_sentinel=False)
    return codes.astype(np.int64)


def _in_order(lookups: list[Lookup]) -> list[Lookup]:
    """Return lookups so that a source is made before it is needed."""
    waiting, ordered = list(lookups), []
    while waiting:
        made_later = {lookup.column for lookup in waiting}
        ready = [lookup for lookup in waiting if lookup.source not in made_later] or waiting[:1]
        ordered += ready
        waiting = [lookup for lookup in waiting if all(lookup is not other for other in ready)]
    return ordered

"""Columns that follow from others: recognised on the training rows, then computed instead of drawn.

A recipe says which columns it makes, from which other columns, and which helper columns are drawn in their place. One
kind of relation has no recipe: a finer code and its class are both drawn, the code among the codes of the class.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.codec.one_column import Levels
from fairflows.release.number_ranges import grid_of_most
from fairflows.table.columns import floats, from_numbers, has_order, is_number, is_time, numbers
from fairflows.table.grid import Grid

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Frame = dict[Hashable, pd.Series]

_NEARLY_ALL = 0.999  # share of the rows in which a relation must hold
_ROWS_TRIED = 12  # rows on which all formulas are tried, before all rows decide
_MOST_TRIED = 6  # formulas of one column, and of two, that all rows decide on
_ROWS_OF_SUMS = 1_000
_MOST_NUMBERS = 100  # columns that formulas are looked for in: their number grows with its third power
_FEW = 8  # a column with so few values is not computed by a formula, nor part of one
_MOST_PARTS = 60  # of a sum
_ROWS_COMPARED = 1_000
_MOST_ERROR = 0.02  # of the spread of a column, for a formula that leaves a rest
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

    def helpers(self, frame: pd.DataFrame) -> Frame:
        """Return the column that is drawn instead: the place of the 1, or −1 where there is none."""
        is_one = np.stack([floats(frame[name].astype(float)) > 0 for name in self.columns], axis=1)
        which = np.where(is_one.any(axis=1), is_one.argmax(axis=1), -1)
        return {self.helper: pd.Series(which).astype(str)}

    def compute(self, columns: Frame) -> Frame:
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

    def helpers(self, frame: pd.DataFrame) -> Frame:
        """Return no column: nothing is drawn instead."""
        return {}

    def compute(self, columns: Frame) -> Frame:
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

    def helpers(self, frame: pd.DataFrame) -> Frame:
        """Return the day, and the time that has passed since it began."""
        times = pd.Series(_plain_times(frame[self.column]))
        days = times.dt.normalize()
        return dict(zip(self.inputs, (days, times - days), strict=True))

    def compute(self, columns: Frame) -> Frame:
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


FORMS: dict[str, Callable[..., FloatArray]] = {
    "{0}": lambda x: x,
    "{0}²": lambda x: x**2,
    "ln {0}": lambda x: np.log(x),
    "log10 {0}": lambda x: np.log10(x),
    "exp {0}": lambda x: np.exp(x),
    "{0} + {1}": lambda x, y: x + y,
    "{0} − {1}": lambda x, y: x - y,
    "{1} − {0}": lambda x, y: y - x,
    "{0} · {1}": lambda x, y: x * y,
    "{0} / {1}": lambda x, y: x / y,
    "{1} / {0}": lambda x, y: y / x,
    "{0} / {1}²": lambda x, y: x / y**2,
    "{1} / {0}²": lambda x, y: y / x**2,
    "sum": lambda *parts: np.sum(parts, axis=0),
}
"""Formulas among numeric columns: z = a + b · form(x, y), with a = 0 but for one column alone."""


@dataclass(frozen=True)
class Formula:
    """A numeric column that is computed from one, two or more others, with or without a rest that is drawn."""

    column: Hashable
    sources: list[Hashable]
    form: str
    shift: float  # a
    factor: float  # b
    grid: Grid | None  # of the column: computed values are rounded to it
    dtype: Any
    rest_decimals: int | None  # the rest is rounded to so many decimals; None where nothing is left to draw
    has_gaps: bool  # whether values are missing where all sources are known

    @property
    def columns(self) -> list[Hashable]:
        """The columns that are computed."""
        return [self.column]

    @property
    def helper(self) -> str:
        """The name of the column that is drawn instead, if there is one."""
        return f"{self.column}: rest"

    @property
    def has_rest(self) -> bool:
        """Whether something is left to draw."""
        return self.rest_decimals is not None or self.has_gaps

    def _exact(self, columns: Frame | pd.DataFrame) -> FloatArray:
        with np.errstate(all="ignore"):
            value = self.shift + self.factor * FORMS[self.form](*(floats(columns[name]) for name in self.sources))
        return np.where(np.isfinite(value), value, np.nan)

    def helpers(self, frame: pd.DataFrame) -> Frame:
        """Return the rest: the column minus its formula; missing where the column is."""
        if not self.has_rest:
            return {}
        rest = floats(frame[self.column]) - self._exact(frame)
        rest = (
            np.round(rest, self.rest_decimals)
            if self.rest_decimals is not None
            else np.where(np.isnan(rest), rest, 0.0)
        )
        return {self.helper: pd.Series(rest)}

    def compute(self, columns: Frame) -> Frame:
        """Compute the column; it is missing where a source or the rest is missing."""
        value = self._exact(columns)
        if self.has_rest:
            value = value + floats(columns[self.helper])
        return {self.column: self._as_column(value)}

    def _as_column(self, value: FloatArray) -> pd.Series:
        is_known = np.isfinite(value)
        known = np.where(is_known, value, value[is_known][0] if is_known.any() else 0.0)
        if is_time(self.dtype):
            ticks = np.rint(known * 1e6).astype(np.int64).view(f"{self.dtype.kind}8[us]")
            return from_numbers(ticks, self.dtype).mask(~is_known)
        kind = getattr(self.dtype, "numpy_dtype", self.dtype)
        if self.grid is None:
            values = known.astype(kind)
        else:
            ticks = np.rint(known * 10.0**self.grid.decimals) / 10.0**self.grid.decimals
            values = np.rint(ticks).astype(kind) if np.dtype(kind).kind in "iu" else ticks.astype(kind)
        column = from_numbers(values, self.dtype)
        return column if is_known.all() else column.mask(~is_known)

    def __str__(self) -> str:
        factor, shift = (f"{value:.6g}" for value in (self.factor, self.shift))
        text = " + ".join(map(str, self.sources)) if self.form == "sum" else self.form.format(*self.sources)
        text = text if self.factor == 1 else f"{factor} · ({text})"
        text = text if self.shift == 0 else f"{shift} + {text}"
        return f"{self.column} = {text}" + (", and a rest" if self.rest_decimals is not None else "")


Recipe = Flags | Lookup | DayAndTime | Formula


def find_recipes(frame: pd.DataFrame) -> list[Recipe]:
    """Find columns that follow from others; what a recipe needs is either drawn, or made by an earlier recipe."""
    formulas = _formulas(frame)
    computed = {formula.column for formula in formulas}
    free = frame[[name for name in frame if name not in computed]]
    return [*_times(free), *_flags(free), *formulas]


def _times(frame: pd.DataFrame) -> Iterator[DayAndTime]:
    for name, column in frame.items():
        if is_time(column.dtype) and column.dtype.kind == "M" and column.notna().any():
            times = pd.Series(_plain_times(column)).dropna()
            if (times != times.dt.normalize()).mean() > 1 - _NEARLY_ALL:
                yield DayAndTime(name, column.dtype)


def _flags(frame: pd.DataFrame) -> Iterator[Flags]:
    """Find groups of columns of zeros and ones that exclude each other, though by chance some rows would have two."""
    names = [name for name, column in frame.items() if _is_flag(column)]
    if len(names) < 2:
        return
    ones = np.stack([floats(frame[name].astype(float)) for name in names], axis=1).astype(np.float32)
    together, share = ones.T @ ones, ones.mean(axis=0)
    by_chance = np.outer(share, share) * len(frame)
    excludes = (together == 0) & (by_chance >= 10)
    free = list(range(len(names)))
    while free:
        group = [free.pop(0)]
        for other in list(free):
            alone = np.array([excludes[other, member] or together[other, member] == 0 for member in group])
            fills = share[group].sum() + share[other]
            if alone.all() and (excludes[other, group].any() or np.isclose(fills, 1)):
                group.append(other)
        if len(group) > 1:
            free = [other for other in free if other not in group]
            columns = [names[i] for i in group]
            yield Flags(columns, [frame[name].dtype for name in columns])


def _is_flag(column: pd.Series) -> bool:
    if not (is_number(column.dtype) or column.dtype == bool) or column.isna().any():
        return False
    values = np.asarray(column.unique())
    return len(values) == 2 and set(values.tolist()) == {0, 1}


def _formulas(frame: pd.DataFrame) -> list[Formula]:
    """Find columns of numbers or times that are computed from others; times count in seconds."""
    names = [name for name, column in frame.items() if has_order(column.dtype) and column.nunique() > _FEW]
    names = names[:_MOST_NUMBERS]
    values = {name: floats(frame[name]) for name in names}
    found: list[Formula] = []
    sources: set[Hashable] = set()  # which must stay free
    for name in reversed(names):  # what is computed usually comes after its sources
        others = [other for other in names if other != name and all(other not in recipe.columns for recipe in found)]
        if name in sources or not others:
            continue
        recipe = _formula_of(name, others, values, frame[name])
        if recipe is not None:
            found.append(recipe)
            sources |= set(recipe.sources)
    return found


def _formula_of(
    name: Hashable, others: list[Hashable], values: dict[Hashable, FloatArray], column: pd.Series
) -> Formula | None:
    """Find the formula of one column."""
    z, grid = values[name], grid_of_most(numbers(column.dropna()))
    candidates = _candidates(z, others, values)
    best: Formula | None = None
    for form, chosen in candidates:
        recipe = _fitted(name, z, form, chosen, values, grid, column)
        if recipe is not None and recipe.rest_decimals is None:
            return recipe
        best = best or recipe
    return best


def _candidates(
    z: FloatArray, others: list[Hashable], values: dict[Hashable, FloatArray]
) -> list[tuple[str, list[Hashable]]]:
    """Return the formulas that hold, roughly, in a few rows: those of one column first."""
    matrix = np.stack([values[name] for name in others])
    rows = np.flatnonzero(~np.isnan(z))
    generator = np.random.default_rng(0)
    found: list[tuple[float, str, list[Hashable]]] = []
    rows = generator.permutation(rows)[: 20 * _ROWS_TRIED]
    spread = float(np.std(z[rows])) or 1.0
    ones = np.arange(len(others))
    first, second = np.array(list(combinations(range(len(others)), 2)), dtype=int).reshape(-1, 2).T
    for form, compute in FORMS.items():
        if form == "sum":
            continue
        pair = (ones,) if "{1}" not in form else (first, second)
        some = rows[: 3 * _ROWS_TRIED]
        with np.errstate(all="ignore"):
            made = compute(*(matrix[np.ix_(side, some)] for side in pair))
            shift, factor = _line(made, z[some], form)
            error = np.abs(shift[:, None] + factor[:, None] * made - z[some])
        known = np.isfinite(error)
        worst = np.where(known.sum(axis=1) >= _ROWS_TRIED, np.where(known, error, 0).max(axis=1), np.inf)
        for place in np.flatnonzero(worst <= max(4 * _MOST_ERROR * spread, 1.0)).tolist():
            found.append((float(worst[place]), form, [others[side[place]] for side in pair]))
    found.sort(key=lambda item: item[0])
    of_one, of_two = ([(form, c) for _, form, c in found if len(c) == n][:_MOST_TRIED] for n in (1, 2))
    parts = _parts_of_sum(z, others, matrix)
    return [*of_one, *of_two, *([("sum", parts)] if parts else [])]


def _line(made: FloatArray, z: FloatArray, form: str) -> tuple[FloatArray, FloatArray]:
    """Return a and b of z ≈ a + b · made, for each row of `made`; a = 0 for a formula of two columns."""
    is_known = np.isfinite(made)
    if "{1}" in form:
        ratio = np.where(is_known & (made != 0), z / np.where(made == 0, 1, made), np.nan)
        return np.zeros(len(made)), _round_figure(_medians(ratio))
    n = np.maximum(is_known.sum(axis=1), 1)
    mean_x, mean_z = (
        np.where(is_known, values, 0).sum(axis=1) / n for values in (made, np.broadcast_to(z, made.shape))
    )
    x, y = (np.where(is_known, values, 0) for values in (made - mean_x[:, None], z - mean_z[:, None]))
    slope = _round_figure((x * y).sum(axis=1) / (x**2).sum(axis=1))
    return _round_figure(mean_z - slope * mean_x), slope


def _medians(values: FloatArray) -> FloatArray:
    """Return the median of the known values of each row; NaN where none is known."""
    ordered = np.sort(values, axis=1)  # NaN comes last
    middle = np.maximum((~np.isnan(values)).sum(axis=1) - 1, 0) // 2
    return np.take_along_axis(ordered, middle[:, None], axis=1)[:, 0]


def _round_figure(values: FloatArray) -> FloatArray:
    """Return values rounded to a whole number, or to four digits, where that is next to no change."""
    whole = np.rint(values)
    with np.errstate(all="ignore"):
        digits = 10.0 ** (4 - np.ceil(np.log10(np.maximum(np.abs(values), 1e-300))))
        short = np.rint(values * digits) / digits
    close = np.abs(whole - values) < 1e-3 * np.maximum(np.abs(values), 1e-3)
    return np.where(close, whole, np.where(np.abs(short - values) < 1e-5 * np.abs(values), short, values))


def _parts_of_sum(z: FloatArray, others: Sequence[Hashable], matrix: FloatArray) -> list[Hashable]:
    """Return three columns or more whose sum is z, among the columns that never exceed it."""
    known = np.flatnonzero(~np.isnan(z) & ~np.isnan(matrix).any(axis=0))
    if len(known) < 10 * _MOST_PARTS:
        return []
    known = np.random.default_rng(1).permutation(known)[:_ROWS_OF_SUMS]
    x, total = matrix[:, known], z[known]
    inside = np.flatnonzero(((x >= 0) & (x <= total)).all(axis=1) & (x > 0).any(axis=1))
    if not 3 <= len(inside) <= _MOST_PARTS:
        return []
    weights = np.linalg.lstsq(x[inside].T, total, rcond=None)[0]
    parts = inside[weights > 0.5]
    return [others[i] for i in parts] if len(parts) >= 3 and np.allclose(x[parts].sum(axis=0), total) else []


def _fitted(
    name: Hashable,
    z: FloatArray,
    form: str,
    sources: list[Hashable],
    values: dict[Hashable, FloatArray],
    grid: Grid | None,
    column: pd.Series,
) -> Formula | None:
    """Return the formula if it holds in nearly all rows, with as small a rest as it leaves."""
    with np.errstate(all="ignore"):
        made = FORMS[form](*(values[source] for source in sources))
    made = np.where(np.isfinite(made), made, np.nan)
    both = ~np.isnan(made) & ~np.isnan(z)
    if both.sum() < _NEARLY_ALL * (~np.isnan(z)).sum() or not both.any():
        return None
    with np.errstate(all="ignore"):
        line = _line(made[None, both], z[both], form)
    shift, factor = (0.0, 1.0) if form == "sum" else (float(line[0][0]), float(line[1][0]))
    has_gaps = bool(np.isnan(z[~np.isnan(made)]).mean() > 1 - _NEARLY_ALL)
    recipe = Formula(name, sources, form, shift, factor, grid, column.dtype, None, has_gaps)
    rest = z[both] - (shift + factor * made[both])
    quantum = 0.0 if grid is None else 1e-6 if is_time(column.dtype) else grid.quantum
    computed = floats(recipe._as_column(shift + factor * made[both]))
    step = max(quantum, 1e-9 * float(np.abs(z[both]).max()))
    if np.mean(np.abs(computed - z[both]) < step / 2) >= _NEARLY_ALL:
        return recipe
    spread = float(np.quantile(z[both], 0.95) - np.quantile(z[both], 0.05))
    error = float(np.quantile(np.abs(rest), _NEARLY_ALL))
    rounded = (
        quantum >= 1 and spread >= 20 * quantum
    )  # the age in a year is that year minus the year of birth, or less 1
    if is_time(column.dtype) or error > (
        max(_MOST_ERROR * spread, 1.01 * quantum) if rounded else _MOST_ERROR * spread
    ):
        return None
    decimals = 6 if grid is None else max(grid.decimals, 0)
    return Formula(name, sources, form, shift, factor, grid, column.dtype, decimals, has_gaps)


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

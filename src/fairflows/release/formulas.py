"""Columns of numbers or times that are computed from others: found on the training rows, exact or with a rest.

A formula is z = a + b · f(x, y) with a function f of one or two columns, or a weighted sum of columns. Where it does
not hold exactly, the rest z − a − b · f(x, y) is drawn in place of z, if it varies far less than z does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.release.number_ranges import grid_of_most
from fairflows.table.columns import floats, from_numbers, has_order, is_time, numbers

FloatArray = npt.NDArray[np.float64]
Columns = dict[Hashable, pd.Series]
Values = dict[Hashable, FloatArray]

_NEARLY_ALL = 0.999  # share of the rows in which a formula must hold
_OF_OTHERS = 0.99  # the same among rows that do not have the most frequent value
_FEWEST_ROWS = 20  # without the most frequent value
_ROWS_TRIED = 36  # rows on which all formulas are tried, before all rows decide
_MOST_TRIED = 6  # formulas of one column, and of two, that all rows decide on
_MOST_COLUMNS = 100  # in which formulas are looked for: the time grows with the third power
_FEW = 8  # a column with so few values is not computed by a formula, nor part of one
_MOST_PARTS = 60  # of a sum
_ROWS_OF_SUMS = 1_000
_MOST_ERROR = 0.02  # of the spread of a column, for a formula that leaves a rest
_MOST_TYPICAL_ERROR = 0.1  # the same for times, of which a few may be far apart
_NEARLY_WHOLE = 0.05
_ONE_SIGN = 0.95  # share of the rows in which one time comes before another
_MICROSECOND = 1e-6
_SUM = "sum"
_DIFFERENCE = "{0} − {1}"

FUNCTIONS: dict[str, Callable[..., FloatArray]] = {
    "{0}": lambda x: x,
    "{0}²": lambda x: x**2,
    "ln {0}": lambda x: np.log(x),
    "log10 {0}": lambda x: np.log10(x),
    "exp {0}": lambda x: np.exp(x),
    "{0} + {1}": lambda x, y: x + y,
    _DIFFERENCE: lambda x, y: x - y,
    "{0} · {1}": lambda x, y: x * y,
    "{0} / {1}": lambda x, y: x / y,
    "{1} / {0}": lambda x, y: y / x,
    "{0} / {1}²": lambda x, y: x / y**2,
    "{1} / {0}²": lambda x, y: y / x**2,
}
"""Functions of one or two columns."""


@dataclass(frozen=True)
class Formula:
    """A column of numbers or times that is computed from others, with or without a rest that is drawn."""

    column: Hashable
    sources: list[Hashable]
    form: str  # one of `FUNCTIONS`, or "sum"
    shift: float
    weights: list[float]  # of the function, or of each column of the sum
    decimals: int | None  # computed values are rounded to so many decimals; None for a column without a grid
    dtype: Any
    has_rest: bool = False
    has_gaps: bool = False  # whether the column is missing in rows in which all sources are known

    @property
    def columns(self) -> list[Hashable]:
        """The columns that are computed."""
        return [self.column]

    @property
    def helper(self) -> str:
        """The name of the column that is drawn instead, if there is one."""
        return f"{self.column}: rest"

    def exact(self, columns: Columns | Values | pd.DataFrame) -> FloatArray:
        """Return the value of the formula; NaN where it cannot be computed."""
        sources = [floats(pd.Series(columns[name])) for name in self.sources]
        with np.errstate(all="ignore"):
            if self.form == _SUM:
                value = self.shift + sum(weight * source for weight, source in zip(self.weights, sources, strict=True))
            else:
                value = self.shift + self.weights[0] * FUNCTIONS[self.form](*sources)
        return np.where(np.isfinite(value), value, np.nan)

    def helpers(self, frame: pd.DataFrame) -> Columns:
        """Return the rest: the column minus its formula, missing where the column is missing."""
        if not (self.has_rest or self.has_gaps):
            return {}
        rest = floats(frame[self.column]) - self.exact(frame)
        if not self.has_rest:
            rest = np.where(np.isnan(rest), rest, 0.0)
        return {self.helper: pd.Series(np.round(rest, 6 if self.decimals is None else max(self.decimals, 0)))}

    def compute(self, columns: Columns) -> Columns:
        """Compute the column; it is missing where a source or the rest is missing."""
        value = self.exact(columns)
        if self.has_rest or self.has_gaps:
            value = value + floats(columns[self.helper])
        return {self.column: self.as_column(value)}

    def as_column(self, value: FloatArray) -> pd.Series:
        """Return values in the type of the column, rounded to its grid."""
        is_known = np.isfinite(value)
        known = np.where(is_known, value, value[is_known][0] if is_known.any() else 0.0)
        if is_time(self.dtype):
            ticks = np.rint(known / _MICROSECOND).astype(np.int64).view(f"{self.dtype.kind}8[us]")
            return from_numbers(ticks, self.dtype).mask(~is_known)
        kind = np.dtype(getattr(self.dtype, "numpy_dtype", self.dtype))
        if self.decimals is not None:
            known = np.rint(known * 10.0**self.decimals) / 10.0**self.decimals
        column = from_numbers((np.rint(known) if kind.kind in "iu" else known).astype(kind), self.dtype)
        return column if is_known.all() else column.mask(~is_known)

    def __str__(self) -> str:
        if self.form == _SUM:
            parts = zip(self.weights, self.sources, strict=True)
            text = " + ".join(f"{name}" if weight == 1 else f"{weight:.6g} · {name}" for weight, name in parts)
        else:
            text = self.form.format(*self.sources)
            text = text if self.weights == [1] else f"{self.weights[0]:.6g} · ({text})"
        text = text if self.shift == 0 else f"{self.shift:.6g} + {text}"
        return f"{self.column} = {text}" + (" + a rest" if self.has_rest else "")


def find_formulas(frame: pd.DataFrame) -> list[Formula]:
    """Find columns of numbers or times that are computed from others; times count in seconds.

    Formulas come in the order in which they are computed: a source is drawn, or computed before.
    """
    names = [name for name, column in frame.items() if has_order(column.dtype) and column.nunique() > _FEW]
    names = names[:_MOST_COLUMNS]
    values = {name: floats(frame[name]) for name in names}
    found: dict[Hashable, Formula] = {}
    for name in reversed(names):  # computed columns usually come after their sources
        if name in found:
            continue
        others = [other for other in names if name not in _needed(other, found)]
        formula = _formula_of(name, others, values, frame) if others else None
        if formula is not None:
            turned = _turned(formula, values, frame)
            if turned is not None and _is_free(turned, found):
                formula = turned
            found[formula.column] = formula
    return _in_order(found)


def _needed(name: Hashable, found: dict[Hashable, Formula]) -> set[Hashable]:
    """Return a column, and all columns that it is computed from."""
    sources = found[name].sources if name in found else []
    return {name}.union(*(_needed(source, found) for source in sources))


def _is_free(formula: Formula, found: dict[Hashable, Formula]) -> bool:
    """Whether the column is not computed yet, and none of its sources is computed from it."""
    needed = set().union(*(_needed(source, found) for source in formula.sources))
    return formula.column not in found and formula.column not in needed


def _in_order(found: dict[Hashable, Formula]) -> list[Formula]:
    """Return formulas so that a source is computed before it is needed."""
    return sorted(found.values(), key=lambda formula: len(_needed(formula.column, found)))


def _formula_of(name: Hashable, others: list[Hashable], values: Values, frame: pd.DataFrame) -> Formula | None:
    """Return an exact formula of a column, or else one that leaves a rest."""
    with_rest: Formula | None = None
    for form, sources in _candidates(values[name], others, values):
        if not _has_sense(form, [frame[column].dtype.kind == "M" for column in (name, *sources)]):
            continue
        formula = _checked(_fitted(name, form, sources, values, frame[name]), values)
        if formula is not None and not formula.has_rest:
            return formula
        with_rest = with_rest or formula
    if frame[name].dtype.kind == "M":
        return _nearest_time(name, [other for other in others if frame[other].dtype.kind == "M"], values, frame)
    return with_rest


def _has_sense(form: str, are_times: list[bool]) -> bool:
    """Whether times are only shifted or subtracted; the column comes before its sources."""
    if not any(are_times):
        return True
    if are_times[0]:
        return form in ("{0}", "{0} + {1}", _DIFFERENCE) and sum(are_times) == 2
    return form == _DIFFERENCE and all(are_times[1:])


def _nearest_time(name: Hashable, others: list[Hashable], values: Values, frame: pd.DataFrame) -> Formula | None:
    """Return a time as the nearest other time plus a rest, preferably one that nearly always comes before or after."""
    best, least = None, np.inf
    for other in others:
        formula = Formula(name, [other], "{0}", 0.0, [1.0], None, frame[name].dtype)
        rest = values[name] - values[other]
        rest = rest[~np.isnan(rest)]
        if _checked(formula, values) is None:
            continue
        has_one_sign = max(np.mean(rest >= 0), np.mean(rest <= 0)) > _ONE_SIGN
        error = float(np.median(np.abs(rest))) * (1 if has_one_sign else 3)
        if error < least:
            best, least = _checked(formula, values), error
    return best


def _candidates(z: FloatArray, others: list[Hashable], values: Values) -> list[tuple[str, list[Hashable]]]:
    """Return the formulas that hold roughly in a few rows: those of one column first, then of two, then sums."""
    known = np.flatnonzero(~np.isnan(z))
    rows = np.random.default_rng(0).permutation(known)[:_ROWS_TRIED]
    some, target = np.stack([values[name][rows] for name in others]), z[rows]
    most = max(4 * _MOST_ERROR * float(np.std(target)), 1.0)
    alone = np.arange(len(others))
    pairs = np.array(list(combinations(range(len(others)), 2)), dtype=np.intp).reshape(-1, 2).T
    found: dict[int, list[tuple[float, str, list[Hashable]]]] = {1: [], 2: []}
    for form, function in FUNCTIONS.items():
        sides = tuple(pairs) if "{1}" in form else (alone,)
        with np.errstate(all="ignore"):
            made = function(*(some[side] for side in sides))
            shift, weight = _line(made, target, form)
            error = np.abs(shift[:, None] + weight[:, None] * made - target)
        is_known = np.isfinite(error)
        # A typical error, not the largest: times may be far apart in a few rows.
        typical = np.where(
            is_known.sum(axis=1) >= _ROWS_TRIED // 3, _medians(np.where(is_known, error, np.nan)), np.inf
        )
        for place in np.flatnonzero(typical <= most).tolist():
            found[len(sides)].append((float(typical[place]), form, [others[side[place]] for side in sides]))
    best = [sorted(group, key=lambda item: item[0])[:_MOST_TRIED] for group in found.values()]
    parts = _parts_of_sum(z, others, values)
    return [(form, sources) for group in best for _, form, sources in group] + ([(_SUM, parts)] if parts else [])


def _fitted(name: Hashable, form: str, sources: list[Hashable], values: Values, column: pd.Series) -> Formula:
    """Return the formula with its numbers; sums and differences of two columns become weighted sums."""
    grid = grid_of_most(numbers(column.dropna()))
    decimals = None if grid is None or is_time(column.dtype) else grid.decimals
    plain = Formula(name, sources, form, 0.0, [1.0] * (len(sources) if form == _SUM else 1), decimals, column.dtype)
    if form == _SUM:
        return plain
    with np.errstate(all="ignore"):
        shift, weight = (float(found[0]) for found in _line(plain.exact(values)[None], values[name], form))
    if form in ("{0} + {1}", _DIFFERENCE):
        if abs(weight - np.rint(weight)) < _NEARLY_WHOLE:  # the ratio of an age to two years is a little below 1
            weight = float(np.rint(weight))
        return replace(plain, form=_SUM, weights=[weight, -weight if form == _DIFFERENCE else weight])
    return replace(plain, shift=shift, weights=[weight])


def _checked(formula: Formula, values: Values) -> Formula | None:
    """Return the formula if it holds in nearly all rows, with a rest if it needs one."""
    z, made = values[formula.column], formula.exact(values)
    both = ~np.isnan(made) & ~np.isnan(z)
    if both.sum() < max(_NEARLY_ALL * (~np.isnan(z)).sum(), _FEWEST_ROWS):
        return None
    gaps = float(np.isnan(z[~np.isnan(made)]).mean())
    formula = replace(formula, has_gaps=gaps > 1 - _NEARLY_ALL)
    z, made = z[both], made[both]
    quantum = _quantum(formula)
    step = max(quantum, 1e-9 * float(np.abs(z).max()))
    holds = np.abs(floats(formula.as_column(made)) - z) < step / 2
    values_of, counts = np.unique(z, return_counts=True)
    is_other = z != values_of[counts.argmax()]
    if is_other.sum() < _FEWEST_ROWS:
        return None
    if holds.mean() >= _NEARLY_ALL and holds[is_other].mean() >= _OF_OTHERS:
        return formula
    return replace(formula, has_rest=True) if _is_small(z - made, z, is_other, quantum, formula.dtype) else None


def _quantum(formula: Formula) -> float:
    """Return the distance between neighbouring values of the column."""
    if is_time(formula.dtype):
        return _MICROSECOND
    return 0.0 if formula.decimals is None else 10.0**-formula.decimals


def _is_small(rest: FloatArray, z: FloatArray, is_other: npt.NDArray[np.bool_], quantum: float, dtype: Any) -> bool:
    """Whether the rest of a formula varies far less than the column does."""
    spread = float(np.quantile(z[is_other], 0.95) - np.quantile(z[is_other], 0.05))
    if is_time(dtype):
        return float(np.quantile(np.abs(rest - np.median(rest)), 0.75)) <= _MOST_TYPICAL_ERROR * spread
    most = _MOST_ERROR * spread
    if quantum >= 1 and spread >= 20 * quantum:  # an age is a year minus the year of birth, or one less
        most = max(most, 1.01 * quantum)
    return float(np.quantile(np.abs(rest[is_other]), _OF_OTHERS)) <= most


def _turned(formula: Formula, values: Values, frame: pd.DataFrame) -> Formula | None:
    """Return the formula solved for the source that varies most, if it varies far more than the column.

    The time in jail is the day of release minus the day of arrest. Of two days that are drawn one after the other the
    difference would be random, so the later day is computed from the time in jail instead.
    """
    if formula.form != _SUM or len(formula.sources) != 2 or formula.has_rest:
        return None
    spread = {name: float(np.nanstd(values[name])) for name in (formula.column, *formula.sources)}
    widest = max(formula.sources, key=lambda name: spread[name])
    if spread[widest] < 2 * spread[formula.column]:
        return None
    place = formula.sources.index(widest)
    other, weight = formula.sources[1 - place], formula.weights[place]
    turned = _fitted(widest, _SUM, [formula.column, other], values, frame[widest])
    turned = replace(turned, shift=-formula.shift / weight, weights=[1 / weight, -formula.weights[1 - place] / weight])
    found = _checked(turned, values)
    return None if found is None or found.has_rest else found


def _line(made: FloatArray, z: FloatArray, form: str) -> tuple[FloatArray, FloatArray]:
    """Return a and b of z ≈ a + b · made, for each row of `made`; a = 0 for a function of two columns."""
    is_known = np.isfinite(made) & np.isfinite(z)
    if "{1}" in form:
        ratio = np.where(is_known & (made != 0), z / np.where(made == 0, 1, made), np.nan)
        return np.zeros(len(made)), _round_figure(_medians(ratio))
    n = np.maximum(is_known.sum(axis=1), 1)
    mean_x, mean_z = (np.where(is_known, part, 0).sum(axis=1) / n for part in (made, np.broadcast_to(z, made.shape)))
    x, y = (np.where(is_known, part, 0) for part in (made - mean_x[:, None], z - mean_z[:, None]))
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
    is_whole = np.abs(whole - values) < 1e-3 * np.maximum(np.abs(values), 1e-3)
    return np.where(is_whole, whole, np.where(np.abs(short - values) < 1e-5 * np.abs(values), short, values))


def _parts_of_sum(z: FloatArray, others: Sequence[Hashable], values: Values) -> list[Hashable]:
    """Return three columns or more whose sum is z, among the columns that never exceed it."""
    rows = np.random.default_rng(1).permutation(np.flatnonzero(~np.isnan(z)))[:_ROWS_OF_SUMS]
    total = z[rows]
    inside = [
        name for name in others if (x := values[name][rows]).any() and ((x >= 0) & (x <= total)).all()
    ]  # a missing value is neither
    if not 3 <= len(inside) <= _MOST_PARTS or len(rows) < 2 * len(inside):
        return []
    parts = np.stack([values[name][rows] for name in inside])
    chosen = np.linalg.lstsq(parts.T, total, rcond=None)[0] > 0.5
    is_sum = chosen.sum() >= 3 and np.allclose(parts[chosen].sum(axis=0), total)
    return [name for name, is_part in zip(inside, chosen, strict=True) if is_part] if is_sum else []

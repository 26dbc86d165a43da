"""Formulas: a column of numbers or times that is arithmetic of other columns, found on the training rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd

from fairflows.codec.model_space import to_whole
from fairflows.encoder.base import FloatArray
from fairflows.release.number_ranges import grid_of_most
from fairflows.release.rules import BoolArray
from fairflows.table.columns import floats, from_numbers, has_order, is_number, is_time, numbers

Columns = dict[Hashable, pd.Series]
Values = dict[Hashable, FloatArray]

NEARLY_ALL = 0.999  # share of the rows in which a relation must hold
OF_OTHERS = 0.99  # the same among rows that do not have the most frequent value
_FREQUENT = 0.2  # share of the rows from which on a value of a column must follow from a value of a source
_FEWEST_ROWS = 20  # without the most frequent value, for a formula
ROWS_COMPARED = 1_000  # before all rows are
_ROWS_TRIED = 36  # rows on which all formulas are tried, before all rows decide
_MOST_TRIED = 8  # formulas of one column, and of two, that all rows decide on
_MOST_COLUMNS = 100  # in which formulas are looked for: the time grows with the third power
_MOST_PARTS = 60  # of a sum
_FEW = 8  # a column with so few values is not computed by a formula, nor part of one
_MOST_ERROR = 0.02  # of the spread of a column, for a formula that leaves a residual
_MOST_TIME_ERROR = 0.1  # the same for times, of which a quarter may be further apart
_MICROSECOND = 1e-6

LINEAR = "sum"
LOCAL_TIME = "local time"  # the sum of a day and a time of day, in the time zone of the column
FORMS: dict[str, Callable[..., FloatArray]] = {
    "{0}": lambda x: x,
    "{0}²": lambda x: x**2,
    "√{0}": lambda x: np.sqrt(x),
    "ln {0}": lambda x: np.log(x),
    "{0} + {1}": lambda x, y: x + y,
    "{0} − {1}": lambda x, y: x - y,
    "{0} · {1}": lambda x, y: x * y,
    "{0} / {1}": lambda x, y: x / y,
    "{0} / {1}²": lambda x, y: x / y**2,
}
"""Functions f of one column or two that are tried as a + b · f(x) and b · f(x, y)."""

_SIGNS = {"{0}": (1,), "{0} + {1}": (1, 1), "{0} − {1}": (1, -1)}  # of the forms that are weighted sums


@dataclass(frozen=True)
class Formula:
    """A column of numbers or times that is computed from others; times count in seconds."""

    column: Hashable
    sources: list[Hashable]
    form: str  # one of `FORMS`, or "sum" or "local time" for a weighted sum of all sources
    shift: float
    weights: list[float]  # of the function, or of each source of the sum
    decimals: int | None  # computed values are rounded to so many decimals; None for a column without a grid
    dtype: Any
    residual: str | None = None  # a helper column that is added, and that is missing where the column is missing

    def exact(self, columns: Columns | Values) -> FloatArray:
        """Return the value of the formula without the residual; NaN where it cannot be computed."""
        sources = [floats(pd.Series(columns[name])) for name in self.sources]
        with np.errstate(all="ignore"):
            parts = [FORMS[self.form](*sources)] if self.form in FORMS else sources
            value = self.shift + sum(weight * part for weight, part in zip(self.weights, parts, strict=True))
        return np.where(np.isfinite(value), value, np.nan)

    def compute(self, columns: Columns) -> pd.Series:
        """Compute the column; it is missing where a source or the residual is missing."""
        value = self.exact(columns)
        return self.as_column(value if self.residual is None else value + floats(columns[self.residual]))

    def as_column(self, value: FloatArray) -> pd.Series:
        """Return values in the type of the column, rounded to its grid."""
        is_known = np.isfinite(value)
        known = np.where(is_known, value, 0.0)
        if is_time(self.dtype):
            found = np.rint(known / _MICROSECOND).astype(np.int64).view(f"{self.dtype.kind}8[us]")
            if self.form == LOCAL_TIME:  # hours that a change of the clocks leaves out, or repeats, move to others
                is_first = np.ones(len(found), dtype=bool)
                local = pd.Series(found).dt.tz_localize(self.dtype.tz, is_first, "shift_forward")
                found = numbers(local)
        else:
            kind = np.dtype(getattr(self.dtype, "numpy_dtype", self.dtype))
            if self.decimals is not None:
                known = np.rint(known * 10.0**self.decimals) / 10.0**self.decimals
            found = to_whole(np.rint(known), kind) if kind.kind in "iu" else known.astype(kind)
        column = from_numbers(found, self.dtype)
        return column if is_known.all() else column.mask(~is_known)

    def __str__(self) -> str:
        terms = [f"({self.form.format(*self.sources)})"] if self.form in FORMS else self.sources
        text = " + ".join(f"{w:.6g} · {t}" if w != 1 else f"{t}" for w, t in zip(self.weights, terms, strict=True))
        text = text if self.shift == 0 else f"{self.shift:.6g} + {text}"
        return f"{self.column} = {text}" + ("" if self.residual is None else " + a residual")


def find_formulas(columns: Columns) -> list[Formula]:
    """Find columns of numbers or times that are computed from others, in the order of computing."""
    names = [name for name, column in columns.items() if has_order(column.dtype) and column.nunique() > _FEW]
    names = names[:_MOST_COLUMNS]
    values = {name: floats(columns[name]) for name in names}
    needed = {name: {name} for name in names}  # a column, and all columns that it is computed from
    found: list[Formula] = []
    for name in reversed(names):  # computed columns usually come after their sources
        others = {other: columns[other] for other in names if name not in needed[other]}
        formula = _formula_of(columns[name].rename(name), others, values)
        if formula is not None:
            found.append(formula)
            sources = set().union(*(needed[source] for source in formula.sources))
            needed = {other: need | sources if name in need else need for other, need in needed.items()}
    return sorted(found, key=lambda formula: len(needed[formula.column]))


def _formula_of(column: pd.Series, others: Columns, values: Values) -> Formula | None:
    """Return an exact formula of a column, or else the first one that leaves a small residual."""
    grid = grid_of_most(numbers(column.dropna())) if column.notna().any() else None
    decimals = None if grid is None or is_time(column.dtype) else grid.decimals
    plain = Formula(column.name, [], LINEAR, 0.0, [], decimals, column.dtype)
    is_moment = column.dtype.kind == "M"
    with_residual = None
    for form, sources, weights in _candidates(column, others, values, 0.0 if decimals is None else 10.0**-decimals):
        candidate = _fitted(replace(plain, form=form, sources=sources, weights=weights), values)
        # A difference of two times is a duration, a time plus a duration is a time; nothing else makes sense.
        are_times = [others[source].dtype.kind == "M" for source in sources]
        is_linear = candidate.form == LINEAR
        if is_moment and is_linear and sum(are_times) == len(sources) == 1 and candidate.weights != [1.0]:
            candidate = replace(candidate, shift=0.0, weights=[1.0])
        has_sense = np.dot(candidate.weights, are_times) == is_moment if is_linear else not any([is_moment, *are_times])
        has_sense |= is_number(column.dtype) and is_linear and are_times == [True]  # the age of a date of birth
        formula = _checked(candidate, values) if has_sense else None
        if formula is not None and formula.residual is None:
            return formula
        with_residual = with_residual or formula
    return with_residual


def _candidates(
    column: pd.Series, others: Columns, values: Values, quantum: float
) -> list[tuple[str, list[Hashable], list[float]]]:
    """Return the formulas that hold roughly in a few rows: those of one column first, then of two, then a long sum."""
    if not others:
        return []
    z, names = values[column.name], list(others)
    rows = np.random.default_rng(0).permutation(np.flatnonzero(~np.isnan(z)))[:_ROWS_TRIED]
    some, target = np.stack([values[name][rows] for name in names]), z[rows]
    with np.errstate(over="ignore"):
        most = max(4 * _MOST_ERROR * float(np.std(target)), 1.0) if len(rows) else 0.0
    places = {
        1: np.arange(len(names))[None],
        2: np.array([*permutations(range(len(names)), 2)], dtype=np.intp).reshape(-1, 2).T,
    }
    found: list[tuple[str, list[Hashable], list[float]]] = []
    for n_sources, sides in places.items():
        errors: list[tuple[float, float, str, list[Hashable]]] = []
        for form, function in FORMS.items():
            if ("{1}" in form) == (n_sources == 2):
                with np.errstate(all="ignore"):
                    made = function(*(some[side] for side in sides))
                    shift, weight = _line(made, target)
                    error = np.abs(shift[:, None] + weight[:, None] * made - target)
                # A typical error, not the largest: times may be far apart in a few rows.
                typical = _medians(np.where(np.isfinite(error), error, np.nan))
                typical[np.isfinite(error).sum(axis=1) < _ROWS_TRIED // 3] = np.inf
                # Of zeros in most rows the median tells nothing.
                mean = np.where(np.isfinite(error), error, 0).mean(axis=1)
                best = np.lexsort((mean, typical))[:_MOST_TRIED]
                for place in best[typical[best] <= most]:
                    errors.append((typical[place], mean[place], form, [names[side[place]] for side in sides]))
        found += [(form, sources, []) for *_, form, sources in sorted(errors, key=lambda e: e[:2])[:_MOST_TRIED]]
    parts, sign = _parts_of_sum(z, names, values, quantum)
    return found + ([(LINEAR, parts, [sign] * len(parts))] if parts else [])


def _parts_of_sum(z: FloatArray, names: list[Hashable], values: Values, quantum: float) -> tuple[list[Hashable], float]:
    """Return three columns or more whose sum is z, or 100 % less z or another whole, and the sign of the sum in z.

    The parts of a sum never exceed it. The parts of a whole may be rounded.
    """
    rows = np.random.default_rng(1).permutation(np.flatnonzero(~np.isnan(z)))[:ROWS_COMPARED]
    parts = np.stack([values[name][rows] for name in names], axis=1)
    is_positive = (parts >= 0).all(axis=0) & parts.any(axis=0)  # NaN is not
    for sign, is_part in ((1.0, is_positive & (parts <= z[rows, None]).all(axis=0)), (-1.0, is_positive)):
        if not 3 <= is_part.sum() <= min(_MOST_PARTS, len(rows) / 2):
            continue
        x, goal, error = parts[:, is_part], sign * z[rows], 0.0
        if sign < 0:
            x, goal, error = x - x.mean(axis=0), goal - goal.mean(), quantum * (1 + is_part.sum()) / 2
        chosen = np.linalg.lstsq(x, goal, rcond=None)[0] > 0.5
        if chosen.sum() >= 3 and np.allclose(x[:, chosen].sum(axis=1), goal, atol=1e-8 + error):
            return [names[place] for place in np.flatnonzero(is_part)[chosen]], sign
    return [], 0.0


def _fitted(formula: Formula, values: Values) -> Formula:
    """Return the formula with its numbers; a linear part becomes a weighted sum."""
    z = values[formula.column]
    if formula.form == LINEAR:
        return replace(formula, shift=float(_round_figure(_medians((z - formula.exact(values))[None]))[0]))
    made = replace(formula, weights=[1.0]).exact(values)
    shift, weight = (float(found[0]) for found in _line(made[None], z))
    shift = 0.0 if formula.decimals is not None and abs(shift) < 10.0**-formula.decimals / 2 else shift
    if formula.form == "ln {0}" and abs(weight * np.log(10) - 1) < 1e-4:
        weight = 1 / float(np.log(10))  # the logarithm to the base 10
    if formula.form not in _SIGNS:
        return replace(formula, shift=shift, weights=[weight])
    return replace(formula, form=LINEAR, shift=shift, weights=[sign * weight for sign in _SIGNS[formula.form]])


def _checked(formula: Formula, values: Values) -> Formula | None:
    """Return the formula if it holds in nearly all rows, with a residual if it needs one."""
    z, made = values[formula.column], formula.exact(values)
    both = ~np.isnan(made) & ~np.isnan(z)
    if both.sum() < max(NEARLY_ALL * (~np.isnan(z)).sum(), _FEWEST_ROWS):
        return None
    has_gaps = float(np.isnan(z[~np.isnan(made)]).mean()) > 1 - NEARLY_ALL
    z, made = z[both], made[both]
    quantum = _MICROSECOND if is_time(formula.dtype) else 10.0**-formula.decimals if formula.decimals is not None else 0
    different, counts = np.unique(z, return_counts=True)
    is_other = z != different[counts.argmax()]
    if is_other.sum() < _FEWEST_ROWS or not _keeps_frequent_value(formula, values, both, ~is_other):
        return None
    holds = np.abs(floats(formula.as_column(made)) - z) < max(quantum, 1e-9 * float(np.abs(z).max())) / 2
    if holds.mean() >= NEARLY_ALL and holds[is_other].mean() >= OF_OTHERS:
        return replace(formula, residual=_residual_of(formula)) if has_gaps else formula
    residual, spread = z - made, float(np.subtract(*np.quantile(z[is_other], [0.95, 0.05])))
    if is_time(formula.dtype):
        is_small = float(np.quantile(np.abs(residual - np.median(residual)), 0.75)) <= _MOST_TIME_ERROR * spread
    else:  # an age is a year minus the year of birth, or one less
        step = 1.01 * quantum if quantum >= 1 and spread >= 20 * quantum else 0.0
        is_small = float(np.quantile(np.abs(residual[is_other]), OF_OTHERS)) <= max(_MOST_ERROR * spread, step)
    if not is_small:
        return None
    # A formula that does not hold exactly has the numbers of a few rows; the residual takes up their last digits.
    step = 10.0 ** (np.floor(np.log10(max(spread, 1e-300))) - 3)
    shift = float(np.rint(formula.shift / step) * step)
    weights = [float(f"{w:.4g}") for w in formula.weights]
    return replace(formula, shift=shift, weights=weights, residual=_residual_of(formula))


def _residual_of(formula: Formula) -> str:
    return f"{formula.column}: residual"


def _keeps_frequent_value(formula: Formula, values: Values, both: BoolArray, has_it: BoolArray) -> bool:
    """Whether a value that many rows have is kept where the sources are drawn, one after the other.

    The difference of two numbers that vary is nearly never 0, though it is 0 in most rows of the table: these numbers
    are drawn from ranges. So one of several sources must have one value in most of the rows that have it.
    """
    if len(formula.sources) == 1 or has_it.mean() < _FREQUENT:
        return True
    sources = [values[name][both][has_it] for name in formula.sources]
    return any(np.unique(source, return_counts=True)[1].max() > len(source) / 2 for source in sources)


def residual_of_rows(formula: Formula, columns: Columns) -> pd.Series:
    """Return the column minus its formula, rounded as the column is."""
    residual = floats(columns[formula.column]) - formula.exact(columns)
    return pd.Series(np.round(residual, 6 if formula.decimals is None else max(formula.decimals, 0)))


def _line(made: FloatArray, z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a and b of z ≈ a + b · made for each row of `made`: medians, which a few odd values do not change."""
    with np.errstate(all="ignore"):
        steps = np.diff(z) / np.diff(made, axis=1)
        steepness = _medians(np.where(np.isfinite(steps), steps, np.nan))
        weight = np.where(np.abs(steepness) < 1e-6, steepness, _round_figure(steepness))
        return _round_figure(_medians(z - weight[:, None] * made)), weight


def _medians(values: FloatArray) -> FloatArray:
    """Return the median of the known values of each row; NaN where none is known."""
    ordered = np.sort(values, axis=1)  # NaN comes last
    middle = np.maximum((~np.isnan(values)).sum(axis=1) - 1, 0) // 2
    return np.take_along_axis(ordered, middle[:, None], axis=1)[:, 0]


def _round_figure(values: FloatArray) -> FloatArray:
    """Return values rounded to a whole number, or to four digits, if that changes next to nothing."""
    whole = np.rint(values)
    with np.errstate(all="ignore"):
        digits = 10.0 ** (4 - np.ceil(np.log10(np.maximum(np.abs(values), 1e-300))))
        short = np.rint(values * digits) / digits
    is_whole = np.abs(whole - values) < 1e-3 * np.maximum(np.abs(values), 1e-3)
    return np.where(is_whole, whole, np.where(np.abs(short - values) < 1e-5 * np.abs(values), short, values))

"""Columns to the model space of flows, and exactly back.

In model space (`Codec`) each feature goes through three steps, each of them invertible:

1. *Position.* A number on a grid becomes its grid index k, a category its level's number, and noise u in [0, 1) is
   added (p = k + u), so that no value is an atom; a number without a grid becomes its place in the training range.
2. *Scaling* into [α/2, 1 − α/2]:  s = α/2 + (1 − α)·p / n,  with n the number of grid points or levels.
3. *Logit*:  x = log(s / (1 − s)), continued beyond the training range along its tangent. To a number, σ·N(0, 1) may be
   added here (*smoothing*), so that no density has to follow its grid, its heaps and its edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit, ndtri

from fairflows.arrays import NDArray
from fairflows.exceptions import DataError, warn_user
from fairflows.table.columns import (
    check_features,
    check_same,
    from_numbers,
    has_zone,
    is_time,
    missing,
    numbers,
    shown,
    training_kinds,
)
from fairflows.table.domain import Levels
from fairflows.table.grid import MAX_STEPS, Grid, find_grid
from fairflows.table.keys import Key, Secret, new_key
from fairflows.table.persons import Persons

Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

MARGIN = 1e-6
"""Noise stays this far from both ends of its step, in steps, so that rounding in a flow cannot move a value to the next
one. A column of very many steps, or a value as far outside, gets a wider margin: what float64 resolves there."""
_N_QUANTILES = 257  # of the known values, from which missing ones are drawn


class Scale:
    """The scale of a number or time column: the positions of training values fill [0, n]."""

    def __init__(self, name: str, dtype: Any, grid: Grid | None, low: Any, high: Any, is_noisy: bool) -> None:
        self.name = name
        self.dtype = dtype
        self.grid = grid  # that its values lie on; None for a continuous column
        self.low, self.high = low, high
        self.is_noisy = is_noisy  # whether positions are whole numbers that noise in [0, 1) is added to
        # log_width is the log of the training range in table units (times: in ticks of the column's own unit).
        if grid is None:
            self.n = 1.0
            self.log_width = float(np.log(as_float(high) - as_float(low)))
        else:
            # Without noise the largest value sits at the very end of the range, with noise one step before it.
            self.n = float(grid.n_steps if is_noisy else grid.n_steps - 1)
            self.log_width = float(np.log(self.n) + np.log(grid.quantum))

    @classmethod
    def fit(cls, name: str, known: pd.Series, kind: str, dequantise: bool) -> Scale:
        """Fit the scale of a column to its known values."""
        values = numbers(known)
        grid = None if kind == "continuous" else find_grid(values)
        if kind == "discrete" and grid is None:
            raise DataError(
                f"Column {name!r} is declared discrete, but its values lie on no grid of at most 2**40 steps, such as "
                f"integers or fixed decimals; the first is {known.iloc[0]}. Declare it continuous, or round it."
            )
        scale = cls(name, known.dtype, grid, values.min(), values.max(), is_noisy=dequantise and grid is not None)
        middle = np.linspace(0, 1, _N_QUANTILES)
        scale.quantiles = np.sort(values)[np.rint(middle * (len(values) - 1)).astype(np.intp)]
        return scale

    quantiles: np.ndarray

    def position(self, column: pd.Series) -> Array:
        """Return positions without noise; values between grid points are rounded to them."""
        is_of_type = column.dtype == self.dtype
        if not is_of_type:
            check_same(self.name, column, self.dtype)
        values = numbers(column)
        if not is_of_type and is_time(self.dtype):
            values = self._in_own_unit(values)
        distance = as_float(values) - as_float(self.low)
        if self.grid is None:
            return np.asarray(distance / (as_float(self.high) - as_float(self.low)), dtype=np.float64)
        with np.errstate(over="ignore"):
            steps = np.abs(distance) / self.grid.quantum
        far = steps > self.grid.n_steps + MAX_STEPS
        if far.any():
            raise DataError(
                f"Column {self.name!r} must lie within 2**40 steps of its training range, where noise can still be "
                f"told from the value; {int(far.sum()):,} values do not, the first is {shown(column[far].iloc[0])}."
            )
        return self.grid.index(values)[0].astype(np.float64)

    def _in_own_unit(self, times: np.ndarray) -> np.ndarray:
        """Return times in the column's own unit."""
        dtype = self.quantiles.dtype
        try:
            return pd.Series(times).dt.round(np.datetime_data(dtype)[0]).astype(dtype).to_numpy()
        except (pd.errors.OutOfBoundsDatetime, pd.errors.OutOfBoundsTimedelta):
            raise DataError(
                f"Column {self.name!r} must hold times that its type can hold, as in the rows it was fitted on "
                f"({self.dtype}); some are too far away."
            ) from None

    def column(self, position: Array) -> pd.Series:
        """Return the values at these positions."""
        dtype = self.quantiles.dtype
        if self.grid is not None:
            k = np.floor(position) if self.is_noisy else np.rint(position)
            k = np.clip(k, -MAX_STEPS, self.grid.n_steps + MAX_STEPS)  # what can be encoded again
            return from_numbers(self.grid.value(to_whole(k, np.dtype(np.int64)), dtype), self.dtype)
        low, high = as_float(self.low), as_float(self.high)
        values = low * (1 - position) + high * position  # exact at both ends, and never larger than both
        if dtype.kind in "iu":
            return from_numbers(to_whole(np.rint(values), dtype), self.dtype)
        if dtype.kind in "mM":
            return from_numbers(to_whole(np.rint(values), np.dtype(np.int64)).view(dtype), self.dtype)
        return from_numbers(values.astype(dtype), self.dtype)

    def fill(self, column: pd.Series, draw: Array) -> pd.Series:
        """Replace each missing value by a draw from the known ones."""
        missing = column.isna().to_numpy()
        values = self.quantiles[(draw * len(self.quantiles)).astype(np.intp)]
        if not missing.all():
            check_same(self.name, column, self.dtype)
            known = numbers(column[~missing])
            values = values.astype(np.result_type(values, known))
            values[~missing] = known
        filled = pd.Series(values)
        return filled.dt.tz_localize("UTC") if has_zone(self.dtype) else filled


def as_float(values: Any) -> Any:
    """Return numbers as float64, and times as ticks."""
    array = np.asarray(values)
    return (array.view(np.int64) if array.dtype.kind in "mM" else array).astype(np.float64)


def to_whole(values: Array, dtype: np.dtype) -> np.ndarray:
    """Convert to an integer type, clipped to its range, because a float may round past the end."""
    info = np.iinfo(dtype)
    top = np.nextafter(float(info.max), 0) if float(info.max) > info.max else float(info.max)
    clipped = np.clip(values, float(info.min), top).astype(dtype)
    return np.where(values >= float(info.max), info.max, clipped).astype(dtype)


class Codec:
    """Columns of a table to vectors in R^D and back.

    Values on a grid and categories come back bit for bit, but for the sign of a negative zero; others within rounding.
    Smoothed numbers come back so where it is said whose they are; else as they were smoothed, set on their grid. Later
    numbers between points of the grid are rounded to it, and numbers outside the training range continue along the
    map's tangent. ``names_`` says what each of the D dimensions of model space holds.

    Parameters
    ----------
    alpha : float
        The training range is scaled into [alpha/2, 1 − alpha/2].
    dequantise : bool
        Add noise to every value on a grid. Turn off only to reproduce results that were obtained without: values on a
        grid tell an adversary which encoder made them.
    smoothing : float
        σ of the normal noise that is added to numbers in model space; categories get none.
    key : bytes, default=None
        The secret behind the noise; a new one when not given. With it and a person's identifier one can subtract
        the noise.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [31, 45, 27], "town": ["Ulm", "Bonn", "Ulm"]})
    >>> codec = Codec().fit(frame)
    >>> x, log_det = codec.encode(frame, Persons.of(["ann", "bob", "eve"]))
    >>> x.shape, log_det.shape
    ((3, 2), (3,))
    >>> codec.decode(x).equals(frame)
    True
    """

    def __init__(
        self, *, alpha: float = 0.05, dequantise: bool = True, smoothing: float = 0.0, key: Secret | None = None
    ) -> None:
        if not 0 < alpha < 1:
            raise DataError(f"alpha must be in (0, 1); got {alpha!r}.")
        self.alpha = alpha
        self.dequantise = dequantise
        self.smoothing = smoothing
        self.key = new_key() if key is None else Key(key) if isinstance(key, bytes) else key

    def fit(self, X: pd.DataFrame, y: Any = None, kinds: Mapping[str, str] | None = None) -> Codec:
        """Learn grids, ranges and levels from training rows; categories are ordered by their rate of the label y."""
        kind_of = training_kinds(X, kinds)
        codes = None if y is None else np.unique(np.asarray(y), return_inverse=True)[1].astype(np.float64)
        self.columns_ = list(X.columns)
        self.constants_: dict[Any, tuple[Any, Any]] = {}
        self.scales_: dict[Any, Scale] = {}
        self.levels_: dict[Any, Levels] = {}
        self.gaps_: dict[Any, Levels] = {}  # for number columns with missing values: which values are missing
        for name, column in X.items():
            kind, known = kind_of[name], column.dropna()
            if known.nunique() <= 1 and (len(known) in (0, len(column)) or kind != "categorical"):
                self.constants_[name] = (known.iloc[0] if len(known) else None, column.dtype)
            elif kind == "categorical":
                self.levels_[name] = _levels_by_rate(str(name), column, codes)
            else:
                self.scales_[name] = Scale.fit(str(name), known, kind, self.dequantise)
            if 0 < len(known) < len(column) and kind != "categorical":
                self.gaps_[name] = Levels(self._gap_name(name), [False, True], np.dtype(bool))
        if not self.names_:
            raise DataError("Every column has a single value, so there is nothing to encode.")
        self._measure()
        self._warn_about_atoms(X)
        return self

    @property
    def names_(self) -> list[str]:
        """Content of each dimension of model space."""
        return [name for name, _ in self._dimensions()]

    @property
    def units_(self) -> tuple[Array, Array]:
        """Each dimension's place in table units: value = low + width·p/n (levels: their numbers; times: ticks)."""
        low = [as_float(part.low) if isinstance(part, Scale) else 0.0 for _, part in self._dimensions()]
        return np.array(low, dtype=np.float64), np.exp(self._log_width)

    def encode(self, X: pd.DataFrame, persons: Persons) -> tuple[Array, Array]:
        """Encode rows in model space; a named person's noise is always the same.

        Another value stands in for a category that training did not have, and for a value that is missing where none
        was: `Rows.encoding_group` says how such rows are treated.

        Returns
        -------
        x : ndarray of shape (n_rows, D)
        log_det : ndarray of shape (n_rows,)
            log |∂x/∂(table units)|, so that log p(table units) = log p(x) + log_det.
        """
        check_features(X)
        positions = self._positions(X, persons)
        for j, name in enumerate(self.names_):
            if self._noisy[j]:
                n = np.maximum(self._n[j], np.abs(positions[:, j]))
                positions[:, j] += self._noise(persons, name, n)
        x, slope = self._logit(positions)
        for j, noise in self._normal_noise(persons):
            x[:, j] += noise
            edge = self._edge(x[:, j])
            slope[:, j] = edge * (1 - edge)
        log_det = np.log1p(-self.alpha) * len(self._n) - self._log_width.sum() - np.log(slope).sum(axis=1)
        return x, log_det

    def decode(self, x: Array, persons: Persons | None = None) -> pd.DataFrame:
        """Return the rows of points in model space, without their smoothing where the rows' named persons are given."""
        x = np.array(x, dtype=np.float64)
        if not np.isfinite(x).all():
            raise DataError("x must be finite; it has NaN or infinity.")
        if persons is not None and persons.named:
            for j, noise in self._normal_noise(persons):
                x[:, j] -= noise
        positions = self._share(x) * self._n
        column_of = {name: positions[:, j] for j, name in enumerate(self.names_)}
        frame = {}
        for name in self.columns_:
            if name in self.constants_:
                value, dtype = self.constants_[name]
                column = pd.Series([value] * len(positions), dtype=dtype)
            elif name in self.levels_:
                column = self.levels_[name].column(np.floor(column_of[str(name)]).astype(np.intp))
            else:
                column = self.scales_[name].column(column_of[str(name)])
            if name in self.gaps_:
                column = column.mask(column_of[self._gap_name(name)] >= 1)
            frame[name] = column
        return pd.DataFrame(frame)

    def values(self, x: Array) -> Array:
        """Return numbers in table units, (n_rows, D), with the noise still in them."""
        low, width = self.units_
        return low + width * self._share(np.asarray(x, dtype=np.float64))

    def grid_points(self, X: pd.DataFrame, persons: Persons) -> tuple[Array, Array]:
        """Return rows before the logit and without their noise, s, and the width w of the noise, (D,).

        x = logit(s + w·u) + σ·N(0, 1) with u in [0, 1) and σ = `smoothing_` is an encoding of rows within the training
        range; w is zero where there is no noise.
        """
        step = (1 - self.alpha) / self._n
        return self.alpha / 2 + self._positions(X, persons) * step, np.where(self._noisy, step, 0.0)

    def intervals(self, X: pd.DataFrame, persons: Persons) -> tuple[Array, Array]:
        """Return the ends of the interval that each value has in model space before it is smoothed, (n, D) both."""
        positions = self._positions(X, persons)
        return self._logit(positions)[0], self._logit(positions + self._noisy)[0]

    @property
    def smoothing_(self) -> Array:
        """σ of each dimension, (D,): zero for categories."""
        return np.array([self.smoothing if isinstance(part, Scale) else 0.0 for _, part in self._dimensions()])

    def _normal_noise(self, persons: Persons) -> Iterator[tuple[int, Array]]:
        """Yield the number of each dimension that is smoothed, and the noise of each row there."""
        for j, sigma in enumerate(self.smoothing_):
            if sigma > 0:
                # Of 53 bits, moved off zero by half of the last one, so that the quantile is finite.
                u = persons.uniform(self.key, f"smoothing:{self.names_[j]}") + 2.0**-54
                yield j, sigma * ndtri(u)

    def _logit(self, positions: Array) -> tuple[Array, Array]:
        """Return points of model space, and ds/dx there."""
        s = self.alpha / 2 + (1 - self.alpha) * (positions / self._n)
        edge = np.clip(s, self.alpha / 2, 1 - self.alpha / 2)
        slope = edge * (1 - edge)
        return logit(edge) + (s - edge) / slope, slope

    def _share(self, x: Array) -> Array:
        """Return p/n, each value's place in the training range."""
        edge = self._edge(x)
        slope = edge * (1 - edge)
        limit = logit(1 - self.alpha / 2)
        return (edge + (x - np.clip(x, -limit, limit)) * slope - self.alpha / 2) / (1 - self.alpha)

    def _edge(self, x: Array) -> Array:
        """Return the logistic function of x, or of the end of the training range that x lies beyond."""
        limit = logit(1 - self.alpha / 2)
        inside = np.clip(x, -limit, limit)
        # Beyond the range the very edge that encoding used: another rounding of it would grow with the distance.
        return np.where(inside == limit, 1 - self.alpha / 2, np.where(inside == -limit, self.alpha / 2, expit(inside)))

    def _dimensions(self) -> Iterator[tuple[str, Scale | Levels]]:
        for name in self.columns_:
            if name in self.scales_:
                yield str(name), self.scales_[name]
            if name in self.levels_:
                yield str(name), self.levels_[name]
            if name in self.gaps_:
                yield self._gap_name(name), self.gaps_[name]

    def _gap_name(self, name: Any) -> str:
        """Return the name of the dimension that says where a column is missing; no column is called so."""
        text = f"{name} is missing"
        taken = {str(column) for column in self.columns_}
        while text in taken:
            text += "?"
        return text

    def _measure(self) -> None:
        """Compute steps n, log-width of the range in table units, and presence of noise, for each dimension."""
        dimensions = [part for _, part in self._dimensions()]
        self._n = np.array([part.n if isinstance(part, Scale) else len(part) for part in dimensions], dtype=np.float64)
        self._log_width = np.array(
            [part.log_width if isinstance(part, Scale) else np.log(len(part)) for part in dimensions]
        )
        self._noisy = [self.dequantise and (isinstance(part, Levels) or part.is_noisy) for part in dimensions]

    @property
    def is_randomised(self) -> bool:
        """Whether rows get noise."""
        return any(self._noisy) or bool(self.gaps_) or bool(self.smoothing and self.scales_)

    def _positions(self, X: pd.DataFrame, persons: Persons) -> Array:
        """Return the positions of rows without noise, (n_rows, D)."""
        found_in = (self._positions_in(name, X[name], persons) for name in self.columns_)
        return np.column_stack([position for positions in found_in for position in positions])

    def _positions_in(self, name: Any, column: pd.Series, persons: Persons) -> Iterator[Array]:
        """Yield the positions of a column's values in each dimension that it has."""
        middle = np.float64(0 if self.dequantise else 0.5)  # of a level's step, where no noise is to come
        if name in self.levels_:
            yield np.maximum(self.levels_[name].find(column), 0) + middle
            return
        is_missing = missing(column)
        if name in self.constants_:
            self._check_constant(name, column, is_missing)
        else:
            if is_missing.any():
                # A draw from the known values: a fixed one would be an atom, and give its rows away.
                column = self.scales_[name].fill(column, persons.uniform(self.key, f"missing:{name}"))
            yield self.scales_[name].position(column)
        if name in self.gaps_:
            yield is_missing + middle

    def _noise(self, persons: Persons, name: str, n: Array) -> Array:
        margin = np.maximum(MARGIN, n * 2.0**-50)
        return margin + (1 - 2 * margin) * persons.uniform(self.key, f"noise:{name}")

    def _check_constant(self, name: Any, column: pd.Series, is_missing: BoolArray) -> None:
        value, _ = self.constants_[name]
        other = ((column != value).to_numpy() if value is not None else True) & ~is_missing
        if other.any() and not isinstance(value, str):
            raise DataError(
                f"Column {name!r} was {shown(value)} in all rows it was fitted on and is left out of model space; "
                f"{int(other.sum()):,} values differ now, the first is {shown(column[other].iloc[0])}."
            )

    def _warn_about_atoms(self, X: pd.DataFrame) -> None:
        """Warn of values that repeat without lying on a grid, because such atoms reveal their rows."""
        if not self.dequantise:
            return
        for name, scale in self.scales_.items():
            known = X[name].dropna()
            if not scale.is_noisy and 2 * known.nunique() < len(known):
                warn_user(
                    f"Column {name!r} repeats its values ({known.nunique():,} different ones in {len(known):,} rows) "
                    "but they lie on no grid, so no noise can hide them: round it, or make it categorical."
                )


def _levels_by_rate(name: str, column: pd.Series, y: Array | None) -> Levels:
    """Return levels that are numbered by the mean of `y` over their rows, so that neighbours behave alike.

    An ordered type keeps its own order; without `y` the values are in order.
    """
    levels, codes = Levels.of(name, column)
    if y is not None and not getattr(column.dtype, "ordered", False):
        counts = np.bincount(codes, minlength=len(levels))
        sums = np.bincount(codes, weights=y, minlength=len(levels))
        rates = (sums + y.mean()) / (counts + 1)  # one row's worth of the overall rate, so that no level is without
        levels.index = levels.index[np.argsort(rates[: len(levels.index)], kind="stable")]
    return levels

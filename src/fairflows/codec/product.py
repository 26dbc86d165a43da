"""Columns to model space and back, exactly, with the log-determinant.

Each feature goes through three steps, each of them invertible:

1. *Position.* A number on a grid becomes its grid index k, a category its level's number, and noise u in [0, 1) is
   added (p = k + u), so that no value is an atom; a number without a grid becomes its place in the training range.
2. *Scaling* into [α/2, 1 − α/2]:  s = α/2 + (1 − α)·p / n,  with n the number of grid points or levels.
3. *Logit*:  x = log(s / (1 − s)), continued beyond the training range along its tangent.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit, logit

from fairflows.codec.one_column import Levels, OutsideValues, Scale
from fairflows.exceptions import DataError, DataWarning, check_choice
from fairflows.table.columns import missing, named_features, shown, training_kinds
from fairflows.table.persons import Key, Persons, Secret, new_key

Array = npt.NDArray[np.float64]

MARGIN = 1e-6
"""Noise stays this far from both ends of its step, in steps, so that rounding in a flow cannot move a value to the next
one. A column of very many steps, or a value as far outside, gets a wider margin: what float64 resolves there."""


class Codec:
    """Columns of a table to vectors in R^D and back.

    Values on a grid and categories come back bit for bit, but for the sign of a negative zero; others within rounding.
    Later numbers between points of the grid are rounded to it, and numbers outside the training range continue along
    the map's tangent, with a warning that counts them.

    Parameters
    ----------
    alpha : float
        The training range is scaled into [alpha/2, 1 − alpha/2].
    dequantise : bool
        Add noise to every value on a grid. Turn off only to reproduce results that were obtained without: values on a
        grid tell an adversary which encoder made them.
    unseen : {"error", "other"}
        Categories that training did not have are refused, or encoded as "other".
    missing : {"error", "category"}
        Missing values are refused, or kept as a category of their own.
    key : bytes, optional
        The secret that the noise is made with; a new one from the operating system when not given. Whoever has it and
        a person's identifier can subtract the noise.

    Attributes
    ----------
    names_ : list of str
        What each of the D dimensions of model space holds.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [31, 45, 27], "town": ["Ulm", "Bonn", "Ulm"]})
    >>> codec = Codec().fit(frame)
    >>> x, log_det = codec.encode(frame, Persons.of(["ann", "bob", "eve"]))
    >>> x.shape, log_det.shape
    ((3, 2), (3,))
    >>> codec.decode(x)[0].equals(frame)
    True
    """

    def __init__(
        self,
        *,
        alpha: float = 0.05,
        dequantise: bool = True,
        unseen: Literal["error", "other"] = "error",
        missing: Literal["error", "category"] = "error",
        key: Secret | None = None,
    ) -> None:
        if not 0 < alpha < 1:
            raise DataError(f"alpha must be in (0, 1); got {alpha!r}.")
        check_choice("unseen", unseen, ("error", "other"))
        check_choice("missing", missing, ("error", "category"))
        self.alpha = alpha
        self.dequantise = dequantise
        self.unseen = unseen
        self.missing = missing
        self.key = new_key() if key is None else Key(key) if isinstance(key, bytes) else key

    def fit(self, X: pd.DataFrame, y: Any = None, kinds: Mapping[str, str] | None = None) -> Codec:
        """Learn grids, ranges and levels from training rows.

        Parameters
        ----------
        X : DataFrame
            The features.
        y : array, optional
            The label, by whose rate categories are ordered.
        kinds : dict, optional
            The kind of each column, where it is not to be inferred.
        """
        kind_of = training_kinds(X, kinds, self.missing)
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
                self.levels_[name] = Levels.fit(str(name), column, codes, self.unseen)
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
        """What each dimension of model space holds."""
        return [name for name, _ in self._dimensions()]

    @property
    def is_randomised(self) -> bool:
        """Whether encoding adds noise to any column."""
        return any(self._noisy) or bool(self.gaps_)

    @property
    def units_(self) -> tuple[Array, Array]:
        """Each dimension's place in table units: value = low + width·p/n (levels: their numbers; times: ticks)."""
        low = [part.origin if isinstance(part, Scale) else 0.0 for _, part in self._dimensions()]
        return np.array(low, dtype=np.float64), np.exp(self._log_width)

    def encode(
        self, X: pd.DataFrame, persons: Persons | None = None, found: OutsideValues | None = None
    ) -> tuple[Array, Array]:
        """Encode rows in model space.

        Parameters
        ----------
        X : DataFrame
            Rows with the columns that the codec was fitted on.
        persons : Persons, optional
            Whose rows these are: a named person's noise is always the same. Without, the noise is fresh.
        found : OutsideValues, optional
            Filled in with the values outside of what the codec was fitted on, in place of a warning. With
            ``missing="category"`` it may hold rows that miss a value where none was missing in training, which are
            refused without it: another value stands in for the missing one.

        Returns
        -------
        x : ndarray of shape (n_rows, D)
        log_det : ndarray of shape (n_rows,)
            log |∂x/∂(table units)|, so that log p(table units) = log p(x) + log_det.
        """
        columns = named_features(X, self.columns_, self.missing)
        if persons is None:
            persons = Persons.unnamed(len(X))
        noted = OutsideValues(len(X)) if found is None else found
        positions = np.empty((len(X), len(self._n)))
        for j, (name, position) in enumerate(self._positions(columns, persons, noted)):
            positions[:, j] = position
            if self._noisy[j]:
                positions[:, j] += self._noise(persons, name, np.maximum(self._n[j], np.abs(position)))
        for name, (value, _) in self.constants_.items():
            self._check_constant(name, columns[name], value, noted)
        if found is None:
            self._report(noted)

        s = self.alpha / 2 + (1 - self.alpha) * (positions / self._n)
        edge = np.clip(s, self.alpha / 2, 1 - self.alpha / 2)
        slope = edge * (1 - edge)
        log_det = np.log1p(-self.alpha) * len(self._n) - self._log_width.sum() - np.log(slope).sum(axis=1)
        return logit(edge) + (s - edge) / slope, log_det

    def decode(self, x: Array) -> tuple[pd.DataFrame, Array]:
        """Return the rows of points in model space, and log |∂(table units)/∂x|."""
        x = np.asarray(x, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != len(self.names_):
            raise DataError(f"x must have shape (n_rows, {len(self.names_)}); got {x.shape}.")
        if not np.isfinite(x).all():
            raise DataError("x must be finite; it has NaN or infinity.")
        share, slope = self._place(x)
        log_det = self._log_width.sum() - np.log1p(-self.alpha) * len(self._n) + np.log(slope).sum(axis=1)
        return self._frame(share * self._n), log_det

    def values(self, x: Array) -> Array:
        """Return numbers in table units, (n_rows, D), with the noise still in them."""
        low, width = self.units_
        return low + width * self._place(np.asarray(x, dtype=np.float64))[0]

    def grid_points(self, x: Array) -> tuple[Array, Array]:
        """Return training rows before the logit and without their noise, s, and the width w of the noise, (D,).

        x = logit(s + w·u) with u in [0, 1) is another encoding of the same rows; w is zero where there is no noise.
        """
        positions = self._place(np.asarray(x, dtype=np.float64))[0] * self._n
        positions = np.where(self._noisy, np.floor(positions), positions)
        step = (1 - self.alpha) / self._n
        return self.alpha / 2 + positions * step, np.where(self._noisy, step, 0.0)

    def _place(self, x: Array) -> tuple[Array, Array]:
        """Return p/n, each value's place in the training range, and the slope of the logistic function there."""
        limit = logit(1 - self.alpha / 2)
        inside = np.clip(x, -limit, limit)
        # Beyond the range the very edge that encoding used: another rounding of it would grow with the distance.
        edge = np.where(inside == limit, 1 - self.alpha / 2, np.where(inside == -limit, self.alpha / 2, expit(inside)))
        slope = edge * (1 - edge)
        return (edge + (x - inside) * slope - self.alpha / 2) / (1 - self.alpha), slope

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

    def _positions(self, columns: pd.DataFrame, persons: Persons, found: OutsideValues) -> Iterator[tuple[str, Array]]:
        middle = np.float64(0 if self.dequantise else 0.5)  # of a level's step, where no noise is to come
        for name in self.columns_:
            column, gaps = columns[name], self.gaps_.get(name)
            is_missing = missing(column)
            if name in self.scales_:
                scale = self.scales_[name]
                if gaps is None:
                    found.note(str(name), "missing", is_missing)
                if is_missing.any():
                    # A draw from the known values: a fixed one would be an atom, and give its rows away.
                    draw = persons.uniform(self.key, f"missing:{name}")
                    column = scale.fill(column, draw)
                yield str(name), scale.position(column, found)
            if name in self.levels_:
                yield str(name), self.levels_[name].codes(column, found) + middle
            if gaps is not None:
                yield self._gap_name(name), is_missing + middle

    def _noise(self, persons: Persons, name: str, n: Array) -> Array:
        margin = np.maximum(MARGIN, n * 2.0**-50)
        return margin + (1 - 2 * margin) * persons.uniform(self.key, f"noise:{name}")

    def _frame(self, positions: Array) -> pd.DataFrame:
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

    def _check_constant(self, name: Any, column: pd.Series, value: Any, found: OutsideValues) -> None:
        is_missing = missing(column)
        other = ((column != value).to_numpy() if value is not None else True) & ~is_missing
        if self.unseen == "other" and isinstance(value, str):
            found.note(str(name), "unseen", other)
        elif other.any():
            raise DataError(
                f"Column {name!r} was {shown(value)} in all rows it was fitted on and is left out of model space; "
                f"{int(other.sum()):,} values differ now, the first is {shown(column[other].iloc[0])}."
            )
        if value is not None and name not in self.gaps_:
            found.note(str(name), "missing", is_missing)

    def _report(self, found: OutsideValues) -> None:
        """Raise if values are missing where none was. Warn once of the numbers that were brought back."""
        counts = found.by_column()
        for name, count in counts.items():
            if "missing" in count:
                raise DataError(
                    f"Column {name!r} had no missing values in the rows it was fitted on; {count['missing']:,} values "
                    "are missing now."
                )
        found.warn()

    def _warn_about_atoms(self, X: pd.DataFrame) -> None:
        """Warn of values that repeat without lying on a grid, because such atoms reveal their rows."""
        if not self.dequantise:
            return
        for name, scale in self.scales_.items():
            known = X[name].dropna()
            if not scale.is_noisy and 2 * known.nunique() < len(known):
                warnings.warn(
                    f"Column {name!r} repeats its values ({known.nunique():,} different ones in {len(known):,} rows) "
                    "but they lie on no grid, so no noise can hide them: round it, or make it categorical.",
                    DataWarning,
                    stacklevel=3,
                )

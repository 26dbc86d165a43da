"""A table's columns as numbers that can be added up: ranks and indicators, and their principal components.

A number becomes its rank among training rows, a category becomes an indicator; every column has variance 1, so each
counts alike. The components' loadings lie on a grid of powers of two, and so do the ranks: products and their sums are
then exact in double precision. Equal rows have equal components, whatever the size of a batch and whatever the order in
which a processor adds, so ties between rows stay ties.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.decomposition import PCA

from fairflows.codec import Levels, OutsideValues
from fairflows.encoder.base import FloatArray, IntArray
from fairflows.encoder.scores import ScoreColumn
from fairflows.table.columns import floats, missing

_MOST_KNOTS = 1024  # of a column's distribution function
_MOST_LEVELS = 64  # of a column; rarer categories count as one
_RANK_STEPS = 2.0**12
_LOADING_STEPS = 2.0**24
_SAMPLE = 30_000  # rows that the components are fitted to


@dataclass(frozen=True)
class NumberRanks:
    """The standardised rank of a number among training rows."""

    name: Hashable  # the column
    # The rank is linear between the knots, and constant beyond them.
    knots: FloatArray
    ranks: FloatArray

    @classmethod
    def fit(cls, column: pd.Series) -> NumberRanks:
        """Fit the ranks of a training column."""
        x = floats(column)
        known = np.sort(x[~np.isnan(x)])
        if not len(known):
            known = np.zeros(1)
        knots = np.unique(known)
        if len(knots) > _MOST_KNOTS:
            knots = np.unique(known[np.linspace(0, len(known) - 1, _MOST_KNOTS).round().astype(np.intp)])
        below, upto = (np.searchsorted(known, knots, side=side) for side in ("left", "right"))
        middle = (below + upto) / 2
        of_rows = np.interp(known, knots, middle)
        spread = of_rows.std() * np.sqrt(len(known) / max(len(x), 1))  # missing values have the mean rank
        ranks = _on_grid((middle - of_rows.mean()) / (spread or 1.0))
        return cls(column.name, knots, ranks)

    def features(self, column: pd.Series) -> FloatArray:
        """Return each value's rank, and 0, the mean rank, where it is missing."""
        x = floats(column)
        return np.where(np.isnan(x), 0.0, _on_grid(np.interp(x, self.knots, self.ranks)))


@dataclass(frozen=True)
class LevelIndicators:
    """Which indicator each category of a column is, or that of its missing values for a column of numbers."""

    name: Hashable  # the column
    levels: Levels | None  # the categories; None for a column of numbers
    place: IntArray  # (n_levels,): the indicator of each; rare ones share the last
    scale: float  # what makes the variances of the indicators add up to 1

    @classmethod
    def fit(cls, column: pd.Series, levels: Levels) -> LevelIndicators:
        """Fit indicators of the most frequent categories of a training column."""
        counts = np.bincount(levels.codes(column), minlength=len(levels))
        place = np.empty(len(counts), dtype=np.int64)
        place[np.argsort(-counts, kind="stable")] = np.minimum(np.arange(len(counts)), _MOST_LEVELS - 1)
        return cls(column.name, levels, place, _scale(np.bincount(place, weights=counts) / len(column)))

    @classmethod
    def of_missing(cls, column: pd.Series) -> LevelIndicators:
        """Fit the indicator of missing values of a training column."""
        share = column.isna().mean()
        return cls(column.name, None, np.zeros(1, dtype=np.int64), _scale(np.array([share, 1 - share])))

    @property
    def n(self) -> int:
        """How many indicators there are."""
        return int(self.place.max()) + 1

    def places(self, column: pd.Series) -> IntArray:
        """Return the number of the indicator that is 1 in each row, or −1 without one."""
        if self.levels is None:
            return np.where(missing(column), 0, -1)
        return self.place[self.levels.codes(column, OutsideValues(len(column)))]


@dataclass(frozen=True)
class PrincipalComponents:
    """The directions in which the rows of a table differ most."""

    numbers: list[NumberRanks]  # columns of numbers and times
    indicators: list[LevelIndicators]  # columns of categories, then columns of numbers with missing values
    loadings: FloatArray  # (n_features, n_components): the weights, on a grid; scales of indicators are part of them

    @classmethod
    def fit(
        cls, X: pd.DataFrame, columns: Mapping[Hashable, ScoreColumn], n_components: int, random_state: int
    ) -> PrincipalComponents:
        """Fit the components of training rows, or of a random sample of many."""
        ordered = {name: what for name, what in columns.items() if not isinstance(what, Levels)}
        numbers = [NumberRanks.fit(X[name]) for name in ordered]
        indicators = [LevelIndicators.fit(X[name], what) for name, what in columns.items() if isinstance(what, Levels)]
        indicators += [LevelIndicators.of_missing(X[name]) for name, what in ordered.items() if what.had_missing]
        if len(X) > _SAMPLE:
            X = X.iloc[np.random.default_rng(random_state).choice(len(X), _SAMPLE, replace=False)]
        scales = np.concatenate([np.ones(len(numbers)), *(np.full(part.n, part.scale) for part in indicators)])
        blocks = [
            sparse.csr_matrix((len(X), 0)),
            *(sparse.csr_matrix(part.features(X[part.name])[:, None]) for part in numbers),
        ]
        for part in indicators:
            place = part.places(X[part.name])
            shown = np.flatnonzero(place >= 0)
            blocks.append(sparse.csr_matrix((np.full(len(shown), part.scale), (shown, place[shown])), (len(X), part.n)))
        features = sparse.hstack(blocks, format="csr")
        n_components = min(n_components, features.shape[1], len(X))
        is_small = min(features.shape) <= n_components + 1 or features.shape[1] <= 500
        pca = PCA(n_components, svd_solver="covariance_eigh" if is_small else "arpack", random_state=random_state)
        with np.errstate(invalid="ignore"):  # the share of a variance of zero, where no column varies
            found = pca.fit(features).components_.T * scales[:, None]
        return cls(numbers, indicators, np.round(found * _LOADING_STEPS) / _LOADING_STEPS)

    @property
    def total_variance(self) -> float:
        """The variances of all features together: 1 for each column that varies."""
        return float(sum(part.ranks.any() for part in self.numbers) + sum(part.scale > 0 for part in self.indicators))

    def scores(self, X: pd.DataFrame) -> FloatArray:
        """Return the components of rows, (n_rows, n_components); not centred."""
        first = len(self.numbers)
        found = _ranks(self.numbers, X) @ self.loadings[:first]
        for indicator in self.indicators:
            loadings = self.loadings[first : first + indicator.n]
            of_place = np.vstack([loadings, np.zeros(self.loadings.shape[1])])  # the last where none is 1
            found += of_place[indicator.places(X[indicator.name])]
            first += indicator.n
        return found


def _ranks(numbers: list[NumberRanks], X: pd.DataFrame) -> FloatArray:
    """Return the ranks of each column of numbers, (n_rows, n_numbers)."""
    ranks = np.empty((len(numbers), len(X)))
    for j, part in enumerate(numbers):
        ranks[j] = part.features(X[part.name])
    return ranks.T


def _on_grid(ranks: FloatArray) -> FloatArray:
    return np.round(ranks * _RANK_STEPS) / _RANK_STEPS


def _scale(shares: FloatArray) -> float:
    """Return 1/√Σ p(1 − p), by which indicators with shares p have total variance 1; 0 where nothing varies."""
    variance = float((shares * (1 - shares)).sum())
    return variance**-0.5 if variance > 0 else 0.0

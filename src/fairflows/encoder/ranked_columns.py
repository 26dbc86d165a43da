"""A table's columns as numbers that can be added up: ranks and indicators, and their principal components.

A number becomes its rank among training rows, a category becomes an indicator; every column has variance 1, so each
counts alike. The components' loadings lie on a grid of powers of two, and so do the ranks: products and their sums are
then exact in double precision. Equal rows have equal components, whatever the size of a batch and whatever the order in
which a processor adds, so ties between rows stay ties.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
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
    had_missing: bool  # whether rows of the table lacked values; then missing is a feature of its own

    @classmethod
    def fit(cls, column: pd.Series, has_missing: bool) -> NumberRanks:
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
        return cls(column.name, knots, ranks, has_missing)

    def features(self, column: pd.Series) -> FloatArray:
        """Return each value's rank, and 0, the mean rank, where it is missing."""
        x = floats(column)
        return np.where(np.isnan(x), 0.0, _on_grid(np.interp(x, self.knots, self.ranks)))


@dataclass(frozen=True)
class LevelIndicators:
    """Which indicator each category of a column is."""

    name: Hashable  # the column
    levels: Levels  # the categories
    place: IntArray  # (n_levels,): the indicator of each; rare ones share the last
    scale: float  # what makes the variances of the indicators add up to 1

    @classmethod
    def fit(cls, column: pd.Series, levels: Levels) -> LevelIndicators:
        """Fit indicators of the most frequent categories of a training column."""
        counts = np.bincount(levels.codes(column), minlength=len(levels))
        place = np.empty(len(counts), dtype=np.int64)
        place[np.argsort(-counts, kind="stable")] = np.minimum(np.arange(len(counts)), _MOST_LEVELS - 1)
        return cls(column.name, levels, place, _scale(np.bincount(place, weights=counts) / len(column)))

    @property
    def n(self) -> int:
        """How many indicators there are."""
        return int(self.place.max()) + 1


@dataclass(frozen=True)
class RankedColumns:
    """The features of rows: ranks of numbers, then indicators of categories and of missing numbers."""

    numbers: list[NumberRanks]  # columns of numbers and times
    categories: list[LevelIndicators]  # columns of categories
    missing_scale: FloatArray  # for each number column that had missing values, the scale of the indicator that says so

    @classmethod
    def fit(
        cls, X: pd.DataFrame, columns: Mapping[Hashable, ScoreColumn], with_missing: Collection[Hashable]
    ) -> RankedColumns:
        """Fit the features of training rows, as `checked_columns` gives them.

        `with_missing` names the columns that may lack values, though none of these rows may.
        """
        numbers = [
            NumberRanks.fit(X[name], name in with_missing)
            for name, what in columns.items()
            if not isinstance(what, Levels)
        ]
        categories = [LevelIndicators.fit(X[name], what) for name, what in columns.items() if isinstance(what, Levels)]
        missing = [X[ranks.name].isna().mean() for ranks in numbers if ranks.had_missing]
        return cls(numbers, categories, np.array([_scale(np.array([share, 1 - share])) for share in missing]))

    @property
    def n_features(self) -> int:
        """Ranks and indicators together."""
        return len(self.numbers) + sum(part.n for part in self.categories) + len(self.missing_scale)

    @property
    def total_variance(self) -> float:
        """The variances of all features together: 1 for each column that varies."""
        varying = sum(bool(part.ranks.any()) for part in self.numbers)
        return float(varying + sum(part.scale > 0 for part in self.categories) + np.count_nonzero(self.missing_scale))

    def note_missing(self, X: pd.DataFrame, found: OutsideValues) -> None:
        """Note the numbers that are missing where none was in training."""
        for ranks in self.numbers:
            if not ranks.had_missing:
                found.note(str(ranks.name), "missing", missing(X[ranks.name]))

    def features(self, X: pd.DataFrame) -> tuple[FloatArray, list[IntArray]]:
        """Return ranks (n_rows, n_numbers), and the number of the indicator that is 1 in each row, or −1 without one.

        There is one such array per column of categories, then one per column of numbers that had missing values.
        """
        ranks = np.empty((len(self.numbers), len(X)))
        for j, part in enumerate(self.numbers):
            ranks[j] = part.features(X[part.name])
        places, offset = [], 0
        for category in self.categories:
            places.append(offset + category.place[category.levels.codes(X[category.name])])
            offset += category.n
        for part in self.numbers:
            if part.had_missing:
                places.append(np.where(missing(X[part.name]), offset, -1))
                offset += 1
        return ranks.T, places

    @property
    def scales(self) -> FloatArray:
        """Factors of the indicators."""
        parts = [np.full(category.n, category.scale) for category in self.categories]
        return np.concatenate([*parts, self.missing_scale])


@dataclass(frozen=True)
class PrincipalComponents:
    """The directions in which the rows of a table differ most."""

    columns: RankedColumns  # what is added up
    loadings: FloatArray  # (n_features, n_components): the weights, on a grid; scales of indicators are part of them

    @classmethod
    def fit(cls, columns: RankedColumns, X: pd.DataFrame, n_components: int, random_state: int) -> PrincipalComponents:
        """Fit the components of training rows, or of a random sample where there are many."""
        if len(X) > _SAMPLE:
            X = X.iloc[np.random.default_rng(random_state).choice(len(X), _SAMPLE, replace=False)]
        ranks, places = columns.features(X)
        row, at = np.arange(len(X)), np.concatenate([*places, np.empty(0, dtype=np.int64)])
        row = np.tile(row, len(places))[at >= 0]
        shape = len(X), columns.n_features - len(columns.numbers)
        indicators = sparse.csr_matrix((np.ones(len(row)), (row, at[at >= 0])), shape=shape)
        scales = np.concatenate([np.ones(ranks.shape[1]), columns.scales])
        features = sparse.hstack([sparse.csr_matrix(ranks), indicators @ sparse.diags(columns.scales)], format="csr")
        n_components = min(n_components, columns.n_features, len(X))
        is_small = min(features.shape) <= n_components + 1 or features.shape[1] <= 500
        pca = PCA(n_components, svd_solver="covariance_eigh" if is_small else "arpack", random_state=random_state)
        with np.errstate(invalid="ignore"):  # the share of a variance of zero, where no column varies
            found = pca.fit(features).components_.T * scales[:, None]
        return cls(columns, np.round(found * _LOADING_STEPS) / _LOADING_STEPS)

    def scores(self, X: pd.DataFrame) -> FloatArray:
        """Return the components of rows, (n_rows, n_components); not centred."""
        n_numbers, n_components = len(self.columns.numbers), self.loadings.shape[1]
        of_indicators = np.vstack([self.loadings[n_numbers:], np.zeros(n_components)])  # the last where none is 1
        ranks, places = self.columns.features(X)
        found = ranks @ self.loadings[:n_numbers]
        for place in places:
            found += of_indicators[place]
        return found


def _on_grid(ranks: FloatArray) -> FloatArray:
    return np.round(ranks * _RANK_STEPS) / _RANK_STEPS


def _scale(shares: FloatArray) -> float:
    """Return 1/√Σ p(1 − p), by which indicators with shares p have total variance 1; 0 where nothing varies."""
    variance = float((shares * (1 - shares)).sum())
    return variance**-0.5 if variance > 0 else 0.0

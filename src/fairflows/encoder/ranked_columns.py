"""A table's columns as numbers that can be added up: ranks and indicators, and their principal components.

A number becomes its rank among training rows, a category becomes an indicator; every column has variance 1, so each
counts alike. The components' loadings lie on a grid of powers of two, and so do the ranks: products and their sums are
then exact in double precision. Equal rows have equal components, whatever the size of a batch and whatever the order in
which a processor adds, so ties between rows stay ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from scipy import sparse
from sklearn.decomposition import PCA

from fairflows.arrays import NDArray
from fairflows.encoder.base import FloatArray, IntArray
from fairflows.table.domain import BoolArray, Codes, Seen, take
from fairflows.table.persons import Places

_MOST_KNOTS = 1024  # of a column's distribution function
_MOST_LEVELS = 64  # of a column; rarer categories count as one
_RANK_STEPS = 2.0**12
_LOADING_STEPS = 2.0**24
_SAMPLE = 30_000  # rows that the components are fitted to


@dataclass(frozen=True)
class NumberRanks:
    """The standardised rank of a number among training rows, linear between knots and constant beyond them."""

    knots: Float[FloatArray, " n_knots"]
    ranks: Float[FloatArray, " n_knots"]

    @classmethod
    def fit(cls, x: Float[FloatArray, " n"]) -> NumberRanks:
        """Fit the ranks of a training column."""
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
        return cls(knots, _on_grid((middle - of_rows.mean()) / (spread or 1.0)))

    def features(self, x: Float[FloatArray, " n"]) -> Float[FloatArray, " n"]:
        """Return each value's rank, and 0, the mean rank, where it is missing."""
        return np.where(np.isnan(x), 0.0, _on_grid(np.interp(x, self.knots, self.ranks)))


@dataclass(frozen=True)
class LevelIndicators:
    """The indicator of each category of a column."""

    # of each level, and last of −1: rare categories share the last indicator; −1 for one that was not seen
    place: Int[IntArray, " n_codes"]
    scale: float  # by which the variances of the indicators add up to 1

    @classmethod
    def fit(cls, codes: Int[Places, " n"], seen: Bool[BoolArray, " n_levels"]) -> LevelIndicators:
        """Fit indicators of the most frequent categories of a training column."""
        counts = np.bincount(codes, minlength=len(seen) + 1)
        place = np.full(len(counts), -1)
        frequent = np.argsort(-counts, kind="stable")[: seen.sum()]
        place[frequent] = np.minimum(np.arange(len(frequent)), _MOST_LEVELS - 1)
        return cls(place, _scale(np.bincount(place[frequent], counts[frequent]) / len(codes)))

    @property
    def n(self) -> int:
        """The number of indicators."""
        return int(self.place.max()) + 1


@dataclass(frozen=True)
class PrincipalComponents:
    """The directions in which the rows of a table differ most."""

    numbers: dict[Any, NumberRanks]  # of columns of numbers and times
    indicators: dict[Any, LevelIndicators]  # of columns of categories, and of gaps in columns of numbers
    # the weights, on a grid; scales of indicators are part of them
    loadings: Float[FloatArray, "n_features n_components"]

    @classmethod
    def fit(cls, codes: Codes, seen: Seen, n_components: int, random_state: int) -> PrincipalComponents:
        """Fit the components of training rows, or of a random sample of many."""
        numbers = {name: NumberRanks.fit(codes[name]) for name in seen.gaps}
        indicators = {name: LevelIndicators.fit(codes[name], levels) for name, levels in seen.levels.items()}
        both = np.ones(2, dtype=bool)
        indicators |= {n: LevelIndicators.fit(_places(codes[n]), both) for n, has_gaps in seen.gaps.items() if has_gaps}
        n_rows = len(next(iter(codes.values())))
        if n_rows > _SAMPLE:
            codes = take(codes, np.random.default_rng(random_state).choice(n_rows, _SAMPLE, replace=False))
            n_rows = _SAMPLE
        scales = np.concatenate([np.ones(len(numbers)), *(np.full(part.n, part.scale) for part in indicators.values())])
        blocks = [sparse.csr_matrix((n_rows, 0))]
        blocks += [sparse.csr_matrix(part.features(codes[name])[:, None]) for name, part in numbers.items()]
        for name, part in indicators.items():
            place = part.place[_places(codes[name])]
            values = np.full(n_rows, part.scale), (np.arange(n_rows), place)
            blocks.append(sparse.csr_matrix(values, (n_rows, part.n)))
        features = sparse.hstack(blocks, format="csr")
        n_components = min(n_components, features.shape[1], n_rows)
        is_small = min(features.shape) <= n_components + 1 or features.shape[1] <= 500
        pca = PCA(n_components, svd_solver="covariance_eigh" if is_small else "arpack", random_state=random_state)
        with np.errstate(invalid="ignore"):  # the share of a variance of zero, where no column varies
            found = pca.fit(features).components_.T * scales[:, None]
        return cls(numbers, indicators, np.round(found * _LOADING_STEPS) / _LOADING_STEPS)

    @property
    def total_variance(self) -> float:
        """The variances of all features together: 1 for each column that varies."""
        varying = [part.ranks.any() for part in self.numbers.values()]
        return float(sum(varying) + sum(part.scale > 0 for part in self.indicators.values()))

    def scores(self, codes: Codes) -> Float[FloatArray, "n n_components"]:
        """Return the components of rows; not centred."""
        first, n_rows = len(self.numbers), len(next(iter(codes.values())))
        ranks = np.empty((first, n_rows))
        for j, (name, number) in enumerate(self.numbers.items()):
            ranks[j] = number.features(codes[name])
        found = ranks.T @ self.loadings[:first]
        for name, indicator in self.indicators.items():
            loadings = self.loadings[first : first + indicator.n]
            of_place = np.vstack([loadings, np.zeros(self.loadings.shape[1])])  # the last where none is 1
            found += of_place[indicator.place[_places(codes[name])]]
            first += indicator.n
        return found


def _places(codes: Shaped[NDArray, " n"]) -> Int[Places, " n"]:
    """Return levels as they are; of numbers, 1 where one is missing, else 0."""
    return np.isnan(codes).astype(np.intp) if codes.dtype.kind == "f" else codes


def _on_grid(ranks: Float[FloatArray, " n"]) -> Float[FloatArray, " n"]:
    return np.round(ranks * _RANK_STEPS) / _RANK_STEPS


def _scale(shares: Float[FloatArray, " n_indicators"]) -> float:
    """Return 1/√Σ p(1 − p), by which indicators with shares p have total variance 1; 0 where nothing varies."""
    variance = float((shares * (1 - shares)).sum())
    return variance**-0.5 if variance > 0 else 0.0

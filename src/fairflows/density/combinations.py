"""Densities over combinations of levels: the sample as distinct ones with weights, and smoothed counts.

A *combination* has one level of each of D categorical variables with m_1, ..., m_D levels. Its code is the mixed-radix
number with the last variable fastest, as in `numpy.ravel_multi_index`; there are m_1 ⋯ m_D of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar

from fairflows.arrays import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_ROWS_PER_CHUNK = 8_192  # whose one-hot columns are in memory at a time
_SMALLEST_WEIGHT = 1e-4  # of independence in smoothed counts


@dataclass(frozen=True)
class CombinationCounts:
    """A sample reduced to its distinct combinations: n rows of a categorical table are often far fewer."""

    codes: Int[IntArray, " n"]
    weights: Float[FloatArray, " n"]

    @classmethod
    def of(cls, codes: Int[IntArray, " rows"]) -> Self:
        """Count combinations that are given by their codes."""
        combinations, counts = np.unique(codes, return_counts=True)
        return cls(combinations, counts.astype(np.float64))

    def mean(self, values: Float[FloatArray, " n"]) -> float:
        """Return the sample's mean of a value per combination."""
        return float(self.weights @ values / self.weights.sum())


def combination_levels(codes: Int[IntArray, " n"], levels: Sequence[int]) -> Int[IntArray, "n D"]:
    """Return the levels of combination codes.

    Examples
    --------
    >>> combination_levels(np.array([2, 3]), levels=[2, 3])
    array([[0, 2],
           [1, 0]])
    """
    return np.stack(np.unravel_index(codes, tuple(levels)), axis=1).astype(np.int64)


class CombinationDensity(ABC):
    """A law p̂ over the combinations of one group, given by their codes; log-probabilities come out in float64."""

    levels: tuple[int, ...]

    @abstractmethod
    def fit(self, counts: CombinationCounts, held_out: CombinationCounts) -> Self:
        """Estimate p̂ from the combinations of a sample, and tune it by the combinations of held-out rows."""

    def log_prob(self, codes: Int[IntArray, " n"]) -> Float[FloatArray, " n"]:
        """Return the log-probability of each combination."""
        return in_chunks(lambda part: self._log_prob(combination_levels(part, self.levels)), codes)

    @abstractmethod
    def _log_prob(self, combinations: Int[IntArray, "n D"]) -> Float[FloatArray, " n"]:
        """Return the log-probabilities of combinations that are given by their levels."""

    def log_prob_of_all(self) -> Float[FloatArray, " m"]:
        """Return the log-probability of every combination by its code; probabilities sum to 1 within 1e-10."""
        return self.log_prob(np.arange(math.prod(self.levels)))

    @abstractmethod
    def sample(self, n: int, generator: np.random.Generator) -> Int[IntArray, "{n} D"]:
        """Draw n combinations from p̂, as levels."""


def in_chunks(
    function: Callable[[IntArray], FloatArray], rows: Int[IntArray, " n *variables"]
) -> Float[FloatArray, " n *values"]:
    """Return a function of many rows, evaluated on a few thousand of them at a time to keep memory small."""
    starts = range(0, max(1, len(rows)), _ROWS_PER_CHUNK)
    return np.concatenate([function(rows[start : start + _ROWS_PER_CHUNK]) for start in starts])


class SmoothedCounts(CombinationDensity):
    r"""Counts of combinations with additive smoothing towards independent columns.

    .. math:: \hat p(x) = (1 - w) \frac{c(x)}{n} + w \prod_d q_d(x_d)

    q_d is the frequency of each level of variable d, with one row more that is spread evenly. The weight w maximises
    the likelihood of held-out rows, which is concave in w.

    Parameters
    ----------
    levels : sequence of int
        Level counts m_1, ..., m_D.

    Examples
    --------
    >>> counts = CombinationCounts.of(np.array([0, 0, 5, 5] * 10))
    >>> density = SmoothedCounts([2, 3]).fit(counts, counts)
    >>> bool(density.log_prob(np.array([0]))[0] > density.log_prob(np.array([1]))[0])
    True
    """

    weight_: float
    counts_: CombinationCounts
    log_marginals_: list[FloatArray]

    def __init__(self, levels: Sequence[int]) -> None:
        self.levels = tuple(levels)

    def fit(self, counts: CombinationCounts, held_out: CombinationCounts) -> Self:
        """Count levels, and choose w on held-out rows."""
        self.counts_ = counts
        combinations, n = combination_levels(counts.codes, self.levels), counts.weights.sum()
        sums = [np.bincount(combinations[:, d], counts.weights, m) for d, m in enumerate(self.levels)]
        self.log_marginals_ = [np.log((each + 1 / len(each)) / (n + 1)) for each in sums]
        held_combinations = combination_levels(held_out.codes, self.levels)
        frequency, q = self._frequency(held_combinations), np.exp(self._log_product(held_combinations))

        def minus_log_likelihood(w: float) -> float:
            return -held_out.mean(np.log((1 - w) * frequency + w * q))

        self.weight_ = float(minimize_scalar(minus_log_likelihood, bounds=(_SMALLEST_WEIGHT, 1.0)).x)
        return self

    def _log_prob(self, combinations: Int[IntArray, "n D"]) -> Float[FloatArray, " n"]:
        log_q = np.log(self.weight_) + self._log_product(combinations)
        with np.errstate(divide="ignore"):  # an unseen combination has frequency 0
            return np.logaddexp(log_q, np.log1p(-self.weight_) + np.log(self._frequency(combinations)))

    def sample(self, n: int, generator: np.random.Generator) -> Int[IntArray, "{n} D"]:
        """Draw n combinations: column by column with probability w, else from the observed combinations."""
        weights = self.counts_.weights
        observed = self.counts_.codes[generator.choice(len(weights), n, p=weights / weights.sum())]
        drawn = [generator.choice(len(log_q), n, p=np.exp(log_q)) for log_q in self.log_marginals_]
        is_drawn = generator.random((n, 1)) < self.weight_
        return np.where(is_drawn, np.stack(drawn, axis=1), combination_levels(observed, self.levels))

    def _log_product(self, combinations: Int[IntArray, "n D"]) -> Float[FloatArray, " n"]:
        return np.sum([log_q[combinations[:, d]] for d, log_q in enumerate(self.log_marginals_)], axis=0)

    def _frequency(self, combinations: Int[IntArray, "n D"]) -> Float[FloatArray, " n"]:
        """Return c(x)/n, zero for unseen combinations."""
        observed, codes = self.counts_.codes, np.ravel_multi_index(tuple(combinations.T), self.levels)
        place = np.minimum(np.searchsorted(observed, codes), len(observed) - 1)
        return np.where(observed[place] == codes, self.counts_.weights[place], 0.0) / self.counts_.weights.sum()

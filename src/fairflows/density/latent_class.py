"""Latent classes: a mixture of products of categorical laws, fitted by EM."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from fairflows.density.cell_density import (
    CellCounts,
    CountedDensity,
    FloatArray,
    IntArray,
    cell_codes,
    cell_levels,
    checked_levels,
    draw_levels,
    level_columns,
    one_hot,
)

_ROWS_PER_CHUNK = 32_768
_PSEUDO_COUNT = 0.1  # rows added to each class and variable, spread evenly, so that no cell has probability zero
_MOST_ITERATIONS, _TOLERANCE = 500, 1e-5  # EM stops when the mean log-likelihood grows by less


class LatentClassMixture(CountedDensity):
    r"""Mixture of C classes within which the variables are independent (Lazarsfeld and Henry, 1968).

    .. math:: \hat p(x) = \sum_{c=1}^{C} π_c \prod_{d=1}^{D} θ_{cd}(x_d)

    EM runs on the distinct cells with their weights, in log space. The number of classes is the one of largest
    held-out likelihood among those given; trying stops at the first that does worse than the one before.

    Parameters
    ----------
    levels : sequence of int
        Level counts m_1, ..., m_D.
    n_classes : sequence of int
        Numbers of classes to try, growing.
    random_state : int
        Seed of the start and, without validation rows, of the split.

    Examples
    --------
    >>> x = np.array([[0, 0], [0, 0], [1, 2], [1, 2]] * 10)
    >>> density = LatentClassMixture([2, 3], n_classes=[1, 2]).fit(x, validation=x)
    >>> len(density.log_pi_)
    2
    """

    log_pi_: FloatArray
    log_theta_: FloatArray

    def __init__(
        self,
        levels: Sequence[int],
        *,
        n_classes: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
        random_state: int = 0,
    ) -> None:
        self.levels = checked_levels(levels)
        self.n_classes = tuple(n_classes)
        self.random_state = random_state

    def _fit_counts(self, counts: CellCounts, held_out: CellCounts) -> None:
        """Run EM for each number of classes, and keep the best on held-out rows."""
        columns, held_out_columns = (one_hot(sample.cells, self.levels).toarray() for sample in (counts, held_out))
        best = -np.inf
        for n_classes in self.n_classes:
            log_pi, log_theta = self._expectation_maximisation(columns, counts.weights, n_classes)
            likelihood = held_out.mean(logsumexp(log_pi + held_out_columns @ log_theta.T, axis=1))
            if likelihood <= best:
                break
            best, self.log_pi_, self.log_theta_ = likelihood, log_pi, log_theta

    def log_prob(self, x: ArrayLike) -> FloatArray:
        """The log-probability of each row's cell."""
        codes = cell_codes(x, self.levels)
        log_p = np.empty(len(codes))
        for start in range(0, len(codes), _ROWS_PER_CHUNK):
            rows = slice(start, start + _ROWS_PER_CHUNK)
            columns = one_hot(cell_levels(codes[rows], self.levels), self.levels).toarray()
            log_p[rows] = logsumexp(self.log_pi_ + columns @ self.log_theta_.T, axis=1)
        return log_p

    def log_prob_of_all_cells(self) -> FloatArray:
        """The log-probability of every cell: one product of matrices, first variables by last.

        Given the class, the first variables and the last are independent, so with L_c and R_c their laws the cells'
        probabilities are Σ_c π_c L_c R_cᵀ. All terms are positive: nothing cancels.
        """
        sizes = np.cumprod(self.levels)
        cut = 1 + int(np.argmin(np.abs(np.log(sizes) - np.log(sizes[-1]) / 2)))
        first, last = self._product_law(0, cut), self._product_law(cut, len(self.levels))
        return np.log(((np.exp(self.log_pi_)[:, None] * first).T @ last).ravel())

    def sample(self, n: int, generator: np.random.Generator) -> IntArray:
        """Draw n cells: a class each, then every variable from that class."""
        classes = generator.choice(len(self.log_pi_), n, p=np.exp(self.log_pi_))
        thetas = [np.exp(self.log_theta_[:, columns])[classes] for columns in level_columns(self.levels)]
        return np.stack([draw_levels(theta, generator) for theta in thetas], axis=1)

    def _product_law(self, start: int, stop: int) -> FloatArray:
        """Π_d θ_cd over variables start, ..., stop − 1, of shape (C, product of their levels)."""
        log_law = np.zeros((len(self.log_pi_), 1))
        for columns in level_columns(self.levels)[start:stop]:
            log_law = (log_law[:, :, None] + self.log_theta_[:, None, columns]).reshape(len(log_law), -1)
        return np.exp(log_law)

    def _expectation_maximisation(
        self, columns: FloatArray, weights: FloatArray, n_classes: int
    ) -> tuple[FloatArray, FloatArray]:
        generator = np.random.default_rng(self.random_state)
        responsibility = generator.dirichlet(np.ones(n_classes), size=len(columns))
        before = -np.inf
        for _ in range(_MOST_ITERATIONS):
            log_pi, log_theta = self._maximise(columns, responsibility * weights[:, None])
            log_joint = log_pi + columns @ log_theta.T
            log_p = logsumexp(log_joint, axis=1)
            responsibility = np.exp(log_joint - log_p[:, None])
            likelihood = float(weights @ log_p / weights.sum())
            if likelihood - before < _TOLERANCE:
                break
            before = likelihood
        return log_pi, log_theta

    def _maximise(self, columns: FloatArray, weighted: FloatArray) -> tuple[FloatArray, FloatArray]:
        """π and θ of largest likelihood given soft counts (distinct cells, C), the pseudo-rows added."""
        pi = weighted.sum(axis=0) + _PSEUDO_COUNT
        counts = weighted.T @ columns + _PSEUDO_COUNT / np.repeat(self.levels, self.levels)
        theta = [counts[:, d] / counts[:, d].sum(axis=1, keepdims=True) for d in level_columns(self.levels)]
        return np.log(pi / pi.sum()), np.log(np.concatenate(theta, axis=1))

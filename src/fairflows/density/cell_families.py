"""Two families of densities over cells: smoothed counts, and latent classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from scipy.special import logsumexp

from fairflows.density.cell_density import (
    CellCounts,
    CountedDensity,
    FloatArray,
    IntArray,
    cell_codes,
    checked_levels,
    draw_levels,
    level_columns,
    one_hot,
)

_SMALLEST_WEIGHT = 1e-4  # of the tree of pairs
_PSEUDO_COUNT = 0.1  # rows added to each class and variable, spread evenly, so that no cell has probability zero
_MOST_ITERATIONS, _TOLERANCE = 500, 1e-5  # EM stops when the mean log-likelihood grows by less


class SmoothedCounts(CountedDensity):
    r"""Counts of cells with additive smoothing towards a Chow–Liu tree.

    .. math:: \hat p(x) = \frac{c(x) + α q(x)}{n + α} = (1 - w) \frac{c(x)}{n} + w q(x), \qquad w = \frac{α}{n + α}

    q(x) = Π_d q(x_d | x_parent(d)) is the tree of pairs of largest likelihood (Chow and Liu, 1968). The weight w
    maximises the likelihood of held-out rows, which is concave in w.

    Parameters
    ----------
    levels : sequence of int
        Level counts m_1, ..., m_D.
    random_state : int
        Seed of the split when `fit` gets no validation rows.

    Examples
    --------
    >>> x = np.array([[0, 0], [0, 0], [1, 2], [1, 2]] * 10)
    >>> density = SmoothedCounts([2, 3]).fit(x, validation=x)
    >>> bool(density.log_prob([[0, 0]])[0] > density.log_prob([[0, 1]])[0])
    True
    """

    weight_: float
    counts_: CellCounts
    tree_: PairTree

    def __init__(self, levels: Sequence[int], *, random_state: int = 0) -> None:
        self.levels = checked_levels(levels)
        self.random_state = random_state

    def _fit_counts(self, counts: CellCounts, held_out: CellCounts) -> None:
        """Grow the tree, and choose w on held-out rows."""
        self.counts_, self.tree_ = counts, PairTree(counts, self.levels)
        frequency, q = self._frequency(held_out.cells), np.exp(self.tree_.log_prob(held_out.cells))

        def minus_log_likelihood(w: float) -> float:
            return -held_out.mean(np.log((1 - w) * frequency + w * q))

        self.weight_ = float(minimize_scalar(minus_log_likelihood, bounds=(_SMALLEST_WEIGHT, 1.0)).x)

    def _log_prob(self, cells: IntArray) -> FloatArray:
        log_q = np.log(self.weight_) + self.tree_.log_prob(cells)
        with np.errstate(divide="ignore"):  # an unseen cell has frequency 0
            return np.logaddexp(log_q, np.log1p(-self.weight_) + np.log(self._frequency(cells)))

    def sample(self, n: int, generator: np.random.Generator) -> IntArray:
        """Draw n cells: from the tree with probability w, else from the observed cells."""
        observed = generator.choice(len(self.counts_.weights), n, p=self.counts_.weights / self.counts_.weights.sum())
        from_tree = generator.random((n, 1)) < self.weight_
        return np.where(from_tree, self.tree_.sample(n, generator), self.counts_.cells[observed])

    def _frequency(self, cells: IntArray) -> FloatArray:
        """c(x)/n, zero for unseen cells."""
        observed, codes = cell_codes(self.counts_.cells, self.levels), cell_codes(cells, self.levels)
        place = np.minimum(np.searchsorted(observed, codes), len(observed) - 1)
        return np.where(observed[place] == codes, self.counts_.weights[place], 0.0) / self.counts_.weights.sum()


class PairTree:
    """The Chow–Liu tree: every variable depends on at most one other, chosen by mutual information.

    Conditionals are smoothed by one pseudo-row spread as the marginal is, marginals by one spread evenly, so that no
    level has probability zero.
    """

    def __init__(self, counts: CellCounts, levels: Sequence[int]) -> None:
        columns = one_hot(counts.cells, levels)
        joint = (columns.T @ columns.multiply(counts.weights[:, None])).toarray()
        marginal = np.diag(joint)
        blocks = level_columns(levels)
        n = counts.weights.sum()

        order, parents = breadth_first_order(
            _spanning_tree(joint / n, [block.start for block in blocks]), 0, directed=False
        )
        self.order = [int(d) for d in order]
        self.parents = [max(int(parent), 0) for parent in parents]  # the root's parent is a formality: one row for all
        self.log_conditionals: list[FloatArray] = []
        for d, m in enumerate(levels):
            q = (marginal[blocks[d]] + 1.0 / m) / (n + 1.0)
            parent = blocks[self.parents[d]]
            given = (joint[parent, blocks[d]] + q) / (marginal[parent, None] + 1.0)
            self.log_conditionals.append(np.log(given if d else np.broadcast_to(q, given.shape)))

    def log_prob(self, cells: IntArray) -> FloatArray:
        """The log-probability of each cell."""
        return sum(
            (table[cells[:, self.parents[d]], cells[:, d]] for d, table in enumerate(self.log_conditionals)),
            start=np.zeros(len(cells)),
        )

    def sample(self, n: int, generator: np.random.Generator) -> IntArray:
        """Draw n cells, parents before children."""
        cells = np.zeros((n, len(self.order)), dtype=np.int64)
        for d in self.order:
            cells[:, d] = draw_levels(np.exp(self.log_conditionals[d])[cells[:, self.parents[d]]], generator)
        return cells


def _spanning_tree(joint: FloatArray, starts: list[int]) -> FloatArray:
    """The tree of largest total mutual information, from the joint frequencies of all pairs of levels."""
    marginal = np.diag(joint)
    product = np.outer(marginal, marginal)
    terms = joint * np.log(np.divide(joint, product, out=np.ones_like(joint), where=joint > 0))
    information = np.add.reduceat(np.add.reduceat(terms, starts, axis=0), starts, axis=1)
    # csgraph reads 0 as "no edge": a constant added to every edge leaves the best tree the best and connects all.
    return minimum_spanning_tree(-(information - information.min() + 1.0))


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

    def _log_prob(self, cells: IntArray) -> FloatArray:
        return logsumexp(self.log_pi_ + one_hot(cells, self.levels).toarray() @ self.log_theta_.T, axis=1)

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

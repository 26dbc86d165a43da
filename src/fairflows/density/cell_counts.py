"""Densities over cells: the sample as distinct cells with weights, tails, and smoothed counts.

A *cell* is one combination of levels of D categorical variables with m_1, ..., m_D levels. Its code is the mixed-radix
number with the last variable fastest, as in `numpy.ravel_multi_index`; there are m_1 ⋯ m_D of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from fairflows.exceptions import DataError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_ROWS_PER_CHUNK = 8_192  # whose one-hot columns are in memory at a time
_SMALLEST_WEIGHT = 1e-4  # of the tree of pairs in smoothed counts


@dataclass(frozen=True)
class CellCounts:
    """A weighted sample reduced to its distinct cells: n rows of a categorical table are often far fewer cells."""

    cells: IntArray
    weights: FloatArray

    @classmethod
    def of(cls, x: ArrayLike, levels: Sequence[int], sample_weight: ArrayLike | None = None) -> Self:
        """Count the cells of x; rows of weight zero do not count."""
        codes = cell_codes(x, levels)
        weight = _weight_of_rows(sample_weight, len(codes))
        codes, weight = codes[weight > 0], weight[weight > 0]
        if not len(codes):
            raise DataError("A density over cells needs at least one row of positive weight; got none.")
        cells, cell_of_row = np.unique(codes, return_inverse=True)
        return cls(cell_levels(cells, levels), np.bincount(cell_of_row, weights=weight).astype(np.float64))

    def mean(self, values: FloatArray) -> float:
        """Return the sample's weighted mean of a value per cell."""
        return float(self.weights @ values / self.weights.sum())


def number_of_cells(levels: Sequence[int]) -> int:
    """Return m_1 ⋯ m_D as a Python integer, which cannot overflow."""
    return math.prod(int(m) for m in levels)


def checked_levels(levels: Sequence[int]) -> tuple[int, ...]:
    """Return the level counts as a tuple; raise unless there is a variable and each has at least one level."""
    counts = tuple(int(m) for m in levels)
    if not counts or min(counts) < 1:
        raise DataError(f"levels must name at least one variable, each with at least one level; got {list(levels)}.")
    if number_of_cells(counts) >= 2**63:
        raise DataError(
            f"{len(counts)} variables make {number_of_cells(counts):.1e} cells; codes need fewer than 2**63."
        )
    return counts


def cell_codes(x: ArrayLike, levels: Sequence[int]) -> IntArray:
    """Return codes of the rows' cells; x holds codes (n,) or levels (n, D), and every one must be in range.

    Examples
    --------
    >>> cell_codes([[0, 2], [1, 0]], levels=[2, 3])
    array([2, 3])
    """
    rows = np.asarray(x)
    if rows.dtype.kind not in "iu" or not (rows.ndim == 1 or (rows.ndim == 2 and rows.shape[1] == len(levels))):
        raise DataError(f"Cells must be integers of shape (n,) or (n, {len(levels)}); got {rows.dtype}, {rows.shape}.")
    bounds = np.asarray(levels) if rows.ndim == 2 else np.asarray([number_of_cells(levels)])
    table = rows if rows.ndim == 2 else rows[:, None]
    outside = (table < 0) | (table >= bounds)
    if outside.any():
        row, column = np.argwhere(outside)[0]
        name = f"Variable {column}" if rows.ndim == 2 else "A cell's code"
        raise DataError(f"{name} must be in 0..{bounds[column] - 1}; got {table[row, column]} in row {row}.")
    return rows.astype(np.int64) if rows.ndim == 1 else np.ravel_multi_index(tuple(rows.T), tuple(levels))


def cell_levels(codes: ArrayLike, levels: Sequence[int]) -> IntArray:
    """Return levels (n, D) of cell codes (n,): the inverse of `cell_codes`.

    Examples
    --------
    >>> cell_levels([2, 3], levels=[2, 3])
    array([[0, 2],
           [1, 0]])
    """
    return np.stack(np.unravel_index(np.asarray(codes), tuple(levels)), axis=1).astype(np.int64)


def one_hot(cells: IntArray, levels: Sequence[int]) -> sparse.csr_matrix:
    """Return sparse one-hot columns (n, m_1 + ⋯ + m_D) of levels (n, d); those of variables beyond d are zero.

    Examples
    --------
    >>> one_hot(np.array([[0, 2], [1, 0]]), levels=[2, 3]).toarray()
    array([[1., 0., 0., 0., 1.],
           [0., 1., 1., 0., 0.]])
    """
    n, d = cells.shape
    columns = cells + np.cumsum([0, *levels[:-1]])[:d]
    return sparse.csr_matrix((np.ones(n * d), columns.ravel(), np.arange(n + 1) * d), shape=(n, sum(levels)))


def level_columns(levels: Sequence[int]) -> list[slice]:
    """Return the one-hot columns of each variable."""
    return [slice(int(start), int(stop)) for start, stop in pairwise(np.cumsum([0, *levels]))]


def draw_levels(probabilities: FloatArray, generator: np.random.Generator) -> IntArray:
    """Draw one level for each row of a table (n, m) of probabilities, by inversion."""
    cumulative = np.cumsum(probabilities, axis=1)
    u = generator.random((len(probabilities), 1)) * cumulative[:, -1:]
    return (u >= cumulative).sum(axis=1)


def _weight_of_rows(sample_weight: ArrayLike | None, n: int) -> FloatArray:
    weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,) or not np.all(np.isfinite(weight)) or weight.min(initial=0.0) < 0.0:
        raise DataError(f"sample_weight must hold one finite number >= 0 for each of {n} rows; got {weight.shape}.")
    return weight


class CellDensity(ABC):
    """A law p̂ over the cells of one group (or one group and label).

    Cells come in as codes of shape (n,) or as levels of shape (n, D); log-probabilities come out in float64.
    """

    levels: tuple[int, ...]

    def fit(
        self,
        x: ArrayLike,
        validation: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        validation_weight: ArrayLike | None = None,
    ) -> Self:
        """Estimate p̂ from the cells of a sample, and tune it by the cells of held-out rows."""
        held_out = CellCounts.of(validation, self.levels, validation_weight)
        self._fit_counts(CellCounts.of(x, self.levels, sample_weight), held_out)
        return self

    @abstractmethod
    def _fit_counts(self, counts: CellCounts, held_out: CellCounts) -> None:
        """Estimate p̂ from counts."""

    def log_prob(self, x: ArrayLike) -> FloatArray:
        """Return the log-probability of each row's cell, of shape (n,)."""
        return in_chunks(lambda codes: self._log_prob(cell_levels(codes, self.levels)), cell_codes(x, self.levels))

    @abstractmethod
    def _log_prob(self, cells: IntArray) -> FloatArray:
        """Return the log-probabilities of cells that are given by their levels (n, D)."""

    def log_prob_of_all_cells(self) -> FloatArray:
        """Return the log-probability of every cell, in the order of codes; probabilities sum to 1 within 1e-10."""
        return self.log_prob(np.arange(number_of_cells(self.levels)))

    @abstractmethod
    def sample(self, n: int, generator: np.random.Generator) -> IntArray:
        """Draw n cells from p̂, as levels of shape (n, D)."""


def in_chunks(function: Callable[[IntArray], FloatArray], rows: IntArray) -> FloatArray:
    """Return a function of many rows, evaluated on a few thousand of them at a time to keep memory small."""
    starts = range(0, max(1, len(rows)), _ROWS_PER_CHUNK)
    return np.concatenate([function(rows[start : start + _ROWS_PER_CHUNK]) for start in starts])


def log_prob_on_support(densities: Sequence[CellDensity], support: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return log-probabilities on the support, (K, S), and the mass 1 − Σ p̂_a of each density outside it, (K,)."""
    log_p = np.stack([density.log_prob(support) for density in densities])
    return log_p, np.maximum(0.0, 1.0 - np.exp(log_p).sum(axis=1))


class SmoothedCounts(CellDensity):
    r"""Counts of cells with additive smoothing towards a Chow–Liu tree.

    .. math:: \hat p(x) = \frac{c(x) + α q(x)}{n + α} = (1 - w) \frac{c(x)}{n} + w q(x), \qquad w = \frac{α}{n + α}

    q(x) = Π_d q(x_d | x_parent(d)) is the tree of pairs of largest likelihood (Chow and Liu, 1968). The weight w
    maximises the likelihood of held-out rows, which is concave in w.

    Parameters
    ----------
    levels : sequence of int
        Level counts m_1, ..., m_D.

    Examples
    --------
    >>> x = np.array([[0, 0], [0, 0], [1, 2], [1, 2]] * 10)
    >>> density = SmoothedCounts([2, 3]).fit(x, x)
    >>> bool(density.log_prob([[0, 0]])[0] > density.log_prob([[0, 1]])[0])
    True
    """

    weight_: float
    counts_: CellCounts
    tree_: PairTree

    def __init__(self, levels: Sequence[int]) -> None:
        self.levels = checked_levels(levels)

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
        """Return c(x)/n, zero for unseen cells."""
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
        """Return the log-probability of each cell."""
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
    """Return the tree of largest total mutual information, from the joint frequencies of all pairs of levels."""
    marginal = np.diag(joint)
    product = np.outer(marginal, marginal)
    terms = joint * np.log(np.divide(joint, product, out=np.ones_like(joint), where=joint > 0))
    information = np.add.reduceat(np.add.reduceat(terms, starts, axis=0), starts, axis=1)
    # csgraph reads 0 as "no edge": a constant added to every edge leaves the best tree the best and connects all.
    return minimum_spanning_tree(-(information - information.min() + 1.0))

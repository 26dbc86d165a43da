"""Persons to come: bounds for cells that were cut at order statistics.

A binary tree is given whose nodes carry scores and shares that were fixed without looking at n_a persons of each group
a. It is cut at order statistics of these persons' scores, ties broken by independent coins. The true probabilities of
its leaves then have a known law, whatever the distribution of the scores is (Wald 1943, Tukey 1947: statistically
equivalent blocks),

    (P_a(C = 1), …, P_a(C = k)) ~ Dirichlet(b_a1, …, b_ak),    Σ_j b_aj = n_a + 1,

independently for each group. So a bound on their distance follows from the integers b_aj alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.stats import binom

from fairflows.arrays import NDArray
from fairflows.bounds.arguments import FloatArray, checked_delta
from fairflows.exceptions import DataError

IntArray = NDArray[np.int64]

MONTE_CARLO_ERROR = 1e-6
"""The probability that the order statistic of the draws lies below the quantile that it stands for."""

FEWEST_DRAWS = 20_000
_DRAWS_ABOVE = 500  # the mean number of draws above the quantile, where that takes no more numbers than the next line
_NUMBERS = 10_000_000
_NUMBERS_AT_ONCE = 2_000_000
_SEED = 0
_DRAWS_TO_PLAN = 2_000


@dataclass(frozen=True)
class Leaves:
    """Leaves of a tree that were cut further into cells, later and at fewer persons: those who were still there.

    The leaves' probabilities follow the law of their own blocks. Given its leaf, a cell's follows the law of the blocks
    of the cells in this leaf, independently.
    """

    of_cell: Int[IntArray, " k"]  # the leaf of each cell
    blocks: Int[IntArray, "K n_leaves"]


def blocks_upper_bound(blocks: ArrayLike, delta: float, leaves: Sequence[Leaves] = ()) -> float:
    r"""Bound the true statistical distance between groups, as seen through leaves cut at order statistics.

    .. math:: U = (1 - δ)\text{-quantile of } \max_{a<b} \tfrac12 \sum_j |D_{aj} - D_{bj}|,
              \qquad D_a \sim \mathrm{Dirichlet}(b_{a1}, …, b_{ak})

    With probability at least 1 - δ over the persons at whom the tree was cut, every classifier on the leaf of a fresh
    person has a demographic parity distance of at most U. The quantile is an order statistic of gamma draws with a
    fixed seed, moved up so that Monte-Carlo error makes it too small with a probability of at most 10⁻⁶.

    Proof: [Dirichlet blocks](proofs.md#dirichlet-blocks).

    Parameters
    ----------
    blocks : array-like of int of shape (K, k)
        The blocks b_aj of each group in each leaf, before leaves are merged. Each group's sum to its persons plus one.
    delta : float
        δ, the probability of a miss.
    leaves : sequence of Leaves, default=()
        The leaves that the cells were cut from, then those that these were cut from, and so on; their blocks count
        persons, and those of the cells the persons who were there when the leaves were cut further.

    Examples
    --------
    >>> round(blocks_upper_bound([even_blocks(667, 8), even_blocks(333, 8)], delta=0.05), 2)
    0.11
    """
    blocks = checked_blocks(blocks)
    above = tuple((of.of_cell.tobytes(), of.blocks.tobytes(), of.blocks.shape) for of in _checked(leaves, blocks))
    return _quantile(blocks.tobytes(), blocks.shape, checked_delta(delta), above)


def foreseen_blocks_bound(blocks: ArrayLike, delta: float, leaves: Sequence[Leaves] = ()) -> float:
    """Estimate `blocks_upper_bound` from few draws, within about two per cent, to plan with.

    Examples
    --------
    >>> even = [even_blocks(667, 8), even_blocks(333, 8)]
    >>> abs(foreseen_blocks_bound(even, delta=0.05) / blocks_upper_bound(even, delta=0.05) - 1) < 0.03
    True
    """
    distances = _drawn_distances(checked_blocks(blocks), _DRAWS_TO_PLAN, leaves=leaves)
    return float(np.quantile(distances, 1 - checked_delta(delta)))


@lru_cache(maxsize=64)  # plans, statements and their checks ask for the same quantile again
def _quantile(
    blocks_bytes: bytes,
    shape: tuple[int, int],
    delta: float,
    above: tuple[tuple[bytes, bytes, tuple[int, int]], ...],
) -> float:
    blocks = np.frombuffer(blocks_bytes, dtype=np.int64).reshape(shape)
    leaves = [
        Leaves(np.frombuffer(of_cell, dtype=np.int64), np.frombuffer(own, dtype=np.int64).reshape(of_leaves))
        for of_cell, own, of_leaves in above
    ]
    if blocks.shape[1] == 1:
        return 0.0
    return upper_quantile(_drawn_distances(blocks, draws_for(blocks.size, delta), leaves=leaves), delta)


def draws_for(n_numbers: int, delta: float) -> int:
    """Return how many draws of so many numbers each a quantile at 1 - δ takes."""
    return max(FEWEST_DRAWS, min(math.ceil(_DRAWS_ABOVE / delta), _NUMBERS // n_numbers))


def upper_quantile(drawn: Float[FloatArray, " n"], delta: float) -> float:
    """Return the order statistic that stands for the quantile at 1 - δ, moved up for Monte-Carlo error."""
    place = int(binom.isf(MONTE_CARLO_ERROR, len(drawn), 1 - delta))
    return float(np.sort(drawn)[place]) if place < len(drawn) else 1.0


def blocks_p_value(blocks: ArrayLike, counts: ArrayLike, leaves: Sequence[Leaves] = ()) -> float:
    """Test the law of blocks on persons who had no part in the tree.

    If the true probabilities of the leaves have the law of the blocks, the counts of fresh persons are
    Dirichlet-multinomial. The p-value is the probability of an observed distance as large as theirs, one-sided and
    doubled.

    Proof: [Dirichlet blocks](proofs.md#dirichlet-blocks).

    Parameters
    ----------
    blocks : array-like of int of shape (K, k)
        The blocks of each group in each leaf.
    counts : array-like of int of shape (K, k)
        Fresh persons of each group in each leaf.
    leaves : sequence of Leaves, default=()
        As of `blocks_upper_bound`.

    Examples
    --------
    >>> even = [even_blocks(500, 4), even_blocks(500, 4)]
    >>> blocks_p_value(even, [[50, 50, 50, 50], [50, 50, 50, 50]])
    1.0
    >>> blocks_p_value(even, [[80, 40, 40, 40], [20, 60, 60, 60]]) < 0.001
    True
    """
    blocks, counts = checked_blocks(blocks), np.asarray(counts, dtype=np.int64)
    if counts.shape != blocks.shape:
        raise DataError(f"counts must have the shape of blocks, {blocks.shape}; got shape {counts.shape}.")
    sizes = counts.sum(axis=1)
    if not sizes.all():
        return 1.0
    observed = float(_largest_distance(counts[None] / sizes[:, None])[0])
    drawn = _drawn_distances(blocks, FEWEST_DRAWS, sizes, _checked(leaves, blocks))
    at_least = int((drawn >= observed - 1e-12).sum())
    return min(1.0, 2 * (1 + at_least) / (1 + FEWEST_DRAWS))


def even_blocks(n_persons: int, n_cells: int) -> Int[IntArray, " {n_cells}"]:
    """Return the blocks of leaves that are cut by halves: a node with k leaves sends the share ⌊k/2⌋/k to its left.

    Parameters
    ----------
    n_persons : int
        Persons of the group.
    n_cells : int
        Leaves, at most one more than there are persons.

    Examples
    --------
    >>> even_blocks(99, 4)
    array([25, 25, 25, 25])
    """
    if not 1 <= n_cells <= n_persons + 1:
        raise DataError(f"n_cells must be between 1 and n_persons + 1 = {n_persons + 1}; got {n_cells}.")
    leaves, blocks = np.array([n_cells]), np.array([n_persons + 1])
    while (leaves > 1).any():
        left = leaves // 2
        cut = np.clip(blocks_to_the_left(blocks, left / leaves), left, blocks - (leaves - left)) * (leaves > 1)
        sides = np.stack([left, leaves - left], axis=1), np.stack([cut, blocks - cut], axis=1)
        leaves, blocks = (side[side_leaves > 0] for side_leaves, side in ((sides[0], sides[0]), (sides[0], sides[1])))
    return blocks


def blocks_to_the_left(blocks: Int[IntArray, "*nodes"], share: ArrayLike) -> Int[IntArray, "*cuts"]:
    """Return i, the blocks on the left of nodes with so many blocks, for the share that goes there."""
    return np.floor(blocks * np.asarray(share) + 0.5).astype(np.int64)


def pair_spread(n_persons: ArrayLike) -> float:
    """Return s = sqrt(1/n_a + 1/n_b) of the two smallest groups."""
    smallest = np.sort(np.asarray(n_persons, dtype=np.float64))[:2]
    return float(np.sqrt((1 / smallest).sum())) if (smallest > 0).all() else math.inf


def checked_blocks(blocks: ArrayLike) -> Int[IntArray, "K k"]:
    """Return blocks as integers of shape (K, k), all of them positive."""
    given = np.asarray(blocks)
    if given.ndim != 2 or given.shape[0] < 2 or given.shape[1] < 1:
        raise DataError(f"blocks must have shape (groups, cells) with at least two groups; got shape {given.shape}.")
    if given.dtype.kind not in "iu" or (given < 1).any():
        raise DataError("blocks must be whole numbers of at least 1.")
    return given.astype(np.int64)


def _checked(leaves: Sequence[Leaves], blocks: Int[IntArray, "K k"]) -> list[Leaves]:
    """Return leaves as whole numbers; raise where they are not leaves of these cells, or of the leaves before."""
    found, below = [], blocks
    for part in leaves:
        own, of_cell = checked_blocks(part.blocks), np.asarray(part.of_cell, dtype=np.int64)
        n_leaves = own.shape[1]
        if of_cell.shape != (below.shape[1],) or not np.array_equal(np.unique(of_cell), np.arange(n_leaves)):
            raise DataError(f"leaves must have a leaf for each of {below.shape[1]} cells, and a cell in each leaf.")
        inside = np.stack([np.bincount(of_cell, row, n_leaves) for row in below])
        if len(own) != len(below) or (inside > own).any():
            raise DataError("leaves must have the groups of the cells, and no fewer blocks than the cells in them.")
        found.append(Leaves(of_cell, own))
        below = own
    return found


def _drawn_distances(
    blocks: Int[IntArray, "K k"],
    n_draws: int,
    sizes: Int[IntArray, " K"] | None = None,
    leaves: Sequence[Leaves] = (),
) -> Float[FloatArray, " {n_draws}"]:
    """Draw the largest distance between two groups, of true probabilities or of counts of `sizes` fresh persons."""
    return np.concatenate([_largest_distance(drawn) for drawn in drawn_masses(blocks, n_draws, sizes, leaves)])


def drawn_masses(
    blocks: Int[IntArray, "K k"],
    n_draws: int,
    sizes: Int[IntArray, " K"] | None = None,
    leaves: Sequence[Leaves] = (),
) -> Iterator[Float[FloatArray, "_ K k"]]:
    """Yield draws of the leaves' true probabilities, or of the shares of `sizes` fresh persons in them."""
    generator, most = np.random.default_rng(_SEED), max(1, _NUMBERS_AT_ONCE // blocks.size)
    for start in range(0, n_draws, most):
        drawn = _drawn_probabilities(blocks, leaves, min(most, n_draws - start), generator)
        if sizes is not None:
            drawn = generator.multinomial(sizes, drawn) / sizes[:, None]
        yield drawn


def _drawn_probabilities(
    blocks: Int[IntArray, "K k"], leaves: Sequence[Leaves], n: int, generator: np.random.Generator
) -> Float[FloatArray, "n K k"]:
    """Draw the probabilities of cells: those of the leaves, times those of the cells in each leaf."""
    drawn = generator.standard_gamma(blocks, size=(n, *blocks.shape))
    if not leaves:
        return drawn / drawn.sum(axis=-1, keepdims=True)
    of_cell = leaves[0].of_cell
    order = np.argsort(of_cell, kind="stable")
    sums = np.add.reduceat(drawn[..., order], np.searchsorted(of_cell[order], np.arange(of_cell.max() + 1)), axis=-1)
    of_leaves = _drawn_probabilities(leaves[0].blocks, leaves[1:], n, generator)
    return drawn * (of_leaves / sums)[..., of_cell]


def _largest_distance(p: Float[FloatArray, "n K k"]) -> Float[FloatArray, " n"]:
    """Return max_{a<b} ½ Σ_j |p_aj - p_bj|."""
    K = p.shape[1]
    return np.max([np.abs(p[:, a] - p[:, b]).sum(axis=1) / 2 for a in range(K) for b in range(a)], axis=0)

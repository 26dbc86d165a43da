"""Laws on finitely many cells: their exact distance where they are known, bounds where persons were counted.

The bounds are distribution-free, about the true law, for a release of one cell per person. The map from persons to
cells (codec ranges, scores, edges, the number of cells) must be fixed before the certifying persons are looked at, and
each of them gives one row. Nothing else is assumed about the law.

The receiver of a certificate can compute its bounds again from the counts that are printed in it. A cell in which a
group has few persons is not printed by itself. Merging cells can only bring the groups closer together, so merged cells
enter a bound as if they told the group with certainty: it is never below the bound from the full counts.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from fairflows.arrays import NDArray
from fairflows.bounds.arguments import (
    FloatArray,
    checked_counts,
    checked_delta,
    checked_priors,
    checked_probabilities,
    plain,
)

FEWEST_PERSONS = 10
"""A cell in which a group has fewer persons than this, and not none, is merged."""


def total_variation(p: ArrayLike) -> Float[FloatArray, "*tables K K"]:
    r"""Return the total variation between all pairs of K laws on k cells: (..., K, k) in, (..., K, K) out.

    .. math:: TV_{ab} = \tfrac12 \sum_i |p_{a,i} - p_{b,i}|
    """
    p = np.asarray(p, dtype=np.float64)
    distances = np.zeros((*p.shape[:-1], p.shape[-2]))
    for a in range(p.shape[-2]):  # over groups: K × k numbers in memory at a time, not K × K × k
        distances[..., a, :] = np.abs(p[..., a, None, :] - p).sum(axis=-1) / 2
    return distances


def exact_statistical_distance(probabilities: ArrayLike) -> Float[FloatArray, "*tables"] | float:
    r"""Return the largest statistical distance between two groups whose cell probabilities are known.

    .. math:: Δ = \max_{a,b} \tfrac12 \sum_i |p_a(i) - p_b(i)|

    This is the model-based distance of a categorical encoder: a float64 sum, so nothing is added for sampling.

    Parameters
    ----------
    probabilities : array-like of shape (..., K, k)
        Probability of each of k cells in each of K groups.

    Examples
    --------
    >>> exact_statistical_distance([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25]])
    0.25
    """
    return plain(np.minimum(total_variation(checked_probabilities(probabilities)).max(axis=(-2, -1)), 1))


def exact_adversary_accuracy(
    probabilities: ArrayLike, priors: ArrayLike | None = None
) -> Float[FloatArray, "*tables"] | float:
    r"""Return the accuracy of the best guess of the group from the cell.

    .. math:: A^* = \sum_i \max_a π_a p_a(i)

    Parameters
    ----------
    probabilities : array-like of shape (..., K, k)
        Probability of each of k cells in each of K groups.
    priors : array-like of shape (K,), default=None
        Share π_a of each group; equal shares by default.

    Examples
    --------
    >>> exact_adversary_accuracy([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25]])
    0.625
    """
    probabilities = checked_probabilities(probabilities)
    priors = checked_priors(priors, probabilities.shape[-2])
    return plain(np.minimum((priors[:, None] * probabilities).max(axis=-2).sum(axis=-1), 1))


def cell_upper_bound(counts: ArrayLike, delta: float) -> Float[FloatArray, "*tables"] | float:
    r"""Return an upper bound on the true statistical distance between groups, seen through the released cell.

    .. math:: U = \min\Bigl(1,\; \tfrac12 \sum_i \Bigl|\frac{c_{0,i}}{n_0} - \frac{c_{1,i}}{n_1}\Bigr|
              + \sqrt{\tfrac12 \Bigl(\frac{1}{n_0} + \frac{1}{n_1}\Bigr) \log\frac1δ}\Bigr)

    With probability at least 1 - δ over the counted persons, *every* classifier on the released cell, for whatever
    task, has a demographic parity distance of at most U on a fresh person. TV is jointly convex, so the observed
    distance is on average above the true one (Jensen), and one person moves it by at most 1/n_a (McDiarmid). The number
    of cells is not in the second term; it enters through the upward bias of the first, about
    :math:`0.56 \sqrt{k/n}`.

    For K > 2 groups the bound is on the worst pair: either each pair at δ / (K choose 2), or all at once with the
    radius :math:`\sqrt{\tfrac12 \log(1/δ) \sum_a 1/n_a}`, whichever is smaller for these group sizes (the choice does
    not look at the cells).

    Proof: [Counted persons](proofs.md#counted-persons).

    Parameters
    ----------
    counts : array-like of shape (..., K, k)
        Persons of each group in each cell; leading axes hold separate tables. A group without persons gives 1.
    delta : float
        δ, the probability of a miss.

    Returns
    -------
    float or array of shape (...)

    Examples
    --------
    >>> round(cell_upper_bound([[2600, 2400], [2400, 2600]], delta=0.05), 4)
    0.0645
    """
    counts = checked_counts(counts)
    return merged_upper_bound(counts, np.zeros(counts.shape[:-1]), delta)


def cell_radius(n: ArrayLike, delta: float) -> Float[FloatArray, "*tables K K"]:
    """Return the term that `cell_upper_bound` adds for each pair: shape (..., K) in, (..., K, K) out.

    Parameters
    ----------
    n : array-like of shape (..., K)
        Persons of each group; infinite radius for a group without any.
    delta : float
        δ, the probability of a miss.

    Examples
    --------
    >>> cell_radius([5000, 5000], delta=0.05).round(4)
    array([[0.    , 0.0245],
           [0.0245, 0.    ]])
    """
    variance = _variance(n)
    K = variance.shape[-1]
    L = -math.log(checked_delta(delta))
    together = np.sqrt(L / 2 * variance.sum(axis=-1))[..., None, None]
    pairs = np.sqrt((L + math.log(math.comb(K, 2))) / 2 * (variance[..., :, None] + variance[..., None, :]))
    other = ~np.eye(K, dtype=bool)
    pairs = np.where(other, pairs, 0)
    return np.where(other & (together < pairs.max(axis=(-2, -1), keepdims=True)), together, pairs)


def has_few_persons(counts: ArrayLike) -> Bool[NDArray[np.bool_], "*any"]:
    """Return which counts are between 1 and 9."""
    counts = np.asarray(counts)
    return (counts > 0) & (counts < FEWEST_PERSONS)


def cells_to_merge(counts: ArrayLike) -> Bool[NDArray[np.bool_], " k"]:
    """Return which of k cells are merged into one entry, so that no printed number is of 1 to 9 persons.

    These are the cells with such a number. Where all of them together still have too few persons of a group, which
    could be told from the group's size, more cells are added, the cheapest first. Tables along leading axes of the
    counts (..., K, k) are merged alike.

    Examples
    --------
    >>> cells_to_merge([[50, 3, 40, 90], [60, 20, 0, 90]])
    array([False,  True,  True, False])
    """
    counts = checked_counts(counts)
    # what a cell costs is what two groups have in common there: of the worst two, the smaller frequency
    cost = np.sort(_frequencies(counts), axis=-2)[..., -2, :].reshape(-1, counts.shape[-1]).max(axis=0)
    by_group = counts.reshape(-1, counts.shape[-1])
    merged = np.asarray(has_few_persons(by_group).any(axis=0))
    while True:
        lacking = has_few_persons(by_group[:, merged].sum(axis=1))
        helps = ~merged & (by_group[lacking] > 0).any(axis=0)
        if not helps.any():  # enough persons, or a group that has too few in all cells
            return merged
        merged[np.where(helps, cost, np.inf).argmin()] = True


def merged_distance(counts: ArrayLike, merged: ArrayLike) -> Float[FloatArray, "*tables K K"]:
    r"""Return the largest distance (..., K, K) between two groups that counts with merged cells allow.

    .. math:: \tfrac12 \sum_i \Bigl|\frac{c_{a,i}}{n_a} - \frac{c_{b,i}}{n_b}\Bigr|
              + \tfrac12 \Bigl(\frac{m_a}{n_a} + \frac{m_b}{n_b}\Bigr)

    `counts` (..., K, k) are of the cells that are not merged, `merged` (..., K) of the others, see
    `merged_upper_bound`.

    Examples
    --------
    >>> merged_distance([[500, 400], [500, 450]], [100, 50]).round(3)
    array([[0. , 0.1],
           [0.1, 0. ]])
    """
    counts, merged = np.asarray(counts, dtype=np.float64), np.asarray(merged, dtype=np.float64)
    every = _frequencies(checked_counts(np.concatenate([counts, merged[..., None]], axis=-1)))
    p, mu = every[..., :-1], every[..., -1]
    other = ~np.eye(p.shape[-2], dtype=bool)
    return total_variation(p) + np.where(other, (mu[..., :, None] + mu[..., None, :]) / 2, 0)


def merged_upper_bound(counts: ArrayLike, merged: ArrayLike, delta: float) -> Float[FloatArray, "*tables"] | float:
    """Return `cell_upper_bound` from counts with merged cells: an upper bound on the true statistical distance.

    Proof: [Counted persons](proofs.md#counted-persons).

    Parameters
    ----------
    counts : array-like of shape (..., K, k)
        Persons of each group in each cell that is not merged; there may be none.
    merged : array-like of shape (..., K)
        Persons of each group in the merged cells together, or left out of the counts for any other reason.
    delta : float
        δ, the probability of a miss.

    Examples
    --------
    >>> round(merged_upper_bound([[2600, 2380], [2400, 2590]], [20, 10], delta=0.05), 4)
    0.0685
    """
    n = np.asarray(counts, dtype=np.float64).sum(axis=-1) + np.asarray(merged, dtype=np.float64)
    bounds = merged_distance(counts, merged) + cell_radius(n, delta)
    return plain(np.minimum(bounds.max(axis=(-2, -1)), 1))


def _frequencies(counts: Float[FloatArray, "*tables K k"]) -> Float[FloatArray, "*tables K k"]:
    n = counts.sum(axis=-1, keepdims=True)
    return counts / np.where(n > 0, n, 1)


def _variance(n: ArrayLike) -> Float[FloatArray, "*tables K"]:
    """Return 1/n, which is infinite for n = 0, so that the bound is 1."""
    n = np.asarray(n, dtype=np.float64)
    return np.where(n > 0, 1 / np.where(n > 0, n, 1), np.inf)

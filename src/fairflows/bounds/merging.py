"""Bounds from counts that can be shown to anybody: cells of few persons are merged, and cost what they may tell.

Whoever receives a certificate can compute its bounds again from the counts that are printed in it. A cell in which a
group has few persons is not printed by itself. Merging cells can only bring the groups closer together, so merged cells
enter a bound as if they told the group with certainty: it is never below the bound from the full counts.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import pdtr

from fairflows.bounds.arguments import FloatArray, checked_counts, checked_delta, checked_priors, plain
from fairflows.bounds.counts import cell_radius, total_variation

FEWEST_PERSONS = 10
"""A cell in which a group has fewer persons than this, and not none, is merged."""


def has_few_persons(counts: ArrayLike, fewest: int = FEWEST_PERSONS) -> NDArray[np.bool_]:
    """Whether counts are of 1 to ``fewest`` - 1 persons."""
    counts = np.asarray(counts)
    return (counts > 0) & (counts < fewest)


def cells_to_merge(counts: ArrayLike, fewest: int = FEWEST_PERSONS) -> NDArray[np.bool_]:
    """Which cells are merged into one entry, so that no printed number is of 1 to ``fewest`` - 1 persons.

    These are the cells with such a number. Where all of them together still have too few persons of a group, which
    could be told from the group's size, more cells are added, the cheapest first.

    Parameters
    ----------
    counts : array-like of shape (..., K, k)
        Persons of each group in each cell; tables along leading axes are merged alike.
    fewest : int
        The smallest number of persons that is printed.

    Returns
    -------
    array of bool of shape (k,)

    Examples
    --------
    >>> cells_to_merge([[50, 3, 40, 90], [60, 20, 0, 90]])
    array([False,  True,  True, False])
    """
    counts = checked_counts(counts)
    frequencies = counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1)
    # what a cell costs is what two groups have in common there: of the worst two, the smaller frequency
    cost = np.sort(frequencies, axis=-2)[..., -2, :].reshape(-1, counts.shape[-1]).max(axis=0)
    by_group = counts.reshape(-1, counts.shape[-1])
    merged = np.asarray(has_few_persons(by_group, fewest).any(axis=0))
    while True:
        lacking = has_few_persons(by_group[:, merged].sum(axis=1), fewest)
        helps = ~merged & (by_group[lacking] > 0).any(axis=0)
        if not helps.any():  # enough persons, or a group that has too few in all cells
            return merged
        merged[np.where(helps, cost, np.inf).argmin()] = True


def merged_distance(counts: ArrayLike, merged: ArrayLike) -> FloatArray:
    r"""The largest distance between two groups that counts with merged cells allow, for every pair.

    .. math:: \tfrac12 \sum_i \Bigl|\frac{c_{a,i}}{n_a} - \frac{c_{b,i}}{n_b}\Bigr|
              + \tfrac12 \Bigl(\frac{m_a}{n_a} + \frac{m_b}{n_b}\Bigr)

    Parameters
    ----------
    counts : array-like of shape (..., K, k)
        Persons of each group in each cell that is not merged; there may be none.
    merged : array-like of shape (..., K)
        Persons of each group in the merged cells together, or left out of the counts for any other reason.

    Returns
    -------
    array of shape (..., K, K)

    Examples
    --------
    >>> merged_distance([[500, 400], [500, 450]], [100, 50]).round(3)
    array([[0. , 0.1],
           [0.1, 0. ]])
    """
    p, mu, _ = _frequencies(counts, merged)
    other = ~np.eye(p.shape[-2], dtype=bool)
    return total_variation(p) + np.where(other, (mu[..., :, None] + mu[..., None, :]) / 2, 0)


def merged_upper_bound(counts: ArrayLike, merged: ArrayLike, delta: float, *, eta: float = 1.0) -> FloatArray | float:
    """Upper bound on the true statistical distance: `cell_upper_bound`, from counts with merged cells.

    Parameters
    ----------
    counts, merged
        As for `merged_distance`.
    delta : float
        δ, the probability of a miss.
    eta : float
        For randomised response, the probability that a person's own cell is released; the counts are those of the own
        cells. Distance and radius both shrink by it.

    Examples
    --------
    >>> round(merged_upper_bound([[2600, 2380], [2400, 2590]], [20, 10], delta=0.05), 4)
    0.0685
    """
    n = np.asarray(counts, dtype=np.float64).sum(axis=-1) + np.asarray(merged, dtype=np.float64)
    bounds = eta * merged_distance(counts, merged) + cell_radius(n, delta, eta=eta)
    return plain(np.minimum(bounds.max(axis=(-2, -1)), 1))


def merged_accuracy_upper_bound(
    counts: ArrayLike, merged: ArrayLike, delta: float, priors: ArrayLike | None = None, *, eta: float = 1.0
) -> FloatArray | float:
    r"""Upper bound on the best guess of the group: `stratified_accuracy_upper_bound`, from counts with merged cells.

    .. math:: A^* \le \sum_i \max_a π_a \frac{c_{a,i}}{n_a} + \sum_a π_a \frac{m_a}{n_a}
              + \sqrt{\tfrac12 \log\frac1δ \sum_a \frac{π_a^2}{n_a}}

    With randomised response only the advantage over a blind guess, max π, shrinks by η, and the radius.

    Parameters
    ----------
    counts, merged, delta, eta
        As for `merged_upper_bound`.
    priors : array-like of shape (K,), optional
        Share π_a of each group where the adversary works; equal shares by default.

    Examples
    --------
    >>> round(merged_accuracy_upper_bound([[2600, 2380], [2400, 2590]], [20, 10], delta=0.05), 4)
    0.5342
    """
    p, mu, n = _frequencies(counts, merged)
    pi = checked_priors(priors, p.shape[-2])
    best = (pi[:, None] * p).max(axis=-2, initial=0).sum(axis=-1) + (pi * mu).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.where(pi > 0, pi**2 / n, 0)  # a group with prior 0 needs no persons
    radius = eta * np.sqrt(-math.log(checked_delta(delta)) / 2 * variance.sum(axis=-1))
    return plain(np.minimum(pi.max() + eta * (best - pi.max()) + radius, 1))


def chance_of_merging(probabilities: ArrayLike, n: ArrayLike, fewest: int = FEWEST_PERSONS) -> FloatArray:
    """The chance that a cell will be merged when n persons of each group are counted, for each cell.

    Counts are taken for Poisson's, and cells that are added to others for none.

    Parameters
    ----------
    probabilities : array-like of shape (K, k)
        Probability of each cell in each group.
    n : array-like of shape (..., K)
        Persons of each group that will be counted.
    fewest : int
        As for `cells_to_merge`.

    Returns
    -------
    array of shape (..., k)

    Examples
    --------
    >>> chance_of_merging([[0.95, 0.05], [0.8, 0.2]], [200, 1000]).round(3)
    array([0.   , 0.458])
    """
    expected = np.asarray(n, dtype=np.float64)[..., None] * np.asarray(probabilities, dtype=np.float64)
    return 1 - np.prod(1 - (pdtr(fewest - 1, expected) - np.exp(-expected)), axis=-2)


def _frequencies(counts: ArrayLike, merged: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Frequencies of the cells that are printed, of the merged ones together, and the size of each group."""
    counts, merged = np.asarray(counts, dtype=np.float64), np.asarray(merged, dtype=np.float64)
    every = checked_counts(np.concatenate([counts, merged[..., None]], axis=-1))
    n = every.sum(axis=-1)
    p = every / np.where(n > 0, n, 1)[..., None]
    return p[..., :-1], p[..., -1], n

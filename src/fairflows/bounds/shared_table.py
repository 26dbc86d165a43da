"""The table that is shared, counted exactly: no persons are held out, and nothing is left to chance.

The n rows of a file have cells and groups, all of them fixed: c_aj rows of group a in cell j, n_a in all. Random are
the row that is asked about, and the draws of rows from cells.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, ndtr, ndtri

from fairflows.bounds.arguments import FloatArray, checked_counts
from fairflows.bounds.blocks import pair_spread
from fairflows.bounds.cells import total_variation
from fairflows.exceptions import DataError

_DEVIATIONS = 9  # standard deviations of a hypergeometric law that are summed over: beyond lie less than 1e-15

_MOST_EXACT = 10_000_000  # rows of a group: the time grows with their root, and a certificate may claim any number


def table_distance(counts: ArrayLike) -> float:
    r"""Return the distance between the groups of a file, as seen through the cells of its rows.

    .. math:: Δ_{file} = \max_{a,b} \tfrac12 \sum_j \Bigl|\frac{c_{aj}}{n_a} - \frac{c_{bj}}{n_b}\Bigr|

    For *every* function d of the cell, chosen with any knowledge, the rates of two groups of the file differ by at most
    Δ_file, and its balanced accuracy at telling two groups apart is at most (1 + Δ_file)/2. Both are attained. Rows
    that are drawn from cells, by one law for all groups, tell no more on average.

    Parameters
    ----------
    counts : array-like of shape (K, k)
        Rows of each group in each cell.

    Examples
    --------
    >>> table_distance([[30, 30, 40], [30, 40, 30]])
    0.1
    """
    counts = checked_counts(counts)
    sizes = counts.sum(axis=-1, keepdims=True)
    if not sizes.all():
        raise DataError("Every group of the table needs rows; a group has none.")
    return float(np.round(total_variation(counts / sizes).max(), 15))


def drawn_rates_upper_bound(distance: float, n_rows: ArrayLike, n_cells: int, delta: float) -> float:
    r"""Return an upper bound on how far the rates of two groups differ among rows that were drawn from k cells.

    .. math:: Δ_{file} + \sqrt{\tfrac12 s^2 \Bigl(1 + \frac{k n}{2 n_0 n_1}\Bigr) \log\frac2δ},
              \qquad s^2 = \frac1{n_0} + \frac1{n_1}

    The rates of a rule on cells differ by Δ_file (`distance`) at most. Those of a rule on drawn rows do so on average:
    the rows of each group are one draw. The bound holds with probability 1 - δ over the draws, for a rule that may be
    computed from the drawn rows, but without their groups. Of several groups every pair has its share of δ.

    Examples
    --------
    >>> round(drawn_rates_upper_bound(0.001, [30_527, 14_695], 64, delta=0.05), 4)
    0.0147
    """
    pairs = list(combinations(np.asarray(n_rows, dtype=np.float64), 2))
    spreads = [(1 / a + 1 / b) * (1 + n_cells * (a + b) / (2 * a * b)) for a, b in pairs]
    return min(1.0, distance + math.sqrt(max(spreads) / 2 * math.log(2 * len(pairs) / delta)))


def known_share_distance(counts: ArrayLike, share: float, n_persons: ArrayLike | None = None) -> tuple[float, float]:
    r"""Return the mean and the 95 % point of the distance when a random share f of the attributes is known.

    An adversary who knows the group of a random share f of the persons, and can place them in cells, subtracts them
    from the counts. The R_a = (1 - f) n_a rows that are left of group a differ between the groups by

    .. math:: Δ(f) = \tfrac12 \sum_j \mathrm{E}\Bigl|\frac{x_j}{R_0} - \frac{y_j}{R_1}\Bigr|, \qquad
              x_j \sim \mathrm{Hypergeometric}(n_0, c_{0j}, R_0), \; y_j \sim \mathrm{Hypergeometric}(n_1, c_{1j}, R_1)

    on average, which is about 0.399·sqrt((k - 1)·f/(1 - f)·(1/(n_0 - 1) + 1/(n_1 - 1))) for matched cells. Of several
    groups the pair with the largest mean counts. The 95 % point is

    .. math:: Δ(f) + c \sqrt{f/(1 - f)}\, \sqrt{1/n_0 + 1/n_1}

    For two groups in matched cells c = 0.5. Where cells differ by Δ_file the distance varies more, up to c = 0.82 where
    all of Δ(f) is Δ_file. Of several groups the largest distance of a pair counts, which varies more than that of one
    pair: c then grows with the number of pairs.

    Parameters
    ----------
    counts : array-like of shape (K, k)
        Rows of each group in each cell.
    share : float
        f, the share of the rows whose group is known, in [0, 1).
    n_persons : array-like of shape (K,), default=None
        The number of persons of equal weight that the rows of each group stand for, (Σm)²/Σm² where a person has m
        rows, because persons and not rows are known. The law of x_j is then taken for normal, as it is for more than
        ten million rows. Equal to the rows by default.

    Examples
    --------
    >>> [round(number, 3) for number in known_share_distance([[100] * 16, [50] * 16], 0.5)]
    [0.067, 0.089]
    """
    counts = checked_counts(counts)
    if not 0 <= share < 1:
        raise DataError(f"share must be in [0, 1); got {share!r}.")
    sizes = counts.sum(axis=1)
    n = sizes if n_persons is None else np.asarray(n_persons, dtype=np.float64)
    pairs = list(combinations(range(len(counts)), 2))
    if n_persons is None and sizes.max() <= _MOST_EXACT:
        left = np.maximum(np.round((1 - share) * sizes), 1).astype(np.int64)
        means = [_mean_distance(counts[list(pair)].astype(np.int64), left[list(pair)].tolist()) for pair in pairs]
    else:
        p = counts / sizes[:, None]
        variance = share / (1 - share) * p * (1 - p) / n[:, None]
        means = [float(mean_of_folded_normal(p[a] - p[b], variance[a] + variance[b]).sum() / 2) for a, b in pairs]
    mean = min(1.0, max(means))
    # The part of the mean that is not chance: next to nothing where cells are matched but for rounding.
    of_file = max(0.0, min(1.0, table_distance(counts) / max(mean, 1e-300)) - 0.3) / 0.7
    factor = (0.5 + 0.32 * of_file**2) * (1.0 if len(pairs) == 1 else 0.7 * float(ndtri(1 - 0.05 / len(pairs))))
    return mean, min(1.0, mean + factor * math.sqrt(share / (1 - share)) * pair_spread(n))


Law = tuple[FloatArray, FloatArray]
"""The values of a discrete law in rising order, and its distribution function at each of them."""


def _rest_law(n: int, count: int, left: int) -> Law:
    """Return the law of the share x/R of a cell with `count` of n rows among the R = `left` rows that are not known."""
    mean = left * count / n
    width = 1 + _DEVIATIONS * math.sqrt(mean * (1 - count / n) + 1)
    low, high = max(0, count + left - n, int(mean - width)), min(count, left, int(mean + width) + 1)
    x = np.arange(low, high + 1)
    log_p = _log_choose(count, x) + _log_choose(n - count, left - x) - _log_choose(n, np.array(left))
    p = np.exp(log_p)
    return x / left, np.minimum(np.cumsum(p / p.sum()), 1.0)


def _log_choose(n: int, k: NDArray) -> FloatArray:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def _mean_distance(counts: NDArray, left: list[int]) -> float:
    """Return ½ Σ_j E|x_j/R_0 - y_j/R_1| for two groups; cells of equal counts are computed once."""
    n = counts.sum(axis=1).tolist()
    distinct, times = np.unique(counts, axis=1, return_counts=True)
    means = [_mean_difference(*(_rest_law(n[a], int(column[a]), left[a]) for a in (0, 1))) for column in distinct.T]
    return float(np.dot(means, times) / 2)


def _mean_difference(one: Law, other: Law) -> float:
    """Return E|X - Y| = ∫ F(1 - G) + G(1 - F) of independent X and Y with the distribution functions F and G."""
    steps = np.union1d(one[0], other[0])
    F, G = (np.concatenate([[0.0], law])[np.searchsorted(values, steps, side="right")] for values, law in (one, other))
    return float(((F * (1 - G) + G * (1 - F))[:-1] * np.diff(steps)).sum())


def mean_of_folded_normal(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Return E|N(mean, variance)|, which is |mean| where nothing varies."""
    sigma = np.sqrt(variance)
    z = np.abs(mean) / np.where(sigma > 0, sigma, 1)
    folded = sigma * np.sqrt(2 / np.pi) * np.exp(-(z**2) / 2) + np.abs(mean) * (1 - 2 * ndtr(-z))
    return np.where(sigma > 0, folded, np.abs(mean))

"""The table that is shared, counted exactly: no persons are held out, and nothing is left to chance.

The n rows of a file have cells and groups, all of them fixed: c_aj rows of group a in cell j, n_a in all. Random are
the row that is asked about, and the draws of rows from cells.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.special import gammaln, ndtr

from fairflows.arrays import NDArray
from fairflows.bounds.arguments import FloatArray, Numbers, checked_counts
from fairflows.bounds.cells import total_variation
from fairflows.exceptions import DataError

_DEVIATIONS = 9  # standard deviations of a hypergeometric law that are summed over: beyond lie less than 1e-15

_POINT = 0.95
_SKEWNESS = 0.995  # of |N(0, 1)|
_FROM_ABOVE = 1.05  # by which the deviation is taken larger, so that simulations stay below the point
_STEPS = 1_001  # of the grid on which a law is tabulated

_MOST_EXACT = 10_000_000  # rows of a group: the time grows with their root, and a certificate may claim any number


def table_distance(counts: ArrayLike) -> float:
    r"""Return the distance between the groups of a file, as seen through the cells of its rows.

    .. math:: Δ_{file} = \max_{a,b} \tfrac12 \sum_j \Bigl|\frac{c_{aj}}{n_a} - \frac{c_{bj}}{n_b}\Bigr|

    For *every* function d of the cell, chosen with any knowledge, the rates of two groups of the file differ by at most
    Δ_file, and its balanced accuracy at telling two groups apart is at most (1 + Δ_file)/2. Both are attained. Rows
    that are drawn from cells, by one law for all groups, tell no more on average.

    Proof: [This table](proofs.md#this-table), [Rows drawn from a cell](proofs.md#rows-drawn-from-a-cell).

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
    from the counts. The R_a = (1 - f) n_a rows that are left of two groups differ by

    .. math:: D = \tfrac12 \sum_j \Bigl|\frac{x_j}{R_0} - \frac{y_j}{R_1}\Bigr|, \qquad
              x_j \sim \mathrm{Hypergeometric}(n_0, c_{0j}, R_0), \; y_j \sim \mathrm{Hypergeometric}(n_1, c_{1j}, R_1)

    with a mean of about :math:`0.399 \sqrt{(k - 1) \frac{f}{1 - f} (\frac1{n_0 - 1} + \frac1{n_1 - 1})}` for matched
    cells. For two groups the mean is exact. The law around it is that of a sum of folded normals: its standard
    deviation is bounded by that of the terms' Hermite expansion, and its quantiles are those of Cornish and Fisher
    for its skewness. Of several groups both numbers are about the largest distance of a pair, whose law is that of
    independent pairs. Simulations exceed the 95 % point at most one time in twenty, whether cells are matched or
    not.

    Argument: [Half of the table known](proofs.md#half-of-the-table-known).

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
    [0.067, 0.091]
    """
    counts = checked_counts(counts)
    if not 0 <= share < 1:
        raise DataError(f"share must be in [0, 1); got {share!r}.")
    sizes = counts.sum(axis=1)
    n = sizes if n_persons is None else np.asarray(n_persons, dtype=np.float64)
    p, left = counts / sizes[:, None], np.maximum(np.round((1 - share) * sizes), 1)
    variances = share / (1 - share) / np.maximum(n - 1, 1)  # of a share x_j/R_a, over p_j(1 - p_j)
    is_exact = n_persons is None and sizes.max() <= _MOST_EXACT
    means, deviations, skews = [], [], []
    for pair in map(list, combinations(range(len(counts)), 2)):
        w = variances[pair][:, None]
        if is_exact:
            means.append(_mean_distance(counts[pair].astype(np.int64), left[pair].astype(np.int64).tolist()))
        else:
            sigma2 = (w * p[pair] * (1 - p[pair])).sum(axis=0)
            means.append(float(mean_of_folded_normal(p[pair[0]] - p[pair[1]], sigma2).sum() / 2))
        deviation, skew = _spread_of_distance(p[pair], w)
        deviations.append(deviation)
        skews.append(skew)
    mean, point = _law_of_largest(np.array(means), _FROM_ABOVE * np.array(deviations), np.array(skews))
    of_one_row = 0.5 / float(np.sort(left)[1])  # the distance takes values of a grid, which matters for few rows
    return min(1.0, means[0] if len(means) == 1 else mean), min(1.0, point + of_one_row)


def _spread_of_distance(p: Float[FloatArray, "2 k"], w: Float[FloatArray, "2 1"]) -> tuple[float, float]:
    r"""Bound the standard deviation and the skewness of ½ Σ_j |X_j| from above, given a pair of laws p.

    The X_j are normal with the means d_j = p_0j - p_1j and Cov(X_i, X_j) = Σ_a w_a p_ai (1{i = j} - p_aj). The linear
    part of |X_j| in Hermite's polynomials is s_j (X_j - d_j); the variance of their sum is A. The rest of |X_j| has a
    variance r_j², and two rests have a covariance of at most Corr(X_i, X_j)² r_i r_j; the sum of these is B. The rests
    bring the skewness, which is that of |N(0, 1)| for a single one.
    """
    sigma2 = (w * p * (1 - p)).sum(axis=0)
    sigma = np.sqrt(np.where(sigma2 > 0, sigma2, 1.0))
    d = np.where(sigma2 > 0, (p[0] - p[1]) / sigma, 0.0)
    s = 2 * ndtr(d) - 1
    mean = np.sqrt(2 / np.pi) * np.exp(-(d**2) / 2) + d * s  # of |d + N(0, 1)|
    rest = np.where(sigma2 > 0, np.maximum(1 + d**2 - mean**2 - s**2, 0), 0.0)
    r2, u = sigma2 * rest, np.sqrt(rest) / sigma
    A = float((w[:, 0] * ((p * s**2).sum(axis=1) - (p * s).sum(axis=1) ** 2)).sum())
    B = float(r2.sum())
    for a, b in ((0, 0), (0, 1), (0, 1), (1, 1)):
        t = u * p[a] * p[b]
        B += float(w[a, 0] * w[b, 0] * (t.sum() ** 2 - (t**2).sum()))
    if not A + B > 0:
        return 0.0, 0.0
    n_terms = r2.sum() ** 2 / max(float((r2**2).sum()), 1e-300)  # as many of equal variance
    return math.sqrt(A + B) / 2, _SKEWNESS / math.sqrt(max(1.0, n_terms - 1)) * (B / (A + B)) ** 1.5


def _law_of_largest(
    mean: Float[FloatArray, " pairs"], deviation: Float[FloatArray, " pairs"], skew: Float[FloatArray, " pairs"]
) -> tuple[float, float]:
    """Return the mean and the 95 % point of the largest of independent numbers with these moments.

    A number is m + σ(Z + γ(Z² - 1)/6), with Z standard normal: the first terms of Cornish and Fisher.
    """
    deviation, g = np.maximum(deviation, 1e-12), np.maximum(skew, 1e-6) / 3
    x = np.linspace((mean - 8 * deviation).max(), (mean + 12 * deviation).max(), _STEPS)
    inside = 1 + 2 * g * ((x[:, None] - mean) / deviation + g / 2)
    F = np.where(inside > 0, ndtr((np.sqrt(np.maximum(inside, 0)) - 1) / g), 0.0).prod(axis=1)
    return float(x[0] + np.trapezoid(1 - F, x)), float(np.interp(_POINT, F, x))


Law = tuple[Float[FloatArray, " _"], Float[FloatArray, " _"]]
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


def _log_choose(n: int, k: Int[NDArray, "*values"]) -> Float[Numbers, "*values"]:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def _mean_distance(counts: Int[NDArray, "2 k"], left: list[int]) -> float:
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


def mean_of_folded_normal(
    mean: Float[FloatArray, "*#any"], variance: Float[FloatArray, "*any"]
) -> Float[FloatArray, "*any"]:
    """Return E|N(mean, variance)|, which is |mean| where nothing varies."""
    sigma = np.sqrt(variance)
    z = np.abs(mean) / np.where(sigma > 0, sigma, 1)
    folded = sigma * np.sqrt(2 / np.pi) * np.exp(-(z**2) / 2) + np.abs(mean) * (1 - 2 * ndtr(-z))
    return np.where(sigma > 0, folded, np.abs(mean))

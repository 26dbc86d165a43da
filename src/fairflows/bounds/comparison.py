"""Other published bounds on the same cells, to set ours beside."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fairflows.bounds.arguments import FloatArray, checked_counts, checked_delta, plain
from fairflows.bounds.distance import total_variation
from fairflows.bounds.lower_bounds import clopper_pearson_lower, clopper_pearson_upper
from fairflows.exceptions import DataError


def weissman_upper_bound(counts: ArrayLike, delta: float) -> FloatArray | float:
    r"""Bound on the distance of two groups from a bound on each group's own deviation.

    .. math:: Δ \le \widehat{TV} + \tfrac12 \sum_a \sqrt{\frac{2}{n_a} \log\frac{2 (2^k - 2)}{δ}}

    Each group's cell frequencies are within the a-th term of the truth in L1, at δ/2 (Weissman, Ordentlich, Seroussi,
    Verdú and Weinberger, "Inequalities for the L1 deviation of the empirical distribution", 2003).

    Parameters
    ----------
    counts : array-like of shape (..., 2, k)
        Persons of two groups in each of k cells.
    delta : float
        δ, the probability of a miss.
    """
    counts = _two_groups(counts)
    k, n = counts.shape[-1], counts.sum(axis=-1)
    if not np.all(n > 0):
        raise DataError("counts needs persons of both groups.")
    # log(2^k - 2), without overflow; a single cell cannot deviate.
    log_subsets = k * math.log(2) + math.log1p(-(2.0 ** (1 - k))) if k > 1 else -math.inf
    deviation = np.sqrt(np.maximum(2 * (log_subsets + math.log(2 / checked_delta(delta))), 0) / n)
    observed = total_variation(counts / n[..., None])[..., 0, 1]
    return plain(np.minimum(observed + deviation.sum(axis=-1) / 2, 1))


def fare_upper_bound(
    base_counts: ArrayLike,
    cell_counts: ArrayLike,
    cell_totals: ArrayLike,
    delta: float,
    *,
    delta_base: float = 0.005,
    delta_sum: float = 0.005,
) -> FloatArray | float:
    r"""The certificate of FARE for two groups, as its authors compute it, from three independent sets of rows.

    The balanced accuracy of the best adversary is :math:`\sum_i P(i) \max_a P(a | i) / 2P(a)`. On one set, a two-sided
    Clopper–Pearson interval at δ_base gives :math:`α_a \ge 1 / 2P(a)`. On a second, one at (δ - δ_base - δ_sum)/k for
    each of the k cells gives :math:`t_i \ge \max_a α_a P(a | i)`, not above the larger α. On a third, Hoeffding bounds
    the mean of t at δ_sum, with the range of the t_i as scale:

    .. math:: Δ \le 2 \Bigl(\overline t + (\max_i t_i - \min_i t_i) \sqrt{\log(1/δ_{sum}) / 2N}\Bigr) - 1

    Jovanović, Balunović, Dimitrov and Vechev, "FARE: Provably Fair Representation Learning with Practical
    Certificates", ICML 2023. The defaults of δ_base and δ_sum are those of their experiments, at δ = 0.05.

    Parameters
    ----------
    base_counts : array-like of shape (..., 2)
        Rows of each group in the first set (there, the training rows).
    cell_counts : array-like of shape (..., 2, k)
        Rows of each group in each cell in the second set (validation).
    cell_totals : array-like of shape (..., k)
        Rows in each cell in the third set (test).
    delta : float
        δ, the probability of a miss.
    delta_base, delta_sum : float
        The parts of δ that the first and the third step spend.

    Examples
    --------
    >>> cells = np.full((2, 8), 600)
    >>> round(fare_upper_bound(cells.sum(axis=1), cells, cells.sum(axis=0), delta=0.05), 2)
    0.11
    """
    cell_counts = _two_groups(cell_counts)
    base = np.asarray(base_counts, dtype=np.float64)
    totals = np.asarray(cell_totals, dtype=np.float64)
    left = checked_delta(delta) - delta_base - delta_sum
    if delta_base <= 0 or delta_sum <= 0 or left <= 0:
        raise ValueError(f"delta_base and delta_sum must be positive and sum to less than delta = {delta}.")
    if not np.all(base > 0) or not np.all(totals.sum(axis=-1) > 0):
        raise DataError("base_counts needs rows of both groups, and cell_totals at least one row.")
    alpha = 1 / (2 * clopper_pearson_lower(base, base.sum(axis=-1, keepdims=True), delta_base / 2))
    k = cell_counts.shape[-1]
    posterior = clopper_pearson_upper(cell_counts, cell_counts.sum(axis=-2, keepdims=True), left / k / 2)
    t = np.minimum((alpha[..., None] * posterior).max(axis=-2), alpha.max(axis=-1, keepdims=True))
    N = totals.sum(axis=-1)
    accuracy = (t * totals).sum(axis=-1) / N + np.ptp(t, axis=-1) * np.sqrt(-math.log(delta_sum) / (2 * N))
    return plain(np.clip(2 * accuracy - 1, 0, 1))


def _two_groups(counts: ArrayLike) -> FloatArray:
    counts = checked_counts(counts)
    if counts.shape[-2] != 2:
        raise DataError(
            f"this bound is for two groups; got {counts.shape[-2]}. Take pairs, each at its share of delta."
        )
    return counts

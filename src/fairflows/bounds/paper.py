"""Bounds of the paper (Lemma 5.1 to 5.3), and two published ones for cells, to compare ours with.

Balunović, Ruoss and Vechev, "Fair Normalizing Flows", ICLR 2022: its estimator counts how often the optimal adversary
is right, and adds Hoeffding's radius; it is kept so that the paper's figures can be reproduced, with its lemma on KL
made tight. The bounds to use are those of `fairflows.bounds.model` and `fairflows.bounds.cells`.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from fairflows.bounds.arguments import FloatArray, checked_counts, checked_delta, checked_table, plain, smallest_true
from fairflows.bounds.cells import total_variation
from fairflows.bounds.lower_bounds import clopper_pearson_lower, clopper_pearson_upper
from fairflows.exceptions import DataError


def sign_estimate(log_densities: ArrayLike) -> float:
    r"""Estimate the statistical distance by the decisions of the optimal adversary (the paper's Lemma 5.1).

    .. math:: \hatΔ = \Bigl|\tfrac1n \sum_i μ^*(z_i^0) - \tfrac1n \sum_i μ^*(z_i^1)\Bigr|, \quad
              μ^*(z) = 1\{\hat p_{Z0}(z) \le \hat p_{Z1}(z)\}

    For K > 2 groups, of the worst pair. NaN counts as a right decision.

    Parameters
    ----------
    log_densities : array-like of shape (N, K, K)
        As for `statistical_distance`.
    """
    table = checked_table(log_densities)
    K = table.shape[1]
    return max(_pair_sign_estimate(table, a, b) for a in range(K) for b in range(a + 1, K))


def hoeffding_radius(n: int, delta: float) -> float:
    r"""Return the radius of the paper's Lemma 5.2, :math:`ε = \sqrt{-2 \log((1 - \sqrt{1-δ})/2) / n}`.

    It is added to the estimate from n draws per group.

    Examples
    --------
    >>> round(hoeffding_radius(10_000, 0.05), 4), round(hoeffding_radius(100_000, 0.05), 4)
    (0.0296, 0.0093)
    """
    if n < 1:
        raise DataError(f"n must be at least 1; got {n!r}.")
    # (1 - √(1-δ))/2 = δ / 2(1 + √(1-δ)), which loses no digit and does not vanish for the smallest δ.
    delta = checked_delta(delta)
    return math.sqrt(2 * (math.log(2 * (1 + math.sqrt(1 - delta))) - math.log(delta)) / n)


def sign_upper_bound(log_densities: ArrayLike, delta: float) -> float:
    """Return the upper bound on Δ of the paper's Lemma 5.2: `sign_estimate` + `hoeffding_radius`.

    For K > 2 groups the radius is that of δ / (K choose 2).
    """
    table = checked_table(log_densities)
    n, K, _ = table.shape
    return min(1.0, sign_estimate(table) + hoeffding_radius(n, checked_delta(delta) / math.comb(K, 2)))


def kl_upper_bound(symmetrised_kl: ArrayLike) -> Float[FloatArray, "*any"] | float:
    r"""Return the largest statistical distance of two laws with J = KL(p, q) + KL(q, p) (Lemma 5.3, made tight).

    .. math:: J \ge 4 Δ \,\mathrm{artanh}\, Δ

    with equality for two points of mass (1±Δ)/2. The paper's Δ² ≤ J/4 follows, as artanh Δ ≥ Δ, but says nothing from
    J = 4 on. For a *known* J only: one estimated from samples can be far too small, and is never a certificate.

    Parameters
    ----------
    symmetrised_kl : array-like
        J, the sum of the two divergences, in nats; it may be infinite.

    Examples
    --------
    >>> [round(kl_upper_bound(J), 3) for J in (1, 2, 4, 8)]
    [0.479, 0.648, 0.834, 0.968]
    """
    J = np.asarray(symmetrised_kl, dtype=np.float64)
    if not np.all(J >= 0):
        raise DataError("symmetrised_kl must not be negative or NaN.")
    # With Δ = tanh v the relation is v·tanh(v) = J/4, well scaled for every J; v(1 - tanh v) < 1 gives the bracket.
    quarter = np.asarray(np.minimum(J / 4, 100))  # tanh(100) is 1 to the last bit
    v = smallest_true(lambda v: v * np.tanh(v) >= quarter, np.zeros_like(quarter), np.asarray(quarter + 1), halvings=60)
    return plain(np.tanh(np.where(J > 0, v, 0)))


def weissman_upper_bound(counts: ArrayLike, delta: float) -> Float[FloatArray, "*tables"] | float:
    r"""Return a bound on the distance of two groups from a bound on each group's own deviation.

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
) -> Float[FloatArray, "*tables"] | float:
    r"""Return the certificate of FARE for two groups, as its authors compute it, from three independent sets of rows.

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
        raise DataError(f"delta_base and delta_sum must be positive and sum to less than delta = {delta}.")
    if not np.all(base > 0) or not np.all(totals.sum(axis=-1) > 0):
        raise DataError("base_counts needs rows of both groups, and cell_totals at least one row.")
    alpha = 1 / (2 * clopper_pearson_lower(base, base.sum(axis=-1, keepdims=True), delta_base / 2))
    k = cell_counts.shape[-1]
    posterior = clopper_pearson_upper(cell_counts, cell_counts.sum(axis=-2, keepdims=True), left / k / 2)
    t = np.minimum((alpha[..., None] * posterior).max(axis=-2), alpha.max(axis=-1, keepdims=True))
    N = totals.sum(axis=-1)
    accuracy = (t * totals).sum(axis=-1) / N + np.ptp(t, axis=-1) * np.sqrt(-math.log(delta_sum) / (2 * N))
    return plain(np.clip(2 * accuracy - 1, 0, 1))


def _pair_sign_estimate(table: Float[FloatArray, "N K K"], a: int, b: int) -> float:
    with np.errstate(invalid="ignore"):  # inf - inf is NaN
        u_a, u_b = table[:, a, a] - table[:, a, b], table[:, b, a] - table[:, b, b]
    says_b_given_a = np.where(np.isnan(u_a), False, u_a <= 0)
    says_b_given_b = np.where(np.isnan(u_b), True, u_b <= 0)
    return float(abs(says_b_given_b.mean() - says_b_given_a.mean()))


def _two_groups(counts: ArrayLike) -> Float[FloatArray, "*tables 2 k"]:
    counts = checked_counts(counts)
    if counts.shape[-2] != 2:
        raise DataError(
            f"this bound is for two groups; got {counts.shape[-2]}. Take pairs, each at its share of delta."
        )
    return counts

"""Bounds of the paper (Lemma 5.1 to 5.3), to compare ours with.

Balunović, Ruoss and Vechev, "Fair Normalizing Flows", ICLR 2022: its estimator counts how often the optimal adversary
is right, and adds Hoeffding's radius; it is kept so that the paper's figures can be reproduced, with its lemma on KL
made tight. The bounds to use are those of `fairflows.bounds.model` and `fairflows.bounds.cells`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fairflows.bounds.arguments import FloatArray, checked_delta, checked_table, plain, smallest_true
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


def kl_upper_bound(symmetrised_kl: ArrayLike) -> FloatArray | float:
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
    quarter = np.minimum(J / 4, 100)  # tanh(100) is 1 to the last bit
    v = smallest_true(lambda v: v * np.tanh(v) >= quarter, np.zeros_like(quarter), quarter + 1, halvings=60)
    return plain(np.tanh(np.where(J > 0, v, 0)))


def _pair_sign_estimate(table: FloatArray, a: int, b: int) -> float:
    with np.errstate(invalid="ignore"):  # inf - inf is NaN
        u_a, u_b = table[:, a, a] - table[:, a, b], table[:, b, a] - table[:, b, b]
    says_b_given_a = np.where(np.isnan(u_a), False, u_a <= 0)
    says_b_given_b = np.where(np.isnan(u_b), True, u_b <= 0)
    return float(abs(says_b_given_b.mean() - says_b_given_a.mean()))

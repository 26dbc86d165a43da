"""The bounds of the paper itself, kept so that its figures can be reproduced, and its lemma on KL made tight.

Balunović, Ruoss and Vechev, "Fair Normalizing Flows", ICLR 2022. Its estimator counts how often the optimal adversary
is right, and adds Hoeffding's radius; the bound to use is the one of `fairflows.bounds.model`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fairflows.bounds.arguments import FloatArray, checked_delta, checked_table, plain
from fairflows.bounds.bisection import smallest_true
from fairflows.exceptions import DataError


def sign_estimate(log_densities: ArrayLike) -> float:
    r"""The paper's estimate of the statistical distance, from the decisions of the optimal adversary.

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
    r"""What the paper adds to its estimate: :math:`ε = \sqrt{-2 \log((1 - \sqrt{1-δ})/2) / n}`, n draws a group.

    Examples
    --------
    >>> round(hoeffding_radius(10_000, 0.05), 4), round(hoeffding_radius(100_000, 0.05), 4)
    (0.0296, 0.0093)
    """
    if n < 1:
        raise ValueError(f"n must be at least 1; got {n!r}.")
    return math.sqrt(_draws_times_squared_radius(delta) / n)


def samples_needed(epsilon: float, delta: float) -> int:
    r"""Draws a group for which the paper's estimate errs by at most ε with probability at least 1 - δ.

    .. math:: n \ge -2 \log\Bigl(\frac{1 - \sqrt{1-δ}}{2}\Bigr) / ε^2

    Examples
    --------
    >>> samples_needed(epsilon=0.01, delta=0.05)
    87386
    """
    if not 0 < epsilon <= 1:
        raise ValueError(f"epsilon must be in (0, 1]; got {epsilon!r}.")
    return math.ceil(_draws_times_squared_radius(delta) / epsilon**2)


def sign_upper_bound(log_densities: ArrayLike, delta: float) -> float:
    """The paper's upper bound on Δ: `sign_estimate` + `hoeffding_radius`, at δ / (K choose 2) for K > 2 groups."""
    table = checked_table(log_densities)
    n, K, _ = table.shape
    return min(1.0, sign_estimate(table) + hoeffding_radius(n, checked_delta(delta) / math.comb(K, 2)))


def kl_upper_bound(symmetrised_kl: ArrayLike) -> FloatArray | float:
    r"""Largest statistical distance that two laws with J = KL(p, q) + KL(q, p) can have.

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


def _draws_times_squared_radius(delta: float) -> float:
    # (1 - √(1-δ))/2 = δ / 2(1 + √(1-δ)), which loses no digit and does not vanish for the smallest δ.
    delta = checked_delta(delta)
    return 2 * (math.log(2 * (1 + math.sqrt(1 - delta))) - math.log(delta))


def _pair_sign_estimate(table: FloatArray, a: int, b: int) -> float:
    with np.errstate(invalid="ignore"):  # inf - inf is NaN
        u_a, u_b = table[:, a, a] - table[:, a, b], table[:, b, a] - table[:, b, b]
    says_b_given_a = np.where(np.isnan(u_a), False, u_a <= 0)
    says_b_given_b = np.where(np.isnan(u_b), True, u_b <= 0)
    return float(abs(says_b_given_b.mean() - says_b_given_a.mean()))

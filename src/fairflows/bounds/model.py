"""Model-based bounds: the advantage of the best adversary if the estimated densities are the truth.

Everything here is a function of one table of shape (N, K drawn, K density). Row i holds one fresh draw z_i^a from the
latent law p̂_Za of every group a, and log p̂_Zb(z_i^a) under every group b. One draw from *each* group per row: the
numbers averaged below are then independent and equally distributed, which all bounds need. Filling them group after
group breaks that, and the bounds with it.

The mean of such numbers is bounded by betting against every smaller mean.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from fairflows.arrays import NDArray
from fairflows.bounds.arguments import FloatArray, checked_delta, checked_priors, checked_table, plain, smallest_true
from fairflows.exceptions import DataError

# A stake below 1 keeps the capital positive even when X = 1 meets m = 0.
_LARGEST_STAKE = 1 - 1e-6
_HALVINGS = 30  # 1e-9, far below any width that a sample can reach


def betting_upper_bound(x: ArrayLike, delta: float) -> Float[FloatArray, "*samples"] | float:
    r"""Return an upper bound on a mean that holds with probability at least 1 - δ, for any law on [0, 1].

    A gambler who believes that the mean is m bets on the next X being smaller; her capital

    .. math:: C_t(m) = \prod_{i \le t} \bigl(1 + λ_i (m - X_i)\bigr)

    is a non-negative martingale when m is the mean, so it ever reaches 1/δ with probability at most δ (Ville). The
    bound is the smallest m that made her this rich:

    .. math:: U = \min\{m : \max_t \log C_t(m) \ge L\}, \quad L = \log(1/δ), \quad
              λ_i = \min\Bigl(\sqrt{2L / (N s^2_{i-1})},\; 1 - 10^{-6}\Bigr)

    with the running variance s² of the numbers before i. It adapts to the variance: numbers that are all close to zero
    give a width of order 1/N. Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting",
    JRSS B 86 (2024).

    Proof: [Betting](proofs.md#betting).

    Parameters
    ----------
    x : array-like of shape (..., N)
        Independent draws in [0, 1] of one law; N was fixed before the first draw. NaN counts as 1. Leading axes hold
        separate samples.
    delta : float
        δ, the probability of a miss.

    Returns
    -------
    float or array of shape (...)
        One bound for each sample, in [0, 1]; 1 when N = 0.

    Examples
    --------
    >>> round(betting_upper_bound(np.zeros(10_000), delta=0.05), 5)
    0.00031
    """
    L = -np.log(checked_delta(delta))
    x = _checked_numbers(x)
    if x.shape[-1] == 0:
        return plain(np.ones(x.shape[:-1]))
    stakes = _stakes(x, L)
    capital = np.empty_like(x)

    def rich_enough(m: FloatArray) -> Bool[NDArray[np.bool_], "*samples"]:
        # Monotone in m: the stakes do not depend on it and are positive, so every factor 1 + λ(m - X), its logarithm,
        # each partial sum and their maximum grow with m. Rounded subtraction, product and sum keep order as well.
        np.subtract(m[..., None], x, out=capital)
        np.multiply(stakes, capital, out=capital)
        np.log1p(capital, out=capital)
        np.cumsum(capital, axis=-1, out=capital)
        return np.asarray(capital.max(axis=-1) >= L)

    ones = np.ones(x.shape[:-1])
    return plain(smallest_true(rich_enough, np.zeros_like(ones), ones, halvings=_HALVINGS))


def _checked_numbers(x: ArrayLike) -> Float[FloatArray, "*samples N"]:
    x = np.asarray(x, dtype=np.float64)
    if x.ndim == 0:
        raise DataError("x must hold a sample along its last axis; got a single number.")
    x = np.where(np.isnan(x), 1.0, x)  # what cannot be computed is counted against the claim
    if x.size and (x.min() < 0 or x.max() > 1):
        raise DataError(f"x must lie in [0, 1]; got values from {x.min():.6g} to {x.max():.6g}.")
    return x


def _stakes(x: Float[FloatArray, "*samples N"], L: float) -> Float[FloatArray, "*samples N"]:
    """Return λ_1, ..., λ_N: each depends only on the numbers before its own, so the capital is a martingale."""
    N = x.shape[-1]
    t = np.arange(1, N + 1)
    mu = (1 / 2 + np.cumsum(x, axis=-1)) / (t + 1)
    s2 = (1 / 4 + np.cumsum((x - mu) ** 2, axis=-1)) / (t + 1)
    stakes = np.empty_like(x)
    stakes[..., 0] = np.sqrt(2 * L / (N * (1 / 4)))  # before any number, s² = 1/4
    stakes[..., 1:] = np.sqrt(2 * L / (N * s2[..., :-1]))
    return np.minimum(stakes, _LARGEST_STAKE, out=stakes)


_NUMBERS_AT_A_TIME = 2**22


def distance_terms(log_densities: ArrayLike) -> Float[FloatArray, "pairs N"]:
    r"""Return the independent numbers in [0, 1] whose mean is the statistical distance, for each pair of groups.

    .. math:: X_i = \tfrac12 \bigl(|\tanh(u(z_i^a)/2)| + |\tanh(u(z_i^b)/2)|\bigr), \quad
              u(z) = \log \hat p_{Za}(z) - \log \hat p_{Zb}(z)

    as |tanh(u/2)| = |p_a - p_b| / (p_a + p_b). It is the sign estimator (`sign_estimate`) averaged over the group that
    a point may have come from (Rao–Blackwell): same mean, never more variance, and an error e in u costs at most
    ½E|e|.

    Parameters
    ----------
    log_densities : array-like of shape (N, K, K)
        Table of log-densities, drawn group before density. A NaN, also from infinities that cancel, gives X = 1.

    Returns
    -------
    array of shape (K(K-1)/2, N)
        One row for each pair a < b, in the order of ``numpy.triu_indices(K, 1)``.
    """
    table = checked_table(log_densities)
    return np.stack([_pair_terms(table, a, b) for a, b in combinations(range(table.shape[1]), 2)])


def statistical_distance(log_densities: ArrayLike) -> float:
    r"""Estimate the statistical distance Δ between the groups' latent laws; for K > 2 groups, of the worst pair.

    The mean of `distance_terms`: unbiased for each pair, without any allowance for sampling error. For that,
    see `statistical_distance_upper_bound`; for every pair, take the means of `distance_terms`.

    Parameters
    ----------
    log_densities : array-like of shape (N, K, K)
        Row i holds one draw z_i^a from every group's latent law and log p̂_Zb(z_i^a) under every group b. NaN counts
        as fully told apart.

    Examples
    --------
    Two unit Gaussians at distance d = 1 have Δ = 2Φ(1/2) - 1 = 0.383.

    >>> z = np.random.default_rng(0).normal(loc=[0.0, 1.0], size=(100_000, 2))
    >>> log_densities = -((z[:, :, None] - np.array([0.0, 1.0])) ** 2) / 2
    >>> round(statistical_distance(log_densities), 2)
    0.38
    """
    return float(distance_terms(log_densities).mean(axis=1).max())


def statistical_distance_upper_bound(log_densities: ArrayLike, delta: float) -> float:
    """Return an upper bound on Δ of the estimated densities, with probability at least 1 - δ over the draws.

    The betting bound on `distance_terms`; for K > 2 groups on the worst pair, each pair at δ / (K choose 2). The number
    of draws N must be fixed before drawing, the draws be fresh (never those of training), and to report the best of m
    models takes δ/m or new draws after choosing.

    Proof: [Betting](proofs.md#betting).

    Parameters
    ----------
    log_densities : array-like of shape (N, K, K)
        Log-densities of N draws from each of K groups (second axis) under each of K densities (third axis).
    delta : float
        δ, the probability of a miss.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(loc=[0.0, 1.0], size=(100_000, 2))
    >>> log_densities = -((z[:, :, None] - np.array([0.0, 1.0])) ** 2) / 2
    >>> 0.383 < statistical_distance_upper_bound(log_densities, delta=0.05) < 0.387
    True
    """
    terms = distance_terms(log_densities)
    return max(float(betting_upper_bound(x, checked_delta(delta) / len(terms))) for x in terms)


def draws_needed(log_densities: ArrayLike, delta: float, width: float) -> int:
    r"""Return the number of fresh draws that put the upper bound about `width` above Δ.

    With the largest variance :math:`s^2` of the pairs' terms and L = log(1/δ), the betting bound is about
    :math:`\sqrt{2 L s^2 / N} + 2 L / N` wide. The number may be computed from a first table and fixed before the draws
    of a second one, which are independent of it: the bound from these holds as with any fixed number.

    Parameters
    ----------
    log_densities : array-like of shape (N, K, K)
        A table of other draws than those that the bound will be computed from.
    delta, width : float
        δ of the bound, and how far above Δ it may lie.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(loc=[0.0, 0.1], size=(10_000, 2))
    >>> log_densities = -((z[:, :, None] - np.array([0.0, 0.1])) ** 2) / 2
    >>> 10_000 < draws_needed(log_densities, delta=0.001, width=0.001) < 40_000
    True
    """
    terms = distance_terms(log_densities)
    L = -np.log(checked_delta(delta) / len(terms))
    return int(np.ceil(2 * L * (terms.var(axis=1).max() / width**2 + 1 / width)))


def adversary_accuracy(log_densities: ArrayLike, priors: ArrayLike | None = None) -> float:
    r"""Estimate the accuracy A* of the best guess of the group; for two equal groups (1 + Δ)/2.

    .. math:: A^* = \mathrm{E} \sum_a π_a h(z^a), \quad h(z) = \max_b \mathrm{softmax}_b(\log π_b + \log \hat p_{Zb}(z))

    Parameters
    ----------
    log_densities : array-like of shape (N, K, K)
        Log-densities of N draws from each of K groups (second axis) under each of K densities (third axis).
    priors : array-like of shape (K,), default=None
        Share π_a of each group where the adversary works; equal shares when not given.

    Examples
    --------
    >>> z = np.random.default_rng(0).normal(loc=[0.0, 1.0], size=(100_000, 2))
    >>> log_densities = -((z[:, :, None] - np.array([0.0, 1.0])) ** 2) / 2
    >>> round(adversary_accuracy(log_densities), 2), round(adversary_accuracy(log_densities, priors=[0.9, 0.1]), 2)
    (0.69, 0.9)
    """
    table = checked_table(log_densities)
    priors = checked_priors(priors, table.shape[1])
    total = 0.0
    step = max(1, _NUMBERS_AT_A_TIME // table[0].size)  # a few copies of a part of the table, not of all of it
    for start in range(0, len(table), step):
        # A group without members or a point without mass is log 0; where nothing has mass, NaN: that counts as h = 1.
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = np.log(priors) + table[start : start + step]
            h = 1 / np.exp(scores - scores.max(axis=2, keepdims=True)).sum(axis=2)  # softmax at its largest entry
        total += float((np.where(np.isnan(h), 1.0, h) @ priors).sum())
    return total / len(table)


def _pair_terms(table: Float[FloatArray, "N K K"], a: int, b: int) -> Float[FloatArray, " N"]:
    with np.errstate(invalid="ignore"):  # inf - inf is NaN
        u_a, u_b = table[:, a, a] - table[:, a, b], table[:, b, a] - table[:, b, b]
    return (_told_apart(u_a) + _told_apart(u_b)) / 2


def _told_apart(u: Float[FloatArray, " N"]) -> Float[FloatArray, " N"]:
    """|tanh(u/2)|, where NaN counts as 1."""
    told_apart = np.abs(np.tanh(u / 2))
    return np.where(np.isnan(told_apart), 1.0, told_apart)

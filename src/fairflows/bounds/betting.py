"""An upper confidence bound on the mean of numbers in [0, 1], by betting against every smaller mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairflows.bounds.arguments import FloatArray, checked_delta, plain, smallest_true
from fairflows.exceptions import DataError

# A stake below 1 keeps the capital positive even when X = 1 meets m = 0.
_LARGEST_STAKE = 1 - 1e-6
_HALVINGS = 30  # 1e-9, far below any width that a sample can reach


def betting_upper_bound(x: ArrayLike, delta: float) -> FloatArray | float:
    r"""Upper bound on a mean that holds with probability at least 1 - δ, for any law on [0, 1].

    A gambler who believes that the mean is m bets on the next X being smaller; her capital

    .. math:: C_t(m) = \prod_{i \le t} \bigl(1 + λ_i (m - X_i)\bigr)

    is a non-negative martingale when m is the mean, so it ever reaches 1/δ with probability at most δ (Ville). The
    bound is the smallest m that made her this rich:

    .. math:: U = \min\{m : \max_t \log C_t(m) \ge L\}, \quad L = \log(1/δ), \quad
              λ_i = \min\Bigl(\sqrt{2L / (N s^2_{i-1})},\; 1 - 10^{-6}\Bigr)

    with the running variance s² of the numbers before i. It adapts to the variance: numbers that are all close to zero
    give a width of order 1/N. Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting",
    JRSS B 86 (2024).

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

    def rich_enough(m: FloatArray) -> NDArray[np.bool_]:
        # Monotone in m: the stakes do not depend on it and are positive, so every factor 1 + λ(m - X), its logarithm,
        # each partial sum and their maximum grow with m. Rounded subtraction, product and sum keep order as well.
        np.subtract(m[..., None], x, out=capital)
        np.multiply(stakes, capital, out=capital)
        np.log1p(capital, out=capital)
        np.cumsum(capital, axis=-1, out=capital)
        return np.asarray(capital.max(axis=-1) >= L)

    ones = np.ones(x.shape[:-1])
    return plain(smallest_true(rich_enough, np.zeros_like(ones), ones, halvings=_HALVINGS))


def _checked_numbers(x: ArrayLike) -> FloatArray:
    x = np.asarray(x, dtype=np.float64)
    if x.ndim == 0:
        raise DataError("x must hold a sample along its last axis; got a single number.")
    x = np.where(np.isnan(x), 1.0, x)  # what cannot be computed is counted against the claim
    if x.size and (x.min() < 0 or x.max() > 1):
        raise DataError(f"x must lie in [0, 1]; got values from {x.min():.6g} to {x.max():.6g}.")
    return x


def _stakes(x: FloatArray, L: float) -> FloatArray:
    """λ_1, ..., λ_N: each looks only at the numbers before its own, which is what makes the capital a martingale."""
    N = x.shape[-1]
    t = np.arange(1, N + 1)
    mu = (1 / 2 + np.cumsum(x, axis=-1)) / (t + 1)
    s2 = (1 / 4 + np.cumsum((x - mu) ** 2, axis=-1)) / (t + 1)
    stakes = np.empty_like(x)
    stakes[..., 0] = np.sqrt(2 * L / (N * (1 / 4)))  # before any number, s² = 1/4
    stakes[..., 1:] = np.sqrt(2 * L / (N * s2[..., :-1]))
    return np.minimum(stakes, _LARGEST_STAKE, out=stakes)

"""Lower bounds on the true distance from an adversary that was actually run."""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from fairflows.bounds.arguments import FloatArray, Numbers, checked_delta, plain
from fairflows.exceptions import DataError, check_choice

Method = Literal["clopper-pearson", "hoeffding"]


def attack_lower_bound(
    k: ArrayLike, n: ArrayLike, delta: float, *, method: Method = "clopper-pearson", groups: tuple[int, int] = (0, 1)
) -> Float[FloatArray, "*adversaries"] | float:
    r"""Return a lower bound on the true statistical distance, from an adversary's decisions on test persons.

    The adversary g answers 1 for k_a of n_a persons of group a. In no two groups a, b do its true rates differ by more
    than Δ, so

    .. math:: Δ \ge \mathrm{CP}_{low}(k_b, n_b, α') - \mathrm{CP}_{up}(k_a, n_a, α'), \quad α' = 1 - \sqrt{1-δ}

    (Clopper and Pearson, one-sided) or :math:`Δ \ge k_b/n_b - k_a/n_a - \sqrt{\tfrac12 (1/n_a + 1/n_b) \log(1/δ)}`
    (Hoeffding), each with probability at least 1 - δ. The adversary, its threshold, its direction, the pair of groups
    and the method must be chosen on other persons, or the best of m be reported at δ/m.

    The same bound on real rows of group a against samples of p̂_a is a lower bound on TV(p̂_a, p_a): how wrong the
    density is at least.

    Proof: [Attacks](proofs.md#attacks).

    Parameters
    ----------
    k : array-like of shape (..., K)
        Number of test persons of each group for which g = 1.
    n : array-like of shape (..., K)
        Number of test persons of each group, one row each.
    delta : float
        δ, the probability of a miss.
    method : {"clopper-pearson", "hoeffding"}, default="clopper-pearson"
        Clopper–Pearson is the tighter for rates near 0 or 1, Hoeffding for rates near one half.
    groups : pair of int, default=(0, 1)
        The group in which g should seldom answer 1, and the one in which it should often.

    Returns
    -------
    float or array of shape (...)
        In [0, 1]; 0 when the adversary shows nothing.

    Examples
    --------
    >>> round(attack_lower_bound(k=[100, 900], n=[1000, 1000], delta=0.05), 3)
    0.76
    """
    k, n = np.broadcast_arrays(np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64))
    if k.ndim == 0 or k.shape[-1] < 2:
        raise DataError(f"k and n must hold one number for each of at least two groups; got shape {k.shape}.")
    if not np.all((k >= 0) & (k <= n)):
        raise DataError("k must be between 0 and n in every group: it counts the persons of n for whom g = 1.")
    delta = checked_delta(delta)
    check_choice("method", method, get_args(Method))
    (k_a, n_a), (k_b, n_b) = ((k[..., group], n[..., group]) for group in groups)
    if method == "clopper-pearson":
        # Both limits hold with probability (1 - α')² = 1 - δ: the groups' persons are independent.
        alpha = -math.expm1(math.log1p(-delta) / 2)
        bound = clopper_pearson_lower(k_b, n_b, alpha) - clopper_pearson_upper(k_a, n_a, alpha)
    else:
        with np.errstate(divide="ignore"):
            radius = np.sqrt(-math.log(delta) / 2 * (1 / n_a + 1 / n_b))
        bound = k_b / np.maximum(n_b, 1) - k_a / np.maximum(n_a, 1) - radius
    return plain(np.clip(bound, 0, 1))


def clopper_pearson_lower(k: ArrayLike, n: ArrayLike, alpha: float) -> Float[FloatArray, "*any"]:
    """Return the one-sided lower limit on a rate, k of n seen: the α-quantile of Beta(k, n - k + 1); 0 at k = 0."""
    k, n = np.broadcast_arrays(np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64))
    some = k > 0
    return np.where(some, betaincinv(np.where(some, k, 1), n - k + 1, alpha), 0)


def clopper_pearson_upper(k: ArrayLike, n: ArrayLike, alpha: float) -> Float[Numbers, "*any"]:
    """Return the one-sided upper limit on a rate: one minus the lower limit of the other outcome; 1 at k = n."""
    k, n = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    return 1 - clopper_pearson_lower(n - k, n, alpha)

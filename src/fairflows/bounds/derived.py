"""Consequences of a bound on Δ for parity, odds, accuracy and errors.

Demographic parity needs no function: Δ is the largest parity distance that any classifier on the release can have, and
one attains it. For K groups the same holds of the worst pair. With Δ_y = TV(Z | a, y; Z | b, y) every classifier has an
equal-opportunity gap ≤ Δ_1 and an equalized-odds gap (the larger over labels) ≤ max_y Δ_y. The marginal Δ bounds
neither: bounds are computed within each label, each at δ/|Y|. They are printed rounded, and never to the side that was
not proved.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from fairflows.bounds.arguments import checked_distance
from fairflows.exceptions import DataError


def true_distance_upper_bound(distance: float, density_errors: ArrayLike) -> float:
    r"""Return a bound on Δ of the true law from the error of the densities (the paper's Theorem 5.5).

    .. math:: Δ(p_Z) \le Δ(\hat p_Z) + TV(\hat p_a, p_a) + TV(\hat p_b, p_b), \qquad TV(p, q) = \tfrac12 \int |p - q|

    as encoders keep TV and TV obeys the triangle inequality. For K groups, where `distance` is of the worst pair, the
    two largest errors count.

    Parameters
    ----------
    distance : float
        Δ(p̂_Z), or an upper bound on it.
    density_errors : array-like of shape (K,)
        TV(p̂_a, p_a) of each group, or upper bounds.

    Examples
    --------
    >>> round(true_distance_upper_bound(0.1, [0.02, 0.03]), 3)
    0.15
    """
    errors = checked_distance(density_errors, "density_errors")
    if errors.ndim != 1 or len(errors) < 2:
        raise DataError(f"density_errors must hold one number for each of at least two groups; got {errors.tolist()}.")
    return float(min(checked_distance(distance) + np.sort(errors)[-2:].sum(), 1))


def error_lower_bound(base_rates: ArrayLike, distance: float) -> float:
    r"""Return a lower bound on the sum of two groups' error rates: their base-rate gap less Δ.

    .. math:: err_a + err_b \ge |P(y = 1 \mid a) - P(y = 1 \mid b)| - Δ

    for every classifier on the release (Zhao and Gordon, 2019), here for the pair of groups with the widest gap.

    Parameters
    ----------
    base_rates : array-like of shape (K,)
        P(y = 1 | a) of each group.
    distance : float
        Δ, or an upper bound on it.

    Examples
    --------
    >>> round(error_lower_bound([0.7, 0.2], distance=0.1), 3)
    0.4
    """
    gap = np.ptp(checked_distance(base_rates, "base_rates"))
    return max(float(gap - checked_distance(distance)), 0.0)


def rounded_up(bound: float, digits: int = 4) -> str:
    """Format an upper bound, rounded up, so that it is never below the proved one.

    Examples
    --------
    >>> rounded_up(0.057727), rounded_up(0.05), rounded_down(0.05779)
    ('0.0578', '0.0500', '0.0577')
    """
    return f"{_on_grid(bound, digits, math.ceil):.{digits}f}"


def rounded_down(bound: float, digits: int = 4) -> str:
    """Format a lower bound, rounded down, so that it is never above the proved one."""
    return f"{_on_grid(bound, digits, math.floor):.{digits}f}"


def _on_grid(bound: float, digits: int, to_whole: Callable[[float], int]) -> float:
    scaled = bound * 10**digits
    nearest = round(scaled)
    is_on_grid = abs(scaled - nearest) < 1e-9  # 0.05 stays 0.0500
    return (nearest if is_on_grid else to_whole(scaled)) / 10**digits

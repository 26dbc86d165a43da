"""Arguments of bounds: their checks, the δ of a look, and the safe solution of a monotone condition."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from fairflows.arrays import NDArray
from fairflows.exceptions import DataError

FloatArray = NDArray[np.float64]
Numbers = FloatArray | np.float64
"""Numbers of any shape: NumPy computes scalars from arrays without axes."""

MOST_LOG_DENSITIES = 2**28
"""The most numbers that a table of log-densities may have: 2 GiB in double precision."""
SOON_COMPUTED = 8_000_000
"""Log-densities that are computed in about 20 s on one thread, and so without being asked for."""


def checked_delta(delta: float, name: str = "delta") -> float:
    """Check δ, the probability that a bound misses: strictly between 0 and 1."""
    if not 0 < delta < 1:
        raise DataError(f"{name} must be in (0, 1); got {delta!r}.")
    return float(delta)


def delta_of_look(delta: float, look: int) -> float:
    r"""Return the share of δ that the j-th look at the same persons may spend, :math:`6 δ / (π^2 j^2)`.

    The shares of all looks, however many come, add up to δ. The first one spends 0.61 δ; a look that is known to
    be the only one may spend all of it.

    Proof: [Counted persons](proofs.md#counted-persons).

    Examples
    --------
    >>> [round(delta_of_look(0.05, look), 4) for look in (1, 2, 3)]
    [0.0304, 0.0076, 0.0034]
    """
    if look < 1:
        raise DataError(f"look must be 1 or more; got {look!r}.")
    return checked_delta(delta) * 6 / (math.pi * look) ** 2


def checked_table(log_densities: ArrayLike) -> Float[FloatArray, "N K K"]:
    """Check the table (N, K drawn, K density): row i holds log p̂_b(z_i^a), one draw z_i^a from every group a."""
    table = np.asarray(log_densities, dtype=np.float64)
    if table.ndim != 3 or table.shape[1] != table.shape[2] or table.shape[1] < 2 or len(table) == 0:
        raise DataError(
            "log_densities must have shape (N, K, K) with N >= 1 and K >= 2: one draw from each of K groups per row, "
            f"under each of K densities; got shape {table.shape}."
        )
    return table


CHOOSING = 2**31
"""Added to seeds where models are measured to choose one of them: a certificate draws afresh after the choice, and its
seeds are small numbers."""


def affordable_draws(n: int, n_groups: int) -> int:
    """Cap n so that K² log-densities per draw stay affordable."""
    return max(1, min(n, min(SOON_COMPUTED, MOST_LOG_DENSITIES) // n_groups**2))


def checked_draws(n: int, n_groups: int) -> int:
    """Check that the log-densities of n draws from each of K groups can be kept in memory."""
    most = MOST_LOG_DENSITIES // n_groups**2
    if n > most:
        raise DataError(
            f"n_draws must be at most {most:,} for {n_groups} groups, since the log-density of every draw under every "
            f"group is kept, n_draws · groups² numbers; got {n!r}."
        )
    return n


def checked_counts(counts: ArrayLike) -> Float[FloatArray, "*tables K k"]:
    """Check counts per group and cell, shape (..., K, k); leading axes hold repetitions."""
    counts = np.asarray(counts, dtype=np.float64)
    if counts.ndim < 2 or counts.shape[-2] < 2 or counts.shape[-1] < 1:
        raise DataError(f"counts must have shape (groups, cells) with at least two groups; got shape {counts.shape}.")
    if not np.all(np.isfinite(counts)) or np.any(counts < 0):
        raise DataError("counts must be finite and not negative.")
    return counts


def checked_probabilities(probabilities: ArrayLike) -> Float[FloatArray, "*tables K k"]:
    """Check cell probabilities per group, shape (..., K, k), each group's summing to one."""
    probabilities = np.asarray(probabilities, dtype=np.float64)
    if probabilities.ndim < 2 or probabilities.shape[-2] < 2:
        raise DataError(
            f"probabilities must have shape (groups, cells) with at least two groups; got shape {probabilities.shape}."
        )
    if not np.all(probabilities >= 0):
        raise DataError("probabilities must not be negative or NaN.")
    totals = probabilities.sum(axis=-1)
    if not np.allclose(totals, 1, rtol=0, atol=1e-6):
        worst = totals.flat[np.argmax(np.abs(totals - 1))]
        raise DataError(f"probabilities of each group must sum to 1; got a sum of {worst:.8g}.")
    return probabilities


def checked_priors(priors: ArrayLike | None, n_groups: int) -> Float[FloatArray, " {n_groups}"]:
    """Check π, the share of each group where the adversary works; None means equal shares."""
    if priors is None:
        return np.full(n_groups, 1 / n_groups)
    priors = np.asarray(priors, dtype=np.float64)
    if priors.shape != (n_groups,):
        raise DataError(f"priors must hold one number for each of {n_groups} groups; got shape {priors.shape}.")
    if not np.all(priors >= 0) or not np.isclose(priors.sum(), 1, rtol=0, atol=1e-9):
        raise DataError(f"priors must be non-negative and sum to 1; got {priors.tolist()!r}.")
    return priors


def checked_distance(distance: ArrayLike, name: str = "distance") -> Float[FloatArray, "*any"]:
    """Check that statistical distances are in [0, 1]."""
    distance = np.asarray(distance, dtype=np.float64)
    if not np.all((distance >= 0) & (distance <= 1)):
        raise DataError(f"{name} must be in [0, 1]; got {distance.tolist()!r}.")
    return distance


def plain(value: Float[Numbers, "*tables"]) -> Float[FloatArray, "*tables"] | float:
    """Return a Python float for one number, the array where there are leading axes."""
    return float(value) if value.ndim == 0 else value


def smallest_true(
    condition: Callable[[FloatArray], NDArray[np.bool_]],
    low: Float[FloatArray, "*any"],
    high: Float[FloatArray, "*any"],
    *,
    halvings: int,
) -> Float[FloatArray, "*any"]:
    """Return the smallest argument for which a monotone condition holds, from above.

    The condition must hold at `high`, and once true stay true to the right. The result is the upper end of the bracket,
    a point where the condition was seen to hold (or `high` itself), so it errs to the right only, by at most
    (high - low) / 2**halvings.
    """
    low, high = np.broadcast_arrays(low, high)
    for _ in range(halvings):
        middle = (low + high) / 2
        holds = condition(middle)
        low, high = np.where(holds, low, middle), np.where(holds, middle, high)
    return high

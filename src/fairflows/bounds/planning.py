"""Before the certifying persons are looked at: the bound to expect, and the persons that a target takes.

Nothing here is a certificate. It helps to choose the number of cells on validation rows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.special import ndtri, pdtr
from scipy.stats import norm

from fairflows.bounds.arguments import FloatArray, Numbers, checked_delta, checked_priors, checked_probabilities
from fairflows.bounds.blocks import IntArray, blocks_upper_bound, even_blocks, foreseen_blocks_bound, pair_spread
from fairflows.bounds.cells import FEWEST_PERSONS, cell_radius, total_variation
from fairflows.bounds.shared_table import known_share_distance, mean_of_folded_normal
from fairflows.exceptions import DataError

TARGETS = (0.1, 0.15, 0.2, 0.3)
"""Targets that are tried in this order where none is given."""

ENOUGH_CELLS = 8
"""The first target that allows so many cells is taken where none is given."""

CALIBRATION = 0.5
"""Share of the persons that the thresholds of a tree are set at, for the bound on persons to come."""

_RATE = 0.2  # a group's share that the root sends to the right, where rates differ on purpose and are not known yet
_FEW = 8  # cells, for which a formula foresees the bound badly
_ATTEMPTS = 8
ROOM = 1.015
"""The ratio by which the 95 % point of counted cells may exceed that of the planned ones."""

Blocks = Callable[[int], Int[IntArray, "K k"]]
"""Given a number of cells k, the blocks of each group."""


@dataclass(frozen=True)
class CellPlan:
    """The cells of a matched tree that a target allows, and the statements to expect."""

    target: float
    n_cells: int  # of equal size; a tree whose cells differ in size may have more
    known_half: float  # the 95 % point of Δ(½)
    population: float | None  # the bound on persons to come; None with too few persons for it
    ranks: float | None = None  # of an attribute that is not cut: the bound on the correlation with its rank


def plan_cells(
    n_persons: ArrayLike,
    target: float | None,
    delta: float,
    *,
    calibration: float = CALIBRATION,
    n_matched: ArrayLike | None = None,
    spend: float = 0.0,
) -> CellPlan | None:
    """Plan the cells of a table that is shared, from the numbers of persons of each group alone.

    As many cells as keep the 95 % point of Δ(½) and the bound on persons to come within the target; where that bound
    allows fewer than two cells, the first alone counts. No cell has fewer than ten persons of a group. None where the
    target does not allow two cells.

    Persons with several rows count as persons of equal weight. Without a target it is the first of `TARGETS` that
    allows `ENOUGH_CELLS`, else the last. `delta` is δ of the bound on persons to come, `calibration` the share of the
    persons behind it, `n_matched` the persons that the table is cut at, where these are not all of them, and `spend`
    the difference of the groups' rates at the root, which the target includes.

    Examples
    --------
    >>> plan = plan_cells([6667, 3333], 0.1, 0.01)
    >>> plan.n_cells, plan.population < 0.1
    (42, True)
    >>> plan_cells([200, 100], None, 0.01).target
    0.3
    """
    plan, delta = None, checked_delta(delta)
    for t in TARGETS if target is None else (target,):
        plan = _plan(n_persons, t, delta, calibration, n_matched, spend)
        if plan is not None and plan.n_cells >= ENOUGH_CELLS:
            return plan
    return plan


def lowest_target(n_persons: ArrayLike, n_matched: ArrayLike | None = None, spend: float = 0.0) -> float | None:
    """Return the lowest target, in hundredths, that allows two cells (`plan_cells`); None for too few persons.

    Examples
    --------
    >>> lowest_target([1000, 100]), lowest_target([1000, 20])
    (0.11, None)
    """
    targets = [t / 100 for t in range(1, 101) if t / 100 > spend]
    place = bisect_left(targets, True, key=lambda target: allows_two_cells(n_persons, target, n_matched, spend))
    return targets[place] if place < len(targets) else None


def allows_two_cells(
    n_persons: ArrayLike, target: float, n_matched: ArrayLike | None = None, spend: float = 0.0
) -> bool:
    """Return whether a target allows two cells (`plan_cells`), whatever it allows to say of persons to come.

    Examples
    --------
    >>> allows_two_cells([1000, 100], 0.11), allows_two_cells([1000, 100], 0.1)
    (True, False)
    """
    return _cells_of_table(n_persons, target, n_matched, spend) >= 2


def _plan(
    n: ArrayLike, target: float, delta: float, calibration: float, n_matched: ArrayLike | None, spend: float
) -> CellPlan | None:
    known, matched = known_and_matched(n, n_matched)
    cut_at = (matched * calibration).astype(np.int64)
    of_table, of_cut = (lambda k, m=m: _expected_blocks(m, k, spend) for m in (known.astype(np.int64), cut_at))
    most = int(cut_at.min() + 1) // (FEWEST_PERSONS + 1)
    k = most_cells(of_table, of_cut, most, target, delta, foreseen_blocks_bound)
    if k >= 2:
        return CellPlan(target, k, known_half(of_table(k)), foreseen_blocks_bound(of_cut(k), delta))
    k = _cells_of_table(n, target, n_matched, spend)
    return CellPlan(target, k, known_half(of_table(k)), None) if k >= 2 else None


def _cells_of_table(n: ArrayLike, target: float, n_matched: ArrayLike | None, spend: float) -> int:
    """Return the most cells that Δ(½) of the table allows."""
    known, matched = known_and_matched(n, n_matched)
    most = int(matched.min() + 1) // (FEWEST_PERSONS + 1)
    return _most_for_table(lambda k: _expected_blocks(known.astype(np.int64), k, spend), most, target)


def known_and_matched(
    n_persons: ArrayLike, n_matched: ArrayLike | None
) -> tuple[Float[FloatArray, " K"], Float[FloatArray, " K"]]:
    """Return the persons of each group that Δ(½) is planned with, and those that a table is cut at."""
    n = np.asarray(n_persons, dtype=np.float64)
    if n_matched is None:
        return n, n
    # Those that cells are not cut at are not matched, and their chance adds to that of Δ(½).
    matched = np.asarray(n_matched, dtype=np.float64)
    return 1 / (1 / n + 1 / matched), matched


def most_cells(
    of_table: Blocks,
    of_cut: Blocks | None,
    most: int,
    target: float,
    delta: float,
    bound: Callable[[IntArray, float], float] = blocks_upper_bound,
) -> int:
    """Return the most cells, at most `most`, for which the statements about a table are within the target.

    `of_table` gives the blocks of the table's cells, which decide on the 95 % point of Δ(½), and `of_cut` those that
    the bound on persons to come follows from, if there is one.
    """
    k = _most_for_table(of_table, most, target)
    if of_cut is None or k < 2:
        return k
    exact, rough = (lambda blocks, f=f: f(blocks, delta) for f in (bound, foreseen_blocks_bound))
    return _most_within(of_cut, k, target, 0.3 * norm.isf(delta), exact, rough)


def _most_for_table(of_table: Blocks, most: int, target: float) -> int:
    return _most_within(of_table, most, target, 0.5, lambda blocks: ROOM * known_half(blocks))


def _most_within(
    blocks_of: Blocks,
    most: int,
    target: float,
    deviations: float,
    bound: Callable[[IntArray], float],
    rough: Callable[[IntArray], float] | None = None,
) -> int:
    """Return the largest number of cells whose bound is within the target, below 2 for none.

    A formula foresees the bound, (0.399 Σ_j h(p_j) + deviations)·s. It is a few per cent off, in the same way for
    nearby numbers of cells: by how much, is found by a `rough` bound first, which takes less time.
    """

    @cache
    def foreseen(k: int) -> float:
        blocks = blocks_of(k)
        p = blocks / blocks.sum(axis=1, keepdims=True)
        spread = np.sqrt(p * (1 - p)).sum(axis=1).mean()
        return float((0.399 * spread + deviations) * pair_spread(blocks.sum(axis=1) - 1))

    def candidate(ratio: float) -> int:
        return 1 + bisect_right(range(2, most + 1), target / ratio, key=foreseen)

    ratio = 1.0
    if rough is not None and (k := candidate(ratio)) > _FEW:
        ratio = 1.005 * rough(blocks_of(k)) / foreseen(k)
    for _ in range(_ATTEMPTS):
        k = candidate(ratio)
        if k <= _FEW:
            break
        found = bound(blocks_of(k))
        if found <= target:
            return k
        ratio = 1.002 * found / foreseen(k)
    return max((k for k in range(2, min(most, _FEW) + 1) if bound(blocks_of(k)) <= target), default=0)


def known_half(blocks: Int[IntArray, "K k"]) -> float:
    """Return the 95 % point of Δ(½) to expect of matched cells with these blocks."""
    return known_share_distance(blocks, 0.5, None if blocks.shape[1] <= _FEW else blocks.sum(axis=1))[1]


def _expected_blocks(n: Int[IntArray, " K"], k: int, spend: float) -> Int[IntArray, "K {k}"]:
    """Return the blocks of k leaves of equal size; the root's rates are not known yet, but for their difference."""
    if not spend:
        return np.stack([even_blocks(int(size), k) for size in n])
    rates = np.full(len(n), _RATE)
    rates[1:] += spend
    right = np.clip(round(k * rates.mean()), 1, k - 1)
    cut = np.clip(np.round(rates * n).astype(np.int64), right, n - (k - right))
    return np.stack(
        [
            np.concatenate([even_blocks(int(m - c), k - right), even_blocks(int(c) - 1, right)])
            for m, c in zip(n, cut, strict=True)
        ]
    )


def most_useful_within(told: ArrayLike, use: ArrayLike, limit: float) -> int | None:
    """Return the place of the most useful candidate that tells at most `limit`: the one rule that picks by a target.

    `told` is a distance Δ or the adversary's accuracy, `use` an accuracy or a number of cells, one of each candidate.
    Of equally useful ones, the one that tells least is taken; None where no candidate is within the limit.

    Examples
    --------
    >>> most_useful_within([0.1, 0.2, 0.3], [0.7, 0.8, 0.9], limit=0.25)
    1
    """
    told, use = np.asarray(told, dtype=np.float64), np.asarray(use, dtype=np.float64)
    within = np.flatnonzero(told <= limit)
    if not len(within):
        return None
    return int(within[np.lexsort([told[within], -use[within]])[0]])


def expected_cell_distance(
    probabilities: ArrayLike, n: ArrayLike
) -> tuple[Float[FloatArray, "*tables K K"], Float[FloatArray, "*tables K K"]]:
    r"""Return mean and standard deviation (..., K, K) of the observed distance, if these are the cell probabilities.

    .. math:: E\,\widehat{TV} \approx \tfrac12 \sum_i \Bigl[σ_i \sqrt{2/π}\, e^{-d_i^2 / 2σ_i^2}
              + |d_i| \bigl(1 - 2Φ(-|d_i|/σ_i)\bigr)\Bigr], \quad
              d_i = p_i - q_i, \quad σ_i^2 = \frac{p_i(1-p_i)}{n_0} + \frac{q_i(1-q_i)}{n_1}

    the mean of |N(d_i, σ_i²)|, summed as if cells were independent. Frequencies of validation rows in place of p and q
    count their own noise as distance, so the plan errs on the safe side. `probabilities` has the shape (K, k), `n`, the
    persons of each group that will be counted, (..., K).

    Examples
    --------
    >>> mean, _ = expected_cell_distance(np.full((2, 50), 1 / 50), [5000, 5000])
    >>> round(float(mean[0, 1]), 3)
    0.056
    """
    p = checked_probabilities(probabilities)
    n = np.asarray(n, dtype=np.float64)
    if n.shape[-1:] != (len(p),) or not np.all(n > 0):
        raise DataError(f"n must hold a positive number of persons for each of {len(p)} groups; got {n.tolist()}.")
    variance = p * (1 - p) / n[..., None]
    d, sigma2 = p[:, None] - p, variance[..., :, None, :] + variance[..., None, :, :]
    folded, other = mean_of_folded_normal(d, sigma2), ~np.eye(len(p), dtype=bool)
    deviation = np.sqrt(np.maximum(d**2 + sigma2 - folded**2, 0).sum(axis=-1)) / 2
    return other * folded.sum(axis=-1) / 2, other * deviation


def planned_cell_bound(
    probabilities: ArrayLike, n: ArrayLike, delta: float, *, chance: float = 0.5, counted_from: ArrayLike | None = None
) -> Float[Numbers, "*tables"]:
    """Return the bound to expect in a certificate for these cells with n persons of each group.

    It is a `merged_upper_bound`: what the groups have in common in cells of few persons counts as distance. Compute it
    for each candidate number of cells on validation rows, and choose before certifying.

    Parameters
    ----------
    probabilities : array-like of shape (K, k)
        Probability of each cell in each group.
    n : array-like of shape (..., K)
        Persons of each group that will be counted.
    delta : float
        δ, the probability of a miss.
    chance : float, default=0.5
        The probability with which the bound is to come out no higher, by the normal law: 0.5 gives its mean.
    counted_from : array-like of shape (K,), default=None
        Persons of each group whom the cells were cut for, so that their frequencies are `probabilities`: of others the
        frequencies differ by as much again as these persons are few.

    Examples
    --------
    >>> {k: round(float(planned_cell_bound(np.full((2, k), 1 / k), [5000, 5000], 0.05)), 3) for k in (2, 8, 32)}
    {2: 0.032, 8: 0.046, 32: 0.069}
    """
    n = np.asarray(n, dtype=np.float64)
    seen = n if counted_from is None else 1 / (1 / n + 1 / np.asarray(counted_from, dtype=np.float64))
    mean, deviation = expected_cell_distance(probabilities, seen)
    observed = mean + ndtri(chance) * deviation + _expected_cost_of_merging(probabilities, n)
    return np.minimum((observed + cell_radius(n, delta)).max(axis=(-2, -1)), 1)


def rows_needed(target: float, delta: float, shares: ArrayLike = (0.5, 0.5)) -> Int[IntArray, " K"]:
    """Return the persons of each group that a target distance takes at least, with cells that reveal nothing.

    Parameters
    ----------
    target : float
        The distance to certify, in (0, 1]. For a balanced accuracy t it is 2t - 1.
    delta : float
        δ, the probability of a miss.
    shares : array-like of shape (K,), default=(0.5, 0.5)
        Share of each group among the persons.

    Examples
    --------
    >>> rows_needed(target=0.05, delta=0.05)
    array([1199, 1199])
    """
    if not 0 < target <= 1:
        raise DataError(f"target must be in (0, 1]; got {target!r}.")
    shares = checked_priors(shares, np.size(shares))
    if np.any(shares == 0):
        raise DataError(f"shares must be positive; got {shares.tolist()}.")
    # The radius of n persons at these shares is that of one, over sqrt(n).
    return np.ceil(shares * (cell_radius(shares, delta).max() / target) ** 2).astype(np.int64)


def check_reachable(n: Mapping[str, int], delta: float, *, target: float | None = None) -> None:
    """Refuse a target Δ that so many persons cannot show, even if the cells reveal nothing; say how many it takes.

    `n` are the persons of each group that will be counted, by the group's name. Without a target, nothing is refused.
    """
    if target is None:
        return
    if target == 0:
        raise DataError("target must be above 0 for a release of cells: no number of persons proves Δ = 0.")
    sizes, delta = np.array(list(n.values()), dtype=np.int64), checked_delta(delta)
    if float(cell_radius(sizes, delta).max()) <= target:
        return
    shares = sizes / sizes.sum() if sizes.all() else np.full(len(sizes), 1 / len(sizes))
    needed = rows_needed(target, delta, shares)
    have = ", ".join(f"{count:,} of {group!r}" for group, count in n.items())
    take = ", ".join(f"{count:,} of {group!r}" for group, count in zip(n, needed.tolist(), strict=True))
    raise DataError(
        f"A group is too small for the target Δ ≤ {target:.4g} at δ = {delta:.3g}: there are {have}, and even cells "
        f"that reveal nothing need {take} at these shares."
    )


def _expected_cost_of_merging(
    probabilities: ArrayLike, n: Float[FloatArray, "*tables K"]
) -> Float[FloatArray, "*tables K K"]:
    """Return the common mass of two groups in cells that will be merged, Σ_i P(i is merged) · min(p_a,i, p_b,i).

    Counts are approximated by Poisson's law; cells that are merged only to help others are left out.
    """
    p = np.asarray(probabilities, dtype=np.float64)
    expected = n[..., None] * p
    is_merged = 1 - np.prod(1 - (pdtr(FEWEST_PERSONS - 1, expected) - np.exp(-expected)), axis=-2)
    merged = is_merged[..., None, :] * p
    mass = merged.sum(axis=-1)
    common = (mass[..., :, None] + mass[..., None, :]) / 2 - total_variation(merged)
    return np.where(np.eye(mass.shape[-1], dtype=bool), 0, common)

r"""An attribute without groups, such as age: how far anything that is released goes with its rank.

Inside, the attribute is cut into G narrow groups, and a tree is cut at the same quantiles of each of them
(`fairflows.bounds.blocks`). Let R be the rank of the attribute, where narrow groups count alike, r the number of the
narrow group, and W = R - E[R | r]. No function of a cell C has a correlation with R above

.. math:: η = \frac{\mathrm{sd}\, E[R | C]}{\mathrm{sd}\, R} \le η_b + \frac{\mathrm{sd}\, W}{\mathrm{sd}\, R},
          \qquad η_b = \frac{\mathrm{sd}\, E[r | C]}{\mathrm{sd}\, r},

because E[W | r] = 0. The law of the blocks of the narrow groups gives η_b, which is about sqrt((k - 1)/n) for n persons
and k cells, whatever G is. The second term is at most 1/G.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.stats import chi2, norm

from fairflows.bounds.arguments import FloatArray, Numbers, checked_delta
from fairflows.bounds.blocks import (
    FEWEST_DRAWS,
    IntArray,
    checked_blocks,
    drawn_masses,
    draws_for,
    even_blocks,
    pair_spread,
    upper_quantile,
)
from fairflows.bounds.planning import CALIBRATION, ENOUGH_CELLS, TARGETS, CellPlan, known_half
from fairflows.bounds.shared_table import checked_counts
from fairflows.exceptions import DataError

FEWEST_OF_NARROW = 1
"""Persons of a narrow group in a leaf: its counts are never printed, so that the law of blocks alone needs them."""

_DRAWS_OF_REST = 400  # of the persons whose attribute is known
_POINT = 0.97  # the quantile of so many draws that stands for the 95 % point
_STEP = 0.99  # by which the number of cells is lowered beyond what the formula says, where the bound is too large


def rank_correlation(masses: ArrayLike) -> Float[Numbers, "*draws"]:
    """Return η_b, the largest correlation of a function of the cell with the number of the narrow group.

    `masses` are probabilities, or counts, of the cells of each narrow group, (..., G, k). Narrow groups count alike.

    Examples
    --------
    >>> float(rank_correlation([[10, 0], [0, 10]])), float(rank_correlation([[5, 5], [5, 5], [5, 5]]))
    (1.0, 0.0)
    """
    p = np.asarray(masses, dtype=np.float64)
    p = p / p.sum(axis=-1, keepdims=True)
    G = p.shape[-2]
    r = (np.arange(G) - (G - 1) / 2) / math.sqrt((G**2 - 1) / 12)
    mass, sums = p.mean(axis=-2), (r[:, None] * p).mean(axis=-2)
    explained = (sums**2 / np.where(mass > 0, mass, 1)).sum(axis=-1)
    return np.sqrt(np.minimum(explained, 1))


def halves(masses: ArrayLike) -> Float[FloatArray, "*draws 2 k"]:
    """Return the masses of the lower and of the upper half of the narrow groups, of shape (..., G, k)."""
    found = np.asarray(masses, dtype=np.float64)
    low = found.shape[-2] // 2
    return np.stack([found[..., :low, :].sum(axis=-2), found[..., low:, :].sum(axis=-2)], axis=-2)


def spread_within(n_groups: int, n_wide: int) -> float:
    """Bound sd W/sd R from above, if `n_wide` of G narrow groups hold several values.

    A group with a single value has no spread. If all hold several, this is 1/G.

    Examples
    --------
    >>> spread_within(40, 40), spread_within(10, 0)
    (0.025, 0.0)
    """
    if n_groups < 2 or not 0 <= n_wide <= n_groups:
        raise DataError(f"n_wide must be between 0 and the {n_groups} narrow groups; got {n_wide}.")
    share = n_wide / n_groups
    return math.sqrt(share / (n_groups**2 - 1 + share))


def rank_upper_bound(blocks: ArrayLike, delta: float, within: float) -> float:
    r"""Bound the correlation of anything that is drawn from a cell with the rank of the attribute.

    .. math:: U = (1 - δ)\text{-quantile of } η_b + \frac{\mathrm{sd}\, W}{\mathrm{sd}\, R}, \qquad
              η_b = \frac{\mathrm{sd}\, E[r | C]}{\mathrm{sd}\, r}

    for r, the number of the narrow group, W = R - E[R | r], and masses of leaves drawn as in `blocks_upper_bound`. With
    probability at least 1 - δ over the persons at whom the tree was cut, no function of the leaf of a fresh person has
    a larger one.

    Proof: [Ages](proofs.md#ages).

    Parameters
    ----------
    blocks : array-like of int of shape (G, k)
        The blocks of each narrow group in each leaf, in the order of the attribute.
    delta : float
        δ, the probability of a miss.
    within : float
        Bound on sd W/sd R (`spread_within`).

    Examples
    --------
    >>> round(rank_upper_bound([even_blocks(100, 8)] * 20, 0.05, spread_within(20, 20)), 3)
    0.134
    """
    return min(1.0, _quantiles(blocks, delta)[0] + within)


def halves_upper_bound(blocks: ArrayLike, delta: float) -> float:
    """Bound the distance between the lower and the upper half of the narrow groups, which count alike in each half.

    Proof: [Ages](proofs.md#ages), and the law of blocks in each half.

    Examples
    --------
    >>> round(halves_upper_bound([even_blocks(100, 8)] * 20, 0.05), 3)
    0.071
    """
    return _quantiles(blocks, delta)[1]


def _quantiles(blocks: ArrayLike, delta: float) -> tuple[float, float]:
    blocks = checked_blocks(blocks)
    return _cached_quantiles(blocks.tobytes(), blocks.shape, checked_delta(delta))


@lru_cache(maxsize=64)
def _cached_quantiles(blocks_bytes: bytes, shape: tuple[int, int], delta: float) -> tuple[float, float]:
    blocks = np.frombuffer(blocks_bytes, dtype=np.int64).reshape(shape)
    if shape[1] == 1:
        return 0.0, 0.0
    ranks, distances = _drawn(blocks, draws_for(blocks.size, delta))
    return upper_quantile(ranks, delta), upper_quantile(distances, delta)


def _drawn(blocks: Int[IntArray, "G k"], n_draws: int) -> tuple[Float[FloatArray, " n"], Float[FloatArray, " n"]]:
    """Draw η_b and the distance of the halves."""
    G = len(blocks)
    n = np.array([G // 2, G - G // 2])[:, None]
    ranks, distances = [], []
    for p in drawn_masses(blocks, n_draws):
        ranks.append(rank_correlation(p))
        of_half = halves(p) / n
        distances.append(np.abs(of_half[:, 0] - of_half[:, 1]).sum(axis=1) / 2)
    return np.concatenate(ranks), np.concatenate(distances)


def rank_p_value(blocks: ArrayLike, counts: ArrayLike) -> float:
    """Test the law of the blocks of narrow groups on fresh persons, by the correlation that their counts show.

    One-sided and doubled, as `fairflows.bounds.blocks_p_value`; 1 where a narrow group has no fresh person.
    """
    blocks, counts = checked_blocks(blocks), np.asarray(counts, dtype=np.int64)
    sizes = counts.sum(axis=1)
    if not sizes.all():
        return 1.0
    drawn = np.concatenate([rank_correlation(p) for p in drawn_masses(blocks, FEWEST_DRAWS, sizes)])
    at_least = int((drawn >= float(rank_correlation(counts)) - 1e-12).sum())
    return min(1.0, 2 * (1 + at_least) / (1 + FEWEST_DRAWS))


def known_share_correlation(counts: ArrayLike, share: float) -> tuple[float, float]:
    """Return the mean and the 95 % point of η_b when the attribute of a random share f of the persons is known.

    An adversary who knows it of these persons, and can place them in cells, subtracts them from the counts (G, k). The
    law of the rest is drawn with a fixed seed.

    Examples
    --------
    >>> [round(number, 2) for number in known_share_correlation([[50] * 8] * 20, 0.5)]
    [0.03, 0.04]
    """
    counts = checked_counts(counts).astype(np.int64)
    if not 0 <= share < 1:
        raise DataError(f"share must be in [0, 1); got {share!r}.")
    generator = np.random.default_rng(0)
    left = np.maximum(np.round((1 - share) * counts.sum(axis=1)), 1).astype(np.int64)
    rest = [
        generator.multivariate_hypergeometric(c, n, size=_DRAWS_OF_REST, method="marginals")
        for c, n in zip(counts, left.tolist(), strict=True)
    ]
    found = rank_correlation(np.stack(rest, axis=1))
    return float(found.mean()), float(np.quantile(found, _POINT))


def plan_ranks(
    n_persons: ArrayLike, target: float | None, delta: float, within: float, *, calibration: float = CALIBRATION
) -> CellPlan | None:
    """Plan the cells of a table whose attribute is not cut, from the persons of each narrow group.

    Without a target it is the first of `TARGETS` that allows `ENOUGH_CELLS`, else the last. None where the target does
    not allow two cells.

    Examples
    --------
    >>> plan = plan_ranks([1000] * 40, 0.1, 0.01, spread_within(40, 40))
    >>> plan.n_cells > 50, plan.ranks <= 0.1, plan.population < 0.07
    (True, True, True)
    """
    n, plan, delta = np.asarray(n_persons, dtype=np.int64), None, checked_delta(delta)
    cut_at = (n * calibration).astype(np.int64)
    most = int(cut_at.min() + 1) // (FEWEST_OF_NARROW + 1)

    def blocks_of(k: int, sizes: IntArray = cut_at) -> IntArray:
        return np.stack([even_blocks(int(size), k) for size in sizes])

    for t in TARGETS if target is None else (target,):
        k = most_cells_for_ranks(blocks_of, most, t, delta, within, exact=False)
        if k >= 2:
            blocks, half = blocks_of(k), known_half(halves(blocks_of(k, n)).astype(np.int64))
            plan = CellPlan(t, k, half, foreseen_halves(blocks, delta), ranks=foreseen_ranks(blocks, delta) + within)
        if plan is not None and plan.n_cells >= ENOUGH_CELLS:
            return plan
    return plan


def most_cells_for_ranks(
    blocks_of: Callable[[int], Int[IntArray, "G k"]],
    most: int,
    target: float,
    delta: float,
    within: float,
    *,
    exact: bool = True,
) -> int:
    """Return the most cells, at most `most`, whose bound on the correlation is within the target; below 2 for none.

    Where it need not be `exact`, the bound is the one that a formula foresees.
    """
    if most < 2 or target <= within:
        return 0
    k = 1 + bisect_right(range(2, most + 1), target - within, key=lambda k: foreseen_ranks(blocks_of(k), delta))
    while exact and k >= 2 and (found := rank_upper_bound(blocks_of(k), delta, within)) > target:
        k = min(k - 1, int(k * _STEP * ((target - within) / max(found - within, target / 2)) ** 2))
    return k if k >= 2 else 0


def foreseen_ranks(blocks: Int[IntArray, "G k"], delta: float) -> float:
    """Estimate the quantile of η_b by that of a χ², within a few per cent; the number of cells is planned with it."""
    p, n = blocks / blocks.sum(axis=1, keepdims=True), blocks.sum(axis=1, keepdims=True) - 1
    G, k = blocks.shape
    r = (np.arange(G) - (G - 1) / 2)[:, None] / math.sqrt((G**2 - 1) / 12)
    variance = (r**2 * p * (1 - p) / (n + 2)).sum(axis=0) / G**2  # of the mean of r over a cell
    return math.sqrt(min(1.0, float((variance / p.mean(axis=0)).sum()) / (k - 1) * float(chi2.isf(delta, k - 1))))


def foreseen_halves(blocks: Int[IntArray, "G k"], delta: float) -> float:
    """Estimate the bound on the distance of the halves, within a few per cent."""
    p = blocks.mean(axis=0) / blocks.sum(axis=1).mean()
    spread = pair_spread(halves(blocks).sum(axis=1))
    return float(min(1.0, (0.399 * np.sqrt(p * (1 - p)).sum() + 0.3 * norm.isf(delta)) * spread))

r"""Several sensitive attributes at once: bounds for each of them, from cells that were matched for their intersections.

A person with the value v of an attribute is in one of the intersections h that have it, w_vh of them in each. So the
leaf of such a person has the law Σ_h w_vh D_h, where D_h is that of the blocks of h (`fairflows.bounds.blocks`). The
persons of a group of merged intersections, which may have several values, were matched as one. Which cells those with
one value have in it is not known, so that this part counts as if it revealed the value:

.. math:: Δ \le \tfrac12 \sum_j \Bigl|\sum_h (w_{vh} - w_{v'h}) D_{hj}\Bigr| + \tfrac12 (w_{vo} + w_{v'o}).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from fairflows.bounds.arguments import FloatArray, checked_delta
from fairflows.bounds.blocks import IntArray, checked_blocks, drawn_masses, draws_for, upper_quantile
from fairflows.exceptions import DataError


def mixed_upper_bounds(blocks: ArrayLike, parts: Sequence[ArrayLike], delta: float) -> list[float]:
    """Bound the distance between the values of attributes, each at probability of error δ.

    Parameters
    ----------
    blocks : array-like of int of shape (K, k)
        The blocks of each group in each leaf. Groups are intersections of attributes.
    parts : sequence of array-like of shape (V, K)
        For each attribute, the persons with each of its values in each group: the population that it is about has these
        shares. A group with several values was merged.
    delta : float
        δ, the probability of a miss of each bound.

    Examples
    --------
    >>> blocks = [[250, 250]] * 4
    >>> sex, race = [[9, 9, 0, 0], [0, 0, 9, 9]], [[9, 0, 9, 0], [0, 9, 0, 9]]
    >>> [round(bound, 2) for bound in mixed_upper_bounds(blocks, [sex, race], 0.05)]
    [0.05, 0.05]
    """
    blocks = checked_blocks(blocks)
    weights = []
    for part in parts:
        n = np.asarray(part, dtype=np.float64)
        if n.ndim != 2 or n.shape[1] != len(blocks) or len(n) < 2 or (n < 0).any() or not n.sum(axis=1).all():
            raise DataError(f"parts must hold persons of each of {len(blocks)} groups, for two values or more.")
        weights.append(n / n.sum(axis=1, keepdims=True))
    packed = tuple((w.tobytes(), w.shape) for w in weights)
    return list(_quantiles(blocks.tobytes(), blocks.shape, packed, checked_delta(delta)))


@lru_cache(maxsize=16)
def _quantiles(
    blocks_bytes: bytes,
    shape: tuple[int, int],
    parts: tuple[tuple[bytes, tuple[int, int]], ...],
    delta: float,
) -> tuple[float, ...]:
    blocks = np.frombuffer(blocks_bytes, dtype=np.int64).reshape(shape)
    weights = [np.frombuffer(data, dtype=np.float64).reshape(s) for data, s in parts]
    found: list[list[FloatArray]] = [[] for _ in weights]
    for p in drawn_masses(blocks, draws_for(blocks.size, delta)):
        for w, drawn in zip(weights, found, strict=True):
            drawn.append(_distances(p, w))
    return tuple(min(1.0, upper_quantile(np.concatenate(drawn), delta)) for drawn in found)


def _distances(p: Float[FloatArray, "n K k"], w: Float[FloatArray, "V K"]) -> Float[FloatArray, " n"]:
    """Return the largest distance between two values, of each draw."""
    is_merged = (w > 0).sum(axis=0) > 1
    revealed = w[:, is_merged].sum(axis=1)
    w = np.where(is_merged, 0, w)
    mixed = np.einsum("vh,nhj->nvj", w, p)
    pairs = combinations(range(len(w)), 2)
    return np.max(
        [np.abs(mixed[:, a] - mixed[:, b]).sum(axis=1) / 2 + (revealed[a] + revealed[b]) / 2 for a, b in pairs], axis=0
    )


def rounded_parts(parts: Int[IntArray, "V K"], merged: Sequence[int]) -> Int[IntArray, "V K"]:
    """Return the persons of each value in each group, those in merged groups in tens, upwards."""
    found = parts.copy()
    for place in merged:
        found[:, place] = -(-found[:, place] // 10) * 10
    return found

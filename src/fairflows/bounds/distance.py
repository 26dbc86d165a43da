"""Statistical distance between laws on finitely many cells: exact sums, no sampling."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fairflows.bounds.arguments import FloatArray, checked_priors, checked_probabilities, plain


def total_variation(p: ArrayLike) -> FloatArray:
    """TV_ab = ½ Σ_i |p_a,i - p_b,i| for all pairs of K laws on k cells: shape (..., K, k) in, (..., K, K) out."""
    p = np.asarray(p, dtype=np.float64)
    distances = np.zeros((*p.shape[:-1], p.shape[-2]))
    for a in range(p.shape[-2]):  # over groups: K × k numbers in memory at a time, not K × K × k
        distances[..., a, :] = np.abs(p[..., a, None, :] - p).sum(axis=-1) / 2
    return distances


def exact_statistical_distance(probabilities: ArrayLike) -> FloatArray | float:
    r"""Largest statistical distance between two groups whose cell probabilities are known.

    .. math:: Δ = \max_{a,b} \tfrac12 \sum_i |p_a(i) - p_b(i)|

    This is the model-based distance of a categorical encoder: a float64 sum, so nothing is added for sampling.

    Parameters
    ----------
    probabilities : array-like of shape (..., K, k)
        Probability of each of k cells in each of K groups.

    Examples
    --------
    >>> exact_statistical_distance([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25]])
    0.25
    """
    return plain(np.minimum(total_variation(checked_probabilities(probabilities)).max(axis=(-2, -1)), 1))


def exact_adversary_accuracy(probabilities: ArrayLike, priors: ArrayLike | None = None) -> FloatArray | float:
    r"""Accuracy of the best guess of the group from the cell, A* = Σ_i max_a π_a p_a(i).

    Parameters
    ----------
    probabilities : array-like of shape (..., K, k)
        Probability of each of k cells in each of K groups.
    priors : array-like of shape (K,), optional
        Share π_a of each group; equal shares by default.

    Examples
    --------
    >>> exact_adversary_accuracy([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25]])
    0.625
    """
    probabilities = checked_probabilities(probabilities)
    priors = checked_priors(priors, probabilities.shape[-2])
    return plain(np.minimum((priors[:, None] * probabilities).max(axis=-2).sum(axis=-1), 1))

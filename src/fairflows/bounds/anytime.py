"""Later persons against the certificate: tests that hold whenever one looks, however often.

An e-value E of a hypothesis is a non-negative number whose mean is at most 1 if the hypothesis is true. The e-values
here are martingales of the persons who have come, or are below one, so that P(E ≥ 1/α at some time) ≤ α (Ville 1939).
They are functions of counts: no person is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, logsumexp

from fairflows.arrays import NDArray
from fairflows.bounds.arguments import FloatArray
from fairflows.bounds.blocks import checked_blocks
from fairflows.exceptions import DataError

IntArray = NDArray[np.int64]

_STRENGTHS = np.array([2.0, 8.0, 32.0, 128.0, 512.0])  # w: persons that an alternative law of cells is worth
_LAMBDA = 4 * np.array([0.02, 0.05, 0.12, 0.3])
_BATCH, _MOST_BATCHES = 200, 1_000  # persons of a batch, and batches of a table
_RHO = 60.0  # of the upper sequence: about the weight V/4 at which it is narrowest


@dataclass(frozen=True)
class Coarsenings:
    """Ever finer divisions of the k cells; the last one has every cell apart."""

    parts: IntArray  # (L, k): the number of each cell's part, from 0 on; each division goes on where the last one ended
    start: IntArray  # (L,): the number of each division's first part

    @classmethod
    def of(cls, levels: ArrayLike) -> Coarsenings:
        """Return the coarsenings by divisions (L, k), each of which numbers its own parts from 0 on."""
        levels = np.asarray(levels, dtype=np.int64)
        start = np.concatenate([[0], np.cumsum(levels.max(axis=1) + 1)])
        return cls(levels + start[:-1, None], start[:-1])

    def sums(self, values: ArrayLike) -> FloatArray:
        """Add up values of cells (K, k) over the parts of all divisions, (K, n_parts)."""
        n, places = int(self.parts.max()) + 1, self.parts.ravel()
        return np.array([np.bincount(places, np.tile(row, len(self.parts)), n) for row in np.asarray(values)])


def log_e_law(blocks: ArrayLike, counts: ArrayLike, levels: ArrayLike) -> float:
    r"""Return the logarithm of the e-value of "later persons follow the law of blocks".

    Given the blocks b of a group, the cells of all later persons together are a Pólya urn, with

    .. math:: DM(α; c) = \frac{Γ(Σα)}{Γ(Σα + Σc)} \prod_j \frac{Γ(α_j + c_j)}{Γ(α_j)}, \qquad
              E = DM(w b/Σb; c) / DM(b; c)

    averaged over w in {2, 8, 32, 128, 512} and over divisions of the cells (the ancestors at each depth), then
    multiplied and averaged over groups, the mean of both. The order in which persons came does not count.

    Proof: [Watching](proofs.md#watching).

    Parameters
    ----------
    blocks : array-like of int of shape (K, k)
        The blocks b of each group in each cell.
    counts : array-like of int of shape (K, k)
        All later persons so far, c.
    levels : array-like of int of shape (L, k)
        The divisions: the number of each cell's ancestor at each depth; the last one has every cell apart.

    Examples
    --------
    >>> blocks, levels = [[50, 50], [50, 50]], [[0, 1]]
    >>> log_e_law(blocks, [[30, 30], [30, 30]], levels) < 0 < log_e_law(blocks, [[55, 5], [30, 30]], levels)
    True
    """
    cells = Coarsenings.of(levels)
    return _log_e_law(checked_blocks(blocks), np.asarray(counts, dtype=np.int64), cells)


def _log_e_law(blocks: IntArray, counts: IntArray, cells: Coarsenings) -> float:
    b, c = cells.sums(blocks), cells.sums(counts)  # (K, n_parts)
    total, n = blocks.sum(axis=1), counts.sum(axis=1)
    alternative = _STRENGTHS[:, None, None] * (b / total[:, None])  # (w, K, n_parts)
    terms = gammaln(alternative + c) - gammaln(alternative) - (gammaln(b + c) - gammaln(b))
    products = np.add.reduceat(terms, cells.start, axis=-1)  # (w, K, L)
    ends = gammaln(_STRENGTHS)[:, None] - gammaln(_STRENGTHS[:, None] + n) - gammaln(total) + gammaln(total + n)
    log_e = products + ends[..., None]
    of_group = logsumexp(log_e, axis=(0, 2)) - np.log(len(_STRENGTHS) * len(cells.start))  # (K,)
    return float(logsumexp([logsumexp(of_group) - np.log(len(of_group)), of_group.sum()]) - np.log(2))


@dataclass(frozen=True)
class GapSums:
    r"""Sums over batches that the test of "Δ ≤ t in every batch" and the sequences around Δ follow from.

    Batch i has n_a, n_b persons of a pair of groups, and the weight w = n_a n_b/(n_a + n_b). d_i are the cells in which
    the rate of a among *earlier* batches exceeds that of b; X_i is the rate of d_i in a minus that in b.

    Proof: [Watching](proofs.md#watching).
    """

    S: FloatArray  # (pairs, L): Σ w X, for each division of the cells
    W: FloatArray  # (pairs,): Σ w of the same batches
    V: FloatArray  # (pairs,): Σ w of all batches
    D: FloatArray  # (pairs, k): Σ w (p̂_a − p̂_b)

    @classmethod
    def zero(cls, n_groups: int, cells: Coarsenings) -> GapSums:
        """Return the sums before the first batch."""
        pairs, (n_levels, k) = n_groups * (n_groups - 1) // 2, cells.parts.shape
        return cls(np.zeros((pairs, n_levels)), np.zeros(pairs), np.zeros(pairs), np.zeros((pairs, k)))

    def plus(self, batch: IntArray, earlier: IntArray, cells: Coarsenings) -> GapSums:
        """Add a batch with persons of every group, counts (K, k), given those of all earlier batches."""
        n, N = batch.sum(axis=1), earlier.sum(axis=1)
        S, W, V, D = (part.copy() for part in (self.S, self.W, self.V, self.D))
        for p, (a, b) in enumerate(combinations(range(len(batch)), 2)):
            w, gap = n[a] * n[b] / (n[a] + n[b]), batch[a] / n[a] - batch[b] / n[b]
            V[p] += w
            D[p] += w * gap
            if N[a] and N[b]:
                d = cells.sums([earlier[a] / N[a] - earlier[b] / N[b]])[0] > 0
                W[p] += w
                S[p] += w * (gap * d[cells.parts]).sum(axis=1)
        return GapSums(S, W, V, D)

    def together(self, other: GapSums) -> GapSums:
        """Return the sums of two streams of batches."""
        return GapSums(self.S + other.S, self.W + other.W, self.V + other.V, self.D + other.D)

    def log_e(self, t: float) -> float:
        r"""Return the logarithm of the e-value of "Δ ≤ t in every batch", :math:`\exp(λ(S - tW) - λ^2 W/8)`.

        It is averaged over λ in 4·{.02, .05, .12, .3}, divisions and pairs; E[X | past] ≤ Δ, and Hoeffding's bound.
        """
        excess = _LAMBDA * (self.S - t * self.W[:, None])[..., None]
        log_e = excess - _LAMBDA**2 * self.W[:, None, None] / 8
        return float(logsumexp(log_e) - np.log(log_e.size))

    def lower(self, alpha: float) -> float:
        """Return the largest t whose e-value is at least 1/α: the mean Δ is above it, at all times at once."""
        low, high = 0.0, 1.0
        if self.log_e(low) < -np.log(alpha):
            return 0.0
        for _ in range(40):
            t = (low + high) / 2
            low, high = (t, high) if self.log_e(t) >= -np.log(alpha) else (low, t)
        return low

    def upper(self, alpha: float) -> float:
        r"""Return an upper bound on Δ of the batches' mean law, at all times at once.

        .. math:: \tfrac12 \sum_j |D_j|/V + \sqrt{(v + ρ) \ln((v + ρ)/(ρ α^2))}/V, \qquad v = V/4, ρ = 60

        It needs no number of cells, because only the truth's best rule is controlled. Pairs share α.
        """
        if not self.V.all():
            return 1.0
        v = self.V / 4 + _RHO
        radius = np.sqrt(v * np.log(v / (_RHO * (alpha / len(self.V)) ** 2))) / self.V
        return float(min(1.0, (np.abs(self.D).sum(axis=1) / 2 / self.V + radius).max()))


def share_of_start(number: int) -> float:
    r"""Return the share of α that the j-th watch or start of a watch spends: :math:`6/(π^2 j^2)`; all add up to 1.

    Examples
    --------
    >>> round(share_of_start(1), 3), round(share_of_start(2), 3)
    (0.608, 0.152)
    """
    if number < 1:
        raise DataError(f"number must be at least 1; got {number!r}.")
    return float(6 / (np.pi * number) ** 2)


def batches_of(places: IntArray, shape: tuple[int, int]) -> Iterator[IntArray]:
    """Deal persons to batches in random order; yield the counts (K, k) of each.

    `places` holds a·k + j for a person of group a in cell j. Batches are of about 200 persons, at most 1,000 of them:
    they close by number, never by the cells that came.
    """
    n_batches = int(np.clip(round(len(places) / _BATCH), 1, _MOST_BATCHES))
    for part in np.array_split(np.random.default_rng().permutation(places), n_batches):
        yield np.bincount(part, minlength=shape[0] * shape[1]).reshape(shape)

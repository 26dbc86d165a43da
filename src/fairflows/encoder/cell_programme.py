r"""The best cells for a label, as a linear programme.

Rows lie in bins b of mass μ_b, with expected label η_b and each group's law p_a(b). A channel Q(j | b) sends bins to k
cells with levels ℓ_j, and is the solution of

.. math:: \min_Q \sum_b μ_b \sum_j Q(j|b)\,\bigl[\lVert η_b - ℓ_j\rVert^2 + ρ(η_b, ℓ_j)\bigr] \quad\text{so that}\quad
          \tfrac12 \sum_j \Bigl|\sum_b (p_a - p_{a'})(b)\, Q(j|b)\Bigr| \le Δ \text{ for all groups } a, a',

with every Q(· | b) a law. ρ is a multiple of the regret of predicting the class that the cell suggests instead of the
bin's own. Levels become the means of η in their cells, and the programme is solved again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array, hstack, kron, vstack
from sklearn.cluster import KMeans

from fairflows.exceptions import DataError

FloatArray = npt.NDArray[np.float64]

_MOST_PAIRED = 4  # groups; every pair is constrained up to here, and the distance to a common law beyond
_ALTERNATIONS = 3
_REGRET = 0.3  # weight of a wrong class beside the squared error
_NEGLIGIBLE = 1e-7  # a probability that the solver's tolerance may have left


@dataclass(frozen=True)
class Bins:
    """What the programme knows of rows.

    Attributes
    ----------
    mass : ndarray of shape (B,)
        μ, the law of a row.
    label : ndarray of shape (B, L)
        η, what is expected of the label: one number, or several.
    laws : list of ndarray of shape (K, B)
        p_a: of all rows, or one set of laws for each label that the groups are to be alike given.
    classes : list of slice
        The columns of η that hold the class probabilities of one label: one column for two classes.
    """

    mass: FloatArray
    label: FloatArray
    laws: Sequence[FloatArray]
    classes: Sequence[slice] = ()


@dataclass(frozen=True)
class CellProgramme:
    """The programme for some bins and k cells; only Δ changes from one solution to the next.

    Attributes
    ----------
    bins : Bins
        What is known of rows.
    levels : ndarray of shape (k, L)
        ℓ, where the alternation starts.
    left : sparse array
        Left-hand side of "at most": Σ_b (p_a − p_a')(b) Q(j|b) − t_j ≤ 0, then Σ_j t_j ≤ Δ, for each pair.
    equal : sparse array
        Left-hand side of "equal to one".
    is_share : ndarray of bool
        Which rows of `left` are bounded by a share of Δ.
    share : float
        Which share.
    """

    bins: Bins
    levels: FloatArray
    left: csr_array
    equal: csr_array
    is_share: npt.NDArray[np.bool_]
    share: float

    @classmethod
    def of(cls, bins: Bins, n_cells: int, random_state: int) -> CellProgramme:
        """Set up the programme, with levels at first where k-means puts them."""
        used = bins.mass > 0
        k = min(n_cells, len(np.unique(bins.label[used], axis=0)))
        means = KMeans(k, n_init=4, random_state=random_state).fit(
            bins.label[used], sample_weight=bins.mass[used] / bins.mass.sum()
        )
        levels = np.asarray(means.cluster_centers_, dtype=np.float64)
        levels = levels[np.argsort(levels[:, 0], kind="stable")]
        B = len(bins.mass)
        sums_to_one = kron(csr_array(np.eye(B)), np.ones((1, k)), format="csr")
        paired = len(bins.laws[0]) <= _MOST_PAIRED
        blocks, extra = _pair_blocks(bins.laws, k) if paired else _reference_blocks(bins.laws, k)
        left = csr_array(vstack([block for block, _ in blocks]))
        is_share = np.concatenate([is_share for _, is_share in blocks])
        equal = hstack([sums_to_one, csr_array((B, left.shape[1] - B * k))])
        if not paired:
            equal = vstack([equal, extra])
        return cls(bins, levels, left, csr_array(equal), is_share, 1.0 if paired else 0.5)

    def solve(self, distance: float) -> tuple[FloatArray, FloatArray]:
        """The channel Q (B, k) and the levels (k, L) of the best cells at distance Δ; empty cells are gone."""
        mass, label = self.bins.mass, self.bins.label
        levels = self.levels
        for _ in range(_ALTERNATIONS):
            channel = self._channel(levels, distance)
            weight = channel * mass[:, None]
            filled = weight.sum(axis=0) > _NEGLIGIBLE
            means = weight.T @ label / np.maximum(weight.sum(axis=0), _NEGLIGIBLE)[:, None]
            levels = np.where(filled[:, None], means, levels)
        channel, levels = channel[:, filled], levels[filled]
        channel /= channel.sum(axis=1, keepdims=True)
        order = np.argsort(levels[:, 0], kind="stable")
        return channel[:, order], levels[order]

    def _channel(self, levels: FloatArray, distance: float) -> FloatArray:
        B, k = len(self.bins.mass), len(levels)
        loss = ((self.bins.label[:, None, :] - levels[None]) ** 2).sum(axis=-1)
        for columns in self.bins.classes:
            loss += _REGRET * _regret(self.bins.label[:, columns], levels[:, columns])
        loss *= self.bins.mass[:, None]
        cost = np.concatenate([loss.ravel(), np.zeros(self.left.shape[1] - B * k)])
        found = linprog(
            cost / max(loss.max(), 1e-300),
            A_ub=self.left,
            b_ub=np.where(self.is_share, distance * self.share, 0.0),
            A_eq=self.equal,
            b_eq=np.ones(self.equal.shape[0]),
            method="highs",
        )
        if found.x is None:
            raise DataError(f"The linear programme of {B} bins and {k} cells was not solved: {found.message}")
        channel = found.x[: B * k].reshape(B, k)
        channel = np.where(channel > _NEGLIGIBLE, channel, 0)
        return channel / channel.sum(axis=1, keepdims=True)


def _regret(label: FloatArray, levels: FloatArray) -> FloatArray:
    """What a bin's most probable class is more probable in it than the class that a cell suggests, (B, k)."""
    if label.shape[1] == 1:
        label, levels = (np.concatenate([1 - p, p], axis=1) for p in (label, levels))
    return label.max(axis=1, keepdims=True) - label[:, levels.argmax(axis=1)]


def _pair_blocks(laws: Sequence[FloatArray], k: int) -> tuple[list[tuple[csr_array, npt.NDArray[np.bool_]]], None]:
    """For every pair: the excess of one group over the other in each cell is at most t_j, and Σ_j t_j ≤ Δ."""
    pairs = [law[a] - law[b] for law in laws for a, b in combinations(range(len(law)), 2)]
    blocks = []
    for place, difference in enumerate(pairs):
        excess = _cell_sums(difference, k)
        blocks.append(_excess_block(excess, place, len(pairs), k, 0))
    return blocks, None


def _reference_blocks(
    laws: Sequence[FloatArray], k: int
) -> tuple[list[tuple[csr_array, npt.NDArray[np.bool_]]], csr_array]:
    """For every group: its excess over a common law r, which is free, sums to at most Δ/2."""
    n, B = sum(len(law) for law in laws), laws[0].shape[1]
    blocks, place = [], 0
    for c, law in enumerate(laws):
        for p in law:
            own = coo_array((-np.ones(k), (np.arange(k), c * k + np.arange(k))), shape=(k, len(laws) * k))
            blocks.append(_excess_block(_cell_sums(p, k), place, n, k, len(laws) * k, own))
            place += 1
    is_law = kron(csr_array(np.eye(len(laws))), np.ones((1, k)))
    return blocks, csr_array(hstack([csr_array((len(laws), B * k + n * k)), is_law]))


def _cell_sums(weights: FloatArray, k: int) -> csr_array:
    """Σ_b weights_b Q(j|b) for each cell j, (k, B·k)."""
    b = np.flatnonzero(weights)
    rows, columns = np.tile(np.arange(k), len(b)), (b[:, None] * k + np.arange(k)).ravel()
    return csr_array((np.repeat(weights[b], k), (rows, columns)), shape=(k, len(weights) * k))


def _excess_block(
    excess: csr_array, place: int, n: int, k: int, n_free: int, free: coo_array | None = None
) -> tuple[csr_array, npt.NDArray[np.bool_]]:
    """excess_j (− r_j) − t_j ≤ 0 for each cell, and Σ_j t_j ≤ a share of Δ."""
    t = coo_array((-np.ones(k), (np.arange(k), place * k + np.arange(k))), shape=(k, n * k))
    total = coo_array((np.ones(k), (np.zeros(k, dtype=int), place * k + np.arange(k))), shape=(1, n * k))
    free = csr_array((k, n_free)) if free is None else free
    upper = hstack([excess, t, free])
    lower = hstack([csr_array((1, excess.shape[1])), total, csr_array((1, n_free))])
    return csr_array(vstack([upper, lower])), np.arange(k + 1) == k

r"""A decision tree that is grown for the label and against the group, on binned columns.

The impurity of a node is FARE's FairGini (Jovanović et al., 2023), here for any number of groups K,

.. math:: I = (1 - γ)\, G_y + γ\, (1 - 1/K - G_a), \qquad G = 1 - \sum_v \hat P(v)^2,

and a split is worth n·(I − Σ_children (n_c/n)·I_c). Splitting always lowers G_a, so for large γ no split is worth it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

_GROUP_WEIGHTS = np.linspace(0, 1, 5)  # categories are ordered by (1 − w)·label rate + w·group rate, for each w


@dataclass(frozen=True)
class Split:
    """Rows whose bin of a column is marked go left."""

    gain: float
    column: int
    left: npt.NDArray[np.bool_]


@dataclass
class FareTree:
    """A tree with one list entry per node; rows are sent down one level at a time.

    Attributes
    ----------
    column : list of int
        The column that a node splits; −1 for a leaf.
    goes_left : list of ndarray of bool
        Which bins of that column go to the first child.
    child : list of int
        The number of the first child; the second child has the next number.
    level : list of int
        How many splits lead to a node.
    """

    column: list[int] = field(default_factory=lambda: [-1])
    goes_left: list[npt.NDArray[np.bool_]] = field(default_factory=lambda: [np.zeros(0, dtype=bool)])
    child: list[int] = field(default_factory=lambda: [-1])
    level: list[int] = field(default_factory=lambda: [0])

    @property
    def leaves(self) -> IntArray:
        """The numbers of the leaves."""
        return np.flatnonzero(np.array(self.column) < 0)

    def add(self, node: int, split: Split) -> tuple[int, int]:
        """Split a leaf, and return the numbers of its children."""
        first = len(self.column)
        self.column[node], self.goes_left[node], self.child[node] = split.column, split.left, first
        self.column += [-1, -1]
        self.goes_left += [np.zeros(0, dtype=bool)] * 2
        self.child += [-1, -1]
        self.level += [self.level[node] + 1] * 2
        return first, first + 1

    def leaf_of(self, bins: IntArray) -> IntArray:
        """Each row's leaf, from its bins (n, D)."""
        n_bins = max(max(len(marks) for marks in self.goes_left), int(bins.max(initial=0)) + 1)
        marks = np.array([np.pad(m, (0, n_bins - len(m))) for m in self.goes_left])
        column, child = np.array(self.column), np.array(self.child)
        node, rows = np.zeros(len(bins), dtype=np.intp), np.arange(len(bins))
        for _ in range(max(self.level)):
            inner = column[node] >= 0
            left = marks[node, bins[rows, np.maximum(column[node], 0)]]
            node = np.where(inner, child[node] + ~left, node)
        return node


def grow(
    bins: IntArray,
    ordered: npt.NDArray[np.bool_],
    y: IntArray,
    a: IntArray,
    *,
    gamma: float,
    max_leaves: int,
    min_rows: int,
) -> FareTree:
    """Grow a tree best first.

    Parameters
    ----------
    bins : ndarray of shape (n, D)
        The rows, each column in bins 0, 1, ….
    ordered : ndarray of shape (D,)
        Whether a column's bins have an order; if not, any set of them may go left.
    y, a : ndarray of shape (n,)
        Labels and groups.
    gamma : float
        γ in [0, 1].
    max_leaves, min_rows : int
        The most leaves, and the fewest rows in one.
    """
    tree = FareTree()
    waiting: list[tuple[float, int, Split, IntArray]] = []

    def consider(node: int, rows: IntArray) -> None:
        split = best_split(bins[rows], ordered, y[rows], a[rows], gamma, min_rows, (int(y.max()) + 1, int(a.max()) + 1))
        if split is not None:
            heapq.heappush(waiting, (-split.gain, node, split, rows))

    consider(0, np.arange(len(bins)))
    while waiting and len(tree.leaves) < max_leaves:
        _, node, split, rows = heapq.heappop(waiting)
        left = split.left[bins[rows, split.column]]
        for child, part in zip(tree.add(node, split), (rows[left], rows[~left]), strict=True):
            consider(child, part)
    return tree


def best_split(
    bins: IntArray,
    ordered: npt.NDArray[np.bool_],
    y: IntArray,
    a: IntArray,
    gamma: float,
    min_rows: int,
    shape: tuple[int, int],
) -> Split | None:
    """The split of greatest gain, or None when no split has a positive one.

    Compares all prefixes of all orders of all columns' bins; `shape` is the number of classes and of groups.
    """
    n_classes, n_groups = shape
    n_bins = int(bins.max(initial=0)) + 1
    columns = np.arange(bins.shape[1])
    cell = ((columns * n_bins + bins) * n_classes + y[:, None]) * n_groups + a[:, None]
    counted = np.bincount(cell.ravel(), minlength=len(columns) * n_bins * n_classes * n_groups)
    counts = counted.astype(np.float64).reshape(len(columns), n_bins, n_classes, n_groups)

    order = _orders(counts, ordered)  # (O, D, bins)
    left = np.take_along_axis(counts[None], order[..., None, None], axis=2).cumsum(axis=2)[:, :, :-1]
    whole = counts.sum(axis=1)[None, :, None]
    right = whole - left
    cost = _weighted_impurity(left, gamma) + _weighted_impurity(right, gamma)
    gain = _weighted_impurity(whole, gamma) - cost
    enough = np.minimum(left.sum(axis=(-1, -2)), right.sum(axis=(-1, -2))) >= min_rows
    gain = np.where(enough, gain, -np.inf)
    if not gain.size or gain.max() <= 1e-9 * len(y):
        return None
    o, d, prefix = np.unravel_index(int(gain.argmax()), gain.shape)
    marks = np.zeros(n_bins, dtype=bool)
    marks[order[o, d, : prefix + 1]] = True
    return Split(float(gain[o, d, prefix]), int(d), marks)


def _orders(counts: FloatArray, ordered: npt.NDArray[np.bool_]) -> IntArray:
    """Orders of every column's bins, (O, D, bins): their own, or for categories by mixed label and group rates."""
    n = np.maximum(counts.sum(axis=(2, 3)), 1)
    label_rate, group_rate = counts[:, :, -1].sum(axis=2) / n, counts[..., -1].sum(axis=2) / n
    w = _GROUP_WEIGHTS[:, None, None]
    by_rate = np.argsort((1 - w) * label_rate + w * group_rate, axis=2, kind="stable")
    return np.where(ordered[:, None], np.arange(counts.shape[1]), by_rate)


def _weighted_impurity(counts: FloatArray, gamma: float) -> FloatArray:
    """n·I of nodes with counts (…, C, K)."""
    n = counts.sum(axis=(-1, -2))
    by_class, by_group = counts.sum(axis=-1), counts.sum(axis=-2)
    safe = np.maximum(n, 1)
    gini_y = n - (by_class**2).sum(axis=-1) / safe
    gini_a = n - (by_group**2).sum(axis=-1) / safe
    return (1 - gamma) * gini_y + gamma * ((1 - 1 / counts.shape[-1]) * n - gini_a)

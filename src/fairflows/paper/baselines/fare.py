r"""FARE: Jovanović, Balunović, Dimitrov and Vechev, "FARE: Provably Fair Representation Learning", ICML 2023.

A decision tree that is grown for the label and against the group, on binned columns. The impurity of a node is FARE's
FairGini, here for any number of groups K,

.. math:: I = (1 - γ)\, G_y + γ\, (1 - 1/K - G_a), \qquad G = 1 - \sum_v \hat P(v)^2,

and a split is worth n·(I − Σ_children (n_c/n)·I_c). Splitting always lowers G_a, so for large γ no split is worth it.
The criterion is demographic parity.
"""

from __future__ import annotations

import heapq
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.arrays import NDArray
from fairflows.bounds import fare_upper_bound
from fairflows.encoder.base import CELL, Encoder, FloatArray, Traits, label_values
from fairflows.encoder.rows import Rows, TrainingRows
from fairflows.exceptions import DataError, check_count, check_share
from fairflows.table.columns import has_order, sorted_values
from fairflows.table.keys import NEW_AT_EACH_FIT, KeySetting
from fairflows.table.table import Table

IntArray = NDArray[np.intp]

_MOST_BINS = 64
_GROUP_WEIGHTS = np.linspace(0, 1, 5)  # categories are ordered by (1 − w)·label rate + w·group rate, for each w


@dataclass(frozen=True)
class Split:
    """Rows whose bin of a column is one of these go left."""

    gain: float
    column: int
    left: IntArray

    def goes_left(self, bins: IntArray) -> npt.NDArray[np.bool_]:
        """Return which rows go left, from their bins (n, D)."""
        return np.isin(bins[:, self.column], self.left)


@dataclass
class FareTree:
    """A tree with one list entry per node, the root first; a cell is a leaf."""

    splits: list[Split | None] = field(default_factory=lambda: [None])  # None for a leaf
    child: list[int] = field(default_factory=lambda: [-1])  # the first child's number; the second child has the next

    @property
    def leaves(self) -> IntArray:
        """The numbers of the leaves."""
        return np.flatnonzero([split is None for split in self.splits])

    def add(self, node: int, split: Split) -> tuple[int, int]:
        """Split a leaf, and return the numbers of its children."""
        first = len(self.splits)
        self.splits[node], self.child[node] = split, first
        self.splits += [None, None]
        self.child += [-1, -1]
        return first, first + 1

    def cells(self, bins: IntArray) -> IntArray:
        """Return each row's place among the leaves, from its bins (n, D)."""
        node = np.zeros(len(bins), dtype=np.intp)
        for number, split in enumerate(self.splits):  # children have higher numbers than their parent
            if split is not None:
                rows = np.flatnonzero(node == number)
                node[rows] = self.child[number] + ~split.goes_left(bins[rows])
        return np.searchsorted(self.leaves, node)


def best_split(
    bins: IntArray,
    ordered: npt.NDArray[np.bool_],
    y: IntArray,
    a: IntArray,
    gamma: float,
    min_rows: int,
    shape: tuple[int, int],
) -> Split | None:
    """Return the split of greatest gain, or None when no split has a positive one.

    Rows have labels and groups (n,), and columns in bins 0, 1, …, (n, D); where the bins of a column have no order, any
    set of them may go left. Compares all prefixes of all orders of all columns' bins; `shape` is the number of classes
    and of groups.
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
    before, first, second = (_weighted_impurity(part, gamma) for part in (whole, left, right))
    gain = before - first - second
    enough = np.minimum(left.sum(axis=(-1, -2)), right.sum(axis=(-1, -2))) >= min_rows
    gain = np.where(enough, gain, -np.inf)
    if not gain.size or gain.max() <= 1e-9 * len(y):
        return None
    o, d, prefix = np.unravel_index(int(gain.argmax()), gain.shape)
    return Split(float(gain[o, d, prefix]), int(d), order[o, d, : prefix + 1])


@dataclass(eq=False, repr=False)
class FARE(Encoder):
    """A fair decision tree: a row is encoded as the leaf it falls into, one of few cells.

    A finite number of cells can be certified for the true distribution: by FARE's own bound (`own_upper_bound`), and by
    ours, as for any release of cells (`certify`, `cell_upper_bound`).

    Parameters
    ----------
    gamma : float
        0 grows the tree for the label alone, 1 for fairness alone (then nothing is split).
    max_leaves : int
        The most cells.
    min_rows : int
        The fewest rows in a cell.
    sensitive, identifier, key
        Names of the columns that hold group and person; the secret that seals certificates, at least 16 bytes.
    random_state : int
        Not used; all encoders have one.

    Attributes
    ----------
    n_cells_ : int
        How many cells there are.
    class_of_cell_ : ndarray
        The most frequent label of each cell.

    Examples
    --------
    >>> from fairflows import load_adult
    >>> train, validation, test = load_adult().paper_split()
    >>> tree = FARE(0.5, max_leaves=8).fit(train.X, train.y, sensitive_features=train.a)
    >>> cells = tree.transform(test.X)["cell"]
    >>> cells.nunique() == tree.n_cells_
    True
    """

    gamma: float = 0.5
    _: KW_ONLY
    max_leaves: int = 16
    min_rows: int = 100

    sensitive: str | list[str] | None = None
    identifier: str | None = None
    key: KeySetting = NEW_AT_EACH_FIT
    random_state: int = 0

    tree_: FareTree = field(init=False)
    class_of_cell_: np.ndarray = field(init=False)

    @property
    def traits(self) -> Traits:
        """One tree encodes the rows of all groups."""
        return Traits(needs_attribute=False, n_cells=self.n_cells_)

    def learn(self, rows: TrainingRows) -> None:
        """Grow the tree best first, and find the label that each of its cells suggests."""
        check_share("gamma", self.gamma)
        check_count("max_leaves", self.max_leaves, 2)
        check_count("min_rows", self.min_rows, 1)
        label = rows.label_with_classes("FARE")
        if label is None:
            raise DataError("FARE grows a tree for a label: pass y.")
        self.columns_ = list(rows.X.columns)
        self.cuts_ = {name: _cuts(rows.X[name]) for name in self.columns_}
        ordered = np.array([has_order(rows.X[name].dtype) for name in self.columns_])
        tree = self._grown(self._bins(rows.X), ordered, label.values, rows.group)
        counts = np.zeros((len(tree.leaves), len(label.class_values)))
        np.add.at(counts, (tree.cells(self._bins(rows.X)), label.values), 1)
        self.tree_, self.n_cells_, self.output_ = tree, len(tree.leaves), CELL
        self.class_of_cell_ = label.class_values[counts.argmax(axis=1)]

    def _grown(self, bins: IntArray, ordered: npt.NDArray[np.bool_], labels: IntArray, group: IntArray) -> FareTree:
        tree = FareTree()
        waiting: list[tuple[float, int, Split, IntArray]] = []
        shape = len(label_values(self)), len(self.groups_)

        def consider(node: int, rows: IntArray) -> None:
            of_rows = bins[rows], ordered, labels[rows], group[rows]
            split = best_split(*of_rows, self.gamma, self.min_rows, shape)
            if split is not None:
                heapq.heappush(waiting, (-split.gain, node, split, rows))

        consider(0, np.arange(len(bins)))
        while waiting and len(tree.leaves) < self.max_leaves:
            _, node, split, rows = heapq.heappop(waiting)
            left = split.goes_left(bins[rows])
            for child, part in zip(tree.add(node, split), (rows[left], rows[~left]), strict=True):
                consider(child, part)
        return tree

    def cells(self, rows: Rows) -> IntArray:
        """Return each row's cell; the sensitive attribute is not used."""
        return self.tree_.cells(self._bins(rows.X))

    def encode(self, rows: Rows) -> pd.DataFrame:
        """Return the number of each row's cell."""
        return pd.DataFrame({"cell": self.cells(rows)})

    def predict_rows(self, rows: Rows) -> npt.NDArray[np.generic]:
        """Return the most frequent label of each row's cell."""
        return self.class_of_cell_[self.cells(rows)]

    def own_upper_bound(self, train: Table, validation: Table, test: Table, delta: float = 0.05) -> float:
        """Return FARE's certificate: an upper bound on Δ of the true distribution, from three sets of rows.

        Parameters
        ----------
        train : Table
            Rows that the group rates are bounded from; may be those the tree was grown on.
        validation, test : Table
            Held-out rows, for the group's share in each cell, and for the cells' frequencies.
        delta : float
            δ, the probability of a miss.
        """
        base = [int((train.a == group).sum()) for group in self.groups_]
        cells = self.cells(self.read(validation))
        k = len(self.tree_.leaves)
        counts = [np.bincount(cells[(validation.a == g).to_numpy()], minlength=k) for g in self.groups_]
        totals = np.bincount(self.cells(self.read(test)), minlength=k)
        return float(fare_upper_bound(base, counts, totals, delta))

    def _bins(self, X: pd.DataFrame) -> IntArray:
        return np.column_stack([_binned(X[name], self.cuts_[name]) for name in self.columns_])


def _orders(counts: FloatArray, ordered: npt.NDArray[np.bool_]) -> IntArray:
    """Return orders of every column's bins, (O, D, bins): their own, or for categories by label and group rates."""
    n = np.maximum(counts.sum(axis=(2, 3)), 1)
    label_rate, group_rate = counts[:, :, -1].sum(axis=2) / n, counts[..., -1].sum(axis=2) / n
    w = _GROUP_WEIGHTS[:, None, None]
    by_rate = np.argsort((1 - w) * label_rate + w * group_rate, axis=2, kind="stable")
    return np.where(ordered[:, None], np.arange(counts.shape[1]), by_rate)


def _weighted_impurity(counts: FloatArray, gamma: float) -> FloatArray:
    """Return n·I of nodes with counts (…, C, K)."""
    n, by_class, by_group = counts.sum(axis=(-1, -2)), counts.sum(axis=-1), counts.sum(axis=-2)
    gini_y = n - (by_class**2).sum(axis=-1) / np.maximum(n, 1)
    unfair = (by_group**2).sum(axis=-1) / np.maximum(n, 1) - n / counts.shape[-1]
    return (1 - gamma) * gini_y + gamma * unfair


def _cuts(column: pd.Series) -> npt.NDArray[np.generic]:
    """Return quantiles between the bins of numbers and times; the levels of anything else."""
    if not has_order(column.dtype):
        return np.array(sorted_values(column), dtype=object)
    return np.unique(np.quantile(column.to_numpy(), np.arange(1, _MOST_BINS) / _MOST_BINS, method="lower"))


def _binned(column: pd.Series, cuts: npt.NDArray[np.generic]) -> IntArray:
    """Return each value's bin; a level that was not seen in fitting gets the first level's."""
    if has_order(column.dtype):
        return np.searchsorted(cuts, column.to_numpy(), side="left")
    return np.maximum(pd.Index(cuts, dtype=object).get_indexer(column.astype(object)), 0)

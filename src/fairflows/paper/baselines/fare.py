"""FARE: Jovanović, Balunović, Dimitrov and Vechev, "FARE: Provably Fair Representation Learning", ICML 2023."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import ArrayLike

from fairflows.bounds import fare_upper_bound
from fairflows.encoder.base import FloatArray, Learnt, Rows
from fairflows.encoder.group_encoder import GroupEncoder
from fairflows.exceptions import DataError
from fairflows.paper.baselines.fare_tree import FareTree, grow
from fairflows.table.columns import is_number, is_time, sorted_values
from fairflows.table.table import Table

IntArray = npt.NDArray[np.intp]

_MOST_BINS = 64


class FARE(GroupEncoder):
    """A fair decision tree: a row is encoded as the leaf it falls into, one of few cells.

    A finite number of cells can be certified for the true distribution: by FARE's own bound (`own_upper_bound`), and by
    ours, as for any release of cells (`certify`, `cell_upper_bound`).

    Parameters
    ----------
    gamma : float
        0 grows the tree for the label alone, 1 for fairness alone (which is no split at all).
    max_leaves : int
        The most cells.
    min_rows : int
        The fewest rows in a cell.
    sensitive, identifier : str, optional
        Columns of X that hold the sensitive attribute and name the person of a row.
    key : bytes, optional
        The secret behind the seal of its certificates; a new one at each fit when not given.
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

    tree_: FareTree
    n_cells_: int

    def __init__(
        self,
        gamma: float = 0.5,
        *,
        max_leaves: int = 16,
        min_rows: int = 100,
        sensitive: str | list[str] | None = None,
        identifier: str | None = None,
        key: bytes | None = None,
        random_state: int = 0,
    ) -> None:
        self.gamma = gamma
        self.max_leaves = max_leaves
        self.min_rows = min_rows
        self.sensitive = sensitive
        self.identifier = identifier
        self.key = key
        self.random_state = random_state

    @property
    def needs_attribute(self) -> bool:
        """One tree encodes the rows of all groups."""
        return False

    def _fit(
        self,
        rows: Rows,
        y: ArrayLike | None,
        sample_weight: FloatArray | None,
        strengths: Sequence[float],
        seeds: Sequence[int],
    ) -> list[Learnt | None]:
        self._check_strengths(strengths)
        if self.max_leaves < 2:
            raise ValueError(f"max_leaves must be at least 2; got {self.max_leaves!r}.")
        if self.min_rows < 1:
            raise ValueError(f"min_rows must be at least 1; got {self.min_rows!r}.")
        if sample_weight is not None:
            raise DataError("FARE does not take sample_weight.")
        labels = self._read_label(y, len(rows.X))
        if labels is None:
            raise DataError("FARE grows a tree for a label: pass y.")
        self.columns_ = list(rows.X.columns)
        self.cuts_ = {name: _cuts(rows.X[name]) for name in self.columns_}
        ordered = np.array([_is_ordered(rows.X[name]) for name in self.columns_])
        bins = self._bins(rows.X)
        learnt = [self._grown(bins, ordered, labels, rows.group, gamma) for gamma in strengths]
        return [tree for tree in learnt for _ in seeds]  # growing a tree draws nothing at random

    def _grown(
        self, bins: IntArray, ordered: npt.NDArray[np.bool_], labels: IntArray, group: IntArray, gamma: float
    ) -> Learnt:
        """The tree at one gamma, its cells, and the label that each suggests."""
        limits = {"max_leaves": self.max_leaves, "min_rows": self.min_rows}
        tree = grow(bins, ordered, labels, group, gamma=gamma, **limits)
        cell_of_node = np.full(len(tree.column), -1)
        cell_of_node[tree.leaves] = np.arange(len(tree.leaves))
        counts = np.zeros((len(tree.leaves), len(self.label_classes)))
        np.add.at(counts, (cell_of_node[tree.leaf_of(bins)], labels), 1)
        return {
            "tree_": tree,
            "cell_of_node_": cell_of_node,
            "n_cells_": len(tree.leaves),
            "class_of_cell_": self.label_classes[counts.argmax(axis=1)],
        }

    def cells(self, rows: Rows) -> IntArray:
        """Each row's cell; the sensitive attribute is not used."""
        return self.cell_of_node_[self.tree_.leaf_of(self._bins(rows.X))]

    def encode(self, rows: Rows) -> pd.DataFrame:
        """The cell of each row, as one column."""
        return pd.DataFrame({"cell": self.cells(rows)})

    def predict_rows(self, rows: Rows) -> npt.NDArray[np.generic]:
        """The most frequent label of each row's cell."""
        return self.class_of_cell_[self.cells(rows)]

    def own_upper_bound(self, train: Table, validation: Table, test: Table, delta: float = 0.05) -> float:
        """FARE's certificate: an upper bound on Δ of the true distribution, from three sets of rows.

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
        counts = [np.bincount(cells[(validation.a == g).to_numpy()], minlength=self.n_cells_) for g in self.groups_]
        totals = np.bincount(self.cells(self.read(test)), minlength=self.n_cells_)
        return float(fare_upper_bound(base, counts, totals, delta))

    def _bins(self, X: pd.DataFrame) -> IntArray:
        return np.column_stack([_binned(X[name], self.cuts_[name]) for name in self.columns_])

    def _names_out(self) -> list[str]:
        return ["cell"]


def _is_ordered(column: pd.Series) -> bool:
    return is_number(column.dtype) or is_time(column.dtype)


def _cuts(column: pd.Series) -> npt.NDArray[np.generic]:
    """Quantiles between the bins of numbers and times; the levels of anything else."""
    if not _is_ordered(column):
        return np.array(sorted_values(column), dtype=object)
    return np.unique(np.quantile(column.to_numpy(), np.arange(1, _MOST_BINS) / _MOST_BINS, method="lower"))


def _binned(column: pd.Series, cuts: npt.NDArray[np.generic]) -> IntArray:
    """Each value's bin; a level that was not seen in fitting gets the first level's."""
    if _is_ordered(column):
        return np.searchsorted(cuts, column.to_numpy(), side="left")
    return np.maximum(pd.Index(cuts, dtype=object).get_indexer(column.astype(object)), 0)

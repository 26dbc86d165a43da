"""FARE: Jovanović, Balunović, Dimitrov and Vechev, "FARE: Provably Fair Representation Learning", ICML 2023."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data

from fairflows.bounds import fare_upper_bound
from fairflows.encoder.base import GroupEncoder
from fairflows.exceptions import DataError
from fairflows.paper.baselines.fare_tree import FareTree, grow
from fairflows.table.columns import is_number, is_time, sorted_values
from fairflows.table.ledger import Ledger
from fairflows.table.persons import new_key
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

    def __init__(
        self,
        gamma: float = 0.5,
        *,
        max_leaves: int = 16,
        min_rows: int = 100,
        sensitive: str | list[str] | None = None,
        identifier: str | None = None,
        key: bytes | None = None,
    ) -> None:
        self.gamma = gamma
        self.max_leaves = max_leaves
        self.min_rows = min_rows
        self.sensitive = sensitive
        self.identifier = identifier
        self.key = key

    def fit(
        self,
        X: pd.DataFrame | ArrayLike,
        y: ArrayLike | None = None,
        *,
        sensitive_features: ArrayLike | None = None,
        sample_weight: None = None,
    ) -> Self:
        """Grow the tree.

        Parameters
        ----------
        X : frame or array
            Rows to learn from.
        y : array
            The label.
        sensitive_features : array, optional
            The sensitive attribute, unless a column of X holds it.
        sample_weight : None
            Not supported.
        """
        self._check_strengths([self.gamma])
        if self.max_leaves < 2:
            raise ValueError(f"max_leaves must be at least 2; got {self.max_leaves!r}.")
        if self.min_rows < 1:
            raise ValueError(f"min_rows must be at least 1; got {self.min_rows!r}.")
        if sample_weight is not None:
            raise DataError("FARE does not take sample_weight.")
        rows = self._read(X, sensitive_features, fit=True)
        labels = self._read_label(y, len(rows.X))
        if labels is None:
            raise DataError("FARE grows a tree for a label: pass y.")
        self.key_ = self.key if self.key is not None else new_key()
        self.ledger_ = Ledger.of(rows.X, rows.persons, self.key_)
        self.columns_ = list(rows.X.columns)
        self.cuts_ = {name: _cuts(rows.X[name]) for name in self.columns_}
        ordered = np.array([_is_ordered(rows.X[name]) for name in self.columns_])
        bins = self._bins(rows.X)
        self.tree_ = grow(
            bins,
            ordered,
            labels,
            rows.group,
            gamma=self.gamma,
            max_leaves=self.max_leaves,
            min_rows=self.min_rows,
        )
        leaves = self.tree_.leaves
        self.cell_of_node_ = np.full(len(self.tree_.column), -1)
        self.cell_of_node_[leaves] = np.arange(len(leaves))
        self.n_cells_ = len(leaves)
        counts = np.zeros((self.n_cells_, len(self.classes_)))
        np.add.at(counts, (self.cell_of_node_[self.tree_.leaf_of(bins)], labels), 1)
        self.class_of_cell_ = self.classes_[counts.argmax(axis=1)]
        return self

    def cells(self, X: pd.DataFrame | ArrayLike) -> IntArray:
        """Each row's cell; the sensitive attribute is not used."""
        check_is_fitted(self)
        frame = self._frame(X)
        named = isinstance(X, pd.DataFrame)
        validate_data(self, frame if named else frame.to_numpy(), skip_check_array=True, reset=False)
        return self.cell_of_node_[self.tree_.leaf_of(self._bins(frame[self.columns_]))]

    def transform(self, X: pd.DataFrame | ArrayLike, *, sensitive_features: ArrayLike | None = None) -> pd.DataFrame:
        """The cell of each row, as one column."""
        return self._wrap_output(X, pd.DataFrame({"cell": self.cells(X)}))

    def predict(
        self, X: pd.DataFrame | ArrayLike, *, sensitive_features: ArrayLike | None = None
    ) -> npt.NDArray[np.generic]:
        """The most frequent label of each row's cell."""
        return self.class_of_cell_[self.cells(X)]

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
        cells = self.cells(validation.X)
        counts = [np.bincount(cells[(validation.a == g).to_numpy()], minlength=self.n_cells_) for g in self.groups_]
        totals = np.bincount(self.cells(test.X), minlength=self.n_cells_)
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

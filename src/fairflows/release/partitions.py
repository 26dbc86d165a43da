"""Encoded rows as numbers, and the leaves of a tree that cuts their space into k cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.tree import DecisionTreeClassifier

from fairflows.arrays import NDArray
from fairflows.encoder.base import FloatArray
from fairflows.encoder.scores import ThresholdTrees
from fairflows.exceptions import DataError
from fairflows.table.columns import floats, has_order, places_in, sorted_values

IntArray = NDArray[np.intp]

_PRIOR_ROWS = 10  # how many rows at the average rate a level's label rate is mixed with


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, moved to mean 0 and standard deviation 1.

    Where values may be missing (`has_gaps`), these take the mean, and a second column says which they are.
    """

    mean: float
    scale: float
    has_gaps: bool = False

    def features(self, column: pd.Series) -> FloatArray:
        """One column, or two."""
        values = (_numbers(column, may_miss=self.has_gaps) - self.mean) / self.scale
        if not self.has_gaps:
            return values[:, None]
        missing = np.isnan(values)
        return np.column_stack([np.where(missing, 0, values), missing])


@dataclass(frozen=True)
class LevelColumn:
    """A column of levels; each is a row of a table: its label rates, or a one in its own place.

    A level that fitting did not see has the table's last row.
    """

    levels: list[Any]
    table: FloatArray

    def features(self, column: pd.Series) -> FloatArray:
        """Return the row of each value's level."""
        return self.table[places_in(pd.Index(self.levels, dtype=object), column)]


@dataclass(frozen=True)
class NumericView:
    """Every column of a frame as numbers."""

    columns: list[NumberColumn | LevelColumn]  # in the frame's order

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        y: IntArray | None,
        n_classes: int,
        *,
        standardise: bool = True,
        has_gaps: bool = False,
    ) -> NumericView:
        """Learn means and levels; levels become the label rates of their rows, or one-hot without a label.

        Missing numbers are refused unless `has_gaps` says that there may be some.
        """
        targets = None if y is None else np.eye(n_classes)[y][:, 1:]
        return cls([_fit_column(frame.iloc[:, j], targets, standardise, has_gaps) for j in range(frame.shape[1])])

    def features(self, frame: pd.DataFrame) -> FloatArray:
        """Return the numbers, (n_rows, n_numbers)."""
        parts = [part.features(column) for part, (_, column) in zip(self.columns, frame.items(), strict=True)]
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class TreePartition:
    """Encoded rows cut into cells: the leaves of a decision tree, numbered by the rate of the label's last class."""

    view: NumericView
    tree: ThresholdTrees
    cell: IntArray  # (n_nodes,): each leaf's number

    @classmethod
    def fit(cls, Z: pd.DataFrame, y: IntArray, n_cells: int, random_state: int) -> TreePartition:
        """Grow the tree best first on encoded rows with these class codes of the label, up to n_cells leaves."""
        view = NumericView.fit(Z, y, int(y.max()) + 1)
        grown = DecisionTreeClassifier(max_leaf_nodes=n_cells, random_state=random_state).fit(view.features(Z), y)
        tree = grown.tree_
        leaves = np.flatnonzero(tree.children_left < 0)
        cell = np.full(tree.node_count, -1)
        cell[leaves[np.argsort(tree.value[leaves, 0, -1], kind="stable")]] = np.arange(len(leaves))
        itself, is_leaf = np.arange(tree.node_count), tree.children_left < 0
        children = [np.where(is_leaf, itself, side) for side in (tree.children_right, tree.children_left)]
        feature, never = np.maximum(tree.feature, 0).astype(np.intp), np.zeros(tree.node_count, dtype=bool)
        root, below = np.zeros(1, dtype=np.intp), np.stack(children, axis=1).astype(np.intp)
        walked = ThresholdTrees(feature, tree.threshold, never, below, root)
        return cls(view, walked, cell)

    def cells(self, Z: pd.DataFrame) -> IntArray:
        """Return the leaf of each encoded row."""
        single = self.view.features(Z).astype(np.float32)  # the precision in which scikit-learn chose the thresholds
        return self.cell[self.tree.leaves(single.astype(np.float64))[0]]


def _fit_column(
    column: pd.Series, targets: FloatArray | None, standardise: bool, has_gaps: bool
) -> NumberColumn | LevelColumn:
    if has_order(column.dtype):
        values = _numbers(column, may_miss=has_gaps)
        known = values[~np.isnan(values)]
        if not standardise or not len(known):
            return NumberColumn(float(known.mean()) if has_gaps and len(known) else 0.0, 1.0, has_gaps)
        return NumberColumn(float(known.mean()), float(known.std()) or 1.0, has_gaps)
    levels = sorted_values(column)
    if targets is None:
        return LevelColumn(levels, np.concatenate([np.eye(len(levels)), np.zeros((1, len(levels)))]))
    known = column.notna().to_numpy()  # a missing value has the table's last row, as an unseen level does
    code = places_in(pd.Index(levels, dtype=object), column[known])
    sums = np.stack([np.bincount(code, weights=t, minlength=len(levels)) for t in targets[known].T], axis=1)
    rows = np.bincount(code, minlength=len(levels))[:, None]
    average = targets.mean(axis=0, keepdims=True)
    return LevelColumn(levels, np.concatenate([(sums + _PRIOR_ROWS * average) / (rows + _PRIOR_ROWS), average]))


def _numbers(column: pd.Series, *, may_miss: bool) -> FloatArray:
    values = floats(column)
    if not np.isfinite(values[~np.isnan(values)] if may_miss else values).all():
        raise DataError(f"Column {column.name!r} must hold finite numbers to be cut into cells; it has NaN or inf.")
    return values

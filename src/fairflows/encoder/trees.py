"""Binary trees as plain arrays, which all rows go down together, one level at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

_LEVELS = 4  # to go down before rows that have reached a leaf are left out: finding them takes as long as a level


@dataclass(frozen=True)
class ThresholdTrees:
    """Trees whose inner nodes compare one feature of a row with a threshold.

    The nodes of all trees are numbered together. A row goes left where its feature is at most the threshold, and where
    the feature is missing (NaN) if ``missing_left`` says so. Both children of a leaf are the leaf itself.
    """

    feature: IntArray  # (n_nodes,)
    threshold: FloatArray  # (n_nodes,)
    missing_left: npt.NDArray[np.bool_]  # (n_nodes,)
    children: IntArray  # (n_nodes, 2): the node on the right, then the node on the left
    roots: IntArray  # (n_trees,)

    def leaves(self, x: FloatArray) -> IntArray:
        """Return the leaf that each row of x (n_rows, n_features) reaches in each tree, shape (n_trees, n_rows)."""
        n, n_trees = len(x), len(self.roots)
        # Rows that go left when a feature is missing read a copy in which missing values are below every threshold.
        columns = np.concatenate([x.T, np.where(np.isnan(x.T), -np.inf, x.T)]).ravel()
        start = (self.feature + x.shape[1] * self.missing_left) * n
        children, is_leaf = self.children.ravel(), self.children[:, 0] == np.arange(len(self.feature))
        reached = np.empty(n_trees * n, dtype=np.intp)
        node, row, place = np.repeat(self.roots, n), np.tile(np.arange(n), n_trees), np.arange(n_trees * n)
        while len(place):
            for _ in range(_LEVELS):  # a leaf leads to itself
                goes_left = columns.take(start.take(node) + row) <= self.threshold.take(node)
                node = children.take(2 * node + goes_left)
            reached[place] = node
            above = np.flatnonzero(~is_leaf.take(node))
            node, row, place = node.take(above), row.take(above), place.take(above)
        return reached.reshape(n_trees, n)

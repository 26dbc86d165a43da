"""Binary trees as plain arrays, which all rows go down together, one level at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]


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

    @cached_property
    def depth(self) -> int:
        """Number of comparisons on the longest way from a root to a leaf."""
        node, depth = self.roots, -1
        while len(node):
            node = self.children[node[self.children[node, 0] != node]].ravel()
            depth += 1
        return depth

    def leaves(self, x: FloatArray) -> IntArray:
        """Return the leaf that each row of x (n_rows, n_features) reaches in each tree, shape (n_trees, n_rows)."""
        n = len(x)
        # Rows that go left when a feature is missing read a copy in which missing values are below every threshold.
        columns = np.concatenate([x.T, np.where(np.isnan(x.T), -np.inf, x.T)]).ravel()
        start = (self.feature + x.shape[1] * self.missing_left) * n
        children, rows = self.children.ravel(), np.arange(n)
        node = np.repeat(self.roots[:, None], n, axis=1)
        for _ in range(self.depth):
            goes_left = columns.take(start.take(node) + rows) <= self.threshold.take(node)
            node = children.take(2 * node + goes_left)
        return node

"""The matched tree: every node splits each group at the same quantile of one score.

A node sends one share of *each* group to the left, so that every leaf holds the same share of every group. The
structure of a tree (the score that each node splits, and the share on the left) is chosen on some persons, and its
thresholds are set at others: each is the pair (score, coin) of one of these persons. Then the true masses of the leaves
have a known law, whatever the data are: see `fairflows.bounds.blocks`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairflows.bounds.blocks import blocks_to_the_left
from fairflows.encoder.base import FloatArray, IntArray
from fairflows.table.persons import Places

Coin = Callable[[int, Places], FloatArray]
"""Given a depth and some rows, a number in [0, 1) for each of them; numbers of two depths are independent."""


@dataclass(frozen=True)
class TreeStructure:
    """The inner nodes of a binary tree, each after the one above it, without thresholds."""

    score: IntArray  # (n_nodes,): the score that each node splits
    share: FloatArray  # (n_nodes, K): the share of each group that goes to the left
    children: IntArray  # (n_nodes, 2): the node on the left and on the right; a leaf is written as −1 − its cell

    @property
    def n_cells(self) -> int:
        """The number of leaves."""
        return len(self.score) + 1

    def first(self, n_cells: int) -> TreeStructure:
        """Return the tree of the first nodes, with so many leaves at most."""
        n = min(n_cells, self.n_cells) - 1
        children = self.children[:n].copy()
        is_leaf = (children < 0) | (children >= n)
        children[is_leaf] = -1 - np.arange(is_leaf.sum())
        return TreeStructure(self.score[:n], self.share[:n], children)

    def side_blocks(self, n_persons: IntArray) -> IntArray:
        """Return the blocks on both sides of each node, (n_nodes, 2, K), if it is cut at n persons of each group."""
        found = np.empty((len(self.score), 2, len(n_persons)), dtype=np.int64)
        level, blocks = np.arange(min(1, len(self.score))), np.asarray(n_persons)[None] + 1
        while len(level):
            left = blocks_to_the_left(blocks, self.share[level])
            found[level] = np.stack([left, blocks - left], axis=1)
            below, is_inner = self.children[level], self.children[level] >= 0
            level, blocks = below[is_inner], found[level][is_inner]
        return found

    def blocks(self, n_persons: IntArray) -> IntArray:
        """Return the blocks (K, n_cells) of each leaf if the tree is cut at n persons of each group, (K,)."""
        if not len(self.score):
            return np.asarray(n_persons)[:, None] + 1
        return self.side_blocks(n_persons)[self.children < 0].T  # cells are numbered in this order

    def levels(self) -> IntArray:
        """Return the number of each cell's ancestor at depths 1, 2, …, (n_levels, n_cells); the last are the cells.

        A cell that lies above a depth is its own ancestor there.
        """
        n, k = len(self.score), self.n_cells
        parent, depth = np.zeros((2, n + k), dtype=np.int64)  # nodes, then cells
        places = np.where(self.children >= 0, self.children, n - 1 - self.children)
        for node in range(n):
            parent[places[node]], depth[places[node]] = node, depth[node] + 1
        ancestors = np.arange(n, n + k)
        levels = [ancestors]
        for d in range(int(depth.max()) - 1, 0, -1):
            ancestors = np.where(depth[ancestors] > d, parent[ancestors], ancestors)
            levels.append(ancestors)
        return np.array([np.unique(level, return_inverse=True)[1] for level in reversed(levels)])

    def blocks_of_first(self, n_persons: IntArray) -> Callable[[int], IntArray]:
        """Return the blocks of `first(k)` as a function of k, of two cells or more."""
        sides = self.side_blocks(n_persons)

        def blocks(n_cells: int) -> IntArray:
            n = n_cells - 1
            return sides[:n][(self.children[:n] < 0) | (self.children[:n] >= n)].T

        return blocks


@dataclass(frozen=True)
class MatchedTree:
    """A tree with thresholds.

    A row of group a goes to the left of a node where its pair (score, coin) is at most
    ``(threshold[node, a], coin[node, a])``, in lexicographic order.
    """

    structure: TreeStructure
    threshold: FloatArray  # (n_nodes, K)
    coin: FloatArray  # (n_nodes, K)

    def cells(self, scores: FloatArray, group: Places, coin: Coin) -> Places:
        """Return the leaf that each row (n_rows, n_scores) of each group ends in."""
        tree = self.structure
        place = np.full(len(scores), 0 if len(tree.score) else -1, dtype=np.int64)
        rows, depth = np.flatnonzero(place >= 0), 0
        while len(rows):
            node, a = place[rows], group[rows]
            value, threshold = scores[rows, tree.score[node]], self.threshold[node, a]
            goes_right = value > threshold
            tied = np.flatnonzero(value == threshold)
            if len(tied):
                goes_right[tied] = coin(depth, rows[tied]) > self.coin[node[tied], a[tied]]
            place[rows] = tree.children[node, goes_right.astype(np.intp)]
            rows, depth = rows[place[rows] >= 0], depth + 1
        return (-1 - place).astype(np.intp)


def cut(tree: TreeStructure, scores: FloatArray, group: Places, coin: Coin) -> MatchedTree:
    """Set the thresholds of a tree at order statistics of persons.

    A node with b blocks holds b − 1 persons of a group. It is cut at the i-th smallest pair (score, coin) of them,
    where i depends on b and the share alone; i blocks go to the left, b − i to the right, and the person at the cut is
    used up. All nodes of a level are treated together.

    `scores` (n, n_scores) has one row per person, and `TreeStructure.blocks` of so many persons are positive.
    """
    n_nodes, K = tree.share.shape
    threshold, coin_at_cut = np.empty((2, n_nodes, K))
    blocks = np.empty((n_nodes, K), dtype=np.int64)
    blocks[:1] = np.bincount(group, minlength=K) + 1
    live, node_of, depth = np.arange(len(group)), np.zeros(len(group), dtype=np.int64), 0
    level = np.arange(min(1, n_nodes))  # the nodes of a depth, in rising order
    while len(level):
        value, u = scores[live, tree.score[node_of[live]]], coin(depth, live)
        order = np.lexsort((u, value, node_of[live] * K + group[live]))
        value, u, live = value[order], u[order], live[order]
        at_level = np.searchsorted(level, node_of[live])
        i = blocks_to_the_left(blocks[level], tree.share[level])  # (n_level, K)
        start = np.searchsorted(at_level * K + group[live], np.arange(len(level) * K)).reshape(-1, K)
        threshold[level], coin_at_cut[level] = value[start + i - 1], u[start + i - 1]
        for side, part in ((0, i), (1, blocks[level] - i)):
            child = tree.children[level, side]
            blocks[child[child >= 0]] = part[child >= 0]
        rank = np.arange(len(live)) - (start + i - 1)[at_level, group[live]]  # 0 for the person at the cut
        live, goes_right = live[rank != 0], (rank[rank != 0] > 0).astype(np.intp)
        node_of[live] = tree.children[node_of[live], goes_right]
        live = live[node_of[live] >= 0]
        level, depth = np.sort(tree.children[level][tree.children[level] >= 0]), depth + 1
    return MatchedTree(tree, threshold, coin_at_cut)

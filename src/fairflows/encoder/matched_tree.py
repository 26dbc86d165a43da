"""The matched tree: every node splits each group at the same quantile of one score.

A node sends one share of *each* group to the left, so that every leaf holds the same share of every group. The
structure of a tree (the score that each node splits, and the share on the left) is chosen on some persons, and its
thresholds are set at others: each is the pair (score, coin) of one of these persons. Then the true masses of the leaves
have a known law, whatever the data are: see `fairflows.bounds.blocks`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from fairflows.bounds.blocks import blocks_to_the_left
from fairflows.encoder.base import FloatArray, IntArray
from fairflows.table.persons import Places

Coin = Callable[[int, Places], FloatArray]
"""Given a depth and some rows, a number in [0, 1) for each of them; numbers of two depths are independent."""


@dataclass(frozen=True)
class TreeStructure:
    """The inner nodes of a binary tree, each after the one above it, without thresholds."""

    score: Int[IntArray, " n_nodes"]  # the score that each node splits
    share: Float[FloatArray, "n_nodes K"]  # the share of each group that goes to the left
    # the node on the left and on the right; a leaf is written as −1 − its cell
    children: Int[IntArray, "n_nodes 2"]

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

    def side_blocks(self, n_persons: Int[IntArray, " K"]) -> Int[IntArray, "n_nodes 2 K"]:
        """Return the blocks on both sides of each node if it is cut at n persons of each group."""
        found = np.empty((len(self.score), 2, len(n_persons)), dtype=np.int64)
        level, blocks = np.arange(min(1, len(self.score))), np.asarray(n_persons)[None] + 1
        while len(level):
            left = blocks_to_the_left(blocks, self.share[level])
            found[level] = np.stack([left, blocks - left], axis=1)
            below, is_inner = self.children[level], self.children[level] >= 0
            level, blocks = below[is_inner], found[level][is_inner]
        return found

    def blocks(self, n_persons: Int[IntArray, " K"]) -> Int[IntArray, "K n_cells"]:
        """Return the blocks of each leaf if the tree is cut at n persons of each group."""
        if not len(self.score):
            return np.asarray(n_persons)[:, None] + 1
        return self.side_blocks(n_persons)[self.children < 0].T  # cells are numbered in this order

    def side_blocks_below(self, n_first: int, of_leaves: Int[IntArray, "K k"]) -> Int[IntArray, "n_nodes 2 K"]:
        """Return the blocks on both sides of each node where the leaves of `first(n_first)` have these blocks.

        Nodes above these leaves have blocks at leaves alone.
        """
        found = np.zeros((len(self.score), 2, len(of_leaves)), dtype=np.int64)
        of_node = np.zeros((len(self.score), len(of_leaves)), dtype=np.int64)
        above = self.first(n_first).children
        found[: len(above)][above < 0] = of_leaves.T
        starts = above < 0
        if not len(above):
            of_node[0] = of_leaves[:, 0]
        else:
            of_start = self.children[: len(above)][starts]
            of_node[of_start[of_start >= 0]] = of_leaves.T[of_start >= 0]
        for node in range(len(above), len(self.score)):
            left = blocks_to_the_left(of_node[node], self.share[node])
            found[node] = left, of_node[node] - left
            for side in np.flatnonzero(self.children[node] >= 0):
                of_node[self.children[node, side]] = found[node, side]
        return found

    def starts_below(self, n_first: int) -> Int[IntArray, " k"]:
        """Return of each leaf of `first(n_first)` the node that it is cut at, or −1 − its cell where it is not cut."""
        above = self.first(n_first).children
        return self.children[: len(above)][above < 0] if len(above) else np.zeros(1, dtype=np.int64)

    def leaves_of_first(self, n_first: int) -> Int[IntArray, " n_cells"]:
        """Return the leaf of `first(n_first)` that each cell lies in."""
        starts, found = self.starts_below(n_first), np.empty(self.n_cells, dtype=np.int64)
        of_node = np.empty(len(self.score), dtype=np.int64)
        for leaf, start in enumerate(starts.tolist()):
            (of_node if start >= 0 else found)[start if start >= 0 else -1 - start] = leaf
        for node in range(n_first - 1, len(self.score)):
            for child in self.children[node].tolist():
                (of_node if child >= 0 else found)[child if child >= 0 else -1 - child] = of_node[node]
        return found

    @cached_property
    def depth(self) -> Int[IntArray, " n_nodes"]:
        """The number of nodes above each node."""
        found = np.zeros(len(self.score), dtype=np.int64)
        for node, children in enumerate(self.children):
            found[children[children >= 0]] = found[node] + 1
        return found

    def levels(self) -> Int[IntArray, "n_levels n_cells"]:
        """Return the number of each cell's ancestor at depths 1, 2, …; the last are the cells.

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

    def blocks_of_first(self, n_persons: Int[IntArray, " K"]) -> Callable[[int], IntArray]:
        """Return the blocks of `first(k)` as a function of k, of two cells or more."""
        sides = self.side_blocks(n_persons)

        def blocks(n_cells: int) -> Int[IntArray, "K {n_cells}"]:
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
    threshold: Float[FloatArray, "n_nodes K"]
    coin: Float[FloatArray, "n_nodes K"]

    def cells(
        self,
        scores: Float[FloatArray, "n n_scores"],
        group: Int[Places, " n"],
        coin: Coin,
        start: Int[IntArray, " n"] | None = None,
        *,
        strictly: bool = False,
    ) -> Int[Places, " n"]:
        """Return the leaf that each row ends in.

        `start` is the node that each row begins at, by default the root, or −1 − its leaf. With `strictly` the rows at
        a threshold, which are used up by it, have the leaf −1.
        """
        tree = self.structure
        root = 0 if len(tree.score) else -1
        place = np.full(len(scores), root, dtype=np.int64) if start is None else start.copy()
        rows, used_up = np.flatnonzero(place >= 0), np.zeros(len(scores), dtype=bool)
        while len(rows):
            node, a = place[rows], group[rows]
            value, threshold = scores[rows, tree.score[node]], self.threshold[node, a]
            goes_right = value > threshold
            tied = np.flatnonzero(value == threshold)
            depths = tree.depth[node[tied]]
            for depth in np.unique(depths):  # one, unless rows begin at several depths
                at = tied[depths == depth]
                u, at_cut = coin(int(depth), rows[at]), self.coin[node[at], a[at]]
                goes_right[at] = u > at_cut
                used_up[rows[at]] |= u == at_cut
            place[rows] = tree.children[node, goes_right.astype(np.intp)]
            rows = rows[place[rows] >= 0]
        found = (-1 - place).astype(np.intp)
        return np.where(used_up, -1, found) if strictly else found


def cut(
    tree: TreeStructure,
    scores: Float[FloatArray, "n n_scores"],
    group: Int[Places, " n"],
    coin: Coin,
    above: MatchedTree | None = None,
    start: Int[IntArray, " n"] | None = None,
) -> MatchedTree:
    """Set the thresholds of a tree at order statistics of persons.

    A node with b blocks holds b − 1 persons of a group. It is cut at the i-th smallest pair (score, coin) of them,
    where i depends on b and the share alone; i blocks go to the left, b − i to the right, and the person at the cut is
    used up. All nodes of a level are treated together.

    `scores` has one row per person, and `TreeStructure.blocks` of so many persons are positive. The thresholds of the
    first nodes may be those of another tree, `above`; `start` is then the node below them at which each person begins,
    or negative.
    """
    n_nodes, K = tree.share.shape
    n_above = 0 if above is None else len(above.threshold)
    threshold, coin_at_cut = np.empty((2, n_nodes, K))
    if above is not None:
        threshold[:n_above], coin_at_cut[:n_above] = above.threshold, above.coin
    node_of = np.zeros(len(group), dtype=np.int64) if start is None else start.copy()
    live = np.flatnonzero(node_of >= 0) if n_nodes else np.empty(0, dtype=np.intp)
    blocks = np.ones((n_nodes, K), dtype=np.int64)  # of nodes at which nobody begins they are set from above
    np.add.at(blocks, (node_of[live], group[live]), 1)
    below = np.arange(n_above, n_nodes)
    for depth in np.unique(tree.depth[below]).tolist():
        level = below[tree.depth[below] == depth]  # in rising order
        waits = tree.depth[node_of[live]] != depth
        waiting, live = live[waits], live[~waits]
        value, u = scores[live, tree.score[node_of[live]]], coin(depth, live)
        order = np.lexsort((u, value, node_of[live] * K + group[live]))
        value, u, live = value[order], u[order], live[order]
        at_level = np.searchsorted(level, node_of[live])
        i = blocks_to_the_left(blocks[level], tree.share[level])  # (n_level, K)
        first = np.searchsorted(at_level * K + group[live], np.arange(len(level) * K)).reshape(-1, K)
        threshold[level], coin_at_cut[level] = value[first + i - 1], u[first + i - 1]
        for side, part in ((0, i), (1, blocks[level] - i)):
            child = tree.children[level, side]
            blocks[child[child >= 0]] = part[child >= 0]
        rank = np.arange(len(live)) - (first + i - 1)[at_level, group[live]]  # 0 for the person at the cut
        live, goes_right = live[rank != 0], (rank[rank != 0] > 0).astype(np.intp)
        node_of[live] = tree.children[node_of[live], goes_right]
        live = np.concatenate([live[node_of[live] >= 0], waiting])
    return MatchedTree(tree, threshold, coin_at_cut)

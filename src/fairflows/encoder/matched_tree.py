"""The matched tree: every node splits each group at its own quantile of one score.

A node with k leaves sends the share ⌊k/2⌋/k of *each* group to the left, so that every leaf holds the same share of
every group. The structure of a tree (which score each node splits, and which shares go to the left) is chosen on some
persons, and its thresholds are set on others: each is the pair (score, coin) of one of these persons. Then the true
masses of the leaves have a known law, whatever the data are: see `fairflows.bounds.blocks`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fairflows.bounds.blocks import blocks_to_the_left
from fairflows.bounds.cells import FEWEST_PERSONS
from fairflows.encoder.base import FloatArray, IntArray
from fairflows.table.persons import Places

Coin = Callable[[int, Places], FloatArray]
"""Given a depth and some rows, a number in [0, 1) for each of them; numbers of two depths are independent."""

_ROWS_AT_ONCE = 16_384  # whose sums are computed in the processor's cache


@dataclass(frozen=True)
class TreeStructure:
    """The inner nodes of a binary tree, each before those below it, without thresholds."""

    score: IntArray  # (n_nodes,): which score each node splits
    share: FloatArray  # (n_nodes, K): the share of each group that goes to the left
    children: IntArray  # (n_nodes, 2): the node on the left and on the right; a leaf is written as −1 − its cell
    n_cells: int  # how many leaves it has

    def leaves_below(self) -> IntArray:
        """Return the number of leaves on the left and on the right of each node, shape (n_nodes, 2)."""
        below = np.ones((len(self.score), 2), dtype=np.int64)
        for node in range(len(self.score) - 1, -1, -1):
            is_inner = self.children[node] >= 0
            below[node, is_inner] = below[self.children[node, is_inner]].sum(axis=1)
        return below


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


def cut(tree: TreeStructure, scores: FloatArray, group: Places, coin: Coin) -> tuple[MatchedTree, IntArray]:
    """Set the thresholds of a tree at order statistics of persons whom its structure does not depend on.

    A node with b blocks holds b − 1 persons of a group. It is cut at the i-th smallest pair (score, coin) of them,
    where i depends on b and the share alone; i blocks go to the left, b − i to the right, and the person at the cut is
    used up. All nodes of a level are treated together.

    `scores` (n, n_scores) has one row per person, and every group has at least as many persons as the tree has leaves.
    Return the tree, and the blocks of each group in each leaf, (K, n_cells).
    """
    n_nodes, K = tree.share.shape
    threshold, coin_at_cut = np.empty((2, n_nodes, K))
    blocks_of_node, blocks = np.empty((n_nodes, K), dtype=np.int64), np.empty((K, tree.n_cells), dtype=np.int64)
    whole = np.bincount(group, minlength=K) + 1
    if n_nodes == 0:
        return MatchedTree(tree, threshold, coin_at_cut), whole[:, None]
    blocks_of_node[0], below = whole, tree.leaves_below()
    live, node_of, depth = np.arange(len(group)), np.zeros(len(group), dtype=np.int64), 0
    level = np.array([0])  # the nodes of a depth, in rising order
    while len(level):
        value, u = scores[live, tree.score[node_of[live]]], coin(depth, live)
        order = np.lexsort((u, value, group[live], node_of[live]))
        value, u, live = value[order], u[order], live[order]
        at_level = np.searchsorted(level, node_of[live])
        b = blocks_of_node[level]  # (n_level, K)
        i = blocks_to_the_left(b, below[level, :1], below[level].sum(axis=1, keepdims=True), tree.share[level])
        start = np.searchsorted(at_level * K + group[live], np.arange(len(level) * K)).reshape(-1, K)
        threshold[level], coin_at_cut[level] = value[start + i - 1], u[start + i - 1]
        for side, part in ((0, i), (1, b - i)):
            child = tree.children[level, side]
            is_inner = child >= 0
            blocks_of_node[child[is_inner]] = part[is_inner]
            blocks[:, -1 - child[~is_inner]] = part[~is_inner].T
        rank = np.arange(len(live)) - (start + i - 1)[at_level, group[live]]  # 0 for the person at the cut
        live, goes_right = live[rank != 0], (rank[rank != 0] > 0).astype(np.intp)
        node_of[live] = tree.children[node_of[live], goes_right]
        live = live[node_of[live] >= 0]
        level = np.sort(tree.children[level][tree.children[level] >= 0])
        depth += 1
    return MatchedTree(tree, threshold, coin_at_cut), blocks


@dataclass(frozen=True)
class StructureRows:
    """The rows that the structure of a tree is chosen on."""

    scores: FloatArray  # (n, n_scores): the scores that may be split
    group: Places  # (n,): each row's group
    # (n, n_targets), centred: what the leaves are to tell; a split is worth the sum of the targets' variances that it
    # explains
    targets: FloatArray
    by_score: IntArray  # (n_scores, n): the rows in the order of each score, ties in random order
    n_groups: int  # K

    @classmethod
    def of(
        cls, scores: FloatArray, group: Places, targets: FloatArray, n_groups: int, random_state: int
    ) -> StructureRows:
        """Return the rows, sorted by each score."""
        # A tie is broken anew for each score: rows that one coin sent to the left at a node must not be the same that
        # the next node's coin sends to the left.
        tie = np.random.default_rng(random_state).random(scores.shape)
        by_score = np.stack([np.lexsort((tie[:, j], score)) for j, score in enumerate(scores.T)])
        return cls(scores, group, targets - targets.mean(axis=0), by_score, n_groups)

    def take(self, rows: Places) -> StructureRows:
        """Return some of the rows."""
        place = np.full(len(self.group), -1)
        place[rows] = np.arange(len(rows))
        by_score = place[self.by_score]
        return replace(
            self,
            scores=self.scores[rows],
            group=self.group[rows],
            targets=self.targets[rows],
            by_score=by_score[by_score >= 0].reshape(len(by_score), -1),
        )


def grow(rows: StructureRows, n_cells: int, rates: FloatArray | None = None) -> TreeStructure:
    """Choose the structure of a tree.

    All nodes of a level are treated together, as arrays. For one node the algorithm is::

        grow(rows, k):                                  # k leaves
            if k == 1: return a leaf
            share = (k // 2) / k                        # of each group that goes to the left
            for each score: cut each group at its own `share`-quantile of the score
            take the score whose cut explains most of the targets' variance
            return node(grow(left rows, k // 2), grow(right rows, k - k // 2))

    With `rates` (K,) the root splits the first score, and sends this share of each group to the right.
    """
    K = rows.n_groups
    live, node = np.arange(len(rows.group)), np.zeros(len(rows.group), dtype=np.int64)  # rows above no leaf, their node
    leaves_of_node = np.array([n_cells])
    children: list[IntArray] = []  # one array per level, of each list
    scores: list[IntArray] = []
    shares: list[FloatArray] = []
    n_inner = n_leaves = 0
    while len(leaves_of_node):
        is_leaf = leaves_of_node == 1
        children.append(np.where(is_leaf, -n_leaves - np.cumsum(is_leaf), n_inner + np.cumsum(~is_leaf) - 1))
        n_leaves, n_inner = n_leaves + int(is_leaf.sum()), n_inner + int((~is_leaf).sum())
        ends = is_leaf[node]
        live, node = live[~ends], (np.cumsum(~is_leaf) - 1)[node[~ends]]
        leaves_of_node = leaves_of_node[~is_leaf]
        if not len(leaves_of_node):
            break
        left = leaves_of_node // 2
        share = np.repeat((left / leaves_of_node)[:, None], K, axis=1)
        live_rows = rows if len(live) == len(rows.group) else rows.take(live)
        if rates is not None and not scores:
            left, leaves_of_node = _leaves_by_rates(n_cells, rates, np.bincount(rows.group, minlength=K))
            share = 1 - rates[None]
            live_rows = replace(live_rows, by_score=live_rows.by_score[:1])
        score, goes_right = best_splits(live_rows, node, share)
        scores.append(score)
        shares.append(share)
        node = 2 * node + goes_right
        leaves_of_node = np.stack([left, leaves_of_node - left], axis=1).ravel()
    return TreeStructure(
        np.concatenate([*scores, np.empty(0, dtype=np.int64)]),
        np.concatenate([*shares, np.empty((0, K))]),
        np.concatenate(children)[1:].reshape(-1, 2),
        n_leaves,
    )


def _leaves_by_rates(n_cells: int, rates: FloatArray, n: IntArray) -> tuple[IntArray, IntArray]:
    """Return the leaves on the left of a root that sends the rates of n persons to the right, and all leaves.

    They are fewer than asked for where ten persons of a group would not be left for a leaf of a side.
    """
    left = int(np.clip(round(n_cells * (1 - rates.mean())), 1, n_cells - 1))
    # The persons at the cuts may be one fewer than these, and each leaf has a block more than persons.
    room = ((np.stack([1 - rates, rates]) * n - 1).min(axis=1) // (FEWEST_PERSONS + 1)).astype(np.int64)
    sides = np.minimum([left, n_cells - left], np.maximum(room, 1))
    return sides[:1], sides.sum(keepdims=True)


def best_splits(rows: StructureRows, node: IntArray, share: FloatArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """For each node, find the score whose split explains most of the targets' variance.

    `node` is the node of each row, (n,); `share` is the share of each group that goes to the left, (n_nodes, K). Return
    the score of each node, and on which side of it each row is.
    """
    n, (n_nodes, K) = len(node), share.shape
    # One group in one node. Numbers of 16 bits are sorted by counting.
    segment = (node * K + rows.group).astype(np.uint16 if n_nodes * K <= 2**16 else np.int64)
    size = np.bincount(segment, minlength=n_nodes * K)
    start, n_left = np.cumsum(size) - size, share.ravel() * size
    first_on_the_right = np.repeat(start + n_left, size)  # by place in the order of segments
    goes_right = np.empty((n, len(rows.by_score)), dtype=bool)
    for j, by_score in enumerate(rows.by_score):
        by_segment = by_score[np.argsort(segment[by_score], kind="stable")]
        goes_right[by_segment, j] = np.arange(n) + 0.5 >= first_on_the_right
    best = _explained(rows, node, n_nodes, goes_right).argmax(axis=1)
    return best, goes_right[np.arange(n), best[node]]


def _explained(rows: StructureRows, node: IntArray, n_nodes: int, goes_right: npt.NDArray[np.bool_]) -> FloatArray:
    """Return the variance of all targets that the split of each score explains, shape (n_nodes, n_scores)."""
    by_node = np.argsort(node, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=n_nodes))])
    explained = np.zeros((n_nodes, goes_right.shape[1]))
    for i in np.flatnonzero(np.diff(ends)):
        # Of the targets, then of the rows: sums over the node, and on the right of each split.
        whole = np.zeros(rows.targets.shape[1] + 1)
        sums = np.zeros((goes_right.shape[1], len(whole)))
        for start in range(ends[i], ends[i + 1], _ROWS_AT_ONCE):
            part = by_node[start : min(start + _ROWS_AT_ONCE, ends[i + 1])]
            terms = np.column_stack([rows.targets[part], np.ones(len(part))])
            whole += terms.sum(axis=0)
            sums += goes_right[part].T.astype(np.float64) @ terms
        sides = [sums, whole - sums]
        explained[i] = sum((side[:, :-1] ** 2).sum(axis=1) / np.maximum(side[:, -1], 1e-300) for side in sides)
        explained[i] -= (whole[:-1] ** 2).sum() / whole[-1]
    return explained

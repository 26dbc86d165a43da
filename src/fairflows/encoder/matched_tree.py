"""The matched tree: every node splits each group at its own quantile of one score.

A node with k leaves sends the share ⌊k/2⌋/k of *each* group to the left, so that every leaf holds the same share of
every group. Rows at a group's threshold are sent to the left by a coin, with the probability that fills the share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fairflows.display import ShowProgress
from fairflows.encoder.base import FloatArray, IntArray
from fairflows.table.persons import Places

Coin = Callable[[int, Places], FloatArray]
"""Given a depth and some rows, a number in [0, 1) for each of them; numbers of two depths are independent."""


@dataclass(frozen=True)
class MatchedTree:
    """The inner nodes of a binary tree, each before those below it.

    A row of group a goes to the left of a node where its score is below ``threshold[node, a]``, or equal to it and its
    coin is below ``tie_share[node, a]``.
    """

    score: IntArray  # (n_nodes,): which score each node splits
    # (n_nodes, K) each: where it splits each group
    threshold: FloatArray
    tie_share: FloatArray
    children: IntArray  # (n_nodes, 2): the node on the left and on the right; a leaf is written as −1 − its cell
    n_cells: int  # how many leaves it has

    def cells(self, scores: FloatArray, group: Places, coin: Coin) -> Places:
        """Return the leaf that each row (n_rows, n_scores) of each group ends in."""
        place = np.full(len(scores), 0 if len(self.score) else -1, dtype=np.int64)
        rows, depth = np.flatnonzero(place >= 0), 0
        while len(rows):
            node, a = place[rows], group[rows]
            value, threshold = scores[rows, self.score[node]], self.threshold[node, a]
            goes_right = value > threshold
            tied = np.flatnonzero(value == threshold)
            if len(tied):
                goes_right[tied] = coin(depth, rows[tied]) >= self.tie_share[node[tied], a[tied]]
            place[rows] = self.children[node, goes_right.astype(np.intp)]
            rows, depth = rows[place[rows] >= 0], depth + 1
        return (-1 - place).astype(np.intp)


_ROWS_AT_ONCE = 16_384  # whose sums are computed in the processor's cache


@dataclass(frozen=True)
class CalibrationRows:
    """The rows that a tree is fitted to."""

    scores: FloatArray  # (n, n_scores): the scores that may be split
    group: Places  # (n,): each row's group
    weight: FloatArray  # (n,): what each row counts; positive
    # (n, n_targets): what the leaves are to tell; a split is worth the sum of the targets' variances that it explains
    targets: FloatArray
    by_score: IntArray  # (n_scores, n): the rows in the order of each score, ties in random order
    n_groups: int  # K

    @classmethod
    def of(
        cls,
        scores: FloatArray,
        group: Places,
        weight: FloatArray,
        targets: FloatArray,
        n_groups: int,
        random_state: int,
    ) -> CalibrationRows:
        """Return the rows, sorted by each score."""
        # A tie is broken anew for each score: rows that one coin sent to the left at a node must not be the same that
        # the next node's coin sends to the left.
        tie = np.random.default_rng(random_state).random(scores.shape)
        by_score = np.stack([np.lexsort((tie[:, j], score)) for j, score in enumerate(scores.T)])
        return cls(scores, group, weight, targets - np.average(targets, axis=0, weights=weight), by_score, n_groups)

    def take(self, rows: Places) -> CalibrationRows:
        """Return some of the rows."""
        place = np.full(len(self.group), -1)
        place[rows] = np.arange(len(rows))
        by_score = place[self.by_score]
        return replace(
            self,
            scores=self.scores[rows],
            group=self.group[rows],
            weight=self.weight[rows],
            targets=self.targets[rows],
            by_score=by_score[by_score >= 0].reshape(len(by_score), -1),
        )


def grow(rows: CalibrationRows, n_cells: int, min_rows: int, show: ShowProgress) -> tuple[MatchedTree, Places]:
    """Fit a tree, and return it with the leaf of each row; ties are broken so that the shares are equal, to one row.

    No leaf has fewer than `min_rows` rows of a group; where a group has too few rows, there are fewer than `n_cells`.
    All nodes of a level are treated together, as arrays. For one node the algorithm is::

        grow(rows, k):                                  # k leaves
            k = min(k, fewest rows of a group // min_rows)
            if k <= 1: return a leaf
            share = (k // 2) / k                        # of each group that goes to the left
            for each score: cut each group at its own `share`-quantile of the score
            take the score whose cut explains most of the targets' variance
            return node(grow(left rows, k // 2), grow(right rows, k - k // 2))
    """
    K = rows.n_groups
    cell = np.full(len(rows.group), -1, dtype=np.intp)
    live, node = np.arange(len(rows.group)), np.zeros(len(rows.group), dtype=np.int64)  # rows above no leaf, their node
    leaves_of_node = np.array([n_cells])
    children, scores, thresholds, tie_shares = [], [], [], []  # one array per level
    n_inner = n_leaves = 0
    while len(leaves_of_node):
        # A node has as many leaves as every group can fill, at most those that it was given.
        filled = np.bincount(node * K + rows.group[live], minlength=len(leaves_of_node) * K).reshape(-1, K).min(axis=1)
        leaves_of_node = np.minimum(leaves_of_node, np.maximum(filled // min_rows, 1))
        is_leaf = leaves_of_node == 1
        number = np.where(is_leaf, -n_leaves - np.cumsum(is_leaf), n_inner + np.cumsum(~is_leaf) - 1)
        children.append(number)
        n_leaves, n_inner = n_leaves + int(is_leaf.sum()), n_inner + int((~is_leaf).sum())
        ends = is_leaf[node]
        cell[live[ends]] = -1 - number[node[ends]]
        live, node = live[~ends], (np.cumsum(~is_leaf) - 1)[node[~ends]]
        leaves_of_node = leaves_of_node[~is_leaf]
        show(n_leaves + len(leaves_of_node), n_cells, "cells")
        if not len(leaves_of_node):
            break
        left = leaves_of_node // 2
        live_rows = rows if len(live) == len(cell) else rows.take(live)
        splits = best_splits(live_rows, node, left / leaves_of_node)
        scores.append(splits.score)
        thresholds.append(splits.threshold)
        tie_shares.append(splits.tie_share)
        node = 2 * node + splits.goes_right
        leaves_of_node = np.stack([left, leaves_of_node - left], axis=1).ravel()
    tree = MatchedTree(
        np.concatenate([*scores, np.empty(0, dtype=np.int64)]),
        np.concatenate([*thresholds, np.empty((0, K))]),
        np.concatenate([*tie_shares, np.empty((0, K))]),
        np.concatenate(children)[1:].reshape(-1, 2),
        n_leaves,
    )
    return tree, cell


@dataclass(frozen=True)
class Splits:
    """The split of each node of a level, as `MatchedTree` has them, and on which side of it each row is."""

    score: IntArray
    threshold: FloatArray
    tie_share: FloatArray
    goes_right: npt.NDArray[np.bool_]


def best_splits(rows: CalibrationRows, node: IntArray, share: FloatArray) -> Splits:
    """For each node, the split of the score that explains most of the targets' variance.

    `node` is the node of each row, (n,); `share` is the share of each group that goes to the left, (n_nodes,).
    """
    n, K, n_nodes = len(node), rows.n_groups, len(share)
    # One group in one node. Numbers of 16 bits are sorted by counting.
    segment = (node * K + rows.group).astype(np.uint16 if n_nodes * K <= 2**16 else np.int64)
    part_share = np.repeat(share, K)
    stop = np.cumsum(np.bincount(segment, minlength=n_nodes * K))
    start = stop - np.bincount(segment, minlength=n_nodes * K)
    n_scores = rows.scores.shape[1]
    goes_right = np.empty((n, n_scores), dtype=bool)
    threshold, tie_share = np.empty((2, n_scores, n_nodes * K))
    for j in range(n_scores):
        by_score = rows.by_score[j]
        by_score = by_score[np.argsort(segment[by_score], kind="stable")]
        total = np.concatenate([[0.0], np.cumsum(rows.weight[by_score])])
        wanted = total[start] + part_share * (total[stop] - total[start])
        middle = (total[:-1] + total[1:]) / 2
        goes_right[by_score, j] = middle >= np.repeat(wanted, stop - start)
        at = np.clip(np.searchsorted(total, wanted, side="right") - 1, start, stop - 1)
        value = rows.scores[by_score, j]
        threshold[j] = value[at]
        first, last = _run_of_ties(value, at, start, stop)
        tie_share[j] = (wanted - total[first]) / (total[last] - total[first])
    best = _explained(rows, node, n_nodes, goes_right).argmax(axis=1)
    of_parts = np.repeat(best, K)
    chosen = np.arange(n_nodes * K)
    return Splits(
        best,
        threshold[of_parts, chosen].reshape(n_nodes, K),
        np.clip(tie_share[of_parts, chosen], 0, 1).reshape(n_nodes, K),
        goes_right[np.arange(n), best[node]],
    )


def _run_of_ties(value: FloatArray, at: Places, start: Places, stop: Places) -> tuple[Places, Places]:
    """Return start and stop of the run of equal values around a place of each sorted segment."""
    changes = np.flatnonzero(np.concatenate([[True], value[1:] != value[:-1], [True]]))
    after = np.searchsorted(changes, at, side="right")
    return np.maximum(changes[after - 1], start), np.minimum(changes[after], stop)


def _explained(rows: CalibrationRows, node: IntArray, n_nodes: int, goes_right: npt.NDArray[np.bool_]) -> FloatArray:
    """Return the variance of all targets that the split of each score explains, shape (n_nodes, n_scores)."""
    by_node = np.argsort(node, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=n_nodes))])
    explained = np.empty((n_nodes, goes_right.shape[1]))
    for i in range(n_nodes):
        # Of the targets, then of the weights: sums over the node, and on the right of each split.
        whole = np.zeros(rows.targets.shape[1] + 1)
        sums = np.zeros((goes_right.shape[1], len(whole)))
        for start in range(ends[i], ends[i + 1], _ROWS_AT_ONCE):
            part = by_node[start : min(start + _ROWS_AT_ONCE, ends[i + 1])]
            weighted = np.column_stack([rows.targets[part], np.ones(len(part))]) * rows.weight[part, None]
            whole += weighted.sum(axis=0)
            sums += goes_right[part].T.astype(np.float64) @ weighted
        sides = [sums, whole - sums]
        explained[i] = sum((side[:, :-1] ** 2).sum(axis=1) / np.maximum(side[:, -1], 1e-300) for side in sides)
        explained[i] -= (whole[:-1] ** 2).sum() / whole[-1]
    return explained

"""The structure of a matched tree, grown best first: what a split explains for what it costs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float, Int
from joblib import cpu_count

from fairflows.arrays import NDArray
from fairflows.bounds.blocks import blocks_to_the_left
from fairflows.bounds.cells import FEWEST_PERSONS
from fairflows.encoder.base import FloatArray, IntArray
from fairflows.encoder.matched_tree import TreeStructure
from fairflows.table.persons import Places

_SHARES = np.arange(1, 10) / 10  # that may go to the left


@dataclass(frozen=True)
class StructureRows:
    """The rows that the structure of a tree is chosen on."""

    group: Int[Places, " n"]  # each row's group
    # what the leaves are to tell, centred; a split is worth the sum of the targets' variances that it explains
    targets: Float[FloatArray, "n n_targets"]
    by_score: Int[IntArray, "n_scores n"]  # the rows in the order of each score, ties in random order
    n_groups: int  # K

    @classmethod
    def of(
        cls,
        scores: Float[FloatArray, "n n_scores"],
        group: Int[Places, " n"],
        targets: Float[FloatArray, "n n_targets"],
        n_groups: int,
        random_state: int,
    ) -> StructureRows:
        """Return the rows, sorted by each score."""
        # A tie is broken anew for each score: rows that one coin sent to the left at a node must not be the same that
        # the next node's coin sends to the left.
        tie = np.random.default_rng(random_state).random(scores.shape)
        by_score = np.stack([np.lexsort((tie[:, j], score)) for j, score in enumerate(scores.T)])
        return cls(group, targets - targets.mean(axis=0), by_score, n_groups)

    def take(self, rows: Int[Places, " m"]) -> StructureRows:
        """Return some of the rows."""
        place = np.full(len(self.group), -1)
        place[rows] = np.arange(len(rows))
        by_score = place[self.by_score]
        return replace(
            self,
            group=self.group[rows],
            targets=self.targets[rows],
            by_score=by_score[by_score >= 0].reshape(len(by_score), -1),
        )


@dataclass(frozen=True)
class Level:
    """The nodes of one depth of a tree that grows."""

    above: Int[IntArray, " n_nodes"]  # which node each is below; −1 − j for the j-th one that nothing is above
    side: Int[IntArray, " n_nodes"]  # on which side of it
    mass: Float[FloatArray, " n_nodes"]  # the share of the persons
    blocks: Int[IntArray, "n_nodes K"]

    def below(self, number: Int[IntArray, " n_nodes"], share: Float[FloatArray, "n_nodes K"]) -> Level:
        """Return the nodes below these, which have numbers: first all on the left, which get a share of each group."""
        left, blocks = share.mean(axis=1), blocks_to_the_left(self.blocks, share)
        mass = np.concatenate([self.mass * left, self.mass * (1 - left)])
        sides = np.repeat([0, 1], len(number))
        return Level(np.tile(number, 2), sides, mass, np.concatenate([blocks, self.blocks - blocks]))

    def take(self, nodes: npt.NDArray) -> Level:
        """Return some of the nodes."""
        return Level(self.above[nodes], self.side[nodes], self.mass[nodes], self.blocks[nodes])


def grow(
    rows: StructureRows,
    n_persons: Int[IntArray, " K"],
    rates: Float[FloatArray, " K"] | None = None,
    *,
    fewest: int = FEWEST_PERSONS,
) -> TreeStructure:
    """Choose the structure of a tree for thresholds at n persons of each group.

    The distance between the groups that chance leaves in a tree of leaves with masses p_j is proportional to
    Σ_j h(p_j), h(p) = √(p(1 − p)). So each node takes the score and the share whose split explains most of the targets'
    variance for what it adds to that sum, with ten persons of every group in every leaf (`fewest`)::

        grow(rows):
            for each score and each share in .1, …, .9: cut each group at this quantile of the score
            take the cut that explains most per h(p_left) + h(p_right) − h(p)
            return node(grow(left rows), grow(right rows))

    The nodes come best first, so that `TreeStructure.first` gives the tree of any number of leaves. All nodes of a
    depth are treated together, as arrays. With `rates` the root splits the first score, and sends this share of
    each group to the right.
    """
    level = Level(np.array([-1]), np.array([0]), np.ones(1), np.asarray(n_persons)[None] + 1)
    score, share, children, _ = _grown(rows, np.zeros(len(rows.group), dtype=np.int64), level, rates, fewest)
    return TreeStructure(score, share, children).first(len(score) + 1)


def grow_below(
    tree: TreeStructure, rows: StructureRows, leaf: Int[Places, " n"], blocks: Int[IntArray, "k K"], first_score: int
) -> TreeStructure:
    """Choose how the leaves of a tree are cut further, best first, by scores that are numbered from `first_score` on.

    `leaf` is the leaf of each row, and `blocks` are those of the leaves, at which they are cut further.
    """
    k, K = blocks.shape
    mass = (blocks / blocks.sum(axis=0)).mean(axis=1)
    level = Level(-1 - np.arange(k), np.zeros(k, dtype=np.int64), mass, blocks)
    score, share, children, root = _grown(rows, leaf.astype(np.int64), level, None, FEWEST_PERSONS)
    n_above, n = len(tree.score), len(tree.score) + len(score)
    of_leaf = np.where(root >= 0, n_above + root, n)  # a leaf has a number beyond all nodes
    above = np.where(tree.children < 0, of_leaf[np.maximum(-1 - tree.children, 0)], tree.children)
    below = np.where(children < 0, n, n_above + children)
    return TreeStructure(
        np.concatenate([tree.score, first_score + score]),
        np.concatenate([tree.share, share.reshape(-1, K)]),
        np.concatenate([above, below.reshape(-1, 2)]),
    ).first(n + 1)


def _grown(
    rows: StructureRows,
    node: Int[IntArray, " n"],
    level: Level,
    rates: Float[FloatArray, " K"] | None,
    fewest: int,
) -> tuple[
    Int[IntArray, " n_nodes"], Float[FloatArray, "n_nodes K"], Int[IntArray, "n_nodes 2"], Int[IntArray, " n_starts"]
]:
    """Grow below the nodes of a level, which rows are in; score, share and children of the nodes, best first.

    A child is −1 where it is a leaf. The last array has the node that each of the level became, −1 for a leaf.
    """
    K, n_starts = rows.n_groups, len(level.mass)
    scores: list[IntArray] = []  # of the nodes at each depth
    share_on_left: list[FloatArray] = []
    worth_of: list[FloatArray] = []
    levels: list[Level] = []
    n_nodes = 0
    while len(level.mass):
        is_root = n_nodes == 0
        shares = np.repeat(_SHARES[:, None], K, axis=1) if rates is None or not is_root else 1 - rates[None]
        considered = rows if rates is None or not is_root else replace(rows, by_score=rows.by_score[:1])
        score, best, worth, goes_right = best_splits(considered, node, shares, _worth(level, shares, fewest))
        may_split = worth > 0
        stays = may_split[node]
        number = np.arange(may_split.sum())
        score, share, worth, level = score[may_split], shares[best[may_split]], worth[may_split], level.take(may_split)
        scores.append(score)
        share_on_left.append(share)
        worth_of.append(worth)
        levels.append(level)
        level = level.below(n_nodes + number, share)
        rows = rows.take(np.flatnonzero(stays))
        node = (np.cumsum(may_split) - 1)[node[stays]] + len(number) * goes_right[stays]
        n_nodes += len(number)
    above, side = (np.concatenate([getattr(level, part) for level in levels]) for part in ("above", "side"))
    children, root = np.full((n_nodes, 2), -1), np.full(n_starts, -1)
    is_below = above >= 0
    children[above[is_below], side[is_below]] = np.flatnonzero(is_below)
    root[-1 - above[~is_below]] = np.flatnonzero(~is_below)
    order = _best_first(np.concatenate(worth_of), children, root)
    place = np.full(n_nodes + 1, -1)  # the last for a leaf
    place[order] = np.arange(n_nodes)
    return np.concatenate(scores)[order], np.concatenate(share_on_left)[order], place[children[order]], place[root]


def _worth(level: Level, shares: Float[FloatArray, "n_shares K"], least: int) -> Float[FloatArray, "n_nodes n_shares"]:
    """Return the worth of a unit of explained variance; 0 where a leaf would be too small."""
    left = blocks_to_the_left(level.blocks[:, None], shares)  # (n_nodes, n_shares, K)
    fewest = np.minimum(left, level.blocks[:, None] - left).min(axis=2)
    mass, on_left = level.mass[:, None], shares.mean(axis=1)
    cost = _h(mass * on_left) + _h(mass * (1 - on_left)) - _h(mass)
    return np.where(fewest > least, 1 / np.maximum(cost, 1e-300), 0.0)


def _h(p: Float[FloatArray, "*any"]) -> Float[FloatArray, "*any"]:
    return np.sqrt(np.maximum(p * (1 - p), 0.0))


def _best_first(
    worth: Float[FloatArray, " n_nodes"], children: Int[IntArray, "n_nodes 2"], root: Int[IntArray, " n_starts"]
) -> Int[IntArray, " n_nodes"]:
    """Return the nodes in the order of their worth, each after the one above it."""
    order, waiting = [], [(-worth[node], node) for node in root.tolist() if node >= 0]
    heapify(waiting)
    while waiting:
        _, node = heappop(waiting)
        order.append(node)
        for child in children[node].tolist():
            if child >= 0:
                heappush(waiting, (-worth[child], child))
    return np.array(order, dtype=np.int64)


def best_splits(
    rows: StructureRows,
    node: Int[IntArray, " n"],
    shares: Float[FloatArray, "n_shares K"],
    worth: Float[FloatArray, "n_nodes n_shares"],
) -> tuple[
    Int[IntArray, " n_nodes"],
    Int[IntArray, " n_nodes"],
    Float[FloatArray, " n_nodes"],
    Bool[NDArray[np.bool_], " n"],
]:
    """For each node, find the score and the share whose split is worth most.

    `node` is the node of each row; `shares` are those of each group that may go to the left;
    `worth` is the worth of a unit of the targets' explained variance. Return the score, the place
    of the share and the worth of each node, and the side of it that each row is on.
    """
    (n_nodes, n_shares), K, n = worth.shape, rows.n_groups, len(node)
    segment = (node * K + rows.group).astype(np.uint16 if n_nodes * K <= 2**16 else np.int64)  # of one group in a node
    size = np.bincount(segment, minlength=n_nodes * K)
    start = np.cumsum(size) - size
    # Rows on the left of each share, by segment.
    n_left = np.ceil(size[:, None] * shares.T[np.arange(n_nodes * K) % K] - 0.5).astype(np.int64)
    terms = np.column_stack([rows.targets, np.ones(n)])
    whole = np.stack([np.bincount(node, column, n_nodes) for column in terms.T], axis=1).astype(np.float64)
    edges = np.concatenate([start[:, None], start[:, None] + n_left], axis=1).ravel()  # where the next share begins
    is_empty = np.diff(edges, append=n) == 0

    def tried(by_score: Int[IntArray, " n"]) -> tuple[Int[IntArray, " n"], Float[FloatArray, "n_nodes n_shares"]]:
        """Return the rows of each segment in the order of a score, and what its splits explain."""
        ordered = by_score.take(np.argsort(segment.take(by_score), kind="stable"))
        between = np.add.reduceat(terms.take(ordered, axis=0), np.minimum(edges, n - 1), axis=0)
        between[is_empty] = 0
        left = between.reshape(n_nodes, K, n_shares + 1, -1)[:, :, :-1].sum(axis=1).cumsum(axis=1)
        return ordered, _explained(left, whole[:, None])

    with ThreadPoolExecutor(cpu_count()) as pool:  # joblib's looks once in 10 ms whether a task is done
        in_order, explained = zip(*pool.map(tried, rows.by_score), strict=True)
    found = np.stack(explained, axis=1) * worth[:, None]
    best = found.reshape(n_nodes, -1).argmax(axis=1)
    score, share = np.divmod(best, n_shares)
    first_on_the_right = start + n_left[np.arange(n_nodes * K), np.repeat(share, K)]
    goes_right = np.empty(n, dtype=bool)
    for j, ordered in enumerate(in_order):
        mine = np.flatnonzero(score[node[ordered]] == j)
        goes_right[ordered[mine]] = mine >= first_on_the_right[segment[ordered[mine]]]
    return score, share, found.reshape(n_nodes, -1)[np.arange(n_nodes), best], goes_right


def _explained(
    left: Float[FloatArray, "n_nodes n_shares n_terms"], whole: Float[FloatArray, "n_nodes 1 n_terms"]
) -> Float[FloatArray, "n_nodes n_shares"]:
    """Return the variance of all targets that a split explains, from sums of targets and of rows."""
    on_left, on_right, together = (
        (sums[..., :-1] ** 2).sum(axis=-1) / np.maximum(sums[..., -1], 1e-300) for sums in (left, whole - left, whole)
    )
    return np.maximum(on_left + on_right - together, 0.0)

"""A tree whose leaves are cut further, by scores of columns that came later.

The first nodes keep their scores and thresholds, so that the new cells refine the old ones. The leaves are cut at order
statistics of persons who are strictly inside of them: given its leaf, a new cell's probability then follows the law of
blocks once more.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int

from fairflows.bounds.blocks import Leaves
from fairflows.encoder.base import Cells, IntArray
from fairflows.encoder.fair_tree import FairTree, structure_rows
from fairflows.encoder.matched_tree import cut
from fairflows.encoder.rows import TrainingRows
from fairflows.encoder.tree_growth import grow_below
from fairflows.encoder.tree_scores import MoreScores, TreeScores
from fairflows.table.columns import Schema
from fairflows.table.domain import Domain, take
from fairflows.table.persons import Places

Grown = Callable[[int], tuple[IntArray, IntArray, IntArray]]
"""Given a number of cells: the leaf of each cell, the blocks of the table's cells, those of the population cut."""


@dataclass(frozen=True)
class Extended:
    """A tree whose leaves were cut further, and the cells of the rows that were there."""

    tree: FairTree
    cells: Cells  # of the rows, by thresholds at all of them
    leaf_of_cell: IntArray
    blocks: Int[IntArray, "K n_cells"]  # of the population cut, in each leaf those of the persons who were inside
    inside: Cells  # the cell of the population cut that each of these persons is strictly inside of; −1 for others

    def leaves(self, blocks: Int[IntArray, "K k"]) -> Leaves:
        """Return the leaves that were cut further, which had these blocks."""
        return Leaves(self.leaf_of_cell, blocks)


def extend_tree(
    tree: FairTree,
    rows: TrainingRows,
    leaf: Int[Cells, " n"],
    inside: Int[Cells, " n"],
    chooses: Bool[np.ndarray, " n"],
    most_cells: Callable[[Grown, int], int],
) -> Extended:
    """Cut the leaves of a tree further.

    Parameters
    ----------
    tree : FairTree
        The fitted tree.
    rows : TrainingRows
        One row of each person, of the new columns alone.
    leaf : ndarray of shape (n,)
        The leaf that each person keeps.
    inside : ndarray of shape (n,)
        The leaf of the population cut that a person at whom the tree was cut is strictly inside of; −1 for others.
    chooses : ndarray of shape (n,)
        Who chooses scores and nodes: persons at whom the tree was not cut.
    most_cells : callable
        Returns the number of cells, given their blocks for each number of cells, and the largest number.
    """
    K, k = len(rows.groups), tree.n_cells_ or 1
    structure = np.flatnonzero(chooses)
    more, of_structure = TreeScores.fit(rows, structure, tree.random_state)
    more.seen.check_texts(rows.domain, rows.kinds)
    scores = np.empty((len(rows.group), of_structure.shape[1]))
    scores[structure] = of_structure
    scores[~chooses] = more.values(take(rows.codes, ~chooses))

    of_table, of_cut = (_inside(rows.group, part, K, k) for part in (leaf, inside))
    first_score = tree.split_scores_.n
    grown = grow_below(
        tree.structure_,
        structure_rows(rows, structure, more, of_structure, tree.random_state),
        leaf[structure],
        np.minimum(of_table, of_cut).T,
        first_score,
    )
    of_table, of_cut = (grown.side_blocks_below(k, part) for part in (of_table, of_cut))

    def blocks_of(n_cells: int) -> tuple[IntArray, IntArray, IntArray]:
        n = n_cells - 1
        is_leaf = (grown.children[:n] < 0) | (grown.children[:n] >= n)
        return grown.first(n_cells).leaves_of_first(k), of_table[:n][is_leaf].T, of_cut[:n][is_leaf].T

    n_cells = most_cells(blocks_of, grown.n_cells)
    structure_now = grown.first(n_cells)
    leaf_of_cell, _, blocks = blocks_of(n_cells)

    found = copy.copy(tree)
    found.structure_, found.n_cells_, found.blocks_ = structure_now, n_cells, blocks
    found.split_scores_ = MoreScores(tree.split_scores_, more)
    found.schema_ = Schema(tree.schema_.kinds | rows.schema.kinds)
    found.domain_ = Domain({**tree.domain_.columns, **rows.domain.columns})
    found.feature_names_in_ = np.array(list(found.schema_.kinds), dtype=object)
    found.n_features_in_ = len(found.feature_names_in_)
    # Cut by the new scores alone, which are numbered from 0 on here.
    alone = replace(structure_now, score=structure_now.score - first_score)
    starts = structure_now.starts_below(k)
    above = tree.tree_
    assert above is not None

    others = np.flatnonzero(inside >= 0)
    group, coin_of_others = rows.group[others], tree.coin(rows.persons.take(others), 0)
    at_others = cut(alone, scores[others], group, coin_of_others, above, starts[inside[others]])
    found.tree_ = replace(at_others, structure=structure_now)
    inside = inside.copy()
    inside[others] = at_others.cells(scores[others], group, coin_of_others, starts[inside[others]], strictly=True)
    coin = tree.coin(rows.persons, 0)
    at_table = cut(alone, scores, rows.group, coin, above, starts[leaf])
    cells = at_table.cells(scores, rows.group, coin, starts[leaf])
    return Extended(found, cells, leaf_of_cell, blocks, inside)


def _inside(group: Int[Places, " n"], leaf: Int[Cells, " n"], K: int, k: int) -> Int[IntArray, "K k"]:
    """Return the blocks of leaves with these persons strictly inside; a negative leaf is none."""
    known = leaf >= 0
    return np.bincount(group[known] * k + leaf[known], minlength=K * k).reshape(K, k) + 1

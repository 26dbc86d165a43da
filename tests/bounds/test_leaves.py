"""Leaves that were cut further at the persons who were still there: the law of the cells, with known true masses."""

import numpy as np
import pytest
from scipy.stats import beta

from fairflows import DataError
from fairflows.bounds.blocks import Leaves, blocks_p_value, blocks_upper_bound
from fairflows.encoder.matched_tree import TreeStructure, cut

SIZES = (240, 120)
TREE = TreeStructure(np.zeros(3, dtype=int), np.full((3, 2), 0.5), np.array([[1, 2], [-1, -2], [-3, -4]]))
LATER = TreeStructure(
    np.array([0, 0, 0, 1, 1, 1, 1]),
    np.full((7, 2), 0.5),
    np.array([[1, 2], [3, 4], [5, 6], [-1, -2], [-3, -4], [-5, -6], [-7, -8]]),
)
LEVELS = 4  # of the later score, which has heavy ties


def cut_twice(rng, *, leaves_by_value: bool = False):
    """Cut a tree by a first score, let some persons leave, and cut its leaves by a later one.

    Return the blocks of the cells, the leaves, and the true masses of the cells in both groups.
    """
    group = np.repeat([0, 1], SIZES)
    scores = np.column_stack([rng.random(len(group)), rng.integers(0, LEVELS, len(group))])
    coins = rng.random((3, len(group)))
    first = cut(TREE, scores, group, lambda depth, rows: coins[depth, rows])
    leaf = first.cells(scores, group, lambda depth, rows: coins[depth, rows], strictly=True)
    stays = rng.random(len(group)) < 0.7
    if leaves_by_value:
        stays = (group == 0) | (scores[:, 1] >= 2)
    inside = np.flatnonzero((leaf >= 0) & stays)
    starts = LATER.starts_below(4)
    later = cut(
        LATER,
        scores[inside],
        group[inside],
        lambda depth, rows: coins[depth, inside[rows]],
        first,
        starts[leaf[inside]],
    )
    n = np.bincount(group[inside] * 4 + leaf[inside], minlength=8).reshape(2, 4)
    sides = LATER.side_blocks_below(4, n + 1)
    blocks = sides[LATER.children < 0].T
    leaves = Leaves(LATER.leaves_of_first(4), TREE.blocks(np.array(SIZES)))
    masses = []
    for a in (0, 1):
        at = np.concatenate([[0], np.sort(first.threshold[:3, a]), [1]])
        below = (later.threshold[3:, a] + later.coin[3:, a]) / LEVELS
        masses.append((np.diff(at)[:, None] * np.stack([below, 1 - below], axis=1)).ravel())
    return blocks, leaves, np.array(masses)


def distance(masses) -> float:
    return float(np.abs(masses[0] - masses[1]).sum() / 2)


def share_missed(n_runs: int, *, of_leaves: bool = True, **settings) -> tuple[int, int]:
    rng, missed = np.random.default_rng(1), 0
    for _ in range(n_runs):
        blocks, leaves, masses = cut_twice(rng, **settings)
        bound = blocks_upper_bound(blocks, 0.2, [leaves]) if of_leaves else blocks_upper_bound(leaves.blocks, 0.2)
        missed += distance(masses) > bound
    return missed, n_runs


def test_the_bound_covers_and_is_not_loose():
    missed, n = share_missed(150)
    assert beta.ppf(0.01, missed, n - missed + 1) <= 0.2
    assert beta.ppf(0.99, missed + 1, n - missed) >= 0.1


@pytest.mark.slow
def test_the_bound_covers_often():
    missed, n = share_missed(2000)
    assert beta.ppf(0.01, missed, n - missed + 1) <= 0.2 <= beta.ppf(0.99, missed + 1, n - missed) + 0.01


@pytest.mark.parametrize("broken", [{"leaves_by_value": True}, {"of_leaves": False}], ids=["who left", "forgotten"])
def test_a_condition_that_is_broken_is_noticed(broken):
    """Persons of one group left because of the later score; or the second cut is not counted."""
    missed, n = share_missed(60, **broken)
    assert beta.ppf(0.01, missed, n - missed + 1) > 0.4


def test_cells_lie_in_the_leaves_that_they_were_cut_from():
    assert LATER.leaves_of_first(4).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    part = LATER.first(6)
    assert part.leaves_of_first(4).tolist() == [2, 3, 0, 0, 1, 1]
    assert part.starts_below(4).tolist() == [3, 4, -1, -2]
    assert part.depth.tolist() == [0, 1, 1, 2, 2]


def test_without_leavers_the_law_is_that_of_one_tree():
    whole = LATER.blocks(np.array(SIZES))
    leaves = Leaves(LATER.leaves_of_first(4), TREE.blocks(np.array(SIZES)))
    assert blocks_upper_bound(whole, 0.1, [leaves]) == pytest.approx(blocks_upper_bound(whole, 0.1), rel=0.03)
    twice = Leaves(np.array([0, 0, 1, 1]), leaves.blocks.reshape(2, 2, 2).sum(axis=2))
    assert blocks_upper_bound(whole, 0.1, [leaves, twice]) == pytest.approx(blocks_upper_bound(whole, 0.1), rel=0.03)
    counts = np.full((2, 8), 20)
    assert blocks_p_value(whole, counts, [leaves]) == 1.0
    assert blocks_p_value(whole, counts * [[1] * 8, [2, 0] * 4], [leaves]) < 0.001


@pytest.mark.parametrize(
    ("of_cell", "blocks", "message"),
    [
        ([0, 0, 1], [[9, 9], [9, 9]], "a leaf for each of 4 cells"),
        ([0, 0, 2, 2], [[9, 9, 9], [9, 9, 9]], "a cell in each leaf"),
        ([0, 0, 1, 1], [[9, 7], [9, 9]], "no fewer blocks than the cells"),
    ],
)
def test_leaves_are_those_of_the_cells(of_cell, blocks, message):
    with pytest.raises(DataError, match=message):
        blocks_upper_bound(np.full((2, 4), 4), 0.1, [Leaves(np.array(of_cell), np.array(blocks))])

"""The structure of a matched tree: grown best first, and cut at order statistics."""

from collections.abc import Iterator

import numpy as np
import pytest

from fairflows.encoder.matched_tree import Coin, MatchedTree, TreeStructure, cut
from fairflows.encoder.tree_growth import StructureRows, grow

SHARES = np.arange(1, 10) / 10


def drawn(n: int, n_groups: int = 2, seed: int = 0, ties: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, groups of unequal size, and targets that two of three scores tell."""
    rng = np.random.default_rng(seed)
    group = rng.choice(n_groups, n, p=np.arange(1, n_groups + 1) / np.arange(1, n_groups + 1).sum())
    scores = rng.normal(size=(n, 3)) + group[:, None]
    if ties:
        scores = np.round(scores)
    return scores, group, scores[:, 1:] - group[:, None] + 0.1 * rng.normal(size=(n, 2))


def grown(n: int = 4000, n_groups: int = 2, n_persons: np.ndarray | None = None, **settings) -> TreeStructure:
    scores, group, targets = drawn(n, n_groups, **settings)
    rows = StructureRows.of(scores, group, targets, n_groups, 0)
    return grow(rows, np.bincount(group, minlength=n_groups) if n_persons is None else n_persons)


def coins(seed: int, n: int) -> Coin:
    u = np.random.default_rng([seed, 1]).random((n, 32))
    return lambda depth, places: u[places, depth]


def counts_of(found: MatchedTree, scores: np.ndarray, group: np.ndarray, coin: Coin) -> np.ndarray:
    counts = np.zeros((group.max() + 1, found.structure.n_cells), dtype=int)
    np.add.at(counts, (group, found.cells(scores, group, coin)), 1)
    return counts


def blocks_by_hand(structure: TreeStructure, n: int, group: int) -> dict[int, int]:
    """The blocks of each leaf, node by node."""
    found = {}

    def go(place: int, blocks: int) -> None:
        if place < 0:
            found[-1 - place] = blocks
            return
        left = int(np.floor(blocks * structure.share[place, group] + 0.5))
        go(structure.children[place, 0], left)
        go(structure.children[place, 1], blocks - left)

    go(0 if len(structure.score) else -1, n + 1)
    return found


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("n_cells", "n_groups"), [(1, 2), (2, 2), (8, 2), (5, 2), (7, 5), (16, 5), (40, 3)])
def test_blocks_are_those_of_the_persons_inside(n_cells, n_groups, ties):
    """The persons of a leaf are those strictly inside, one fewer than its blocks, and those at a cut who end there."""
    structure = grown(n_groups=n_groups, ties=ties).first(n_cells)
    scores, group, _ = drawn(3000, n_groups, seed=1, ties=ties)
    sizes = np.bincount(group, minlength=n_groups)
    found, blocks = cut(structure, scores, group, coins(0, 3000)), structure.blocks(sizes)
    assert structure.n_cells == n_cells
    np.testing.assert_array_equal(blocks.sum(axis=1), sizes + 1)
    for a, size in enumerate(sizes):
        by_hand = blocks_by_hand(structure, int(size), a)
        assert blocks[a].tolist() == [by_hand[cell] for cell in range(n_cells)]
    counts = counts_of(found, scores, group, coins(0, 3000))
    assert (counts >= blocks - 1).all()
    np.testing.assert_array_equal(counts.sum(axis=1), sizes)
    np.testing.assert_array_equal((counts - (blocks - 1)).sum(axis=1), n_cells - 1)


def test_boundary_persons_are_used_up_one_by_one():
    """A cut by hand: nine persons, three cells at .3 and .5 of the rest."""
    structure = TreeStructure(np.array([0, 0]), np.array([[0.3], [0.5]]), np.array([[-1, 1], [-2, -3]]))
    scores = np.array([[5.0], [1], [2], [9], [3], [8], [4], [7], [6]])
    found = cut(structure, scores, np.zeros(9, dtype=int), coins(0, 9))
    # Ten blocks: three on the left, up to the third person; of the other six persons, seven blocks, the fourth.
    assert found.threshold[:, 0].tolist() == [3, 7]
    np.testing.assert_array_equal(structure.blocks(np.array([9])), [[3, 4, 3]])
    assert found.cells(scores, np.zeros(9, dtype=int), coins(0, 9)).tolist() == [1, 0, 0, 2, 0, 2, 1, 1, 1]


def best_first_by_hand(
    scores: np.ndarray, group: np.ndarray, targets: np.ndarray, n_persons: np.ndarray
) -> Iterator[tuple[int, float, float]]:
    """Score, share and worth of one node after the other, by trying everything at every leaf."""
    K = len(n_persons)

    def h(p: float) -> float:
        return np.sqrt(max(p * (1 - p), 0))

    def explained(parts: list[np.ndarray]) -> float:
        whole = np.concatenate(parts)
        centre = targets[whole].mean(axis=0)
        return sum(len(p) * ((targets[p].mean(axis=0) - centre) ** 2).sum() for p in parts if len(p))

    def best(leaf: tuple[np.ndarray, float, np.ndarray]) -> tuple:
        rows, mass, blocks = leaf
        found = []
        for score in range(scores.shape[1]):
            for share in SHARES:
                left = np.floor(blocks * share + 0.5).astype(int)
                if min(left.min(), (blocks - left).min()) <= 10:
                    continue
                sides = [[], []]
                for a in range(K):
                    mine = rows[group[rows] == a]
                    mine = mine[np.argsort(scores[mine, score], kind="stable")]
                    at = int(np.ceil(len(mine) * share - 0.5))
                    sides[0].append(mine[:at])
                    sides[1].append(mine[at:])
                parts = [np.concatenate(side) for side in sides]
                cost = h(mass * share) + h(mass * (1 - share)) - h(mass)
                below = [(parts[0], mass * share, left), (parts[1], mass * (1 - share), blocks - left)]
                found.append((explained(parts) / cost, score, share, below))
        return max(found, key=lambda one: one[0], default=(0, 0, 0, []))

    waiting = [best((np.arange(len(group)), 1.0, n_persons + 1))]
    while waiting:
        waiting.sort(key=lambda one: one[0])
        worth, score, share, below = waiting.pop()
        if worth > 0:
            yield score, share, worth
            waiting += [best(leaf) for leaf in below]


def test_nodes_are_the_best_at_each_step():
    """Against a search that tries every score and share at every leaf, and splits the leaf that is worth most."""
    scores, group, targets = drawn(800, seed=3)
    structure = grown(800, seed=3)
    by_hand = list(best_first_by_hand(scores, group, targets - targets.mean(axis=0), np.bincount(group)))
    assert len(by_hand) == len(structure.score) > 8
    assert structure.score.tolist() == [score for score, _, _ in by_hand]
    np.testing.assert_allclose(structure.share[:, 0], [share for _, share, _ in by_hand])


def test_the_tree_of_fewer_cells_is_the_first_part_of_the_larger():
    whole = grown()
    scores, group, _ = drawn(3000, seed=1)
    thresholds = cut(whole, scores, group, coins(0, 3000)).threshold
    above = np.full(len(whole.score), -1)
    for node, children in enumerate(whole.children):
        above[children[children >= 0]] = node
    assert (above < np.arange(len(above))).all(), "each node after the one above it"
    fine, finest = None, cut(whole, scores, group, coins(0, 3000)).cells(scores, group, coins(0, 3000))
    for k in (whole.n_cells, 40, 17, 5, 2, 1):
        part = whole.first(k)
        assert part.n_cells == k
        np.testing.assert_array_equal(part.score, whole.score[: k - 1])
        np.testing.assert_array_equal(part.share, whole.share[: k - 1])
        found = cut(part, scores, group, coins(0, 3000))
        np.testing.assert_array_equal(found.threshold, thresholds[: k - 1])
        coarse = found.cells(scores, group, coins(0, 3000))
        assert sorted(np.unique(coarse)) == list(range(k))
        np.testing.assert_array_equal(whole.leaves_of_first(k)[finest], coarse)
        if fine is not None:
            assert len(np.unique(np.column_stack([fine, coarse]), axis=0)) == len(np.unique(fine)), "cells are joined"
        fine = coarse
    assert whole.first(10**6).n_cells == whole.n_cells


def test_all_cells_lie_in_the_only_leaf_whatever_the_memory_held(monkeypatch):
    structure, full = grown().first(9), np.full
    monkeypatch.setattr(np, "empty", lambda shape, dtype: full(shape, -99, dtype))
    assert structure.leaves_of_first(1).tolist() == [0] * 9


def test_levels_join_the_cells_below_one_node():
    structure, paths = grown().first(9), {}

    def go(place: int, path: str) -> None:
        if place < 0:
            paths[-1 - place] = path
        else:
            go(structure.children[place, 0], f"{path}l")
            go(structure.children[place, 1], f"{path}r")

    go(0, "")
    levels = structure.levels()
    assert len(levels) == max(map(len, paths.values()))
    for depth, level in enumerate(levels, start=1):
        above = [paths[cell][:depth] for cell in range(9)]
        assert len(set(zip(above, level, strict=True))) == len(set(above)) == len(set(level))


@pytest.mark.parametrize("n_persons", [[400, 900], [3000, 3000], [2000, 60]])
def test_it_grows_as_far_as_ten_persons_of_every_group_allow(n_persons):
    structure = grown(n_persons=np.array(n_persons))
    blocks = structure.blocks(np.array(n_persons))
    assert blocks.min() >= 11, "ten persons strictly inside"
    assert blocks.min(axis=0).max() < 22, "no leaf could be halved"


def test_with_too_few_persons_there_is_one_cell():
    structure = grown(n_persons=np.array([20, 500]))
    assert (structure.n_cells, len(structure.score)) == (1, 0)
    scores, group, _ = drawn(50)
    assert not cut(structure, scores, group, coins(0, 50)).cells(scores, group, coins(0, 50)).any()
    assert grown(n_persons=np.array([21, 500])).n_cells == 2


def test_shares_are_the_same_for_every_group_and_decide_on_its_masses():
    structure = grown(n_groups=3)
    assert (structure.share == structure.share[:, :1]).all()
    assert set(structure.share[:, 0].round(9)) <= set(SHARES.round(9))
    assert len(set(structure.share[:, 0].round(9))) > 2
    blocks = structure.blocks(np.array([900_000, 600_000, 300_000]))
    p = blocks / blocks.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(p, np.repeat(p[:1], 3, axis=0), rtol=0, atol=2e-5)


def test_the_share_is_where_the_target_changes():
    """A target that the top tenth has alone is told by a cut at .9, though groups differ in the score."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 4000)
    rank = rng.random(4000)
    scores = np.column_stack([rng.normal(size=4000), rank + 3 * group])
    for top in (0.1, 0.3):
        rows = StructureRows.of(scores, group, (rank > 1 - top)[:, None].astype(float), 2, 0)
        structure = grow(rows, np.bincount(group)).first(2)
        assert (structure.score.tolist(), structure.share[0].tolist()) == ([1], [1 - top, 1 - top])


def test_the_root_may_part_the_groups_at_rates_of_their_own():
    scores, group, targets = drawn(3000)
    rows = StructureRows.of(scores, group, targets, 2, 0)
    structure = grow(rows, np.bincount(group), np.array([0.2, 0.3]))
    assert structure.score[0] == 0, "the score that the rates are of"
    np.testing.assert_allclose(structure.share[0], [0.8, 0.7])
    assert (structure.share[1:] == structure.share[1:, :1]).all()
    sizes = np.bincount(group)
    counts = counts_of(cut(structure, scores, group, coins(0, 3000)), scores, group, coins(0, 3000))
    p = counts / sizes[:, None]
    assert np.abs(p[0] - p[1]).sum() / 2 == pytest.approx(0.1, abs=0.02)


def test_the_structure_does_not_depend_on_the_order_of_the_rows():
    scores, group, targets = drawn(2000)
    rows = StructureRows.of(scores, group, targets, 2, 0)
    order = np.random.default_rng(3).permutation(2000)
    one, other = (grow(each, np.bincount(group)) for each in (rows, rows.take(order)))
    for part in ("score", "share", "children"):
        np.testing.assert_array_equal(getattr(one, part), getattr(other, part))

"""Blocks: the law of leaves that were cut at order statistics, by an independent recursion with known true masses."""

import numpy as np
import pytest
from scipy.stats import beta, kstest

from fairflows import DataError
from fairflows.bounds.blocks import blocks_p_value, blocks_upper_bound, drawn_masses, even_blocks, pair_spread

LEVELS = np.array([[0.55, 0.25, 0.15, 0.05], [0.2, 0.2, 0.3, 0.3]])  # of one score with heavy ties, in each group


def masses(group, n, k, rng, *, coins=True):
    """Cut n persons of a group by halves at their pairs (level, coin); return blocks and true masses of the leaves.

    With `coins=False` the boundary person's coin is replaced by the share of the tied level on the left: the mistake
    that makes the bound false.
    """
    below = np.concatenate([[0], np.cumsum(LEVELS[group])])
    person = np.sort(rng.random(n))  # position in the law of pairs: the level's mass below it, and the coin within
    if not coins:
        level = np.searchsorted(below, person, side="right") - 1
        person = below[level] + (below[level + 1] - below[level]) * 0.5
    blocks, found = [], []

    def cut(inside, b, low, high, leaves):
        if leaves == 1:
            blocks.append(b)
            found.append(high - low)
            return
        i = int(np.floor(b * (leaves // 2) / leaves + 0.5))
        at = inside[i - 1]
        cut(inside[: i - 1], i, low, at, leaves // 2)
        cut(inside[i:], b - i, at, high, leaves - leaves // 2)

    cut(person, n + 1, 0.0, 1.0, k)
    return np.array(blocks), np.array(found)


def misses(delta, k, sizes, n_runs, seed, **settings):
    rng = np.random.default_rng(seed)
    n_missed = 0
    bound = blocks_upper_bound([even_blocks(n, k) for n in sizes], delta)
    for _ in range(n_runs):
        (b0, p0), (b1, p1) = (masses(a, n, k, rng, **settings) for a, n in enumerate(sizes))
        np.testing.assert_array_equal(b0, even_blocks(sizes[0], k))
        np.testing.assert_array_equal(b1, even_blocks(sizes[1], k))
        n_missed += np.abs(p0 - p1).sum() / 2 > bound
    return n_missed


@pytest.mark.parametrize(("k", "sizes"), [(2, (60, 40)), (8, (300, 100)), (13, (400, 400)), (32, (900, 60))])
@pytest.mark.parametrize("delta", [0.2, 0.05])
def test_the_bound_covers(delta, k, sizes):
    n_missed = misses(delta, k, sizes, 400, seed=k)
    assert beta.ppf(0.01, n_missed, 401 - n_missed) <= delta if n_missed else True


def test_the_bound_is_not_loose():
    n_missed = misses(0.2, 8, (300, 100), 400, seed=1)
    assert beta.ppf(0.99, n_missed + 1, 400 - n_missed) > 0.15


def test_shares_of_ties_instead_of_coins_break_it():
    """The simulation can fail: cutting within a level at a fixed share forgets where the persons lie."""
    n_missed = misses(0.05, 8, (300, 100), 400, seed=1, coins=False)
    assert beta.ppf(0.01, n_missed, 401 - n_missed) > 0.05


def test_each_leaf_has_a_beta_law():
    rng = np.random.default_rng(3)
    drawn = np.array([masses(0, 99, 4, rng)[1] for _ in range(400)])
    for j in range(4):
        assert kstest(drawn[:, j], beta(25, 75).cdf).pvalue > 1e-3


def test_three_groups_are_bounded_at_once():
    even = [even_blocks(n, 8) for n in (500, 300, 200)]
    assert blocks_upper_bound(even, 0.05) > blocks_upper_bound(even[1:], 0.05) > blocks_upper_bound(even[:2], 0.05)


def test_even_blocks_sum_to_persons_plus_one():
    for n, k in [(1, 2), (7, 8), (100, 7), (1000, 33)]:
        blocks = even_blocks(n, k)
        assert (blocks.sum(), len(blocks)) == (n + 1, k)
        assert blocks.min() >= 1
        assert blocks.max() - blocks.min() <= 0.05 * n + 2
    with pytest.raises(DataError, match="n_cells must be between 1 and n_persons"):
        even_blocks(3, 5)


def test_the_spread_is_that_of_the_two_smallest_groups():
    assert pair_spread([300, 100, 200]) == pytest.approx(np.sqrt(1 / 100 + 1 / 200))
    assert pair_spread([100, 0]) == np.inf


def test_draws_are_made_a_few_at_a_time(monkeypatch):
    """All at once would need gigabytes for some thousand cells."""
    monkeypatch.setattr("fairflows.bounds.blocks._NUMBERS_AT_ONCE", 100)
    parts = list(drawn_masses(np.full((2, 4), 9), 50))
    assert [len(part) for part in parts] == [12, 12, 12, 12, 2]


def test_fresh_persons_agree_with_the_law_and_others_do_not():
    rng = np.random.default_rng(5)
    even = np.array([even_blocks(400, 8), even_blocks(200, 8)])
    small = 0
    for _ in range(40):
        p = [rng.dirichlet(b) for b in even]
        small += blocks_p_value(even, [rng.multinomial(n, law) for n, law in zip((300, 300), p, strict=True)]) < 0.05
    assert small <= 5  # 40 · .025 on average; six or more have a probability below .001
    assert blocks_p_value(even, [[90, 10] * 4, [10, 90] * 4]) < 1e-3
    assert blocks_p_value(even, np.zeros((2, 8), dtype=int)) == 1


@pytest.mark.parametrize("wrong", [[[3, 4]], [[1.5, 2], [1, 2]], [[0, 5], [2, 3]], [3, 4]])
def test_wrong_blocks_are_refused(wrong):
    with pytest.raises(DataError, match="blocks must"):
        blocks_upper_bound(wrong, 0.05)


def test_one_leaf_tells_nothing():
    assert blocks_upper_bound([[11], [21]], 0.01) == 0

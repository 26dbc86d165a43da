"""Planned cells: as many as both statements allow, by numbers of persons alone."""

import numpy as np
import pytest

from fairflows import DataError
from fairflows.bounds.blocks import blocks_upper_bound, even_blocks, foreseen_blocks_bound
from fairflows.bounds.planning import (
    ENOUGH_CELLS,
    TARGETS,
    _expected_blocks,
    check_reachable,
    expected_cell_distance,
    known_half,
    lowest_target,
    most_cells,
    plan_cells,
)

SIZES = [(6667, 3333), (1333, 667), (1000, 900, 800)]


def even(sizes, k):
    return np.stack([even_blocks(n, k) for n in sizes])


def half(sizes):
    return [n // 2 for n in sizes]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("target", [0.1, 0.15])
def test_both_statements_are_within_the_target_and_a_few_more_cells_would_break_one(sizes, target):
    plan = plan_cells(sizes, target, 0.01)
    assert plan.population <= target
    assert plan.population == pytest.approx(blocks_upper_bound(even(half(sizes), plan.n_cells), 0.01), rel=0.03)
    assert plan.known_half == known_half(even(sizes, plan.n_cells)) <= target
    more = max(plan.n_cells + 2, round(plan.n_cells * 1.04))
    broken = blocks_upper_bound(even(half(sizes), more), 0.01), known_half(even(sizes, more))
    assert max(broken) > target / 1.015, "Δ(½) has some room"


@pytest.mark.parametrize(
    ("sizes", "target", "n_cells"), [((300, 300), 0.2, 6), ((420, 260), 0.15, 2), ((800, 500), 0.2, 20)]
)
def test_few_cells_are_those_of_a_search_through_all(sizes, target, n_cells):
    within = [
        k
        for k in range(2, 24)
        if foreseen_blocks_bound(even(half(sizes), k), 0.01) <= target and 1.015 * known_half(even(sizes, k)) <= target
    ]
    assert plan_cells(sizes, target, 0.01).n_cells == max(within) == n_cells


def test_with_too_few_persons_for_persons_to_come_the_table_alone_counts():
    plan = plan_cells([500, 200], 0.1, 0.01)
    assert plan.population is None
    assert plan.n_cells >= 2
    assert plan_cells([500, 200], 0.3, 0.01).population <= 0.3
    assert plan_cells([12, 12], 0.3, 0.01) is None


def test_the_calibrating_share_decides_on_the_bound_on_persons_to_come():
    few, many = (plan_cells([6667, 3333], 0.1, 0.01, calibration=share) for share in (0.3, 0.7))
    assert few.n_cells < plan_cells([6667, 3333], 0.1, 0.01).n_cells < many.n_cells


def test_the_first_target_that_allows_enough_cells_is_taken():
    for sizes in [(200, 100), (700, 350), (2000, 1000), (20_000, 10_000)]:
        plan = plan_cells(sizes, None, 0.01)
        lower = [t for t in (0.1, 0.15, 0.2, 0.3) if t < plan.target]
        assert all((other := plan_cells(sizes, t, 0.01)) is None or other.n_cells < ENOUGH_CELLS for t in lower)
    assert plan.target == 0.1
    assert plan_cells([1440, 1440], None, 0.01).n_cells == 8, "just enough at .1; .15 would allow 27"


def test_ten_persons_of_the_smallest_group_are_in_every_cell():
    for target in (0.3, 1.0):
        plan = plan_cells([50_000, 400], target, 0.01)
        assert even(half([50_000, 400]), plan.n_cells).min() > 10


def test_persons_at_whom_no_cell_is_cut_leave_fewer_cells():
    whole, some = plan_cells([4000, 4000], 0.1, 0.01), plan_cells([4000, 4000], 0.1, 0.01, n_matched=[1500, 1500])
    assert some.n_cells < whole.n_cells


def test_trees_whose_cells_differ_in_size_may_have_more_cells():
    """One large leaf and many small ones: Σ √(p(1 − p)) is smaller than with as many equal leaves."""

    def skewed(k):
        small = np.full(k - 1, 12)
        return np.stack([np.append(small, 4001 - small.sum()) for _ in range(2)])

    of_equal = lambda k: even([4000, 4000], k)  # noqa: E731
    equal, unequal = (most_cells(of, of, 80, 0.08, 0.01) for of in (of_equal, skewed))
    assert blocks_upper_bound(skewed(unequal), 0.01) <= 0.08
    assert unequal > equal


def test_the_lowest_target_is_the_first_that_can_be_planned():
    for sizes in [(1000, 100), (300, 280), (60, 50)]:
        lowest = lowest_target(sizes)
        assert plan_cells(sizes, lowest, 0.01) is not None
        assert plan_cells(sizes, round(lowest - 0.01, 2), 0.01) is None
    assert lowest_target([1000, 20]) is None


def test_wrong_deltas_are_refused():
    with pytest.raises(DataError, match="delta"):
        plan_cells([100, 100], 0.1, 1.5)


@pytest.mark.parametrize("k", [2, 3, 7])
@pytest.mark.parametrize("spend", [0, 0.05, 0.5, 0.95])
def test_blocks_that_are_expected_are_those_of_all_persons_and_none_is_empty(k, spend):
    n = np.array([100, 41])
    blocks = _expected_blocks(n, k, spend)
    assert blocks.shape == (2, k)
    assert (blocks >= 1).all()
    np.testing.assert_array_equal(blocks.sum(axis=1), n + 1)


def test_many_persons_have_the_first_target():
    assert plan_cells([20_000, 20_000], None, 0.01).target == TARGETS[0] == 0.1


def test_of_a_group_without_persons_as_many_are_needed_as_of_the_other():
    with pytest.raises(DataError, match="are 300 of 'f', 0 of 'm', .* need ([0-9,]+) of 'f', \\1 of 'm'"):
        check_reachable({"f": 300, "m": 0}, 0.01, target=0.1)


def test_one_person_of_each_group_is_enough_for_an_expected_distance():
    mean, _ = expected_cell_distance(np.full((2, 2), 0.5), [1, 1])
    assert 0 < mean[0, 1] < 1

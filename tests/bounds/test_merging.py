"""Counts that are printed: no small number in them, and bounds that hold for whoever computes them again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fairflows.bounds.cells import (
    cell_upper_bound,
    cells_to_merge,
    has_few_persons,
    merged_distance,
    merged_upper_bound,
)

tables = st.tuples(st.integers(2, 4), st.integers(1, 8)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(0, 60))
)


def printed(counts):
    """The counts of the cells that are printed, and the merged ones of each group."""
    merged = cells_to_merge(counts)
    return counts[:, ~merged], counts[:, merged].sum(axis=1)


@given(tables)
def test_no_number_that_is_printed_is_small(counts):
    kept, merged = printed(counts)
    assert not has_few_persons(kept).any()
    lacking = has_few_persons(merged)
    assert np.all(kept[lacking] == 0), "only a group that has few persons in all cells has few in the merged ones"


@given(arrays(np.int64, (2, 5), elements=st.integers(10, 60) | st.just(0)))
def test_nothing_is_merged_without_need(counts):
    assert not cells_to_merge(counts).any()


def test_the_cheapest_cells_are_merged_first():
    """What two groups have in common is lost: of 20 persons of each rather than of 300."""
    counts = np.array([[300, 4, 20, 100], [300, 0, 20, 100]])
    assert cells_to_merge(counts).tolist() == [False, True, True, False]
    assert cells_to_merge(np.stack([counts, counts[:, [2, 1, 0, 3]]])).tolist() == [False, True, False, True]


@given(tables, st.floats(0.01, 0.5))
def test_bounds_are_never_below_those_from_full_counts(counts, delta):
    kept, merged = printed(counts)
    assert merged_upper_bound(kept, merged, delta) >= cell_upper_bound(counts, delta) - 1e-12


@given(arrays(np.int64, (3, 5), elements=st.integers(10, 500)))
def test_without_small_counts_they_are_the_same(counts):
    kept, merged = printed(counts)
    assert merged_upper_bound(kept, merged, 0.05) == pytest.approx(cell_upper_bound(counts, 0.05))


def test_merged_cells_count_as_if_they_told_the_group():
    assert merged_distance([[90], [80]], [10, 20])[0, 1] == pytest.approx(0.5 * (0.1 + 0.1 + 0.2))
    assert merged_distance(np.zeros((2, 0)), [10, 20])[0, 1] == 1


@pytest.mark.parametrize("k", [4, 12, 40])
@pytest.mark.parametrize("distance", [0.0, 0.1])
def test_the_printed_bound_holds(k, distance, draw_counts, alternating_cells, covers):
    """Coverage by simulation: unequal cells of a known distance, counted 1,000 times."""
    p = alternating_cells(k, distance)
    weights = np.repeat(np.linspace(0.1, 1.9, k // 2), 2)
    p = p * weights / (p * weights).sum(axis=1, keepdims=True)
    truth = np.abs(p[0] - p[1]).sum() / 2
    bounds = [merged_upper_bound(*printed(counts), 0.1) for counts in draw_counts(p, [1500, 500], 1000)]
    assert covers(np.array(bounds) < truth, 0.1)
    assert np.mean(bounds) < 1

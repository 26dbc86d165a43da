"""The betting bound on a mean, and the bounds on the model's distance and accuracy built on it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fairflows import DataError
from fairflows.bounds import (
    betting_upper_bound,
    distance_terms,
    hoeffding_radius,
    sign_upper_bound,
    statistical_distance_upper_bound,
)
from fairflows.bounds.model import draws_needed


def literal_bound(x, delta, grid):
    """The definition, one number at a time: the smallest m of a grid at which the capital reaches 1/δ."""
    N, L = len(x), np.log(1 / delta)
    for m in grid:
        log_capital, best, total, squares = 0.0, 0.0, 0.0, 0.0
        for i, value in enumerate(x):
            s2 = (1 / 4 + squares) / (i + 1)
            log_capital += np.log1p(min(np.sqrt(2 * L / (N * s2)), 1 - 1e-6) * (m - value))
            best = max(best, log_capital)
            total += value
            squares += (value - (1 / 2 + total) / (i + 2)) ** 2
        if best >= L:
            return m
    return 1.0


@settings(max_examples=8, deadline=None)
@given(arrays(float, st.integers(1, 40), elements=st.floats(0, 1)), st.sampled_from([0.01, 0.2]))
def test_it_is_the_bound_of_the_definition(x, delta):
    grid = np.linspace(0, 1, 101)
    expected = literal_bound(x, delta, grid)
    expected = literal_bound(x, delta, np.linspace(max(expected - 0.01, 0), expected, 101))
    assert expected - 1e-4 - 1e-9 <= betting_upper_bound(x, delta) <= expected + 1e-9


def test_nan_counts_as_one_and_no_numbers_give_one():
    assert betting_upper_bound([0.2, np.nan, 0.1] * 50, 0.05) == betting_upper_bound([0.2, 1.0, 0.1] * 50, 0.05)
    assert betting_upper_bound([], 0.05) == 1.0
    assert betting_upper_bound(np.ones(1000), 0.05) == 1.0


@pytest.mark.parametrize("x", [[-0.1, 0.5], [0.5, 1.1], 0.5])
def test_numbers_outside_the_unit_interval_are_refused(x):
    with pytest.raises(DataError, match="x must"):
        betting_upper_bound(x, 0.05)


@pytest.mark.parametrize("delta", [0, 1, -0.1, np.nan])
def test_delta_is_a_probability(delta):
    with pytest.raises(ValueError, match="delta must be in"):
        betting_upper_bound([0.5], delta)


@pytest.mark.parametrize("probability", [0.005, 0.1, 0.5])
def test_coverage_for_all_or_nothing(probability, delta, rng, covers):
    """Mass that the groups do not share is told apart for certain; the rest not at all."""
    x = (rng.uniform(size=(1000, 300)) < probability).astype(float)
    assert covers(betting_upper_bound(x, delta) < probability, delta)


@pytest.mark.parametrize("distance", [0.01, 0.1, 0.6])
def test_coverage_for_shifted_gaussians(distance, delta, rng, gaussians, covers):
    x = distance_terms(gaussians.at_distance(distance).table(800 * 300, rng)).reshape(800, 300)
    assert covers(betting_upper_bound(x, delta) < distance, delta)


@pytest.mark.parametrize(("distance", "width"), [(0.01, np.log(1 / 0.05) / 10_000), (0.1, 0.0011)])
def test_width_for_rows_with_a_draw_from_each_group(distance, width, rng, gaussians):
    """Stakes below one give a width of at least log(1/δ)/N: the floor where the variance is next to none."""
    x = distance_terms(gaussians.at_distance(distance).table(15 * 10_000, rng)).reshape(15, 10_000)
    assert betting_upper_bound(x, 0.05).mean() - distance <= 1.1 * width


def test_the_papers_bound_covers_and_is_wider(delta, rng, gaussians, covers):
    law = gaussians.at_distance(0.1)
    tables = [law.table(400, rng) for _ in range(200)]
    paper = np.array([sign_upper_bound(table, delta) for table in tables])
    ours = np.array([statistical_distance_upper_bound(table, delta) for table in tables])
    assert covers(paper < 0.1, delta)
    assert covers(ours < 0.1, delta)
    assert ours.mean() - 0.1 < (paper.mean() - 0.1) / 4
    assert abs(paper.mean() - hoeffding_radius(400, delta) - 0.1) < 0.02


def test_coverage_for_the_worst_of_three_groups(delta, rng, gaussians, covers):
    law = gaussians([0.0, 0.2, 0.5])
    bounds = [statistical_distance_upper_bound(law.table(300, rng), delta) for _ in range(200)]
    assert covers(np.array(bounds) < law.distance(), delta)


def test_group_after_group_breaks_the_bound(rng, covers):
    """Why a row holds one draw from each group: p_0 is even on [0, 1], half of p_1 is elsewhere, and Δ = ½.

    The draws of group 0 look less told apart (⅓) than those of group 1 (⅔). Averaged in rows all is well; one group
    after the other, the first is taken for the whole.
    """
    told_apart_0 = np.full((200, 1000), 1 / 3)
    told_apart_1 = np.where(rng.uniform(size=(200, 1000)) < 1 / 2, 1.0, 1 / 3)
    rows = (told_apart_0 + told_apart_1) / 2
    assert covers(betting_upper_bound(rows, 0.05) < 1 / 2, 0.05)
    assert np.mean(betting_upper_bound(np.hstack([told_apart_0, told_apart_1]), 0.05) < 1 / 2) == 1


@pytest.mark.slow
@pytest.mark.parametrize("distance", [0.001, 0.03, 0.3, 0.9])
def test_coverage_with_many_repetitions(distance, delta, rng, gaussians, covers):
    x = distance_terms(gaussians.at_distance(distance).table(10_000 * 500, rng)).reshape(10_000, 500)
    assert covers(betting_upper_bound(x, delta) < distance, delta)


@pytest.mark.slow
def test_a_million_draws_at_the_default_delta(rng, gaussians):
    table = gaussians.at_distance(0.2).table(1_000_000, rng)
    assert 0.2 < statistical_distance_upper_bound(table, 0.001) < 0.2005


@pytest.mark.parametrize("distance", [0.01, 0.2])
def test_so_many_draws_make_the_bound_as_precise_as_asked_for(distance, rng, gaussians):
    law = gaussians.at_distance(distance)
    n = draws_needed(law.table(10_000, rng), 0.01, width=0.005)
    assert n < 60_000
    above = [statistical_distance_upper_bound(law.table(n, rng), 0.01) - distance for _ in range(5)]
    assert np.mean(above) < 1.3 * 0.005
    fewer = [statistical_distance_upper_bound(law.table(n // 4, rng), 0.01) - distance for _ in range(5)]
    assert np.mean(fewer) > 0.005, "not far more draws than needed"


def test_a_number_of_draws_that_other_draws_decided_on_keeps_the_bound_valid(rng, gaussians, covers):
    delta, law = 0.2, gaussians.at_distance(0.03)
    misses = []
    for _ in range(600):
        n = min(400, draws_needed(law.table(20, rng), delta, width=0.02))
        misses.append(statistical_distance_upper_bound(law.table(n, rng), delta) < 0.03)
    assert covers(np.array(misses), delta)

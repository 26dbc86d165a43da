"""The distribution-free bounds on cells: coverage, widths, and what goes wrong without their assumptions."""

import numpy as np
import pytest
from scipy.stats import beta

from fairflows import DataError, bounds
from fairflows.bounds.cells import cells_to_merge
from fairflows.bounds.planning import expected_cell_distance

GEOMETRIC = 0.6 ** np.arange(12) / (0.6 ** np.arange(12)).sum()
SETTINGS = {
    "two cells": ([[0.65, 0.35], [0.35, 0.65]], [200, 200]),
    "alike": ([[0.5, 0.5], [0.5, 0.5]], [100, 100]),
    "9:1": ([[0.65, 0.35], [0.35, 0.65]], [900, 100]),
    "skewed cells": ([GEOMETRIC, GEOMETRIC[::-1]], [300, 300]),
    "disjoint mass": ([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]], [60, 60]),
    "three groups": ([[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]], [300, 200, 30]),
}


@pytest.fixture(params=SETTINGS.values(), ids=SETTINGS.keys())
def setting(request):
    probabilities, n = request.param
    return np.array(probabilities), n


def test_coverage(setting, delta, draw_counts, covers):
    p, n = setting
    upper = bounds.cell_upper_bound(draw_counts(p, n, 5000), delta)
    assert covers(upper < bounds.exact_statistical_distance(p), delta)


def test_without_its_radius_the_observed_distance_misses(draw_counts, covers):
    """The simulation can fail: half of the time the observed distance is below the true one."""
    p, n = SETTINGS["two cells"]
    observed = bounds.total_variation(draw_counts(p, n, 5000) / np.array(n)[:, None])[:, 0, 1]
    assert not covers(observed < bounds.exact_statistical_distance(p), 0.2)


def test_coverage_within_every_label_at_once(delta, draw_counts, covers):
    laws = {0: np.array([[0.65, 0.35], [0.35, 0.65]]), 1: np.array([[0.3, 0.7], [0.5, 0.5]])}
    counts = {y: draw_counts(p, [200, 100], 5000) for y, p in laws.items()}
    upper = {y: bounds.cell_upper_bound(c, delta / 2) for y, c in counts.items()}
    missed = np.any([upper[y] < bounds.exact_statistical_distance(p) for y, p in laws.items()], axis=0)
    assert covers(missed, delta)


def test_width_and_comparison_with_other_bounds(draw_counts, alternating_cells):
    """Ten thousand rows in all, true distance .1, fifty cells: the width of the bound, and of others on the rows."""
    p = alternating_cells(50, 0.1)
    counts = draw_counts(p, [5000, 5000], 500)
    ours = bounds.cell_upper_bound(counts, 0.05).mean()
    assert ours <= 0.130 + 0.1 * 0.030
    assert bounds.weissman_upper_bound(counts, 0.05).mean() == pytest.approx(0.230, abs=0.005)
    first, second, third = (draw_counts(p, [1667, 1667], 500) for _ in range(3))
    assert bounds.fare_upper_bound(first.sum(axis=-1), second, third.sum(axis=-2), 0.05).mean() > ours + 0.3


@pytest.mark.parametrize("name", ["two cells", "9:1", "skewed cells", "disjoint mass"])
def test_other_bounds_cover(name, draw_counts, covers):
    p, n = np.array(SETTINGS[name][0]), SETTINGS[name][1]
    truth = bounds.exact_statistical_distance(p)
    assert covers(bounds.weissman_upper_bound(draw_counts(p, n, 2000), 0.05) < truth, 0.05)


def test_fare_covers(rng, covers):
    p = np.array([[0.65, 0.25, 0.1], [0.35, 0.25, 0.4]])
    joint = (np.array([0.7, 0.3])[:, None] * p).ravel()
    base, cells, totals = rng.multinomial(1000, joint, size=(3, 2000)).reshape(3, 2000, 2, 3)
    upper = bounds.fare_upper_bound(base.sum(axis=-1), cells, totals.sum(axis=-2), 0.05)
    assert covers(upper < bounds.exact_statistical_distance(p), 0.05)


def test_persons_not_rows_are_the_unit(draw_counts, covers):
    """Three identical rows a person look like three times the evidence, and miss more often than δ."""
    p, n = SETTINGS["two cells"]
    counts = draw_counts(p, n, 5000)
    truth = bounds.exact_statistical_distance(p)
    assert covers(bounds.cell_upper_bound(counts, 0.05) < truth, 0.05)
    assert not covers(bounds.cell_upper_bound(3 * counts, 0.05) < truth, 0.05)


def test_looking_often_takes_its_share_of_delta(draw_counts, covers):
    """The best of twenty certificates from the same persons misses too often, unless each look spends its share."""
    p, n = SETTINGS["two cells"]
    looks = draw_counts(p, n, 20 * 4000).reshape(4000, 20, 2, 2)
    truth = bounds.exact_statistical_distance(p)
    assert not covers(bounds.cell_upper_bound(looks, 0.05).min(axis=1) < truth, 0.05)
    spent = [bounds.cell_upper_bound(looks[:, j], bounds.delta_of_look(0.05, j + 1)) for j in range(20)]
    assert covers(np.min(spent, axis=0) < truth, 0.05)


def test_formula_for_two_groups():
    counts = np.array([[30, 50, 20], [40, 5, 5]])
    observed = (abs(0.3 - 0.8) + abs(0.5 - 0.1) + abs(0.2 - 0.1)) / 2
    assert bounds.cell_upper_bound(counts, 0.1) == pytest.approx(
        min(1, observed + np.sqrt(0.5 * (1 / 100 + 1 / 50) * np.log(10)))
    )


def test_three_groups_take_the_smaller_of_the_two_radii():
    L = np.log
    pairs, together = bounds.cell_radius([100, 100, 100], 0.05), bounds.cell_radius([100, 100, 100], 0.2)
    assert pairs[0, 1] == pytest.approx(np.sqrt(0.5 * (2 / 100) * L(3 / 0.05)))
    assert together[0, 1] == pytest.approx(np.sqrt(0.5 * (3 / 100) * L(1 / 0.2)))
    assert np.all(np.diag(pairs) == 0)
    assert np.all(np.diag(together) == 0)


def test_a_group_without_persons_gives_one():
    assert bounds.cell_upper_bound([[10, 20], [0, 0]], 0.05) == 1


@pytest.mark.parametrize(
    "counts", [[1, 2, 3], [[1, 2, 3]], [[1, -2], [3, 4]], [[1, np.nan], [3, 4]], np.empty((3, 2, 0))]
)
def test_other_things_than_counts_are_refused(counts):
    with pytest.raises(DataError, match="counts must"):
        bounds.cell_upper_bound(counts, 0.05)


@pytest.mark.parametrize("distance", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("k", [2, 16, 50])
def test_the_plan_foresees_the_observed_distance(k, distance, draw_counts, alternating_cells):
    p, n = alternating_cells(k, distance), [9000, 1000]
    counts = draw_counts(p, n, 400)
    observed = bounds.total_variation(counts / counts.sum(axis=-1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(expected_cell_distance(p, n)[0], observed, atol=0.002)
    merged = [cells_to_merge(table) for table in counts]
    upper = [
        bounds.merged_upper_bound(c[:, ~m], c[:, m].sum(axis=1), 0.05) for c, m in zip(counts, merged, strict=True)
    ]
    assert bounds.planned_cell_bound(p, n, 0.05) == pytest.approx(np.mean(upper), abs=0.005)


def test_rows_needed_reach_the_target_and_no_fewer_do():
    for shares in ([0.5, 0.5], [0.9, 0.1], [0.2, 0.3, 0.5]):
        n = bounds.rows_needed(0.05, 0.05, shares)
        assert bounds.cell_radius(n, 0.05).max() <= 0.05 < bounds.cell_radius(0.999 * n, 0.05).max()


@pytest.mark.parametrize("distance", [0.0, 0.02, 0.2])
def test_the_certificate_stays_within_its_plan_as_often_as_was_planned(distance):
    rng, n, k = np.random.default_rng(0), np.array([4000, 1500]), 8
    tilt = np.where(np.arange(k) < k // 2, 1, -1) * 2 * distance / k
    laws = np.stack([np.full(k, 1 / k) + tilt / 2, np.full(k, 1 / k) - tilt / 2])
    counts = np.stack([rng.multinomial(n[a], laws[a], size=2000) for a in (0, 1)], axis=1)
    upper = np.array([bounds.cell_upper_bound(drawn, 0.05) for drawn in counts])
    assert 0.86 < (upper <= bounds.planned_cell_bound(laws, n, 0.05, chance=0.9)).mean() < 0.95
    assert upper.mean() == pytest.approx(bounds.planned_cell_bound(laws, n, 0.05), abs=0.001)


def test_the_certificate_of_fare_and_the_bound_of_weissman_are_their_formulas():
    """A bound that is too wide covers, too: here each part is computed by hand."""
    base, cells, totals = np.array([700.0, 300.0]), np.array([[420.0, 280.0], [90.0, 210.0]]), np.array([500.0, 480.0])
    alpha = [1 / (2 * beta.ppf(0.005 / 2, m, 1000 - m + 1)) for m in base]
    posterior = beta.ppf(1 - 0.04 / 2 / 2, cells + 1, cells.sum(axis=0) - cells)
    t = np.minimum(np.max([a * part for a, part in zip(alpha, posterior, strict=True)], axis=0), max(alpha))
    mean = t @ totals / totals.sum() + (t.max() - t.min()) * np.sqrt(np.log(1 / 0.005) / (2 * totals.sum()))
    assert bounds.fare_upper_bound(base, cells, totals, 0.05) == pytest.approx(2 * mean - 1)
    observed = np.abs(cells[0] / 700 - cells[1] / 300).sum() / 2
    radius = sum(np.sqrt(2 / n * np.log(2 * (2**2 - 2) / 0.05)) for n in (700, 300)) / 2
    assert bounds.weissman_upper_bound(cells, 0.05) == pytest.approx(observed + radius)
    assert bounds.weissman_upper_bound([[5], [9]], 0.05) == 0, "a single cell cannot deviate"
    for wrong in ((base * [1, 0], cells, totals), (base, cells, totals * 0)):
        with pytest.raises(DataError, match="needs rows of both groups"):
            bounds.fare_upper_bound(*wrong, 0.05)
    with pytest.raises(DataError, match="needs persons of both groups"):
        bounds.weissman_upper_bound([[5, 3], [0, 0]], 0.05)

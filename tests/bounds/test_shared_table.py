"""The exact distance of a file's cells, and what it becomes when some attributes are known."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import hypergeom

from fairflows import DataError
from fairflows.bounds import shared_table
from fairflows.bounds.shared_table import drawn_rates_upper_bound, known_share_distance, table_distance


def test_the_best_rule_on_cells_attains_the_distance():
    counts = np.array([[12, 30, 8, 50], [40, 10, 25, 25]])
    p = counts / counts.sum(axis=1, keepdims=True)
    gaps = [abs(p[0] @ rule - p[1] @ rule) for rule in product([0, 1], repeat=4)]
    assert table_distance(counts) == pytest.approx(max(gaps), abs=1e-12)


def test_of_several_groups_the_largest_pair_counts():
    counts = np.array([[50, 50], [30, 70], [60, 40]])
    assert table_distance(counts) == pytest.approx(0.3)


@pytest.mark.parametrize("sizes", [(150, 90), (200, 120, 60)])
def test_rates_of_drawn_rows_are_within_their_bound_but_not_within_the_distance_of_cells(sizes):
    """Matched cells, and rows that are drawn from them: a rule of two that is chosen without the groups."""
    rng, k, delta = np.random.default_rng(0), 5, 0.1
    group = np.concatenate([np.full(n, a) for a, n in enumerate(sizes)])
    cell = np.concatenate([np.arange(n) % k for n in sizes])
    above, beyond = [], []
    for _ in range(400):
        drawn = rng.random((2, len(cell))) < np.array([0.1, 0.4, 0.5, 0.7, 0.9])[cell]
        rule = drawn[np.abs(drawn.mean(axis=1) - 0.5).argmin()]
        rates = [rule[group == a].mean() for a in range(len(sizes))]
        above.append(max(rates) - min(rates) > 0.0)
        beyond.append(max(rates) - min(rates) > drawn_rates_upper_bound(0.0, sizes, k, delta))
    assert np.mean(above) > 0.9
    assert np.mean(beyond) <= delta


def known_by_simulation(counts, share, n_runs, seed):
    """Remove a random share of the rows of each group, and measure the others."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n_runs):
        rest = []
        for row in counts:
            left = round((1 - share) * row.sum())
            rest.append(rng.multivariate_hypergeometric(row, left) / left)
        found.append(max(np.abs(one - other).sum() / 2 for one, other in combinations(rest, 2)))
    return np.array(found)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize(
    "counts", [[[60] * 8, [30] * 8], [[20, 100, 40, 240], [30, 60, 60, 50]], [[15] * 40, [12] * 40]]
)
def test_the_mean_is_that_of_simulation(counts, share):
    counts = np.array(counts)
    found = known_by_simulation(counts, share, 3000, seed=0)
    error = 4 * found.std() / np.sqrt(len(found))
    assert known_share_distance(counts, share)[0] == pytest.approx(found.mean(), abs=error)


EVEN = [[[85] * 2] * 2, [[400] * 2] * 2, [[40] * 3, [80] * 3], [[60] * 4] * 2, [[60] * 16, [30] * 16], [[20] * 64] * 2]
DIFFERING = [
    [[300, 300], [400, 200]], [[55] * 10 + [45] * 10, [45] * 10 + [55] * 10], [[500] + [10] * 50] * 2,
    [[30, 40, 100, 400], [60, 30, 90, 200]],
]  # fmt: skip


@pytest.mark.parametrize("counts", EVEN + DIFFERING, ids=str)
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_point_leaves_at_most_one_in_twenty_above(counts, share):
    """Two cells of 85 persons: 7 % of random halves were above the point that was stated."""
    found = known_by_simulation(np.array(counts), share, 4000, seed=1)
    exceeded = (found > known_share_distance(counts, share)[1] + 1e-12).mean()
    assert 0.005 < exceeded < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 4000)


def test_a_point_with_a_smaller_deviation_is_exceeded_too_often(monkeypatch):
    """The control: simulations see a deviation that is a quarter too small."""
    monkeypatch.setattr(shared_table, "_FROM_ABOVE", 0.8)
    found = known_by_simulation(np.array(EVEN[4]), 0.5, 4000, seed=1)
    assert (found > known_share_distance(EVEN[4], 0.5)[1]).mean() > 0.07


SEVERAL = [
    [[60] * 4] * 5,
    [[60] * 12] * 3,
    [[80] * 3] * 20,
    [[200] * 6, [40] * 6, [100] * 6],
    [[300, 100], [100, 90], [60, 40]],
]


@pytest.mark.parametrize("counts", SEVERAL, ids=str)
def test_mean_and_point_are_those_of_the_worst_of_several_pairs(counts):
    """Of 20 groups in three equal cells the worst pair differs 2.5 times as much as a pair does."""
    found = known_by_simulation(np.array(counts), 0.5, 2000, seed=2)
    mean, point = known_share_distance(counts, 0.5)
    assert found.mean() - 3 * found.std() / np.sqrt(len(found)) < mean < 1.2 * found.mean()
    assert (found > point).mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)
    assert point < 1.2 * np.quantile(found, 0.95)


def test_matched_cells_follow_the_formula():
    counts = np.array([[100] * 64, [50] * 64])
    formula = 0.399 * np.sqrt(63 * (1 / 6399 + 1 / 3199))
    assert known_share_distance(counts, 0.5)[0] == pytest.approx(formula, abs=0.002)


def test_persons_with_several_rows_count_as_persons():
    """Four rows of each person in one cell: twice the distance that rows alone would have."""
    counts = np.array([[400] * 16, [400] * 16])
    by_rows, by_persons = (known_share_distance(counts, 0.5, n)[0] for n in (None, [1600, 1600]))
    assert by_persons == pytest.approx(2 * by_rows, rel=0.02)


def test_huge_counts_take_no_time():
    """A receiver computes it from counts that anybody may have written."""
    many = np.array([[10**16] * 8, [10**16 + 10**14] + [10**16] * 7])
    assert known_share_distance(many, 0.5)[0] == pytest.approx(table_distance(many), abs=1e-6)
    exact, normal = ([[n] * 8, [n] * 8] for n in (10**6, 10**7))
    assert known_share_distance(exact, 0.5)[0] == pytest.approx(
        10**0.5 * known_share_distance(normal, 0.5)[0], rel=1e-3
    )


def test_wrong_input_is_refused():
    with pytest.raises(DataError, match=r"share must be in \[0, 1\); got 1"):
        known_share_distance([[10, 10], [10, 10]], 1)
    with pytest.raises(DataError, match="a group has none"):
        table_distance([[10, 10], [0, 0]])


def test_an_empty_cell_changes_nothing():
    counts = np.array([[40, 30, 30], [35, 25, 40]])
    with_empty = np.insert(counts, 1, 0, axis=1)
    for share in (0.1, 0.5):
        assert known_share_distance(with_empty, share) == pytest.approx(known_share_distance(counts, share))


def test_the_law_of_a_cell_is_hypergeometric():
    for n, count, left in ((30, 12, 15), (30, 0, 7), (30, 30, 7), (5000, 11, 2500), (9, 1, 1)):
        values, F = shared_table._rest_law(n, count, left)
        whole = np.arange(left + 1)
        truth = hypergeom(n, count, left).cdf(whole)
        found = np.concatenate([[0.0], F])[np.searchsorted(values, whole / left + 1e-12, side="right")]
        np.testing.assert_allclose(found, truth, atol=1e-9)


def test_the_bound_on_drawn_rates_is_its_formula():
    def of_pair(a, b, n_pairs):
        s2 = 1 / a + 1 / b
        return np.sqrt(s2 * (1 + 7 * (a + b) / (2 * a * b)) / 2 * np.log(2 * n_pairs / 0.05))

    assert drawn_rates_upper_bound(0.01, [900, 400], 7, 0.05) == pytest.approx(0.01 + of_pair(900, 400, 1))
    assert drawn_rates_upper_bound(0, [900, 400, 250], 7, 0.05) == pytest.approx(of_pair(400, 250, 3))

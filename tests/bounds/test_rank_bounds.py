"""Bounds for an attribute without groups, against truths in closed form."""

import numpy as np
import pytest

from fairflows.bounds import halves_upper_bound, rank_correlation, rank_upper_bound, spread_within
from fairflows.bounds.ages import (
    foreseen_halves,
    foreseen_ranks,
    known_share_correlation,
    plan_ranks,
    rank_p_value,
)
from fairflows.bounds.blocks import even_blocks
from fairflows.exceptions import DataError

G, N, K = 12, 60, 8
BLOCKS = np.stack([even_blocks(N, K)] * G)


def cut_masses(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Cut every narrow group at order statistics of uniform scores; the true masses of the leaves, and the cuts."""
    scores = np.sort(rng.random((G, N)), axis=1)
    at = np.cumsum(BLOCKS, axis=1)[:, :-1] - 1
    cuts = np.concatenate([np.zeros((G, 1)), np.take_along_axis(scores, at, axis=1), np.ones((G, 1))], axis=1)
    return np.diff(cuts, axis=1), cuts


def true_correlation(masses: np.ndarray, cuts: np.ndarray, *, follows: bool) -> float:
    """η of the leaves with a uniform rank R: inside of a narrow group R is the score (`follows`), or apart from it."""
    middle = (cuts[:, 1:] + cuts[:, :-1]) / 2 if follows else np.full_like(masses, 0.5)
    R = (np.arange(G)[:, None] + middle) / G - 0.5  # the mean of R in each leaf of each narrow group
    means = (R * masses).sum(axis=0) / masses.sum(axis=0)
    return float(np.sqrt((means**2 * masses.sum(axis=0) / G).sum() * 12))


@pytest.mark.parametrize("follows", [False, True])
def test_the_bound_on_the_correlation_covers(follows):
    """At δ = .2. Where R follows the score inside of groups, the bound without their spread must fail."""
    rng, missed, without = np.random.default_rng(1), 0, 0
    within, n_runs = spread_within(G, G), 300
    for _ in range(n_runs):
        true = true_correlation(*cut_masses(rng), follows=follows)
        missed += true > rank_upper_bound(BLOCKS, 0.2, within)
        without += true > rank_upper_bound(BLOCKS, 0.2, 0.0)
    assert missed <= 0.27 * n_runs  # three deviations above .2
    if follows:
        assert without > 0.35 * n_runs
    else:
        assert 0.13 * n_runs <= without <= 0.27 * n_runs, "it is the quantile, and no looser"


def test_the_bound_on_the_halves_covers():
    rng, n_runs = np.random.default_rng(2), 400
    found = []
    for _ in range(n_runs):
        masses = cut_masses(rng)[0]
        found.append(np.abs(masses[: G // 2].mean(axis=0) - masses[G // 2 :].mean(axis=0)).sum() / 2)
    missed = np.mean(np.array(found) > halves_upper_bound(BLOCKS, 0.2))
    assert 0.14 <= missed <= 0.26


def test_two_groups_say_nothing_of_ages_inside_of_them():
    """The control: cells that are matched for two groups can follow the age inside of each."""
    n, k = 2_000, 8
    score = np.random.default_rng(3).random((2, n))  # uniform in the young and in the old: the age inside of the group
    cells = np.argsort(np.argsort(score, axis=1), axis=1) * k // n
    masses = np.stack([np.bincount(row, minlength=k) for row in cells]) / n
    claimed = np.sqrt(3) / 2 * halves_upper_bound([even_blocks(n, k)] * 2, 0.05)
    narrow = np.floor(score * 10).astype(int) + 10 * np.arange(2)[:, None]
    counts = np.zeros((20, k))
    np.add.at(counts, (narrow.ravel(), cells.ravel()), 1)
    assert np.abs(masses[0] - masses[1]).sum() < 1e-9
    assert claimed < 0.1
    assert rank_correlation(counts) > 0.4


def test_the_correlation_is_that_of_the_best_function():
    rng = np.random.default_rng(4)
    masses = rng.dirichlet(np.ones(5), size=7)
    r = np.repeat(np.arange(7), 5)
    w = (masses / 7).ravel()
    best = np.tile((np.arange(7)[:, None] * masses).sum(axis=0) / masses.sum(axis=0), 7)

    def correlation(f: np.ndarray) -> float:
        x, y = f - np.average(f, weights=w), r - np.average(r, weights=w)
        return float((w * x * y).sum() / np.sqrt((w * x * x).sum() * (w * y * y).sum()))

    assert rank_correlation(masses) == pytest.approx(correlation(best))
    others = [correlation(np.tile(rng.normal(size=5), 7)) for _ in range(200)]
    assert max(others) <= rank_correlation(masses) + 1e-12
    assert rank_correlation(1000 * masses) == pytest.approx(rank_correlation(masses)), "counts will do"


@pytest.mark.parametrize("n_wide", [0, 3, 10])
def test_the_spread_inside_of_narrow_groups(n_wide):
    """Ten narrow groups alike, some of which hold many values, against the variance of the rank and of W."""
    values = 200
    rank, inside = [], []
    for g in range(10):
        W = (np.arange(values) + 0.5) / values - 0.5 if g < n_wide else np.zeros(values)
        rank.append((g + 0.5 + W) / 10)
        inside.append(W / 10)
    true = np.std(inside) / np.std(rank)
    assert true <= spread_within(10, n_wide) + 1e-12
    assert spread_within(10, n_wide) == pytest.approx(true, rel=0.02)
    with pytest.raises(DataError, match="n_wide"):
        spread_within(10, 11)


def test_known_persons_leave_chance():
    rng = np.random.default_rng(5)
    counts = np.full((20, 16), 12)
    mean, point = known_share_correlation(counts, 0.5)
    found = []
    for _ in range(200):
        rest = [rng.multivariate_hypergeometric(c, c.sum() // 2) for c in counts]
        found.append(rank_correlation(np.array(rest)))
    assert mean == pytest.approx(np.mean(found), rel=0.05)
    assert np.quantile(found, 0.9) < point < 1.5 * mean
    assert known_share_correlation(counts, 0.0) == pytest.approx((0.0, 0.0))


def test_new_persons_test_the_law():
    rng = np.random.default_rng(6)
    agree = rng.multinomial(200, np.full(K, 1 / K), size=G)
    slope = np.linspace(0.5, 1.5, K)
    moved = np.array(
        [rng.multinomial(200, p / p.sum()) for p in (slope if g < G / 2 else slope[::-1] for g in range(G))]
    )
    assert rank_p_value(BLOCKS, agree) > 0.05
    assert rank_p_value(BLOCKS, moved) < 0.001
    assert rank_p_value(BLOCKS, agree * (np.arange(G) > 0)[:, None]) == 1


def test_plans_foresee_the_bounds():
    assert foreseen_ranks(BLOCKS, 0.01) == pytest.approx(rank_upper_bound(BLOCKS, 0.01, 0), rel=0.05)
    assert foreseen_halves(BLOCKS, 0.01) == pytest.approx(halves_upper_bound(BLOCKS, 0.01), rel=0.1)
    within = spread_within(20, 20)
    assert plan_ranks([10] * 20, 0.1, 0.01, within) is None
    assert plan_ranks([100] * 20, 0.04, 0.01, within) is None, "the spread inside of groups is above the target"
    few, many = (plan_ranks([n] * 20, 0.2, 0.01, within).n_cells for n in (50, 500))
    assert 2 <= few < many

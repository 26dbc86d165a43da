"""FARE's tree: the best split by brute force, the frontier, and both certificates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairflows import certify, load_adult
from fairflows.bounds import cell_upper_bound, delta_of_look
from fairflows.paper.baselines import FARE
from fairflows.paper.baselines.fare import best_split


@pytest.fixture(scope="module")
def adult():
    return [part.take(np.arange(len(part) // 3)) for part in load_adult().paper_split()]


def impurity(y, a, gamma):
    def gini(values):
        return 1 - (np.bincount(values) ** 2).sum() / len(values) ** 2 if len(values) else 0.5

    return len(y) * ((1 - gamma) * gini(y) + gamma * (0.5 - gini(a)))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 0.8]))
def test_an_ordered_column_is_split_as_brute_force_does(seed, gamma):
    rng = np.random.default_rng(seed)
    n, n_bins = 40, 5
    x, a = rng.integers(0, n_bins, n), rng.integers(0, 2, n)
    y = (x + rng.integers(0, 4, n) > 4).astype(int)
    if len(set(y)) < 2 or len(set(a)) < 2:
        return
    gains = []
    for cut in range(n_bins - 1):
        left = x <= cut
        if 0 < left.sum() < n:
            parts = (impurity(y[part], a[part], gamma) for part in (left, ~left))
            gains.append(impurity(y, a, gamma) - sum(parts))
    split = best_split(x[:, None], np.array([True]), y, a, gamma, 1, (2, 2))
    best = max(gains, default=0)
    assert (split is None) == (best <= 1e-9 * n)
    if split is not None:
        assert split.gain == pytest.approx(best)


def test_categories_are_parted_by_their_rates():
    x = np.repeat(np.arange(4), 50)
    y = np.isin(x, [0, 2]).astype(int)
    split = best_split(x[:, None], np.array([False]), y, np.tile([0, 1], 100), 0.0, 1, (2, 2))
    assert sorted(split.left) in ([0, 2], [1, 3])


def test_gamma_trades_accuracy_for_fairness(adult):
    train, _, test = adult
    trees = [FARE(gamma).fit(train.X, train.y, sensitive_features=train.a) for gamma in (0, 0.8, 1)]
    accuracy = [(tree.predict(test.X) == test.y).mean() for tree in trees]
    distance = []
    for tree in trees:
        cells = tree.cells(tree.read(test))
        laws = [np.bincount(cells[test.a == g], minlength=tree.n_cells_) / (test.a == g).sum() for g in (0, 1)]
        distance.append(0.5 * np.abs(laws[0] - laws[1]).sum())
    assert accuracy[0] > accuracy[1] > accuracy[2]
    assert distance[0] > distance[1] > distance[2] == 0
    assert trees[2].n_cells_ == 1


def test_both_certificates_hold_the_observed_distance_and_ours_is_tighter(adult):
    train, validation, test = adult
    tree = FARE(0.5).fit(train.X, train.y, sensitive_features=train.a)
    cells = tree.cells(tree.read(test))
    counts = np.array([np.bincount(cells[test.a == g], minlength=tree.n_cells_) for g in (0, 1)])
    laws = counts / counts.sum(axis=1, keepdims=True)
    observed = 0.5 * np.abs(laws[0] - laws[1]).sum()
    ours = cell_upper_bound(counts, 0.05)
    assert observed < ours < tree.own_upper_bound(train, validation, test)
    first_look = cell_upper_bound(counts, delta_of_look(0.05, 1))
    assert certify(tree, test, delta=0.05).cell_upper == pytest.approx(first_look)

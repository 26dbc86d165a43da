"""What follows from a distance, checked on random laws and in the paper's counter-examples."""

import math

import numpy as np
import pytest

from fairflows import DataError, bounds


def test_every_classifier_keeps_parity_within_the_distance_and_one_attains_it(rng):
    p = rng.dirichlet(np.ones(6), size=3)
    every_classifier = (np.arange(2**6)[:, None] >> np.arange(6)) & 1
    rates = every_classifier @ p.T
    assert np.ptp(rates, axis=1).max() == pytest.approx(bounds.exact_statistical_distance(p))


def test_equalized_odds_is_not_bounded_by_the_marginal_distance():
    """Z is a fair coin in both groups; Y = Z in one and 1 - Z in the other. Δ = 0, and the TPR gap of h = Z is 1."""
    z_given_a_and_y = {0: [[1.0, 0.0], [0.0, 1.0]], 1: [[0.0, 1.0], [1.0, 0.0]]}
    marginal = (np.array(z_given_a_and_y[0]) + np.array(z_given_a_and_y[1])) / 2
    assert bounds.exact_statistical_distance(marginal) == 0
    assert {y: bounds.exact_statistical_distance(p) for y, p in z_given_a_and_y.items()} == {0: 1, 1: 1}
    counts = {y: 5000 * np.array(p) for y, p in z_given_a_and_y.items()}
    assert bounds.cell_upper_bound(counts[0] + counts[1], 0.05) < 0.02
    assert {y: bounds.cell_upper_bound(c, 0.05 / 2) for y, c in counts.items()} == {0: 1, 1: 1}


def test_four_fifths_rule(rng):
    p = rng.dirichlet(np.ones(5), size=2)
    every_classifier = (np.arange(1, 2**5)[:, None] >> np.arange(5)) & 1
    rates = every_classifier @ p.T
    lowest, largest = rates.min(axis=1), rates.max(axis=1)
    assert np.all(lowest / largest >= 1 - bounds.exact_statistical_distance(p) / largest - 1e-12)


def test_density_error_theorem_holds_for_any_laws_and_is_attained(rng):
    for _ in range(200):
        p, p_hat = rng.dirichlet(np.full(5, 0.5), size=(2, 3))
        errors = np.abs(p - p_hat).sum(axis=1) / 2
        bound = bounds.true_distance_upper_bound(bounds.exact_statistical_distance(p_hat), errors)
        assert bounds.exact_statistical_distance(p) <= bound + 1e-12
    p, p_hat = np.array([[0.7, 0.3], [0.3, 0.7]]), np.full((2, 2), 0.5)
    assert bounds.exact_statistical_distance(p) == pytest.approx(bounds.true_distance_upper_bound(0, [0.2, 0.2]))
    assert bounds.exact_statistical_distance(p_hat) == 0


def test_fairness_costs_errors_where_base_rates_differ(rng):
    """err_0 + err_1 ≥ base-rate gap - Δ, over every classifier on random joint laws of cell and label."""
    every_classifier = (np.arange(2**4)[:, None] >> np.arange(4)) & 1
    for _ in range(100):
        joint = rng.dirichlet(np.full(8, 0.5), size=2).reshape(2, 2, 4)  # group, label, cell
        errors = (joint[:, 1] @ (1 - every_classifier).T + joint[:, 0] @ every_classifier.T).sum(axis=0)
        distance = min(bounds.exact_statistical_distance(joint.sum(axis=1)), 1)
        bound = bounds.error_lower_bound(np.minimum(joint[:, 1].sum(axis=1), 1), distance)
        assert errors.min() >= bound - 1e-12
    assert bounds.error_lower_bound([0.71, 0.18], 0.23) == pytest.approx(0.30)


def test_looks_share_delta():
    shares = [bounds.delta_of_look(0.05, j) for j in range(1, 2001)]
    assert 0.0499 < math.fsum(shares) < 0.05
    with pytest.raises(ValueError, match="look must be 1 or more; got 0"):
        bounds.delta_of_look(0.05, 0)


@pytest.mark.parametrize("distance", [-0.1, 1.1, math.nan])
def test_a_distance_outside_of_the_unit_interval_is_refused(distance):
    with pytest.raises(DataError, match=r"distance must be in \[0, 1\]; got"):
        bounds.error_lower_bound([0.7, 0.2], distance=distance)

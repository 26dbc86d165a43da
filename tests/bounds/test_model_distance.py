"""Estimates from tables of log-densities: closed forms, infinities, the paper's lemmas."""

import numpy as np
import pytest

from fairflows import DataError, bounds
from fairflows.bounds.arguments import checked_draws

UNEVEN = np.array([[0.5, 0.3, 0.2, 0.0], [0.1, 0.3, 0.2, 0.4], [0.25, 0.25, 0.25, 0.25]])


def table_of_cells(probabilities, n, rng):
    """Draws from laws on cells, as the encoder of a categorical table would hand them over."""
    cells = np.stack([rng.choice(len(p), size=n, p=p) for p in probabilities], axis=1)
    with np.errstate(divide="ignore"):
        return np.moveaxis(np.log(probabilities)[:, cells], 0, 2)


@pytest.mark.parametrize("distance", [0.0, 0.05, 0.5, 0.99])
def test_gaussians(distance, rng, gaussians):
    table = gaussians.at_distance(distance).table(100_000, rng)
    assert bounds.statistical_distance(table) == pytest.approx(distance, abs=0.005)
    assert bounds.sign_estimate(table) == pytest.approx(distance, abs=0.01)
    assert bounds.adversary_accuracy(table) == pytest.approx((1 + distance) / 2, abs=0.005)


def test_the_tanh_estimator_varies_less_than_the_sign_estimator(rng, gaussians):
    tables = [gaussians.at_distance(0.1).table(500, rng) for _ in range(200)]
    assert (
        np.std([bounds.statistical_distance(t) for t in tables]) < np.std([bounds.sign_estimate(t) for t in tables]) / 5
    )


def test_sampled_and_exact_distances_agree(rng):
    table = table_of_cells(UNEVEN, 200_000, rng)
    pairs = bounds.total_variation(UNEVEN)[np.triu_indices(3, 1)]
    np.testing.assert_allclose(bounds.distance_terms(table).mean(axis=1), pairs, atol=0.005)
    assert bounds.statistical_distance(table) == pytest.approx(bounds.exact_statistical_distance(UNEVEN), abs=0.005)
    for priors in ([1 / 3, 1 / 3, 1 / 3], [0.7, 0.2, 0.1], [0.5, 0.5, 0.0]):
        exact = bounds.exact_adversary_accuracy(UNEVEN, priors)
        assert bounds.adversary_accuracy(table, priors) == pytest.approx(exact, abs=0.005)


def test_points_without_mass_are_told_apart_and_nan_counts_as_told_apart():
    same = np.zeros((4, 2, 2))
    assert bounds.statistical_distance(same) == 0
    disjoint = np.broadcast_to([[0, -np.inf], [-np.inf, 0]], (4, 2, 2))
    broken = np.full((4, 2, 2), np.nan)
    nowhere = np.full((4, 2, 2), -np.inf)
    for table in (disjoint, broken, nowhere):
        assert (
            bounds.statistical_distance(table) == bounds.sign_estimate(table) == bounds.adversary_accuracy(table) == 1
        )
        assert bounds.statistical_distance_upper_bound(table, 0.05) == bounds.sign_upper_bound(table, 0.05) == 1
    half = same.copy()
    half[:2] = np.nan
    assert bounds.statistical_distance(half) == 0.5


@pytest.mark.parametrize("shape", [(10, 2), (0, 2, 2), (10, 2, 3), (10, 1, 1)])
def test_a_table_of_another_shape_is_refused(shape):
    with pytest.raises(DataError, match="log_densities must have shape"):
        bounds.statistical_distance(np.zeros(shape))


@pytest.mark.parametrize("priors", [[0.5, 0.6], [1.5, -0.5], [1.0], [np.nan, 1]])
def test_priors_are_probabilities(priors):
    with pytest.raises(ValueError, match="priors must"):
        bounds.adversary_accuracy(np.zeros((5, 2, 2)), priors)


def test_probabilities_sum_to_one():
    with pytest.raises(DataError, match="sum to 1; got a sum of 0.9"):
        bounds.exact_statistical_distance([[0.5, 0.4], [0.5, 0.5]])


def test_the_papers_radius():
    assert bounds.hoeffding_radius(10_000, 0.05) == pytest.approx(0.0296, abs=5e-5)
    assert bounds.hoeffding_radius(100_000, 0.05) == pytest.approx(0.0093, abs=5e-5)


def test_a_table_that_cannot_be_kept_is_refused_with_what_fits():
    with pytest.raises(DataError, match=r"n_draws must be at most 2,982 for 300 groups.*; got 1000000\."):
        checked_draws(1_000_000, 300)
    assert checked_draws(2_982, 300) == 2_982
    assert checked_draws(1_000_000, 2) == 1_000_000


def test_kl_form_holds_for_any_laws_is_attained_and_is_never_above_pinsker(rng):
    p, q = rng.dirichlet(np.full(4, 0.7), size=(2, 5000))
    J = ((p - q) * np.log(p / q)).sum(axis=1)
    distance = np.abs(p - q).sum(axis=1) / 2
    assert np.all(distance <= bounds.kl_upper_bound(J) + 1e-9)
    assert np.all(bounds.kl_upper_bound(J) <= np.sqrt(J / 4) + 1e-9)
    two_points = np.array([0.1, 0.5, 0.999])
    np.testing.assert_allclose(
        bounds.kl_upper_bound(2 * two_points * np.log((1 + two_points) / (1 - two_points))), two_points
    )

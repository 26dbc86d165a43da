"""Lower bounds from attacks: coverage, and refutation of a wrong density."""

import numpy as np
import pytest
from scipy.stats import beta, norm

from fairflows.bounds import attack_lower_bound, statistical_distance, statistical_distance_upper_bound

METHODS = ["clopper-pearson", "hoeffding"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("rates", "n"),
    [([0.5, 0.6], [300, 300]), ([0.02, 0.05], [300, 300]), ([0.4, 0.4], [900, 100]), ([0.0, 1.0], [50, 50])],
    ids=["middle", "rare", "9:1, no gap", "certain"],
)
def test_coverage(rates, n, method, delta, rng, covers):
    k = rng.binomial(n, rates, size=(5000, 2))
    assert covers(attack_lower_bound(k, n, delta, method=method) > rates[1] - rates[0], delta)


def test_the_observed_gap_itself_does_not_cover(rng, covers):
    k = rng.binomial(300, [0.5, 0.6], size=(5000, 2))
    assert not covers((k[:, 1] - k[:, 0]) / 300 > 0.1, 0.2)


def test_formulas():
    k, n, delta = [30, 80], [120, 100], 0.05
    alpha = 1 - np.sqrt(1 - delta)
    expected = beta.ppf(alpha, 80, 21) - beta.ppf(1 - alpha, 31, 90)
    assert attack_lower_bound(k, n, delta) == pytest.approx(expected)
    radius = np.sqrt(0.5 * (1 / 120 + 1 / 100) * np.log(20))
    assert attack_lower_bound(k, n, delta, method="hoeffding") == pytest.approx(0.8 - 0.25 - radius)


def test_an_adversary_that_shows_nothing_gives_zero():
    for method in METHODS:
        assert attack_lower_bound([50, 40], [100, 100], 0.05, method=method) == 0
        assert attack_lower_bound([0, 0], [100, 0], 0.05, method=method) == 0


def test_the_direction_is_the_callers():
    assert attack_lower_bound([90, 10], [100, 100], 0.05) == 0
    assert attack_lower_bound([90, 10], [100, 100], 0.05, groups=(1, 0)) > 0.6
    assert attack_lower_bound([10, 50, 90], [100, 100, 100], 0.05, groups=(0, 2)) > 0.6


def test_a_single_gaussian_for_two_humps_is_refuted(rng, gaussians):
    """Two humps with the mean and variance of the other group: one fitted Gaussian each, and the model sees nothing."""
    hump, spread = 0.95, np.sqrt(1 - 0.95**2)
    grid = np.linspace(-8, 8, 100_001)
    humps = (norm.pdf(grid, hump, spread) + norm.pdf(grid, -hump, spread)) / 2
    truth = np.trapezoid(np.abs(norm.pdf(grid) - humps), grid) / 2
    assert truth == pytest.approx(0.41, abs=0.005)

    model = gaussians([0.0, 0.0]).table(100_000, rng)
    model_upper = statistical_distance_upper_bound(model, 0.025)
    assert statistical_distance(model) == 0
    assert model_upper < 0.001

    z = np.stack([rng.normal(size=2000), rng.choice([-hump, hump], 2000) + spread * rng.normal(size=2000)])
    says_1 = (np.abs(z) > 0.55) & (np.abs(z) < 1.5)
    attack_lower = attack_lower_bound(says_1.sum(axis=1), [2000, 2000], 0.025)
    assert model_upper < attack_lower < truth

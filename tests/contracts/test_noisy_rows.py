"""The law of noisy rows and the gap of a density, against truths in closed form."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm
from torch.distributions import MultivariateNormal

from fairflows.density import KnownDensity, MixtureDensity
from fairflows.density.gap import Gap
from fairflows.density.noisy_rows import NoisyRows


def heaped(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values of a grid with steps of .2, most of them on every fifth point: their intervals, and one noisy draw."""
    rng = np.random.default_rng(seed)
    k = np.where(rng.random((n, 2)) < 0.8, 5 * rng.integers(0, 4, (n, 2)), rng.integers(0, 20, (n, 2)))
    low = 0.2 * k
    return low, low + 0.2, low + 0.2 * rng.random((n, 2)) + 0.05 * rng.normal(size=(n, 2))


@pytest.mark.parametrize("sigma", [0.0, 0.02, 0.3])
def test_the_law_of_a_column_is_the_convolution(sigma):
    """One value in three, u in its interval and normal noise: a difference of two distribution functions each."""
    low = np.repeat([[0.0], [1.0], [1.5]], [500, 300, 200], axis=0)
    draws = np.random.default_rng(0).uniform(-2, 4, (1_000_000, 1))
    law = NoisyRows(low, low + 0.5, np.array([sigma]), draws)
    x = np.linspace(-0.9, 2.9, 77)[:, None] + 0.003
    found = law.column_ratios(x) - np.log(6)  # draws are uniform: log p̂ = −log 6
    if sigma:
        steps = [(norm.cdf((x - start) / sigma) - norm.cdf((x - start - 0.5) / sigma)) / 0.5 for start in (0, 1, 1.5)]
    else:
        steps = [((start <= x) & (x < start + 0.5)) / 0.5 for start in (0, 1, 1.5)]
    truth = 0.5 * steps[0] + 0.3 * steps[1] + 0.2 * steps[2]
    seen = (truth > 1e-3)[:, 0]
    assert np.abs(np.exp(found[seen]) - truth[seen]).max() < 0.06, "within the noise of a histogram of draws"
    assert (found[~seen] < -6).all()


def test_the_law_of_rows_is_the_mixture_of_kernels():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 2))
    law = NoisyRows(centres, centres, np.array([0.3, 0.5]), rng.normal(size=(1000, 2)))
    x = rng.normal(size=(6, 2))
    truth = np.mean([multivariate_normal(c, np.diag([0.09, 0.25])).pdf(x) for c in centres], axis=0)
    np.testing.assert_allclose(law.log_prob_of_rows(x), np.log(truth), atol=1e-5)


def gap_to(density, n: int = 6000, seed: int = 0) -> Gap:
    """The gap of a density of two columns to rows from the standard normal law."""
    rng = np.random.default_rng(seed)
    x, held = rng.normal(size=(n, 2)), rng.normal(size=(n // 3, 2))
    return Gap.measure(density, x, x, np.zeros(2), x, held)


def shifted(distance: float) -> KnownDensity:
    return KnownDensity(MultivariateNormal(torch.tensor([distance, 0.0]), torch.eye(2)))


def test_the_right_density_has_no_gap():
    gaps = [gap_to(shifted(0.0), 2000, seed) for seed in range(20)]
    assert np.mean([gap.lower > 0 for gap in gaps]) <= 0.15
    assert max(gap.distance for gap in gaps) < 0.1


@pytest.mark.parametrize("distance", [0.5, 1.5])
def test_a_wrong_density_has_a_gap_below_the_truth(distance):
    """TV of two normals at a distance is 2Φ(d/2) − 1; a classifier comes near and not, but by chance, above."""
    truth = 2 * norm.cdf(distance / 2) - 1
    gap = gap_to(shifted(distance))
    assert truth - 0.07 < gap.distance < truth + 0.04
    assert gap.lower < min(truth, gap.distance)


def test_heaps_that_a_density_smooths_over_are_found():
    """Two smooth Gaussians over heaps: nearly disjoint from the truth, as trees on x alone do not see."""
    low, high, x = heaped(6000)
    held = heaped(2000, seed=1)[2]
    density = MixtureDensity(1).fit(torch.as_tensor(x, dtype=torch.float32))
    gap = Gap.measure(density, low, high, np.full(2, 0.05), x, held)
    assert gap.lower > 0.4
    blurred = x + np.random.default_rng(2).normal(size=x.shape)
    blurred_held = held + np.random.default_rng(3).normal(size=held.shape)
    density = MixtureDensity(4).fit(torch.as_tensor(blurred, dtype=torch.float32))
    assert Gap.measure(density, low, high, np.ones(2), blurred, blurred_held).lower < 0.06

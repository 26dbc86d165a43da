"""What the simulations share: the test of coverage, and laws whose truth is known."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binomtest, norm


@pytest.fixture(params=[0.05, 0.2], ids=["delta=.05", "delta=.2"])
def delta(request) -> float:
    return request.param


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240517)


@pytest.fixture
def covers() -> Callable[[np.ndarray, float], bool]:
    """Whether this many misses are no evidence that a bound misses more often than δ."""
    return lambda missed, delta: binomtest(int(np.sum(missed)), np.size(missed), delta, "greater").pvalue > 1e-3


class Gaussians:
    """Unit Gaussians at given means: tables of log-densities to draw, and the truth in closed form or on a grid."""

    def __init__(self, means):
        self.means = np.asarray(means, dtype=float)

    @classmethod
    def at_distance(cls, distance):
        """Two of them with this statistical distance: Δ = 2Φ(d/2) - 1."""
        return cls([0, 2 * norm.ppf((1 + distance) / 2)])

    def table(self, n, rng):
        z = rng.normal(self.means, size=(n, len(self.means)))
        return -((z[:, :, None] - self.means) ** 2) / 2

    def distance(self):
        return 2 * norm.cdf(np.ptp(self.means) / 2) - 1

    def accuracy(self, priors):
        z = np.linspace(self.means.min() - 9, self.means.max() + 9, 200_001)
        return np.trapezoid((np.asarray(priors) * norm.pdf(z[:, None], self.means)).max(axis=1), z)


@pytest.fixture
def gaussians() -> type[Gaussians]:
    return Gaussians


@pytest.fixture
def draw_counts(rng):
    """Counts of many repeated samples: shape (repetitions, K, k) for cell probabilities (K, k) and sizes n."""

    def draw(probabilities, n, repetitions):
        return np.stack(
            [rng.multinomial(m, p, size=repetitions) for m, p in zip(n, probabilities, strict=True)], axis=1
        )

    return draw


@pytest.fixture
def alternating_cells():
    """Two groups on k cells whose probabilities are (1 ± TV)/k in turn: statistical distance TV."""

    def cells(k, distance):
        tilt = distance * (-1.0) ** np.arange(k)
        return np.stack([1 + tilt, 1 - tilt]) / k

    return cells

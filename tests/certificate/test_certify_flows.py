"""Certificates of continuous encoders: closed forms, refutation, densities given the label."""

import numpy as np
import pandas as pd
import pytest
from known_encoders import KnownGaussians
from scipy.stats import norm

from fairflows import DataWarning, FairFlow, Table, audit, certify, verify
from fairflows.certificate.certify import _checked_draws
from fairflows.density import MixtureDensity
from fairflows.paper import make_shifted_gaussians

# A test row may be larger than all training rows; the encoder says so, and it does not matter here.
pytestmark = [
    pytest.mark.usefixtures("few_trees"),
    pytest.mark.filterwarnings("ignore:Values outside the training range"),
]


def gaussian_rows(means: list[float], n: int = 3000, seed: int = 1) -> Table:
    a = np.arange(n) % len(means)
    x = np.random.default_rng(seed).normal(np.array(means)[a])
    return Table({"x": x, "a": a}, sensitive="a", kinds={"x": "continuous"})


def known(means: list[float]) -> KnownGaussians:
    return KnownGaussians(means).fit(gaussian_rows(means, 100, seed=2))


@pytest.mark.parametrize("distance", [0.0, 0.1, 1.0, 4.0])
def test_two_gaussians(distance):
    """Δ = 2Φ(d/2) − 1, estimated within Monte-Carlo error and bounded from above."""
    certificate = certify(known([0.0, distance]), gaussian_rows([0.0, distance]), n_draws=100_000)
    truth = 2 * norm.cdf(distance / 2) - 1
    assert certificate.find("model").observed == pytest.approx(truth, abs=0.004)
    assert truth <= certificate.model_upper <= truth + 0.006
    assert [(s.name, s.delta) for s in certificate.statements] == [("model row", 0.001)]
    assert certificate.status == ("MODEL_ONLY" if certificate.model_upper < 1 else "NOT_MET")
    assert certificate.model_with_gaps is None, "no gap was measured"
    assert "gaps" not in repr(certificate)


def test_a_true_density_is_not_refuted():
    means = [0.0, 0.7]
    train, test = gaussian_rows(means, 6000).split(test=0.5, validation=0)
    encoder = KnownGaussians(means).fit(train)
    certificate = certify(encoder, test, audit=audit(encoder, train, test, quick=True), n_draws=100_000)
    assert certificate.status == "MODEL_ONLY"
    assert 0.15 < certificate.attack_lower < certificate.model_upper


@pytest.fixture(scope="module")
def two_humps():
    """½N(−3, 1) + ½N(3, 1) against N(0, 10): the same mean and variance, a true TV of .41."""
    rng = np.random.default_rng(0)
    a = np.arange(6000) % 2
    humps = rng.choice([-3.0, 3.0], size=6000) + rng.normal(size=6000)
    x = np.where(a == 0, humps, np.sqrt(10) * rng.normal(size=6000))
    table = Table(pd.DataFrame({"x": x, "noise": rng.normal(size=6000), "a": a}), sensitive="a")
    train, test = table.split(test=0.5, validation=0)
    encoder = FairFlow(gamma=1.0, density=MixtureDensity(1), smoothing=0, n_epochs=10)
    with pytest.warns(DataWarning, match=r"Distance of the densities from the truth at least .*: 0: 0\.[34]"):
        encoder.fit(train)
    return encoder, train, test


@pytest.fixture(scope="module")
def attacked(two_humps):
    return audit(*two_humps, quick=True)


def test_single_gaussians_on_two_humps_are_refuted(two_humps, attacked):
    encoder, _, test = two_humps
    certificate = certify(encoder, test, audit=attacked, target=0.1, n_draws=50_000)
    assert certificate.model_upper < 0.05, "the model sees two alike Gaussians"
    assert 0.25 < certificate.attack_lower < 0.41
    assert certificate.status == "REFUTED"
    assert "the densities err by at least" in repr(certificate)
    gaps = certificate.density_gap_lower
    assert gaps["0"] > 0.15, "the density of the two humps is the wrong one"
    assert certificate.model_with_gaps == pytest.approx(certificate.model_upper + sum(gaps.values()))
    assert "Δ̂ + gaps = " in repr(certificate)
    assert "no promise, because the gaps may be larger than measured" in repr(certificate)
    assert certificate.target < certificate.model_with_gaps, "and it decides on no status"
    assert verify(certificate, encoder, test)


def test_equalized_odds_of_the_model():
    table, _ = make_shifted_gaussians(1.0, 1500, random_state=0)
    train, test = table.split(test=0.5, validation=0)
    encoder = FairFlow(
        gamma=0.5, density=MixtureDensity(1), criterion="equalized_odds", n_epochs=3, n_blocks=2, hidden=(8,)
    )
    encoder.fit(train)
    certificate = certify(encoder, test, n_draws=5_000)
    bounds = [certificate.find("model", given=label).distance for label in ("0", "1")]
    assert all(0 < bound <= 1 for bound in bounds)
    assert [s.delta for s in certificate.statements] == [0.001, 0.0005, 0.0005], "those given a label together"


@pytest.mark.parametrize(("n_groups", "n"), [(2, 1_000_000), (4, 500_000)])
def test_no_more_draws_are_made_than_a_million_or_eight_millions_of_pairs(n_groups, n):
    assert _checked_draws(None, None, n_groups, 0) == n


def test_so_many_draws_are_made_as_the_bound_needs():
    encoder, rows = known([0.0, 0.1]), gaussian_rows([0.0, 0.1])
    certificate = certify(encoder, rows)
    assert 10_000 < certificate.n_draws < 100_000
    assert certificate.find("model").observed < certificate.model_upper < certificate.find("model").observed + 0.002
    assert verify(certificate, encoder, rows)

"""Certificates of continuous encoders: closed forms, refutation, better densities, densities given the label."""

import numpy as np
import pandas as pd
import pytest
import torch
from known_encoders import KnownGaussians
from scipy.stats import norm

from fairflows import Table
from fairflows.attack.auditing import audit
from fairflows.certificate.certify import certify
from fairflows.certificate.verify import verify
from fairflows.density import GroupDensities, MixtureDensity
from fairflows.encoder.fair_flow import FairFlow
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
    assert certificate.find("model").accuracy == pytest.approx((1 + certificate.model_upper) / 2, abs=1e-6)
    assert [(s.name, s.delta, s.accuracy_delta) for s in certificate.statements] == [("model row", 0.001, 0)]
    assert certificate.status == ("MODEL_ONLY" if certificate.model_upper < 1 else "NOT_MET")


def test_three_gaussians():
    """The worst pair's Δ, and A* of three groups: the middle one is guessed between the others."""
    encoder, rows = known([-1.0, 0.0, 1.0]), gaussian_rows([-1.0, 0.0, 1.0])
    certificate = certify(encoder, rows, n_draws=100_000)
    assert certificate.find("model").observed == pytest.approx(2 * norm.cdf(1) - 1, abs=0.004)
    accuracy = (2 * norm.cdf(0.5) + 2 * norm.cdf(0.5) - 1) / 3
    assert certificate.find("model").accuracy == pytest.approx(accuracy, abs=0.006)
    wanted = certify(encoder, rows, n_draws=100_000, max_adversary_accuracy=0.6)
    assert wanted.status == "MODEL_ONLY", "accuracy .589 of three groups, though the worst pair's is .84"


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
    table = Table(pd.DataFrame({"x": x, "a": a}), sensitive="a", kinds={"x": "continuous"})
    train, test = table.split(test=0.5, validation=0)
    encoder = FairFlow(gamma=1.0, density=MixtureDensity(1), n_epochs=10)
    return encoder.fit(train), train, test


@pytest.fixture(scope="module")
def attacked(two_humps):
    """What adversaries reach against the encoder."""
    return audit(*two_humps, quick=True)


def test_single_gaussians_on_two_humps_are_refuted(two_humps, attacked):
    encoder, _, test = two_humps
    certificate = certify(encoder, test, audit=attacked, target=0.1, n_draws=50_000)
    assert certificate.model_upper < 0.05, "the model sees two alike Gaussians"
    assert 0.25 < certificate.attack_lower < 0.41
    assert certificate.status == "REFUTED"
    assert certificate.density_error_lower == pytest.approx(certificate.attack_lower - certificate.model_upper)
    assert certificate.density_gap_lower["0"] > 0.15, "the density of the two humps is the wrong one"
    assert verify(certificate, encoder, test)


@pytest.fixture(scope="module")
def better(two_humps):
    """Densities that see both humps, fitted in the encoder's model space."""
    encoder, train, _ = two_humps
    x = torch.as_tensor(encoder.codec_.encode(train.X, train.persons.named_or_numbered())[0], dtype=torch.float32)
    group = train.group_numbers(encoder.groups_)
    return GroupDensities.fit(MixtureDensity(4), [x[group == a] for a in range(2)], random_state=0)


def test_a_better_density_sees_what_the_trained_one_did_not(two_humps, attacked, better):
    encoder, _, test = two_humps
    trained = certify(encoder, test, n_draws=50_000)
    certificate = certify(encoder, test, audit=attacked, density=better, n_draws=50_000)
    assert trained.model_upper < 0.05 < 0.3 < certificate.model_upper
    assert verify(certificate, encoder, test, density=better), "computed again with the same densities"
    assert not verify(certificate, encoder, test), "and not without them"
    assert "densities that were passed" in repr(certificate)
    assert attacked.density_gap_lower
    assert certificate.density_gap_lower == {}, "what the audit found is about the encoder's own densities"


def test_model_accuracy_at_priors():
    means, priors = [0.0, 1.0], (0.8, 0.2)
    certificate = certify(known(means), gaussian_rows(means), priors=priors, n_draws=100_000)
    z = np.linspace(-9, 10, 100_001)
    truth = np.trapezoid((np.array(priors) * norm.pdf(z[:, None], means)).max(axis=1), z)
    assert truth <= certificate.find("model").accuracy <= truth + 0.006
    assert certificate.find("model").accuracy_delta == 0.001, "a bound of its own"


def test_known_densities_certify_a_trained_flow():
    table, densities = make_shifted_gaussians(1.0, 1200, random_state=0)
    train, test = table.split(test=0.5, validation=0)
    encoder = FairFlow(gamma=0.9, density=densities, n_epochs=15, n_blocks=2, hidden=(16,)).fit(train)
    certificate = certify(encoder, test, n_draws=20_000)
    assert certificate.model_upper < 2 * norm.cdf(0.5) - 1, "training brought the groups together"
    found = audit(encoder, train, test, quick=True)
    assert found.attack_lower <= certificate.model_upper, "the densities are the truth: nothing to refute"


def test_equalized_odds_of_the_model():
    table, _ = make_shifted_gaussians(1.0, 1500, random_state=0)
    train, test = table.split(test=0.5, validation=0)
    encoder = FairFlow(
        gamma=0.5, density=MixtureDensity(1), criterion="equalized_odds", n_epochs=3, n_blocks=2, hidden=(8,)
    )
    encoder.fit(train)
    certificate = certify(encoder, test, n_draws=5_000)
    assert set(certificate.model_odds_upper) == {"0", "1"}
    assert all(0 < bound <= 1 for bound in certificate.model_odds_upper.values())
    assert [s.delta for s in certificate.statements] == [0.001, 0.0005, 0.0005], "those given a label together"
    other = certify(encoder, test, density=encoder.flow_.densities, n_draws=5_000)
    assert other.model_odds_upper == {}
    assert "other densities" in [a.key for a in other.assumptions]


def test_so_many_draws_are_made_as_the_bound_needs():
    encoder, rows = known([0.0, 0.1]), gaussian_rows([0.0, 0.1])
    certificate = certify(encoder, rows)
    assert 10_000 < certificate.n_draws < 100_000
    assert certificate.find("model").observed < certificate.model_upper < certificate.find("model").observed + 0.002
    assert verify(certificate, encoder, rows)

"""What every density over combinations must do."""

import numpy as np
import pytest

from fairflows.density.combinations import CombinationCounts, SmoothedCounts
from fairflows.density.estimated import CategoricalMADE

LEVELS = (3, 4, 2)
# The same steps once more: float32 sums may be taken in another order.
SAME_TRAINING = {"rtol": 0, "atol": 1e-3}
DENSITIES = {
    "made": lambda levels, n_epochs=8: CategoricalMADE(levels, hidden=(12, 12), n_epochs=n_epochs, n_batches=8),
    "counts": SmoothedCounts,
}


def fitted(density, codes, held_out):
    return density.fit(CombinationCounts.of(codes), CombinationCounts.of(held_out))


every_density = pytest.mark.parametrize("make", DENSITIES.values(), ids=DENSITIES)


@pytest.fixture(scope="module")
def law():
    """A law with dependence between all three variables."""
    return np.random.default_rng(3).dirichlet(np.full(np.prod(LEVELS), 0.5))


@pytest.fixture(scope="module")
def sample(law):
    return np.random.default_rng(4).choice(len(law), 4000, p=law)


@pytest.fixture(scope="module")
def validation(law):
    return np.random.default_rng(5).choice(len(law), 2000, p=law)


@pytest.fixture(scope="module", params=DENSITIES)
def density(request, sample, validation):
    settings = {"n_epochs": 30} if request.param == "made" else {}
    return fitted(DENSITIES[request.param](LEVELS, **settings), sample, validation)


def test_probabilities_of_all_combinations_sum_to_one_and_agree_with_log_prob(density):
    log_p = density.log_prob_of_all()
    assert log_p.dtype == np.float64
    assert abs(np.exp(log_p).sum() - 1.0) < 1e-10
    np.testing.assert_allclose(density.log_prob(np.arange(24)), log_p, atol=1e-10)


def test_estimate_is_nearer_to_the_law_than_independence_is(density, law):
    p = np.exp(density.log_prob_of_all())
    table = law.reshape(LEVELS)
    independent = np.einsum("i,j,k->ijk", table.sum((1, 2)), table.sum((0, 2)), table.sum((0, 1))).ravel()
    assert np.abs(p - law).sum() < 0.5 * np.abs(independent - law).sum()


def test_samples_follow_the_density(density):
    drawn = density.sample(100_000, np.random.default_rng(0))
    p = np.exp(density.log_prob_of_all())
    frequency = np.bincount(np.ravel_multi_index(drawn.T, LEVELS), minlength=24) / 100_000
    np.testing.assert_allclose(frequency, p, atol=5 * np.sqrt(0.25 / 100_000))


@every_density
def test_a_second_fit_repeats_the_first(make, sample):
    first, second = (fitted(make(LEVELS), sample, sample).log_prob_of_all() for _ in range(2))
    np.testing.assert_allclose(first, second, **SAME_TRAINING)


@every_density
def test_unseen_combinations_have_mass(make):
    seen = np.array([0, 23] * 50)
    assert np.isfinite(fitted(make(LEVELS), seen, seen).log_prob_of_all()).all()


@every_density
@pytest.mark.parametrize("levels", [(5,), (1,), (1, 4, 1), (2, 1)], ids=str)
def test_few_variables_and_variables_of_one_level(make, levels):
    x = np.random.default_rng(0).integers(0, np.prod(levels), 200)
    log_p = fitted(make(levels), x, x).log_prob_of_all()
    assert log_p.shape == (np.prod(levels),)
    assert abs(np.exp(log_p).sum() - 1.0) < 1e-10


@every_density
def test_spaces_too_large_to_enumerate_are_fitted_and_evaluated(make):
    levels = (30,) * 8
    x = np.ravel_multi_index(np.random.default_rng(0).integers(0, 3, (8, 300)), levels)
    density = fitted(make(levels), x, x)
    assert 0.0 < np.exp(density.log_prob(np.unique(x))).sum() <= 1.0
    assert density.sample(5, np.random.default_rng(0)).shape == (5, 8)


def test_made_keeps_its_best_epoch_on_validation_rows(sample):
    """Trained far too long on few rows, it is no worse on validation rows than a short training."""
    few, held_out = sample[:40], sample[40:1000]
    scores = []
    for n_epochs in (10, 150):
        made = CategoricalMADE(LEVELS, n_epochs=n_epochs, n_batches=2, weight_decay=0.0)
        model = fitted(made, few, held_out)
        scores.append(model.log_prob(held_out).mean())
    overfitted = fitted(CategoricalMADE(LEVELS, n_epochs=150, n_batches=2, weight_decay=0.0), few, few)
    assert scores[1] > overfitted.log_prob(held_out).mean() + 0.05
    assert scores[1] > scores[0] - 0.1


def test_counts_are_of_distinct_combinations():
    counts = CombinationCounts.of(np.array([0, 23, 0]))
    np.testing.assert_array_equal(counts.codes, [0, 23])
    np.testing.assert_array_equal(counts.weights, [2.0, 1.0])
    assert counts.mean(np.array([1.0, 4.0])) == pytest.approx(2.0)

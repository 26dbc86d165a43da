"""What every density over cells must do."""

import numpy as np
import pytest
import torch

from fairflows.density.cell_counts import (
    CellCounts,
    SmoothedCounts,
    cell_codes,
    cell_levels,
    log_prob_on_support,
)
from fairflows.density.made import CategoricalMADE, fit_together
from fairflows.exceptions import DataError

LEVELS = (3, 4, 2)
# The same steps once more: float32 sums may be taken in another order.
SAME_TRAINING = {"rtol": 0, "atol": 1e-3}
DENSITIES = {
    "made": lambda levels, n_epochs=8: CategoricalMADE(levels, hidden=(12, 12), n_epochs=n_epochs, n_batches=8),
    "counts": SmoothedCounts,
}
every_density = pytest.mark.parametrize("make", DENSITIES.values(), ids=DENSITIES)


@pytest.fixture(scope="module")
def law():
    """A law with dependence between all three variables."""
    return np.random.default_rng(3).dirichlet(np.full(np.prod(LEVELS), 0.5))


@pytest.fixture(scope="module")
def sample(law):
    return cell_levels(np.random.default_rng(4).choice(len(law), 4000, p=law), LEVELS)


@pytest.fixture(scope="module")
def validation(law):
    return cell_levels(np.random.default_rng(5).choice(len(law), 2000, p=law), LEVELS)


@pytest.fixture(scope="module", params=DENSITIES)
def density(request, sample, validation):
    """Fitted well."""
    settings = {"n_epochs": 30} if request.param == "made" else {}
    return DENSITIES[request.param](LEVELS, **settings).fit(sample, validation)


def test_probabilities_of_all_cells_sum_to_one_and_agree_with_log_prob(density):
    log_p = density.log_prob_of_all_cells()
    assert log_p.dtype == np.float64
    assert abs(np.exp(log_p).sum() - 1.0) < 1e-10
    np.testing.assert_allclose(density.log_prob(np.arange(24)), log_p, atol=1e-10)
    np.testing.assert_allclose(density.log_prob(cell_levels(np.arange(24), LEVELS)), log_p, atol=1e-10)


def test_estimate_is_nearer_to_the_law_than_independence_is(density, law):
    p = np.exp(density.log_prob_of_all_cells())
    table = law.reshape(LEVELS)
    independent = np.einsum("i,j,k->ijk", table.sum((1, 2)), table.sum((0, 2)), table.sum((0, 1))).ravel()
    assert np.abs(p - law).sum() < 0.5 * np.abs(independent - law).sum()


def test_samples_follow_the_density(density):
    drawn = density.sample(100_000, np.random.default_rng(0))
    p = np.exp(density.log_prob_of_all_cells())
    frequency = np.bincount(cell_codes(drawn, LEVELS), minlength=24) / 100_000
    np.testing.assert_allclose(frequency, p, atol=5 * np.sqrt(0.25 / 100_000))


@every_density
def test_a_weight_of_two_is_the_row_twice(make, sample, validation):
    weight = np.where(np.arange(len(sample)) % 3 == 0, 2.0, 1.0)
    weighted = make(LEVELS).fit(sample, validation, sample_weight=weight)
    repeated = make(LEVELS).fit(np.repeat(sample, weight.astype(int), axis=0), validation)
    np.testing.assert_allclose(weighted.log_prob_of_all_cells(), repeated.log_prob_of_all_cells(), **SAME_TRAINING)


@every_density
def test_codes_and_levels_fit_the_same_and_a_second_fit_repeats_the_first(make, sample):
    of_levels = make(LEVELS).fit(sample, sample)
    of_codes = make(LEVELS).fit(cell_codes(sample, LEVELS), sample)
    np.testing.assert_allclose(of_levels.log_prob_of_all_cells(), of_codes.log_prob_of_all_cells(), **SAME_TRAINING)


@every_density
def test_unseen_cells_have_mass(make):
    seen = np.array([[0, 0, 0], [2, 3, 1]] * 50)
    assert np.isfinite(make(LEVELS).fit(seen, seen).log_prob_of_all_cells()).all()


@every_density
@pytest.mark.parametrize("levels", [(5,), (1,), (1, 4, 1), (2, 1)], ids=str)
def test_few_variables_and_variables_of_one_level(make, levels):
    x = cell_levels(np.random.default_rng(0).integers(0, np.prod(levels), 200), levels)
    log_p = make(levels).fit(x, x).log_prob_of_all_cells()
    assert log_p.shape == (np.prod(levels),)
    assert abs(np.exp(log_p).sum() - 1.0) < 1e-10


@every_density
def test_spaces_too_large_to_enumerate_are_fitted_and_evaluated(make):
    levels = (30,) * 8
    x = np.random.default_rng(0).integers(0, 3, (300, 8))
    density = make(levels).fit(x, x)
    support = np.unique(cell_codes(x, levels))
    log_p, tails = log_prob_on_support([density], support)
    assert log_p.shape == (1, len(support))
    assert 0.0 <= tails[0] < 1.0
    assert density.sample(5, np.random.default_rng(0)).shape == (5, 8)


def test_the_tail_is_the_mass_outside_the_support(density):
    p = np.exp(density.log_prob_of_all_cells())
    support = np.array([0, 3, 5, 17])
    _, tails = log_prob_on_support([density], support)
    assert tails[0] == pytest.approx(np.delete(p, support).sum(), abs=1e-12)


@every_density
@pytest.mark.parametrize(
    ("x", "weight", "message"),
    [
        ([[0, 4, 0], [0, 0, 0]], None, "Variable 1 must be in 0..3; got 4 in row 0"),
        ([[0, 0, -1], [0, 0, 0]], None, "Variable 2 must be in 0..1; got -1 in row 0"),
        ([[0, 0], [0, 0]], None, r"shape \(n,\) or \(n, 3\)"),
        ([[0.5, 0.0, 0.0]], None, "must be integers"),
        ([0, 24], None, "A cell's code must be in 0..23; got 24 in row 1"),
        (np.zeros((0, 3), dtype=int), None, "at least one row"),
        ([0, 1], [1.0, -1.0], "sample_weight"),
        ([0, 1], [1.0], "sample_weight"),
        ([0, 1], [0.0, 0.0], "positive weight"),
    ],
)
def test_bad_cells_and_weights_are_refused(make, x, weight, message):
    with pytest.raises(DataError, match=message):
        make(LEVELS).fit(x, [0, 1], sample_weight=weight)


@pytest.mark.parametrize("levels", [(), (3, 0)], ids=str)
def test_bad_levels_are_refused(levels):
    with pytest.raises(ValueError, match="levels must name"):
        SmoothedCounts(levels)


def test_codes_beyond_64_bits_are_refused():
    with pytest.raises(DataError, match=r"codes need fewer than 2\*\*63"):
        SmoothedCounts([1000] * 22)


def test_codes_count_with_the_last_variable_fastest():
    codes = np.arange(24)
    np.testing.assert_array_equal(cell_levels(codes, LEVELS)[:3], [[0, 0, 0], [0, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(cell_codes(cell_levels(codes, LEVELS), LEVELS), codes)


def test_stacked_fit_equals_separate_fits(sample, validation):
    samples, validations = [sample, sample[:700], validation[:90]], [validation, validation[:300], sample[:50]]

    def models():
        return [CategoricalMADE(LEVELS, hidden=(12, 12), n_epochs=15, n_batches=8, random_state=k) for k in range(3)]

    together, alone = models(), models()
    fit_together(together, samples, validations, [None] * 3, [None] * 3)
    for model, stacked, x, held_out in zip(alone, together, samples, validations, strict=True):
        model.fit(x, held_out)
        np.testing.assert_allclose(stacked.log_prob_of_all_cells(), model.log_prob_of_all_cells(), **SAME_TRAINING)


def test_made_keeps_its_best_epoch_on_validation_rows(sample):
    """Trained far too long on few rows, it is no worse on validation rows than a short training."""
    few, held_out = sample[:40], sample[40:1000]
    scores = []
    for n_epochs in (10, 150):
        model = CategoricalMADE(LEVELS, n_epochs=n_epochs, n_batches=2, weight_decay=0.0).fit(few, held_out)
        scores.append(model.log_prob(held_out).mean())
    overfitted = CategoricalMADE(LEVELS, n_epochs=150, n_batches=2, weight_decay=0.0).fit(few, few)
    assert scores[1] > overfitted.log_prob(held_out).mean() + 0.05
    assert scores[1] > scores[0] - 0.1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_made_on_a_gpu_gives_the_same_kind_of_density(sample, validation):
    density = CategoricalMADE(LEVELS, n_epochs=5, device="cuda").fit(sample, validation)
    assert abs(np.exp(density.log_prob_of_all_cells()).sum() - 1.0) < 1e-10


def test_smoothed_counts_trust_large_samples_more(law):
    weights = []
    for n in (100, 100_000):
        codes = np.random.default_rng(0).choice(len(law), n, p=law)
        held_out = np.random.default_rng(1).choice(len(law), 20_000, p=law)
        weights.append(SmoothedCounts(LEVELS).fit(codes, held_out).weight_)
    assert weights[1] < 0.1 < weights[0]


def test_counts_are_of_distinct_cells():
    counts = CellCounts.of([[0, 0, 0], [2, 3, 1], [0, 0, 0]], LEVELS, [1.0, 0.5, 2.0])
    np.testing.assert_array_equal(counts.cells, [[0, 0, 0], [2, 3, 1]])
    np.testing.assert_array_equal(counts.weights, [3.0, 0.5])
    assert counts.mean(np.array([1.0, 8.0])) == pytest.approx(2.0)

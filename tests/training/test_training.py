"""Algorithm 1: its losses, its draws, its independence of the stack, and truths in closed form."""

import pytest
import torch
from torch import distributions as td

from fairflows.bijection import RealNVP, StackedMLP
from fairflows.density import GroupDensities, KnownDensity
from fairflows.steps import AdamSteps
from fairflows.training.algorithm1 import Batch, algorithm_1, draws_compared, log_prob_under_others
from fairflows.training.loop import (
    DivergedError,
    FreshDraws,
    GroupRows,
    TrainingSettings,
    single_objective_range,
    train,
)


def normal(mean, n_features=2):
    return KnownDensity(td.MultivariateNormal(torch.full((n_features,), float(mean)), torch.eye(n_features)))


def gaussians(n=400, n_groups=2, n_features=2):
    """Unit Gaussians one apart, with a label that both groups can learn."""
    densities = GroupDensities([normal(a, n_features) for a in range(n_groups)])
    x = list(densities.sample(n, torch.Generator().manual_seed(0)))
    return densities, GroupRows(x, [(x_a[:, 0] > a).long() for a, x_a in enumerate(x)])


def small(seeds, n_groups=2, n_features=2):
    bijection = RealNVP(n_features, n_groups=n_groups, n_blocks=2, hidden=(8,), seeds=seeds)
    return bijection, StackedMLP(n_features, (8,), 2, seeds=seeds)


@torch.no_grad()
def divergence(f, densities, x):
    return algorithm_1(f, None, densities, Batch(x, densities.log_prob(x)), torch.ones(f.n_models)).L_KL


SETTINGS = TrainingSettings(epochs=4, batch_size=100, ramp_epochs=2)
# The same steps once more: float32 sums may be taken in another order.
SAME_TRAINING = {"rtol": 1e-4, "atol": 1e-5}


def test_stacked_training_equals_separate_training():
    densities, data = gaussians()
    gamma, seeds = [0.0, 0.1, 0.9, 0.1], [1, 1, 1, 2]
    bijection, head = small(seeds)
    together = train(bijection, head, densities, data, gamma=gamma, seeds=seeds, settings=SETTINGS)
    for m in range(4):
        f, h = small(seeds[m : m + 1])
        alone = train(f, h, densities, data, gamma=gamma[m : m + 1], seeds=seeds[m : m + 1], settings=SETTINGS)
        torch.testing.assert_close(together.joint[:, m], alone.joint[:, 0], **SAME_TRAINING)
        for one, all_ in zip(f.parameters(), bijection.select(m).parameters(), strict=True):
            torch.testing.assert_close(one, all_, rtol=1e-3, atol=1e-4)


def test_one_step_is_that_of_the_paper():
    """The losses of a step against the paper's formulas, written with torch.distributions, group by group."""
    densities, data = gaussians()
    batches = FreshDraws(data, densities, seeds=[1], batch_size=50).take(1)
    f, h = small([3])
    for parameter in f.parameters():
        parameter.data[:, 1] *= 1.5  # two different encoders
    x = batches.x[0, 0]
    f0, f1 = f.select_group(0), f.select_group(1)
    p0, p1 = (td.MultivariateNormal(torch.full((2,), float(a)), torch.eye(2)) for a in (0, 1))

    def one(move, points):
        moved, log_det = move(points)
        return moved[0, 0], log_det[0, 0]

    def log_p_z(encoder, density, z):
        points, log_det = one(encoder.inverse, z)
        return density.log_prob(points) + log_det

    z0, z1 = one(f0.forward, x[0, 50:])[0], one(f1.forward, x[1, 50:])[0]
    kl0 = (log_p_z(f0, p0, z0) - log_p_z(f1, p1, z0)).mean()
    kl1 = (log_p_z(f1, p1, z1) - log_p_z(f0, p0, z1)).mean()
    task = [
        torch.nn.functional.cross_entropy(h(one(encoder.forward, x[a, :50])[0])[0], batches.y[0, 0, a])
        for a, encoder in enumerate((f0, f1))
    ]
    step = algorithm_1(f, h, densities, Batch(*(part[0] for part in batches)), torch.tensor([0.3]))
    torch.testing.assert_close(step.L_KL[0], (kl0 + kl1) / 2, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(step.L_clf[0], (task[0] + task[1]) / 2, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(step.L[0], 0.3 * step.L_KL[0] + 0.7 * step.L_clf[0])


@pytest.mark.parametrize(("K", "n", "rel"), [(3, 50_000, 0.01), (9, 30_000, 0.02)], ids=["all pairs", "shares"])
def test_the_divergence_is_the_mean_over_pairs(K, n, rel):
    """KL(a‖b) = |a − b|²·D/2 of unit Gaussians, in closed form; of many groups it is estimated from shares of draws."""
    densities, _ = gaussians(n_groups=K)
    f, _ = small([0], n_groups=K)  # all groups share one map at the start, so the divergences are those in x
    x = densities.sample(n, torch.Generator().manual_seed(0))
    expected = sum((a - b) ** 2 for a in range(K) for b in range(K)) / (K * (K - 1))  # D/2 = 1
    assert float(divergence(f, densities, x)) == pytest.approx(expected, rel=rel)


@pytest.mark.parametrize("n_labels", [1, 2])
def test_draws_are_evaluated_under_every_other_group(n_labels):
    K, n = 3, 20
    members = [[normal(a + 5 * label) for label in range(n_labels)] for a in range(K)]
    densities = GroupDensities(members).double()
    f = RealNVP(2, n_groups=K, n_blocks=2, hidden=(8,), seeds=[0, 1]).double()
    for parameter in f.parameters():
        parameter.data *= torch.arange(1.0, K + 1).view(1, K, *[1] * (parameter.ndim - 2))  # three different encoders
    z = torch.randn(2, K, n_labels * n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = log_prob_under_others(f, densities, draws_compared(z, n_labels))
    for a in range(K):
        for place, b in enumerate([(a - 1) % K, (a - 2) % K]):
            x, log_det = f.select_group(b).inverse(z[:, a : a + 1])
            blocks = x[:, 0].split(n, dim=1)
            log_p = torch.cat([members[b][label].log_prob(block) for label, block in enumerate(blocks)], dim=1)
            torch.testing.assert_close(found[:, a, place], log_p + log_det[:, 0])


@pytest.mark.parametrize(("n_groups", "n"), [(4, 12), (8, 28), (8, 10), (60, 7)])
def test_draws_are_shared_out_among_many_groups(n_groups, n):
    """Each draw of a label is compared with as many other groups as any other, up to one; of few groups with all."""
    draws = torch.arange(2 * n).expand(3, n_groups, -1)
    compared = draws_compared(draws, n_labels=2, most=4)
    share = min(n, -(-4 * n // (n_groups - 1)))
    assert compared.shape == (3, n_groups, n_groups - 1, 2 * share)
    first, second = compared.unflatten(3, (2, share)).unbind(3)
    assert torch.equal(second, first + n), "the same draws of both labels"
    assert all(len(part.unique()) == share for part in first[0, 0]), "no draw twice with one group"
    times = torch.bincount(first[0, 0].flatten(), minlength=n)
    assert times.sum() == share * (n_groups - 1)
    if n % (n_groups - 1) == 0 or n_groups <= 5:
        assert (times == min(4, n_groups - 1)).all()
    assert times.min() >= 1


def test_gamma_rises_and_the_learning_rate_falls(monkeypatch):
    densities, data = gaussians()
    f, h = small([3])
    rates = []
    original = AdamSteps.set_learning_rate
    monkeypatch.setattr(
        AdamSteps, "set_learning_rate", lambda self, rate: (rates.append(rate), original(self, rate))[1]
    )
    settings = TrainingSettings(epochs=6, batch_size=400, ramp_epochs=4, learning_rate=0.01)
    result = train(f, h, densities, data, gamma=[0.8], seeds=[3], settings=settings)
    assert rates == pytest.approx([0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001])
    weight = (result.joint - result.task) / (result.kl - result.task)  # joint = γ kl + (1 − γ) task
    torch.testing.assert_close(weight[:, 0], torch.tensor([0.2, 0.4, 0.6, 0.8, 0.8, 0.8]), rtol=1e-3, atol=1e-3)


def test_weights_that_decay_become_zero():
    """Numbers next to zero would make every product of a processor many times as slow."""
    dead, alive = torch.full((100,), 1e-3).requires_grad_(), torch.ones(2).requires_grad_()
    steps = AdamSteps(
        lambda: (dead * 0).sum() + (alive - 2).square().sum(), [dead, alive], learning_rate=1e-3, weight_decay=1e-5
    )
    dead.data[:50] = torch.logspace(-45, -21, 50)
    for _ in range(32):
        steps.step()
    assert (dead[:40] == 0).all()
    for state in steps._adam.state.values():
        for smallest, kept in ((1e-20, state["exp_avg"]), (1e-36, state["exp_avg_sq"])):
            assert ((kept == 0) | (kept.abs() >= smallest)).all()
    assert (alive > 1).all()


def test_models_of_one_seed_share_batches_and_memory_does_not_grow_with_rows():
    densities, data = gaussians(n=100)
    few = FreshDraws(data, densities, seeds=[5, 5, 6, 5], batch_size=10)
    densities, data = gaussians(n=50_000)
    many = FreshDraws(data, densities, seeds=[5, 5, 6, 5], batch_size=10)
    assert few.streams.tolist() == [0, 0, 1, 0]
    assert few.take(3).x.shape == many.take(3).x.shape == (3, 2, 2, 20, 2)


def test_chebyshev_takes_the_larger_of_the_losses_each_normalised_to_its_range():
    densities, data = gaussians()
    settings = TrainingSettings(epochs=4, batch_size=400, ramp_epochs=2, scalarisation="chebyshev")
    gamma, seeds = [0.2, 0.8, 0.0], [3, 4, 3]
    f, h = small(seeds)
    bounds = single_objective_range(f, h, densities, data, seeds=seeds, settings=settings)
    result = train(f, h, densities, data, gamma=gamma, seeds=seeds, settings=settings)
    weight = torch.tensor(gamma)
    (low_kl, high_kl), (low_task, high_task) = bounds.L_KL, bounds.L_clf
    convex = weight * result.kl + (1 - weight) * result.task
    larger = torch.maximum(
        weight * (result.kl - low_kl) / (high_kl - low_kl),
        (1 - weight) * (result.task - low_task) / (high_task - low_task),
    )
    torch.testing.assert_close(result.joint[1], convex[1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(result.joint[2:], larger[2:], rtol=1e-3, atol=1e-3)


def test_the_range_of_a_loss_is_that_of_a_model_trained_on_it_alone():
    densities, data = gaussians()
    bounds = single_objective_range(*small([3, 4, 3]), densities, data, seeds=[3, 4, 3], settings=SETTINGS)
    for m, seed in enumerate([3, 4, 3]):
        for row, gamma, found in ((0, 0.0, bounds.L_clf), (1, 1.0, bounds.L_KL)):
            alone = train(*small([seed]), densities, data, gamma=[gamma], seeds=[seed], settings=SETTINGS)
            expected = torch.stack([alone.lowest[row, 0], alone.highest[row, 0]])
            torch.testing.assert_close(found[:, m], expected, rtol=1e-4, atol=1e-5)


def test_a_diverged_model_is_reported_and_leaves_the_others_alone():
    densities, data = gaussians()
    f, h = small([3, 4])
    for parameter in f.parameters():
        parameter.data[0] *= 1e20
    with pytest.warns(RuntimeWarning, match=r"1 of 2 models did not stay finite \(models \[0\].*lower learning_rate"):
        result = train(f, h, densities, data, gamma=[0.3, 0.3], seeds=[4, 4], settings=SETTINGS)
    assert result.diverged.tolist() == [True, False]
    alone = train(*small([4]), densities, data, gamma=[0.3], seeds=[4], settings=SETTINGS)
    torch.testing.assert_close(result.joint[:, 1], alone.joint[:, 0], **SAME_TRAINING)


def test_when_all_models_diverge_the_error_says_what_to_lower():
    densities, data = gaussians()
    f, h = small([3])
    for parameter in f.parameters():
        parameter.data *= 1e20
    with pytest.raises(DivergedError, match="lower learning_rate"):
        train(f, h, densities, data, gamma=[0.3], seeds=[3], settings=SETTINGS)


def test_a_model_with_gamma_zero_outlives_densities_that_are_zero():
    """Positive rows and negative ones: a match has density zero at the start, and only the task may count."""
    positive = td.Gamma(torch.full((2,), 2.0), torch.ones(2))
    mirrored = td.TransformedDistribution(positive, td.AffineTransform(0.0, -1.0))
    densities = GroupDensities([KnownDensity(td.Independent(side, 1)) for side in (positive, mirrored)])
    x = list(densities.sample(300, torch.Generator().manual_seed(0)))
    data = GroupRows(x, [(x_a[:, 0].abs() > 1.7).long() for x_a in x])
    settings = TrainingSettings(epochs=3, batch_size=100)
    f, h = small([0, 1])
    with pytest.warns(RuntimeWarning, match=r"1 of 2 models .*\[0\.5\]"):
        result = train(f, h, densities, data, gamma=[0.0, 0.5], seeds=[0, 1], settings=settings)
    assert result.diverged.tolist() == [False, True]
    assert not torch.isfinite(result.kl[0, 0])
    assert result.task[-1, 0] < result.task[0, 0]

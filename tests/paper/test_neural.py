"""The neural baselines: the same interface, stacked training equals separate training, the losses' formulas."""

import numpy as np
import pytest
import torch

from fairflows import DataError
from fairflows.paper import make_gaussians
from fairflows.paper.baselines import FCRL, LAFTR, AdversarialEncoder, AdversarialForgetting, MaxEntARL, neural
from fairflows.paper.baselines.adversarial import NormalisedL1, absolute_error
from fairflows.paper.baselines.fcrl import Critic
from fairflows.paper.baselines.neural import BaselineBatch, TaskRows

KEY = bytes(range(32))
ALL = [AdversarialEncoder, LAFTR, MaxEntARL, AdversarialForgetting, FCRL]


@pytest.fixture(scope="module")
def blobs():
    """Two groups; the index names the persons."""
    table = make_gaussians(600, random_state=0)[0]
    table.X.index.name = "person"
    return table


def made(baseline, **settings):
    """The baseline with a key where it has one, so that two fits give a person the same noise."""
    keyed = {"key": KEY, "identifier": "person"} if baseline is FCRL else {}
    return baseline(**settings, **keyed)


def encoded(encoder, blobs):
    needed = {"sensitive_features": blobs.a} if encoder.traits.needs_attribute else {}
    return encoder.transform(blobs.X, **needed)


@pytest.mark.parametrize("baseline", ALL)
def test_many_seeds_in_one_run_are_each_what_they_would_be_alone(baseline, blobs):
    settings = {"n_epochs": 3, "batch_size": 64, "learning_rate": 1e-3}
    weight = baseline().traits.strength
    strengths = [getattr(baseline(), weight), 0.5]
    together = made(baseline, **settings).fit_path(
        blobs.X, blobs.y, sensitive_features=blobs.a, strengths=strengths, seeds=[3, 4, 5]
    )
    alone = made(baseline, **{weight: 0.5}, random_state=4, **settings)
    alone.fit(blobs.X, blobs.y, sensitive_features=blobs.a)
    assert getattr(together[4], weight) == 0.5
    assert together[4].random_state == 4
    assert np.allclose(encoded(together[4], blobs), encoded(alone, blobs), atol=1e-5)
    assert not np.allclose(encoded(together[3], blobs), encoded(alone, blobs), atol=1e-3)


@pytest.mark.parametrize(("baseline", "in_22_batches"), [
    (AdversarialEncoder, (22, 22)),
    (LAFTR, (22, 22)),
    (MaxEntARL, (11, 11)),
    (AdversarialForgetting, (2, 20)),
    (FCRL, (22, 0)),
])  # fmt: skip
def test_whose_turn_it_is(baseline, in_22_batches, blobs, monkeypatch):
    """Steps of the encoder's side, and of the adversary, as in the methods' own sources."""
    steps = {}

    class Counted(neural.AdamSteps):
        def step(self):
            steps[self] = steps.get(self, 0) + 1
            super().step()

    monkeypatch.setattr(neural, "AdamSteps", Counted)
    made(baseline, n_epochs=11, batch_size=300).fit(blobs.X, blobs.y, sensitive_features=blobs.a)
    assert sorted(steps.values()) == sorted(filter(None, in_22_batches))


def test_the_price_confuses_the_adversary_that_it_is_paid_for(blobs):
    """The discriminator of MaxEnt-ARL reads the group where hiding is free of charge, and is unsure where it pays."""
    encoders = MaxEntARL(n_epochs=60, learning_rate=1e-3).fit_path(
        blobs.X, blobs.y, sensitive_features=blobs.a, strengths=[0.0, 10.0], seeds=[0]
    )
    sure = []
    for encoder in encoders:
        z = torch.tensor(encoded(encoder, blobs).to_numpy(copy=True), dtype=torch.float32)
        sure.append(encoder.players_.adversary(z[None])[0].softmax(-1).max(-1).values.mean().item())
    assert sure[0] > 0.75
    assert sure[1] < 0.6


def some_rows(n_classes=2):
    """Six rows of two groups; the second group is the smaller."""
    a, y = torch.tensor([0, 0, 0, 0, 1, 1]), torch.tensor([0, 0, 0, 1, 0, 1])
    return TaskRows(torch.zeros(6, 3), y, a, n_classes, 2)


def test_the_error_of_a_sure_adversary_is_one_less_the_parity_distance():
    rows = some_rows()
    says = torch.tensor([[0, 0, 0, 1, 1, 0]])
    logits = 100.0 * torch.nn.functional.one_hot(says, 2).float()
    weights = NormalisedL1(LAFTR(), rows, [0]).weights
    assert weights.tolist() == [6 / 4, 6 / 2]
    error = (weights[rows.a] * absolute_error(logits, rows.a[None])).mean().item()
    assert 1 - error == pytest.approx(abs(1 / 4 - 1 / 2))


def test_forgetting_moves_the_mask_and_not_the_code(blobs):
    encoder = AdversarialForgetting(n_epochs=1).fit(blobs)
    players = encoder.players_.requires_grad_(True)
    x = torch.tensor(blobs.X.to_numpy(np.float32, copy=True))[None]
    batch = BaselineBatch(x, torch.tensor(blobs.y.tolist())[None], torch.tensor(blobs.a.tolist())[None], x[..., :0])
    free, paid = (players.loss(batch, torch.tensor([delta])).sum() for delta in (0.0, 1.0))
    networks = {"code": players.encoder, "mask": players.mask}
    for name, network in networks.items():
        weights = list(network.parameters())
        without, with_price = (
            torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights, retain_graph=True)])
            for loss in (free, paid)
        )
        assert torch.allclose(without, with_price, atol=1e-7) == (name == "code")


def test_the_contrastive_estimate():
    """Nothing where z is the same for all; at most the logarithm of the group's rows in the batch."""
    critic = Critic(3, (8,), 2, 2, seeds=[0, 1])
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 40, 3, generator=generator)
    a = torch.arange(40).remainder(2).expand(2, -1)
    nothing = critic.information(x, torch.ones(2, 40, 2), a)
    assert nothing.abs().max().item() < 1e-5
    z = 30 * torch.randn(2, 40, 2, generator=generator)
    assert (critic.information(x, z, a) <= np.log(20) + 1e-5).all()


def test_a_strong_fcrl_hides_more(blobs):
    weak, strong = made(FCRL, n_epochs=40, learning_rate=5e-3).fit_path(
        blobs.X, blobs.y, sensitive_features=blobs.a, strengths=[0.001, 10.0], seeds=[0]
    )
    assert (weak.predict(blobs.X) == blobs.y).mean() > 0.95

    def told(encoder):
        """How well the nearest group mean of z recovers the group."""
        Z = encoder.transform(blobs.X).to_numpy()
        means = np.stack([Z[blobs.a == g].mean(axis=0) for g in (0, 1)])
        return (((Z[:, None] - means) ** 2).sum(axis=-1).argmin(axis=1) == blobs.a).mean()

    assert told(weak) > told(strong) + 0.05


def test_errors_name_what_is_wrong(blobs):
    with pytest.raises(ValueError, match="gamma must be in"):
        AdversarialEncoder(1.5).fit(blobs.X, blobs.y, sensitive_features=blobs.a)
    with pytest.raises(ValueError, match="alpha must be at least 0"):
        MaxEntARL(-1).fit(blobs.X, blobs.y, sensitive_features=blobs.a)
    with pytest.raises(DataError, match="pass y"):
        LAFTR().fit(blobs.X, sensitive_features=blobs.a)

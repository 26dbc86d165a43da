"""The adversarial baselines: the same interface, stacked training equals separate training, the losses' formulas."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from fairflows import certify, make_gaussians, make_three_groups
from fairflows.certificate.identification import model_hash
from fairflows.exceptions import DataError
from fairflows.paper.baselines import LAFTR, AdversarialEncoder, AdversarialForgetting, MaxEntARL
from fairflows.paper.baselines.adversarial import separation
from fairflows.release.cell_release import CellRelease

ALL = [AdversarialEncoder, LAFTR, MaxEntARL, AdversarialForgetting]


@pytest.fixture(scope="module")
def blobs():
    return make_gaussians(600, random_state=0)[0]


@pytest.mark.parametrize("baseline", ALL)
def test_fit_transform_predict(baseline, blobs):
    encoder = baseline(n_epochs=3).fit(blobs.X, blobs.y, sensitive_features=blobs.a)
    Z = encoder.transform(blobs.X)
    assert isinstance(Z, pd.DataFrame)
    assert list(Z) == encoder.get_feature_names_out().tolist()
    assert Z.index.equals(blobs.X.index)
    assert np.isfinite(Z).all(axis=None)
    assert set(encoder.predict(blobs.X)) <= {0, 1}
    assert np.allclose(Z, encoder.transform(blobs.X, sensitive_features=blobs.a))
    with pytest.raises(NotFittedError):
        clone(encoder).transform(blobs.X)


@pytest.mark.parametrize("baseline", ALL)
def test_many_seeds_in_one_run_are_each_what_they_would_be_alone(baseline, blobs):
    settings = {"n_epochs": 2, "batch_size": 64}
    weight = baseline.strength_name
    strengths = [getattr(baseline(), weight), 0.5]
    together = baseline(**settings).fit_many(
        blobs.X, blobs.y, sensitive_features=blobs.a, strengths=strengths, seeds=[3, 4, 5]
    )
    alone = baseline(**{weight: 0.5}, random_state=4, **settings).fit(blobs.X, blobs.y, sensitive_features=blobs.a)
    assert getattr(together[4], weight) == 0.5
    assert together[4].random_state == 4
    assert np.allclose(together[4].transform(blobs.X), alone.transform(blobs.X), atol=1e-5)
    assert not np.allclose(together[3].transform(blobs.X), alone.transform(blobs.X), atol=1e-3)


@pytest.mark.parametrize("baseline", ALL)
def test_the_attribute_may_be_a_column_and_is_never_a_feature(baseline, blobs):
    data = blobs.X.assign(a=blobs.a)
    named = baseline(n_epochs=2, sensitive="a").fit(data, blobs.y)
    passed = baseline(n_epochs=2).fit(blobs.X, blobs.y, sensitive_features=blobs.a)
    assert np.allclose(named.transform(data), passed.transform(blobs.X))


def test_categories_and_three_groups():
    table, _ = make_three_groups(300, random_state=0)
    X = table.X.assign(kind=np.where(table.X["x1"] > 0, "right", "left"))
    encoder = MaxEntARL(n_epochs=2).fit(X, table.y, sensitive_features=table.a)
    assert encoder.players_.adversary.weights[-1].shape[-1] == 3
    assert encoder.transform(X).shape == (300, encoder.n_latent)


def test_without_price_the_task_is_learnt(blobs):
    free = AdversarialEncoder(0.0, n_epochs=30, learning_rate=0.01)
    encoder = free.fit(blobs.X, blobs.y, sensitive_features=blobs.a)
    assert (encoder.predict(blobs.X) == blobs.y).mean() > 0.97


def test_the_price_confuses_the_adversary_that_it_is_paid_for(blobs):
    """The discriminator of MaxEnt-ARL reads the group where hiding is free of charge, and is unsure where it pays."""
    encoders = MaxEntARL(n_epochs=20).fit_many(
        blobs.X, blobs.y, sensitive_features=blobs.a, strengths=[0.0, 10.0], seeds=[0]
    )
    sure = []
    for encoder in encoders:
        z = torch.tensor(encoder.transform(blobs.X).to_numpy(copy=True), dtype=torch.float32)
        sure.append(encoder.players_.adversary(z[None])[0].softmax(-1).max(-1).values.mean().item())
    assert sure[0] > 0.75
    assert sure[1] < 0.6


def test_separation_is_the_parity_distance_of_a_sure_adversary():
    a = torch.tensor([[0, 0, 0, 0, 1, 1]])
    says = torch.tensor([[0, 0, 0, 1, 1, 0]])
    logits = 100.0 * torch.nn.functional.one_hot(says, 2).float()
    assert separation(logits, a).item() == pytest.approx(abs(1 / 4 - 1 / 2))


def test_cells_of_a_baseline_can_be_certified(blobs):
    train, _, test = blobs.split()
    release = CellRelease(LAFTR(n_epochs=1), 4).fit(train)
    assert 0 < certify(release, test).cell_upper <= 1


def test_nothing_is_certified_of_the_latent_of_a_baseline(blobs):
    train, _, test = blobs.split()
    encoder = LAFTR(n_epochs=1).fit(train)
    assert encoder.latent_law() is None
    certificate = certify(encoder, test)
    assert certificate.status == "NOT_MET"
    assert certificate.cell_upper is certificate.model_upper is None


def test_the_name_of_a_model_depends_on_what_it_learnt(blobs):
    one, other = (LAFTR(n_epochs=1).fit(blobs.X, y, sensitive_features=blobs.a) for y in (blobs.y, 1 - blobs.y))
    assert model_hash(one, b"key") == model_hash(pickle.loads(pickle.dumps(one)), b"key")
    assert model_hash(one, b"key") != model_hash(other, b"key")


def test_errors_name_what_is_wrong(blobs):
    with pytest.raises(ValueError, match="gamma must be in"):
        AdversarialEncoder(1.5).fit(blobs.X, blobs.y, sensitive_features=blobs.a)
    with pytest.raises(ValueError, match="alpha must be at least 0"):
        MaxEntARL(-1).fit(blobs.X, blobs.y, sensitive_features=blobs.a)
    with pytest.raises(DataError, match="pass y"):
        LAFTR().fit(blobs.X, sensitive_features=blobs.a)
    with pytest.raises(DataError, match="sample_weight"):
        LAFTR().fit(blobs.X, blobs.y, sensitive_features=blobs.a, sample_weight=np.ones(600))

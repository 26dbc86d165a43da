"""FairFlow with a user's own bijection and densities: fitted, judged, copied, saved and loaded like ours."""

import numpy as np
import pytest
import torch
from pandas.testing import assert_frame_equal
from sklearn.base import clone

from fairflows import DataError, FairFlow, Release, audit, certify, load, save, verify
from fairflows.certificate.model_hash import model_hash
from fairflows.encoder.base import is_fitted
from fairflows.paper import make_gaussians
from own_parts import Linear, Normal

pytestmark = [
    pytest.mark.usefixtures("few_trees"),
    pytest.mark.filterwarnings("ignore:Values outside the training range"),
]
QUICK = {"n_epochs": 3, "head": (8,), "turn": False, "identifier": "who"}


@pytest.fixture(scope="module")
def parts():
    table, _ = make_gaussians(1500)
    table.identifier = table.X.index.to_series().rename("who")
    return table.split(random_state=0)


@pytest.fixture(scope="module")
def with_linear(parts):
    train, _, _ = parts
    return FairFlow(0.5, bijection=Linear(7, start=0.2), density=Normal(0.1), **QUICK).fit(train)


def test_own_bijection_and_density_encode_and_decode(parts, with_linear):
    _, _, test = parts
    assert type(with_linear.flow_.bijection) is Linear
    assert with_linear.flow_.bijection.n_features == 2  # as many as the table has, whatever the given one had
    assert all(type(member) is Normal for member in with_linear.flow_.densities.members)
    Z = with_linear.transform(test)
    assert not np.allclose(Z, test.X, atol=0.1)
    back = with_linear.inverse_transform(Z.set_axis(test.identifier, axis=0), sensitive_features=test.a)
    np.testing.assert_allclose(back, test.X, atol=1e-9)


def test_the_given_bijection_is_a_setting_and_stays_as_it_is(with_linear):
    given = with_linear.get_params()["bijection"]
    assert (given.n_features, given.start, given.n_models, given.n_groups) == (7, 0.2, 1, 2)
    copied = clone(with_linear)
    assert type(copied.bijection) is Linear
    assert copied.bijection.start == 0.2
    assert not is_fitted(copied)


def test_own_bijections_are_audited_and_certified(parts, with_linear):
    train, validation, test = parts
    found = audit(with_linear, train, test, quick=True)
    assert any(attack.box == "open" for attack in found.attacks)
    certificate = certify(with_linear, test, audit=found, n_draws=2000)
    assert certificate.model_upper < 1
    assert verify(certificate, with_linear, test)
    cells = Release(clone(with_linear), n_cells=4, output="cell").fit(train)
    assert certify(cells, validation).cell_upper < 1


class Forgetful(Linear):
    """Does not keep a setting that it takes."""

    def __init__(self, n_features, *, n_groups=2, depth=3, seeds=(0,)):
        super().__init__(n_features, n_groups=n_groups, seeds=seeds)


class WrongLogDet(Linear):
    """Right where it starts, and wrong as soon as it is trained."""

    def forward(self, x):
        z, log_det = super().forward(x)
        return z, torch.zeros_like(log_det)


@pytest.mark.parametrize(
    ("bijection", "message"),
    [
        (Forgetful(2), "Forgetful must take n_features, n_groups and seeds, and keep .* attribute 'depth'"),
        (WrongLogDet(2), "log_det in forward of WrongLogDet must be that of its Jacobian"),
    ],
)
def test_a_bijection_that_breaks_the_contract_is_not_trained(bijection, message, parts):
    train, _, _ = parts
    with pytest.raises(ValueError, match=message):
        FairFlow(bijection=bijection, **QUICK).fit(train)


def assert_same_model(one, other, table):
    assert_frame_equal(one.transform(table), other.transform(table), rtol=1e-9, atol=1e-9)
    laws = (model.latent_law().log_density_table(20) for model in (one, other))
    np.testing.assert_allclose(*laws, rtol=1e-9, atol=1e-9)
    assert model_hash(one, b"key") == model_hash(other, b"key")


def test_own_bijection_and_density_are_saved_without_their_code(parts, with_linear, tmp_path):
    _, _, test = parts
    save(with_linear, tmp_path / "model")
    with pytest.raises(
        DataError, match=r"holds a Linear of its maker's own: pass that class, load\(path, own=\[Linear"
    ):
        load(tmp_path / "model")
    with pytest.raises(DataError, match="holds a Normal of its maker's own"):
        load(tmp_path / "model", own=[Linear])
    again = load(tmp_path / "model", own=[Linear, Normal])
    assert_same_model(again, with_linear, test)
    assert (again.bijection.start, again.density.shrinkage) == (0.2, 0.1)
    save(again, tmp_path / "again")
    assert_same_model(load(tmp_path / "again", own=[Normal, Linear]), with_linear, test)


def test_a_bijection_whose_code_has_changed_is_not_loaded(with_linear, tmp_path):
    class Changed(Linear):
        def forward(self, x):
            z, log_det = super().forward(x)
            return z.flip(-1), log_det

    Changed.__name__ = "Linear"
    save(with_linear, tmp_path / "model")
    with pytest.raises(DataError, match="Linear is another map than when the model was saved: its code has changed"):
        load(tmp_path / "model", own=[Changed, Normal])

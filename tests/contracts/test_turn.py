"""The label turn: which groups are turned, and that a turn is a reflection that changes no density."""

import pytest
import torch

from fairflows import FairFlow, load, save
from fairflows.bijection import RealNVP
from fairflows.bijection.turn import Turned, opposed_groups
from fairflows.paper import make_gaussians, make_three_groups

CENTRE = torch.tensor([[1.0, 2.0], [1.0, 2.0]])


@pytest.fixture
def turned():
    """Group 1 of two groups of two models is turned about (1, 2)."""
    flows = RealNVP(2, n_blocks=3, hidden=(7,), seeds=(0, 1))
    for parameter in flows.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    return Turned.about([CENTRE, CENTRE], [False, True], flows).double()


def test_a_turn_is_the_flow_of_the_reflected_point(turned):
    x = torch.randn(2, 2, 5, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    z, log_det = turned.forward(x)
    reflected = torch.stack([x[:, 0], 2 * CENTRE[0] - x[:, 1]], dim=1)
    expected, expected_log_det = turned.bijection.forward(reflected)
    torch.testing.assert_close(z, expected)
    torch.testing.assert_close(log_det, expected_log_det)  # a reflection has determinant ±1
    for flow in (turned, turned.prepared()):
        back, log_det_back = flow.inverse(z)
        torch.testing.assert_close(back, x, rtol=0, atol=1e-9)
        torch.testing.assert_close(log_det_back, -log_det, rtol=0, atol=1e-9)
    for m, k in ((0, 1), (1, 0)):
        alone = turned.select(m).select_group(k)
        torch.testing.assert_close(alone.forward(x[m : m + 1, k : k + 1])[0], z[m : m + 1, k : k + 1])
    again = Turned.from_dict(turned.to_dict())
    torch.testing.assert_close(again.forward(x)[0], z)


def rows_at(means: dict[int, tuple[float, float]], n: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of each class about its mean, with their classes."""
    y = torch.tensor(list(means)).repeat_interleave(n)
    centres = torch.tensor(list(means.values())).repeat_interleave(n, dim=0)
    return centres + 0.1 * torch.randn(centres.shape, generator=torch.Generator().manual_seed(0)), y


@pytest.mark.parametrize(
    ("other", "opposed"),
    [
        ({0: (5.0, 0.0), 1: (6.0, 0.5)}, False),
        ({0: (5.0, 0.0), 1: (4.0, 0.5)}, True),
        ({0: (5.0, 0.0), 1: (6.0, -9.0)}, False),  # at an angle, but not opposed
        ({1: (5.0, 0.0), 2: (4.0, 0.0)}, True),  # the classes that both groups have
        ({0: (0.0, 0.0)}, False),  # a single class points nowhere
    ],
)
def test_groups_whose_classes_lie_the_other_way_round(other, opposed):
    largest = rows_at({0: (0.0, 0.0), 1: (1.0, 0.0), 2: (2.0, 0.0)})
    rows, labels = zip(rows_at(other), largest, strict=True)
    assert opposed_groups(rows, labels) == [opposed, False]


def test_the_blobs_are_turned_and_found_from_one_start():
    """Without the turn this start ends with an accuracy of about .6."""
    table, densities = make_gaussians(1000, random_state=0)
    settings = {"gamma": 0.8, "density": densities, "n_epochs": 30, "batch_size": 64}
    encoder = FairFlow(**settings).fit(table)
    assert isinstance(encoder.flow_.bijection, Turned)
    assert sorted(encoder.flow_.bijection.sign.flatten().tolist()) == [-1, 1]
    predicted = encoder.predict(table.X, sensitive_features=table.a)
    assert (predicted == table.y).mean() > 0.95


def test_groups_that_agree_are_not_turned_and_a_turn_is_saved(tmp_path):
    three, densities = make_three_groups(300, random_state=0)
    assert not isinstance(FairFlow(density=densities, n_epochs=1).fit(three).flow_.bijection, Turned)
    table, known = make_gaussians(300, random_state=0)
    encoder = FairFlow(density=known, n_epochs=1).fit(table)
    assert not isinstance(FairFlow(density=known, n_epochs=1, turn=False).fit(table).flow_.bijection, Turned)
    assert not isinstance(
        FairFlow(density=known, n_epochs=1).fit(table.X, sensitive_features=table.a).flow_.bijection, Turned
    ), "without a label there is nothing to turn by"
    save(encoder, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.transform(table).equals(encoder.transform(table))
    back = again.inverse_transform(again.transform(table), sensitive_features=table.a)
    torch.testing.assert_close(torch.tensor(back.to_numpy()), torch.tensor(table.X.to_numpy()))

"""Tables from known densities: the rows follow the densities, and the densities are the formulas."""

import numpy as np
import pytest
import torch
from scipy.stats import ks_1samp, norm

from fairflows.paper.gaussians import make_gaussians, make_shifted_gaussians, make_three_groups

GENERATORS = {
    "gaussians": make_gaussians,
    "three groups": make_three_groups,
    "shifted": lambda n, random_state: make_shifted_gaussians(1.5, n, random_state=random_state),
}


@pytest.fixture(params=GENERATORS)
def generator(request):
    return GENERATORS[request.param]


def rows_of(table, group):
    return table.X[(table.a == group).to_numpy()].to_numpy()


def grid(limit=9.0, n=361):
    line = torch.linspace(-limit, limit, n, dtype=torch.float64)
    return torch.cartesian_prod(line, line), float(line[1] - line[0]) ** 2


def test_rows_follow_the_densities(generator):
    table, densities = generator(60_000, random_state=0)
    x, cell = grid()
    assert len(densities) == len(table.groups)
    for group, p in zip(table.groups, densities, strict=True):
        rows = rows_of(table, group)
        mass = p.log_prob(x).exp() * cell
        mean = (mass[:, None] * x).sum(dim=0)
        second = (mass[:, None, None] * x[:, :, None] * x[:, None, :]).sum(dim=0)
        assert rows.mean(axis=0) == pytest.approx(mean.numpy(), abs=0.12)
        assert rows.T @ rows / len(rows) == pytest.approx(second.numpy(), abs=0.25)
        # The mean log-likelihood of the rows is the negative entropy of the density, no other density's.
        entropy = -(mass * p.log_prob(x)).sum()
        assert -p.log_prob(torch.tensor(rows)).mean() == pytest.approx(float(entropy), abs=0.03)


def test_gaussians_are_the_papers():
    table, (p0, p1) = make_gaussians(4000, random_state=0)
    x = torch.tensor([[1.0, -2.0], [3.0, 3.0]], dtype=torch.float64)
    for p, height in ((p0, 3), (p1, -3)):
        expected = 0.5 * sum(norm.pdf(x[:, 0], m) * norm.pdf(x[:, 1], height) for m in (-3, 3))
        assert p.log_prob(x).exp().numpy() == pytest.approx(expected)
    assert (table.y == (np.sign(table.X["x1"]) == np.sign(table.X["x2"]))).all()
    assert table.groups == [0, 1]
    z = table.X.mul((-1.0) ** table.a, axis=0)  # the representation that the paper names: hides a, keeps y
    assert ((z["x1"] > 0) == (table.y == 1)).mean() > 0.99
    assert abs(z["x2"][table.a == 0].mean() - z["x2"][table.a == 1].mean()) < 0.1


def test_three_groups_have_the_densities_that_the_docstring_says():
    table, densities = make_three_groups(300, random_state=0)
    x = torch.tensor([[1.0, -2.0], [-2.0, 2.5]], dtype=torch.float64)
    formula = {"north": (3, 1.0), "centre": (0, 0.75), "south": (-3, 1.25)}
    for group, p in zip(table.groups, densities, strict=True):
        height, s = formula[group]
        sides = (norm.pdf(x[:, 0], -2, s) + norm.pdf(x[:, 0], 2, s)) / 2
        assert p.log_prob(x).exp().numpy() == pytest.approx(sides * norm.pdf(x[:, 1], height, s))
    assert (table.y == (table.X["x1"] > 0)).all()


@pytest.mark.parametrize("distance", [0.0, 0.5, 3.0])
def test_shifted_gaussians_have_the_distance_that_the_docstring_says(distance):
    table, (p0, p1) = make_shifted_gaussians(distance, 50_000, random_state=0)
    truth = 2 * norm.cdf(distance / 2) - 1
    x, cell = grid()
    difference = p0.log_prob(x).exp() - p1.log_prob(x).exp()
    assert float(0.5 * difference.abs().sum() * cell) == pytest.approx(truth, abs=2e-3)
    right = table.X["x1"] > 0  # the best adversary
    assert right[table.a == 1].mean() - right[table.a == 0].mean() == pytest.approx(truth, abs=0.02)
    for group, sign in ((0, -1), (1, 1)):
        assert ks_1samp(rows_of(table, group)[:, 0], norm(sign * distance / 2).cdf).pvalue > 1e-3

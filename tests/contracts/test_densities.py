"""What every density must do. A new one is one line in the list."""

import copy

import pytest
import torch
import zuko
from torch import distributions as td

from fairflows import DataError
from fairflows.bijection import AutoregressiveSpline, Zuko
from fairflows.density import FlowDensity, GroupDensities, KnownDensity, MixtureDensity, check_density
from fairflows.paper.experiments.trade_offs import Autoregressive
from own_parts import Normal


def known(mean=(0.0, 1.0)):
    covariance = torch.tensor([[1.0, 0.6], [0.6, 2.0]])
    parts = td.MultivariateNormal(torch.tensor([list(mean), [2.0, -1.0]]), covariance.expand(2, 2, 2))
    return td.MixtureSameFamily(td.Categorical(torch.tensor([0.7, 0.3])), parts)


DENSITIES = {
    "mixture": lambda: MixtureDensity(2),
    "mixture by BIC": lambda: MixtureDensity(max_components=3),
    "realnvp": lambda: FlowDensity("realnvp", hidden=(8,), n_steps=60, batch_size=128),
    "spline": lambda: FlowDensity("spline", n_blocks=2, hidden=(8,), n_steps=40, batch_size=128),
    "autoregressive splines": lambda: FlowDensity(AutoregressiveSpline(2, hidden=(8,)), n_steps=60, batch_size=128),
    "zuko's flow": lambda: FlowDensity(Zuko(zuko.flows.NSF, hidden_features=[8]), n_steps=30, batch_size=128),
    "a bijection": lambda: FlowDensity(Autoregressive(2, hidden=(8,)), n_steps=60, batch_size=128),
    "a user's own": Normal,
    "known": lambda: KnownDensity(known()),
    "known, transformed": lambda: KnownDensity(
        td.TransformedDistribution(
            td.Independent(td.Normal(torch.zeros(2), torch.ones(2)), 1),
            [td.AffineTransform(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0]), event_dim=1)],
        )
    ),
}
FITTED = {}
FITTED_TO_GROUPS = {}


def rows(n=600, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return known().sample((n,))


@pytest.fixture(params=DENSITIES)
def make(request):
    return DENSITIES[request.param]


@pytest.fixture
def density(request, make):
    name = request.node.callspec.params["make"]
    if name not in FITTED:
        FITTED[name] = make().fit(rows(), random_state=0)
    return FITTED[name]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_integrates_to_one(density):
    line = torch.linspace(-14, 14, 201)
    grid = torch.cartesian_prod(line, line)
    with torch.no_grad():
        mass = torch.cat([density.log_prob(part) for part in grid.split(20_000)]).exp().sum() * (line[1] - line[0]) ** 2
    assert mass == pytest.approx(1.0, abs=5e-3)


def test_draws_come_from_the_density(density):
    """E over draws of q/p̂ is one for any other density q: checks sample and log_prob against each other."""
    x = density.sample(20_000, seeded())
    assert x.shape == (20_000, 2)
    inside = td.MultivariateNormal(x.mean(0), 0.3 * torch.cov(x.T))  # lighter tails than p̂, so the ratio is tame
    ratio = (inside.log_prob(x) - density.log_prob(x)).exp()
    standard_error = ratio.std() / len(ratio) ** 0.5
    assert abs(ratio.mean() - 1) < 4 * standard_error + 1e-3


def test_draws_are_repeatable(density):
    torch.testing.assert_close(density.sample(5, seeded(1)), density.sample(5, seeded(1)))
    assert not torch.allclose(density.sample(5, seeded(1)), density.sample(5, seeded(2)))


def test_gradient_is_that_of_finite_differences(density):
    double = copy.deepcopy(density).double()
    x = rows(6).double().requires_grad_()
    (slope,) = torch.autograd.grad(double.log_prob(x).sum(), x)
    assert slope.dtype == torch.float64
    for j in range(2):
        step = torch.zeros(2, dtype=torch.float64)
        step[j] = 1e-6
        with torch.no_grad():
            difference = (double.log_prob(x + step) - double.log_prob(x - step)) / 2e-6
        torch.testing.assert_close(slope[:, j], difference, rtol=1e-4, atol=1e-5)


def test_any_leading_shape(density):
    x = rows(24)
    flat = density.log_prob(x)
    torch.testing.assert_close(density.log_prob(x.view(2, 3, 4, 2)), flat.view(2, 3, 4))
    torch.testing.assert_close(density.log_prob(x[0]), flat[0])


def test_float64_agrees_with_float32(density):
    x = rows(50)
    double = copy.deepcopy(density).double()
    torch.testing.assert_close(double.log_prob(x.double()).float(), density.log_prob(x), rtol=1e-3, atol=1e-3)
    assert double.sample(3, seeded()).dtype == torch.float64


def test_state_restores_the_density(density):
    fresh = type(density).from_dict(density.to_dict())
    x = rows(20)
    torch.testing.assert_close(fresh.log_prob(x), density.log_prob(x))


def test_held_out_likelihood_is_near_that_of_the_truth(density):
    held_out = rows(2000, seed=9)
    truth = known().log_prob(held_out).mean()
    if not isinstance(density, KnownDensity):
        assert truth - 0.25 < density.score(held_out) < truth + 0.02


@pytest.fixture
def three_groups(request, make):
    name, groups = (
        request.node.callspec.params["make"],
        [rows(300, seed=1), rows(250, seed=2) + 1, rows(260, seed=3) - 1],
    )
    if name not in FITTED_TO_GROUPS:
        FITTED_TO_GROUPS[name] = GroupDensities.fit(make(), groups)
    return groups, copy.deepcopy(FITTED_TO_GROUPS[name])


def test_groups_together_equal_groups_alone(three_groups):
    groups, densities = three_groups
    x = torch.stack([rows(8, seed=s) for s in range(12)]).view(4, 3, 8, 2)
    together = densities.log_prob(x)
    alone = torch.stack([member.log_prob(x[:, k]) for k, member in enumerate(densities.members)], dim=1)
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)
    assert densities.sample(7, seeded()).shape == (3, 7, 2)
    assert len(densities.score(groups)) == 3


def test_groups_and_labels_by_blocks():
    groups = [rows(400, seed=s) + s for s in range(2)]
    labels = [(x[:, 0] > x[:, 0].median()).long() for x in groups]
    densities = GroupDensities.fit(MixtureDensity(1), groups, labels, of_labels=[0, 1])
    assert (densities.n_groups, densities.n_labels) == (2, 2)
    x = torch.stack([rows(10, seed=s) for s in range(2)])
    log_p = densities.log_prob(x)
    for a in range(2):
        for label in range(2):
            block = slice(5 * label, 5 * label + 5)
            alone = MixtureDensity(1).fit(groups[a][labels[a] == label])
            torch.testing.assert_close(log_p[a, block], alone.log_prob(x[a, block]))
    of_one = densities.for_label(1)
    torch.testing.assert_close(of_one.log_prob(x)[:, 5:], log_p[:, 5:])


def test_bic_finds_two_blobs():
    generator = seeded()
    blobs = torch.randn(600, 2, generator=generator) + 8 * torch.randint(2, (600, 1), generator=generator)
    assert len(MixtureDensity().fit(blobs).log_weights) == 2


def test_mixture_equals_torch_distribution():
    mixture = MixtureDensity(3).fit(rows())
    covariance = torch.linalg.inv(mixture.whitening @ mixture.whitening.mT)
    truth = td.MixtureSameFamily(
        td.Categorical(logits=mixture.log_weights),
        td.MultivariateNormal(mixture.means, (covariance + covariance.mT) / 2),
    )
    torch.testing.assert_close(
        mixture.log_prob(rows(30, seed=4)), truth.log_prob(rows(30, seed=4)), rtol=1e-4, atol=1e-4
    )


def test_too_few_rows_is_an_error_that_names_the_group():
    with pytest.raises(DataError, match="group 'b' has 2 rows for a density of 3 features; at least 3"):
        GroupDensities.fit(MixtureDensity(1), [torch.randn(9, 3), torch.randn(2, 3)], group_names=["a", "b"])
    with pytest.raises(DataError, match="a group has 2 rows .* at least 3 are needed"):
        MixtureDensity(1).fit(torch.randn(2, 3))


def test_rows_that_are_not_finite_are_an_error():
    with pytest.raises(DataError, match="must be finite"):
        MixtureDensity(1).fit(torch.tensor([[0.0, 1.0], [float("nan"), 2.0], [1.0, 1.0]]))


class Broken(td.Distribution):
    def __init__(self, log_prob):
        super().__init__(event_shape=torch.Size([2]), validate_args=False)
        self.log_prob = log_prob

    def sample(self, shape):
        return torch.randn(*shape, 2)


@pytest.mark.parametrize(
    ("distribution", "message"),
    [
        (td.Normal(0.0, 1.0), "must draw vectors"),
        (Broken(lambda x: x.detach().sum(-1)), "must be differentiable in x"),
        (Broken(lambda x: x.sum(-1) * float("nan")), "NaN or infinite"),
        (Broken(lambda x: x), "one number per row"),
        (object(), "must be a torch.distributions object; got object"),
    ],
)
def test_known_densities_that_cannot_be_used(distribution, message):
    with pytest.raises(ValueError, match=message):
        KnownDensity(distribution)


class Flat(Normal):
    def log_prob(self, x):
        return super().log_prob(x)[..., None]


class Constant(Normal):
    def log_prob(self, x):
        return super().log_prob(x.detach())


class Scalars(Normal):
    def sample(self, n, generator):
        return super().sample(n, generator)[:, 0]


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (Flat, "log_prob of Flat must give one number per row"),
        (Constant, "log_prob of Constant must be differentiable in x"),
        (Scalars, r"sample of Scalars must draw vectors, \(n, 2\)"),
    ],
)
def test_a_density_that_breaks_the_contract_is_found(family, message):
    check_density(Normal().fit(rows()))
    with pytest.raises(ValueError, match=message):
        check_density(family().fit(rows()))


def test_densities_of_several_families_keep_their_order():
    """Members of one family are computed together; each group's rows must still meet their own density."""
    templates = [MixtureDensity(1), Normal(), MixtureDensity(2), FlowDensity("realnvp", hidden=(8,), n_steps=5)]
    densities = GroupDensities.fit(templates, [rows(seed=a) + a for a in range(4)])
    x = torch.stack([rows(50, seed=9) for _ in range(4)])
    alone = torch.stack([member.log_prob(part) for member, part in zip(densities.members, x, strict=True)])
    torch.testing.assert_close(densities.log_prob(x), alone)
    assert len({round(float(log_p.sum()), 3) for log_p in alone}) == 4, "so that an exchange would be seen"
    draws = densities.sample(2000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        draws.mean(1), torch.stack([rows(seed=a).mean(0) + a for a in range(4)]), atol=0.4, rtol=0
    )

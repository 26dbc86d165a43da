"""What every bijection must do. A new one is one line in the list."""

import math

import pytest
import torch
import zuko
from torch.distributions import MultivariateNormal

from fairflows import DataError
from fairflows.bijection import AutoregressiveSpline, NeuralSpline, RealNVP, StackedMLP, Zuko, check_bijection
from fairflows.paper.experiments.trade_offs import Autoregressive
from own_parts import Linear

SEEDS = (3, 4)
BIJECTIONS = {
    "realnvp of 2": lambda **kw: RealNVP(2, n_blocks=3, hidden=(7,), **kw),
    "realnvp of 5": lambda **kw: RealNVP(5, n_blocks=4, hidden=(8, 6), **kw),
    "spline of 2": lambda **kw: NeuralSpline(2, n_blocks=3, hidden=(7,), n_bins=4, **kw),
    "spline of 5": lambda **kw: NeuralSpline(5, n_blocks=2, hidden=(8, 6), **kw),
    "autoregressive of 3": lambda **kw: Autoregressive(3, hidden=(7,), **kw),
    "autoregressive splines of 3": lambda **kw: AutoregressiveSpline(3, hidden=(7,), n_bins=4, **kw),
    "zuko's splines of 3": lambda **kw: Zuko(zuko.flows.NSF, 3, transforms=2, hidden_features=[7], bins=4, **kw),
    "zuko's affine flow, its order drawn": lambda **kw: Zuko("MAF", 3, randperm=True, hidden_features=[7], **kw),
    "a user's own": lambda **kw: Linear(3, **kw),
}


@pytest.fixture(params=BIJECTIONS)
def make(request):
    return BIJECTIONS[request.param]


def perturbed(bijection):
    """Every model and group with weights of its own, far from the start."""
    generator = torch.Generator().manual_seed(0)
    for parameter in bijection.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return bijection


@pytest.fixture
def bijection(make):
    return perturbed(make(n_groups=3, seeds=SEEDS)).double()


def points(bijection, n_rows=9, seed=0):
    size = (bijection.n_models, bijection.n_groups, n_rows, bijection.n_features)
    return 2 * torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_round_trip(bijection):
    x = points(bijection)
    z, log_det = bijection.forward(x)
    back, log_det_back = bijection.inverse(z)
    assert not torch.allclose(z, x, atol=1e-2)
    torch.testing.assert_close(back, x, rtol=0, atol=1e-9)
    torch.testing.assert_close(log_det_back, -log_det, rtol=0, atol=1e-8)


@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_log_determinant_is_that_of_the_jacobian(bijection, direction):
    x = points(bijection, n_rows=2)
    move = getattr(bijection, direction)
    _, log_det = move(x)
    for m, k, b in [(0, 0, 0), (1, 2, 1)]:

        def of_row(row, m=m, k=k, b=b):
            moved = x.clone()
            moved[m, k, b] = row
            return move(moved)[0][m, k, b]

        jacobian = torch.autograd.functional.jacobian(of_row, x[m, k, b])
        torch.testing.assert_close(log_det[m, k, b], torch.linalg.slogdet(jacobian).logabsdet)


@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_gradients_are_those_of_finite_differences(make, direction):
    """The slope along one random direction in the points and all weights at once."""
    bijection = perturbed(make(n_groups=2, seeds=(1,))).double()
    x = points(bijection, n_rows=3).requires_grad_()
    variables = [x, *bijection.parameters()]
    generator = torch.Generator().manual_seed(1)
    directions = [torch.randn(v.shape, generator=generator, dtype=torch.float64) for v in variables]

    def loss():
        z, log_det = getattr(bijection, direction)(x)
        return z.pow(2).sum() + log_det.sum()

    def loss_after(step):
        for variable, d in zip(variables, directions, strict=True):
            variable.data += step * d
        return loss().detach()

    grads = torch.autograd.grad(loss(), variables)
    slope = sum((g * d).sum() for g, d in zip(grads, directions, strict=True))
    step = 1e-6
    difference = (loss_after(step) - loss_after(-2 * step)) / (2 * step)
    torch.testing.assert_close(slope, difference, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["realnvp of 2", "spline of 2"])
def test_pushed_forward_normal_integrates_to_one(name):
    bijection = perturbed(BIJECTIONS[name](n_groups=1, seeds=(1,))).double()
    n_features = bijection.n_features
    normal = MultivariateNormal(torch.zeros(n_features, dtype=torch.float64), torch.eye(n_features).double())
    line = torch.linspace(-25, 25, 501, dtype=torch.float64)
    grid = torch.cartesian_prod(*[line] * n_features).reshape(-1, n_features)
    with torch.no_grad():
        x, log_det = bijection.inverse(grid)
    mass = (normal.log_prob(x[0, 0]) + log_det[0, 0]).exp().sum() * (line[1] - line[0]) ** n_features
    assert math.isclose(mass, 1.0, abs_tol=2e-3)


def test_points_shared_by_models_and_groups(bijection):
    x = points(bijection)[0, 0]
    z, log_det = bijection.forward(x)
    for m in range(bijection.n_models):
        for k in range(bijection.n_groups):
            alone, log_det_alone = bijection.select(m).select_group(k).forward(x)
            torch.testing.assert_close(z[m, k], alone[0, 0])
            torch.testing.assert_close(log_det[m, k], log_det_alone[0, 0])


def test_selected_models_and_joined_groups_are_the_same_maps(bijection):
    x = points(bijection)
    z, _ = bijection.forward(x)
    torch.testing.assert_close(bijection.select([1, 0]).forward(x[[1, 0]])[0], z[[1, 0]])
    parts = [bijection.select_group(k) for k in (2, 0)]
    torch.testing.assert_close(type(bijection).join_groups(parts).forward(x[:, [2, 0]])[0], z[:, [2, 0]])


def test_models_start_from_their_own_seed_and_groups_alike(make):
    stack = make(n_groups=3, seeds=(5, 6, 7))
    x = torch.randn(1, 1, 4, stack.n_features, generator=torch.Generator().manual_seed(0))
    z, _ = stack.forward(x)
    for m, seed in enumerate((5, 6, 7)):
        torch.testing.assert_close(make(n_groups=1, seeds=(seed,)).forward(x)[0].expand(-1, 3, -1, -1), z[m : m + 1])
    assert not torch.allclose(z[0], z[1])


def test_state_restores_the_map(make):
    first = perturbed(make(n_groups=2, seeds=(1, 2)))
    x = points(first)
    for stack in (first, first.select(1), first.select_group(0).double()):
        second = type(stack).from_dict(stack.to_dict())
        assert not any(parameter.requires_grad for parameter in second.parameters())
        for name, value in second.state_dict().items():
            assert torch.equal(value, stack.state_dict()[name])
        part = x.to(next(stack.parameters()))[: stack.n_models, : stack.n_groups]
        torch.testing.assert_close(stack.forward(part)[0], second.forward(part)[0])


def test_made_anew_for_another_table(make):
    first = make(n_groups=2, seeds=(1, 2))
    again = first.anew(first.n_features, n_groups=2, seeds=(1, 2))
    x = points(first).float()
    torch.testing.assert_close(again.forward(x)[0], first.forward(x)[0])
    other = first.anew(first.n_features + 1, n_groups=3, seeds=(1, 2, 5))
    assert (other.n_models, other.n_groups, other.n_features) == (3, 3, first.n_features + 1)
    assert other.settings().keys() == first.settings().keys()
    check_bijection(other)


class SharedShift(Linear):
    def __init__(self, n_features, *, n_groups=2, seeds=(0,)):
        super().__init__(n_features, n_groups=n_groups, seeds=seeds)
        self.shift = torch.nn.Parameter(torch.zeros(n_features))


class NoInverse(Linear):
    def inverse(self, z):
        return z, torch.zeros(z.shape[:-1], dtype=z.dtype)


class OneLogDet(Linear):
    def forward(self, x):
        z, log_det = super().forward(x)
        return z, log_det[..., 0]


class Centred(Linear):
    def forward(self, x):
        z, log_det = super().forward(x)
        return z + z.detach().mean(2, keepdim=True), log_det

    def inverse(self, z):
        return super().inverse(z - z.detach().mean(2, keepdim=True) / 2)


class Detached(Linear):
    def forward(self, x):
        z, log_det = super().forward(x)
        return z.detach(), log_det


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (SharedShift, r"every parameter of SharedShift must have the axes \(models, groups, ...\)"),
        (NoInverse, "log_det in inverse of NoInverse|inverse of NoInverse must give back"),
        (OneLogDet, r"must give points \(2, 2, 3, 4\) and log_det \(2, 2, 3\); got"),
        (Centred, "no row of Centred may depend on other rows"),
        (Detached, "must be differentiable"),
    ],
)
def test_a_bijection_that_breaks_the_contract_is_found(family, message):
    check_bijection(Linear(4))
    with pytest.raises(ValueError, match=message):
        check_bijection(family(4))


def test_wrong_number_of_features_is_an_error(bijection):
    with pytest.raises(ValueError, match=f"must have {bijection.n_features} features; got 9"):
        bijection.forward(torch.zeros(1, 1, 4, 9, dtype=torch.float64))


def test_stacked_networks_equal_torch_modules():
    stack = StackedMLP(4, (9, 5), 3, seeds=(1, 2), lead=(2,))
    x = torch.randn(2, 2, 6, 4, generator=torch.Generator().manual_seed(0))
    outputs = stack(x)
    for m in range(2):
        for k in range(2):
            hidden = x[m, k]
            for i, weight in enumerate(stack.weights):
                n_in, n_out = [4, 9, 5, 3][i : i + 2]
                linear = torch.nn.Linear(n_in, n_out)
                linear.weight.data = weight.data[m, k, :n_in, :n_out].T
                linear.bias.data = weight.data[m, k, n_in, :n_out]
                hidden = linear(hidden) if i == 2 else linear(hidden).relu()
            torch.testing.assert_close(outputs[m, k], hidden)


def test_an_unfitted_zuko_flow_is_taken_as_it_is():
    own = zuko.flows.Flow(
        [zuko.flows.autoregressive.MaskedAutoregressiveTransform(2, hidden_features=[5])],
        zuko.lazy.UnconditionalDistribution(zuko.distributions.DiagNormal, torch.zeros(2), torch.ones(2), buffer=True),
    )
    before = [parameter.clone() for parameter in own.parameters()]
    check_bijection(Zuko(own, 2))
    assert all(torch.equal(*pair) for pair in zip(before, own.parameters(), strict=True))
    with pytest.raises(DataError, match="must have the 3 features of the table in model space; got 2"):
        Zuko(own, 3)


@pytest.mark.parametrize(
    ("flow", "options", "message"),
    [
        ("NAF", {}, "flow must be one of MAF, NICE, NSF, or an unfitted zuko flow; got NAF"),
        (zuko.flows.CNF, {}, "flow must be one of MAF, .* got CNF"),
        (torch.nn.Linear(2, 2), {}, "or an unfitted zuko flow; got Linear"),
        (zuko.flows.NSF(2), {"transforms": 2}, "options such as transforms go with a class of zuko.flows"),
    ],
)
def test_flows_that_cannot_be_stacked_or_decoded_are_refused(flow, options, message):
    with pytest.raises(DataError, match=message):
        Zuko(flow, 2, **options)


def test_passive_features_of_ones_own_are_kept_for_as_many_features():
    own = NeuralSpline(3, n_blocks=2, hidden=(4,), n_groups=2, seeds=SEEDS, passive=[[0], [1, 2]])
    assert own.anew(3, n_groups=2, seeds=SEEDS).passive == [[0], [1, 2]]
    assert own.anew(5, n_groups=2, seeds=SEEDS).passive == NeuralSpline(5, n_blocks=2, n_groups=2, seeds=SEEDS).passive

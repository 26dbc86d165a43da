"""The same numbers on a CPU, on a GPU, and on a GPU from a captured graph; skipped where there is no GPU."""

import copy

import pytest
import torch

from fairflows.bijection import RealNVP, StackedMLP
from fairflows.density import AutoregressiveDensity, FlowDensity, GroupDensities, KernelDensity, MixtureDensity
from fairflows.training import LossRange, train
from fairflows.training_draws import Batches, FreshDraws
from fairflows.training_evaluation import held_out_losses, log_density_table

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SEEDS = [1, 2, 1]
GAMMA = [0.0, 0.2, 0.9]
SETTINGS = {"epochs": 20, "batch_size": 64, "ramp_epochs": 5}  # 100 steps: several rounds of draws


def data(criterion="demographic_parity"):
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(n, 4, generator=generator) + a for a, n in enumerate((400, 300))]
    labels = [(x[:, 0] > a).long() for a, x in enumerate(rows)]
    densities = GroupDensities.fit([MixtureDensity(2), MixtureDensity(1)], rows, labels, criterion=criterion)
    return densities, rows, labels


class Recorded:
    """Draws made beforehand, round after round the same, on any device."""

    def __init__(self, batches, streams, device):
        self._batches = Batches(*(part.to(device) for part in (batches.x, batches.log_p, batches.y)))
        self.streams = streams.to(device)

    def take(self, n_steps):
        return Batches(self._batches.x[:n_steps], self._batches.log_p[:n_steps], self._batches.y[:n_steps])


def trained(densities, rows, labels, batches, streams, device, capture, **settings):
    bijection = RealNVP(4, n_blocks=4, hidden=(20, 12), seeds=SEEDS).to(device)
    head = StackedMLP(4, (16,), 2, seeds=SEEDS).to(device)
    result = train(
        bijection,
        head,
        copy.deepcopy(densities).to(device),
        [x.to(device) for x in rows],
        [y.to(device) for y in labels],
        gamma=GAMMA,
        seeds=SEEDS,
        draws=Recorded(batches, streams, device),
        capture=capture,
        **(SETTINGS | settings),
    )
    return result, bijection


@pytest.mark.parametrize("criterion", ["demographic_parity", "equalized_odds"])
@pytest.mark.parametrize("scalarisation", ["convex", "chebyshev"])
def test_cpu_gpu_and_graph_agree(criterion, scalarisation):
    densities, rows, labels = data(criterion)
    draws = FreshDraws(rows, labels, densities, seeds=SEEDS, batch_size=64)
    batches = draws.take(32)
    settings = {"scalarisation": scalarisation, "loss_range": LossRange((0.1, 0.7), (0.0, 1.0))}
    results = [
        trained(densities, rows, labels, batches, draws.streams, device, capture, **settings)[0]
        for device, capture in (("cpu", False), ("cuda", False), ("cuda", True))
    ]
    on_cpu, eager, captured = (result.joint.cpu() for result in results)
    torch.testing.assert_close(eager[:5], on_cpu[:5], rtol=1e-3, atol=1e-3)  # chaos grows after that
    torch.testing.assert_close(captured[:5], on_cpu[:5], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(captured, eager, rtol=1e-2, atol=1e-2)


def test_a_captured_run_is_repeatable():
    densities, rows, labels = data()
    densities, rows, labels = densities.cuda(), [x.cuda() for x in rows], [y.cuda() for y in labels]

    def losses():
        bijection = RealNVP(4, n_blocks=2, hidden=(8,), seeds=SEEDS).cuda()
        head = StackedMLP(4, (8,), 2, seeds=SEEDS).cuda()
        return train(bijection, head, densities, rows, labels, gamma=GAMMA, seeds=SEEDS, **SETTINGS).joint

    first = losses()
    torch.testing.assert_close(losses(), first)
    assert bool((first[-1] < first[0]).all())


def test_stacked_training_equals_separate_training():
    densities, rows, labels = data()
    densities, rows, labels = densities.cuda(), [x.cuda() for x in rows], [y.cuda() for y in labels]

    def losses(seeds, gamma):
        bijection = RealNVP(4, n_blocks=2, hidden=(8,), seeds=seeds).cuda()
        head = StackedMLP(4, (8,), 2, seeds=seeds).cuda()
        return train(bijection, head, densities, rows, labels, gamma=gamma, seeds=seeds, **SETTINGS).joint

    together = losses(SEEDS, GAMMA)
    for m in range(3):
        alone = losses(SEEDS[m : m + 1], GAMMA[m : m + 1])
        torch.testing.assert_close(together[:5, m], alone[:5, 0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "density",
    [
        MixtureDensity(2),
        FlowDensity(hidden=(8,), n_steps=300, batch_size=128),
        AutoregressiveDensity(hidden=(8,), n_steps=300, batch_size=128),
        KernelDensity(),
    ],
    ids=lambda density: type(density).__name__,
)
def test_densities_fit_and_train_on_the_gpu(density):
    _, rows, labels = data()
    rows, labels = [x.cuda() for x in rows], [y.cuda() for y in labels]
    densities = GroupDensities.fit(density, rows)
    truth = [-4 * 1.4189, -4 * 1.4189]  # the entropy of four unit normals
    assert densities.score(rows) == pytest.approx(truth, abs=0.35)
    bijection = RealNVP(4, n_blocks=2, hidden=(8,), seeds=SEEDS).cuda()
    head = StackedMLP(4, (8,), 2, seeds=SEEDS).cuda()
    result = train(bijection, head, densities, rows, labels, gamma=GAMMA, seeds=SEEDS, **SETTINGS)
    assert bool(torch.isfinite(result.joint).all())
    assert float(result.kl[-1, 2]) < float(result.kl[0, 2]) / 2
    losses = held_out_losses(bijection, head, densities, rows, labels, gamma=GAMMA)
    torch.testing.assert_close(losses.task, result.task[-1], rtol=0.2, atol=0.1)
    generator = torch.Generator("cuda").manual_seed(0)
    table = log_density_table(bijection.double(), densities.double(), 1000, generator)
    assert table.shape == (3, 1000, 2, 2)
    assert bool(torch.isfinite(table).all())

"""The same numbers on the processor, on a GPU step by step, and on a GPU as a captured graph."""

import pytest
import torch

from fairflows.bijection import AutoregressiveSpline, NeuralSpline, RealNVP, StackedMLP
from fairflows.density import FlowDensity, GroupDensities, MixtureDensity
from fairflows.training import loop
from fairflows.training.algorithm1 import Batch
from fairflows.training.loop import FreshDraws, GroupRows, TrainingSettings, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
SEEDS = [0, 1, 0]


class Replayed:
    """Batches that were drawn once, handed out on any device."""

    def __init__(self, batches: Batch, streams: torch.Tensor, device: str):
        self._batches = Batch(*(part.to(device) for part in batches))
        self.streams = streams.to(device)

    def take(self, n_steps: int) -> Batch:
        return self._batches


def run(kind, density, device: str, capture: bool, scalarisation: str = "convex", n_groups: int = 2):
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(600, 4, generator=generator) + a for a in range(n_groups)]
    labels = [(x[:, 0] > a).long() for a, x in enumerate(rows)]
    densities = GroupDensities.fit(density, rows)
    fresh = FreshDraws(GroupRows(rows, labels), densities, seeds=SEEDS, batch_size=64)
    draws = Replayed(fresh.take(32), fresh.streams, device)  # before the densities move to the device
    f = kind(4, n_groups=n_groups, n_blocks=2, hidden=(16, 16), seeds=SEEDS).to(device)
    h = StackedMLP(4, (16,), 2, seeds=SEEDS).to(device)
    f.capturable = capture
    settings = TrainingSettings(epochs=3, batch_size=64, ramp_epochs=1, scalarisation=scalarisation)

    def replayed(*args, seeds, **others):
        return draws if seeds is SEEDS else FreshDraws(*args, seeds=seeds, **others)  # others find a range of losses

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "FreshDraws", replayed)
        result = train(
            f,
            h,
            densities.to(device),
            GroupRows([x.to(device) for x in rows], [y.to(device) for y in labels]),
            gamma=[0.0, 0.5, 0.9],  # with γ = 0 too, which is guarded
            seeds=SEEDS,
            settings=settings,
        )
    return result.joint.cpu()


@pytest.mark.parametrize("kind", [RealNVP, NeuralSpline])
@pytest.mark.parametrize(
    "density",
    [
        MixtureDensity(2),
        FlowDensity("realnvp", n_steps=50),
        [MixtureDensity(2), FlowDensity(AutoregressiveSpline(2, hidden=(8,), n_bins=4), n_steps=50)],
    ],
    ids=["mixture", "flow", "one of each"],
)
def test_processor_gpu_and_graph_agree(kind, density):
    if kind is NeuralSpline:
        pytest.importorskip("zuko")
    expected = run(kind, density, "cpu", capture=False)
    torch.testing.assert_close(run(kind, density, "cuda", capture=False), expected, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(run(kind, density, "cuda", capture=True), expected, rtol=2e-3, atol=2e-3)


def test_chebyshev_as_a_graph_agrees_with_single_steps():
    eager, graph = (run(RealNVP, MixtureDensity(2), "cuda", capture, "chebyshev") for capture in (False, True))
    torch.testing.assert_close(graph, eager, rtol=2e-3, atol=2e-3)


def test_many_groups_as_a_graph_agree_with_single_steps():
    eager, graph = (run(RealNVP, MixtureDensity(1), "cuda", capture, n_groups=8) for capture in (False, True))
    torch.testing.assert_close(graph, eager, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_couplings_and_their_gradients_are_those_of_the_processor(direction):
    f = RealNVP(5, n_blocks=3, hidden=(8,), seeds=[0, 1]).double()
    x = torch.randn(2, 2, 7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def found(device: str) -> list[torch.Tensor]:
        g, points = f.to(device), x.to(device).requires_grad_()
        moved, log_det = getattr(g, direction)(points)
        gradients = torch.autograd.grad(moved.square().sum() + log_det.sin().sum(), [points, *g.parameters()])
        return [part.detach().cpu() for part in (moved, log_det, *gradients)]

    for on_gpu, expected in zip(found("cuda"), found("cpu"), strict=True):
        torch.testing.assert_close(on_gpu, expected, rtol=1e-9, atol=1e-9)

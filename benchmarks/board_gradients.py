"""Fit error-parity, fairret or LAFTR; run by ``board_groups.py`` in their environment.

python benchmarks/board_gradients.py FOLDER METHOD

Reads FOLDER/task.npz, and writes the answers of each setting for all rows to answers.npz. fairret and LAFTR train the
same network: occupations have an embedding, and two hidden layers follow. LAFTR's adversary reads the last hidden layer
through a reversed gradient, as in ABCFair.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, one_hot

EPOCHS, BATCH, RATE, WIDTH = 6, 2048, 2e-3, 64
Penalty = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Of hidden layer, logits and groups of a batch."""


class Network(nn.Module):
    """Two hidden layers on numbers and an embedded occupation."""

    def __init__(self, n_numbers: int, n_occupations: int) -> None:
        super().__init__()
        self.occupation = nn.Embedding(n_occupations, 16)
        widths = [n_numbers + 16, WIDTH, WIDTH]
        layers = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(widths)]
        self.hidden, self.head = nn.Sequential(*layers), nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor, occupation: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last hidden layer, and logits."""
        hidden = self.hidden(torch.cat([x, self.occupation(occupation)], dim=1))
        return hidden, self.head(hidden)[:, 0]


def trained(task: dict[str, np.ndarray], penalty: Penalty, players: list[nn.Module]) -> np.ndarray:
    """Train a network with a penalty on the fitted rows, and return its answers for all."""
    x, occupation, y, group = (torch.as_tensor(task[name]) for name in ("x", "occupation", "y", "group"))
    network = Network(x.shape[1], int(occupation.max()) + 1)
    weights = [weight for module in (network, *players) for weight in module.parameters()]
    adam, fitted = torch.optim.Adam(weights, RATE), torch.as_tensor(np.flatnonzero(task["part"] == 0))
    for _ in range(EPOCHS):
        for rows in fitted[torch.randperm(len(fitted))].split(BATCH):
            hidden, logits = network(x[rows], occupation[rows])
            loss = binary_cross_entropy_with_logits(logits, y[rows].float()) + penalty(hidden, logits, group[rows])
            adam.zero_grad()
            loss.backward()
            adam.step()
    with torch.no_grad():
        return (network(x, occupation)[1] > 0).numpy().astype(np.int64)


def fairret(task: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    from fairret.loss import NormLoss
    from fairret.statistic import PositiveRate

    norm, K = NormLoss(PositiveRate()), int(task["group"].max()) + 1
    for strength in (0.03, 0.05, 0.07):

        def penalty(hidden: Tensor, logits: Tensor, group: Tensor, strength: float = strength) -> Tensor:
            return strength * norm(logits[:, None], one_hot(group, K).float())

        yield f"strength {strength}", trained(task, penalty, [])


class Reversed(torch.autograd.Function):
    """The identity, with the gradient reversed."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        """Return x."""
        return x.view_as(x)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        """Return the gradient against x."""
        return -gradient


def laftr(task: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    for strength in (0.1, 1.0):
        adversary = nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, int(task["group"].max()) + 1))

        def penalty(
            hidden: Tensor, logits: Tensor, group: Tensor, adversary: nn.Module = adversary, strength: float = strength
        ) -> Tensor:
            return strength * cross_entropy(adversary(Reversed.apply(hidden)), group)

        yield f"strength {strength}", trained(task, penalty, [adversary])


def error_parity(task: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    from error_parity import RelaxedThresholdOptimizer

    fitted, scores, group = task["part"] == 0, task["scores"], task["group"]
    for tolerance in (0.0, 0.03, 0.06, 0.1):
        optimizer = RelaxedThresholdOptimizer(
            predictor=lambda x: x[:, 0], constraint="demographic_parity", tolerance=tolerance, max_roc_ticks=200
        )
        optimizer.fit(X=scores[fitted, None], y=task["y"][fitted], group=group[fitted], y_scores=scores[fitted])
        yield f"tolerance {tolerance}", np.asarray(optimizer.predict(X=scores[:, None], group=group)).astype(np.int64)


METHODS = {"fairret": fairret, "LAFTR": laftr, "error-parity": error_parity}


def main() -> None:
    folder, method = Path(sys.argv[1]), sys.argv[2]
    torch.manual_seed(0)
    with np.load(folder / "task.npz") as arrays:
        task = dict(arrays)
    np.savez(folder / "answers.npz", **dict(METHODS[method](task)))


if __name__ == "__main__":
    main()

"""Adversarial representation learning: an encoder and a predictor against an adversary, for M models at once.

All methods play the same game and differ in the encoder, in what it pays for being read, and in what the adversary is
paid for reading:

    encoder and predictor   min   task + price(logits of the adversary, a) + penalty
    adversary               min   its own loss(logits, a)

one step of each in turn. No density comes out of it: see `NO_DENSITY`.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fairflows.bijection.networks import Stacked, StackedMLP, generator_of
from fairflows.compute.steps import AdamSteps

NO_DENSITY = (
    "A plain network is not invertible: many rows share one z and the density of z is unknown, so there is no "
    "model-based bound, and what its training adversary failed to do says nothing about others. Attack it (audit) for "
    "lower bounds, or release cells of it (CellRelease) and certify those."
)


class Game(Stacked):
    """The networks of M models, and what both sides of the game are paid.

    ``predictor`` and ``adversary`` are networks on z that give logits of the label and of the group.
    """

    predictor: StackedMLP
    adversary: StackedMLP

    @abstractmethod
    def represent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """z of rows (M, B, D), and the penalty of each model, (M,)."""

    @abstractmethod
    def encoder_loss(self, task: Tensor, logits: Tensor, a: Tensor, penalty: Tensor) -> Tensor:
        """What encoder and predictor minimise, (M,), from the task loss (M,) and the adversary's logits (M, B, K)."""

    def adversary_loss(self, logits: Tensor, a: Tensor) -> Tensor:
        """What the adversary minimises, (M,): the cross-entropy of the group."""
        return mean_cross_entropy(logits, a)


def mean_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of each model, (M,), from logits (M, B, C) and targets (M, B)."""
    return cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").unflatten(0, target.shape).mean(1)


def play(
    game: Game,
    x: Tensor,
    y: Tensor,
    a: Tensor,
    *,
    seeds: Sequence[int],
    epochs: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float = 0.0,
    balanced: bool = False,
) -> None:
    """Train all models of a game, in place.

    Parameters
    ----------
    game
        The networks, on the device of the rows.
    x, y, a
        Rows (n, D), labels and groups (n,).
    seeds
        One a model; it decides the model's batches.
    epochs, batch_size
        An epoch is as many batches as the rows fill, drawn with replacement.
    learning_rate, weight_decay
        Adam's, of both sides.
    balanced
        Draw equally many rows from every group.
    """
    different = sorted(set(seeds))
    stream = torch.tensor([different.index(seed) for seed in seeds], device=x.device)
    generators = [generator_of(seed, "batches") for seed in different]
    places = _places(a) if balanced else [torch.arange(len(x), device=x.device)]
    chosen = torch.empty(len(seeds), batch_size, dtype=torch.int64, device=x.device)

    def adversary_step() -> Tensor:
        with torch.no_grad():
            z, _ = game.represent(x[chosen])
        return game.adversary_loss(game.adversary(z), a[chosen]).sum()

    def encoder_step() -> Tensor:
        z, penalty = game.represent(x[chosen])
        task = mean_cross_entropy(game.predictor(z), y[chosen])
        return game.encoder_loss(task, game.adversary(z), a[chosen], penalty).sum()

    adam: dict[str, Any] = {"learning_rate": learning_rate, "weight_decay": weight_decay}
    theirs = list(game.adversary.parameters())
    ours = [p for p in game.parameters() if all(p is not other for other in theirs)]
    sides = AdamSteps(adversary_step, theirs, **adam), AdamSteps(encoder_step, ours, **adam)
    n_steps = -(-len(x) // batch_size)
    with _one_thread():
        for _ in range(epochs):
            uniform = torch.stack([torch.rand(n_steps, batch_size, generator=g) for g in generators], dim=1)
            batches = _rows_at(uniform.to(x.device), places)
            for step in range(n_steps):
                chosen.copy_(batches[step, stream])
                for side in sides:
                    side.step()


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Layers as small as these gain nothing from a second thread, and on a busy machine wait for it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _places(a: Tensor) -> list[Tensor]:
    return [torch.nonzero(a == group)[:, 0] for group in range(int(a.max()) + 1)]


def _rows_at(uniform: Tensor, places: list[Tensor]) -> Tensor:
    """Rows from numbers in [0, 1): the batch is parted evenly among the lists of places."""
    parts = uniform.tensor_split(len(places), dim=-1)
    return torch.cat([rows[(part * len(rows)).long()] for part, rows in zip(parts, places, strict=True)], dim=-1)

"""The adversarial game: an encoder and a predictor against an adversary, for M models at once.

Every adversarial method trains these players by turns and differs in its `Objective`, which says what each side
minimises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fairflows.bijection.networks import Stacked, StackedMLP, generator_of
from fairflows.compute.resources import one_thread
from fairflows.compute.steps import AdamSteps


class Representation(Stacked, ABC):
    """The encoder networks of M models."""

    @abstractmethod
    def represent(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """z of rows (M, B, D), and the regularisers that the objective knows, each of shape (M,)."""


class PlainRepresentation(Representation):
    """z = f(x) by one network, without regularisers."""

    def __init__(self, network: StackedMLP):
        super().__init__()
        self.network = network

    def represent(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The network's output."""
        return self.network(x), ()


class Players(Stacked):
    """The networks of M models: z from x, logits of the label from z, logits of the group from z."""

    def __init__(self, encoder: Representation, predictor: StackedMLP, adversary: StackedMLP):
        super().__init__()
        self.encoder, self.predictor, self.adversary = encoder, predictor, adversary


class Objective(ABC):
    """What both sides of the game minimise: losses of shape (M,), one per model."""

    @abstractmethod
    def encoder_loss(self, task: Tensor, logits: Tensor, a: Tensor, regularisers: tuple[Tensor, ...]) -> Tensor:
        """What encoder and predictor minimise.

        Parameters
        ----------
        task : Tensor of shape (M,)
            Cross-entropy of the predictor.
        logits : Tensor of shape (M, B, K)
            The adversary's logits of the groups.
        a : Tensor of shape (M, B)
            The groups.
        regularisers : tuple of Tensor of shape (M,)
            As the `Representation` returns them.
        """

    def adversary_loss(self, logits: Tensor, a: Tensor) -> Tensor:
        """What the adversary minimises: the cross-entropy of the group, unless a method says otherwise."""
        return mean_cross_entropy(logits, a)


def mean_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of each model, (M,), from logits (M, B, C) and targets (M, B)."""
    return cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").unflatten(0, target.shape).mean(1)


def play(
    players: Players,
    objective: Objective,
    x: Tensor,
    y: Tensor,
    a: Tensor,
    *,
    seeds: Sequence[int],
    n_epochs: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float = 0.0,
    balanced: bool = False,
) -> None:
    """Train all models in place, the adversary and the encoder's side by turns, one step each.

    Parameters
    ----------
    players
        The networks, on the device of the rows.
    objective
        What both sides minimise.
    x, y, a
        Rows (n, D), labels and groups (n,).
    seeds
        One per model; it decides the model's batches.
    n_epochs, batch_size
        An epoch is as many batches as the rows fill, drawn with replacement.
    learning_rate, weight_decay
        Adam's, for both sides.
    balanced
        Draw equally many rows from every group.
    """
    different = sorted(set(seeds))
    stream = torch.tensor([different.index(seed) for seed in seeds], device=x.device)
    generators = [generator_of(seed, "batches") for seed in different]
    strata = rows_by_class(a) if balanced else [torch.arange(len(x), device=x.device)]
    chosen = torch.empty(len(seeds), batch_size, dtype=torch.int64, device=x.device)

    def adversary_step() -> Tensor:
        with torch.no_grad():
            z, _ = players.encoder.represent(x[chosen])
        return objective.adversary_loss(players.adversary(z), a[chosen]).sum()

    def encoder_step() -> Tensor:
        z, regularisers = players.encoder.represent(x[chosen])
        task = mean_cross_entropy(players.predictor(z), y[chosen])
        return objective.encoder_loss(task, players.adversary(z), a[chosen], regularisers).sum()

    encoder_side = [*players.encoder.parameters(), *players.predictor.parameters()]
    sides = [
        AdamSteps(loss, parameters, learning_rate=learning_rate, weight_decay=weight_decay)
        for loss, parameters in ((adversary_step, players.adversary.parameters()), (encoder_step, encoder_side))
    ]
    n_steps = -(-len(x) // batch_size)
    with one_thread():
        for _ in range(n_epochs):
            uniform = torch.stack([torch.rand(n_steps, batch_size, generator=g) for g in generators], dim=1)
            batches = stratified_rows(uniform.to(x.device), strata)
            for step in range(n_steps):
                chosen.copy_(batches[step, stream])
                for side in sides:
                    side.step()


def rows_by_class(target: Tensor) -> list[Tensor]:
    """The row numbers of every class, from class 0 on."""
    return [torch.nonzero(target == c)[:, 0] for c in range(int(target.max()) + 1)]


def stratified_rows(uniform: Tensor, strata: Sequence[Tensor]) -> Tensor:
    """Row numbers from numbers in [0, 1) of shape (…, B): equally many from every list of rows."""
    parts = uniform.tensor_split(len(strata), dim=-1)
    return torch.cat([rows[(part * len(rows)).long()] for part, rows in zip(parts, strata, strict=True)], dim=-1)

"""Training of the neural baselines, M models at once: an encoder and, where there is one, an adversary by turns.

A method is a `Learner`, or `Players` where there is an adversary: its networks, what it releases for a row, and what
each side minimises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fairflows.bijection.networks import Stacked, StackedMLP, generator_of
from fairflows.compute.resources import one_thread
from fairflows.compute.steps import AdamSteps

Side = Literal["encoder", "adversary"]
Turns = Sequence[Sequence[Side]]
"""Which sides take a step on each of a cycle of batches."""


class TrainingRows(NamedTuple):
    """Rows to learn from: features (n, D), labels and groups (n,), and how many of both there are."""

    x: Tensor
    y: Tensor
    a: Tensor
    n_classes: int
    n_groups: int


class Batch(NamedTuple):
    """A batch of each model: features (M, B, D), labels and groups (M, B), standard normal noise (M, B, n_noise)."""

    x: Tensor
    y: Tensor
    a: Tensor
    noise: Tensor


class Learner(Stacked, ABC):
    """The networks of M models, and what they minimise; the predictor reads the label's logits from z."""

    predictor: StackedMLP

    @property
    def n_noise(self) -> int:
        """How many standard normal numbers a row needs to be represented."""
        return 0

    @abstractmethod
    def represent(self, x: Tensor, noise: Tensor) -> Tensor:
        """z of rows (M, B, D), with noise (M, B, n_noise)."""

    @abstractmethod
    def loss(self, batch: Batch, strength: Tensor) -> Tensor:
        """What all networks but the adversary minimise, (M,), given the strength of each model, (M,)."""


class Players(Learner):
    """A learner with an adversary, which reads the group's logits from z; z is the output of one network by default."""

    def __init__(self, encoder: StackedMLP, predictor: StackedMLP, adversary: StackedMLP):
        super().__init__()
        self.encoder, self.predictor, self.adversary = encoder, predictor, adversary

    def represent(self, x: Tensor, noise: Tensor) -> Tensor:
        """z = f(x)."""
        return self.encoder(x)

    def adversary_loss(self, batch: Batch) -> Tensor:
        """What the adversary minimises, (M,): the cross-entropy of the group, unless a method says otherwise."""
        return mean_cross_entropy(self.adversary(self.fixed(batch)), batch.a)

    @torch.no_grad()
    def fixed(self, batch: Batch) -> Tensor:
        """z as the adversary sees it, which cannot change it."""
        return self.represent(batch.x, batch.noise)


def mean_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of each model, (M,), from logits (M, B, C) and targets (M, B)."""
    return cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").unflatten(0, target.shape).mean(1)


def indicators(code: Tensor, n: int) -> Tensor:
    """One column per value but the first, (…, n − 1): a one where the code is that value."""
    return (code[..., None] == torch.arange(1, n, device=code.device)).float()


def play(
    learner: Learner,
    rows: TrainingRows,
    strength: Tensor,
    *,
    turns: Turns,
    seeds: Sequence[int],
    n_epochs: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float = 0.0,
    balanced: bool = False,
) -> None:
    """Train all models in place; on a GPU each side's step is captured once and replayed.

    Parameters
    ----------
    learner
        The networks, on the device of the rows.
    rows
        What to learn from.
    strength
        The weight of fairness in each model's loss, (M,).
    turns
        Which sides take a step on each batch, in this order; repeated until the last epoch ends.
    seeds
        One per model; it decides the model's batches and noise.
    n_epochs, batch_size
        An epoch is as many batches as the rows fill, drawn with replacement.
    learning_rate, weight_decay
        Adam's, for both sides.
    balanced
        Draw equally many rows from every group.
    """
    x, y, a = rows.x, rows.y, rows.a
    different = sorted(set(seeds))
    stream = torch.tensor([different.index(seed) for seed in seeds])
    draws, noises = ([generator_of(seed, purpose) for seed in different] for purpose in ("batches", "noise"))
    strata = rows_by_class(a) if balanced else [torch.arange(len(x), device=x.device)]
    chosen = torch.empty(len(seeds), batch_size, dtype=torch.int64, device=x.device)
    noise = torch.empty(len(seeds), batch_size, learner.n_noise, device=x.device)

    def batch() -> Batch:
        return Batch(x[chosen], y[chosen], a[chosen], noise)

    sides: dict[str, AdamSteps] = {}

    def add(side: Side, loss: Callable[[], Tensor], parameters: Sequence[nn.Parameter]) -> None:
        settings = {"learning_rate": learning_rate, "weight_decay": weight_decay}
        sides[side] = AdamSteps(loss, parameters, **settings, capture=x.device.type == "cuda")

    if isinstance(learner, Players):
        adversary = learner.adversary

        def encoder_loss() -> Tensor:
            with held_fixed(adversary):
                return learner.loss(batch(), strength).sum()

        own = list(adversary.parameters())
        add("adversary", lambda: learner.adversary_loss(batch()).sum(), own)
        add("encoder", encoder_loss, [p for p in learner.parameters() if not any(p is q for q in own)])
    else:
        add("encoder", lambda: learner.loss(batch(), strength).sum(), list(learner.parameters()))

    n_batches = -(-len(x) // batch_size)
    step = 0
    with one_thread():
        for _ in range(n_epochs):
            uniform = torch.stack([torch.rand(n_batches, batch_size, generator=g) for g in draws], dim=1)
            batches = stratified_rows(uniform[:, stream].to(x.device), strata)
            normal = [torch.randn(n_batches, *noise.shape[1:], generator=g) for g in noises] if learner.n_noise else []
            added = torch.stack(normal, dim=1)[:, stream].to(x.device) if normal else None
            for i in range(n_batches):
                chosen.copy_(batches[i])
                if added is not None:
                    noise.copy_(added[i])
                for side in turns[step % len(turns)]:
                    sides[side].step()
                step += 1
    if x.device.type == "cuda":
        torch.cuda.synchronize(x.device)  # captured steps must have ended before their graphs are given up


@contextmanager
def held_fixed(networks: nn.Module) -> Iterator[None]:
    """No gradients for these networks' own weights; they still flow through the networks."""
    networks.requires_grad_(False)
    try:
        yield
    finally:
        networks.requires_grad_(True)


def rows_by_class(target: Tensor) -> list[Tensor]:
    """The row numbers of every class, from class 0 on."""
    return [torch.nonzero(target == c)[:, 0] for c in range(int(target.max()) + 1)]


def stratified_rows(uniform: Tensor, strata: Sequence[Tensor]) -> Tensor:
    """Row numbers from numbers in [0, 1) of shape (…, B): equally many from every list of rows."""
    parts = uniform.tensor_split(len(strata), dim=-1)
    return torch.cat([rows[(part * len(rows)).long()] for part, rows in zip(parts, strata, strict=True)], dim=-1)

"""Networks trained on given representations, many at once: the paper's adversary, and heads for other tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from fairflows.arrays import NDArray
from fairflows.bijection import StackedMLP
from fairflows.bijection.networks import generator_of
from fairflows.codec.combination_codec import one_hot
from fairflows.encoder.base import Encoder
from fairflows.encoder.fair_matching import FairMatching, combinations_of_encoded
from fairflows.paper.baselines.neural import mean_cross_entropy, random_batches, rows_by_class
from fairflows.paper.experiments.problems import labels_of
from fairflows.steps import AdamSteps, chosen_device, milestone_rate
from fairflows.table.table import Table

Array = NDArray[np.float64]
Schedule = Callable[[float, int, int], Array]
"""The learning rate of every step, (epochs, steps), from the first rate, the epochs and the steps in each."""


def thirds(start: float, epochs: int, n_steps: int) -> Array:
    """Divide the rate by ten after one and after two thirds of the epochs."""
    rates = [milestone_rate(start, epoch, epochs) for epoch in range(epochs)]
    return np.repeat(rates, n_steps).reshape(epochs, n_steps)


def constant(start: float, epochs: int, n_steps: int) -> Array:
    """Keep the rate in all steps."""
    return np.full((epochs, n_steps), start)


def thirds_in_batches(start: float, epochs: int, n_steps: int) -> Array:
    """Return the schedule of the attack on adversarial training in the paper's code, which counts batches as epochs.

    The rate is divided by ten after every ``epochs // 3`` batches; those of validation, as many as those of training,
    count too. Epochs after the rate has fallen by ten orders of magnitude are left out: nothing moves in them.
    """
    step = np.arange(epochs)[:, None] * 2 * n_steps + np.arange(n_steps)
    tenths = step // max(1, epochs // 3)
    return start * 0.1 ** tenths[tenths[:, 0] < 10].astype(np.float64)


def trained_networks(
    z: Tensor,
    target: npt.ArrayLike,
    *,
    hidden: Sequence[int],
    epochs: int,
    seeds: Sequence[int] | None = None,
    learning_rate: float = 0.01,
    weight_decay: float = 0.0,
    strata: npt.ArrayLike | None = None,
    batch_size: int = 256,
    schedule: Schedule = thirds,
) -> StackedMLP:
    """Train a network on each of M representations z (M, n, D), or one per seed on a single one (1, n, D).

    Each has its own first weights and batches, and comes out as alone. Batches have equally many rows of every class of
    ``strata``, where they are given, and an epoch is a pass over the smallest class.
    """
    seeds = range(len(z)) if seeds is None else seeds
    target = torch.as_tensor(target, device=z.device)
    n_classes = int(target.max()) + 1
    network = StackedMLP(z.shape[-1], hidden, n_classes, seeds=seeds, stream="adversary").to(z)
    parts = rows_by_class(torch.zeros_like(target) if strata is None else torch.as_tensor(strata, device=z.device))
    generators = [generator_of(seed, "adversary batches") for seed in seeds]
    rows_per_part = batch_size // len(parts)
    batch_size = rows_per_part * len(parts)
    z = z.expand(len(seeds), -1, -1)
    models = torch.arange(len(seeds), device=z.device)[:, None]
    chosen = torch.empty(len(seeds), batch_size, dtype=torch.int64, device=z.device)

    def loss() -> Tensor:
        return mean_cross_entropy(network(z[models, chosen]), target[chosen]).sum()

    steps = AdamSteps(loss, network.parameters(), learning_rate=learning_rate, weight_decay=weight_decay)
    n_steps = max(1, min(map(len, parts)) // rows_per_part)
    for rates in schedule(learning_rate, epochs, n_steps):
        for rate, batch in zip(rates, random_batches(generators, n_steps, batch_size, parts), strict=True):
            steps.set_learning_rate(float(rate))
            chosen.copy_(batch)
            steps.step()
    return network


@torch.no_grad()
def predicted(network: StackedMLP, z: Tensor) -> npt.NDArray[np.intp]:
    """Return the classes (M, n) that the networks predict for rows (M or 1, n, D)."""
    return torch.cat([network(part).argmax(-1) for part in z.split(16_384, dim=1)], dim=1).cpu().numpy()


def balanced_accuracy(guess: npt.NDArray[np.intp], truth: npt.NDArray[np.intp], by: npt.NDArray[np.intp]) -> Array:
    """Return the share of right guesses (…, n), as the mean over the classes of ``by``."""
    right = guess == truth
    return np.mean([right[..., by == c].mean(axis=-1) for c in np.unique(by)], axis=0)


def plain_accuracy(encoder: Encoder, table: Table) -> float:
    """Return the accuracy of the encoder's own predictor over all rows."""
    return float((encoder.predict(table) == labels_of(table)).mean())


def task_accuracy(encoder: Encoder, test: Table) -> float:
    """Return accuracy of the encoder's own predictor, as the mean over the groups."""
    return float(balanced_accuracy(encoder.predict(test), labels_of(test), test.a.to_numpy()))


def adversary_accuracies(
    encoders: Sequence[Encoder],
    train: Table,
    test: Table,
    *,
    epochs: int,
    hidden: Sequence[int] = (50, 50),
    standardise: bool = False,
    batch_size: int = 256,
    schedule: Schedule = thirds,
    device: str = "cpu",
) -> Array:
    """Return balanced accuracy of a network that guesses the group from z, one per encoder.

    With ``hidden=(50, 50)`` this is the paper's adversary: Adam at .01, as many epochs as the encoder, batches with
    equally many rows of both groups.
    """
    a_train, a_test = (part.group_numbers(encoders[0].groups_) for part in (train, test))
    z_train, z_test = (latents(encoders, part, device) for part in (train, test))
    if standardise:
        z_train, z_test = standardised(z_train, z_test)
    network = trained_networks(
        z_train, a_train, strata=a_train, hidden=hidden, epochs=epochs, batch_size=batch_size, schedule=schedule
    )
    return balanced_accuracy(predicted(network, z_test), a_test, a_test)


def standardised(z_train: Tensor, z_test: Tensor) -> tuple[Tensor, Tensor]:
    """Return representations (M, n, D) with mean 0 and deviation 1 on training rows."""
    mean, scale = z_train.mean(1, keepdim=True), z_train.std(1, keepdim=True).clamp_min(1e-30)
    return (z_train - mean) / scale, (z_test - mean) / scale


def latents(encoders: Sequence[Encoder], table: Table, device: str = "cpu") -> Tensor:
    """Return every encoder's representation of a table, (M, n, D), in float32; the device may be "auto"."""
    parts = [_numbers(encoder, encoder.transform(table)) for encoder in encoders]
    return torch.as_tensor(np.stack(parts), device=chosen_device(device))


def _numbers(encoder: Encoder, Z: pd.DataFrame) -> npt.NDArray[np.float32]:
    """Return encoded rows as numbers; cells of matched groups as one-hot columns."""
    if isinstance(encoder, FairMatching):
        codec = encoder.model_.codec
        return one_hot(codec.levels_of(combinations_of_encoded(codec, Z)), codec.shape_).toarray().astype(np.float32)
    return np.asarray(Z, dtype=np.float32)

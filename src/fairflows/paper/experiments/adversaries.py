"""Networks trained on given representations, many at once: the paper's adversary, and heads for other tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fairflows.bijection.networks import StackedMLP, generator_of
from fairflows.compute.steps import AdamSteps, milestone_rate

Array = npt.NDArray[np.float64]


def trained_networks(
    z: Tensor,
    target: Tensor,
    *,
    hidden: Sequence[int],
    epochs: int,
    seeds: Sequence[int],
    batch_size: int = 256,
    learning_rate: float = 0.01,
    weight_decay: float = 0.0,
    balanced: bool = True,
) -> StackedMLP:
    """One network for each of M representations z (M, n, D), or M of one representation (1, n, D).

    Batches have equally many rows of every class where ``balanced``; an epoch is then a pass over the smallest. The
    learning rate is divided by ten after one and two thirds.
    """
    n_classes = int(target.max()) + 1
    network = StackedMLP(z.shape[-1], hidden, n_classes, seeds=seeds, stream="adversary").to(z)
    places = [torch.nonzero(target == c)[:, 0] for c in range(n_classes)] if balanced else [torch.arange(len(target))]
    places = [rows.to(z.device) for rows in places]
    generator = generator_of(seeds[0], "adversary batches")
    share = batch_size // len(places)
    chosen = torch.empty(share * len(places), dtype=torch.int64, device=z.device)

    def loss() -> Tensor:
        logits = network(z[:, chosen])
        wanted = target[chosen].expand(len(logits), -1)
        return (
            cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none")
            .unflatten(0, wanted.shape)
            .mean(1)
            .sum()
        )

    steps = AdamSteps(loss, network.parameters(), learning_rate=learning_rate, weight_decay=weight_decay)
    n_steps = max(1, min(map(len, places)) // share)
    for epoch in range(epochs):
        steps.set_learning_rate(milestone_rate(learning_rate, epoch, epochs))
        uniform = torch.rand(n_steps, len(places), share, generator=generator).to(z.device)
        for step in range(n_steps):
            chosen.copy_(
                torch.cat([rows[(u * len(rows)).long()] for u, rows in zip(uniform[step], places, strict=True)])
            )
            steps.step()
    return network


@torch.no_grad()
def predicted(network: StackedMLP, z: Tensor) -> npt.NDArray[np.intp]:
    """Classes (M, n) that the networks see in rows (M or 1, n, D)."""
    return torch.cat([network(part).argmax(-1) for part in z.split(16_384, dim=1)], dim=1).cpu().numpy()


def balanced_accuracy(guess: npt.NDArray[np.intp], truth: npt.NDArray[np.intp], by: npt.NDArray[np.intp]) -> Array:
    """Mean over the classes of ``by`` of how often guesses (…, n) are right."""
    right = guess == truth
    return np.mean([right[..., by == c].mean(axis=-1) for c in np.unique(by)], axis=0)


def adversary_accuracies(
    encoders: Sequence[Any],
    train: Any,
    test: Any,
    *,
    epochs: int,
    hidden: Sequence[int] = (50, 50),
    standardise: bool = False,
    device: str | torch.device = "cpu",
) -> Array:
    """Balanced accuracy of a network that guesses the group from each encoder's z, one an encoder.

    With ``hidden=(50, 50)`` this is the paper's adversary: Adam at .01, as many epochs as the encoder, batches with
    equally many rows of both groups.
    """
    a_train, a_test = (np.searchsorted(encoders[0].groups_, part.a.to_numpy()) for part in (train, test))
    z_train, z_test = (latents(encoders, part, device) for part in (train, test))
    if standardise:
        mean, scale = z_train.mean(1, keepdim=True), z_train.std(1, keepdim=True).clamp_min(1e-30)
        z_train, z_test = (z_train - mean) / scale, (z_test - mean) / scale
    target = torch.as_tensor(a_train, device=z_train.device)
    seeds = list(range(len(encoders)))
    network = trained_networks(z_train, target, hidden=hidden, epochs=epochs, seeds=seeds)
    return balanced_accuracy(predicted(network, z_test), a_test, a_test)


def latents(encoders: Sequence[Any], table: Any, device: str | torch.device = "cpu") -> Tensor:
    """Every encoder's representation of a table, (M, n, D), in float32."""
    parts = [np.asarray(e.transform(table.X, sensitive_features=table.a), dtype=np.float32) for e in encoders]
    return torch.as_tensor(np.stack(parts), device=device)

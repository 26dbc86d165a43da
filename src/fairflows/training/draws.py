"""Where the rows and density samples of each training step come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fairflows.bijection.networks import generator_of
from fairflows.density import GroupDensities


@dataclass(frozen=True)
class Batches:
    """What T steps read. S random streams: models with the same seed share a stream, and so their batches.

    Attributes
    ----------
    x
        Points to encode, (T, S, K, R, D): first the B real rows of a group, then its density samples.
    log_p
        log p̂_a of the samples, (T, S, K, R − B).
    y
        Labels of the real rows, (T, S, K, B); None when there is no task.
    """

    x: Tensor
    log_p: Tensor
    y: Tensor | None


class Draws(Protocol):
    """A source of batches. A test can pass its own, to feed the same numbers to different ways of training."""

    streams: Tensor

    def take(self, n_steps: int) -> Batches:
        """The batches of the next steps; ``streams`` (M,) says which stream each model reads."""


class FreshDraws:
    """Rows drawn with replacement, B from every group, and as many fresh samples of every density.

    A row's chance is proportional to its sample weight: a row of weight two counts as two rows. All numbers of a
    stream come from a generator of its seed alone, so that a model sees the same batches in a stack and by itself.
    """

    def __init__(
        self,
        rows: Sequence[Tensor],
        labels: Sequence[Tensor] | None,
        densities: GroupDensities,
        *,
        seeds: Sequence[int],
        batch_size: int,
        sample_weight: Sequence[Tensor] | None = None,
    ):
        self._densities = densities
        self._batch_size = batch_size
        self._data = torch.cat(list(rows))
        self._labels = torch.cat(list(labels)) if labels is not None else None
        device = self._data.device
        weights = sample_weight if sample_weight is not None else [x.new_ones(len(x)) for x in rows]
        # One staircase for all groups: group a's rows climb from a to a + 1, so u + a finds a row of group a.
        self._staircase = torch.cat(
            [(w.double().cumsum(0) / w.double().sum()).clamp_max(1.0) + a for a, w in enumerate(weights)]
        ).to(device)
        sizes = torch.tensor([len(x) for x in rows], device=device)
        self._last = sizes.cumsum(0) - 1
        self._groups = torch.arange(len(rows), device=device)
        distinct = list(dict.fromkeys(seeds))
        self.streams = torch.tensor([distinct.index(seed) for seed in seeds], device=device)
        self._generators = [
            torch.Generator(device).manual_seed(generator_of(seed, "batches").initial_seed()) for seed in distinct
        ]

    @torch.no_grad()
    def take(self, n_steps: int) -> Batches:
        """The batches of the next steps."""
        parts = [self._of_stream(n_steps, generator) for generator in self._generators]
        x, log_p = (torch.stack([part[i] for part in parts], dim=1) for i in (0, 1))
        if self._labels is None:
            return Batches(x, log_p, None)
        return Batches(x, log_p, torch.stack([self._labels[part[2]] for part in parts], dim=1))

    def _of_stream(self, n_steps: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        n_groups, batch = len(self._groups), self._batch_size
        size = (n_steps, n_groups, batch)
        climb = torch.rand(size, generator=generator, device=self._data.device, dtype=torch.float64)
        chosen = torch.searchsorted(self._staircase, climb + self._groups[:, None], right=True)
        chosen = torch.minimum(chosen, self._last[:, None])
        samples = self._densities.sample(n_steps * batch, generator)
        log_p = self._densities.log_prob(samples)
        # (K, L·T·B, D) -> (T, K, L·B, D): the samples of a step are L blocks, label after label
        blocks = (self._densities.n_labels, n_steps, batch)
        samples = samples.unflatten(1, blocks).movedim(2, 0).flatten(2, 3)
        log_p = log_p.unflatten(1, blocks).movedim(2, 0).flatten(2, 3)
        return torch.cat([self._data[chosen], samples.to(self._data)], dim=2), log_p.to(self._data), chosen


_ROUND = 32  # steps drawn at once: few enough that memory grows with the batch only


class Feed:
    """Hands a step its batch, from buffers at fixed addresses, as a captured step needs."""

    def __init__(self, draws: Draws):
        self._draws = draws
        self._buffers = draws.take(_ROUND)
        self._used = 0
        self._position = torch.zeros((), dtype=torch.long, device=self._buffers.x.device)
        self._n_streams = self._buffers.x.shape[1]

    def refill_when_empty(self) -> None:
        """Draw the next round once the steps have used up this one."""
        if self._used == _ROUND:
            fresh = self._draws.take(_ROUND)
            self._buffers.x.copy_(fresh.x)
            self._buffers.log_p.copy_(fresh.log_p)
            if self._buffers.y is not None and fresh.y is not None:
                self._buffers.y.copy_(fresh.y)
            self._position.zero_()
            self._used = 0
        self._used += 1

    def next(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Points (M, K, R, D), log-densities of the samples among them, and labels, for the current step."""
        which = self._position * self._n_streams + self._draws.streams
        self._position.add_(1)
        x, log_p, y = self._buffers.x, self._buffers.log_p, self._buffers.y
        return (
            x.flatten(0, 1).index_select(0, which),
            log_p.flatten(0, 1).index_select(0, which),
            None if y is None else y.flatten(0, 1).index_select(0, which),
        )

"""Where the rows and the density draws of each training step come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fairflows.bijection.networks import generator_of
from fairflows.compute.streams import SecondStream
from fairflows.density import GroupDensities
from fairflows.density.base import FreshNoise
from fairflows.training.algorithm1 import Batch


@dataclass(frozen=True)
class GroupRows:
    """Rows by group: each list has one tensor per group, all on the same device."""

    x: list[Tensor]  # the rows of a group, (n_a, D), in float32
    y: list[Tensor] | None = None  # their labels, (n_a,), whole numbers from 0 on; None when there is no task
    # Their weights, (n_a,): a row is drawn with a probability proportional to its weight. None for equal weights.
    weight: list[Tensor] | None = None
    noise: FreshNoise | None = None  # the noise that rows get anew in every batch; x then holds their grid points

    @property
    def smallest(self) -> int:
        """The number of rows of the smallest group."""
        return min(len(x) for x in self.x)


class Draws(Protocol):
    """A source of batches. Tests pass their own, to feed the same numbers to different ways of training."""

    streams: Tensor
    """Which of S random streams each model reads, (M,): models of equal seed share one, and so their batches."""

    def take(self, n_steps: int) -> Batch:
        """The batches of the next T steps, with leading axes (T, S)."""


class FreshDraws:
    """Rows drawn with replacement, B from every group, and as many fresh draws from every density.

    All numbers of a stream come from a generator with the seed of that stream, so that a model reads the same batches
    in a stack and alone.
    """

    def __init__(self, data: GroupRows, densities: GroupDensities, *, seeds: Sequence[int], batch_size: int):
        self._densities = densities
        self._batch_size = batch_size
        self._x, self._noise = torch.cat(data.x), data.noise
        self._y = torch.cat(data.y) if data.y is not None else None
        device = self._x.device
        weights = data.weight if data.weight is not None else [x.new_ones(len(x)) for x in data.x]
        # The cumulative weights of group a run from a to a + 1, in one sorted list for all groups: the place of u + a
        # in it, with u uniform on [0, 1), is a row of group a.
        self._cumulative = torch.cat(
            [(w.double().cumsum(0) / w.double().sum()).clamp_max(1.0) + a for a, w in enumerate(weights)]
        ).to(device)
        self._last_row = torch.tensor([len(x) for x in data.x], device=device).cumsum(0) - 1
        self._groups = torch.arange(len(data.x), device=device)
        distinct = list(dict.fromkeys(seeds))
        self.streams = torch.tensor([distinct.index(seed) for seed in seeds], device=device)
        self._generators = [
            torch.Generator(device).manual_seed(generator_of(seed, "batches").initial_seed()) for seed in distinct
        ]

    @torch.no_grad()
    def take(self, n_steps: int) -> Batch:
        """The batches of the next T steps, with leading axes (T, S)."""
        parts = [self._of_stream(n_steps, generator) for generator in self._generators]
        rows, x, draws = (torch.stack([part[i] for part in parts], dim=1) for i in range(3))
        # Densities take the draws of a label together, (K, L·T·S·B, D), those of all streams at once.
        log_p_x = self._densities.log_prob(draws.movedim((2, 3), (0, 1)).flatten(1, 4))
        by_label = (self._densities.n_labels, *draws.shape[:2], self._batch_size)
        log_p_x = log_p_x.unflatten(1, by_label).movedim((0, 1), (2, 3))
        y = None if self._y is None else self._y[rows]
        return Batch(torch.cat([x, draws.flatten(3, 4)], dim=3), log_p_x.flatten(3, 4).to(x), y)

    def _of_stream(self, n_steps: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Numbers of rows (T, K, B), the rows (T, K, B, D), and draws from the densities (T, K, L, B, D)."""
        B = self._batch_size
        size = (n_steps, len(self._groups), B)
        uniform = torch.rand(size, generator=generator, device=self._x.device, dtype=torch.float64)
        rows = torch.searchsorted(self._cumulative, uniform + self._groups[:, None], right=True)
        rows = torch.minimum(rows, self._last_row[:, None])
        x = self._x[rows]
        if self._noise is not None:
            x = self._noise.add(x, generator)
        draws = self._densities.sample(n_steps * B, generator).unflatten(1, (self._densities.n_labels, n_steps, B))
        return rows, x, draws.movedim(2, 0).to(x)


_STEPS_AT_ONCE = 32  # few enough that memory grows with the batch only


class Feed:
    """Hands each step its batch, from buffers at fixed addresses, as a captured step needs.

    On a GPU the next batches are drawn beside the steps that use the last ones.
    """

    def __init__(self, draws: Draws):
        self._draws = draws
        self._buffers = draws.take(_STEPS_AT_ONCE)
        self._n_used = 0
        device = self._buffers.x.device
        self._beside = SecondStream(device, "batches")
        self._drawn_ahead: Batch | None = None
        self._position = torch.zeros((), dtype=torch.long, device=device)
        self._n_streams = self._buffers.x.shape[1]

    def refill_when_empty(self) -> None:
        """Fill in new batches once all have been used. To be called before each step, outside the captured part."""
        if self._n_used == _STEPS_AT_ONCE:
            fresh_batches = self._drawn_ahead or self._draws.take(_STEPS_AT_ONCE)
            self._beside.join()
            for buffer, fresh in zip(self._buffers, fresh_batches, strict=True):
                if buffer is not None and fresh is not None:
                    buffer.copy_(fresh)
            if self._buffers.x.is_cuda:
                self._drawn_ahead = self._beside.run(self._draws.take, _STEPS_AT_ONCE)
            self._position.zero_()
            self._n_used = 0
        self._n_used += 1

    def next(self) -> Batch:
        """The batch of the current step, with the M models as leading axis."""
        which = self._position * self._n_streams + self._draws.streams
        self._position.add_(1)
        x, log_p_x, y = self._buffers
        return Batch(
            x.flatten(0, 1).index_select(0, which),
            log_p_x.flatten(0, 1).index_select(0, which),
            None if y is None else y.flatten(0, 1).index_select(0, which),
        )

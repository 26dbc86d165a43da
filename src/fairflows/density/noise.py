"""New noise for rows on a grid, whenever they are read: dequantisation as it is meant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class FreshNoise:
    r"""Rows of model space, made anew from their grid points: :math:`x = logit(s + w \odot u)`, u uniform on [0, 1).

    With noise that is drawn once, a density of many steps learns the noise of its rows; drawn anew, the noise has
    nothing that could be learnt. Everything happens on the device of the rows.

    Attributes
    ----------
    width : Tensor of shape (D,)
        w, the width of a grid's step; zero where a feature has no noise.
    """

    width: Tensor

    def add(self, s: Tensor, generator: torch.Generator) -> Tensor:
        """Rows x (..., D) of model space from their grid points s (..., D), which lie in (0, 1)."""
        u = torch.rand(s.shape, generator=generator, device=s.device, dtype=s.dtype)
        return torch.logit(s + self.width * u)


def with_noise(rows: Sequence[Tensor], noise: FreshNoise | None, random_state: int) -> list[Tensor]:
    """The rows of each group with one draw of their noise; as they are, when they have none."""
    if noise is None:
        return list(rows)
    generator = torch.Generator(rows[0].device).manual_seed(random_state)
    return [noise.add(s, generator) for s in rows]

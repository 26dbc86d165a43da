r"""Normalising flows as densities: standardised rows through couplings to a standard normal.

.. math:: \log \hat p(x) = \log N(f(u); 0, I) + \log|\det f'(u)| - \textstyle\sum \log \sigma,
          \qquad u = (x - \mu)/\sigma.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Literal, Self

import torch
from torch import Tensor

from fairflows.bijection import Bijection, NeuralSpline, RealNVP
from fairflows.density.base import Density, checked_rows, maximise_likelihood


class FlowDensity(Density):
    """A RealNVP or neural spline flow, trained by maximum likelihood.

    Parameters
    ----------
    kind
        ``"realnvp"`` or ``"spline"``.
    n_blocks, hidden
        Couplings and the hidden layers of each.
    n_steps, batch_size, learning_rate, weight_decay
        Adam steps on batches drawn with replacement; the learning rate is divided by ten at one and two thirds.

    Examples
    --------
    >>> density = FlowDensity(n_steps=20).fit(torch.randn(500, 3))
    >>> density.sample(4, torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3])
    """

    bijection: Bijection
    location: Tensor
    scale: Tensor

    def __init__(
        self,
        kind: Literal["realnvp", "spline"] = "realnvp",
        *,
        n_blocks: int = 4,
        hidden: Sequence[int] = (20, 20),
        n_steps: int = 4000,
        batch_size: int = 512,
        learning_rate: float = 0.01,
        weight_decay: float = 1e-4,
    ):
        super().__init__()
        if kind not in ("realnvp", "spline"):
            raise ValueError(f"kind must be 'realnvp' or 'spline'; got {kind!r}.")
        self.kind, self.n_blocks, self.hidden = kind, n_blocks, tuple(hidden)
        self.n_steps, self.batch_size = n_steps, batch_size
        self.learning_rate, self.weight_decay = learning_rate, weight_decay

    def _bijection(self, n_features: int, n_groups: int, seed: int) -> Bijection:
        family = RealNVP if self.kind == "realnvp" else NeuralSpline
        return family(n_features, n_groups=n_groups, n_blocks=self.n_blocks, hidden=self.hidden, seeds=(seed,))

    def fit_groups(self, rows: Sequence[Tensor], random_state: int = 0) -> list[Self]:
        """A flow for each group, all trained at once."""
        rows = [checked_rows(x) for x in rows]
        bijection = self._bijection(rows[0].shape[1], len(rows), random_state).to(rows[0])
        location = torch.stack([x.mean(0) for x in rows])
        scale = torch.stack([x.std(0) for x in rows]).clamp_min(1e-6)
        stack = FlowStack(bijection, location, scale)
        maximise_likelihood(
            stack.log_prob,
            bijection.parameters(),
            rows,
            n_steps=self.n_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            random_state=random_state,
        )
        return [
            copy.deepcopy(self)._keep(
                rows[0].shape[1],
                bijection=bijection.select_group(g),
                location=location[g].clone(),
                scale=scale[g].clone(),
            )
            for g in range(len(rows))
        ]

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-densities (...) of points (..., D)."""
        return self._alone().log_prob(x.reshape(1, -1, self.n_features)).view(x.shape[:-1])

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws (n, D)."""
        return self._alone().sample(n, generator)[0]

    def _alone(self) -> FlowStack:
        return FlowStack(self.bijection, self.location[None], self.scale[None])

    @classmethod
    def stack(cls, densities: Sequence[Self]) -> FlowStack | None:
        """All of these as one computation, if their networks have the same shape."""
        if len({(d.kind, d.n_blocks, d.hidden) for d in densities}) > 1:
            return None
        bijections = [density.bijection for density in densities]
        return FlowStack(
            type(bijections[0]).join_groups(bijections),
            torch.stack([density.location for density in densities]),
            torch.stack([density.scale for density in densities]),
        )


class FlowStack:
    """G flows in one bijection of G groups."""

    def __init__(self, bijection: Bijection, location: Tensor, scale: Tensor):
        self.bijection = bijection
        self._location, self._scale = location.unsqueeze(1), scale.unsqueeze(1)  # (G, 1, D)
        self._constant = -scale.log().sum(-1, keepdim=True) - 0.5 * scale.shape[-1] * math.log(2 * math.pi)

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-densities (G, N) of points (G, N, D)."""
        u, log_det = self.bijection.forward((x - self._location) / self._scale)
        return log_det[0] - 0.5 * u[0].square().sum(-1) + self._constant

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws (G, n, D)."""
        n_groups, _, n_features = self._location.shape
        noise = torch.randn(
            n_groups, n, n_features, generator=generator, device=self._scale.device, dtype=self._scale.dtype
        )
        with torch.no_grad():
            return self.bijection.inverse(noise)[0][0] * self._scale + self._location

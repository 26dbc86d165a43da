r"""An autoregressive density: each feature normal, given the features before it.

.. math:: \hat p(x) = \prod_j N\bigl(x_j;\, m_j(x_{<j}),\, e^{v_j(x_{<j})}\bigr)

The D networks of all groups are one stack, so that log_prob is a single pass; sampling goes feature by feature.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from fairflows.bijection.networks import StackedMLP, apply_networks, augment
from fairflows.density.base import Density, checked_rows, maximise_likelihood


class AutoregressiveDensity(Density):
    """One network per feature gives the mean and log-variance of that feature, trained by maximum likelihood.

    Parameters
    ----------
    hidden
        Hidden layers of each network.
    n_steps, batch_size, learning_rate, weight_decay
        Adam steps on batches drawn with replacement; the learning rate is divided by ten at one and two thirds.

    Examples
    --------
    >>> density = AutoregressiveDensity(n_steps=20).fit(torch.randn(500, 3))
    >>> density.log_prob(torch.zeros(7, 3)).shape
    torch.Size([7])
    """

    networks: StackedMLP
    location: Tensor
    scale: Tensor

    def __init__(
        self,
        *,
        hidden: Sequence[int] = (20, 20),
        n_steps: int = 4000,
        batch_size: int = 512,
        learning_rate: float = 0.01,
        weight_decay: float = 1e-4,
    ):
        super().__init__()
        self.hidden = tuple(hidden)
        self.n_steps, self.batch_size = n_steps, batch_size
        self.learning_rate, self.weight_decay = learning_rate, weight_decay

    def _networks(self, n_features: int, n_groups: int, seed: int) -> StackedMLP:
        before = torch.ones(n_features, n_features, dtype=torch.bool).tril(-1)  # network j reads x_{<j}
        return StackedMLP(
            n_features,
            self.hidden,
            2,
            seeds=(seed,),
            lead=(n_groups, n_features),
            stream="autoregressive",
            visible=before,
        )

    def fit_groups(self, rows: Sequence[Tensor], random_state: int = 0) -> list[Self]:
        """A density for each group, all trained at once."""
        rows = [checked_rows(x) for x in rows]
        networks = self._networks(rows[0].shape[1], len(rows), random_state).to(rows[0])
        location = torch.stack([x.mean(0) for x in rows])
        scale = torch.stack([x.std(0) for x in rows]).clamp_min(1e-6)
        maximise_likelihood(
            AutoregressiveStack(networks, location, scale).log_prob,
            networks.parameters(),
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
                networks=networks.select_group(g),
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

    def _alone(self) -> AutoregressiveStack:
        return AutoregressiveStack(self.networks, self.location[None], self.scale[None])

    @classmethod
    def stack(cls, densities: Sequence[Self]) -> AutoregressiveStack | None:
        """All of these as one computation, if their networks have the same shape."""
        if len({density.hidden for density in densities}) > 1:
            return None
        return AutoregressiveStack(
            StackedMLP.join_groups([density.networks for density in densities]),
            torch.stack([density.location for density in densities]),
            torch.stack([density.scale for density in densities]),
        )


class AutoregressiveStack:
    """G autoregressive densities: G · D networks in one stack."""

    def __init__(self, networks: StackedMLP, location: Tensor, scale: Tensor):
        self.networks = networks
        self._location, self._scale = location.unsqueeze(1), scale.unsqueeze(1)  # (G, 1, D)
        self._constant = -scale.log().sum(-1, keepdim=True) - 0.5 * scale.shape[-1] * math.log(2 * math.pi)

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-densities (G, N) of points (G, N, D)."""
        u = (x - self._location) / self._scale
        mean, log_variance = self.networks(u.unsqueeze(1))[0].unbind(-1)  # (G, D, N)
        square = (u.mT - mean).square() * torch.exp(-log_variance)
        return self._constant - 0.5 * (square + log_variance).sum(1)

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws (G, n, D)."""
        n_groups, _, n_features = self._location.shape
        u = torch.randn(
            n_groups, n, n_features, generator=generator, device=self._scale.device, dtype=self._scale.dtype
        )
        layers = [weight[0] for weight in self.networks.matrices()]  # (G, D, w, w')
        for j in range(n_features):
            mean, log_variance = apply_networks(augment(u), [weight[:, j] for weight in layers]).unbind(-1)
            u[..., j] = mean + u[..., j] * torch.exp(0.5 * log_variance)
        return u * self._scale + self._location

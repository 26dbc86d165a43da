"""Densities trained by maximum likelihood: networks on standardised rows, those of all groups in one stack."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from fairflows.bijection import Bijection, NeuralSpline, RealNVP
from fairflows.bijection.networks import Stacked, StackedMLP, apply_networks, augment
from fairflows.bijection.steps import AdamSteps, chosen_threads, milestone_rate
from fairflows.density.base import Density, FreshNoise, checked_rows, with_noise

_ROUND = 64  # steps whose rows are drawn at once


class TrainedStack(ABC):
    """G densities of one family: their networks in one stack, and the location and scale (G, D) of each."""

    def __init__(self, networks: Stacked, location: Tensor, scale: Tensor):
        self._networks = networks
        self._location, self._scale = location.unsqueeze(1), scale.unsqueeze(1)  # (G, 1, D)
        self._constant = -scale.log().sum(-1, keepdim=True) - 0.5 * scale.shape[-1] * math.log(2 * math.pi)

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log-densities (G, N) of points (G, N, D)."""
        return self._constant + self._exponent((x - self._location) / self._scale)

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Return draws (G, n, D)."""
        n_groups, _, n_features = self._location.shape
        noise = torch.randn(
            n_groups, n, n_features, generator=generator, device=self._scale.device, dtype=self._scale.dtype
        )
        return self._from_noise(noise) * self._scale + self._location

    @abstractmethod
    def _exponent(self, u: Tensor) -> Tensor:
        """Return log-densities (G, N) of standardised points (G, N, D), but for a constant."""

    @abstractmethod
    def _from_noise(self, noise: Tensor) -> Tensor:
        """Return standardised points made of standard normal noise, (G, n, D)."""


class TrainedDensity(Density):
    """A density whose networks are trained; a family says which networks, and how they make a density."""

    networks: Stacked
    location: Tensor
    scale: Tensor
    n_steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    capturable = True

    _stack_of: ClassVar[type[TrainedStack]]

    @abstractmethod
    def _new_networks(self, n_features: int, n_groups: int, seed: int) -> Stacked:
        """Return networks with their first weights."""

    @abstractmethod
    def _shape(self) -> tuple[object, ...]:
        """Return the settings that networks must share to become one stack."""

    def fit(self, x: Tensor, random_state: int = 0) -> Self:
        """Train the density on rows (n, D)."""
        self.__dict__.update(self.fit_groups([x], random_state)[0].__dict__)
        return self

    def fit_groups(
        self, rows: Sequence[Tensor], random_state: int = 0, *, noise: FreshNoise | None = None
    ) -> list[Self]:
        """Return a density for each group, all trained at once; with ``noise``, rows are grid points."""
        rows = [checked_rows(x) for x in rows]
        shown = with_noise(rows, noise, random_state)
        n_features = rows[0].shape[1]
        networks = self._new_networks(n_features, len(rows), random_state).to(rows[0])
        location = torch.stack([x.mean(0) for x in shown])
        scale = torch.stack([x.std(0) for x in shown]).clamp_min(1e-6)
        self._maximise_likelihood(self._stack_of(networks, location, scale), networks, rows, random_state, noise)
        return [
            copy.deepcopy(self)._keep(
                n_features, networks=networks.select_group(g), location=location[g].clone(), scale=scale[g].clone()
            )
            for g in range(len(rows))
        ]

    def _maximise_likelihood(
        self,
        stack: TrainedStack,
        networks: Stacked,
        rows: Sequence[Tensor],
        random_state: int,
        noise: FreshNoise | None,
    ) -> None:
        """Train G densities on rows of G groups: each step takes ``batch_size`` rows of every group, with replacement.

        Noise, if any, is new in every step. The loss is the sum of the groups' negative mean log-likelihoods, so every
        group is trained as it would be alone.
        """
        data = torch.cat(list(rows))
        device = data.device
        sizes = torch.tensor([len(x) for x in rows], device=device)
        first = sizes.cumsum(0) - sizes
        generator = torch.Generator(device).manual_seed(random_state)
        shape = (_ROUND, len(rows), self.batch_size)
        pool = data.new_empty(*shape, data.shape[1])
        position = torch.zeros(1, dtype=torch.long, device=device)

        def loss() -> Tensor:
            x = pool.index_select(0, position).squeeze(0)
            position.add_(1)
            return -stack.log_prob(x).mean(-1).sum()

        steps = AdamSteps(
            loss,
            networks.parameters(),
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            capture=device.type == "cuda",
        )
        with chosen_threads(device) as run:
            for step in range(self.n_steps):
                if step % _ROUND == 0:
                    uniform = torch.rand(*shape, generator=generator, device=device, dtype=torch.float64)
                    chosen = first[:, None] + (uniform * sizes[:, None]).long()
                    pool.copy_(data[chosen] if noise is None else noise.add(data[chosen], generator))
                    position.zero_()
                steps.set_learning_rate(milestone_rate(self.learning_rate, step, self.n_steps))
                run(steps.step)

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log-densities (...) of points (..., D)."""
        return self._alone().log_prob(x.reshape(1, -1, self.n_features)).view(x.shape[:-1])

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Return draws (n, D)."""
        return self._alone().sample(n, generator)[0]

    def _alone(self) -> TrainedStack:
        return self._stack_of(self.networks, self.location[None], self.scale[None])

    @classmethod
    def stack(cls, densities: Sequence[Self]) -> TrainedStack | None:
        """Return all of these as one computation, if their networks have the same shape."""
        if len({density._shape() for density in densities}) > 1:
            return None
        return cls._stack_of(
            type(densities[0].networks).join_groups([density.networks for density in densities]),
            torch.stack([density.location for density in densities]),
            torch.stack([density.scale for density in densities]),
        )


class FlowStack(TrainedStack):
    """G flows in one bijection of G groups."""

    _networks: Bijection

    def _exponent(self, u: Tensor) -> Tensor:
        z, log_det = self._networks.forward(u)
        return log_det[0] - 0.5 * z[0].square().sum(-1)

    def _from_noise(self, noise: Tensor) -> Tensor:
        return self._networks.inverse(noise)[0][0]


class FlowDensity(TrainedDensity):
    r"""A RealNVP or neural spline flow: standardised rows through couplings to a standard normal.

    .. math:: \log \hat p(x) = \log N(f(u); 0, I) + \log|\det f'(u)| - \textstyle\sum \log \sigma,
              \qquad u = (x - \mu)/\sigma.

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

    _stack_of = FlowStack

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

    def _new_networks(self, n_features: int, n_groups: int, seed: int) -> Bijection:
        family = RealNVP if self.kind == "realnvp" else NeuralSpline
        return family(n_features, n_groups=n_groups, n_blocks=self.n_blocks, hidden=self.hidden, seeds=(seed,))

    def _shape(self) -> tuple[object, ...]:
        return self.kind, self.n_blocks, self.hidden


class AutoregressiveStack(TrainedStack):
    """G autoregressive densities: G · D networks in one stack."""

    _networks: StackedMLP

    def _exponent(self, u: Tensor) -> Tensor:
        mean, log_variance = self._networks(u.unsqueeze(1))[0].unbind(-1)  # (G, D, N)
        square = (u.mT - mean).square() * torch.exp(-log_variance)
        return -0.5 * (square + log_variance).sum(1)

    def _from_noise(self, noise: Tensor) -> Tensor:
        layers = [weight[0] for weight in self._networks.matrices()]  # (G, D, w, w')
        for j in range(noise.shape[-1]):  # feature by feature: each is made from those before it
            mean, log_variance = apply_networks(augment(noise), [weight[:, j] for weight in layers]).unbind(-1)
            noise[..., j] = mean + noise[..., j] * torch.exp(0.5 * log_variance)
        return noise


class AutoregressiveDensity(TrainedDensity):
    r"""Each feature normal, given the features before it; one network per feature gives its mean and log-variance.

    .. math:: \hat p(x) = \prod_j N\bigl(x_j;\, m_j(x_{<j}),\, e^{v_j(x_{<j})}\bigr)

    Parameters
    ----------
    hidden
        Hidden layers of each network.
    n_steps, batch_size, learning_rate, weight_decay
        As for `FlowDensity`.

    Examples
    --------
    >>> density = AutoregressiveDensity(n_steps=20).fit(torch.randn(500, 3))
    >>> density.log_prob(torch.zeros(7, 3)).shape
    torch.Size([7])
    """

    _stack_of = AutoregressiveStack

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

    def _new_networks(self, n_features: int, n_groups: int, seed: int) -> StackedMLP:
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

    def _shape(self) -> tuple[object, ...]:
        return (self.hidden,)

"""A density that is known, or was estimated elsewhere: any torch distribution or zuko flow."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.distributions.transforms import Transform

from fairflows.density.base import Density


class KnownDensity(Density):
    """An adapter for a distribution over D features; nothing is estimated.

    Parameters
    ----------
    distribution
        A ``torch.distributions`` object with event shape (D,) and no batch shape, or a zuko flow: anything with
        ``log_prob``, differentiable in x, and ``sample``. It is copied, and follows ``.to(device)`` and ``.double()``.

    Examples
    --------
    >>> from torch.distributions import MultivariateNormal
    >>> density = KnownDensity(MultivariateNormal(torch.zeros(2), torch.eye(2)))
    >>> density.log_prob(torch.zeros(5, 2)).shape
    torch.Size([5])
    """

    capturable = False  # a user's log_prob may do anything, also synchronise with the host

    def __init__(self, distribution: Any):
        super().__init__()
        self.distribution = copy.deepcopy(distribution)
        if isinstance(self.distribution, nn.Module):
            self.distribution.requires_grad_(False)
        for part in _parts(self.distribution):
            part._validate_args = False  # a model that diverges is reported by the training, not by an argument check
        self.n_features = self._checked_features()

    def _torch_distribution(self) -> Any:
        # A zuko flow is a module that gives a distribution when called.
        return self.distribution() if isinstance(self.distribution, nn.Module) else self.distribution

    def _checked_features(self) -> int:
        name = type(self.distribution).__name__
        for method in ("log_prob", "sample"):
            if not hasattr(self._torch_distribution(), method):
                raise ValueError(f"a known density needs log_prob and sample; {name} has no {method}.")
        with torch.random.fork_rng(devices=[]):
            x = self._torch_distribution().sample((16,)).detach()
        if x.ndim != 2:
            raise ValueError(
                f"a known density must draw vectors, (n, D); {name} draws arrays of shape {tuple(x.shape)}. "
                "Independent(distribution, 1) turns a batch of scalars into a vector."
            )
        x.requires_grad_()
        log_p = self._torch_distribution().log_prob(x)
        if log_p.shape != (16,):
            raise ValueError(
                f"log_prob of a known density must give one number a row; {name} gave {tuple(log_p.shape)}."
            )
        if not log_p.requires_grad:
            raise ValueError(f"log_prob of a known density must be differentiable in x; that of {name} is not.")
        (slope,) = torch.autograd.grad(log_p.sum(), x, allow_unused=True)
        if slope is None:
            raise ValueError(f"log_prob of a known density must be differentiable in x; that of {name} is not.")
        if not bool(torch.isfinite(log_p).all() and torch.isfinite(slope).all()):
            raise ValueError(
                f"log_prob of {name} or its gradient is NaN or infinite at points the density drew itself."
            )
        return x.shape[1]

    def fit(self, x: Tensor, random_state: int = 0) -> Self:
        """Nothing to estimate."""
        return self

    def _fit(self, x: Tensor, random_state: int) -> Self:
        return self

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-densities (...) of points (..., D)."""
        return self._torch_distribution().log_prob(x)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws (n, D)."""
        # Distributions draw from the global generator only: seed it for the moment, and put it back.
        device = generator.device
        seed = torch.randint(2**62, (1,), generator=generator, device=device)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(int(seed))
            return self._torch_distribution().sample((n,)).detach()

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        moved = super()._apply(fn, recurse)
        for part in _parts(self.distribution):
            for name, value in vars(part).items():
                if isinstance(value, Tensor):
                    vars(part)[name] = fn(value)
        return moved


def _parts(source: Any) -> Iterator[Any]:
    """A distribution, and the distributions and transforms it is made of."""
    if isinstance(source, Distribution | Transform):
        yield source
        for value in list(vars(source).values()):
            for item in value if isinstance(value, list | tuple) else [value]:
                yield from _parts(item)

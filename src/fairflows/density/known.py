"""A density that is known, or was estimated elsewhere: any torch distribution or zuko flow."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.distributions.transforms import Transform

from fairflows.density.base import Density, check_density
from fairflows.exceptions import DataError


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

    place: Tensor

    def __init__(self, distribution: Any):
        super().__init__()
        self.distribution = copy.deepcopy(distribution)
        if isinstance(self.distribution, nn.Module):
            self.distribution.requires_grad_(False)
        self._made_of = list(_parts(self.distribution))
        for part in self._made_of:
            # torch has no public name for this. A check of arguments would wait for the device, and raise where a model
            # diverges, which the training reports.
            part._validate_args = False
        tensors = [value for _, _, value in _tensors(self._made_of)]
        widest = max(tensors, key=lambda value: value.element_size(), default=torch.zeros(()))
        self.register_buffer("place", widest.new_zeros(()), persistent=False)  # follows .to() and .double()
        self.n_features = self._drawn_features()
        check_density(self, type(self.distribution).__name__)

    def _torch_distribution(self) -> Any:
        if isinstance(self.distribution, nn.Module):  # a zuko flow is a module that gives a distribution when called
            return self.distribution()
        for part, name, value in list(_tensors(self._made_of)):
            vars(part)[name] = value.to(self.place)
        return self.distribution

    def _drawn_features(self) -> int:
        name = type(self.distribution).__name__
        for method in ("log_prob", "sample"):
            if not hasattr(self._torch_distribution(), method):
                raise DataError(f"a known density needs log_prob and sample; {name} has no {method}.")
        shape = tuple(self.sample(16, torch.Generator().manual_seed(0)).shape)
        if len(shape) != 2:
            raise DataError(
                f"a known density must draw vectors, (n, D); {name} draws arrays of shape {shape}. "
                "Independent(distribution, 1) turns a batch of scalars into a vector."
            )
        return shape[1]

    def fit(self, x: Tensor, random_state: int = 0) -> Self:
        """Return the density as it is: nothing is estimated."""
        return self

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log-densities (...) of points (..., D)."""
        return self._torch_distribution().log_prob(x)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Return draws (n, D)."""
        # Distributions draw from the global generators only: seed those for the moment that are put back afterwards.
        device = generator.device
        seed = int(torch.randint(2**62, (1,), generator=generator, device=device))
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.default_generator.manual_seed(seed)
            if device.type == "cuda":
                torch.cuda.manual_seed(seed)
            return self._torch_distribution().sample((n,)).detach()

    def to_dict(self) -> dict[str, Any]:
        """Return the state to save: all of it came with the constructor."""
        return super().to_dict() | {"fitted": {}}


class InModelSpace(Density):
    """A density that is known in the table's own units, as a density of the codec's x.

    A regulator states p(v) for the values v of the table; encoders work on x, the logit of scaled values. With the
    codec's map v(x), elementwise and increasing,

        log p(x) = log p(v(x)) + Σ_j log ∂v_j/∂x_j.

    Parameters
    ----------
    density
        The density in table units.
    low, width : Tensor of shape (D,)
        The training range of each dimension, in table units; in float64, since a range may be far from zero.
    alpha : float
        The range is scaled into [alpha/2, 1 − alpha/2] before the logit, and continued along the tangent outside.
    """

    low: Tensor
    width: Tensor

    def __init__(self, density: Density, low: Tensor, width: Tensor, alpha: float) -> None:
        super().__init__()
        if density.n_features != len(low):
            raise DataError(f"a known density must have the table's {len(low)} dimensions; got {density.n_features}.")
        self.density = density
        self.n_features = density.n_features
        self.capturable = density.capturable
        self.register_buffer("low", low)
        self.register_buffer("width", width)
        self.alpha = alpha
        self.limit = torch.logit(torch.tensor(1 - alpha / 2, dtype=torch.float64)).item()

    def log_prob(self, x: Tensor) -> Tensor:
        """Return log p(x), shape (...), for points (..., D) of model space."""
        inside = x.clamp(-self.limit, self.limit)
        edge = torch.sigmoid(inside)
        slope = edge * (1 - edge)
        s = edge + (x - inside) * slope
        low, width = self.low.to(x), self.width.to(x)
        v = low + width * (s - self.alpha / 2) / (1 - self.alpha)
        return self.density.log_prob(v) + (slope.log() + (width / (1 - self.alpha)).log()).sum(-1)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Return n draws of x, (n, D)."""
        v = self.density.sample(n, generator)
        s = self.alpha / 2 + (1 - self.alpha) * (v - self.low.to(v)) / self.width.to(v)
        edge = s.clamp(self.alpha / 2, 1 - self.alpha / 2)
        return torch.logit(edge) + (s - edge) / (edge * (1 - edge))

    def fit(self, x: Tensor, random_state: int = 0) -> Self:
        """Return the density as it is: nothing is estimated."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the state to save: all of it came with the constructor."""
        return super().to_dict() | {"fitted": {}}


def _parts(source: Any) -> Iterator[Any]:
    """Yield a distribution, and the distributions and transforms it is made of."""
    if isinstance(source, Distribution | Transform):
        yield source
        for value in list(vars(source).values()):
            for item in value if isinstance(value, list | tuple) else [value]:
                yield from _parts(item)


def _tensors(parts: Sequence[Any]) -> Iterator[tuple[Any, str, Tensor]]:
    """Yield the floating-point tensors of a distribution's parts: their owner, their name, and themselves."""
    for part in parts:
        for name, value in vars(part).items():
            if isinstance(value, Tensor) and value.is_floating_point():
                yield part, name, value

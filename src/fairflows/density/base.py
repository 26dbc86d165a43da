"""What every density of this folder promises."""

from __future__ import annotations

import copy
import inspect
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from fairflows.exceptions import DataError


class DensityStack(Protocol):
    """G densities of one family, evaluated as one computation."""

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-densities (G, N) of points (G, N, D), row g under density g."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws (G, n, D)."""


class Density(nn.Module):
    """An estimate p̂(x) of one group's law on D continuous features.

    ``fit(x)`` estimates it, ``log_prob(x)`` evaluates it and can be differentiated in x, ``sample(n, generator)``
    draws from it. Estimation happens in float32 or better; ``density.double()`` evaluates in float64.
    """

    n_features: int = 0
    capturable: bool = True  # log_prob may become part of a CUDA graph

    def fit(self, x: Tensor, random_state: int = 0) -> Self:
        """Estimate the density from rows (n, D)."""
        fitted = self.fit_groups([x], random_state)[0]
        self.__dict__.update(fitted.__dict__)
        return self

    def fit_groups(self, rows: Sequence[Tensor], random_state: int = 0) -> list[Self]:
        """A density with these settings for each of several groups, fitted together where that is faster."""
        return [copy.deepcopy(self)._fit(checked_rows(x), random_state) for x in rows]

    def _fit(self, x: Tensor, random_state: int) -> Self:
        """Estimate from checked rows; a family that fits groups together has its own ``fit_groups`` instead."""
        raise NotImplementedError(f"{type(self).__name__} fits groups together.")

    @abstractmethod
    def log_prob(self, x: Tensor) -> Tensor:
        """Log-densities (...) of points (..., D)."""

    @abstractmethod
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws (n, D)."""

    @classmethod
    def stack(cls, densities: Sequence[Self]) -> DensityStack | None:
        """All of these as one computation, or None where the family has none."""
        return None

    def score(self, x: Tensor) -> float:
        """Mean log-likelihood of rows, held out ones for an honest figure."""
        with torch.no_grad():
            return float(torch.cat([self.log_prob(part) for part in x.split(8192)]).double().mean())

    def to_state(self) -> dict[str, Any]:
        """What is saved: the constructor's arguments, kept under their names, and what was fitted."""
        settings = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        return {"settings": settings, "n_features": self.n_features, "fitted": {**self._buffers, **self._modules}}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The density that `to_state` described."""
        return cls(**state["settings"])._keep(state["n_features"], **state["fitted"])

    def _keep(self, n_features: int, **fitted: Tensor | nn.Module) -> Self:
        """Keep what was fitted, under these names; networks are held fixed from now on."""
        self.n_features = n_features
        for name, part in fitted.items():
            if isinstance(part, nn.Module):
                self.add_module(name, part.requires_grad_(False))
            else:
                self.register_buffer(name, part)
        return self


def checked_rows(x: Tensor) -> Tensor:
    """The rows, if a density can be estimated from them."""
    if x.ndim != 2:
        raise DataError(f"the rows of a density must be a table (rows, features); got {x.ndim} axes.")
    n, n_features = x.shape
    if n < max(n_features, 2):
        raise DataError(f"a density of {n_features} features needs at least {max(n_features, 2)} rows; got {n}.")
    if not bool(torch.isfinite(x).all()):
        raise DataError("the rows of a density must be finite; got NaN or infinity.")
    return x

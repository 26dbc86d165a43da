"""Base of densities of continuous rows, known densities, and the densities of all groups."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.distributions.transforms import Transform

from fairflows.exceptions import DataError


@dataclass(frozen=True)
class FreshNoise:
    r"""Rows of model space, made anew from their grid points: :math:`x = logit(s + w \odot u) + \sigma \odot N(0, I)`.

    With noise that is drawn once, a density of many steps learns the noise of its rows; drawn anew, the noise has
    nothing that could be learnt. Everything happens on the device of the rows.
    """

    width: Float[Tensor, " D"]  # w, the width of a grid's step; zero where a feature has no noise
    smoothing: Float[Tensor, " D"]  # σ, the deviation of normal noise; zero for categories

    def middle(self, s: Float[Tensor, "*points D"]) -> Float[Tensor, "*points D"]:
        """Return the rows in the middle of their noise."""
        return torch.logit(s + 0.5 * self.width)

    def add(self, s: Float[Tensor, "*points D"], generator: torch.Generator) -> Float[Tensor, "*points D"]:
        """Return rows x of model space from their grid points s, which lie in (0, 1)."""
        u = torch.rand(s.shape, generator=generator, device=s.device, dtype=s.dtype)  # uniform on [0, 1)
        normal = torch.randn(s.shape, generator=generator, device=s.device, dtype=s.dtype)
        return torch.logit(s + self.width * u) + self.smoothing * normal


def with_noise(rows: Sequence[Tensor], noise: FreshNoise | None, random_state: int) -> list[Float[Tensor, "_ D"]]:
    """Return the rows of each group with one draw of their noise; as they are, when they have none."""
    if noise is None:
        return list(rows)
    generator = torch.Generator(rows[0].device).manual_seed(random_state)
    return [noise.add(s, generator) for s in rows]


class DensityStack(Protocol):
    """G densities of one family, evaluated as one computation."""

    def log_prob(self, x: Float[Tensor, "G N D"]) -> Float[Tensor, "G N"]:
        """Return log-densities of points, row g under density g."""

    def sample(self, n: int, generator: torch.Generator) -> Float[Tensor, "G {n} D"]:
        """Return draws from each."""


@dataclass(frozen=True)
class _Alone:
    """One density of a family that has no stack."""

    density: Density

    def log_prob(self, x: Float[Tensor, "1 N D"]) -> Float[Tensor, "1 N"]:
        return self.density.log_prob(x[0]).unsqueeze(0)

    def sample(self, n: int, generator: torch.Generator) -> Float[Tensor, "1 {n} D"]:
        return self.density.sample(n, generator).unsqueeze(0)


def _taken(x: Tensor, places: list[int]) -> Tensor:
    """Return rows of a tensor; a list as an index would copy to the device, which a captured graph must not."""
    return x if len(places) == len(x) else torch.stack([x[i] for i in places])


class Density(nn.Module, ABC):
    """An estimate p̂(x) of one group's law on D continuous features.

    ``fit(x)`` estimates it, ``log_prob(x)`` evaluates it and can be differentiated in x, ``sample(n, generator)``
    draws from it. Estimation happens in float32 or better; ``density.double()`` evaluates in float64.

    A density of your own defines these three methods. Its constructor keeps its arguments under their names; ``fit``
    sets ``n_features`` and keeps what it estimated in buffers (``self.register_buffer``), parameters or modules, so
    that it is copied, moved to a device, saved and loaded with the density. `check_density` tries a fitted one.
    """

    n_features: int = 0
    capturable: bool = False  # log_prob may become part of a CUDA graph: it never waits for the device

    @abstractmethod
    def fit(self, x: Float[Tensor, "n D"], random_state: int = 0) -> Self:
        """Estimate the density from rows."""

    def fit_groups(
        self, rows: Sequence[Tensor], random_state: int = 0, *, noise: FreshNoise | None = None
    ) -> list[Self]:
        """Fit a density with these settings for each of several groups, together if that is faster.

        With ``noise``, rows are grid points, and the noise is added here: anew for every batch by a family that is
        trained in batches, once by the others.
        """
        return [copy.deepcopy(self).fit(checked_rows(x), random_state) for x in with_noise(rows, noise, random_state)]

    @abstractmethod
    def log_prob(self, x: Float[Tensor, "*points D"]) -> Float[Tensor, "*points"]:
        """Return log-densities of points."""

    @abstractmethod
    def sample(self, n: int, generator: torch.Generator) -> Float[Tensor, "{n} D"]:
        """Return n draws."""

    @classmethod
    def stack(cls, densities: Sequence[Self]) -> DensityStack | None:
        """Return all of these as one computation, or None where the family has none."""
        return None

    def score(self, x: Float[Tensor, "n D"]) -> float:
        """Return the mean log-likelihood of rows; held-out rows give an honest figure."""
        with torch.no_grad():
            return float(torch.cat([self.log_prob(part) for part in x.split(8192)]).cpu().double().mean())

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments, which every density keeps under their names."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def to_dict(self) -> dict[str, Any]:
        """Return the state to save: settings and fitted values."""
        settings = self.settings()
        parts = [*self.named_parameters(recurse=False), *self.named_buffers(recurse=False), *self.named_children()]
        fitted = {name: part for name, part in parts if name not in settings}
        return {"settings": settings, "n_features": self.n_features, "fitted": fitted}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Return the density that `to_dict` described."""
        return cls(**state["settings"])._keep(state["n_features"], **state["fitted"])

    def _keep(self, n_features: int, **fitted: Tensor | nn.Module) -> Self:
        """Keep fitted values under these names; networks are fixed from now on."""
        self.n_features = n_features
        for name, part in fitted.items():
            if isinstance(part, nn.Module):
                self.add_module(name, part.requires_grad_(False))
            else:
                if isinstance(getattr(self, name, None), nn.Parameter):  # one that the constructor made
                    delattr(self, name)
                self.register_buffer(name, part)
        return self


def check_density(density: Density, name: str | None = None) -> None:
    """Check the draws of a fitted density of your own, and their log-densities.

    Parameters
    ----------
    density
        The density.
    name
        What to call it in messages; its class when not given.

    Raises
    ------
    ValueError
        What is wrong: shapes, values that are not finite, or a log-density that cannot be differentiated in x.

    Examples
    --------
    >>> from fairflows.density import MixtureDensity
    >>> check_density(MixtureDensity(1).fit(torch.randn(100, 2)))
    """
    name, D = name or type(density).__name__, density.n_features
    x = density.sample(16, torch.Generator().manual_seed(0))
    if x.shape != (16, D) or D == 0:
        raise DataError(f"sample of {name} must draw vectors, (n, {D or 'D'}); got {tuple(x.shape)} for n = 16.")
    x = x.detach().requires_grad_()
    log_p = density.log_prob(x)
    if log_p.shape != (16,):
        raise DataError(f"log_prob of {name} must give one number per row; got {tuple(log_p.shape)} for 16 rows.")
    slope = torch.autograd.grad(log_p.sum(), x, allow_unused=True)[0] if log_p.requires_grad else None
    if slope is None:
        raise DataError(f"log_prob of {name} must be differentiable in x.")
    if not bool(torch.isfinite(log_p).all() and torch.isfinite(slope).all()):
        raise DataError(f"log_prob of {name} or its gradient is NaN or infinite at points that it drew itself.")


def checked_rows(x: Tensor, name: str = "a group") -> Float[Tensor, "n D"]:
    """Return the rows of a group; raise unless a density can be estimated from them."""
    if x.ndim != 2:
        raise DataError(f"the rows of {name} must be a table (rows, features); got {x.ndim} axes.")
    n, n_features = x.shape
    least = max(n_features, 2)
    if n < least:
        raise DataError(f"{name} has {n} rows for a density of {n_features} features; at least {least} are needed.")
    if not bool(torch.isfinite(x).all()):
        raise DataError(f"the rows of {name} must be finite; got NaN or infinity.")
    return x


class KnownDensity(Density):
    """An adapter for a distribution over D features; nothing is estimated.

    Parameters
    ----------
    distribution
        A ``torch.distributions`` object with event shape (D,) and no batch shape, and with a ``log_prob`` that is
        differentiable in x. It is copied, and follows ``.to(device)`` and ``.double()``.

    Examples
    --------
    >>> from torch.distributions import MultivariateNormal
    >>> density = KnownDensity(MultivariateNormal(torch.zeros(2), torch.eye(2)))
    >>> density.log_prob(torch.zeros(5, 2)).shape
    torch.Size([5])
    """

    def __init__(self, distribution: Distribution):
        super().__init__()
        name = type(distribution).__name__
        if not isinstance(distribution, Distribution):
            raise DataError(f"a known density must be a torch.distributions object; got {name}.")
        self.distribution = copy.deepcopy(distribution)
        self._made_of = list(_parts(self.distribution))
        for part in self._made_of:
            # torch has no public name for this. A check of arguments would wait for the device, and raise where a model
            # diverges, which the training reports.
            part._validate_args = False
        shape = tuple(self.sample(16, torch.Generator().manual_seed(0)).shape)
        if len(shape) != 2:
            raise DataError(
                f"a known density must draw vectors, (n, D); {name} draws arrays of shape {shape}. "
                "Independent(distribution, 1) turns a batch of scalars into a vector."
            )
        self.n_features = shape[1]
        check_density(self, name)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the distribution's tensors, too: torch calls this in ``.to()``, ``.double()`` and the like."""
        for part in self._made_of:
            tensors = {name: value for name, value in vars(part).items() if isinstance(value, Tensor)}
            vars(part).update({name: fn(value) for name, value in tensors.items()})
        return super()._apply(fn, recurse)

    def fit(self, x: Tensor, random_state: int = 0) -> Self:
        """Return the density itself, because it is known."""
        return self

    def log_prob(self, x: Float[Tensor, "*points D"]) -> Tensor:  # of a shape that `check_density` looks at
        """Return log-densities of points."""
        return self.distribution.log_prob(x)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Return draws (n, D)."""
        # Distributions draw from the global generators only: seed those for the moment that are put back afterwards.
        device = generator.device
        seed = int(torch.randint(2**62, (1,), generator=generator, device=device))
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.default_generator.manual_seed(seed)
            if device.type == "cuda":
                torch.cuda.manual_seed(seed)
            return self.distribution.sample((n,)).detach()


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

    def __init__(self, density: Density, low: Float[Tensor, " _"], width: Float[Tensor, " _"], alpha: float) -> None:
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

    def log_prob(self, x: Float[Tensor, "*points D"]) -> Float[Tensor, "*points"]:
        """Return log p(x) for points of model space."""
        inside = x.clamp(-self.limit, self.limit)
        edge = torch.sigmoid(inside)
        slope = edge * (1 - edge)
        s = edge + (x - inside) * slope
        low, width = self.low.to(x), self.width.to(x)
        v = low + width * (s - self.alpha / 2) / (1 - self.alpha)
        return self.density.log_prob(v) + (slope.log() + (width / (1 - self.alpha)).log()).sum(-1)

    def sample(self, n: int, generator: torch.Generator) -> Float[Tensor, "{n} D"]:
        """Return n draws of x."""
        v = self.density.sample(n, generator)
        s = self.alpha / 2 + (1 - self.alpha) * (v - self.low.to(v)) / self.width.to(v)
        edge = s.clamp(self.alpha / 2, 1 - self.alpha / 2)
        return torch.logit(edge) + (s - edge) / (edge * (1 - edge))

    def fit(self, x: Tensor, random_state: int = 0) -> Self:
        """Return the density itself, because it is known."""
        return self


def _parts(source: Any) -> Iterator[Any]:
    """Yield a distribution, and the distributions and transforms it is made of."""
    if isinstance(source, Distribution | Transform):
        yield source
        for value in list(vars(source).values()):
            for item in value if isinstance(value, list | tuple) else [value]:
                yield from _parts(item)


class GroupDensities(nn.Module):
    """One density for each of K groups, or for each group and each of L labels (equalized odds).

    Points have axes (..., K, R, D): row blocks under group a are evaluated under p̂_a. With labels, the R rows of a
    group are L blocks of equal length, and block l is evaluated under p̂(x | a, y = l).

    Parameters
    ----------
    densities
        K densities, or K lists of L.

    Examples
    --------
    >>> from fairflows.density import MixtureDensity
    >>> rows = [torch.randn(300, 2), torch.randn(200, 2) + 1]
    >>> densities = GroupDensities.fit(MixtureDensity(1), rows)
    >>> densities.log_prob(torch.zeros(5, 2, 10, 2)).shape
    torch.Size([5, 2, 10])
    """

    def __init__(self, densities: Sequence[Density] | Sequence[Sequence[Density]]):
        super().__init__()
        table = [[entry] if isinstance(entry, Density) else list(entry) for entry in densities]
        self.n_groups, self.n_labels = len(table), len(table[0])
        self._members = nn.ModuleList(density for row in table for density in row)
        self.n_features = table[0][0].n_features
        if len({density.n_features for row in table for density in row}) > 1:
            raise DataError("the densities must have the same number of features.")
        self._stacks: list[tuple[list[int], DensityStack]] = []
        self._stacked_on: object = None

    @property
    def members(self) -> list[Density]:
        """The densities, group after group and label after label."""
        return [member for member in self._members if isinstance(member, Density)]

    @classmethod
    def fit(
        cls,
        density: Density | Sequence[Density],
        rows: Sequence[Tensor],
        labels: Sequence[Tensor] | None = None,
        *,
        of_labels: Sequence[int] = (),
        group_names: Sequence[object] | None = None,
        random_state: int = 0,
        noise: FreshNoise | None = None,
    ) -> Self:
        """Estimate p̂(x | a) of every group, or p̂(x | a, y) of every group and of some labels.

        Parameters
        ----------
        density
            Settings for all groups, or one for each.
        rows, labels
            The rows (n_a, D) of each group, and their labels (n_a,) where densities by label are needed.
        of_labels
            The labels y: all of them for equalized odds, the favourable one for equal opportunity.
        group_names
            What to call the groups in messages; their numbers when not given.
        random_state
            Makes the estimate repeatable.
        noise
            The noise of rows that are given as grid points.
        """
        parts = [[x] for x in rows]
        if labels is not None:
            parts = [[x[y == label] for label in of_labels] for x, y in zip(rows, labels, strict=True)]
        names = range(len(rows)) if group_names is None else group_names
        for name, blocks in zip(names, parts, strict=True):
            for block in blocks:
                checked_rows(block, f"group {name!r}")
        n_labels = len(parts[0])
        if isinstance(density, Density):
            every_block = [block for blocks in parts for block in blocks]
            fitted = density.fit_groups(every_block, random_state, noise=noise)
        else:
            fitted = [
                member
                for template, blocks in zip(density, parts, strict=True)
                for member in template.fit_groups(blocks, random_state, noise=noise)
            ]
        return cls([fitted[i : i + n_labels] for i in range(0, len(fitted), n_labels)])

    def for_label(self, label: int) -> GroupDensities:
        """Return the K densities of one label."""
        return GroupDensities(self.members[label :: self.n_labels])

    @property
    def capturable(self) -> bool:
        """Whether log_prob may become part of a CUDA graph."""
        return all(member.capturable for member in self.members)

    def log_prob(self, x: Float[Tensor, "*models K R D"]) -> Float[Tensor, "*models K R"]:
        """Return log-densities of points, each group's rows under its own density."""
        *lead, n_groups, n_rows, n_features = x.shape
        if n_groups != self.n_groups or n_rows % self.n_labels or n_features != self.n_features:
            raise DataError(
                f"the points must have axes (..., {self.n_groups} groups, rows in {self.n_labels} equal blocks, "
                f"{self.n_features} features); got {tuple(x.shape)}."
            )
        blocks = x.reshape(-1, len(self.members), n_rows // self.n_labels, n_features)
        by_member = blocks.transpose(0, 1).flatten(1, 2)  # (K·L, rows of all models, D)
        log_p = self._by_family(lambda stack, places: stack.log_prob(_taken(by_member, places)))
        return log_p.unflatten(1, (blocks.shape[0], -1)).transpose(0, 1).reshape(*lead, n_groups, n_rows)

    def sample(self, n: int, generator: torch.Generator) -> Float[Tensor, "K draws D"]:
        """Return draws (K, L·n, D): n of every density, label after label."""
        draws = self._by_family(lambda stack, _: stack.sample(n, generator))
        return draws.reshape(self.n_groups, self.n_labels * n, self.n_features)

    def score(self, rows: Sequence[Float[Tensor, "_ D"]]) -> list[float]:
        """Return mean log-likelihood of each group's held-out rows; with labels, of the K·L blocks of rows."""
        return [member.score(x) for member, x in zip(self.members, rows, strict=True)]

    def _by_family(self, compute: Callable[[DensityStack, list[int]], Tensor]) -> Tensor:
        """Compute something of the members of each family at once, and return it in the order of all members."""
        found: dict[int, Tensor] = {}
        for places, stack in self._stacked():
            of_family = compute(stack, places)
            if len(places) == len(self._members):
                return of_family
            found |= dict(zip(places, of_family, strict=True))
        return torch.stack([found[i] for i in range(len(found))])

    def _stacked(self) -> list[tuple[list[int], DensityStack]]:
        """Return each family's places and stack, made again once they are on another device or in other precision."""
        tensor = next(chain(self.buffers(), self.parameters()), None)
        place = None if tensor is None else (tensor.device, tensor.dtype)
        if not self._stacks or place != self._stacked_on:
            members, self._stacks, self._stacked_on = self.members, [], place
            for family in dict.fromkeys(map(type, members)):
                places = [i for i, member in enumerate(members) if type(member) is family]
                stack = members[places[0]].stack([members[i] for i in places])
                self._stacks += [([i], _Alone(members[i])) for i in places] if stack is None else [(places, stack)]
        return self._stacks

    def to_dict(self) -> dict[str, Any]:
        """Return the state to save."""
        return {"members": self.members, "n_labels": self.n_labels}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Return the densities that `to_dict` described."""
        members, n = state["members"], state["n_labels"]
        return cls([members[i : i + n] for i in range(0, len(members), n)])

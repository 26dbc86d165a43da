"""The contract of bijections: f_a(x) with leading axes (models, groups), each direction with its log-determinant."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

import torch
from jaxtyping import Float
from torch import Tensor

from fairflows.bijection.networks import Stacked
from fairflows.exceptions import DataError

_TOLERANCE = 1e-6  # of `check_bijection`, in double precision


class BijectiveMap(Protocol):
    """The two directions of a bijection."""

    def forward(self, x: Float[Tensor, "*points D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return z = f_a(x) and log |det ∂z/∂x|."""

    def inverse(self, z: Float[Tensor, "*points D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return x = f_a⁻¹(z) and log |det ∂x/∂z|."""


class Bijection(Stacked, ABC):
    """K encoders f_a of M models, each an invertible map of D features.

    ``z, log_det = f.forward(x)`` and ``x, log_det = f.inverse(z)``: points (M, K, B, D), or broadcastable to it, and
    log_det (M, K, B), which always belongs to the direction just taken.

    A bijection of your own defines these two methods and a constructor ``(n_features, *, n_groups, seeds, ...)``:

    - there is one model per seed, whose first weights depend on that seed alone;
    - every parameter has the axes (M, K, ...); buffers are shared by all models and groups;
    - no row depends on another row, no model on another model, no group on another group;
    - the constructor's arguments are kept under their names (but for ``seeds`` and ``n_groups``, a property here), so
      that the bijection can be made anew for other features, groups and seeds, saved and loaded.

    `check_bijection` tries all of this. Examples are in the how-to page for researchers.
    """

    n_features: int
    capturable: bool = False  # both methods may become part of a CUDA graph: they never wait for the device

    @abstractmethod
    def forward(self, x: Float[Tensor, "*points D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return z = f_a(x) and log |det ∂z/∂x|."""

    @abstractmethod
    def inverse(self, z: Float[Tensor, "*points D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return x = f_a⁻¹(z) and log |det ∂x/∂z|."""

    def prepared(self) -> BijectiveMap:
        """Return the two directions for several calls with these weights; what depends on weights alone is kept."""
        return self

    def anew(self, n_features: int, *, n_groups: int, seeds: Sequence[int]) -> Self:
        """Return a bijection of the same settings for other features and groups, with one new model per seed."""
        try:
            return type(self)(**self.settings() | {"n_features": n_features, "n_groups": n_groups, "seeds": seeds})
        except (AttributeError, TypeError) as error:
            raise DataError(
                f"{type(self).__name__} must take n_features, n_groups and seeds, and keep its other settings under "
                f"their names: {error}."
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """Return the state to save: the settings, the weights, and where a few points go.

        The code of a bijection of one's own is not saved: the points show whether it is still the same map.
        """
        return super().to_dict() | {"probe": self._moved_points()}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Return the bijection that `to_dict` described."""
        bijection, probe = super().from_dict(state), state.get("probe")
        if probe is not None and not torch.allclose(bijection._moved_points(), probe, 1e-3, 1e-3, equal_nan=True):
            raise DataError(f"{cls.__name__} is another map than when the model was saved: its code has changed.")
        return bijection

    def _moved_points(self) -> Float[Tensor, "M K 3 D"]:
        x = torch.linspace(-1, 1, 3 * self.n_features).reshape(3, self.n_features)
        with torch.no_grad():
            return self.forward(x.to(next(self.parameters())))[0]

    def stacked(self, x: Float[Tensor, "*points D"]) -> Float[Tensor, "M K B D"]:
        """Return the points with all leading axes there."""
        if x.shape[-1] != self.n_features:
            raise DataError(f"the points must have {self.n_features} features; got {x.shape[-1]}.")
        return x.expand(*next(self.parameters()).shape[:2], *x.shape[-2:])


def check_bijection(bijection: Bijection) -> None:
    """Check that a bijection of your own keeps the contract: a certificate with a wrong log-determinant is false.

    A copy for two models and two groups, with weights a little away from their start, is tried on a few points in
    double precision.

    Raises
    ------
    ValueError
        What is wrong: shapes, the inverse, a log-determinant, or rows, models or groups that depend on each other.

    Examples
    --------
    >>> from fairflows.bijection import RealNVP
    >>> check_bijection(RealNVP(3))
    """
    generator = torch.Generator().manual_seed(0)
    name = type(bijection).__name__
    f = bijection.anew(bijection.n_features, n_groups=2, seeds=[0, 1]).double()
    for parameter_name, parameter in f.named_parameters():
        if parameter.shape[:2] != (2, 2):
            raise DataError(
                f"every parameter of {name} must have the axes (models, groups, ...), here (2, 2, ...); "
                f"{parameter_name} has {tuple(parameter.shape)}."
            )
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    x = torch.randn(2, 2, 3, f.n_features, generator=generator, dtype=torch.float64)
    z = f.forward(x)[0].detach()
    for move, points in ((f.forward, x), (f.inverse, z)):
        moved, log_det = move(points)
        what = f"{move.__name__} of {name}"
        if moved.shape != x.shape or log_det.shape != x.shape[:3]:
            raise DataError(
                f"{what} must give points {tuple(x.shape)} and log_det {tuple(x.shape[:3])}; got "
                f"{tuple(moved.shape)} and {tuple(log_det.shape)}."
            )
        _check_close(log_det, _log_det_by_gradients(move, points), f"log_det in {what} must be that of its Jacobian")
    _check_close(f.inverse(z)[0], x, f"inverse of {name} must give back what forward got")
    _check_close(f.forward(x[:, :, :1])[0], z[:, :, :1], f"no row of {name} may depend on other rows")
    alone = f.select(1).select_group(1)
    _check_close(alone.forward(x[1:, 1:])[0], z[1:, 1:], f"a model and a group of {name} must be the same map alone")


def _log_det_by_gradients(
    move: Callable[[Tensor], tuple[Tensor, Tensor]], x: Float[Tensor, "M K B D"]
) -> Float[Tensor, "M K B"]:
    """Return log |det| of the Jacobian of each row, one output at a time: rows do not depend on each other."""
    x = x.detach().requires_grad_()
    moved = move(x)[0]
    if not moved.requires_grad:
        raise DataError("forward and inverse of a bijection must be differentiable in their points.")
    rows = [
        torch.autograd.grad(moved[..., j].sum(), x, retain_graph=True, allow_unused=True, materialize_grads=True)[0]
        for j in range(x.shape[-1])
    ]
    return torch.linalg.slogdet(torch.stack(rows, dim=-2)).logabsdet


def _check_close(found: Float[Tensor, "*any"], expected: Float[Tensor, "*any"], rule: str) -> None:
    difference = float((found - expected).detach().abs().max())
    if not difference <= _TOLERANCE:
        raise DataError(f"{rule}; they differ by {difference:.2g}.")

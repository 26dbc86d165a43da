"""Any flow of zuko as a bijection: its weights get the axes of models and groups, its code runs by ``torch.func``."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fairflows.bijection.base import Bijection
from fairflows.bijection.networks import generator_of
from fairflows.exceptions import DataError


class Zuko(Bijection):
    """Flows of `zuko.flows` for K groups of M models, evaluated together.

    Parameters
    ----------
    flow
        ``zuko.flows.NSF``, ``MAF`` or ``NICE``, or the name of one; or an unfitted flow of your own transforms, with
        as many features as the table, which cannot be saved. Other classes of zuko find their inverse numerically, to
        about six digits, which is not enough to decode a value.
    n_features, n_groups, seeds
        As for `RealNVP`; where the bijection is a setting, they are those of the table.
    options
        Other arguments of the class, such as ``transforms`` and ``hidden_features``.

    Examples
    --------
    >>> import zuko
    >>> f = Zuko(zuko.flows.NSF, n_features=3, transforms=2, hidden_features=[16])
    >>> z, log_det = f.forward(torch.randn(2, 10, 3))
    >>> z.shape, log_det.shape
    (torch.Size([1, 2, 10, 3]), torch.Size([1, 2, 10]))
    """

    def __init__(
        self, flow: Any, n_features: int = 2, *, n_groups: int = 2, seeds: Sequence[int] = (0,), **options: Any
    ):
        super().__init__()
        self.n_features, self.options = n_features, options
        self._given = (flow.__name__ if isinstance(flow, type) else flow,)  # in a tuple, as no part of this module
        directions = _Directions(_new_flow(self.flow, n_features, options))
        starts = [_start(directions, seed) for seed in seeds]
        self._parameters_of = list(starts[0])
        self.weights = nn.ParameterList(
            torch.stack([start[name] for start in starts])[:, None].repeat_interleave(n_groups, dim=1)
            for name in self._parameters_of
        )
        self._buffers_of = [name for name, _ in directions.named_buffers()]
        for number, (_, buffer) in enumerate(directions.named_buffers()):
            self.register_buffer(f"buffer_{number}", buffer)
        self._directions = (directions,)  # in a tuple: it lends its code, and its own weights are never used

    @property
    def flow(self) -> str | nn.Module:
        """The name of the class, or the flow that was given."""
        return self._given[0]

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"flow": self.flow, "n_features": self.n_features, "n_groups": self.n_groups, **self.options}

    def forward(self, x: Float[Tensor, "*points D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return z = f_a(x) and log |det ∂z/∂x|."""
        return self._move(x, inverse=False)

    def inverse(self, z: Float[Tensor, "*points D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return x = f_a⁻¹(z) and log |det ∂x/∂z|."""
        return self._move(z, inverse=True)

    def _move(
        self, x: Float[Tensor, "*points D"], *, inverse: bool
    ) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        weights = {name: w.flatten(0, 1) for name, w in zip(self._parameters_of, self.weights, strict=True)}
        buffers = {name: getattr(self, f"buffer_{i}") for i, name in enumerate(self._buffers_of)}

        def move(own_weights: Mapping[str, Tensor], points: Tensor) -> tuple[Tensor, Tensor]:
            return functional_call(self._directions[0], {**own_weights, **buffers}, (points, inverse))

        x = self.stacked(x)
        moved, log_det = vmap(move)(weights, x.flatten(0, 1))
        return moved.view(x.shape), log_det.view(x.shape[:-1])


_CLOSED_FORM = ("MAF", "NICE", "NSF")  # whose inverse has one


class _Directions(nn.Module):
    """Both directions of a flow as one module."""

    def __init__(self, flow: nn.Module):
        super().__init__()
        self.flow = flow.requires_grad_(False)

    def forward(self, x: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
        transform = cast(Any, self.flow).transform(None)
        return (transform.inv if inverse else transform).call_and_ladj(x)


def _new_flow(flow: str | nn.Module, n_features: int, options: Mapping[str, Any]) -> nn.Module:
    """Return a flow of a class, or a copy of a flow; its masks and permutations are those of all models."""
    import zuko

    name = flow if isinstance(flow, str) else type(flow).__name__
    if name not in (*_CLOSED_FORM, *([] if isinstance(flow, str) else ["Flow"])):
        raise DataError(f"flow must be one of {', '.join(_CLOSED_FORM)}, or an unfitted zuko flow; got {name}.")
    if isinstance(flow, str):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return getattr(zuko.flows, flow)(n_features, **options)
    if options:
        raise DataError(f"options such as {next(iter(options))} go with a class of zuko.flows, not with a flow.")
    if tuple(flow().event_shape) != (n_features,):
        raise DataError(
            f"the zuko flow must have the {n_features} features of the table in model space; got "
            f"{flow().event_shape[0]}. Zuko(zuko.flows.{type(flow).__name__}, ...) makes one that fits."
        )
    return copy.deepcopy(flow)


def _start(directions: _Directions, seed: int) -> dict[str, Tensor]:
    """Return the first weights of a model, which depend on its seed alone."""
    started = copy.deepcopy(directions)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator_of(seed, "zuko").initial_seed())
        for module in started.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
    return {name: parameter.detach() for name, parameter in started.named_parameters()}

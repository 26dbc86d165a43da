r"""Invertible maps f_a(x) with leading axes (models, groups), each direction with its log-determinant.

A sweep over γ and seeds trains M models, each with K encoders of n blocks: hundreds of networks too small to keep a
processor busy one by one. Their weights share one tensor with leading axes (M, K, n), and a layer is one ``torch.bmm``.
The bias is a row of the weight matrix, met by a unit that is always one:

.. math:: \bar h = (h, 1, 0, \dots), \qquad
          \bar W = \begin{pmatrix} W & 0 \\ b & 1 \end{pmatrix}, \qquad
          \mathrm{relu}(\bar h \bar W) = (\mathrm{relu}(h W + b), 1, 0, \dots).

So neither the bias nor its gradient costs a pass over the activations of its own. Widths are padded to multiples of
four, which the matrix kernels of a GPU read in one go.

A *coupling* leaves half of the features alone and moves the others in a way that depends on that half.
:class:`RealNVP` (Dinh, Sohl-Dickstein and Bengio, 2017) moves them by a scale and a shift,

.. math:: z = x \odot e^{s} + t, \qquad s = \tanh(\cdot), \qquad \log|\det| = \textstyle\sum s,

with s = t = 0 on the half that stays. One network gives both s and t, and either direction evaluates it once.
:class:`NeuralSpline` (Durkan, Bekasov, Murray and Papamakarios, 2019) moves them by monotone rational-quadratic splines
on [−bound, bound], the identity outside, through zuko's transform.
"""

from __future__ import annotations

import copy
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from fairflows.exceptions import DataError

__all__ = ["Bijection", "NeuralSpline", "RealNVP", "StackedMLP", "check_bijection"]

# Stated, although it is zuko's default: that changed with zuko 1.5, and a saved model must not change with it.
_LEAST_SLOPE = 1e-3
_TOLERANCE = 1e-6  # of `check_bijection`, in double precision


def padded(width: int) -> int:
    """Return the columns that hold ``width`` units and the unit that is one, rounded up to a multiple of four."""
    return width + 4 - width % 4


def augment(x: Tensor) -> Tensor:
    """Return x̄ = (x, 1, 0, …) along the last axis."""
    tail = x.new_zeros(4 - x.shape[-1] % 4)
    tail[:1].fill_(1)  # an assignment would copy from the host, which a CUDA graph cannot hold
    return torch.cat([x, tail.expand(*x.shape[:-1], -1)], dim=-1)


def generator_of(seed: int, stream: str) -> torch.Generator:
    """Return a generator that depends on one seed and one purpose, however many other models are in the stack."""
    entropy = np.random.SeedSequence([seed, *stream.encode()]).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(entropy[0]) << 32 | int(entropy[1]))


class Stacked(nn.Module):
    """A module whose every parameter has the models on its first axis, and the groups, if any, on its second."""

    @property
    def n_models(self) -> int:
        """M, the length of the models' axis."""
        return next(self.parameters()).shape[0]

    def select(self, models: int | Sequence[int]) -> Self:
        """Return a copy that holds only these models; their axis stays, with length one for a single model."""
        chosen = [models] if isinstance(models, int) else list(models)
        return self._with(lambda parameter: parameter[chosen])

    @property
    def n_groups(self) -> int:
        """K, the length of the groups' axis."""
        return next(self.parameters()).shape[1]

    def select_group(self, group: int) -> Self:
        """Return a copy that holds only this group; their axis stays, with length one."""
        return self._with(lambda parameter: parameter[:, group : group + 1])

    @classmethod
    def join_groups(cls, parts: Sequence[Self]) -> Self:
        """Join several groups in one; the opposite of ``select_group``."""
        joined = copy.deepcopy(parts[0])
        for parameter, *pieces in zip(joined.parameters(), *(part.parameters() for part in parts), strict=True):
            parameter.data = torch.cat([piece.data for piece in pieces], dim=1)
        return joined

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments, which every stack keeps under their names, but for the seeds.

        Seeds only decide the first weights; a slice of a stack has none of its own.
        """
        names = [name for name in inspect.signature(type(self)).parameters if name != "seeds"]
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return the state to save: the settings, and the weights."""
        return {"settings": self.settings(), "n_models": self.n_models, "weights": dict(self.state_dict())}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Return the stack that `to_dict` described; its weights are held fixed."""
        stack = cls(**state["settings"], seeds=[0] * state["n_models"])
        stack.load_state_dict(state["weights"], assign=True)
        return stack.requires_grad_(False)

    def _with(self, change: Callable[[Tensor], Tensor]) -> Self:
        part = copy.deepcopy(self)
        for parameter in part.parameters():
            parameter.data = change(parameter.data).clone()
            parameter.grad = None
        return part


def apply_networks(x: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """Send x̄ (N, B, w₀) through N networks whose effective matrices (N, w_l, w_{l+1}) are given layer by layer."""
    for weight in matrices[:-1]:
        x = torch.bmm(x, weight).relu_()
    return torch.bmm(x, matrices[-1])


class StackedMLP(Stacked):
    r"""ReLU networks with leading axes (M, \*lead), evaluated together.

    Parameters
    ----------
    n_inputs, hidden, n_outputs
        The widths, the same for all.
    seeds
        One per model: the first axis has length M = ``len(seeds)``. Model m starts as it would alone.
    lead
        The axes after the models. The first of them is the groups, which all start from the same weights, as in the
        paper; the networks along any further axis start differently.
    stream
        The purpose of this module, so that two modules of one seed start differently.
    visible, written
        Which inputs are read and which outputs are written, broadcastable to (\*lead, n_inputs) and (\*lead,
        n_outputs); all when not given. An output that is not written is zero.

    Examples
    --------
    >>> head = StackedMLP(6, (100,), 2, seeds=[0, 1, 2])
    >>> head(torch.zeros(3, 256, 6)).shape
    torch.Size([3, 256, 2])
    """

    def __init__(
        self,
        n_inputs: int,
        hidden: Sequence[int],
        n_outputs: int,
        *,
        seeds: Sequence[int],
        lead: tuple[int, ...] = (),
        stream: str = "network",
        visible: Tensor | None = None,
        written: Tensor | None = None,
    ):
        super().__init__()
        self.n_inputs, self.hidden, self.n_outputs = n_inputs, tuple(hidden), n_outputs
        self.stream, self.visible, self.written = stream, visible, written
        self.weights = nn.ParameterList()
        widths = [n_inputs, *hidden, n_outputs]
        generators = [generator_of(seed, stream) for seed in seeds]
        for i, (n_in, n_out) in enumerate(pairwise(widths)):
            last = i == len(hidden)
            rows, columns = padded(n_in), n_out if last else padded(n_out)
            reads = visible if i == 0 and visible is not None else torch.ones(n_in, dtype=torch.bool)
            writes = written if last and written is not None else torch.ones(n_out, dtype=torch.bool)
            free = _free_entries(reads, writes, rows, columns)
            fixed = torch.zeros(rows, columns)
            if not last:
                fixed[n_in, n_out] = 1.0  # the unit that is always one
            self.register_buffer(f"free_{i}", free)
            self.register_buffer(f"fixed_{i}", fixed)
            start = torch.stack([_uniform((*lead[1:], rows, columns), n_in, g) for g in generators])
            if lead:
                start = start.unsqueeze(1).expand(-1, lead[0], *start.shape[1:])
            self.weights.append(nn.Parameter(start * free))

    @property
    def lead(self) -> tuple[int, ...]:
        """The axes after the models."""
        return tuple(self.weights[0].shape[1:-2])

    def matrices(self) -> list[Tensor]:
        r"""Return the effective matrices W̄ of each layer, (M, \*lead, w_l, w_{l+1})."""
        return [
            torch.addcmul(getattr(self, f"fixed_{i}"), weight, getattr(self, f"free_{i}"))
            for i, weight in enumerate(self.weights)
        ]

    def forward(self, x: Tensor) -> Tensor:
        r"""Return outputs (M, \*lead, B, n_outputs) for inputs broadcastable to (M, \*lead, B, n_inputs)."""
        lead = self.weights[0].shape[:-2]
        x = augment(x.expand(*lead, *x.shape[-2:])).flatten(0, -3)
        outputs = apply_networks(x, [weight.flatten(0, -3) for weight in self.matrices()])
        return outputs.unflatten(0, lead)


def _free_entries(reads: Tensor, writes: Tensor, rows: int, columns: int) -> Tensor:
    """Return ones where a matrix may be trained: from inputs that are read and the bias to outputs that are written."""
    read = torch.nn.functional.pad(reads.float(), (0, 1), value=1.0)
    read = torch.nn.functional.pad(read, (0, rows - read.shape[-1]))
    write = torch.nn.functional.pad(writes.float(), (0, columns - writes.shape[-1]))
    return read[..., :, None] * write[..., None, :]


def _uniform(shape: tuple[int, ...], n_inputs: int, generator: torch.Generator) -> Tensor:
    """Draw PyTorch's own start of a linear layer, ±1/√n for weights and bias."""
    return (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(max(n_inputs, 1))


class BijectiveMap(Protocol):
    """The two directions of a bijection."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return z = f_a(x) and log |det ∂z/∂x|."""

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
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
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return z = f_a(x) and log |det ∂z/∂x|."""

    @abstractmethod
    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
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

    def _moved_points(self) -> Tensor:
        x = torch.linspace(-1, 1, 3 * self.n_features).reshape(3, self.n_features)
        with torch.no_grad():
            return self.forward(x.to(next(self.parameters())))[0]

    def stacked(self, x: Tensor) -> Tensor:
        """Return the points with all leading axes there, (M, K, B, D)."""
        if x.shape[-1] != self.n_features:
            raise DataError(f"the points must have {self.n_features} features; got {x.shape[-1]}.")
        return x.expand(*next(self.parameters()).shape[:2], *x.shape[-2:])


def passive_features(n_features: int, n_blocks: int) -> Tensor:
    """Return a mask of the features that each block leaves alone and conditions on, (n_blocks, D), about half.

    Blocks come in pairs, a half and its complement, so that two blocks move every feature; each pair halves the
    features in another way. The halves are part of the architecture and the same for every seed: models of a stack
    differ in weights only.
    """
    if n_features < 2:  # the map of a single feature depends on nothing
        return torch.zeros(n_blocks, n_features, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    masks: list[Tensor] = []
    while len(masks) < n_blocks:
        half = torch.zeros(n_features, dtype=torch.bool)
        half[torch.randperm(n_features, generator=generator)[: n_features // 2]] = True
        if not masks or not torch.equal(half, masks[-1]):  # two blocks in a row on one half would act as one
            masks += [half, ~half]
    return torch.stack(masks[:n_blocks])


class RealNVP(Bijection):
    """Affine couplings for K groups of M models, all evaluated together.

    Parameters
    ----------
    n_features
        D, at least two.
    n_groups
        K. The encoders of all groups start from the same weights.
    n_blocks
        Coupling blocks; the paper uses 4, and 6 for Health.
    hidden
        Hidden layers of the network of a block.
    seeds
        One per model; its initial weights depend on nothing else.

    Examples
    --------
    >>> f = RealNVP(6, n_groups=2, seeds=[0, 1, 2])
    >>> z, log_det = f.forward(torch.randn(2, 128, 6))  # the same rows for all three models
    >>> z.shape, log_det.shape
    (torch.Size([3, 2, 128, 6]), torch.Size([3, 2, 128]))
    >>> x, _ = f.inverse(z)
    """

    capturable = True

    def __init__(
        self,
        n_features: int,
        *,
        n_groups: int = 2,
        n_blocks: int = 4,
        hidden: Sequence[int] = (50, 50),
        seeds: Sequence[int] = (0,),
    ):
        super().__init__()
        self.n_features, self.n_blocks, self.hidden = n_features, n_blocks, tuple(hidden)
        passive = passive_features(n_features, n_blocks)
        # s and t are as wide as x̄, so that a block is a few whole-tensor operations and no feature is ever gathered.
        moved = torch.nn.functional.pad(~passive, (0, padded(n_features) - n_features))
        self.conditioner = StackedMLP(
            n_features,
            hidden,
            2 * moved.shape[-1],
            seeds=seeds,
            lead=(n_groups, n_blocks),
            stream="coupling",
            visible=passive,
            written=torch.cat([moved, moved], dim=-1),
        )

    def prepared(self) -> AffineCouplings:
        """Return both directions with the matrices of the networks computed once."""
        return AffineCouplings(self.conditioner.matrices())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return z = f_a(x) and log |det ∂z/∂x|."""
        return self.prepared().forward(self.stacked(x))

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return x = f_a⁻¹(z) and log |det ∂x/∂z|."""
        return self.prepared().inverse(self.stacked(z))


@dataclass(frozen=True)
class AffineCouplings:
    """The couplings of a `RealNVP` with the matrices of their networks."""

    layers: list[Tensor]  # the matrices W̄ of each layer of the networks, (M, K, n_blocks, w_l, w_{l+1})

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return z = x ⊙ eˢ + t, block after block, and Σ s, for points (M, K, B, D)."""
        state, scales = augment(x).flatten(0, 1), []
        for matrices in zip(*(layer.flatten(0, 1).unbind(1) for layer in self.layers), strict=True):
            r, t = apply_networks(state, matrices).chunk(2, dim=-1)
            s = torch.tanh(r)
            state = state * torch.exp(s) + t
            scales.append(s)
        log_det = torch.cat(scales, dim=-1).sum(-1)
        return state[..., : x.shape[-1]].reshape(x.shape), log_det.view(x.shape[:-1])

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return x = (z − t) ⊙ e⁻ˢ, from the last block to the first, and −Σ s, for points (M, K, B, D)."""
        state, scales = augment(z).flatten(0, 1), []
        layers = [*self.layers[:-1], -self.layers[-1]]  # the networks then give −r and −t, and tanh(−r) = −s
        for matrices in zip(*(layer.flatten(0, 1).unbind(1)[::-1] for layer in layers), strict=True):
            minus_r, minus_t = apply_networks(state, matrices).chunk(2, dim=-1)
            minus_s = torch.tanh(minus_r)
            state = (state + minus_t) * torch.exp(minus_s)
            scales.append(minus_s)
        log_det = torch.cat(scales, dim=-1).sum(-1)
        return state[..., : z.shape[-1]].reshape(z.shape), log_det.view(z.shape[:-1])


class NeuralSpline(Bijection):
    """Spline couplings for K groups of M models.

    Parameters
    ----------
    n_features, n_groups, n_blocks, hidden, seeds
        As for `RealNVP`.
    n_bins, bound
        The spline has ``n_bins`` pieces on [−bound, bound] and is the identity outside.
    passive
        The features that each block leaves alone; two blocks share them out when not given.

    Examples
    --------
    >>> f = NeuralSpline(3, n_groups=2)
    >>> z, log_det = f.forward(torch.randn(2, 10, 3))
    >>> z.shape, log_det.shape
    (torch.Size([1, 2, 10, 3]), torch.Size([1, 2, 10]))
    """

    capturable = True

    def __init__(
        self,
        n_features: int,
        *,
        n_groups: int = 2,
        n_blocks: int = 4,
        hidden: Sequence[int] = (50, 50),
        n_bins: int = 8,
        bound: float = 5.0,
        passive: Sequence[Sequence[int]] | None = None,
        seeds: Sequence[int] = (0,),
    ):
        super().__init__()
        self.n_features, self.n_blocks, self.hidden = n_features, n_blocks, tuple(hidden)
        self.n_bins, self.bound = n_bins, bound
        # Kept, and saved: they are drawn by torch, whose draws may change from one release to the next.
        self.passive = passive or [row.nonzero()[:, 0].tolist() for row in passive_features(n_features, n_blocks)]
        self._moved = [sorted(set(range(n_features)) - set(stays)) for stays in self.passive]
        self.conditioners = nn.ModuleList(
            StackedMLP(
                len(stays),
                hidden,
                len(moved) * (3 * n_bins - 1),
                seeds=seeds,
                lead=(n_groups,),
                stream=f"spline {block}",
            )
            for block, (stays, moved) in enumerate(zip(self.passive, self._moved, strict=True))
        )

    def anew(self, n_features: int, *, n_groups: int, seeds: Sequence[int]) -> Self:
        """Return the same for other features and groups; `passive` is kept if the number of features is the same."""
        kept = self.settings() if n_features == self.n_features else self.settings() | {"passive": None}
        return type(self)(**kept | {"n_features": n_features, "n_groups": n_groups, "seeds": seeds})

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return z = f_a(x) and log |det ∂z/∂x|."""
        return self._pass(self.stacked(x), list(range(len(self._moved))), inverse=False)

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return x = f_a⁻¹(z) and log |det ∂x/∂z|."""
        return self._pass(self.stacked(z), list(reversed(range(len(self._moved)))), inverse=True)

    def _pass(self, x: Tensor, blocks: Sequence[int], inverse: bool) -> tuple[Tensor, Tensor]:
        from zuko.transforms import MonotonicRQSTransform  # only the splines need zuko

        columns = list(x.unbind(-1))
        log_det = torch.zeros_like(x[..., 0])
        for block in blocks:
            stays = [columns[j] for j in self.passive[block]]
            passive = torch.stack(stays, dim=-1) if stays else x[..., :0]
            moved = torch.stack([columns[j] for j in self._moved[block]], dim=-1)
            knots = self.conditioners[block](passive).unflatten(-1, (moved.shape[-1], -1))
            shape = knots.split([self.n_bins, self.n_bins, self.n_bins - 1], dim=-1)  # widths, heights and slopes
            spline = MonotonicRQSTransform(*shape, bound=self.bound, slope=_LEAST_SLOPE)
            moved, increment = (spline.inv if inverse else spline).call_and_ladj(moved)
            log_det = log_det + increment.sum(-1)
            for j, column in zip(self._moved[block], moved.unbind(-1), strict=True):
                columns[j] = column
        return torch.stack(columns, dim=-1), log_det


def new_bijection(
    kind: str | Bijection, n_features: int, *, n_groups: int, seeds: Sequence[int], **settings: Any
) -> Bijection:
    """Return a bijection by its name and settings, or one like another bijection, whose own settings are taken."""
    if isinstance(kind, Bijection):
        return kind.anew(n_features, n_groups=n_groups, seeds=seeds)
    kinds = {"realnvp": RealNVP, "spline": NeuralSpline}
    if kind not in kinds:
        raise DataError(f"bijection must be one of {', '.join(kinds)}, or a Bijection; got {kind!r}.")
    return kinds[kind](n_features, n_groups=n_groups, seeds=seeds, **settings)


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


def _log_det_by_gradients(move: Callable[[Tensor], tuple[Tensor, Tensor]], x: Tensor) -> Tensor:
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


def _check_close(found: Tensor, expected: Tensor, rule: str) -> None:
    difference = float((found - expected).detach().abs().max())
    if not difference <= _TOLERANCE:
        raise DataError(f"{rule}; they differ by {difference:.2g}.")

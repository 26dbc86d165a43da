r"""Networks with leading axes (models, groups), evaluated together.

A sweep over γ and seeds trains M models, each with K encoders of n blocks: hundreds of networks too small to keep a
processor busy one by one. Their weights share one tensor with leading axes (M, K, n), and a layer is one ``torch.bmm``.
The bias is a row of the weight matrix, met by a unit that is always one:

.. math:: \bar h = (h, 1, 0, \dots), \qquad
          \bar W = \begin{pmatrix} W & 0 \\ b & 1 \end{pmatrix}, \qquad
          \mathrm{relu}(\bar h \bar W) = (\mathrm{relu}(h W + b), 1, 0, \dots).

So neither the bias nor its gradient costs a pass over the activations of its own. Widths are padded to multiples of
four, which the matrix kernels of a GPU read in one go.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn


def padded(width: int) -> int:
    """Return the columns that hold ``width`` units and the unit that is one, rounded up to a multiple of four."""
    return width + 4 - width % 4


def augment(x: Float[Tensor, "*batch w"]) -> Float[Tensor, "*batch padded"]:
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


def apply_networks(x: Float[Tensor, "N B _"], matrices: Sequence[Float[Tensor, "N _ _"]]) -> Float[Tensor, "N B _"]:
    """Send x̄ through N networks whose effective matrices (w_l, w_{l+1}) are given layer by layer."""
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

    def matrices(self) -> list[Float[Tensor, "M *lead _ _"]]:
        """Return the effective matrices W̄ of each layer, (w_l, w_{l+1})."""
        return [
            torch.addcmul(getattr(self, f"fixed_{i}"), weight, getattr(self, f"free_{i}"))
            for i, weight in enumerate(self.weights)
        ]

    def forward(self, x: Float[Tensor, "*batch n_inputs"]) -> Float[Tensor, "M *lead n_outputs"]:
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

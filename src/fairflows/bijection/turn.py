r"""The label turn: a fixed reflection of some groups before their flows.

Where the classes of a group lie the other way round than those of the largest group, no flow that starts near the
identity finds an encoding that hides the group and keeps the label. So such a group is reflected about its mean,

.. math:: u = 2 m_a - x, \qquad |\det| = 1, \qquad z = f_a(u).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fairflows.bijection.base import Bijection, BijectiveMap


def opposed_groups(rows: Sequence[Float[Tensor, "_ D"]], labels: Sequence[Int[Tensor, " _"]]) -> list[bool]:
    """Return which groups' class means oppose those of the largest group: the cosine of their differences is < 0.

    The differences are those of the classes that both groups have from their common mean, over all features; of two
    classes they point along the line between the two means.
    """
    largest = max(range(len(rows)), key=lambda a: len(rows[a]))
    classes = [set(y.unique().tolist()) for y in labels]

    def differences(a: int, shared: list[int]) -> Tensor:
        means = torch.stack([rows[a][labels[a] == c].cpu().double().mean(0) for c in shared])
        return means - means.mean(0)

    opposed = []
    for a in range(len(rows)):
        shared = sorted(classes[a] & classes[largest])
        opposed.append(bool((differences(a, shared) * differences(largest, shared)).sum() < 0) if shared else False)
    return opposed


class Turned(Bijection):
    """A bijection behind the turn of some groups.

    Parameters
    ----------
    bijection
        The flows.
    offset, sign
        u = offset + sign·x: twice the mean and −1 for a group that is turned, else 0 and 1.

    Examples
    --------
    >>> from fairflows.bijection import RealNVP
    >>> f = Turned.about([torch.ones(5, 2), torch.ones(5, 2)], [False, True], RealNVP(2))
    >>> z, _ = f.forward(torch.zeros(1, 2, 7, 2))
    >>> x, _ = f.inverse(z)
    >>> bool(torch.allclose(x, torch.zeros(()), atol=1e-6))
    True
    """

    offset: Tensor
    sign: Tensor

    def __init__(self, bijection: Bijection, offset: Float[Tensor, "K 1 D"], sign: Float[Tensor, "K 1 1"]):
        super().__init__()
        self.bijection, self.n_features, self.capturable = bijection, bijection.n_features, bijection.capturable
        self.register_buffer("offset", offset)
        self.register_buffer("sign", sign)

    @classmethod
    def about(cls, rows: Sequence[Float[Tensor, "_ D"]], turned: Sequence[bool], bijection: Bijection) -> Self:
        """Turn groups about the means of their rows."""
        turn = torch.tensor(turned, device=rows[0].device)[:, None, None]
        means = torch.stack([x.mean(0, keepdim=True) for x in rows])
        return cls(bijection, torch.where(turn, 2 * means, 0.0), torch.where(turn, -1.0, 1.0))

    def select_group(self, group: int) -> Self:
        """Return a copy that holds only this group."""
        part = super().select_group(group)
        part.offset, part.sign = part.offset[group : group + 1].clone(), part.sign[group : group + 1].clone()
        return part

    def forward(self, x: Float[Tensor, "*points D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return z = f_a(u) and log |det ∂z/∂x|."""
        return self.bijection.forward(self.offset + self.sign * self.stacked(x))

    def inverse(self, z: Float[Tensor, "*points D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        """Return x and log |det ∂x/∂z|."""
        u, log_det = self.bijection.inverse(z)
        return self.offset + self.sign * u, log_det

    def prepared(self) -> BijectiveMap:
        """Return the two directions with the flows prepared."""
        return _TurnedMap(self.bijection.prepared(), self.offset, self.sign)

    def settings(self) -> dict[str, Any]:
        """Return the flows and their turn."""
        return {"bijection": self.bijection, "offset": self.offset, "sign": self.sign}

    def to_dict(self) -> dict[str, Any]:
        """Return the state to save."""
        return self.settings()

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Return the bijection that `to_dict` described."""
        return cls(**state)


@dataclass(frozen=True)
class _TurnedMap:
    flows: BijectiveMap
    offset: Float[Tensor, "K 1 D"]
    sign: Float[Tensor, "K 1 1"]

    def forward(self, x: Float[Tensor, "M K B D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        return self.flows.forward(self.offset + self.sign * x)

    def inverse(self, z: Float[Tensor, "M K B D"]) -> tuple[Float[Tensor, "M K B D"], Float[Tensor, "M K B"]]:
        u, log_det = self.flows.inverse(z)
        return self.offset + self.sign * u, log_det

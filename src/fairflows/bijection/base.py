"""What every bijection of this folder promises."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from fairflows.bijection.networks import Stacked


class Bijection(Stacked):
    """K encoders f_a of M models, each an invertible map of D features.

    ``z, log_det = f.forward(x)`` and ``x, log_det = f.inverse(z)``: points (M, K, B, D), or broadcastable to it, and
    log_det (M, K, B), which always belongs to the direction just taken.
    """

    n_features: int

    @abstractmethod
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """z = f_a(x) and log |det ∂z/∂x|."""

    @abstractmethod
    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """x = f_a⁻¹(z) and log |det ∂x/∂z|."""

    def stacked(self, x: Tensor) -> Tensor:
        """The points with all leading axes there, (M, K, B, D)."""
        if x.shape[-1] != self.n_features:
            raise ValueError(f"the points must have {self.n_features} features; got {x.shape[-1]}.")
        return x.expand(self.n_models, self.n_groups, *x.shape[-2:])


def passive_features(n_features: int, n_blocks: int) -> Tensor:
    """Which features each block leaves alone and conditions on, (n_blocks, D), about half of them.

    Blocks come in pairs, a half and its complement, so that two blocks move every feature; each pair halves the
    features in another way. The halves are part of the architecture and the same for every seed: models of a stack
    differ in weights only.
    """
    if n_features < 2:
        raise ValueError(f"a coupling needs two features or more; got {n_features}. Use ElementwiseSpline for one.")
    generator = torch.Generator().manual_seed(0)
    masks: list[Tensor] = []
    while len(masks) < n_blocks:
        half = torch.zeros(n_features, dtype=torch.bool)
        half[torch.randperm(n_features, generator=generator)[: n_features // 2]] = True
        if not masks or not torch.equal(half, masks[-1]):  # two blocks in a row on one half would act as one
            masks += [half, ~half]
    return torch.stack(masks[:n_blocks])

"""What a trained stack is worth: its losses on held-out rows, and the table of log-densities a certificate reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairflows.bijection import Bijection, StackedMLP
from fairflows.density import GroupDensities
from fairflows.training.loop import divergence, task_loss


@dataclass(frozen=True)
class HeldOutLosses:
    """The losses of each model, (M,)."""

    task: Tensor
    kl: Tensor
    joint: Tensor


@torch.no_grad()
def held_out_losses(
    bijection: Bijection,
    head: StackedMLP | None,
    densities: GroupDensities,
    rows: Sequence[Tensor],
    labels: Sequence[Tensor] | None = None,
    *,
    gamma: Sequence[float],
    n_draws: int = 4096,
    random_state: int = 0,
    chunk: int = 4096,
) -> HeldOutLosses:
    """The joint loss γ·KL + (1 − γ)·task on rows that were not trained on; the best restart has the least.

    The KL term uses ``n_draws`` fresh samples of every density, the same for all models; the task loss is the mean
    over the groups of their mean cross-entropy.
    """
    reference = next(bijection.parameters())
    generator = torch.Generator(reference.device).manual_seed(random_state)
    samples = densities.sample(n_draws, generator).to(reference)
    z, log_det = bijection.forward(samples)
    kl = divergence(bijection, densities, z, densities.log_prob(samples) - log_det)
    if head is None or labels is None:
        return HeldOutLosses(torch.zeros_like(kl), kl, kl)
    by_group = [
        _mean_task_loss(bijection.select_group(a), head, x, y, chunk)
        for a, (x, y) in enumerate(zip(rows, labels, strict=True))
    ]
    task = torch.stack(by_group).mean(0)
    weight = torch.as_tensor(gamma, dtype=kl.dtype, device=kl.device)
    counted = torch.where(weight > 0, weight * kl, 0.0)  # an infinite divergence is none of γ = 0's concern
    return HeldOutLosses(task, kl, counted + (1 - weight) * task)


def _mean_task_loss(encoder: Bijection, head: StackedMLP, x: Tensor, y: Tensor, chunk: int) -> Tensor:
    total = torch.zeros(encoder.n_models, device=x.device)
    for part, y_part in zip(x.split(chunk), y.split(chunk), strict=True):
        z, _ = encoder.forward(part)
        total += len(part) * task_loss(head, z, y_part.expand(encoder.n_models, -1))
    return total / len(x)


@torch.no_grad()
def log_density_table(
    bijection: Bijection,
    densities: GroupDensities,
    n: int,
    generator: torch.Generator,
    *,
    chunk: int = 16_384,
) -> Tensor:
    """The one bridge from encoder to certificate: log p̂_Zb(z_i^a), (M, n, K drawn, K density), in float64.

    Row i holds one draw z_i^a from every group's latent law, and its log-density under every group b. With densities
    by group and label, call it for each ``densities.for_label(l)``.

    Parameters
    ----------
    bijection, densities
        Evaluated in their own precision: pass ``.double()`` copies for a certificate.
    n
        Draws.
    generator
        Where the draws come from; on the device of the densities.
    chunk
        Draws at a time.
    """
    parts = [
        _log_densities(bijection, densities, min(chunk, n - start), generator).double().cpu()
        for start in range(0, n, chunk)
    ]
    return torch.cat(parts, dim=1)


def _log_densities(bijection: Bijection, densities: GroupDensities, n: int, generator: torch.Generator) -> Tensor:
    n_groups = densities.n_groups
    x = densities.sample(n, generator).to(next(bijection.parameters()))
    z, _ = bijection.forward(x)  # (M, K, n, D)
    everywhere = z.flatten(1, 2).unsqueeze(1).expand(-1, n_groups, -1, -1)  # every draw, for every group to decode
    decoded, log_det = bijection.inverse(everywhere)
    log_p = densities.log_prob(decoded) + log_det  # (M, K density, K drawn · n)
    return log_p.unflatten(2, (n_groups, n)).permute(0, 3, 2, 1)

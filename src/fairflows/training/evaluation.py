"""What trained models are worth: their losses on held-out rows, and the table of log-densities for a certificate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fairflows.bijection import Bijection, StackedMLP
from fairflows.bounds.arguments import checked_draws
from fairflows.density import GroupDensities
from fairflows.training.algorithm1 import (
    Batch,
    Losses,
    algorithm_1,
    classification_loss,
    convex,
    draws_compared,
    log_prob_under_others,
    without_kl,
)
from fairflows.training.loop import GroupRows

_DECODED_AT_A_TIME = 2**16


@torch.no_grad()
def held_out_losses(
    bijection: Bijection,
    head: StackedMLP | None,
    densities: GroupDensities,
    data: GroupRows,
    *,
    gamma: Sequence[float],
    n_draws: int = 4096,
    random_state: int = 0,
    chunk: int = 4096,
) -> Losses:
    """Return the losses of every model on held-out rows; the best restart has the smallest joint loss.

    L_KL uses ``n_draws`` fresh draws from every density, the same for all models. L_clf is the mean over the groups of
    their mean cross-entropy, computed ``chunk`` rows at a time; without a task it is zero, and the joint loss is L_KL.
    """
    reference = next(bijection.parameters())
    generator = torch.Generator(reference.device).manual_seed(random_state)
    weight = torch.as_tensor(gamma, dtype=reference.dtype, device=reference.device)
    L_KL = torch.zeros_like(weight)
    for n in _parts(n_draws, n_draws, densities.n_groups):
        x = densities.sample(n, generator).to(reference)
        L_KL += n / n_draws * algorithm_1(bijection, None, densities, Batch(x, densities.log_prob(x)), weight).L_KL
    if head is None or data.y is None:
        return Losses(torch.zeros_like(L_KL), L_KL, L_KL)
    by_group = [
        _classification_loss(bijection.select_group(a), head, rows, y, chunk)
        for a, (rows, y) in enumerate(zip(data.x, data.y, strict=True))
    ]
    L_clf = torch.stack(by_group).mean(0)
    return Losses(L_clf, L_KL, without_kl(convex, weight > 0)(L_KL, L_clf, weight))


def _classification_loss(f_a: Bijection, head: StackedMLP, x: Tensor, y: Tensor, chunk: int) -> Tensor:
    """Return l_clf on the rows (n_a, D) of one group."""
    total = torch.zeros(f_a.n_models, device=x.device)
    for x_part, y_part in zip(x.split(chunk), y.split(chunk), strict=True):
        z, _ = f_a.forward(x_part)
        total += len(x_part) * classification_loss(head, z, y_part.expand(f_a.n_models, -1))
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
    """Return log p̂_Zb(z_i^a), (M, n, K drawn, K density), in float64: all that model-based bounds need.

    Row i holds one draw z_i^a from the latent law of every group a, and its log-density under every group b. With
    densities by group and label, call it for each ``densities.for_label(l)``.

    Parameters
    ----------
    bijection, densities
        Evaluated in their own precision: pass ``.double()`` copies for a certificate.
    n
        Number of draws.
    generator
        Where the draws come from; on the device of the densities.
    chunk
        The most draws at a time.

    Raises
    ------
    DataError
        There are so many groups that the table cannot be kept.
    """
    K = densities.n_groups
    table = torch.empty(bijection.n_models, checked_draws(n, K), K, K, dtype=torch.float64)
    start = 0
    for size in _parts(n, chunk, K):
        table[:, start : start + size] = _log_densities(bijection, densities, size, generator)
        start += size
    return table


def _parts(n: int, chunk: int, n_groups: int) -> Iterator[int]:
    """Yield numbers of draws that add up to n, each so small that decoding all draws by all groups fits."""
    chunk = max(1, min(chunk, _DECODED_AT_A_TIME // n_groups**2))
    yield from (min(chunk, n - start) for start in range(0, n, chunk))


def _log_densities(bijection: Bijection, densities: GroupDensities, n: int, generator: torch.Generator) -> Tensor:
    x = densities.sample(n, generator).to(next(bijection.parameters()))
    z, log_det = bijection.forward(x)  # (M, K, n, D)
    own = densities.log_prob(x) - log_det  # eq. 4: a draw's own group needs no decoding
    to_each = draws_compared(z, 1, most=densities.n_groups)
    by_shift = torch.cat([own.unsqueeze(2), log_prob_under_others(bijection, densities, to_each)], dim=2)
    group = torch.arange(densities.n_groups, device=x.device)
    drawn, density = group[:, None], group
    return by_shift[:, drawn, (drawn - density) % len(group)].permute(0, 3, 1, 2)

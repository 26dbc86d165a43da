"""Maximum likelihood for a stack of densities: the groups' networks are trained together, as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from fairflows.compute.steps import AdamSteps, milestone_rate

_ROUND = 64  # steps whose rows are drawn at once


def maximise_likelihood(
    log_prob: Callable[[Tensor], Tensor],
    parameters: Iterable[nn.Parameter],
    rows: Sequence[Tensor],
    *,
    n_steps: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    random_state: int,
) -> None:
    """Train G densities on rows of G groups: each step takes ``batch_size`` rows of every group, with replacement.

    ``log_prob`` maps points (G, B, D) to (G, B). The loss is the sum of the groups' negative mean log-likelihoods, so
    every group is trained as it would be alone.
    """
    data = torch.cat(list(rows))
    device = data.device
    sizes = torch.tensor([len(x) for x in rows], device=device)
    first = sizes.cumsum(0) - sizes
    generator = torch.Generator(device).manual_seed(random_state)
    pool = data.new_empty(_ROUND, len(rows), batch_size, data.shape[1])
    position = torch.zeros(1, dtype=torch.long, device=device)

    def loss() -> Tensor:
        x = pool.index_select(0, position).squeeze(0)
        position.add_(1)
        return -log_prob(x).mean(-1).sum()

    steps = AdamSteps(
        loss, parameters, learning_rate=learning_rate, weight_decay=weight_decay, capture=device.type == "cuda"
    )
    for step in range(n_steps):
        if step % _ROUND == 0:
            uniform = torch.rand(_ROUND, len(rows), batch_size, generator=generator, device=device, dtype=torch.float64)
            chosen = first[:, None] + (uniform * sizes[:, None]).long()
            pool.copy_(data[chosen])
            position.zero_()
        steps.set_learning_rate(milestone_rate(learning_rate, step, n_steps))
        steps.step()

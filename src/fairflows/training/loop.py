r"""Algorithm 1 of Fair Normalizing Flows, for M models of K groups at once.

.. math:: \min_{f_0, \dots, f_{K-1},\, h} \quad \gamma\, \mathcal L_{KL} + (1 - \gamma)\, \mathcal L_{clf},
          \qquad \mathcal L_{KL} = \frac{1}{K(K-1)} \sum_{a \ne b}
          E_{z \sim Z_a} \left[ \log \hat p_{Z_a}(z) - \log \hat p_{Z_b}(z) \right].

For two groups :math:`\mathcal L_{KL}` is half of the symmetrised divergence. The models differ in γ and in their seed;
they share the data and the densities, and no number of one reaches another.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fairflows.bijection import Bijection, StackedMLP
from fairflows.compute.progress import progress_bar
from fairflows.compute.steps import AdamSteps, milestone_rate
from fairflows.density import GroupDensities
from fairflows.exceptions import ParameterError
from fairflows.training.draws import Draws, Feed, FreshDraws

Scalarisation = Literal["convex", "chebyshev"]


class DivergedError(RuntimeError):
    """No model of a run stayed finite; the message says what to lower."""


@dataclass(frozen=True)
class LossRange:
    """The smallest and largest value of each loss along the run that minimises it alone (Wei and Niethammer, 2020).

    Numbers, or one a model, (M,).
    """

    task: tuple[Any, Any]
    kl: tuple[Any, Any]

    def to(self, reference: Tensor) -> LossRange:
        """With the type and device of a tensor, where a captured step finds them."""
        task, kl = (torch.stack([torch.as_tensor(b).to(reference) for b in pair]) for pair in (self.task, self.kl))
        return LossRange((task[0], task[1]), (kl[0], kl[1]))


@dataclass(frozen=True)
class TrainingResult:
    """What a run did.

    Attributes
    ----------
    task, kl, joint
        Mean losses of each epoch, (epochs, M). The task loss is zero when there is no task.
    lowest, highest
        The smallest and largest (task, kl, joint) of a single step once γ has risen, (3, M).
    diverged
        Which models ended with weights or losses that are not finite, (M,).
    """

    task: Tensor
    kl: Tensor
    joint: Tensor
    lowest: Tensor
    highest: Tensor
    diverged: Tensor


def train(
    bijection: Bijection,
    head: StackedMLP | None,
    densities: GroupDensities,
    rows: Sequence[Tensor],
    labels: Sequence[Tensor] | None = None,
    *,
    gamma: Sequence[float],
    seeds: Sequence[int],
    epochs: int = 60,
    batch_size: int = 128,
    learning_rate: float = 0.01,
    weight_decay: float = 1e-4,
    ramp_epochs: int = 50,
    scalarisation: Scalarisation = "convex",
    loss_range: LossRange | None = None,
    sample_weight: Sequence[Tensor] | None = None,
    draws: Draws | None = None,
    capture: bool | None = None,
    progress: bool = False,
) -> TrainingResult:
    r"""Train the encoders f_a and the task heads h of all models, in place.

    Parameters
    ----------
    bijection, head, densities
        M × K encoders, M heads on z (None without a task), and the K densities p̂_a, on the device of the rows.
    rows, labels
        Each group's rows (n_a, D) and labels (n_a,), on the device, in float32.
    gamma
        One trade-off a model, in [0, 1].
    seeds
        One a model: it decides the model's batches. Models of equal seed see equal batches.
    epochs, batch_size
        An epoch is one pass over the smallest group in batches of ``batch_size`` rows from every group.
    learning_rate, weight_decay
        Adam's; the learning rate is divided by ten after one third and two thirds of the epochs.
    ramp_epochs
        γ rises linearly from zero over these epochs.
    scalarisation
        ``"convex"``: γ·KL + (1 − γ)·task. ``"chebyshev"``: the larger of γ·KL′ and (1 − γ)·task′, both normalised to
        ``loss_range``, once γ has risen.
    loss_range
        For Chebyshev; when not given, two models a seed that minimise one loss each are trained first to find it.
    sample_weight
        Each group's row weights: a row is drawn with a chance proportional to its weight.
    draws
        Another source of batches.
    capture
        Replay the step as a CUDA graph; on a GPU that is the default wherever the densities allow it.
    progress
        Show a progress bar with the losses.

    Returns
    -------
    TrainingResult
        The losses of every epoch, and which models diverged.

    Examples
    --------
    >>> from fairflows.bijection import RealNVP, StackedMLP
    >>> from fairflows.density import MixtureDensity
    >>> rows = [torch.randn(200, 2), torch.randn(200, 2) + 1]
    >>> labels = [(x[:, 0] > 0).long() for x in rows]
    >>> densities = GroupDensities.fit(MixtureDensity(1), rows)
    >>> f, h = RealNVP(2, seeds=[0, 1]), StackedMLP(2, (20,), 2, seeds=[0, 1])
    >>> result = train(f, h, densities, rows, labels, gamma=[0.0, 0.9], seeds=[0, 1], epochs=2)
    >>> result.kl.shape
    torch.Size([2, 2])
    """
    device = rows[0].device
    target_gamma = torch.as_tensor(gamma, dtype=rows[0].dtype, device=device)
    _check(bijection, head, densities, rows, labels, target_gamma, seeds, scalarisation, epochs, ramp_epochs)
    if scalarisation == "chebyshev" and loss_range is None:
        loss_range = _single_objective_range(
            bijection,
            head,
            densities,
            rows,
            labels,
            seeds=seeds,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            ramp_epochs=ramp_epochs,
            sample_weight=sample_weight,
            capture=capture,
        )
    if draws is None:
        draws = FreshDraws(rows, labels, densities, seeds=seeds, batch_size=batch_size, sample_weight=sample_weight)
    loss_range = loss_range and loss_range.to(rows[0])
    feed = Feed(draws)
    now = _Schedule(target_gamma)
    seen = _Losses(rows[0].new_zeros(3, bijection.n_models))
    # With γ = 0 nothing keeps draws where the other densities are positive, and 0·∞ would be the end of the model.
    counts = target_gamma > 0 if head is not None and bool((target_gamma == 0).any()) else None

    def loss() -> Tensor:
        """The body of Algorithm 1, one batch: the models' joint losses, added up."""
        x, log_p_x, y = feed.next()  # B rows of every group, then samples x ~ p̂_a with their log p̂_a(x)
        z, log_det = bijection.forward(x)  # z = f_a(x)
        rows_z, samples_z = z.tensor_split([-log_p_x.shape[-1]], dim=2)
        log_p_z = log_p_x - log_det[..., -log_p_x.shape[-1] :]  # log p̂_Za(z), by the change of variables
        kl = divergence(bijection, densities, samples_z, log_p_z, counts)
        task = task_loss(head, rows_z, y) if head is not None and y is not None else None
        joint = _joint_loss(task, _or_zero(counts, kl), now, scalarisation, loss_range)
        seen.add(torch.zeros_like(kl) if task is None else task, kl, joint)
        return joint.sum()  # each model's gradient reaches its own weights only

    trained = [*bijection.parameters(), *(head.parameters() if head is not None else [])]
    steps = AdamSteps(
        loss,
        trained,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        capture=(device.type == "cuda" and densities.capturable) if capture is None else capture,
    )
    steps_per_epoch = -(-min(len(x) for x in rows) // batch_size)
    history = rows[0].new_empty(epochs, 3, bijection.n_models)
    with progress_bar("training", enabled=progress) as show:
        for epoch in range(epochs):
            now.set(epoch, ramp_epochs)
            steps.set_learning_rate(milestone_rate(learning_rate, epoch, epochs))
            seen.restart(forget_range=epoch < max(ramp_epochs, 1))
            for _ in range(steps_per_epoch):
                feed.refill_when_empty()
                steps.step()
            history[epoch] = seen.sums / steps_per_epoch
            if progress:  # reading the losses waits for the device
                show(epoch + 1, epochs, _described(history[epoch]))
    diverged = _diverged(trained, history)
    _report_divergence(diverged, target_gamma, learning_rate)
    task, kl, joint = history.unbind(1)
    return TrainingResult(task, kl, joint, seen.lowest, seen.highest, diverged)


def divergence(
    bijection: Bijection, densities: GroupDensities, z: Tensor, log_p_z: Tensor, counts: Tensor | None = None
) -> Tensor:
    r"""L_KL of each model, (M,), from draws z ~ p̂_Za (M, K, R, D) and their log p̂_Za(z) (M, K, R).

    With one density a group and label it is the sum of the labels' divergences; the rows are then L blocks. ``counts``,
    (M,), says which models are trained by it; in the others it has no gradient, and may be infinite.
    """
    n_groups, n_labels = z.shape[1], densities.n_labels
    blocks = z.unflatten(2, (n_labels, -1))
    # Group b decodes the draws of all others: those of b + 1, b + 2, … (mod K), block by block.
    others = torch.cat([blocks.roll(-shift, dims=1) for shift in range(1, n_groups)], dim=3).flatten(2, 3)
    x, log_det = bijection.inverse(others)
    if counts is not None:
        x = torch.where(counts[:, None, None, None], x, x.detach())
        log_det = torch.where(counts[:, None, None], log_det, log_det.detach())
    log_p_other = densities.log_prob(x) + log_det  # log p̂_Zb(z)
    return n_labels * (log_p_z.mean((1, 2)) - log_p_other.mean((1, 2)))


def task_loss(head: StackedMLP, z: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy of each model, (M,), on the latents (M, K, B, D) of B rows from every group."""
    logits = head(z.flatten(1, 2))
    return cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").unflatten(0, (len(z), -1)).mean(1)


class _Schedule:
    """γ as it is now, on the device, so that a captured step reads its current value."""

    def __init__(self, target: Tensor):
        self._target = target
        self.gamma = torch.zeros_like(target)
        self.risen = torch.zeros((), dtype=torch.bool, device=target.device)

    def set(self, epoch: int, ramp_epochs: int) -> None:
        self.gamma.copy_(self._target * min((epoch + 1) / max(ramp_epochs, 1), 1.0))
        self.risen.fill_(epoch >= ramp_epochs)


class _Losses:
    """Sums and extremes of the steps' (task, kl, joint), kept on the device."""

    def __init__(self, sums: Tensor):
        self.sums, self.lowest, self.highest = sums, sums.clone(), sums.clone()

    def restart(self, *, forget_range: bool) -> None:
        self.sums.zero_()
        if forget_range:
            self.lowest.fill_(torch.inf)
            self.highest.fill_(-torch.inf)

    def add(self, *losses: Tensor) -> None:
        values = torch.stack([loss.detach() for loss in losses])
        self.sums.add_(values)
        torch.minimum(self.lowest, values, out=self.lowest)
        torch.maximum(self.highest, values, out=self.highest)


def _or_zero(counts: Tensor | None, kl: Tensor) -> Tensor:
    return kl if counts is None else torch.where(counts, kl, 0.0)


def _joint_loss(
    task: Tensor | None, kl: Tensor, now: _Schedule, scalarisation: Scalarisation, loss_range: LossRange | None
) -> Tensor:
    """L = γ·KL + (1 − γ)·task, or the larger of the two once γ has risen and both are normalised."""
    if task is None:
        return kl
    convex = now.gamma * kl + (1 - now.gamma) * task
    if scalarisation == "convex" or loss_range is None:
        return convex
    largest = torch.maximum(
        now.gamma * _normalised(kl, loss_range.kl), (1 - now.gamma) * _normalised(task, loss_range.task)
    )
    return torch.where(now.risen, largest, convex)


def _single_objective_range(
    bijection: Bijection, head: StackedMLP | None, *args: Any, seeds: Sequence[int], **settings: Any
) -> LossRange:
    """The range of each loss along the training of a model that minimises it alone, for each model's seed.

    Models of equal seed start alike, so one pair a seed is enough.
    """
    different = sorted(set(seeds))
    n, starts = len(different), 2 * [list(seeds).index(seed) for seed in different]
    alone, heads = bijection.select(starts), head and head.select(starts)
    result = train(alone, heads, *args, gamma=[0.0] * n + [1.0] * n, seeds=2 * different, **settings)
    of_model = [different.index(seed) for seed in seeds]
    low, high = result.lowest.unflatten(1, (2, n))[..., of_model], result.highest.unflatten(1, (2, n))[..., of_model]
    return LossRange(task=(low[0, 0], high[0, 0]), kl=(low[1, 1], high[1, 1]))


def _normalised(loss: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
    low, high = bounds
    return (loss - low) / (high - low).clamp_min(1e-6)


def _described(losses: Tensor) -> str:
    """The (task, kl, joint) losses (3, M) of an epoch, as means over the models."""
    task, kl, joint = losses.nanmean(1).tolist()
    return f"task {task:.3f} · KL {kl:.3f} · joint {joint:.3f} ({losses.shape[1]} models)"


def _diverged(trained: Sequence[nn.Parameter], history: Tensor) -> Tensor:
    finite = torch.isfinite(history[-1, -1])  # the joint loss: the divergence may be infinite where γ = 0
    for parameter in trained:
        finite &= torch.isfinite(parameter.detach()).flatten(1).all(1)
    return ~finite


def _report_divergence(diverged: Tensor, gamma: Tensor, learning_rate: float) -> None:
    if not bool(diverged.any()):
        return
    lost = diverged.nonzero()[:, 0].tolist()
    message = (
        f"{len(lost)} of {len(diverged)} models did not stay finite "
        f"(models {lost}, gamma {[round(g, 4) for g in gamma[diverged].tolist()]}): "
        f"lower learning_rate (now {learning_rate:g}) or gamma, and take densities that are positive everywhere."
    )
    if len(lost) == len(diverged):
        raise DivergedError(message)
    warnings.warn(message, RuntimeWarning, stacklevel=3)


def _check(
    bijection: Bijection,
    head: StackedMLP | None,
    densities: GroupDensities,
    rows: Sequence[Tensor],
    labels: Sequence[Tensor] | None,
    gamma: Tensor,
    seeds: Sequence[int],
    scalarisation: str,
    epochs: int,
    ramp_epochs: int,
) -> None:
    n_models, n_groups = bijection.n_models, bijection.n_groups
    if len(rows) != n_groups or densities.n_groups != n_groups or n_groups < 2:
        raise ValueError(
            f"the groups must be the same two or more everywhere; got rows of {len(rows)}, densities of "
            f"{densities.n_groups} and encoders of {n_groups}."
        )
    if gamma.shape != (n_models,) or len(seeds) != n_models:
        raise ValueError(f"gamma and seeds must have one value for each of {n_models} models.")
    if scalarisation not in ("convex", "chebyshev"):
        raise ValueError(f"scalarisation must be 'convex' or 'chebyshev'; got {scalarisation!r}.")
    if scalarisation == "chebyshev" and ramp_epochs >= epochs:
        raise ValueError(
            f"Chebyshev's loss begins once γ has risen: ramp_epochs must be less than the {epochs} epochs; got "
            f"{ramp_epochs}."
        )
    if not bool(((gamma >= 0) & (gamma <= 1)).all()):
        raise ParameterError("gamma", "must be in [0, 1]", gamma.tolist())
    if (head is None) != (labels is None):
        raise ValueError("labels and a task head go together; got only one of them.")
    if min(len(x) for x in rows) == 0:
        raise ValueError("every group must have rows; one has none.")

"""The training loop around Algorithm 1: batches, the ramp of γ, Adam, CUDA graphs; log-densities of trained models."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from fairflows.bijection import Bijection, StackedMLP
from fairflows.bijection.networks import generator_of
from fairflows.bounds.arguments import checked_draws
from fairflows.density import GroupDensities
from fairflows.density.base import FreshNoise
from fairflows.display import progress_bar
from fairflows.exceptions import DataError, check_choice
from fairflows.steps import AdamSteps, chosen_threads, drawn_rows, milestone_rate
from fairflows.training.algorithm1 import (
    Batch,
    Losses,
    LossRange,
    Scalarise,
    WithoutKLGradient,
    algorithm_1,
    chebyshev,
    convex,
    draws_compared,
    log_prob_under_others,
    without_kl,
)

_DECODED_AT_A_TIME = 2**14
_STEPS_AT_ONCE = 32  # whose batches are drawn together: few enough that memory grows with the batch only


class DivergedError(RuntimeError):
    """Every model of a run diverged; the message names the setting to lower."""


@dataclass(frozen=True)
class GroupRows:
    """Rows by group: each list has one tensor per group, all on the same device."""

    x: list[Float[Tensor, "_ D"]]  # the rows of a group, in float32
    y: list[Int[Tensor, " _"]] | None = None  # their labels, whole numbers from 0 on; None when there is no task
    noise: FreshNoise | None = None  # the noise that rows get anew in every batch; x then holds their grid points

    @property
    def smallest(self) -> int:
        """The number of rows of the smallest group."""
        return min(len(x) for x in self.x)


@dataclass(frozen=True)
class TrainingSettings:
    """How models are trained, the same for all models of a run."""

    # An epoch is one pass over the smallest group in batches of `batch_size` rows from every group.
    epochs: int = 60
    batch_size: int = 128
    # Of Adam; the learning rate is divided by ten after one third and after two thirds of the epochs.
    learning_rate: float = 0.01
    weight_decay: float = 1e-4
    ramp_epochs: int = 50  # γ rises linearly from zero during these epochs
    # "convex": the joint loss is γ·L_KL + (1 − γ)·L_clf. "chebyshev": it is the larger of γ·L_KL and (1 − γ)·L_clf,
    # both normalised, once γ has risen. Two more models per seed are trained first, each on one of the losses alone, to
    # find the range that this loss is normalised to.
    scalarisation: Literal["convex", "chebyshev"] = "convex"
    progress: bool = False  # show a progress bar with the losses

    def __post_init__(self) -> None:
        check_choice("scalarisation", self.scalarisation, ("convex", "chebyshev"))
        if self.scalarisation == "chebyshev" and self.ramp_epochs >= self.epochs:
            raise DataError(
                f"ramp_epochs must be less than the {self.epochs} epochs with scalarisation='chebyshev', which begins "
                f"once γ has risen; got {self.ramp_epochs!r}."
            )


@dataclass(frozen=True)
class TrainingResult:
    """The losses of a run."""

    # Mean L_clf, L_KL and L of each epoch. Without a task L_clf is zero and L is L_KL.
    task: Float[Tensor, "epochs M"]
    kl: Float[Tensor, "epochs M"]
    joint: Float[Tensor, "epochs M"]
    # The smallest and the largest (L_clf, L_KL, L) of a single step once γ has risen.
    lowest: Float[Tensor, "3 M"]
    highest: Float[Tensor, "3 M"]
    diverged: Bool[Tensor, " M"]  # which models ended with weights or losses that are not finite


def train(
    bijection: Bijection,
    head: StackedMLP | None,
    densities: GroupDensities,
    data: GroupRows,
    *,
    gamma: Sequence[float],
    seeds: Sequence[int],
    settings: TrainingSettings,
) -> TrainingResult:
    r"""Train the encoders f_a and the classifiers h of all models, in place.

    Parameters
    ----------
    bijection, head, densities
        M × K encoders, M classifiers on z (None without a task), and the K densities p̂_a, on the device of the rows.
    data
        The rows of each group.
    gamma
        The trade-off in [0, 1] of each model.
    seeds
        The seed of each model, which decides its batches: models of equal seed read equal batches.
    settings
        How to train.

    Returns
    -------
    TrainingResult
        The losses of every epoch, and which models diverged.

    Examples
    --------
    >>> from fairflows.bijection import RealNVP, StackedMLP
    >>> from fairflows.density import MixtureDensity
    >>> x = [torch.randn(200, 2), torch.randn(200, 2) + 1]
    >>> data = GroupRows(x, [(x_a[:, 0] > 0).long() for x_a in x])
    >>> densities = GroupDensities.fit(MixtureDensity(1), x)
    >>> f, h = RealNVP(2, seeds=[0, 1]), StackedMLP(2, (20,), 2, seeds=[0, 1])
    >>> result = train(f, h, densities, data, gamma=[0.0, 0.9], seeds=[0, 1], settings=TrainingSettings(epochs=2))
    >>> result.kl.shape
    torch.Size([2, 2])
    """
    x = data.x[0]
    target_gamma = torch.as_tensor(gamma, dtype=x.dtype, device=x.device)
    if head is None:  # L is L_KL from the first step on
        target_gamma = torch.ones_like(target_gamma)
    ramp = _GammaRamp(target_gamma, 0 if head is None else settings.ramp_epochs)
    scalarise: Scalarise = convex
    if settings.scalarisation == "chebyshev" and head is not None:
        loss_range = single_objective_range(bijection, head, densities, data, seeds=seeds, settings=settings)
        scalarise = chebyshev(loss_range, ramp.has_risen)
    kl_is_trained = target_gamma > 0
    kl_trains_all = bool(kl_is_trained.all())
    if not kl_trains_all:
        scalarise = without_kl(scalarise, kl_is_trained)
    feed = Feed(FreshDraws(data, densities, seeds=seeds, batch_size=settings.batch_size))
    record = _LossRecord(x.new_zeros(3, bijection.n_models))

    def loss() -> Float[Tensor, ""]:
        """Return the loss of the next step; captured, so every tensor that it reads or writes keeps its address."""
        f = bijection.prepared()
        if not kl_trains_all:
            f = WithoutKLGradient(f, kl_is_trained)
        losses = algorithm_1(f, head, densities, feed.next(), ramp.gamma, scalarise)
        record.add(losses)
        return losses.L.sum()  # the gradient of each model reaches its own weights only

    trained = [*bijection.parameters(), *(head.parameters() if head is not None else [])]
    steps = AdamSteps(
        loss,
        trained,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        capture=x.is_cuda and bijection.capturable and densities.capturable,
    )
    steps_per_epoch = -(-data.smallest // settings.batch_size)
    history = x.new_empty(settings.epochs, 3, bijection.n_models)
    with progress_bar("training", enabled=settings.progress) as show, chosen_threads(x.device) as run:
        for epoch in range(settings.epochs):
            ramp.set(epoch)
            steps.set_learning_rate(milestone_rate(settings.learning_rate, epoch, settings.epochs))
            record.restart(forget_range=epoch < max(settings.ramp_epochs, 1))
            for _ in range(steps_per_epoch):
                feed.refill_when_empty()
                run(steps.step)
            history[epoch] = record.sums / steps_per_epoch
            text = f"{epoch + 1} of {settings.epochs}"
            if settings.progress:  # reading the losses waits for the device
                task, kl, joint = history[epoch].nanmean(1).tolist()
                text = f"task {task:.3f} · KL {kl:.3f} · joint {joint:.3f}"
            show(epoch + 1, settings.epochs, text)
    diverged = _diverged(trained, history, gamma, settings.learning_rate)
    task, kl, joint = history.unbind(1)
    return TrainingResult(task, kl, joint, record.lowest, record.highest, diverged)


def single_objective_range(
    bijection: Bijection,
    head: StackedMLP,
    densities: GroupDensities,
    data: GroupRows,
    *,
    seeds: Sequence[int],
    settings: TrainingSettings,
) -> LossRange:
    """Return the range of each loss while a model of the same seed is trained on this loss alone, for each model.

    Models of equal seed start alike, so two models per seed are trained.
    """
    distinct = sorted(set(seeds))
    n, first_of_seed = len(distinct), [list(seeds).index(seed) for seed in distinct]
    result = train(
        bijection.select(2 * first_of_seed),
        head.select(2 * first_of_seed),
        densities,
        data,
        gamma=[0.0] * n + [1.0] * n,
        seeds=2 * distinct,
        settings=replace(settings, scalarisation="convex", progress=False),
    )
    of_model = torch.tensor([distinct.index(seed) for seed in seeds], device=result.lowest.device)
    bounds = torch.stack([result.lowest, result.highest])  # (2, 3 losses, 2 n)
    return LossRange(L_KL=bounds[:, 1, n + of_model], L_clf=bounds[:, 0, of_model])


class FreshDraws:
    """Rows drawn with replacement, B from every group, and as many fresh draws from every density.

    All numbers of a stream come from a generator with the seed of that stream, so that a model reads the same batches
    in a stack and alone.
    """

    def __init__(self, data: GroupRows, densities: GroupDensities, *, seeds: Sequence[int], batch_size: int):
        self._densities = densities
        self._batch_size = batch_size
        self._x, self._noise = torch.cat(data.x), data.noise
        self._y = torch.cat(data.y) if data.y is not None else None
        device = self._x.device
        self._sizes = torch.tensor([len(x) for x in data.x], device=device)
        distinct = list(dict.fromkeys(seeds))
        # Which of S random streams each model reads, (M,): models of equal seed share one, and so their batches.
        self.streams = torch.tensor([distinct.index(seed) for seed in seeds], device=device)
        self._generators = [
            torch.Generator(device).manual_seed(generator_of(seed, "batches").initial_seed()) for seed in distinct
        ]

    @torch.no_grad()
    def take(self, n_steps: int) -> Batch:
        """Return the batches of the next T steps, with leading axes (T, S)."""
        parts = [self._of_stream(n_steps, generator) for generator in self._generators]
        rows, x, draws = (torch.stack([part[i] for part in parts], dim=1) for i in range(3))
        # Densities take the draws of a label together, (K, L·T·S·B, D), those of all streams at once.
        log_p_x = self._densities.log_prob(draws.movedim((2, 3), (0, 1)).flatten(1, 4))
        by_label = (self._densities.n_labels, *draws.shape[:2], self._batch_size)
        log_p_x = log_p_x.unflatten(1, by_label).movedim((0, 1), (2, 3))
        y = None if self._y is None else self._y[rows]
        return Batch(torch.cat([x, draws.flatten(3, 4)], dim=3), log_p_x.flatten(3, 4).to(x), y)

    def _of_stream(
        self, n_steps: int, generator: torch.Generator
    ) -> tuple[Int[Tensor, "T K B"], Float[Tensor, "T K B D"], Float[Tensor, "T K L B D"]]:
        """Return numbers of rows, the rows, and draws from the densities."""
        B = self._batch_size
        rows = drawn_rows(self._sizes, n_steps, B, generator)
        x = self._x[rows]
        if self._noise is not None:
            x = self._noise.add(x, generator)
        draws = self._densities.sample(n_steps * B, generator).unflatten(1, (self._densities.n_labels, n_steps, B))
        return rows, x, draws.movedim(2, 0).to(x)


class Feed:
    """Hands each step its batch, from buffers at fixed addresses, as a captured step needs."""

    def __init__(self, draws: FreshDraws):
        self._draws = draws
        self._buffers = draws.take(_STEPS_AT_ONCE)
        self._n_used = 0
        self._position = torch.zeros((), dtype=torch.long, device=self._buffers.x.device)
        self._n_streams = self._buffers.x.shape[1]

    def refill_when_empty(self) -> None:
        """Fill in new batches once all have been used. To be called before each step, outside the captured part."""
        if self._n_used == _STEPS_AT_ONCE:
            for buffer, fresh in zip(self._buffers, self._draws.take(_STEPS_AT_ONCE), strict=True):
                if buffer is not None and fresh is not None:
                    buffer.copy_(fresh)
            self._position.zero_()
            self._n_used = 0
        self._n_used += 1

    def next(self) -> Batch:
        """Return the batch of the current step, with the M models as leading axis."""
        which = self._position * self._n_streams + self._draws.streams
        self._position.add_(1)
        x, log_p_x, y = self._buffers
        return Batch(
            x.flatten(0, 1).index_select(0, which),
            log_p_x.flatten(0, 1).index_select(0, which),
            None if y is None else y.flatten(0, 1).index_select(0, which),
        )


class _GammaRamp:
    """γ rises linearly from zero to its target; on the device, so that a captured step reads its current value."""

    def __init__(self, target: Float[Tensor, " M"], n_epochs: int):
        self._target = target
        self._n_epochs = n_epochs
        self.gamma = torch.zeros_like(target)
        self.has_risen = torch.zeros((), dtype=torch.bool, device=target.device)

    def set(self, epoch: int) -> None:
        self.gamma.copy_(self._target * min((epoch + 1) / max(self._n_epochs, 1), 1.0))
        self.has_risen.fill_(epoch >= self._n_epochs)


class _LossRecord:
    """Sums and extremes of the steps' (L_clf, L_KL, L); on the device, as a captured step writes them."""

    def __init__(self, sums: Float[Tensor, "3 M"]):
        self.sums, self.lowest, self.highest = sums, sums.clone(), sums.clone()

    def restart(self, *, forget_range: bool) -> None:
        self.sums.zero_()
        if forget_range:
            self.lowest.fill_(torch.inf)
            self.highest.fill_(-torch.inf)

    def add(self, losses: Losses) -> None:
        values = torch.stack([loss.detach() for loss in losses])
        self.sums.add_(values)
        torch.minimum(self.lowest, values, out=self.lowest)
        torch.maximum(self.highest, values, out=self.highest)


def _diverged(
    trained: Sequence[nn.Parameter], history: Float[Tensor, "epochs 3 M"], gamma: Sequence[float], learning_rate: float
) -> Bool[Tensor, " M"]:
    """Return which models did not stay finite; warn of them, or raise if these are all models."""
    finite = torch.isfinite(history[-1, -1])  # the joint loss: the divergence may be infinite where γ = 0
    for parameter in trained:
        finite &= torch.isfinite(parameter.detach()).flatten(1).all(1)
    lost = (~finite).nonzero()[:, 0].tolist()
    message = (
        f"{len(lost)} of {len(finite)} models did not stay finite "
        f"(models {lost}, gamma {[round(float(gamma[m]), 4) for m in lost]}): "
        f"lower learning_rate (now {learning_rate:g}) or gamma, and take densities that are positive everywhere."
    )
    if len(lost) == len(finite):
        raise DivergedError(message)
    if lost:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    return ~finite


@torch.no_grad()
def log_density_table(
    bijection: Bijection, densities: GroupDensities, n: int, generator: torch.Generator
) -> Float[Tensor, "M {n} K K"]:
    """Return log p̂_Zb(z_i^a), (M, n, K drawn, K density), in float64: all that model-based bounds need.

    Row i holds one draw z_i^a from the latent law of every group a, and its log-density under every group b. With
    densities by group and label, call it for each ``densities.for_label(l)``. Both parts are evaluated in their own
    precision: pass ``.double()`` copies for a certificate. The generator is on the device of the densities.
    """
    most = max(1, _DECODED_AT_A_TIME // densities.n_groups**2)  # draws that all groups decode at a time
    sizes = [min(most, n - start) for start in range(0, checked_draws(n, densities.n_groups), most)]
    return torch.cat([_log_densities(bijection, densities, size, generator).cpu().double() for size in sizes], dim=1)


def _log_densities(
    bijection: Bijection, densities: GroupDensities, n: int, generator: torch.Generator
) -> Float[Tensor, "M {n} K K"]:
    x = densities.sample(n, generator).to(next(bijection.parameters()))
    z, log_det = bijection.forward(x)  # (M, K, n, D)
    own = densities.log_prob(x) - log_det  # eq. 4: a draw's own group needs no decoding
    to_each = draws_compared(z, 1, most=densities.n_groups)
    by_shift = torch.cat([own.unsqueeze(2), log_prob_under_others(bijection, densities, to_each)], dim=2)
    group = torch.arange(densities.n_groups, device=x.device)
    drawn, density = group[:, None], group
    return by_shift[:, drawn, (drawn - density) % len(group)].permute(0, 3, 1, 2)

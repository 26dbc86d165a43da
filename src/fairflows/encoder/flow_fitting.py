"""From rows in model space to trained flows: densities, the stack of models, restarts, and the slices that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch

from fairflows.bijection import Bijection, StackedMLP, check_bijection
from fairflows.bijection.couplings import new_bijection
from fairflows.bijection.turn import Turned, opposed_groups
from fairflows.encoder.base import label_values
from fairflows.encoder.fitted_flow import FittedFlow
from fairflows.encoder.flow_densities import fit_densities
from fairflows.encoder.rows import Groups, TrainingRows
from fairflows.exceptions import check_count
from fairflows.steps import chosen_device
from fairflows.training.history import LossHistory
from fairflows.training.loop import GroupRows, TrainingResult, TrainingSettings, train

if TYPE_CHECKING:
    from fairflows.encoder.fair_flow import FairFlow

_RESTART = 1_000_003  # seeds of restarts are this far apart: users count seeds from 0


def fit_flows(
    settings: FairFlow, labels: Groups | None, rows: TrainingRows, gammas: Sequence[float], seeds: Sequence[int]
) -> list[FittedFlow | None]:
    """Train all gammas, seeds and restarts in one run; None stands for a model that diverged."""
    _check_counts(settings)
    device = chosen_device(settings.device)
    fitted = fit_densities(settings, labels, rows, device)
    training = _training_settings(settings, fitted.rows.smallest)
    starts = [s + _RESTART * r for s in seeds for r in range(settings.n_restarts)]
    gamma, model_seeds = zip(*product(gammas, starts), strict=True)
    n_features = fitted.rows.x[0].shape[1]
    bijection = _new_bijection(settings, n_features, model_seeds, device)
    if settings.turn and fitted.rows.y is not None:
        bijection = _turned(bijection, fitted.rows)
    head = None
    if labels is not None:
        n_classes = len(label_values(settings))
        head = StackedMLP(n_features, settings.head, n_classes, seeds=model_seeds, stream="head").to(device)
    densities, label_densities = fitted.of_groups, fitted.of_labels
    used = label_densities or densities
    result = train(bijection, head, used, fitted.rows, gamma=gamma, seeds=model_seeds, settings=training)

    bijection, densities = bijection.cpu().double(), densities.cpu().double()
    head = None if head is None else head.cpu().double()
    label_densities = None if label_densities is None else label_densities.cpu().double()
    gaps = np.array([gap.distance for gap in fitted.gaps]) if fitted.gaps else None
    return [
        None
        if m is None
        else FittedFlow(
            bijection.select(m).requires_grad_(False),
            None if head is None else head.select(m).requires_grad_(False),
            densities,
            label_densities,
            fitted.label_numbers,
            fitted.held_out_log_likelihood,
            gaps,
            LossHistory(*(losses[:, m].cpu().double().numpy() for losses in (result.task, result.kl, result.joint))),
        )
        for m in _best_restarts(result, settings.n_restarts)
    ]


def _new_bijection(settings: FairFlow, n_features: int, seeds: Sequence[int], device: torch.device) -> Bijection:
    """Return the flows of all models and groups, untrained."""
    shape = {"n_blocks": settings.n_blocks, "hidden": settings.hidden}
    bijection = new_bijection(settings.bijection, n_features, n_groups=len(settings.groups_), seeds=seeds, **shape)
    if isinstance(settings.bijection, Bijection):
        check_bijection(bijection)
    return bijection.to(device)


def _turned(bijection: Bijection, rows: GroupRows) -> Bijection:
    """Return the bijection behind the label turn, where a group's classes oppose those of the largest group."""
    x = rows.x if rows.noise is None else [rows.noise.middle(s) for s in rows.x]
    opposed = opposed_groups(x, rows.y or [])
    return Turned.about(x, opposed, bijection) if any(opposed) else bijection


def _check_counts(settings: FairFlow) -> None:
    for name, least in {"n_restarts": 1, "n_blocks": 1, "n_epochs": 1, "batch_size": 1, "ramp_epochs": 0}.items():
        value = getattr(settings, name)
        if value != "auto" or name in ("n_restarts", "n_blocks"):
            check_count(name, value, least)


def _training_settings(settings: FairFlow, n_smallest: int) -> TrainingSettings:
    """Return the settings of training; "auto" scales the paper's settings for Crime to the smallest group."""
    batch_size = settings.batch_size
    if batch_size == "auto":
        batch_size = 128 if n_smallest < 10_000 else 256
    epochs = settings.n_epochs
    if epochs == "auto":
        steps_per_epoch = -(-n_smallest // batch_size)
        epochs = int(np.clip(60, -(-300 // steps_per_epoch), max(1, 8_000 // steps_per_epoch)))
    ramp = settings.ramp_epochs
    return TrainingSettings(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        ramp_epochs=max(1, epochs * 5 // 6) if ramp == "auto" else ramp,
        scalarisation=settings.scalarisation,
        progress=settings.progress,
    )


def _best_restarts(result: TrainingResult, n_restarts: int) -> list[int | None]:
    """For each gamma and seed, return the start of least joint loss in the last epochs; None where all diverged."""
    last = result.joint[-max(1, len(result.joint) // 3) :].mean(dim=0)  # at the lowest rate; one epoch is noisy
    loss = torch.where(result.diverged, torch.inf, last).reshape(-1, n_restarts)
    least, start = loss.min(dim=1)
    return [
        i * n_restarts + s if ok else None
        for i, (s, ok) in enumerate(zip(start.tolist(), least.isfinite(), strict=True))
    ]

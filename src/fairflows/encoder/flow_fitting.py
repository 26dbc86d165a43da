"""From rows in model space to trained flows: densities, the stack of models, restarts, and the slices that are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fairflows.bijection import Bijection, StackedMLP, check_bijection
from fairflows.bijection.couplings import new_bijection
from fairflows.bijection.turn import Turned, opposed_groups
from fairflows.density import Density, FlowDensity, GroupDensities, KnownDensity, MixtureDensity
from fairflows.density.base import FreshNoise, InModelSpace
from fairflows.encoder.base import label_values
from fairflows.encoder.fair_flow import FittedFlow
from fairflows.encoder.rows import FloatArray, Groups, TrainingRows
from fairflows.exceptions import DataError, check_count
from fairflows.steps import chosen_device
from fairflows.training.loop import GroupRows, TrainingResult, TrainingSettings, train

if TYPE_CHECKING:
    from fairflows.encoder.fair_flow import FairFlow

_RESTART = 1_000_003  # seeds of restarts are this far apart: users count seeds from 0
_FEWEST_HELD_OUT = 5  # rows of the smallest group; a smaller table needs all its rows for training


def fit_flows(
    settings: FairFlow,
    labels: Groups | None,
    rows: TrainingRows,
    gammas: Sequence[float],
    seeds: Sequence[int],
) -> list[FittedFlow | None]:
    """Train all gammas, seeds and restarts in one run; None stands for a model that diverged."""
    _check_counts(settings)
    device = chosen_device(settings.device)
    n_groups = len(settings.groups_)
    persons = rows.persons.named_or_numbered()
    x, log_det = settings.codec_.encode(rows.X, persons, rows.outside)
    held_rows = _hold_out(rows, settings.validation, settings.random_state)
    fit_part, held_part = (_by_group(x, labels, rows, kept, device) for kept in (~held_rows, held_rows))
    if settings.fresh_noise:
        s, width = settings.codec_.grid_points(rows.X, persons, rows.outside)
        noise = FreshNoise(
            *(torch.as_tensor(v, dtype=torch.float32, device=device) for v in (width, settings.codec_.smoothing_))
        )
        fit_part = replace(_by_group(s, labels, rows, ~held_rows, device), noise=noise)
    training = _training_settings(settings, fit_part.smallest)
    densities, label_densities, label_numbers = _densities(settings, fit_part)
    likelihood = None
    if held_part.smallest:
        units = [log_det[held_rows & (rows.group == a)].mean() for a in range(n_groups)]
        likelihood = np.array(densities.score(held_part.x)) + np.array(units)

    starts = [s + _RESTART * r for s in seeds for r in range(settings.n_restarts)]
    gamma, model_seeds = zip(*product(gammas, starts), strict=True)
    shape = {"n_blocks": settings.n_blocks, "hidden": settings.hidden}
    bijection = new_bijection(settings.bijection, x.shape[1], n_groups=n_groups, seeds=model_seeds, **shape).to(device)
    if isinstance(settings.bijection, Bijection):
        check_bijection(bijection)
    head = None
    if labels is not None:
        n_classes = len(label_values(settings))
        head = StackedMLP(x.shape[1], settings.head, n_classes, seeds=model_seeds, stream="head").to(device)
    used = label_densities or densities
    result = train(bijection, head, used, fit_part, gamma=gamma, seeds=model_seeds, settings=training)

    bijection, densities = bijection.double().cpu(), densities.double().cpu()
    head = None if head is None else head.double().cpu()
    label_densities = None if label_densities is None else label_densities.double().cpu()
    return [
        None
        if m is None
        else FittedFlow(
            bijection.select(m).requires_grad_(False),
            None if head is None else head.select(m).requires_grad_(False),
            densities,
            label_densities,
            label_numbers,
            likelihood,
        )
        for m in _best_restarts(result, settings.n_restarts)
    ]


def _check_counts(settings: FairFlow) -> None:
    for name, least in {"n_restarts": 1, "n_blocks": 1, "n_epochs": 1, "batch_size": 1, "ramp_epochs": 0}.items():
        value = getattr(settings, name)
        if value != "auto" or name in ("n_restarts", "n_blocks"):
            check_count(name, value, least)


def _by_group(
    x: FloatArray, labels: Groups | None, rows: TrainingRows, kept: npt.NDArray[np.bool_], device: torch.device
) -> GroupRows:
    """Return the points of model space and the labels of the rows that are kept, by group."""
    places = [np.flatnonzero(kept & (rows.group == a)) for a in range(int(rows.group.max()) + 1)]

    def parts(values: np.ndarray | None, dtype: torch.dtype) -> list[Tensor] | None:
        return None if values is None else [torch.as_tensor(values[p], dtype=dtype, device=device) for p in places]

    return GroupRows(parts(x, torch.float32) or [], parts(labels, torch.int64))


def _hold_out(rows: TrainingRows, share: float, random_state: int) -> npt.NDArray[np.bool_]:
    """Return which rows are held out; all rows of a person are, or none."""
    if not 0 <= share < 1:
        raise DataError(f"validation must be a share in [0, 1); got {share!r}.")
    held_rows = np.zeros(len(rows.X), dtype=bool)
    if share > 0 and np.bincount(rows.group).min() * share >= _FEWEST_HELD_OUT:
        held_rows[rows.persons.split(share, random_state=random_state)[1]] = True
    return held_rows


def _densities(settings: FairFlow, rows: GroupRows) -> tuple[GroupDensities, GroupDensities | None, tuple[int, ...]]:
    """Return p̂_a, and where the criterion needs them p̂(x | a, y) with the numbers of their labels."""
    given, groups = settings.density, settings.groups_
    if isinstance(given, Mapping):
        missing = [group for group in groups if group not in given]
        if missing:
            raise DataError(f"density must have an entry for every group; there is none for {missing[0]!r}.")
        given = [given[group] for group in groups]
    template = list(given) if isinstance(given, list | tuple) else _density(given)
    if isinstance(template, list):
        if len(template) != len(groups):
            raise DataError(f"density must have one entry per group ({len(groups)}); got {len(template)}.")
        if not all(isinstance(density, Density) and density.n_features == 0 for density in template):
            if settings.criterion != "demographic_parity":
                raise DataError("known densities go with criterion='demographic_parity' only.")
            # They were stated in table units.
            low, width = (torch.as_tensor(values, dtype=torch.float64) for values in settings.codec_.units_)
            known = [density if isinstance(density, Density) else KnownDensity(density) for density in template]
            in_model_space = [InModelSpace(density, low, width, settings.alpha) for density in known]
            return GroupDensities(in_model_space).to(rows.x[0].device), None, ()
    fit = partial(GroupDensities.fit, template, rows.x, group_names=groups, random_state=settings.random_state)
    densities = fit(noise=rows.noise)
    if settings.criterion == "demographic_parity":
        return densities, None, ()
    last = len(label_values(settings)) - 1
    numbers = (last,) if settings.criterion == "equal_opportunity" else tuple(range(last + 1))
    return densities, fit(rows.y, of_labels=numbers, noise=rows.noise), numbers


def _density(given: object) -> Density:
    if isinstance(given, Density):
        return given
    if given == "mixture":
        return MixtureDensity()
    if given == "realnvp" or given == "spline":
        return FlowDensity(given)
    raise DataError(f"density must be 'mixture', 'realnvp', 'spline' or a density; got {given!r}.")


def _training_settings(settings: FairFlow, n_smallest: int) -> TrainingSettings:
    """Return the settings of training; "auto" scales the paper's settings for Crime to the smallest group."""
    batch_size = settings.batch_size
    if batch_size == "auto":
        batch_size = 128 if n_smallest < 10_000 else 256
    epochs = settings.n_epochs
    if epochs == "auto":
        steps_an_epoch = -(-n_smallest // batch_size)
        epochs = int(np.clip(60, -(-300 // steps_an_epoch), max(1, 8_000 // steps_an_epoch)))
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

"""The densities of an encoder's groups: which family, how much smoothing, and how far they are from held-out rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fairflows.bijection import AutoregressiveSpline, Bijection, Zuko
from fairflows.density import Density, FlowDensity, GroupDensities, KnownDensity, MixtureDensity
from fairflows.density.base import FreshNoise, InModelSpace
from fairflows.density.gap import Gap
from fairflows.encoder.base import label_values
from fairflows.encoder.rows import FloatArray, Groups, TrainingRows
from fairflows.exceptions import DataError, warn_user
from fairflows.table.columns import shown
from fairflows.training.loop import GroupRows

if TYPE_CHECKING:
    from fairflows.encoder.fair_flow import FairFlow

_SMOOTHING = (0.0, 0.1, 0.2, 0.3)  # values of σ that "auto" tries, one after the other
_SMOOTHING_OF_FEW = 0.2  # of a table with too few rows to choose by: it makes crude densities truer
_TOLERATED = 0.05  # a gap that is not larger, with 95 % confidence, asks for no more smoothing
_LARGE = 0.1  # a gap that is larger, with 95 % confidence, is warned of
_FEWEST_JUDGED = 100  # held-out rows of the smallest group that gaps are measured on
_FEWEST_HELD_OUT = 5  # rows of the smallest group; a smaller table needs all its rows for training
_STEPS = (200, 1_500)  # of training the splines, at least and at most
_BINS = (16, 64)  # of a spline, at least and at most
_BINS_OF_LEVEL = 3  # so many bins follow the steps of a density that has one height for each level
_FEW = 2_000  # rows of the largest group, up to which "auto" tries a mixture, too; beyond, splines were always better


@dataclass(frozen=True)
class FittedDensities:
    """Densities of noisy rows, and what held-out rows say of them."""

    of_groups: GroupDensities
    of_labels: GroupDensities | None  # p̂(x | a, y), where the criterion speaks of labels
    label_numbers: tuple[int, ...]  # which labels these are of
    smoothing: float  # σ of the rows that they were fitted to
    rows: GroupRows  # these rows
    held_out_log_likelihood: FloatArray | None  # (K,), in table units
    gaps: tuple[Gap, ...]  # one for each group, measured on held-out rows; none where these are too few

    @property
    def worst(self) -> float:
        """The largest of the gaps, as it is proved to be."""
        return max((gap.lower for gap in self.gaps), default=0.0)


def fit_densities(
    settings: FairFlow, labels: Groups | None, rows: TrainingRows, device: torch.device
) -> FittedDensities:
    """Fit the densities, and set the smoothing of the encoder's codec.

    With ``smoothing="auto"`` σ grows until the densities explain held-out rows as well as their own draws, or until
    more of it no longer helps. Taken is the smallest σ that is about as good as any, because smoothing costs accuracy.
    """
    held = _hold_out(rows, settings.validation, settings.random_state)
    known = _known_densities(settings, device)
    judged = bool(held.any()) and int(np.bincount(rows.group[held]).min()) >= _FEWEST_JUDGED
    tried: list[FittedDensities] = []
    for smoothing in _smoothings(settings, known is not None, judged):
        settings.codec_.smoothing = smoothing
        tried.append(_fit_smoothed(settings, labels, rows, held, known, judged and known is None, device))
        gain = tried[-2].worst - tried[-1].worst if len(tried) > 1 else 1.0
        if tried[-1].worst <= _TOLERATED or gain < _TOLERATED / 2:
            break
    least = min(found.worst for found in tried)
    enough = _TOLERATED if least <= _TOLERATED else least + _TOLERATED
    chosen = next(found for found in tried if found.worst <= enough)
    settings.codec_.smoothing = chosen.smoothing
    _warn_of_gaps(chosen, settings)
    return chosen


def _smoothings(settings: FairFlow, known: bool, judged: bool) -> Sequence[float]:
    """Return the values of σ to try."""
    given = settings.smoothing
    if given != "auto":
        if isinstance(given, bool) or not isinstance(given, Real) or not 0 <= float(given) < np.inf:
            raise DataError(f"smoothing must be 'auto' or a number of at least 0; got {given!r}.")
        if known and given:
            raise DataError(f"smoothing must be 0 with known densities, which are of unsmoothed rows; got {given!r}.")
        return [float(given)]
    if known or not settings.codec_.scales_:
        return [0.0]
    return _SMOOTHING if judged else [_SMOOTHING_OF_FEW]


def _fit_smoothed(
    settings: FairFlow,
    labels: Groups | None,
    rows: TrainingRows,
    held: npt.NDArray[np.bool_],
    known: GroupDensities | None,
    judged: bool,
    device: torch.device,
) -> FittedDensities:
    """Fit the densities to rows with the codec's smoothing; measure their gaps if they are to be judged."""
    codec, persons = settings.codec_, rows.persons.named_or_numbered()
    x, log_det = codec.encode(rows.X, persons)
    s, width = codec.grid_points(rows.X, persons)
    is_noisy = bool(width.any() or codec.smoothing_.any())
    noise = FreshNoise(
        *(torch.as_tensor(each, dtype=torch.float32, device=device) for each in (width, codec.smoothing_))
    )
    fit_rows = by_group(s if is_noisy else x, labels, rows, ~held, device, noise if is_noisy else None)
    held_rows = by_group(x, labels, rows, held, device)
    of_groups, of_labels, numbers = (known, None, ()) if known else _estimated(settings, fit_rows, held_rows)
    likelihood: FloatArray | None = None
    gaps: tuple[Gap, ...] = ()
    if held.any():
        units = [log_det[held & (rows.group == a)].mean() for a in range(len(settings.groups_))]
        likelihood = np.array(of_groups.score(held_rows.x)) + np.array(units)
    if judged:
        low, high = codec.intervals(rows.X, persons)
        fitted_to = [~held & (rows.group == a) for a in range(len(settings.groups_))]
        gaps = tuple(
            Gap.measure(density.cpu(), low[mine], high[mine], codec.smoothing_, x[mine], x[held & (rows.group == a)])
            for a, (density, mine) in enumerate(zip(of_groups.members, fitted_to, strict=True))
        )
    return FittedDensities(of_groups.to(device), of_labels, numbers, codec.smoothing, fit_rows, likelihood, gaps)


def _warn_of_gaps(found: FittedDensities, settings: FairFlow) -> None:
    large = [(group, gap) for group, gap in zip(settings.groups_, found.gaps, strict=False) if gap.lower > _LARGE]
    if large:
        listed = ", ".join(f"{shown(group)}: {gap.distance:.2f}" for group, gap in large)
        warn_user(
            f"Distance of the densities from the truth at least (on held-out rows, between 0 and 1): {listed}. A bound "
            "by these densities may be too small by as much: try density='autoregressive' or more smoothing, leave out "
            "columns that follow from others, or release cells (FairTree, FairCells)."
        )


def by_group(
    x: FloatArray,
    labels: Groups | None,
    rows: TrainingRows,
    kept: npt.NDArray[np.bool_],
    device: torch.device,
    noise: FreshNoise | None = None,
) -> GroupRows:
    """Return the points of model space and the labels of the rows that are kept, by group."""
    places = [np.flatnonzero(kept & (rows.group == a)) for a in range(int(rows.group.max()) + 1)]

    def parts(values: np.ndarray | None, dtype: torch.dtype) -> list[Tensor] | None:
        return None if values is None else [torch.as_tensor(values[p], dtype=dtype, device=device) for p in places]

    return GroupRows(parts(x, torch.float32) or [], parts(labels, torch.int64), noise)


def _hold_out(rows: TrainingRows, share: float, random_state: int) -> npt.NDArray[np.bool_]:
    """Return which rows are held out; all rows of a person are, or none."""
    if not 0 <= share < 1:
        raise DataError(f"validation must be a share in [0, 1); got {share!r}.")
    held_rows = np.zeros(len(rows.X), dtype=bool)
    if share > 0 and np.bincount(rows.group).min() * share >= _FEWEST_HELD_OUT:
        held_rows[rows.persons.split(share, random_state=random_state)[1]] = True
    return held_rows


def _known_densities(settings: FairFlow, device: torch.device) -> GroupDensities | None:
    """Return the densities p̂_a that are known, in model space; None where they are to be estimated."""
    given = _one_for_each(settings)
    if given is None or all(_is_unfitted(density) for density in given):
        return None
    if settings.criterion != "demographic_parity":
        raise DataError("known densities go with criterion='demographic_parity' only.")
    if device.type == "mps":
        raise DataError("known densities need double precision, which device='mps' lacks: take device='cpu'.")
    # They were stated in table units.
    low, width = (torch.as_tensor(values, dtype=torch.float64) for values in settings.codec_.units_)
    known = [density if isinstance(density, Density) else KnownDensity(density) for density in given]
    return GroupDensities([InModelSpace(density, low, width, settings.alpha) for density in known]).to(device)


def _one_for_each(settings: FairFlow) -> list[Any] | None:
    """Return the given density of each group, or None where one setting is for all of them."""
    given, groups = settings.density, settings.groups_
    if isinstance(given, Mapping):
        missing = [group for group in groups if group not in given]
        if missing:
            raise DataError(f"density must have an entry for every group; there is none for {missing[0]!r}.")
        return [given[group] for group in groups]
    if not isinstance(given, list | tuple):
        return None
    if len(given) != len(groups):
        raise DataError(f"density must have one entry per group ({len(groups)}); got {len(given)}.")
    return list(given)


def _is_unfitted(given: object) -> bool:
    return given.n_features == 0 if isinstance(given, Density) else isinstance(given, Bijection) or _is_zuko(given)


def _is_zuko(given: object) -> bool:
    return type(given).__module__.startswith("zuko.")


def _estimated(
    settings: FairFlow, rows: GroupRows, held: GroupRows
) -> tuple[GroupDensities, GroupDensities | None, tuple[int, ...]]:
    """Estimate p̂_a, and where the criterion needs them p̂(x | a, y) with the numbers of their labels."""
    given, largest = settings.density, max(map(len, rows.x))
    names, seed = settings.groups_, settings.random_state
    most_levels = max(map(len, settings.codec_.levels_.values()), default=0)
    if given == "auto":
        names_tried = ["autoregressive"] * bool(held.smallest) + ["mixture"] * (largest < _FEW or not held.smallest)
        families = [_template(name, largest, most_levels) for name in names_tried]
        fitted = [
            GroupDensities.fit(f, rows.x, group_names=names, random_state=seed, noise=rows.noise) for f in families
        ]
        scores = np.array([densities.score(held.x) for densities in fitted] if held.smallest else [[0.0] * len(names)])
        chosen = scores.argmax(axis=0)
        templates: Density | list[Density] = [families[number] for number in chosen]
        of_groups = GroupDensities([fitted[number].members[a] for a, number in enumerate(chosen)])
    else:
        each = _one_for_each(settings)
        templates = (
            _template(given, largest, most_levels)
            if each is None
            else [_template(density, largest, most_levels) for density in each]
        )
        of_groups = GroupDensities.fit(templates, rows.x, group_names=names, random_state=seed, noise=rows.noise)
    if settings.criterion == "demographic_parity":
        return of_groups, None, ()
    last = len(label_values(settings)) - 1
    numbers = (last,) if settings.criterion == "equal_opportunity" else tuple(range(last + 1))
    of_labels = GroupDensities.fit(
        templates, rows.x, rows.y, of_labels=numbers, group_names=names, random_state=seed, noise=rows.noise
    )
    return of_groups, of_labels, numbers


def _template(given: object, n_rows: int, most_levels: int) -> Density:
    """Return the settings of a density for groups of at most so many rows, and columns of at most so many levels."""
    if isinstance(given, Density):
        return given
    if given == "mixture":
        return MixtureDensity()
    if given == "realnvp":
        return FlowDensity("realnvp")
    if given == "autoregressive":
        n_bins = int(np.clip(_BINS_OF_LEVEL * most_levels, *_BINS))
        return FlowDensity(AutoregressiveSpline(2, n_bins=n_bins), n_steps=int(np.clip(n_rows // 16, *_STEPS)))
    if isinstance(given, Bijection):
        return FlowDensity(given)
    if isinstance(given, nn.Module) and _is_zuko(given):
        return FlowDensity(Zuko(given, given().event_shape[0]))
    raise DataError(
        f"density must be 'auto', 'mixture', 'realnvp', 'autoregressive', a density, a bijection or an unfitted zuko "
        f"flow; got {given!r}."
    )

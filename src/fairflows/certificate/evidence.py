"""What the statements of a certificate are computed from: laws of the model, and counts of held-out persons."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fairflows.bounds.arguments import Estimator, FloatArray, Priors, checked_priors
from fairflows.bounds.counts import (
    cell_radius,
    cells_to_merge,
    exact_adversary_accuracy,
    exact_statistical_distance,
    has_few_persons,
    stratified_accuracy_upper_bound,
)
from fairflows.bounds.derived import adversary_accuracy_limits
from fairflows.bounds.model import (
    adversary_accuracy_upper_bound,
    statistical_distance,
    statistical_distance_upper_bound,
)
from fairflows.bounds.paper import sign_estimate, sign_upper_bound
from fairflows.bounds.planning import delta_of_each, rows_needed
from fairflows.certificate.counted import FoldCounts
from fairflows.encoder.base import Encoder, LatentLaw
from fairflows.encoder.fair_flow import FairFlow, FlowLaw
from fairflows.exceptions import DataError
from fairflows.release.released import Released
from fairflows.table.table import Table

if TYPE_CHECKING:
    from fairflows.density.base import Density, GroupDensities

DensityLike: TypeAlias = "str | Density | GroupDensities | Sequence[str | Density | GroupDensities]"
"""Densities to certify with: their names, their settings, or fitted ones."""

_HELD_OUT = 0.2


class ModelBounds(NamedTuple):
    """What holds of the latent if the estimated densities are the truth."""

    estimate: float  # of Δ
    upper: float  # of Δ
    accuracy_upper: float  # of the best guess of the group
    spent: float  # δ of each upper bound; 0 for exact ones


def model_bounds(
    law: LatentLaw,
    label: Hashable,
    *,
    n_draws: int,
    seed: int,
    delta: float,
    shrink: float,
    priors: Priors,
    estimator: Estimator,
) -> ModelBounds:
    """Bounds by the groups' laws, of all rows (None) or given a label: exact ones, or from draws.

    A random channel after the encoder shrinks every distance by a factor, and the advantage over a blind guess
    likewise.
    """
    laws = law.exact(label)
    if laws is not None:
        n_groups, spent = len(laws), 0.0
        estimate = upper = float(exact_statistical_distance(laws))
        accuracy = float(exact_adversary_accuracy(laws, priors))
    else:
        table = law.log_density_table(n_draws, seed, label)
        n_groups, spent = table.shape[1], delta
        if estimator == "sign":
            estimate, upper = sign_estimate(table), sign_upper_bound(table, delta)
            accuracy = adversary_accuracy_limits(np.full((n_groups, n_groups), upper), priors)[1]
        else:
            estimate, upper = statistical_distance(table), statistical_distance_upper_bound(table, delta)
            accuracy = adversary_accuracy_upper_bound(table, delta, priors)
    blind = float(checked_priors(priors, n_groups).max())
    return ModelBounds(shrink * estimate, shrink * upper, blind + shrink * max(accuracy - blind, 0.0), spent)


class CandidateLaw(NamedTuple):
    """The laws of an encoder's latent under other densities than its own, and what these are called."""

    law: FlowLaw
    name: str  # what the densities are, and how they did


def best_densities(
    encoder: Encoder | None, density: DensityLike, train: Table | None, random_state: int
) -> CandidateLaw:
    """Fit candidates to the groups' training rows, and take those of best held-out likelihood, all groups together.

    Training needs a smooth, differentiable p̂; a certificate only evaluates p̂_Za(z) = p̂_a(f_a⁻¹(z))·|det|, so that it
    may take a better density, whatever the encoder was trained with. Candidates are fitted in the model space of the
    encoder's codec, on its ``device``, to rows that it was fitted on. Fitted `GroupDensities` of model space are taken
    as they are, and cannot be among several: they may have seen the rows that these are compared on.
    """
    import torch

    from fairflows.density import density_of
    from fairflows.density.base import Density, GroupDensities
    from fairflows.resources import chosen_device

    if not isinstance(encoder, FairFlow):
        raise ValueError(f"density is for encoders of continuous tables (FairFlow); got {type(encoder).__name__}.")
    candidates = [density] if isinstance(density, str | Density | GroupDensities) else list(density)
    settings = [candidate for candidate in candidates if not isinstance(candidate, GroupDensities)]
    fitted = [candidate for candidate in candidates if isinstance(candidate, GroupDensities)]
    if fitted:
        if len(candidates) > 1:
            raise ValueError(
                "density must not name fitted densities among several: they may have been fitted to the rows that the "
                "others are compared on. Pass them alone, or the settings to fit."
            )
        return CandidateLaw(_law(encoder, fitted[0].double()), "densities that were passed fitted")
    if not candidates:
        raise ValueError("density must name at least one density; got an empty list.")
    if train is None:
        raise ValueError("density takes training rows to fit on and to choose by: pass train.")
    fit, held = _by_group(encoder, train, random_state)
    device = chosen_device(encoder.device)
    fit_rows = [torch.as_tensor(x, dtype=torch.float32, device=device) for x in fit]
    held_rows = [torch.as_tensor(x, device=device) for x in held]
    found = []
    for candidate in settings:
        densities = GroupDensities.fit(density_of(candidate), fit_rows, random_state=random_state).double()
        name = candidate if isinstance(candidate, str) else repr(candidate).removesuffix("()")
        found.append((float(np.mean(densities.score(held_rows))), name, densities.cpu()))
    likelihood, name, densities = max(found, key=lambda entry: entry[0])
    chosen = f"{name}, the best of {len(found)}" if len(found) > 1 else name
    return CandidateLaw(_law(encoder, densities), f"{chosen}: {likelihood:.3f} nats per held-out row, in model space")


def _law(encoder: FairFlow, densities: GroupDensities) -> FlowLaw:
    """The laws of z if these densities of model space are the truth; of labels they say nothing."""
    flow = replace(encoder.flow_, densities=densities, label_densities=None, label_numbers=())
    return FlowLaw(flow, None, "cpu")


def _by_group(encoder: FairFlow, train: Table, random_state: int) -> tuple[list[FloatArray], list[FloatArray]]:
    """Training rows of each group in model space, and rows held out; no person in both."""
    rows = encoder.read(train)
    x, _ = encoder.codec_.encode(rows.X, rows.persons.named_or_numbered())
    parts = []
    for places in rows.persons.split(_HELD_OUT, random_state=random_state):
        x_part, group = x[places], rows.group[places]
        parts.append([x_part[group == a] for a in range(len(encoder.groups_))])
    return parts[0], parts[1]


@dataclass(frozen=True)
class CellEvidence:
    """Persons whom a model has not seen, counted by label, group and cell, before any randomisation."""

    counts: npt.NDArray[np.int64]  # (C, K, k): with C = 1 where the table has no label
    channel: FloatArray | None  # (k, k'): the law of what is released for each cell, where that is random
    labels: list[Hashable]  # the C labels; empty without
    with_label: bool = False  # whether a cell is the pair of a cell and a label, which are released together
    # the probability that a person is encoded by this model: below 1 where several share out the persons
    share: float = 1.0
    first: int = 0  # the number of the first cell; other models have those before it

    @classmethod
    def of(
        cls, released: Released, sample: Table, groups: Sequence[Hashable], with_label: bool
    ) -> tuple[CellEvidence, ...]:
        """Count independent rows, for each of the models that share them out.

        With the label, what is released is the pair (cell, label).
        """
        if with_label and not sample.labels:
            raise DataError("released names the label, but the rows have none: give the table its label.")
        counts = released.kept_counts(sample)
        if counts is None:
            cells = released.cells(sample)
            n_cells = int(cells.max()) + 1 if released.is_foreign else int(released.n_cells or 0)
            counts = sample.count_cells(sample.group_numbers(groups), cells, (len(groups), n_cells))
        models = [(0, counts.shape[2], None)] if released.is_foreign else _models(released)
        found = [
            cls(counts[:, :, first : first + k], channel, sample.labels, share=1 / len(models), first=first)
            for first, k, channel in models
        ]
        return tuple(evidence.of_pairs() if with_label else evidence for evidence in found)

    @classmethod
    def telling_nothing(cls, released: Released, n: npt.NDArray[np.int64]) -> tuple[CellEvidence, ...]:
        """So many persons of each group in one cell, parted evenly among the models that share them out."""
        models = _models(released)
        each = n[None, :, None] // len(models)
        return tuple(cls(each, channel, [], share=1 / len(models), first=first) for first, _, channel in models)

    def of_pairs(self) -> CellEvidence:
        """The same persons counted by the pair of a cell and a label: cell c and the j-th of L labels are c·L + j."""
        L, K, k = self.counts.shape
        pairs = np.zeros((L, K, k, L), dtype=np.int64)
        for j in range(L):
            pairs[j, :, :, j] = self.counts[j]
        channel = None if self.channel is None else np.kron(self.channel, np.eye(L)).astype(np.float64)
        return CellEvidence(pairs.reshape(L, K, k * L), channel, self.labels, True, self.share, self.first * L)

    @property
    def n(self) -> npt.NDArray[np.int64]:
        """Persons of each group."""
        return self.counts.sum(axis=(0, 2))

    @property
    def eta(self) -> float:
        """What is left of a person's own cell: with probability one minus this, all cells give the same draw.

        Doeblin's coefficient of the channel. It shrinks every distance, every advantage over a blind guess, and how far
        one person can move the law of what is released.
        """
        return 1.0 if self.channel is None else float(1 - self.channel.min(axis=0).sum())

    @property
    def is_deterministic(self) -> bool:
        """Whether the released cell is the counted one, and not drawn anew."""
        return self.channel is None or bool(np.isin(self.channel, (0, 1)).all())

    @property
    def n_cells(self) -> int:
        """How many different cells, or pairs, can be released."""
        return self.counts.shape[2] if self.channel is None else self.channel.shape[1]

    def fold(self, groups: Sequence[Hashable], delta: float) -> FoldCounts:
        """What is printed of all persons, and bounds the true Δ at this δ."""
        return self._fold(self.counts.sum(axis=0), self._merged, groups, delta)

    def folds_by_label(self, groups: Sequence[Hashable], delta: float) -> dict[str, FoldCounts]:
        """What is printed of the persons with each label; the bounds hold at this δ together.

        A count that is merged given one label must not follow from that of all persons less those given the other
        labels, nor from the size of a group: where it would, the counts given the label are rounded down.
        """
        each = delta_of_each(delta, max(len(self.labels), 1))
        merged = has_few_persons(self.counts).any(axis=1) | self._merged
        folds: dict[str, FoldCounts] = {}
        if not self.labels:
            return folds
        for label, counts, cells in zip(self.labels, self.counts, merged, strict=True):
            tells = (merged.any(axis=0) & ~cells).any() or has_few_persons(counts[:, cells].sum(axis=1)).any()
            folds[str(label)] = self._fold(counts, cells, groups, each, rounded=bool(tells))
        return folds

    def _fold(
        self,
        counts: npt.NDArray[np.int64],
        merged: npt.NDArray[np.bool_],
        groups: Sequence[Hashable],
        delta: float,
        *,
        rounded: bool = False,
    ) -> FoldCounts:
        names, eta = [str(group) for group in groups], self.eta
        return FoldCounts.of(
            counts, merged, names, delta=delta, eta=eta, share=self.share, first=self.first, rounded=rounded
        )

    @property
    def _merged(self) -> npt.NDArray[np.bool_]:
        """Cells that are merged where all persons are counted."""
        # with the label, the counts of all persons and those by label are the same numbers
        return cells_to_merge(self.counts if self.with_label else self.counts.sum(axis=0))


def _models(released: Released) -> list[tuple[int, int, FloatArray | None]]:
    """For each of the models that share out the persons: its first cell, its number of cells, its channel."""
    found: list[tuple[int, int, FloatArray | None]] = []
    first = 0
    for k in released.cells_of_models:
        found.append((first, k, None))
        first += k
    return found


def check_distance(evidence: Sequence[CellEvidence], target: float, delta: float, groups: Sequence[Hashable]) -> None:
    """Refuse a distance that these group sizes cannot reach even if the cells told nothing, with what it takes."""
    if target == 0:
        raise DataError("target must be above 0 for a release of cells: no number of persons proves Δ = 0.")
    each = delta_of_each(delta, len(evidence))
    if sum(part.share * float(cell_radius(part.n, each, eta=part.eta).max()) for part in evidence) > target:
        nothing, eta = np.ones((len(groups), 1)), max(part.eta for part in evidence)
        needed = rows_needed(target, each, shares=_group_shares(evidence), eta=eta, probabilities=nothing)
        raise _too_small(evidence, f"Δ ≤ {target:.4g}", needed * len(evidence), delta, groups)


def check_accuracy(
    evidence: Sequence[CellEvidence], target: float, delta: float, groups: Sequence[Hashable], priors: Priors = None
) -> None:
    """The same for the accuracy of the best guess of the group."""
    pi, each = checked_priors(priors, len(groups)), delta_of_each(delta, len(evidence))
    room = target - pi.max()
    if room <= 0:
        rule = f"must be above that of a blind guess, {pi.max():.4g}, for a release of cells"
        raise DataError(f"max_adversary_accuracy {rule}; got {target!r}.")
    upper = 0.0
    for part in evidence:
        blind = part.n[:, None].astype(np.float64)  # one cell for all tells nothing
        upper += part.share * float(stratified_accuracy_upper_bound(blind, each, priors, eta=part.eta))
    if upper > target:
        shares, eta = _group_shares(evidence), max(part.eta for part in evidence)
        persons = -math.log(each) / 2 * float((pi**2 * eta**2 / shares).sum()) / room**2
        needed = np.ceil(shares * persons).astype(np.int64) * len(evidence)
        raise _too_small(evidence, f"that an adversary is right at most {100 * target:.4g} %", needed, delta, groups)


def _group_shares(evidence: Sequence[CellEvidence]) -> FloatArray:
    n = np.sum([part.n for part in evidence], axis=0)
    return n / n.sum() if n.all() else np.full(len(n), 1 / len(n))


def _too_small(
    evidence: Sequence[CellEvidence],
    target: str,
    needed: npt.NDArray[np.int64],
    delta: float,
    groups: Sequence[Hashable],
) -> DataError:
    have, take = (
        ", ".join(f"{count:,} of {group!r}" for group, count in zip(groups, counts, strict=True))
        for counts in (np.sum([part.n for part in evidence], axis=0), needed)
    )
    return DataError(
        f"A group is too small for the target {target} at δ = {delta:.3g}: there are {have}, and even cells that tell "
        f"nothing need {take} at these shares."
    )

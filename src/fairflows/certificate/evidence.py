"""What the statements of a certificate are computed from: laws of the model, and counts of held-out persons."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

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
from fairflows.bounds.planning import delta_of_each, rows_needed
from fairflows.bounds.published import sign_estimate, sign_upper_bound
from fairflows.certificate.counted import FoldCounts
from fairflows.encoder.base import Encoder
from fairflows.exceptions import DataError, ParameterError
from fairflows.release.released import Released
from fairflows.table.table import Table


@dataclass(frozen=True)
class ModelEvidence:
    """The groups' latent laws under the estimated densities: exactly, or as draws."""

    laws: FloatArray | None = None  # (K, m): probabilities of cells, where the latent is one of finitely many
    log_densities: FloatArray | None = None  # (N, K, K): one draw from each group per row, under each group's density

    @classmethod
    def of(cls, encoder: Encoder | None, n_draws: int, seed: int, label: Hashable = None) -> ModelEvidence | None:
        """What the encoder knows of its own latent; None for one that knows nothing."""
        law = None if encoder is None else encoder.latent_law()
        if law is None:
            return None
        laws = law.exact(label)
        if laws is not None:
            return cls(laws=laws)
        return cls(log_densities=law.log_density_table(n_draws, seed, label))

    def bounds(
        self, delta: float, shrink: float = 1.0, priors: Priors = None, estimator: Estimator = "betting"
    ) -> tuple[float, float, float, float]:
        """Estimate and upper bound of Δ, upper bound of the adversary's accuracy, and the δ of each upper bound.

        A random channel after the encoder shrinks every distance by a factor, and the advantage over a blind guess
        likewise.
        """
        blind = float(checked_priors(priors, self.n_groups).max())
        if self.laws is not None:
            estimate = upper = float(exact_statistical_distance(self.laws))
            accuracy, spent = float(exact_adversary_accuracy(self.laws, priors)), 0.0
        elif estimator == "sign":
            table = np.asarray(self.log_densities)
            estimate, upper, spent = sign_estimate(table), sign_upper_bound(table, delta), delta
            accuracy = adversary_accuracy_limits(np.full((self.n_groups, self.n_groups), upper), priors)[1]
        else:
            table = np.asarray(self.log_densities)
            estimate, upper = statistical_distance(table), statistical_distance_upper_bound(table, delta)
            accuracy, spent = adversary_accuracy_upper_bound(table, delta, priors), delta
        return shrink * estimate, shrink * upper, blind + shrink * max(accuracy - blind, 0.0), spent

    @property
    def n_groups(self) -> int:
        """K."""
        return len(self.laws) if self.laws is not None else np.asarray(self.log_densities).shape[1]


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
    channel, found, first = None if released.last is None else released.last.channel_, [], 0
    for k in released.cells_of_models:
        own = slice(first, first + k)
        found.append((first, k, None if channel is None else channel[own, own]))
        first += k
    return found


def check_distance(evidence: Sequence[CellEvidence], target: float, delta: float, groups: Sequence[Hashable]) -> None:
    """Refuse a distance that these group sizes cannot reach even if the cells told nothing, with what it takes."""
    if target == 0:
        raise ParameterError("target", "must be above 0 for a release of cells: no number of persons proves Δ = 0")
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
        raise ParameterError("max_adversary_accuracy", rule, target)
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

"""What the statements of a certificate are computed from: laws of the model, and counts of held-out persons."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.bounds.arguments import Estimator, Priors, checked_priors
from fairflows.bounds.counts import (
    cell_radius,
    cell_upper_bound,
    exact_adversary_accuracy,
    exact_statistical_distance,
    randomised_counts,
    stratified_accuracy_upper_bound,
    total_variation,
)
from fairflows.bounds.derived import adversary_accuracy_limits, per_label
from fairflows.bounds.model import (
    adversary_accuracy_upper_bound,
    statistical_distance,
    statistical_distance_upper_bound,
)
from fairflows.bounds.planning import rows_needed
from fairflows.bounds.published import sign_estimate, sign_upper_bound
from fairflows.encoder.base import Encoder
from fairflows.exceptions import DataError, ParameterError
from fairflows.release.released import Released
from fairflows.table.table import Table

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ModelEvidence:
    """The groups' latent laws under the estimated densities: exactly, or as draws.

    Attributes
    ----------
    laws : ndarray of shape (K, m), or None
        Probabilities of cells, where the latent is one of finitely many.
    log_densities : ndarray of shape (N, K, K), or None
        One draw from each group a row, under each group's density.
    """

    laws: FloatArray | None = None
    log_densities: FloatArray | None = None

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
    """Held-out persons counted by label, group and cell, before any randomisation.

    Attributes
    ----------
    counts : ndarray of shape (C, K, k)
        With C = 1 where the table has no label.
    channel : ndarray of shape (k, k'), or None
        The law of what is released for each cell, where that is random.
    labels : list
        The C labels; empty without.
    """

    counts: npt.NDArray[np.int64]
    channel: FloatArray | None
    labels: list[Hashable]

    @classmethod
    def of(cls, released: Released, sample: Table, groups: Sequence[Hashable], with_label: bool) -> CellEvidence:
        """Count independent rows; with the label, what is released is the pair (cell, label)."""
        cells, k = released.cells(sample), int(released.n_cells or 0)
        channel: FloatArray | None = None if released.last is None else released.last.channel_
        y, labels = np.zeros(len(sample), dtype=np.intp), sample.labels
        if sample.y is not None:
            y = pd.Index(labels, dtype=object).get_indexer(sample.y.astype(object))
        if with_label:
            if not labels:
                raise DataError("released names the label, but the rows have none: give the table its label.")
            cells, k = cells * len(labels) + y, k * len(labels)
            channel = None if channel is None else np.kron(channel, np.eye(len(labels))).astype(np.float64)
        counts = np.zeros((max(len(labels), 1), len(groups), k), dtype=np.int64)
        np.add.at(counts, (y, group_numbers(sample, groups), cells), 1)
        return cls(counts, channel, labels)

    @property
    def n(self) -> npt.NDArray[np.int64]:
        """Persons of each group."""
        return self.counts.sum(axis=(0, 2))

    @property
    def eta(self) -> float:
        """How far one person can move the law of what is released, sup TV(M(·|i), M(·|i'))."""
        return 1.0 if self.channel is None else float(total_variation(self.channel).max())

    @property
    def own_share(self) -> float:
        """What is left of a person's own cell: with probability one minus this, all cells give the same draw.

        Doeblin's coefficient of the channel. It shrinks every distance and every advantage over chance.
        """
        return 1.0 if self.channel is None else float(1 - self.channel.min(axis=0).sum())

    @property
    def is_deterministic(self) -> bool:
        """Whether the released cell is the counted one, and not drawn anew."""
        return self.channel is None or bool(np.isin(self.channel, (0, 1)).all())

    def released(self, label: int | None = None) -> FloatArray:
        """(Expected) counts of what is released, (K, k'), of all persons or of those with one label."""
        counts = self.counts.sum(axis=0) if label is None else self.counts[label]
        return counts.astype(np.float64) if self.channel is None else randomised_counts(counts, self.channel)[0]

    def observed(self) -> float:
        """The largest distance between two groups' frequencies of what is released."""
        n = np.maximum(self.n, 1)[:, None]
        return float(total_variation(self.released() / n).max())

    def upper(self, delta: float) -> float:
        """Upper bound on the true Δ."""
        return float(cell_upper_bound(self.released(), delta, eta=self.eta))

    def accuracy_upper(self, delta: float, priors: Priors = None) -> float:
        """Upper bound on the true accuracy of the best guess of the group."""
        return float(stratified_accuracy_upper_bound(self.released(), delta, priors, eta=self.eta))

    def odds_upper(self, delta: float) -> dict[str, float]:
        """Upper bounds on the true Δ_y within each label, all at once."""
        if not self.labels:
            return {}
        evidence = {str(label): self.released(j) for j, label in enumerate(self.labels)}
        bounds = per_label(partial(cell_upper_bound, eta=self.eta), evidence, delta)
        return {label: float(bound) for label, bound in bounds.items()}

    def check_distance(self, target: float, delta: float, groups: Sequence[Hashable]) -> None:
        """Refuse a distance that these group sizes cannot reach even if the cells told nothing, with what it takes."""
        if target == 0:
            raise ParameterError("target", "must be above 0 for a release of cells: no number of persons proves Δ = 0")
        if float(cell_radius(self.n, delta, eta=self.eta).max()) > target:
            nothing = np.ones((len(groups), 1))
            needed = rows_needed(target, delta, shares=self._shares, eta=self.eta, probabilities=nothing)
            raise self._too_small(f"Δ ≤ {target:.4g}", needed, delta, groups)

    def check_accuracy(self, target: float, delta: float, groups: Sequence[Hashable], priors: Priors = None) -> None:
        """The same for the accuracy of the best guess of the group."""
        pi = checked_priors(priors, len(groups))
        room = target - pi.max()
        if room <= 0:
            rule = f"must be above that of a blind guess, {pi.max():.4g}, for a release of cells"
            raise ParameterError("max_adversary_accuracy", rule, target)
        blind = self.n[:, None].astype(np.float64)  # one cell for all tells nothing
        if stratified_accuracy_upper_bound(blind, delta, priors, eta=self.eta) > target:
            persons = -math.log(delta) / 2 * float((pi**2 * self.eta**2 / self._shares).sum()) / room**2
            needed = np.ceil(self._shares * persons).astype(np.int64)
            raise self._too_small(f"that an adversary is right at most {100 * target:.4g} %", needed, delta, groups)

    @property
    def _shares(self) -> FloatArray:
        n = self.n
        return n / n.sum() if n.all() else np.full(len(n), 1 / len(n))

    def _too_small(
        self, target: str, needed: npt.NDArray[np.int64], delta: float, groups: Sequence[Hashable]
    ) -> DataError:
        have, take = (
            ", ".join(f"{count:,} of {group!r}" for group, count in zip(groups, counts, strict=True))
            for counts in (self.n, needed)
        )
        return DataError(
            f"A group is too small for the target {target} at δ = {delta:.3g}: there are {have}, and even cells that "
            f"tell nothing need {take} at these shares."
        )


def group_numbers(table: Table, groups: Sequence[Hashable]) -> npt.NDArray[np.intp]:
    """Each row's group, as a place among the groups of the encoder."""
    numbers = pd.Index(groups, dtype=object).get_indexer(table.a.astype(object))
    if (numbers < 0).any():
        first = table.a.iloc[int((numbers < 0).argmax())]
        raise DataError(f"The rows have a group that the model does not know: {first!r}.")
    return numbers

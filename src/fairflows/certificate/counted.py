"""The counts behind a certificate's bounds, as they are printed in it: anybody can compute the bounds again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fairflows.bounds.arguments import FloatArray, Priors
from fairflows.bounds.counts import (
    FEWEST_PERSONS,
    cell_radius,
    merged_accuracy_upper_bound,
    merged_distance,
    merged_upper_bound,
)


class Pair(NamedTuple):
    """Two groups, and the terms of the bound on their distance."""

    one: str
    other: str
    printed: float  # their distance in the cells that are printed, η·½Σ|c_a/n_a − c_b/n_b|
    merged: float  # what merged cells may add, η·½(m_a/n_a + m_b/n_b)
    radius: float  # what chance may hide


@dataclass(frozen=True)
class FoldCounts:
    """Persons counted by group and cell for one model, and what else the bound takes.

    Attributes
    ----------
    share : float
        The probability that a person is of this fold: 1 where one model encodes everybody.
    delta : float
        The δ that the bound of this fold spends.
    eta : float
        The probability that a person's own cell is released; below 1 with randomised response.
    radius : float
        What is added to the observed distance; for more than two groups, to that of the pair with the largest radius.
    n : dict
        Persons of each group.
    cells : tuple of int
        The cells that are counted one by one; two folds have no cell in common. Where the label is released too, the
        pair of cell c and the j-th of L labels has the number c·L + j.
    counts : dict
        For each group, its persons in each of these cells. Given a label they may be rounded down to tens, where a
        merged count could be told from them otherwise.
    merged : dict
        For each group, its other persons: those in the cells in which a group has 1 to 9 persons, in as many other
        cells as it takes for this number not to be that small, and those lost in rounding.
    """

    share: float
    delta: float
    eta: float
    radius: float
    n: dict[str, int]
    cells: tuple[int, ...]
    counts: dict[str, tuple[int, ...]]
    merged: dict[str, int]

    @classmethod
    def of(
        cls,
        counts: npt.NDArray[np.int64],
        merged_cells: npt.NDArray[np.bool_],
        groups: Sequence[str],
        *,
        delta: float,
        eta: float = 1.0,
        share: float = 1.0,
        first: int = 0,
        rounded: bool = False,
    ) -> FoldCounts:
        """What is printed of counts (K, k), with these cells merged, and the others rounded down to tens if asked.

        The numbers of the cells begin with `first`.
        """
        n, kept = counts.sum(axis=1), counts[:, ~merged_cells]
        if rounded:
            kept = kept // FEWEST_PERSONS * FEWEST_PERSONS
        merged = n - kept.sum(axis=1)
        return cls(
            share=share,
            delta=delta,
            eta=eta,
            radius=_largest_radius(n, delta, eta),
            n=dict(zip(groups, n.tolist(), strict=True)),
            cells=tuple((first + np.flatnonzero(~merged_cells)).tolist()),
            counts={group: tuple(row) for group, row in zip(groups, kept.tolist(), strict=True)},
            merged=dict(zip(groups, merged.tolist(), strict=True)),
        )

    @property
    def observed(self) -> float:
        """The largest distance between two groups that these counts allow, as it is released."""
        return min(1.0, self.eta * float(merged_distance(self.by_group, self.merged_by_group).max()))

    @property
    def upper(self) -> float:
        """Upper bound on the true Δ of this fold."""
        return float(merged_upper_bound(self.by_group, self.merged_by_group, self.delta, eta=self.eta))

    def accuracy_upper(self, priors: Priors = None) -> float:
        """Upper bound on the true accuracy of the best guess of the group in this fold."""
        counts, merged = self.by_group, self.merged_by_group
        return float(merged_accuracy_upper_bound(counts, merged, self.delta, priors, eta=self.eta))

    @property
    def worst_pair(self) -> Pair:
        """The two groups with the largest bound, and what their bound is the sum of."""
        counts, merged, n = self.by_group, self.merged_by_group, np.array(list(self.n.values()), dtype=np.float64)
        radius = cell_radius(n, self.delta, eta=self.eta)
        bounds = self.eta * merged_distance(counts, merged) + radius
        np.fill_diagonal(bounds, -1)
        a, b = sorted(np.unravel_index(int(bounds.argmax()), bounds.shape))
        share = merged / np.maximum(n, 1)
        names = list(self.n)
        in_merged = self.eta * float(share[a] + share[b]) / 2
        whole = self.eta * float(merged_distance(counts[[a, b]], merged[[a, b]])[0, 1])
        return Pair(names[a], names[b], whole - in_merged, in_merged, float(radius[a, b]))

    @property
    def computed_radius(self) -> float:
        """The radius that belongs to these numbers of persons."""
        return _largest_radius(np.array(list(self.n.values())), self.delta, self.eta)

    @property
    def by_group(self) -> FloatArray:
        """The counts as an array of shape (K, cells)."""
        return np.array([self.counts[group] for group in self.n], dtype=np.float64).reshape(len(self.n), -1)

    @property
    def merged_by_group(self) -> FloatArray:
        """The merged counts as an array of shape (K,)."""
        return np.array([self.merged[group] for group in self.n], dtype=np.float64)


@dataclass(frozen=True)
class CountedStatement:
    """One statement about the true distribution, and the counts that it follows from.

    Attributes
    ----------
    law : {"row", "person"}
        Whether it is about a random row of what is released or about a random row of a random person.
    label : str or None
        The label that it is given, as for equalized odds; None for all persons.
    folds : tuple of FoldCounts
        One for each model. The bound is the sum of the folds' bounds, each times its share.
    """

    law: Literal["row", "person"]
    label: str | None
    folds: tuple[FoldCounts, ...]

    @property
    def observed(self) -> float:
        """The distance that was observed, with merged cells taken for cells that tell the group."""
        return sum(fold.share * fold.observed for fold in self.folds)

    @property
    def upper(self) -> float:
        """Upper bound on the true Δ."""
        return min(1.0, sum(fold.share * fold.upper for fold in self.folds))

    def accuracy_upper(self, priors: Priors = None) -> float:
        """Upper bound on the true accuracy of the best guess of the group."""
        return min(1.0, sum(fold.share * fold.accuracy_upper(priors) for fold in self.folds))

    @property
    def delta(self) -> float:
        """The δ that it spends."""
        return sum(fold.delta for fold in self.folds)

    @property
    def n(self) -> dict[str, int]:
        """Persons of each group."""
        return {group: sum(fold.n[group] for fold in self.folds) for group in self.folds[0].n}


def _largest_radius(n: npt.NDArray[np.int64], delta: float, eta: float) -> float:
    return min(1.0, float(cell_radius(n, delta, eta=eta).max()))

"""The programme's Δ for a target: the largest with which a certificate is expected to come out within it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fairflows.bounds.counts import cell_radius
from fairflows.bounds.planning import planned_cell_bound, rows_needed
from fairflows.encoder.cell_programme import CellProgramme
from fairflows.exceptions import DataError, Parameter

FloatArray = npt.NDArray[np.float64]

_DISTANCES = (np.arange(33) / 32) ** 2  # Δ that are tried first, finest where they are small
_CAUTION = 0.95  # how far to go between two of them, of what a straight line says


@dataclass(frozen=True)
class Solution:
    """The best cells at one Δ.

    Attributes
    ----------
    channel : ndarray of shape (B, k)
        Q(j | b).
    levels : ndarray of shape (k, L)
        What is expected of the label in each cell.
    distance : float
        Δ.
    planned : float
        What the certificate's bound stays within with the planned chance.
    """

    channel: FloatArray
    levels: FloatArray
    distance: float
    planned: float


@dataclass(frozen=True)
class PlannedProgramme:
    """A programme, and what is expected of the certificate of its cells.

    Attributes
    ----------
    programme : CellProgramme
        Gives the best cells for any Δ.
    counted : list of ndarray of shape (K, B)
        Each group's law of bins as counted, for each set of laws that is to be alike.
    n_certify : list of ndarray of shape (K,)
        The persons of each group who will certify, for each set.
    counted_from : list of ndarray of shape (K,), or None
        The persons who were counted, where the programme saw these counts; None where it did not.
    delta : float
        The δ that each bound spends.
    chance : float
        How probable it should be that the certificate is within the target.
    """

    programme: CellProgramme
    counted: Sequence[FloatArray]
    n_certify: Sequence[FloatArray]
    counted_from: Sequence[FloatArray] | None
    delta: float
    chance: float
    solved: dict[float, Solution] = field(default_factory=dict, repr=False)

    def within(self, target: float) -> Solution:
        """The best cells whose certificate is expected to be within a target."""
        self._check_reach(target)
        low, high = 0, int(np.searchsorted(_DISTANCES, target))  # by bisection: what is expected grows with Δ
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.at(_DISTANCES[middle]).planned <= target else (low, middle)
        best = self.at(_DISTANCES[low])
        if best.planned > target:
            raise DataError(
                f"target {target} is out of reach for {best.channel.shape[1]} cells and "
                f"{self.n_certify[0].sum():,.0f} certifying persons: the bound to expect is {best.planned:.3f}. Take "
                "fewer cells, a higher target, or more persons (",
                Parameter("n_certify", ...),
                ").",
            )
        if high < len(_DISTANCES):
            above = self.at(_DISTANCES[high])
            share = min((target - best.planned) / max(above.planned - best.planned, 1e-12), 1)
            between = self.at(best.distance + _CAUTION * share * (above.distance - best.distance))
            best = between if between.planned <= target else best
        return best

    def at(self, distance: float) -> Solution:
        """The best cells at Δ; solved once."""
        distance = float(distance)
        if distance not in self.solved:
            channel, levels = self.programme.solve(distance)
            self.solved[distance] = Solution(channel, levels, distance, self._planned(channel))
        return self.solved[distance]

    def _planned(self, channel: FloatArray) -> float:
        known = [None] * len(self.counted) if self.counted_from is None else self.counted_from
        bounds = [
            planned_cell_bound(law @ channel, n, self.delta, chance=self.chance, counted_from=counted_from)
            for law, n, counted_from in zip(self.counted, self.n_certify, known, strict=True)
        ]
        return float(np.max(bounds))

    def _check_reach(self, target: float) -> None:
        """Refuse a target that no cells could meet: the radius alone is above it."""
        n = min(self.n_certify, key=lambda n: n.min())
        radius = float(cell_radius(n, self.delta).max())
        if radius < target:
            return
        needed = rows_needed(target, self.delta, shares=n / n.sum())
        raise DataError(
            f"target {target} cannot be certified by {n.sum():,.0f} persons, whatever the cells: the bound is at least "
            f"{radius:.3f}. It takes more than {int(needed.sum()):,} persons (",
            Parameter("n_certify", ...),
            ").",
        )

"""Transport of cells: randomised encoders under which nothing tells the groups apart, at the least cost in labels.

A coupling of a group's law p with a target law q is a law of pairs (x, z) with these marginals. Releasing z drawn
given x makes the group's released law q exactly; with the same q for every group, Δ = 0. Among all couplings, the least
probability that the predicted label of z differs from that of x is TV_class, the statistical distance of the two
laws of labels; if the released law may differ from q by Δ, it is max(0, TV_class − Δ).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import ArrayLike

from fairflows.density.cell_density import FloatArray, IntArray
from fairflows.encoder.base import Groups, Rows
from fairflows.encoder.cell_model import CellModel, Output, cells_from_output, output_names, to_output
from fairflows.table.frames import Values
from fairflows.table.persons import Secret


@dataclass(frozen=True)
class CellCoupling:
    """A sparse law of pairs (source cell, target cell): entry i has mass `masses[i]`."""

    # (E,) each: the pairs; every cell of either side has at least one
    sources: IntArray
    targets: IntArray
    masses: FloatArray  # (E,): their probabilities
    # Cells of either side.
    n_sources: int
    n_targets: int

    def target_law(self) -> FloatArray:
        """The marginal of the targets: the law of what is released."""
        return np.bincount(self.targets, weights=self.masses, minlength=self.n_targets).astype(np.float64)

    def reversed(self) -> CellCoupling:
        """The same law with sides exchanged; drawing from it samples x given z."""
        return CellCoupling(self.targets, self.sources, self.masses, self.n_targets, self.n_sources)

    def label_change(self, labels: ArrayLike) -> float:
        """The probability that source and target differ in label."""
        changed = np.asarray(labels)[self.sources] != np.asarray(labels)[self.targets]
        return float(self.masses[changed].sum())

    def draw(self, cells: IntArray, u: FloatArray) -> IntArray:
        """A target for each source cell, given uniforms u in [0, 1): the inverse of the conditional distribution.

        The same cell and u give the same target, so a keyed u makes the encoding repeatable.
        """
        entries, ends, last = self._rows
        # Row x of the coupling fills (x, x + 1]; rounding x + u moves at most n_sources · 2⁻⁵³ of the law.
        sought = cells + u
        order = np.argsort(sought)  # searches in order stay in the cache: four times faster for a million rows
        place = np.empty(len(sought), dtype=np.intp)
        place[order] = np.searchsorted(ends, sought[order], side="right")
        return self.targets[entries[np.minimum(place, last[cells])]]

    @cached_property
    def _rows(self) -> tuple[IntArray, FloatArray, IntArray]:
        """Entries sorted by source; x + F(entry | x) for each, F the conditional cumulative mass; each row's last."""
        entries = np.argsort(self.sources, kind="stable")
        rows = self.sources[entries]
        last = np.cumsum(np.bincount(rows, minlength=self.n_sources)) - 1
        total = np.cumsum(self.masses[entries])
        before = np.concatenate([[0.0], total[last[:-1]]])[rows]
        width = np.maximum(total[last[rows]] - before, np.finfo(float).tiny)
        ends = rows + (total - before) / width
        ends[last] = np.arange(1, self.n_sources + 1)
        return entries, ends, last


def class_distance(p: FloatArray, q: FloatArray, labels: ArrayLike) -> float:
    """TV_class = ½ Σ_g |P(label = g) − Q(label = g)|: the least share of p whose label changes on the way to q."""
    classes = _class_numbers(labels)
    return float(0.5 * np.abs(_class_masses(p, classes) - _class_masses(q, classes)).sum())


def transport_cells(
    p: ArrayLike, q: ArrayLike, labels: ArrayLike, confidence: ArrayLike, distance: float = 0.0
) -> CellCoupling:
    """The coupling of a group's law of cells with a target law that changes the fewest predicted labels.

    Mass stays within its label as far as the two laws of labels allow (a maximal diagonal coupling: min(P_g, Q_g)).
    Within a label the north-west corner rule pairs cells in order of confidence, the most certain first, so the cells
    that have to change their label are the least certain ones; the surest of them go to the least sure targets. With
    two labels the coupling is monotone in the score.

    Parameters
    ----------
    p, q : array of shape (m,)
        The group's law of cells, and the target.
    labels : array of shape (m,)
        The label predicted for each cell.
    confidence : array of shape (m,)
        How sure that prediction is: the probability of the predicted label, say.
    distance : float
        The Δ allowed between what is released and q. Mass up to it is left at its own label: q's share of labels that
        the group lacks goes to labels that it has more of, cell by cell in proportion. Above TV_class no label
        changes, and Δ = TV_class.

    Returns
    -------
    CellCoupling
        With at most 2m + (number of labels) entries and marginals p and, for distance 0, q.

    Examples
    --------
    >>> coupling = transport_cells([0.5, 0.5], [0.8, 0.2], [0, 1], [0.9, 0.9])
    >>> coupling.target_law()
    array([0.8, 0.2])
    >>> round(coupling.label_change([0, 1]), 12)
    0.3
    """
    if not 0.0 <= distance <= 1.0:
        raise ValueError(f"distance must be in [0, 1]; got {distance}.")
    law, target_law = _law(p, "p"), _law(q, "q")
    classes, sure = _class_numbers(labels), np.asarray(confidence)
    P, Q = _class_masses(law, classes), _class_masses(target_law, classes)
    R = _class_masses_towards(P, Q, distance)
    released = target_law * np.divide(R, Q, out=np.ones_like(Q), where=Q > 0)[classes]

    staying = np.minimum(P, R)
    block_ends = np.cumsum([*staying, np.maximum(0.0, P - R).sum()])
    block_ends[-1] = 1.0
    room_p, room_q = np.where(P > R, staying, np.inf), np.where(R > P, staying, np.inf)
    sources = _segments(law, classes, sure, room_p, block_ends)
    targets = _segments(released, classes, sure, room_q, block_ends, surest_leave_last=True)
    i, j, masses = _north_west_corner(sources.ends, sources.masses, targets.ends, targets.masses)
    return CellCoupling(sources.cells[i], targets.cells[j], masses, len(law), len(released))


@dataclass(frozen=True)
class TransportedCells:
    """The groups' couplings with the reference law."""

    model: CellModel  # the groups' laws over cells, and the classifier's scores
    reference: FloatArray  # (m,): the law that all groups are sent to
    output: Output  # how encoded cells are given back
    couplings: tuple[CellCoupling, ...] = ()  # one per group, at the present strength
    laws: FloatArray | None = None  # (K, m): the exact law of the encoded cell in each group, under the model

    @classmethod
    def of(cls, model: CellModel, reference: Hashable, groups: list[Hashable], output: Output) -> TransportedCells:
        """With the law of the largest group, of a named one, or the mean of all as the reference."""
        law = np.exp(model.log_reference(reference, groups))
        return cls(model, law / law.sum(), output)

    def at(self, strength: float) -> TransportedCells:
        """The couplings at a point of the frontier: Δ to the reference is (1 − strength)·TV_class."""
        scores = self.model.scores
        if scores is None:
            scores = np.zeros((len(self.reference), 1))  # one class, of which nobody is sure
        labels, sure = scores.argmax(axis=1), scores.max(axis=1)
        couplings = []
        for log_p in self.model.log_p:
            p = np.exp(log_p)
            p /= p.sum()
            allowed = (1 - strength) * class_distance(p, self.reference, labels)
            couplings.append(transport_cells(p, self.reference, labels, sure, allowed))
        inside = 1 - self.model.tails
        laws = np.stack([c.target_law() * mass for c, mass in zip(couplings, inside, strict=True)])
        return replace(self, couplings=tuple(couplings), laws=laws)

    def encode(self, rows: Rows, key: Secret) -> pd.DataFrame | dict[Hashable, Values]:
        """The encoded cells, as asked for."""
        return to_output(self.model.codec, self.cells(rows, key), self.output)

    def cells(self, rows: Rows, key: Secret) -> IntArray:
        """The encoded cells of rows."""
        u = rows.persons_or_fresh().uniform(key, "transport")
        cells = self.model.codec.encode(rows.columns, rows.outside)
        return self._draw(self.couplings, cells, rows.map_group, u)

    def decode(self, rows: Rows, key: Secret) -> pd.DataFrame:
        """Rows that may stand behind encoded ones, drawn from x given z and the group."""
        cells = cells_from_output(self.model.codec, rows.X, self.output)
        back = tuple(coupling.reversed() for coupling in self.couplings)
        u = rows.persons.uniform(key, "transport back")
        return self.model.codec.decode(self._draw(back, cells, rows.group, u))

    def predict(self, rows: Rows, key: Secret) -> npt.NDArray[np.intp]:
        """The class that each row's encoded cell suggests, (n_rows, 1)."""
        cells = self.cells(rows, key)
        place, known = self.model.place(cells)
        scores = self.model.scores
        scores = scores[place] if scores is not None and known.all() else self.model.score(cells)
        return scores.argmax(axis=1)[:, None]

    def latent_laws(self) -> FloatArray:
        """The laws of the encoded cell, (K, m + K); mass outside the m cells counts as if no two groups met there."""
        return np.concatenate([np.asarray(self.laws), np.diag(self.model.tails)], axis=1)

    @property
    def names(self) -> list[str]:
        """The columns of the encoded frame."""
        return output_names(self.model.codec, self.output)

    def _draw(self, couplings: tuple[CellCoupling, ...], cells: IntArray, group: Groups, u: FloatArray) -> IntArray:
        place, known = self.model.place(cells)
        sent = cells.copy()
        for a, coupling in enumerate(couplings):
            mine = known & (group == a)
            target = coupling.draw(place[mine], u[mine])
            sent[mine] = target if self.model.support is None else self.model.support[target]
        return sent


def _law(p: ArrayLike, name: str) -> FloatArray:
    law = np.asarray(p, dtype=np.float64)
    if law.ndim != 1 or not np.all(law >= 0.0) or abs(law.sum() - 1.0) > 1e-6:
        raise ValueError(f"{name} must be a vector of probabilities that sum to 1; got a sum of {law.sum():.9g}.")
    return law / law.sum()


def _class_numbers(labels: ArrayLike) -> IntArray:
    """Labels as numbers 0, ..., C − 1."""
    return np.unique(np.asarray(labels), return_inverse=True)[1]


def _class_masses(law: FloatArray, classes: IntArray) -> FloatArray:
    return np.bincount(classes, law).astype(np.float64)


def _class_masses_towards(P: FloatArray, Q: FloatArray, distance: float) -> FloatArray:
    """Class masses at the distance from Q, or as near as P is, on the way to P; classes that Q lacks stay without."""
    gain = np.where(Q > 0, np.maximum(0.0, P - Q), 0.0)
    loss = np.maximum(0.0, Q - P)
    step = min(distance, gain.sum())
    if step <= 0 or loss.sum() <= 0:  # equal up to rounding: there is nowhere to go
        return Q
    return np.maximum(0.0, Q + step * (gain / gain.sum() - loss / loss.sum()))  # rounding may go a hair below 0


class _Segments(NamedTuple):
    """One side's mass laid end to end on [0, 1]: whose each segment is, where it ends, how heavy it is."""

    cells: IntArray
    ends: FloatArray
    masses: FloatArray


def _segments(
    law: FloatArray,
    classes: IntArray,
    confidence: FloatArray,
    room: FloatArray,
    block_ends: FloatArray,
    *,
    surest_leave_last: bool = False,
) -> _Segments:
    """Block g < C holds what stays in class g, as much as it has room for, the surest cells first; the last, the rest.

    The one cell at which a class in excess is cut has a segment in its class's block and one in the last.
    """
    order = np.lexsort((-confidence, classes))
    mass, block = law[order], classes[order]
    before = _cumulative_within(mass, block, len(room)) - mass
    stays = np.clip(room[block] - before, 0.0, mass)
    leaves = mass - stays
    stay = np.flatnonzero((stays > 0.0) | (leaves == 0.0))
    leave = np.flatnonzero(leaves > 0.0)[:: -1 if surest_leave_last else 1]
    masses = np.concatenate([stays[stay], leaves[leave]])
    blocks = np.concatenate([block[stay], np.full(len(leave), len(room))])

    # Both sides must end a block at the same float: a rounding error apart, and a sliver would cross labels.
    starts = np.concatenate([[0.0], block_ends[:-1]])
    ends = np.minimum(starts[blocks] + _cumulative_within(masses, blocks, len(block_ends)), block_ends[blocks])
    last = np.flatnonzero(np.diff(blocks, append=len(block_ends)))
    ends[last] = block_ends[blocks[last]]
    return _Segments(order[np.concatenate([stay, leave])], ends, masses)


def _cumulative_within(masses: FloatArray, blocks: IntArray, n_blocks: int) -> FloatArray:
    """Cumulative sums that start again at every block; blocks are sorted."""
    total = np.concatenate([[0.0], np.cumsum(masses)])
    first = np.searchsorted(blocks, np.arange(n_blocks))
    return total[1:] - total[first][blocks]


def _north_west_corner(
    p_ends: FloatArray, p_masses: FloatArray, q_ends: FloatArray, q_masses: FloatArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Overlaps of two partitions of [0, 1]: pairs of segments, and their masses, by merging the sorted ends.

    Each end closes one overlap. One between two ends of the same side is a whole segment and takes its mass as given,
    which keeps the masses of cells too small to move a cumulative sum; other overlaps of no width are left out.
    """
    order = np.argsort(np.concatenate([p_ends, q_ends]), kind="stable")
    closes_p = order < len(p_ends)
    i = np.minimum(np.cumsum(closes_p) - closes_p, len(p_ends) - 1)
    j = np.minimum(np.cumsum(~closes_p) - ~closes_p, len(q_ends) - 1)
    width = np.diff(np.concatenate([p_ends, q_ends])[order], prepend=0.0)
    whole = np.diff(closes_p, prepend=closes_p[0]) == 0
    masses = np.where(whole, np.where(closes_p, p_masses[i], q_masses[j]), width)
    kept = whole | (width > 0.0)
    return i[kept], j[kept], masses[kept]

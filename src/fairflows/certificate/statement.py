"""Statements of a certificate: their meaning, their numbers, and how they are made and recomputed.

A new kind of statement takes an entry of `FOUND_BY`, a function that makes it, which `certify` calls, and one entry of
`fairflows.report.words.STATEMENTS`: certificates print it, and `verify` makes it again.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from fairflows.bounds.arguments import FloatArray
from fairflows.bounds.blocks import blocks_p_value, blocks_upper_bound
from fairflows.bounds.cells import (
    FEWEST_PERSONS,
    cells_to_merge,
    exact_statistical_distance,
    has_few_persons,
    merged_distance,
    merged_upper_bound,
)
from fairflows.bounds.model import statistical_distance, statistical_distance_upper_bound
from fairflows.bounds.shared_table import known_share_distance, table_distance
from fairflows.encoder.base import LatentLaw

About = Literal["table", "population", "new persons", "model", "attack", "density"]
Law = Literal["row", "person"]
FOUND_BY: dict[About, tuple[str, ...]] = {
    "table": ("counted",),
    "population": ("blocks", "held-out"),
    "new persons": ("test",),
    "model": ("model",),
    "attack": ("adversary",),
    "density": ("adversary",),
}
KNOWN_SHARES = (0.01, 0.1, 0.5)
"""Shares f of the attributes of a table that an adversary may know."""

REFUTED_BELOW = 0.001
"""A p-value below it means that new persons contradict the law of blocks."""

Counts = npt.NDArray[np.int64]

PROBABILITY = {"probability": True}
"""Metadata of a field that holds a number between 0 and 1."""

MONTE_CARLO_DELTA = 0.001
"""δ of a bound by draws from a model: of the draws, and not of the persons."""


@dataclass(frozen=True)
class FoldCounts:
    """Persons counted by group and cell for one model, and the other inputs of the bound.

    Attributes
    ----------
    share : float
        Probability that a person belongs to this fold; 1 where one model encodes everybody.
    delta : float
        δ that the bound of this fold spends.
    n : dict
        Number of persons of each group.
    cells : tuple of int
        Cells that are counted one by one; two folds have no cell in common. Where the label is released too, the pair
        of cell c and the j-th of L labels has the number c·L + j.
    counts : dict
        For each group, its persons in each of these cells. Given a label they may be rounded down to tens, so that
        merged counts cannot be computed from them.
    merged : dict
        For each group, its other persons: those in cells in which a group has 1 to 9 persons, in as many further cells
        as it takes for this number not to be that small, and those lost in rounding.
    """

    share: float = field(metadata=PROBABILITY)
    delta: float
    n: dict[str, int]
    cells: tuple[int, ...]
    counts: dict[str, tuple[int, ...]]
    merged: dict[str, int]

    @classmethod
    def of(
        cls,
        counts: Counts,
        merged_cells: npt.NDArray[np.bool_],
        groups: Sequence[str],
        *,
        delta: float,
        share: float = 1.0,
        first: int = 0,
        rounded: bool = False,
    ) -> FoldCounts:
        """Return the printed counts (K, k): some cells merged, others rounded down to tens if `rounded`.

        `first` is the number of the first cell.
        """
        n, kept = counts.sum(axis=1), counts[:, ~merged_cells]
        if rounded:
            kept = kept // FEWEST_PERSONS * FEWEST_PERSONS
        merged = n - kept.sum(axis=1)
        return cls(
            share=share,
            delta=delta,
            n=dict(zip(groups, n.tolist(), strict=True)),
            cells=tuple((first + np.flatnonzero(~merged_cells)).tolist()),
            counts={group: tuple(row) for group, row in zip(groups, kept.tolist(), strict=True)},
            merged=dict(zip(groups, merged.tolist(), strict=True)),
        )

    @property
    def observed(self) -> float:
        """Largest distance between two groups that these counts allow."""
        return min(1.0, float(merged_distance(*self.arrays()).max()))

    @property
    def upper(self) -> float:
        """Upper bound on the true Δ of this fold."""
        return float(merged_upper_bound(*self.arrays(), self.delta))

    def arrays(self) -> tuple[FloatArray, FloatArray]:
        """Return the counts, (K, cells), and the merged ones, (K,)."""
        counts = np.array([self.counts[group] for group in self.n], dtype=np.float64).reshape(len(self.n), -1)
        return counts, np.array([self.merged[group] for group in self.n], dtype=np.float64)


@dataclass(frozen=True)
class FoldBlocks:
    """Blocks of one fold's tree by group and cell, from which the bound on persons to come follows.

    Attributes
    ----------
    share : float
        Probability that a person who comes later belongs to this fold.
    delta : float
        δ that the bound of this fold spends.
    blocks : dict
        For each group, the blocks of each cell. Their sum is the number of persons that the tree was cut at, plus one.
    """

    share: float = field(metadata=PROBABILITY)
    delta: float
    blocks: dict[str, tuple[int, ...]]

    @property
    def upper(self) -> float:
        """Upper bound on the true Δ of this fold."""
        return blocks_upper_bound(list(self.blocks.values()), self.delta)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement about how far apart the groups are, and the numbers that it follows from.

    Attributes
    ----------
    about : {"table", "population", "new persons", "model", "attack", "density"}
        The subject. "table": the rows of the table that is shared. "population": the true distribution, and so persons
        who come later. "new persons": some of them, who test the law of blocks. "model": the estimated densities.
        "attack": an adversary that was run. "density": the distance between an estimated density and the truth.
    by : str
        How the number was found. "counted": rows of the table counted by cell. "blocks": the law of cells that were cut
        at order statistics. "held-out": persons counted by cell whom the model has not seen. "test": new persons
        counted by cell. "model": a sum over the model's own laws, or draws from them. "adversary": test persons whom an
        adversary classified.
    law : {"row", "person"}
        Whether it is about a random row of the release, or about a random row of a random person.
    given : str or None
        The label that it conditions on, as for equalized odds; None for all persons.
    group : str or None
        The group that a statement about a density is about.
    distance : float
        The bound on the statistical distance Δ: a lower bound for "attack" and "density", else an upper bound.
    observed : float or None
        The distance as it was counted or estimated, before anything was added for chance.
    delta : float
        δ, the probability that `distance` is wrong; 0 for an exact sum.
    counts : tuple of FoldCounts
        The counts that the bounds follow from, one entry per model. The bound is the sum of the entries' bounds, each
        times its share.
    blocks : tuple of FoldBlocks
        The blocks that a bound "by blocks" follows from, one entry per model.
    known : dict
        Of a table: the mean distance Δ(f) when the groups of a random share f of its persons are known, by f as text.
    known_half : float or None
        Of a table: the 95 % point of Δ(½).
    persons : dict
        Of a table in which persons have several rows: for each group, the number of persons of equal weight. By
        blocks: how many the trees were cut at. Of new persons: how many were counted.
    p_value : float or None
        Of new persons: the probability of a distance as large as theirs, if the law of blocks holds.
    source : str
        The adversary of an attack.
    met : bool or None
        Whether the statement is within the target. Of a table: Δ and the 95 % point of Δ(½) are, and every cell has ten
        rows of each group. None without a target, and for statements that no target is about.
    """

    about: About
    by: str
    law: Law = "row"
    given: str | None = None
    group: str | None = None
    distance: float = field(metadata=PROBABILITY)
    observed: float | None = field(default=None, metadata=PROBABILITY)
    delta: float = field(default=0.0, metadata=PROBABILITY)
    counts: tuple[FoldCounts, ...] = ()
    blocks: tuple[FoldBlocks, ...] = ()
    known: dict[str, float] = field(default_factory=dict)
    known_half: float | None = field(default=None, metadata=PROBABILITY)
    persons: dict[str, float] = field(default_factory=dict)
    p_value: float | None = field(default=None, metadata=PROBABILITY)
    source: str = ""
    met: bool | None = None

    @property
    def name(self) -> str:
        """Short name, unique within a certificate, such as "population row" or "population row given 1"."""
        parts = [self.about, self.law if self.group is None else self.group]
        return " ".join([*parts, *([] if self.given is None else ["given", self.given])])

    @property
    def is_lower(self) -> bool:
        """Whether `distance` is a lower bound."""
        return self.about in ("attack", "density")

    @property
    def n(self) -> dict[str, int]:
        """Number of persons of each group that were counted; empty where none were."""
        return {
            group: sum(fold.n[group] for fold in self.counts) for group in (self.counts[0].n if self.counts else ())
        }

    def judged(self, target: float | None) -> Statement:
        """Return the same statement with `met`, for a target distance."""
        if self.is_lower or self.given is not None or self.about == "new persons" or target is None:
            return replace(self, met=None)
        met = self.distance <= target
        if self.about == "table":
            has_few = any(any(fold.merged.values()) for fold in self.counts)
            met = met and self.known_half is not None and self.known_half <= target and not has_few
        return replace(self, met=bool(met))


def differing(stated: Statement, computed: Statement, tolerance: float) -> list[str]:
    """Return the fields in which two statements differ; numbers do so by more than a tolerance."""
    pairs = {f.name: (getattr(stated, f.name), getattr(computed, f.name)) for f in fields(Statement)}
    return [name for name, pair in pairs.items() if not _agree(*pair, tolerance)]


def _agree(one: object, other: object, tolerance: float) -> bool:
    if isinstance(one, FoldCounts | FoldBlocks) and type(one) is type(other):
        return _agree(vars(one), vars(other), tolerance)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(_agree(*pair, tolerance) for pair in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_agree(one[name], other[name], tolerance) for name in one)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=0, abs_tol=tolerance)
    return one == other


@dataclass(frozen=True, kw_only=True)
class AttackResult:
    """Result of an attack, as far as a certificate states it; see `fairflows.Audit`."""

    attack_lower: float
    best: str
    delta: float
    density_gap_lower: dict[str, float]
    released: tuple[str, ...]
    model: str
    rows: str = ""


def table_statement(fold: FoldCounts, persons: dict[str, float]) -> Statement:
    """State how far apart the groups of a table are, exactly, from the counts of its rows.

    Merged cells count as if they revealed the group. `persons` are those of equal weight, where a person has several
    rows; else empty.
    """
    counts, merged = fold.arrays()
    table = np.hstack([counts, np.diag(merged)[:, merged > 0]])
    n = np.array([persons[group] for group in fold.n]) if persons else None
    distance = table_distance(table)
    known = {f: known_share_distance(table, f, n) for f in KNOWN_SHARES}
    return Statement(
        about="table",
        by="counted",
        distance=distance,
        observed=distance,
        counts=(fold,),
        known={f"{f:g}": mean for f, (mean, _) in known.items()},
        known_half=known[0.5][1],
        persons=persons,
    )


def blocks_statement(folds: tuple[FoldBlocks, ...]) -> Statement:
    """Bound the true distance of persons who come later, by the law of the cells' masses."""
    groups = folds[0].blocks if folds else ()
    return Statement(
        about="population",
        by="blocks",
        persons={group: float(sum(sum(fold.blocks[group]) - 1 for fold in folds)) for group in groups},
        distance=min(1.0, sum(fold.share * fold.upper for fold in folds)),
        delta=sum(fold.delta for fold in folds),
        blocks=folds,
    )


def statement_on_new_persons(counts: Sequence[Counts], blocks: Sequence[Counts], groups: Sequence[str]) -> Statement:
    """Test the law of blocks on new persons: counts and blocks (K, k) of each fold. The folds' smaller p-value counts.

    The counts are not part of the statement, because a cell may have few of these persons.
    """
    n = sum(part.sum(axis=1) for part in counts)
    observed = float(np.mean([table_distance(part) if part.sum(axis=1).all() else 0.0 for part in counts]))
    return Statement(
        about="new persons",
        by="test",
        distance=observed,
        observed=observed,
        persons=dict(zip(groups, np.asarray(n, dtype=np.float64).tolist(), strict=True)),
        p_value=min(blocks_p_value(b, part) for b, part in zip(blocks, counts, strict=True)),
    )


def counted_statements(counted: dict[Law, list[Counted]], groups: Sequence[str], delta: float) -> Iterator[Statement]:
    """Bound the distance of the true distribution by counting persons that are new to the models.

    There is one statement per law, and for a random row one given each label. Where a label has 1 to 9 persons of a
    group, nothing is stated given labels: the statement would print a number that small, and beside it a label that may
    be one person's own, such as a wage.
    """
    for law, parts in counted.items():
        each = delta / len(parts)
        yield from_counts(law, None, tuple(part.fold(groups, each) for part in parts))
        has_rare_labels = any(has_few_persons(part.counts.sum(axis=2)).any() for part in parts)
        is_by_label = law == "row" and not has_rare_labels
        by_label = [part.folds_by_label(groups, each) for part in parts] if is_by_label else [{}]
        for label in by_label[0]:
            yield from_counts(law, label, tuple(folds[label] for folds in by_label))


def from_counts(law: Law, given: str | None, folds: tuple[FoldCounts, ...]) -> Statement:
    """Return the statement that follows from counts."""
    return Statement(
        about="population",
        by="held-out",
        law=law,
        given=given,
        distance=min(1.0, sum(fold.share * fold.upper for fold in folds)),
        observed=min(1.0, sum(fold.share * fold.observed for fold in folds)),
        delta=sum(fold.delta for fold in folds),
        counts=folds,
    )


def model_statements(law: LatentLaw | None, n_draws: int, seed: int) -> Iterator[Statement]:
    """Bound the distance if the estimated densities are the truth, also given each label that has densities."""
    if law is None:
        return
    for label in [None, *law.labels]:
        exact = law.exact() if label is None else None
        delta = MONTE_CARLO_DELTA / (1 if label is None else len(law.labels))
        if exact is not None:
            estimate = upper = float(exact_statistical_distance(exact))
        else:
            table = law.log_density_table(n_draws, seed, label)
            estimate, upper = statistical_distance(table), statistical_distance_upper_bound(table, delta)
        yield Statement(
            about="model",
            by="model",
            given=None if label is None else str(label),
            distance=upper,
            observed=estimate,
            delta=delta if exact is None else 0.0,
        )


def attack_statements(found: AttackResult) -> Iterator[Statement]:
    """State the lower bounds that an audit proved: on the true distance, and on the error of each density."""
    delta, lower = float(found.delta), float(found.attack_lower)
    yield Statement(about="attack", by="adversary", distance=lower, delta=delta, source=str(found.best))
    for group, gap in found.density_gap_lower.items():
        yield Statement(about="density", by="adversary", group=str(group), distance=float(gap), delta=delta)


@dataclass(frozen=True)
class Counted:
    """Persons that are new to one model, counted by label, group and cell."""

    counts: Counts  # (C, K, k), with C = 1 where the table has no label
    labels: Sequence[Hashable]  # the C labels; empty without
    with_label: bool = False  # whether a cell is the pair of a cell and a label, which are released together
    share: float = 1.0  # the probability that a person is encoded by this model
    first: int = 0  # the number of its first cell; other models have those before it

    def of_pairs(self) -> Counted:
        """Count the same persons by pair of cell and label: cell c and the j-th of L labels are c·L + j."""
        L, K, k = self.counts.shape
        pairs = np.zeros((L, K, k, L), dtype=np.int64)
        for j in range(L):
            pairs[j, :, :, j] = self.counts[j]
        return Counted(pairs.reshape(L, K, k * L), self.labels, True, self.share, self.first * L)

    def fold(self, groups: Sequence[str], delta: float) -> FoldCounts:
        """Return the printed counts of all persons, which bound the true Δ at this δ."""
        merged = self._merged
        return FoldCounts.of(self.counts.sum(axis=0), merged, groups, delta=delta, share=self.share, first=self.first)

    def folds_by_label(self, groups: Sequence[str], delta: float) -> dict[str, FoldCounts]:
        """Return the printed counts of the persons with each label; the bounds hold together at this δ.

        A count that is merged given one label must not follow from that of all persons less those given the other
        labels, nor from the size of a group: where it would, the counts given the label are rounded down.
        """
        merged = has_few_persons(self.counts).any(axis=1) | self._merged
        folds: dict[str, FoldCounts] = {}
        for label, counts, cells in zip(self.labels, self.counts, merged, strict=False):  # without labels: none
            tells = (merged.any(axis=0) & ~cells).any() or has_few_persons(counts[:, cells].sum(axis=1)).any()
            folds[str(label)] = FoldCounts.of(
                counts,
                cells,
                groups,
                delta=delta / len(self.labels),
                share=self.share,
                first=self.first,
                rounded=bool(tells),
            )
        return folds

    @property
    def _merged(self) -> npt.NDArray[np.bool_]:
        """Cells that are merged where all persons are counted."""
        # with the label, the counts of all persons and those by label are the same numbers
        return cells_to_merge(self.counts if self.with_label else self.counts.sum(axis=0))

"""The statements of a certificate, and how they follow from printed counts and blocks.

A new kind of statement takes an entry of `FOUND_BY`, a function that makes it, which `certify` calls, and one entry of
`fairflows.report.statement_words.STATEMENTS`: certificates print it, and `verify` makes it again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from fairflows.bounds.ages import halves_upper_bound, known_share_correlation, rank_correlation, rank_upper_bound
from fairflows.bounds.arguments import FloatArray
from fairflows.bounds.blocks import IntArray, Leaves, blocks_upper_bound
from fairflows.bounds.cells import FEWEST_PERSONS, merged_distance, merged_upper_bound
from fairflows.bounds.several import mixed_upper_bounds
from fairflows.bounds.shared_table import known_share_distance, table_distance

Subject = Literal[
    "table",
    "table rank",
    "inside",
    "together",
    "population",
    "population rank",
    "new persons",
    "model",
    "attack",
    "density",
]
Law = Literal["row", "person"]
FOUND_BY: dict[Subject, tuple[str, ...]] = {
    "table": ("counted", "undisclosed"),
    "table rank": ("undisclosed",),
    "inside": ("undisclosed",),
    "together": ("undisclosed",),
    "population": ("blocks", "narrow blocks", "mixed blocks", "held-out"),
    "population rank": ("narrow blocks",),
    "new persons": ("test",),
    "model": ("model",),
    "attack": ("adversary",),
    "density": ("adversary",),
}
KNOWN_SHARES = (0.01, 0.1, 0.5)
"""Shares f of the attributes of a table that an adversary may know."""

REFUTED_BELOW = 0.001
"""A p-value below it means that new persons contradict the law of blocks."""

Probability = Annotated[float, Meta(ge=0, le=1)]
"""A probability, or a distance Δ."""

Blocks = dict[str, tuple[int, ...]]
"""For each group, the blocks of each cell. Their sum is the number of persons that the tree was cut at, plus one."""


@dataclass(frozen=True)
class CutLeaves:
    """The leaves of a tree that were cut further in a later release.

    Attributes
    ----------
    of_cell : tuple of int
        The leaf that each cell was cut from.
    blocks : dict
        The blocks of the leaves. Their sum is the number of persons that the leaves were cut at, plus one; the blocks
        of the cells in a leaf add up to the persons who were still strictly inside of it, plus one.
    """

    of_cell: tuple[Annotated[int, Meta(ge=0)], ...]
    blocks: Blocks

    @classmethod
    def of(cls, leaves: Leaves, groups: Sequence[str]) -> CutLeaves:
        """Return the leaves with the names of the groups."""
        return cls(tuple(leaves.of_cell.tolist()), named_blocks(leaves.blocks, groups))

    def arrays(self) -> Leaves:
        """Return the leaves as arrays."""
        return Leaves(np.array(self.of_cell, dtype=np.int64), np.array(list(self.blocks.values()), dtype=np.int64))


@dataclass(frozen=True)
class CellCounts:
    """Rows or persons counted by group and cell.

    Attributes
    ----------
    n : dict
        Number of rows or persons of each group.
    cells : tuple of int
        Cells that are counted one by one. Where labels are released too, the pair of cell c and the j-th of L labels
        has the number c·L + j.
    counts : dict
        For each group, the number in each of these cells. Given a label they may be rounded down to tens, so that
        merged counts cannot be computed from them.
    merged : dict
        For each group, the others: those in cells in which a group has 1 to 9 persons, in as many further cells as it
        takes for this number not to be that small, and those lost in rounding.
    """

    n: dict[str, int]
    cells: tuple[int, ...]
    counts: dict[str, tuple[int, ...]]
    merged: dict[str, int]

    @property
    def observed(self) -> float:
        """Largest distance between two groups that these counts allow."""
        return min(1.0, float(merged_distance(*self.arrays()).max()))

    def upper(self, delta: float) -> float:
        """Upper bound on the true Δ, if independent persons were counted."""
        return float(merged_upper_bound(*self.arrays(), delta))

    def arrays(self) -> tuple[FloatArray, FloatArray]:
        """Return the counts, (K, cells), and the merged ones, (K,)."""
        counts = np.array(list(self.counts.values()), dtype=np.float64).reshape(len(self.n), -1)
        return counts, np.array(list(self.merged.values()), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement about how far apart the groups are, and the numbers that it follows from.

    Attributes
    ----------
    about : {"table", "table rank", "together", "population", "population rank", "new persons", "model", ...}
        The subject. "table": the rows of the table that is shared. "table rank", "population rank": of an attribute
        that is not cut, the correlation of anything that is released with its rank. "together": all rows of a person in
        this release and the earlier ones that the certificate names, of persons who are in all of them. "population":
        the true distribution, and so persons who come later. "new persons": some of them, who test the law of blocks.
        "model": the estimated densities. "attack": an adversary that was run. "density": the distance between an
        estimated density and the truth.
    by : str
        How the number was found. "counted": rows of the table counted by cell. "undisclosed": the same, whose counts
        are not printed, because beside earlier ones they would tell who came and left, or because they are of narrow
        groups. "blocks": the law of cells that were cut at order statistics. "narrow blocks": the same of the narrow
        groups of an attribute that is not cut, which count alike. "held-out": persons counted by cell whom the model
        has not seen. "test": new persons counted by cell. "model": a sum over the model's own laws, or draws from them.
        "adversary": test persons whom an adversary classified.
    law : {"row", "person"}
        Whether it is about a random row of the release, or about a random row of a random person.
    given : str or None
        The label that it conditions on, as for equalized odds; None for all persons.
    group : str or None
        The group that a statement about a density, or about the inside of a merged group, is about.
    of : tuple of str
        Of several sensitive columns, those that it is about; empty for all of them together.
    parts : dict
        By mixed blocks: for each value of these columns, the rows of each group. Those in merged groups are rounded up
        to tens.
    distance : float
        The bound on the statistical distance Δ, or on the correlation with a rank: a lower bound for "attack" and
        "density", else an upper bound.
    observed : float or None
        The distance as it was counted or estimated, before anything was added for chance.
    delta : float
        δ, the probability that `distance` is wrong; 0 for an exact sum.
    counts : CellCounts or None
        The counts that a distance "counted" or "held-out" follows from.
    blocks : dict
        The blocks that a bound "by blocks" follows from.
    leaves : tuple of CutLeaves
        The leaves that the cells were cut from by a later release, then those that these were cut from, and so on.
    known : dict
        Of a table: the mean distance Δ(f) when the groups of a random share f of its persons are known, by f as text.
    known_half : float or None
        Of a table: the 95 % point of Δ(½), or of the correlation.
    within : float or None
        Of a rank: the part of the bound that is for ranks inside of narrow groups.
    persons : dict
        Of a table in which persons have several rows: for each group, the number of persons of equal weight. Of
        releases together: the persons who are in all of them, in tens. By
        blocks: how many the tree was cut at. Of new persons: how many were counted.
    p_value : float or None
        Of new persons: the probability of a distance as large as theirs, if the law of blocks holds.
    source : str
        The adversary of an attack.
    met : bool or None
        Whether the statement is within the target. Of a table: Δ and the 95 % point of Δ(½) are, and every cell has ten
        rows of each group. None without a target, and for statements that no target is about.
    """

    about: Subject
    by: str
    law: Law = "row"
    given: str | None = None
    group: str | None = None
    of: tuple[str, ...] = ()
    parts: dict[str, dict[str, int]] = field(default_factory=dict)
    distance: Probability
    observed: Probability | None = None
    delta: Probability = 0.0
    counts: CellCounts | None = None
    blocks: Blocks = field(default_factory=dict)
    leaves: tuple[CutLeaves, ...] = ()
    known: dict[str, float] = field(default_factory=dict)
    known_half: Probability | None = None
    within: Probability | None = None
    persons: dict[str, float] = field(default_factory=dict)
    p_value: Probability | None = None
    source: str = ""
    met: bool | None = None

    @property
    def name(self) -> str:
        """Short name, unique within a certificate, such as "population row" or "population row given 1"."""
        parts = [self.about, self.law if self.group is None else self.group]
        parts += [] if self.given is None else ["given", self.given]
        return " ".join([*parts, *(["of", *self.of] if self.of else [])])

    @property
    def is_lower(self) -> bool:
        """Whether `distance` is a lower bound."""
        return self.about in ("attack", "density")

    @property
    def is_within(self) -> bool:
        """Whether the statement is within the target, or without a target below 1."""
        return self.distance < 1 if self.met is None else self.met

    @property
    def contradicts(self) -> bool:
        """Whether new persons contradict the law of blocks."""
        return self.p_value is not None and self.p_value < REFUTED_BELOW

    @property
    def n(self) -> dict[str, int]:
        """Number of each group that was counted; empty where nothing was."""
        return {} if self.counts is None else self.counts.n

    def judged(self, target: float | None) -> Statement:
        """Return the same statement with `met`, for a target distance."""
        if self.is_lower or self.given is not None or self.about in ("inside", "new persons") or target is None:
            return replace(self, met=None)
        met = self.distance <= target
        if self.about in ("table", "table rank", "together"):
            has_few = self.counts is not None and any(self.counts.merged.values())
            met = met and self.known_half is not None and self.known_half <= target and not has_few
        return replace(self, met=bool(met))


def table_statement(counts: CellCounts, persons: Mapping[str, float]) -> Statement:
    """State how far apart the groups of a table are, exactly, from the counts of its rows.

    Merged cells count as if they revealed the group. `persons` are those of equal weight, where a person has several
    rows; else empty.
    """
    of_cells, merged = counts.arrays()
    table = np.hstack([of_cells, np.diag(merged)[:, merged > 0]])
    n = np.array([persons[group] for group in counts.n]) if persons else None
    distance = table_distance(table)
    known, point = {}, 0.0
    for f in KNOWN_SHARES:  # the last of which is a half
        known[f"{f:g}"], point = known_share_distance(table, f, n)
    return Statement(
        about="table",
        by="counted",
        distance=distance,
        observed=distance,
        counts=counts,
        known=known,
        known_half=point,
        persons=dict(persons),
    )


def undisclosed_statement(about: Subject, counts: IntArray, groups: Sequence[str]) -> Statement:
    """State how far apart the groups of some persons are, one row of each, without their counts (K, k).

    Numbers are rounded to the safe side, because counts of a few persons could be computed from all their digits.
    """
    known, point = {}, 0.0
    for f in KNOWN_SHARES:  # the last of which is a half
        mean, point = known_share_distance(counts, f)
        known[f"{f:g}"] = _thousandths(mean)
    tens = counts.sum(axis=1) // 10 * 10
    return Statement(
        about=about,
        by="undisclosed",
        distance=_thousandths(table_distance(counts)),
        known=known,
        known_half=_thousandths(point),
        persons=dict(zip(groups, tens.astype(float).tolist(), strict=True)) if about == "together" else {},
    )


def _thousandths(distance: float) -> float:
    """Round a distance up to thousandths."""
    return min(1.0, math.ceil(1_000 * distance - 1e-9) / 1_000)


def named_blocks(blocks: IntArray, groups: Sequence[str]) -> Blocks:
    """Return blocks (K, k) by the name of the group."""
    return dict(zip(groups, map(tuple, blocks.tolist()), strict=True))


def blocks_statement(blocks: Blocks, delta: float, leaves: tuple[CutLeaves, ...] = ()) -> Statement:
    """Bound the true distance of persons who come later, by the law of the cells' masses."""
    first = leaves[-1].blocks if leaves else blocks
    return Statement(
        about="population",
        by="blocks",
        persons={group: float(sum(b) - 1) for group, b in first.items()},
        distance=blocks_upper_bound(list(blocks.values()), delta, [part.arrays() for part in leaves]),
        delta=delta,
        blocks=blocks,
        leaves=leaves,
    )


def table_rank_statement(counts: IntArray, within: float) -> Statement:
    """State the correlation of anything that is released with the rank of an attribute that is not cut, in a table.

    `counts` are those of the narrow groups, (G, k), which are not printed: numbers are rounded to the safe side.
    """
    known, point = {}, 0.0
    for f in KNOWN_SHARES:  # the last of which is a half
        mean, point = known_share_correlation(counts, f)
        known[f"{f:g}"] = _thousandths(mean + within)
    return Statement(
        about="table rank",
        by="undisclosed",
        distance=_thousandths(float(rank_correlation(counts)) + within),
        known=known,
        known_half=_thousandths(point + within),
        within=within,
    )


def narrow_blocks_statements(blocks: Blocks, delta: float, within: float) -> tuple[Statement, Statement]:
    """Bound the distance of the halves of narrow groups, and the correlation with a rank, of persons who come later."""
    masses = list(blocks.values())
    distances: tuple[tuple[Subject, float, float | None], ...] = (
        ("population", halves_upper_bound(masses, delta), None),
        ("population rank", rank_upper_bound(masses, delta, within), within),
    )
    halves, rank = (
        Statement(about=about, by="narrow blocks", distance=distance, within=inside, delta=delta, blocks=blocks)
        for about, distance, inside in distances
    )
    return halves, rank


def attribute_statement(columns: tuple[str, ...], values: Sequence[str], cells: IntArray) -> Statement:
    """State how far apart the values of some of several sensitive columns are in a table, by counts (V, k)."""
    return replace(undisclosed_statement("table", cells, values), of=columns)


def mixed_blocks_statements(
    blocks: Blocks, parts: Mapping[tuple[str, ...], Mapping[str, Mapping[str, int]]], delta: float
) -> list[Statement]:
    """Bound the distance between the values of some of several sensitive columns, of persons who come later.

    `parts` are the rows of each group with each value, for each choice of columns.
    """
    groups = list(blocks)
    shares = [[[n.get(group, 0) for group in groups] for n in of.values()] for of in parts.values()]
    bounds = mixed_upper_bounds(list(blocks.values()), shares, delta)
    return [
        Statement(
            about="population",
            by="mixed blocks",
            of=columns,
            parts={value: dict(n) for value, n in of.items()},
            distance=bound,
            delta=delta,
        )
        for (columns, of), bound in zip(parts.items(), bounds, strict=True)
    ]


def inside_statement(group: str, columns: tuple[str, ...], values: Sequence[str], cells: IntArray) -> Statement | None:
    """State how far apart the values of a column are inside of a merged group; None with too few persons for that."""
    enough = cells.sum(axis=1) >= FEWEST_PERSONS
    if enough.sum() < 2:
        return None
    found = undisclosed_statement("inside", cells[enough], [v for v, kept in zip(values, enough, strict=True) if kept])
    return replace(found, of=columns, group=group, known={}, known_half=None)


def held_out_statement(law: Law, given: str | None, counts: CellCounts, delta: float) -> Statement:
    """Bound the true distance from persons who are new to the model."""
    return Statement(
        about="population",
        by="held-out",
        law=law,
        given=given,
        distance=counts.upper(delta),
        observed=counts.observed,
        delta=delta,
        counts=counts,
    )


def differing(stated: Statement, computed: Statement, tolerance: float) -> list[str]:
    """Return the fields in which two statements differ; numbers do so by more than a tolerance."""
    pairs = {f.name: (getattr(stated, f.name), getattr(computed, f.name)) for f in fields(Statement)}
    return [name for name, pair in pairs.items() if not _agree(*pair, tolerance)]


def _agree(one: object, other: object, tolerance: float) -> bool:
    if isinstance(one, CellCounts) and isinstance(other, CellCounts):
        return _agree(vars(one), vars(other), tolerance)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(_agree(*pair, tolerance) for pair in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_agree(one[name], other[name], tolerance) for name in one)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=0, abs_tol=tolerance)
    return one == other

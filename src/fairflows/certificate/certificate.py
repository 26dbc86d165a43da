"""The certificate as a document: its statements, how they follow from printed counts, and how all of it is written.

A new kind of statement takes an entry of `FOUND_BY`, a function that makes it, which `certify` calls, and one entry of
`fairflows.report.words.STATEMENTS`: certificates print it, and `verify` makes it again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from fairflows.bounds.arguments import FloatArray
from fairflows.bounds.blocks import blocks_upper_bound
from fairflows.bounds.cells import merged_distance, merged_upper_bound
from fairflows.bounds.shared_table import known_share_distance, table_distance
from fairflows.certificate.digest import Contents
from fairflows.display import ATTACK, CERTIFIED, MODEL, Bound, draw_bounds, html_card
from fairflows.exceptions import DataError
from fairflows.report import words
from fairflows.table.json_text import parse_json, read_as, read_text, stated_fields
from fairflows.table.keys import Secret, fingerprint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMAT = 3
"""The version of the JSON that is written and read."""

RELEASED = (("cell",), ("latent",), ("cell", "label"), ("latent", "label"))
"""The parts that can be released together."""

Plain = str | int | float | list["Plain"] | dict[str, "Plain"] | None
"""What JSON holds."""

Status = Literal["CERTIFIED", "REFUTED", "MODEL_ONLY", "NOT_MET"]
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

PROBABILITY = {"probability": True}
"""Metadata of a field that holds a number between 0 and 1."""


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
        counts = np.array(list(self.counts.values()), dtype=np.float64).reshape(len(self.n), -1)
        return counts, np.array(list(self.merged.values()), dtype=np.float64)


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
    def is_within(self) -> bool:
        """Whether the statement is within the target, or without a target below 1."""
        return self.distance < 1 if self.met is None else self.met

    @property
    def contradicts(self) -> bool:
        """Whether new persons contradict the law of blocks."""
        return self.p_value is not None and self.p_value < REFUTED_BELOW

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


def table_statement(fold: FoldCounts, persons: dict[str, float]) -> Statement:
    """State how far apart the groups of a table are, exactly, from the counts of its rows.

    Merged cells count as if they revealed the group. `persons` are those of equal weight, where a person has several
    rows; else empty.
    """
    counts, merged = fold.arrays()
    table = np.hstack([counts, np.diag(merged)[:, merged > 0]])
    n = np.array([persons[group] for group in fold.n]) if persons else None
    distance = table_distance(table)
    known, point = {}, 0.0
    for f in KNOWN_SHARES:  # the last of which is a half
        known[f"{f:g}"], point = known_share_distance(table, f, n)
    return Statement(
        about="table",
        by="counted",
        distance=distance,
        observed=distance,
        counts=(fold,),
        known=known,
        known_half=point,
        persons=persons,
    )


def blocks_statement(folds: tuple[FoldBlocks, ...]) -> Statement:
    """Bound the true distance of persons who come later, by the law of the cells' masses."""
    persons: dict[str, float] = {}
    for fold in folds:
        for group, blocks in fold.blocks.items():
            persons[group] = persons.get(group, 0.0) + sum(blocks) - 1
    return Statement(
        about="population",
        by="blocks",
        persons=persons,
        distance=min(1.0, sum(fold.share * fold.upper for fold in folds)),
        delta=sum(fold.delta for fold in folds),
        blocks=folds,
    )


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


@dataclass(frozen=True)
class Assumption:
    """One condition under which the statements hold, or one limit of them.

    Attributes
    ----------
    key : str
        Short name, for programs.
    text : str
        The condition, for readers.
    """

    key: str
    text: str


@dataclass(frozen=True)
class Certificate:
    """A list of statements about how much a release reveals; they are never merged into one number.

    Every bound is a statistical distance Δ in [0, 1]: the largest demographic parity distance that any classifier on
    the release can have. The best adversary between two groups has the balanced accuracy (1 + Δ)/2. For more than two
    groups Δ is that of the worst pair.

    Attributes
    ----------
    status : {"CERTIFIED", "REFUTED", "MODEL_ONLY", "NOT_MET"}
        REFUTED: new persons contradict the law of blocks. Else CERTIFIED: the statement about the table is within the
        target, or where there is none, the bound on the true distribution of a random row. Else REFUTED: the attack
        reached more than the model-based bound allows. Else MODEL_ONLY: the model-based bound is within the target.
        Else NOT_MET. Without a target a bound below 1 counts as within it.
    statements : tuple of Statement
        What is stated, each with its own probability of error. All of them hold together except with probability of
        the sum.
    sensitive : str
        Name of the sensitive attribute.
    released : tuple of str
        All parts that are released together: "cell" or "latent", and "label".
    columns : tuple of str
        The columns of a released row.
    n : dict
        Number of independent rows of each group that were counted, at most one of each person.
    delta : float
        δ, the probability of error that was asked for.
    assumptions : tuple of Assumption
        Conditions under which the statements hold.
    model : str
        Keyed hash of the model.
    rows : str
        Keyed hash of the rows.
    seed : int
        Seed of the draws, and of the choice of a person's row.
    n_draws : int
        Draws from each group behind a model-based bound.
    versions : dict
        Versions of the software.
    target : float or None
        Distance that was asked for.
    n_cells : int or None
        Number of cells that can be released.
    most_rows : int
        The most rows that a person may have.
    look : int
        Number of this look at these persons. A new model or new settings make a new look; the same ones do not. 0 for
        statements that need no held-out persons, so that nothing is looked at.
    releases : int
        How many releases these rows have had, this one included, by the record of the user's; 0 before one is saved.
    released_files : dict
        SHA-256 of each file that was released with the certificate, by the file's name.
    contents : Contents or None
        The contents of the shared table: its digest is that of every file with the same rows, in any order and form.
    counted_file : str
        The one of these files whose rows are the cells of exactly the persons that were counted, so that its own
        histogram is the sum of their counts over the groups; empty where none is.
    seal : str
        Keyed hash of all of the above.
    unchecked : bool
        Whether it was read from JSON. Then it is a claim, until `check` shows that its bounds follow from its counts,
        or `verify` that all of it holds. Not part of the certificate itself.
    """

    status: Status
    statements: tuple[Statement, ...]
    sensitive: str
    released: tuple[str, ...]
    n: dict[str, int]
    delta: float
    assumptions: tuple[Assumption, ...]
    model: str
    rows: str
    seed: int
    n_draws: int
    versions: dict[str, str]
    target: float | None = field(default=None, metadata=PROBABILITY)
    n_cells: int | None = None
    columns: tuple[str, ...] = ()
    most_rows: int = 1
    look: int = 1
    releases: int = 0
    released_files: dict[str, str] = field(default_factory=dict)
    contents: Contents | None = None
    counted_file: str = ""
    seal: str = ""
    unchecked: bool = field(default=False, compare=False)

    def find(
        self, about: About, law: Law = "row", given: str | None = None, group: str | None = None
    ) -> Statement | None:
        """Return the statement with these attributes (`Statement`), or None."""
        wanted = (about, law, given, group)
        return next((s for s in self.statements if (s.about, s.law, s.given, s.group) == wanted), None)

    @property
    def headline(self) -> Statement | None:
        """The statement about the table, else about the true distribution of a random row; None without either."""
        return self.find("table") or self.find("population")

    @property
    def table_distance(self) -> float | None:
        """Δ of the rows of the table that is shared, counted exactly."""
        return _distance(self.find("table"))

    @property
    def known_half(self) -> float | None:
        """The 95 % point of the table's Δ when the groups of a random half of its persons are known."""
        table = self.find("table")
        return None if table is None else table.known_half

    @property
    def cell_upper(self) -> float | None:
        """Upper bound on Δ of the true distribution of a random row, for released cells: of persons to come."""
        return _distance(self.find("population"))

    @property
    def cell_odds_upper(self) -> dict[str, float]:
        """The same within each label, all labels at once: bounds the equalized-odds gap of every classifier."""
        return {s.given: s.distance for s in self.statements if s.about == "population" and s.given is not None}

    @property
    def model_upper(self) -> float | None:
        """Upper bound on Δ if the estimated densities are the truth."""
        return _distance(self.find("model"))

    @property
    def attack_lower(self) -> float | None:
        """Lower bound on Δ of the true distribution that an actual adversary proves."""
        return _distance(self.find("attack"))

    @property
    def density_gap_lower(self) -> dict[str, float]:
        """For each group, a lower bound on the distance between the model's own p̂_a and the truth."""
        return {s.group: s.distance for s in self.statements if s.about == "density" and s.group is not None}

    def to_dict(self) -> dict[str, Plain]:
        """Return plain values, as JSON holds them."""
        values = dict(vars(self))
        del values["unchecked"]  # which is not part of it
        return json.loads(json.dumps(values, default=vars))

    def to_json(self, indent: int | None = 2) -> str:
        """Return the certificate as JSON, which `from_json` reads back without loss."""
        return json.dumps({"format": FORMAT, **self.to_dict()}, indent=indent, ensure_ascii=False)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a certificate from its file, unchecked. Raise a DataError where the file holds none."""
        text = read_text(path)
        try:
            return cls.from_json(text)
        except ValueError as error:
            raise DataError(f"{path}: not a certificate: {error}") from None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a certificate from its JSON, unchecked.

        Raises
        ------
        ValueError
            The text is not a certificate.
        """
        values = parse_json(text)
        written = values.pop("format", None) if isinstance(values, dict) else None
        if written != FORMAT:
            raise ValueError(
                f"this version cannot read it: 'format' must be {FORMAT}; got {written!r:.40}. A certificate of "
                "another version must be made again."
            )
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: object) -> Self:
        """Read a certificate from the plain values of `to_dict`, unchecked. Raise a ValueError where it is none."""
        found: Self = read_as(values, cls)
        folds = [fold for s in found.statements for fold in (*s.counts, *s.blocks)]
        for part in (found, *found.statements, *folds):
            kind: type = type(part)
            for name, (f, _) in stated_fields(kind).items():
                value = getattr(part, name)
                if f.metadata.get("probability") and value is not None and not 0 <= value <= 1:
                    raise ValueError(f"a certificate cannot state {name} = {value!r:.40}.")
        for statement in found.statements:
            if statement.by not in FOUND_BY[statement.about]:
                said = f"{statement.about!r} by = {statement.by!r:.40}"
                raise ValueError(f"a certificate of this version cannot state {said}.")
            if (statement.about == "density") != (statement.group is not None):
                raise ValueError(
                    f"a certificate cannot state {statement.about!r} of the group {statement.group!r:.40}."
                )
        least = {"most_rows": 1, "look": 0, "releases": 0, "seed": 0, "n_draws": 1}
        for name, value in least.items():
            if getattr(found, name) < value:
                raise ValueError(f"a certificate cannot state {name} = {getattr(found, name)!r:.40}.")
        if found.released not in RELEASED:
            raise ValueError(f"a certificate cannot state released = {list(found.released)!r:.40}.")
        names = [statement.name for statement in found.statements]
        if len(names) != len(set(names)):
            raise ValueError("a certificate cannot state the same thing twice.")
        return replace(found, unchecked=True)

    def sealed(self, key: Secret) -> Self:
        """Return the same certificate with a seal that only the holder of the key can make."""
        text = json.dumps({**self.to_dict(), "seal": ""}, sort_keys=True)
        return replace(self, seal=fingerprint([text], key))

    def with_file(self, name: str, sha256: str, contents: Contents | None = None, *, counted: bool = False) -> Self:
        """Return the same certificate, without a seal, naming a file that was released under it, and its contents.

        `counted` says that the rows of the file are those of exactly the persons that were counted.
        """
        return replace(
            self,
            released_files={**self.released_files, name: sha256},
            contents=contents,
            counted_file=name if counted else self.counted_file,
            seal="",
        )

    @property
    def covers_population(self) -> bool:
        """Whether the bound on persons to come is within the target."""
        population = self.find("population")
        return population is not None and population.is_within

    @property
    def is_good(self) -> bool:
        """Whether the request was met: cells are certified, or a latent is within the target by its model."""
        return self.status == "CERTIFIED" or ("latent" in self.released and self.status == "MODEL_ONLY")

    @property
    def draws_rows(self) -> bool:
        """Whether a released row is drawn from its cell; else it is a person's own cell or latent."""
        return any(assumption.key == "drawn" for assumption in self.assumptions)

    @property
    def is_plain(self) -> bool:
        """Whether there are two groups: then the best guess is right (1 + Δ)/2 of the time."""
        return len(self.n) == 2

    def bounds(self) -> list[Bound]:
        """Return the bounds on Δ as they are drawn: by the attack, by the model, of the table, and certified."""
        certified = "certified at most" if self.table_distance is None else "persons to come at most"
        stated = [
            ("attack reached at least", self.attack_lower, ATTACK),
            ("model says at most", self.model_upper, MODEL),
            ("this table, counted", self.table_distance, CERTIFIED),
            (certified, self.cell_upper, CERTIFIED),
        ]
        return [Bound(name, value, colour) for name, value, colour in stated if value is not None]

    def plot(self, before: float | None = None, ax: Axes | None = None) -> Axes:
        """Draw the bounds on one scale: of the attack, of the model, the certified one, and the target.

        Parameters
        ----------
        before : float, default=None
            Lower bound on Δ that adversaries prove on the raw rows, such as the ``attack_lower`` of their `audit`. It
            is drawn above the others.
        ax : Axes, default=None
            Axes to draw on; a new figure when not given.
        """
        if before is not None and not 0 <= before <= 1:
            raise DataError(f"before must be a distance in [0, 1]; got {before!r}.")
        raw = [] if before is None else [Bound("raw rows: attack reached at least", before, ATTACK)]
        return draw_bounds([*raw, *self.bounds()], ax, target=self.target, percent=self.is_plain)

    def __repr__(self) -> str:
        lines = words.lines(self)
        width = max(len(name) for name, _ in lines)
        return "\n".join(
            [
                words.heading(self),
                *(f"  {name:<{width}}  {text}" for name, text in lines),
                words.ASSUMING,
                *(f"    - {assumption.text}" for assumption in self.assumptions),
            ]
        )

    def _repr_html_(self) -> str:
        texts = [assumption.text for assumption in self.assumptions]
        return html_card(words.meaning(self), words.lines(self), words.ASSUMING.strip(), texts, badge=words.badge(self))


def status_of(statements: Iterable[Statement], target: float | None = None) -> Status:
    """Return the status that statements about a random row make; see `Certificate`."""
    of_row = ("row", None, None)
    judged = {s.about: s.judged(target) for s in statements if (s.law, s.given, s.group) == of_row}
    tested, attack, model = judged.get("new persons"), judged.get("attack"), judged.get("model")
    headline = judged.get("table") or judged.get("population")
    if tested is not None and tested.contradicts:
        return "REFUTED"
    if headline is not None and headline.is_within:
        return "CERTIFIED"
    if attack is not None and model is not None and attack.distance > model.distance:
        return "REFUTED"
    return "MODEL_ONLY" if model is not None and model.is_within else "NOT_MET"


def _distance(statement: Statement | None) -> float | None:
    return None if statement is None else statement.distance

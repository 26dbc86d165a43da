"""The certificate as a document: its statements, and how all of it is written and read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

import msgspec
from msgspec import Meta

from fairflows.certificate.about import About
from fairflows.certificate.digest import Contents, Sha256
from fairflows.certificate.statements import FOUND_BY, Law, Probability, Statement, Subject
from fairflows.display import html_card
from fairflows.exceptions import DataError
from fairflows.report.pictures import draw_certificate
from fairflows.report.statement_words import ASSUMING, badge, heading, lines, meaning
from fairflows.table.json_text import parse_json, read_as, read_text
from fairflows.table.keys import Secret, fingerprint
from fairflows.table.panels import PERSON

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMAT = 4
"""The version of the JSON that is written and read."""

Plain = str | int | float | list["Plain"] | dict[str, "Plain"] | None
"""What JSON holds."""

HIDDEN = ("unchecked",)  # fields that are not part of the certificate itself

Status = Literal["CERTIFIED", "REFUTED", "MODEL_ONLY", "NOT_MET"]
Released = Literal["row", "cell", "latent", "panel"]


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
        target, and so are those about its ranks and about all releases together, if there are some; or without a table,
        the bound on the true distribution of a random row. Else REFUTED: the attack reached more than the model-based
        bound allows. Else MODEL_ONLY: the model-based bound is within the target. Else NOT_MET. Without a target a
        bound below 1 counts as within it.
    statements : tuple of Statement
        What is stated, each with its own probability of error. All of them hold together except with probability of
        the sum.
    sensitive : tuple of str
        The sensitive columns.
    released : {"row", "cell", "latent", "panel"}
        What is released of a row: a whole row that is drawn from its cell, the number of its cell, or its latent. Of a
        person: a panel, which is any number of rows that are drawn together from the person's cell.
    labels : tuple of str
        The labels that are released beside it, unchanged.
    unit : {"person", "row"}
        What is counted: persons, with all that is released of them, or rows.
    issued : str
        The day on which it was made.
    about : About
        Issuer, purpose, recipient, population and the like, as the issuer states them.
    previous : tuple of str
        SHA-256 of the certificates of earlier releases that it covers together with this one, oldest first.
    membership : dict
        Number of persons of all these releases, by where they are: in all of them, in this one alone, in this one and
        some others, or not in this one.
    notices : tuple of str
        Dated notices about the certificates that stood in its place before, or whose cells it has.
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
        Distance to stay within.
    target_by : {"user", "size"}
        Whether the target was asked for, or taken for the number of persons because lower ones allow few cells.
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
    parents : Contents or None
        Of two linked tables the contents of the one with one row of each person. Then `columns` and `contents` are
        those of the other one.
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
    sensitive: Annotated[tuple[str, ...], Meta(min_length=1)]
    released: Released
    unit: Literal["person", "row"]
    issued: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\d$")]
    n: dict[str, int]
    delta: float
    assumptions: tuple[Assumption, ...]
    model: str
    rows: str
    seed: Annotated[int, Meta(ge=0)]
    n_draws: Annotated[int, Meta(ge=1)]
    versions: dict[str, str]
    target: Probability | None = None
    target_by: Literal["user", "size"] = "user"
    n_cells: int | None = None
    columns: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    about: About = field(default_factory=About)
    previous: tuple[Sha256, ...] = ()
    membership: dict[str, Annotated[int, Meta(ge=0)]] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    most_rows: Annotated[int, Meta(ge=1)] = 1
    look: Annotated[int, Meta(ge=0)] = 1
    releases: Annotated[int, Meta(ge=0)] = 0
    released_files: dict[str, Sha256] = field(default_factory=dict)
    contents: Contents | None = None
    parents: Contents | None = None
    counted_file: str = ""
    seal: str = ""
    unchecked: bool = field(default=False, compare=False)

    def find(
        self,
        about: Subject,
        law: Law = "row",
        given: str | None = None,
        group: str | None = None,
        of: Sequence[str] = (),
    ) -> Statement | None:
        """Return the statement with these attributes (`Statement`), or None."""
        wanted = (about, law, given, group, tuple(of))
        return next((s for s in self.statements if (s.about, s.law, s.given, s.group, s.of) == wanted), None)

    def of_parents(self) -> Certificate:
        """Return the certificate of two linked tables as that of the one with one row of each person alone."""
        assert self.parents is not None
        return replace(self, contents=self.parents, columns=tuple(self.parents.kinds), parents=None)

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
    def rank_upper(self) -> float | None:
        """Bound on the correlation of anything that is released with the rank of an attribute that is not cut."""
        return _distance(self.find("population rank"))

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

    @property
    def model_with_gaps(self) -> float | None:
        """The model-based bound plus the measured gaps of the two worst densities; None where none was measured.

        By Theorem 5.5 it would bound Δ if these gaps were the whole distances from the truth. They are lower bounds,
        so it promises nothing.
        """
        gaps = sorted(self.density_gap_lower.values())[-2:]
        return None if self.model_upper is None or not gaps else min(1.0, self.model_upper + sum(gaps))

    def to_dict(self) -> dict[str, Plain]:
        """Return plain values, as JSON holds them."""
        values: dict[str, Plain] = msgspec.to_builtins(self)
        return {name: value for name, value in values.items() if name not in HIDDEN}

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
        found = read_as(values, cls, hidden=HIDDEN)
        try:
            date.fromisoformat(found.issued)
        except ValueError as error:
            raise ValueError(f"a certificate cannot state issued = {found.issued!r}: {error}.") from None
        for statement in found.statements:
            if statement.by not in FOUND_BY[statement.about]:
                said = f"{statement.about!r} by = {statement.by!r:.40}"
                raise ValueError(f"a certificate of this version cannot state {said}.")
            if (statement.about in ("density", "inside")) != (statement.group is not None):
                raise ValueError(
                    f"a certificate cannot state {statement.about!r} of the group {statement.group!r:.40}."
                )
        if found.parents is not None and found.contents is None:
            raise ValueError("a certificate of two linked tables states the contents of both.")
        if found.released == "panel" and PERSON not in found.columns:
            raise ValueError(f"a certificate of all rows of persons has the column {PERSON!r}, which numbers them.")
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
        population, rank = self.find("population"), self.find("population rank")
        return population is not None and population.is_within and (rank is None or rank.is_within)

    @property
    def meets_target(self) -> bool:
        """Whether the request was met: cells are certified, or a latent is within the target by its model."""
        return self.status == "CERTIFIED" or (self.released == "latent" and self.status == "MODEL_ONLY")

    @property
    def has_two_groups(self) -> bool:
        """Whether there are two groups: then the best guess is right (1 + Δ)/2 of the time."""
        return len(self.n) == 2

    @property
    def attribute(self) -> str:
        """The sensitive columns as a text; of one that is not cut, with the two groups above and below its median."""
        column = " and ".join(self.sensitive)
        return column if self.find("table rank") is None else f"{column} ({' or '.join(self.n)})"

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
        return draw_certificate(self, before, ax)

    def __repr__(self) -> str:
        said = lines(self)
        width = max(len(name) for name, _ in said)
        return "\n".join(
            [
                heading(self),
                *(f"  {name:<{width}}  {text}" for name, text in said),
                ASSUMING,
                *(f"    - {assumption.text}" for assumption in self.assumptions),
            ]
        )

    def _repr_html_(self) -> str:
        texts = [assumption.text for assumption in self.assumptions]
        return html_card(
            meaning(self),
            lines(self),
            ASSUMING.strip(),
            texts,
            badge=badge(self),
        )


def status_of(statements: Iterable[Statement], target: float | None = None) -> Status:
    """Return the status that statements about a random row make; see `Certificate`."""
    of_row = ("row", None, None, ())
    judged = {s.about: s.judged(target) for s in statements if (s.law, s.given, s.group, s.of) == of_row}
    tested, attack, model = judged.get("new persons"), judged.get("attack"), judged.get("model")
    headline = judged.get("table") or judged.get("population")
    others_are_within = all(judged[about].is_within for about in ("together", "table rank") if about in judged)
    if tested is not None and tested.contradicts:
        return "REFUTED"
    if headline is not None and headline.is_within and others_are_within:
        return "CERTIFIED"
    if attack is not None and model is not None and attack.distance > model.distance:
        return "REFUTED"
    return "MODEL_ONLY" if model is not None and model.is_within else "NOT_MET"


def _distance(statement: Statement | None) -> float | None:
    return None if statement is None else statement.distance

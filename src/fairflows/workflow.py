"""The whole job: fit a release to a table, attack it, certify it, measure what is left, and write the result."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from dataclasses import replace as replace_
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import pandas as pd

from fairflows.attack.auditing import Audit, audit
from fairflows.bounds.arguments import affordable_draws
from fairflows.bounds.planning import TARGETS
from fairflows.certificate.certificate import Certificate, status_of, table_statement
from fairflows.certificate.certify import Counted, certify
from fairflows.certificate.digest import contents_of, kinds_of
from fairflows.certificate.file_checks import difference_from_counts
from fairflows.certificate.file_list import file_sha256
from fairflows.certificate.releases import ReleasedRows, check_record, new_release, record_key
from fairflows.display import html_card, say
from fairflows.encoder.base import Encoder, in_single_precision, read_again
from fairflows.encoder.fair_cells import FairCells
from fairflows.encoder.fair_flow import FairFlow
from fairflows.encoder.fair_matching import FairMatching
from fairflows.encoder.fair_tree import FairTree
from fairflows.exceptions import DataError, DataWarning, check_choice
from fairflows.exports import EXPORTED, export_files
from fairflows.release.release import Release
from fairflows.report import words
from fairflows.report.page import Report, report_contents
from fairflows.storage import FILES, save
from fairflows.stream.batches import Found, table_schema, to_arrow
from fairflows.stream.files import encode_rows, write_table
from fairflows.table.folders import check_folder, locked, new_folder, refuse_other_files, side_folder
from fairflows.table.frames import to_pandas
from fairflows.table.grouping import Grouping, MissingGroup, MissingLabel
from fairflows.table.json_text import read_as, read_document, stated_fields
from fairflows.table.persons import check_most_rows
from fairflows.table.prospects import check_groups
from fairflows.table.reading import TextFormat, read_frame
from fairflows.table.table import Table
from fairflows.tradeoff import check_target, frontier, with_cells
from fairflows.worth import Apart, Usefulness, fitted_apart
from fairflows.worth import usefulness as measure

Method = Literal["tree", "cells", "cells-without-attribute", "flow", "matching"]
Output = Literal["row", "cell", "latent"]

CELLS_FOR_A_LABEL = 8
STRENGTHS = (0.0, 0.1, 0.5, 0.9, 0.99)  # γ of the paper's encoders that are tried
N_JOBS = 2  # adversaries, and forests that measure usefulness, at once
_STATE_MOST_ROWS = "State the most rows that a person may have (most_rows=...)."
_FEW_DRAWS = 100_000  # behind a bound that decides nothing, where cells are released

Kind = Literal["csv", "parquet"]
RUN, MODEL, FORMAT = "run.json", "model", 1
SHARED = {"csv": "shared.csv", "parquet": "shared.parquet"}
_REPORTS = ("report.html", "report.json", "report-public.html")
_FILES = {RUN, MODEL, "certificate.json", "certificate.files.json", *_REPORTS, *EXPORTED}

CERTIFYING, VALIDATION = 0.3, 0.25
"""Shares of the persons that certify, and of the others that a model is chosen by."""


def share(
    table: Table,
    *,
    target: float | None = None,
    delta: float = 0.01,
    method: Method = "tree",
    output: Output = "row",
    spend: float = 0.0,
    most_rows: int | None = None,
    rules: Sequence[str] = (),
    derive: bool = True,
    score: bool | None = None,
    random_state: int = 0,
    quick: bool = False,
) -> Shared:
    """Turn a table into one that can be shared: fit, attack, certify and measure.

    ``with fairflows.display.stages():`` around it prints what it does, and shows progress bars.

    Each person is assigned to a *cell*: a set of similar people with nearly the same share of every group. The shared
    row is drawn from a model of that cell. The certificate states how much the rows of this table reveal about the
    group, counted exactly, and a bound for persons to come.

    Parameters
    ----------
    table : Table
        All rows.
    target : float, default=None
        Largest distance Δ between two groups, so that a guess between them is right at most (1 + Δ)/2 of the time. By
        default 0.1, or for a "tree" of a small table the first of 0.15, 0.2 and 0.3 that allows eight cells.
    delta : float, default=0.01
        Probability δ that the bound on persons to come is wrong.
    method : {"tree", "cells", "cells-without-attribute", "flow", "matching"}, default="tree"
        "tree" is `FairTree`: cells for many purposes, for any number of labels. "cells" is `FairCells`: the best cells
        for one label; "cells-without-attribute" encodes persons who come later without the sensitive attribute. "flow"
        and "matching" are the paper's encoders, `FairFlow` and `FairMatching`: several are
        trained on one part of the persons, and the best within the target is chosen on another part. Its certificate
        covers a third part, and persons who come later.
    output : {"row", "cell", "latent"}, default="row"
        Share a whole row in the table's own columns, drawn from the cell; the cell's number; or the latent of "flow" or
        "matching", which keeps everything, invertibly. Only its own densities vouch for a latent.
    spend : float, default=0.0
        Part of the target that a "tree" may spend on a label with two classes: the shares of the groups that its first
        split sends to one side may differ by so much.
    most_rows : int, default=None
        Most rows that a person may have; by default the most of the persons that a model was fitted to.
    rules : sequence of str, default=()
        Expressions over columns, such as ``"start <= end"``, that are true in every row that is shared.
    derive : bool, default=True
        Whether columns that follow from others are recognised, and computed instead of drawn.
    score : bool, default=None
        Whether whole rows get one more column with the expected label of their cell, which decisions are made by; by
        default where there is a label of at most ten classes, or of numbers, and every person has one row.
    random_state : int, default=0
        Seed of the split and of training, but never of keys, coins and drawn rows.
    quick : bool, default=False
        Leave out adversaries and measurements of the table's worth, but no statement. Train fewer models of "flow" and
        "matching".

    Returns
    -------
    Shared
        The table to share, its certificate, and what is known about both.

    Examples
    --------
    >>> from fairflows import load_adult
    >>> shared = share(load_adult(), target=0.4, output="cell", quick=True)
    >>> shared.certificate.status, list(shared.table)
    ('CERTIFIED', ['cell'])
    """
    job = _Job(table, target, delta, method, output, spend, most_rows, rules, derive, score, random_state, quick)
    check_groups(table)
    check_record()
    fitted = job.fit()
    settings: dict[str, Any] = {"delta": delta, "most_rows": most_rows, "random_state": random_state}
    measured, before, found, worth = fitted.measured, None, None, None
    if measured is not None:
        say("attacking the raw rows")
        raw = measured.learn.X, measured.judge.X
        before = audit(raw, measured.learn, measured.judge, quick=True, n_jobs=N_JOBS, **settings)
        say("attacking the shared rows")
        of = measured if measured.model is fitted.model else measured.unseen()
        found = audit(of.model, of.learn, of.judge, encoded=of.rows, n_jobs=N_JOBS, **settings)
        if output == "row" and measured.rows is not None:
            say("attacking the persons behind the shared rows")
            found = replace_(found, risks=measured.risks(delta, random_state))
    say("certifying")
    n_draws = None if output == "latent" and not quick else affordable_draws(_FEW_DRAWS, len(table.groups))
    about = found if measured is not None and measured.model is fitted.model else None
    certificate = certify(
        fitted.model, fitted.certifying, target=fitted.target, audit=about, n_draws=n_draws, **settings
    )
    if before is not None and found is not None:
        refuse_a_release_that_tells_more(before, found, certificate)
    if measured is not None and output != "latent":
        say("measuring what the shared table is worth")
        distance = certificate.cell_upper or certificate.table_distance or fitted.target
        worth = measure(
            measured.model,
            measured.learn,
            measured.judge,
            encoded=measured.rows,
            distance=distance,
            n_jobs=N_JOBS,
            random_state=random_state,
        )
    say("writing the report")
    contents = report_contents(
        fitted.model,
        table,
        certificate,
        audit=found,
        before=before,
        usefulness=worth,
        rows=fitted.rows,
        split=fitted.split,
    )
    order = np.random.default_rng().permutation(len(table))  # from the system's entropy: no seed repeats it
    rows = fitted.rows.iloc[order].reset_index(drop=True)
    run = Run.of(table, random_state)
    seen = ReleasedRows.of(table.X, table.persons, record_key())
    return Shared(rows, certificate, worth, found, before, fitted.model, Report(contents), run, seen)


@dataclass(frozen=True)
class _Fitted:
    """A fitted model, the rows to share, and the rows to measure on."""

    model: Encoder
    rows: pd.DataFrame  # the release of all rows of the table, in its order
    certifying: Table
    target: float
    measured: Apart | None  # a second release for attacks and measurements, if all persons are in the first
    split: str


@dataclass(frozen=True)
class _Job:
    """The settings of `share`, and how a model is fitted by them."""

    table: Table
    target: float | None
    delta: float
    method: Method
    output: Output
    spend: float
    most_rows: int | None
    rules: Sequence[str]
    derive: bool
    score: bool | None
    random_state: int
    quick: bool

    def __post_init__(self) -> None:
        check_choice("method", self.method, get_args(Method))
        check_choice("output", self.output, get_args(Output))
        if not 0 < self.delta < 1:
            raise DataError(f"delta must be in (0, 1); got {self.delta!r}.")
        if self.output == "latent" and self.method not in ("flow", "matching"):
            raise DataError(f"method must be 'flow' or 'matching' for output='latent'; got {self.method!r}.")
        if self.spend and self.method != "tree":
            raise DataError(f"method must be 'tree' to spend a part of the target; got {self.method!r}.")
        if self.method.startswith("cells") and self.table.y is None:
            raise DataError("Cells are made for a label, and the table has none: name it (label=...), or take 'tree'.")

    def fit(self) -> _Fitted:
        """Fit the model that the method asks for."""
        if self.method == "tree":
            return self._fit_trees()
        return self._fit_cells() if self.method.startswith("cells") else self._choose_from_frontier()

    def _fit_trees(self) -> _Fitted:
        """Fit two trees to everybody, and for the measurements a second pair to four fifths."""
        table = self.table
        say("fitting two trees, with every person in one of them")
        model = self._release(FairTree(**self._common()), n_cells="auto", spend=self.spend, target=self.target)
        rows = to_pandas(model.fit_transform(table))
        target = self.target or (TARGETS[0] if model.plan_ is None else model.plan_.target)
        split = f"{len(table):,} rows, all of them released."
        if self.quick:
            return _Fitted(model, rows, table, target, None, split)
        say("fitting a second release, which is used for measurements only")
        try:
            apart = fitted_apart(model, table, self.random_state)
            unseen = apart.unseen()
            for part in (unseen.learn, unseen.judge):  # adversaries learn, are tuned and are compared: three persons
                if np.bincount(part.group_numbers(table.groups), minlength=len(table.groups)).min() < 3:
                    raise DataError("It needs more persons of the smallest group.")
        except DataError as error:
            split = f"{split} Nothing was attacked or measured, which takes a second release. {error}"
            return _Fitted(model, rows, table, target, None, split)
        split = (
            f"{split} Attacks and measurements use a second release, which is not shared: it was fitted to "
            f"{len(apart.learn):,} of these rows, and judged on {len(apart.judge):,} others."
        )
        return _Fitted(model, rows, table, target, apart, split)

    def _fit_cells(self) -> _Fitted:
        """Fit two models for the label, each for the persons that it was not fitted to. All persons certify."""
        table, target = self.table, self.target or TARGETS[0]
        check_target(target, table, self.delta)
        say("fitting two models, each to half of the persons")
        attribute: Literal["training", "encoding"] = "encoding" if self.method == "cells" else "training"
        planned: dict[str, Any] = {"n_certify": max(2, table.persons.n // 2), "target": target, "delta": self.delta}
        encoder = FairCells(CELLS_FOR_A_LABEL, attribute=attribute, **planned, **self._common())
        model = self._release(encoder, target=target)
        rows = to_pandas(model.fit_transform(table))
        if model.most_rows_ is not None:
            check_most_rows(table.persons.rows_each(), model.most_rows_, _STATE_MOST_ROWS)
        parts = table.persons.split(CERTIFYING, random_state=self.random_state)
        learn, judge = (table.take(part) for part in parts)
        split = (
            f"{len(table):,} rows. Two models are fitted, each to half of the persons, and each person is encoded by "
            "the model that was not fitted to them. All persons certify."
        )
        apart = None if self.quick else Apart(model, learn, judge, (rows.iloc[parts[0]], rows.iloc[parts[1]]))
        return _Fitted(model, rows, table, target, apart, split)

    def _release(self, encoder: Encoder, **settings: Any) -> Release:
        """Return a release around an encoder, unfitted."""
        return Release(
            encoder,
            output=cast(Literal["row", "cell"], self.output),
            delta=self.delta,
            most_rows=self.most_rows,
            rules=self.rules,
            derive=self.derive,
            with_score=self.score,
            random_state=self.random_state,
            **settings,
        )

    def _choose_from_frontier(self) -> _Fitted:
        """Train the paper's encoders of several strengths, and choose by the target on validation persons."""
        table = self.table
        train, validation, certifying = table.split(CERTIFYING, VALIDATION, self.random_state)
        most_rows = self.most_rows or int(train.persons.rows_each().max())
        check_most_rows(table.persons.rows_each(), most_rows, _STATE_MOST_ROWS)
        target = self.target or TARGETS[0]
        check_target(target, None if self.output == "latent" else certifying, self.delta)
        say("training encoders of several strengths")
        settings = {**self._common(), "kinds": train.kinds}
        encoder = FairFlow(**settings) if self.method == "flow" else FairMatching(**settings)
        strengths = STRENGTHS[1::2] if self.quick else STRENGTHS
        front = frontier(encoder, train, strengths=strengths, seeds=[self.random_state], validation=validation)
        say("choosing on validation persons")
        if self.output != "latent":
            front = with_cells(front, train, validation, certifying, delta=self.delta, most_rows=most_rows)
        place = front.best_for(target)
        model = front.encoders[place]
        if self.output == "row":
            model = self._with_whole_rows(cast(Release, model), train)
        split = (
            f"{len(train):,} rows to train on, {len(validation):,} to choose by, {len(certifying):,} to certify on; no "
            "person is in two parts. The certificate covers the last part, and persons from the same population who "
            "come later. Rows of the other parts are not covered."
        )
        rows = model.encode(model.read(table))
        if self.output == "latent":
            rows = in_single_precision(rows)
        apart = None if self.quick else Apart(model, train, certifying, None)
        return _Fitted(model, rows, certifying, target, apart, split)

    def _common(self) -> dict[str, Any]:
        """Return the settings that all encoders have."""
        identifier = self.table.identifier
        return {"identifier": None if identifier is None else str(identifier.name), "random_state": self.random_state}

    def _with_whole_rows(self, release: Release, train: Table) -> Release:
        """Return a release with the same cells that draws whole rows."""
        encoder = release.models_[0].encoder
        Z = encoder.encode(read_again(encoder, train, "fit"))
        settings = release.get_params(deep=False) | {"encoder": None, "output": "row", "rules": self.rules}
        settings |= {"derive": self.derive, "with_score": self.score}
        return Release(**settings).fit_around(encoder, encoder.read(train), Z, train)


def refuse_a_release_that_tells_more(before: Audit, after: Audit, certificate: Certificate) -> None:
    """Raise if the target is missed and adversaries learn more of the group than from the raw rows."""
    raw = max(attack.validation for attack in before.attacks)
    if certificate.is_good or after.attack_lower <= raw:
        return
    raise DataError(
        f"The shared rows would tell more of the group than the raw rows do: adversaries are right at least "
        f"{50 * (1 + after.attack_lower):.1f} % of the time with them (groups counted alike), and about "
        f"{50 * (1 + raw):.1f} % with the raw rows. Share rows or cells (output='row') instead of a latent, or allow "
        "fewer cells by a smaller target (target=...)."
    )


@dataclass(frozen=True, kw_only=True)
class Run:
    """How the table of a result was read, for later files."""

    sensitive: list[str]
    label: list[str] = field(default_factory=list)
    identifier: str | None = None
    time_formats: dict[str, str] = field(default_factory=dict)
    missing_group: MissingGroup = "error"
    missing_label: MissingLabel = "error"
    grouping: Grouping | None = None
    rows: int
    random_state: int

    def __post_init__(self) -> None:
        if not self.sensitive:
            raise ValueError("a run cannot state sensitive = [].")

    @classmethod
    def of(cls, table: Table, random_state: int) -> Run:
        """Return how this table was read."""
        return cls(
            sensitive=list(table.grouping.kinds),
            label=list(map(str, table.label_columns())),
            identifier=None if table.identifier is None else str(table.identifier.name),
            time_formats=table.time_formats,
            missing_group=table.missing_group,
            missing_label=table.missing_label,
            grouping=table.grouping,
            rows=len(table),
            random_state=random_state,
        )

    @property
    def roles(self) -> dict[str, Any]:
        """How the columns of later files make rows, as parameters of `encode_batch`."""
        names = ("sensitive", "identifier", "grouping", "label", "missing_group", "missing_label")
        return {name: getattr(self, name) for name in names}

    def table_of(self, path: Path, model: Encoder, text_format: TextFormat | None = None) -> Table:
        """Read a later file: the columns that the model knows, read and grouped as its own rows were."""
        schema = table_schema(model, self.sensitive, self.label, self.grouping)
        frame = read_frame(path, schema, self.identifier, text_format)
        known = {*map(str, model.schema_.kinds), *self.sensitive, *self.label, self.identifier}
        return Table(
            frame[[name for name in frame if name in known]],
            name=path.name,
            groups=self.grouping,
            sensitive=self.sensitive,
            label=self.label or None,
            identifier=self.identifier,
            missing_group=self.missing_group,
            missing_label=self.missing_label,
        )


@dataclass(frozen=True, repr=False)
class Shared:
    """Result of `share`: a table to share, its certificate, and measurements.

    Attributes
    ----------
    table : DataFrame
        One row per row of the original table, in random order, with a fresh index.
    certificate : Certificate
        How well anybody can guess the group from a shared row.
    usefulness : Usefulness or None
        What the table is worth; None for a latent, and where nothing was measured (``quick=True``).
    audit, before : Audit or None
        Results of the adversaries on the shared rows, and on the original rows; None where nothing was measured.
    release : encoder
        The fitted estimator.
    report : Report
        The page.
    run : Run
        How the table was read, for later files.
    seen : ReleasedRows
        Keyed hashes of the original rows, for the user's record of releases.
    """

    table: pd.DataFrame
    certificate: Certificate
    usefulness: Usefulness | None
    audit: Audit | None
    before: Audit | None
    release: Encoder
    report: Report
    run: Run
    seen: ReleasedRows

    @property
    def is_good(self) -> bool:
        """Whether the target was reached, by the certificate."""
        return self.certificate.is_good

    def save(
        self, folder: str | Path, *, kind: Kind = "csv", replace: bool = False, whole: Path | None = None
    ) -> Shared:
        """Write the table to share, the certificate, both reports and the private model into one folder.

        Beside them are the certificate as an in-toto statement, Croissant and SPDX metadata, and a data card.

        The folder appears whole or not at all.

        Parameters
        ----------
        folder : path
            A new or empty folder, or one with an earlier result.
        kind : {"csv", "parquet"}, default="csv"
            Kind of the file to share.
        replace : bool, default=False
            Whether an earlier result, its model and its key are replaced.
        whole : path, default=None
            The file that the table is a sample of, by persons, where that is larger than memory. All of its rows are
            encoded and counted in one stream, and written instead of the sample's.

        Returns
        -------
        Shared
            The result as it was written.
        """
        check_choice("kind", kind, tuple(SHARED))
        out = Path(folder)
        with locked(out, wait=False):
            check_place(out, replace=replace)
            return self._save(out, SHARED[kind], whole)

    def _save(self, out: Path, name: str, whole: Path | None) -> Shared:
        certificate, found, released = self.certificate, Found(), [self.seen]
        with side_folder(out) as work:
            shared = work / name
            if whole is None:
                n_rows = write_table([to_arrow(self.table)], shared, shared, self.run.time_formats)
            else:
                with warnings.catch_warnings():
                    # Persons of the sample keep their cells, as is meant.
                    warnings.filterwarnings("ignore", ".* keep the cell", DataWarning)
                    formats = self.run.time_formats
                    n_rows = encode_rows(
                        self.release, whole, shared, time_formats=formats, found=found, **self.run.roles
                    )
                    found.warn()
                certificate, released = of_whole_file(certificate, found), found.released
            certificate = naming_released_file(certificate, shared, n_rows, kinds_of(to_arrow(self.table).schema))
            with new_release(released, certificate.model, shared, out / name) as number, new_folder(out) as side:
                certificate = replace_(certificate, releases=number).sealed(self.release.key_)
                save(self.release, side / MODEL)
                os.replace(shared, side / name)
                for file, text in self._texts(certificate, name, n_rows, is_sample=whole is not None).items():
                    (side / file).write_text(text, encoding="utf-8")
        return replace_(self, certificate=certificate)

    def _texts(self, certificate: Certificate, name: str, n_rows: int, *, is_sample: bool) -> dict[str, str]:
        """Return the files of text beside the shared table, by name."""
        contents = {**self.report.contents, "certificate": certificate.to_dict()}
        if is_sample:
            told = f"This is the sample that the trees were fitted to. All {n_rows:,} rows of the file are released."
            contents["data"] = {**contents["data"], "split": told}
        page = Report(contents)
        texts = {
            "certificate.json": certificate.to_json(),
            "report.html": page.to_html(),
            "report.json": json.dumps(page.contents, indent=1, ensure_ascii=False),
            "report-public.html": page.to_html(public=True),
            RUN: json.dumps({"format": FORMAT, **asdict(self.run)}, indent=1),
        }
        public = hashlib.sha256(texts["report-public.html"].encode()).hexdigest()
        digests = {**certificate.released_files, "report-public.html": public}
        return texts | export_files(certificate, self.table, name, n_rows, digests)

    def __repr__(self) -> str:
        return words.shared_text(self)

    def _repr_html_(self) -> str:
        parts = [part for name, texts in words.sections(self) for part in (f"{name}:", texts)]
        return html_card(
            words.meaning(self.certificate), words.question(self), words.guesses(self), *parts,
            badge=words.badge(self.certificate),
        )  # fmt: skip


def of_whole_file(certificate: Certificate, found: Found) -> Certificate:
    """Return the certificate of a sample with the statement about the whole file in place of that about the sample."""
    is_by_trees = certificate.find("table") is not None and certificate.look == 0  # without held-out persons
    if found.counts is None or not is_by_trees or certificate.most_rows > 1:
        raise DataError(
            "A file that is larger than memory is shared by a tree (method='tree') with one row per person: only then "
            "the cells of all its rows can be counted in one stream."
        )
    counts, groups = found.counts, list(certificate.n)
    fold = Counted.of(counts[None], (), with_label=False).fold(groups, 0.0)
    of_table = table_statement(fold, {}).judged(certificate.target)
    statements = tuple(of_table if s.about == "table" else s for s in certificate.statements)
    return replace_(
        certificate,
        statements=statements,
        status=status_of(statements, certificate.target),
        n=dict(zip(groups, counts.sum(axis=1).tolist(), strict=True)),
        seal="",
    )


def naming_released_file(certificate: Certificate, path: Path, n_rows: int, kinds: dict[str, str]) -> Certificate:
    """Return the certificate, without a seal, with the SHA-256 and the contents of a released file."""
    headline = certificate.headline
    counted = headline is not None and sum(headline.n.values()) == n_rows
    if headline is not None and counted:  # the cells behind drawn rows are not in the file
        counted = (
            headline.about == "table" if certificate.draws_rows else not difference_from_counts(path, headline, kinds)
        )
    return certificate.with_file(path.name, file_sha256(path), contents_of(path, kinds), counted=counted)


def check_place(out: Path, source: Path | None = None, *, replace: bool) -> None:
    """Raise unless a result may be written there: into a new folder, or in place of an earlier result."""
    check_folder(out)
    if source is not None and out.resolve() in source.resolve().parents:
        raise DataError(f"{out}: holds {source}, which is read, and would be replaced; choose another folder.")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not (out / RUN).is_file():
        raise DataError(f"{out}: the folder is not empty and holds no earlier result; choose another one.")
    read_run(out)
    refuse_other_files(out, _FILES | set(SHARED.values()))
    if (out / MODEL).is_dir():
        refuse_other_files(out / MODEL, FILES)
    if not replace:  # without the key, no one can match the files of the earlier result
        raise DataError(
            f"{out}: holds the model and the key of an earlier result; choose another folder, or replace them "
            "(replace=True)."
        )


def read_run(out: Path) -> Run:
    """Read how the table of an earlier result was read."""
    run = read_document(out, RUN, "result of `fairflows share`", FORMAT)
    try:
        found: Run = read_as({name: run[name] for name in stated_fields(Run) if name in run}, Run)
    except ValueError as error:
        raise DataError(f"{out / RUN}: the file is damaged: {error}") from None
    return found


def certified_part(table: Table, run: Run, certificate: Certificate, model: Encoder) -> Table:
    """Return the rows that a certificate is about: the whole table, or the part that `share` certified on."""
    if sum(certificate.n.values()) > run.rows:
        raise DataError(
            f"The certificate counts {sum(certificate.n.values()):,} rows of a file that was shared by a sample of "
            f"{run.rows:,}: it cannot be computed again by a model and one table. `fairflows check` compares the file."
        )
    if len(table) != run.rows or table.fingerprint(model.key_) == certificate.rows:
        return table
    return table.split(CERTIFYING, VALIDATION, run.random_state)[2]

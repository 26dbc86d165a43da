"""The result of `share`: a table to share with its certificate, and the folder that it is written to."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import warnings
from dataclasses import asdict, dataclass, field
from dataclasses import replace as replace_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pandas as pd
from msgspec import Meta

from fairflows.attack.auditing import Audit
from fairflows.certificate.certificate import Certificate, status_of
from fairflows.certificate.counting import Counted
from fairflows.certificate.digest import contents_of, kinds_of
from fairflows.certificate.file_checks import difference_from_counts
from fairflows.certificate.file_list import file_sha256
from fairflows.certificate.model_hash import model_hash, origin_of
from fairflows.certificate.notices import add_notice, earlier_notices
from fairflows.certificate.releases import ReleasedRows, new_release
from fairflows.certificate.statements import table_statement, undisclosed_statement
from fairflows.display import html_card
from fairflows.encoder.base import Encoder
from fairflows.exceptions import DataError, DataWarning, check_choice, warn_user
from fairflows.exports import EXPORTED, export_files
from fairflows.release.release import Release
from fairflows.release.released_table import KeptRows, ReleasedTable
from fairflows.report import statement_words, table_words
from fairflows.report.page import Report
from fairflows.report.people import draw_people, guesses_of_100, people_svg
from fairflows.storage import FILES, save
from fairflows.stream.batches import BatchFindings, table_schema, to_arrow
from fairflows.stream.files import encode_rows, write_table
from fairflows.stream.whole_file import knowing_whole_file
from fairflows.table.columns import TEXT, Schema
from fairflows.table.folders import check_folder, locked, new_folder, refuse_other_files, side_folder
from fairflows.table.frames import Frame, as_kind_of
from fairflows.table.grouping import Grouping, MissingGroup, MissingLabel, rows_kept
from fairflows.table.json_text import read_as, read_document
from fairflows.table.linked import LinkedTables
from fairflows.table.reading import TextFormat, open_table, read_frame
from fairflows.table.table import Table
from fairflows.watching.watch import Watch, watch
from fairflows.worth.usefulness import Usefulness

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Kind = Literal["csv", "parquet"]
RUN, MODEL, FORMAT = "run.json", "model", 1
SHARED = {"csv": "shared.csv", "parquet": "shared.parquet"}
PARENTS = "shared-persons"
"""The file of the first of two linked tables, which has one row of each person, without its suffix."""
_REPORTS = ("report.html", "report.json", "report-public.html")
CERTIFICATE, WATCH = "certificate.json", "watch.json"
_FILES = {RUN, MODEL, CERTIFICATE, "certificate.files.json", "certificate.notices.json", *_REPORTS, *EXPORTED}
_FILES |= {WATCH, "watch.persons"}


@dataclass(frozen=True, kw_only=True)
class Run:
    """How the table of a result was read, for later files."""

    sensitive: Annotated[list[str], Meta(min_length=1)]
    label: list[str] = field(default_factory=list)
    identifier: str | None = None
    household: str | None = None
    time: str | None = None
    time_formats: dict[str, str] = field(default_factory=dict)
    missing_group: MissingGroup = "error"
    missing_label: MissingLabel = "error"
    grouping: Grouping | None = None
    columns: list[str]  # its features, which the model need not all know
    rows: int
    random_state: int
    linked: list[str] = field(default_factory=list)  # the names of two linked tables; then the features are of both

    @classmethod
    def of(cls, table: Table, random_state: int) -> Run:
        """Return how this table was read."""
        return cls(
            sensitive=list(table.grouping.kinds),
            label=list(map(str, table.label_columns())),
            identifier=None if table.identifier is None else str(table.identifier.name),
            household=None if table.household is None else str(table.household.name),
            time=table.time,
            time_formats=table.time_formats,
            missing_group=table.missing_group,
            missing_label=table.missing_label,
            grouping=table.grouping,
            columns=[str(name) for part in table.tables for name in part.X],
            rows=len(table),
            random_state=random_state,
            linked=list(table.names) if isinstance(table, LinkedTables) else [],
        )

    @property
    def roles(self) -> dict[str, Any]:
        """How the columns of later files make rows, as parameters of `encode_batch`."""
        names = ("sensitive", "identifier", "grouping", "label", "missing_group", "missing_label")
        return {name: getattr(self, name) for name in names}

    def roles_with(self, missing_group: MissingGroup | None, missing_label: MissingLabel | None) -> dict[str, Any]:
        """Return the same with another treatment of rows without a group or a label, where one is stated."""
        if missing_group == "group" and self.missing_group != "group":
            raise DataError(
                "missing_group must be 'drop' for later files, because the table had no group of rows without one; got "
                "'group'."
            )
        stated = {"missing_group": missing_group, "missing_label": missing_label}
        return self.roles | {name: rule for name, rule in stated.items() if rule is not None}

    def with_dates(self, text_format: TextFormat | None) -> TextFormat:
        """Return how a later file is written: as stated, with dates as in the file of the table."""
        return replace_(text_format or TextFormat(), dates=self.time_formats)

    def linked_tables_of(
        self, paths: tuple[Path, Path], release: Release, text_format: TextFormat | None = None
    ) -> LinkedTables:
        """Read two linked tables, the one with one row of each person first, as its own were."""
        schema = table_schema(release, self.sensitive, (), self.grouping)
        schema, text_format = Schema(schema.kinds | release.parents_schema.kinds), self.with_dates(text_format)
        known = {*self.columns, *self.sensitive, *self.label, self.identifier, self.household}
        frames = []
        for path in paths:
            columns = open_table(path, text_format).columns
            frame = read_frame(path, schema.part(columns), self.identifier, text_format)
            frames.append(frame[[name for name in frame if name in known]])
        assert self.identifier is not None
        return LinkedTables(
            dict(zip(self.linked, frames, strict=True)),
            cuts=self.grouping,
            sensitive=self.sensitive,
            label=self.label or None,
            identifier=self.identifier,
            time=self.time,
            household=self.household,
            missing_group=self.missing_group,
            missing_label=self.missing_label,
        )

    def refuse_linked(self, what: str) -> None:
        """Raise where two linked tables were shared, which a command does not read."""
        if self.linked:
            both = " and ".join(map(repr, self.linked))
            raise DataError(
                f"This result is of two linked tables, {both}, which {what} does not read. In Python, "
                "`release.transform(LinkedTables(...))` draws both for persons who come later."
            )

    def table_of(
        self, path: Path, model: Encoder, text_format: TextFormat | None = None, *, is_own: bool = False
    ) -> Table:
        """Read a later file: the columns that the model knows, read and grouped as its own rows were.

        Of its own file all columns are read: a release that was drawn again has some that its cells do not need.
        """
        self.refuse_linked("a command that takes one file")
        label = [] if self.missing_label == "keep" else self.label  # else it became text after it was read
        schema = table_schema(model, self.sensitive, label, self.grouping)
        frame = read_frame(path, schema, self.identifier, self.with_dates(text_format))
        features = self.columns if is_own else map(str, model.schema_.kinds)
        known = {*features, *self.sensitive, *self.label, self.identifier}
        return Table(
            frame[[name for name in frame if name in known]],
            name=path.name,
            cuts=self.grouping,
            sensitive=self.sensitive,
            label=self.label or None,
            identifier=self.identifier,
            time=self.time,
            missing_group=self.missing_group,
            missing_label=self.missing_label,
        )

    def later_persons(
        self, path: Path, model: Encoder, text_format: TextFormat | None = None, groups_from: str | None = None
    ) -> Table | None:
        """Read a file of later persons as rows of the model, None if it has no row; it need not hold labels.

        Rows without a group are left out, and those without a label where these were left out before. `groups_from`
        names the column that holds the sensitive attribute, where the file calls it otherwise.
        """
        self.refuse_linked("a watch")
        kinds = dict(table_schema(model, self.sensitive, grouping=self.grouping).kinds)
        if groups_from is not None:
            if len(self.sensitive) > 1:
                raise DataError(f"groups_from names one column; the groups are of {' and '.join(self.sensitive)}.")
            kinds[groups_from] = kinds.pop(self.sensitive[0])
        frame = read_frame(path, Schema(kinds), self.identifier, self.with_dates(text_format))
        if not len(frame):
            return None
        if groups_from is not None:
            own = self.sensitive[0]
            frame = frame.drop(columns={own} - {groups_from}, errors="ignore").rename(columns={groups_from: own})
        labels = frame[[name for name in self.label if name in frame]]
        missing_group: MissingGroup = "group" if self.missing_group == "group" else "drop"
        missing_label: MissingLabel = "drop" if self.missing_label == "drop" else "keep"
        kept = rows_kept(frame[self.sensitive], labels, missing_group, missing_label)
        if not kept.all():
            warn_user(f"{int((~kept).sum()):,} rows without a group or a label are not counted.")
        if self.grouping is not None:
            is_known = self.grouping.knows(frame.loc[kept, self.sensitive])
            if n_others := int((~is_known).sum()):
                warn_user(f"{n_others:,} rows of groups that the table did not have are not counted.")
                kept[kept] = is_known
        if not kept.any():
            raise DataError(f"{path}: no row has a group, so that none can be counted.")
        known = {*map(str, model.schema_.kinds), *self.sensitive, self.identifier}
        frame = frame.loc[kept, [name for name in frame if name in known]]
        return Table(
            frame,
            name=path.name,
            cuts=self.grouping,
            sensitive=self.sensitive,
            identifier=self.identifier,
            missing_group=missing_group,
        )


@dataclass(frozen=True, repr=False)
class Shared:
    """Result of `share`: a table to share, its certificate, and measurements.

    Attributes
    ----------
    table : DataFrame
        The table to share, of the kind of frame that came.
    rows : DataFrame
        The same as a frame of pandas: one row per row of the original table, in random order, with a fresh index. With
        ``unit="person"`` any number of rows for each person, together and in the order of time, and a column `person`
        of fresh numbers.
    certificate : Certificate
        How well an adversary can guess the group from a shared row.
    usefulness : Usefulness or None
        What the table is worth; None where nothing was measured (``quick=True``).
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
    earlier : ReleasedTable or None
        What was kept of the earlier tables, where rows were drawn again from the same cells.
    like : polars.DataFrame, pyarrow.Table or None
        No rows of the kind of frame that came; None for one of pandas.
    parents : DataFrame or None
        Of two linked tables the one with one row of each person, whose numbers are those of `table`.
    """

    rows: pd.DataFrame
    certificate: Certificate
    usefulness: Usefulness | None
    audit: Audit | None
    before: Audit | None
    release: Release
    report: Report
    run: Run
    seen: ReleasedRows
    earlier: ReleasedTable | None = None
    parents: pd.DataFrame | None = None
    like: Frame | None = None

    @property
    def table(self) -> Frame:
        """The table to share, of the kind of frame that came."""
        return self.rows if self.like is None else as_kind_of(self.like, self.rows)

    @property
    def meets_target(self) -> bool:
        """Whether the target was reached, by the certificate."""
        return self.certificate.meets_target

    def save(
        self,
        folder: str | Path,
        *,
        kind: Kind = "csv",
        replace: bool = False,
        whole: Path | None = None,
        text_format: TextFormat | None = None,
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
            encoded and counted in one stream, and written instead of the sample's. No row is drawn that only one
            person of the file has.
        text_format : TextFormat, default=None
            How that file is written, if it is a CSV file whose header does not show it.

        Returns
        -------
        Shared
            The result as it was written.
        """
        check_choice("kind", kind, tuple(SHARED))
        out = Path(folder)
        with locked(out, wait=False):
            check_place(out, replace=replace)
            return self._save(out, SHARED[kind], whole, text_format)

    def _save(self, out: Path, name: str, whole: Path | None, text_format: TextFormat | None) -> Shared:
        notices = dict.fromkeys([*self.certificate.notices, *earlier_notices(out / CERTIFICATE)])
        certificate = replace_(self.certificate, notices=tuple(notices), seal="")
        release, found, released, run = self.release, BatchFindings(), [self.seen], self.run
        with side_folder(out) as work:
            shared = work / name
            if whole is None:
                n_rows = write_table([to_arrow(self.rows)], shared, shared, self.run.time_formats)
            else:
                if self.release.unit == "person":
                    raise DataError(
                        "A sample (sample=...) is of rows that are released one by one: the rows of a person are read "
                        "together, in memory. Take all rows, or release rows that are not linked (unit='row')."
                    )
                with warnings.catch_warnings():
                    # Persons of the sample keep their cells, as is meant.
                    warnings.filterwarnings("ignore", ".* keep the cell", DataWarning)
                    formats: dict[str, Any] = {"text_format": text_format, "time_formats": self.run.time_formats}
                    roles = self.run.roles
                    own = {name: roles[name] for name in roles if name != "grouping"}
                    own["household"] = self.run.household
                    release = knowing_whole_file(release, whole, self.run.with_dates(text_format), **own)
                    n_rows = encode_rows(release, whole, shared, found=found, is_own=True, **formats, **roles)
                    found.warn()
                release = _of_whole_file(release, certificate, found, self.earlier)
                certificate, released = of_whole_file(certificate, release), found.released
                certificate = replace_(certificate, model=model_hash(release, release.key_))
                run = replace_(run, rows=n_rows)
            certificate = naming_released_file(certificate, shared, n_rows, self._kinds(self.rows, shared))
            parents = None if self.parents is None else work / f"{PARENTS}{shared.suffix}"
            if parents is not None:
                certificate = self._naming_parents(certificate, parents)
            with new_release(released, origin_of(release), shared, out / name) as number, new_folder(out) as side:
                certificate = replace_(certificate, releases=number).sealed(release.key_)
                save(release, side / MODEL)
                os.replace(shared, side / name)
                if parents is not None:
                    os.replace(parents, side / parents.name)
                for file, text in self._texts(certificate, run, name, is_sample=whole is not None).items():
                    (side / file).write_text(text, encoding="utf-8")
        return replace_(self, certificate=certificate, release=release)

    def _kinds(self, rows: pd.DataFrame, path: Path) -> dict[str, str]:
        """Return the kinds of the columns in a file of rows; dates in another form than YYYY-MM-DD are text there."""
        kinds = kinds_of(to_arrow(rows).schema)
        if path.suffix == ".csv":
            other = {name for name, form in self.run.time_formats.items() if not form.startswith("%Y-%m-%d")}
            kinds |= dict.fromkeys(other & set(kinds), TEXT)
        return kinds

    def _naming_parents(self, certificate: Certificate, path: Path) -> Certificate:
        """Write the table with one row of each person; return the certificate that names it, too."""
        assert self.parents is not None
        write_table([to_arrow(self.parents)], path, path, self.run.time_formats)
        contents = contents_of(path, self._kinds(self.parents, path))
        files = {**certificate.released_files, path.name: file_sha256(path)}
        return replace_(certificate, released_files=files, parents=contents, counted_file=path.name, seal="")

    def _texts(self, certificate: Certificate, run: Run, name: str, *, is_sample: bool) -> dict[str, str]:
        """Return the files of text beside the shared table, by name."""
        n_rows = run.rows if is_sample else len(self.rows)
        contents = {**self.report.contents, "certificate": certificate.to_dict()}
        if is_sample:
            told = f"This is the sample that the trees were fitted to. All {n_rows:,} rows of the file are released."
            contents["data"] = {**contents["data"], "split": told}
        page = Report(contents)
        texts = {
            CERTIFICATE: certificate.to_json(),
            "report.html": page.to_html(),
            "report.json": json.dumps(page.contents, indent=1, ensure_ascii=False),
            "report-public.html": page.to_html(public=True),
            RUN: json.dumps({"format": FORMAT, **asdict(run)}, indent=1),
        }
        public = hashlib.sha256(texts["report-public.html"].encode()).hexdigest()
        digests = {**certificate.released_files, "report-public.html": public}
        tables = {name: self.rows}
        if self.parents is not None:
            tables[f"{PARENTS}{Path(name).suffix}"] = self.parents
        return texts | export_files(certificate, tables, n_rows, digests)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw of 100 guesses of the group those that are right: before, after, and by a coin.

        Parameters
        ----------
        ax : Axes, default=None
            Axes to draw on; a new figure when not given.
        """
        return draw_people(self._guesses, ax)

    @property
    def _guesses(self) -> list[tuple[str, float]]:
        return guesses_of_100(self.certificate, self.report.contents["before"])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them: the outcome, the certificate, and what was measured."""
        contents = self.report.contents
        return {
            "status": self.certificate.status,
            "meets_target": self.meets_target,
            "covers_population": self.certificate.covers_population,
            "rows": len(self.rows),
            "certificate": json.loads(self.certificate.to_json()),
            **{name: contents.get(name) for name in ("before", "audit", "usefulness")},
        }

    def __repr__(self) -> str:
        return table_words.shared_text(self)

    def _repr_html_(self) -> str:
        parts = [part for name, texts in table_words.sections(self) for part in (f"{name}:", texts)]
        return html_card(
            statement_words.meaning(self.certificate), table_words.question(self), table_words.guesses(self), *parts,
            badge=statement_words.badge(self.certificate), picture=people_svg(self._guesses),
        )  # fmt: skip


def _of_whole_file(
    release: Release, certificate: Certificate, found: BatchFindings, before: ReleasedTable | None
) -> Release:
    """Return a release that was fitted to a sample of a file's persons, all of whom keep their cell."""
    is_by_trees = certificate.find("table") is not None and certificate.look == 0  # without held-out persons
    if not found.kept or not is_by_trees or certificate.most_rows > 1 or release.table_ is None:
        raise DataError(
            "A file that is larger than memory is shared by a tree (method='tree') with one row per person: only then "
            "the cells of all its rows can be counted in one stream."
        )
    if before is None and release.table_.together is not None:
        raise DataError("Cells are cut further by a whole file (extend=True), and this table is a sample of it.")
    release = copy.copy(release)
    release.table_ = release.table_.of_file(KeptRows.joined(found.kept), before, release.key_)  # type: ignore[union-attr]
    return release


def of_whole_file(certificate: Certificate, release: Release) -> Certificate:
    """Return the certificate of a sample with what it states about the sample stated about the whole file."""
    table, groups = release.table_, list(certificate.n)
    assert table is not None
    counts = table.counts.sum(axis=0)
    if table.together is None:
        printed = Counted.of(table.counts, (), with_label=False).printed(groups)
        new = {"table": table_statement(printed, {})}
    else:
        new = {"table": undisclosed_statement("table", counts, groups)}
        new["together"] = undisclosed_statement("together", table.together.counts, groups)
    statements = tuple(new.get(s.about, s).judged(certificate.target) for s in certificate.statements)
    return replace_(
        certificate,
        statements=statements,
        status=status_of(statements, certificate.target),
        n=dict(zip(groups, counts.sum(axis=1).tolist(), strict=True)),
        membership={} if table.together is None else table.together.membership,
        rows=table.fingerprint,
        seal="",
    )


def naming_released_file(certificate: Certificate, path: Path, n_rows: int, kinds: dict[str, str]) -> Certificate:
    """Return the certificate, without a seal, with the SHA-256 and the contents of a released file."""
    headline, is_of_panels = certificate.headline, certificate.released == "panel"
    counted = headline is not None and (is_of_panels or sum(headline.n.values()) == n_rows)
    if headline is not None and counted:  # the cells behind drawn rows are not in the file
        counted = (
            headline.about == "table"
            if certificate.released == "row"
            else not difference_from_counts(path, headline, kinds, certificate.released)
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
    refuse_other_files(out, _FILES | set(SHARED.values()) | {f"{PARENTS}.{kind}" for kind in SHARED})
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
    del run["format"]
    try:
        return read_as(run, Run)
    except ValueError as error:
        raise DataError(f"{out / RUN}: the file is damaged: {error}") from None


def open_watch(out: Path, model: Release) -> Watch:
    """Return the watch of a result, which is kept in its folder."""
    return watch(model, out / WATCH, bound=Certificate.read(out / CERTIFICATE).cell_upper)


def watch_persons(out: Path, model: Release, table: Table | None, day: str | None = None) -> Watch:
    """Count later persons, if there are any, in a result's watch; write a notice where they refute its bound."""
    watched = open_watch(out, model)
    if table is not None:
        watched.update(table, date=day)
    if watched.refuted is not None:
        add_notice(out / CERTIFICATE, watched.refuted, watched.notice)
    return watched

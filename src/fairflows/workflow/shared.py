"""The result of `share`: in words, as a folder of files, and read from that folder again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pandas as pd

from fairflows.certificate.certificate import Certificate
from fairflows.certificate.check import difference_from_counts, file_sha256
from fairflows.display import Columns, html_card
from fairflows.encoder.base import Encoder
from fairflows.exceptions import DataError, check_choice
from fairflows.release.released import Released, Transformer
from fairflows.report import words
from fairflows.report.page import Report
from fairflows.storage import FILES, save
from fairflows.stream.batches import to_arrow
from fairflows.stream.files import write_table
from fairflows.table.folders import check_folder, new_folder, refuse_other_files
from fairflows.table.frames import columns_of
from fairflows.table.grouping import Grouping
from fairflows.table.json_text import read_as, read_json, stated_fields
from fairflows.table.reading import read_frame
from fairflows.table.table import Table
from fairflows.table.text_format import TextFormat

if TYPE_CHECKING:
    from fairflows.attack.auditing import Audit
    from fairflows.usefulness import StillTells

Kind = Literal["csv", "parquet"]
RUN, MODEL, FORMAT = "run.json", "model", 1
SHARED = {"csv": "shared.csv", "parquet": "shared.parquet"}
_FILES = {RUN, MODEL, "certificate.json", "certificate.files.json", "report.html", "report-public.html"}

CERTIFYING, VALIDATION = 0.3, 0.25
"""Shares of the persons that certify, and of the others that a model is chosen by."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """How the table of a result was read, for later files."""

    sensitive: list[str]
    label: str | None = None
    identifier: str | None = None
    missing: Literal["error", "category", "drop"] = "error"
    multiclass: bool = False
    grouping: Grouping | None = None
    rows: int
    random_state: int
    released: list[str]

    def __post_init__(self) -> None:
        rules = {
            "sensitive": bool(self.sensitive),
            "random_state": self.random_state >= 0,
            "released": bool(self.released) and set(self.released) <= {"cell", "latent", "label"},
        }
        for name, is_kept in rules.items():
            if not is_kept:
                raise ValueError(f"a run cannot state {name} = {getattr(self, name)!r:.40}.")
        if self.grouping is not None:
            Grouping.from_dict(self.grouping.to_dict())  # which refuses fields that contradict each other

    @classmethod
    def of(cls, table: Table, released: list[str], random_state: int) -> Run:
        """Return how this table was read."""
        return cls(
            sensitive=list(table.grouping.kinds),
            label=None if table.y is None else str(table.y.name),
            identifier=None if table.identifier is None else str(table.identifier.name),
            missing=table.missing,
            multiclass=table.multiclass,
            grouping=table.grouping,
            rows=len(table),
            random_state=random_state,
            released=released,
        )

    def table_of(self, path: Path, model: Transformer, text_format: TextFormat | None = None) -> Table:
        """Read a later file: the columns that the model knows, read and grouped as its own rows were."""
        released = Released.of(model)
        schema = released.table_schema(self.sensitive, self.label, self.grouping)
        frame = read_frame(path, schema, self.identifier, text_format)
        features = [] if released.encoder is None else map(str, released.encoder.schema_.kinds)
        known = {*features, *self.sensitive, self.label, self.identifier}
        return Table(
            frame[[name for name in frame if name in known]],
            name=path.name,
            groups=self.grouping,
            sensitive=self.sensitive if len(self.sensitive) > 1 else self.sensitive[0],
            label=self.label,
            identifier=self.identifier,
            missing=self.missing,
            multiclass=self.multiclass,
        )


@dataclass(frozen=True, repr=False)
class Shared:
    """A table to share, and what is known about it: the result of `share`.

    Attributes
    ----------
    table : DataFrame
        One row per row of the original table, in random order, with a fresh index.
    certificate : Certificate
        How well anybody can guess the group from a shared row.
    usefulness : StillTells or None
        What the shared rows still tell of each column; None for a latent, which tells everything.
    audit : Audit
        Results of the adversaries on the shared rows.
    before : Audit
        Results of the adversaries on the original rows.
    release : encoder
        The fitted estimator.
    report : Report
        The page.
    run : Run
        How the table was read, for later files.
    """

    table: pd.DataFrame
    certificate: Certificate
    usefulness: StillTells | None
    audit: Audit
    before: Audit
    release: Encoder
    report: Report
    run: Run

    @property
    def is_good(self) -> bool:
        """Whether the target was reached, by the certificate."""
        return self.certificate.is_good

    @property
    def covers_all(self) -> bool:
        """Whether the certificate covers all rows of the table, and not only those that were held out."""
        return self.certificate.cell_upper is not None and len(Released.of(self.release).cells_of_models) > 1

    def save(self, folder: str | Path, *, kind: Kind = "csv", replace: bool = False) -> None:
        """Write the table to share, the certificate, both reports and the private model into one folder.

        The folder appears whole or not at all.

        Parameters
        ----------
        folder : path
            A new or empty folder, or one with an earlier result.
        kind : {"csv", "parquet"}, default="csv"
            Kind of the file to share.
        replace : bool, default=False
            Whether an earlier result, its model and its key are replaced.
        """
        check_choice("kind", kind, tuple(SHARED))
        out, key = Path(folder), Released.of(self.release).secret
        check_place(out, replace=replace)
        with new_folder(out) as side:
            save(self.release, side / MODEL)
            shared = side / SHARED[kind]
            write_table([to_arrow(columns_of(self.table), None, single=False)], shared, shared)
            certificate = naming_released_file(self.certificate, shared, len(self.table), key)
            page = Report({**self.report.contents, "certificate": certificate.to_dict()}, verified=self.report.verified)
            texts = {
                "certificate.json": certificate.to_json(),
                "report.html": page.to_html(),
                "report-public.html": page.to_html(public=True),
                RUN: json.dumps({"format": FORMAT, **asdict(self.run)}, indent=1),
            }
            for name, text in texts.items():
                (side / name).write_text(text, encoding="utf-8")

    def __repr__(self) -> str:
        return words.shared_text(self)

    def _repr_html_(self) -> str:
        rows: list[tuple[str, str]] = []
        if self.usefulness is not None:
            columns = [*self.usefulness.columns, self.usefulness.sensitive]
            rows = [(column.name, f"{100 * column.told:.0f} %") for column in columns]
        told = Columns(rows, closed=words.TOLD) if rows else ""
        guesses, notes = Columns(words.guesses(self)), words.notes_on_guesses(self)
        return html_card(words.heading(self.certificate), words.question(self), guesses, notes, told,
                         badge=words.badge(self.certificate))  # fmt: skip


def naming_released_file(certificate: Certificate, path: Path, n_rows: int, key: bytes) -> Certificate:
    """Return the certificate, sealed anew, with the SHA-256 of a released file of so many rows."""
    is_of_all = certificate.headline is not None and sum(certificate.n.values()) == n_rows
    counted = is_of_all and not difference_from_counts(path, certificate)
    certificate = certificate.with_file(path.name, file_sha256(path), counted=counted)
    return certificate.sealed(key) if key else certificate


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
    if not replace:  # without the key, nobody can match the files of the earlier result
        raise DataError(
            f"{out}: holds the model and the key of an earlier result; choose another folder, or replace them "
            "(replace=True)."
        )


def read_run(out: Path) -> Run:
    """Read how the table of an earlier result was read."""
    if not out.is_dir():
        raise DataError(f"{out}: there is no such folder.")
    path = out / RUN
    if not path.is_file():
        raise DataError(f"{out}: the folder holds no result of `fairflows share` ({RUN} is missing).")
    run = read_json(path)
    if not isinstance(run, dict) or type(run.get("format")) is not int:
        raise DataError(f"{path}: not a result of fairflows: it states no format.")
    if run["format"] != FORMAT:
        raise DataError(f"{path}: written by another release of fairflows (format {run['format']}).")
    try:
        found: Run = read_as({name: run[name] for name in stated_fields(Run) if name in run}, Run)
    except ValueError as error:
        raise DataError(f"{path}: the file is damaged: {error}") from None
    return found


def certified_part(table: Table, run: Run, certificate: Certificate, model: Transformer) -> Table:
    """Return the rows that a certificate is about: the table as it is, or the part of it that `share` certified on."""
    if len(table) != run.rows or table.fingerprint(Released.of(model).secret) == certificate.rows:
        return table
    return table.split(CERTIFYING, VALIDATION, run.random_state)[2]

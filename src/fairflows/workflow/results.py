"""The folder that `fit` writes: its encoded table, and reading its files again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from jinja2 import TemplateError

from fairflows.certificate.checking import difference_from_counts
from fairflows.certificate.document import Certificate
from fairflows.certificate.file_list import file_sha256
from fairflows.exceptions import DataError, Parameter
from fairflows.release.released import Released, Transformer, beside
from fairflows.reporting import Report
from fairflows.storage.saving import FILES, load
from fairflows.stream.tables import TableWriter, to_arrow
from fairflows.table.dialect import Dialect
from fairflows.table.folders import check_folder, refuse_other_files
from fairflows.table.grouping import Grouping, GroupRules
from fairflows.table.json_text import read_as, read_json, stated_fields
from fairflows.table.reading import kind_of, recognise
from fairflows.table.schema import Schema
from fairflows.table.table import Table

RUN, SETTINGS, MODEL, FORMAT = "run.json", "fit.toml", "model", 1
SHARED = {"csv": "shared.csv", "tsv": "shared.tsv", "excel": "shared.csv", "parquet": "shared.parquet"}
"""The file to share, by what the table came in."""

_FILES = {
    RUN,
    MODEL,
    "certificate.json",
    "certificate.files.json",
    SETTINGS,
    "frontier.csv",
    "report.json",
    "report.html",
    "report-public.html",
}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a table is read: its file, the roles of its columns, its groups, and what happens to missing values."""

    sensitive: list[str]
    label: str | None = None
    identifier: str | None = None
    drop: list[str]
    missing: Literal["error", "category", "drop"] = "error"
    multiclass: bool = False
    grouping: Grouping | None = None
    dialect: Dialect | None = None

    def dialect_of(self, path: Path, model: Transformer | None, stated: Dialect) -> Dialect:
        """How a file is written: as stated, as it shows, else as the file that was fitted."""
        texts = [] if self.identifier is None else [self.identifier]
        kinds = {} if model is None else self._schema(model).kinds
        return recognise(path, stated, kinds=kinds, texts=texts, usual=self.dialect or Dialect())

    def table_of(
        self, path: Path, model: Transformer | None = None, *, dialect: Dialect, rules: GroupRules | None = None
    ) -> Table:
        """A file's table, its columns read and grouped as the model's own rows were.

        The `dialect` is what is stated of the file; before there is a model, `rules` say which groups to make.
        """
        return Table.read(
            path,
            schema=None if model is None else self._schema(model),
            dialect=self.dialect_of(path, model, dialect),
            groups=self.grouping or rules,
            sensitive=self.sensitive if len(self.sensitive) > 1 else self.sensitive[0],
            label=self.label,
            identifier=self.identifier,
            drop=self.drop,
            missing=self.missing,
            multiclass=self.multiclass,
        )

    def _schema(self, model: Transformer) -> Schema:
        return Released.of(model).table_schema(self.sensitive, self.label, self.grouping)


@dataclass(frozen=True, kw_only=True)
class Run(Reading):
    """What commands on a result must know of the `fit` that made it."""

    rows: int
    seed: int
    shared: str
    released: list[str]

    def __post_init__(self) -> None:
        rules = {
            "sensitive": bool(self.sensitive),
            "seed": self.seed >= 0,
            "shared": self.shared in SHARED.values(),
            "released": bool(self.released) and set(self.released) <= {"cell", "latent", "label"},
        }
        for name, is_kept in rules.items():
            if not is_kept:
                raise ValueError(f"a run cannot state {name} = {getattr(self, name)!r:.40}.")
        if self.grouping is not None:
            Grouping.from_dict(self.grouping.to_dict())  # which refuses fields that contradict each other


CERTIFYING, VALIDATION = 0.3, 0.25
"""Shares of the persons that certify, and of the others that are chosen by."""


def write_shared(rows: pd.DataFrame, label: pd.Series | None, path: Path, *, single: bool) -> None:
    """Released rows in random order, with the label where that is released too; without identifiers.

    With `single`, numbers are rounded to single precision, as those of a latent are.
    """
    rows = rows.reset_index(drop=True)
    if label is not None:
        rows = beside(rows, label.to_frame())
    order = np.random.default_rng().permutation(len(rows))  # from the system's entropy: no seed repeats it
    written: pa.Table = to_arrow(rows.iloc[order].reset_index(drop=True), None, single=single)
    with TableWriter(path, path) as writer:
        writer.write(written)


def naming_file(certificate: Certificate, path: Path, n_rows: int, key: bytes) -> Certificate:
    """The certificate, sealed anew, with the SHA-256 of a released file of so many rows."""
    is_of_all = bool(certificate.counts) and sum(certificate.n.values()) == n_rows
    counted = is_of_all and not difference_from_counts(path, certificate)
    certificate = certificate.with_file(path.name, file_sha256(path), counted=counted)
    return certificate.sealed(key) if key else certificate


def shared_name(source: Path) -> str:
    """What the file to share is called: of the same kind as the table, and not packed."""
    return SHARED["tsv" if ".tsv" in source.name.lower() else kind_of(source)]


def refuse_other_folder(out: Path, source: Path | None = None) -> None:
    """Never replace a folder that no `fit` wrote, nor anything else that lies in one; for before the work is done."""
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


def refuse_earlier_result(out: Path) -> None:
    """Refuse a folder that holds a result: its key, without which its files cannot be matched, would be gone."""
    if (out / RUN).is_file():
        raise DataError(
            f"{out}: holds the model and the key of an earlier fit; choose another folder, or replace them (",
            Parameter("replace", True),
            ").",
        )


def read_run(out: Path) -> Run:
    """How the table of an earlier `fit` was read."""
    if not out.is_dir():
        raise DataError(f"{out}: there is no such folder.")
    path = out / RUN
    if not path.is_file():
        raise DataError(f"{out}: the folder holds no result of `fairflows fit` ({RUN} is missing).")
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


def is_sealed(certificate: Certificate, model: Transformer) -> bool:
    """Whether the seal was made with the model's key, and nothing was changed since."""
    key = Released.of(model).secret
    return bool(key) and certificate.sealed(key).seal == certificate.seal


def read_report(out: Path) -> Report:
    """The report of an earlier `fit`; its certificate must be the one that lies beside it."""
    path = out / "report.json"
    if not path.is_file():
        raise DataError(f"{out}: the folder holds no result of `fairflows fit` (report.json is missing).")
    contents = read_json(path)
    try:
        page = Report(contents)
        page.to_html()
    except (ValueError, LookupError, TypeError, AttributeError, TemplateError):
        raise DataError(f"{path}: the file is damaged.") from None
    certificate = Certificate.read(out / "certificate.json")
    if page.contents["certificate"] != certificate.to_dict():
        raise DataError(f"{path}: the file is damaged: its certificate is not the one in certificate.json.")
    page.verified = (out / MODEL).is_dir() and is_sealed(certificate, load(out / MODEL))
    return page


def certified_part(table: Table, run: Run, certificate: Certificate, model: Transformer) -> Table:
    """The rows that a certificate is about: the table as it is, else those of it that `fit` certified on."""
    if len(table) != run.rows or table.fingerprint(Released.of(model).secret) == certificate.rows:
        return table
    return table.split(CERTIFYING, VALIDATION, run.seed)[2]

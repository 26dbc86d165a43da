"""What `fit` gives: in words, as a folder of files, and read from that folder again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from jinja2 import TemplateError

from fairflows.bounds.derived import rounded_down, rounded_up
from fairflows.certificate.certificate import Certificate
from fairflows.certificate.check import difference_from_counts, file_sha256
from fairflows.display import Columns, html_card
from fairflows.exceptions import DataError
from fairflows.release.cell_release import CellRelease
from fairflows.release.crossfit import CrossFit
from fairflows.release.released import Released, Transformer, beside
from fairflows.report.page import Report
from fairflows.report.words import MEANING, badge
from fairflows.storage import FILES, load, save
from fairflows.stream.batches import to_arrow
from fairflows.stream.files import TableWriter
from fairflows.table.folders import check_folder, new_folder, refuse_other_files
from fairflows.table.frames import columns_of
from fairflows.table.grouping import CutsLike, Grouping
from fairflows.table.json_text import read_as, read_json, stated_fields
from fairflows.table.reading import kind_of
from fairflows.table.schema import Schema
from fairflows.table.table import Table
from fairflows.table.text_format import TextFormat

if TYPE_CHECKING:
    from fairflows.attack.auditing import Audit
    from fairflows.frontiers.selection import Candidate
    from fairflows.usefulness import StillTells

RUN, MODEL, FORMAT = "run.json", "model", 1
SHARED = {"csv": "shared.csv", "tsv": "shared.tsv", "excel": "shared.csv", "parquet": "shared.parquet"}
"""The file to share, by what the table came in."""

_FILES = {
    RUN,
    MODEL,
    "certificate.json",
    "certificate.files.json",
    "frontier.csv",
    "report.json",
    "report.html",
    "report-public.html",
}

CERTIFYING, VALIDATION = 0.3, 0.25
"""Shares of the persons that certify, and of the others that are chosen by."""

_SHOWN = 8  # columns


@dataclass(frozen=True)
class Fit:
    """What `fit_table` made.

    Attributes
    ----------
    model : encoder or release
        What was made.
    shared : DataFrame
        What it releases of the table: one row per row of it, in its order.
    certificate : Certificate
        On persons that the model which encodes them was neither fitted to nor chosen by.
    audit : Audit
        The adversaries' results.
    before : Audit
        The same adversaries' results on the raw rows.
    tells : StillTells or None
        What the released rows still tell of each column; None for a latent, which tells everything.
    report : Report
        The page.
    candidates : list of Candidate
        All that could have been chosen, as judged on validation persons, where several were.
    chosen : Candidate or None
        Which was.
    """

    model: Any
    shared: pd.DataFrame
    certificate: Certificate
    audit: Audit
    before: Audit
    tells: StillTells | None
    report: Report
    candidates: list[Candidate] = field(default_factory=list)
    chosen: Candidate | None = None

    def frontier(self) -> pd.DataFrame:
        """One line per candidate, with the chosen one marked."""
        frame = pd.DataFrame([candidate.to_dict() for candidate in self.candidates])
        return frame.assign(chosen=[candidate is self.chosen for candidate in self.candidates])

    def __repr__(self) -> str:
        guesses = [f"  {name:<8} {text}" for name, text in _guesses(self)]
        parts = ["\n".join([_question(self), *guesses, *(f"  {line}" for line in _blind(self))])]
        if self.tells is not None:
            parts.append("\n".join([*_label(self.tells), _tells(self.tells), *_redrawn(self)]))
        parts.append("\n".join([f"{repr(self.certificate).splitlines()[0]}; {_rests(self)}", *_not_covered(self)]))
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        notes, rows = [*_blind(self), *_not_covered(self)], []
        if self.tells is not None:
            notes += [*_label(self.tells), *_redrawn(self)]
            rows = [(told.name, f"{100 * told.told:.0f} %") for told in [*self.tells.columns, self.tells.sensitive]]
        told = Columns(rows, closed="Of what a blind guess gets wrong, a shared row tells")
        heading = f"{MEANING[self.certificate.status]}; {_rests(self)}"
        guesses = Columns(_guesses(self))
        return html_card(heading, _question(self), guesses, notes, told if rows else "", badge=badge(self.certificate))

    @property
    def is_good(self) -> bool:
        """Whether what was asked for is what was reached, as the certificate says."""
        return self.certificate.is_good


def summary(fit: Fit, out: Path, shared: str) -> str:
    """The result of a `fit` in a few lines, and which file goes where."""
    return "\n\n".join([repr(fit), _which_file_goes_where(fit, out, shared)])


def _question(fit: Fit) -> str:
    pair = "" if len(fit.certificate.n) == 2 else " of any two groups"
    return (
        f"Guessing {fit.certificate.sensitive}{pair}, both groups counted alike (a blind guess is right 50 % of the "
        "time):"
    )


def _guesses(fit: Fit) -> list[tuple[str, str]]:
    """How often guesses of the group are right before, after, and in the attack."""
    c = fit.certificate
    lines = [("before", f"about {50 * (1 + _raw(fit)):.1f} %, from the raw rows, by the best of our adversaries")]
    if c.cell_upper is not None:
        confidence = f"{100 * (1 - c.delta):g} %"
        after = rounded_up(50 * (1 + c.cell_upper), 1)
        lines.append(("after", f"at most {after} %, by anybody, in the real population ({confidence} confidence)"))
    elif c.model_upper is not None:
        after = rounded_up(50 * (1 + c.model_upper), 1)
        lines.append(("after", f"at most {after} % if the estimated densities were the truth; nothing about the world"))
    found = rounded_down(50 * (1 + fit.audit.attack_lower), 1)
    return [*lines, ("tried", f"at least {found} % is what {fit.audit.best} reaches against it")]


def _raw(fit: Fit) -> float:
    """The Δ that adversaries find in the raw rows, on validation persons."""
    return max(attack.validation for attack in fit.before.attacks)


def _blind(fit: Fit) -> list[str]:
    c, lines = fit.certificate, []
    if c.target is not None and _raw(fit) <= c.target:
        lines.append("The raw rows already tell no more than the target, as far as our adversaries find.")
    if len(c.n) > 2:
        lines.append(f"A blind guess among all {len(c.n)} groups is right {100 / len(c.n):.1f} % of the time.")
    return lines


def _rests(fit: Fit) -> str:
    c = fit.certificate
    asked = "" if c.target is not None or c.target_accuracy is not None else " No target was given."
    return f"what that rests on is in the report.{asked}"


def _not_covered(fit: Fit) -> list[str]:
    if isinstance(fit.model, CrossFit):
        return []
    return ["It covers new persons, and not the rows that the model was trained on or chosen by, which are most of the "
            "file: encode others with it to share covered rows alone."]  # fmt: skip


def _label(tells: StillTells) -> list[str]:
    if tells.label is None:
        return []
    label = tells.label
    return [
        f"The label {label.name}, learnt from the shared rows, is right for {100 * label.released:.1f} % of other "
        f"persons (from raw rows {100 * label.raw:.1f} %, blind guess {100 * label.majority:.1f} %)."
    ]


def _tells(tells: StillTells) -> str:
    told = [*tells.columns[:_SHOWN], tells.sensitive]
    shown = ", ".join(f"{column.name} {100 * column.told:.0f} %" for column in told)
    more = "" if len(tells.columns) <= _SHOWN else f" ({len(tells.columns) - _SHOWN} more columns in the report)"
    return f"Of what a blind guess gets wrong, a shared row tells: {shown}{more}."


def _redrawn(fit: Fit) -> list[str]:
    """How many drawn rows were somebody's own, and are not shared."""
    models = fit.model.models_ if isinstance(fit.model, CrossFit) else [fit.model]
    laws = [model.rows_given_cell_ for model in models if isinstance(model, CellRelease)]
    drawn = [law.n_redrawn_ for law in laws if law is not None]
    return (
        [f"{sum(drawn):,} drawn rows were the own row of one training person, and were drawn again."] if drawn else []
    )


def _which_file_goes_where(fit: Fit, out: Path, shared: str) -> str:
    files = f"{out / shared}, {out / 'certificate.json'}, {out / 'report-public.html'}"
    lines = [
        f"Share        {files}" if fit.is_good else f"Not yet      {files}: what was asked for is not reached",
        f"Keep         {out / 'report.html'}" + (f", {out / 'frontier.csv'}" if fit.candidates else ""),
        f"Never share  {out / 'model'}: whoever has it and the key can tell persons apart",
        f"To check     fairflows check {out / 'certificate.json'} {out / shared}",
    ]
    return "\n".join(lines)


def write_fit(
    fit: Fit,
    table: Table,
    out: str | Path,
    run: dict[str, Any],
    *,
    shared: str = "shared.parquet",
) -> None:
    """Write everything into one folder, which appears whole or not at all.

    Parameters
    ----------
    fit : Fit
        What `fit_table` gave.
    table : Table
        The rows that it was fitted to.
    out : path
        The folder. One that holds a result already is replaced; any other that is not empty is left alone.
    run : dict
        How the table was read; commands on the folder use it.
    shared : str
        The file to share, CSV or Parquet.
    """
    refuse_other_folder(Path(out))
    with new_folder(Path(out)) as folder:
        save(fit.model, folder / MODEL)
        if fit.candidates:
            fit.frontier().to_csv(folder / "frontier.csv", index=False)
        label = table.y if "label" in fit.certificate.released else None
        _write_shared(fit.shared, label, folder / shared, single=not Released.of(fit.model).draws_rows)
        certificate = naming_released_file(fit.certificate, folder / shared, len(table), Released.of(fit.model).secret)
        (folder / "certificate.json").write_text(certificate.to_json(), encoding="utf-8")
        page = Report({**fit.report.contents, "certificate": certificate.to_dict()}, verified=fit.report.verified)
        (folder / "report.json").write_text(json.dumps(page.contents), encoding="utf-8")
        (folder / "report.html").write_text(page.to_html(), encoding="utf-8")
        (folder / "report-public.html").write_text(page.to_html(public=True), encoding="utf-8")
        grouping = table.grouping.to_dict()
        record = {
            "format": FORMAT,
            **run,
            "grouping": grouping,
            "shared": shared,
            "released": list(certificate.released),
        }
        (folder / RUN).write_text(json.dumps(record, indent=1), encoding="utf-8")


def _write_shared(rows: pd.DataFrame, label: pd.Series | None, path: Path, *, single: bool) -> None:
    """Released rows in random order, with the label where that is released too; without identifiers.

    With `single`, numbers are rounded to single precision, as those of a latent are.
    """
    rows = rows.reset_index(drop=True)
    if label is not None:
        rows = beside(rows, label.to_frame())
    order = np.random.default_rng().permutation(len(rows))  # from the system's entropy: no seed repeats it
    written: pa.Table = to_arrow(columns_of(rows.iloc[order]), None, single=single)
    with TableWriter(path, path) as writer:
        writer.write(written)


def naming_released_file(certificate: Certificate, path: Path, n_rows: int, key: bytes) -> Certificate:
    """The certificate, sealed anew, with the SHA-256 of a released file of so many rows."""
    is_of_all = certificate.headline is not None and sum(certificate.n.values()) == n_rows
    counted = is_of_all and not difference_from_counts(path, certificate)
    certificate = certificate.with_file(path.name, file_sha256(path), counted=counted)
    return certificate.sealed(key) if key else certificate


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

    def table_of(
        self,
        path: Path,
        model: Transformer | None = None,
        *,
        text_format: TextFormat,
        cuts: Mapping[str, CutsLike] | None = None,
        merge_small: int = 0,
    ) -> Table:
        """A file's table, its columns read and grouped as the model's own rows were.

        `text_format` says how a CSV file is written. Before a model exists, `cuts` and `merge_small` say which
        groups to make.
        """
        return Table.read(
            path,
            schema=None if model is None else self._schema(model),
            **asdict(text_format),
            groups=self.grouping or cuts,
            merge_small=merge_small,
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
            f"{out}: holds the model and the key of an earlier fit; choose another folder, or replace them "
            "(replace=True)."
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

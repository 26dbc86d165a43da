"""The folder that `fit` writes: its encoded table, and reading its files again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jinja2 import TemplateError

from fairflows.certificate.document import Certificate
from fairflows.data.reading import kind_of
from fairflows.data.table import Table
from fairflows.encoder.pipelines import transform_table
from fairflows.exceptions import DataError
from fairflows.reporting import Report
from fairflows.scale_tables import TableWriter, to_arrow

RUN = "run.json"
CERTIFYING, VALIDATION = 0.3, 0.25
"""Shares of the persons that certify, and of the others that are chosen by."""


def write_encoded(model: Any, table: Table, path: Path, *, with_label: bool = False) -> None:
    """A table's encoded rows, in random order, without identifiers."""
    encoded = transform_table(model, table)
    if with_label and table.y is not None:
        encoded = encoded.assign(**{str(table.y.name): table.y.to_numpy()})
    order = np.random.default_rng().permutation(len(encoded))  # from the system's entropy: no seed repeats it
    rows: pa.Table = to_arrow(encoded.iloc[order].reset_index(drop=True), None, single=True)
    with TableWriter(path, kind_of(path)) as writer:
        writer.write(rows)


def refuse_other_folder(out: Path) -> None:
    """Never replace a folder that no `fit` wrote."""
    if out.is_dir() and any(out.iterdir()) and not (out / RUN).is_file():
        raise DataError(f"{out}: the folder is not empty and holds no earlier result; choose another one.")


def read_run(out: Path) -> dict[str, Any]:
    """How the table of an earlier `fit` was read."""
    if not out.is_dir():
        raise DataError(f"{out}: there is no such folder.")
    path = out / RUN
    if not path.is_file():
        raise DataError(f"{out}: the folder holds no result of `fairflows fit` ({RUN} is missing).")
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        if run["format"] != 1:
            raise DataError(f"{path}: written by another release of fairflows (format {run['format']!r}).")
        for name in ("sensitive", "drop"):
            if not isinstance(run[name], list):
                raise TypeError(name)
        return {**{"label": None, "identifier": None, "missing": "error", "multiclass": False}, **run}
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path}: the file is damaged.") from None


def read_certificate(path: Path) -> Certificate:
    """A certificate from its file."""
    try:
        return Certificate.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path}: not a certificate: {str(error).splitlines()[0] if str(error) else 'damaged'}"
        ) from None


def read_report(out: Path) -> Report:
    """The report of an earlier `fit`; its certificate must be the one that lies beside it."""
    path = out / "report.json"
    if not path.is_file():
        raise DataError(f"{out}: the folder holds no result of `fairflows fit` (report.json is missing).")
    try:
        page = Report(json.loads(path.read_text(encoding="utf-8")))
        page.to_html()
    except (ValueError, LookupError, TypeError, AttributeError, TemplateError):
        raise DataError(f"{path}: the file is damaged.") from None
    if page.contents["certificate"] != read_certificate(out / "certificate.json").to_dict():
        raise DataError(f"{path}: the file is damaged: its certificate is not the one in certificate.json.")
    return page


def read_table(path: Path, run: dict[str, Any]) -> Table:
    """A file's table in the roles of an earlier `fit`."""
    return Table.read(
        path,
        sensitive=run["sensitive"] if len(run["sensitive"]) > 1 else run["sensitive"][0],
        label=run["label"],
        identifier=run["identifier"],
        drop=run["drop"],
        missing=run["missing"],
        multiclass=run["multiclass"],
    )


def certifying_part(table: Table, run: dict[str, Any]) -> Table:
    """The rows that `fit` certified on, where this is the table that it was given; else the table as it is."""
    if len(table) != run.get("rows"):
        return table
    return table.split(CERTIFYING, VALIDATION, run.get("seed", 0))[2]

"""The certificate in the formats of other tools: an in-toto statement, Croissant and SPDX metadata, a data card.

All of them are written from the certificate and the shared table alone. None of them is signed: `cosign`, `gh
attestation` and `model_signing` sign and verify the statement.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader

from fairflows import __version__
from fairflows.certificate.about import UNTIL_REFUTED, About
from fairflows.certificate.certificate import FORMAT, Certificate
from fairflows.report.verdict import not_covered, statement_rows, verdict
from fairflows.table.columns import is_number, is_time

Json = dict[str, Any]

PREDICATE = f"https://fairflows.github.io/fairflows/certificate/v{FORMAT}"
"""The type of the statement's predicate: a certificate of this format."""

EXPORTED: tuple[str, ...] = ("attestation.json", "croissant.json", "spdx.json", "card.md")
"""The files that `export_files` makes."""

_CROISSANT = "http://mlcommons.org/croissant/"


@dataclass(frozen=True)
class _Kind:
    """How the rows of a kind of release are described."""

    rows: str
    made: str
    limits: str
    tags: str = "tabular, fairflows"


_ALIKE = "cells are made to hold the same share of every sensitive group (t-closeness of whole rows)."
_OWN = "Each row stands for one person of the original table."
_DRAWN = _Kind(
    "rows drawn from cells",
    f"Each row is drawn from a cell; {_ALIKE}",
    "Rows are synthetic: none belongs to a person. Do not look up persons in them.",
    "tabular, synthetic, fairflows",
)
_PANELS = _Kind(
    "rows of persons, drawn from cells",
    f"All rows of a person are drawn together from the person's cell; {_ALIKE}",
    "Rows are synthetic: none belongs to a person. Do not look up persons in them.",
    "tabular, synthetic, longitudinal, fairflows",
)
_CELLS = _Kind("numbers of cells", f"Each row is the number of a person's cell; {_ALIKE}", _OWN)
_LATENTS = _Kind(
    "encoded rows",
    "Each row is a person's row, encoded invertibly; the map of each group is trained to make the groups alike.",
    _OWN,
)


def _kind(certificate: Certificate) -> _Kind:
    return {"row": _DRAWN, "panel": _PANELS, "cell": _CELLS, "latent": _LATENTS}[certificate.released]


def export_files(
    certificate: Certificate, tables: Mapping[str, pd.DataFrame], n_rows: int, digests: Mapping[str, str]
) -> dict[str, str]:
    """Return the contents of all exported files, by their names.

    Parameters
    ----------
    certificate : Certificate
        The certificate of the shared table.
    tables : dict of str to DataFrame
        The shared table by the name of its file, or a sample of its rows; of two linked tables the other one, too.
    n_rows : int
        The number of rows in the first file.
    digests : dict
        SHA-256 of the files that the statement is about, by name: the shared tables, and the public report.
    """
    file = next(iter(tables))
    documents = {
        "attestation.json": attestation(certificate, digests),
        "croissant.json": croissant(certificate, tables, digests),
        "spdx.json": spdx(certificate, file, digests[file]),
    }
    texts = {name: json.dumps(document, indent=2, ensure_ascii=False) for name, document in documents.items()}
    return texts | {"card.md": card(certificate, tables, n_rows)}


def attestation(certificate: Certificate, digests: Mapping[str, str]) -> Json:
    """Return an in-toto Statement v1 about files: its predicate is the certificate."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in digests.items()],
        "predicateType": PREDICATE,
        "predicate": {"format": FORMAT, **certificate.to_dict()},
    }


def croissant(certificate: Certificate, tables: Mapping[str, pd.DataFrame], digests: Mapping[str, str]) -> Json:
    """Return Croissant 1.1 metadata of the shared tables, by file, with their RAI fields and their derivation."""
    names = dict(zip(tables, ("rows", "persons"), strict=False))  # of sets of records
    said, kind, attribute = " ".join(verdict(certificate)), _kind(certificate), certificate.attribute
    return {
        "@context": json.loads(files("fairflows.report").joinpath("croissant-context.json").read_text()),
        "@type": "sc:Dataset",
        "conformsTo": [f"{_CROISSANT}1.1", f"{_CROISSANT}RAI/1.0"],
        "name": Path(next(iter(tables))).stem,
        "description": f"A table of {kind.rows}, made to hide {attribute!r}. {said}",
        "version": "1.0.0",
        "datePublished": certificate.issued,
        **_stated_in_croissant(certificate.about),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": file,
                "name": file,
                "contentUrl": file,
                "encodingFormat": "text/csv" if file.endswith(".csv") else "application/x-parquet",
                "sha256": digests[file],
            }
            for file in tables
        ],
        "recordSet": [
            {"@type": "cr:RecordSet", "@id": name, "name": name, "field": _fields(name, tables[file], file)}
            for file, name in names.items()
        ],
        "rai:personalSensitiveInformation": [f"{attribute} was removed. {said}"],
        "rai:dataPreprocessingProtocol": [kind.made],
        "rai:dataBiases": [_lost(certificate)],
        "rai:dataLimitations": [kind.limits, *(f"Not covered: {case}." for case in not_covered(certificate))],
        "prov:wasDerivedFrom": {"@type": "prov:Entity", "name": "the original table", "identifier": certificate.rows},
        "prov:wasGeneratedBy": {"@type": "prov:Activity", "name": f"fairflows {__version__}"},
    }


def _fields(records: str, table: pd.DataFrame, file: str) -> list[Json]:
    """Return the fields of a set of records, which is a file."""
    return [
        {
            "@type": "cr:Field",
            "@id": f"{records}/{number}",  # an identifier must not have blanks
            "name": str(name),
            "dataType": _data_type(column),
            "source": {"fileObject": {"@id": file}, "extract": {"column": str(name)}},
        }
        for number, (name, column) in enumerate(table.items())
    ]


def _stated_in_croissant(about: About) -> Json:
    """Return what the issuer states, in the fields that Croissant, its RAI vocabulary and schema.org have for it."""
    is_address, is_day = "@" in about.contact, about.valid_until != UNTIL_REFUTED
    issuer = {"@type": "sc:Organization", "name": about.issuer, "email" if is_address else "description": about.contact}
    issuers = [{name: text for name, text in issuer.items() if text}] if about.issuer or about.contact else []
    fields = {
        "creator": issuers,
        "publisher": issuers,
        "audience": {"@type": "sc:Audience", "audienceType": about.recipient} if about.recipient else {},
        "temporalCoverage": about.population.period,
        "spatialCoverage": about.population.place,
        "rai:dataCollection": about.population.frame,
        "rai:dataUseCases": [about.purpose] if about.purpose else [],
        "rai:dataReleaseMaintenancePlan": f"The certificate is valid {'until ' * is_day}{about.valid_until}.",
        "expires": about.valid_until if is_day else "",
    }
    return {name: value for name, value in fields.items() if value}


def spdx(certificate: Certificate, file: str, sha256: str) -> Json:
    """Return an SPDX 3 dataset package about the shared table."""
    space, created = "https://fairflows.github.io/fairflows/spdx/", "_:created"
    maker = {
        "type": "SoftwareAgent",
        "spdxId": f"{space}fairflows",
        "creationInfo": created,
        "name": f"fairflows {__version__}",
    }
    stated, supplied = _stated_in_spdx(certificate.about, f"{space}issuer")
    package = {
        "type": "dataset_DatasetPackage",
        "spdxId": f"{space}{sha256[:16]}",
        "creationInfo": created,
        "name": file,
        "dataset_datasetType": ["structured"],
        "dataset_anonymizationMethodUsed": [_kind(certificate).made],
        "dataset_hasSensitivePersonalInformation": "noAssertion",
        "dataset_knownBias": [_lost(certificate)],
        "software_primaryPurpose": "data",
        "releaseTime": f"{certificate.issued}T00:00:00Z",
        "verifiedUsing": [{"type": "Hash", "algorithm": "sha256", "hashValue": sha256}],
        **stated,
    }
    info = {
        "type": "CreationInfo",
        "@id": created,
        "specVersion": "3.0.1",
        "created": pd.Timestamp.now("UTC").strftime("%Y-%m-%dT%H:%M:%SZ"),
        "createdBy": [maker["spdxId"]],
    }
    elements = [info, maker, *({**element, "creationInfo": created} for element in supplied), package]
    return {"@context": "https://spdx.org/rdf/3.0.1/spdx-context.jsonld", "@graph": elements}


def _stated_in_spdx(about: About, issuer: str) -> tuple[Json, list[Json]]:
    """Return what the issuer states in the fields of an SPDX dataset package, and the issuer as elements of their own.

    `issuer` is the identifier of the element.
    """
    use = [about.purpose, f"for {about.recipient}" if about.recipient else ""]
    fields = {
        "suppliedBy": issuer if about.issuer or about.contact else "",
        "dataset_intendedUse": "; ".join(filter(None, use)),
        "dataset_dataCollectionProcess": ", ".join(filter(None, vars(about.population).values())),
        "validUntilTime": "" if about.valid_until == UNTIL_REFUTED else f"{about.valid_until}T23:59:59Z",
    }
    organisation = {"type": "Organization", "spdxId": issuer, "name": about.issuer, "description": about.contact}
    supplied = [{name: text for name, text in organisation.items() if text}] if fields["suppliedBy"] else []
    return {name: text for name, text in fields.items() if text}, supplied


def card(certificate: Certificate, tables: Mapping[str, pd.DataFrame], n_rows: int) -> str:
    """Return a data card in Markdown, with the header that hubs read."""
    file, *others = tables
    types = dict(zip(tables[file].columns, tables[file].dtypes, strict=True))
    types |= {f"{other}: {name}": dtype for other in others for name, dtype in tables[other].dtypes.items()}
    loader = PackageLoader("fairflows", "report")
    # Every value that the template prints goes through `_cell`.
    environment = Environment(loader=loader, finalize=_cell, trim_blocks=True, keep_trailing_newline=True)
    return environment.get_template("card.md.jinja").render(
        certificate=certificate,
        kind=_kind(certificate),
        name=Path(file).stem,
        file=file,
        version=__version__,
        n_rows=f"{n_rows:,}",
        verdict=verdict(certificate),
        uncovered=not_covered(certificate),
        statements=statement_rows(certificate),
        types=types,
    )


def _lost(certificate: Certificate) -> str:
    return f"Statistics by {certificate.attribute} are lost in these rows, on purpose."


def _data_type(column: pd.Series) -> str:
    if column.dtype == bool:
        return "sc:Boolean"
    if is_time(column.dtype):
        return "sc:Date"
    if is_number(column.dtype):
        return "sc:Integer" if column.dtype.kind in "iu" else "sc:Float"
    return "sc:Text"


def _cell(value: object) -> str:
    """Return text that Markdown shows literally, in one line."""
    text = " ".join(str(value).split())
    for mark in "\\`*_{}[]<>#|":
        text = text.replace(mark, "&lt;" if mark == "<" else "&gt;" if mark == ">" else f"\\{mark}")
    return text

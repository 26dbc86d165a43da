"""Dated notices beside a certificate, ``certificate.notices.json``, for those who received it.

A certificate never changes. A notice says that later persons refuted one of its statements. `check` shows it, and the
next certificate in its place names it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from fairflows.certificate.certificate import Certificate
from fairflows.certificate.digest import Sha256
from fairflows.certificate.file_list import file_sha256
from fairflows.exceptions import DataError
from fairflows.table.folders import locked, new_file
from fairflows.table.json_text import parse_json, read_as, read_text

_FORMAT = 1


@dataclass(frozen=True)
class Notice:
    """One notice: its day, and a sentence."""

    date: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\d$")]
    text: str


@dataclass(frozen=True)
class Notices:
    """The notices about a certificate."""

    format: int  # the version of the JSON
    certificate: Sha256  # of the certificate's file
    notices: list[Notice] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Notices:
        """Read the notices in a file."""
        try:
            found = read_as(parse_json(read_text(path)), cls)
        except ValueError as error:
            raise DataError(f"{path}: no notices about a certificate: {error}") from None
        if found.format != _FORMAT:
            raise DataError(f"{path}: written by another release of fairflows (format {found.format}).")
        return found


def notices_beside(certificate: Path) -> Path:
    """Return where the notices about a certificate are: ``certificate.notices.json`` beside ``certificate.json``."""
    return certificate.with_suffix(".notices.json")


def add_notice(certificate: Path, date: str, text: str) -> None:
    """Add a notice about a certificate, unless it is there already."""
    target, sha256, new = notices_beside(certificate), file_sha256(certificate), Notice(date, text)
    with locked(target):
        found = Notices.read(target) if target.is_file() else Notices(_FORMAT, sha256)
        if found.certificate != sha256:
            raise DataError(f"{target}: is about another certificate, or this one was changed since; remove it first.")
        if new in found.notices:
            return
        with new_file(target) as side:
            written = asdict(replace(found, notices=[*found.notices, new]))
            side.write_text(json.dumps(written, indent=2, ensure_ascii=False), encoding="utf-8")


def earlier_notices(certificate: Path) -> tuple[str, ...]:
    """Return what the next certificate says of the one in a file: the notices that it names, and those about it."""
    if not certificate.is_file():
        return ()
    beside = notices_beside(certificate)
    about = Notices.read(beside).notices if beside.is_file() else []
    return (*Certificate.read(certificate).notices, *(f"{notice.date}: {notice.text}" for notice in about))

"""The producer's list of files that were released under a certificate after it was made.

It lies beside the certificate, ``certificate.files.json`` for ``certificate.json``, and holds the SHA-256 of each file,
and the digest of its contents, beside the SHA-256 of the certificate.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairflows.certificate.certificate import Certificate
from fairflows.certificate.digest import Sha256, contents_of
from fairflows.exceptions import DataError
from fairflows.table.folders import locked, new_file
from fairflows.table.json_text import parse_json, read_as, read_text

_FORMAT = 4


@dataclass(frozen=True)
class FileList:
    """Files that were released under a certificate after it was made."""

    format: int  # the version of the JSON
    certificate: Sha256  # of the certificate's file
    files: dict[str, Sha256] = field(default_factory=dict)  # of each file, by the file's name
    contents: dict[str, Sha256] = field(default_factory=dict)  # the digest of what each of them holds

    @classmethod
    def read(cls, path: Path) -> FileList:
        """Read the list in a file."""
        try:
            found = read_as(parse_json(read_text(path)), cls)
        except ValueError as error:
            raise DataError(f"{path}: not a list of released files: {error}") from None
        if found.format != _FORMAT:
            raise DataError(f"{path}: written by another release of fairflows (format {found.format}).")
        return found


def list_files(certificate: str | Path, files: Sequence[str | Path]) -> FileList:
    """Add files to the producer's list beside a certificate, and return the list.

    The files were encoded by the certified model after the certificate was made. One of the same name as an earlier
    file takes its place. A list that is about another certificate is refused.
    """
    path = Path(certificate)
    document = Certificate.read(path)
    kinds = None if document.contents is None else document.contents.kinds
    added = {Path(file).name: file_sha256(Path(file)) for file in files}
    held = {} if kinds is None else {Path(file).name: contents_of(Path(file), kinds).sha256 for file in files}
    target = list_beside(path)
    with locked(target):
        listed = FileList(_FORMAT, file_sha256(path))
        if target.is_file():
            known = FileList.read(target)
            if known.certificate != listed.certificate:
                about = "is about another certificate, or this one was changed since"
                raise DataError(f"{target}: {about}; remove it first.")
            listed = known
        listed = replace(listed, files={**listed.files, **added}, contents={**listed.contents, **held})
        with new_file(target) as side:
            side.write_text(json.dumps(vars(listed), indent=2, ensure_ascii=False), encoding="utf-8")
    return listed


def list_beside(certificate: Path) -> Path:
    """Return where the list for a certificate is: ``certificate.files.json`` beside ``certificate.json``."""
    return certificate.with_suffix(".files.json")


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: is a folder or a device, not a file.")
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}.") from None

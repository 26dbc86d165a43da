"""The producer's list of released files: their SHA-256 beside that of the certificate, signed where there is a key.

A certificate names the files that were written with it. Files that are encoded later are added to a list beside it,
``certificate.files.json`` for ``certificate.json``; the signature of the list covers the certificate, too.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path

from fairflows.certificate.typed_json import read_as
from fairflows.exceptions import DataError
from fairflows.table.json_text import parse_json, read_text

FORMAT = 1


@dataclass(frozen=True)
class FileList:
    """Which files were released under a certificate.

    Attributes
    ----------
    format : int
        The version of the JSON.
    certificate : str
        The SHA-256 of the certificate's canonical JSON.
    files : dict
        The SHA-256 of each file, by the file's name.
    signature : str
        An Ed25519 signature of the canonical JSON of all of the above, in hexadecimal digits; empty without a key.
    """

    format: int
    certificate: str
    files: dict[str, str] = field(default_factory=dict)
    signature: str = ""

    @classmethod
    def about(cls, certificate_json: str) -> FileList:
        """An empty list for a certificate, given as JSON."""
        return cls(FORMAT, canonical_sha256(certificate_json))

    @classmethod
    def read(cls, path: Path) -> FileList:
        """The list in a file."""
        try:
            found: FileList = read_as(parse_json(read_text(path)), cls)
        except ValueError as error:
            raise DataError(f"{path}: not a list of released files: {error}") from None
        if found.format != FORMAT:
            raise DataError(f"{path}: written by another release of fairflows (format {found.format}).")
        return found

    def adding(self, path: Path) -> FileList:
        """The list with one more file, and without its signature; a name that stands for another file is refused."""
        sha256 = file_sha256(path)
        if self.files.get(path.name, sha256) != sha256:
            raise DataError(f"{path}: the list has another file called {path.name!r}; rename this one.")
        return replace(self, files={**self.files, path.name: sha256}, signature="")

    def to_json(self) -> str:
        """The list as JSON."""
        return json.dumps(vars(self), indent=2, ensure_ascii=False)

    @property
    def signed_bytes(self) -> bytes:
        """What is signed: everything but the signature, as canonical JSON."""
        values = {name: value for name, value in vars(self).items() if name != "signature"}
        return b"fairflows: released files\n" + _canonical(values)


def list_beside(certificate: Path) -> Path:
    """Where the list for a certificate is: ``certificate.files.json`` beside ``certificate.json``."""
    return certificate.with_suffix(".files.json")


def canonical_sha256(text: str) -> str:
    """The SHA-256 of a JSON text, whatever its spaces and the order of its names."""
    return hashlib.sha256(_canonical(parse_json(text))).hexdigest()


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}.") from None


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

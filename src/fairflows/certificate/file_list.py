"""The producer's list of released files: their SHA-256 beside that of the certificate, signed where there is a key.

A certificate names the files that were written with it. Files that are encoded later are added to a list beside it,
``certificate.files.json`` for ``certificate.json``; the signature of the list covers the certificate, too. Signatures
are Ed25519's, through the optional package ``cryptography`` (the extra ``fairflows[sign]``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from fairflows.certificate.document import Certificate
from fairflows.exceptions import DataError
from fairflows.table.folders import check_file, new_file, write_private
from fairflows.table.json_text import parse_json, read_as, read_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

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


def sign(certificate: str | Path, files: Sequence[str | Path] = (), *, key: str | Path | None = None) -> FileList:
    r"""Add files to the producer's list beside a certificate, and sign the list, which covers the certificate.

    Parameters
    ----------
    certificate : path
        ``certificate.json``; the list is ``certificate.files.json`` beside it.
    files : sequence of paths
        Files that were encoded by the certified model after the certificate was made.
    key : path, optional
        The producer's private key, as `new_key` makes it. Without, the list is not signed; one that is signed already
        must be signed again.

    Returns
    -------
    FileList
        The list as it was written.

    Raises
    ------
    DataError
        The list is about another certificate, was signed with another key or changed since; or a file cannot be read.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from fairflows import FairTree, certify, load_adult
    >>> train, _, test = load_adult().split(random_state=0)
    >>> release = FairTree(n_cells=8).fit(train)
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "certificate.json"
    ...     _ = path.write_text(certify(release, test).to_json(), encoding="utf-8")
    ...     _ = (Path(folder) / "cells.csv").write_text("cell\n3\n0\n")
    ...     list(sign(path, [Path(folder) / "cells.csv"]).files)
    ['cells.csv']
    """
    path, key = Path(certificate), None if key is None else Path(key)
    Certificate.read(path)  # which refuses what is none
    target = list_beside(path)
    listed = FileList.about(read_text(path))
    if target.is_file():
        listed = _checked(FileList.read(target), listed.certificate, target, key)
    for file in files:
        listed = listed.adding(Path(file))
    if key is not None:
        listed = replace(listed, signature=_read_private(key).sign(listed.signed_bytes).hex())
    with new_file(target) as side:
        side.write_text(listed.to_json(), encoding="utf-8")
    return listed


def new_key(private_key: str | Path) -> Path:
    """Make a key pair for signing: a private file (0600), and a public one beside it, whose path is returned.

    Parameters
    ----------
    private_key : path
        Where the private key goes, as ``producer.pem``; the public one is then ``producer.public.pem``. Existing files
        are not replaced.
    """
    private = Path(private_key)
    public = private.with_suffix(".public.pem")
    for path in (private, public):
        check_file(path)
        if path.exists():
            raise DataError(f"{path}: there is a file already; a key is not replaced.")
    _, serialization, ed25519 = _cryptography()
    key = ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_private(private, secret)
    with new_file(public) as side:
        side.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return public


def is_signed(message: bytes, signature: str, public_key: Path) -> bool:
    """Whether the holder of the private key signed the message."""
    return _verifies(message, signature, _read_public(public_key))


def _checked(listed: FileList, certificate: str, path: Path, key: Path | None) -> FileList:
    """The list as it is, if it may be added to."""
    if listed.certificate != certificate:
        raise DataError(f"{path}: is about another certificate, or this one was changed since; remove the list first.")
    if listed.signature and key is None:
        raise DataError(f"{path}: is signed: give the private key to sign it again.")
    if listed.signature and key is not None:
        own = _read_private(key).public_key()
        if not _verifies(listed.signed_bytes, listed.signature, own):
            raise DataError(f"{path}: was signed with another key, or changed since; remove the list first.")
    return listed


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _verifies(message: bytes, signature: str, key: Ed25519PublicKey) -> bool:
    exceptions, _, _ = _cryptography()
    try:
        key.verify(bytes.fromhex(signature), message)
    except (exceptions.InvalidSignature, ValueError):  # or no hexadecimal digits at all
        return False
    return True


def _read_private(path: Path) -> Ed25519PrivateKey:
    _, serialization, ed25519 = _cryptography()
    key = _parsed(lambda text: serialization.load_pem_private_key(text, password=None), path)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise DataError(f"{path}: holds no private Ed25519 key that needs no password; make one with --new-key.")
    return key


def _read_public(path: Path) -> Ed25519PublicKey:
    _, serialization, ed25519 = _cryptography()
    key = _parsed(serialization.load_pem_public_key, path)
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise DataError(f"{path}: holds no public Ed25519 key.")
    return key


def _parsed(parse: Callable[[bytes], object], path: Path) -> object:
    """What the text of a file stands for; None where it is no key."""
    text = read_text(path)
    try:
        return parse(text.encode())
    except (ValueError, TypeError):
        return None


def _cryptography() -> tuple[ModuleType, ModuleType, ModuleType]:
    """Its modules of exceptions, of key files and of Ed25519; or an error that says how to get it."""
    try:
        return (
            import_module("cryptography.exceptions"),
            import_module("cryptography.hazmat.primitives.serialization"),
            import_module("cryptography.hazmat.primitives.asymmetric.ed25519"),
        )
    except ImportError:
        raise DataError("Signatures need the package cryptography: pip install 'fairflows[sign]'.") from None

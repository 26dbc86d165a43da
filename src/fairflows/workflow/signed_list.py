"""sign: the producer's list of released files, and the key pair that it is signed with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fairflows.certificate.document import Certificate
from fairflows.certificate.file_list import FileList, is_own_signature, list_beside, new_key_pair, sign_bytes
from fairflows.exceptions import DataError
from fairflows.storage.folders import check_file, new_file
from fairflows.table.json_text import read_text


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
    text = read_text(path)
    try:
        Certificate.from_json(text)
    except ValueError as error:
        raise DataError(f"{path}: not a certificate: {error}") from None
    target = list_beside(path)
    listed = FileList.about(text)
    if target.is_file():
        listed = _checked(FileList.read(target), listed.certificate, target, key)
    for file in files:
        listed = listed.adding(Path(file))
    if key is not None:
        listed = replace(listed, signature=sign_bytes(listed.signed_bytes, key))
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
    secret, shared = new_key_pair()
    descriptor = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret)
    with new_file(public) as side:
        side.write_bytes(shared)
    return public


def _checked(listed: FileList, certificate: str, path: Path, key: Path | None) -> FileList:
    """The list as it is, if it may be added to."""
    if listed.certificate != certificate:
        raise DataError(f"{path}: is about another certificate, or this one was changed since; remove the list first.")
    if listed.signature and key is None:
        raise DataError(f"{path}: is signed: give the private key to sign it again.")
    if listed.signature and key is not None and not is_own_signature(listed.signed_bytes, listed.signature, key):
        raise DataError(f"{path}: was signed with another key, or changed since; remove the list first.")
    return listed

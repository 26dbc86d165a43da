"""The user's private records: a folder with a key of its own, and a file for each entry, written under a lock.

The key recognises persons and rows whatever key a model has. The folder is named by the environment variable
FAIRFLOWS_LEDGER, else it is the user's data folder for fairflows:

============  =========================================================================================================
``key``       the secret of the records, made once
``*.npz``     one file per look at persons: see `fairflows.certificate.looks`
``releases``  one file per release of rows: see `fairflows.certificate.releases`
``lock``      in each of the two folders: held while entries are counted or written
============  =========================================================================================================
"""

from __future__ import annotations

import io
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from filelock import FileLock, Timeout

from fairflows.exceptions import DataError, warn_user
from fairflows.table.folders import new_file, write_private
from fairflows.table.json_text import parse_json
from fairflows.table.keys import KEY_BYTES, Hashes, Key, fingerprint, new_key

ENVIRONMENT = "FAIRFLOWS_LEDGER"

RELEASES = "releases"
"""The part of the records that is about releases."""

_KEY, _LOCK = "key", "lock"
_PATIENCE = 10  # seconds of waiting for the lock before the user is told


@contextmanager
def open_records(part: str = "") -> Iterator[tuple[Path, Key]]:
    """Open the folder of the records, or a part of it, locked for the time of the block; yield it and the key.

    Raises
    ------
    DataError
        The folder cannot be written, or its key is missing or damaged.
    """
    named = os.environ.get(ENVIRONMENT)
    root = Path(named).expanduser().absolute() if named else platformdirs.user_data_path("fairflows", appauthor=False)
    with _locked(root):
        with _explained(root):
            key = _key_of(root)
        if not part:
            yield root, key
            return
    with _locked(root / part):
        yield root / part, key


def write_entry(path: Path, key: Key, about: Mapping[str, Any], hashes: Mapping[str, Hashes]) -> None:
    """Write an entry that only the user may read; it appears whole or not at all."""
    data, arrays = io.BytesIO(), dict[str, Any](hashes)
    np.savez(data, about=np.array(json.dumps({"key": _digest(key), **about})), **arrays)
    _write(path, data.getvalue())


def new_name() -> tuple[str, str]:
    """Return a name for a new entry, without a suffix, and its date, in UTC."""
    now = datetime.now(UTC)
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(8)}", now.isoformat(timespec="seconds")


def read_entry(
    path: Path, key: Key, version: int, facts: Iterable[str], names: Iterable[str], what: str
) -> tuple[list[Any], list[Hashes]]:
    """Read the facts of an entry of a format, and its arrays of hashes.

    Raise if it is damaged, or was written with another key: an entry that is skipped would not be counted.
    """
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            about = parse_json(str(file["about"]))
            is_known = about["format"] == version
            hashes, found = ([file[n] for n in names], [about[n] for n in facts]) if is_known else ([], [])
        if any(part.dtype != np.uint64 or part.ndim != 1 for part in hashes):
            raise ValueError("hashes are a list of 64-bit numbers")
        written = about["key"]
    except Exception:  # a damaged archive of arrays raises errors of many classes
        raise DataError(
            f"{path}: cannot be read: the file is damaged, cut off, or another program's. It records {what}: restore "
            "it from a copy."
        ) from None
    if not is_known:
        raise DataError(
            f"{path}: the file has format {about['format']}, and this release of fairflows reads {version}. It records "
            f"{what}: remove it where that need not be known any more, or name another folder ({ENVIRONMENT})."
        )
    if written != _digest(key):
        raise DataError(f"{path}: was written with another key than {_KEY!r} of the records; restore that key.")
    return found, hashes


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Make a private folder, and keep other processes out of it for the time of the block."""
    lock = FileLock(folder / _LOCK, mode=0o600)
    with _explained(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=_PATIENCE)
        except Timeout:
            warn_user(f"{folder}: another process is writing records in this folder; waiting until it is done.")
            lock.acquire()
    try:
        with _explained(folder):
            for path in folder.glob(".*.partial*"):  # a process was killed while it wrote: nobody else writes now
                path.unlink()
        yield
    finally:
        lock.release()


def _key_of(folder: Path) -> Key:
    """Return the records' secret, which is made when the folder is new."""
    path = folder / _KEY
    if not path.exists():
        others = sorted(other.name for other in folder.iterdir() if other.name != _LOCK)
        if any(name == RELEASES or name.endswith(".npz") for name in others):
            raise DataError(
                f"{path}: the key is missing, and without it no person in these records is recognised. Restore it, or "
                f"let {ENVIRONMENT} name another folder."
            )
        if others:
            raise DataError(
                f"{folder}: holds {others[0]!r}, which fairflows did not write; {ENVIRONMENT} must name a folder that "
                "is used for nothing else."
            )
        folder.chmod(0o700)
        _write(path, bytes(new_key()))
    secret = path.read_bytes()
    if len(secret) != KEY_BYTES:
        raise DataError(f"{path}: the key is damaged: it must have {KEY_BYTES} bytes; it has {len(secret)}.")
    return Key(secret)


def _write(path: Path, data: bytes) -> None:
    with _explained(path.parent), new_file(path) as side:
        write_private(side, data)


def _digest(key: Key) -> str:
    """Return eight digits that detect a wrong key; they do not help in guessing one."""
    return fingerprint(["book of looks"], key)[:8]


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn a system error into one that names the folder's purpose and how to choose another."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
    except DataError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        reason = error.__cause__.strerror or str(error.__cause__)
    else:
        return
    raise DataError(
        f"{folder}: looks at persons and releases of rows are recorded in this folder, which cannot be used: {reason}. "
        f"The environment variable {ENVIRONMENT} names another one."
    )

"""The user's record of looks: how many different certificates the same persons have given.

A certificate spends its probability of error when it looks at persons, so looks are counted for the persons and not for
a model: a model that is fitted again, under another key or into another folder, does not make them new. Asking again
for the certificate of the same model, rows and settings is not a new look: it gives the same numbers, which are known
already. Looks at persons without names are not counted: one column less would make other persons of them. The record is
a private folder of the user's:

===========  ==========================================================================================================
``key``      the record's own secret, made once: it recognises persons whatever key a model has
``*.npz``    one file per look: keyed hashes of persons and rows, the look's number, the model, a hash of the request
``releases`` the same of releases of tables, which no look is needed for: two of the same rows are warned of
``lock``     held while looks are counted or written
===========  ==========================================================================================================

The folder is named by the environment variable FAIRFLOWS_LEDGER, else it is the user's data folder for fairflows.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import platformdirs
from filelock import FileLock, Timeout

from fairflows.exceptions import DataError, warn_user
from fairflows.table.folders import new_file, write_private
from fairflows.table.json_text import parse_json
from fairflows.table.keys import KEY_BYTES, Key, fingerprint, new_key
from fairflows.table.ledger import RowsSeen, is_part

ENVIRONMENT = "FAIRFLOWS_LEDGER"

_FORMAT = 2
_KEY, _LOCK = "key", "lock"
_PATIENCE = 10  # seconds of waiting for the lock before the user is told


@dataclass(frozen=True)
class Look:
    """One look at persons."""

    number: int  # 1 for the first look at these persons
    model: str  # hash of the model that was certified
    request: str  # hash of model, rows and settings: the same request is the same look
    date: str = ""  # when it was recorded, in UTC; empty for one that is not recorded


@dataclass(frozen=True)
class Looks:
    """The looks that were recorded, in a folder: see `open_looks`, which holds the lock."""

    folder: Path
    key: Key  # the record's own secret

    @property
    def releases(self) -> Looks:
        """Record of releases, kept like looks: two releases of the same rows may reveal everything."""
        folder = self.folder / "releases"
        with _explained(self.folder):
            folder.mkdir(mode=0o700, exist_ok=True)
        return Looks(folder, self.key)

    def request(self, *parts: object) -> str:
        """Hash the model, the rows and the settings of a certificate."""
        return fingerprint([repr(part) for part in parts], self.key)

    def at(self, rows: RowsSeen) -> list[Look]:
        """Return the looks at any of these persons, in order of their numbers."""
        recorded = [_read(path, self.key) for path in sorted(self.folder.glob("*.npz"))]
        found = [look for seen, look in recorded if _share_persons(seen, rows)]
        return sorted(found, key=lambda look: (look.number, look.date))

    def find(self, rows: RowsSeen, model: str, request: str) -> tuple[Look, list[Look]]:
        """Return the look that a request is, recorded or not, and the other looks at these persons."""
        found = self.at(rows)
        others = [look for look in found if look.request != request]
        known = next((look for look in found if look.request == request), None)
        number = 1 + max(len(found), *(look.number for look in found), 0)
        return known or Look(number, model, request), others

    def record(self, rows: RowsSeen, look: Look) -> Look:
        """Record a look before anything is computed from the rows: a process that is killed later has looked."""
        if look.date:
            return look
        now = datetime.now(UTC)
        look = replace(look, date=now.isoformat(timespec="seconds"))
        about = {"format": _FORMAT, "key": _digest(self.key), "named": rows.named, **asdict(look)}
        data = io.BytesIO()
        persons, contents = np.unique(rows.persons), np.sort(rows.contents)
        np.savez(data, about=np.array(json.dumps(about)), persons=persons, contents=contents)
        _write(self.folder / f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(8)}.npz", data.getvalue())
        return look


@contextmanager
def open_looks() -> Iterator[Looks]:
    """Open the user's record of looks, locked for the time of the block: no other process records one meanwhile.

    Raises
    ------
    DataError
        The folder cannot be written, or a file in it is damaged: a look that cannot be counted cannot be certified.
    """
    named = os.environ.get(ENVIRONMENT)
    folder = Path(named).expanduser().absolute() if named else platformdirs.user_data_path("fairflows", appauthor=False)
    lock = FileLock(folder / _LOCK, mode=0o600)
    with _explained(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=_PATIENCE)
        except Timeout:
            warn_user(f"{folder}: another process is counting looks in this folder; waiting until it is done.")
            lock.acquire()
    try:
        with _explained(folder):
            for path in folder.glob(".*.partial*"):  # a process was killed while it wrote: nobody else writes now
                path.unlink()
            key = _key_of(folder)
        yield Looks(folder, key)
    finally:
        lock.release()


def _key_of(folder: Path) -> Key:
    """Return the record's secret, which is made when the record is new."""
    path = folder / _KEY
    if not path.exists():
        others = sorted(other.name for other in folder.iterdir() if other.name != _LOCK)
        if any(name.endswith(".npz") for name in others):
            raise DataError(
                f"{path}: the key is missing, and without it no person in this record of looks is recognised. Restore "
                f"it, or let {ENVIRONMENT} name another folder."
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
    """Write a file that only the user may read; it appears whole or not at all."""
    with _explained(path.parent), new_file(path) as side:
        write_private(side, data)


def _share_persons(one: RowsSeen, other: RowsSeen) -> bool:
    """Whether two looks have a person in common; without names, whether one file may be a part of the other."""
    if one.named and other.named:
        return one.same_names(other) > 0
    return one.under_other_names(other) > 0 or is_part(*sorted((one.contents, other.contents), key=len))


def _read(path: Path, key: Key) -> tuple[RowsSeen, Look]:
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            about = parse_json(str(file["about"]))
            persons, contents = file["persons"], file["contents"]
        if any(hashes.dtype != np.uint64 or hashes.ndim != 1 for hashes in (persons, contents)):
            raise ValueError("hashes are a list of 64-bit numbers")
        written, format_ = about["key"], about["format"]
        rows = RowsSeen(about["named"], persons, contents)
        look = Look(about["number"], about["model"], about["request"], about["date"]) if format_ == _FORMAT else None
    except (OSError, ValueError, KeyError, TypeError, EOFError, MemoryError, NotImplementedError, zipfile.BadZipFile):
        raise DataError(
            f"{path}: cannot be read: the file is damaged, cut off, or somebody else's. It records a look at persons "
            "that must be counted before they are certified on again: restore it from a copy."
        ) from None
    if look is None:
        raise DataError(f"{path}: the file has format {format_}, and this release of fairflows reads {_FORMAT}.")
    if written != _digest(key):
        raise DataError(f"{path}: was written with another key than {path.parent / _KEY}; restore that key.")
    return rows, look


def _digest(key: Key) -> str:
    """Return eight digits that detect a wrong key; they do not help in guessing one."""
    return fingerprint(["book of looks"], key)[:8]


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn a system error into one that names the folder's purpose and how to choose another."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{folder}: certificates from the same persons are counted in this folder, which cannot be used: "
            f"{error.strerror or error}. The environment variable {ENVIRONMENT} names another one."
        ) from None

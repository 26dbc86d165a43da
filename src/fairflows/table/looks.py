"""The user's book of looks: how many certificates the same persons have given, whichever models they were about.

A certificate spends its probability of error when it looks at persons, so looks are counted for the persons and not for
a model: a model that is fitted again, under another key or into another folder, does not make them new. The book is a
private folder of the user's:

===========  ==========================================================================================================
``key``      the book's own secret, made once: it recognises persons whatever key a model has
``*.npz``    one file per look: keyed hashes of persons and rows, the look's number, the model, the certificate's mark
``lock``     held while looks are counted or written
===========  ==========================================================================================================

The folder is named by the environment variable FAIRFLOWS_LEDGER, else it is the user's data folder for fairflows.
"""

from __future__ import annotations

import io
import json
import math
import os
import secrets
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import platformdirs
import pyarrow as pa
import pyarrow.compute as pc
from filelock import FileLock, Timeout
from scipy.stats import binom

from fairflows.exceptions import DataError, warn_user
from fairflows.table.columns import distinct
from fairflows.table.folders import new_file, write_private
from fairflows.table.json_text import parse_json
from fairflows.table.ledger import BY_CHANCE, RowsSeen
from fairflows.table.persons import KEY_BYTES, Hashes, Key, Persons, content_hashes, fingerprint, keyed_hashes, new_key

ENVIRONMENT = "FAIRFLOWS_LEDGER"

_FORMAT = 1
_KEY, _LOCK = "key", "lock"
_PATIENCE = 10  # seconds of waiting for the lock before the user is told


@dataclass(frozen=True)
class Look:
    """One certificate's look at persons."""

    number: int  # which certificate from these persons it is; 1 is the first
    model: str  # the hash of the model that was certified
    date: str  # when it was reserved, in UTC
    # The certificate's seal, or another text that is unique to it. None if no certificate came of the look, because the
    # work is going on or was interrupted: it counts all the same.
    mark: str | None = None


@dataclass
class Reservation:
    """A look whose number is taken: to be completed when the certificate is made."""

    look: Look  # the look, with its number
    earlier: list[Look]  # the looks at any of these persons before it
    _book: Book
    _path: Path
    _rows: RowsSeen

    @property
    def number(self) -> int:
        """Which certificate from these persons it is."""
        return self.look.number

    def complete(self, mark: str) -> None:
        """Record the certificate that the look led to, by its seal or another text that is unique to it."""
        self.look = replace(self.look, mark=mark)
        with self._book.locked():
            self._book.write(self._path, self._rows, self.look)

    def cancel(self) -> None:
        """Take the look back: only if nothing was computed from the rows."""
        with self._book.locked(), _explained(self._book.folder):
            self._path.unlink(missing_ok=True)


class Book:
    """The looks that were recorded, in a folder: see `open_book`, which holds the lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = FileLock(folder / _LOCK, mode=0o600)

    def rows(self, X: pd.DataFrame, names: Iterable[object] | None) -> RowsSeen:
        """Rows as this book knows rows, of persons with these names, in any order, repeated or not.

        Rows of persons whom nobody named (None) are recognised by their values, also in a look that had names.
        """
        if names is None:
            return RowsSeen.of(X, Persons.unnamed(len(X)), self._key)
        persons = distinct(keyed_hashes(normal_names(names), self._key, "person"))
        return RowsSeen(True, persons, content_hashes(X, self._key))

    def looks_at(self, rows: RowsSeen) -> list[Look]:
        """The looks at any of these persons, in order of their numbers."""
        found = [look for seen, look in self._looks() if _share_persons(seen, rows)]
        return sorted(found, key=lambda look: (look.number, look.date))

    def next_look(self, rows: RowsSeen) -> int:
        """The number of a new certificate from these persons: 1 when no earlier one looked at any of them."""
        return _next_number(self.looks_at(rows))

    def find(self, mark: str) -> Look | None:
        """The look of a certificate; None if this book does not know it."""
        return next((look for _, look in self._looks() if look.mark == mark), None)

    def reserve(self, rows: RowsSeen, model: str) -> Reservation:
        """Take the next number for a certificate of a model, before anything is computed from the rows.

        The look is recorded at once: a process that is killed before it completes the look has spent it.
        """
        with self.locked():
            earlier, now = self.looks_at(rows), datetime.now(UTC)
            look = Look(_next_number(earlier), model, now.isoformat(timespec="seconds"))
            path = self.folder / f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(8)}.npz"
            self.write(path, rows, look)
        return Reservation(look, earlier, self, path, rows)

    def write(self, path: Path, rows: RowsSeen, look: Look) -> None:
        """Write one look's file."""
        about = {"format": _FORMAT, "key": _digest(self._key), "named": rows.named, **asdict(look)}
        data = io.BytesIO()
        np.savez(data, about=np.array(json.dumps(about)), persons=rows.persons, contents=rows.contents)
        self._write_private(path, data.getvalue())

    def _write_private(self, path: Path, data: bytes) -> None:
        with _explained(self.folder), new_file(path) as side:
            write_private(side, data)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock; a thread that holds it already may do so again."""
        with _explained(self.folder):
            try:
                self._lock.acquire(timeout=_PATIENCE)
            except Timeout:
                warn_user(f"{self.folder}: another process is counting looks in this folder; waiting until it is done.")
                self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    @cached_property
    def _key(self) -> Key:
        """The book's secret, made when the book is new; called with the lock held."""
        path = self.folder / _KEY
        with _explained(self.folder):
            if not path.exists():
                self._check_that_it_is_new()
                self.folder.chmod(0o700)
                self._write_private(path, bytes(new_key()))
            secret = path.read_bytes()
        if len(secret) != KEY_BYTES:
            raise DataError(f"{path}: the key is damaged: it must have {KEY_BYTES} bytes; it has {len(secret)}.")
        return Key(secret)

    def _check_that_it_is_new(self) -> None:
        others = sorted(path.name for path in self.folder.iterdir() if path.name != _LOCK)
        if any(name.endswith(".npz") for name in others):
            raise DataError(
                f"{self.folder / _KEY}: the key is missing, and without it nobody in this book of looks is recognised. "
                f"Restore it, or let {ENVIRONMENT} name another folder."
            )
        if others:
            raise DataError(
                f"{self.folder}: holds {others[0]!r}, which fairflows did not write; {ENVIRONMENT} must name a folder "
                "that is used for nothing else."
            )

    def _looks(self) -> Iterator[tuple[RowsSeen, Look]]:
        for path in sorted(self.folder.glob("*.npz")):
            yield _read(path, _digest(self._key))


@contextmanager
def open_book() -> Iterator[Book]:
    """The user's book of looks, locked for the time of the block: nobody else reserves a number meanwhile.

    Raises
    ------
    DataError
        The folder cannot be written, or a file in it is damaged: a look that cannot be counted cannot be certified.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [31, 45, 27]})
    >>> with open_book() as book:
    ...     rows = book.rows(frame, names=["ann", "bob", "eve"])
    ...     look = book.reserve(rows, model="the model's hash")
    >>> look.number  # and here the certificate is made, without the lock
    1
    >>> look.complete(mark="the certificate's seal")
    >>> with open_book() as book:
    ...     book.next_look(book.rows(frame.loc[[1]], names=["bob"])), book.find("the certificate's seal").number
    (2, 1)
    """
    named = os.environ.get(ENVIRONMENT)
    folder = Path(named).expanduser().absolute() if named else platformdirs.user_data_path("fairflows", appauthor=False)
    with _explained(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    book = Book(folder)
    with book.locked():
        with _explained(folder):
            for path in folder.glob(".*.partial*"):  # a process was killed while it wrote: nobody else writes now
                path.unlink()
        yield book


def normal_names(names: Iterable[object]) -> list[str]:
    """Identifiers as the book compares them, without blanks around them, leading zeros, or ".0" after an integer.

    Two persons of one file may become one by this. That is on the safe side here, where a person who is not recognised
    would be certified on as if she were new.

    Examples
    --------
    >>> normal_names(["0000007", "7.0", " 7", 7, "000", "A07"])
    ['7', '7', '7', '7', '0', 'A07']
    """
    trimmed = pc.utf8_trim_whitespace(pa.array([str(name) for name in names], pa.string()))
    return pc.replace_substring_regex(trimmed, r"^0*([0-9]+)(\.0*)?$", r"\1").to_pylist()


def _share_persons(one: RowsSeen, other: RowsSeen) -> bool:
    """Whether two looks have a person in common; without names, whether chance does not explain the rows alike."""
    if one.named and other.named:
        return one.shared(other) > 0
    return one.shared(other) > 0 or _is_part(*sorted((one.contents, other.contents), key=len))


def _is_part(part: Hashes, whole: Hashes) -> bool:
    """Whether all rows of one file are in another, in any order, where chance would have brought in others.

    If both were drawn from one law, Binomial(t, p) of a value's t rows in both files would be in the smaller file, with
    p its share of all rows; in a part there are never more than half. The same file in another order is always a part.
    """
    if not len(part):
        return False
    values, places = np.unique(np.concatenate([part, whole]), return_inverse=True)
    total = np.bincount(places)
    if (2 * np.bincount(places[: len(part)], minlength=len(values)) > total).any():
        return False
    log_chance = binom.logcdf(total // 2, total, len(part) / len(places)).sum()
    return len(part) == len(whole) or bool(log_chance < math.log(BY_CHANCE))


def _next_number(earlier: list[Look]) -> int:
    """Above all earlier numbers, also where a look was cancelled, and above the number of looks that share persons."""
    return 1 + max(len(earlier), max((look.number for look in earlier), default=0))


def _read(path: Path, key: str) -> tuple[RowsSeen, Look]:
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            about = parse_json(str(file["about"]))
            persons, contents = _hashes(file["persons"]), _hashes(file["contents"])
        written, format_ = about["key"], about["format"]
        rows = RowsSeen(about["named"], persons, contents)
        look = Look(about["number"], about["model"], about["date"], about["mark"])
    except (OSError, ValueError, KeyError, TypeError, EOFError, MemoryError, NotImplementedError, zipfile.BadZipFile):
        raise DataError(
            f"{path}: cannot be read: the file is damaged, cut off, or somebody else's. It records a look at persons "
            "that must be counted before they are certified on again: restore it from a copy."
        ) from None
    if format_ != _FORMAT:
        raise DataError(f"{path}: the file has format {format_}, and this release of fairflows reads {_FORMAT}.")
    if written != key:
        raise DataError(f"{path}: was written with another key than {path.parent / _KEY}; restore that key.")
    return rows, look


def _hashes(array: np.ndarray) -> Hashes:
    if array.dtype != np.uint64 or array.ndim != 1:
        raise ValueError("hashes are a list of 64-bit numbers")
    return array


def _digest(key: Key) -> str:
    """Eight digits find a wrong key, and are no help in guessing one."""
    return fingerprint(["book of looks"], key)[:8]


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """An error of the system as one that says what the folder is for, and how to choose another."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{folder}: certificates from the same persons are counted in this folder, which cannot be used: "
            f"{error.strerror or error}. The environment variable {ENVIRONMENT} names another one."
        ) from None

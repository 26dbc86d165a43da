"""The user's record of looks: how many different certificates the same persons have given.

A certificate spends its probability of error when it looks at persons, so looks are counted for the persons and not for
a model: a model that is fitted again, under another key or into another folder, does not make them new. Asking again
for the certificate of the same model, rows and settings is not a new look: it gives the same numbers, which are known
already. Looks at persons without names are not counted: one column less would make other persons of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from fairflows.certificate.records import new_name, open_records, read_entry, write_entry
from fairflows.table.keys import Key, fingerprint
from fairflows.table.ledger import RowsSeen, is_part

_FORMAT = 2


@dataclass(frozen=True)
class RecordedLook:
    """One look at persons."""

    number: int  # 1 for the first look at these persons
    model: str  # hash of the model that was certified
    request: str  # hash of model, rows and settings: the same request is the same look
    date: str = ""  # when it was recorded, in UTC; empty for one that is not recorded


@dataclass(frozen=True)
class Looks:
    """The looks that were recorded, in a folder: see `open_looks`, which holds the lock."""

    folder: Path
    key: Key  # the records' own secret

    def request(self, *parts: object) -> str:
        """Hash the model, the rows and the settings of a certificate."""
        return fingerprint([repr(part) for part in parts], self.key)

    def at(self, rows: RowsSeen) -> list[RecordedLook]:
        """Return the looks at any of these persons, in order of their numbers."""
        recorded = [_read(path, self.key) for path in sorted(self.folder.glob("*.npz"))]
        found = [look for seen, look in recorded if _share_persons(seen, rows)]
        return sorted(found, key=lambda look: (look.number, look.date))

    def find(self, rows: RowsSeen, model: str, request: str) -> tuple[RecordedLook, list[RecordedLook]]:
        """Return the look that a request is, recorded or not, and the other looks at these persons."""
        found = self.at(rows)
        others = [look for look in found if look.request != request]
        known = next((look for look in found if look.request == request), None)
        number = 1 + max(len(found), *(look.number for look in found), 0)
        return known or RecordedLook(number, model, request), others

    def record(self, rows: RowsSeen, look: RecordedLook) -> RecordedLook:
        """Record a look before anything is computed from the rows: a process that is killed later has looked."""
        if look.date:
            return look
        name, date = new_name()
        look = replace(look, date=date)
        hashes = {"persons": np.unique(rows.persons), "contents": np.sort(rows.contents)}
        about = {"format": _FORMAT, "named": rows.named, **asdict(look)}
        write_entry(self.folder / f"{name}.npz", self.key, about, hashes)
        return look


@contextmanager
def open_looks() -> Iterator[Looks]:
    """Open the user's record of looks, locked for the time of the block: no other process records one meanwhile.

    Raises
    ------
    DataError
        The folder cannot be written, or a file in it is damaged: a look that cannot be counted cannot be certified.
    """
    with open_records() as (folder, key):
        yield Looks(folder, key)


def _share_persons(one: RowsSeen, other: RowsSeen) -> bool:
    """Whether two looks have a person in common; without names, whether one file may be a part of the other."""
    if one.named and other.named:
        return one.same_names(other) > 0
    return one.under_other_names(other) > 0 or is_part(*sorted((one.contents, other.contents), key=len))


def _read(path: Path, key: Key) -> tuple[RowsSeen, RecordedLook]:
    what = "a look at persons that must be counted before they are certified on again"
    facts = ("named", "number", "model", "request", "date")
    (named, *of_look), (persons, contents) = read_entry(path, key, _FORMAT, facts, ("persons", "contents"), what)
    return RowsSeen(named, persons, contents), RecordedLook(*of_look)

"""The ledger of a model: whose rows it was fitted to, or chosen by.

A certificate holds for persons that nothing was fitted to or chosen by. That is easily broken by accident, so every
fitted encoder keeps a ledger. It holds keyed hashes only. Looks at certifying persons are counted elsewhere, because
they do not belong to one model: see `fairflows.certificate.looks`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fairflows.exceptions import DataError
from fairflows.table.persons import (
    Hashes,
    Persons,
    Secret,
    content_hashes,
    keyed_hashes,
    secrets_travel,
)


@dataclass(frozen=True)
class RowsSeen:
    """Hashes of rows."""

    named: bool  # whether an identifier says whose rows they are
    persons: Hashes  # the hash of each row's person; empty where nobody is named
    contents: Hashes  # the hash of each row's values

    @classmethod
    def of(cls, X: pd.DataFrame, persons: Persons, key: Secret) -> RowsSeen:
        """Hash the rows of a frame and the persons that they belong to."""
        contents = content_hashes(X, key)
        if persons.names is None:
            return cls(False, np.empty(0, np.uint64), contents)
        return cls(True, keyed_hashes(persons.names, key, "person")[persons.codes], contents)

    def __len__(self) -> int:
        """Return the number of persons, or of rows where nobody is named."""
        return len(np.unique(self.persons) if self.named else self.contents)

    def shared(self, other: RowsSeen) -> int:
        """Count the other's persons who are here by name, and its other rows that are recognised by their values."""
        return self.same_names(other) + self.under_other_names(other)

    def same_names(self, other: RowsSeen) -> int:
        """Count the other's persons who are here by name."""
        return len(np.intersect1d(other.persons, self.persons))

    def under_other_names(self, other: RowsSeen) -> int:
        """Count the other's rows of persons whose names are not here, that are recognised by their values."""
        contents = other.contents
        if self.named and other.named:
            contents = contents[~np.isin(other.persons, self.persons)]
        return self._recognised(contents)

    def would_be_seen(self, other: RowsSeen) -> bool:
        """Whether `shared` would notice if the other's rows were all among these."""
        return (self.named and other.named) or self._brings_new_values(len(other.contents))

    def _recognised(self, two: Hashes) -> int:
        """Count rows that are recognised by their values.

        Rows of common values prove nothing. The rows are these, or a part of these where none of them is new though so
        many fresh rows would bring new values. And rows that only one person has in each file are the same ones where
        they are more than five times as frequent as rows of equal values are within this file.
        """
        one = self.contents
        if is_part(two, one) and (len(one) == len(two) or self._brings_new_values(len(two))):
            return len(two)
        once = _once(one)
        alike = len(np.intersect1d(once, _once(two), assume_unique=True))
        by_chance = len(two) * (len(one) - len(once) + 1) / max(len(one), 1)
        return alike if alike > 5 * by_chance else 0

    def _brings_new_values(self, n: int) -> bool:
        """Whether n fresh rows would hold new values, by Good and Turing: each does with the share of those seen once.

        With 14 of them expected, none comes with probability e⁻¹⁴, less than one in a million.
        """
        return n * len(_once(self.contents)) >= 14 * max(len(self.contents), 1)

    def to_dict(self) -> dict[str, bool | str]:
        """Return plain values, which do not say whose rows are whose."""
        persons = np.unique(self.persons)
        return {"named": self.named, "persons": _text(persons), "contents": _text(np.sort(self.contents))}

    @classmethod
    def from_dict(cls, values: Mapping[str, bool | str]) -> RowsSeen:
        """Read what `to_dict` gave."""
        return cls(bool(values["named"]), _hashes(str(values["persons"])), _hashes(str(values["contents"])))


class Ledger:
    """Which rows a model, or all models of one frontier, were fitted to or chosen by.

    Parameters
    ----------
    key : bytes
        The model's secret, without which hashes say nothing; it is not written with the ledger.
    used : list of RowsSeen or None
        The rows that were trained on, then those of every later choice (validation rows). None for a ledger that came
        out of a pickle: pickles leave the list out.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [31, 45, 27]}, index=pd.Index(["ann", "bob", "eve"], name="name"))
    >>> ledger = Ledger.of(frame, Persons.of(frame.index), key=b"secret")
    >>> ledger.already_used(ledger.read(frame.loc[["eve"]], Persons.of(["eve"])))
    1
    """

    def __init__(self, key: Secret, used: list[RowsSeen] | None) -> None:
        self.key = key
        self._used = used

    @property
    def used(self) -> list[RowsSeen]:
        """The rows that were trained on, then those of every later choice."""
        if self._used is None:
            raise DataError(
                "The model came out of a pickle, which leaves out the list of the rows that it was fitted to. Without "
                "it nobody can tell these rows from new ones: keep models by fairflows.save and fairflows.load."
            )
        return self._used

    @classmethod
    def of(cls, X: pd.DataFrame, persons: Persons, key: Secret) -> Ledger:
        """Make a ledger for a model that was trained on these rows."""
        return cls(key, [RowsSeen.of(X, persons, key)])

    def use(self, X: pd.DataFrame, persons: Persons) -> None:
        """Record that a choice was made on these rows (which model, how many cells): they can certify nothing."""
        seen = RowsSeen.of(X, persons, self.key)
        if seen.to_dict() not in [used.to_dict() for used in self.used]:
            self.used.append(seen)

    def read(self, X: pd.DataFrame, persons: Persons) -> RowsSeen:
        """Hash rows with this ledger's key."""
        return RowsSeen.of(X, persons, self.key)

    def already_used(self, rows: RowsSeen) -> int:
        """Count the persons (or rows, at least) that were trained on, or chosen by."""
        return min(sum(used.shared(rows) for used in self.used), len(rows))

    def refuse_training_rows(self, X: pd.DataFrame, persons: Persons) -> None:
        """Raise if persons who are unknown by name have rows that were trained on, which the values tell."""
        if self._used is None and persons.named:
            return  # a worker has no list of the training rows
        training = self.used[0]
        used = training.under_other_names(self.read(X, persons))
        if used and training.named:
            raise DataError(
                f"{used:,} of these rows at least are rows that the model was fitted to, under other names or none: "
                "another program has probably written the names otherwise, or replaced them. Give every person the "
                "name that the training table has."
            )
        if used:
            raise DataError(
                f"The model was fitted to {used:,} of these rows at least, without an identifier, and names that come "
                "now cannot say whose rows they were. The table that a model is fitted to is released once, by "
                "fit_transform or `share`; this takes new persons."
            )

    def comparable(self, rows: RowsSeen) -> bool:
        """Whether overlap would be seen: persons are named as in training, or the rows' values tell them apart."""
        return all(used.would_be_seen(rows) for used in self.used)

    def to_dict(self) -> dict[str, list[dict[str, bool | str]]]:
        """Return the ledger without its key, as plain values for the model's folder."""
        return {"used": [used.to_dict() for used in self.used]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Sequence[Mapping[str, bool | str]]], key: Secret) -> Ledger:
        """Read what `to_dict` gave, with the key that the ledger was made with."""
        return cls(key, [RowsSeen.from_dict(used) for used in values["used"]])

    def __deepcopy__(self, memo: dict[int, object]) -> Ledger:
        return Ledger(self.key, None if self._used is None else list(self._used))

    def __reduce__(self) -> tuple[type[Ledger], tuple[Secret, list[RowsSeen] | None]]:
        return Ledger, (self.key, self._used if secrets_travel.get() else None)


def is_part(part: Hashes, whole: Hashes) -> bool:
    """Whether every row of one file is in another, in any order, as often: nothing shows that they are other rows."""
    if not 0 < len(part) <= len(whole):
        return False
    values, counts = np.unique(part, return_counts=True)
    known, known_counts = np.unique(whole, return_counts=True)
    place = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return bool(np.all((known[place] == values) & (known_counts[place] >= counts)))


def _once(contents: Hashes) -> Hashes:
    """Return the values that occur once."""
    values, counts = np.unique(contents, return_counts=True)
    return values[counts == 1]


def _text(hashes: Hashes) -> str:
    return base64.b64encode(hashes.astype("<u8").tobytes()).decode()


def _hashes(text: str) -> Hashes:
    return np.frombuffer(base64.b64decode(text), dtype="<u8").astype(np.uint64)

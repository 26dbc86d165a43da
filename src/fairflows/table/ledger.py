"""The ledger of a model: keyed hashes of the rows that it was fitted to or chosen by.

A certificate holds for persons that nothing was fitted to or chosen by. That is easily broken by accident, so every
fitted encoder keeps a ledger. Looks at certifying persons are counted elsewhere, because they do not belong to one
model: see `fairflows.certificate.looks`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from fairflows.exceptions import DataError
from fairflows.table.keys import Hashes, Secret, content_hashes, keyed_hashes
from fairflows.table.persons import Persons, Places

Counted = tuple[Hashes, Places]
"""Distinct hashes in rising order, and how often each occurs."""


@dataclass(frozen=True)
class RowsSeen:
    """Hashes of rows."""

    named: bool  # whether an identifier says whose rows they are
    persons: Hashes  # the hash of each row's person; empty for persons without names
    contents: Hashes  # the hash of each row's values

    @classmethod
    def of(cls, X: pd.DataFrame, persons: Persons, key: Secret) -> RowsSeen:
        """Hash the rows of a frame and the persons that they belong to."""
        contents = content_hashes(X, key)
        if persons.names is None:
            return cls(False, np.empty(0, np.uint64), contents)
        return cls(True, keyed_hashes(persons.names, key, "person")[persons.codes], contents)

    def __len__(self) -> int:
        """Return the number of persons, or of rows for persons without names."""
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
            contents = contents[_times_among(self._names, other.persons) == 0]
        return self._recognised(contents)

    @cached_property
    def _names(self) -> Counted:
        """The rows of each person; counted once, because rows may come singly."""
        return np.unique(self.persons, return_counts=True)

    @cached_property
    def _rows(self) -> Counted:
        """The rows of each content."""
        return np.unique(self.contents, return_counts=True)

    @cached_property
    def _n_once(self) -> int:
        """Number of rows with values that no other row has."""
        return int((self._rows[1] == 1).sum())

    def would_be_seen(self, other: RowsSeen) -> bool:
        """Return whether `shared` would notice if the other's rows were all among these."""
        return (self.named and other.named) or self._brings_new_values(len(other.contents))

    def _recognised(self, two: Hashes) -> int:
        """Count rows that are recognised by their values.

        Rows of common values prove nothing. The rows are these, or a part of these where none of them is new though so
        many fresh rows would bring new values. And rows that only one person has in each file are the same ones where
        they are more than five times as frequent as rows of equal values are within this file.
        """
        contents, there = np.unique(two, return_counts=True)
        here, n = _times_among(self._rows, contents), len(self.contents)
        is_part_of_these = 0 < len(two) <= n and bool((here >= there).all())
        if is_part_of_these and (n == len(two) or self._brings_new_values(len(two))):
            return len(two)
        alike = int(((there == 1) & (here == 1)).sum())
        by_chance = len(two) * (n - self._n_once + 1) / max(n, 1)
        return alike if alike > 5 * by_chance else 0

    def _brings_new_values(self, n: int) -> bool:
        """Return whether n fresh rows would hold new values: each does with the share of rows seen once (Good, Turing).

        With 14 of them expected, none comes with probability e⁻¹⁴, less than one in a million.
        """
        return n * self._n_once >= 14 * max(len(self.contents), 1)

    def to_dict(self) -> dict[str, bool | str]:
        """Return plain values, which do not say whose rows are whose."""
        persons = np.unique(self.persons)
        return {"named": self.named, "persons": _as_base64(persons), "contents": _as_base64(np.sort(self.contents))}

    @classmethod
    def from_dict(cls, values: Mapping[str, bool | str]) -> RowsSeen:
        """Return the object from the result of `to_dict`."""
        return cls(bool(values["named"]), _from_base64(str(values["persons"])), _from_base64(str(values["contents"])))


class Ledger:
    """Account of the rows that a model, or all models of one frontier, were fitted to or chosen by.

    Parameters
    ----------
    key : bytes
        The model's secret, without which hashes say nothing; it is not written with the ledger.
    used : list of RowsSeen or None
        The rows that were trained on, then those of every later choice (validation rows). None for a ledger that came
        out of a pickle: pickles leave the list out.
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
                "it these rows cannot be told from new ones: keep models by fairflows.save and fairflows.load."
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

    def already_used(self, rows: RowsSeen) -> int:
        """Count the persons (or rows, at least) that were trained on, or chosen by."""
        return min(sum(used.shared(rows) for used in self.used), len(rows))

    def refuse_training_rows(self, X: pd.DataFrame, persons: Persons) -> None:
        """Raise if persons who are unknown by name have rows that were trained on, which the values tell."""
        if self._used is None and persons.named:
            return  # a worker has no list of the training rows
        training = self.used[0]
        used = training.under_other_names(RowsSeen.of(X, persons, self.key))
        advice = (
            "under other names or none: give every person the name that the training table has."
            if training.named
            else "without an identifier. That table is released once, by fit_transform or `share`; this takes new "
            "persons."
        )
        if used:
            raise DataError(f"The model was fitted to {used:,} of these rows at least (their values tell it) {advice}")

    def comparable(self, rows: RowsSeen) -> bool:
        """Return whether overlap would be seen, because persons are named as in training or their values differ."""
        return all(used.would_be_seen(rows) for used in self.used)

    def to_dict(self) -> dict[str, list[dict[str, bool | str]]]:
        """Return the ledger without its key, as plain values for the model's folder."""
        return {"used": [used.to_dict() for used in self.used]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Sequence[Mapping[str, bool | str]]], key: Secret) -> Ledger:
        """Return the ledger from the result of `to_dict`, with the key that it was made with."""
        return cls(key, [RowsSeen.from_dict(used) for used in values["used"]])

    def __deepcopy__(self, memo: dict[int, object]) -> Ledger:
        return Ledger(self.key, None if self._used is None else list(self._used))

    def __reduce__(self) -> tuple[type[Ledger], tuple[Secret, None]]:
        return Ledger, (self.key, None)


def is_part(part: Hashes, whole: Hashes) -> bool:
    """Return whether every row of one file is in another, in any order, as often: nothing shows that they differ."""
    contents, there = np.unique(part, return_counts=True)
    here = _times_among(np.unique(whole, return_counts=True), contents)
    return 0 < len(part) <= len(whole) and bool((here >= there).all())


def _times_among(counted: Counted, hashes: Hashes) -> Places:
    """Return how often each hash was counted. Batches are encoded in threads, in which an index of pandas may fail."""
    values, times = counted
    place = np.searchsorted(values, hashes)
    known = place < len(values)
    known[known] = values[place[known]] == hashes[known]
    found = np.zeros(len(hashes), dtype=np.intp)
    found[known] = times[place[known]]
    return found


def _as_base64(hashes: Hashes) -> str:
    return base64.b64encode(hashes.astype("<u8").tobytes()).decode()


def _from_base64(text: str) -> Hashes:
    return np.frombuffer(base64.b64decode(text), dtype="<u8").astype(np.uint64)

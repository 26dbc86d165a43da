"""The ledger of a model: whose rows it was fitted to, or chosen by.

A certificate holds for persons that nothing was fitted to or chosen by. That is easily broken by accident, so every
fitted encoder keeps a ledger. It holds keyed hashes only. How often persons were certified on is no matter of a model:
see `fairflows.table.looks`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import binom, poisson

from fairflows.exceptions import DataError
from fairflows.table.columns import distinct, is_among
from fairflows.table.persons import (
    Hashes,
    Persons,
    Secret,
    content_hashes,
    integers_as_text,
    keyed_hashes,
    secrets_travel,
)

BY_CHANCE = 1e-6  # two files without identifiers share rows only if that many rows alike were this improbable


@dataclass(frozen=True)
class RowsSeen:
    """Hashes of rows."""

    named: bool  # whether an identifier says whose rows they are
    persons: Hashes  # each person's hash where they are named; else the hash of each row's place in its file
    contents: Hashes  # the hash of each row's values; may be empty where persons are named

    @classmethod
    def of(cls, X: pd.DataFrame, persons: Persons, key: Secret) -> RowsSeen:
        """The rows of a frame and the persons that they belong to."""
        if persons.names is not None:
            return cls(True, distinct(keyed_hashes(persons.names, key, "person")), np.empty(0, np.uint64))
        index = X.index.to_numpy()
        places = integers_as_text(index) if index.dtype.kind in "iu" else X.index.astype(str)
        return cls(False, keyed_hashes(places, key, "place"), content_hashes(X, key))

    def shared(self, other: RowsSeen) -> int:
        """How many of the other's persons are here; without names, of its rows at least, unless chance explains them.

        Rows without names are looked for by their number and by their values, since a file may be shuffled or cut; and
        by their values alone where one of the two files has names.
        """
        if self.named and other.named:
            return int(is_among(other.persons, self.persons).sum())
        if self.named or other.named:
            return self._with_the_same_values(other)
        return max(self._at_the_same_place(other), self._with_the_same_values(other))

    def would_be_seen(self, other: RowsSeen) -> bool:
        """Whether it would be noticed if one file were a part of the other, whatever the rows' numbers are now."""
        if self.named or other.named:
            return self.named == other.named
        once = [len(_seen(rows.contents, 1)) / max(len(rows.contents), 1) for rows in (self, other)]
        alike = round(min(once) * min(len(self.contents), len(other.contents)))
        return _too_many_alike(alike, max(len(_seen(rows.contents, 2)) for rows in (self, other)))

    def _at_the_same_place(self, other: RowsSeen) -> int:
        """Rows of the same number and the same values.

        Two unrelated files have rows of the same number, and some of those are alike by chance: as many as if the
        rows had been shuffled. Only an excess over that counts.
        """
        places = pd.Series(self.contents, index=self.persons)
        places = places[~places.index.duplicated()]
        here = is_among(other.persons, self.persons)
        contents = other.contents[here]
        alike = int((places.loc[other.persons[here]].to_numpy() == contents).sum()) if here.any() else 0
        return alike if _improbable(alike, len(contents) * _collision(self.contents, contents)) else 0

    def _with_the_same_values(self, other: RowsSeen) -> int:
        """Rows whose values occur once in each file, wherever they stand, where they are too many for chance."""
        one, two = self.contents, other.contents
        alike = len(np.intersect1d(_seen(one, 1), _seen(two, 1), assume_unique=True))
        apart = int((~is_among(_seen(one, 2), two)).sum() + (~is_among(_seen(two, 2), one)).sum())
        return alike if _too_many_alike(alike, apart) else 0

    def to_dict(self) -> dict[str, bool | str]:
        """Plain values."""
        return {"named": self.named, "persons": _text(self.persons), "contents": _text(self.contents)}

    @classmethod
    def from_dict(cls, values: Mapping[str, bool | str]) -> RowsSeen:
        """What `to_dict` gave."""
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
        """A new ledger for a model trained on these rows."""
        return cls(key, [RowsSeen.of(X, persons, key)])

    def use(self, X: pd.DataFrame, persons: Persons) -> None:
        """Note that a choice was made on these rows (which model, how many cells): they can certify nothing."""
        self.used.append(RowsSeen.of(X, persons, self.key))

    def use_if_new(self, X: pd.DataFrame, persons: Persons) -> None:
        """The same, unless these very rows are noted already."""
        seen = RowsSeen.of(X, persons, self.key)
        if seen.to_dict() not in [used.to_dict() for used in self.used]:
            self.used.append(seen)

    def read(self, X: pd.DataFrame, persons: Persons) -> RowsSeen:
        """Rows as this ledger knows rows."""
        return RowsSeen.of(X, persons, self.key)

    def already_used(self, rows: RowsSeen) -> int:
        """How many of these persons (or rows, at least) were trained on, or chosen by."""
        return min(sum(used.shared(rows) for used in self.used), len(rows.persons))

    def comparable(self, rows: RowsSeen) -> bool:
        """Whether overlap would be seen: persons are named as in training, or the rows' values tell them apart."""
        return all(used.would_be_seen(rows) for used in self.used)

    def to_dict(self) -> dict[str, list[dict[str, bool | str]]]:
        """The ledger without its key, as plain values for the model's folder."""
        return {"used": [used.to_dict() for used in self.used]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Sequence[Mapping[str, bool | str]]], key: Secret) -> Ledger:
        """The ledger that `to_dict` described, with the key that it was made with."""
        return cls(key, [RowsSeen.from_dict(used) for used in values["used"]])

    def __deepcopy__(self, memo: dict[int, object]) -> Ledger:
        return Ledger(self.key, None if self._used is None else list(self._used))

    def __reduce__(self) -> tuple[type[Ledger], tuple[Secret, list[RowsSeen] | None]]:
        return Ledger, (self.key, self._used if secrets_travel.get() else None)

    def __repr__(self) -> str:
        if self._used is None:
            return "<Ledger: left out of a pickle>"
        n, what = sum(len(used.persons) for used in self.used), "persons" if self.used[0].named else "rows"
        return f"<Ledger: {n:,} {what} used>"


def _improbable(count: int, expected: float) -> bool:
    return count > 0 and bool(poisson.sf(count - 1, expected) < BY_CHANCE)


def _seen(contents: Hashes, times: int) -> Hashes:
    """The values that occur so many times."""
    values, counts = np.unique(contents, return_counts=True)
    return values[counts == times]


def _too_many_alike(alike: int, apart: int) -> bool:
    r"""Whether chance does not explain how many values two files hold once each, whatever laws they are drawn from.

    A value of rates λ, μ that occurs twice in both files together is once in each with probability 2λμ/(λ + μ)² ≤ 1/2,
    else twice in one of them. So of the `alike` + `apart` such values at most Binomial(·, 1/2) are alike by chance.
    """
    return bool(binom.sf(alike - 1, alike + apart, 0.5) < BY_CHANCE)


def _collision(one: Hashes, other: Hashes) -> float:
    """The probability that a row drawn from each has the same values."""
    if not len(one) or not len(other):
        return 0.0
    values, counts = np.unique(one, return_counts=True)
    place = np.minimum(np.searchsorted(values, other), len(values) - 1)
    return float(np.where(values[place] == other, counts[place], 0).mean() / len(one))


def _text(hashes: Hashes) -> str:
    return base64.b64encode(hashes.astype("<u8").tobytes()).decode()


def _hashes(text: str) -> Hashes:
    return np.frombuffer(base64.b64decode(text), dtype="<u8").astype(np.uint64)

"""The persons behind the rows of a table, and the randomness that belongs to each of them.

A certificate counts persons. So splits never part a person, and of several rows of one person a *random* one is
counted. A randomised encoder must also treat a person alike every time: two encodings with fresh noise would reveal the
group, because only the true group's inverse returns the same values twice. So noise and coins are a keyed hash of
(person, purpose). In a table without an identifier every row counts as another person and gets fresh randomness. The
number or index of a row never names a person.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fairflows.arrays import NDArray
from fairflows.exceptions import DataError
from fairflows.table.columns import missing, numbers
from fairflows.table.keys import Hashes, Secret, integers_as_text, keyed_hashes

_WITH_EXPONENT = r"^[+-]?[0-9](\.[0-9]+)?[eE]\+[0-9]{2}$"

Identifiers: TypeAlias = pd.Series | pd.Index | npt.NDArray | Sequence[object]
Places = NDArray[np.intp]


@dataclass(frozen=True)
class Persons:
    """The persons behind the rows of a table."""

    # Each person's identifier as text, in the one spelling of `canonical_names`. None without an identifier: then every
    # row counts as another person.
    names: npt.NDArray[np.object_] | None
    codes: Places  # which person each row belongs to
    # Whether each person chose the edges of narrow groups, for an attribute that is not cut; else None.
    chose_edges: npt.NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, identifiers: Identifiers) -> Persons:
        """Return the persons that one identifier per row names; 7, 7.0 and "007" are one name.

        Raise if a row has no name, or if two different texts are one name, because they may be two persons.
        """
        column = identifiers if isinstance(identifiers, pd.Series) else pd.Series(identifiers)
        check_identifier(column)
        codes, distinct_ids = pd.factorize(column)
        values = pd.Series(distinct_ids)
        if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iu":
            return cls(integers_as_text(values.to_numpy()), codes)
        texts = canonical_names(values.tolist())
        place, names = pd.factorize(texts)
        if len(names) < len(texts):
            _refuse_two_spellings(column.name, values, texts)
        return cls(names, place[codes])

    @classmethod
    def unnamed(cls, n_rows: int) -> Persons:
        """Return another person for every row, for tables without an identifier."""
        return cls(None, np.arange(n_rows))

    @classmethod
    def by_contents(cls, contents: Hashes, part: str = "") -> Persons:
        """Return another person for every row, named by its values and its place among rows of the same values.

        For counting and attacking rows without names: coins are independent and can be computed again, in any order of
        rows. Never for rows that are released. Rows of another `part` have other coins, so that an adversary that
        learns from one part does not meet its coins again in another.
        """
        place = pd.Series(contents).groupby(contents).cumcount()
        names = [f"{part}{row}-{number}" for row, number in zip(contents, place, strict=True)]
        return cls(np.array(names, dtype=object), np.arange(len(contents)))

    @classmethod
    def newly_named(cls, n_rows: int) -> Persons:
        """Return another person for every row, with a new random name.

        Coins are fresh, but the same in two parts of one computation.
        """
        return cls(integers_as_text(np.random.default_rng().integers(2**63, size=n_rows)), np.arange(n_rows))

    @property
    def named(self) -> bool:
        """Whether the persons have names."""
        return self.names is not None

    @property
    def n(self) -> int:
        """Number of persons."""
        return len(self.codes) if self.names is None else len(self.names)

    def rows_each(self) -> Places:
        """Return the number of rows of each person."""
        return np.bincount(self.codes, minlength=self.n)

    def count_by(self, kind: Places, n_kinds: int) -> Places:
        """Return the number of persons with rows of each kind, given each row's kind in 0 … n_kinds − 1."""
        return np.bincount(np.unique(self.codes * n_kinds + kind) % n_kinds, minlength=n_kinds)

    def equal_weight(self, kind: Places, n_kinds: int) -> npt.NDArray[np.float64]:
        """Return the persons of equal weight that the rows of each kind stand for, (Σm)²/Σm² for m rows of a person."""
        pairs, m = np.unique(kind * self.n + self.codes, return_counts=True)
        of_kind = pairs // self.n
        rows, squares = np.bincount(of_kind, m, n_kinds), np.bincount(of_kind, m.astype(np.float64) ** 2, n_kinds)
        return rows**2 / np.maximum(squares, 1)

    @property
    def accepted_share(self) -> float:
        """Share of the persons that `random_rows` takes if `most` is the most rows of a person here."""
        each = self.rows_each()
        return float(each.mean() / each.max())

    def uniform(self, key: Secret, purpose: str) -> npt.NDArray[np.float64]:
        """Return one number in [0, 1) per row, with 53 random bits, the same for all rows of a person.

        For persons without names it is fresh for every row and every call, because nothing tells whether the person
        came before. Numbers for two purposes, say two columns, are independent.
        """
        if self.names is None:
            return np.random.default_rng().random(len(self.codes))
        return self._hashed(key, purpose)[self.codes]

    def drawn(self, seed: int, purpose: str) -> npt.NDArray[np.float64]:
        """Return one number in [0, 1) per person, by the seed: that of a name is the same in every order of rows."""
        if self.names is None:
            return np.random.default_rng(seed).random(self.n)
        return self._hashed(_key_of(seed), purpose)

    def split(self, *shares: float, random_state: int | None) -> tuple[Places, ...]:
        """Return the places of rows in random parts: the rest, then one part per share. No person is in two parts.

        Each part takes its share of the persons that the parts before it left.
        """
        from sklearn.model_selection import train_test_split

        rest, parts = np.arange(self.n), []
        for share in shares:
            rest, part = train_test_split(rest, test_size=share, random_state=random_state)
            parts.append(part)
        if self.names is None:
            return rest, *parts  # in the order of train_test_split, as in the paper
        return tuple(np.flatnonzero(np.isin(self.codes, part)) for part in (rest, *parts))

    def one_row_each(self, contents: Hashes, seed: int) -> Places:
        """Return the place of one random row of every person, chosen by the seed. The order of rows does not count.

        Of the m rows of a person, in the order of their contents (hashes of their values), row ⌊u·m⌋ is taken, with u a
        hash of (seed, person). The row with the smallest hash of its contents would be the same value for all persons.
        """
        if self.n == len(self.codes):
            return np.arange(len(self.codes))
        return np.sort(self._random_rows(contents, seed))

    def random_rows(self, contents: Hashes, seed: int, most: int) -> Places:
        """Return the places of independent draws from the law of a random *row*: at most one of each person.

        A person with m rows is taken with probability m/M, and then one of the m rows at random (`one_row_each`). So a
        person with many rows counts as often as in the table, and the rows that are taken are independent of each
        other. M is `most`, at least the most rows of a person, a number that is fixed before these rows are seen.
        """
        m = self.rows_each()
        largest = int(m.max(initial=0))
        check_most_rows(m, most, f"State the most rows that a person may have, {largest} at least (most_rows=...).")
        if most <= 1 or not self.named:
            return np.arange(len(self.codes))
        taken = self._hashed(_key_of(seed), "acceptance") < m / most
        return np.sort(self._random_rows(contents, seed)[taken])

    def named_or_numbered(self) -> Persons:
        """Return these persons, named by the numbers of their rows if they have no names.

        For rows that are not released, whose coins and noise may then be repeatable.
        """
        return self if self.named else Persons.of(np.arange(len(self.codes)))

    def take(self, rows: npt.ArrayLike) -> Persons:
        """Return the persons of some rows: positions or a boolean mask."""
        codes = self.codes[np.asarray(rows)]
        if self.names is None:
            return Persons(None, np.arange(len(codes)), None if self.chose_edges is None else self.chose_edges[codes])
        is_kept = np.zeros(self.n, dtype=bool)
        is_kept[codes] = True
        chose = None if self.chose_edges is None else self.chose_edges[is_kept]
        return Persons(self.names[is_kept], (np.cumsum(is_kept) - 1)[codes], chose)

    def _random_rows(self, contents: Hashes, seed: int) -> Places:
        """Return one random row of every person, in the order of the persons."""
        by_person = np.lexsort([contents, self.codes])
        m = self.rows_each()
        chosen = np.minimum((self._hashed(_key_of(seed), "row") * m).astype(np.intp), m - 1)
        return by_person[np.cumsum(m) - m + chosen]

    def _hashed(self, key: Secret, purpose: str) -> npt.NDArray[np.float64]:
        """Return one number in [0, 1) per person."""
        bits = keyed_hashes(self.names if self.names is not None else [], key, purpose) >> np.uint64(11)
        return bits.astype(np.float64) * 2.0**-53


def households_of(persons: Places, households: npt.NDArray[np.integer]) -> Places:
    """Return the number of each row's household, whose persons all belong to it; −1 is no household.

    A person whose rows name two households joins them.
    """
    rows = np.arange(len(persons))
    known, numbers = rows[households >= 0], np.asarray(households)
    n_persons = int(persons.max(initial=-1)) + 1
    n = n_persons + int(numbers.max(initial=-1)) + 1
    links = coo_array((np.ones(len(known)), (persons[known], n_persons + numbers[known])), shape=(n, n))
    return connected_components(links, directed=False)[1][persons].astype(np.intp)


def check_most_rows(rows_each: Places, most: int, advice: str) -> None:
    """Raise if a person has more rows than the model was fitted, and is certified, for."""
    above = int((rows_each > most).sum())
    if above:
        raise DataError(
            f"A person must have at most {most:,} row{'s' * (most > 1)}, which is what was stated or seen in training; "
            f"{above:,} of these {len(rows_each):,} persons have more, up to {int(rows_each.max()):,}. {advice}"
        )


def check_identifier(column: pd.Series) -> None:
    """Raise if a column does not name a person in every row, or may have one name for several persons."""
    is_missing = missing(column)
    identifier = "The identifier" if column.name is None else f"The identifier {column.name!r}"
    if is_missing.any():
        raise DataError(
            f"{identifier} must name a person in every row; {int(is_missing.sum()):,} are missing, the first in row "
            f"{int(is_missing.argmax()):,}."
        )
    if column.dtype.kind == "f" and len(column):
        largest, bits = float(column.abs().max()), np.finfo(numbers(column).dtype).nmant + 1
        if largest >= 2**bits:
            raise DataError(
                f"{identifier} holds floats up to {largest:.17g}, and from 2^{bits} on one float stands for several "
                "whole numbers, and so for several persons: read it as text, or as whole numbers."
            )


def canonical_names(values: Iterable[object]) -> npt.NDArray[np.object_]:
    """Return identifiers as text in one spelling, because programs write the same one differently.

    Blanks around a name go, and so do the leading zeros of a whole number and the ".0" after it. A whole number with an
    exponent, as R writes 100000, is written out; 1E5 may be a code. A day is written without its midnight.

    Examples
    --------
    >>> canonical_names(["0000007", "7.0", " 7", 7, 7.0, "-007", "000", "A07", "1.50", "1e+05", "1E5"]).tolist()
    ['7', '7', '7', '7', '7', '-7', '0', 'A07', '1.50', '100000', '1E5']
    """
    texts = pa.array([_text(value) for value in values], pa.string())
    trimmed = pc.utf8_trim_whitespace(pc.utf8_normalize(texts, "NFC"))
    if pc.any(has_exponent := pc.match_substring_regex(trimmed, _WITH_EXPONENT)).as_py():
        written = [_written_out(name) for name in trimmed.filter(has_exponent).to_pylist()]
        trimmed = pc.replace_with_mask(trimmed, has_exponent, pa.array(written, pa.string()))
    whole = pc.replace_substring_regex(trimmed, r"^\+?(-?)0*([0-9]+)(\.0*)?$", r"\1\2")
    return whole.to_numpy(zero_copy_only=False)


def _refuse_two_spellings(column: object, values: pd.Series, names: npt.NDArray[np.object_]) -> None:
    """Raise if two texts among the identifiers are one name; a number and its text, 7 and "7", are one person."""
    spelling: dict[str, str] = {}
    for value, name in zip(values, names, strict=True):
        if isinstance(value, str) and spelling.setdefault(name, value) != value:
            raise DataError(
                f"The identifier {column!r} holds {spelling[name]!r} and {value!r}, which are one name: blanks around "
                "a name, leading zeros and '.0' do not count, because programs change them. Write a person's name "
                "alike in all rows, or put a letter before names that differ only so."
            )


def _key_of(seed: int) -> bytes:
    return f"certification: {seed}".encode()


def _written_out(name: str) -> str:
    """Return a whole number without its exponent; any other number as it is."""
    number = Decimal(name)
    return f"{number:f}" if number == number.to_integral_value() else name


def _text(value: object) -> str:
    """Return an identifier as text, a large float as all its digits, and midnight as a day."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).removesuffix(" 00:00:00") if isinstance(value, datetime) else str(value)

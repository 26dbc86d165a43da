"""The persons behind the rows of a table, and the randomness that belongs to each of them.

A certificate counts persons. So splits never part a person, and of several rows of one person a *random* one is
counted. A randomised encoder must also treat a person alike every time: two encodings with fresh noise would reveal the
group, because only the true group's inverse returns the same values twice. So noise and coins are a keyed hash
(SipHash-2-4) of (person, purpose): repeatable with the key, unpredictable without it, independent between purposes. In
a table without an identifier every row counts as another person and gets fresh randomness. The number or index of a row
never names a person.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from fairflows.exceptions import DataError
from fairflows.table.columns import distinct_values, floats, is_number, is_time, missing, numbers

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

KEY_BYTES = 32
FEWEST_KEY_BYTES = 16  # of a key that the user brings
_WITH_EXPONENT = r"^[+-]?[0-9](\.[0-9]+)?[eE]\+[0-9]{2}$"
_MISSING = np.uint64(2**64 - 1)  # the hash of a missing value, not keyed

Identifiers: TypeAlias = pd.Series | pd.Index | npt.NDArray | Sequence[object]
Places = npt.NDArray[np.intp]
Hashes = npt.NDArray[np.uint64]
Counted = tuple[Hashes, Places]
"""Distinct hashes in rising order, and how often each occurs."""
Part = str | npt.NDArray
"""A part of what a fingerprint is made of."""


class Key:
    """A secret key that neither its text nor a pickle shows.

    ``bytes(key)`` is the secret; logs, notebooks and error reports show ``<secret key>``. In a pickle eight digits of
    its hash stand in its place: what comes out of a pickle is a key without its secret, which refuses to be used until
    `restore` has put it back. All parts of a model hold the same key object, in memory and after a pickle, so that
    restoring it once is enough. Copies within a process share the key.
    """

    __slots__ = ("_digest", "_secret")

    def __init__(self, secret: bytes | Key | Iterable[int]) -> None:
        self._secret: bytes | None = bytes(secret)
        self._digest = _digest(self._secret)

    @classmethod
    def without_secret(cls, digest: str) -> Key:
        """Return a key that waits for its secret."""
        key = cls.__new__(cls)
        key._secret, key._digest = None, digest
        return key

    def restore(self, secret: bytes | Key) -> None:
        """Put back the secret. Raise if it is another one."""
        if _digest(bytes(secret)) != self._digest:
            raise DataError("This is the key of another model: with it every person would have other coins and noise.")
        self._secret = bytes(secret)

    def __bytes__(self) -> bytes:
        if self._secret is None:
            raise DataError(
                "The model came out of a pickle, which leaves out the secret key. Put back what bytes(model.key_) was, "
                "by model.key_.restore(key), or keep models by fairflows.save and fairflows.load. Where n_jobs moves "
                "parts to other processes (FeatureUnion), leave n_jobs out, or use joblib.parallel_config('threading')."
            )
        return self._secret

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Key):
            return self is other or (self._secret is not None and self._secret == other._secret)
        return self._secret == other if isinstance(other, bytes) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return "<secret key>"

    def __copy__(self) -> Key:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Key:
        return self

    def __reduce__(self) -> tuple[Callable[..., Key], tuple[str]]:
        return Key.without_secret, (self._digest,)


Secret: TypeAlias = bytes | Key
"""The secret of a keyed hash."""


class KeySetting:
    """The setting ``key`` of an estimator, None by default. Bytes are kept as a `Key`, which no repr shows."""

    def __get__(self, estimator: BaseEstimator | None, kind: type | None = None) -> Key | None:
        return None if estimator is None else estimator.__dict__.get("key")

    def __set__(self, estimator: BaseEstimator, key: bytes | Key | None) -> None:
        estimator.__dict__["key"] = Key(key) if type(key) is bytes else key


NEW_AT_EACH_FIT = KeySetting()
"""The setting ``key`` of an estimator, for its class body."""


def new_key() -> Key:
    """Return a fresh secret key, from the operating system and never from a seed."""
    return Key(secrets.token_bytes(KEY_BYTES))


def check_key(key: object) -> None:
    """Raise, without showing it, if a key is not bytes, is too short, or has lost its secret in a pickle."""
    if key is None:
        return
    came = f"{len(bytes(key))} bytes" if isinstance(key, Key) else type(key).__name__
    if not isinstance(key, Key) or len(bytes(key)) < FEWEST_KEY_BYTES:
        raise DataError(f"key must be bytes, at least {FEWEST_KEY_BYTES}, or None for a new one; got {came}.")


@dataclass(frozen=True)
class Persons:
    """The persons behind the rows of a table."""

    # Each person's identifier as text, in the one spelling of `canonical_names`. None without an identifier: then every
    # row counts as another person.
    names: npt.NDArray[np.object_] | None
    codes: Places  # which person each row belongs to

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
            return Persons.unnamed(len(codes))
        is_kept = np.zeros(self.n, dtype=bool)
        is_kept[codes] = True
        return Persons(self.names[is_kept], (np.cumsum(is_kept) - 1)[codes])

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


def keyed_hashes(texts: npt.ArrayLike, key: Secret, purpose: str) -> Hashes:
    """Return a SipHash of each text. The key is derived for the purpose: hashes for two purposes are unrelated."""
    # pandas takes a key of 16 characters; 16 of base64's carry 96 bits of the derived key.
    derived = hmac.digest(bytes(key), purpose.encode(), "sha256")[:12]
    siphash_key = base64.urlsafe_b64encode(derived).decode()
    return pd.util.hash_array(np.asarray(texts, dtype=object), hash_key=siphash_key, categorize=False)


def content_hashes(frame: pd.DataFrame, key: Secret) -> Hashes:
    """Return a hash of each row's values; 7 and 7.0 are the same value."""
    # The columns' hashes become one as those of a tuple's items do in pandas.
    rows, factor = np.full(len(frame), 0x345678, dtype=np.uint64), 1_000_003
    for n_left, (_, column) in zip(range(frame.shape[1], 0, -1), frame.items(), strict=True):
        rows = (rows ^ _value_hashes(column)) * np.uint64(factor)
        factor += 82_520 + 2 * n_left
    # pandas does not key the hash of numbers, so the rows' hashes are written out and hashed once more.
    return keyed_hashes(integers_as_text(rows + np.uint64(97_531)), key, "content")


def integers_as_text(values: npt.NDArray[np.integer]) -> npt.NDArray[np.object_]:
    """Return whole numbers as texts, by Arrow, which writes millions of them faster than Python."""
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    return pa.array(native).cast(pa.string()).to_numpy(zero_copy_only=False)


def fingerprint(parts: Iterable[Part], key: Secret) -> str:
    """Return one keyed hash, 32 hexadecimal digits, of arrays and texts in this order."""
    digest = hmac.new(bytes(key), digestmod=sha256)
    for part in parts:
        data = part.encode() if isinstance(part, str) else np.ascontiguousarray(part).tobytes()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


def _digest(secret: bytes) -> str:
    """Return eight digits that distinguish keys. They do not help to guess 16 random bytes."""
    return sha256(secret).hexdigest()[:8]


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


def _value_hashes(column: pd.Series) -> Hashes:
    """Return a hash of each value of a column, not keyed."""
    if is_number(column.dtype):
        return pd.util.hash_array(floats(column) + 0.0)  # -0.0 becomes 0.0
    if column.dtype == object:  # where 1 and True count as one value; before pandas 3 a gap became a text, too
        column = column.astype(str).astype(object).where(column.notna())
    # Each distinct value is written and hashed once. One by one: pandas writes the time of day of a whole column, or of
    # no row where all are at midnight.
    codes, values = distinct_values(column)
    texts = [str(value) for value in values]
    if is_time(column.dtype):
        texts = [text.removesuffix(" 00:00:00") for text in texts]
    hashes = pd.util.hash_array(np.array(texts, dtype=object), categorize=False)
    return np.append(hashes, _MISSING)[codes]  # the place of a missing value is -1


# The ledger of a model -----------------------------------------------------------------------------------------------


# A certificate holds for persons that nothing was fitted to or chosen by. That is easily broken by accident, so every
# fitted encoder keeps a ledger of keyed hashes. Looks at certifying persons are counted elsewhere, because they do not
# belong to one model: see `fairflows.certificate.looks`.


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

"""Secret keys, and the hashes that are made with them.

A keyed hash (SipHash-2-4) of a text is repeatable with the key, unpredictable without it, and independent between two
purposes. Persons, rows and whole tables are recognised by such hashes, which show none of their values.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from fairflows.arrays import NDArray
from fairflows.exceptions import DataError
from fairflows.table.columns import distinct_values, floats, is_number, is_time

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

KEY_BYTES = 32
FEWEST_KEY_BYTES = 16  # of a key that the user brings
_MISSING = np.uint64(2**64 - 1)  # the hash of a missing value, not keyed

Hashes = NDArray[np.uint64]
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
        rows = (rows ^ value_hashes(column)) * np.uint64(factor)
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


def value_hashes(column: pd.Series) -> Hashes:
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

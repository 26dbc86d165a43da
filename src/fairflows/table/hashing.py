"""Keyed hashes of persons and rows: they recognise a row that was seen before, and tell a stranger nothing."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable
from hashlib import sha256

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.table.columns import is_number, is_time

Hashes = npt.NDArray[np.uint64]


def keyed_hashes(texts: npt.ArrayLike, key: bytes, purpose: str) -> Hashes:
    """A SipHash of each text, under a key derived for the purpose: hashes for two purposes cannot be compared."""
    # pandas takes a key of 16 characters; 16 of base64's carry 96 bits of the derived key.
    derived = hmac.new(key, purpose.encode(), sha256).digest()[:12]
    siphash_key = base64.urlsafe_b64encode(derived).decode()
    return pd.util.hash_array(np.asarray(texts, dtype=object), hash_key=siphash_key, categorize=False)


def content_hashes(frame: pd.DataFrame, key: bytes) -> Hashes:
    """A hash of each row's values; 7 and 7.0 are the same value, whatever type a file's reader chose."""
    plain = pd.DataFrame({j: _plain(frame.iloc[:, j]) for j in range(frame.shape[1])}).reset_index(drop=True)
    # pandas does not key the hash of numbers, so the rows' hashes are written out and hashed once more.
    rows = pd.util.hash_pandas_object(plain, index=False).to_numpy()
    return keyed_hashes(rows.astype(str), key, "content")


Part = str | npt.NDArray
"""What a fingerprint is made of."""


def fingerprint(parts: Iterable[Part], key: bytes) -> str:
    """One keyed hash, 32 hexadecimal digits, of arrays and texts in this order."""
    digest = hmac.new(key, digestmod=sha256)
    for part in parts:
        data = part.encode() if isinstance(part, str) else np.ascontiguousarray(part).tobytes()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


def _plain(column: pd.Series) -> pd.Series:
    if is_number(column.dtype):
        return column.astype(np.float64).reset_index(drop=True) + 0.0  # -0.0 becomes 0.0
    if is_time(column.dtype):
        return column.astype(str).reset_index(drop=True)
    return column.astype(object).astype(str).reset_index(drop=True)

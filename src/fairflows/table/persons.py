"""Who a row belongs to, and the secret noise that belongs to that person.

A randomised encoder must treat one person alike every time: two encodings with fresh noise give her away, since only
the true inverse returns the same values twice. So noise and coins are a keyed hash (SipHash-2-4) of (person, purpose):
repeatable for whoever holds the key, unpredictable for everybody else, independent between purposes.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from fairflows.exceptions import DataError, Parameter, warn_user
from fairflows.table.hashing import keyed_hashes

KEY_BYTES = 32


class Key(bytes):
    """A secret key that does not show itself as text, and so not in logs, notebooks and error reports."""

    def __repr__(self) -> str:
        return "<secret key>"

    __str__ = __repr__


class KeySetting:
    """An estimator's setting ``key``, which does not show itself in the estimator's repr: bytes are kept as a `Key`."""

    def __get__(self, estimator: Any, kind: type | None = None) -> Any:
        return self if estimator is None else estimator.__dict__.get("key")

    def __set__(self, estimator: Any, key: Any) -> None:
        estimator.__dict__["key"] = Key(key) if type(key) is bytes else key


def new_key() -> Key:
    """A fresh secret key, from the operating system and never from a seed."""
    return Key(secrets.token_bytes(KEY_BYTES))


@dataclass(frozen=True)
class Persons:
    """The persons behind the rows of a table.

    Attributes
    ----------
    names : ndarray of str, shape (n_persons,)
        Each person's identifier as text: integers are written out, since 7 in one file may be "7" in the next.
    codes : ndarray of int, shape (n_rows,)
        Which person each row belongs to.
    """

    names: npt.NDArray[np.object_]
    codes: npt.NDArray[np.intp]

    @classmethod
    def of(cls, identifiers: Any) -> Persons:
        """The persons named by one identifier a row."""
        column = pd.Series(identifiers).reset_index(drop=True)
        if column.isna().any():
            first = int(column.isna().to_numpy().argmax())
            raise DataError(
                f"The identifier must name a person in every row; {int(column.isna().sum())} are missing, "
                f"the first in row {first}."
            )
        codes, names = _distinct(column)
        if names.dtype.kind == "f" and (names == names.round()).all():
            names = names.astype(np.int64)  # 7.0 is what a reader makes of 7 when another row is missing
        return cls(_texts(names), codes)

    @classmethod
    def of_rows(cls, frame: pd.DataFrame) -> Persons:
        """Each row its own person, known by the frame's index; warns that nobody named the persons."""
        warn_user(
            "No identifier column says which rows are the same person, so the frame's index does: give ",
            Parameter("identifier", ...),
            " if one person may come twice, or under another index, and must get the same noise.",
        )
        return cls.of(frame.index)

    def uniform(self, key: bytes, purpose: str) -> npt.NDArray[np.float64]:
        """One number in [0, 1) a row, with 53 random bits, the same for all rows of a person.

        Parameters
        ----------
        key : bytes
            The secret.
        purpose : str
            What the number is for, say the column it is added to; numbers for two purposes are independent.
        """
        bits = keyed_hashes(self.names, key, purpose) >> np.uint64(11)
        return (bits.astype(np.float64) * 2.0**-53)[self.codes]


def _distinct(column: pd.Series) -> tuple[npt.NDArray[np.intp], pd.Series]:
    """Which of the distinct values each row has, and these values; numbers in order are distinct at a glance."""
    values = column.to_numpy()
    if values.dtype.kind in "iu" and (values[1:] > values[:-1]).all():
        return np.arange(len(values)), column
    codes, names = pd.factorize(column)
    return codes, pd.Series(names)


def _texts(names: pd.Series) -> npt.NDArray[np.object_]:
    """Each value as `str` writes it; Arrow writes millions of integers twice as fast."""
    if isinstance(names.dtype, np.dtype) and names.dtype.kind in "iu":
        return pa.array(names.to_numpy()).cast(pa.string()).to_numpy(zero_copy_only=False)
    return np.array(list(map(str, names.tolist())), dtype=object)

"""Values and types of columns as text that JSON holds, and back."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from fairflows.exceptions import DataError

_KINDS: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "float": (float, str, float),  # of which JSON lacks NaN and infinity
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "timestamp": (pd.Timestamp, lambda value: _ticks(value), lambda text: _timestamp(*text.split())),
    "timedelta": (pd.Timedelta, lambda value: _ticks(value), lambda text: _timedelta(*text.split())),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "time": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
    "string type": (pd.StringDtype, lambda dtype: _string_type(dtype), lambda text: _read_string_type(*text.split())),
    "type": (np.dtype, lambda dtype: _type_name(dtype), pd.api.types.pandas_dtype),
    "pandas type": (pd.api.extensions.ExtensionDtype, lambda dtype: _type_name(dtype), pd.api.types.pandas_dtype),
}


def to_text(value: object) -> tuple[str, str] | None:
    """Return the kind of a value and its text; None for a value of another kind.

    Examples
    --------
    >>> to_text(datetime.date(2020, 1, 31))
    ('date', '2020-01-31')
    """
    for name, (kind, write, _) in _KINDS.items():
        if isinstance(value, kind):
            return name, write(value)
    return None


def from_text(kind: str, text: str) -> Any:
    """Return the value of which `to_text` gave kind and text.

    Examples
    --------
    >>> from_text("bytes", b"Ulm".hex())
    b'Ulm'
    """
    if kind not in _KINDS:
        raise DataError(f"there are no values of the kind {kind!r}.")
    return _KINDS[kind][2](text)


def _ticks(value: Any) -> str:
    zone = getattr(value, "tz", None)
    return f"{value.to_numpy().astype(np.int64)} {value.unit}" + ("" if zone is None else f" {zone}")


def _timestamp(ticks: str, unit: str, zone: str | None = None) -> pd.Timestamp:
    moment = pd.Timestamp(np.array(int(ticks)).astype(f"datetime64[{unit}]")[()])
    return moment if zone is None else moment.tz_localize("UTC").tz_convert(zone)


def _timedelta(ticks: str, unit: str) -> pd.Timedelta:
    return pd.Timedelta(np.array(int(ticks)).astype(f"timedelta64[{unit}]")[()])


def _string_type(dtype: pd.StringDtype) -> str:
    return f"{dtype.storage} {'NA' if dtype.na_value is pd.NA else 'nan'}"


def _read_string_type(storage: str, missing: str) -> pd.StringDtype:
    return pd.StringDtype(storage, na_value=pd.NA if missing == "NA" else np.nan)


def _type_name(dtype: Any) -> str:
    """Return a name that every release of pandas knows."""
    if pd.api.types.pandas_dtype(str(dtype)) != dtype:
        raise DataError(f"a column of type {dtype} cannot be saved.")
    return str(dtype)

"""Which model and which rows a certificate is about: keyed hashes of all that decides a released value, and of rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import is_dataclass
from typing import Any

import joblib
import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from fairflows.encoder.model_state import Storable, state_of
from fairflows.table.hashing import Part, content_hashes, fingerprint
from fairflows.table.table import Table

_NO_PART = {"key", "key_", "ledger_", "device", "progress", "history", "n_jobs", "requests", "_sklearn_output_config"}
"""Parts that decide no released value: secrets, accounts of rows, how the work was done, how values are handed over."""


def rows_hash(table: Table, key: bytes) -> str:
    """A hash of the rows' values, labels and groups, in whatever order they come."""
    columns = [table.X, table.a.rename("a"), *([] if table.y is None else [table.y.rename("y")])]
    whole = pd.concat([column.reset_index(drop=True) for column in columns], axis=1)
    return fingerprint([np.sort(content_hashes(whole, key))], key)


def model_hash(model: Any, key: bytes) -> str:
    """A hash of everything that decides what a model releases: its settings, and all that fitting learnt.

    The values themselves are hashed and not their bytes in memory, so that a model that was saved and loaded has the
    same hash.
    """
    return fingerprint(_parts(model), key)


def _parts(value: Any) -> Iterator[Part]:
    """The numbers and texts that a state is made of, in a fixed order."""
    yield type(value).__name__ if not isinstance(value, str | bytes | int | float | np.generic) else ""
    if isinstance(value, np.generic | np.ndarray):
        yield from _of_array(np.asarray(value))
    elif isinstance(value, pd.DataFrame):
        yield from _of_mapping({str(name): value[name].to_numpy() for name in value})
    elif isinstance(value, pd.Index | pd.Series):
        yield from _of_array(value.to_numpy())
    elif isinstance(value, Mapping):
        yield from _of_mapping(value)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _parts(item)
    elif isinstance(value, Set):
        yield from sorted(map(str, value))
    elif value is None or isinstance(value, bool | int | float | str | bytes):
        yield json.dumps(value) if not isinstance(value, bytes) else value.hex()
    else:
        yield from _of_object(value)


def _of_object(value: Any) -> Iterator[Part]:
    if isinstance(value, type):
        yield value.__name__
    elif isinstance(value, Storable | BaseEstimator) or is_dataclass(value):
        yield from _of_mapping(state_of(value))
    elif type(value).__module__.startswith("torch") or callable(getattr(value, "state_dict", None)):
        yield from _of_torch(value)
    elif type(value).__module__.startswith("fairflows."):
        yield from _of_mapping(state_of(value))
    else:
        yield joblib.hash(value)


def _of_torch(value: Any) -> Iterator[Part]:
    import torch

    if isinstance(value, torch.Tensor):
        yield from _of_array(value.detach().cpu().numpy())
    elif isinstance(value, torch.nn.Module):
        yield from _of_mapping({name: part.detach().cpu().numpy() for name, part in value.state_dict().items()})
    else:
        yield str(value)


def _of_mapping(values: Mapping[Any, Any]) -> Iterator[Part]:
    for name in sorted(values, key=str):
        if name not in _NO_PART:
            yield str(name)
            yield from _parts(values[name])


def _of_array(array: np.ndarray) -> Iterator[Part]:
    yield f"{array.shape}"
    if array.dtype.kind in "biuf":
        yield array.astype(np.float64) + 0.0 if array.dtype.kind != "u" else array.astype(np.uint64)
    elif array.dtype.kind in "mM":
        yield array.view(np.int64)
    else:
        for item in array.ravel().tolist():
            yield str(item)

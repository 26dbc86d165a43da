"""Which model and which rows a certificate is about: keyed hashes of all that decides a released value, and of rows."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Set

import joblib
import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.encoder.model_state import state_of
from fairflows.release.released import Model
from fairflows.table.persons import Part, content_hashes, fingerprint
from fairflows.table.table import Table

_NO_PART = {
    "key",
    "key_",
    "ledger_",
    "device",
    "progress",
    "history",
    "n_jobs",
    "requests",
    "probe",
    "_sklearn_output_config",
}
"""Parts that decide no released value: secrets, accounts of rows, how the work was done, how values are handed over,
what is checked at loading."""

_SHOWN_IN_FULL = (np.dtype, pd.api.extensions.ExtensionDtype, pd.Timestamp, pd.Timedelta, type(pd.NaT))
"""Types whose text tells values apart."""


def rows_hash(table: Table, key: bytes) -> str:
    """A hash of the rows' values, labels and groups, in whatever order they come."""
    return fingerprint([np.sort(content_hashes(table.whole(), key))], key)


def model_hash(model: Model, key: bytes) -> str:
    """A hash of everything that decides what a model releases: its settings, and all that fitting learnt.

    It covers the values that a model is saved by, and not their bytes in memory: a model that was saved and loaded has
    the same hash.
    """
    return fingerprint(_parts(model), key)


def _parts(value: object, around: tuple[int, ...] = ()) -> Iterator[Part]:
    """The numbers and texts that a value is made of, in a fixed order; `around` are the objects that hold it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        yield json.dumps(value)
    elif isinstance(value, bytes):
        yield value.hex()
    elif isinstance(value, list | tuple):
        yield f"{len(value)} items"
        yield from _of_all(value, around)
    elif isinstance(value, Set):
        yield from sorted(map(str, value))
    elif isinstance(value, Mapping):
        yield from _of_mapping(value, around)
    elif isinstance(value, np.ndarray):
        yield from _of_array(value, around)
    elif isinstance(value, pd.DataFrame):
        yield from _of_mapping({str(name): value[name].to_numpy() for name in value}, around)
    elif isinstance(value, pd.Index | pd.Series):
        yield from _of_array(value.to_numpy(), around)
    elif isinstance(value, pd.CategoricalDtype):
        yield f"categories, ordered: {value.ordered}"
        yield from _parts(value.categories, around)
    elif isinstance(value, _SHOWN_IN_FULL) or value is pd.NA:
        yield str(value)
    else:
        yield from _of_object(value, around)


def _of_all(values: Iterable[object], around: tuple[int, ...]) -> Iterator[Part]:
    for value in values:
        yield from _parts(value, around)


def _of_mapping(values: Mapping[str, object], around: tuple[int, ...]) -> Iterator[Part]:
    yield f"{len(values)} entries"
    for name in sorted(values, key=str):
        yield str(name)
        yield from _parts(values[name], around)


def _of_array(array: npt.NDArray, around: tuple[int, ...]) -> Iterator[Part]:
    yield f"{array.shape}"
    if array.dtype.kind in "biuf":
        yield array.astype(np.uint64 if array.dtype.kind == "u" else np.float64) + 0  # -0.0 becomes 0.0
    elif array.dtype.kind in "mM":
        yield f"{array.dtype}"
        yield array.view(np.int64)
    else:
        yield from _of_all(array.ravel().tolist(), around)


def _of_object(value: object, around: tuple[int, ...]) -> Iterator[Part]:
    """An object by the name of its class and the values that describe it."""
    torch = sys.modules.get("torch")
    if isinstance(value, type):
        yield value.__qualname__  # a column's type may be `object`, or NumPy's dtype of that name
    elif inspect.isroutine(value):
        yield f"{value.__module__}.{value.__qualname__}"
    elif torch is not None and isinstance(value, torch.Tensor):
        yield from _of_array(value.detach().cpu().numpy(), around)
    elif id(value) in around:
        yield f"the object {len(around) - around.index(id(value))} levels above"
    elif hasattr(value, "__dict__"):
        yield type(value).__name__
        yield from _of_mapping(_description(value), (*around, id(value)))
    else:
        yield joblib.hash(value)


def _description(value: object) -> dict[str, object]:
    """The values that describe an object, but for those that decide nothing."""
    state = {name: part for name, part in state_of(value).items() if name not in _NO_PART}
    for part in ("settings", "fitted"):  # of an estimator or a density: attributes by their names
        if isinstance(state.get(part), Mapping):
            state[part] = {name: item for name, item in state[part].items() if name not in _NO_PART}
    return state

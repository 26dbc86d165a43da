"""Which model and which rows a certificate is about: keyed hashes of what a model does and of what rows hold."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.encoder.pipelines import pipeline_steps
from fairflows.exceptions import DataError, DataWarning
from fairflows.table.hashing import Hashes, content_hashes, fingerprint
from fairflows.table.ledger import named_persons
from fairflows.table.table import Table

_N_PROBES = 64
_NOT_HASHED = ("key", "key_", "ledger_")  # a ledger grows with every certificate; a key is no part of what is done
_DECIMALS = 6  # another machine may round the last bits of a float otherwise


def secret_of(model: Any) -> bytes:
    """The encoder's key; models without one are hashed without, and their certificates carry no seal."""
    return bytes(getattr(pipeline_steps(model)[0], "key_", b""))


def rows_hash(table: Table, key: bytes) -> str:
    """A hash of the rows' values, labels and groups, in whatever order they come."""
    return fingerprint([np.sort(_whole_rows(table, key))], key)


def model_hash(model: Any, key: bytes) -> str:
    """A hash of what a model does: how it encodes rows drawn from its own densities, and the densities themselves.

    What a model does survives saving and loading, which bytes in memory need not.
    """
    encoder, *others = pipeline_steps(model)
    parts: list[Any] = [type(encoder).__name__, *map(str, getattr(encoder, "groups_", []))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # draws may lie outside the training range
        parts += list(_behaviour(encoder))
    if len(parts) == 1 + len(getattr(encoder, "groups_", [])):
        state = {name: value for name, value in vars(encoder).items() if name not in _NOT_HASHED}
        # Once pickled and read, a state shares the same objects as any later copy of it, which joblib looks at.
        parts.append(joblib.hash(pickle.loads(pickle.dumps(state))))
    for step in others:
        parts.append(type(step).__name__)
        state = {name: value for name, value in vars(step).items() if name.endswith("_") and name != "key_"}
        parts += list(_numbers_and_texts({**step.get_params(), **state, "key": ""}))
    return fingerprint(parts, key)


def one_row_a_person(table: Table, identifier: str | None, seed: int) -> Table:
    """One random row of every person."""
    places = places_of_persons(table, identifier, seed)
    return table if len(places) == len(table) else table.take(places)


def places_of_persons(table: Table, identifier: str | None, seed: int) -> npt.NDArray[np.intp]:
    """Where one random row of every person is; the choice depends on the seed and the rows, not on their order."""
    persons = named_persons(table.X, identifier)
    if persons is None or len(persons.names) == len(persons.codes):
        return np.arange(len(table))
    lot = _whole_rows(table, f"one row a person: {seed}".encode())
    order = np.lexsort([lot, persons.codes])
    first = np.unique(persons.codes[order], return_index=True)[1]
    return np.sort(order[first])


def sample_rows(encoder: Any, n: int, seed: int) -> list[pd.DataFrame] | None:
    """Rows of each group drawn from its density; None for an encoder that estimates none."""
    if not hasattr(encoder, "sample_rows"):
        return None
    try:
        return encoder.sample_rows(n, random_state=seed)
    except DataError:  # transport of a score has a density of the score alone
        return None


def _whole_rows(table: Table, key: bytes) -> Hashes:
    columns = [table.X, table.a.rename("a"), *([] if table.y is None else [table.y.rename("y")])]
    return content_hashes(pd.concat([column.reset_index(drop=True) for column in columns], axis=1), key)


def _behaviour(encoder: Any) -> Iterator[Any]:
    if hasattr(encoder, "log_density_table"):
        yield np.round(encoder.log_density_table(_N_PROBES, random_state=0), _DECIMALS) + 0.0
    yield from _numbers_and_texts(getattr(getattr(encoder, "transport_", None), "barycentres", []))
    for a, rows in enumerate(sample_rows(encoder, _N_PROBES, 0) or []):
        group = encoder.groups_[a]
        probes = rows.set_axis(pd.Index([f"probe {i}" for i in range(len(rows))], name="person"))
        wanted = list(getattr(encoder, "feature_names_in_", probes.columns))
        constants = {encoder.sensitive: group, encoder.identifier: probes.index}
        extra = {name: value for name, value in constants.items() if isinstance(name, str) and name in wanted}
        encoded = encoder.transform(probes.assign(**extra)[wanted], sensitive_features=[group] * len(probes))
        numeric = encoded.select_dtypes("number")
        encoded = encoded.assign(**{name: np.round(numeric[name], _DECIMALS) for name in numeric})
        yield content_hashes(encoded, b"probes")


def _numbers_and_texts(value: Any) -> Iterator[Any]:
    """The numbers and texts that a nested state is made of, in a fixed order."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, pd.DataFrame):
        value = {str(name): value[name].to_numpy() for name in value}
    if isinstance(value, dict):
        for name in sorted(value, key=str):
            yield str(name)
            yield from _numbers_and_texts(value[name])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _numbers_and_texts(item)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        yield np.round(value.astype(np.float64), 12) + 0.0
    elif isinstance(value, np.ndarray):
        yield from map(str, value.ravel())
    else:
        yield str(value)

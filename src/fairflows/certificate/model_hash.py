"""A hash by which a certificate knows its model."""

from __future__ import annotations

import inspect
import json
from typing import Any

import joblib
import pandas as pd

from fairflows.encoder.base import Model
from fairflows.storage import TAG, State, Writer
from fairflows.table.keys import Secret, fingerprint
from fairflows.table.ledger import Ledger

_NOT_HASHED = frozenset({
    "key", "key_", "ledger_", "device", "progress", "n_jobs", "probe", "history", "gaps",
    "_sklearn_output_config",
})  # fmt: skip
"""Parts that decide no released value: secrets, accounts of rows, how the work was done, how values are handed over,
what is checked at loading."""


def model_hash(model: object, key: Secret) -> str:
    """Return a hash of everything that decides a release: settings and fitted values.

    It covers the values that a model is saved by, so that a model that was saved and loaded has the same hash. A model
    of another library's classes has one, too.
    """
    return fingerprint([json.dumps(_Describer().write(model, "model"), sort_keys=True)], key)


def origin_of(model: Model) -> str:
    """Return the hash of the release whose cells a model gives: its own, or the first one's that it draws again from.

    Releases from the same cells are one release in the record: linked, they tell no more. Where cells were cut further
    a name of this cut follows, after a slash.
    """
    return getattr(model, "origin_", "") or model_hash(model, model.key_)


class _Describer(Writer):
    """Turns any value into JSON that is hashed: also objects of classes that cannot be saved, by their attributes."""

    left_out = _NOT_HASHED

    def __init__(self) -> None:
        super().__init__()
        self._around: list[int] = []  # the objects that hold the present one

    def _secret(self, value: Secret) -> State:
        return {TAG: "secret"}

    def _ledger(self, value: Ledger) -> State:
        return {TAG: "ledger"}

    def _object(self, value: object, where: str) -> Any:
        if isinstance(value, type) or inspect.isroutine(value):
            return f"{value.__module__}.{value.__qualname__}"
        if id(value) in self._around:
            return f"the object {len(self._around) - self._around.index(id(value))} levels above"
        if isinstance(value, pd.Series):
            return self._array(value.to_numpy(), where)
        if not hasattr(value, "__dict__"):
            return joblib.hash(value)
        self._around.append(id(value))
        described = {TAG: "object", "class": type(value).__name__, "state": self._state(value, where)}
        self._around.pop()
        return described

"""The values that describe a fitted object: it is saved by them, built from them again, and known by a hash of them.

A class says them itself, by the two methods of `Storable`. Most need not: of a dataclass they are the fields, of an
estimator its settings and what fitting added, of any other object its attributes. Of scikit-learn's own estimators
only the settings that somebody chose are kept: which others there are, and their defaults, differ between its releases.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import joblib
import numpy as np
import numpy.typing as npt
import pandas as pd
import sklearn
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import MetadataRequest

from fairflows.table.persons import Part, fingerprint

State = dict[str, Any]
T = TypeVar("T")

_REQUESTS = "_metadata_request"
_NOT_HASHED = {
    "key", "key_", "ledger_", "device", "progress", "history", "n_jobs", "requests", "probe", "_sklearn_output_config",
}  # fmt: skip
"""Parts that decide no released value: secrets, accounts of rows, how the work was done, how values are handed over,
what is checked at loading."""

_SHOWN_IN_FULL = (np.dtype, pd.api.extensions.ExtensionDtype, pd.Timestamp, pd.Timedelta, type(pd.NaT))
"""Types whose text tells values apart."""


@runtime_checkable
class Storable(Protocol):
    """An object that says what describes it. Nobody has to inherit from this class: the two methods are enough."""

    def to_state(self) -> State:
        """Plain values, arrays, tensors, and objects that can be described in turn."""

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The object that `to_state` described."""


def state_of(value: object) -> State:
    """The values that describe an object."""
    if isinstance(value, Storable):
        return value.to_state()
    if isinstance(value, BaseEstimator):
        return _estimator_state(value)
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}  # what else it holds is a cache
    return {name: part for name, part in vars(value).items() if not _is_cached(type(value), name)}


def _is_cached(kind: type, name: str) -> bool:
    """Whether an attribute is computed from the others, and kept."""
    return any(isinstance(vars(base).get(name), cached_property) for base in kind.__mro__)


def built_from(kind: type[T], state: State) -> T:
    """The object of a class that these values describe."""
    if issubclass(kind, Storable):
        return kind.from_state(state)
    if issubclass(kind, BaseEstimator):
        return _estimator(kind, state)
    if is_dataclass(kind):
        return kind(**state)
    value = kind.__new__(kind)
    value.__dict__.update(state)
    return value


def _estimator_state(value: BaseEstimator) -> State:
    settings = value.get_params(deep=False)
    fitted = {name: part for name, part in vars(value).items() if name not in settings and name != _REQUESTS}
    if type(value).__module__.startswith("sklearn."):
        settings = _chosen(type(value), settings)
    return {"settings": settings, "fitted": fitted, "requests": _requests(vars(value).get(_REQUESTS))}


def _chosen(kind: type, settings: State) -> State:
    """The settings that are not the defaults of their class."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()}
    # True equals 1, and is another setting.
    return {
        name: setting for name, setting in settings.items()
        if type(setting) is not type(defaults[name]) or setting != defaults[name]
    }  # fmt: skip


def _requests(requests: MetadataRequest | None) -> dict[str, dict[str, Any]]:
    """Which arguments an estimator asked to be passed on, by method."""
    by_method = {} if requests is None else vars(requests)
    asked = {method: dict(getattr(request, "requests", {})) for method, request in by_method.items()}
    return {method: arguments for method, arguments in asked.items() if arguments}


def _estimator(kind: type[BaseEstimator], state: State) -> Any:
    value = kind(**state["settings"])
    value.__dict__.update(state["fitted"])
    with sklearn.config_context(enable_metadata_routing=True):
        for method, arguments in state["requests"].items():
            getattr(value, f"set_{method}_request")(**arguments)
    return value


def model_hash(model: object, key: bytes) -> str:
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
    state = {name: part for name, part in state_of(value).items() if name not in _NOT_HASHED}
    for part in ("settings", "fitted"):  # of an estimator or a density: attributes by their names
        if isinstance(state.get(part), Mapping):
            state[part] = {name: item for name, item in state[part].items() if name not in _NOT_HASHED}
    return state

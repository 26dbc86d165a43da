"""The values that describe a fitted object: those that are saved, and that it is built from again.

A class says them itself, by the two methods of `Storable`. Most need not: of a dataclass they are the fields, of an
estimator its settings and what fitting added, of any other object its attributes. Of scikit-learn's own estimators
only the settings that somebody chose are kept: which others there are, and their defaults, differ between its releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from inspect import signature
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import sklearn
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import MetadataRequest

State = dict[str, Any]
T = TypeVar("T")

_REQUESTS = "_metadata_request"


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
    defaults = {name: parameter.default for name, parameter in signature(kind).parameters.items()}
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

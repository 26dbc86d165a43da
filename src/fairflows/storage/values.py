"""Fitted objects as JSON and named arrays, and back; no code is ever stored, and none is run on loading.

Every value is one of: a JSON value; a tagged object ``{"is": kind, ...}`` for what JSON lacks (tuples, arrays, times,
column types, ...); or ``{"is": "object", "class": name, ...}`` for one of the classes in a fixed list. Whatever
else comes is refused when saving, and an unknown tag or class when loading. A file names a class and never a module:
names are part of the file format, so a class may move, its name in files may not.

Parts of the user's own, ``{"is": "own object", ...}`` and ``{"is": "own module", ...}``, are also written by the name
of their class. Their code is the user's, who passes it when loading (see `OwnParts`).
"""

from __future__ import annotations

import copy
import datetime
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator

from fairflows.encoder.model_state import State, Storable, built_from, state_of
from fairflows.exceptions import DataError
from fairflows.table.ledger import Ledger
from fairflows.table.persons import Key, Secret

if TYPE_CHECKING:
    from torch.nn import Module

_CLASSES = {  # by the module that they are imported from when an object of them is met, and not before
    "fairflows.table.grid": "Grid",
    "fairflows.table.schema": "Schema",
    "fairflows.codec.product": "Codec",
    "fairflows.codec.cell_codec": "BinLevels CellCodec",
    "fairflows.codec.one_column": "Levels Ranges Scale",
    "fairflows.bijection": "RealNVP NeuralSpline ElementwiseSpline StackedMLP",
    "fairflows.density": "MixtureDensity FlowDensity AutoregressiveDensity KernelDensity KnownDensity GroupDensities",
    "fairflows.density.known": "InModelSpace",
    "fairflows.density.made": "CategoricalMADE",
    "fairflows.density.cell_counts": "CellCounts SmoothedCounts PairTree",
    "fairflows.encoder.fair_flow": "FairFlow",
    "fairflows.encoder.fair_matching": "FairMatching",
    "fairflows.encoder.fair_tree": "FairTree TreeScores",
    "fairflows.encoder.matched_tree": "MatchedTree",
    "fairflows.encoder.ranked_columns": "RankedColumns NumberRanks LevelIndicators PrincipalComponents",
    "fairflows.encoder.fair_cells": "FairCells",
    "fairflows.encoder.labels": "Label",
    "fairflows.encoder.cell_programme": "BinnedScores ScoreBins",
    "fairflows.encoder.group_encoder": "Unencoded",
    "fairflows.encoder.flow_fitting": "FittedFlow",
    "fairflows.encoder.cell_model": "CellModel",
    "fairflows.encoder.scores": "Score ScoreFeatures OneHot BoostedTrees LogisticScores",
    "fairflows.encoder.trees": "ThresholdTrees",
    "fairflows.encoder.rows_given_cell": "RowsGivenCell",
    "fairflows.release.cell_release": "CellRelease",
    "fairflows.release.crossfit": "CrossFit KeptCounts",
    "fairflows.release.partitions": "NumericView NumberColumn LevelColumn TreePartition",
    "sklearn.linear_model": "LogisticRegression",
    "sklearn.ensemble": "HistGradientBoostingClassifier",
    "sklearn.pipeline": "Pipeline",
    "torch.distributions": "Normal MultivariateNormal Independent MixtureSameFamily Categorical Laplace StudentT Chi2 "
    "Gamma Beta Dirichlet Exponential",
}
_HOMES = {name: home for home, names in _CLASSES.items() for name in names.split()}
_SIZES = ("_batch_shape", "_event_shape")  # of a distribution: tuples of a type of their own


def class_named(name: str) -> type | None:
    """The class with this name in files."""
    return getattr(import_module(_HOMES[name]), name) if name in _HOMES else None


def name_and_state(value: object, where: str) -> tuple[str, State]:
    """The name of an object's class in files, and the values that describe it; a DataError says what has none."""
    kind = type(value)
    if class_named(kind.__name__) is not kind:
        what = "a function" if inspect.isroutine(value) else f"a {kind.__name__}"
        raise DataError(
            f"{where}: {what} cannot be saved: a saved model holds no code. What can: fairflows' own encoders, "
            "densities and releases, pipelines of them, common torch.distributions, torch modules (zuko's flows), "
            "LogisticRegression, HistGradientBoostingClassifier, and objects of your own with to_state and from_state, "
            "as a Bijection or a Density has. A setting that only training needs may be replaced with set_params first."
        )
    state = state_of(value)
    if kind.__name__ == "HistGradientBoostingClassifier" and state["fitted"]:
        raise DataError(
            f"{where}: a fitted {kind.__name__} cannot be saved here: only one that scores numeric columns has a form "
            "that is not a pickle."
        )
    if kind.__name__ == "Pipeline" and isinstance(last := state["settings"]["steps"][-1][1], BaseEstimator):
        name_and_state(last, where)  # refused by the name of its classifier, rather than of a step before it
    return kind.__name__, state


def object_of(kind: type, state: State) -> Any:
    """The object of a class that these values describe."""
    if _HOMES[kind.__name__] == "torch.distributions":
        from torch import Size

        state = state | {name: Size(state[name]) for name in _SIZES}
    return built_from(kind, state)


class OwnParts:
    """What the user passes when a model holds parts of his own: classes, and torch modules to load weights into.

    Classes have ``to_state`` and ``from_state``; modules are of the same class and shapes as those that were saved.
    """

    def __init__(self, given: Sequence[object] = ()) -> None:
        self._classes: dict[str, type[Storable]] = {}
        self._modules: list[Module] = []
        for part in given:
            if isinstance(part, type) and issubclass(part, Storable):
                self._classes[part.__name__] = part
            elif _is_module(part):
                self._modules.append(part)
            else:
                rule = "must hold classes that have to_state and from_state, and torch modules"
                raise DataError(f"own {rule}; got {part!r}.")

    def object_of(self, name: str, state: State) -> Any:
        """The object of a class of this name that these values describe."""
        if name not in self._classes:
            raise OwnPartError(f"it holds a {name} of its maker's own: pass that class, load(path, own=[{name}])")
        return self._classes[name].from_state(state)

    def module_with(self, name: str, weights: State) -> Any:
        """A copy of the module of this class whose weights have the names and shapes of these, with these weights."""
        shapes = {key: tuple(value.shape) for key, value in weights.items()}
        for module in self._modules:
            own = {key: tuple(value.shape) for key, value in module.state_dict().items()}
            if type(module).__name__ == name and own == shapes:
                filled = copy.deepcopy(module)
                filled.load_state_dict(weights, assign=True)
                return filled
        raise OwnPartError(
            f"it holds the weights of a {name}, and no code: make one with the same settings and pass it, "
            f"load(path, own=[{name}(...)])"
        )


Tagged = dict[str, Any]
"""A JSON object whose entry "is" says what it stands for."""

_TAG = "is"
_TEXTS = {"O": object, "U": str}
_DAYS = {kind.__name__: kind for kind in (datetime.date, datetime.time, datetime.datetime)}


class DamagedError(Exception):
    """What was read is not what was written."""


class OwnPartError(Exception):
    """A part of the user's own was not passed."""


class Writer:
    """Turns values into JSON; collects the arrays, the secrets and the ledgers, which have files of their own."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.secrets: list[bytes] = []
        self.ledgers: list[Ledger] = []  # one, or that of each model where several make up one
        self._names: dict[int, str] = {}
        self._kept: list[object] = []  # an array that is gone would give its id to the next one

    def write(self, value: object, where: str) -> Any:
        """The JSON form of a value; `where` says in messages what it belongs to."""
        if value is None or isinstance(value, bool | str) or (type(value) is int):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {_TAG: "float", "value": str(value)}
        if isinstance(value, list):
            return [self.write(item, f"{where}[{i}]") for i, item in enumerate(value)]
        if isinstance(value, dict):
            items = [[self.write(k, where), self.write(v, f"{where}[{k!r}]")] for k, v in value.items()]
            return {_TAG: "dict", "items": items}
        kinds: tuple[tuple[Any, Callable[[Any, str], Tagged]], ...] = (
            (tuple, self._tuple),
            (Key, self._secret),
            (bytes, self._bytes),
            (Ledger, self._ledger),
            (np.generic, self._scalar),
            (np.ndarray, self._array),
            (pd.Timestamp | pd.Timedelta, self._time),
            (datetime.date | datetime.time, self._day),
            (pd.Index, self._index),
            (pd.DataFrame, self._frame),
            (np.dtype | pd.api.extensions.ExtensionDtype, self._dtype),
        )
        for kind, write in kinds:
            if isinstance(value, kind):
                return write(value, where)
        return self._tensor(value, where) if _is_tensor(value) else self._object(value, where)

    def _tuple(self, value: tuple[object, ...], where: str) -> Tagged:
        return {_TAG: "tuple", "items": self.write(list(value), where)}

    def _bytes(self, value: bytes, where: str) -> Tagged:
        """A value of a column, as some programs write text into Parquet files; a secret is a `Key`."""
        return {_TAG: "bytes", "hex": value.hex()}

    def _secret(self, value: Secret, where: str) -> Tagged:
        secret = bytes(value)
        if secret not in self.secrets:
            self.secrets.append(secret)
        return {_TAG: "secret", "number": self.secrets.index(secret)}

    def _ledger(self, value: Ledger, where: str) -> Tagged:
        number = next((i for i, ledger in enumerate(self.ledgers) if ledger is value), len(self.ledgers))
        if number == len(self.ledgers):
            self.ledgers.append(value)
        return {_TAG: "ledger", "number": number, "key": self._secret(value.key, where)}

    def _scalar(self, value: np.generic, where: str) -> Tagged:
        return {_TAG: "scalar", "array": self._array(np.asarray(value), where)}

    def _array(self, value: np.ndarray, where: str) -> Tagged:
        if value.dtype.kind in "OU":
            items = self.write(value.ravel().tolist(), where)
            return {_TAG: "texts", "type": value.dtype.kind, "shape": list(value.shape), "items": items}
        if value.dtype.kind not in "biufmM" or value.dtype.itemsize > 8:
            raise DataError(f"{where}: an array of {value.dtype} cannot be saved.")
        return self._stored(value, value)

    def _tensor(self, value: Any, where: str) -> Tagged:
        return {_TAG: "tensor", "array": self._stored(value, value.detach().cpu().numpy())}

    def _stored(self, value: object, array: np.ndarray) -> Tagged:
        """An array by its name; a value that occurs again is stored once."""
        if id(value) not in self._names:
            self._kept.append(value)
            self._names[id(value)] = name = f"a{len(self.arrays)}"
            plain = array.view(np.int64) if array.dtype.kind in "mM" else array
            # safetensors writes the memory as it lies
            self.arrays[name] = np.array(plain, dtype=plain.dtype.newbyteorder("<"), order="C")
        return {_TAG: "array", "type": array.dtype.str, "shape": list(array.shape), "name": self._names[id(value)]}

    def _time(self, value: Any, where: str) -> Tagged:
        zone = None if getattr(value, "tz", None) is None else str(value.tz)
        kind = "timestamp" if isinstance(value, pd.Timestamp) else "timedelta"
        return {_TAG: kind, "ticks": int(value.as_unit(value.unit)._value), "unit": value.unit, "zone": zone}

    def _day(self, value: datetime.date | datetime.time, where: str) -> Tagged:
        """A date, a time of day or both, as columns of any objects hold them."""
        return {_TAG: type(value).__name__, "text": value.isoformat()}

    def _index(self, value: pd.Index, where: str) -> Tagged:
        items = self.write(value.tolist(), where)
        return {
            _TAG: "index",
            "name": self.write(value.name, where),
            "type": self.write(value.dtype, where),
            "items": items,
        }

    def _frame(self, value: pd.DataFrame, where: str) -> Tagged:
        columns = []
        for name, column in value.items():
            is_plain = isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf"
            if is_plain:
                values = column.to_numpy()
            else:  # NaN stays NaN, and not None, in a column of any objects: the hash of a model tells them apart
                values = [v if isinstance(v, float) or pd.notna(v) else None for v in column.tolist()]
            columns.append([self.write(part, f"{where}[{name!r}]") for part in (name, column.dtype, values)])
        return {_TAG: "frame", "index": self.write(value.index, where), "columns": columns}

    def _dtype(self, value: Any, where: str) -> Tagged:
        if isinstance(value, pd.CategoricalDtype):
            return {_TAG: "categories", "of": self.write(value.categories, where), "ordered": bool(value.ordered)}
        value = pd.api.types.pandas_dtype(value)
        if isinstance(value, pd.StringDtype):
            return {
                _TAG: "string type",
                "storage": value.storage,
                "missing": "NA" if value.na_value is pd.NA else "nan",
            }
        if pd.api.types.pandas_dtype(str(value)) != value:
            raise DataError(f"{where}: a column of type {value} cannot be saved.")
        return {_TAG: "type", "name": str(value)}

    def _object(self, value: object, where: str) -> Tagged:
        kind = type(value)
        if class_named(kind.__name__) is not kind and isinstance(value, Storable):
            return {_TAG: "own object", "class": kind.__name__, "state": self._state(value.to_state(), where)}
        if class_named(kind.__name__) is not kind and _is_module(value):
            return {_TAG: "own module", "class": kind.__name__, "weights": self._state(dict(value.state_dict()), where)}
        name, state = name_and_state(value, where)
        return {_TAG: "object", "class": name, "state": self._state(state, where)}

    def _state(self, state: State, where: str) -> Tagged:
        return {part: self.write(content, f"{where}.{part}") for part, content in state.items()}


class Reader:
    """Turns JSON back into values, with the arrays, secrets and ledgers that belong to it."""

    def __init__(
        self, arrays: dict[str, np.ndarray], secrets: list[Key], ledgers: list[Any], own: OwnParts | None = None
    ) -> None:
        self._arrays = arrays
        self._own = own or OwnParts()
        self._secrets = secrets
        self._written_ledgers = ledgers
        self._ledgers: dict[int, Ledger] = {}
        self._views: dict[tuple[str, str], np.ndarray] = {}
        self._kinds: dict[str, Callable[[Tagged], Any]] = {
            "float": lambda v: float(v["value"]),
            "dict": lambda v: {self.read(key): self.read(item) for key, item in v["items"]},
            "tuple": lambda v: tuple(self.read(v["items"])),
            "secret": lambda v: self._secrets[v["number"]],
            "ledger": self._ledger,
            "array": self._array,
            "texts": lambda v: _object_array(self.read(v["items"])).reshape(v["shape"]).astype(_TEXTS[v["type"]]),
            "scalar": lambda v: self._array(v["array"])[()],
            "tensor": self._tensor,
            "bytes": lambda v: bytes.fromhex(v["hex"]),
            **{name: _day_reader(kind) for name, kind in _DAYS.items()},
            "timestamp": _timestamp,
            "timedelta": lambda v: pd.Timedelta(np.timedelta64(v["ticks"], v["unit"])),
            "index": self._index,
            "frame": self._frame,
            "categories": lambda v: pd.CategoricalDtype(self.read(v["of"]), ordered=v["ordered"]),
            "string type": lambda v: pd.StringDtype(v["storage"], na_value=pd.NA if v["missing"] == "NA" else np.nan),
            "type": lambda v: pd.api.types.pandas_dtype(v["name"]),
            "object": self._object,
            "own object": lambda v: self._own.object_of(v["class"], self._state(v["state"])),
            "own module": lambda v: self._own.module_with(v["class"], self._state(v["weights"])),
        }

    def read(self, value: Any) -> Any:
        """The value that was written."""
        if isinstance(value, list):
            return [self.read(item) for item in value]
        if not isinstance(value, dict):
            return value
        kind = value.get(_TAG)
        if kind not in self._kinds:
            raise DamagedError(f"it holds a value of the unknown kind {kind!r}")
        return self._kinds[kind](value)

    def _array(self, value: Tagged) -> np.ndarray:
        name = value["name"]
        if name not in self._arrays:
            raise DamagedError(f"the array {name!r} is missing")
        array, dtype, shape = self._arrays[name], np.dtype(value["type"]), tuple(value["shape"])
        stored = np.dtype(np.int64) if dtype.kind in "mM" else dtype
        if array.dtype != stored or array.shape != shape:
            raise DamagedError(
                f"the array {name!r} must be {stored} of shape {shape}; got {array.dtype}, {array.shape}"
            )
        # One object for each array, as it was: two names of one array must not become two arrays.
        return self._views.setdefault((name, dtype.str), array.view(dtype))

    def _tensor(self, value: Tagged) -> Any:
        import torch

        return torch.from_numpy(self._array(value["array"]).copy())

    def _ledger(self, value: Tagged) -> Ledger:
        number = value["number"]
        if number >= len(self._written_ledgers):
            raise DamagedError("its ledger is missing")
        if number not in self._ledgers:
            self._ledgers[number] = Ledger.from_dict(self._written_ledgers[number], self.read(value["key"]))
        return self._ledgers[number]

    def _index(self, value: Tagged) -> pd.Index:
        items = pd.Series(_object_array(self.read(value["items"])), dtype=object)
        return pd.Index(items, dtype=self.read(value["type"]), name=self.read(value["name"]))

    def _frame(self, value: Tagged) -> pd.DataFrame:
        columns = {}
        index = self.read(value["index"])
        for name, dtype, values in value["columns"]:
            items = self.read(values)
            column = pd.Series(items if isinstance(items, np.ndarray) else _object_array(items)).astype(
                self.read(dtype)
            )
            columns[self.read(name)] = column.set_axis(index)
        return pd.DataFrame(columns, index=index)

    def _object(self, value: Tagged) -> Any:
        kind = class_named(value["class"])
        if kind is None:
            raise DamagedError(f"it holds an object of the unknown class {value['class']!r}")
        return object_of(kind, self._state(value["state"]))

    def _state(self, written: Tagged) -> State:
        return {name: self.read(part) for name, part in written.items()}


def _day_reader(kind: type[datetime.date] | type[datetime.time]) -> Callable[[Tagged], datetime.date | datetime.time]:
    return lambda value: kind.fromisoformat(value["text"])


def _timestamp(value: Tagged) -> pd.Timestamp:
    moment = pd.Timestamp(np.datetime64(value["ticks"], value["unit"]))
    return moment if value["zone"] is None else moment.tz_localize("UTC").tz_convert(value["zone"])


def _object_array(items: list[object]) -> npt.NDArray[np.object_]:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def _is_tensor(value: object) -> bool:
    return type(value).__module__.split(".")[0] == "torch" and type(value).__name__ in ("Tensor", "Parameter")


def _is_module(value: object) -> TypeGuard[Module]:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)

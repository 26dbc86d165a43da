"""Save and load fitted models as JSON and arrays, never as a pickle.

=======================  ==============================================================================================
``model.json``           format version, class, settings, codec: everything but numbers in bulk
``weights.safetensors``  the arrays
``key.json``             the secrets behind noise and coins, readable by the owner alone (0600); never share it
``ledger.json``          keyed hashes of the rows that the model, and each model in it, was fitted to or chosen by
=======================  ==============================================================================================

A class says what it is saved by in ``to_dict`` and is built again by ``from_dict``. Most need neither: a dataclass is
saved by its fields, an estimator by its settings and what fitting added, any other object by its attributes. Only the
classes of one list are saved; files name them without their module, so that a class may move.

The folder is private (0700). It is written beside its place and then exchanged with what was there, so that a crash
leaves the old model or the new one.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from hashlib import file_digest, sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator

from fairflows import __version__
from fairflows.exceptions import DataError
from fairflows.table.folders import new_folder, refuse_other_files, settle_folder, write_private
from fairflows.table.json_text import parse_json, read_document, read_text
from fairflows.table.keys import Key, Secret
from fairflows.table.ledger import Ledger

FORMAT = 1
"""The version of the format that this release writes and reads."""

MODEL, WEIGHTS, KEY, LEDGER = "model.json", "weights.safetensors", "key.json", "ledger.json"
FILES = (MODEL, WEIGHTS, KEY, LEDGER)
CLASSES = {  # by the module that they are imported from when an object of them is met, and not before
    "fairflows.table.columns": "Schema",
    "fairflows.table.grid": "Grid",
    "fairflows.table.panels": "PanelForm",
    "fairflows.table.domain": "Domain Levels Numbers Seen",
    "fairflows.codec.model_space": "Codec Scale",
    "fairflows.codec.combination_codec": "BinLevels CombinationCodec",
    "fairflows.bijection": "RealNVP NeuralSpline AutoregressiveSpline StackedMLP Zuko",
    "fairflows.bijection.turn": "Turned",
    "fairflows.density": "FlowDensity GroupDensities KnownDensity MixtureDensity",
    "fairflows.density.base": "InModelSpace",
    "fairflows.density.estimated": "CategoricalMADE",
    "fairflows.density.combinations": "CombinationCounts SmoothedCounts",
    "fairflows.encoder.fair_flow": "FairFlow",
    "fairflows.encoder.fitted_flow": "FittedFlow",
    "fairflows.training.history": "LossHistory",
    "fairflows.encoder.fair_matching": "FairMatching CombinationModel",
    "fairflows.encoder.fair_tree": "FairTree",
    "fairflows.encoder.tree_scores": "TreeScores MoreScores",
    "fairflows.encoder.matched_tree": "MatchedTree TreeStructure",
    "fairflows.encoder.ranked_columns": "NumberRanks LevelIndicators PrincipalComponents",
    "fairflows.encoder.fair_cells": "FairCells",
    "fairflows.encoder.label": "Label",
    "fairflows.encoder.cell_programme": "BinnedScores ScoreBins",
    "fairflows.encoder.base": "EncodedColumns",
    "fairflows.encoder.scores": "Score LevelNumbers ThresholdTrees",
    "fairflows.release.release": "Release",
    "fairflows.release.margins": "Margin",
    "fairflows.release.released_table": "ReleasedTable Together",
    "fairflows.release.own_rows": "RowHashes",
    "fairflows.bounds.planning": "CellPlan",
    "fairflows.bounds.blocks": "Leaves",
    "fairflows.release.row_law": "RowLaw",
    "fairflows.release.panel_law": "PanelLaw",
    "fairflows.release.time_steps": "TimeSteps",
    "fairflows.release.column_tree": "ColumnTrees",
    "fairflows.release.number_ranges": "NumberRanges",
    "fairflows.release.derived_columns": "Lookup",
    "fairflows.release.formulas": "Formula",
    "fairflows.release.rules": "Rule",
    "fairflows.release.partitions": "NumericView NumberColumn LevelColumn TreePartition",
    "torch.distributions": "Normal MultivariateNormal Independent MixtureSameFamily Categorical Laplace StudentT Chi2 "
    "Gamma Beta Dirichlet Exponential",
}
_HOMES = {name: home for home, names in CLASSES.items() for name in names.split()}
TAG = "is"  # the entry of a JSON object that says what it stands for
State = dict[str, Any]


@runtime_checkable
class Storable(Protocol):
    """Protocol of objects that can be saved: the two methods are enough, without inheritance."""

    def to_dict(self) -> State:
        """Return plain values, arrays, tensors, and objects that can be saved in turn."""

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Return the object that `to_dict` described."""


def save(model: Any, path: str | Path) -> None:
    """Save a fitted encoder or a density.

    Parameters
    ----------
    model : encoder or density
        What to save. A `Bijection` or `Density` of your own is saved without its code, which `load` then takes as
        ``own``.
    path : str or Path
        The folder to write; one that holds a model is replaced.

    Examples
    --------
    >>> import tempfile
    >>> from fairflows import FairMatching, load_adult
    >>> adult = load_adult()
    >>> encoder = FairMatching(gamma=1, density="counts").fit(adult)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(encoder, f"{folder}/model")
    ...     again = load(f"{folder}/model")
    >>> again.transform(adult).equals(encoder.transform(adult))
    True
    """
    from safetensors.numpy import save as to_bytes

    target = Path(path)
    _refuse_other_folder(target)
    writer = Writer()
    text = _json(writer.write(model, type(model).__name__))
    weights = to_bytes(writer.arrays)
    keys = json.dumps([secret.hex() for secret in writer.secrets])
    header = {
        "format": FORMAT,
        "fairflows": __version__,
        "weights": _digest(weights),
        "weights_bytes": len(weights),  # compared first, because a damaged file may claim any size
        "model": _digest(text.encode()),
        "key": _digest(keys.encode())[:8],  # eight digits find a wrong key file, and do not help to guess a key
    }
    ledgers = json.dumps([ledger.to_dict() for ledger in writer.ledgers])
    header["ledger"] = _digest(ledgers.encode()) if writer.ledgers else ""
    with new_folder(target) as folder:
        body = json.dumps(header, indent=1)[:-2] + f',\n "content": {text}\n}}\n'
        (folder / MODEL).write_text(body, encoding="utf-8")
        (folder / WEIGHTS).write_bytes(weights)
        write_private(folder / KEY, keys.encode())
        if writer.ledgers:
            write_private(folder / LEDGER, ledgers.encode())


def load(path: str | Path, own: Sequence[type[Storable]] = ()) -> Any:
    """Load a model or density from a folder that `save` wrote.

    Parameters
    ----------
    path : str or Path
        The folder.
    own : sequence of classes, default=()
        Classes of your own bijections and densities, because a saved model holds no code.

    Raises
    ------
    DataError
        There is no model, a file of it is missing or damaged, its key belongs to another model, a later release of
        fairflows wrote it, or a part of its maker's own was not passed.
    """
    folder = Path(path)
    for part in own:
        if not (isinstance(part, type) and issubclass(part, Storable)):
            raise DataError(f"own must hold classes that have to_dict and from_dict; got {part!r}.")
    settle_folder(folder)
    header = read_document(folder, MODEL, "model of fairflows", FORMAT)
    try:
        if _digest(_json(header["content"]).encode()) != header["model"]:
            raise DataError(f"{MODEL} is damaged: its content is not what was saved.")
        arrays = _read_weights(folder / WEIGHTS, header)
        keys = _read_keys(folder / KEY, header["key"])
        ledgers = _read_ledgers(folder / LEDGER, header["ledger"]) if header["ledger"] else []
        reader = _Reader(arrays, keys, ledgers, own)
        return reader.read(header["content"])
    except DataError as error:
        raise DataError(f"{folder}: the model cannot be loaded: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise DataError(f"{folder}: the model cannot be rebuilt, it is damaged: {reason}") from None


def _state_of(value: object) -> State:
    """Return the values that describe an object."""
    if isinstance(value, Storable):
        return value.to_dict()
    if isinstance(value, BaseEstimator):
        settings = value.get_params(deep=False)
        left_out = {*settings, "_metadata_request"}  # which scikit-learn asks for again
        fitted = {name: part for name, part in vars(value).items() if name not in left_out}
        return {"settings": settings, "fitted": fitted}
    if is_dataclass(value):
        return {part.name: getattr(value, part.name) for part in fields(value)}
    # Attributes that are computed from the others, and kept, are left out.
    bases = type(value).__mro__
    cached = {name for base in bases for name, part in vars(base).items() if isinstance(part, cached_property)}
    return {name: part for name, part in vars(value).items() if name not in cached}


def _built(kind: type, state: State) -> Any:
    """Return the object of a class that these values describe."""
    if issubclass(kind, Storable):
        return kind.from_dict(state)
    if issubclass(kind, BaseEstimator):
        estimator = kind(**state["settings"])
        estimator.__dict__.update(state["fitted"])
        return estimator
    if is_dataclass(kind):
        return kind(**state)
    value = kind.__new__(kind)
    if _HOMES[kind.__name__] == "torch.distributions":
        from torch import Size

        state = state | {name: Size(state[name]) for name in ("_batch_shape", "_event_shape")}
    value.__dict__.update(state)
    return value


def class_named(name: str) -> type | None:
    """Return the class with this name in files."""
    return getattr(import_module(_HOMES[name]), name) if name in _HOMES else None


class Writer:
    """Turns values into JSON; collects the arrays, the secrets and the ledgers, which have files of their own."""

    left_out: frozenset[str] = frozenset()  # settings and fitted values that are not written

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.secrets: list[bytes] = []
        self.ledgers: list[Ledger] = []  # one, or that of each model where several make up one
        self._written: dict[int, object] = {}  # the objects that were written, in their order

    def write(self, value: Any, where: str) -> Any:
        """Return the JSON form of a value; messages name it by `where`."""
        if value is None or isinstance(value, bool | str) or type(value) is int:
            return value
        if type(value) is float and math.isfinite(value):
            return value
        if isinstance(value, list | tuple):
            items = [self.write(item, f"{where}[{i}]") for i, item in enumerate(value)]
            return items if isinstance(value, list) else {TAG: "tuple", "items": items}
        if isinstance(value, Mapping):
            items = [[self.write(k, where), self.write(v, f"{where}[{k!r}]")] for k, v in value.items()]
            return {TAG: "dict", "items": items}
        if isinstance(value, Key):
            return self._secret(value)
        if isinstance(value, Ledger):
            return self._ledger(value)
        if isinstance(value, np.generic | np.ndarray):
            return self._array(np.asarray(value), where)
        if _is_tensor(value):
            return self._array(value.detach().cpu().numpy(), where) | {TAG: "tensor"}
        if isinstance(value, pd.Index):
            return {TAG: "index", "items": self.write(value.tolist(), where)}
        if isinstance(value, pd.DataFrame):
            columns = {name: column.to_numpy() for name, column in value.items()}
            return {TAG: "frame", "columns": self.write(columns, where)}
        if isinstance(value, pd.CategoricalDtype):
            of = self.write([value.categories.dtype, value.categories.tolist()], where)
            return {TAG: "categories", "of": of, "ordered": bool(value.ordered)}
        try:
            text = _to_text(value)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        return self._object(value, where) if text is None else {TAG: "text", "kind": text[0], "text": text[1]}

    def _secret(self, value: Secret) -> State:
        if bytes(value) not in self.secrets:
            self.secrets.append(bytes(value))
        return {TAG: "secret", "number": self.secrets.index(bytes(value))}

    def _ledger(self, value: Ledger) -> State:
        if not any(value is ledger for ledger in self.ledgers):
            self.ledgers.append(value)
        number = next(i for i, ledger in enumerate(self.ledgers) if ledger is value)
        return {TAG: "ledger", "number": number, "key": self._secret(value.key)}

    def _array(self, array: npt.NDArray, where: str) -> State:
        """Return an array by a name that its content decides, so that equal arrays are stored once."""
        shape, dtype = list(array.shape), array.dtype
        if dtype.kind in "OU":
            items = self.write(array.ravel().tolist(), where)
            return {TAG: "values", "type": dtype.kind, "shape": shape, "items": items}
        if dtype.kind not in "biufmM" or dtype.itemsize > 8:
            return self._object(array, where)
        plain = _smallest(array.view(np.int64) if dtype.kind in "mM" else array)
        plain = np.array(plain, dtype=plain.dtype.newbyteorder("<"), order="C")  # safetensors writes memory as it lies
        name = _digest(f"{dtype.str} {shape}".encode() + plain.tobytes())[:32]
        self.arrays[name] = plain
        return {TAG: "array", "type": dtype.str, "shape": shape, "name": name}

    def _object(self, value: object, where: str) -> State:
        kind = type(value)
        tag = "object" if class_named(kind.__name__) is kind else "own object"
        if tag == "object" or isinstance(value, Storable):
            if id(value) in self._written:  # several parts of a model share it
                return {TAG: "same", "number": list(self._written).index(id(value))}
            state = self._state(value, where)
            self._written[id(value)] = value
            return {TAG: tag, "class": kind.__name__, "state": state}
        what = "a function" if inspect.isroutine(value) else f"a {kind.__name__}"
        raise DataError(
            f"{where}: {what} cannot be saved: a saved model holds no code. What can: fairflows' own encoders, "
            "densities and releases, common torch.distributions, and objects of your own with to_dict and from_dict, "
            "as a Bijection or a Density has. A setting that only training needs may be replaced with set_params first."
        )

    def _state(self, value: object, where: str) -> State:
        kept = self._kept(_state_of(value))
        for part in ("settings", "fitted"):
            if isinstance(kept.get(part), Mapping):
                kept[part] = self._kept(kept[part])
        return {part: self.write(content, f"{where}.{part}") for part, content in kept.items()}

    def _kept(self, state: Mapping[str, Any]) -> State:
        return {name: part for name, part in state.items() if name not in self.left_out}


def _smallest(array: npt.NDArray) -> npt.NDArray:
    """Return long whole numbers in the smallest type that holds them."""
    if array.dtype != np.int64 or not array.size:
        return array
    dtype = np.result_type(np.min_scalar_type(array.min()), np.min_scalar_type(array.max()))
    return array.astype(dtype) if dtype.itemsize < array.itemsize else array


class _Reader:
    """Turns JSON back into values, with the arrays, secrets, ledgers and own parts that belong to it."""

    def __init__(self, arrays: State, secrets: list[Key], ledgers: list[Any], own: Sequence[type[Storable]]) -> None:
        self._arrays, self._secrets, self._written_ledgers, self._own = arrays, secrets, ledgers, own
        self._ledgers: dict[int, Ledger] = {}
        self._built: list[Any] = []  # the objects that were read, in the order in which they were written
        self._kinds: dict[str, Callable[[State], Any]] = {
            "tuple": lambda value: tuple(self.read(value["items"])),
            "dict": lambda value: {self.read(key): self.read(item) for key, item in value["items"]},
            "text": lambda value: _TEXTS[value["kind"]][2](value["text"]),
            "secret": lambda value: self._secrets[value["number"]],
            "ledger": self._ledger,
            "array": lambda value: self._array(value) if value["shape"] else self._array(value)[()],
            "tensor": self._tensor,
            "values": self._values,
            "index": lambda value: pd.Index(self.read(value["items"]), dtype=object),
            "frame": lambda value: pd.DataFrame(self.read(value["columns"])),
            "categories": self._categories,
            "object": self._object,
            "own object": self._object,
            "same": lambda value: self._built[value["number"]],
        }

    def read(self, value: Any) -> Any:
        """Return the value that was written."""
        if isinstance(value, list):
            return [self.read(item) for item in value]
        if not isinstance(value, dict):
            return value
        return self._kinds[value[TAG]](value)

    def _ledger(self, value: State) -> Ledger:
        number = value["number"]
        if number not in self._ledgers:
            self._ledgers[number] = Ledger.from_dict(self._written_ledgers[number], self.read(value["key"]))
        return self._ledgers[number]

    def _array(self, value: State) -> npt.NDArray:
        array, dtype, shape = self._arrays[value["name"]], np.dtype(value["type"]), tuple(value["shape"])
        stored = np.dtype(np.int64) if dtype.kind in "mM" else dtype
        is_smaller = stored == np.int64 and array.dtype.kind in "iu" and array.itemsize < stored.itemsize
        if not (is_smaller or array.dtype == stored) or array.shape != shape:
            raise DataError(f"an array must be {stored} of shape {shape}; got {array.dtype}, {array.shape}.")
        return array.astype(stored, copy=False).view(dtype)

    def _tensor(self, value: State) -> Any:
        import torch

        return torch.from_numpy(self._array(value).copy())

    def _values(self, value: State) -> npt.NDArray:
        items = self.read(value["items"])
        array = np.empty(len(items), dtype=object)
        array[:] = items
        return array.reshape(value["shape"]).astype({"O": object, "U": str}[value["type"]])

    def _categories(self, value: State) -> pd.CategoricalDtype:
        dtype, of = self.read(value["of"])
        return pd.CategoricalDtype(pd.Index(pd.Series(of, dtype=object), dtype=dtype), ordered=value["ordered"])

    def _object(self, value: State) -> Any:
        name = value["class"]
        is_ours = value[TAG] == "object"
        kind = class_named(name) if is_ours else next((part for part in self._own if part.__name__ == name), None)
        if kind is None:
            raise DataError(f"it holds a {name} of its maker's own: pass that class, load(path, own=[{name}]).")
        self._built.append(_built(kind, {part: self.read(content) for part, content in value["state"].items()}))
        return self._built[-1]


def _is_tensor(value: object) -> bool:
    return type(value).__module__.split(".")[0] == "torch" and type(value).__name__ in ("Tensor", "Parameter")


def _refuse_other_folder(target: Path) -> None:
    """Raise if a folder holds anything but a model: such a folder is never replaced."""
    if not target.is_dir() or not any(target.iterdir()):
        return
    if not (target / MODEL).is_file():
        raise DataError(f"{target}: the folder holds other files and no model; a model gets a folder of its own.")
    read_document(target, MODEL, "model of fairflows", FORMAT)
    refuse_other_files(target, FILES)


def _read_weights(path: Path, header: State) -> dict[str, np.ndarray]:
    """Read the arrays; safetensors maps the file into memory, so that sizes which it only claims allocate nothing."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    with path.open("rb") as stream:
        has_its_size = path.stat().st_size == header["weights_bytes"]
        if not has_its_size or file_digest(stream, "sha256").hexdigest() != header["weights"]:
            raise DataError(f"{path}: the file is damaged or cut off, or belongs to another model.")
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:  # shapes and types it made up
        raise DataError(f"{path}: cannot be read: {error}.") from None


def _read_keys(path: Path, digest: str) -> list[Key]:
    if not path.is_file():
        raise DataError(f"{path}: the key is missing: without it a model neither encodes nor knows whom it has seen.")
    text = read_text(path)
    if _digest(text.encode())[:8] != digest:
        raise DataError(f"{path}: the key is damaged, or belongs to another model.")
    try:
        return [Key(bytes.fromhex(secret)) for secret in parse_json(text)]
    except (TypeError, ValueError):
        raise DataError(f"{path}: the key is damaged.") from None


def _read_ledgers(path: Path, digest: str) -> list[Any]:
    """Read the ledgers: a hash that was changed would let rows of the training table pass for new ones."""
    text = read_text(path)
    if _digest(text.encode()) != digest:
        raise DataError(f"{path}: the ledger is damaged, or belongs to another model.")
    found: list[Any] = parse_json(text)
    return found


def _json(tree: Any) -> str:
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":"))


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()


_TEXTS: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "float": (float, str, float),  # of which JSON lacks NaN and infinity
    "timestamp": (pd.Timestamp, pd.Timestamp.isoformat, pd.Timestamp),
    "timedelta": (pd.Timedelta, pd.Timedelta.isoformat, pd.Timedelta),
    "string type": (pd.StringDtype, lambda dtype: _string_type(dtype), lambda text: _read_string_type(*text.split())),
    "type": (np.dtype, lambda dtype: _type_name(dtype), pd.api.types.pandas_dtype),
    "pandas type": (pd.api.extensions.ExtensionDtype, lambda dtype: _type_name(dtype), pd.api.types.pandas_dtype),
}


def _to_text(value: object) -> tuple[str, str] | None:
    """Return the kind of a value and its text; None for a value of another kind."""
    for name, (kind, write, _) in _TEXTS.items():
        if isinstance(value, kind):
            return name, write(value)
    return None


def _string_type(dtype: pd.StringDtype) -> str:
    return f"{dtype.storage} {'NA' if dtype.na_value is pd.NA else 'nan'}"


def _read_string_type(storage: str, missing: str) -> pd.StringDtype:
    return pd.StringDtype(storage, na_value=pd.NA if missing == "NA" else np.nan)


def _type_name(dtype: Any) -> str:
    """Return a name that every release of pandas knows."""
    if pd.api.types.pandas_dtype(str(dtype)) != dtype:
        raise DataError(f"a column of type {dtype} cannot be saved.")
    return str(dtype)

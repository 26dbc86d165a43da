"""Save and load fitted models: a folder of JSON and arrays, and never a pickle.

=======================  ==============================================================================================
``model.json``           format version, class, settings, codec: everything but numbers in bulk
``weights.safetensors``  the arrays
``key.json``             the secrets behind noise and coins, readable by the owner alone (0600); never share it
``ledger.json``          keyed hashes of the rows that the model, and each model in it, was fitted to or chosen by
=======================  ==============================================================================================

The folder is private (0700). It is written beside its place and then exchanged with what was there, so that a crash
leaves the old model or the new one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import numpy as np

from fairflows import __version__
from fairflows.exceptions import DataError
from fairflows.storage.values import DamagedError, OwnPartError, OwnParts, Reader, Writer
from fairflows.table.folders import new_folder, refuse_other_files, settle_folder, write_private
from fairflows.table.json_text import parse_json, read_json, read_text
from fairflows.table.persons import Key

FORMAT = 1
"""The version of the format that this release writes and reads."""

MODEL, WEIGHTS, KEY, LEDGER = "model.json", "weights.safetensors", "key.json", "ledger.json"
FILES = (MODEL, WEIGHTS, KEY, LEDGER)

_HEADER = {
    "class": str,
    "weights": str,
    "weights_bytes": int,
    "model": str,
    "key": str,
    "ledger": bool,
    "content": dict,
}


def save(model: Any, path: str | Path) -> None:
    """Save a fitted encoder, a pipeline that starts with one, or a density.

    Parameters
    ----------
    model : encoder, Pipeline or density
        What to save. Classifiers inside it must be `LogisticRegression` or `HistGradientBoostingClassifier`: others
        have no form but a pickle. A `Bijection` or `Density` of your own, and torch modules such as zuko's flows, are
        saved without their code, which `load` then takes as ``own``.
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
    tree = writer.write(model, type(model).__name__)
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
    weights = to_bytes(writer.arrays)
    keys = json.dumps([secret.hex() for secret in writer.secrets])
    header = {
        "format": FORMAT,
        "fairflows": __version__,
        "class": type(model).__name__,
        "weights": _digest(weights),
        "weights_bytes": len(weights),
        "model": _digest(text.encode()),
        # Eight digits find a wrong key file, and are no help in guessing a key.
        "key": _digest(keys.encode())[:8],
        "ledger": bool(writer.ledgers),
    }
    with new_folder(target) as folder:
        body = json.dumps(header, indent=1)[:-2] + f',\n "content": {text}\n}}\n'
        (folder / MODEL).write_text(body, encoding="utf-8")
        (folder / WEIGHTS).write_bytes(weights)
        write_private(folder / KEY, keys.encode())
        if writer.ledgers:
            write_private(folder / LEDGER, json.dumps([ledger.to_dict() for ledger in writer.ledgers]).encode())


def load(path: str | Path, own: Sequence[object] = ()) -> Any:
    """Load what `save` wrote.

    Parameters
    ----------
    path : str or Path
        The folder.
    own : sequence of classes and modules
        The code of parts of your own, since a saved model holds none: the class of each `Bijection` or `Density`, and
        for each torch module, such as a zuko flow, one that was made with the same settings. Its weights are replaced
        in a copy.

    Raises
    ------
    DataError
        There is no model, a file of it is missing or damaged, its key belongs to another model, a later release of
        fairflows wrote it, or a part of its maker's own was not passed.
    """
    folder, own_parts = Path(path), OwnParts(own)
    settle_folder(folder)
    header = _read_header(folder)
    text = json.dumps(header["content"], ensure_ascii=False, separators=(",", ":"))
    if _digest(text.encode()) != header["model"]:
        raise DataError(f"{folder / MODEL}: the file is damaged: its content is not what was saved.")
    arrays = _read_weights(folder / WEIGHTS, header)
    keys = _read_keys(folder / KEY, header["key"])
    reader = Reader(arrays, keys, read_json(folder / LEDGER) if header["ledger"] else [], own_parts)
    try:
        model = reader.read(header["content"])
    except (DamagedError, OwnPartError) as error:
        raise DataError(f"{folder}: the model cannot be loaded: {error}.") from None
    except DataError as error:
        raise DataError(f"{folder}: the model cannot be loaded: {error}") from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise DataError(f"{folder}: the model cannot be rebuilt, it is damaged: {reason}") from None
    return model


def _refuse_other_folder(target: Path) -> None:
    """Never replace a folder that holds anything but a model."""
    if not target.is_dir() or not any(target.iterdir()):
        return
    if not (target / MODEL).is_file():
        raise DataError(f"{target}: the folder holds other files and no model; a model gets a folder of its own.")
    _read_header(target)
    refuse_other_files(target, FILES)


def _read_header(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder.")
    if not (folder / MODEL).is_file():
        raise DataError(f"{folder}: the folder holds no model ({MODEL} is missing).")
    header = read_json(folder / MODEL)
    if not isinstance(header, dict) or type(header.get("format")) is not int:
        raise DataError(f"{folder / MODEL}: not a model of fairflows: it states no format.")
    if header["format"] != FORMAT:
        raise DataError(
            f"{folder / MODEL}: the model has format {header['format']}, and fairflows {__version__} reads format "
            f"{FORMAT}; it was written by fairflows {header.get('fairflows', 'of another release')}."
        )
    for name, kind in _HEADER.items():
        if not isinstance(header.get(name), kind):
            raise DataError(f"{folder / MODEL}: the file is damaged: {name!r} is missing or of the wrong type.")
    return header


def _read_weights(path: Path, header: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays; safetensors maps the file into memory, so that sizes which it only claims allocate nothing."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        with path.open("rb") as stream:
            has_its_size = os.fstat(stream.fileno()).st_size == header["weights_bytes"]
            if not has_its_size or file_digest(stream, "sha256").hexdigest() != header["weights"]:
                raise DataError(f"{path}: the file is damaged or cut off, or belongs to another model.")
    except FileNotFoundError:
        raise DataError(f"{path}: the file is missing.") from None
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


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()

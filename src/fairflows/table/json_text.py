"""Read JSON of any origin."""

from __future__ import annotations

import json
import math
import re
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fairflows.exceptions import DataError

_DEEPEST = 100  # levels; a saved model has about 30, and Python's stack has room for some 300 levels of reading
_TOO_DEEP = f"nested more than {_DEEPEST} levels deep"


def read_json(path: Path) -> Any:
    """Read the JSON value in a file."""
    text = read_text(path)
    try:
        return parse_json(text)
    except DataError as error:
        raise DataError(f"{path}: the file is damaged or cut off: {error}.") from None


def read_document(folder: Path, name: str, what: str, version: int) -> dict[str, Any]:
    """Read a JSON file of a folder. Raise if it is missing, or does not state this version of its format."""
    path = folder / name
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder.")
    if not path.is_file():
        raise DataError(f"{folder}: the folder holds no {what} ({name} is missing).")
    found = read_json(path)
    if not isinstance(found, dict) or type(found.get("format")) is not int:
        raise DataError(f"{path}: not a {what}: it states no format.")
    if found["format"] != version:
        raise DataError(
            f"{path}: written by another release of fairflows, in format {found['format']}; this one reads format "
            f"{version}."
        )
    return found


def read_text(path: Path) -> str:
    """Read the text in a file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: the file is damaged: not UTF-8 text.") from None


def parse_json(text: str) -> Any:
    """Return the JSON value that a text holds. Raise if it is nested too deeply, or an object has a name twice.

    Of two values under one name parsers take the first or the last: two readers would read different things.
    """
    try:
        value = json.loads(text, object_pairs_hook=_with_names_once)
    except RecursionError:
        raise DataError(_TOO_DEEP) from None
    except ValueError as error:
        raise DataError(f"not JSON ({error})") from None
    level = [value]
    for _ in range(_DEEPEST):
        inside = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        level = [item for part in inside for item in part]
        if not level:
            return value
    raise DataError(_TOO_DEEP)


def _with_names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)!r:.40} stands twice")
    return found


@cache  # a certificate is written and sealed many times, and to resolve its types takes a millisecond
def stated_fields(cls: type) -> dict[str, tuple[Field[Any], object]]:
    """Return the fields of a dataclass that its JSON states, with their types: those that comparisons use."""
    types = get_type_hints(cls)
    return {f.name: (f, types[f.name]) for f in fields(cls) if f.compare}


def is_required(f: Field[Any]) -> bool:
    """Return whether a field has no default, so that JSON must state it."""
    return f.default is f.default_factory is MISSING


def read_as(value: object, kind: Any) -> Any:
    """Convert a value from JSON to a type: lists may become tuples, and objects dataclasses. Raise a `ValueError`."""
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return _checked(value, isinstance(value, str) and value in parts)
    if isinstance(kind, UnionType):
        return _read_as_one_of(value, parts)
    if get_origin(kind) in (tuple, list):
        return get_origin(kind)(read_as(item, parts[0]) for item in _checked(value, isinstance(value, list)))
    if get_origin(kind) is dict:
        items = _checked(value, isinstance(value, dict)).items()
        return {name: read_as(item, parts[1]) for name, item in items}
    if is_dataclass(kind) and isinstance(kind, type):
        return _read_as_dataclass(value, kind)
    if kind is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return _checked(value, is_number)
    return _checked(value, value is None if kind is NoneType else type(value) is kind)


def _read_as_one_of(value: object, kinds: tuple[object, ...]) -> object:
    for kind in kinds:
        try:
            return read_as(value, kind)
        except ValueError:
            continue
    raise ValueError(f"{value!r:.40} is of another type.")


def _read_as_dataclass(value: object, cls: type) -> object:
    stated = stated_fields(cls)
    what = f"a {re.sub('(?<=[a-z])(?=[A-Z])', ' ', cls.__name__).lower()}"
    values = _checked(value, isinstance(value, dict))
    for name in values:
        if name not in stated:
            raise ValueError(f"{what} has no field {name!r:.40}.")
    for name, (f, _) in stated.items():
        if name not in values and is_required(f):
            raise ValueError(f"{what} must state {name!r}.")
    read = {}
    for name, item in values.items():
        try:
            read[name] = read_as(item, stated[name][1])
        except ValueError:
            raise ValueError(f"{what} cannot state {name} = {item!r:.40}.") from None
    return cls(**read)


def _checked(value: object, is_right: bool) -> Any:
    if not is_right:
        raise ValueError(f"{value!r:.40} is of another type.")
    return value

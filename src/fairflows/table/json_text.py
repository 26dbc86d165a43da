"""Read JSON of any origin."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fairflows.exceptions import DataError

T = TypeVar("T")

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
    """Return the JSON value that a text holds.

    Raise if it is nested too deeply, if an object has a name twice, or if a number is not finite. Of two values under
    one name parsers take the first or the last: two readers would read different things.
    """
    try:
        value = json.loads(text, object_pairs_hook=_with_names_once, parse_float=_finite, parse_constant=_finite)
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


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.40} is no finite number")
    return value


def _with_names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict[str, Any]()
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {name!r:.40} stands twice")
        found[name] = value
    return found


def read_as(value: object, kind: type[T], what: str = "", *, hidden: Collection[str] = ()) -> T:
    """Convert a value from JSON to a dataclass, whose annotations are the rules of its fields.

    Raise a `ValueError` that names the field, what came, and the rule. `what` is the name of the value in messages, by
    default that of its class. JSON does not state the `hidden` fields.
    """
    what = what or f"a {re.sub('(?<=[a-z])(?=[A-Z])', ' ', kind.__name__).lower()}"
    try:
        found = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        rule, _, place = str(error).partition(" - at `$.")
        said = f" state {place[:-1]} = {_at(value, place)!r:.40}" if place else " be read"
        raise ValueError(f"{what} cannot{said}: {rule[0].lower()}{rule[1:].rstrip('.')}.") from None
    stated = {name: item for name, item in msgspec.to_builtins(found).items() if name not in hidden}
    for name in _unknown(value, stated):
        raise ValueError(f"{what} has no field {name!r:.80}.")
    return found


def _at(value: Any, place: str) -> object:
    """Return the part of a value at a place; of ``n[...]``, where the name inside is open, all of ``n``."""
    for name, number in re.findall(r"(\w+)|\[(\d+)\]", place.partition("[...]")[0]):
        value = value[name] if name else value[int(number)]
    return value


def _unknown(value: Any, stated: Any) -> Iterator[str]:
    """Yield the names in a value that its type does not have, and that `msgspec` leaves out."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from [f"{name}.{below}" for below in _unknown(item, stated[name])] if name in stated else [name]
    elif isinstance(value, list):
        for pair in zip(value, stated, strict=True):
            yield from _unknown(*pair)

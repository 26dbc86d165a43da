"""JSON from files that anybody may have written: damage and malice give a clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fairflows.exceptions import DataError

_DEEPEST = 100  # levels; a saved model has about 30, and Python's stack has room for some 300 levels of reading


def read_json(path: Path) -> Any:
    """The JSON value in a file."""
    text = read_text(path)
    try:
        return parse_json(text)
    except DataError as error:
        raise DataError(f"{path}: the file is damaged or cut off: {error}.") from None


def read_text(path: Path) -> str:
    """The text in a file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: the file is damaged: not UTF-8 text.") from None


def parse_json(text: str) -> Any:
    """The JSON value that a text holds; one that is nested too deeply to be worked on is refused.

    Examples
    --------
    >>> parse_json('{"cells": [16, 64]}')
    {'cells': [16, 64]}
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise DataError(_too_deep()) from None
    except ValueError as error:
        raise DataError(f"not JSON ({error})") from None
    level = [value]
    for _ in range(_DEEPEST):
        inside = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        level = [item for part in inside for item in part]
        if not level:
            return value
    raise DataError(_too_deep())


def _too_deep() -> str:
    return f"nested more than {_DEEPEST} levels deep"

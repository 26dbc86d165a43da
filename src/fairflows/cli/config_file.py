"""Options of a command in a TOML file: read with ``--config``, and written beside the result, to run it again."""

from __future__ import annotations

import json
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperOption

from fairflows import __version__
from fairflows.exceptions import DataError
from fairflows.table.dialect import Dialect

_NOT_SETTINGS = {"config", "out", "replace", "as_json", "quiet"}
"""About a single run: where it writes, and what it prints."""


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take the options in a file as those of the command; what is on the command line counts more."""
    if path is None or context.resilient_parsing:
        return path
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a TOML file: {error}.") from None
    names = {key: name for name, key in _keys(context).items()}
    several = {option.name for option in context.command.params if isinstance(option, TyperOption) and option.multiple}
    defaults: dict[str, object] = {}
    for key, value in given.items():
        if key not in names:
            close = get_close_matches(key, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}."
            raise DataError(f"{path}: `{context.info_name}` has no option {key!r}; {hint}")
        if isinstance(value, list) and names[key] not in several:
            raise DataError(f"{path}: {key} must be one value; got {value!r}.")
        defaults[names[key]] = [value] if names[key] in several and not isinstance(value, list) else value
    context.default_map = defaults
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        help="TOML file of options, by their names without dashes; options on the command line count more.",
        callback=read_config,
        is_eager=True,
        show_default=False,
    ),
]


def config_of(context: typer.Context, dialect: Dialect) -> str:
    """The settings of the running command as a file for ``--config``, with the dialect of its table."""
    settings = {
        name: value for name, value in (context.params | dialect.to_dict()).items() if name not in _NOT_SETTINGS
    }
    lines = [
        f"{key} = {_toml(settings[name])}"
        for name, key in _keys(context).items()
        if settings.get(name) is not None and settings[name] is not False and settings[name] != []
    ]
    command = f"fairflows {context.info_name} --config fit.toml -o FOLDER"
    return "\n".join([f"# fairflows {__version__}. To run it again: {command}", *lines, ""])


def _keys(context: typer.Context) -> dict[str, str]:
    """What each parameter of a command is called in a file: as on the command line, without dashes."""
    return {
        str(parameter.name): parameter.opts[0].lstrip("-")
        if isinstance(parameter, TyperOption)
        else str(parameter.name)
        for parameter in context.command.params
        if parameter.name not in ("help", "config")
    }


def _toml(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False).replace("\x7f", "\\u007f")

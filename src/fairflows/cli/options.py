"""What can be typed after a command: options that several share, those in a TOML file, and - for a standard stream."""

from __future__ import annotations

import functools
import inspect
import json
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal, cast

import typer
from typer.core import TyperOption

from fairflows import __version__
from fairflows.cli.base import names_of_files
from fairflows.exceptions import DataError
from fairflows.table.dialect import Dialect

STANDARD = Path("-")
"""What stands for standard input, and for standard output."""

_NOT_SETTINGS = {"config", "out", "replace", "as_json", "quiet"}
"""About a single run: where it writes, and what it prints."""

_about_file = functools.partial(typer.Option, rich_help_panel="How the file is written (recognised when not given)")
_OPTIONS = {
    "separator": Annotated[str | None, _about_file(help="What separates fields: , ; | or tab.")],
    "encoding": Annotated[str | None, _about_file(help="How text is encoded: utf-8, cp1252, utf-16, ...")],
    "decimal": Annotated[Literal[".", ","] | None, _about_file(help="The decimal mark.")],
    "thousands": Annotated[str | None, _about_file(help="What groups thousands: , . ' blank, or none.")],
    "sheet": Annotated[str | None, _about_file(help="The sheet of an Excel file.")],
}
_NO_TABLES = {"out", "folder", "certificate", "config"}
"""Arguments of commands for which - stands for nothing, or for standard output."""

_KINDS = {b"PAR1": "parquet", b"PK\x03\x04": "xlsx", b"\x1f\x8b": "csv.gz"}
"""How files begin that come without a name; all others are plain CSV."""

_NAMES = {"tab": "\t", "\\t": "\t", "blank": " ", "none": ""}


def distinct(names: list[str] | None) -> list[str] | None:
    """The values of a repeated option without duplicates."""
    return list(dict.fromkeys(names)) if names else names


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


Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but the result.")]
Folder = Annotated[Path, typer.Argument(help="The folder that `fit` wrote, or a saved model.", show_default=False)]
Sensitive = Annotated[
    list[str],
    typer.Option(help="Sensitive column; several make intersectional groups.", show_default=False, callback=distinct),
]
SensitiveIfNotKnown = Annotated[
    list[str] | None,
    typer.Option("--sensitive", help="Sensitive column, where the model does not say.", callback=distinct),
]
Label = Annotated[str | None, typer.Option(help="Label column.")]
Identifier = Annotated[str | None, typer.Option("--id", help="Column that names the person of a row.")]
Drop = Annotated[list[str] | None, typer.Option(help="Column to leave out; may be repeated.", callback=distinct)]
Missing = Annotated[Literal["error", "category", "drop"], typer.Option(help="What to do with missing values.")]
Multiclass = Annotated[bool, typer.Option("--multiclass", help="Accept a label with more than two values.")]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        help="Cut a sensitive column of numbers: AGE:40, AGE:30,50 or AGE:quantiles=4; may be repeated.",
        callback=distinct,
    ),
]
MergeSmall = Annotated[
    int, typer.Option("--merge-small", min=0, help="Groups of fewer persons become one group, 'other'.")
]
KeepCase = Annotated[
    bool, typer.Option("--keep-case", help="Keep groups apart whose names differ in blanks or case only.")
]
MaxAccuracy = Annotated[
    float | None, typer.Option("--max-adversary-accuracy", help="How often a guess of the group may be right.")
]
Target = Annotated[
    float | None,
    typer.Option(
        "--target", "--max-parity", help="How far the groups may be apart: the distance Δ, or any rate's gap."
    ),
]
MostRows = Annotated[
    int | None, typer.Option("--most-rows", min=1, help="The most rows of a person; as in training when not given.")
]
Delta = Annotated[float, typer.Option(help="Probability that the certificate is wrong.")]
Sample = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Of a folder of Parquet files, read all rows of so many persons, chosen at random.",
        show_default=False,
    ),
]
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


def reads_files(command: Callable[..., None]) -> Callable[..., None]:
    """A command that also takes the options of a `Dialect`, handed to it as one, and reads - as standard input."""
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "dialect"]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _OPTIONS.items()
    ]

    @functools.wraps(command)
    def run(**given: object) -> None:
        stated = {name: cast(str | None, given.pop(name)) for name in _OPTIONS}
        dialect = Dialect(**{name: _NAMES.get(value or "", value) for name, value in stated.items()})
        with piped({name: value for name, value in given.items() if name not in _NO_TABLES}) as readable:
            command(**(given | readable), dialect=dialect)

    run.__dict__["__signature__"] = signature.replace(parameters=[*own, *options])
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *options)}
    return run


@contextmanager
def piped(given: dict[str, object]) -> Iterator[dict[str, object]]:
    """Arguments of a command, with a file that holds standard input in the place of -.

    It is a file since tables are read more than once; in a private folder, and gone afterwards.
    """
    names = [name for name, value in given.items() if value == STANDARD]
    if len(names) > 1:
        raise DataError(f"Only one file can come from standard input; got - for {' and '.join(names)}.")
    if not names:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="fairflows-") as folder:
        head = sys.stdin.buffer.read(4)
        kind = next((kind for mark, kind in _KINDS.items() if head.startswith(mark)), "csv")
        path = Path(folder) / f"standard-input.{kind}"
        with path.open("wb") as file:
            file.write(head)
            shutil.copyfileobj(sys.stdin.buffer, file)
        names_of_files[str(path)] = "standard input"
        yield {**given, names[0]: path}


def sampled(context: typer.Context, path: Path, n_persons: int | None, identifier: str | None, key: bytes) -> Path:
    """All rows of so many random persons of a folder, as a file that is gone when the command ends; else the path."""
    if n_persons is None:
        if path.is_dir():
            raise DataError(f"{path}: is a folder: say how many persons to read (--sample N), chosen at random.")
        return path
    from fairflows.table.reading import sample_persons

    folder = context.with_resource(tempfile.TemporaryDirectory(prefix="fairflows-"))
    sample = Path(folder) / f"{path.resolve().stem}.parquet"  # the current folder has a name too
    sample_persons(path, sample, n_persons, identifier, key)
    return sample


@contextmanager
def written_to(out: Path, kind: str = "csv") -> Iterator[Path]:
    """A path to write to: `out` itself, or for - a file that goes to standard output when it is complete."""
    if out != STANDARD:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="fairflows-") as folder:
        path = Path(folder) / f"standard-output.{kind}"
        names_of_files[str(path)] = "standard output"
        yield path
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()

"""What every command that reads a user's file takes: options that say how it is written, and - for standard input."""

from __future__ import annotations

import functools
import inspect
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from fairflows.cli.base import called
from fairflows.exceptions import DataError
from fairflows.table.dialect import Dialect

STANDARD = Path("-")
"""What stands for standard input, and for standard output."""

Sample = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Of a folder of Parquet files, read all rows of so many persons, chosen at random.",
        show_default=False,
    ),
]

_PANEL = "How the file is written (recognised when not given)"
_OPTIONS = {
    "separator": Annotated[
        str | None, typer.Option(help="What separates fields: , ; | or tab.", rich_help_panel=_PANEL)
    ],
    "encoding": Annotated[
        str | None, typer.Option(help="How text is encoded: utf-8, cp1252, utf-16, ...", rich_help_panel=_PANEL)
    ],
    "decimal": Annotated[Literal[".", ","] | None, typer.Option(help="The decimal mark.", rich_help_panel=_PANEL)],
    "thousands": Annotated[
        str | None,
        typer.Option(help="What groups thousands: , . ' blank, or none.", rich_help_panel=_PANEL),
    ],
    "sheet": Annotated[str | None, typer.Option(help="The sheet of an Excel file.", rich_help_panel=_PANEL)],
}
_NO_TABLES = {"out", "folder", "certificate", "config"}
"""Arguments of commands for which - stands for nothing, or for standard output."""

_KINDS = {b"PAR1": "parquet", b"PK\x03\x04": "xlsx", b"\x1f\x8b": "csv.gz"}
"""How files begin that come without a name; all others are plain CSV."""

_NAMES = {"tab": "\t", "\\t": "\t", "blank": " ", "none": ""}


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
        called[str(path)] = "standard input"
        yield {**given, names[0]: path}


def sampled(context: typer.Context, path: Path, n_persons: int | None, identifier: str | None, key: bytes) -> Path:
    """All rows of so many random persons of a folder, as a file that is gone when the command ends; else the path."""
    if n_persons is None:
        if path.is_dir():
            raise DataError(f"{path}: is a folder: say how many persons to read (--sample N), chosen at random.")
        return path
    from fairflows.table.sampling import sample_persons  # here, since `--help` does without pandas

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
        called[str(path)] = "standard output"
        yield path
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()

"""What the commands share: the application, options, printing, and where a model's files are."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairflows.exceptions import DataError, DataWarning

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(
    help="Share a table without giving away a sensitive attribute.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def distinct(names: Any) -> Any:
    """Repeated options, each once."""
    return list(dict.fromkeys(names)) if names else names


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
MaxAccuracy = Annotated[
    float | None, typer.Option("--max-adversary-accuracy", help="How often a guess of the group may be right.")
]
MaxParity = Annotated[float | None, typer.Option("--max-parity", help="How far two groups' rates may be apart.")]
Delta = Annotated[float, typer.Option(help="Probability that the certificate is wrong.")]

_FLAGS = {
    r"\bmax_adversary_accuracy\b": "--max-adversary-accuracy",
    r"\bmax_parity\b": "--max-parity",
    r"\band gamma\b": "and --gamma",
    r"^(gamma|delta|method)\b": r"--\1",
    r"^n_(workers|draws)\b": r"--\1",
    r"missing='(\w+)'": r"--missing \1",
    r"multiclass=True": "--multiclass",
    r"drop=\['(.*?)'\]": r"--drop '\1'",
    r"identifier='(.*?)'": r"--id '\1'",
    r"\(identifier=\.\.\.\)": "(--id)",
    r"identifier=\.\.\.": "--id",
    r"\(sensitive=\.\.\.\)": "(--sensitive)",
}
_FIT_AGAIN = {  # a model is what it is: commands that use one have no such option
    r"with missing='(\w+)'": r"by fitting again with --missing \1",
    r"\(missing='(\w+)'\)": r"(fit again with --missing \1)",
}
_said: set[str] = set()


def in_flags(message: str, command: str = "fit") -> str:
    """A message about Python arguments, as one about the options of the command."""
    fitted = {} if command in ("fit", "describe") else _FIT_AGAIN
    for argument, flag in (fitted | _FLAGS).items():
        message = re.sub(argument, flag, message)
    return " ".join(message.split())


def show_warning(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    """Warnings that are meant for users, each kind once: batches would repeat them with other counts."""
    kind = re.sub(r"\d[\d,]*", "#", str(message))
    if issubclass(category, DataWarning) and kind not in _said:
        _said.add(kind)
        typer.echo(f"fairflows: {in_flags(str(message))}", err=True)


def print_frame(frame: pd.DataFrame, as_json: bool, title: str) -> None:
    """A table for people, or JSON for machines."""
    if as_json:
        typer.echo(frame.to_json(orient="records", indent=2, force_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(title=title, title_justify="left", header_style="bold")
    for name, column in frame.items():
        grid.add_column(str(name), justify="right" if column.dtype.kind in "if" else "left", overflow="fold")
    for row in frame.itertuples(index=False):
        grid.add_row(*(Text(_cell(cell)) for cell in row))
    Console().print(grid)


def print_json(record: Any) -> None:
    """JSON for machines."""
    typer.echo(json.dumps(record, indent=2, ensure_ascii=False))


@contextmanager
def stages(quiet: bool) -> Iterator[Any]:
    """Say what happens next, with the time so far, on standard error; a spinner where a person looks."""
    if quiet:
        yield lambda text: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    start = time.monotonic()
    with console.status("starting") as status:

        def say(text: str) -> None:
            line = f"[{time.monotonic() - start:5.0f} s] {text}"
            console.print(line, markup=False, highlight=False)
            status.update(text)

        yield say


@contextmanager
def row_counter(quiet: bool, verb: str) -> Iterator[Any]:
    """A progress bar over rows, on standard error."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(verb), BarColumn(), TextColumn("{task.completed:,} rows"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def open_model(folder: Path) -> tuple[Any, dict[str, Any] | None]:
    """The model in a folder that `fit` wrote, and how its table was read; or a saved model alone."""
    from fairflows.storage.saving import load
    from fairflows.workflow.results import RUN, read_run

    if (folder / RUN).is_file():
        return load(folder / "model"), read_run(folder)
    return load(folder), None


def need_run(folder: Path, run: dict[str, Any] | None) -> dict[str, Any]:
    """How the table was read, which some commands cannot do without."""
    if run is None:
        raise DataError(f"{folder}: holds a model alone; this command needs the folder that `fairflows fit` wrote.")
    return run


def roles(run: dict[str, Any] | None, sensitive: list[str] | None, identifier: str | None) -> dict[str, Any]:
    """The sensitive columns and the identifier: as the options say, else as `fit` was told."""
    known = run or {"sensitive": None, "identifier": None}
    return {"sensitive": sensitive or known["sensitive"], "identifier": identifier or known["identifier"]}


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"

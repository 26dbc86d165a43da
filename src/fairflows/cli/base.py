"""The application that commands register with, messages, printing, and opening a result."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fairflows.display import progress_bar
from fairflows.exceptions import DataError, DataWarning

if TYPE_CHECKING:
    import pandas as pd

    from fairflows.release.released import Transformer
    from fairflows.workflow.shared import Run

Say = Callable[[str], None]

app = typer.Typer(
    help="Share a table without giving away a sensitive attribute.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

_warned: set[str] = set()


_OPTIONS = {
    "categorical": "--categorical",
    "decimal": "--decimal",
    "delta": "--delta",
    "drop": "--drop",
    "encoding": "--encoding",
    "engine": "--engine",
    "groups": "--groups",
    "identifier": "--id",
    "kinds": "--categorical",
    "label": "--label",
    "method": "--method",
    "missing": "--missing-label, --missing-group",
    "most_rows": "--most-rows",
    "output": "--output",
    "replace": "--replace",
    "sensitive": "--sensitive",
    "separator": "--separator",
    "target": "--target",
}
"""The option of each parameter that a message may name."""

_NAMED = re.compile(rf"\b({'|'.join(_OPTIONS)})(?:=| must)")


def with_options(message: str) -> str:
    """Return a message in one line, followed by the options of the parameters that it names."""
    options = dict.fromkeys(_OPTIONS[name] for name in _NAMED.findall(message))
    kind = "option" if len(options) == 1 else "options"
    return in_one_line(f"{message} ({kind} {', '.join(options)})" if options else message)


def in_one_line(text: str) -> str:
    """Join the lines of a message."""
    return " ".join(text.split())


def show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Print a `DataWarning` on one line, unless it was printed before with other counts; ignore other warnings."""
    if not isinstance(message, DataWarning):
        return
    kind = re.sub(r"\d[\d,]*", "#", str(message))
    if kind not in _warned:
        _warned.add(kind)
        typer.echo(f"fairflows: {with_options(str(message))}", err=True)


def print_frame(frame: pd.DataFrame, as_json: bool, title: str) -> None:
    """Print a table, as text or as JSON."""
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


def print_json(record: object) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(record, indent=2, ensure_ascii=False))


@contextmanager
def stages(quiet: bool) -> Iterator[Say]:
    """Print each stage of the work on standard error, with the time so far; with a spinner on a terminal."""
    if quiet:
        yield lambda text: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    start = time.monotonic()
    with console.status("starting") as status:

        def say(text: str) -> None:
            line = f"[{time.monotonic() - start:5.0f} s] {in_one_line(text)}"
            console.print(line, markup=False, highlight=False)
            status.update(text)

        yield say


@contextmanager
def row_counter(quiet: bool, verb: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a progress bar over rows, on a terminal."""
    with progress_bar(verb, enabled=not quiet and sys.stderr.isatty()) as show:
        yield lambda done, total: show(done, total, f"{done:,} rows")


def open_model(folder: Path) -> tuple[Transformer, Run | None]:
    """Load the model in a folder that `share` wrote, and how its table was read; or a saved model alone."""
    from fairflows.storage import load
    from fairflows.workflow.shared import RUN, read_run

    if (folder / RUN).is_file():
        return load(folder / "model"), read_run(folder)
    return load(folder), None


def open_result(folder: Path) -> tuple[Transformer, Run]:
    """Load the model in a folder that `share` wrote, and how its table was read."""
    model, run = open_model(folder)
    if run is None:
        raise DataError(f"{folder}: holds a model alone; this command needs the folder that `fairflows share` wrote.")
    return model, run


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"

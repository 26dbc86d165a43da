"""The command ``fairflows``. Each subcommand imports what it needs when it runs, so that ``--help`` starts at once."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairflows import __version__
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

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def main() -> None:
    """Run the command; what is wrong with the input is one line on standard error and exit code 2."""
    warnings.showwarning = _show_warning
    try:
        app()
    except DataError as error:
        typer.echo(f"fairflows: {error}", err=True)
        sys.exit(2)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fairflows {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Share a table without giving away a sensitive attribute."""


@app.command()
def datasets(as_json: Json = False) -> None:
    """List the datasets that come with fairflows: rows, groups, rates, licence, and where each would come from.

    Adult is inside the package. The others are looked for in the folder that the environment variable
    `FAIRFLOWS_DATA` names, else downloaded from their publisher where there still is one.
    """
    from fairflows.data.catalogue import describe_datasets

    _print_frame(describe_datasets(), as_json, title="Datasets")


@app.command()
def describe(
    file: Annotated[Path, typer.Argument(help="A CSV or Parquet file.")],
    sensitive: Annotated[list[str], typer.Option(help="Sensitive column; several make intersectional groups.")],
    label: Annotated[str | None, typer.Option(help="Label column.")] = None,
    identifier: Annotated[str | None, typer.Option("--id", help="Column that names the person of a row.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out; may be repeated.")] = None,
    missing: Annotated[
        Literal["error", "category", "drop"], typer.Option(help="What to do with missing values.")
    ] = "error",
    multiclass: Annotated[bool, typer.Option(help="Accept a label with more than two values.")] = False,
    as_json: Json = False,
) -> None:
    """Say what a table holds: groups and their rates, and each column's kind, range and grid.

    Example: `fairflows describe loans.csv --sensitive sex --label repaid`
    """
    from fairflows.data.table import Table

    table = Table.read(
        file,
        sensitive=sensitive,
        label=label,
        identifier=identifier,
        drop=drop or (),
        missing=missing,
        multiclass=multiclass,
    )
    if as_json:
        summary, columns = (json.loads(part.to_json(orient="index")) for part in (table.summary(), table.columns()))
        record = {"name": table.name, "rows": len(table), "groups": summary, "columns": columns, "notes": table.notes}
        typer.echo(json.dumps(record, indent=2, ensure_ascii=False))
    else:
        typer.echo(repr(table))
        _print_frame(table.columns().reset_index(), as_json=False, title="Columns")


@app.command()
def demo() -> None:
    """Show the Adult table that ships with fairflows: who is in it, and the rates of each group."""
    from fairflows.data.datasets import load_adult

    table = load_adult()
    typer.echo(repr(table))
    _print_frame(table.columns().reset_index(), as_json=False, title="Columns")


def _print_frame(frame: pd.DataFrame, as_json: bool, title: str) -> None:
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
        grid.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in row))
    Console().print(grid)


def _show_warning(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, DataWarning):
        typer.echo(f"fairflows: {message}", err=True)


if __name__ == "__main__":
    main()

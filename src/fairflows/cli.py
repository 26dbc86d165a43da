"""The command ``fairflows``. Each subcommand imports what it needs when it runs, so that ``--help`` starts at once."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated

import typer

from fairflows import __version__, cli_data, cli_files, cli_fit
from fairflows.cli_base import app, in_flags, show_warning

__all__ = ["app", "cli_data", "cli_files", "cli_fit", "main"]


def main() -> None:
    """Run the command; what is wrong with the input is one line on standard error and exit code 2."""
    warnings.showwarning = show_warning
    # Batches and adversaries run side by side already; on busy cores, threads within each only wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        app()
    except (ValueError, OSError, OverflowError, MemoryError) as error:  # a DataError is a ValueError
        message = str(error).strip() or type(error).__name__
        typer.echo(f"fairflows: {in_flags(message)}", err=True)
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


if __name__ == "__main__":
    main()

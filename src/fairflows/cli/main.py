"""The command ``fairflows``. Each subcommand imports what it needs when it runs, so that ``--help`` starts at once."""

from __future__ import annotations

import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from fairflows import __version__
from fairflows.cli.commands import app
from fairflows.cli.options import with_options
from fairflows.exceptions import DataWarning

BUG = 70
"""The exit code of an unexpected error (EX_SOFTWARE of BSD's sysexits); 1 means that a target was missed."""

_warned: set[str] = set()


def main() -> None:
    """Run the command. Wrong input gives one line on standard error and exit code 2."""
    warnings.showwarning = show_warning
    # Batches and adversaries run side by side already. Libraries read this when they are imported.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with _signals() as stopped:
        code, message = _outcome()
    if stopped:
        code, message = 128 + stopped[0], "interrupted"  # which a reader may have taken for a damaged file
    if message:
        typer.echo(f"fairflows: {message}", err=True)
    sys.exit(code)


def _outcome() -> tuple[int | str | None, str]:
    """Run the command; return its exit code and the message for standard error."""
    try:
        app()
    except SystemExit as end:
        return end.code, ""
    except (ValueError, OSError, OverflowError, MemoryError) as error:  # a DataError is a ValueError
        return 2, with_options(str(error)) or type(error).__name__
    except Exception as error:
        if os.environ.get("FAIRFLOWS_DEBUG"):
            traceback.print_exc()
        name, text = type(error).__name__, " ".join(str(error).split())
        return BUG, f"a bug in fairflows, please report it: {name}: {text} (FAIRFLOWS_DEBUG=1 shows where)"
    return 0, ""


def show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Print a `DataWarning` on one line, unless it was printed before with other counts; ignore other warnings."""
    if not isinstance(message, DataWarning):
        return
    kind = re.sub(r"\d[\d,]*", "#", str(message))
    if kind not in _warned:
        _warned.add(kind)
        typer.echo(f"fairflows: {with_options(str(message))}", err=True)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Turn SIGINT and SIGTERM into SystemExit, so that partial files are removed; a second signal kills the process."""
    stopped: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        stopped.append(number)
        raise SystemExit(128 + number)

    heard = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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

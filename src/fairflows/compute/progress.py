"""The progress bar of everything that takes long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

ShowProgress = Callable[[int, int | None, str], None]
"""Called with what is done, of how much (None if that is not known), and a text to show beside the bar."""


@contextmanager
def progress_bar(verb: str, *, enabled: bool) -> Iterator[ShowProgress]:
    """A bar on standard error, with the verb before it and a text and the time left behind it.

    Parameters
    ----------
    verb
        What is going on.
    enabled
        If false, nothing is shown.

    Yields
    ------
    callable
        Moves the bar.
    """
    if not enabled:
        yield lambda done, total, text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    text_column = TextColumn("{task.description}", markup=False)
    columns = (TextColumn(verb), BarColumn(), text_column, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, text: bar.update(task, completed=done, total=total, description=text)

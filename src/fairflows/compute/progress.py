"""A progress bar with the losses of a training run."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from torch import Tensor


class ProgressBar:
    """A bar over the epochs, with the models' mean losses; does nothing, and reads nothing, unless enabled."""

    def __init__(self, epochs: int, *, enabled: bool):
        if not enabled:
            self._bar = None
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("training"), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn()
        )
        self._task = self._bar.add_task("", total=epochs)

    def advance(self, losses: Tensor) -> None:
        """One epoch more, with its (task, kl, joint) losses (3, M)."""
        if self._bar is not None:
            task, kl, joint = losses.nanmean(1).tolist()
            text = f"task {task:.3f} · KL {kl:.3f} · joint {joint:.3f} ({losses.shape[1]} models)"
            self._bar.update(self._task, advance=1, description=text)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

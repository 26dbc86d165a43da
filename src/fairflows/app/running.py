"""A run of `share` in a thread: its stages with seconds, and how it is cancelled."""

from __future__ import annotations

import contextvars
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fairflows.display import listening
from fairflows.exceptions import DataError
from fairflows.result import Shared

LONGEST = 4 * 3600
"""Seconds after which a run is given up."""

_one_at_a_time = threading.Lock()


class CancelledError(Exception):
    """The user cancelled a run, or it took too long."""


@dataclass
class Run:
    """A run: what was said with the seconds at which it was, and what came of it."""

    number: int
    stages: list[tuple[float, str]] = field(default_factory=list)
    part: tuple[str, int, int | None] | None = None  # the work inside a stage, what is done of it, and of how much
    shared: Shared | None = None
    error: str = ""
    ended: float | None = None
    _begun: float = field(default_factory=time.monotonic)
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self, work: Callable[[], Shared]) -> None:
        """Begin the work in a thread of its own."""
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._run, work), daemon=True).start()

    def cancel(self) -> None:
        """Stop the work when it next says something."""
        self._stop.set()

    @property
    def seconds(self) -> float:
        """How long it has run, or did."""
        return (time.monotonic() if self.ended is None else self.ended) - self._begun

    @property
    def state(self) -> str:
        """Whether it is running, done or failed."""
        return "running" if self.ended is None else "done" if self.shared is not None else "failed"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for the page."""
        begun = list(self.stages)  # which may be none yet, and grows meanwhile
        ends = [*(at for at, _ in begun[1:]), self.seconds]
        stages = [{"text": text, "seconds": round(end - at)} for (at, text), end in zip(begun, ends, strict=False)]
        return {"state": self.state, "stages": stages, "part": self.part, "error": self.error}

    def _run(self, work: Callable[[], Shared]) -> None:
        try:
            if _one_at_a_time.locked():
                self._hear("waiting for another run", None, None)
            with _one_at_a_time, listening(self._hear):
                self.shared = work()
        except CancelledError:
            self.error = "Cancelled. Nothing was written."
        except (DataError, ValueError, OSError, MemoryError) as error:
            self.error = str(error) or type(error).__name__
        except Exception as error:
            traceback.print_exc()
            self.error = f"A bug in fairflows, please report it: {type(error).__name__}: {error}"
        finally:
            self.ended = time.monotonic()

    def _hear(self, text: str, done: int | None, total: int | None) -> None:
        if self._stop.is_set() or self.seconds > LONGEST:
            raise CancelledError
        if done is not None:
            self.part = (text, done, total)
            return
        self.part = None
        self.stages.append((self.seconds, text))

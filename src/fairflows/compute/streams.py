"""Work beside other work on a GPU, which one small kernel after the other leaves half idle."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch

Result = TypeVar("Result")


class SecondStream:
    """Runs work beside the current stream of a GPU; on another device at once.

    Before each piece of work the second stream waits for all that the first was asked to do so far, and what the work
    reads is held until `join`: memory that one stream gives back is never written while the other still reads it.

    Parameters
    ----------
    device
        Where the work is done.
    purpose
        Work for two purposes may run side by side.

    Examples
    --------
    >>> beside = SecondStream(torch.device("cpu"), "sums")
    >>> beside.run(torch.add, torch.ones(2), 1)
    tensor([2., 2.])
    >>> beside.join()
    """

    def __init__(self, device: torch.device, purpose: str):
        self._stream = _stream_for(device, purpose) if device.type == "cuda" else None
        self._read: list[object] = []
        self._is_running = False

    def run(self, work: Callable[..., Result], *args: object) -> Result:
        """Ask for work whose result is read after `join`."""
        if self._stream is None:
            return work(*args)
        self._read += args
        self._is_running = True
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            return work(*args)

    def join(self) -> None:
        """Let the current stream wait for the work."""
        if self._stream is not None and self._is_running:  # an idle stream is no part of a graph that is captured
            torch.cuda.current_stream().wait_stream(self._stream)
            self._read.clear()
            self._is_running = False


@cache
def _stream_for(device: torch.device, purpose: str) -> torch.cuda.Stream:
    """Always the same one: the memory of a stream serves that stream only."""
    return torch.cuda.Stream(device)

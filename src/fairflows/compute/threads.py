"""How many threads the numerical libraries use.

Small batches, and tasks that run side by side, gain nothing from threads within each: on busy cores these threads only
wait for each other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def one_thread_by_default() -> None:
    """Let every library of this process start with one thread, unless the user's environment says otherwise.

    The libraries read the environment when they are imported, so this must come first.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread in torch, BLAS and OpenMP for the block; afterwards as many as before.

    OpenMP counts threads for each calling thread, BLAS and torch for the whole process. Tasks in a pool of threads
    therefore enter this guard each on their own (for OpenMP), and the thread that owns the pool enters it around all
    of them: a task that ends then does not give the others their threads back.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # `--help` does without it

    torch = sys.modules.get("torch")  # torch is not imported only to limit it
    before = None if torch is None else torch.get_num_threads()
    with threadpool_limits(1):
        if torch is not None:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)

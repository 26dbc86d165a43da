"""Choose the device and the number of threads of a computation.

Small batches, and tasks that run side by side, gain nothing from threads within each: on busy cores these threads only
wait for each other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

from fairflows.exceptions import DataError

if TYPE_CHECKING:
    import torch
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


def chosen_device(name: str) -> torch.device:
    """Return the device of that name; "auto" is a GPU where torch can use one, else the CPU.

    Examples
    --------
    >>> chosen_device("cpu")
    device(type='cpu')
    """
    import torch  # here, since `--help` does without it

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise DataError(f"device must be 'auto', 'cpu', 'cuda' or 'cuda:<number>'; got {name!r}.")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise DataError(
            f"device must name one of the GPUs that torch can use ({torch.cuda.device_count()} here); got {name!r}."
        )
    return torch.device(name)


def one_thread_by_default() -> None:
    """Let every library of this process start with one thread, unless the user's environment says otherwise.

    The libraries read the environment when they are imported, so this must come first.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch, BLAS and OpenMP to one thread in the block; afterwards they have as many as before.

    OpenMP counts threads for each calling thread, BLAS and torch for the whole process. Tasks in a pool of threads
    therefore enter this guard each on their own (for OpenMP), and the thread that owns the pool enters it around all
    of them: a task that ends then does not give the others their threads back.
    """
    torch = sys.modules.get("torch")  # torch is not imported only to limit it
    before = None if torch is None else torch.get_num_threads()
    with _thread_pools(len(sys.modules)).limit(limits=1):
        if torch is not None:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _thread_pools(n_modules: int) -> ThreadpoolController:
    """Find the thread pools of all loaded libraries. This takes milliseconds, so only after other imports again."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()

"""One thread for libraries whose calls already run side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch, BLAS and OpenMP to one thread in the block; afterwards they have as many as before.

    OpenMP counts threads for each calling thread, BLAS and torch for the whole process. Tasks in a pool of threads
    therefore enter this guard each on their own (for OpenMP), and the thread that owns the pool enters it around all
    of them: a task that ends then does not give the others their threads back. Torch is limited where it is loaded.
    """
    torch = sys.modules.get("torch")
    before = 0 if torch is None else torch.get_num_threads()
    with _libraries(len(sys.modules)).limit(limits=1):
        if torch is not None:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _libraries(n_modules: int) -> ThreadpoolController:
    """Return the libraries with threads; they are looked for again where modules have been loaded since."""
    return ThreadpoolController()

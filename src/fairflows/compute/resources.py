"""What a computation may use: which device, how many threads, and Ray where it is installed.

Small batches, and tasks that run side by side, gain nothing from threads within each: on busy cores these threads only
wait for each other, or even spin so that nobody else can work.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fairflows.exceptions import DataError, ParameterError

if TYPE_CHECKING:
    import torch


def chosen_device(name: str) -> torch.device:
    """The device of that name; "auto" is a GPU where torch can use one, else the CPU.

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
        raise ParameterError("device", "must be 'auto', 'cpu', 'cuda' or 'cuda:<number>'", name)
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise ParameterError(
            "device", f"must name one of the GPUs that torch can use ({torch.cuda.device_count()} here)", name
        )
    return torch.device(name)


def one_thread_by_default() -> None:
    """Let every library of this process start with one thread, unless the user's environment says otherwise.

    Where it asks for more, threads that wait for each other sleep: by spinning they would take the processor from those
    they wait for. The libraries read the environment when they are imported, so this must come first.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread in torch, BLAS and OpenMP for the block; afterwards as many as before.

    OpenMP counts threads for each calling thread, BLAS and torch for the whole process. Tasks in a pool of threads
    therefore enter this guard each on their own (for OpenMP), and the thread that owns the pool enters it around all
    of them: a task that ends then does not give the others their threads back.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

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


@contextmanager
def no_spinning() -> Iterator[None]:
    """Let OpenMP's threads sleep while they wait for each other, for the block.

    GNU's OpenMP, which torch and scikit-learn bring along on Linux, lets them spin for milliseconds at each barrier.
    Where another process keeps a core busy, the thread that is waited for cannot run meanwhile: a training step with
    its hundreds of barriers took a hundred times as long as with one thread, boosted trees sixty times. Environment
    variables change that only before the libraries are imported. But OpenMP does not spin while it has more threads
    than there are processors: so a second team of threads is kept for the block, which does nothing.
    """
    from threadpoolctl import threadpool_info

    start_teams = [
        ctypes.CDLL(library["filepath"]).GOMP_parallel
        for library in threadpool_info()
        if sys.platform == "linux" and library["prefix"] == "libgomp" and library["num_threads"] > 1
    ]
    n_threads = (os.cpu_count() or 1) + 1
    # One block is enough for all of the process, and OpenMP ends the process where it cannot start a thread.
    if not start_teams or _is_kept.is_set() or not _can_start(n_threads * len(start_teams)):
        yield
        return
    nothing_to_do = ctypes.CDLL(None).sched_yield
    is_ready, is_over = threading.Event(), threading.Event()

    def keep_teams() -> None:
        for start_team in start_teams:  # a team lasts as long as the thread that has started it
            start_team(nothing_to_do, None, n_threads, 0)
        is_ready.set()
        is_over.wait()

    _is_kept.set()
    try:
        threading.Thread(target=keep_teams, daemon=True).start()
        is_ready.wait()
        yield
    finally:
        is_over.set()
        _is_kept.clear()


_is_kept = threading.Event()
"""Whether a block of `no_spinning` has its teams."""


def _can_start(n_threads: int) -> bool:
    """Whether the system lets this process have so many threads more: containers and users have limits."""
    is_over, started = threading.Event(), []
    try:
        for _ in range(n_threads):
            thread = threading.Thread(target=is_over.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        return False
    finally:
        is_over.set()
        for thread in started:
            thread.join()
    return True


def import_ray() -> Any:
    """Ray, or an error that says how to get it."""
    try:
        data = import_module("ray.data")
    except ImportError:
        raise DataError("Ray is not installed: pip install 'fairflows[ray]'.") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Ray's first context sets options that Ray deprecates
        data.DataContext.get_current()
    return import_module("ray")

"""Work side by side in fresh processes: experiments, and the tasks that one of them is made of."""

from __future__ import annotations

import multiprocessing
import pickle
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from fairflows.exceptions import DataWarning
from fairflows.table.persons import secrets_in_pickles

Item = TypeVar("Item")
Found = TypeVar("Found")


def new_pool(n_processes: int) -> ProcessPoolExecutor:
    """Processes that are started anew: one that has used a GPU cannot be copied. Data warnings are off in them."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(n_processes, context, initializer=_ignore_data_warnings)


def in_processes(work: Callable[[Item], Found], items: Iterable[Item], n_processes: int) -> list[Found]:
    """``map`` by several processes, in order; in this one where one is enough."""
    if n_processes == 1:
        return [work(item) for item in items]
    # As bytes: torch would lend tensors between processes instead of copying them, and the lender may be gone first.
    packed = [_packed((work, item)) for item in items]
    with new_pool(max(1, min(n_processes, len(packed)))) as pool:
        return [pickle.loads(found) for found in pool.map(_work_on_bytes, packed)]


def _work_on_bytes(packed: bytes) -> bytes:
    work, item = pickle.loads(packed)
    return _packed(work(item))


def _packed(value: object) -> bytes:
    """A pickle that holds the keys of models: it goes from one of our processes to another, and is not kept."""
    with secrets_in_pickles():
        return pickle.dumps(value)


def _ignore_data_warnings() -> None:
    warnings.simplefilter("ignore", DataWarning)

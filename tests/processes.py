"""Processes of their own, forked from one that has loaded the package (but not torch) and done nothing else."""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["pandas", "pytest", "sklearn.ensemble", "fairflows.certificate.certify", "fairflows.cli.main",
     "fairflows.encoder.fair_matching", "fairflows.release.release", "fairflows.storage",
     "fairflows.stream.files"]
)  # fmt: skip


def start(work: Callable[..., None], *arguments: object, output: Path | None = None) -> BaseProcess:
    """Start a function of a test module in a process of its own; what it prints can go to a file."""
    process = _CONTEXT.Process(target=_work, args=(work, arguments, output, dict(os.environ)))
    process.start()
    return process


def _work(work: Callable[..., None], arguments: tuple, output: Path | None, environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    if output is not None:
        with open(output, "wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    work(*arguments)

"""How far a call wanders: functions and modules of ours that it enters, and changes from one module to another.

    python benchmarks/traces.py [--rows 6000]

Traced with `sys.setprofile` on rows of Adult, after a first call of each kind; comprehensions, lambdas and generator
expressions are left out. At the end: how often the levels of each column are learnt or looked up, per row of the table.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from unittest.mock import patch

import numpy as np
import pandas as pd

import fairflows as ff

OURS = str(Path(ff.__file__).parent) + os.sep


class Trace:
    """Frames of ours that were entered while it is active, in this thread."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self.changes, self._module = 0, ""

    def __enter__(self) -> Trace:
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _seen(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(OURS) or code.co_name.startswith("<"):
            return
        module = code.co_filename.removeprefix(OURS)
        self.functions.add((module, code.co_qualname))
        self.changes += module != self._module
        self._module = module

    def __str__(self) -> str:
        modules = {module for module, _ in self.functions}
        return f"{len(self.functions):10,}{len(modules):10,}{self.changes:10,}"


def coded(call: Callable[[], object]) -> Counter[str]:
    """Return how many values of each column a call looks up among levels, or learns the levels of."""
    from fairflows.table.domain import Levels

    of, find, n = Levels.of, Levels.find, Counter[str]()

    def counted_of(name: str, column: pd.Series) -> tuple:
        n[name] += len(column)
        return of(name, column)

    def counted_find(self: Levels, column: pd.Series) -> np.ndarray:
        n[self.name] += len(column)
        return find(self, column)

    with patch.object(Levels, "of", counted_of), patch.object(Levels, "find", counted_find):
        call()
    return n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6_000)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ["FAIRFLOWS_LEDGER"] = tempfile.mkdtemp()
    adult = ff.load_adult().take(np.arange(arguments.rows))
    release, flow = ff.Release().fit(adult), ff.FairFlow(n_epochs=1).fit(adult)
    shared = ff.share(adult, quick=True)
    one = adult.take(np.arange(1))
    folder = Path(tempfile.mkdtemp()) / "out"
    calls: dict[str, Callable[[], object]] = {
        "share(quick=True)": lambda: ff.share(adult, quick=True),
        "share": lambda: ff.share(adult),
        "Release().fit_transform": lambda: ff.Release().fit_transform(adult),
        "FairFlow.fit": lambda: ff.FairFlow(n_epochs=1).fit(adult),
        "FairFlow.transform, a row": lambda: flow.transform(one),
        "certify(Release)": lambda: ff.certify(release, adult),
        "Shared.save": lambda: shared.save(folder),
        "check": lambda: ff.check(folder / "certificate.json", folder / "shared.csv"),
    }
    print(f"{'':28}{'functions':>10}{'modules':>10}{'changes':>10}")
    for name, call in calls.items():
        with Trace() as trace:
            call()
        print(f"{name:28}{trace}", flush=True)
    for name in ("share(quick=True)", "Release().fit_transform"):
        times = ", ".join(f"{column} {n / len(adult):.1f}" for column, n in coded(calls[name]).most_common())
        print(f"{name}: times that the values of a column are looked up: {times}")


if __name__ == "__main__":
    main()

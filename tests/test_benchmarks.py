"""Benchmarks stay runnable: docs quote their commands, and nothing else would notice that one has fallen behind."""

import importlib
import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize("name", sorted(file.stem for file in FOLDER.glob("*.py")))
def test_a_benchmark_finds_all_that_it_imports(name, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(os, "environ", dict(os.environ))  # some of them set the number of threads
    assert callable(importlib.import_module(name).main)

"""Benchmarks stay runnable: docs quote their commands, and nothing else would notice that one has fallen behind."""

import importlib
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.parametrize("name", sorted(file.stem for file in FOLDER.glob("*.py")))
def test_a_benchmark_finds_all_that_it_imports(name, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(os, "environ", dict(os.environ))  # some of them set the number of threads
    assert callable(importlib.import_module(name).main)


def test_the_first_leaves_of_a_tree_are_the_smaller_tree(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    board = importlib.import_module("board_fare")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(1500, 4)).round(1), columns=list("abcd"))
    a, y = (X["a"] + rng.normal(size=1500) > 0).astype(int), (X.sum(axis=1) + rng.normal(size=1500) > 0).astype(int)
    large = board.FARE(0.3, max_leaves=12, min_rows=20).fit(X, y, sensitive_features=a)
    for k in (2, 5, 11):
        small = board.FARE(0.3, max_leaves=k, min_rows=20).fit(X, y, sensitive_features=a)
        np.testing.assert_array_equal(board.first_leaves(large, k).cells(large.read(X)), small.cells(small.read(X)))


def test_the_certificate_of_more_persons_is_foreseen_from_few(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    board = importlib.import_module("board_fare")
    rng = np.random.default_rng(0)
    laws = {"none": np.full((2, 8), 1 / 8), "far": np.array([[1, 1, 1, 1, 1, 1, 1, 3], [3, 1, 1, 1, 1, 1, 1, 1]]) / 10}
    for law in laws.values():
        few, many = ([[rng.multinomial(n, p) for p in law] for _ in range(50)] for n in (1000, 4000))
        foreseen = np.mean([board.foreseen_bound(np.array(counts, float), np.full(2, 4000.0)) for counts in few])
        certified = np.mean([board.cell_upper_bound(counts, board.DELTA) for counts in many])
        assert certified < foreseen < certified + 0.02

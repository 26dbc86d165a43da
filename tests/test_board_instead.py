"""The board of what people use instead: its own parts keep what they say, on rows of a known law."""

import importlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def board(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("board_instead")


@pytest.fixture
def cells():
    """Return 40 cells on a line; the share of group 1 rises along it."""
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 40, 8000)
    return cells, (rng.random(8000) < (cells + 10) / 60).astype(int), np.arange(40.0)[:, None]


@pytest.mark.parametrize("t", [0.3, 0.1, 0.02])
def test_merged_cells_are_t_close_and_more_than_one(board, cells, t):
    before, group, centres = cells
    merged = board.t_close_cells(before, group, centres, t)
    after = merged[before]
    shares = np.array([group[after == j].mean() for j in range(after.max() + 1)])
    assert np.abs(shares - group.mean()).max() <= t
    p = group.mean()  # Δ = ½ Σ_j P(j) |p_j − p| / (p (1 − p))
    assert board.cell_distance(after, group) <= t / (2 * p * (1 - p))
    assert after.max() > 0  # one cell would be close, too


def test_cells_that_are_close_already_stay_apart(board, cells):
    before, group, centres = cells
    assert len(np.unique(board.t_close_cells(before, group, centres, 0.5))) == 40


def test_distance_of_cells_is_that_of_counts(board):
    assert board.cell_distance(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1])) == pytest.approx(2 / 3)


def test_typical_rows_are_means_and_most_frequent_values(board):
    rows = pd.DataFrame({"age": [20, 40, 50], "job": ["a", "b", "b"], "town": [None, None, "x"]})
    found = board.typical_rows(rows, np.array([0, 0, 1]))
    assert found["age"].tolist() == [30, 50]
    assert found["job"].tolist()[1] == "b"
    assert pd.isna(found["town"][0])

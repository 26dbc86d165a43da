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


def test_summary_shows_every_measure_and_a_dash_for_none(board):
    known = {"table": "t", "fitted": 1200, "held_out": 800, "columns": 3, "label_alone": 0.2, "seconds": 4.2}
    rows = {"method": "ours", "lower": 0.0, "promise": 0.1, "about": "persons to come", "label_raw": 0.9}
    rows |= {"label_released": 0.85, "worst": 0.02, "lower_persons": np.nan}
    drawn = {"method": "theirs", "lower": 0.5, "about": "nothing", "label_raw": 0.8, "lower_persons": 0.7}
    refused = {"method": "none", "about": "refused", "seconds": np.nan}
    *lines, last = board.summary(pd.DataFrame([known | rows, known | drawn, known | refused]))
    assert last == "| none | – | – | refused | – | – | – | – |"
    assert lines[1].startswith("**t**: 1,200 persons fitted to, 800 held out")
    assert lines[-2] == "| ours | ≥ 0.000 | ≥ 50.0 % | Δ ≤ 0.100, persons to come | 0.900 | 0.850 | 0.020 | 4 |"
    assert lines[-1] == "| theirs | ≥ 0.500* | ≥ 75.0 % | nothing | 0.800 | – | – | 4 |"


def test_a_result_replaces_the_older_one(board, tmp_path):
    path = tmp_path / "results.csv"
    names = list(board.METHODS)[:2]
    for method, lower in [(names[1], 0.5), (names[0], 0.1), (names[1], 0.4)]:
        board.write({"table": "adult", "method": method, "lower": lower}, path)
    found = pd.read_csv(path)
    assert found["method"].tolist() == names
    assert found["lower"].tolist() == [0.1, 0.4]

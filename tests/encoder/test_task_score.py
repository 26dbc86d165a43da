"""Scores of rows with gaps."""

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows.encoder.task_score import with_plain_gaps, with_values
from fairflows.table.columns import TableColumns


@pytest.fixture
def gaps():
    """Rows as a CSV file gives them: whole numbers with gaps, a column without a value, a label."""
    rng = np.random.default_rng(0)
    n = 800
    days = pd.Series(rng.integers(0, 30, n), dtype="Int64").mask(rng.random(n) < 0.2)
    x = rng.normal(size=n)
    return pd.DataFrame(
        {
            "person": np.arange(n),
            "x": x,
            "days": days,
            "nothing": np.nan,
            "y": (x > 0).astype(int),
            "a": rng.choice(["f", "m"], n),
        }
    )


def test_missing_numbers_are_nan_whatever_pandas_calls_them(gaps):
    plain = with_plain_gaps(TableColumns(gaps)).frame
    assert plain["days"].dtype == np.float64
    assert plain["days"].isna().sum() == gaps["days"].isna().sum()
    assert plain["y"].dtype == gaps["y"].dtype
    whole = gaps.assign(days=gaps["days"].fillna(0))
    assert with_plain_gaps(TableColumns(whole)).frame is whole


@pytest.mark.parametrize("kind", ["string", "object", "category", "boolean"])
def test_missing_categories_are_nan_whatever_pandas_calls_them(kind, gaps):
    text = pd.Series(["a", "b", None, "a"] * 200, dtype="string")
    rows = gaps.assign(c=(text == "a").mask(text.isna()) if kind == "boolean" else text.astype(kind))
    plain = with_plain_gaps(TableColumns(rows))["c"]
    assert [value for value in plain[:4].tolist() if isinstance(value, float) and np.isnan(value)] == [plain[2]]
    table = ff.Table(rows, sensitive="a", label="y", identifier="person", missing="category")
    assert ff.FairTree(n_cells=4, missing="category", identifier="person").fit(table).n_cells_ > 1


def test_only_a_column_without_any_value_is_filled(gaps):
    filled = with_values(with_plain_gaps(TableColumns(gaps)).frame)
    assert (filled["nothing"] == 0).all()
    assert filled["days"].isna().any()


def test_a_score_is_fitted_to_rows_with_gaps_and_an_empty_column(gaps):
    table = ff.Table(gaps, sensitive="a", label="y", identifier="person", missing="category")
    release = ff.CellRelease(ff.FairTransport(missing="category", identifier="person"), n_cells=8).fit(table)
    assert (release.predict(table) == table.y).mean() > 0.9

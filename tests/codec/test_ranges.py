"""Ranges of numbers and times: what is drawn stays on the grid, in its range, and in the column's type."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairflows.codec.one_column import Ranges
from fairflows.table.columns import numbers

RNG = np.random.default_rng(0)
N = 3_000
DAYS = pd.Series(pd.Timestamp("2020-02-01") + pd.to_timedelta(RNG.integers(0, 900, N), unit="D"))
COLUMNS = {
    "whole": pd.Series(RNG.integers(-50, 5_000, N)),
    "few values": pd.Series(RNG.integers(0, 9, N), dtype="int8"),
    "unsigned": pd.Series(RNG.integers(0, 200, N), dtype="uint8"),
    "hundreds": pd.Series(RNG.integers(1, 900, N) * 100),
    "cents": pd.Series(np.round(RNG.lognormal(4, 1, N), 2)),
    "continuous": pd.Series(RNG.normal(size=N)),
    "single": pd.Series(RNG.normal(size=N), dtype="float32"),
    "with gaps": pd.Series(RNG.normal(size=N)).mask(RNG.random(N) < 0.2),
    "nullable": pd.Series(RNG.integers(0, 300, N), dtype="Int64").mask(RNG.random(N) < 0.2),
    "days": DAYS,
    "days with gaps": DAYS.mask(RNG.random(N) < 0.2),
    "moments": pd.Series(pd.to_datetime(RNG.integers(0, 2**60, N))).dt.tz_localize("Europe/Berlin", ambiguous=True,
                                                                                   nonexistent="shift_forward"),
    "durations": pd.Series(pd.to_timedelta(RNG.integers(0, 10_000, N), unit="s")),
    "far apart": pd.Series(RNG.integers(0, 2**52, N)),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_drawn_values_keep_grid_range_and_type(name):
    column = COLUMNS[name]
    ranges = Ranges.fit(column)
    codes = ranges.codes(column)
    drawn = ranges.column(ranges.draw(codes, np.random.default_rng(1)))
    assert drawn.dtype == column.dtype
    assert drawn.isna().equals(column.isna())
    assert column.min() <= drawn.min()
    assert drawn.max() <= column.max()
    assert (ranges.codes(drawn) == codes).all()
    if ranges.grid is not None:
        assert ranges.grid.index(numbers(drawn.dropna()))[1].all()


@pytest.mark.parametrize("name", COLUMNS)
def test_the_law_of_drawn_values_is_that_of_the_column(name):
    column = COLUMNS[name].dropna()
    ranges = Ranges.fit(column)
    drawn = ranges.column(ranges.draw(ranges.codes(column), np.random.default_rng(1)))
    thresholds = column.quantile([0.1, 0.3, 0.5, 0.7, 0.9], interpolation="nearest")
    for threshold in thresholds:
        assert (drawn <= threshold).mean() == pytest.approx((column <= threshold).mean(), abs=0.02)


def test_a_frequent_value_is_a_range_of_its_own():
    column = pd.Series(np.where(RNG.random(N) < 0.9, 0, RNG.integers(1, 10_000, N)))
    ranges = Ranges.fit(column)
    drawn = ranges.column(ranges.draw(ranges.codes(column), np.random.default_rng(1)))
    assert ((drawn == 0) == (column == 0)).all()


def test_values_of_a_continuous_column_are_not_those_of_the_rows():
    column = pd.Series(RNG.normal(size=30))
    ranges = Ranges.fit(column)
    drawn = ranges.column(ranges.draw(ranges.codes(column), np.random.default_rng(1)))
    assert not drawn.isin(column).any()


def test_a_column_without_values_has_no_ranges():
    assert Ranges.fit(pd.Series([np.nan, np.nan])) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-(10**9), 10**9) | st.none(), min_size=1, max_size=60), st.integers(0, 2**31))
def test_any_whole_numbers(values, seed):
    column = pd.Series(values, dtype="Int64")
    ranges = Ranges.fit(column)
    if ranges is None:
        assert not column.notna().any()
        return
    codes = ranges.codes(column)
    assert ((codes == len(ranges) - 1) | column.notna()).all()
    drawn = ranges.column(ranges.draw(codes, np.random.default_rng(seed)))
    assert drawn.isna().equals(column.isna())
    assert column.min() <= drawn.min()
    assert drawn.max() <= column.max()

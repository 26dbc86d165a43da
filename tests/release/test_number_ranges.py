"""Ranges of numbers and times: ten persons in each, values on the grid of nearly all, no extreme of one person."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairflows.release.number_ranges import FEWEST_PERSONS, NumberRanges, _finest_grid
from fairflows.release.own_rows import shared_range
from fairflows.table.columns import numbers
from fairflows.table.grid import Grid

RNG = np.random.default_rng(0)


def drawn_from(column: pd.Series, who: np.ndarray | None = None, n_times: int = 5) -> pd.Series:
    """Draw from the range of each value, several times."""
    who = np.arange(len(column)) if who is None else who
    ranges, codes = NumberRanges.fit(column, who)
    return ranges.column(ranges.draw(np.tile(codes, n_times), np.random.default_rng(1)))


COLUMNS = {
    "whole numbers": pd.Series(RNG.integers(0, 5_000, 2_000)),
    "one decimal": pd.Series(RNG.normal(50, 20, 2_000).round(1)),
    "real": pd.Series(RNG.lognormal(3, 2, 2_000)),
    "many zeros": pd.Series(np.where(RNG.random(2_000) < 0.9, 0, RNG.integers(1, 10**6, 2_000))),
    "times": pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 10**6, 2_000), unit="s")),
    "nullable": pd.Series(RNG.integers(0, 300, 2_000), dtype="Int64").mask(RNG.random(2_000) < 0.2),
    "small numbers": pd.Series(RNG.exponential(1e-9, 2_000)),
    "single precision": pd.Series(RNG.normal(size=2_000).astype(np.float32)),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_values_stay_in_their_ranges(column):
    ranges, codes = NumberRanges.fit(column, np.arange(len(column)))
    drawn = ranges.draw(codes, np.random.default_rng(1))
    again, known = ranges.column(drawn), column.notna().to_numpy()
    assert again.dtype == column.dtype
    np.testing.assert_array_equal(np.searchsorted(ranges.first, drawn[known], side="right") - 1, codes[known])
    assert again.isna().equals(column.isna())
    assert (codes[~known] == len(ranges.first)).all()
    assert np.bincount(codes).min() >= FEWEST_PERSONS
    if ranges.grid is not None:
        places, is_exact = ranges.grid.index(numbers(column[known]))
        assert is_exact.mean() > 0.98
        exact = column[known][is_exact]
        assert ranges.column(places[is_exact]).tolist() == exact.tolist(), "a place is the value that it stands for"


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_an_extreme_of_one_person_is_not_drawn(column):
    extremes = {column.min(), column.max()}
    own = {value for value in extremes if (column == value).sum() == 1}
    assert own.isdisjoint(drawn_from(column, n_times=50).dropna())


@pytest.mark.parametrize("rows", [[70], [70, 71]], ids=["one row", "two rows"])
@pytest.mark.parametrize("kind", ["number", "time"])
def test_a_value_of_one_person_among_shared_ones_is_not_drawn(kind, rows):
    """The time of one visit, to the second, among days that many have: it would come out as it is."""
    column = pd.Series(np.arange(400) % 40 * 1000)
    column[rows] = [15_417 + row for row in rows]
    if kind == "time":
        column = pd.Timestamp("2024-01-01") + pd.to_timedelta(column, unit="h")
        column[rows] += pd.Timedelta(11, "s")
    own, who = column[rows].tolist(), np.where(np.isin(np.arange(400), rows), rows[0], np.arange(400))
    ranges, codes = NumberRanges.fit(column, who)
    drawn = ranges.column(ranges.draw(np.repeat(codes, 50), np.random.default_rng(0)))
    assert not drawn.isin(own).any()
    assert drawn.isin(column).all()


def test_a_value_that_one_person_has_several_times_is_an_extreme_of_one_person():
    column = pd.Series([*RNG.integers(0, 50, 300), 99, 99, 99])
    assert 99 not in set(drawn_from(column, np.array([*range(300), 300, 300, 300]), 50))
    assert 99 in set(drawn_from(column, None, 50))


@pytest.mark.parametrize("sign", [1, -1])
def test_several_values_of_one_person_beyond_all_others_are_extremes(sign):
    """The largest alone was left out: numbers between the others' and this person's second largest were drawn."""
    who = np.array([*range(300), *[300] * 6])
    column = pd.Series(sign * np.array([*RNG.normal(size=300).round(2), *range(1000, 1600, 100)]))
    assert drawn_from(column, who, 50).abs().max() < 5
    assert sign * shared_range(column.to_numpy(), who)[sign > 0] == (sign * column[:300]).max()


def test_ten_rows_of_one_person_do_not_fill_a_range():
    column = pd.Series(np.arange(200.0))
    who = np.arange(200) // 20  # ten persons with twenty rows each
    assert len(NumberRanges.fit(column, who)[0]) == 1
    assert len(NumberRanges.fit(column, np.arange(200))[0]) > 10


def test_values_that_several_persons_share_come_out_as_they_are():
    """Incomes are heaped at round numbers, and codes between the codes of a list do not exist."""
    incomes = pd.Series(RNG.choice([20_000, 25_000, 30_000, 31_415, 40_000], 3_000) + 0)
    codes = pd.Series(RNG.choice([110, 230, 4_020, 9_920], 3_000))
    for column in (incomes, codes):
        assert set(drawn_from(column)) == set(column)


def test_a_few_odd_values_do_not_make_a_column_continuous():
    column = pd.Series([*RNG.integers(0, 300, 1_000) / 10, 5.699999999999999, 1 / 3, 7.123456789])
    drawn = drawn_from(column)
    assert (drawn == drawn.round(1)).all()
    values = np.random.default_rng(0).lognormal(15, 3, 1_000)
    large = drawn_from(pd.Series(np.append(values[:990].round(2), values[990:])))
    assert (large == large.round(2)).all()
    assert 0.5 < large.quantile(0.99) / np.quantile(values, 0.99) < 2


def test_the_finest_grid_has_all_decimals_or_ticks():
    assert _finest_grid(np.array([0.1, 5.25]), 2) == Grid(10, 1, 2, 516)
    assert _finest_grid(np.array([0.0, 1e15]), 2) is None, "larger reals are not told apart"
    assert _finest_grid(np.array([3, 7], dtype="M8[s]")) == Grid(3, 1, 0, 5)


def test_a_number_without_a_grid_has_a_few_digits_and_lies_anywhere_in_its_stretch():
    own = 5 * np.random.default_rng(0).random(10)
    drawn = drawn_from(pd.Series([*[2.5] * 5, *own]), n_times=400)
    assert (drawn == 2.5).mean() == pytest.approx(1 / 3, abs=0.03)
    others = (drawn[drawn != 2.5] - own.min()) / np.ptp(own)
    assert np.histogram(others, 10, (0, 1))[0][1:-1].min() > 200
    assert (others > 0).all()
    assert (drawn == drawn.round(3)).all()


def test_inner_ranges_hold_equally_many_persons():
    _, codes = NumberRanges.fit(pd.Series(np.arange(5_500)), np.arange(5_500))
    assert set(np.bincount(codes)[3:-3]) == {22}, "a 250th of all"


def test_heavy_tails_are_kept():
    column = pd.Series(np.random.default_rng(0).pareto(1.5, 50_000))
    drawn = drawn_from(column, n_times=1)
    for share in (0.5, 0.9, 0.99, 0.999):
        assert drawn.quantile(share) == pytest.approx(column.quantile(share), rel=0.05)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=60))
def test_any_numbers(values):
    column = pd.Series(values, dtype=float)
    drawn = drawn_from(column, n_times=3)
    assert drawn.between(column.min(), column.max()).all()

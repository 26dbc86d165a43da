"""Cell numbers: mixed radix, there and back."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from fairflows import DataError
from fairflows.codec.combination_codec import CombinationCodec


@given(st.lists(st.lists(st.text(max_size=3), min_size=6, max_size=6), min_size=1, max_size=4))
@settings(deadline=None)
def test_categories_come_back(columns):
    frame = pd.DataFrame({f"c{j}": values for j, values in enumerate(columns)})
    codec = CombinationCodec().fit(frame)
    combinations = codec.encode(frame)
    assert_frame_equal(codec.decode(combinations), frame)
    every = np.arange(min(codec.n_combinations_, 5000))
    np.testing.assert_array_equal(codec.codes_of(codec.levels_of(every).T), every)


def test_declared_categories_count_even_when_unseen():
    grade = pd.CategoricalDtype(["low", "middle", "high"], ordered=True)
    codec = CombinationCodec().fit(pd.DataFrame({"g": pd.Series(["low", "low"], dtype=grade)}))
    assert codec.n_combinations_ == 3
    assert codec.encode(pd.DataFrame({"g": pd.Series(["high"], dtype=grade)})).tolist() == [2]


def test_numbers_are_cut_at_their_quantiles():
    frame = pd.DataFrame(
        {"x": np.arange(100), "few": np.arange(100) % 3, "c": np.random.default_rng(0).normal(size=100)}
    )
    codec = CombinationCodec(n_bins=4).fit(frame)
    assert codec.shape_ == (4, 3, 4)
    levels = codec.levels_of(codec.encode(frame))
    assert np.bincount(levels[:, 0]).tolist() == [25, 25, 25, 25]
    assert np.bincount(levels[:, 2]).tolist() == [25, 25, 25, 25]
    assert codec.decode(codec.encode(frame))["x"].unique().tolist() == ["< 25", "[25, 50)", "[50, 75)", "≥ 75"]
    assert codec.decode(codec.encode(frame))["few"].tolist() == frame["few"].tolist()
    assert codec.levels_of(codec.encode(frame.assign(x=10**6)))[0, 0] == 3  # beyond the training range: the last bin


def test_dates_and_missing_values():
    frame = pd.DataFrame({"t": pd.date_range("2020", periods=40), "c": ["a", None] * 20})
    codec = CombinationCodec().fit(frame)
    assert codec.shape_ == (4, 2)
    assert codec.decode(codec.encode(frame))["c"].isna().sum() == 20
    with pytest.raises(DataError, match="'t' must hold datetime64.*; got int64"):
        codec.encode(frame.assign(t=1))


def test_another_value_stands_in_for_one_that_training_did_not_have():
    frame = pd.DataFrame({"town": ["Ulm", "Bonn", "Ulm"], "rooms": [1, 2, 2], "x": [0.1, 0.2, 0.3]})
    codec = CombinationCodec(n_bins=2).fit(frame, {"x": "continuous"})
    later = pd.DataFrame({"town": ["Rome", None], "rooms": [9, 2], "x": [7.0, np.nan]})
    combinations = codec.encode(later)
    assert ((combinations >= 0) & (combinations < codec.n_combinations_)).all()
    assert codec.decode(combinations)["town"].tolist() == ["Bonn", "Bonn"]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, "Int64"])
def test_large_integers_fall_into_their_bins(dtype):
    values = 2**60 + np.arange(40)
    frame = pd.DataFrame({"x": pd.Series(values, dtype=dtype)})
    codec = CombinationCodec(n_bins=4).fit(frame)
    assert np.bincount(codec.encode(frame)).tolist() == [10, 10, 10, 10]
    assert codec.encode(pd.DataFrame({"x": np.array([2**64 - 1], dtype=np.uint64)})).tolist() == [3]
    assert codec.encode(pd.DataFrame({"x": [-5]})).tolist() == [0]

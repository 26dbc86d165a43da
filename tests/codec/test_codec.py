"""Every value comes back: random mixed tables through the codec, and each rule about values it cannot take."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from fairflows import DataError, DataWarning
from fairflows.codec.model_space import Codec
from fairflows.table.grid import MAX_STEPS, MIN_ROWS, find_grid
from fairflows.table.persons import Persons

KEY = bytes(range(32))


def encode(codec: Codec, frame: pd.DataFrame) -> np.ndarray:
    return codec.encode(frame, Persons.of(np.arange(len(frame))))[0]


def text(n):
    return st.lists(st.text(max_size=6) | st.sampled_from(["", "1", "1.0", "nan", "ß", "日本"]), min_size=n, max_size=n)


def integers(n):
    span = st.sampled_from([1, 10, 1000, 2**31, MAX_STEPS - 1])
    base = st.integers(-(2**62), 2**62 - MAX_STEPS)
    return st.tuples(base, span).flatmap(
        lambda bs: st.lists(st.integers(bs[0], bs[0] + bs[1]), min_size=n, max_size=n).map(np.array)
    )


def decimals(n):
    steps = st.lists(st.integers(-(10**9), 10**9), min_size=n, max_size=n)
    return st.tuples(steps, st.integers(0, 9)).map(lambda sd: np.array(sd[0]) / 10 ** sd[1])


def dates(n):
    unit = st.sampled_from(["s", "ms", "us", "ns"])
    days = st.lists(st.integers(-20_000, 40_000), min_size=n, max_size=n)
    return st.tuples(days, unit).map(lambda du: (np.array(du[0]) * 86_400).astype("M8[s]").astype(f"M8[{du[1]}]"))


def booleans(n):
    return st.lists(st.booleans(), min_size=n, max_size=n).map(np.array)


def constants(n):
    return st.sampled_from([0, -7, 2.5, "x", "", True, pd.Timestamp("2020-02-29")]).map(lambda v: [v] * n)


@st.composite
def exact_tables(draw):
    """Mixed tables whose values lie on grids or are categories: they must come back bit for bit."""
    n = draw(st.integers(2, 40))
    kinds = draw(
        st.lists(st.sampled_from([text, integers, decimals, dates, booleans, constants]), min_size=1, max_size=5)
    )
    return pd.DataFrame({f"{j}:{kind.__name__}": draw(kind(n)) for j, kind in enumerate(kinds)})


@given(exact_tables(), st.booleans())
@settings(deadline=None)
def test_discrete_and_categorical_values_come_back_bit_for_bit(frame, dequantise):
    codec = Codec(key=KEY, dequantise=dequantise)
    if (frame.nunique() == 1).all():
        with pytest.raises(DataError, match="single value"):
            codec.fit(frame)
        return
    x = encode(codec.fit(frame), frame)
    assert np.isfinite(x).all()
    assert_frame_equal(codec.decode(x), frame, check_exact=True)


finite = st.floats(-1e300, 1e300)


@given(st.lists(finite, min_size=2, max_size=30, unique=True))
@settings(deadline=None)
def test_continuous_values_come_back_within_rounding(values):
    frame = pd.DataFrame({"x": np.array(values)})
    codec = Codec(key=KEY).fit(frame, kinds={"x": "continuous"})
    back = codec.decode(encode(codec, frame))["x"].to_numpy()
    assert (np.abs(back - frame["x"]) <= 1e-14 * np.abs(frame["x"]).max() + 1e-323).all()


def test_the_widest_grid_comes_back_bit_for_bit():
    rng = np.random.default_rng(1)
    values = np.concatenate([[0, MAX_STEPS - 1], rng.integers(0, MAX_STEPS, 200_000)]) - 2**39
    frame = pd.DataFrame({"x": values})
    codec = Codec(key=KEY).fit(frame)
    assert codec.scales_["x"].grid.n_steps == MAX_STEPS
    assert (codec.decode(encode(codec, frame))["x"] == values).all()


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int16", "uint64", "float32", "Int64", "Float64", "int64[pyarrow]", "double[pyarrow]"]
)
def test_number_types_come_back(dtype):
    frame = pd.DataFrame({"x": pd.Series([1, 5, 3, 100], dtype=dtype), "y": pd.Series([0, 1, 1, 0], dtype=dtype)})
    codec = Codec(key=KEY).fit(frame)
    assert_frame_equal(codec.decode(encode(codec, frame)), frame, check_exact=True)


@pytest.mark.parametrize("dtype", ["string", "object", "category", "str", "string[pyarrow]"])
def test_text_types_come_back(dtype):
    frame = pd.DataFrame({"x": pd.Series(["b", "", "a", "b"], dtype=dtype), "n": [1, 2, 3, 4]})
    codec = Codec(key=KEY).fit(frame, y=[0, 1, 1, 0])
    assert_frame_equal(codec.decode(encode(codec, frame)), frame, check_exact=True)


def test_times_with_zones_and_durations_come_back():
    start = pd.Timestamp("2024-03-30 23:30", tz="Europe/Berlin")  # across the change to summer time
    frame = pd.DataFrame(
        {
            "zoned": pd.date_range(start, periods=50, freq="37min"),
            "duration": pd.to_timedelta(np.arange(50) * 90, unit="s"),
        }
    )
    codec = Codec(key=KEY).fit(frame)
    assert_frame_equal(codec.decode(encode(codec, frame)), frame, check_exact=True)


def test_times_in_a_finer_unit_are_rounded_to_that_of_training():
    codec = Codec(key=KEY).fit(pd.DataFrame({"at": pd.date_range("2020-01-01", periods=9).astype("M8[s]")}))
    finer = pd.DataFrame({"at": pd.to_datetime(["2020-01-03 00:00:00.2"]).astype("M8[ms]")})
    assert codec.decode(encode(codec, finer))["at"].tolist() == [pd.Timestamp("2020-01-03")]


def test_grids():
    assert find_grid(np.array([3, 5, 9])).quantum == 1
    assert find_grid(np.tile([100, 300, 900], MIN_ROWS)).quantum == 200
    assert find_grid(np.array([0.1, 0.2, 0.7])).quantum == 0.1
    assert find_grid(np.array([0.1, 0.25], dtype=np.float32)).quantum == 0.01
    assert find_grid(np.random.default_rng(0).normal(size=100)) is None
    assert find_grid(np.array([0, MAX_STEPS])) is None  # one step too many for float64


def test_log_determinant_is_that_of_the_map():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"u": rng.normal(size=200), "v": rng.exponential(size=200) * 1e4})
    codec = Codec(key=KEY).fit(frame)
    rows = frame.iloc[:20] * 1.5  # some of them outside the training range
    persons, h = Persons.of(np.arange(20)), 1e-6
    x, log_det = codec.encode(rows, persons)
    slopes = [
        (codec.encode(rows.assign(**{c: rows[c] + h * frame[c].std()}), persons)[0] - x)[:, j] / (h * frame[c].std())
        for j, c in enumerate(frame)
    ]
    np.testing.assert_allclose(log_det, np.log(slopes).sum(axis=0), atol=1e-4)


def test_noise_is_spread_over_the_step_and_independent_between_columns():
    frame = pd.DataFrame({"a": np.tile([0, 1], 5000), "b": np.tile([0, 1], 5000)})
    codec = Codec(key=KEY, alpha=0.5).fit(frame)
    x = encode(codec, frame)
    position = ((1 / (1 + np.exp(-x))) - 0.25) / 0.5 * 2
    u = position - np.floor(position)
    assert len(np.unique(u)) == u.size  # 53 bits: nobody shares a value
    for j in range(2):
        assert abs(u[:, j].mean() - 0.5) < 0.02
        assert abs(u[:, j].std() - 12**-0.5) < 0.01
    assert abs(np.corrcoef(u.T)[0, 1]) < 0.04


@pytest.mark.parametrize(("later", "back"), [(300, 255), (-5, 0)])
def test_numbers_that_the_training_type_cannot_hold_come_back_as_its_end(later, back):
    codec = Codec(key=KEY).fit(pd.DataFrame({"x": np.array([1, 5, 9], dtype=np.uint8)}))
    assert codec.decode(encode(codec, pd.DataFrame({"x": [later]})))["x"].tolist() == [back]


def test_what_decodes_far_outside_stops_at_the_end_of_the_type():
    codec = Codec(key=KEY).fit(pd.DataFrame({"x": np.array([1, 5, 9], dtype=np.uint8)}))
    assert codec.decode(np.array([[-1e6], [1e6], [-1e300], [1e300]]))["x"].tolist() == [0, 255, 0, 255]


@pytest.mark.parametrize("start", [10**8, 10**11, 2**40 - 5_000])
def test_values_far_outside_come_back_or_are_refused(start):
    codec = Codec(key=KEY).fit(pd.DataFrame({"x": np.arange(5)}))
    for sign in (1, -1):
        far = pd.DataFrame({"x": sign * (start + np.arange(5_000))})
        assert_frame_equal(codec.decode(encode(codec, far)), far)
    beyond = pd.DataFrame({"x": [3, -(2**40) - 10, 2**62]})
    with pytest.raises(DataError, match=r"'x' must lie within 2\*\*40 steps .*; 2 values do not, the first is -1099"):
        encode(codec, beyond)
    codec = Codec(key=KEY).fit(pd.DataFrame({"x": [0.0, 1.0]}))
    with pytest.raises(DataError, match=r"2\*\*40 steps .* the first is 1e\+300"):
        encode(codec, pd.DataFrame({"x": [1e300]}))
    whole = Codec(key=KEY).fit(pd.DataFrame({"x": [-(2**63), 1 - 2**63]}))
    with pytest.raises(DataError, match=r"2\*\*40 steps"):  # the difference is 2**64 - 1, which wraps around to -1
        encode(whole, pd.DataFrame({"x": [2**63 - 1]}))


def test_columns_whose_names_run_into_each_other():
    frame = pd.DataFrame({"c": [1, 2, None, 4] * 10, "c is missing": list("abba") * 10, "c is missing?": [0, 1] * 20})
    codec = Codec(key=KEY).fit(frame)
    assert len(set(codec.names_)) == len(codec.names_) == 4
    assert_frame_equal(codec.decode(encode(codec, frame)), frame)
    x = encode(codec, frame)
    noise = {name: x[:, j] for j, name in enumerate(codec.names_)}
    place = {name: (1 / (1 + np.exp(-v)) - 0.025) / 0.95 * 2 % 1 for name, v in noise.items()}
    assert not np.isclose(place["c is missing"], place["c is missing??"]).any()
    for columns, name in ((["a", "a"], "a"), ([1, "1"], "1")):
        same = pd.DataFrame([[1, 2], [3, 4]], columns=pd.Index(columns, dtype=object))
        with pytest.raises(DataError, match=f"Column names must be unique; '{name}' occurs more than once"):
            Codec().fit(same)


def test_another_category_stands_in_for_an_unseen_one():
    frame = pd.DataFrame({"town": ["Ulm", "Bonn", "Ulm"], "n": [1, 2, 3]})
    later = pd.DataFrame({"town": ["Ulm", "Köln", None], "n": [1, 2, 3]})
    codec = Codec().fit(frame)
    assert codec.decode(encode(codec, later))["town"].tolist() == ["Ulm", "Bonn", "Bonn"]


def test_constant_columns_are_left_out_and_restored():
    frame = pd.DataFrame({"x": [1, 2, 3], "country": ["DE"] * 3, "year": [2020] * 3})
    codec = Codec(key=KEY).fit(frame)
    assert codec.names_ == ["x"]
    assert_frame_equal(codec.decode(encode(codec, frame)), frame)
    with pytest.raises(DataError, match="'year' was 2020 in all rows .* the first is 2021"):
        encode(codec, frame.assign(year=[2020, 2021, 2020]))
    with pytest.raises(DataError, match="single value"):
        Codec().fit(frame[["year"]])


def test_missing_values():
    frame = pd.DataFrame(
        {
            "n": [1.0, np.nan, 3.0, 2.0],
            "t": pd.to_datetime(["2020-01-01", None, "2020-01-03", "2020-01-05"]),
            "c": ["a", "b", None, "a"],
            "same": [5.0, None, 5.0, 5.0],
            "none": [np.nan] * 4,
            "whole": pd.Series([4, None, 6, 7], dtype="Int64"),
        }
    )
    codec = Codec(key=KEY).fit(frame)
    assert "n is missing" in codec.names_
    assert_frame_equal(codec.decode(encode(codec, frame)), frame, check_exact=True)
    complete = Codec().fit(frame.fillna({"n": 2.0, "c": "a"}))
    found = complete.decode(encode(complete, frame))
    assert found["n"].isin([1, 2, 3]).all(), "a known value stands in"
    assert found["c"].isin(["a", "b"]).all()


def test_missing_numbers_are_not_atoms():
    frame = pd.DataFrame({"x": np.where(np.arange(400) % 2, np.nan, np.arange(400.0))})
    codec = Codec(key=KEY).fit(frame)
    x = encode(codec, frame)
    assert len(np.unique(x[1::2, 0])) == 200


def test_values_that_repeat_without_a_grid_are_reported():
    frame = pd.DataFrame({"x": np.tile([0, 1 / 3, 2 / 3, np.pi], 20)})
    with pytest.warns(DataWarning, match="'x' repeats its values .* lie on no grid"):
        Codec().fit(frame)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"x": [1.0, np.inf]}), "'x' must hold finite numbers; 1 are infinity"),
        (pd.DataFrame({"x": [1.0, 1e301]}), r"; 1 are infinity or too large \(above 1e\+300\), the first in row 1"),
        (pd.DataFrame({"x": [1 + 2j, 0j]}), "'x': Complex data not supported"),
        (pd.DataFrame({"x": pd.Series(["a", 1], dtype=object)}), "'x' must hold values of one type; got int, str"),
        (pd.DataFrame({"x": pd.Series([[1], [2]], dtype=object)}), "'x' must hold text, .*; got list"),
        (pd.DataFrame({"x": [b"ok", b"caf\xe9"]}), "'x' must hold text, .*; got bytes"),
        (pd.DataFrame({"x": []}), "at least one row"),
    ],
)
def test_columns_that_cannot_be_encoded(frame, message):
    with pytest.raises(DataError, match=message):
        Codec().fit(frame)


def test_other_types_than_in_training():
    codec = Codec().fit(pd.DataFrame({"x": [1, 2, 3]}))
    with pytest.raises(DataError, match="'x' must hold int64, as in the rows it was fitted on; got"):
        encode(codec, pd.DataFrame({"x": ["1", "2"]}))
    with pytest.raises(DataError, match="declared discrete, but its values lie on no grid"):
        Codec().fit(pd.DataFrame({"x": [np.pi, np.e]}), kinds={"x": "discrete"})

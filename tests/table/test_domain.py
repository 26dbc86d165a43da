"""The domain of a table: every column as an array, and every value that was not there, row by row."""

import warnings

import numpy as np
import pandas as pd
import pytest

from fairflows import DataError, DataWarning
from fairflows.table.domain import Domain, Levels, Outside, Seen, take

N = 40
TRAINED = pd.DataFrame(
    {
        "town": np.resize(["Ulm", "Bonn", "Trier"], N),
        "age": np.arange(20, 20 + N),
        "pet": np.resize(["cat", None], N),
        "rent": np.resize([500.0, np.nan, 700.0], N),
        "land": "de",
        "since": pd.date_range("2020-01-01", periods=N),
    }
)
LATER = pd.DataFrame(
    {
        "town": ["Ulm", "Paris", None, "Bonn", "Rome"],
        "age": [30.0, 30.4, 50, 45, np.nan],
        "pet": ["cat", None, "cat", "dog", None],
        "rent": [500.0, np.nan, 700.0, 500.0, 700.0],
        "land": ["de", "de", "de", "fr", None],
        "since": [pd.Timestamp("2020-01-05")] * 4 + [pd.Timestamp("2020-01-05 12:00")],
    }
)
UNKNOWN = {
    ("town", "unseen"): 2,
    ("town", "missing"): 1,
    ("age", "missing"): 1,
    ("pet", "unseen"): 1,
    ("land", "unseen"): 1,
    ("land", "missing"): 1,
}


@pytest.fixture(scope="module")
def domain() -> Domain:
    return Domain.of(TRAINED)[0]


def test_each_row_with_a_value_outside_is_noted(domain):
    codes, outside = domain.read(LATER)
    assert outside.counts() == {**UNKNOWN, ("age", "off grid"): 1, ("since", "off grid"): 1}
    # A flow rounds a value and continues the range; an unseen category and a new gap cannot be brought back.
    assert outside.unknown.tolist() == [False, True, True, True, True]
    assert codes["town"].tolist() == [2, -1, -1, 0, -1]
    assert codes["pet"].tolist() == [0, 1, 0, -1, 1], "a gap that training had is a level"
    np.testing.assert_array_equal(codes["age"], LATER["age"].to_numpy())


def test_what_is_outside_goes_with_its_rows(domain):
    outside = domain.read(LATER)[1]
    for places in (np.array([4, 0]), np.array([1, 1, 2]), np.array([], dtype=int)):
        some = outside.take(places)
        assert some.counts() == domain.read(LATER.iloc[places])[1].counts()
        assert some.unknown.tolist() == outside.unknown[places].tolist()


def test_training_rows_are_read_as_they_were_learnt(domain):
    learnt = Domain.of(TRAINED)[1]
    codes, outside = domain.read(TRAINED)
    assert outside.counts() == {}
    order = np.random.default_rng(0).permutation(N)
    for name, column in learnt.items():
        np.testing.assert_array_equal(codes[name], column)
        np.testing.assert_array_equal(domain.read(TRAINED.iloc[order])[0][name], column[order])


def test_one_warning_counts_all_values(domain):
    rows = TRAINED.assign(age=TRAINED["age"] + 0.25, rent=TRAINED["rent"] + 200, pet="dog").iloc[:30]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        domain.read(rows)[1].warn()
        Outside(3).warn()
    assert [warning.category for warning in caught] == [DataWarning]
    message = str(caught[0].message)
    assert "outside the training range, as in another unit: column 'rent' (10)" in message
    assert "training grid, to which flows round them: column 'age' (30)" in message
    assert "training rows did not have, treated alike in every group: column 'pet' (30)" in message


def test_values_beyond_the_range_are_said_where_chance_does_not_explain_them():
    """Of n training rows and one more, each is the largest with probability 1/(n + 1)."""
    rng = np.random.default_rng(0)
    told = 0
    for _ in range(200):
        domain = Domain.of(pd.DataFrame({"x": rng.normal(size=300)}))[0]
        told += bool(domain.read(pd.DataFrame({"x": rng.normal(size=100)}))[1].counts())
    assert told <= 1
    outside = domain.read(pd.DataFrame({"x": 1000 * rng.normal(size=100)}))[1]
    assert outside.counts()["x", "beyond"] > 90
    assert not outside.unknown.any()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_times_of_another_unit_lie_on_the_grid_or_do_not(unit, zone):
    days = pd.Series(pd.date_range("2020-01-01", periods=N).astype(f"M8[{unit}]")).dt.tz_localize("UTC")
    days = days.dt.tz_convert(zone) if zone else days.dt.tz_localize(None)
    domain = Domain.of(pd.DataFrame({"at": days}))[0]
    for other in ("s", "ns"):
        later = days.dt.as_unit(other)
        assert domain.read(pd.DataFrame({"at": later}))[1].counts() == {}
        assert domain.read(pd.DataFrame({"at": later + pd.Timedelta("1h")}))[1].counts() == {("at", "off grid"): N}
    lasting = pd.DataFrame({"took": pd.to_timedelta(np.arange(N), unit="min").astype(f"m8[{unit}]")})
    of_minutes = Domain.of(lasting)[0]
    assert of_minutes.read(lasting.astype("m8[ns]") + pd.Timedelta("1ms"))[1].counts() == {("took", "off grid"): N}


def test_another_type_than_in_training_is_refused(domain):
    with pytest.raises(DataError, match="'age' must hold numbers, as it was fitted; got (str|object)"):
        domain.read(TRAINED.assign(age="old"))
    with pytest.raises(DataError, match="'since' must hold times, as it was fitted; got int64"):
        domain.read(TRAINED.assign(since=1))
    with pytest.raises(DataError, match="'age' must hold finite numbers; 40 are infinity"):
        domain.read(TRAINED.assign(age=np.inf))


def test_declared_kinds_decide_on_levels_and_grids():
    frame = pd.DataFrame({"code": [7, 3, 7, 11], "x": [1.0, 2.0, 3.0, 4.0]})
    domain, codes = Domain.of(frame, {"code": "categorical", "x": "continuous"})
    assert codes["code"].tolist() == [1, 0, 1, 2]
    found, outside = domain.read(pd.DataFrame({"code": [3, 8], "x": [1.5, 2.25]}))
    assert found["code"].tolist() == [0, -1]
    assert outside.counts() == {("code", "unseen"): 1}


def test_numbers_of_single_precision_are_read_by_their_decimals():
    frame = pd.DataFrame({"x": np.array([0.1, 0.7, 1.3], dtype=np.float32)})
    domain, codes = Domain.of(frame)
    assert codes["x"].tolist() == [0.1, 0.7, 1.3]
    assert domain.read(pd.DataFrame({"x": [0.7]}))[1].counts() == {}


class TestLevels:
    @pytest.mark.parametrize("dtype", ["object", "str", "string", "category", "string[pyarrow]"])
    def test_text_has_levels_in_order(self, dtype):
        column = pd.Series(["b", None, "a", "b"], dtype=dtype)
        levels, codes = Levels.of("c", column)
        assert (codes.tolist(), len(levels), levels.kind) == ([1, 2, 0, 1], 3, "text")
        pd.testing.assert_series_equal(levels.column(codes), column)
        assert levels.find(pd.Series(["a", "z", None], dtype=object)).tolist() == [0, -1, 2]

    def test_a_declared_category_counts_where_no_row_has_it(self):
        sizes = pd.CategoricalDtype(["small", "large", "huge"], ordered=True)
        levels, codes = Levels.of("size", pd.Series(["large", "small"], dtype=sizes))
        assert (codes.tolist(), len(levels)) == ([1, 0], 3)

    def test_values_of_several_types_have_the_order_of_their_text(self):
        assert Levels.of("c", pd.Series([True, False, True]))[1].tolist() == [1, 0, 1]
        levels, codes = Levels.of("c", pd.Series(["x", 2, "1"], dtype=object))
        assert (levels.index.tolist(), codes.tolist()) == (["1", 2, "x"], [2, 1, 0])

    def test_a_number_outside_gets_the_nearest_level(self):
        levels, _ = Levels.of("c", pd.Series(["a", "b", None]))
        assert levels.column(np.array([-5, 1, 9])).tolist()[:2] == ["a", "b"]
        assert pd.isna(levels.column(np.array([9]))[0])

    def test_unknown_values_raise_where_they_have_no_place(self):
        levels, _ = Levels.of("town", pd.Series(["Ulm", "Bonn"]))
        with pytest.raises(DataError, match="'town' must hold one of its 2 values .*; 1 do not, the first is 'Rome'"):
            levels.codes(pd.Series(["Ulm", "Rome"]))
        with pytest.raises(DataError, match="1 do not, the first is missing"):
            levels.codes(pd.Series(["Ulm", None]))


def test_what_some_rows_have_is_seen_and_the_rest_of_the_domain_is_not():
    domain, codes = Domain.of(TRAINED)
    seen = Seen.of(domain, take(codes, np.array([0, 3, 6])))  # Ulm, cats and gaps, rent 500
    unknown = seen.unknown(codes)
    expected = (TRAINED["town"] != "Ulm") | TRAINED["rent"].isna()
    np.testing.assert_array_equal(unknown, expected)
    later, outside = domain.read(LATER)
    assert seen.unknown(later).tolist() == [False, True, True, True, True]
    assert (seen.unknown(later) >= outside.unknown).all(), "what the domain does not have, no part of it has"


def test_where_nothing_can_be_unknown_no_row_is():
    domain, codes = Domain.of(pd.DataFrame({"x": [1.0, np.nan, 3.0]}))
    assert Seen.of(domain, codes).unknown(codes).tolist() == [False] * 3

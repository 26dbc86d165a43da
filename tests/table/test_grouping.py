"""Groups of sensitive columns: cut points, small groups merged, and the same for later tables."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows.table.grouping import Grouping, make_grouping, read_cuts
from fairflows.table.json_text import read_as


def ages(*values):
    return pd.DataFrame({"AGE": values})


def test_cut_points_belong_to_the_group_above():
    grouping = make_grouping(ages(29, 30, 49, 50), {"AGE": [30, 50]})
    assert grouping.apply(ages(29, 30, 49, 50)).tolist() == [
        "under 30",
        "30 to under 50",
        "30 to under 50",
        "50 and over",
    ]
    assert grouping.apply(ages(-5.0, 29.999, 1e6)).tolist() == ["under 30", "under 30", "50 and over"]


@pytest.mark.parametrize("width", [np.float32, np.float64])
def test_a_value_has_one_group_whatever_the_width_of_its_float(width):
    """As a float of 32 bits, 0.7 is below 0.7: persons at the cut point would change their group."""
    scores = pd.DataFrame({"score": np.tile([0.3, 0.6, 0.7, 0.9], 5)})
    expected = ["under 0.7", "under 0.7", "0.7 and over", "0.7 and over"] * 5
    grouping = make_grouping(scores.astype(width), {"score": [0.7]})
    for given in (np.float32, np.float64):
        assert grouping.apply(scores.astype(given)).tolist() == expected
    assert grouping.apply(scores.astype(np.float32).astype(np.float64)).tolist() == expected, "converted on the way"
    with pytest.raises(ff.DataError, match=r"'score' must hold floats of at least 32 bits .*; got float16"):
        grouping.apply(scores.astype(np.float16))


@pytest.mark.parametrize(("values", "cut"), [([1.0, 20_000_000.0, 30_000_000.0], 20_000_001), ([0.3, 0.69999999], 0.7)])
def test_a_cut_point_that_single_precision_cannot_tell_from_a_value_is_refused(values, cut):
    with pytest.raises(ff.DataError, match="cannot tell from the cut point"):
        make_grouping(pd.DataFrame({"score": values}), {"score": [cut]})


def test_infinite_values_are_in_no_group():
    grouping = make_grouping(ages(29, 50), {"AGE": [30]})
    with pytest.raises(ff.DataError, match="'AGE' must hold finite numbers; 1 are infinity"):
        grouping.apply(ages(20.0, np.inf))


@pytest.mark.parametrize(
    ("column", "cuts", "message"),
    [
        (["31", "unknown"], [40], "'AGE' must hold numbers to be cut into groups; it holds text"),
        ([20, 30], [40], r"values from 20 to 30: no row is '40 and over' with the cut points 40\."),
        ([20, 30], [10, 25], "no row is 'under 10'"),
        ([np.nan, np.nan], [40], "it holds no values"),
    ],
)
def test_what_cannot_be_cut_is_named(column, cuts, message):
    with pytest.raises(ff.DataError, match=message):
        make_grouping(pd.DataFrame({"AGE": column}), {"AGE": cuts})


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["AGE"], "groups must be COLUMN:40"),
        (["AGE:"], "groups must be COLUMN:40"),
        (["AGE:x"], "groups must be COLUMN:40"),
        (["AGE:50,30"], "Cut points of column 'AGE' must be in rising order"),
        (["AGE:nan"], "Cut points of column 'AGE' must be in rising order"),
        (["AGE:40", "AGE:50"], "once for each column; got 'AGE:50'"),
    ],
)
def test_what_the_command_is_told_is_checked(texts, message):
    with pytest.raises(ff.DataError, match=message):
        make_grouping(ages(31, 45, 60), read_cuts(texts))


def test_the_command_s_words_are_the_rules():
    assert read_cuts(["AGE:30,50", "time: of day:12"]) == {"AGE": [30, 50], "time: of day": [12]}


def test_small_groups_become_one():
    column = pd.DataFrame({"EDUCATION": [1] * 50 + [2] * 60 + [3] * 7 + [4] * 9 + [0] * 1})
    with pytest.warns(ff.DataWarning, match="'0', '3' and '4' are one group, 'other', of 17 persons"):
        grouping = make_grouping(column, merge_small=10)
    assert grouping.apply(column).value_counts().to_dict() == {"2": 60, "1": 50, "other": 17}
    as_floats = column.astype(float).iloc[[0, -1]]
    assert grouping.apply(as_floats).tolist() == ["1", "other"]
    with pytest.raises(ff.DataError, match="'EDUCATION' holds '9'"):
        grouping.apply(pd.DataFrame({"EDUCATION": [9]}))


def test_fewer_than_two_groups_are_refused():
    column = pd.DataFrame({"level": ["a"] * 50 + ["b"] * 3})
    with pytest.raises(ff.DataError, match=r"Fewer than two groups of 'level' remain .* 'a', has 50, .* together 3\."):
        make_grouping(column, merge_small=51)
    with pytest.warns(ff.DataWarning, match="'b' stays a group of 3 persons.*'a', has 50 persons .merge_small=51"):
        assert not make_grouping(column, merge_small=10).merged


def test_persons_are_counted_and_not_rows():
    column = pd.DataFrame({"level": ["a"] * 30 + ["b"] * 30 + ["c"] * 30})
    persons = pd.Series([*range(30), *range(30, 60), *[99] * 30])
    column = pd.concat([column, pd.DataFrame({"level": ["d"] * 30})], ignore_index=True)
    persons = pd.concat([persons, pd.Series([100] * 30)], ignore_index=True)
    with pytest.warns(ff.DataWarning, match="'c' and 'd' are one group, 'other', of 2 persons"):
        grouping = make_grouping(column, merge_small=10, identifier=persons)
    assert len(set(grouping.merged.values())) == 3


def table(n=400, **settings):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.integers(18, 80, n), "x": rng.normal(size=n), "sex": rng.choice(["f", "m"], n), "row": np.arange(n)}
    )
    return ff.Table(frame, **{"sensitive": ["age", "sex"], "drop": "row", **settings})


def test_a_table_has_the_groups_of_its_rules():
    made = table(cuts={"age": [40]})
    assert made.groups == [
        "age=40 and over, sex=f",
        "age=40 and over, sex=m",
        "age=under 40, sex=f",
        "age=under 40, sex=m",
    ]
    assert made.a.name == "age and sex"
    assert "age was cut into groups: under 40, 40 and over" in made.notes
    assert made.take([0, 1]).grouping == made.grouping


def test_values_given_beside_the_table_are_grouped_too():
    made = ff.Table({"x": [1.0, 2.0, 3.0]}, sensitive=np.array([20, 50, 60]), cuts={"sensitive": [40]})
    assert made.a.tolist() == ["under 40", "40 and over", "40 and over"]
    with pytest.raises(ff.DataError, match="sensitive column 'age' is not in the table"):
        ff.Table({"x": [1.0, 2.0, 3.0]}, sensitive=np.array([20, 50, 60]), cuts={"age": [40]})


@pytest.mark.parametrize(
    "change",
    [
        {"kinds": {}},
        {"kinds": {"sex": 1}},
        {"cuts": {"age": []}},
        {"cuts": {"age": ["40"]}},
        {"cuts": {"height": [40.0]}},
        {"merged": ["m"]},
        {"merged": {"a": None}},
        {"more": 1},
    ],
)
def test_fields_that_are_no_grouping_are_refused(change):
    fields = asdict(table(cuts={"age": [40]}).grouping)
    assert read_as(fields, Grouping).cuts == {"age": [40]}
    with pytest.raises(ValueError, match="grouping"):
        read_as(fields | change, Grouping)


def test_a_column_without_a_value_is_refused_beside_another():
    """An empty column of a file holds floats."""
    frame = pd.DataFrame({"x": range(60), "empty": [np.nan] * 60, "sex": ["f", "m"] * 30})
    with pytest.raises(ff.DataError, match="is missing in 60 of 60"):
        ff.Table(frame, sensitive=["empty", "sex"])
    with pytest.raises(ff.DataError, match="none is left after dropping them"):
        ff.Table(frame, sensitive=["empty", "sex"], missing_group="drop")

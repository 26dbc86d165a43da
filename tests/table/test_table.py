"""A table from any source, its checks, its splits."""

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
from pandas.testing import assert_frame_equal

from fairflows import DataError, FairTree, Table


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, 60),
            "wage": rng.normal(size=60),
            "town": rng.choice(["Ulm", "Bonn"], 60),
            "sex": rng.choice(["f", "m", "x"], 60),
            "repaid": rng.choice(["no", "yes"], 60),
            "person": rng.integers(0, 25, 60),
        }
    )


ROLES = {"sensitive": "sex", "label": "repaid", "identifier": "person"}


def test_roles_and_kinds(frame):
    table = Table(frame, **ROLES)
    assert list(table.X) == ["age", "wage", "town"]
    assert table.kinds == {"age": "discrete", "wage": "continuous", "town": "categorical"}
    assert table.groups == ["f", "m", "x"]
    assert table.labels == ["no", "yes"]
    assert table.y.tolist() == frame["repaid"].tolist()
    assert Table(frame, **ROLES, kinds={"age": "categorical"}).kinds["age"] == "categorical"


def test_the_same_table_from_every_source(frame, tmp_path):
    expected = Table(frame, **ROLES)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    tables = [Table.read(tmp_path / name, **ROLES) for name in ("t.csv", "t.csv.gz", "t.parquet")]
    tables += [Table(data, **ROLES) for data in (polars.from_pandas(frame), pyarrow.Table.from_pandas(frame))]
    tables.append(Table(frame.to_dict("list"), **ROLES))
    for table in tables:
        assert_frame_equal(table.X.reset_index(drop=True), expected.X.reset_index(drop=True))
        assert table.persons.names.tolist() == expected.persons.names.tolist(), "which are text in a CSV file"
        assert table.a.tolist() == expected.a.tolist()
        assert table.y.tolist() == expected.y.tolist()
        assert table.kinds == expected.kinds


def test_the_index_says_who_a_row_belongs_to(frame):
    assert Table(frame, **ROLES).X.index.name == "person"
    assert Table(frame, **ROLES).X.index.tolist() == frame["person"].tolist()
    without = Table(frame.set_axis(pd.Index(range(100, 160), name="member")), sensitive="sex")
    assert without.X.index.tolist() == list(range(100, 160)), "its own index is kept,"
    assert not without.persons.named, "and names nobody"


def test_from_arrays():
    rng = np.random.default_rng(0)
    table = Table(rng.normal(size=(20, 3)), sensitive=np.arange(20) % 3, label=rng.integers(0, 2, 20))
    assert list(table.X) == ["x0", "x1", "x2"]
    assert table.groups == [0, 1, 2]
    with pytest.raises(DataError, match=r"one per row \(20 rows\); got shape \(19,\)"):
        Table(rng.normal(size=(20, 3)), sensitive=np.zeros(19))


def test_several_sensitive_columns_make_intersections(frame):
    table = Table(frame, sensitive=["sex", "town"], label="repaid")
    assert list(table.X) == ["age", "wage", "person"]
    assert len(table.groups) == len(frame[["sex", "town"]].drop_duplicates())
    assert "sex=f, town=Bonn" in table.groups
    assert Table(frame, sensitive=["sex", "sex"]).groups == ["f", "m", "x"], "named twice, it is one column"


def test_split_never_parts_a_person(frame):
    table = Table(frame, **ROLES)
    train, validation, test = table.split(random_state=3)
    persons = [set(part.identifier) for part in (train, validation, test)]
    assert sum(map(len, persons)) == frame["person"].nunique()
    assert len(train) + len(validation) + len(test) == len(table)
    assert not persons[0] & persons[2]
    again = table.split(random_state=3)
    assert_frame_equal(again[0].X, train.X)
    assert len(table.split(validation=0)) == 2


def test_split_without_identifier_counts_rows(frame):
    train, validation, test = Table(frame, sensitive="sex").split()
    assert [len(train), len(validation), len(test)] == [38, 10, 12]
    for share in (1.0, -0.1):
        with pytest.raises(ValueError, match=r"test must be a share in \(0, 1\)"):
            Table(frame, sensitive="sex").split(test=share)


def test_missing_features_are_a_category_of_their_own_and_said(frame):
    holes = frame.astype({"age": float}).mask(np.eye(60, 6, dtype=bool))  # one in each column
    some = holes.assign(sex=frame["sex"], repaid=frame["repaid"], person=frame["person"])
    table = Table(some, **ROLES)
    assert len(table) == 60
    assert "missing values are a category of their own: 'age' (1), 'wage' (1), 'town' (1)" in repr(table)


def test_a_missing_group_is_asked_for(frame):
    holes = frame.assign(sex=frame["sex"].where(frame.index % 10 != 3), town=frame["town"].where(frame.index != 5))
    with pytest.raises(DataError, match=r"'sex' must be known .* missing in 6 of 60.*group='drop'.*group='group'"):
        Table(holes, **ROLES)
    dropped = Table(holes, **ROLES, missing_group="drop")
    assert (len(dropped), dropped.X["town"].isna().sum()) == (54, 1), "other gaps stay"
    assert "6 rows without a group or a label were dropped" in repr(dropped)
    grouped = Table(holes, **ROLES, missing_group="group")
    assert grouped.a.value_counts()["missing"] == 6
    later = Table(holes.iloc[10:30], **ROLES, cuts=grouped.grouping, missing_group="group")
    assert later.a.value_counts()["missing"] == 2
    with pytest.raises(ValueError, match="missing_group must be one of 'error', 'drop', 'group'; got 'guess'"):
        Table(holes, **ROLES, missing_group="guess")


def test_a_missing_group_among_numbers_and_several_columns(frame):
    holes = frame.assign(age=frame["age"].astype(float).where(frame.index % 10 != 3))
    cut = Table(holes, sensitive=["age", "sex"], cuts={"age": [40]}, missing_group="group")
    assert {group.split(",")[0] for group in cut.groups} == {"age=under 40", "age=40 and over", "age=missing"}


def test_a_missing_label_is_asked_for(frame):
    holes = frame.assign(repaid=frame["repaid"].where(frame.index % 10 != 3))
    with pytest.raises(DataError, match=r"'repaid' must be known .* in 6 of 60.*label='drop'.*label='keep'"):
        Table(holes, **ROLES)
    assert len(Table(holes, **ROLES, missing_label="drop")) == 54
    kept = Table(holes, **ROLES, missing_label="keep")
    assert kept.labels == ["missing", "no", "yes"]
    codes = frame.assign(repaid=(frame["repaid"] == "yes").astype(float))
    assert Table(codes, **ROLES, missing_label="keep").labels == ["0", "1"], "of one type in every file"
    wages = frame.assign(repaid=np.where(frame.index == 3, np.nan, np.arange(60.0)))
    with pytest.raises(DataError, match="59 different numbers, beside which 'missing' cannot be a label"):
        Table(wages, **ROLES, missing_label="keep")


def test_groups_and_labels_that_print_alike_are_one(frame):
    """The number 1 and the text "1" are one group in a certificate, and so they are everywhere."""
    mixed = frame.astype(object).assign(sex=[1, "1", 2, "2", 2.0] * 12, repaid=["0", 0, 1] * 20, wage=frame["wage"])
    table = Table(mixed[["wage", "sex", "repaid"]], sensitive="sex", label="repaid")
    assert (table.groups, table.labels) == (["1", "2"], ["0", "1"])
    assert table.group_numbers([1, 2]).tolist() == [0, 0, 1, 1, 1] * 12
    encoder = FairTree(1).fit(table.X, sensitive_features=mixed["sex"])
    assert encoder.groups_ == ["1", "2"]
    assert encoder.read(table.X, pd.Series([1, 2] * 30)).group.tolist() == [0, 1] * 30


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sensitive": "gender"}, "sensitive column 'gender' is not in the table"),
        ({"sensitive": "sexx"}, "Did you mean 'sex'"),
        ({"sensitive": "sex", "label": "paid"}, "label column 'paid' is not in the table"),
        ({"sensitive": "sex", "drop": ["nope"]}, "dropped column 'nope' is not in the table"),
        ({"sensitive": "sex", "drop": "nope"}, "dropped column 'nope' is not in the table"),
        ({"sensitive": "sex", "label": "sex"}, "'sex' cannot be both the sensitive and the label column"),
        ({"sensitive": ["town", "sex"], "label": "sex"}, "'sex' cannot be both the sensitive and the label column"),
        ({**ROLES, "identifier": "repaid"}, "'repaid' cannot be both the label and the identifier column"),
        ({**ROLES, "kinds": {"town": "continuous"}}, "'town' is declared continuous, which needs numbers or times"),
        ({"sensitive": "sex", "kinds": {"nope": "discrete"}}, "declared column 'nope' is not in the table"),
    ],
)
def test_wrong_columns(frame, settings, message):
    with pytest.raises(DataError, match=message):
        Table(frame, **settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.assign(sex="f"), "'sex' needs at least two groups; every row is 'f'"),
        (lambda f: f.assign(repaid=1), "'repaid' needs at least two values; every row is 1"),
        (lambda f: f.iloc[:0], "at least one row; this one is empty"),
        (lambda f: pd.concat([f, f[["age"]]], axis=1), "unique; 'age' occurs more than once"),
        (lambda f: f.assign(wage=np.inf), "'wage' must hold finite numbers; 60 are infinity"),
        (lambda f: f.assign(wage=1e305, paid=2e305), "'wage' must hold finite numbers; 60 are infinity or too large"),
        (lambda f: f.assign(repaid=[np.inf, 1.0] * 30), "'repaid' must hold finite numbers; 30 are infinity"),
        (lambda f: f.assign(repaid=pd.cut(f["age"], 3)), "'repaid' must hold text, .* got interval"),
        (lambda f: f.assign(sex=pd.cut(f["age"], 3)), "'sex' must hold text, .* got interval"),
        (lambda f: f.assign(person=[[i] for i in range(60)]), "'person' must hold text, .* got list"),
        (lambda f: f.assign(name=[f"n{i}" for i in range(60)]), "'name' is text with as many values as rows"),
        (
            lambda f: f.assign(name=pd.Categorical([f"n{i}" for i in range(60)])),
            "'name' is of type category with as many values as rows",
        ),
        (
            lambda f: f.assign(month=pd.period_range("2020-01", periods=60, freq="M")),
            "'month' must hold text, numbers, true and false, or dates; got period. Convert it to one of these",
        ),
        (
            lambda f: f.assign(person=f["person"].where(f.index % 20 != 7)),
            "'person' must name a person in every row; 3 are missing, the first in row 7",
        ),
        (lambda f: f[["sex", "repaid", "person"]], "at least one feature"),
    ],
)
def test_bad_tables(frame, change, message):
    with pytest.raises(DataError, match=message):
        Table(change(frame), **ROLES)


def test_a_column_declared_categorical_may_name_the_rows(frame):
    named = frame.assign(name=[f"n{i}" for i in range(60)])
    assert Table(named, **ROLES, kinds={"name": "categorical"}).kinds["name"] == "categorical"
    assert "name" not in Table(named, **ROLES, drop=["name"]).X


def test_a_list_of_text_is_names_or_values(frame):
    values = frame["sex"].tolist()
    table = Table(frame.drop(columns="sex"), sensitive=values, label="repaid")
    assert table.a.tolist() == values
    with pytest.raises(DataError, match="sensitive column 'nope' is not in the table"):
        Table(frame, sensitive=["sex", "nope"])
    with pytest.raises(DataError, match="sensitive column 'nope' is not in the table"):
        Table(frame.iloc[:2], sensitive=["sex", "nope"])  # one value a row, but one is a column

"""A table from any source, its checks, its splits."""

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
from pandas.testing import assert_frame_equal

from fairflows.exceptions import DataError
from fairflows.table.table import Table


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
    frame.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    frame.to_parquet(tmp_path / "t.parquet")
    tables = [Table.read(tmp_path / name, **ROLES) for name in ("t.csv", "t.csv.gz", "t.tsv", "t.parquet")]
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
        with pytest.raises(ValueError, match=r"test must be a share in \[0, 1\)"):
            Table(frame, sensitive="sex").split(test=share)


def test_missing_values(frame):
    holes = frame.astype({"age": float}).mask(np.eye(60, 6, dtype=bool))  # one in each column
    with pytest.raises(DataError, match="sensitive column 'sex' must be known in every row; 1 values"):
        Table(holes, sensitive="sex", label="repaid")
    some = holes.assign(sex=frame["sex"], repaid=frame["repaid"], person=frame["person"])
    with pytest.raises(DataError, match=r"Missing values .* 'age' \(1\), 'wage' \(1\), 'town' \(1\)"):
        Table(some, **ROLES)
    assert len(Table(some, **ROLES, missing="category")) == 60
    dropped = Table(some, **ROLES, missing="drop")
    assert len(dropped) == 57
    assert "3 rows with missing values were dropped" in repr(dropped)
    with pytest.raises(ValueError, match="missing must be one of 'error', 'category', 'drop'; got 'guess'"):
        Table(some, **ROLES, missing="guess")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sensitive": "gender"}, "sensitive column 'gender' is not in the table"),
        ({"sensitive": "sexx"}, "Did you mean 'sex'"),
        ({"sensitive": "sex", "label": "paid"}, "label column 'paid' is not in the table"),
        ({"sensitive": "sex", "label": "age"}, r"'age' must have two values; it has \d+: .* \(multiclass=True\)"),
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
        (lambda f: f.assign(wage=np.nan), r"Missing values .* 'wage' \(60\)"),
        (lambda f: f.assign(name=[f"n{i}" for i in range(60)]), "'name' is text with as many values as rows"),
        (
            lambda f: f.assign(name=pd.Categorical([f"n{i}" for i in range(60)])),
            "'name' is of type category with as many values as rows",
        ),
        (
            lambda f: f.assign(month=pd.period_range("2020-01", periods=60, freq="M")),
            r"'month' is of type period\[M\] with as many values as rows",
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

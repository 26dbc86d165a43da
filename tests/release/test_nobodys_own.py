"""What only one person has is drawn from no table, whatever follows from what, and whatever its columns are called."""

import numpy as np
import pandas as pd
import pytest

from fairflows import DataError, Release, Table, share
from fairflows.release.row_law import RowLaw
from fairflows.release.rules import Rule, proposed_rules

pytestmark = pytest.mark.usefixtures("few_trees")

N = 600
RNG = np.random.default_rng(0)
CODE, WHICH = RNG.integers(0, 150, N), RNG.choice(4, N)
ZERO = RNG.random(N) < 0.15
MOMENT = pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.integers(0, 300, N), unit="s")
NARROW = RNG.integers(0, 60, N) + np.where(np.arange(N) % 67 == 0, 0.4, 0.0)  # 1.5 % are off the grid
LETTER = RNG.choice(list("abcdef"), N)
OVER, UNDER = np.where(ZERO, 0, CODE), np.where(ZERO, 0, CODE[::-1] % 29 + 1)
with np.errstate(invalid="ignore"):
    RATIO = OVER / UNDER  # NumPy's 0/0 has a sign
TABLES = {
    "a feature that follows from the label": {"x": CODE, "passed": np.isin(LETTER, list("abc")), "y": LETTER},
    "the label among flags": {"x": CODE, "f": WHICH == 0, "g": WHICH == 1, "y": WHICH == 2},
    "0/0": {"a": OVER, "b": UNDER, "q": RATIO, "c": np.roll(CODE, 7), "y": CODE % 2},
    "declared moments": {"x": CODE, "t": MOMENT, "y": CODE % 2},
    "rounded values": {"x": NARROW, "c": WHICH, "y": CODE % 2},
    "the largest beside one that is rounded to it": {"x": np.r_[101.0, 100.6, CODE[2:] % 90], "y": CODE % 2},
}


def own_rows(X: pd.DataFrame, drawn: pd.DataFrame) -> int:
    """Return how many drawn rows only one row of X equals."""
    texts, found = (frame.astype(object).map(str).agg("|".join, axis=1) for frame in (X, drawn[list(X)]))
    return int(found.isin(texts[~texts.duplicated(keep=False)]).sum())


@pytest.mark.parametrize("name", TABLES)
def test_no_row_moment_or_extreme_of_one_person(name):
    frame = pd.DataFrame(TABLES[name])
    kinds = {"t": "categorical"}
    X, cells = frame.drop(columns="y"), np.arange(N) % 3
    drawn = RowLaw.fit(X, cells, 3, frame[["y"]], kinds=kinds).sample(np.tile(cells, 5), np.random.default_rng(1))
    assert own_rows(X, drawn) == own_rows(frame, drawn) == 0
    assert all(own_rows(X[[column]], drawn) == 0 for column in X if column in kinds)
    assert "largest" not in name or drawn["x"].max() < 101


@pytest.mark.parametrize("values", [[777.0], [5.0, 6.0], [5.0, 6.0, 7.0], [pd.Timestamp("2020-02-02")]])
def test_a_column_that_hardly_anybody_has_a_value_in_stays_empty(values):
    X = pd.DataFrame({"x": CODE, "z": pd.Series(values, index=range(len(values))).reindex(range(N))})
    assert RowLaw.fit(X, np.arange(N) % 3, 3).sample(np.arange(3 * N) % 3)["z"].isna().all()


@pytest.mark.parametrize("kind", ["object", "category"])
def test_a_code_without_a_class_gets_none_of_one_person(kind):
    who, code = np.arange(2 * N), np.tile(WHICH * 10 + CODE % 10, 2)
    who[:400], code[:400], code[400:402] = 0, 99, 77
    classes = pd.Series([f"class {c // 10}" for c in code])
    classes[:400], classes[400], classes[401] = "one", "another", "a third"
    X = pd.DataFrame({"code": [f"k{c}" for c in code], "class": classes.astype(kind), "x": np.tile(CODE, 2)})
    drawn = RowLaw.fit(X, np.arange(2 * N) % 3, 3, persons=who).sample(np.arange(9_000) % 3)["class"]
    assert set(drawn) <= {f"class {c}" for c in range(4)}


def test_a_computed_column_has_gaps_only_where_there_were_some():
    b, a = np.r_[0, 0, RNG.integers(1, 30, 3_998)], RNG.integers(0, 500, 4_000)
    X = pd.DataFrame({"b": b, "a": a, "q": np.where(b == 0, 0, np.rint(100 * a / np.maximum(b, 1))).astype(int)})
    law = RowLaw.fit(X, np.arange(4_000) % 3, 3)
    assert law.derived == ["q = 100 · (a / b)"]
    assert law.sample(np.arange(20_000) % 3)["q"].dtype == np.int64


def test_columns_may_be_called_as_helpers_are():
    birth, moment = RNG.integers(1950, 2000, N), MOMENT + pd.to_timedelta(CODE, unit="D")
    flags = pd.get_dummies(pd.Series(WHICH), prefix="f", dtype=int)
    helpers = {"age: residual": CODE + 500, "t: day": LETTER}
    helpers |= {f"which of {', '.join(flags)}": CODE, "c: class of k": CODE}
    X = pd.DataFrame({"born": birth, "age": 2020 - birth - WHICH % 2, "t": moment, "k": CODE % 30, "c": CODE % 3})
    X = pd.concat([X.astype({"k": str}), flags, pd.DataFrame(helpers)], axis=1)
    release = Release(target=0.4).fit(Table(X.assign(sex=np.arange(N) % 2), sensitive="sex"))
    drawn = release.law_.sample(np.arange(N) % release.n_cells_)
    assert drawn["age: residual"].between(500, 650).all()
    assert set(drawn["t: day"]) == set("abcdef")
    assert (drawn[[*helpers][2:]].nunique() > 50).all()
    assert ((2020 - drawn["born"] - drawn["age"]).isin([0, 1]) & (drawn[list(flags)].sum(axis=1) == 1)).all()


def test_rules_name_columns_as_they_are_and_do_not_overflow():
    X = pd.DataFrame({"column_0_": [1, 9], "my col": [2, 3], "s": np.array([0, 9], "u1"), "e": np.array([5, 4], "u1")})
    for text in ("column_0_ <= `my col`", "e - s >= 0", "e * 60 > 250 or s > e"):
        assert Rule(text).is_broken(X).tolist() == [False, "or" not in text]
    X = pd.DataFrame({"µg": CODE, "class": CODE + WHICH})
    assert proposed_rules(X) == ["`µg` <= `class`"]
    assert not Rule("`µg` <= `class`").is_broken(X).any()


def test_a_column_of_nothing_but_own_values_is_refused():
    with pytest.raises(DataError, match="'x' has a different value for every person"):
        RowLaw.fit(pd.DataFrame({"x": [1.5, 2.25, 3.125], "c": [1, 1, 1]}), [0, 0, 0], 1)


def test_sparse_columns_are_read_and_names_of_two_kinds_refused():
    frame = pd.DataFrame({"x": CODE, "z": pd.arrays.SparseArray(WHICH), "sex": np.arange(N) % 2})
    assert set(Release(target=0.4).fit_transform(Table(frame, sensitive="sex"))["z"]) == set(range(4))
    with pytest.raises(DataError, match="The name of column 7 is not a text"):
        Release(target=0.4).fit(Table(frame.rename(columns={"z": 7}), sensitive="sex"))


@pytest.mark.parametrize("weight", [2, 2.37123])
def test_no_digits_of_one_person_in_a_computed_column(weight):
    """Numbers of a formula are medians, values of one person: the table does not repeat their last digits.

    A weight near a whole number is that number; another one is rounded to four digits.
    """
    x, sex = RNG.integers(0, 1_000, N), np.arange(N) % 2
    table = pd.DataFrame({"x": x, "z": weight * x + 7.3 + np.random.default_rng(0).normal(0, 3, N), "sex": sex})
    shared = share(Table(table, sensitive="sex"), target=0.3, quick=True)
    assert shared.release.derived[0].endswith(" · x + a residual")
    millionths = 1e6 * shared.table["z"].to_numpy()
    assert np.abs(millionths - np.rint(millionths)).max() < 1e-2, "not finer than the residual, which is rounded"
    assert np.abs(1e6 * table["z"] - np.rint(1e6 * table["z"])).mean() > 0.2, "the values of persons are finer"

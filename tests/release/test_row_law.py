"""Whole rows drawn from cells: types, ranges, categories and dependence hold; nobody's own row is handed out."""

import importlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from fairflows import DataError
from fairflows.release.column_tree import _ranks
from fairflows.release.drawn_columns import DrawnColumns, _is_code
from fairflows.release.row_law import RowLaw

TOWNS = ["Bonn", "Kiel", "Trier", "Ulm"]


def people(n: int = 4_000, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    """Rows in which everything hangs together, their cells, and a label."""
    rng = np.random.default_rng(seed)
    cells = rng.integers(4, size=n)
    works = rng.random(n) < 0.2 + 0.6 * (cells % 2)
    age = np.clip(np.rint(25 + 12 * cells + rng.normal(0, 5, n)), 18, 90).astype(int)
    X = pd.DataFrame(
        {
            "age": age,
            "wage": np.round(np.where(works, rng.lognormal(7, 0.5, n), 0.0), 2),
            "town": pd.Categorical(np.where(works, "Ulm", rng.choice(["Bonn", "Kiel"], n)), categories=TOWNS),
            "since": pd.Series(pd.Timestamp("2001-01-01") + pd.to_timedelta(rng.integers(0, 4000, n), unit="D")),
            "works": works,
            "note": np.where(rng.random(n) < 0.1, None, rng.choice(list("abc"), n)),
        }
    )  # fmt: skip
    X.loc[rng.random(n) < 0.1, "since"] = pd.NaT
    return X, cells, pd.DataFrame({"repaid": (works & (age > 40)).astype(int)})


def held_by_one(frame: pd.DataFrame) -> set[tuple]:
    texts = frame.astype(str)
    return set(texts[~texts.duplicated(keep=False)].itertuples(index=False, name=None))


def test_columns_types_ranges_categories_and_gaps():
    X, cells, y = people()
    drawn = RowLaw.fit(X, cells, 4, y).sample(np.repeat(np.arange(4), 2_000), np.random.default_rng(1))
    whole = pd.concat([X, y], axis=1)
    assert list(drawn) == list(whole)
    assert drawn.dtypes.map(str).equals(whole.dtypes.map(str))
    for name in ("age", "wage", "since"):
        assert whole[name].min() <= drawn[name].min()
        assert drawn[name].max() <= whole[name].max()
    assert set(drawn["town"]) == {"Bonn", "Kiel", "Ulm"}  # Trier is a category, but nobody's
    assert set(drawn["note"].dropna()) == set("abc")
    assert (drawn["wage"] == drawn["wage"].round(2)).all()
    assert (drawn["since"].dropna() == drawn["since"].dropna().dt.normalize()).all()
    for name in ("since", "note"):
        assert drawn[name].isna().mean() == pytest.approx(0.1, abs=0.02)
    assert not drawn[["age", "wage", "town", "works", "repaid"]].isna().any().any()


def test_cells_and_the_dependence_within_them_are_kept():
    X, cells, y = people()
    rows = RowLaw.fit(X, cells, 4, y, order=["wage", "town"])
    assert list(rows.parts)[:2] == ["wage", "town"]
    with pytest.raises(DataError, match="'city' is not in the table"):
        RowLaw.fit(X, cells, 4, y, order=["city"])
    of = np.tile(cells, 4)
    drawn = rows.sample(of, np.random.default_rng(1))
    assert drawn["age"].groupby(of).mean().to_numpy() == pytest.approx(X["age"].groupby(cells).mean(), abs=1)
    assert drawn["works"].groupby(of).mean().to_numpy() == pytest.approx(X["works"].groupby(cells).mean(), abs=0.04)
    # Within a cell, whoever works lives in Ulm and has a wage.
    assert (drawn["works"] == (drawn["town"] == "Ulm")).mean() > 0.93
    assert (drawn["works"] == (drawn["wage"] > 0)).mean() > 0.93


def test_rows_do_not_contradict_themselves():
    """A column that another one determines follows it, also among many others."""
    X, cells, _ = people()
    X["decade"] = "in the " + (X["age"] // 10).astype(str) + "0s"
    X["again"] = X["wage"].astype(float)
    X["later"] = X["since"] + pd.Timedelta(days=7)
    X["rare"] = np.random.default_rng(1).random(len(X)) < 0.01  # nearly constant, but nothing determines it
    rng = np.random.default_rng(2)
    X = X.assign(**{f"noise {j}": rng.integers(0, 30, len(X)) for j in range(12)})
    rows = RowLaw.fit(X, cells, 4)
    assert set(rows.parts).isdisjoint({"again", "later"})
    drawn = rows.sample(cells, rng)
    assert (drawn["decade"] == "in the " + (drawn["age"] // 10).astype(str) + "0s").all()
    assert (drawn["again"] == drawn["wage"]).all()
    known = drawn["since"].notna()
    assert (drawn["later"] - drawn["since"])[known].eq(pd.Timedelta(days=7)).all()
    assert drawn["later"].isna().equals(drawn["since"].isna())
    assert drawn["rare"].mean() == pytest.approx(X["rare"].mean(), abs=0.01)


def test_no_row_is_drawn_that_only_one_person_has():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({name: rng.choice(list("abcdef"), 600) for name in "uvw"})
    y = pd.DataFrame({"label": rng.integers(2, size=600)})
    cells = rng.integers(3, size=600)
    rows = RowLaw.fit(X, cells, 3, y)
    drawn = rows.sample(rng.integers(3, size=20_000), rng)
    assert held_by_one(X).isdisjoint(drawn[list("uvw")].itertuples(index=False, name=None))
    whole = pd.concat([X, y], axis=1)
    assert held_by_one(whole).isdisjoint(drawn.astype(str).itertuples(index=False, name=None))


def test_no_row_of_one_person_where_columns_follow_from_others():
    """Neither the class that is drawn before a code, nor a row without its usual class, hides whose row it is."""
    rng = np.random.default_rng(0)
    code = rng.integers(12, size=3_000)
    group = np.where(np.arange(3_000) < 2, 0, code // 4)
    X = pd.DataFrame({"code": code.astype(str), "class": group.astype(str), "x": rng.integers(0, 99, 3_000)})
    X["square"], X["half"] = X["x"] ** 2, X["x"] / 2
    rows = RowLaw.fit(X, np.zeros(3_000, dtype=int), 1)
    drawn = rows.sample(np.zeros(20_000, dtype=int), rng)
    assert "class" not in rows.parts
    assert held_by_one(X).isdisjoint(drawn.astype(str).itertuples(index=False, name=None))


def test_a_row_that_one_person_has_several_times_is_hers_alone():
    X = pd.DataFrame({"x": list("ab") * 20, "y": list("cd") * 20})
    X.loc[40] = X.loc[41] = X.loc[42] = ["a", "d"]
    persons = np.append(np.arange(40), [99, 99, 99])
    cells = np.append(np.zeros(40, dtype=int), [1, 1, 1])
    of_person, of_rows = (
        RowLaw.fit(X, cells, 2, persons=who).sample(np.ones(500, dtype=int), np.random.default_rng(0))
        for who in (persons, None)
    )
    assert ((of_rows["x"] == "a") & (of_rows["y"] == "d")).any()
    assert not ((of_person["x"] == "a") & (of_person["y"] == "d")).any()


def test_a_category_that_only_one_person_has_is_not_drawn():
    X = pd.DataFrame({"town": ["Ulm"] * 50 + ["Bonn"] * 49 + ["Jever"], "age": np.arange(100) % 7})
    drawn = RowLaw.fit(X, np.zeros(100, dtype=int), 1).sample(np.zeros(5_000, dtype=int))
    assert set(drawn["town"]) == {"Ulm", "Bonn"}


@pytest.mark.parametrize("n_gaps", [1, 2])
def test_a_gap_that_only_one_person_has_is_not_drawn(n_gaps):
    """In a column of numbers as in one of categories: it would tell that the person is in the table."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"x": rng.normal(size=400).round(2), "n": rng.integers(0, 9, 400), "c": rng.choice(["a", "b"], 400)}
    )
    X = X.astype({"n": "Int64"})
    X.loc[list(range(n_gaps)), ["x", "n", "c"]] = None
    drawn = RowLaw.fit(X, np.zeros(400, dtype=int), 1).sample(np.zeros(20_000, dtype=int))
    assert (drawn.isna().any() == (n_gaps > 1)).all()


def test_where_every_row_is_somebodys_own_nothing_is_drawn():
    X = pd.DataFrame({"x": list("aabb"), "y": list("efef")})
    rows = RowLaw.fit(X, np.zeros(4, dtype=int), 1)
    with pytest.raises(DataError, match="3 rows cannot be drawn"):
        rows.sample(np.zeros(3, dtype=int))
    with pytest.raises(DataError, match="'x' has a different value for every person"):
        RowLaw.fit(X.iloc[[0, 3]], np.zeros(2, dtype=int), 1)


@pytest.mark.parametrize("n_columns", [1, 60, pytest.param(2_000, marks=pytest.mark.slow)], ids="{} columns".format)
def test_narrow_and_wide_tables(n_columns):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.integers(0, 9, (60, n_columns)), columns=[f"x{j}" for j in range(n_columns)])
    drawn = RowLaw.fit(X, rng.integers(2, size=60), 2).sample(rng.integers(2, size=20), rng)
    assert drawn.shape == (20, n_columns)


def test_three_rows_and_constants():
    X = pd.DataFrame({"x": [1, 1, 1], "y": ["a", "a", "a"]})
    assert RowLaw.fit(X, [0, 0, 0], 1).sample([0, 0]).equals(X.head(2))


def test_every_leaf_holds_ten_persons():
    """Persons have up to twenty rows: rows of a few of them are not enough for a leaf."""
    X, cells, y = people(2_000)
    who = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 20))
    law = RowLaw.fit(X, cells, 4, y, persons=who, derive=False)
    whole = pd.concat([X, y], axis=1)
    codes = DrawnColumns.of(whole, list(y), who, kinds={}, derive=False, order=(), known={}).codes
    known = law.coordinates[:, cells]
    for name in law.parts:
        trees = law.trees[name]
        for root in trees.root:
            leaf = trees.leaves(known, np.full(len(who), root))
            assert min(len(set(who[leaf == number])) for number in np.unique(leaf)) >= 10
        known = np.vstack([known, codes[name]])


def test_the_first_level_is_drawn_as_often_as_the_table_has_it():
    X = pd.DataFrame({"town": ["Bonn"] * 3 + ["Ulm"] * 17})
    drawn = RowLaw.fit(X, np.zeros(20, dtype=int), 1).sample(np.zeros(20_000, dtype=int), np.random.default_rng(0))
    assert (drawn["town"] == "Bonn").mean() == pytest.approx(3 / 20, abs=0.01)


def test_ranks_and_frequent_levels_count_alike():
    codes = np.repeat([0, 1, 2], [50, 30, 20])
    np.testing.assert_allclose(_ranks(codes, 3)[codes].var(axis=0), [1, 1, 1])


def test_a_small_table_is_not_remembered():
    """Persons of the table are hardly nearer to a drawn row than others; leaves of ten persons gave .59 here."""
    told = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = pd.DataFrame(rng.normal(size=(1_200, 3)) @ rng.normal(size=(3, 10)) + rng.normal(size=(1_200, 10))).round(2)
        X.columns = [f"x{j}" for j in X]
        drawn = RowLaw.fit(X[:600], np.zeros(600, dtype=int), 1).sample(np.zeros(3_000, dtype=int), rng)
        distance = NearestNeighbors(n_neighbors=1).fit(drawn).kneighbors(X)[0][:, 0]
        told.append(roc_auc_score(np.arange(1_200) < 600, -distance))
    assert np.mean(told) < 0.55


def test_a_label_keeps_its_relations_in_a_small_table():
    """Drawn as the last column, the label had half of these correlations."""
    rng, cells = np.random.default_rng(0), np.arange(250) % 2
    X = pd.DataFrame(rng.integers(0, 2, (250, 12))).add_prefix("x")
    tells = list(X)[:6]
    y = pd.DataFrame({"y": (2 * X[tells].sum(axis=1) + rng.normal(0, 1.5, 250)).round(1)})
    drawn = RowLaw.fit(X, cells, 2, y).sample(np.arange(8_000) % 2, np.random.default_rng(1))
    assert (drawn[tells].corrwith(drawn["y"]) / X[tells].corrwith(y["y"])).mean() > 0.7


def test_a_label_with_the_name_of_a_feature_is_refused():
    X, cells, _ = people(300)
    with pytest.raises(DataError, match="'works' is a feature and the label"):
        RowLaw.fit(X, cells, 4, X[["works"]])


COLUMN = st.sampled_from(["text", "whole", "real", "date", "bool", "nullable", "category"])


@settings(max_examples=15, deadline=None)
@given(st.lists(COLUMN, min_size=1, max_size=4), st.booleans(), st.integers(0, 2**31), st.integers(40, 120))
def test_any_table(kinds, with_gaps, seed, n):
    rng = np.random.default_rng(seed)
    make = {
        "text": lambda: pd.Series(rng.choice(list("ab"), n)),
        "whole": lambda: pd.Series(rng.integers(0, 1000, n)),
        "real": lambda: pd.Series(rng.normal(size=n)),
        "date": lambda: pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 99, n), unit="D")),
        "bool": lambda: pd.Series(rng.random(n) < 0.5),
        "nullable": lambda: pd.Series(rng.integers(0, 1000, n), dtype="Int64"),
        "category": lambda: pd.Series(pd.Categorical.from_codes(rng.integers(0, 2, n), list("xyz"), ordered=True)),
    }
    X = pd.DataFrame({f"{kind} {j}": make[kind]() for j, kind in enumerate(kinds)})
    if with_gaps:
        for name in X:
            if not name.startswith(("whole", "bool")):
                X.loc[rng.random(n) < 0.3, name] = None
    cells = rng.integers(3, size=n)
    drawn = RowLaw.fit(X, cells, 3).sample(rng.integers(3, size=200), rng)
    assert drawn.dtypes.map(str).equals(X.dtypes.map(str))
    for name in X:
        if X[name].dtype.kind in "iufM":
            assert X[name].min() <= drawn[name].min()
            assert drawn[name].max() <= X[name].max()
        else:
            assert set(drawn[name].dropna()) <= set(X[name].dropna())
        assert X[name].isna().any() or not drawn[name].isna().any()
    assert held_by_one(X).isdisjoint(drawn.astype(str).itertuples(index=False, name=None))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adult", "adult-six", "compas", "nist"])
def test_nothing_of_a_single_person_on_real_tables(name, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    rows = importlib.import_module("rows")
    if not rows.DATA.is_dir():
        pytest.skip("the data are not here (FAIRFLOWS_DATA)")
    source = rows.TABLES[name](Path())
    real = source.frame.drop(columns=source.sensitive).reset_index(drop=True)
    cells = np.arange(len(real)) % 16
    drawn = RowLaw.fit(real, cells, 16).sample(cells)
    assert not any(rows.own(real, drawn).values())


def test_whole_numbers_in_disguise_are_categories():
    """Codes have rates of the label that have nothing to do with their order; ages and heaped hours do not."""
    rng = np.random.default_rng(0)
    n = 6_000
    age, code, hours = rng.integers(18, 70, n), rng.integers(100, 130, n), rng.choice([20, 35, 38, 40, 41, 60], n)
    of_code = rng.random(30)[code - 100]
    y = pd.DataFrame({"y": rng.random(n) < (of_code + (age - 18) / 52 + hours / 60) / 3})
    X = pd.DataFrame({"age": age, "code": code, "hours": hours})
    law = RowLaw.fit(X, np.zeros(n, dtype=int), 1, y)
    assert {name for name, part in law.parts.items() if not hasattr(part, "grid")} == {"code", "y"}
    declared = RowLaw.fit(X, np.zeros(n, dtype=int), 1, y, kinds={"code": "discrete", "age": "categorical"})
    assert {name for name, part in declared.parts.items() if not hasattr(part, "grid")} == {"age", "y"}
    assert set(law.sample(np.zeros(9_000, dtype=int))["code"]) == set(code)


def test_a_row_that_is_drawn_again_changes_in_one_column():
    """Unless it breaks a rule, a row keeps all levels but one, such as a gap that few rows have."""
    X, cells, y = people()
    law, generator = RowLaw.fit(X, cells, 4, y), np.random.default_rng(0)
    known = law.coordinates.take(cells[:500], axis=1)
    codes = law._draw_codes(known, None, generator)
    is_broken = np.arange(500) < 250
    new = law._draw_codes(known, codes, generator, is_broken)
    changed = np.sum([codes[name] != new[name] for name in codes], axis=0)
    assert changed[~is_broken].max() == 1
    assert changed[is_broken].max() > 1


def test_numbers_whose_rates_differ_by_chance_alone_are_no_codes():
    rng = np.random.default_rng(0)
    numbers, noise = pd.Series(rng.integers(0, 40, 3_000)), rng.random((20, 3_000)) < 0.5
    apart = rng.random(40)[numbers] < 0.5
    assert sum(_is_code(numbers, label.astype(np.int64)) for label in noise) <= 2
    assert _is_code(numbers, apart.astype(np.int64))
    assert not _is_code(numbers, (numbers > 20).astype(np.int64).to_numpy()), "rates in order"

"""Columns that follow from others are recognised, and hold in every drawn row."""

import numpy as np
import pandas as pd
import pytest

from fairflows.release.derived_columns import find_derived
from fairflows.release.formulas import Formula, _parts_of_sum, _round_figure
from fairflows.release.row_law import RowLaw

N = 3_000


def drawn_from(X: pd.DataFrame, **settings) -> tuple[RowLaw, pd.DataFrame]:
    """Draw as many rows as the table has, from two cells."""
    cells = (X.index.to_numpy() % 2).astype(int)
    law = RowLaw.fit(X, cells, 2, **settings)
    return law, law.sample(cells, np.random.default_rng(1))


def numbers() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "year": rng.integers(1990, 2020, N),
            "birth": rng.integers(1930, 1970, N),
            "weight": rng.normal(70, 12, N).round(1),
            "height": rng.normal(1.7, 0.1, N).round(2),
            "months": rng.integers(1, 70, N),
            "fee": rng.uniform(10, 100, N).round(2),
            "part a": rng.integers(0, 50, N),
            "part b": rng.integers(0, 50, N),
            "part c": rng.integers(0, 50, N),
        }
    )  # fmt: skip
    X["age"] = X["year"] - X["birth"] - rng.integers(0, 2, N)
    X["bmi"] = (X["weight"] / X["height"] ** 2).round(1)
    X["total"] = (X["months"] * X["fee"]).round(2)
    X["age squared"] = X["age"] ** 2
    X["log fee"] = np.log(X["fee"])
    X["parts"] = X["part a"] + X["part b"] + X["part c"]
    X["pounds"] = X["weight"] * 2.2046
    X["due"] = (X["fee"] * X["height"]).round(1)
    X["log weight"] = np.log10(X["weight"]).round(5)
    return X


def test_arithmetic_holds_in_every_row_within_the_range_of_the_table():
    X = numbers()
    law, drawn = drawn_from(X)
    assert (drawn["year"] - drawn["birth"] - drawn["age"]).isin([0, 1]).mean() > 0.999
    assert ((drawn["weight"] / drawn["height"] ** 2).round(1) - drawn["bmi"]).abs().max() < 0.11
    assert ((drawn["months"] * drawn["fee"]).round(2) - drawn["total"]).abs().max() < 0.011
    assert (drawn["age"] ** 2 == drawn["age squared"]).all()
    assert np.log(drawn["fee"]).to_numpy() == pytest.approx(drawn["log fee"])
    assert (drawn["part a"] + drawn["part b"] + drawn["part c"] == drawn["parts"]).all()
    assert (drawn["weight"] * 2.2046).to_numpy() == pytest.approx(drawn["pounds"])
    assert ((drawn["fee"] * drawn["height"]).round(1) == drawn["due"]).mean() > 0.999
    assert [text.split()[0] for text in law.derived if "a residual" in text] == ["age"]
    assert len(law.derived) == 9
    for name in ("bmi", "total", "parts"):
        assert X[name].min() <= drawn[name].min()
        assert drawn[name].max() <= X[name].max()


def test_a_number_of_a_formula_is_whole_or_has_four_digits_where_that_changes_next_to_nothing():
    numbers = np.array([2.0004, 1234.56, 2.2050001, 0.012340001, 2.20462, 0.0])
    assert _round_figure(numbers).tolist() == [2.0, 1235.0, 2.205, 0.01234, 2.20462, 0.0]


def test_a_whole_number_beyond_its_type_is_the_largest_of_it():
    """As a formula that is tried may give it; NumPy would warn, and give any number."""
    formula = Formula("n", [], "sum", 0.0, [], None, np.dtype(np.int64))
    assert formula.as_column(np.array([1e300, -1e300, 7.0])).tolist() == [2**63 - 1, -(2**63), 7]


@pytest.mark.parametrize("decimals", [0, 1])
def test_shares_of_a_whole_and_the_age_of_a_date_of_birth(decimals):
    rng = np.random.default_rng(0)
    shares = rng.multinomial(100, [0.2, 0.3, 0.25, 0.25], N) if decimals == 0 else 100 * rng.dirichlet([2] * 4, N)
    X = pd.DataFrame(shares.round(decimals), columns=list("abcd"))
    X["born"] = pd.Timestamp("1940-01-01") + pd.to_timedelta(rng.integers(0, 20_000, N), unit="D")
    X["age"] = (pd.Timestamp("2020-06-01") - X["born"]).dt.days // 365.25
    drawn = drawn_from(X)[1]
    assert (drawn[list("abcd")].sum(axis=1) - 100).abs().max() < 2.001 * decimals * 0.1 + 1e-6
    assert ((pd.Timestamp("2020-06-01") - drawn["born"]).dt.days / 365.25 - drawn["age"]).between(-1, 2).all()


def test_rounded_shares_are_parts_of_a_whole():
    """Five roundings add up to 2 in a few of a thousand rows."""
    shares = (100 * np.random.default_rng(0).dirichlet([2] * 5, 1_000)).round()
    values = dict(zip("abcde", shares.T, strict=True))
    assert np.abs(shares.sum(axis=1) - 100).max() == 2
    assert _parts_of_sum(values["a"], list("bcde"), values, 1.0) == (["b", "c", "d", "e"], -1.0)


def test_independent_numbers_follow_from_nothing():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({f"x{j}": rng.integers(0, 40, N) for j in range(8)} | {"real": rng.normal(size=N)})
    assert find_derived(X, set(), np.arange(len(X)))[1] == []


def test_a_number_that_is_mostly_zero_is_drawn_and_its_sum_is_computed():
    rng = np.random.default_rng(0)
    main = rng.integers(1_000, 3_000, 400)
    second = np.where(rng.random(400) < 0.9, 0, rng.integers(100, 900, 400))
    X = pd.DataFrame({"total": main + second, "main": main, "second": second})
    drawn = RowLaw.fit(X, np.zeros(400, dtype=int), 1).sample(np.zeros(2_000, dtype=int), rng)
    assert (drawn["total"] == drawn["main"] + drawn["second"]).all()
    assert (drawn["second"] == 0).mean() == pytest.approx(0.9, abs=0.05)


def test_gaps_of_a_sum_are_those_of_its_parts():
    X = numbers()[["months", "fee", "total"]].astype({"months": "Int64"})
    X.loc[::7, "months"] = pd.NA
    X.loc[::7, "total"] = np.nan
    drawn = drawn_from(X)[1]
    assert drawn["months"].isna().equals(drawn["total"].isna())
    assert drawn["total"].isna().mean() == pytest.approx(1 / 7, abs=0.03)


def test_one_hot_groups():
    rng = np.random.default_rng(0)
    which = rng.integers(4, size=N)
    X = pd.DataFrame({f"is {j}": (which == j).astype(int) for j in range(4)} | {"age": 20 + 10 * which})
    X["other"] = rng.random(N) < 0.3
    X["never both 1"] = ((which == 0) & (rng.random(N) < 0.5)).astype(float)
    X["never both 2"] = ((which == 1) & (rng.random(N) < 0.5)).astype(float)
    helpers = find_derived(X.astype("category"), set(), np.arange(N))[0]
    assert not [name for name in helpers if name.startswith("which of")], "categories are no flags"
    _, drawn = drawn_from(X)
    assert (drawn[[f"is {j}" for j in range(4)]].sum(axis=1) == 1).all()
    assert not ((drawn["never both 1"] == 1) & (drawn["never both 2"] == 1)).any()
    assert drawn.dtypes.equals(X.dtypes)
    assert drawn["other"].mean() == pytest.approx(0.3, abs=0.04)


def test_codes_names_and_classes():
    rng = np.random.default_rng(0)
    code = rng.choice([100, 110, 120, 200, 210, 300, 310, 320, 330, 400] * 4, N) + 10_000 * rng.integers(9, size=N)
    X = pd.DataFrame(
        {
            "class": np.where(code % 1_000 < 200, "first", np.where(code % 1_000 < 300, "second", "third")),
            "name": [f"name of {value}" for value in code],
            "town": [f"town {value:03}" for value in rng.integers(700, size=N)],
            "code": code,
            "prestige": code * 7 % 23,
            "noise": rng.integers(0, 9, N),
        }
    )  # fmt: skip
    X["region"] = X["town"].str[-1]  # of a town that four rows have
    _, drawn = drawn_from(X)
    for code, name in [("code", "class"), ("code", "name"), ("code", "prestige"), ("town", "region")]:
        pairs = set(zip(X[code], X[name], strict=True))
        assert set(zip(drawn[code], drawn[name], strict=True)) <= pairs
    assert drawn["class"].value_counts(normalize=True).to_dict() == pytest.approx(
        X["class"].value_counts(normalize=True).to_dict(), abs=0.04
    )


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_hour_of_the_day_is_kept(zone):
    rng = np.random.default_rng(0)
    hours = rng.choice([7, 8, 9, 17, 18], N)
    moments = pd.Timestamp("2017-01-01") + pd.to_timedelta(rng.integers(0, 365, N), unit="D")
    moments += pd.to_timedelta(hours * 3600 + rng.integers(0, 3600, N), unit="s")
    X = pd.DataFrame({"at": moments.tz_localize(zone)})
    X.loc[::10, "at"] = pd.NaT
    drawn = drawn_from(X)[1]
    assert drawn.dtypes.equals(X.dtypes)
    assert set(drawn["at"].dt.hour.dropna()) == {7, 8, 9, 17, 18}
    assert drawn["at"].isna().mean() == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("rows_of_one", [1, 4])
def test_no_class_that_only_one_person_has_follows_from_a_code(rows_of_one):
    """Two persons have a code, and each has another class: the one that others have, too, is taken."""
    rng = np.random.default_rng(0)
    code = rng.integers(40, size=3000)
    frame = pd.DataFrame({"code": [f"k{i:02}" for i in code], "class": [f"c{i % 7}" for i in code]})
    who = np.arange(len(frame))
    own, other = list(range(rows_of_one)), rows_of_one
    frame.loc[[*own, other], "code"], who[own] = "k99", 0
    frame.loc[own, "class"], frame.loc[other, "class"] = "z, of one person", "c1"
    frame["class"] = frame["class"].astype("category")
    (lookup,) = find_derived(frame, set(), who)[1]
    made = lookup.compute({"code": pd.Series(["k99", "k03"])})
    assert made.tolist() == ["c1", "c3"]
    drawn = RowLaw.fit(frame, np.zeros(len(frame), dtype=int), 1, persons=who).sample(np.zeros(20_000, dtype=int))
    assert "z, of one person" not in {*drawn["class"], *drawn["class"].cat.categories}

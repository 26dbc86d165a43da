"""Columns that name persons, rows or households are not shared as features."""

import re

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows.table.names import check_numbers, columns_of_own_values, names_of_histories, values_of_households
from fairflows.table.persons import households_of

pytestmark = pytest.mark.usefixtures("few_trees", "few_measured")

N = 900
RNG = np.random.default_rng(0)
AGE, SEX = RNG.integers(18, 80, N), RNG.permutation(["f", "m"] * (N // 2))
ROWS = pd.DataFrame({"age": AGE, "town": RNG.choice(list("abc"), N), "sex": SEX, "repaid": RNG.choice(["y", "n"], N)})
NUMBERS = RNG.choice(100_000, N, replace=False)


def table(frame=ROWS, **columns):
    return ff.Table(frame.assign(**columns), sensitive="sex", label="repaid")


@pytest.mark.parametrize(
    "values",
    [
        np.arange(N),
        -np.arange(N) * 1_000.0,
        np.sort(NUMBERS),
        np.where(np.arange(N) % 50 == 7, np.nan, np.arange(N)),
        np.where(np.arange(N) % 40 == 7, 5, np.arange(N)),  # nearly all
        NUMBERS,
        pd.array(NUMBERS, dtype="Int64"),
    ],
)
def test_numbers_that_name_rows_are_refused(values):
    wanted = r"Column 'id' holds \d+ different whole numbers in 900 rows, which (follow the rows|are related to no)"
    with pytest.raises(ff.DataError, match=wanted) as caught:
        ff.share(table(id=values))
    assert all(f"{remedy}'id'" in str(caught.value) for remedy in ("identifier=", "drop=[", "keep_numbers=["))
    kept = ff.Table(ROWS.assign(id=values), sensitive="sex", keep_numbers="id")
    check_numbers(kept)


@pytest.mark.parametrize(
    "values",
    [
        AGE,
        RNG.normal(size=N),  # measurements all differ
        AGE * 1_000 + RNG.integers(0, 9_000, N),  # a wage, which rises with age
        (AGE - 50) ** 2 * 100 + RNG.integers(0, 9_000, N),
        np.where(ROWS["town"] == "a", NUMBERS, 2 * NUMBERS),
        np.where(SEX == "f", 0, 30_000) + NUMBERS,
    ],
)
def test_measurements_are_not_refused(values):
    check_numbers(table(id=values))


def test_few_rows_are_not_refused():
    check_numbers(table(ROWS.iloc[:40], id=np.arange(40)))


def test_the_command_names_what_helps(run, tmp_path):
    ROWS.to_csv(tmp_path / "rows.csv")  # with the index, under no name
    words = ["share", tmp_path / "rows.csv", "--sensitive", "sex", "--label", "repaid", "--quick", "--target", 0.3]
    code, _, err = run(*words, "-o", tmp_path / "out")
    assert (code, (tmp_path / "out").exists()) == (2, False)
    assert re.search(
        r"'Unnamed: 0' .* follow the rows.* \(--id 'Unnamed: 0'\) .* \(--keep-number 'Unnamed: 0'\)",
        " ".join(err.split()),
    )
    for remedy in ("--id", "--drop", "--keep-number"):
        run(*words, remedy, "Unnamed: 0", "-o", tmp_path / remedy.strip("-"), ends=0)
        shared = pd.read_csv(tmp_path / remedy.strip("-") / "shared.csv")
        assert ("Unnamed: 0" in shared) == (remedy == "--keep-number")
    described = run("describe", *words[1:6], ends=0)[1]
    assert "'Unnamed: 0' holds 900 different whole numbers" in " ".join(described.split()), "describe refuses nothing"


def test_texts_that_most_persons_have_alone_are_dropped_with_a_word(run, tmp_path):
    """878 values in 933 rows would become one value, in hundreds of rows."""
    title = np.where(np.arange(N) % 20 == 0, "Dr", [f"title {i}" for i in range(N)])
    rows = ROWS.assign(title=title)[["title", *ROWS]]
    with pytest.warns(ff.DataWarning, match="title is dropped: 855 of its 856 values are of one person alone"):
        shared = ff.share(table(rows), target=0.3, quick=True)
    assert list(shared.table)[:3] == ["age", "town", "repaid"]
    assert table(rows).without(["title"]).label_place == 2
    rows.to_csv(tmp_path / "rows.csv", index=False)
    words = [tmp_path / "rows.csv", "--sensitive", "sex", "--label", "repaid"]
    assert "title is dropped" in run("describe", *words, ends=0)[1]
    run("share", *words, "--quick", "--target", 0.3, "-o", tmp_path / "out", ends=0)
    assert "title" not in (tmp_path / "out" / "shared.csv").read_text()
    run("check", tmp_path / "out", ends=0)
    rows.assign(age=AGE + 100).to_csv(tmp_path / "rows.csv", index=False)
    run("encode", tmp_path / "out", tmp_path / "rows.csv", "-o", tmp_path / "more.csv", ends=0)


def test_texts_that_several_persons_have_stay():
    of_two = [f"t{i // 2}" for i in range(N)]
    assert columns_of_own_values(table(town=of_two)) == {}
    of_one = ff.Table(ROWS.assign(town=of_two, person=np.arange(N) // 2), sensitive="sex", identifier="person")
    assert list(columns_of_own_values(of_one)) == ["town"]


# Households ----------------------------------------------------------------------------------------------------------

HOUSE = np.arange(N) // 3
INCOME = np.random.default_rng(1).lognormal(10, 0.5, N // 3)[HOUSE]
RENT = np.random.default_rng(2).integers(300, 900, N // 3)[HOUSE]
HOUSES = ROWS.assign(income=INCOME, house=HOUSE, person=np.arange(N))
COARSE = ROWS.assign(
    age=AGE[HOUSE] // 4, town=ROWS["town"].to_numpy()[HOUSE], rent=RENT // 100, house=HOUSE, person=np.arange(N)
)


def rows_of_one_house(shared):
    """How many shared rows only one household has."""
    columns = ["age", "town", "rent", "repaid"]
    texts, found = (frame[columns].astype(str).agg("|".join, axis=1) for frame in (COARSE, shared))
    own = texts[COARSE.groupby(texts)["house"].transform("nunique") == 1]
    return int(found.isin(set(own)).sum())


def test_values_of_one_household_are_not_shared(run, tmp_path):
    HOUSES.to_csv(tmp_path / "rows.csv", index=False)
    words = [tmp_path / "rows.csv", "--sensitive", "sex", "--label", "repaid", "--id", "person"]
    asked = " ".join(run("describe", *words, ends=0)[1].split())
    assert "income: in 100% of the rows is a number with many digits that 2 to 12 persons have" in asked
    assert "(--household ...)" in asked
    run("share", *words, "--drop", "house", "--target", 0.3, "--quick", "-o", tmp_path / "persons", ends=0)
    shared = pd.read_csv(tmp_path / "persons" / "shared.csv")
    assert shared["income"].isin(INCOME).sum() > 300, "what is asked for is needed"
    words += ["--household", "house"]
    run("share", *words, "--target", 0.3, "--quick", "-o", tmp_path / "houses", ends=0)
    shared = pd.read_csv(tmp_path / "houses" / "shared.csv")
    assert list(shared)[:3] == ["age", "town", "repaid"]
    assert not shared["income"].isin(INCOME).any()
    run("verify", tmp_path / "houses", tmp_path / "rows.csv", ends=0)
    assert "--household" not in run("describe", *words, ends=0)[1]


@pytest.mark.parametrize("more", [[], ["--sample", 700]])
def test_rows_of_one_household_are_not_shared(run, tmp_path, more):
    COARSE.to_csv(tmp_path / "rows.csv", index=False)
    words = ["share", tmp_path / "rows.csv", "--sensitive", "sex", "--label", "repaid", "--id", "person", *more]
    words += ["--target", 0.3, "--quick"]
    run(*words, "--drop", "house", "-o", tmp_path / "persons", ends=0)
    run(*words, "--household", "house", "-o", tmp_path / "houses", ends=0)
    by_person, by_house = (pd.read_csv(tmp_path / name / "shared.csv") for name in ("persons", "houses"))
    assert rows_of_one_house(by_person) > 0
    assert rows_of_one_house(by_house) == 0


def test_histories_of_one_household_are_not_shared():
    """Two persons of a household have the same income in three years."""
    rng, n = np.random.default_rng(0), 600
    person, year = np.repeat(np.arange(n), 3), np.tile([2001, 2002, 2003], n)
    income = rng.lognormal(10, 0.5, (n // 2, 3))[person // 2, year - 2001]
    rare = np.minimum(rng.geometric(0.02, n // 2), 150)[person // 2]
    rows = pd.DataFrame({"year": year, "income": income, "rare": rare, "house": person // 2, "person": person})
    rows["sex"] = rng.choice(["f", "m"], n)[person]
    of_one = rows.groupby("rare")["house"].transform("nunique") == 1
    found = {}
    for household in (None, "house"):
        table = ff.Table(
            rows, sensitive="sex", identifier="person", time="year", household=household, kinds={"rare": "categorical"},
            drop=[] if household else ["house"],
        )  # fmt: skip
        shared = ff.share(table, target=0.3, quick=True)
        assert shared.release.unit == "person"
        found[household] = [shared.table["income"].isin(income).sum(), shared.table["rare"].isin(rare[of_one]).sum()]
    assert min(found[None]) > 0
    assert found["house"] == [0, 0]


def test_households_are_asked_for_only_where_numbers_are_fine():
    assert not [*values_of_households(table(cents=NUMBERS / 100, coarse=AGE / 8, own=INCOME + np.arange(N)))]
    assert len([*values_of_households(table(income=INCOME))]) == 1


def test_a_person_of_two_households_joins_them():
    person, house = np.array([0, 0, 1, 2, 3, 4]), np.array([5, 6, 6, 7, -1, -1])
    codes = households_of(person, house)
    assert codes[0] == codes[1] == codes[2]
    assert len(set(codes[2:])) == 4


def histories(n=60):
    """Eight rows of each of n persons, who are of one group each, in a shuffled order."""
    rng = np.random.default_rng(1)
    person = np.repeat(rng.choice(9_000, n, replace=False), 8)
    sex = np.repeat(rng.choice(["f", "m"], n), 8)
    frame = pd.DataFrame({"nr": person, "x": rng.integers(0, 30, 8 * n), "sex": sex})
    return frame.assign(firm=rng.permutation(person)).sample(frac=1, random_state=0)


@pytest.mark.parametrize("form", [lambda nr: nr, lambda nr: nr.astype(float), lambda nr: "p" + nr.astype(str)])
def test_a_column_that_names_persons_with_histories_is_asked_for(form):
    """Without it each row would count as a person, and the bound on persons to come would be of rows."""
    frame = histories().assign(nr=lambda t: form(t["nr"]))
    (said,) = names_of_histories(ff.Table(frame, sensitive="sex"))
    assert said.startswith("nr may name persons: rows with the same nr have the same sex, and each of its 60 values")
    assert "has 8.0 rows on average. If so, make it the identifier (identifier='nr')" in said
    assert list(names_of_histories(ff.Table(frame, sensitive="sex", identifier="nr"))) == []
    assert list(names_of_histories(ff.Table(frame, sensitive="sex", keep_numbers="nr"))) == []


def test_columns_of_one_group_by_chance_are_not_asked_for():
    """One group holds nearly everybody, or most values stand in one row."""
    rare = histories(200).assign(sex=lambda t: np.where(t.index < 8, "f", "m"))
    assert list(names_of_histories(ff.Table(rare, sensitive="sex"))) == []
    assert list(names_of_histories(table(id=NUMBERS // 100))) == []

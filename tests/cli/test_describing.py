"""describe: all problems of a table in one run, with exit code 0, and as JSON."""

import json

import numpy as np
import pandas as pd

N = 1200


def messy():
    rng = np.random.default_rng(0)
    origin = rng.choice(["north", "south"], N, p=[0.7, 0.3])
    race = np.where(rng.random(N) < np.where(origin == "south", 0.4, 0.02), None, rng.choice(["a", "b"], N))
    wage = np.round(rng.lognormal(3, 0.4, N), 2)
    return pd.DataFrame(
        {
            "person": [f"p{i}" for i in range(N)],
            "race": race,
            "origin": origin,
            "wage": np.where(rng.random(N) < 0.1, np.nan, wage),
            "logwage": np.log(wage),
            "mail": [f"{i}@x" for i in range(N)],
            "number": np.arange(N),
            "seen": [f"{1 + i % 12:02d}/{1 + i % 11:02d}/2020" for i in range(N)],
            "start": rng.integers(0, 40, N),
            "rank": rng.choice(["low", "mid", "top"], N, p=[0.6, 0.395, 0.005]),
        }
    ).assign(end=lambda rows: rows["start"] + rng.integers(0, 9, N))


def test_all_problems_are_found_in_one_run(run, tmp_path):
    messy().to_csv(tmp_path / "messy.csv", index=False)
    words = ["describe", tmp_path / "messy.csv", "--sensitive", "race", "--label", "wage,rank", "--time", "origin"]
    said = " ".join(run(*words, ends=0)[1].split())
    for problem in (
        "race: missing in",
        "wage and rank: missing in",
        "mail is text with as many values as rows",
        "The time column 'origin' must hold numbers or times",
        "Column 'number' holds",
        "logwage tells the label wage",
        "seen holds dates as text",
        "start <= end",
        "What `share` can state",
    ):
        assert problem in said
    assert "missing_group" not in said, "messages speak the words of the command"


def test_it_says_whom_dropped_rows_would_take_along(run, tmp_path):
    rows = messy()
    rows.to_csv(tmp_path / "messy.csv", index=False)
    said = " ".join(run("describe", tmp_path / "messy.csv", "--sensitive", "race", "--id", "person", ends=0)[1].split())
    is_missing = rows["race"].isna()
    here, there = ((rows["origin"] == "south")[which].mean() for which in (is_missing, ~is_missing))
    assert f"These rows differ from the others: origin = south in {here:.0%} and not {there:.0%}." in said
    assert "To drop them changes the table so. Drop them (--missing-group drop), or keep them as 'missing'" in said


def test_nothing_else_is_said_of_numbers_of_rows(run, tmp_path):
    rows = messy().sort_values("origin").reset_index(drop=True)
    rows.assign(index=np.arange(N), index2=np.arange(N) + 1).to_csv(tmp_path / "messy.csv", index=False)
    words = ["describe", tmp_path / "messy.csv", "--sensitive", "origin", "--label", "race", "--drop", "mail,person"]
    found = json.loads(run(*words, "--json", ends=0)[1])
    said = [problem for problem in found["problems"] if "index" in problem]
    assert [problem.split("'")[1] for problem in said] == ["index", "index2"]
    assert all("which follow the rows" in problem for problem in said)
    assert found["rules"] == ["start <= end"]
    assert {"start", "end"} <= (columns := {column["column"] for column in found["columns"]})
    assert not columns & {"index", "index2", "number"}


def test_rare_classes_are_foreseen_and_json_holds_the_same(run, tmp_path):
    rows = messy()
    rows.to_csv(tmp_path / "messy.csv", index=False)
    words = ["describe", tmp_path / "messy.csv", "--sensitive", "race", "--label", "rank", "--id", "person"]
    found = json.loads(run(*words, "--json", ends=0)[1])
    assert found["rows"] == found["persons"] == rows["race"].notna().sum()
    assert [group["race"] if "race" in group else group["group"] for group in found["groups"]] == ["a", "b"]
    assert any("Few rows have the label rank: top in" in problem for problem in found["problems"])
    assert any(plan["is_default"] and plan["n_cells"] > 1 for plan in found["statements"])
    assert found["rules"] == ["start <= end"]
    printed = run(*words)[1]
    assert all(f"! {problem}" in printed for problem in found["problems"])


def test_a_table_that_cannot_be_shared_yet_is_described_all_the_same(run, tmp_path):
    messy().assign(race="a").to_csv(tmp_path / "one.csv", index=False)
    said = run("describe", tmp_path / "one.csv", "--sensitive", "race", ends=0)[1]
    assert "no table can be made of it yet" in said
    assert "needs at least two groups" in said
    assert "mail is text with as many values as rows" in said
    err = run("describe", tmp_path / "one.csv", "--sensitive", "rase", ends=2)[2]
    assert "Did you mean 'race'?" in err


def test_many_classes_are_shown_whole(run, tmp_path):
    rows = pd.DataFrame(
        {"sex": ["f", "m"] * 600, "x": np.arange(N) % 7, "y": [f"class {i % 15:02d}" for i in range(N)]}
    )
    rows.to_csv(tmp_path / "many.csv", index=False)
    said = run("describe", tmp_path / "many.csv", "--sensitive", "sex", "--label", "y", ends=0)[1]
    assert all(f"P(y = class {i:02d})" in said for i in range(15))
    assert "..." not in said

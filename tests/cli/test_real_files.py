"""Sensitive columns as files hold them, and files that come later."""

import re

import numpy as np
import pandas as pd
import pytest

SHARE = ["--sensitive", "AGE", "--label", "repaid", "--output", "cell", "--quick", "--target", "0.5"]


def credit(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 70, n)
    income = np.round(rng.lognormal(3, 0.4, n) + age / 20, 1)
    return pd.DataFrame(
        {
            "AGE": age,
            "income": income,
            "sex": rng.choice(["male", "female"], n),
            "education": rng.choice([0, 1, 2, 3, 4], n, p=[0.01, 0.3, 0.4, 0.28, 0.01]),
            "repaid": (income + rng.normal(0, 3, n) > 24).astype(int),
        }
    )


@pytest.fixture(scope="module")
def fitted(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    credit().to_csv(folder / "credit.csv", index=False)
    credit(600, seed=1).to_csv(folder / "later.csv", index=False)
    words = ["share", folder / "credit.csv", *SHARE, "--groups", "AGE:40", "--drop", "sex", "-o", folder / "out"]
    out = run(*words, ends=0)[1]
    assert "report-public.html" in out
    return folder


def test_later_files_are_grouped_the_same_way(run, fitted, tmp_path):
    later = fitted / "later.csv"
    run("encode", fitted / "out", later, "--keep", "repaid", "-o", tmp_path / "shared.csv", ends=0)
    shared = pd.read_csv(tmp_path / "shared.csv")
    assert list(shared) == ["cell", "repaid"]
    assert shared["repaid"].sum() == pd.read_csv(later)["repaid"].sum()
    for command in ("certify", "audit"):
        words = [command, fitted / "out", later, "--json", *(["--quick"] if command == "audit" else [])]
        code, text, err = run(*words)
        assert code in (0, 1), err
        assert {"40 and over", "under 40"} <= set(re.findall(r'"([^"]+ 40|40 [^"]+)"', text))
    run("verify", fitted / "out", fitted / "credit.csv", ends=0)


def test_describe_says_what_to_expect(run, fitted, tmp_path):
    frame = credit().assign(
        fee=lambda rows: [f"${v}" for v in rows["AGE"]], mail=lambda rows: [f"{i}@x" for i in rows.index]
    )
    frame.to_csv(tmp_path / "messy.csv", index=False)
    words = ["describe", tmp_path / "messy.csv", "--sensitive", "AGE", "--label", "education"]
    out = run(*words, ends=0)[1]
    said = " ".join(out.split())
    assert "! mail is text with as many values as rows (1,500)" in said
    assert "! fee holds text, such as '$" in said
    assert "such as the median" in said
    assert "(--groups AGE:" in said
    assert "Nothing can be certified about these groups with so many persons" in said
    said = " ".join(run(*words, "--groups", "AGE:40")[1].split())
    assert "What `share` can state with so many persons, for each target (the one with * is its default):" in said
    assert "0.15*: 10 cells or more" in said


def with_gaps(n, seed):
    days = pd.Series(np.arange(n) % 30, dtype="Int64").mask(np.arange(n) % 7 == 0)
    return credit(n, seed).drop(columns=["sex", "education"]).assign(days=days, nothing=np.nan)


def test_gaps_among_whole_numbers_and_an_empty_column(run, tmp_path):
    with_gaps(900, 0).to_csv(tmp_path / "gaps.csv", index=False)
    with_gaps(100, 1).to_csv(tmp_path / "later.csv", index=False)
    words = ["--sensitive", "AGE", "--groups", "AGE:45", "--label", "repaid", "--quick", "--target", "0.5"]
    run("share", tmp_path / "gaps.csv", *words, "-o", tmp_path / "out", ends=0)
    shared = pd.read_csv(tmp_path / "out" / "shared.csv")
    assert set(shared) == {"income", "repaid", "days", "nothing", "repaid_score"}
    assert shared["days"].isna().any()
    run("encode", tmp_path / "out", tmp_path / "later.csv", "-o", tmp_path / "more.csv", ends=0)
    assert len(pd.read_csv(tmp_path / "more.csv")) == 100


def test_rows_without_a_label_or_a_group_are_refused_or_dropped(run, tmp_path):
    rows = credit(300).drop(columns="education").astype({"repaid": object})
    rows.loc[:4, "repaid"], rows.loc[3:9, "sex"] = None, None
    rows.to_csv(tmp_path / "gaps.csv", index=False)
    roles = [tmp_path / "gaps.csv", "--sensitive", "sex", "--label", "repaid"]
    assert "(--missing-group drop)" in run("share", *roles, "-o", tmp_path / "out", ends=2)[2]
    err = run("share", *roles, "--missing-group", "drop", "-o", tmp_path / "out", ends=2)[2]
    assert "(--missing-label drop)" in err
    words = ["describe", *roles]
    out = run(*words, "--missing-label", "drop", "--missing-group", "drop", ends=0)[1]
    assert ": 290 rows, " in out
    out = run(*words, "--missing-label", "keep", "--missing-group", "group", ends=0)[1]
    assert re.search(r"^missing +7 ", out, re.MULTILINE)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_kept_label_of_numbers_is_read_again_as_it_was(kind, run, tmp_path):
    """It became text with its gaps: "1.0" of the file is not the class "1", and no text of numbers in Parquet."""
    rows = credit(500)
    rows["repaid"] = rows["repaid"].where(rows.index > 30)
    path = tmp_path / f"rows.{kind}"
    rows.to_csv(path, index=False) if kind == "csv" else rows.to_parquet(path)
    words = ["--sensitive", "sex", "--label", "repaid", "--missing-label", "keep", "--output", "cell", "--quick"]
    run("share", path, *words, "--target", "0.5", "-o", tmp_path / "out", ends=0)
    run("verify", tmp_path / "out", path, ends=0)


def test_numbers_can_be_stated_to_be_categories(run, fitted):
    words = ["describe", fitted / "credit.csv", "--sensitive", "sex"]
    assert ", 4 features (4 discrete), " in run(*words)[1]
    assert ", 2 features (2 cat" in run(*words, "--categorical", "AGE,education", "--drop", "income,repaid")[1]

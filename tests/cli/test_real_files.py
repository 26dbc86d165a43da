"""Sensitive columns as files hold them: ages, rare levels; and what is done with files that come later."""

import json

import numpy as np
import pandas as pd
import pytest

FIT = ["--sensitive", "AGE", "--label", "repaid", "--method", "matching", "--quick", "--gamma", "1"]


def credit(n=1500, seed=0):
    """A table with an age, a sex, rare levels of education, and a label."""
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
    """A folder that `fit` wrote about two groups of ages, with the label; and a later file."""
    folder = tmp_path_factory.mktemp("real")
    credit().to_csv(folder / "credit.csv", index=False)
    credit(600, seed=1).to_csv(folder / "later.csv", index=False)
    words = ["fit", folder / "credit.csv", *FIT, "--groups", "AGE:40", "--with-label", "--drop", "sex"]
    code, out, err = run(*words, "--n-cells", 4, "-o", folder / "out")
    assert code == 0, err
    assert "report-public.html" in out
    return folder


def test_the_run_keeps_how_the_groups_were_made(fitted):
    certificate = json.loads((fitted / "out" / "certificate.json").read_text())
    assert sorted(certificate["n"]) == ["40 and over", "under 40"]
    record = json.loads((fitted / "out" / "run.json").read_text())
    assert record["grouping"] == {
        "kinds": {"AGE": "whole numbers"}, "cuts": {"AGE": [40.0]}, "merged": {},
    }  # fmt: skip


def test_later_files_are_grouped_the_same_way(run, fitted, tmp_path):
    code, _, err = run("encode", fitted / "out", fitted / "later.csv", "-o", tmp_path / "shared.csv")
    assert code == 0, err
    assert len(pd.read_csv(tmp_path / "shared.csv")) == 600
    for command in ("certify", "audit"):
        words = [command, fitted / "out", fitted / "later.csv", "--json"]
        code, text, err = run(*words, *(["--quick"] if command == "audit" else ["--draws", 1000]))
        assert code in (0, 1), err
        assert set(json.loads(text)["n"]) == {"40 and over", "under 40"}
    assert run("verify", fitted / "out", fitted / "credit.csv")[0] == 0


def test_encode_writes_the_label_that_the_certificate_is_about(run, fitted, tmp_path):
    shared = tmp_path / "shared.csv"
    assert run("encode", fitted / "out", fitted / "later.csv", "-o", shared)[0] == 0
    later = pd.read_csv(fitted / "later.csv")
    assert list(pd.read_csv(shared)) == [name for name in later if name not in ("AGE", "sex")]
    assert pd.read_csv(shared)["repaid"].sum() == later["repaid"].sum()
    later.drop(columns="repaid").to_csv(tmp_path / "bare.csv", index=False)
    code, _, err = run("encode", fitted / "out", tmp_path / "bare.csv", "-o", tmp_path / "none.csv")
    assert (code, "has no column 'repaid': this model is released and certified together with the label" in err) == (
        2,
        True,
    )
    assert not (tmp_path / "none.csv").exists()


def test_values_that_belong_to_no_group_are_refused(run, fitted, tmp_path):
    later = credit(50, seed=2).astype({"AGE": object})
    later.loc[3, "AGE"] = "unknown"
    later.to_csv(tmp_path / "odd.csv", index=False)
    code, _, err = run("encode", fitted / "out", tmp_path / "odd.csv", "-o", tmp_path / "z.csv")
    assert code == 2
    assert "column 'AGE' must hold whole numbers" in err
    assert "row 5 (the header is row 1) holds 'unknown'" in err


def test_an_earlier_result_is_replaced_only_when_asked(run, fitted):
    before = (fitted / "out" / "certificate.json").read_text()
    words = ["fit", fitted / "credit.csv", *FIT, "--groups", "AGE:quantiles=2", "--drop", "sex", "-o", fitted / "out"]
    code, _, err = run(*words)
    assert code == 2
    assert "choose another folder, or replace them (replace=True). (option --replace)" in err
    assert (fitted / "out" / "certificate.json").read_text() == before


def test_rare_levels_are_merged(run, fitted):
    words = ["describe", fitted / "credit.csv", "--sensitive", "education", "--drop", "sex", "--json"]
    code, out, err = run(*words, "--merge-small", "200")
    assert code == 0, err
    assert set(json.loads(out)["groups"]) == {"1", "2", "other", "all"}
    assert json.loads(out)["notes"] == ["'0', '3' and '4' are one group, 'other'"]
    code, _, err = run(*words, "--merge-small", "800")
    assert code == 2
    assert "Fewer than two groups of 'education' remain" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--groups", "AGE"], "groups must be COLUMN:40"),
        (["--groups", "AGE:50,30"], "groups must have cut points in rising order for column 'AGE'"),
        (["--groups", "income:20"], "sensitive column 'income' is not in the table"),
        (["--groups", "AGE:10"], "no row is 'under 10' with the cut points 10"),
    ],
)
def test_groups_that_cannot_be_are_refused_before_the_work(run, fitted, words, message):
    code, out, err = run("fit", fitted / "credit.csv", *FIT, *words, "-o", fitted / "none")
    assert (code, out) == (2, "")
    assert message in err
    assert not (fitted / "none").exists()


def test_describe_says_what_to_expect(run, fitted, tmp_path):
    frame = credit().assign(
        fee=lambda rows: [f"${v}" for v in rows["AGE"]], mail=lambda rows: [f"{i}@x" for i in rows.index]
    )
    frame.to_csv(tmp_path / "messy.csv", index=False)
    words = ["describe", tmp_path / "messy.csv", "--sensitive", "AGE", "--label", "education"]
    code, out, err = run(*words)
    assert code == 0, err
    said = " ".join(out.split())
    assert "! mail is text with as many values as rows (1,500)" in said
    assert "! education has 5 values: say multiclass=True." in said
    assert "! fee holds text, such as '$" in said
    assert "(groups={'AGE': 4}). (option --groups)" in said
    assert "Nothing can be certified about these groups with so many persons" in said
    said = " ".join(run(*words, "--groups", "AGE:40")[1].split())
    assert "What can be certified at best with so many persons: Δ ≤ 0." in said
    record = json.loads(run(*words, "--groups", "AGE:40", "--json")[1])
    assert [bound["cells"] for bound in record["certified_at_best"]] == [8, 16, 64]
    assert record["certified_at_best"][0]["distance"] < 0.3
    assert any("fee holds text" in finding for finding in record["findings"])


def with_gaps(n, seed):
    """Rows with gaps among whole numbers, and a column without any value."""
    days = pd.Series(np.arange(n) % 30, dtype="Int64").mask(np.arange(n) % 7 == 0)
    return credit(n, seed).drop(columns=["sex", "education"]).assign(days=days, nothing=np.nan)


def test_gaps_among_whole_numbers_and_an_empty_column(run, tmp_path):
    with_gaps(900, 0).to_csv(tmp_path / "gaps.csv", index=False)
    with_gaps(100, 1).to_csv(tmp_path / "later.csv", index=False)
    words = ["fit", tmp_path / "gaps.csv", "--sensitive", "AGE", "--groups", "AGE:45", "--label", "repaid", "--quick"]
    code, _, err = run(*words, "--missing", "category", "--n-cells", "4", "-o", tmp_path / "out")
    assert code == 0, err
    shared = pd.read_csv(tmp_path / "out" / "shared.csv")
    assert set(shared) == {"income", "repaid", "days", "nothing"}
    assert shared["days"].isna().any()
    code, _, err = run("encode", tmp_path / "out", tmp_path / "later.csv", "-o", tmp_path / "more.csv")
    assert code == 0, err
    assert len(pd.read_csv(tmp_path / "more.csv")) == 100

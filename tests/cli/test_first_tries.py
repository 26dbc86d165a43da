"""What new users tried first: a tiny group, doubled rows, several rows of a person, a label in another form."""

import json

import known_tables
import numpy as np
import pandas as pd


def people(n=1500, seed=0):
    return known_tables.people(n, seed)[["age", "income", "sex", "repaid"]]


def test_one_tiny_group_takes_no_measurement_away(run, tmp_path):
    rows = people(2000)
    rows.assign(sex=rows["sex"].where(rows.index >= 30, "tiny")).to_csv(tmp_path / "rows.csv", index=False)
    words = ["share", tmp_path / "rows.csv", "--sensitive", "sex", "--label", "repaid", "--target", 0.9]
    run(*words, "-o", tmp_path / "out", ends=0)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert "They leave out tiny, of whom there are too few persons." in report["data"]["split"]
    assert report["audit"]["attacks"]
    assert report["usefulness"]["labels"]
    assert "tiny" in report["certificate"]["n"], "what is certified is all of it"


def test_doubled_rows_are_audited_without_a_colour_s_name(run, tmp_path):
    rows = pd.concat([people(1500), people(1500).head(3)])
    rows.iloc[:1200].to_csv(tmp_path / "rows.csv", index=False)
    words = ["share", tmp_path / "rows.csv", "--sensitive", "sex", "--label", "repaid", "--target", 0.6, "--quick"]
    run(*words, "-o", tmp_path / "out", ends=0)
    others = pd.concat([people(700, 1), people(700, 1).head(3)])
    others.to_csv(tmp_path / "others.csv", index=False)
    for as_json in ([], ["--json"]):
        said = run("audit", tmp_path / "out", tmp_path / "others.csv", "--quick", *as_json, ends=0)[1]
        assert "closed" in said
        assert "black" not in said


def test_the_most_rows_of_a_person_are_those_of_the_file(run, tmp_path):
    rows = people(1200).assign(person=np.arange(1200) // 2 + 100_000)
    rows.loc[[10, 11, 12], "person"] = 7  # one person has more rows than all others
    rows.to_csv(tmp_path / "rows.csv", index=False)
    words = ["share", tmp_path / "rows.csv", "--sensitive", "sex", "--id", "person", "--unit", "row", "--quick"]
    for seed in range(3):
        out = tmp_path / f"out-{seed}"
        err = run(*words, "--target", 0.9, "--random-state", seed, "-o", out, ends=0)[2]
        assert "--most-rows 3, as in the file" in err
        assert json.loads((out / "certificate.json").read_text())["most_rows"] == 3
    err = run(*words, "--target", 0.9, "--most-rows", 2, "-o", tmp_path / "no", ends=2)[2]
    assert "up to 3" in err


def test_a_label_of_numbers_in_another_form_is_said(run, tmp_path):
    rows = people(800)
    rows.assign(log=np.log(rows["income"]).round(6)).to_csv(tmp_path / "rows.csv", index=False)
    words = ["share", tmp_path / "rows.csv", "--sensitive", "sex", "--label", "income", "--target", 0.9, "--quick"]
    said = " ".join(run(*words, "-o", tmp_path / "out", ends=0)[2].split())
    assert "log tells the label income: the one rises or falls with the other (rank correlation 1.000)." in said
    assert "drop it (--drop log)" in said
    assert "age tells" not in said

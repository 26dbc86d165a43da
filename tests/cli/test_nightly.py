"""The nightly kit: JSON, empty files, gaps, sheets, and lists with commas."""

import json
from hashlib import sha256

import known_tables
import pandas as pd
import pytest


def people(n=1200, seed=0):
    rows = known_tables.people(n, seed)[["age", "income", "sex", "repaid"]]
    return rows.assign(person=[f"p{seed}-{i}" for i in range(n)])


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nightly")
    people().to_csv(folder / "people.csv", index=False)
    words = ["share", folder / "people.csv", "--sensitive", "sex", "--label", "repaid", "--id", "person", "--quick"]
    code, out, _ = run(*words, "--target", 0.5, "--json", "-o", folder / "out")
    (folder / "share.json").write_text(out)
    assert code == 0
    return folder


def encoded(run, folder, rows, *words, ends=0, **settings):
    rows.to_csv(folder / "night.csv", index=False)
    words = ["encode", folder / "out", folder / "night.csv", "-o", folder / "new.csv", *words]
    return run(*words, ends=ends, **settings)


def test_share_prints_its_outcome_as_json(folder):
    found = json.loads((folder / "share.json").read_text())
    assert (found["status"], found["meets_target"], found["rows"]) == ("CERTIFIED", True, 1200)
    assert found["file"] == str(folder / "out" / "shared.csv")
    digest = sha256((folder / "out" / "shared.csv").read_bytes()).hexdigest()
    assert found["certificate"]["released_files"]["shared.csv"] == digest
    assert found["certificate"] == json.loads((folder / "out" / "certificate.json").read_text())


def test_encode_counts_over_all_batches(run, folder, monkeypatch):
    monkeypatch.setattr("fairflows.stream.files.BATCH_ROWS", 100)
    rows = pd.concat([people().head(250), people(400, seed=1)], ignore_index=True)
    rows.loc[rows.index[300:303], "sex"] = None
    rows = rows.assign(age=rows["age"].where(rows["person"] != "p1-399"))
    _, out, err = encoded(run, folder, rows, "--missing-group", "drop", "--json", notices="always")
    found = json.loads(out)
    assert (found["rows"], found["dropped"], found["rows_of_persons_of_the_table"]) == (647, 3, 250)
    assert found["unknown_values"] == [{"column": "age", "reason": "missing", "rows": 1}]
    assert found["sha256"] == sha256((folder / "new.csv").read_bytes()).hexdigest()
    assert "250 of these rows are of persons of the table that was released" in err
    run("check", folder / "out", folder / "new.csv", ends=0)


def test_an_empty_night_gives_an_empty_file(run, folder):
    out = encoded(run, folder, people().head(0), "--json")[1]
    assert json.loads(out)["rows"] == 0
    assert list(pd.read_csv(folder / "new.csv")) == list(pd.read_csv(folder / "out" / "shared.csv"))
    run("check", folder / "out", folder / "new.csv", ends=0)
    assert "Nobody was counted yet" in encoded(run, folder, people().head(0), "--watch")[1]
    assert "Nobody was counted yet" in run("watch", folder / "out", folder / "night.csv", ends=0)[1]


def test_gaps_of_a_night_are_refused_or_dropped(run, folder):
    rows = people(300, seed=2)
    rows.loc[:9, "sex"] = None
    assert "(--missing-group drop)" in encoded(run, folder, rows, ends=2)[2]
    assert (
        "the table had no group of rows without one"
        in encoded(run, folder, rows, "--missing-group", "group", ends=2)[2]
    )
    assert encoded(run, folder, rows, "--missing-group", "drop")[1].startswith("290 rows written")
    rows = people(300, seed=2).astype({"repaid": object})
    rows.loc[:4, "repaid"] = None
    assert "(--missing-label drop)" in encoded(run, folder, rows, ends=2)[2]
    assert encoded(run, folder, rows, "--missing-label", "drop")[1].startswith("295 rows written")
    assert encoded(run, folder, rows, "--missing-label", "keep")[1].startswith("300 rows written")


def test_another_sheet_and_lists_with_commas(run, tmp_path):
    pytest.importorskip("openpyxl")
    rows = people().assign(home=["own", "rent"] * 600)
    with pd.ExcelWriter(tmp_path / "people.xlsx") as book:
        pd.DataFrame({"notes": ["none"]}).to_excel(book, sheet_name="About", index=False)
        rows.to_excel(book, sheet_name="People", index=False)
    words = ["describe", tmp_path / "people.xlsx", "--sensitive", "sex,home", "--label", "repaid,age", "--id", "person"]
    said = run(*words, "--sheet", "People", ends=0)[1]
    assert "sensitive 'sex and home', label 'repaid', label 'age'" in said
    assert (
        "the workbook has no sheet 'Peple' (--sheet ...): it has 'About', 'People'"
        in run(*words, "--sheet", "Peple", ends=2)[2]
    )
    people(10).to_csv(tmp_path / "x.csv", index=False)
    assert (
        "only a workbook has sheets"
        in run("describe", tmp_path / "x.csv", "--sensitive", "a", "--sheet", "b", ends=2)[2]
    )

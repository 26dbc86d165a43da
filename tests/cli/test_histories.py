"""The command on persons with histories: shared by persons, checked, verified, encoded; errors before anything."""

from __future__ import annotations

import json

import known_tables
import pandas as pd
import pytest

pytestmark = pytest.mark.usefixtures("few_trees", "few_measured")

ROLES = ["--sensitive", "sex", "--label", "repaid", "--id", "person", "--time", "year"]


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("persons")
    known_tables.histories(1200).to_csv(folder / "rows.csv", index=False)
    code, out, err = run("share", folder / "rows.csv", *ROLES, "--target", "0.3", "-o", folder / "out")
    assert code == 0, err
    (folder / "said.txt").write_text(out, encoding="utf-8")
    return folder


def test_persons_are_shared_with_all_of_their_rows(run, folder):
    shared = pd.read_csv(folder / "out" / "shared.csv")
    assert shared["person"].unique().tolist() == list(range(1, 1201))
    assert (shared.groupby("person")["year"].diff().dropna() > 0).all()
    certificate = json.loads((folder / "out" / "certificate.json").read_text(encoding="utf-8"))
    assert (certificate["released"], certificate["unit"], sum(certificate["n"].values())) == ("panel", "person", 1200)
    report = (folder / "out" / "report-public.html").read_text(encoding="utf-8")
    assert "All rows of a person are covered together" in report
    said = " ".join((folder / "said.txt").read_text(encoding="utf-8").split())
    assert "Not covered" in said
    assert "linked (all rows" not in said


def test_a_receiver_counts_persons_and_the_producer_verifies(run, folder, tmp_path):
    _, out, _ = run("check", folder / "out", ends=0)
    assert "Its persons are as many as were counted" in out
    assert "all rows of a random person" in out
    shared = pd.read_csv(folder / "out" / "shared.csv")
    shared[shared["person"] > 1].to_csv(tmp_path / "shared.csv", index=False)
    code, out, _ = run("check", folder / "out" / "certificate.json", tmp_path / "shared.csv")
    assert code == 1
    run("verify", folder / "out", folder / "rows.csv", ends=0)


def test_later_persons_get_panels_in_one_file(run, folder, tmp_path):
    new = known_tables.histories(150, 4).drop(columns="repaid")
    new.to_csv(tmp_path / "new.csv", index=False)
    run("encode", folder / "out", tmp_path / "new.csv", "-o", tmp_path / "new-shared.csv", ends=0)
    written = pd.read_csv(tmp_path / "new-shared.csv")
    assert written["person"].unique().tolist() == list(range(1, 151))
    assert list(written) == list(pd.read_csv(folder / "out" / "shared.csv"))
    code, _, err = run("encode", folder / "out", tmp_path / "new.csv", "-o", tmp_path / "k.csv", "--keep", "sex")
    assert code == 2
    assert "No column can be kept beside panels" in err


def test_linked_rows_are_said_first_to_be_uncovered_where_every_row_has_a_cell(run, tmp_path):
    known_tables.histories(1200).to_csv(tmp_path / "rows.csv", index=False)
    settings = ["--unit", "row", "--quick", "--target", "0.5", "--most-rows", 12]
    _, out, err = run("share", tmp_path / "rows.csv", *ROLES, *settings, "-o", tmp_path / "out")
    assert "several rows of one person that are linked" in " ".join(out.split()), err
    report = (tmp_path / "out" / "report-public.html").read_text(encoding="utf-8")
    assert "The rows of one person are not covered together" in report
    assert "person" not in pd.read_csv(tmp_path / "out" / "shared.csv")


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (lambda rows: rows.assign(person=rows["person"].where(rows.index > 2)), [], "'person' must name a person in"),
        (lambda rows: rows.assign(year="in " + rows["year"].astype(str)), [], "'year' must hold numbers or times"),
        (lambda rows: rows.assign(year=rows["year"].where(rows.index > 2)), [], "'year' must be known in every row"),
        (lambda rows: rows.assign(sex=["f", "m"] * (len(rows) // 2) + ["f"] * (len(rows) % 2)), [], "(--unit row)"),
        (lambda rows: rows, ["--rule", "pay >= previous.pay"], "of 590 rows break it"),
    ],
    ids=["no person", "no time", "a gap in time", "two groups", "a rule"],
)
def test_bad_input_is_refused_and_nothing_is_written(change, options, said, run, tmp_path):
    rows = change(known_tables.histories(214, 8).iloc[:590])
    rows.to_csv(tmp_path / "rows.csv", index=False)
    code, _, err = run("share", tmp_path / "rows.csv", *ROLES, *options, "-o", tmp_path / "out")
    assert code == 2
    assert said in err
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())


def test_describe_counts_persons_or_says_why_it_cannot(run, tmp_path):
    rows = known_tables.histories(600)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    _, out, _ = run("describe", tmp_path / "rows.csv", *ROLES, "--rule", "year > previous.year", ends=0)
    assert f"600 persons have up to {rows['person'].value_counts().max()} rows." in out
    rows.assign(sex=["f", "m"] * (len(rows) // 2) + ["f"] * (len(rows) % 2)).to_csv(tmp_path / "two.csv", index=False)
    _, out, _ = run("describe", tmp_path / "two.csv", *ROLES, ends=0)
    assert "must be the same in all rows of a person" in out

"""The command on two linked files: shared, checked and verified together; errors before anything is written."""

from __future__ import annotations

import json

import known_tables
import pandas as pd
import pytest

ROLES = ["--sensitive", "sex", "--label", "frail", "--id", "patient", "--time", "day"]


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("linked")
    for name, table in known_tables.patients_and_visits(1000).items():
        table.to_csv(folder / f"{name}.csv", index=False)
    settings = ["--with", folder / "visits.csv", *ROLES, "--target", "0.3", "--quick", "-o", folder / "out"]
    _, out, _ = run("share", folder / "patients.csv", *settings, ends=0)
    (folder / "said.txt").write_text(out, encoding="utf-8")
    return folder


def test_two_files_come_with_one_certificate(folder):
    patients, visits = (pd.read_csv(folder / "out" / name) for name in ("shared-persons.csv", "shared.csv"))
    assert patients["person"].tolist() == list(range(1, 1001))
    assert visits["person"].isin(patients["person"]).all()
    assert "patient" not in {*patients, *visits}
    assert "sex" not in {*patients, *visits}
    certificate = json.loads((folder / "out" / "certificate.json").read_text(encoding="utf-8"))
    assert list(certificate["released_files"]) == ["shared.csv", "shared-persons.csv"]
    assert certificate["counted_file"] == "shared-persons.csv"
    assert list(certificate["parents"]["kinds"]) == list(patients)
    assert "shared-persons.csv" in (folder / "said.txt").read_text(encoding="utf-8")
    described = json.loads((folder / "out" / "croissant.json").read_text(encoding="utf-8"))
    assert [part["name"] for part in described["distribution"]] == ["shared.csv", "shared-persons.csv"]
    assert [len(records["field"]) for records in described["recordSet"]] == [len(visits.columns), len(patients.columns)]
    assert "| shared-persons.csv: born |" in (folder / "out" / "card.md").read_text(encoding="utf-8")
    run_file = json.loads((folder / "out" / "run.json").read_text(encoding="utf-8"))
    assert run_file["linked"] == ["patients", "visits"]


def test_a_receiver_checks_both_files_and_the_producer_verifies(run, folder):
    _, out, _ = run("check", folder / "out", ends=0)
    assert "Its persons are as many as were counted" in out
    assert "Every person of shared.csv is in shared-persons.csv." in out
    for name in ("shared.csv", "shared-persons.csv"):
        run("check", folder / "out" / "certificate.json", folder / "out" / name, ends=0)
    _, out, _ = run("verify", folder / "out", folder / "patients.csv", "--with", folder / "visits.csv", ends=0)
    assert "The certificate holds" in out


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("shared-persons.csv", lambda rows: rows[1:], "it has 999 rows; 1,000 were released"),
        ("shared-persons.csv", lambda rows: rows.assign(born=1950), "a value in them is another one"),
        ("shared.csv", lambda rows: rows[rows["person"] > 9], "were released"),
        ("shared.csv", lambda rows: rows.rename(columns={"ward": "sex"}), "lacks the column 'ward'"),
    ],
)
def test_a_changed_file_is_found(name, change, said, run, folder, tmp_path):
    change(pd.read_csv(folder / "out" / name)).to_csv(tmp_path / name, index=False)
    _, out, _ = run("check", folder / "out" / "certificate.json", tmp_path / name, ends=1)
    assert said in out
    again = pd.read_csv(folder / "out" / name).sample(frac=1, random_state=1)
    again.to_csv(tmp_path / name, index=False, sep=";")
    _, out, _ = run("check", folder / "out" / "certificate.json", tmp_path / name, ends=0)
    assert "in another form" in out


@pytest.mark.parametrize(
    ("change", "said"),
    [({"contents": None}, "states the contents of both"), ({"columns": ["day"]}, "has the column 'person'")],
)
def test_a_certificate_that_leaves_a_part_out_is_none(change, said, run, folder, tmp_path):
    """It ended in an error of our own, or was accepted for a file without persons."""
    stated = json.loads((folder / "out" / "certificate.json").read_text(encoding="utf-8"))
    (tmp_path / "certificate.json").write_text(json.dumps(stated | change), encoding="utf-8")
    _, _, err = run("check", tmp_path / "certificate.json", folder / "out" / "shared-persons.csv", ends=2)
    assert said in " ".join(err.split())


@pytest.mark.parametrize("command", ["encode", "watch", "certify", "audit"])
def test_commands_that_read_one_file_say_so(command, run, folder, tmp_path):
    end = ["-o", tmp_path / "new.csv"] if command == "encode" else []
    _, _, err = run(command, folder / "out", folder / "patients.csv", *end, ends=2)
    assert "is of two linked tables, 'patients' and 'visits'" in err
    assert not (tmp_path / "new.csv").exists()


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (lambda p, v: (p[5:], v), [], "of persons whom 'patients' lacks"),
        (lambda p, v: (p, v.assign(patient=v["patient"].where(v.index > 2))), [], "'patient' must name a person in"),
        (lambda p, v: (p, v.assign(day="in " + v["day"].astype(str))), [], "'day' must hold numbers or times"),
        (lambda p, v: (pd.concat([p, p[:1]]), v), [], "repeats in 'patients'"),
        (lambda p, v: (p, v), ["--rule", "pulse >= previous.pulse"], "rows break it"),
        (lambda p, v: (p, v), ["--again", "earlier"], "leave out --sample and --again"),
        (lambda p, v: (p, v), ["--with", "third.csv"], "FILE and one other"),
    ],
    ids=["no parent", "no person", "no time", "two rows", "a rule", "again", "a third file"],
)
def test_bad_input_is_refused_and_nothing_is_written(change, options, said, run, tmp_path):
    tables = change(*known_tables.patients_and_visits(300, 8).values())
    for name, table in zip(("patients", "visits"), tables, strict=True):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    settings = ["--with", tmp_path / "visits.csv", *ROLES, *options, "-o", tmp_path / "out"]
    _, _, err = run("share", tmp_path / "patients.csv", *settings, ends=2)
    assert said in err
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())


def test_two_files_need_the_column_that_links_them(run, folder, tmp_path):
    files = [folder / "patients.csv", "--with", folder / "visits.csv"]
    _, _, err = run("share", *files, "--sensitive", "sex", "-o", tmp_path / "out", ends=2)
    assert "(--id ...)" in err

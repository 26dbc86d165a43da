"""check, as a receiver of files types it."""

import json
import os
import re
import shutil

import pandas as pd
import pytest
from known_tables import people


def loans(n, seed):
    return people(n, seed)[["age", "town", "sex", "repaid"]]


@pytest.fixture(scope="module")
def made(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    loans(2000, 0).to_csv(folder / "loans.csv", index=False)
    loans(500, 1).to_csv(folder / "new.csv", index=False)
    words = ["--sensitive", "sex", "--label", "repaid", "--quick", "--target", "0.4"]
    run("share", folder / "loans.csv", *words, "-o", folder / "out", ends=0)
    return folder


@pytest.fixture
def received(made, tmp_path):
    for name in ("certificate.json", "shared.csv", "report-public.html"):
        shutil.copy(made / "out" / name, tmp_path)
    return tmp_path


def test_a_receiver_accepts_the_true_files(run, received):
    code, out, err = run("check", received / "certificate.json", received / "shared.csv")
    assert (code, err) == (0, "")
    assert "ok       file" in out
    assert out.strip().splitlines()[-1].startswith("All checks passed")
    page = (received / "report-public.html").read_text(encoding="utf-8")
    assert "fairflows check certificate.json shared.csv" in page
    assert run("check", received) == (0, out, ""), "the folder names both files"
    (received / "shared.csv").write_text("age\n1\n")
    run("check", received, ends=1)


@pytest.mark.parametrize("suffix", ["backup", "parquet", "a", "CSV", "csv.gz"])
def test_a_folder_is_checked_by_the_file_that_its_certificate_names(run, received, suffix):
    """An altered table beside a copy of the true one passed: the first shared.* was taken."""
    shared = received / "shared.csv"
    shutil.copy(shared, received / f"shared.{suffix}")
    shared.write_text(shared.read_text().replace("\n", "\n\n", 1).replace("0", "1", 1))
    out = run("check", received, ends=1)[1]
    assert "FAILED   file" in out
    shared.unlink()
    out = run("check", received, ends=1)[1]
    assert "UNKNOWN  file" in out
    assert "holds no 'shared.csv', which the certificate names: state the file" in out


def test_a_file_that_was_saved_again_holds_the_same_table(run, received):
    """In another order and form; with one changed value it is another table, under its own name and any other."""
    table = pd.read_csv(received / "shared.csv", dtype=str, keep_default_na=False)
    mixed = table.sample(frac=1, random_state=0)[list(table)[::-1]]
    mixed.to_csv(received / "mine.txt", sep=";", index=False)
    pd.read_csv(received / "shared.csv").to_parquet(received / "mine.parquet")
    for name in ("mine.txt", "mine.parquet"):
        out = run("check", received / "certificate.json", received / name, ends=0)[1]
        assert "ok       file                        It holds what 'shared.csv' holds" in out
        assert "ok       histogram" in out
    table.loc[7, "age"] = str(int(table.loc[7, "age"]) + 1)
    for name in ("mine.txt", "shared.csv"):
        table.to_csv(received / name, index=False)
        out = run("check", received / "certificate.json", received / name, ends=1)[1]
        assert "FAILED   file                        It is not the table that was certified" in out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.iloc[1:], "it has 1,999 rows; 2,000 were released."),
        (lambda t: t.drop(columns="town"), "it lacks the column 'town'."),
        (lambda t: t.assign(note=1), "it holds the column 'note', which was not released."),
        (
            lambda t: t.astype({"age": float}).assign(age=t["age"] + 0.5),
            "holds '.*.5' in row 1, and whole numbers were",
        ),
    ],
)
def test_the_first_difference_of_another_table_is_shown(run, received, change, words):
    change(pd.read_csv(received / "shared.csv")).to_csv(received / "shared.csv", index=False)
    out = run("check", received, ends=1)[1]
    assert re.search(words, out)


def test_the_house_can_still_verify_what_names_its_file(run, made):
    run("verify", made / "out", made / "loans.csv", ends=0)
    certificate = json.loads((made / "out" / "certificate.json").read_text())
    assert sum(certificate["n"].values()) == 2000, "all persons certify"


def test_a_later_file_takes_no_place_of_the_shared_table(run, made, received):
    """As many rows under the name of the table, in the producer's list: they are not the rows that were counted."""
    before = (made / "out" / "shared.csv").read_bytes()
    err = run("encode", made / "out", made / "new.csv", "-o", made / "out" / "shared.csv", ends=2)[2]
    assert "write to another one" in err
    assert (made / "out" / "shared.csv").read_bytes() == before
    loans(2000, 7).to_csv(made / "as-many.csv", index=False)
    run("encode", made / "out", made / "as-many.csv", "-o", made / "shared.csv", ends=0)
    shutil.copy(made / "shared.csv", received)
    shutil.copy(made / "out" / "certificate.files.json", received)
    code, out, _ = run("check", received / "certificate.json", received / "shared.csv", "--json")
    found = {r["what"]: r["verdict"] for r in json.loads(out)["results"]}
    assert (code, found["file"], found["histogram"]) == (0, "ok", "note")
    pd.read_csv(received / "shared.csv").to_parquet(received / "later.parquet")
    out = run("check", received / "certificate.json", received / "later.parquet", ends=0)[1]
    assert "It holds what a file in the producer's list holds, in another form." in out


def test_line_ends_inside_a_text_stay_inside(run, tmp_path):
    """Left without quotes, a carriage return began a new row for pandas, and ours could not read the file."""
    frame = loans(1200, 3).assign(town=lambda x: x["town"].replace({"Bonn": "one\rtwo", "Ulm": "three\r\nfour\nfive"}))
    frame.to_csv(tmp_path / "loans.csv", index=False, quoting=1)
    words = ["--sensitive", "sex", "--label", "repaid", "--quick", "--target", "0.4", "-o", tmp_path / "out"]
    run("share", tmp_path / "loans.csv", *words, ends=0)
    shared = tmp_path / "out" / "shared.csv"
    assert set(pd.read_csv(shared)["town"]) == set(frame["town"])
    assert len(pd.read_csv(shared)) == 1200
    run("check", tmp_path / "out", ends=0)


def test_a_pipe_is_no_file(run, received):
    """It waited for a writer, for ever."""
    os.mkfifo(received / "pipe.csv")
    for name in ("pipe.csv", "."):
        err = run("check", received / "certificate.json", received / name, ends=2)[2]
        assert "is a folder or a device, not a file" in err


def test_a_spreadsheet_s_encodings_are_recognised(run, received):
    """By Python, in no thread of Arrow: the process was aborted where Python had ended first."""
    text = (received / "shared.csv").read_text(encoding="utf-8")
    for encoding in ("utf-16", "cp1252", "utf-8-sig"):
        (received / "mine.csv").write_bytes(text.replace(",", ";").encode(encoding))
        run("check", received / "certificate.json", received / "mine.csv", ends=0)

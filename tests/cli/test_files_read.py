"""Every command that reads a file takes it as people have it."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

DIALECT = ["--separator", "--encoding", "--decimal", "--thousands", "--sheet"]


def loans(n=900, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["weiblich", "männlich"], n)
    income = np.round(rng.lognormal(7, 0.4, n) + 30 * (sex == "männlich"), 2)
    repaid = (income + rng.normal(0, 300, n) > 1100).astype(int)
    names, codes = [f"p{seed}-{i}" for i in range(n)], [f"0{i % 7}123" for i in range(n)]
    return pd.DataFrame({"person": names, "plz": codes, "income": income, "sex": sex, "repaid": repaid})


def german(frame):
    """The table as a German spreadsheet writes it."""
    swapped = str.maketrans(",.", ".,")
    income = [f"{value:,.2f}".translate(swapped) for value in frame["income"]]
    return frame.assign(income=income).to_csv(sep=";", index=False).encode("cp1252")


@pytest.fixture(scope="module")
def fitted(run, few_epochs, tmp_path_factory):
    """A folder with files in several forms, and a result that was fitted on one of them."""
    folder = tmp_path_factory.mktemp("dialects")
    (folder / "loans.csv").write_bytes(german(loans()))
    new = loans(300, seed=1)
    (folder / "german.csv").write_bytes(german(new))
    new.to_csv(folder / "plain.csv", index=False)
    new.to_csv(folder / "packed.csv.gz", index=False)
    new.to_csv(folder / "wide.csv", index=False, sep="\t", encoding="utf-16")
    new.to_excel(folder / "book.xlsx", index=False)
    new.to_parquet(folder / "new.parquet")
    words = [
        "fit",
        folder / "loans.csv",
        "--sensitive",
        "sex",
        "--label",
        "repaid",
        "--id",
        "person",
        "--method",
        "cells",
        "--cells",
    ]
    code, _, err = run(*words, "--no-cross-fit", "--quick", "--force", "-o", folder / "out")
    assert code in (0, 1), err
    return folder


def test_the_dialect_is_kept_beside_the_model(fitted):
    kept = json.loads((fitted / "out" / "run.json").read_text())["dialect"]
    assert kept == {"separator": ";", "encoding": "cp1252", "decimal": ",", "thousands": ".", "sheet": None}


def test_files_in_every_form_mean_the_same(run, fitted, tmp_path):
    encoded = {}
    for name in ("german.csv", "plain.csv", "packed.csv.gz", "wide.csv", "book.xlsx", "new.parquet"):
        code, _, err = run("encode", fitted / "out", fitted / name, "--keep-order", "-o", tmp_path / "z.csv")
        assert code == 0, err
        encoded[name] = pd.read_csv(tmp_path / "z.csv")
    for frame in encoded.values():
        pd.testing.assert_frame_equal(frame, encoded["plain.csv"])
    assert encoded["plain.csv"]["cell"].nunique() > 1


def test_a_file_that_shows_nothing_is_read_as_the_fitted_one(run, fitted, tmp_path):
    (tmp_path / "few.csv").write_text("person;plz;income;sex;repaid\nann;01123;1.234;weiblich;1\n", encoding="utf-8")
    (tmp_path / "same.csv").write_text("person,plz,income,sex,repaid\nann,01123,1234,weiblich,1\n", encoding="utf-8")
    cells = []
    for name in ("few.csv", "same.csv"):
        assert run("encode", fitted / "out", tmp_path / name, "-o", tmp_path / "z.csv")[0] == 0
        cells.append((tmp_path / "z.csv").read_text())
    assert cells[0] == cells[1]


@pytest.mark.parametrize("command", ["certify", "verify", "audit"])
def test_commands_on_a_result_read_other_dialects(run, fitted, command):
    file = fitted / ("loans.csv" if command == "verify" else "german.csv")
    words = ["--quick"] if command == "audit" else []
    code, out, err = run(command, fitted / "out", file, *words, "--json")
    assert code in (0, 1), err  # small tables may miss the target
    assert json.loads(out)


def test_a_certificate_may_be_attacked_with_what_the_model_was_fitted_to(run, fitted):
    code, out, err = run("certify", fitted / "out", fitted / "german.csv", "--train", fitted / "loans.csv", "--json")
    assert code in (0, 1), err
    assert "attacking" not in err, "--json prints the certificate alone"
    certificate = json.loads(out)
    assert certificate["attack_by"]
    assert 0 <= certificate["attack_lower"] <= certificate["cell_upper"]


@pytest.mark.parametrize(
    "command", ["fit", "encode", "decode", "describe", "certify", "verify", "audit", "recourse", "report"]
)
def test_every_command_that_reads_takes_the_options(run, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    _, out, _ = run(command, "-h")
    assert all(option in out for option in DIALECT)


def test_an_ambiguous_file_names_the_option_to_type(run, tmp_path):
    (tmp_path / "t.csv").write_text('x,y,s\n1,"1,5",f\n2,"2,5",m\n', encoding="utf-8")
    words = ["describe", tmp_path / "t.csv", "--sensitive", "s"]
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert "column 'y' holds '1,5' in row 2" in err
    assert "(decimal='.' or decimal=',')" in err
    assert json.loads(run(*words, "--decimal", ",", "--json")[1])["columns"]["y"]["kind"] != "categorical"
    assert json.loads(run(*words, "--decimal", ".", "--json")[1])["columns"]["y"]["kind"] == "categorical"
    (tmp_path / "t.txt").write_text("x\ty\ts\n1\t1 234\tf\n2\t7\tm\n", encoding="utf-8")
    record = json.loads(
        run("describe", tmp_path / "t.txt", "--sensitive", "s", "--separator", "tab", "--thousands", "blank", "--json")[
            1
        ]
    )
    assert record["columns"]["y"]["range"] == "7 … 1234"
    assert record["dialect"]["separator"] == "\t"


def test_the_package_is_the_command(run):
    command = [sys.executable, "-m", "fairflows", "--version"]
    assert subprocess.run(command, capture_output=True, check=True).stdout.startswith(b"fairflows ")
    assert run("encode", "-h")[:2] == run("encode", "--help")[:2]

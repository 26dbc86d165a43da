"""Every command that reads a file takes it as people have it, from standard input too."""

import io
import json
import os
from concurrent.futures import ThreadPoolExecutor

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


@pytest.mark.parametrize("name", ["german.csv", "new.parquet", "packed.csv.gz", "book.xlsx"])
def test_standard_input_and_output(run, fitted, name, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    data = (fitted / name).read_bytes()
    code, out, err = run("encode", fitted / "out", "-", "-o", "-", "--keep-order", stdin=data, notices="default")
    assert code == 0, err
    assert len(pd.read_csv(io.StringIO(out))) == 300
    assert "300 rows written to standard output" in err
    assert list(tmp_path.iterdir()) == []
    assert "read as" not in err  # that of the fitted file is no news
    words = ["describe", "-", "--sensitive", "sex", "--id", "person", "--json"]
    _, out, err = run(*words, stdin=data, notices="default")
    assert json.loads(out)["rows"] == 300
    said = "standard input: read as ; separated, decimal comma, thousands point, Windows-1252.\n"
    assert (said in err) == (name == "german.csv")


def test_a_pipe_of_the_shell(run, fitted):
    """It has no size, no end until it is closed, and no way back."""
    out, into = os.pipe()
    data = (fitted / "german.csv").read_bytes()
    with open(out, "rb") as pipe, ThreadPoolExecutor() as pool:
        pool.submit(lambda: write_and_close(into, data))
        code, text, err = run("encode", fitted / "out", "-", "-o", "-", "--keep-order", stdin=pipe)
    assert code == 0, err
    assert len(pd.read_csv(io.StringIO(text))) == 300


def write_and_close(into, data):
    with open(into, "wb") as file:
        file.write(data)


def test_nothing_goes_to_standard_output_when_the_input_is_bad(run, fitted, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    data = (fitted / "plain.csv").read_bytes() + b"ann,01123,abc,weiblich,1\n"
    code, out, err = run("encode", fitted / "out", "-", "-o", "-", stdin=data)
    assert (code, out) == (2, "")
    assert "fairflows: standard input: cannot be read: column 'income' must hold" in err
    assert list(tmp_path.iterdir()) == []


def test_standard_input_is_one_file(run, fitted):
    code, _, err = run("certify", fitted / "out", "-", "--train", "-")
    assert code == 2
    assert "Only one file can come from standard input; got - for rows and train." in err
    code, _, err = run("encode", fitted / "out", fitted / "plain.csv", "-o", "-", "--json")
    assert code == 2
    assert "--json prints on standard output" in err


def test_a_released_file_is_checked_from_standard_input(run, fitted):
    shared = next((fitted / "out").glob("shared.*")).read_bytes()
    code, out, err = run("check", fitted / "out" / "certificate.json", "-", stdin=shared)
    assert code == 0, out + err
    assert "byte for byte, which the certificate names" in out
    assert run("check", fitted / "out" / "certificate.json", "-", stdin=shared[:-9])[0] == 1


def test_results_go_to_standard_output_where_that_makes_sense(run, fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("report", fitted / "out", "--public", "-o", "-")
    assert code == 0
    assert out.startswith("<!doctype html>")
    assert out.rstrip().endswith("</html>")
    code, _, err = run("certify", fitted / "out", fitted / "plain.csv", "-o", "-")
    assert code == 2
    assert "--json prints the certificate on standard output" in err
    code, _, err = run("fit", fitted / "plain.csv", "--sensitive", "sex", "-o", "-")
    assert code == 2
    assert "-o must be a folder; got -" in err
    code, _, err = run("recourse", fitted / "out", fitted / "plain.csv", "-o", "-", "--json")
    assert code == 2
    assert "--json prints on standard output" in err
    assert list(tmp_path.iterdir()) == []

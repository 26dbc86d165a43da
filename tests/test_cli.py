"""The command, as a user types it."""

import json
import subprocess
import sys

import pandas as pd
import pytest

from fairflows import __version__


def run(*words, **settings):
    command = [sys.executable, "-m", "fairflows.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **settings)


@pytest.fixture
def loans(tmp_path):
    frame = pd.DataFrame(
        {
            "age": [31, 45, 27, 60, 33, 52],
            "[bold]town[/bold]": list("uubbub"),
            "repaid": [1, 0, 1, 1, 0, 0],
            "sex": list("fmmffm"),
        }
    )
    frame.to_csv(tmp_path / "loans.csv", index=False)
    return tmp_path / "loans.csv"


def test_version_and_help():
    assert run("--version").stdout.strip() == f"fairflows {__version__}"
    for words in [(), ("describe",), ("datasets",), ("demo",)]:
        assert run(*words, "--help").returncode == 0


def test_describe(loans):
    done = run("describe", loans, "--sensitive", "sex", "--label", "repaid")
    assert done.returncode == 0
    assert "6 rows, 2 features (1 discrete, 1 categorical)" in done.stdout
    assert "f   3 rows" in done.stdout
    assert "[bold]town[/bold]" in done.stdout  # a column's name is text, never markup


def test_describe_as_json(loans):
    record = json.loads(run("describe", loans, "--sensitive", "sex", "--label", "repaid", "--json").stdout)
    assert record["rows"] == 6
    assert record["groups"]["f"]["P(repaid = 1)"] == pytest.approx(2 / 3)
    assert record["columns"]["age"]["kind"] == "discrete"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sensitive", "sxe", "--label", "repaid"], "Did you mean 'sex'?"),
        (["--sensitive", "sex", "--label", "age"], "must have two values; it has 6"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(loans, words, message):
    done = run("describe", loans, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout


def test_a_file_that_is_not_there():
    done = run("describe", "nowhere.csv", "--sensitive", "sex")
    assert (done.returncode, done.stderr) == (2, "fairflows: nowhere.csv: there is no such file.\n")


def test_datasets_are_listed_without_the_data(tmp_path):
    import os

    done = run("datasets", "--json", env={**os.environ, "FAIRFLOWS_DATA": str(tmp_path)})
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert set(rows) == {"adult", "compas", "crime", "health", "law_school"}
    assert rows["adult"]["rows"] == 45_222


def test_demo():
    done = run("demo")
    assert done.returncode == 0
    assert "45,222 rows" in done.stdout

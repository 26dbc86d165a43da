"""Options in a file, the run's own settings as such a file, and the ways to reach the command."""

import json
import subprocess
import sys
import tomllib

import numpy as np
import pandas as pd
import pytest


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    n = 900
    frame = pd.DataFrame({"age": rng.integers(18, 80, n), "sex": rng.choice(["f", "m"], n)})
    frame["repaid"] = (frame["age"] + rng.normal(0, 10, n) > 50).astype(int)
    path = tmp_path_factory.mktemp("config") / "loans.csv"
    frame.to_csv(path, index=False)
    return path


def config(tmp_path, table, **more):
    settings = {"table": str(table), "sensitive": ["sex"], "label": "repaid", "method": "cells", "cells": True,
                "no-cross-fit": True, "quick": True, "force": True, "target": 0.9, **more}  # fmt: skip
    path = tmp_path / "fit.toml"
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()), encoding="utf-8")
    return path


def test_options_come_from_a_file_and_the_command_line_counts_more(run, table, tmp_path):
    words = ["fit", "--config", config(tmp_path, table, seed=5), "--target", "0.8", "-o", tmp_path / "out"]
    code, _, err = run(*words)
    assert code in (0, 1), err
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (record["seed"], record["label"]) == (5, "repaid")
    assert json.loads((tmp_path / "out" / "certificate.json").read_text())["target"] == 0.8

    own = tomllib.loads((tmp_path / "out" / "fit.toml").read_text())
    assert own["target"] == 0.8
    assert own["table"] == str(table)
    assert (own["separator"], own["encoding"], own["decimal"], own["thousands"]) == (",", "utf-8", ".", "")
    assert not {"out", "replace", "config", "quiet", "json"} & set(own)
    # It can be run again, into the same folder: the file is one of those that fit itself wrote.
    code, _, err = run("fit", "--config", tmp_path / "out" / "fit.toml", "-o", tmp_path / "out", "--replace")
    assert code in (0, 1), err
    assert tomllib.loads((tmp_path / "out" / "fit.toml").read_text()) == own


def test_a_setting_of_zero_is_kept(run, table, tmp_path):
    """Zero is a trade-off, and not the same as none."""
    words = ["fit", table, "--sensitive", "sex", "--label", "repaid", "--method", "transport", "--gamma", "0"]
    code, _, err = run(*words, "--cells", "--quick", "--force", "-o", tmp_path / "out")
    assert code in (0, 1), err
    assert tomllib.loads((tmp_path / "out" / "fit.toml").read_text())["gamma"] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tabel = 'x'", "`fit` has no option 'tabel'; did you mean 'table'?"),
        ("n_cells = 8", "`fit` has no option 'n_cells'; did you mean 'n-cells'?"),
        ("colour = 'x'", "`fit` has no option 'colour'; there are table, sensitive, out"),
        ("target = ", "not a TOML file"),
    ],
)
def test_a_wrong_file_is_named(run, tmp_path, text, message):
    path = tmp_path / "fit.toml"
    path.write_text(text, encoding="utf-8")
    code, out, err = run("fit", "--config", path, "-o", tmp_path / "out")
    assert (code, out) == (2, "")
    assert f"{path}: " in err
    assert message in err


def test_values_in_a_file_are_checked_as_on_the_command_line(run, table, tmp_path):
    code, _, err = run("fit", "--config", config(tmp_path, table, seed="many"), "-o", tmp_path / "out")
    assert code == 2
    assert "Invalid value for '--seed'" in err
    code, _, err = run("fit", "--config", config(tmp_path, table, label=["repaid"]), "-o", tmp_path / "out")
    assert code == 2
    assert "label must be one value; got ['repaid']." in err
    code, _, err = run("fit", "--config", config(tmp_path, table, sensitive="race"), "-o", tmp_path / "out")
    assert code == 2
    assert "sensitive column 'race' is not in the table" in err  # one text is one column
    code, _, err = run("fit", "--config", tmp_path / "none.toml", "-o", tmp_path / "out")
    assert code == 2
    assert "none.toml: cannot be read" in err


def test_the_package_is_the_command(run):
    command = [sys.executable, "-m", "fairflows", "--version"]
    assert subprocess.run(command, capture_output=True, check=True).stdout.startswith(b"fairflows ")
    assert run("encode", "-h")[:2] == run("encode", "--help")[:2]


def test_shells_complete_commands_and_options(run, monkeypatch):
    def completed(line):
        monkeypatch.setenv("_FAIRFLOWS_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        return run()[1].split()

    assert completed("fairflows enc") == ["encode"]
    assert completed("fairflows describe --sep") == ["--separator"]

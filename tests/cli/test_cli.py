"""The command, as a user types it."""

import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import known_tables
import numpy as np
import pandas as pd
import pytest
from damages import cut_off, cut_out, doubled, flipped, swapped
from typer.main import get_command

from fairflows import DataError, __version__, load_adult
from fairflows.cli.main import app, main
from processes import start


def people(n=1500, seed=0):
    """A table with text, numbers, missing values, three groups and a label of three values."""
    rng = np.random.default_rng(seed)
    group = rng.choice(["north", "mid", "south"], n)
    income = np.round(rng.lognormal(3, 0.4, n) + 3 * (group == "north"), 1)
    return pd.DataFrame(
        {
            "person": [f"p{seed}-{i}" for i in range(n)],
            "age": rng.integers(18, 80, n),
            "income": np.where(rng.random(n) < 0.05, np.nan, income),
            "town": np.array(["Ulm", "Bonn", None], dtype=object)[rng.integers(0, 3, n)],
            "region": group,
            "rating": np.where(income < 18, "low", np.where(income < 24, "mid", "high")),
        }
    )


def loans(n=1200, seed=0):
    return known_tables.people(n, seed)[["age", "income", "sex", "repaid"]]


@pytest.fixture(scope="module")
def fitted(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    loans().to_csv(folder / "loans.csv", index=False)
    loans(800, seed=1).to_csv(folder / "new.csv", index=False)
    words = ["share", folder / "loans.csv", "--sensitive", "sex", "--label", "repaid", "--quick", "--target", "0.6"]
    assert run(*words, "--method", "cells", "-o", folder / "out")[0] in (0, 1)  # a cell may have few of a group
    return folder


def test_version_and_help(run):
    assert run("--version")[1].strip() == f"fairflows {__version__}"
    code = (
        "import sys; sys.argv = ['fairflows', '--help']\n"
        "from fairflows.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'pandas', 'sklearn', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


DAMAGES = [cut_off, cut_out, doubled, flipped, swapped]
COMMANDS = ["share", "encode", "certify", "check", "verify", "audit", "describe", "demo", "reproduce", "watch", "app"]


def test_there_are_no_other_commands_and_few_options():
    commands = get_command(app).commands
    assert sorted(commands) == sorted(COMMANDS)
    reading = {"separator", "encoding", "decimal", "categorical", "missing_label", "missing_group", "groups", "drop"}
    reading |= {"merge_small", "rules", "most_rows", "sample", "household", "keep_numbers", "time", "sheet"}
    reading |= {"dates", "uncut"}
    for command in commands.values():
        assert len({option.name for option in command.params} - reading) <= 23


def test_describe(run, tmp_path):
    frame = pd.DataFrame({"age": [31, 45, 27, 60, 33, 52], "[bold]town[/bold]": list("uubbub"),
                          "repaid": [1, 0, 1, 1, 0, 0], "sex": list("fmmffm")})  # fmt: skip
    frame.to_csv(tmp_path / "loans.csv", index=False)
    out = run("describe", tmp_path / "loans.csv", "--sensitive", "sex", "--label", "repaid", ends=0)[1]
    assert "6 rows, 2 features (1 discrete, 1 categorical)" in out
    assert "[bold]town[/bold]" in out  # a column's name is text, never markup


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--label", "ratng"], "Did you mean 'rating'?"),
        (["--sensitive", "regoin"], "Did you mean 'region'?"),
        (["--target", "2"], "target must be in (0, 1]; got 2.0. (option --target)"),
        (["--target", "0.01"], "is too small for the target Δ ≤ 0.01"),
        (
            ["--method", "cells", "--spend", "0.05"],
            "must be 'tree' to spend a part of the target; got 'cells'. (option",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(run, tmp_path, words, message):
    people(300).to_csv(tmp_path / "people.csv", index=False)
    roles = ["--sensitive", "region", "--id", "person"] if "--sensitive" not in words else ["--id", "person"]
    roles += ["--label", "rating"] if "--label" not in words else []
    _, out, err = run("share", tmp_path / "people.csv", *roles, *words, "-o", tmp_path / "out", ends=2)
    said = err.splitlines()[-1]  # after the stages of the work
    assert said.startswith("fairflows: ")
    assert message in said
    assert not out
    assert [path.name for path in tmp_path.iterdir()] == ["people.csv"]


def test_a_mixed_table_with_three_groups_and_three_labels(run, tmp_path):
    people(700).to_csv(tmp_path / "people.csv", index=False)
    words = ["--sensitive", "region", "--label", "rating", "--id", "person", "--target", "0.6"]
    out = tmp_path / "out"
    run("share", tmp_path / "people.csv", *words, "--quick", "-o", out, ends=0)
    assert json.loads((out / "certificate.json").read_text())["status"] == "CERTIFIED"
    assert "rating" in (out / "report.html").read_text()
    shared, raw = pd.read_csv(out / "shared.csv"), pd.read_csv(tmp_path / "people.csv")
    scores = [f"rating_score_{value}" for value in ("high", "low", "mid")]
    assert list(shared) == [*(name for name in raw if name not in ("region", "person")), *scores]
    assert len(shared) == len(raw)
    assert set(shared["rating"]) <= set(raw["rating"])

    people(500, seed=1).to_csv(tmp_path / "tomorrow.csv", index=False)
    run("encode", out, tmp_path / "tomorrow.csv", "-o", tmp_path / "shared.csv", ends=0)
    assert len(pd.read_csv(tmp_path / "shared.csv")) == 500
    run("verify", out, tmp_path / "people.csv", ends=0)


def test_certificates_of_other_rows_are_made_written_and_verified(run, fitted, tmp_path):
    shutil.copytree(fitted / "out", tmp_path / "out")
    file = tmp_path / "certificate.json"
    code, out, _ = run("certify", tmp_path / "out", fitted / "new.csv", "--target", "0.2", "--json")
    file.write_text(out)
    certificate = json.loads(out)
    assert code == (0 if certificate["status"] == "CERTIFIED" else 1)
    assert certificate["target"] == 0.2
    assert run("certify", tmp_path / "out", fitted / "new.csv")[0] == 0, "that of share is the default"
    given = ["--certificate", file]
    run("verify", tmp_path / "out", fitted / "new.csv", *given, ends=0)
    certificate["statements"][0]["distance"] = 0.001
    file.write_text(json.dumps(certificate))
    out = run("verify", tmp_path / "out", fitted / "new.csv", *given, ends=1)[1]
    assert "The seal is broken" in out
    assert "this table" in run("certify", tmp_path / "out", fitted / "loans.csv")[1], "which it was fitted to"
    loans().head(900).to_csv(tmp_path / "part.csv", index=False)
    err = run("certify", tmp_path / "out", tmp_path / "part.csv", ends=2)[2]
    assert "fitted to, or chosen by" in err


def test_a_saved_model_alone_is_not_a_result(run, fitted, tmp_path):
    for words in (["encode", "-o", tmp_path / "z.csv"], ["certify"]):
        code, _, err = run(words[0], fitted / "out" / "model", fitted / "new.csv", *words[1:])
        assert (code, "holds no result of `fairflows share`" in err) == (2, True)


def test_experiments_are_listed_and_run(run, tmp_path, monkeypatch):
    monkeypatch.setattr("fairflows.paper.experiments.certificates.on_adult", pd.DataFrame)  # tested where it is from
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, path, **settings: path.touch())
    listed = run("reproduce")[1]
    assert all(name in listed for name in ("figure-1", "table-1", "certificates"))
    _, out, err = run("reproduce", "figure-2", "certificates", "--quick", "-o", tmp_path, ends=0)
    assert "certificates, 2 of 2" in err
    assert out.index("figure-2: Four Gaussian blobs") < out.index("certificates: Bounds")
    assert err.count(": done") == 2
    code, out, err = run("reproduce", "figure-2", "figure-99", "-o", tmp_path / "none")
    assert (code, out, "there is no experiment 'figure-99'" in err) == (2, "", True)
    assert not (tmp_path / "none").exists(), "a wrong name is found before anything runs"


def test_all_experiments_run_in_order_and_say_which_were_skipped(run, tmp_path, monkeypatch):
    from fairflows.paper import experiments

    asked = []

    def instant(name):
        asked.append(name)
        if name == "recourse":
            raise DataError("put lawschs1_1.dta into a folder")
        return lambda setting: experiments.Outcome(pd.DataFrame({"seeds": [setting.seeds]}), "no rows")

    monkeypatch.setattr(experiments, "function_of", instant)
    out = run("reproduce", "--all", "--quick", "--seeds", "3", "-o", tmp_path, ends=0)[1]
    assert asked == experiments.list_experiments()["id"].tolist()
    assert json.loads((tmp_path / "transfer.json").read_text())["table"] == [{"seeds": 3}]
    assert "skipped: put lawschs1_1.dta" in out
    run("reproduce", "recourse", "-o", tmp_path, ends=1)


def share_until_killed(words: list[str]) -> None:
    """Run the command, which is killed when it says that it fits models."""

    class Killing(io.StringIO):
        def write(self, text: str) -> int:
            if "fitting" in text:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().write(text)

    sys.argv, sys.stderr = ["fairflows", *words], Killing()
    main()


def test_killed_while_fitting_nothing_is_left(fitted, tmp_path):
    words = ["share", fitted / "loans.csv", "--sensitive", "sex", "--target", "0.6", "-o", tmp_path / "out"]
    killed = start(share_until_killed, [str(word) for word in words])
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [".out.lock"], "which holds nothing, and nobody up"


def test_the_demo_with_few_rows(run, tmp_path, monkeypatch):
    adult = load_adult().take(range(0, 45_222, 3))
    adult.X = adult.X[["education", "relationship", "race"]]
    monkeypatch.setattr("fairflows.table.examples.load_adult", lambda: adult)
    monkeypatch.chdir(tmp_path)
    out = run("demo", ends=0)[1]
    assert "CERTIFIED" in out
    assert "Share        fairflows-demo/shared.csv, fairflows-demo/certificate.json" in out
    written = {path.name for path in (tmp_path / "fairflows-demo").iterdir()}
    assert written >= {"shared.csv", "certificate.json", "report.html", "report-public.html", "model"}


@pytest.mark.slow
def test_a_thousand_damaged_inputs_end_with_a_message(run, fitted, tmp_path):
    rng = random.Random(0)
    pd.read_csv(fitted / "new.csv").to_parquet(tmp_path / "new.parquet", index=False)
    sources = {"new.csv": (fitted / "new.csv").read_bytes(), "new.parquet": (tmp_path / "new.parquet").read_bytes()}
    inside = ["model/model.json", "model/weights.safetensors", "model/key.json", "model/ledger.json", "run.json"]
    out = tmp_path / "out"
    for i in range(1000):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(fitted / "out", out)
        source = tmp_path / ("new.csv" if i % 2 else "new.parquet")
        source.write_bytes(sources[source.name])
        if i % 4 < 2:
            source.write_bytes(rng.choice(DAMAGES)(sources[source.name], rng))
        else:
            name = inside[i // 4 % len(inside)]
            (out / name).write_bytes(rng.choice(DAMAGES)((out / name).read_bytes(), rng))
        words = ["encode", out, source, "-o", tmp_path / "z.parquet"]
        start = time.process_time()
        code, _, err = run(*words)
        assert code in (0, 2), (i, words, err)
        assert code == 0 or (err.startswith("fairflows: ") and err.count("\n") == 1), (i, words, err)
        assert "Traceback" not in err
        assert time.process_time() - start < 60
    assert not re.search("partial", " ".join(path.name for path in Path(tmp_path).iterdir()))


def test_rules_are_proposed_kept_and_refused(run, tmp_path):
    rng = np.random.default_rng(0)
    start = rng.integers(0, 300, 600)
    rows = pd.DataFrame({"start": start, "end": start + rng.integers(0, 20, 600), "sex": rng.choice(["f", "m"], 600)})
    rows.to_csv(tmp_path / "stays.csv", index=False)
    words = [tmp_path / "stays.csv", "--sensitive", "sex"]
    assert "(--no-rules leaves them out): start <= end." in run("describe", *words)[1]
    words += ["--target", "0.5", "--quick"]
    run("share", *words, "--no-rules", "-o", tmp_path / "free")
    assert (pd.read_csv(tmp_path / "free" / "shared.csv").eval("start > end")).any()
    _, printed, _ = run("share", *words, "--rule", "start < 400", "-o", tmp_path / "out")
    assert "Every shared row keeps: start < 400; start <= end." in " ".join(printed.split())
    shared = pd.read_csv(tmp_path / "out" / "shared.csv")
    assert (shared["start"] <= shared["end"]).all()
    assert "True in every shared row: start &lt;= end." in (tmp_path / "out" / "report.html").read_text()
    files = [tmp_path / "out" / name for name in ("report.html", "report.json", "report-public.html")]
    for text in (printed, *(file.read_text() for file in files)):
        assert re.search(r"[1-9]\d+ rows of 600 broke a rule and were drawn again", text)
    err = run("share", *words, "--rule", "end < start", "-o", tmp_path / "other", ends=2)[2]
    assert "rows break it" in err

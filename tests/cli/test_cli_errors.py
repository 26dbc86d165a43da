"""What goes wrong in the command: said in one line, before the work where that can be, with an exit code of its own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.main import get_command

from fairflows import DataWarning, FairMatching, Table, save
from fairflows.cli.main import BUG, app, main, show_warning
from fairflows.cli.options import _OPTIONS, with_options
from fairflows.result import FORMAT, RUN
from fairflows.stream.batches import BatchEncoder
from processes import start


def people(n):
    rng = np.random.default_rng(0)
    columns = {"town": ["Ulm", "Bonn", "Trier"], "home": ["own", "rent"], "sex": ["f", "m"], "repaid": [0, 1]}
    return pd.DataFrame({"age": rng.integers(18, 80, n), **{name: rng.choice(v, n) for name, v in columns.items()}})


@pytest.fixture
def folder(tmp_path):
    frame = people(300)
    frame.to_csv(tmp_path / "loans.csv", index=False)
    frame.assign(sex=frame["sex"].where(frame.index > 2)).to_csv(tmp_path / "holes.csv", index=False)
    encoder = FairMatching(density="counts").fit(frame[["town", "home"]], sensitive_features=frame["sex"])
    save(encoder, tmp_path / "result" / "model")
    columns = ["age", "town", "home"]
    run = {"format": FORMAT, "sensitive": ["sex"], "columns": columns, "rows": 300, "random_state": 0}
    (tmp_path / "result" / RUN).write_text(json.dumps(run))
    return tmp_path


SHARE = ["share", "loans.csv", "--sensitive", "sex", "--label", "repaid"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*SHARE, "-o", "out", "--delta", "2"], "delta must be in (0, 1); got 2.0. (option --delta)"),
        ([*SHARE, "-o", "loans.csv"], "is a file, where a folder is to be written"),
        ([*SHARE, "-o", "loans.csv/out"], "loans.csv: is a file"),
        ([*SHARE, "-o", "."], "holds loans.csv, which is read"),
        ([*SHARE, "-o", "out", "--method", "magic"], "not one of 'tree', 'cells', 'cells-without-attribute'"),
        (["encode", "result", ".", "-o", "out", "--engine", "ray", "--separator", ";"],
         "engine must be 'local' to read CSV files"),
        ([*SHARE, "-o", "out", "--random-state", "-1"], "--random-state"),
        (["demo", "-o", "loans.csv"], "loans.csv: is a file"),
        (["encode", "result", "loans.csv", "-o", "loans.csv"], "would be lost"),
        (["encode", "result", "holes.csv", "-o", "z.csv"],
         "Drop those rows (--missing-group drop), or keep them as 'missing' (--missing-group group)."),
        (["reproduce", "figure-4a", "--device", "tpu"], "not one of 'auto', 'cpu', 'cuda'"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_before_the_work(run, folder, monkeypatch, words, message):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert "fitting" not in err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_bug_is_called_one_and_has_its_own_exit_code(run, folder, monkeypatch):
    def broken(*_, **__):
        raise KeyError("a column\nthat is there")

    monkeypatch.setattr(Table, "__init__", broken)
    words = ["describe", folder / "loans.csv", "--sensitive", "sex"]
    code, out, err = run(*words)
    assert (code, out) == (BUG, "")
    assert "a bug in fairflows, please report it: KeyError" in err
    assert err.count("\n") == 1
    monkeypatch.setenv("FAIRFLOWS_DEBUG", "1")
    assert "Traceback" in run(*words)[2]


COMMAND = """
import threading, time
from fairflows.cli.main import main
from fairflows.encoder import cell_programme

solve, threads = cell_programme.linprog, []

def slow_in_other_threads(*words, **settings):
    threads.append(threading.get_ident())
    time.sleep(threads[-1] != threads[0])
    return solve(*words, **settings)

cell_programme.linprog = slow_in_other_threads
try:
    main()
finally:
    print(threading.active_count(), "threads")
"""


def test_a_target_out_of_reach_ends_the_process_by_its_exit_code(folder):
    """A linear programme that still runs in a thread when the interpreter ends aborts the process: 134, not 2."""
    people(600).to_csv(folder / "more.csv", index=False)
    words = ["share", "more.csv", *SHARE[2:], "--method", "cells", "--target", "0.35", "-o", "out"]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert "target 0.35 is out of reach for 2 cells" in " ".join(done.stderr.split())
    assert (done.returncode, done.stdout) == (2, "1 threads\n")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Drop it (drop=['key'])\nor so (identifier='a b').", "Drop it (--drop key) or so (--id 'a b')."),
        ("State it (dates={'born': '%d/%m/%Y'}).", "State it (--date born:%d/%m/%Y)."),
        ("Cut it (cuts={'age': [44.5]}): merge_small=30.", "Cut it (--groups age:44.5): --merge-small 30."),
        ("Name it (household=...): merge (merge_small=...).", "Name it (--household ...): merge (--merge-small ...)."),
        ("Replace them (replace=True), by separator=';'.", "Replace them (--replace), by --separator ';'."),
        (f"read (separator={chr(9)!r}).", "read (--separator tab)."),
        ("target must be in [0, 1]; got 3.", "target must be in [0, 1]; got 3. (option --target)"),
        ("Take another n_bins=8 of your label.", "Take another n_bins=8 of your label."),
    ],
)  # fmt: skip
def test_messages_speak_the_words_of_the_command(message, said):
    assert with_options(message) == said


def test_options_of_another_command_are_named_so():
    assert with_options("Drop it (drop=['key']).", ["--out"]) == "Drop it (--drop key of `share`)."


def test_every_option_that_messages_name_can_be_typed():
    typed = {
        option for command in get_command(app).commands.values() for each in command.params for option in each.opts
    }
    assert {option for names in _OPTIONS.values() for option in names.split(", ")} <= typed


def test_a_warning_names_options_and_comes_once(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fairflows", "share"])
    for count in ("1,000", "2"):
        show_warning(DataWarning(f"{count} rows have no name: give identifier=...."), DataWarning)
    show_warning("a library's own", UserWarning)
    assert capsys.readouterr().err == "fairflows: 1,000 rows have no name: give --id ....\n"


def encode_until_stopped(number, words):
    """Run the command in a process that a signal stops while rows are being written."""
    # A shell that runs the tests in the background ignores interrupts, and its children inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.argv = ["fairflows", *words]
    encode = BatchEncoder.__call__

    def stopped_while_encoding(self, *arguments):
        print([path.name for path in Path(words[-1]).parent.glob(".z.csv.partial-*")], flush=True)
        os.kill(os.getpid(), number)
        return encode(self, *arguments)

    BatchEncoder.__call__ = stopped_while_encoding
    main()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_in_the_middle_it_says_so_and_cleans_up(folder, number, tmp_path_factory):
    words = ["encode", folder / "result", folder / "loans.csv", "-o", folder / "z.csv"]
    output = tmp_path_factory.mktemp("said") / "output"
    stopped = start(encode_until_stopped, number, [str(word) for word in words], output=output)
    stopped.join()
    said = output.read_text()
    assert "partial" in said, "rows were being written"
    assert stopped.exitcode == 128 + number, said
    assert "fairflows: interrupted" in said.splitlines()
    assert "cannot be read" not in said
    assert sorted(path.name for path in folder.iterdir()) == ["holes.csv", "loans.csv", "result"]


@pytest.mark.parametrize(("target", "writer"), [("z.csv", "pandas.DataFrame.to_csv"), ("z.parquet", "pyarrow.OSFile")])
def test_a_full_disk_is_said_with_the_name_of_the_file(run, folder, monkeypatch, target, writer):
    def full(*_, **__):
        raise OSError(28, "Error writing bytes to file")

    monkeypatch.setattr(writer, full)
    err = run("encode", folder / "result", folder / "loans.csv", "-o", folder / target, ends=2)[2]
    assert err.splitlines()[-1] == f"fairflows: {folder / target}: cannot be written: No space left on device."
    assert sorted(path.name for path in folder.iterdir()) == ["holes.csv", "loans.csv", "result"]

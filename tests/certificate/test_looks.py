"""Looks are counted for persons: every new request for a certificate from the same persons has its own number."""

import os
import secrets
import signal
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock

from fairflows import DataError, DataWarning, load_adult
from fairflows.certificate import looks as record_of_looks
from fairflows.certificate import records
from fairflows.certificate.looks import open_looks
from fairflows.table.ledger import RowsSeen
from fairflows.table.persons import Persons
from processes import start

NAMES = ["ann", "bob", "eve"]
FRAME = pd.DataFrame({"age": [31, 45, 27]})


def record(frame=FRAME, names=NAMES, model="m", request=None):
    """Record a look; a new one, unless the request is named."""
    with open_looks() as looks:
        rows = RowsSeen.of(frame, Persons.unnamed(len(frame)) if names is None else Persons.of(names), looks.key)
        return looks.record(rows, looks.find(rows, model, request or secrets.token_hex(8))[0])


def numbers_given(n):
    return [record().number for _ in range(n)]


def files_of(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != "lock")


def test_every_model_of_the_same_persons_counts_on():
    assert record(model="one").number == 1
    assert record(model="another").number == 2
    assert record(FRAME.iloc[:1], ["eve"]).number == 3, "one person in common is enough"
    with open_looks() as looks:
        rows = RowsSeen.of(FRAME, Persons.of(NAMES), looks.key)
        assert [look.model for look in looks.at(rows)] == ["one", "another", "m"]
    assert record(FRAME, ["kim", "lee", "max"]).number == 1, "these persons have given none, whatever their values are"


def test_a_look_at_persons_of_several_looks_is_later_than_all_of_them():
    assert record(names=["ann"]).number == 1
    assert record(names=["bob"]).number == 1
    assert record(names=["ann", "bob"]).number == 3


def write_numbers_given(path):
    path.write_text(" ".join(map(str, numbers_given(10))))


def test_two_processes_and_twenty_certificates(ledger_of_test, tmp_path):
    running = [start(write_numbers_given, tmp_path / str(i)) for i in range(2)]
    for process in running:
        process.join()
    given = [int(word) for path in tmp_path.iterdir() for word in path.read_text().split()]
    assert sorted(given) == list(range(1, 21))
    with open_looks() as looks:
        recorded = looks.at(RowsSeen.of(FRAME, Persons.of(NAMES), looks.key))
    assert [look.number for look in recorded] == list(range(1, 21))
    assert len(files_of(ledger_of_test)) == 21, "20 looks, one key, and nothing half-written"


def look_and_die():
    print(record().number, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_before_its_certificate_has_looked(tmp_path):
    killed = start(look_and_die, output=tmp_path / "said")
    killed.join()
    assert (killed.exitcode, (tmp_path / "said").read_text()) == (-signal.SIGKILL, "1\n")
    assert record().number == 2


def test_whoever_waits_is_told_why(ledger_of_test, monkeypatch):
    record()
    held = FileLock(ledger_of_test / "lock")
    monkeypatch.setattr(records, "_PATIENCE", 0.01)
    with held, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(record)
        with pytest.raises(DataWarning, match="another process is writing records"):  # warnings are errors in tests
            waiting.result()


def test_folder_and_files_are_private_and_hold_no_names(ledger_of_test):
    record(names=["ann margaret smith", "bob"])
    assert stat.S_IMODE(ledger_of_test.stat().st_mode) == 0o700
    for name in files_of(ledger_of_test):
        path = ledger_of_test / name
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, name
        assert b"margaret" not in path.read_bytes()
    assert len((ledger_of_test / "key").read_bytes()) == 32


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("used_before", [False, True])
def test_a_folder_that_cannot_be_written_is_refused(used_before, ledger_of_test):
    ledger_of_test.mkdir()
    if used_before:
        record()
    ledger_of_test.chmod(0o500)
    try:
        with pytest.raises(DataError, match=r"cannot be used: Permission denied.*FAIRFLOWS_LEDGER names another one"):
            record()
    finally:
        ledger_of_test.chmod(0o700)


def test_a_full_disk_is_an_error_before_the_certificate(ledger_of_test, monkeypatch):
    record()

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DataError, match="No space left on device"):
            record()
    assert record().number == 2
    assert not list(ledger_of_test.glob(".*"))


def test_a_folder_with_other_files_is_left_alone(ledger_of_test):
    ledger_of_test.mkdir(mode=0o755)
    (ledger_of_test / "thesis.tex").write_text("")
    with pytest.raises(DataError, match=r"holds 'thesis\.tex', which fairflows did not write; FAIRFLOWS_LEDGER must"):
        record()
    assert files_of(ledger_of_test) == ["thesis.tex"]
    assert stat.S_IMODE(ledger_of_test.stat().st_mode) == 0o755


def test_a_damaged_look_is_named_and_never_skipped(ledger_of_test):
    record(names=[f"person {i}" for i in range(20)])
    (path,) = ledger_of_test.glob("*.npz")
    whole = path.read_bytes()
    with open_looks() as looks:
        rows = RowsSeen.of(FRAME, Persons.of(["person 7"]), looks.key)
    damaged = [whole[:n] for n in range(0, len(whole), 40)]
    for place in range(0, len(whole), 3):
        damaged.append(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
    refused = [outcome for outcome in map(partial(next_look_or_error, path, rows), damaged) if outcome != 2]
    assert all(outcome.startswith(f"{path}: ") for outcome in refused)
    assert len(refused) > 0.8 * len(damaged), "only bytes without meaning, such as a time in the archive, may change"


def next_look_or_error(path, rows, data):
    path.write_bytes(data)
    try:
        with open_looks() as looks:
            return looks.find(rows, "m", "a new request")[0].number
    except DataError as error:
        return str(error)


def test_hashes_of_another_type_are_no_look(ledger_of_test):
    """No person would be recognised by them, and the next look would count as the first."""
    record()
    (path,) = ledger_of_test.glob("*.npz")
    with np.load(path) as file:
        entry = dict(file)
    for name, hashes in entry.items():
        if name != "about":
            np.savez(path, **entry | {name: hashes.astype(np.float64)})
            with pytest.raises(DataError, match="the file is damaged, cut off, or another program's"):
                record()


def test_files_of_another_format_or_key_are_refused(ledger_of_test, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(record_of_looks, "_FORMAT", 3)
        record()
    with pytest.raises(DataError, match=r"\.npz: the file has format 3, and this release of fairflows reads 2"):
        record()
    next(ledger_of_test.glob("*.npz")).unlink()
    record()
    key = ledger_of_test / "key"
    kept = key.read_bytes()
    key.write_bytes(bytes(32))
    with pytest.raises(DataError, match=r"\.npz: was written with another key"):
        record()
    key.write_bytes(kept[:7])
    with pytest.raises(DataError, match="key: the key is damaged: it must have 32 bytes; it has 7"):
        record()
    key.unlink()
    with pytest.raises(DataError, match="the key is missing, and without it no person in these records is recognised"):
        record()
    assert not key.exists(), "a new key would begin the count again"
    key.write_bytes(kept)
    assert record().number == 2


def test_identifiers_spelt_differently_are_the_same_person():
    spellings = ["0000007", "7.0", " 7", 7, np.int64(7), 7.0, "7.", "\t07\n"]
    for number, name in enumerate(spellings, start=1):
        assert record(FRAME.iloc[:1], [name]).number == number, repr(name)
    assert record(FRAME.iloc[:1], ["70"]).number == 1


@pytest.fixture(scope="module")
def parts():
    return [part.X for part in load_adult().split(random_state=0)]


def test_rows_without_names_are_known_by_their_values(parts):
    """Six categorical columns, so that most rows occur often."""
    train, validation, test = parts
    assert record(test, None).number == 1
    assert record(test.sample(frac=1, random_state=0).reset_index(drop=True), None).number == 2, "the same file"
    assert record(test.sample(1000, random_state=0).reset_index(drop=True), None).number == 3, "a part of it"
    assert record(validation, None).number == 1, "other rows of the same law"
    assert record(train.reset_index(drop=True), None).number == 1


def test_files_that_cannot_be_told_apart_count_as_the_same():
    """All rows of the smaller file are in the larger one: nothing shows that they are other persons."""
    assert record(pd.DataFrame({"x": np.arange(1000) % 2}), None).number == 1
    assert record(pd.DataFrame({"x": np.repeat([1, 0], 300)}), None).number == 2
    assert record(pd.DataFrame({"x": np.repeat([1, 2], 300)}), None).number == 1


def test_leaving_the_identifier_out_does_not_make_new_persons():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 90, 500), "income": rng.integers(10_000, 90_000, 500)})
    names = [f"p{i}" for i in range(500)]
    assert record(frame, names).number == 1
    assert record(frame.iloc[::-1].reset_index(drop=True), None).number == 2
    assert record(frame.iloc[:300], names[:300]).number == 3
    common = pd.DataFrame({"x": np.arange(1000) % 5})
    assert record(common, [f"q{i}" for i in range(1000)]).number == 1
    assert record(common.iloc[::-1].reset_index(drop=True), None).number == 2

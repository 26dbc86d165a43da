"""The record of releases: a second release of rows is found, and unrelated tables are not taken for one."""

import contextlib
import os
import random
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from damages import flipped
from known_tables import people

import fairflows as ff
from fairflows.certificate import releases
from fairflows.certificate.releases import Recorded, ReleasedRows, check_record, new_release, record_key
from fairflows.stream import files
from fairflows.table import folders
from fairflows.table.persons import Persons
from processes import start

pytestmark = pytest.mark.usefixtures("few_trees", "few_measured")


def release(X, names, model, folder, n_in_all=None):
    """Put a file into its place; return which release of these rows it is."""
    persons = Persons.unnamed(len(X)) if names is None else Persons.of(names)
    rows = ReleasedRows.of(X, persons, record_key(), n_in_all)
    written, place = folder / "written", folder / f"{model}.csv"
    written.write_text(model)
    with new_release([rows], model, written, place) as number:
        written.rename(place)
    return number


def features(n, seed):
    return people(n, seed).drop(columns=["person", "sex", "repaid"])


def numbered(n):
    return np.arange(1, n + 1)


def few_values(n, seed):
    return pd.DataFrame(np.random.default_rng(seed).integers(0, 2, (n, 3)), columns=list("abc"))


def in_order(n, seed):
    """Sorted by what they hold, as many tables are: row 700 of one is like row 700 of another."""
    return features(n, seed).sort_values(["age", "grade"], ignore_index=True)


@pytest.mark.parametrize("make", [features, few_values, in_order])
def test_unrelated_tables_that_number_their_rows_are_new(make, tmp_path):
    """With identifiers 1 to n every one of them counted as released before, in public certificates."""
    numbers = [release(make(600 + seed, seed), numbered(600 + seed), f"m{seed}", tmp_path) for seed in range(30)]
    assert numbers == [1] * 30


@pytest.mark.parametrize("names", [numbered(900), None], ids=["named", "unnamed"])
@pytest.mark.parametrize(
    "change",
    [
        lambda X: X,
        lambda X: X.sample(frac=1, random_state=0),
        lambda X: X[X.columns[::-1]],
        lambda X: X.astype({"age": float, "grade": "int8"}),
        lambda X: X.iloc[200:400],
        lambda X: X.sample(60, random_state=0),
    ],
    ids=["the same", "shuffled", "columns", "types", "a part", "few"],
)
def test_rows_that_are_released_again_are_found(change, names, tmp_path):
    X = features(900, 0)
    assert release(X, names, "one", tmp_path) == 1
    again = change(X)
    with pytest.warns(ff.DataWarning, match=r"Some of these rows were released before \(1 time, last on 20"):
        assert release(again, None if names is None else names[again.index], "two", tmp_path) == 2
    assert release(features(900, 1), names, "three", tmp_path) == 1
    with pytest.warns(ff.DataWarning, match="2 times"):
        assert release(X, names, "four", tmp_path) == 3
    with pytest.warns(ff.DataWarning, match="2 times"):
        assert release(X, names, "one", tmp_path) == 1, "it is the release that it was"


@pytest.mark.parametrize(("by_chance", "found"), [(25, "perhaps"), (32, "none")])
def test_values_are_evidence_beyond_six_standard_errors(by_chance, found):
    """100 values agree: 75 more than by chance is above 6·√125 = 67.1, and 68 more is below 6·√132 = 68.9."""
    nothing, values = np.empty(0, np.uint64), np.arange(100, dtype=np.uint64)
    contents = np.arange(50, dtype=np.uint64)
    known = Recorded(True, 2**64 - 1, "m", 1, "2026-01-01", contents, nothing, values, nothing, nothing)
    new = ReleasedRows("r", True, contents + 99, contents, contents, values, values[:by_chance], nothing, nothing)
    assert known.evidence(new) == found


@pytest.mark.parametrize(("n_distinct", "number"), [(19, 1), (20, 2)])
def test_few_different_rows_are_no_evidence(n_distinct, number, tmp_path):
    """Without identifiers, tables of few different rows may be equal by chance: the owner alone is told."""
    X = pd.DataFrame({"score": np.arange(200) % n_distinct})
    release(X, None, "one", tmp_path)
    with pytest.warns(ff.DataWarning, match="released before"):
        assert release(X, None, "two", tmp_path) == number


@pytest.mark.parametrize("part", [slice(None), slice(200, 500)], ids=["whole", "a part"])
def test_rows_that_come_under_new_names_are_found(part, tmp_path):
    """Pseudonyms that are drawn anew for each release hid the second one."""
    X, rng = features(900, 0), np.random.default_rng(0)
    release(X, numbered(900), "one", tmp_path)
    with pytest.warns(ff.DataWarning, match="released before"):
        assert release(X[part], rng.permutation(10**6)[: len(X[part])], "two", tmp_path) == 2


def test_a_table_with_and_without_names_is_one_table(tmp_path):
    X = features(900, 0)
    release(X, numbered(900), "one", tmp_path)
    with pytest.warns(ff.DataWarning, match="released before"):
        assert release(X, None, "two", tmp_path) == 2


@pytest.mark.parametrize(
    "change",
    [lambda X: X.drop(columns="income"), lambda X: X.assign(more=0.5), lambda X: X.assign(income=X["income"] + 1)],
    ids=["a column less", "a column more", "other values"],
)
def test_persons_whose_columns_changed_are_spoken_of_and_not_stated(change, tmp_path):
    X = features(900, 0)
    release(X, numbered(900), "one", tmp_path)
    with pytest.warns(ff.DataWarning, match="may have been released before, on 20.*Public files do not state it"):
        assert release(change(X), numbered(900), "two", tmp_path) == 1


def test_rows_of_few_values_without_names_are_spoken_of_and_not_stated(tmp_path):
    release(few_values(900, 0), None, "one", tmp_path)
    with pytest.warns(ff.DataWarning, match="may have been released before"):
        assert release(few_values(900, 0).iloc[:300], None, "two", tmp_path) == 1


def test_the_parts_of_a_stream_are_one_table(tmp_path):
    X, key = features(5000, 0), record_key()
    parts = [
        ReleasedRows.of(X[i : i + 700], Persons.of(numbered(5000)[i : i + 700]), key, 5000) for i in range(0, 5000, 700)
    ]
    (tmp_path / "one.csv").write_text("rows")
    with new_release(parts, "one", tmp_path / "one.csv", tmp_path / "one.csv"):
        pass
    with pytest.warns(ff.DataWarning, match="released before"):
        assert release(X, numbered(5000), "two", tmp_path) == 2
    with pytest.warns(ff.DataWarning, match="may have been released before"):
        assert release(X.drop(columns="income"), numbered(5000), "three", tmp_path) == 1


@pytest.mark.parametrize("names", [numbered(5000), None], ids=["named", "unnamed"])
def test_of_a_large_file_rows_with_small_hashes_are_recorded(names, monkeypatch, tmp_path, ledger_of_test):
    monkeypatch.setattr(releases, "MOST_ROWS", 1000)
    X, ids = features(5000, 0), (lambda n: None if names is None else names[:n])
    assert release(X, names, "one", tmp_path) == 1
    [entry] = (ledger_of_test / "releases").glob("*.npz")
    with np.load(entry) as hashes:
        assert 500 < len(hashes["contents"]) <= 1000
    with pytest.warns(ff.DataWarning, match="released before"):
        assert release(X, names, "two", tmp_path) == 2
    with pytest.warns(ff.DataWarning, match="released before"):
        assert release(X[:900], ids(900), "three", tmp_path) == 3  # of which all are recorded
    assert release(features(5000, 1), names, "four", tmp_path) == 1


def test_of_a_large_file_every_moved_person_is_found(monkeypatch, tmp_path):
    monkeypatch.setattr(releases, "MOST_ROWS", 1000)
    X, key = features(5000, 0), record_key()
    cells = np.arange(5000) % 7
    one_moved = np.r_[cells[:-1], cells[-1] + 1]
    for other, number in ((cells, 1), (cells, 1), (one_moved, 2)):
        (tmp_path / "one.csv").write_text("rows")
        rows = ReleasedRows.of(X, Persons.of(numbered(5000)), key, cells=other)
        moved = pytest.warns(ff.DataWarning, match="1 persons have another cell")
        expected = moved if number == 2 else contextlib.nullcontext()
        with expected, new_release([rows], "one", tmp_path / "one.csv", tmp_path / "one.csv") as found:
            assert found == number


def test_what_fails_does_not_count(tmp_path, ledger_of_test):
    X = features(900, 0)
    with pytest.raises(OSError, match="disk"), new_release(
        [ReleasedRows.of(X, Persons.unnamed(900), record_key())], "one", Path(__file__), tmp_path / "one.csv"
    ):  # fmt: skip
        raise OSError("the disk is full")
    assert not [path for path in (ledger_of_test / "releases").iterdir() if path.name != "lock"]
    assert release(X, None, "two", tmp_path) == 1


def test_rows_that_another_record_hashed_are_spoken_of(tmp_path, monkeypatch):
    X = features(900, 0)
    rows = ReleasedRows.of(X, Persons.unnamed(900), record_key())
    monkeypatch.setenv("FAIRFLOWS_LEDGER", str(tmp_path / "new"))
    with pytest.warns(ff.DataWarning, match="is another one than when these rows were read"):  # noqa: SIM117
        with new_release([rows], "one", Path(__file__), tmp_path / "one.csv"):
            pass


@pytest.mark.parametrize("is_placed", [True, False])
def test_what_is_interrupted_counts_where_the_file_lies_in_its_place(is_placed, tmp_path):
    rows = ReleasedRows.of(features(900, 0), Persons.unnamed(900), record_key())
    written, place = tmp_path / "written", tmp_path / "one.csv"
    written.write_text("rows")
    with contextlib.suppress(KeyboardInterrupt), new_release([rows], "one", written, place):
        if is_placed:
            written.rename(place)
        raise KeyboardInterrupt
    with pytest.warns(ff.DataWarning, match="before") if is_placed else contextlib.nullcontext():
        assert release(features(900, 0), None, "two", tmp_path) == 1 + is_placed


def release_and_die(folder, is_placed):
    """Released rows, and a process that is killed before or after the file takes its place."""
    X = features(900, 0)
    (folder / "written").write_text("rows")
    rows = ReleasedRows.of(X, Persons.unnamed(900), record_key())
    with new_release([rows], "one", folder / "written", folder / "one.csv"):
        if is_placed:
            (folder / "written").rename(folder / "one.csv")
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("is_placed", [True, False])
def test_a_process_that_is_killed_has_released_what_lies_in_its_place(is_placed, tmp_path):
    killed = start(release_and_die, tmp_path, is_placed)
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    if not is_placed:
        assert release(features(900, 0), None, "two", tmp_path) == 1
        return
    with pytest.warns(ff.DataWarning, match="released before"):
        assert release(features(900, 0), None, "two", tmp_path) == 2


def test_a_damaged_record_is_named_before_the_work(run, shared, tmp_path, ledger_of_test):
    release(features(900, 0), None, "one", tmp_path)
    (path,) = (ledger_of_test / "releases").glob("*.npz")
    whole, rng = path.read_bytes(), random.Random(0)
    for _ in range(200):
        path.write_bytes(flipped(whole, rng))
        with contextlib.suppress(ff.DataError):  # and no other error; bytes without meaning may change
            check_record()
    path.write_bytes(whole[:100])
    people(900, 1).to_csv(tmp_path / "later.csv", index=False)
    roles = ["--sensitive", "sex", "--id", "person"]
    for words in (["encode", shared, tmp_path / "later.csv", "-o", tmp_path / "z.csv"],
                  ["share", tmp_path / "later.csv", *roles, "-o", tmp_path / "out"]):  # fmt: skip
        err = run(*words, ends=2)[2]
        assert f"{path.name}: cannot be read" in err
        assert "fitting" not in err
    path.write_bytes(whole)
    (ledger_of_test / "key").unlink()
    assert "the key is missing" in run(*words, ends=2)[2]


def table(n=1200, seed=0):
    return ff.Table(people(n, seed).drop(columns="income"), sensitive="sex", label="repaid", identifier="person")


def releases_of(folder):
    return ff.Certificate.read(folder / "certificate.json").releases


def test_a_share_that_fails_while_it_is_saved_does_not_count(tmp_path, monkeypatch):
    one, two = (ff.share(table(), quick=True, target=0.4) for _ in range(2))
    with monkeypatch.context() as patch:
        patch.setattr(folders, "_take_place", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(ff.DataError, match="out: cannot be written: No space left on device"):
            one.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    two.save(tmp_path / "out")
    assert releases_of(tmp_path / "out") == 1


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A result whose record of releases no test shares."""
    folder = tmp_path_factory.mktemp("shared")
    ff.share(table(), quick=True, target=0.4).save(folder / "out")
    return folder / "out"


def test_rows_that_encode_released_are_recorded(run, shared, tmp_path):
    """They came later, and are then shared as a table of their own."""
    rows = people(1200, 1).drop(columns="income")
    rows.to_csv(tmp_path / "later.csv", index=False)
    for target in ("z.csv", "again.csv"):
        run("encode", shared, tmp_path / "later.csv", "-o", tmp_path / target, ends=0)
    words = ["share", tmp_path / "later.csv", "--sensitive", "sex", "--label", "repaid", "--id", "person", "--quick"]
    run(*words, "--target", "0.4", "-o", tmp_path / "out", ends=0)
    assert releases_of(tmp_path / "out") == 2, "twice by the same model is once"


def test_all_rows_of_a_sampled_file_are_recorded(run, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BATCH_ROWS", 700)
    rows = people(3000).drop(columns="income")
    rows.to_csv(tmp_path / "all.csv", index=False)
    words = ["--sensitive", "sex", "--label", "repaid", "--id", "person", "--quick", "--target", "0.4"]
    run("share", tmp_path / "all.csv", *words, "--sample", "900", "-o", tmp_path / "one", ends=0)
    is_sampled = Persons.of(rows["person"]).uniform(b"sample: 0", "sample") < 900 / 3000
    others = rows[~is_sampled].iloc[:400]
    for part, is_part in ((others, True), (people(400, 2).drop(columns="income"), False)):
        part.assign(person=part["person"] if is_part else numbered(400)).to_csv(tmp_path / "part.csv", index=False)
        run("share", tmp_path / "part.csv", *words, "-o", tmp_path / "two", "--replace")
        assert releases_of(tmp_path / "two") == 1 + is_part


def save_one(folder, place):
    ff.share(table(), quick=True, target=0.4).save(folder / place)


def test_two_releases_at_once_are_two(tmp_path):
    started = [start(save_one, tmp_path, place) for place in ("one", "two")]
    for process in started:
        process.join()
        assert process.exitcode == 0
    assert sorted(releases_of(tmp_path / place) for place in ("one", "two")) == [1, 2]


def share_into(words):
    import sys

    from fairflows.cli.main import main

    sys.argv = ["fairflows", *words]
    main()


def test_of_two_shares_into_one_new_folder_one_is_refused_before_its_work(run, tmp_path):
    """Both ended well, and the model and the key of one of them were overwritten."""
    people(1200).to_csv(tmp_path / "loans.csv", index=False)
    words = [
        "share",
        tmp_path / "loans.csv",
        "--sensitive",
        "sex",
        "--id",
        "person",
        "--quick",
        "--target",
        "0.4",
        "-o",
        tmp_path / "out",
    ]
    said = [tmp_path / "said one", tmp_path / "said two"]
    started = [start(share_into, [str(word) for word in words], output=path) for path in said]
    for process in started:
        process.join()
    assert sorted(process.exitcode for process in started) == [0, 2]
    loser = next(path for path, process in zip(said, started, strict=True) if process.exitcode == 2).read_text()
    assert "fitting" not in loser
    assert "out: another process is writing it; wait for it, or choose another place." in loser
    run("verify", tmp_path / "out", tmp_path / "loans.csv", ends=0)

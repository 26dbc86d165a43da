"""watch and encode --watch, as they are typed: exit codes, the notice that receivers see, and files of every kind."""

import json
import shutil

import numpy as np
import pytest
from known_tables import people

from fairflows.cli import main as command

pytestmark = pytest.mark.usefixtures("few_trees")
WORDS = ["--sensitive", "sex", "--label", "repaid", "--id", "person", "--quick", "--target", "0.3", "--output", "cell"]


@pytest.fixture(scope="module")
def made(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    people(1500, 0).to_csv(folder / "loans.csv", index=False)
    run("share", folder / "loans.csv", *WORDS, "-o", folder / "out", ends=0)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    shutil.copytree(made / "out", tmp_path / "out")
    return tmp_path


def later(seed, n=400):
    return people(n, seed).drop(columns="repaid")


def apart(seed):
    """Persons whose columns tell their group, in numbers that the table had."""
    rows = later(seed, 1500)
    is_man = rows["sex"] == "m"
    return rows.assign(grade=np.where(is_man, 9, 0), income=np.where(is_man, 45.0, 12.0))


def test_persons_of_the_same_population_change_no_lamp(run, folder):
    later(1).to_csv(folder / "new.csv", index=False)
    out = run("watch", folder / "out", folder / "new.csv", "--date", "2026-10-01", ends=0)[1].splitlines()
    assert [line.split()[:2] for line in out[:2]] == [["law", "OK"], ["bound", "OK"]]
    assert out[2].startswith("now    Δ between 0.000 and ")
    assert "400 persons, since 2026-10-01" in out[2]
    state = json.loads((folder / "out" / "watch.json").read_text())
    assert np.sum(state["counts"]) == 400
    code, out, err = run("watch", folder / "out", folder / "new.csv", "--date", "2026-10-02", notices="always")
    assert (code, "counted before, on 2026-10-01" in err) == (0, True)
    assert json.loads((folder / "out" / "watch.json").read_text()) == state


def test_a_refuted_bound_is_told_to_receivers_and_named_by_the_next_certificate(run, made, folder):
    apart(2).rename(columns={"sex": "gender"}).to_csv(folder / "new.csv", index=False)
    words = ["watch", folder / "out", folder / "new.csv", "--groups-from", "gender", "--date", "2026-10-01"]
    said = json.loads(run(*words, "--json", ends=4)[1])
    assert (said["law"], said["bound"], said["refuted"]) == ("MOVED", "REFUTED", "2026-10-01")
    assert said["last"]["lower"] > said["certified"]
    checked = run("check", folder / "out", ends=1)[1]
    assert "FAILED   notice" in checked
    assert "2026-10-01: Later persons refuted the bound on persons to come, Δ ≤ " in checked
    later(3).to_csv(folder / "more.csv", index=False)
    run("watch", folder / "out", folder / "more.csv", "--date", "2026-11-01", ends=4)
    notices = json.loads((folder / "out" / "certificate.notices.json").read_text())["notices"]
    assert [notice["date"] for notice in notices] == ["2026-10-01"], "one notice, however often one looks"
    run("share", made / "loans.csv", *WORDS, "-o", folder / "out", "--replace", ends=0)
    named = json.loads((folder / "out" / "certificate.json").read_text())["notices"]
    assert len(named) == 1
    assert named[0].startswith("2026-10-01: Later persons refuted")
    assert not (folder / "out" / "watch.json").exists()
    run("check", folder / "out", ends=0)


def test_notices_of_another_certificate_do_not_pass(run, folder):
    (folder / "out" / "certificate.notices.json").write_text(f'{{"format": 1, "certificate": "{"0" * 64}"}}')
    assert "about another certificate" in run("check", folder / "out", ends=1)[1]
    (folder / "out" / "certificate.notices.json").write_text("{}")
    run("check", folder / "out", ends=2)


def test_encode_and_watch_in_one_go(run, folder):
    later(4).to_parquet(folder / "new.parquet")
    out = run("encode", folder / "out", folder / "new.parquet", "-o", folder / "z.csv", "--watch", ends=0)[1]
    assert out.startswith("400 rows written")
    assert "law    OK" in out
    apart(5).to_parquet(folder / "new.parquet")
    words = ["encode", folder / "out", folder / "new.parquet", "-o", folder / "z.csv", "--watch", "--json"]
    assert json.loads(run(*words, ends=4)[1])["bound"] == "REFUTED"


def test_rows_without_a_group_are_said_and_not_counted(run, folder):
    rows = later(6)
    rows.loc[:49, "sex"] = None
    rows.to_csv(folder / "new.csv", index=False)
    command._warned.clear()
    err = run("watch", folder / "out", folder / "new.csv", notices="always", ends=0)[2]
    assert "50 rows without a group or a label are not counted" in err
    rows.assign(sex=None).to_csv(folder / "new.csv", index=False)
    assert "no row has a group" in run("watch", folder / "out", folder / "new.csv", ends=2)[2]
    rows.drop(columns="age").to_csv(folder / "new.csv", index=False)
    assert "'age'" in run("watch", folder / "out", folder / "new.csv", ends=2)[2]
    rows.drop(columns="sex").to_csv(folder / "new.csv", index=False)
    assert "'gender'" in run("watch", folder / "out", folder / "new.csv", "--groups-from", "gender", ends=2)[2]


def test_values_that_no_group_was_merged_from_are_not_counted(run, tmp_path):
    """One person of a new combination made the whole night's file bad input."""
    rows = people(1500, 7).assign(town=np.where(np.arange(1500) < 80, "z", "x"))
    rows.to_csv(tmp_path / "loans.csv", index=False)
    words = ["--sensitive", "sex,town", "--merge-small", 100, *WORDS[2:]]
    run("share", tmp_path / "loans.csv", *words, "-o", tmp_path / "out", ends=0)
    rows = later(8, 200).assign(town=np.where(np.arange(200) < 3, "new", "x"))
    rows.to_csv(tmp_path / "new.csv", index=False)
    command._warned.clear()
    _, out, err = run("watch", tmp_path / "out", tmp_path / "new.csv", notices="always", ends=0)
    assert "3 rows of groups that the table did not have are not counted" in err
    assert "197 persons, since" in out
    rows.assign(town="new").to_csv(tmp_path / "new.csv", index=False)
    assert "no row has a group" in run("watch", tmp_path / "out", tmp_path / "new.csv", ends=2)[2]

"""watch through the public call: alarms of quiet and of drifting streams, who is counted, and the state in its file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta

import fairflows as ff
from fairflows import DataError, DataWarning
from fairflows.table.keys import Key
from fairflows.table.persons import Persons
from fairflows.watching import state as state_file
from fairflows.watching.state import month_of

pytestmark = pytest.mark.filterwarnings("ignore:Values outside the training range")
KEY = Key(range(32))


def rows(rng: np.random.Generator, n: int, name: str, *, gap: float = 0.0, shift: float = 0.0) -> pd.DataFrame:
    """Persons of two groups with one column; of g1 a share `gap` more is above the middle, of both a share `shift`."""
    group = np.where(np.arange(n) < n // 2, "g0", "g1")
    above = rng.random(n) < 0.5 + shift + gap * (group == "g1")
    return pd.DataFrame(
        {"x": (rng.random(n) + above) / 2, "group": group, "person": [f"{name}{i}" for i in range(n)]}
    ).sample(frac=1, random_state=rng.integers(2**31))


def table(frame: pd.DataFrame, **settings) -> ff.Table:
    return ff.Table(frame, sensitive="group", identifier="person", **settings)


def fitted(rng: np.random.Generator, n: int = 600, n_cells: int = 8, **settings) -> ff.Release:
    tree = ff.FairTree(identifier="person", key=KEY)
    return ff.Release(tree, output="cell", n_cells=n_cells, **settings).fit(table(rows(rng, n, "fitted ")))


@pytest.fixture(scope="module")
def release() -> ff.Release:
    return fitted(np.random.default_rng(1), 2000)


def true_distance(release: ff.Release) -> float:
    """The exact Δ of persons whose column is uniform: the masses of the leaves lie between thresholds."""
    n, tree = 4_000, release.encoder_
    grid, masses = pd.DataFrame({"x": (np.arange(n) + 0.5) / n}), []
    for group in ("g0", "g1"):
        cells = tree.cells(tree.read(grid, np.repeat(group, n), Persons.newly_named(n)))
        masses.append(np.bincount(cells, minlength=release.n_cells_) / n)
    return float(np.abs(masses[0] - masses[1]).sum() / 2)


def lower_limit(alarms: int, n: int) -> float:
    return float(beta.ppf(0.01, alarms, n - alarms + 1)) if alarms else 0.0


@pytest.mark.filterwarnings("ignore::fairflows.exceptions.DataWarning")
def test_quiet_streams_raise_no_more_alarms_than_alpha():
    """Each stream has a release of its own; its persons come from the same population, and Δ is exactly the bound."""
    alarms = {"law": 0, "bound": 0}
    for run in range(20):
        rng = np.random.default_rng([2, run])
        release = fitted(rng, 300, 4)
        watched = ff.watch(release, bound=true_distance(release) + 1e-3, alpha=0.2)
        for day in range(8):
            watched.update(table(rows(rng, 150, f"{day} ")), date=f"2026-{1 + day // 2:02d}-{1 + day % 2:02d}")
        alarms["law"] += watched.moved is not None
        alarms["bound"] += watched.refuted is not None
    assert max(lower_limit(n, 20) for n in alarms.values()) <= 0.2, alarms


def test_another_population_moves_the_law_and_not_the_bound(release):
    rng, watched = np.random.default_rng(3), ff.watch(release)
    for day in range(1, 4):
        watched.update(table(rows(rng, 600, f"{day} ", shift=0.2)), date=f"2026-10-{day:02d}")
    assert watched.lamps == {"law": "MOVED", "bound": "OK"}
    assert "Cut again" in repr(watched).splitlines()[0]
    assert watched.last.since == "2026-10-01"
    for month in (11, 12):
        watched.update(table(rows(rng, 300, f"{month} ", shift=0.2)), date=f"2026-{month}-01")
    assert watched.last.since == "2026-10-01", "the month of the alarm"


def test_groups_further_apart_than_the_bound_refute_it(release):
    rng, watched = np.random.default_rng(4), ff.watch(release)
    for day in range(1, 9):
        watched.update(table(rows(rng, 600, f"{day} ", gap=0.4)), date=f"2026-10-{day:02d}")
    assert watched.lamps["bound"] == "REFUTED"
    assert watched.bound < watched.last.lower < 0.4 < watched.last.upper


def test_a_start_with_every_month_finds_a_late_change_sooner(release):
    def evidence(month_of_change: int) -> float:
        rng, watched = np.random.default_rng(5), ff.watch(release)
        watched.update(table(rows(rng, 20_000, "quiet ")), date="2026-01-01")
        return watched.update(
            table(rows(rng, 1_000, "late ", shift=0.15)), date=f"2026-{month_of_change:02d}-02"
        ).last.law

    assert evidence(1) < np.log(100) < evidence(2)


def test_only_new_persons_of_known_groups_count_once(release):
    rng = np.random.default_rng(6)
    mine, new = rows(np.random.default_rng(1), 2000, "fitted "), rows(rng, 100, "new ")
    others = rows(rng, 7, "other ").assign(group="g2")
    watched = ff.watch(release, alpha=0.05)
    watched.update(table(pd.concat([new, new.iloc[:20], mine.iloc[:30], others])), date="2026-10-01")
    assert sum(watched.last.persons.values()) == 100
    assert watched.last.not_counted == {
        "rows of other groups": 7,
        "persons of the table": 30,
        "further rows of a person": 20,
    }
    assert "not counted: 7 rows of other groups, 30 persons of the table" in repr(watched)
    watched.update(table(pd.concat([new.iloc[:60], rows(rng, 40, "newer ")])), date="2026-10-02")
    assert watched.last.not_counted == {"persons who were counted before": 60}
    assert watched.state["looks"][-1]["persons"] == watched.last.persons
    assert np.sum(watched.state["counts"]) == 140
    assert watched.alpha == pytest.approx(0.05 * 6 / np.pi**2)


def test_a_table_that_came_before_is_not_counted_again(release):
    part = table(rows(np.random.default_rng(7), 100, "again "))
    watched = ff.watch(release).update(part, date="2026-10-01")
    before = watched.state
    with pytest.warns(DataWarning, match="was counted before, on 2026-10-01, and is not counted again"):
        watched.update(part, date="2026-10-02")
    assert watched.state == before


def test_a_batch_that_lacks_a_group_joins_the_next(release):
    rng, watched = np.random.default_rng(8), ff.watch(release)
    both = rows(rng, 200, "a ")
    one = both[both["group"] == "g0"]
    grouping = table(both).grouping
    watched.update(table(one, cuts=grouping), date="2026-10-01")
    assert (np.sum(watched.state["counts"]), np.sum(watched.state["pending"])) == (0, 100)
    assert "waiting 100 persons" in repr(watched)
    watched.update(table(both[both["group"] == "g1"], cuts=grouping), date="2026-10-02")
    assert (np.sum(watched.state["counts"]), np.sum(watched.state["pending"])) == (200, 0)
    assert "waiting" not in repr(watched)
    assert watched.state["starts"][0]["V"] == [50.0]


def test_the_state_goes_on_and_holds_no_person(release):
    rng, watched = np.random.default_rng(9), ff.watch(release)
    watched.update(table(rows(rng, 400, "secret ")), date="2026-10-01")
    text = json.dumps(watched.state)
    assert "secret" not in text
    again = ff.watch(release, json.loads(text))
    assert again.state == watched.state
    part = table(rows(rng, 250, "next "))  # one batch, so that nothing is dealt at random
    assert again.update(part, date="2026-11-01").state == watched.update(part, date="2026-11-01").state
    assert [start["number"] for start in again.state["starts"]] == [1, 2]


def test_two_machines_together_are_one_watch(release):
    rng = np.random.default_rng(10)
    parts = [table(rows(rng, 250, f"{i} ", gap=0.1)) for i in range(4)]
    days = ["2026-10-01", "2026-10-02", "2026-12-01", "2026-12-02"]
    one, other = ff.watch(release), ff.watch(release)
    one.update(parts[0], date=days[0])
    for part, day in zip(parts[1:], days[1:], strict=True):
        other.update(part, date=day)
    both = one.merge(other)
    assert both.state["counts"] == (np.array(one.state["counts"]) + np.array(other.state["counts"])).tolist()
    assert [start["number"] for start in both.state["starts"]] == [1, 3]
    assert (
        both.state["starts"][1]["before"]
        == (np.array(one.state["counts"]) + np.array(other.state["starts"][1]["before"])).tolist()
    )
    together = ff.watch(release)
    for part, day in zip(parts, days, strict=True):
        together.update(part, date=day)
    assert both.state["counts"] == together.state["counts"]
    assert both.last.law == pytest.approx(together.last.law), "which counts alone decide"
    for name in ("V", "D"):
        np.testing.assert_allclose(both.state["starts"][0][name], together.state["starts"][0][name])
    with pytest.raises(DataError, match="counted by both"):
        both.merge(one)
    with pytest.raises(DataError, match="their bound differs"):
        one.merge(ff.watch(release, bound=0.5))


def test_several_rows_of_a_person_count_as_a_random_row():
    rng = np.random.default_rng(11)
    frame = rows(rng, 1500, "fitted ")
    twice = pd.concat([frame, frame.iloc[:700].assign(x=rng.random(700))])
    tree = ff.FairTree(identifier="person", key=KEY)
    release = ff.Release(tree, output="cell", n_cells=4, most_rows=2).fit(table(twice))
    new = rows(rng, 1000, "new ")
    watched = ff.watch(release).update(table(new), date="2026-10-01")
    assert 420 < np.sum(watched.state["counts"]) < 580, "with one of at most two rows a person counts half of the time"
    assert watched.last.not_counted == {"further rows of a person": 1000 - int(np.sum(watched.state["counts"]))}


def test_persons_without_names_are_watched():
    rng = np.random.default_rng(12)
    frame = rows(rng, 800, "x").drop(columns="person")
    release = ff.Release(output="cell", n_cells=4).fit(ff.Table(frame, sensitive="group"))
    watched = ff.watch(release)
    watched.update(ff.Table(rows(rng, 300, "y").drop(columns="person"), sensitive="group"), date="2026-10-01")
    assert np.sum(watched.state["counts"]) == 300
    with pytest.raises(DataError, match="A table was counted by both"):  # no name tells that its persons are the same
        watched.merge(watched)
    with pytest.raises(DataError, match="fitted to 800 of these rows"):
        watched.update(ff.Table(frame, sensitive="group"), date="2026-10-02")


def test_settings_and_days_are_checked(release, tmp_path):
    rng, file = np.random.default_rng(13), tmp_path / "watch.json"
    watched = ff.watch(release, file)
    assert repr(watched) == "Nobody was counted yet."
    watched.update(table(rows(rng, 100, "a ")), date="2026-10-05")
    again = r"or remove .*watch\.json and count all later persons anew"
    with pytest.raises(DataError, match=rf"before the last update, 2026-10-05; .* \(date='2026-10-05'\), {again}"):
        watched.update(table(rows(rng, 100, "b ")), date="2026-10-04")
    with pytest.raises(DataError, match="date must be a day"):
        watched.update(table(rows(rng, 100, "b ")), date="tomorrow")
    with pytest.raises(DataError, match="was begun with alpha = 0.01; got 0.02"):
        ff.watch(release, file, alpha=0.02)
    with pytest.raises(DataError, match="is the watch of another release"):
        ff.watch(fitted(rng, 700, 8), file, bound=watched.bound)
    with pytest.raises(DataError, match="counts are not of the groups and cells"):
        ff.watch(fitted(rng, 400, 4), file, bound=watched.bound)
    with pytest.raises(DataError, match=r"alpha must be in \(0, 1\); got 0"):
        ff.watch(release, alpha=0)
    file.unlink()
    assert ff.watch(release, file).update(table(rows(rng, 90, "b ")), date="2026-10-04").persons == 90
    with pytest.raises(DataError, match=r"update takes a Table, .* got DataFrame"):
        watched.update(rows(rng, 100, "b "))
    with pytest.raises(DataError, match=r"merge takes a Watch.* got dict"):
        watched.merge(watched.state)
    with pytest.raises(DataError, match="takes a fitted Release of FairTree"):
        ff.watch(ff.FairTree())
    for text in ("[]", '{"format": 9}', "{", '{"format": 1, "seen": 0}'):
        file.write_text(text)
        with pytest.raises(DataError, match="watch.json"):
            ff.watch(release, file)


def test_the_file_remembers_persons_and_two_processes_do_not_lose_a_batch(release, tmp_path):
    rng, file = np.random.default_rng(14), tmp_path / "watch.json"
    one, other = ff.watch(release, file), ff.watch(release, file)
    first = rows(rng, 100, "a ")
    one.update(table(first), date="2026-10-01")
    other.update(table(rows(rng, 100, "b ")), date="2026-10-01")
    found = ff.watch(release, file)
    assert np.sum(found.state["counts"]) == 200
    assert "a 1" not in file.read_text()
    beside = file.with_suffix(".persons")
    assert beside.stat().st_mode & 0o777 == 0o600
    assert beside.stat().st_size == 200 * 8
    found.update(table(pd.concat([first, rows(rng, 10, "c ")])), date="2026-10-02")
    assert found.last.not_counted == {"persons who were counted before": 100}
    beside.write_bytes(b"")
    with pytest.raises(DataError, match="missing or cut off"):
        ff.watch(release, file)


KILLED = """
import os, signal, sys
from contextlib import contextmanager
import pandas as pd
import fairflows as ff
from fairflows.watching import state
whole, when = state.new_file, sys.argv[3]

@contextmanager
def killed(target):
    with whole(target) as side:
        yield side
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)

state.new_file = killed
release, frame = ff.load(sys.argv[1] + "/model"), pd.read_parquet(sys.argv[1] + "/new.parquet")
ff.watch(release, sys.argv[2]).update(ff.Table(frame, sensitive="group", identifier="person"), date="2026-10-02")
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_neither_loses_nor_doubles_a_batch(release, tmp_path, when):
    rng, file = np.random.default_rng(15), tmp_path / "watch.json"
    ff.save(release, tmp_path / "model")
    new = rows(rng, 100, "b ").reset_index(drop=True)
    new.to_parquet(tmp_path / "new.parquet")
    ff.watch(release, file).update(table(rows(rng, 100, "a ")), date="2026-10-01")
    words = [sys.executable, "-c", KILLED, str(tmp_path), str(file), when]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": str(Path(ff.__file__).parents[1])}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert file.with_suffix(".persons").stat().st_size == 200 * 8, "persons were appended before"
    again = ff.watch(release, file)
    assert np.sum(again.state["counts"]) == (100 if when == "before" else 200)
    if when == "before":
        again.update(table(new), date="2026-10-03")
        assert again.last.not_counted == {}
    else:
        with pytest.warns(DataWarning, match="counted before"):
            again.update(table(new), date="2026-10-03")
    assert np.sum(again.state["counts"]) == 200
    assert file.with_suffix(".persons").stat().st_size == 200 * 8
    assert len(ff.watch(release, file)._seen) == 200


def test_a_state_keeps_so_many_looks(release, monkeypatch):
    from fairflows.watching import watch as watching

    monkeypatch.setattr(watching, "LOOKS_KEPT", 3)
    rng, watched = np.random.default_rng(16), ff.watch(release)
    for day in range(1, 6):
        watched.update(table(rows(rng, 20, f"{day} ")), date=f"2026-10-{day:02d}")
    assert [look["date"] for look in watched.state["looks"]] == ["2026-10-03", "2026-10-04", "2026-10-05"]


def test_the_picture_shows_the_bound_and_the_days_of_alarms(release):
    rng, watched = np.random.default_rng(17), ff.watch(release)
    for day in range(1, 5):
        watched.update(table(rows(rng, 600, f"{day} ", gap=0.4)), date=f"2026-10-{day:02d}")
    axes = watched.plot()
    assert {text.get_text() for text in axes.texts} == {"MOVED", "REFUTED"}
    assert watched.bound in [line.get_ydata()[0] for line in axes.lines]
    assert ff.watch(release).plot() is not None
    plt.close("all")


def test_months_are_counted_through():
    assert month_of("2027-01-03") - month_of("2026-12-31") == 1
    assert state_file.LOOKS_KEPT == 1_000

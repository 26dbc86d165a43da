"""What a shared table is worth: known truths, columns without and with information, gaps, labels of every kind."""

import json

import numpy as np
import pandas as pd
import pytest
from known_encoders import FixedCells
from sklearn.base import clone

import fairflows as ff
from fairflows import DataError, usefulness
from fairflows.paper.baselines import RawFeatures
from fairflows.worth import likeness
from fairflows.worth.label_worth import gap_between

pytestmark = [
    pytest.mark.usefixtures("few_trees"),
    # The persons that a release was fitted to are asked for once more here.
    pytest.mark.filterwarnings("ignore:.*They keep the cell that they have there"),
]


# The cell is whether `told` is above its middle, and says nothing of the other columns.
HALVES = FixedCells(lambda X: (X["told"] >= 50).to_numpy().astype(np.intp))


def table(n: int, seed: int) -> ff.Table:
    rng = np.random.default_rng(seed)
    told = rng.integers(0, 100, n)
    copied = rng.choice(list("abcd"), n)
    data = {
        "told": told,
        "noise": rng.normal(size=n),
        "copied": copied,
        "copy": copied,
        "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 365, n), unit="D"),
        "gaps": np.where(told >= 50, np.nan, 1.0),
        "label": np.where(rng.random(n) < 0.9, told >= 50, told < 50).astype(int),
        "group": rng.choice(["f", "m", "x"], n),
        "person": np.arange(n) + 1_000_000 * seed,
    }
    return ff.Table(data, sensitive="group", label="label", identifier="person")


@pytest.fixture(scope="module")
def found():
    train, test = table(3_000, 0), table(2_000, 1)
    release = ff.Release(HALVES).fit(train)
    return usefulness(release, train, test)


def told(found, name):
    return next(line for line in found.columns if line.name == name)


def test_what_the_cell_holds_is_told(found):
    """Quarters of `told`: with its half known, a guess is right in one of two.

    Rows are drawn afresh in every run. The share of right guesses among 2,000 rows has a standard deviation of .011.
    """
    line = told(found, "told")
    assert line.majority == pytest.approx(0.25, abs=0.03)
    assert line.released == pytest.approx(0.5, abs=0.07)
    assert line.told == pytest.approx(1 / 3, abs=0.09)
    assert told(found, "gaps").told > 0.9, "a missing value is a value"


def test_what_the_cell_does_not_hold_is_not_told(found):
    for name in ("noise", "copied", "copy", "day"):
        assert told(found, name).released == pytest.approx(told(found, name).majority, abs=0.07)
    assert found.sensitive.majority == pytest.approx(1 / 3)
    assert found.sensitive.released == pytest.approx(1 / 3, abs=0.07)


def test_the_label_is_judged_against_true_labels(found):
    """Drawn labels follow the cell with probability .9, and so do true ones: a prediction is right in nine of ten."""
    assert found.label.name == "label"
    assert set(found.label.rules) == {"raw", "trained", "score", "row"}
    for rule in found.label.rules.values():
        assert rule.right == pytest.approx(0.9, abs=0.03)
        assert rule.auc == pytest.approx(0.9, abs=0.04)
        assert rule.gap < 0.1
    assert found.label.blind == pytest.approx(0.5, abs=0.04)
    for right in found.label.best.values():
        assert right == pytest.approx(0.9, abs=0.03), "the groups are alike, so that hiding them costs nothing"


@pytest.mark.parametrize(("are_rates", "n_small"), [(True, 40), (False, 40), (True, 400)])
def test_the_interval_of_a_gap_covers_the_truth(are_rates, n_small):
    """A true difference of .2 in one group of few; half of the width must cover it too rarely."""
    rng, group = np.random.default_rng(0), np.repeat(["few", "many"], [n_small, 800])
    mean, held = np.where(group == "few", 0.4, 0.6), []
    for _ in range(600):
        values = rng.random(len(group)) < mean if are_rates else mean + rng.normal(size=len(group))
        gap, chance = gap_between(values[:, None].astype(float), group, ["few", "many"], are_rates=are_rates)
        held.append([abs(gap - 0.2) <= width for width in (chance, chance / 2)])
    whole, half = np.mean(held, axis=0)
    assert whole >= 0.93
    assert half <= 0.8


def test_columns_come_most_told_first_and_as_plain_values(found):
    assert [line.told for line in found.columns] == sorted((line.told for line in found.columns), reverse=True)
    plain = json.loads(json.dumps(found.to_dict()))
    assert {line["name"] for line in plain["columns"]} == {"told", "noise", "copied", "copy", "day", "gaps"}
    frame = found.to_frame()
    assert list(frame) == ["released", "majority", "told"]
    assert frame.loc["group", "told"] < 0.1
    assert "To train on" in repr(found)
    assert "To decide by" in repr(found)


def test_any_release_can_be_asked():
    train, test = ff.load_adult().take(range(0, 45_222, 6)).split(validation=0)
    cells = ff.Release.around(RawFeatures().fit(train), train, n_cells=8, output="cell")
    assert usefulness(cells, train, test).sensitive.told > 0.1, "cells of plain rows tell the group"


def test_wrong_arguments_are_named():
    train, test = table(300, 0), table(300, 1)
    release = ff.Release(HALVES).fit(train)
    with pytest.raises(DataError, match="most_measured must be at least 1; got 0"):
        usefulness(release, train, test, most_measured=0)
    other = ff.Table(test.X.drop(columns="copy"), sensitive=test.a)
    with pytest.raises(DataError, match="same columns"):
        usefulness(release, train, other)
    with pytest.raises(DataError, match="others must be"):
        usefulness(clone(HALVES).fit(train), train)


def test_shared_rows_beside_real_ones(found):
    rows = found.rows
    assert set(rows.columns) == {"told", "noise", "copied", "copy", "day", "gaps", "label"}
    assert max(rows.columns.values()) < 0.1
    assert rows.pairs[0] == pytest.approx(rows.pairs[1], abs=0.05)
    assert rows.k_marginal[0] == pytest.approx(rows.k_marginal[1], abs=0.08)
    assert rows.detection > 0.5
    assert [shape["name"] for shape in rows.shapes] == ["told", "noise", "copied", "copy", "day", "gaps", "label"]
    assert sum(rows.shapes[2]["real"]) == pytest.approx(1)
    assert rows.shapes[4]["values"][0].startswith("2024-01-0"), "a day, not a number of seconds"


def test_rows_that_are_nothing_like_the_real_ones_are_found_out():
    train, test = table(1_000, 0), table(500, 1)
    release = ff.Release(HALVES).fit(train)
    drawn = [release.transform(part).assign(noise=100.0, copied="a") for part in (train, test)]
    rows = usefulness(release, train, test, encoded=tuple(drawn)).rows
    assert rows.columns["copied"] > 0.7
    assert rows.detection < 0.05
    assert rows.pairs[0] < rows.pairs[1] - 0.2


def test_a_label_of_numbers_is_judged_in_the_words_of_numbers():
    made = []
    for part in (table(3_000, 0), table(2_000, 1)):
        rows = part.X.assign(pay=100.0 * part.X["told"] + np.arange(len(part)) % 10, sex=part.a, who=part.identifier)
        made.append(ff.Table(rows, sensitive="sex", label="pay", identifier="who", drop="told"))
    release = ff.Release(n_cells=4).fit(made[0])
    found = usefulness(release, *made)
    assert found.label.classes == ()
    assert found.label.rules["trained"].error < found.label.blind
    assert found.label.rules["trained"].auc is None
    assert 0.5 < found.label.best["0"] < 0.9, "by the half that the gaps tell"
    assert "variance of pay" in repr(found)


def test_a_release_of_all_rows_is_measured_by_a_second_one():
    whole = table(1_200, 3)
    release = ff.Release(HALVES)
    release.fit_transform(whole)
    found = usefulness(release, whole)
    assert found.n_learnt == 960
    assert found.n == 240


@pytest.mark.parametrize(
    ("unit", "first", "last"), [("s", "1582-10-04", "9999-12-31"), ("ns", "1700-01-01", "2200-01-01")]
)
def test_ranges_of_dates_begin_on_days_of_any_century(unit, first, last):
    ends = np.array([first, last], "datetime64[s]").astype(np.int64)
    seconds = pd.Series(np.linspace(*ends, 10_001).astype(np.int64))
    days = seconds.astype("datetime64[s]").astype(f"datetime64[{unit}]")
    starts = likeness._shape("day", days, days)["values"]
    assert all(len(start) == 10 for start in starts)
    assert first < starts[0] < starts[-1] < last
    lasts = likeness._shape("stay", seconds.astype("timedelta64[s]"), seconds.astype("timedelta64[s]"))["values"]
    assert all(" days" in value for value in lasts)

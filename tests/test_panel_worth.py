"""What shared histories are worth beside real ones: known laws of rows that follow each other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows.table.panels import Panels
from fairflows.worth.panel_worth import panel_worth

pytestmark = pytest.mark.usefixtures("few_trees")

RHO, STAYS = 0.9, 0.8


def chains(n: int, seed: int, mean_rows: float = 3.0) -> pd.DataFrame:
    """Numbers with autocorrelation 0.9, states that stay with probability 0.8, a label that follows from the state."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(n), 1 + rng.poisson(mean_rows, n))
    rows = pd.DataFrame({"who": who, "day": 0, "x": 0.0, "state": 0})
    place = rows.groupby("who").cumcount().to_numpy()
    x, state, day = rng.normal(size=len(who)), rng.integers(0, 2, len(who)), np.zeros(len(who), int)
    step, moves = rng.choice([1, 1, 3], len(who)), rng.random(len(who)) > STAYS
    for i in np.flatnonzero(place):
        x[i] = RHO * x[i - 1] + (1 - RHO**2) ** 0.5 * x[i]
        state[i], day[i] = np.where(moves[i], 1 - state[i - 1], state[i - 1]), day[i - 1] + step[i]
    rows = rows.assign(day=day, x=x, state=np.array(["a", "b"])[state])
    return rows.assign(ill=np.where(rng.random(len(who)) < 0.9, state, 1 - state), group=np.where(who % 2, "f", "m"))


def panels(rows: pd.DataFrame, **roles) -> Panels:
    roles = {"sensitive": "group", "identifier": "who", "label": "ill", "time": "day"} | roles
    return Panels.of(ff.Table(rows, **roles))


class Drawn:
    """What a release has drawn for its persons."""

    def __init__(self, rows: pd.DataFrame):
        self.rows = rows.drop(columns=["who", "group"])
        self.rows.insert(0, "person", rows["who"] + 1)

    def read(self, table):
        return table

    def cells(self, rows):
        return np.zeros(len(rows), dtype=np.intp)

    def draw(self, cells):
        return self.rows


@pytest.fixture(scope="module")
def real() -> tuple[Panels, Panels]:
    return panels(chains(2000, 0)), panels(chains(1500, 1))


def test_histories_of_the_same_law_are_alike(real):
    found = panel_worth(Drawn(chains(2000, 2)), *real, 0)
    assert max(found.lengths) < 0.05
    assert max(found.steps) < 0.03
    assert found.unchanged["state"] == pytest.approx((STAYS, STAYS), abs=0.03)
    assert found.autocorrelation["x"] == pytest.approx((RHO, RHO), abs=0.03)
    assert "day" not in found.unchanged
    shared, own = found.next_label
    assert own == pytest.approx(0.5 + 0.5 * 0.8 * 0.6, abs=0.05)  # told by the state before, which stays and tells
    assert shared == pytest.approx(own, abs=0.03)


def test_what_is_lost_from_row_to_row_shows(real):
    """The control: each row is that of another person, so that every column is as before, and no step is."""
    rows = chains(2000, 2)
    order = np.random.default_rng(0).permutation(len(rows))
    columns = ["x", "state", "ill"]
    found = panel_worth(Drawn(rows.assign(**rows[columns].iloc[order].reset_index(drop=True))), *real, 0)
    assert found.unchanged["state"][1] == pytest.approx(0.5, abs=0.04)
    assert abs(found.autocorrelation["x"][1]) < 0.05
    assert found.next_label[0] < found.next_label[1] - 0.1
    long = panel_worth(Drawn(chains(2000, 2, mean_rows=6)), *real, 0)
    assert long.lengths[0] > 0.3 > long.lengths[1]


def test_without_a_time_lengths_alone_are_compared():
    real = [panels(chains(300, seed).drop(columns="day"), time=None) for seed in (0, 1)]
    found = panel_worth(Drawn(chains(300, 2).drop(columns="day")), *real, 0)
    assert found.lengths[0] < 0.15
    assert found.steps is None


def test_usefulness_says_what_histories_are_worth(few_measured):
    table = panels(chains(900, 0)).rows
    release = ff.Release(unit="person", n_cells=4).fit(table)
    found = ff.usefulness(release, table, most_measured=400)
    assert found.panels.autocorrelation["x"][1] > 0.5
    assert "Histories beside the original: numbers of rows differ by" in " ".join(repr(found).split())
    assert found.to_dict()["panels"]["lengths"] == found.panels.lengths
    assert ff.usefulness(ff.Release(unit="person", n_cells=4, output="cell").fit(table), table).panels is None

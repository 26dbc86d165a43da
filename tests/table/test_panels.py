"""Persons with histories as a table: one row of summaries for each person."""

import numpy as np
import pandas as pd
import pytest

from fairflows import DataError, Table
from fairflows.table.panels import PanelForm, Panels

ROWS = pd.DataFrame(
    {
        "year": [2003, 2001, 2001, 2002, 2006, 2001],
        "pay": [3.0, 1.0, 5.0, np.nan, 4.0, 8.0],
        "town": ["Ulm", "Bonn", "Köln", "Bonn", "Ulm", None],
        "sex": ["f", "f", "m", "f", "f", "m"],
        "ill": ["no", "yes", "yes", "yes", "no", "no"],
        "who": ["a", "a", "b", "a", "a", "c"],
    }
)


def table(rows: pd.DataFrame = ROWS, **roles) -> Table:
    return Table(rows, **({"sensitive": "sex", "label": "ill", "identifier": "who", "time": "year"} | roles))


def test_a_person_is_one_row_of_summaries_in_the_order_of_time():
    panels = Panels.of(table())
    assert panels.identifier.tolist() == ["a", "b", "c"]
    assert panels.a.tolist() == ["f", "m", "m"]
    assert panels.y.tolist() == ["no", "yes", "no"]  # of the last row
    X = panels.X
    assert X["rows"].tolist() == [4, 1, 1]
    assert X["gaps"].tolist() == [1, 0, 1]
    assert X["pay: first"].tolist() == [1, 5, 8]
    assert X["pay: last"].tolist() == [4, 5, 8]
    assert X["pay: change"].tolist() == [3, 0, 0]
    np.testing.assert_allclose(X["pay: mean"], [8 / 3, 5, 8])
    assert X["pay: different"].tolist() == [4, 1, 1]  # a gap counts as a value
    assert X["town: first"].tolist()[:2] == ["Bonn", "Köln"]
    assert X["town: last"].tolist()[:2] == ["Ulm", "Köln"]
    assert X["year: change"].tolist() == [5, 0, 0]
    assert X["year: longest step"].tolist() == [3, 0, 0]


def test_the_order_of_rows_in_the_file_does_not_count():
    first = Panels.of(table())
    order = np.random.default_rng(0).permutation(len(ROWS))
    again = Panels.of(table(ROWS.iloc[order]))
    pd.testing.assert_frame_equal(first.X, again.X.loc[first.X.index])
    assert first.fingerprint(b"key") == again.fingerprint(b"key")


def test_rows_of_one_time_are_in_no_order_of_the_file():
    """Saved in another order, the rows of a person had other summaries, another label and another cell."""
    rows = ROWS.assign(year=2001)
    first = Panels.of(table(rows))
    for seed in range(5):
        again = Panels.of(table(rows.iloc[np.random.default_rng(seed).permutation(len(rows))]))
        pd.testing.assert_frame_equal(first.X, again.X.loc[first.X.index])
        pd.testing.assert_series_equal(first.y, again.y.loc[first.y.index])


@pytest.mark.parametrize("seed", range(3))
def test_without_a_time_the_rows_of_a_person_are_a_set(seed):
    rows = ROWS.drop(columns="year")
    rows = rows.iloc[np.random.default_rng(seed).permutation(len(rows))]
    panels = Panels.of(table(rows, time=None))
    found = panels.X.loc["a"]
    assert (found["pay: first"], found["pay: last"]) == (1, 4)  # the smallest and the largest
    assert (found["town: first"], found["town: last"]) == ("Bonn", "Ulm")
    assert panels.y["a"] == "yes"


def test_one_row_each_is_a_history_of_one_row():
    single = ROWS.drop_duplicates("who").assign(town="Ulm")
    panels = Panels.of(table(single))
    assert len(panels) == len(single)
    assert panels.X["pay: first"].equals(panels.X["pay: last"])
    assert (panels.X["rows"] == 1).all()


def test_a_part_of_the_persons_keeps_their_rows():
    part = Panels.of(table()).take([2, 0])
    assert part.identifier.tolist() == ["c", "a"]
    assert part.rows.identifier.tolist() == ["a", "a", "a", "a", "c"]
    again = part.form.summaries(part.rows.X, part.owner, len(part))
    pd.testing.assert_frame_equal(again, part.X.reset_index(drop=True))
    assert len(Panels.of(table()).take(np.array([False, True, False])).rows) == 1


def test_summaries_of_many_persons_are_those_of_each_alone():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"t": rng.integers(0, 9, 300), "x": rng.normal(size=300), "c": rng.choice(list("abc"), 300)})
    owner = rng.permutation(np.r_[np.arange(60), rng.integers(0, 60, 240)])
    form = PanelForm.of(
        table(rows.assign(sex="f", who=owner).assign(sex=np.where(owner % 2, "f", "m")), label=None, time="t")
    )
    rows["t"] = pd.Series(rows["t"]).astype(float) + rng.random(300)  # no two at once
    whole = form.summaries(rows, owner, 60)
    for person in (0, 17, 59):
        mine = rows[owner == person].sort_values("t")
        assert whole["x: first"][person] == mine["x"].iloc[0]
        assert whole["x: last"][person] == mine["x"].iloc[-1]
        assert whole["c: different"][person] == mine["c"].nunique()
        assert whole["x: mean"][person] == pytest.approx(mine["x"].mean())
        assert whole["t: longest step"][person] == pytest.approx(mine["t"].diff().max() if len(mine) > 1 else 0)


def test_what_cannot_be_a_history_is_refused():
    with pytest.raises(DataError, match=r"name the column that does \(identifier"):
        Panels.of(table(ROWS.drop(columns="who"), identifier=None))
    with pytest.raises(
        DataError, match=r"same in all rows of a person; 1 of 3 persons have several groups.*unit='row'"
    ):
        Panels.of(table(ROWS.assign(sex=["m", *ROWS["sex"][1:]])))
    named = pd.concat([ROWS, ROWS.assign(who=ROWS["who"] + "2")]).assign(name=lambda d: d["who"].str.upper())
    with pytest.raises(DataError, match=r"'name' is text with as many values as persons \(6\).*drop=\['name'\]"):
        Panels.of(table(named))
    with pytest.raises(DataError, match="'when' must hold numbers or times.*such as 'spring'"):
        table(ROWS.assign(when="spring"), time="when")
    for whole, other in (("2001", "once"), ("2001-05-01", "2001-13-45")):
        with pytest.raises(DataError, match=f"such as '{other}' in row 2."):
            table(ROWS.assign(when=[whole, None, other, whole, whole, whole]), time="when")
    with pytest.raises(DataError, match="'year' must be known in every row; 1 are missing, the first in row 2"):
        table(ROWS.assign(year=[1, 2, None, 4, 5, 6]))
    with pytest.raises(DataError, match="time must name a feature; 'ill'"):
        table(time="ill")
    with pytest.raises(DataError, match="time column 'yaer'"):
        table(time="yaer")

"""Two linked tables: one row of each person, and their rows in another table."""

import numpy as np
import pandas as pd
import pytest

from fairflows import DataError, LinkedTables, Table
from fairflows.table.panels import Panels

PATIENTS = pd.DataFrame(
    {
        "patient": ["a", "b", "c", "d"],
        "born": [1950, 1960, 1970, 1980],
        "town": ["Ulm", "Bonn", "Ulm", "Bonn"],
        "sex": ["f", "m", "f", "m"],
        "well": ["yes", "no", "no", "yes"],
    }
)
VISITS = pd.DataFrame(
    {
        "patient": ["c", "a", "a", "d", "a"],
        "day": [4, 9, 3, 7, 5],
        "pulse": [70.0, 60.0, np.nan, 80.0, 66.0],
        "ill": ["no", "yes", "no", "no", "yes"],
    }
)
ROLES = {"identifier": "patient", "sensitive": "sex", "time": "day"}


def linked(patients: pd.DataFrame = PATIENTS, visits: pd.DataFrame = VISITS, **roles) -> LinkedTables:
    return LinkedTables({"patients": patients, "visits": visits}, **(ROLES | roles))


def test_a_person_is_one_row_of_both_tables_with_or_without_visits():
    both = linked()
    assert both.identifier.tolist() == list("abcd")
    assert both.a.tolist() == list("fmfm")
    assert both.X["patients: born"].tolist() == [1950, 1960, 1970, 1980]
    assert both.X["rows"].tolist() == [3, 0, 1, 1]
    assert both.X["gaps"].tolist() == [1, 0, 0, 0]
    np.testing.assert_array_equal(both.X["pulse: last"], [60, np.nan, 70, 80])
    np.testing.assert_array_equal(both.X["day: longest step"], [4, 0, 0, 0])
    assert both.rows.a.tolist() == ["f", "f", "f", "m", "f"]
    assert list(both.columns().index) == ["born", "town", "well", "day", "pulse", "ill"]
    assert "and 5 rows of 3 of these persons in 'visits', 1 have none" in repr(both)


def test_neither_the_order_of_rows_nor_the_spelling_of_names_counts():
    patients = PATIENTS.assign(patient=[7, 12, 100, 3])
    visits = VISITS.assign(patient=["100", "007", "007", "3", "007"])
    first, again = linked(patients, visits), linked(patients.iloc[::-1], visits.iloc[::-1])
    pd.testing.assert_frame_equal(first.X, again.X.loc[first.X.index])
    assert first.X["rows"].tolist() == [3, 0, 1, 1]
    assert first.fingerprint(b"key") == again.fingerprint(b"key")
    for patients_too, visits_too in ((patients.assign(born=1900), visits), (patients, visits.assign(pulse=70.0))):
        assert linked(patients_too, visits_too).fingerprint(b"key") != first.fingerprint(b"key")


def test_some_persons_keep_their_row_and_their_rows():
    part = linked().take([3, 0])
    assert part.parents.X["town"].tolist() == ["Bonn", "Ulm"]
    assert part.rows.identifier.tolist() == ["a", "a", "d", "a"]
    again = part.formed(part.form)
    pd.testing.assert_frame_equal(again.X, part.X, check_dtype=False)
    assert Panels.of(part) is part
    assert "town" not in linked().without(["town", "pulse"]).columns().index
    assert "pulse: last" not in linked().without(["town", "pulse"]).X


def test_labels_are_those_of_the_person_or_of_the_last_row():
    assert linked(label="well").y.tolist() == ["yes", "no", "no", "yes"]
    one_more = pd.DataFrame({"patient": ["b"], "day": [1], "pulse": [1.0], "ill": ["yes"]})
    of_all = pd.concat([VISITS, one_more], ignore_index=True)
    both = linked(visits=of_all, label=["ill", "well"])
    assert both.y.tolist() == ["yes", "yes", "no", "no"]
    assert both.more_labels["well"].tolist() == ["yes", "no", "no", "yes"]
    with pytest.raises(DataError, match=r"'ill' is a column of 'visits', in which 1 of 4 persons have no row: take a"):
        linked(label="ill")


def test_settings_name_columns_of_both():
    both = linked(drop=["well", "ill"], kinds={"born": "categorical", "day": "discrete"}, time=None)
    assert list(both.columns().index) == ["born", "town", "day", "pulse"]
    assert both.parents.kinds["born"] == "categorical"
    assert linked(PATIENTS.assign(sex=["f", None, "f", "m"]), missing_group="drop").identifier.tolist() == list("acd")
    gone = linked(PATIENTS.assign(sex=[None, "f", "f", "m"]), missing_group="drop")
    assert gone.rows.identifier.tolist() == ["c", "d"]


def test_visits_of_one_group_alone_are_allowed():
    both = linked(visits=VISITS[VISITS["patient"] != "d"])
    assert both.X["rows"].tolist() == [3, 0, 1, 0]


@pytest.mark.parametrize(
    ("tables", "roles", "said"),
    [
        ({"a": PATIENTS}, {}, r"Two linked tables are released together.*got 1 \('a'\)"),
        ({"a": PATIENTS, "b": VISITS, "c": VISITS}, {}, r"got 3 \('a', 'b', 'c'\).*Join a further table"),
        ({"p": PATIENTS, "v": VISITS}, {"identifier": "born"}, r"'born' must be a column of both tables; 'v' has"),
        ({"v": VISITS, "p": PATIENTS}, {}, r"'a' repeats in 'v', in row 2\. 'p' has one row of each: state it first"),
        ({"p": PATIENTS, "v": VISITS.assign(patient=["c", "x", "a", "d", "y"])}, {},
         r"2 rows of 'v' are of persons whom 'p' lacks, the first of 'x' in row 1"),
        ({"p": PATIENTS, "v": VISITS.assign(patient=["c", "a", None, "d", "a"])}, {},
         r"must name a person in every row of 'v'; 1 are missing, the first in row 2"),
        ({"p": PATIENTS, "v": VISITS.assign(town="Ulm")}, {}, r"Column 'town' is in 'p' and in 'v': rename one"),
        ({"p": PATIENTS, "v": VISITS}, {"sensitive": "ill"}, r"sensitive column 'ill' is not in the table"),
        ({"p": PATIENTS, "v": VISITS}, {"time": "born"}, r"time column 'born' is not in the table"),
        ({"p": PATIENTS, "v": VISITS.assign(day="in spring")}, {}, r"'day' must hold numbers or times"),
        ({"p": PATIENTS, "v": VISITS.assign(day=[1, 2, None, 3, 4])}, {}, r"'day' must be known in every row"),
        ({"p": PATIENTS, "v": VISITS}, {"drop": "pusle"}, r"dropped column 'pusle' is not.*Did you mean 'pulse'"),
    ],
)  # fmt: skip
def test_what_is_not_two_linked_tables_is_refused(tables, roles, said):
    with pytest.raises(DataError, match=said):
        LinkedTables(tables, **(ROLES | roles))


def test_an_attribute_that_is_not_cut_takes_one_table():
    with pytest.raises(DataError, match="uncut takes one table"):
        linked(sensitive="born", uncut="born")


def test_one_table_does_not_come_where_two_were_fitted():
    both = linked()
    with pytest.raises(DataError, match=r"fitted to two linked tables, 'patients' and 'visits'; got one table"):
        Panels.of(Table(VISITS.assign(sex="f"), cuts=both.grouping, sensitive="sex", identifier="patient"), both.form)

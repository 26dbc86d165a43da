"""What a codec did not meet in training is brought back by a rule that knows no group, or noted row by row."""

import warnings

import numpy as np
import pandas as pd
import pytest

from fairflows import DataError, DataWarning
from fairflows.codec import CellCodec, Codec, OutsideValues
from fairflows.table.persons import Persons

N = 40
TRAINED = pd.DataFrame(
    {
        "town": np.resize(["Ulm", "Bonn", "Trier"], N),
        "age": np.arange(20, 20 + N),
        "children": np.resize([0, 1, 2, 3], N),
        "pet": np.resize(["cat", None], N),
        "rent": np.resize([500.0, np.nan, 700.0], N),
        "land": "de",
    }
)
LATER = pd.DataFrame(
    {
        "town": ["Ulm", "Paris", None, "Bonn", "Rome"],
        "age": [30.0, 30.4, 200, 45, np.nan],
        "children": [1, 2, 3, 0, 0],
        "pet": ["cat", None, "cat", "dog", None],
        "rent": [500.0, np.nan, 700.0, 500.0, 700.0],
        "land": ["de", "de", "de", "fr", None],
    }
)
UNKNOWN = {
    ("town", "unseen"): 2,
    ("town", "missing"): 1,
    ("pet", "unseen"): 1,
    ("land", "unseen"): 1,
    ("land", "missing"): 1,
}


def encode(codec, rows, **settings):
    persons = {"persons": Persons.of(np.arange(len(rows)))} if isinstance(codec, Codec) else {}
    return codec.encode(rows, **persons, **settings)


def encoded(codec, rows):
    found = OutsideValues(len(rows))
    return encode(codec, rows, found=found), found


@pytest.fixture
def codec():
    return Codec(key=b"k" * 32).fit(TRAINED)


@pytest.fixture
def cell_codec():
    return CellCodec().fit(TRAINED)


def test_a_codec_notes_what_is_outside(codec):
    (x, log_det), found = encoded(codec, LATER)
    assert np.isfinite(x).all()
    assert np.isfinite(log_det).all()
    of_age = {("age", "missing"): 1, ("age", "beyond"): 1, ("age", "off grid"): 1}
    assert found.counts() == {**UNKNOWN, **of_age}
    # Rounding and continuing the range bring a value back; an unseen category and a new gap do not.
    assert found.unknown.tolist() == [False, True, True, True, True]


def test_rows_of_cells_note_what_is_outside(cell_codec):
    cells, found = encoded(cell_codec, LATER)
    assert ((cells >= 0) & (cells < cell_codec.n_cells_)).all()
    assert found.counts() == {**UNKNOWN, ("age", "missing"): 1}, "bins reach as far as one likes"
    assert found.unknown.tolist() == [False, True, True, True, True]


@pytest.mark.parametrize("name", ["town", "age", "land"])
def test_a_new_gap_is_not_passed_over_where_nobody_takes_note(name, codec, cell_codec):
    rows = TRAINED.astype({name: object})
    rows.loc[3, name] = None
    rows[name] = rows[name].astype("Int64" if name == "age" else object)
    with pytest.warns(DataWarning, match=rf"missing where none was in training, .*: column '{name}' \(1\)"):
        encode(codec, rows)
    with pytest.raises(DataError, match=f"'{name}' had no missing values in the rows it was fitted on; 1 values are"):
        encode(cell_codec, rows)
    with pytest.raises(DataError, match="'town' must hold one of its 3 categories"):
        encode(cell_codec, TRAINED.replace({"town": {"Ulm": "Paris"}}))


def test_one_warning_counts_the_numbers_that_were_brought_back(codec):
    rows = TRAINED.assign(age=TRAINED["age"] + 0.25, rent=TRAINED["rent"] + 100).iloc[:30]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encode(codec, rows)
    assert [warning.category for warning in caught] == [DataWarning]
    message = str(caught[0].message)
    assert "outside the training range, as in another unit: column 'rent' (10)" in message
    assert "training grid, rounded to them: column 'age' (30)" in message

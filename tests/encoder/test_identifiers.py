"""Whose rows an encoder sees: who names them, what is said when nobody does, and what the ledger makes of it."""

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from fairflows import DataError, DataWarning, FairMatching, Table
from fairflows.paper.baselines import RawFeatures
from fairflows.table.keys import Key

KEY = Key(range(32))
QUICK = {"density": "counts", "key": KEY}


@pytest.fixture(scope="module")
def frame(categorical) -> pd.DataFrame:
    """The rows with a column that names their persons, not in the order of the rows."""
    frame = categorical.X.assign(group=categorical.a, label=categorical.y).reset_index(drop=True)
    return frame.assign(pid=np.random.default_rng(0).permutation(len(frame)) + 10_000)


@pytest.fixture(scope="module")
def unnamed(frame) -> Table:
    """The same rows without that column, under an index that has a name."""
    return Table(frame.drop(columns="pid").rename_axis("member"), sensitive="group", label="label")


@pytest.fixture(scope="module")
def named(frame) -> Table:
    return Table(frame, sensitive="group", label="label", identifier="pid")


def features(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(columns=["group", "label"])


@pytest.mark.parametrize(
    ("index", "identifier", "names"),
    [
        (pd.RangeIndex(3), None, None),
        (pd.RangeIndex(3, name="row"), None, None),
        (pd.RangeIndex(3, name="member"), None, None),
        (pd.RangeIndex(3, name="row"), "row", ["0", "1", "2"]),
        (pd.RangeIndex(3, name="member"), "member", ["0", "1", "2"]),
        (pd.RangeIndex(3, name="row"), "pid", ["7", "8", "9"]),
        (pd.RangeIndex(3, name="member"), "pid", ["7", "8", "9"]),
    ],
)
def test_persons_are_named_by_the_identifier_alone(index, identifier, names):
    """No name of an index, and no word, names persons by itself."""
    rows = pd.DataFrame({"x": [1.0, 2.0, 3.0], "pid": [7, 8, 9]}, index=index)
    encoder = RawFeatures(identifier=identifier).fit(rows)
    persons = encoder.read(rows).persons
    assert (None if persons.names is None else persons.names.tolist()) == names
    assert list(encoder.schema_.kinds) == (["x"] if identifier == "pid" else ["x", "pid"])
    assert encoder.most_rows_ == (None if names is None else 1)


def test_rows_that_come_one_by_one_do_not_share_a_coin(categorical):
    """A coin of the row's number would be the same for everybody who sends a single row."""
    encoder = FairMatching(0.5, density="counts").fit(categorical)
    group = (categorical.a == "young").astype(int).to_numpy()
    cells = encoder.model_.codec.encode(categorical.X)
    where = np.flatnonzero(encoder.matched_[group, cells] != encoder.split_[group, cells])[:1]
    row, a = categorical.X.iloc[where].reset_index(drop=True), categorical.a.iloc[where]
    with pytest.warns(DataWarning, match="fresh randomness"):
        sent = [tuple(encoder.transform(row, sensitive_features=a).iloc[0]) for _ in range(40)]
    assert len(set(sent)) == 2


def test_decoding_needs_the_identifier(frame):
    X, a = features(frame), frame["group"]
    encoder = FairMatching(0.5, **QUICK, identifier="pid").fit(X, frame["label"], sensitive_features=a)
    Z = encoder.transform(X, sensitive_features=a)
    expected = X.drop(columns="pid")
    for rows in (Z, Z.rename_axis("row"), Z.rename_axis("date")):
        with pytest.raises(DataError, match="the names of persons from 'pid'"):
            encoder.inverse_transform(rows, sensitive_features=a)
    with_column = encoder.inverse_transform(Z.assign(pid=X["pid"]), sensitive_features=a)
    assert_frame_equal(with_column, expected)
    with_index = encoder.inverse_transform(Z.set_axis(pd.Index(X["pid"], name="pid")), sensitive_features=a)
    np.testing.assert_array_equal(with_index, expected)


def test_fresh_coins_cannot_be_repeated_to_decode(unnamed):
    encoder = FairMatching(0.5, **QUICK).fit(unnamed)
    with pytest.warns(DataWarning, match="fresh randomness"):
        Z = encoder.transform(unnamed)
    with pytest.raises(DataError, match="Decoding repeats each person's coin, so the rows must be named"):
        encoder.inverse_transform(Z, sensitive_features=unnamed.a)

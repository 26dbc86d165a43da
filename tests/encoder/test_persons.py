"""Whose rows an encoder sees: who names them, what is said when nobody does, and what the ledger makes of it."""

import warnings

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from sklearn.pipeline import make_pipeline

from fairflows.certificate.certifying import certify
from fairflows.encoder.fair_flow import FairFlow
from fairflows.encoder.fair_matching import FairMatching
from fairflows.encoder.fair_transport import FairTransport
from fairflows.encoder.pipelines import fit_pipeline, transform_table
from fairflows.exceptions import DataError, DataWarning
from fairflows.release.cell_release import CellRelease
from fairflows.table.ledger import named_persons
from fairflows.table.persons import Key, Persons
from fairflows.table.table import Table

KEY = Key(range(32))
QUICK = {"density": "counts", "key": KEY}


@pytest.fixture(scope="module")
def frame(categorical) -> pd.DataFrame:
    """The rows with a column that names their persons, not in the order of the rows."""
    frame = categorical.X.assign(group=categorical.a, label=categorical.y).reset_index(drop=True)
    return frame.assign(pid=np.random.default_rng(0).permutation(len(frame)) + 10_000)


@pytest.fixture(scope="module")
def unnamed(frame) -> Table:
    return Table(frame.drop(columns="pid"), sensitive="group", label="label")


def features(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(columns=["group", "label"])


@pytest.mark.parametrize(
    ("index", "identifier", "names"),
    [
        (pd.RangeIndex(3), None, None),
        (pd.RangeIndex(3, name="row"), None, None),
        (pd.RangeIndex(3, name="row"), "row", ["0", "1", "2"]),
        (pd.RangeIndex(3, name="member"), None, ["0", "1", "2"]),
        (pd.RangeIndex(3, name="row"), "pid", ["7", "8", "9"]),
        (pd.RangeIndex(3, name="member"), "pid", ["7", "8", "9"]),
    ],
)
def test_who_names_the_rows(index, identifier, names):
    persons = named_persons(pd.DataFrame({"pid": [7, 8, 9]}, index=index), identifier)
    assert (None if persons is None else persons.names.tolist()) == names


@pytest.mark.parametrize("encoder", [FairMatching(0.5, **QUICK), FairTransport(**QUICK)])
def test_rows_of_a_table_without_identifier_are_said_to_be_known_by_their_number(unnamed, encoder):
    encoder.fit(unnamed.X, unnamed.y, sensitive_features=unnamed.a)
    with pytest.warns(DataWarning, match="No identifier column") as caught:
        encoder.transform(unnamed.X, sensitive_features=unnamed.a)
    assert [warning.filename for warning in caught] == [__file__], "the warning points at the user's line"


def test_nothing_is_said_where_no_coin_is_tossed(unnamed):
    encoder = FairMatching(1.0, **QUICK).fit(unnamed.X, unnamed.y, sensitive_features=unnamed.a)
    encoder.transform(unnamed.X, sensitive_features=unnamed.a)


def test_a_table_says_by_itself_that_each_row_is_a_person(unnamed):
    encoder = FairMatching(0.5, **QUICK).fit(unnamed.X, unnamed.y, sensitive_features=unnamed.a)
    Z = transform_table(encoder, unnamed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        by_number = encoder.transform(unnamed.X, sensitive_features=unnamed.a)
    np.testing.assert_array_equal(Z, by_number)


def test_an_identifier_column_counts_whatever_the_index_is_called(frame):
    rows = frame.rename_axis("row")
    encoder = FairMatching(0.5, **QUICK, identifier="pid")
    encoder.fit(features(rows), rows["label"], sensitive_features=rows["group"])
    assert encoder.ledger_.used[0].named


@pytest.mark.parametrize("steps", [(), (CellRelease(n_cells=4, randomise=0.1),)], ids=["alone", "with a release"])
def test_training_persons_are_not_certified_on(frame, steps):
    rows = frame.rename_axis("row")
    pipeline = make_pipeline(FairMatching(0.5, **QUICK, identifier="pid"), *steps)
    fit_pipeline(pipeline, features(rows), rows["label"], sensitive_features=rows["group"])
    table = Table(frame, sensitive="group", label="label", identifier="pid")
    with pytest.raises(DataError, match="fitted to, or chosen by, 3,000 of the 3,000 persons"):
        certify(pipeline, table)


def test_decoding_needs_the_identifier(frame):
    X, a = features(frame), frame["group"]
    encoder = FairMatching(0.5, **QUICK, identifier="pid").fit(X, frame["label"], sensitive_features=a)
    Z = encoder.transform(X, sensitive_features=a)
    expected = X.drop(columns="pid")
    for rows in (Z, Z.rename_axis("row"), Z.rename_axis("date")):
        with pytest.raises(DataError, match="persons by their 'pid'"):
            encoder.inverse_transform(rows, sensitive_features=a)
    with_column = encoder.inverse_transform(Z.assign(pid=X["pid"]), sensitive_features=a)
    assert_frame_equal(with_column, expected)
    with_index = encoder.inverse_transform(Z.set_axis(pd.Index(X["pid"], name="pid")), sensitive_features=a)
    np.testing.assert_array_equal(with_index, expected)


def test_decoding_without_coins_needs_no_identifier(frame):
    X, a = features(frame), frame["group"]
    encoder = FairMatching(1.0, **QUICK, identifier="pid").fit(X, frame["label"], sensitive_features=a)
    Z = encoder.transform(X, sensitive_features=a)
    assert_frame_equal(encoder.inverse_transform(Z, sensitive_features=a), X.drop(columns="pid"))


def test_transport_samples_need_the_identifier_too(frame):
    X, a = features(frame), frame["group"]
    encoder = FairTransport(**QUICK, identifier="pid").fit(X, frame["label"], sensitive_features=a)
    Z = encoder.transform(X, sensitive_features=a)
    with pytest.raises(DataError, match="persons by their 'pid'"):
        encoder.inverse_transform(Z, sensitive_features=a)


def test_a_flow_takes_the_identifier_from_the_index(mixed):
    X = mixed.X.rename_axis("member")
    encoder = FairFlow(n_epochs=1, key=KEY, identifier="member").fit(X, mixed.y, sensitive_features=mixed.a)
    encoder.transform(X, sensitive_features=mixed.a)
    with pytest.raises(DataError, match="persons by their 'member'"):
        encoder.transform(X.rename_axis("row"), sensitive_features=mixed.a)
    with pytest.raises(DataError, match="The identifier column 'who' is not in the table"):
        FairFlow(n_epochs=1, identifier="who").fit(X, mixed.y, sensitive_features=mixed.a)


@pytest.mark.parametrize(
    "identifiers",
    [
        np.array([3, 1, 3, -7]),
        np.array([2**63 + 5, 1, 1], dtype=np.uint64),
        np.array([3, 1], dtype=np.int8),
        pd.RangeIndex(5, 900, 7),
        pd.Index([10, 2, 10]),
        [True, False],
        np.array([1.5, 2.0]),
        pd.array([4, 2, 4], dtype="Int64"),
        pd.to_datetime(["2020-01-01", "2021-05-06"]),
        pd.Categorical(["b", "a", "b"]),
        ["x", "y", "x"],
    ],
)
def test_a_person_is_known_by_the_text_of_her_identifier(identifiers):
    persons = Persons.of(identifiers)
    assert persons.names[persons.codes].tolist() == [str(value) for value in pd.Series(identifiers).tolist()]
    assert len(persons.names) == pd.Series(identifiers).nunique()

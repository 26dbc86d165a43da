"""Columns that are taken out of a table once are those of the table."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal

from fairflows import DataError
from fairflows.table.columns import TableColumns, distinct, is_among
from fairflows.table.frames import as_arrow, columns_from_arrow, columns_of, from_arrow, has_pandas_notes


def people():
    return pd.DataFrame({"age": [31, 45, 27], "town": ["Ulm", "Bonn", "Ulm"], "sex": ["f", "m", "f"]}, index=[7, 8, 9])


def test_a_column_is_taken_out_once():
    columns = TableColumns(people())
    assert columns["age"] is columns["age"]
    assert columns.without(["sex"])["age"] is columns["age"]
    assert columns["age"].equals(people()["age"])


def test_names_rows_and_frame():
    columns = TableColumns(people()).without(["sex", "nothing"])
    assert list(columns) == columns.names == ["age", "town"]
    assert "age" in columns
    assert "sex" not in columns
    assert len(columns) == 3
    assert_frame_equal(columns.frame, people()[["age", "town"]])
    assert_frame_equal(columns.part(["town", "age"]).frame, people()[["town", "age"]])


def test_the_frame_of_a_whole_table_is_the_table_itself():
    table = people()
    assert TableColumns(table).frame is table
    assert TableColumns(table).with_columns({}).frame is table


@pytest.mark.parametrize("table", [people(), {name: people()[name] for name in people()}])
def test_changed_columns_leave_the_table_as_it_was(table):
    columns = TableColumns(table)
    older = columns.with_columns({"age": columns["age"] + 1})
    assert older["age"].tolist() == older.frame["age"].tolist() == [32, 46, 28]
    assert columns["age"].tolist() == columns.frame["age"].tolist() == [31, 45, 27]
    assert older.part(["town"]).frame.columns.tolist() == ["town"]
    assert_frame_equal(older.frame, people().assign(age=[32, 46, 28]))


@pytest.mark.parametrize("rows", [np.array([2, 0]), np.array([True, False, True]), slice(1, 3)])
def test_rows_are_taken_from_changed_columns(rows):
    columns = TableColumns(people())
    changed = columns.with_columns({"age": columns["age"] + 1})
    assert_frame_equal(changed.take(rows).frame, people().assign(age=[32, 46, 28]).iloc[rows])


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_chunks_are_all_rows_in_their_order(size):
    chunks = list(TableColumns(people()).chunks(size))
    assert_frame_equal(pd.concat([part.frame for _, part in chunks]), people())
    assert all(len(part) == len(range(3)[place]) <= size for place, part in chunks)


ARROW = pa.table(
    {
        "whole": pa.array([1, None, 3], pa.int32()),
        "decimal": pa.array([1.5, None, 2]),
        "text": pa.array(["a", None, "b"]),
        "category": pa.array(["a", "b", "a"]).dictionary_encode(),
        "date": pa.array([1, 2, None], pa.date32()),
        "moment": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        "money": pa.array(["1.10", "2.20", None]).cast(pa.decimal128(8, 2)),
        "truth": pa.array([True, False, True]),
        "nothing": pa.nulls(3),
    }
)


def test_arrow_columns_are_those_of_the_frame():
    assert not has_pandas_notes(ARROW)
    assert_frame_equal(TableColumns(columns_from_arrow(ARROW)).frame, from_arrow(ARROW))
    assert columns_from_arrow(ARROW)["date"].name == "date"


def test_arrow_columns_of_one_name_are_refused():
    with pytest.raises(DataError, match="unique"):
        columns_from_arrow(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]))


PLAIN = pd.DataFrame({"n": [1, 2], "x": [1.5, 2.5], "t": [True, False]})


@pytest.mark.parametrize(
    "frame",
    [
        PLAIN.set_index("n"),
        PLAIN.set_axis([5, 6]),
        PLAIN.rename_axis("row"),
        PLAIN.set_axis([0, 1, 2], axis=1),
        PLAIN.astype({"n": "Int64"}),
        PLAIN.astype({"n": "float32", "x": "Float64"}),
    ],
)
def test_what_only_pandas_knows_is_noted(frame):
    assert has_pandas_notes(pa.Table.from_pandas(frame))
    assert_frame_equal(from_arrow(pa.Table.from_pandas(frame)), frame)


@pytest.mark.parametrize("preserve_index", [None, False])
def test_a_plain_frame_notes_nothing_that_its_columns_do_not_show(preserve_index):
    table = pa.Table.from_pandas(PLAIN, preserve_index=preserve_index)
    assert not has_pandas_notes(table)
    assert_frame_equal(TableColumns(columns_from_arrow(table)).frame, from_arrow(table))


def test_a_frame_as_arrow_is_what_pyarrow_makes_of_it():
    noon = pd.Series(pd.to_datetime(["2020-01-01 12:00", None]))
    frame = pd.DataFrame(
        {
            "whole": [1, 2],
            "decimal": [1.5, np.nan],
            "text": ["a", None],
            "object": pd.Series(["a", None], dtype=object),
            "category": pd.Categorical(["b", None]),
            "time": noon,
            "moment": noon.dt.tz_localize("Europe/Berlin"),
            "duration": noon - noon[0],
            "nullable": pd.Series([1, None], dtype="Int64"),
        }
    )
    expected = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    assert as_arrow(columns_of(frame)).equals(expected)
    single = pa.schema([("decimal", pa.float32()), ("whole", pa.int64())])
    assert as_arrow(columns_of(frame), single).equals(expected.select(["decimal", "whole"]).cast(single))


def test_a_column_that_was_left_out_is_not_there():
    columns = TableColumns(people())
    assert columns["sex"].tolist() == people()["sex"].tolist()  # which the parts know of, too
    for part in (columns.without(["sex"]), columns.part(["age"]), columns.without(["sex"]).with_columns({})):
        with pytest.raises(KeyError, match="sex"):
            part["sex"]


@pytest.mark.parametrize("values", [[], [3], [5, 2, 5, 2, 2**63 + 1, 0]])
def test_distinct_values_are_sorted(values):
    assert distinct(np.array(values, dtype=np.uint64)).tolist() == sorted(set(values))


@pytest.mark.parametrize("others", [[], [3], [7, 2**63 + 1, 2, 7]])
def test_values_are_looked_for_among_others(others):
    values = [0, 2, 3, 7, 9, 2**63 + 1, 2**64 - 1]
    found = is_among(np.array(values, dtype=np.uint64), np.array(others, dtype=np.uint64))
    assert found.tolist() == [value in others for value in values]

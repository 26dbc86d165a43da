"""A table is read the way the model's own rows were, or refused: no type is guessed anew."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal

from fairflows import DataError, Table
from fairflows.table.columns import Schema, floats
from fairflows.table.frames import from_arrow, to_pandas
from fairflows.table.reading import open_table, read_batches, read_frame

DATE = datetime.date(2020, 1, 31)
MOMENT = datetime.datetime(2020, 1, 31, 10, 30, tzinfo=datetime.UTC)
NOON = pd.Timestamp("2020-01-31 12:00")


def stream(path, schema=None):
    file = open_table(path)
    return pd.concat(map(from_arrow, read_batches(path, file, file.columns, 3, schema)), ignore_index=True)


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def kind(*values, dtype=None):
    return Schema.of(to_pandas(pd.DataFrame({"c": pd.Series(values, dtype=dtype)}))).kinds["c"]


def applied(fitted, came):
    """The column that comes of `came` where `fitted` was fitted."""
    return Schema.of(to_pandas({"c": fitted})).apply(to_pandas({"c": came}))["c"]


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        (["a", None], None, "text"),
        (["a", None], object, "text"),
        (["a", None], "string[pyarrow]", "text"),
        (["a", None], "category", "text"),
        ([True, False], None, "booleans"),
        ([True, None], object, "booleans"),
        ([True, None], "boolean", "booleans"),
        ([1, 2], None, "whole numbers"),
        ([1, None], "Int64", "whole numbers"),
        ([1, None], "uint8[pyarrow]", "whole numbers"),
        ([1, 2], "category", "whole numbers"),
        ([1.0, 2.5], None, "numbers"),
        ([1.5, None], "Float64", "numbers"),
        ([DATE, None], object, "times without a time zone"),
        ([DATE, None], pd.ArrowDtype(pa.date32()), "times without a time zone"),
        ([DATE], "datetime64[s]", "times without a time zone"),
        ([NOON], object, "times without a time zone"),
        ([MOMENT], None, "times with a time zone"),
        ([MOMENT], object, "times with a time zone"),
        ([pd.Timedelta("1h")], None, "durations"),
        ([None, None], object, "no values"),
        ([np.nan], None, "no values"),
    ],
)
def test_what_a_column_holds(values, dtype, expected):
    assert kind(*values, dtype=dtype) == expected


@pytest.mark.parametrize(
    ("fitted", "came", "expected"),
    [
        ([1, 2], [7.0, 8.0], [7, 8]),
        ([1, 2], [2.0**60, np.nan], [2**60, None]),
        ([1, 2], pd.array([2**60 + 1, None], dtype="Int64"), [2**60 + 1, None]),
        ([1, 2], pd.Series([2**63 + 1, None], dtype=object), [2**63 + 1, None]),
        ([1, 2], [7.0, 7.5], [7.0, 7.5]),  # which the codec rounds or refuses
        ([1, 2], [1e300, 1.0], [1e300, 1.0]),
        ([1.5, 2.5], [7, 8], [7, 8]),
        ([1.5, 2.5], pd.Series([0.5, None], dtype=object), [0.5, None]),
        (["a", "b"], pd.Categorical(["b", "new"]), ["b", "new"]),
        (pd.Categorical(["a", "b"]), ["b", "new"], ["b", "new"]),
        (pd.Categorical(["a", "b"]), pd.Series(["b", None], dtype=object), ["b", None]),
        ([True, False], pd.Series([True, None], dtype=object), [True, None]),
        (pd.Series([DATE, DATE]).astype("datetime64[s]"), [DATE, None], [pd.Timestamp(DATE), None]),
        ([DATE, DATE], pd.to_datetime(["2020-02-29", None]), [pd.Timestamp("2020-02-29"), None]),
        ([NOON, NOON], pd.Series([NOON, None], dtype=object), [NOON, None]),
        (pd.to_datetime([MOMENT, MOMENT]), pd.Series([MOMENT, None], dtype=object), [pd.Timestamp(MOMENT), None]),
        (["a", "b"], [None, None], [None, None]),
        ([None, None], ["a", 1.5], ["a", 1.5]),
    ],
)
def test_what_can_be_brought_to_the_fitted_type_is(fitted, came, expected):
    values = [None if pd.isna(value) else value for value in applied(fitted, came).tolist()]
    assert values == expected
    assert [type(value) for value in values] == [type(value) for value in expected]


@pytest.mark.parametrize(
    ("fitted", "came", "message"),
    [
        (["true", "unknown"], [True, False], r"'c' must hold text, .* got booleans \(bool\). Which text"),
        (["7", "X9"], [7, 8], r"'c' must hold text, .* got whole numbers \(int64\). Which text"),
        (["7", "X9"], [7.5, 8], "'c' must hold text, .* got numbers"),
        (["7", "X9"], pd.Categorical([7, 8]), r"'c' must hold text, .* got whole numbers \(category\)"),
        (["a", "b"], [DATE, DATE], "'c' must hold text, .* got times"),
        (["a", "b"], pd.Series(["a", 1], dtype=object), "'c' must hold text, .* got mixed"),
        ([1, 2], ["1", "2"], "'c' must hold whole numbers, .* got text"),
        ([1, 2], [True, False], "'c' must hold whole numbers, .* got booleans"),
        ([1.5, 2], ["1", "2"], "'c' must hold numbers, .* got text"),
        ([True, False], [1, 0], "'c' must hold booleans, .* got whole numbers"),
        ([NOON, NOON], [MOMENT, MOMENT], "'c' must hold times without a time zone, .* got times with a time zone"),
        ([NOON, NOON], [1, 2], "'c' must hold times without a time zone, .* got whole numbers"),
        (pd.to_timedelta(["1h", "2h"]), [1, 2], "'c' must hold durations, .* got whole numbers"),
    ],
)
def test_what_cannot_be_is_refused(fitted, came, message):
    with pytest.raises(DataError, match=message):
        applied(fitted, came)


def test_columns_that_are_missing_and_columns_too_many():
    schema = Schema.of(pd.DataFrame({"age": [1, 2], "town": ["a", "b"]}))
    more = pd.DataFrame({"extra": [True], "town": ["a"], "age": [3]})
    assert_frame_equal(schema.apply(more), more)
    with pytest.raises(DataError, match=r"The fitted column 'age' is not in the table. Did you mean 'agee'\?"):
        schema.apply(more.rename(columns={"age": "agee"}))


FITTED = """\
flag,code,age,rate,day,at,moment,married
unknown,X9,31,0.5,2020-01-31,2020-01-31 10:30,2020-01-31T10:30:00Z,true
true,7,45,1,2020-02-01,2020-02-01,2020-01-31T11:30:00Z,false
"""
LATER = """\
flag,code,age,rate,day,at,moment,married,more
true,7,3,4,2021-01-01,2021-01-01,2020-01-31T10:30:00+02:00,TRUE,1
false,8,NA,,2021-01-01,2021-01-01,NA,False,2
 True,NA, 5 ,NA,,2021-01-01,2020-01-31T10:30:00Z,NA,3
,07,5,4,2021-01-01,2021-01-01,2020-01-31T10:30:00Z,true,4
"""


@pytest.mark.parametrize("read", [read_frame, stream])
def test_a_file_is_read_with_the_fitted_types(read, tmp_path):
    schema = Schema.of(read_frame(written(tmp_path / "fitted.csv", FITTED)))
    later = read(written(tmp_path / "later.csv", LATER), schema)
    assert [None if pd.isna(value) else value for value in later["flag"]] == ["true", "false", " True", None]
    assert later["code"].tolist() == ["7", "8", "NA", "07"]  # as they stand
    assert later["age"].astype("Int64").equals(pd.Series([3, None, 5, 5], dtype="Int64"))
    assert later["rate"].dtype == np.float64
    assert [str(later[name].dtype) for name in ("at", "moment")] == ["datetime64[ms]", "datetime64[us, UTC]"]
    assert later["married"].tolist() == [True, False, None, True]
    assert later["more"].dtype == np.int64  # the schema does not know it
    assert Schema.of(later[list(schema.kinds)]) == schema


@pytest.mark.parametrize("read", [read_frame, stream])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("whole numbers", "abc"),
        ("whole numbers", "007"),
        ("numbers", "0x10"),
        ("booleans", "1"),
        ("booleans", "yes"),
        ("times without a time zone", "31.01.2020"),
        ("times without a time zone", "2020-01-31T10:30:00Z"),
        ("times with a time zone", "2020-01-31 10:30"),
    ],
)
def test_a_field_that_cannot_be_read_is_named(read, kind, text, tmp_path):
    good = {
        "whole numbers": "7.5",
        "numbers": "7",
        "booleans": "True",
        "times without a time zone": "2020-01-31 10:30",
        "times with a time zone": "2020-01-31 10:30+01:00",
    }[kind]
    lines = ["n,c", *(f'{n},"{good}"' for n in range(100)), "101,NA", f'102,"{text}"', '103,"no"']
    path = written(tmp_path / "t.csv", "\n".join(lines))
    with pytest.raises(
        DataError, match=f"column 'c' must hold {kind}, .*; row 103 .the header is row 1. holds"
    ) as raised:
        read(path, Schema({"c": kind}))
    assert repr(text) in str(raised.value)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("read", [read_frame, stream])
def test_a_bad_field_far_into_a_file_has_the_right_row(read, tmp_path):
    n = 7_000  # several blocks of the reader
    path = written(tmp_path / "t.csv", "\n".join(["c,long", *([f"12345,{'abcdef' * 200}"] * n), "x,y"]))
    with pytest.raises(DataError, match=rf"row {n + 2} .the header is row 1. holds 'x'"):
        read(path, Schema({"c": "numbers"}))


def test_a_parquet_file_is_checked(tmp_path):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"code": [7, 8], "age": [1.0, 2.0]}).to_parquet(path)
    assert read_frame(path, Schema({"age": "whole numbers"}))["age"].tolist() == [1, 2]
    with pytest.raises(DataError, match=r"t.parquet: Column 'code' must hold text, .* got whole numbers"):
        read_frame(path, Schema({"code": "text", "age": "whole numbers"}))


def test_a_table_is_read_with_a_schema(tmp_path):
    path = written(tmp_path / "t.csv", "code,s\n7,f\n8,m\n7,f\n8,m\n")
    assert Table.read(path, sensitive="s").kinds == {"code": "discrete"}
    table = Table.read(path, schema=Schema({"code": "text"}), sensitive="s")
    assert table.kinds == {"code": "categorical"}
    assert table.X["code"].tolist() == ["7", "8", "7", "8"]
    with pytest.raises(DataError, match="t.csv: The fitted column 'age' is not in the table"):
        Table.read(path, schema=Schema({"age": "numbers"}), sensitive="s")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_seconds_since_1970_in_every_unit(unit):
    times = pd.Series(pd.to_datetime(["2020-02-29 12:00:01", None, "1969-12-31 00:00:00"])).astype(
        f"datetime64[{unit}]"
    )
    expected = [1_582_977_601.0, np.nan, -86_400.0]
    np.testing.assert_array_equal(floats(times), expected)
    np.testing.assert_array_equal(floats(times.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")), expected)
    np.testing.assert_array_equal(floats(times - times[2]), [1_583_064_001.0, np.nan, 0.0])
    if unit != "ns":
        days = [datetime.date(9999, 12, 31), datetime.date(1582, 10, 4)]
        ends = pd.Series(np.array(days, dtype=f"datetime64[{unit}]"))
        np.testing.assert_array_equal(floats(ends), [86_400.0 * (day - datetime.date(1970, 1, 1)).days for day in days])

"""Files come in as they are: no value changes on the way, and what cannot be read is named."""

import bz2
import datetime
import gzip
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet
import pytest
from pandas.testing import assert_frame_equal

from fairflows import DataError, DataWarning, Table
from fairflows.stream.files import write_table
from fairflows.table.frames import from_arrow, to_pandas
from fairflows.table.reading import TextFormat, open_table, read_batches, read_frame


def whole(path, text_format=None):
    return read_frame(path, text_format=text_format)


def stream(path, text_format=None):
    return pd.concat(list(batches(path, text_format=text_format)), ignore_index=True)


def batches(path, columns=None, text_format=None):
    file = open_table(path, text_format)
    return map(from_arrow, read_batches(path, file, columns or file.columns, 3))


both = pytest.mark.parametrize("read", [whole, stream])


def written(path, text, encoding="utf-8"):
    path.write_text(text, encoding=encoding, newline="")
    return path


PLAIN = b"a,b\n" + b"1,2\n" * 999


@both
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.csv", None, "there is no such file"),
        ("table.xlsx", b"PK", "the workbook cannot be read"),
        ("table.pdf", b"", "must be a CSV, Excel or Parquet file .* got '.pdf'"),
        ("table.csv.zip", b"PK", "must be a CSV, Excel or Parquet file .* got '.csv.zip'"),
        ("table.parquet.gz", b"PK", "only a CSV file may be compressed"),
        ("empty.csv", b"", "the file is empty"),
        ("more.csv", b"a,b\n1,2\n1,2,3\n", "Row #3: Expected 2 columns, got 3"),
        ("cut.csv", b"a,b,c\n1,2,3\n4,5", "Row #3: Expected 3 columns, got 2"),
        ("quote-at-the-end.csv", b'a,b\n1,"2\n3,4\n', "a quote before line 3 is never closed"),
        ("quote-that-takes-rows.csv", b'a,b\n1,"x\n2,y\n3,"z"\n', "a quote before line 4 is never closed"),
        ("twice.csv", b"a,a\n1,2\n", "unique; 'a' occurs more than once"),
        ("cut.csv.gz", gzip.compress(PLAIN, mtime=0)[:-9], "cannot be read: Truncated compressed stream"),
        ("no.csv.zst", b"no", "cannot be read: .* decompress failed"),
        ("cut.parquet", b"PAR1 and then nothing", "cannot be read"),
        (
            "header.csv",
            "é,b\n1,2\n".encode("cp1252"),
            "is not UTF-8 text; state its encoding, such as encoding='cp1252'",
        ),
        (
            "later.csv",
            "a,b\n1,é\n".encode("cp1252"),
            "is not UTF-8 text; state its encoding, such as encoding='cp1252'",
        ),
        ("wide.csv", "a,b\n1,é\n".encode("utf-16"), "is not UTF-8 text; state its encoding"),
        ("bare.csv", "a,b\n1,2\n".encode("utf-16-le"), "is not UTF-8 text; state its encoding"),
        ("two.csv", b"a;b,c\n1;2,5\n", r"several separators: .* \(separator=',' or separator=';'\)"),
        ("quoted.csv", b'a,b\n1,3\n1,"2,5"\n', "'b' holds numbers with ',', such as '2,5': .*decimal=','.*decimal='.'"),
        ("points.csv", b"a;b\n1;2.5\n", "'b' holds numbers with '.', such as '2.5': .*decimal='.'.*decimal=','"),
    ],
    ids=lambda part: "" if isinstance(part, bytes) else None,
)
@pytest.mark.filterwarnings("ignore:.*separated by ';':fairflows.exceptions.DataWarning")
def test_files_that_cannot_be_read(read, tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message) as raised:
        read(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


@both
@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_header_line_shows_the_separator(read, mark, tmp_path):
    decimal = "," if mark == ";" else "."
    text = f'"a, b; c"{mark}x\none{mark}2{decimal}5\ntwo{mark}-1e3\n'
    expected = pd.DataFrame({"a, b; c": ["one", "two"], "x": [2.5, -1000.0]})
    path = written(tmp_path / "t.csv", text)
    if mark == ",":
        assert_frame_equal(read(path), expected)
        return
    said = re.escape(f"(separator={mark!r})") + (" with a decimal comma" if mark == ";" else r"\.$")
    with pytest.warns(DataWarning, match=f"t.csv: read as .* {said}"):
        assert_frame_equal(read(path), expected)
    assert_frame_equal(read(path, TextFormat(separator=mark)), expected)


@both
def test_what_is_stated_decides(read, tmp_path):
    path = written(tmp_path / "t.csv", "town;x,y\nŁódź;1.5\nUlm;2\n", encoding="cp1250")
    frame = read(path, TextFormat(";", "cp1250", "."))
    assert_frame_equal(frame, pd.DataFrame({"town": ["Łódź", "Ulm"], "x,y": [1.5, 2.0]}))
    assert read(path, TextFormat(";", "cp1250", ","))["x,y"].tolist() == ["1.5", "2"]
    wide = written(tmp_path / "wide.tsv", "a, b\tc\n1\t2\n", encoding="utf-16")
    assert_frame_equal(read(wide, TextFormat("\t", "utf-16")), pd.DataFrame({"a, b": [1], "c": [2]}))
    marked = written(tmp_path / "marked.csv", "a,b\n1,2\n", encoding="utf-8-sig")
    assert list(read(marked)) == ["a", "b"]


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("gz", gzip.compress), ("bz2", bz2.compress), ("zst", lambda data: pa.compress(data, "zstd", asbytes=True))],
)
def test_compressed_files(suffix, pack, tmp_path):
    path = tmp_path / f"t.csv.{suffix}"
    path.write_bytes(pack(PLAIN))
    assert_frame_equal(whole(path), pd.DataFrame({"a": [1] * 999, "b": [2] * 999}))
    assert len(stream(path)) == 999


@both
def test_a_sheet_is_read_as_a_csv_file_would_be(read, tmp_path):
    frame = pd.DataFrame(
        {
            "code": ["007", "X9"],
            "digits": ["07", "12"],
            "n": pd.array([1, None], dtype="Int64"),
            "x": [0.1, 2.0],
            "town": ["NA", "Ulm"],
            "day": pd.to_datetime(["2020-01-31", "2020-02-29"]).astype("M8[us]"),
            "flag": [True, False],
        }
    )
    with pd.ExcelWriter(tmp_path / "t.xlsx") as book:
        frame.to_excel(book, sheet_name="one", index=False)
        pd.DataFrame({"other": [1]}).to_excel(book, sheet_name="two")
    with pytest.warns(DataWarning, match="only the first sheet, 'one', is read"):
        found = read(tmp_path / "t.xlsx")
    assert_frame_equal(found, frame)


TEXT = '''\
zip,town,n,x,day,at,flag,wide,mixed,big,none,last
00123,NA,1,0.1,2020-01-31,2020-01-31 10:30,true,1,1,18446744073709551615,,"a, b"
04567,None,NA,NaN,2020-02-29,2020-02-29T11:00:00,false,2,2,1,NA,"c
d"
00001,null,,1e-3,,2020-03-01,true,3,x,2,,"e ""f"""
10001,Ulm,-7, 2.5,2020-03-01,2020-03-02 00:00:00.25,true,2.5,4,3,,
'''


@both
def test_a_csv_column_is_what_all_its_fields_can_be_read_as(read, tmp_path):
    frame = read(written(tmp_path / "t.csv", TEXT))
    expected = pd.DataFrame(
        {
            "zip": ["00123", "04567", "00001", "10001"],
            "town": ["NA", "None", "null", "Ulm"],  # text among text
            "n": pd.array([1, None, None, -7], dtype="Int64"),
            "x": [0.1, np.nan, 1e-3, 2.5],
            "day": pd.to_datetime(["2020-01-31", "2020-02-29", None, "2020-03-01"]).astype("M8[ms]"),
            "at": pd.to_datetime(
                ["2020-01-31 10:30", "2020-02-29 11:00", "2020-03-01", "2020-03-02 00:00:00.25"], format="mixed"
            ).astype("M8[us]"),
            "flag": [True, False, True, True],
            "wide": [1.0, 2.0, 3.0, 2.5],
            "mixed": ["1", "2", "x", "4"],
            "big": np.array([2**64 - 1, 1, 2, 3], dtype=np.uint64),
            "none": [np.nan] * 4,
            "last": ["a, b", "c\nd", 'e "f"', None],
        }
    )
    assert_frame_equal(frame, expected, check_exact=True)


def test_types_hold_for_the_whole_file_not_for_a_batch(tmp_path):
    lines = ["a,b,c,d", *(["1,1,2020-01-01,-1"] * 5), *(["x,2020-01-01,2020-01-01 01:00,18446744073709551615"] * 5)]
    path = written(tmp_path / "t.csv", "\n".join(lines))
    whole = read_frame(path).dtypes
    text = str(pd.Series(["x"]).dtype)
    assert [str(dtype) for dtype in whole] == [text, text, "datetime64[us]", text]
    for part in batches(path):
        assert (part.dtypes == whole).all()


def test_a_stream_reads_only_what_is_asked_for_and_refuses_other_columns(tmp_path):
    path = written(tmp_path / "t.csv", TEXT)
    assert list(next(batches(path, ["x", "zip"]))) == ["x", "zip"]
    with pytest.raises(DataError, match="needed column 'y' is not in the table"):
        next(batches(path, ["y"]))
    assert list(batches(written(tmp_path / "no.csv", "a,b\n"), ["a"])) == [], "a night without rows"
    assert list(read_frame(tmp_path / "no.csv")) == ["a", "b"]


@pytest.mark.parametrize("written_as", ["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"])
def test_times_keep_their_format(written_as, tmp_path):
    times = pd.date_range("2017-01-01", periods=60, freq="D") + pd.to_timedelta(np.arange(60) * 61, unit="s")
    frame = pd.DataFrame({"at": times.strftime(written_as), "sex": ["f", "m"] * 30})
    frame.to_csv(tmp_path / "t.csv", index=False)
    table = Table.read(tmp_path / "t.csv", sensitive="sex")
    assert table.X["at"].dtype.kind == "M"
    rows = pa.Table.from_pandas(table.X, preserve_index=False)
    write_table([rows], tmp_path / "z.csv", tmp_path / "z.csv", table.take(np.arange(60)).time_formats)
    assert pd.read_csv(tmp_path / "z.csv")["at"].tolist() == frame["at"].tolist()


def test_times_in_several_formats_are_written_as_pandas_does(tmp_path):
    path = written(tmp_path / "t.csv", "at,s\n2020-01-01T10:00:00,f\n2020-01-02 11:00:00,m\n")
    assert Table.read(path, sensitive="s").time_formats == {}


DAYS = [datetime.date(2020, 1, 1), None, datetime.date(2020, 1, 3), datetime.date(2020, 1, 7)]
ARROW = pa.table(
    {
        "whole": pa.array([2**60 + 1, None, 2**60 + 3, 5], pa.int64()),
        "small": pa.array([1, None, 3, 5], pa.uint8()),
        "day": pa.array(DAYS, pa.date32()),
        "price": pa.array([Decimal("1.07"), Decimal("2.10"), None, Decimal("-0.29")], pa.decimal128(12, 2)),
        "count": pa.array([2**60 + 1, None, 3, 4], pa.int64()).cast(pa.decimal128(38, 0)),
    }
)
AS_FRAME = pd.DataFrame(
    {
        "whole": pd.array([2**60 + 1, None, 2**60 + 3, 5], dtype="Int64"),
        "small": pd.array([1, None, 3, 5], dtype="UInt8"),
        "day": pd.Series(DAYS, dtype="M8[ms]"),
        "price": [1.07, 2.10, np.nan, -0.29],
        "count": pd.array([2**60 + 1, None, 3, 4], dtype="Int64"),
    }
)


def test_values_of_arrow_parquet_and_polars_do_not_change(tmp_path):
    pyarrow.parquet.write_table(ARROW, tmp_path / "t.parquet")
    for frame in (read_frame(tmp_path / "t.parquet"), stream(tmp_path / "t.parquet")):
        assert_frame_equal(frame, AS_FRAME, check_exact=True)
    assert_frame_equal(to_pandas(ARROW), AS_FRAME, check_exact=True)
    assert_frame_equal(to_pandas(polars.from_arrow(ARROW)), AS_FRAME, check_exact=True)


@both
def test_a_named_index_in_a_parquet_file_is_a_column(read, tmp_path):
    who = pd.Index(list("abcd"), name="who")
    path = tmp_path / "t.parquet"
    frame = AS_FRAME.drop(columns="day")
    frame.set_index(who).to_parquet(path)
    assert_frame_equal(read(path), frame.assign(who=who), check_exact=True)
    alone = pd.concat(list(batches(path, ["who"])))
    assert alone["who"].tolist() == who.tolist()


def test_tables_of_other_kinds_are_named():
    with pytest.raises(DataError, match=r"must be a pandas, polars or Arrow table, .* got object of shape"):
        to_pandas(object())
    with pytest.raises(DataError, match=r"A LazyFrame holds no rows yet: call .collect\(\) first"):
        to_pandas(polars.LazyFrame({"x": [1]}))


def test_long_codes_stay_apart(tmp_path):
    """As floats these two would be one."""
    path, codes = tmp_path / "codes.csv", ["12345678901234567890123", "12345678901234567890124"]
    path.write_text("\n".join(["code,x", *(f"{code},1e30" for code in codes)]), encoding="utf-8")
    frame = read_frame(path)
    assert frame["code"].tolist() == codes
    assert frame["x"].tolist() == [1e30, 1e30]


@pytest.mark.parametrize("first", [2**63 - 2, 2**63, 2**64 - 2, 2**64, 2**70])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_persons_with_numbers_of_any_size_stay_apart(first, suffix, tmp_path):
    values = [first, first + 1, 7]
    path = tmp_path / f"t.{suffix}"
    if suffix == "csv":
        written(path, "\n".join(["n,x,sex", *(f"{value},1,{sex}" for value, sex in zip(values, "ffm", strict=True))]))
    else:
        numbers = pa.array([Decimal(value) for value in values], pa.decimal128(38, 0))
        pyarrow.parquet.write_table(pa.table({"n": numbers, "x": [1, 1, 1], "sex": list("ffm")}), path)
    table = Table.read(path, sensitive="sex", identifier="n")
    assert table.persons.names.tolist() == [str(value) for value in values]

"""Files of text as people have them: recognised where there is one reading, else refused with the option to say."""

import datetime
import gzip
import io
import sys
import warnings
import zipfile

import numpy as np
import openpyxl
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from fairflows.exceptions import DataError, DataWarning
from fairflows.stream.files import TableReader
from fairflows.table.dialect import Dialect
from fairflows.table.reading import read_frame, recognise
from fairflows.table.schema import NUMBERS, TEXT, Schema

TOWNS = ["Köln", "Genève", "Århus", "O’Brien – Straße"]
EXPECTED = pd.DataFrame(
    {
        "town": TOWNS,
        "zip": ["00123", "04567", "10001", "00001"],
        "rent": [1234.5, 0.25, 987.0, -12.75],
        "n": [1, 2, 3, 4],
        "day": pd.to_datetime(["2020-01-31", "2020-02-29", "2021-01-01", "2020-12-31"]).astype("M8[s]"),
    }
)
RENTS = {".": ["1234.5", "0.25", "987", "-12.75"], ",": ["1234,5", "0,25", "987", "-12,75"]}


def table_text(separator=";", rents=RENTS[","]):
    """EXPECTED as a text file."""
    fields = zip(TOWNS, EXPECTED["zip"], rents, EXPECTED["n"], EXPECTED["day"].dt.strftime("%Y-%m-%d"), strict=True)
    return "\n".join(separator.join(map(str, row)) for row in [list(EXPECTED), *fields]) + "\n"


def stream(path, dialect=None, batch_rows=3):
    """The file in small batches, put together again."""
    reader = TableReader(path, batch_rows, dialect=dialect)
    return pd.concat(list(reader.batches(reader.columns))).reset_index(drop=True).rename_axis(None)


def whole(path, dialect=None):
    return read_frame(path, dialect=dialect)


def put(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("read", [whole, stream])
@pytest.mark.parametrize(
    ("text", "encoding", "said"),
    [
        (table_text(), "cp1252", "; separated, decimal comma, Windows-1252"),
        (table_text(), "utf-8", "; separated, decimal comma, UTF-8"),
        (table_text("\t"), "utf-16", "tab separated, decimal comma, UTF-16"),
        (table_text("|", RENTS["."]), "utf-8-sig", "| separated, UTF-8"),
        (table_text(",", RENTS["."]), "cp1252", "comma separated, Windows-1252"),
        (
            table_text(rents=["1.234,5", "0,25", "987", "-12,75"]),
            "utf-8",
            "; separated, decimal comma, thousands point, UTF-8",
        ),
        (
            table_text(rents=["1,234.5", "0.25", "987", "-12.75"]),
            "utf-8",
            "; separated, thousands comma, UTF-8",
        ),
        (
            table_text(rents=["1\u202f234,5", "0,25", "987", "-12,75"]),
            "utf-8",
            "; separated, decimal comma, thousands blank, UTF-8",
        ),
        (
            table_text(",", ["1'234.5", "0.25", "987", "-12.75"]),
            "utf-8",
            "comma separated, thousands apostrophe, UTF-8",
        ),
    ],
)
def test_what_is_recognised_is_read_and_reported_in_one_line(read, text, encoding, said, tmp_path):
    path = put(tmp_path / "t.csv", text, encoding)
    with pytest.warns(DataWarning) as caught:
        frame = read(path)
    assert [str(warning.message) for warning in caught] == [f"{path}: read as {said}."]
    assert_frame_equal(frame, EXPECTED)
    with pytest.warns(DataWarning):
        dialect = recognise(path)
    assert str(dialect) == said
    assert_frame_equal(read(path, dialect), EXPECTED)  # what is stated is not reported again


@pytest.mark.parametrize("read", [whole, stream])
def test_plain_and_packed_files_are_not_reported(read, tmp_path):
    text = table_text(",", RENTS["."])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("t.csv", text)
        archive.writestr("__MACOSX/._t.csv", b"resource fork")
    (tmp_path / "t.zip").write_bytes(buffer.getvalue())
    with zipfile.ZipFile(tmp_path / "book.zip", "w") as archive:
        archive.writestr("t.xlsx", b"PK")
    with pytest.raises(DataError, match=r"must hold a CSV file; it holds 't.xlsx': unpack it first"):
        read(tmp_path / "book.zip")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    put(tmp_path / "t.tsv", table_text("\t", RENTS["."]))
    put(tmp_path / "t.csv", text, "utf-8-sig")
    for name in ("t.zip", "t.csv.gz", "t.tsv", "t.csv"):
        assert_frame_equal(read(tmp_path / name), EXPECTED)


@pytest.mark.parametrize("read", [whole, stream])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,1,5\n", r"has 3\. They are separated by ',': if not, say so \(separator=\.\.\.\)\. .*in quotes"),
        ('a,b\n1,"1,5"\n', r"'b' holds '1,5' in row 2 .*commas separate the fields.*\(decimal='\.' or decimal=','\)"),
        (
            "a;b\n7;1.234\n8;1,5\n",
            r"'b' holds '1\.234' in row 2 .*groups thousands.*\(thousands='\.' or thousands=''\)",
        ),
        ("a;b\n7;1.25\n8;1,5\n", r"'b' holds '1\.25' in row 2 .*'1,5' in row 3 .*\(decimal='\.' or decimal=','\)"),
        ("a;b\n1,5;2.5\n", r"'b' holds '2\.5' in row 2 .*'a' holds '1,5' in row 2"),
        ("a;b\n1;1.234\n", r"may have thousands or decimals.*\(thousands='\.' or decimal='\.'\)"),
        ('a,b\n1,"1,234"\n', r"may have thousands or decimals.*\(thousands=',' or decimal=','\)"),
        ('a,b\n0.5,"1,234"\n', r"say whether that groups thousands, or is text \(thousands=',' or thousands=''\)"),
        ("a;b\n1,234.5;1'234'567\n", r"what groups thousands \(thousands=',' or thousands=\"'\"\)"),
        ("a,b;c\n1,2;3\n", r"could be separated by ',' or ';': say which \(separator=','\)"),
    ],
)
def test_a_file_with_two_readings_is_refused_with_the_option_that_decides(read, text, message, tmp_path):
    path = put(tmp_path / "t.csv", text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        with pytest.raises(DataError, match=message) as raised:
            read(path)
    assert str(raised.value).startswith(f"{path}: ")


@pytest.mark.parametrize("read", [whole, stream])
@pytest.mark.parametrize(
    ("text", "stated", "expected"),
    [
        ('a,b\n1,"1,5"\n', {"decimal": ","}, [1.5]),
        ('a,b\n1,"1,5"\n', {"decimal": "."}, ["1,5"]),
        ("a;b\n7;1.234\n8;1,5\n", {"thousands": "."}, [1234, 1.5]),
        ("a;b\n7;1.234\n8;1,5\n", {"decimal": ",", "thousands": ""}, ["1.234", "1,5"]),
        ("a;b\n7;1.25\n8;1,5\n", {"decimal": ","}, ["1.25", "1,5"]),
        ("a;b\n1;1.234\n", {"thousands": "."}, [1234]),
        ("a;b\n1;1.234\n", {"decimal": "."}, [1.234]),
        ('a,b\n1,"1,234"\n', {"thousands": ","}, [1234]),
        ("a,b\n1,560 001\n", {}, ["560 001"]),
        ("a,b\n1,560 001\n", {"thousands": " "}, [560001]),
        ("a;b\n1;00,5\n2;1,5\n", {"decimal": ","}, ["00,5", "1,5"]),
        ("a;b\n1;0.123\n2;1.234.567,5\n", {"decimal": ",", "thousands": "."}, ["0.123", "1.234.567,5"]),
        ("a;b\n1;1,5e3\n2;NA\n3;,5\n", {"separator": ";"}, [1500, np.nan, 0.5]),
        ("a;b\n1;12,34\n2;1,5\n", {"decimal": ".", "thousands": ","}, ["12,34", "1,5"]),
    ],
)
def test_what_is_stated_decides(read, text, stated, expected, tmp_path):
    path = put(tmp_path / "t.csv", text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        frame = read(path, Dialect(**stated))
    assert frame["b"].tolist() == pytest.approx(expected, nan_ok=True) if frame["b"].dtype != "str" else True
    assert [type(value) is str for value in frame["b"]] == [isinstance(value, str) for value in expected]
    if isinstance(expected[0], str):
        assert frame["b"].tolist() == expected


@pytest.mark.parametrize("separator", [",", ";"])
def test_marks_are_looked_for_in_the_whole_file(separator, tmp_path):
    rows = [f'{i}{separator}"{i}"' for i in range(1000)]
    path = put(tmp_path / "t.csv", "\n".join([f"a{separator}b", *rows, f'1{separator}"1,5"']))
    if separator == ",":
        with pytest.raises(DataError, match="'b' holds '1,5' in row 1,002"):
            read_frame(path)
    else:
        with pytest.warns(DataWarning, match="decimal comma"):
            assert read_frame(path)["b"].iloc[-1] == 1.5


def test_a_column_that_a_model_takes_as_text_shows_nothing(tmp_path):
    path = put(tmp_path / "t.csv", 'a,b\n0.5,"1,5"\n1.5,"2,3"\n')
    frame = read_frame(path, Schema({"a": NUMBERS, "b": TEXT}))
    assert frame["b"].tolist() == ["1,5", "2,3"]
    with pytest.raises(DataError, match="say which is the decimal mark"):
        read_frame(path)


def test_what_a_file_does_not_show_is_as_in_the_file_that_the_model_was_fitted_on(tmp_path):
    usual = Dialect(";", "cp1252", ",", ".")
    small = put(tmp_path / "small.csv", "a;b\n1;1.234\n")
    with pytest.raises(DataError, match="may have thousands or decimals"):
        recognise(small)
    with pytest.warns(DataWarning, match="read as ; separated, decimal comma, thousands point, UTF-8"):
        assert recognise(small, usual=usual) == Dialect(";", "utf-8", ",", ".")
    other = put(tmp_path / "other.csv", "a,b\n1,1.234\n")  # written by another program
    assert recognise(other, usual=usual) == Dialect(",", "utf-8", ".", "")
    both = put(tmp_path / "both.csv", "a,b;c\n1,2;3\n")  # could be separated by either
    with pytest.warns(DataWarning, match="; separated"):
        assert recognise(both, usual=usual).separator == ";"
    polish = put(tmp_path / "polish.csv", "town,n\nŁódź,1\n", "cp1250")
    assert recognise(polish, usual=Dialect(",", "cp1250", ".", "")).encoding == "cp1250"
    contrary = put(tmp_path / "contrary.csv", "a;b\n1;1.25\n")  # what a file shows counts
    with pytest.warns(DataWarning, match="; separated, UTF-8"):
        assert recognise(contrary, usual=usual).decimal == "."


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("town\nŁódź\n".encode("cp1250"), "neither UTF-8 text nor plainly Windows-1252"),
        ("town\nМосква\n".encode("cp1251"), "neither UTF-8 text nor plainly Windows-1252"),
        ("town\nMüller\n".encode("mac-roman"), "neither UTF-8 text nor plainly Windows-1252"),
        ("town\nMüller\n".encode("cp850"), "neither UTF-8 text nor plainly Windows-1252"),
        ("town\n東京都\n".encode("shift-jis"), "neither UTF-8 text nor plainly Windows-1252"),
        ("town\nKöln\nMünchen\n".encode() + b"\xff\n", "neither UTF-8 text nor plainly Windows-1252"),
        ("a,b\n1,2\n".encode("utf-16-le"), "UTF-16 without a byte order mark.*encoding='utf-16-le'"),
    ],
)
def test_an_encoding_that_would_be_guessed_is_asked_for(data, message, tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    with pytest.raises(DataError, match=message):
        read_frame(path)


def test_a_stated_encoding_is_used_and_a_wrong_one_named(tmp_path):
    path = put(tmp_path / "t.csv", "town\nŁódź\nKraków\n", "cp1250")
    assert read_frame(path, dialect=Dialect(encoding="windows-1250"))["town"].tolist() == ["Łódź", "Kraków"]
    assert stream(path, Dialect(encoding="windows-1250"))["town"].tolist() == ["Łódź", "Kraków"]
    with pytest.raises(DataError, match="not UTF-8 text: name its encoding"):
        read_frame(path, dialect=Dialect(encoding="utf-8"))
    le = put(tmp_path / "le.csv", "\ufefftown,n\nÅ,1\n", "utf-16-le")
    assert list(read_frame(le, dialect=Dialect(encoding="utf-16-le"))) == ["town", "n"]


def test_text_that_is_cut_within_a_character_between_two_reads(tmp_path):
    rows = 60_000
    path = put(tmp_path / "t.csv", "a;b\n" + "äöü€;1,5\n" * rows, "utf-16")
    frame = read_frame(path, dialect=Dialect(";", "utf-16", ",", ""))
    assert (frame["a"] == "äöü€").all()
    assert frame["b"].sum() == 1.5 * rows


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"separator": ";;"}, "separator must be one character"),
        ({"separator": "7"}, "separator must be one character that is no letter or digit"),
        ({"separator": '"'}, "separator must not be a quote"),
        ({"encoding": "utf-99"}, "encoding must be an encoding of text that Python knows.*got 'utf-99'"),
        ({"encoding": "rot13"}, "encoding must be an encoding of text"),
        ({"decimal": "-"}, "decimal must be '.' or ','"),
        ({"thousands": "_"}, "thousands must be"),
        ({"decimal": ",", "thousands": ","}, "decimal and thousands must differ"),
    ],
)
def test_a_dialect_that_cannot_be(stated, message):
    with pytest.raises(DataError, match=message):
        Dialect(**stated)


def workbook(path, **sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


CELLS = [
    ["zip", "n", "x", "day", "at", "flag", "word", None],
    ["00123", 1, 0.1, datetime.date(2020, 1, 31), datetime.datetime(2020, 1, 31, 10, 30), True, "a", None],
    ["10001", None, 2, datetime.date(2020, 2, 29), datetime.datetime(2020, 2, 29), False, 7, "z"],
    ["00007", 3, "#N/A", None, None, None, None, None],
    [None, None, None, None, None, None, None, None],
]


@pytest.mark.parametrize("read", [whole, stream])
def test_excel(read, tmp_path):
    frame = read(workbook(tmp_path / "t.xlsx", Data=CELLS, Empty=[]))
    expected = pd.DataFrame(
        {
            "zip": ["00123", "10001", "00007"],
            "n": pd.array([1, None, 3], dtype="Int64"),
            "x": [0.1, 2, np.nan],
            "day": pd.to_datetime(["2020-01-31", "2020-02-29", None]).astype("M8[s]"),
            "at": pd.to_datetime(["2020-01-31 10:30", "2020-02-29", None], format="mixed").astype("M8[us]"),
            "flag": pd.array([True, False, None], dtype=object),
            "word": ["a", "7", None],
            "Unnamed: 7": [None, "z", None],
        }
    )
    assert_frame_equal(frame, expected)


@pytest.mark.parametrize("size", ["A1", "A1:B2", "A1:ZZ9"])
def test_what_a_sheet_says_of_its_size_is_not_believed(size, tmp_path):
    """Some programs write a size that is wrong, and rows beyond it would be left out."""
    rows = [["a", "b", "c"], *([i, i + 1, i + 2] for i in range(20))]
    right, path = workbook(tmp_path / "right.xlsx", One=rows), tmp_path / "wrong.xlsx"
    with zipfile.ZipFile(right) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name).replace(b'ref="A1:C21"', f'ref="{size}"'.encode()))
    with zipfile.ZipFile(path) as written:
        assert f'<dimension ref="{size}"'.encode() in written.read("xl/worksheets/sheet1.xml")
    assert_frame_equal(read_frame(path), pd.DataFrame(rows[1:], columns=rows[0]))


def test_sheets(tmp_path):
    path = workbook(tmp_path / "t.xlsx", One=[["a"], [1]], Two=[["b"], [2]])
    with pytest.raises(DataError, match=r"holds several sheets \('One', 'Two'\): name one \(sheet='One'\)"):
        read_frame(path)
    assert read_frame(path, dialect=Dialect(sheet="Two"))["b"].tolist() == [2]
    with pytest.raises(DataError, match="has no sheet 'Three'; it has 'One', 'Two'"):
        read_frame(path, dialect=Dialect(sheet="Three"))
    with pytest.raises(DataError, match="itself says how it is written: leave out separator"):
        read_frame(path, dialect=Dialect(separator=";"))
    with pytest.raises(DataError, match="the file is empty"):
        read_frame(workbook(tmp_path / "no.xlsx", One=[]))


def test_the_extra_for_excel_is_named(tmp_path, monkeypatch):
    path = workbook(tmp_path / "t.xlsx", One=[["a"], [1]])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(DataError, match=r"needs openpyxl: pip install 'fairflows\[excel\]'"):
        read_frame(path)


def test_what_only_some_files_have_is_refused_for_others(tmp_path):
    with pytest.raises(DataError, match="only Excel files have sheets: leave out sheet"):
        read_frame(put(tmp_path / "t.csv", "a,b\n1,2\n"), dialect=Dialect(sheet="One"))
    EXPECTED.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="a Parquet file itself says how it is written: leave out decimal"):
        read_frame(tmp_path / "t.parquet", dialect=Dialect(decimal=","))

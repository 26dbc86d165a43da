"""The digest of a table's contents: the same for every form of one table, another one for every changed value."""

import csv
import gzip
import io
import json
import random
import shutil
import struct
import subprocess
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fairflows
from fairflows import DataError
from fairflows.certificate.digest import canonical_text, contents_of, kinds_of
from fairflows.stream.batches import to_arrow
from fairflows.stream.files import write_table
from fairflows.table.reading import read_frame

N = 150
WHOLE, NUMBERS, TIMES = "whole numbers", "numbers", "times without a time zone"


def people() -> pd.DataFrame:
    """Values of every kind that a CSV file holds, with gaps, marks of CSV, and digits that are easily lost."""
    rng = np.random.default_rng(0)
    start = pd.Timestamp("2020-01-01")
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, N),
            "income": np.round(rng.lognormal(10, 0.5, N), 10),
            "rate": np.where(rng.random(N) < 0.1, np.nan, rng.integers(-900, 900, N) / 1000),
            "town": rng.choice(["Bonn", "Köln", "Ulm, Alb", 'say "hi"', "Trier;Mosel", "two\nlines", " x ", "NA"], N),
            "day": start + pd.to_timedelta(rng.integers(0, 900, N), unit="D"),
            "at": start + pd.to_timedelta(rng.integers(0, 10**7, N), unit="s"),
            "owns": rng.random(N) < 0.5,
            "children": pd.array(np.where(rng.random(N) < 0.2, None, rng.integers(0, 5, N)), dtype="Int64"),
            "note": np.where(rng.random(N) < 0.2, None, rng.choice(["a", "b"], N)),
        }
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The file that was released, as rows of texts, and its contents."""
    path = tmp_path_factory.mktemp("digest") / "shared.csv"
    table = to_arrow(people())
    write_table([table], path, path)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file)), contents_of(path, kinds_of(table.schema))


def as_csv(rows, path, separator=",", ends="\n", quoting=csv.QUOTE_MINIMAL, start=b""):
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator=ends, quoting=quoting).writerows(rows)
    path.write_bytes(start + text.getvalue().encode())
    return path


def shuffled(rows, path):
    return as_csv([rows[0], *random.Random(1).sample(rows[1:], len(rows) - 1)], path)


def reordered(rows, path):
    order = random.Random(2).sample(range(len(rows[0])), len(rows[0]))
    return as_csv([[row[place] for place in order] for row in rows], path)


def through_pandas(rows, path):
    frame = read_frame(as_csv(rows, path.with_suffix(".plain.csv")))
    frame.to_parquet(path, index=False) if path.suffix == ".parquet" else frame.to_excel(path, index=False)


def through_polars(rows, path):
    frame = pl.read_csv(as_csv(rows, path.with_suffix(".plain.csv")), try_parse_dates=True, infer_schema_length=None)
    frame.write_parquet(path) if path.suffix == ".parquet" else frame.write_csv(path)


def through_duckdb(rows, path):
    plain = as_csv(rows, path.with_suffix(".plain.csv"))
    duckdb.sql(f"copy (from read_csv('{plain}', quote='\"')) to '{path}'")


def through_libreoffice(rows, path):
    plain = as_csv(rows, path.with_suffix(".csv"))
    # Fields separated by commas, in quotes, UTF-8; quoted fields are no text by themselves, numbers are recognised.
    words = ["--infilter=CSV:44,34,76,1,,0,false,true", "--outdir", plain.parent, plain]
    to = ["soffice", "--headless", "--convert-to", "xlsx:Calc MS Excel 2007 XML", *words]
    subprocess.run(list(map(str, to)), check=True, capture_output=True)


FORMS = {
    "a.csv": as_csv,
    "semicolons.csv": lambda rows, path: as_csv(rows, path, separator=";"),
    "quoted.csv": lambda rows, path: as_csv(rows, path, quoting=csv.QUOTE_ALL),
    "crlf.csv": lambda rows, path: as_csv(rows, path, ends="\r\n"),
    "bom.csv": lambda rows, path: as_csv(rows, path, start=b"\xef\xbb\xbf"),
    "shuffled.csv": shuffled,
    "a.parquet": through_pandas,
    "libreoffice.xlsx": through_libreoffice,
    "packed.csv.gz": lambda rows, path: path.write_bytes(gzip.compress(as_csv(rows, path).read_bytes())),
    "columns.csv": reordered,
    "polars.csv": through_polars,
    "polars.parquet": through_polars,
    "duckdb.csv": through_duckdb,
    "duckdb.parquet": through_duckdb,
    "openpyxl.xlsx": through_pandas,
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_table_has_its_digest(name, whole, tmp_path):
    skip_without_libreoffice(name)
    rows, contents = whole
    FORMS[name](rows, tmp_path / name)
    assert contents_of(tmp_path / name, contents.kinds) == contents


def test_a_spreadsheet_of_western_europe_may_have_written_it(whole, tmp_path):
    """Semicolons, decimal commas, and the encoding of Windows."""
    rows, contents = whole
    numbers = [kind == NUMBERS for kind in contents.kinds.values()]
    rows = [[value.replace(".", ",") if of else value for value, of in zip(row, numbers, strict=True)] for row in rows]
    path = as_csv(rows, tmp_path / "a.csv", separator=";", ends="\r\n")
    path.write_bytes(path.read_text("utf-8").encode("cp1252"))
    assert contents_of(path, contents.kinds) == contents
    path.write_bytes(path.read_text("cp1252").encode("utf-16"))
    assert contents_of(path, contents.kinds) == contents


def changed(value: str, kind: str, rng: random.Random) -> str:
    """Another value of the same kind, or none."""
    if value == "":
        return {"text": "z", WHOLE: "3", NUMBERS: "0.5", "booleans": "True"}.get(kind, "2020-05-05")
    if kind != "booleans" and rng.random() < 0.2:
        return ""
    if kind == "text":
        return rng.choice([value + " ", value + "x", value.swapcase() if value.swapcase() != value else value[1:]])
    if kind == "booleans":
        return {"True": "False", "False": "True"}[value]
    if kind == WHOLE:
        return str(int(float(value)) + rng.choice([-1, 1, 1000]))
    if kind == NUMBERS:
        number = float(value)
        return repr(rng.choice([number * (1 + 1e-13) + 1e-13, -number or 1.0, number * 1.01 + 0.001]))
    return str(datetime.fromisoformat(value) + rng.choice([timedelta(days=1), timedelta(seconds=-1)]))


def files_with_one_edit(name, whole, folder, n, seed):
    """Change one value of a file of some form, n times: in the released rows, or in the saved spreadsheet."""
    rows, contents = whole
    rng, path = random.Random(seed), folder / name
    FORMS[name](rows, path)
    book = openpyxl.load_workbook(path) if path.suffix == ".xlsx" else None
    for _ in range(n):
        i, j = rng.randrange(1, len(rows)), rng.randrange(len(rows[0]))
        old, kind = rows[i][j], contents.kinds[rows[0][j]]
        new = changed(old, kind, rng)
        if book is None:
            FORMS[name]([*rows[:i], [*rows[i][:j], new, *rows[i][j + 1 :]], *rows[i + 1 :]], path)
        else:
            cell = book.active.cell(i + 1, j + 1)
            before, cell.value = cell.value, in_a_cell(new, kind)
            book.save(path)
            cell.value = before
        yield path, (rows[0][j], old, new)


def in_a_cell(text, kind):
    if text == "" or kind == "text":
        return text or None
    of_kind = {"booleans": "True".__eq__, WHOLE: int, NUMBERS: float}.get(kind, datetime.fromisoformat)
    return of_kind(text)


def edits_that_are_missed(name, whole, folder, n, seed):
    """Return the changes of one value that the digest does not show."""
    contents, missed = whole[1], []
    for path, edit in files_with_one_edit(name, whole, folder, n, seed):
        try:
            if contents_of(path, contents.kinds).sha256 == contents.sha256:
                missed.append(edit)
        except DataError:
            pass  # a value of another kind
    return missed


def skip_without_libreoffice(name):
    if "libreoffice" in name and shutil.which("soffice") is None:
        pytest.skip("LibreOffice is not installed")


@pytest.mark.parametrize("name", FORMS)
def test_one_changed_value_is_seen_in_every_form(name, whole, tmp_path):
    skip_without_libreoffice(name)
    assert edits_that_are_missed(name, whole, tmp_path, 20, seed=0) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_a_thousand_changed_values_are_seen_in_every_form(name, whole, tmp_path):
    skip_without_libreoffice(name)
    assert edits_that_are_missed(name, whole, tmp_path, 1000, seed=1) == []


def test_the_digest_is_what_the_docs_say(tmp_path):
    """Computed again, value by value."""
    path = tmp_path / "a.csv"
    path.write_text('b,ä,c\n1,"x\r\ny",0.5\n,é,-0\n007,,\n', encoding="utf-8")
    rows = [("1", "3fe0000000000000", "x\ny"), ("", "0" * 16, "é"), ("7", "", "")]
    texts = ["".join(f"{len(value.encode())}:{value}" for value in row) for row in rows]
    head = f"fairflows contents 1\n1:b13:{WHOLE}1:c7:{NUMBERS}2:ä4:text\n".encode()
    expected = sha256(head + b"".join(sorted(sha256(text.encode()).digest() for text in texts))).hexdigest()
    found = contents_of(path, {"ä": "text", "c": NUMBERS, "b": WHOLE})
    assert (found.rows, found.sha256) == (3, expected)


def test_rows_that_occur_twice_count_twice(tmp_path):
    digests = set()
    for text in ("x\na\na\nb\n", "x\na\nb\nb\n", "x\na\nb\n", "x\nab\n"):
        (tmp_path / "a.csv").write_text(text)
        digests.add(contents_of(tmp_path / "a.csv", {"x": "text"}).sha256)
    assert len(digests) == 4


def bits_of(number):
    return struct.pack(">d", number).hex()


@pytest.mark.parametrize(
    ("kind", "texts", "typed", "canonical"),
    [
        (WHOLE, ["7", "7.0", "+007", "7e0", " 7 "], [7, 7.0], "7"),
        (WHOLE, ["99999999999999999999"], [], "99999999999999999999"),
        (NUMBERS, ["0.1", ".1", "1e-1", "0,1", "+0.10"], [0.1], "3fb999999999999a"),
        (NUMBERS, ["0.12345678901234567", "0.123456789012346"], [0.12345678901234567], bits_of(0.123456789012346)),
        (NUMBERS, ["-123456.0009765625", "-123456.000976563"], [-123456 - 2**-10], bits_of(-123456.000976563)),
        (NUMBERS, ["0", "-0", "-0.0"], [0, -0.0], "0" * 16),
        (NUMBERS, ["", "NA", "nan"], [float("nan"), None], ""),
        ("numbers in single precision", ["0.1", "0.10000000149011612"], [np.float32(0.1), 0.1], "3dcccccd"),
        ("booleans", ["True", "TRUE", "true"], [True], "true"),
        (TIMES, ["2024-02-29", "2024-02-29 00:00", "2024-02-29T00:00:00.000"], [datetime(2024, 2, 29)],
         "2024-02-29T00:00:00"),
        (TIMES, ["9999-12-31"], [datetime(9999, 12, 31)], "9999-12-31T00:00:00"),
        (TIMES, ["1582-10-04T01:02:03.5"], [datetime(1582, 10, 4, 1, 2, 3, 500_000)], "1582-10-04T01:02:03.5"),
        ("times with a time zone", ["2024-02-29T01:30:00+01:30", "2024-02-29 00:00:00+00", "2024-02-29T00:00:00Z"],
         [pd.Timestamp("2024-02-29 01:00", tz="Europe/Berlin")], "2024-02-29T00:00:00"),
        ("durations", ["1 days 00:00:01"], [timedelta(days=1, seconds=1)], "86401000000"),
        ("text", ["a\r\nb", "a\rb", "a\nb"], [], "a\nb"),
    ],
)  # fmt: skip
def test_values_have_one_text_whatever_their_form(kind, texts, typed, canonical):
    assert canonical_text(pa.array(texts, pa.string()), kind).to_pylist() == [canonical] * len(texts)
    for value in typed:
        assert canonical_text(pa.array([value]), kind).to_pylist() == [canonical]


@pytest.mark.parametrize(
    ("kind", "text"),
    [(WHOLE, "7.5"), (WHOLE, "x"), (NUMBERS, "1,234.5"), (NUMBERS, "0x10"), ("booleans", "1"), (TIMES, "31.12.2024"),
     (TIMES, "2024-02-29T00:00:00Z"), ("times with a time zone", "2024-02-29")],
)  # fmt: skip
def test_values_of_another_kind_have_none(kind, text):
    assert canonical_text(pa.array([text]), kind).to_pylist() == [None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n1\n", "it lacks the column 'b'"),
        ("a,b,c\n1,x,2\n", "it holds the column 'c', which was not released"),
        ("a,b\n1,x\n1.5,x\n", "its column 'a' holds '1.5' in row 2, and whole numbers were released"),
        ('a,b\n1,"x\n', "is never closed"),
    ],
)
def test_the_first_difference_is_shown(text, message, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        contents_of(tmp_path / "a.csv", {"a": WHOLE, "b": "text"})


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_javascript_of_the_public_report_computes_the_same_digest(whole, tmp_path):
    code = (Path(fairflows.__file__).parent / "report" / "check.js").read_text(encoding="utf-8")
    rows, contents = whole
    times = ("2024-02-29T01:30:00.250+01:30", "2024-02-29 00:00:00Z", "")
    numbers = ("-123456.0009765625", "2.384185791015625e-07", "0.12345678901234567")
    columns = {"\ue000": ("a b", "😀", ""), "at": times, "😀": ("x", "y", "z"), "n": numbers}
    odd = as_csv([columns, *zip(*columns.values(), strict=True)], tmp_path / "odd.csv")
    kinds = {"at": "times with a time zone", "\ue000": "text", "😀": "text", "n": NUMBERS}
    for form in (name for name in FORMS if ".csv" in name):
        FORMS[form](rows, tmp_path / form)
        code += f"\nsay({json.dumps(form)}, {json.dumps(contents.kinds)});"
    code += f"\nsay('odd.csv', {json.dumps(kinds)});"
    read = """const { readFileSync } = require('fs');
        const say = async (file, kinds) => {
          const table = await readCsv(file, readFileSync(file), Object.keys(kinds));
          console.log(file, await contentsDigest(table, kinds));
        };"""
    (tmp_path / "digest.js").write_text(read + code, encoding="utf-8")
    done = subprocess.run(["node", "digest.js"], cwd=tmp_path, check=True, capture_output=True, text=True)
    found = dict(line.split() for line in done.stdout.splitlines())
    assert found.pop("odd.csv") == contents_of(odd, kinds).sha256
    assert set(found.values()) == {contents.sha256}
    assert len(found) == 10

"""Persons of a folder are sampled at random, each with all rows."""

import numpy as np
import pandas as pd
import pytest

from fairflows import DataError
from fairflows.table.reading import sample_persons


@pytest.fixture
def folder(tmp_path):
    """Forty persons with three rows each, in four files, so that a person's rows are in several."""
    folder = tmp_path / "rows"
    folder.mkdir()
    rows = pd.DataFrame({"person": np.tile(np.arange(40), 3), "x": np.arange(120)})
    for i in range(4):
        rows.iloc[30 * i : 30 * (i + 1)].to_parquet(folder / f"{i}.parquet", index=False)
    return folder


def sample(folder, n, identifier="person", key=b"key"):
    target = folder.parent / "sample.parquet"
    sample_persons(folder, target, n, identifier, key)
    return pd.read_parquet(target)


def test_all_rows_of_so_many_persons(folder):
    rows = sample(folder, 7)
    assert rows["person"].nunique() == 7
    assert (rows["person"].value_counts() == 3).all()
    assert (rows["x"] % 40 == rows["person"]).all()
    pd.testing.assert_frame_equal(sample(folder, 7), rows)
    assert set(sample(folder, 7, key=b"another")["person"]) != set(rows["person"])
    assert len(sample(folder, 1000)) == 120


def test_everybody_is_equally_likely(tmp_path):
    folder, taken = tmp_path / "rows", np.zeros(40)
    folder.mkdir()
    pd.DataFrame({"person": np.arange(40)}).to_parquet(folder / "0.parquet", index=False)
    for i in range(100):
        taken[sample(folder, 10, key=str(i).encode())["person"].unique()] += 1
    expected = 100 * 10 / 40
    assert ((taken - expected) ** 2 / (expected * 30 / 40)).sum() * 39 / 40 < 80.1  # χ²(39), one in ten thousand


def test_rows_that_nobody_named_are_sampled_one_by_one(folder):
    rows = sample(folder, 20, identifier=None)
    assert len(rows) == 20
    assert rows["x"].is_unique
    pd.testing.assert_frame_equal(sample(folder, 20, identifier=None), rows)


def test_an_unknown_identifier_is_refused(folder):
    with pytest.raises(DataError, match="'who'"):
        sample(folder, 3, identifier="who")
    (folder / "0.parquet").write_text("no Parquet")
    with pytest.raises(DataError, match="cannot be read"):
        sample(folder, 3)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"y": ["a"]}, "'y' is absent in the first, and (large_)?string in 9.parquet"),
        ({"x": ["a"]}, "'x' is int64 in the first, and (large_)?string in 9.parquet"),
        ({"x": np.array([0.5])}, "'x' is int64 in the first, and double in 9.parquet"),
    ],
)
def test_files_of_other_columns_are_refused(folder, column, message):
    pd.DataFrame({"person": [1], "x": [1], **column}).to_parquet(folder / "9.parquet", index=False)
    with pytest.raises(DataError, match=message):
        sample(folder, 3)


def test_a_file_may_have_no_value_in_a_column(folder):
    pd.DataFrame({"person": [99], "x": [None]}).to_parquet(folder / "9.parquet", index=False)
    assert sample(folder, 1000)["x"].isna().sum() == 1


@pytest.fixture
def in_parts(tmp_path):
    """The same in folders, as Hive and Spark write them; 01 is text, and one town is missing."""
    rows = pd.DataFrame({"person": np.arange(40), "x": np.arange(40) / 8})
    for i, name in enumerate(["M%C3%BCnchen", "M%C3%BCnchen", "Ulm", "__HIVE_DEFAULT_PARTITION__"]):
        part = tmp_path / "rows" / f"year={2020 + i}" / f"month={i:02d}" / f"town={name}"
        part.mkdir(parents=True)
        rows.iloc[10 * i : 10 * (i + 1)].to_parquet(part / "part.parquet", index=False)
    return tmp_path / "rows"


def test_names_of_folders_are_columns(in_parts):
    rows = sample(in_parts, 1000).sort_values("person", ignore_index=True)
    place = np.arange(40) // 10
    assert list(rows) == ["person", "x", "year", "month", "town"]
    assert rows["year"].tolist() == (2020 + place).tolist()
    assert rows["month"].tolist() == [f"{i:02d}" for i in place], "a leading zero is not lost"
    assert rows["town"][:30].tolist() == ["München"] * 20 + ["Ulm"] * 10
    assert rows["town"][30:].isna().all()
    assert set(sample(in_parts, 7)["person"]) == set(sample(in_parts, 7)["person"])


def test_a_column_in_files_and_in_names_of_folders_is_refused(in_parts):
    part = next(in_parts.rglob("*.parquet"))
    pd.read_parquet(part).assign(year=1).to_parquet(part.parent / "0.parquet", index=False)
    with pytest.raises(DataError, match="'year'"):
        sample(in_parts, 3)

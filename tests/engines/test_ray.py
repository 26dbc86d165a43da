"""Folders of Parquet files on Ray: the rows of our own stream, in several tasks, whole or not at all."""

import logging
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pytest
from engines.conftest import FEATURES, ROLES, N, assert_same_rows

import fairflows as ff
from fairflows.density import MixtureDensity
from fairflows.stream.ray_folders import _located, _with_lots, encode_folder

ray = pytest.importorskip("ray", reason="fairflows[engines] is not installed")
pytest.importorskip("ray.data", reason="fairflows[engines] is not installed")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Ray itself warns of when it starts
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        ray.data.DataContext.get_current()
    yield
    ray.shutdown()


def read(folder, **settings):
    return pyarrow.dataset.dataset(folder, format="parquet", **settings).to_table().to_pandas()


def test_a_folder_is_encoded_like_a_file_by_several_tasks(model, folder, expected, tmp_path):
    context = ray.data.DataContext.get_current()
    before = context.execution_options.preserve_order
    assert encode_folder(model, folder, tmp_path / "out", batch_rows=500, **ROLES) == N
    encoded = read(tmp_path / "out")
    assert_same_rows(encoded, expected)
    assert len(list((tmp_path / "out").iterdir())) == 4, "one file per task, two tasks per processor"
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "nothing is left beside it"
    assert ray.data.DataContext.get_current() is context
    assert context.execution_options.preserve_order == before
    order = encoded["person"].str.removeprefix("p").astype(int)
    assert abs(np.corrcoef(order, np.arange(N))[0, 1]) < 6 / np.sqrt(N)  # that of a random order is about 1/√n


def test_rows_keep_their_order_where_asked(model, folder, frame, tmp_path):
    encode_folder(model, folder, tmp_path / "out", batch_rows=500, keep_order=True, **ROLES)
    assert read(tmp_path / "out")["person"].tolist() == frame["person"].tolist()


def test_persons_meet_the_model_that_has_not_seen_them(frame, folder, tmp_path):
    table = ff.Table(
        frame[[*FEATURES, "sex", "repaid", "person"]], sensitive="sex", label="repaid", identifier="person"
    )
    model = ff.CrossFit(ff.FairTree(n_cells=4)).fit(table)
    encode_folder(model, folder, tmp_path / "out", **ROLES)
    encoded = read(tmp_path / "out").set_index("person")["cell"]
    assert encoded.loc[frame["person"]].tolist() == model.transform(table)["cell"].tolist()


def test_names_of_folders_are_columns(frame, folder, tmp_path):
    rows = frame[[*FEATURES, "sex", "person"]].assign(year=np.arange(N) % 2 + 2024, month=np.arange(N) % 3)
    rows["month"] = "0" + rows["month"].astype(str)
    table = ff.Table(rows, sensitive="sex", identifier="person")
    model = ff.CrossFit(ff.FairTree(n_cells=4)).fit(table)
    for (year, month), part in rows.groupby(["year", "month"]):
        place = tmp_path / "in" / f"year={year}" / f"month={month}"
        place.mkdir(parents=True)
        part.drop(columns=["year", "month"]).to_parquet(place / "0.parquet", index=False)
    encode_folder(model, tmp_path / "in", tmp_path / "out", **ROLES)
    encoded = read(tmp_path / "out").set_index("person")["cell"]
    assert encoded.loc[rows["person"]].tolist() == model.transform(table)["cell"].tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"person": ["01", "1"]}, "'person' is int64 in the first, and string in 9.parquet"),
        ({"age": None}, "'age' is int64 in the first, and absent in 9.parquet"),
        ({"year": [2030, 2031]}, "'year' is absent in the first, and int64 in 9.parquet"),
    ],
)
def test_files_of_other_columns_are_refused(frame, tmp_path, changes, message):
    rows = frame[[*FEATURES, "sex"]].assign(person=np.arange(N), year=2024)
    model = ff.FairTree(n_cells=4).fit(ff.Table(rows, sensitive="sex", identifier="person"))
    place = tmp_path / "in" / "year=2024"
    place.mkdir(parents=True)
    rows.drop(columns="year").to_parquet(place / "0.parquet", index=False)
    other = rows.drop(columns="year").iloc[:2].assign(unused=1, **changes).dropna(axis=1)
    other.to_parquet(place / "9.parquet", index=False)
    with pytest.raises(ff.DataError, match=message):
        encode_folder(model, tmp_path / "in", tmp_path / "out", **ROLES)


def test_a_task_that_runs_again_gives_its_rows_the_same_places():
    rows = pa.table({"x": [1.5, None, 2.0], "person": ["a", "b", "c"]})
    lots = _with_lots(rows, 7, b"a secret of a job")
    assert lots.equals(_with_lots(rows, 7, b"a secret of a job"))
    assert lots[-1] != _with_lots(rows, 7, b"another")[-1]
    assert lots[-1] != _with_lots(rows, 8, b"a secret of a job")[-1], "equal rows of two files do not come together"


def test_another_file_system_is_told_when_all_is_written(model, folder, expected, tmp_path):
    elsewhere = pyarrow.fs.SubTreeFileSystem(str(folder.parent), pyarrow.fs.LocalFileSystem())
    encode_folder(model, "rows", "elsewhere", filesystem=elsewhere, **ROLES)
    assert (folder.parent / "elsewhere" / "_SUCCESS").exists()
    assert_same_rows(read("elsewhere", filesystem=elsewhere), expected)


def test_what_a_worker_refuses_is_refused_here_and_nothing_is_left(model, frame, tmp_path):
    (tmp_path / "in").mkdir()
    nobody = frame.assign(sex=["x", *frame["sex"][1:]])
    nobody.to_parquet(tmp_path / "in" / "0.parquet", index=False)
    elsewhere = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    for settings in ({"source": tmp_path / "in", "target": tmp_path / "out"},
                     {"source": "in", "target": "out", "filesystem": elsewhere}):  # fmt: skip
        with pytest.raises(ff.DataError, match="must be one of the groups"):
            encode_folder(model, **settings, **ROLES)
        assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_unknown_values_are_said_once(tmp_path):
    rows = pd.DataFrame({"town": np.resize(["Ulm", "Bonn"], 400), "sex": np.repeat(["f", "m"], 200)})
    model = ff.FairMatching(1.0, density="counts", unseen="other").fit(rows[["town"]], sensitive_features=rows["sex"])
    (tmp_path / "in").mkdir()
    rows.assign(town=np.resize(["Ulm", "Jena"], 400)).to_parquet(tmp_path / "in" / "0.parquet", index=False)
    with pytest.warns(ff.DataWarning, match=r"200 rows hold categories .* \(f: 100, m: 100\)") as said:
        encode_folder(model, tmp_path / "in", tmp_path / "out", sensitive="sex", batch_rows=50)
    assert len(said) == 1


def test_wrong_places_are_refused(model, frame, folder, tmp_path):
    with pytest.raises(ff.DataError, match="there is no such folder"):
        encode_folder(model, tmp_path / "nowhere", tmp_path / "out", **ROLES)
    with pytest.raises(ff.DataError, match="exists already"):
        encode_folder(model, folder, tmp_path, **ROLES)
    unnamed = ff.FairMatching(0.5, density="counts").fit(frame[["town"]], sensitive_features=frame["sex"])
    with pytest.raises(ff.DataError, match="identifier=..."):
        encode_folder(unnamed, folder, tmp_path / "out", sensitive="sex")


def test_a_frontier_is_the_same_on_ray(frame):
    table = ff.Table(frame[["age", "income"]], sensitive=frame["sex"].to_numpy(), label=frame["repaid"].to_numpy())
    flows = ff.FairFlow(n_epochs=2, hidden=(8,), density=MixtureDensity(1), key=b"the same on all machines")
    settings = {"gammas": [0.1, 0.9], "seeds": 2, "n_draws": 100}
    here, there = ff.frontier(flows, table, **settings), ff.frontier(flows, table, engine="ray", **settings)
    pd.testing.assert_frame_equal(here.to_frame(), there.to_frame(), rtol=1e-4)
    assert [encoder.gamma for encoder in there.encoders] == [0.1, 0.1, 0.9, 0.9]


def test_uris_are_understood(tmp_path):
    from pathlib import Path

    for path in (f"file://{tmp_path}", Path(f"file://{tmp_path}"), tmp_path):
        filesystem, place = _located(path, None)
        assert isinstance(filesystem, pyarrow.fs.LocalFileSystem)
        assert place == str(tmp_path)
    for path in ("s3://bucket/rows?region=eu-west-1", Path("s3://bucket/rows?region=eu-west-1")):
        filesystem, place = _located(path, None)
        assert isinstance(filesystem, pyarrow.fs.S3FileSystem)
        assert place == "bucket/rows"
    with pytest.raises(ff.DataError, match="cannot be reached"):
        _located("gopher://rows", None)

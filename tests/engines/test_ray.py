"""A folder of Parquet files on Ray: the rows of our own stream, in random order, whole or not at all."""

import logging
import warnings

import numpy as np
import pandas as pd
import pytest
from engines.conftest import FEATURES, ROLES, N, assert_same_rows

import fairflows as ff
from fairflows.stream.engines import encode_folder

ray = pytest.importorskip("ray", reason="fairflows[engines] is not installed")
pytest.importorskip("ray.data", reason="fairflows[engines] is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:::ray.data.context")  # Ray's own, about its own settings


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Ray itself warns of when it starts
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield
    ray.shutdown()


def test_a_folder_is_encoded_like_a_file_in_random_order(model, folder, expected, tmp_path):
    assert encode_folder(model, folder, tmp_path / "out", **ROLES) == N
    encoded = pd.read_parquet(tmp_path / "out")
    assert_same_rows(encoded, expected)
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "nothing is left beside it"
    order = encoded["person"].str.removeprefix("p").astype(int)
    assert abs(np.corrcoef(order, np.arange(N))[0, 1]) < 6 / np.sqrt(N)  # that of a random order is about 1/√n


def test_persons_meet_the_model_that_has_not_seen_them(frame, folder, tmp_path):
    table = ff.Table(
        frame[[*FEATURES, "sex", "repaid", "person"]], sensitive="sex", label="repaid", identifier="person"
    )
    model = ff.Release(ff.FairTree(n_cells=4), output="cell").fit(table)
    encode_folder(model, folder, tmp_path / "out", **ROLES)
    encoded = pd.read_parquet(tmp_path / "out").set_index("person")["cell"]
    with pytest.warns(ff.DataWarning, match="They keep the cell that they have there"):
        own = model.transform(table)["cell"]
    assert encoded.loc[frame["person"]].tolist() == own.tolist()


def test_an_error_on_a_worker_is_one_here_and_nothing_is_left(model, frame, tmp_path):
    (tmp_path / "in").mkdir()
    nobody = frame.assign(sex=["x", *frame["sex"][1:]])
    nobody.to_parquet(tmp_path / "in" / "0.parquet", index=False)
    with pytest.raises(ff.DataError, match="must be one of the groups"):
        encode_folder(model, tmp_path / "in", tmp_path / "out", **ROLES)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_wrong_places_and_unnamed_persons_are_refused(model, frame, folder, tmp_path):
    with pytest.raises(ff.DataError, match="nowhere"):
        encode_folder(model, tmp_path / "nowhere", tmp_path / "out", **ROLES)
    with pytest.raises(ff.DataError, match="exists already"):
        encode_folder(model, folder, tmp_path, **ROLES)
    unnamed = ff.FairMatching(0.5, density="counts").fit(frame[["town"]], sensitive_features=frame["sex"])
    with pytest.raises(ff.DataError, match="identifier=..."):
        encode_folder(unnamed, folder, tmp_path / "out", sensitive="sex")

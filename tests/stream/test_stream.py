"""Files of any size: the same rows as in memory, in bounded memory, whole or not at all."""

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from known_tables import people
from scipy.spatial import KDTree

import fairflows as ff  # its parts are imported by those tests that use them: a process that is killed needs no torch
from fairflows import DataError, FairMatching, Release, Table, decode_file, encode_file, load, save
from fairflows.stream import files
from fairflows.stream.files import shuffled, write_table
from processes import start

N = 1000


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(files, "BATCH_ROWS", 100)


def rows(n=N):
    """A town whose name reads like a number, and persons with names."""
    return people(n).replace({"town": {"Köln": "12"}}).assign(person=[f"p{i}" for i in range(n)])


FEATURES = ["age", "income", "town"]


@pytest.fixture(scope="module")
def frame():
    return rows()


@pytest.fixture(scope="module")
def flow(frame):
    X = frame[FEATURES].set_index(pd.Index(frame["person"]))
    return ff.FairFlow(n_epochs=2, hidden=(8,), density=ff.density.MixtureDensity(1), identifier="person").fit(
        X, frame["repaid"], sensitive_features=frame["sex"]
    )


@pytest.fixture(scope="module")
def matching(frame):
    X = frame[["town", "sex"]]
    return FairMatching(0.5, density="counts", sensitive="sex").fit(
        X.set_index(pd.Index(frame["person"])), frame["repaid"]
    )


def write(frame, path):
    frame.to_parquet(path, index=False) if path.suffix == ".parquet" else frame.to_csv(path, index=False)
    return path


def read(path):
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


@pytest.mark.parametrize("source", ["a.parquet", "a.csv"])
@pytest.mark.parametrize("target", ["z.parquet", "z.csv"])
def test_a_file_is_encoded_as_in_memory_and_decoded_exactly(source, target, frame, flow, tmp_path):
    source, target, back = (write(frame, tmp_path / source), tmp_path / target, tmp_path / "back.parquet")
    roles = {"sensitive": "sex", "identifier": "person"}
    n = encode_file(flow, source, target, keep=["sex", "person"], keep_order=True, precision="float64", **roles)
    assert n == N
    in_memory = flow.transform(frame[FEATURES].set_index(pd.Index(frame["person"])), sensitive_features=frame["sex"])
    encoded = read(target)
    assert list(encoded) == ["z0", "z1", "z2", "sex", "person"]
    np.testing.assert_allclose(encoded[["z0", "z1", "z2"]], in_memory, rtol=0, atol=1e-12)

    decode_file(flow, target, back, **roles)
    pd.testing.assert_frame_equal(pd.read_parquet(back), frame[FEATURES], check_dtype=False)


def test_rows_are_shuffled_and_nothing_else_is_released_unless_asked(frame, flow, tmp_path):
    source = write(frame, tmp_path / "a.parquet")
    roles = {"sensitive": "sex", "identifier": "person"}
    encode_file(flow, source, tmp_path / "ordered.parquet", keep_order=True, **roles)
    encode_file(flow, source, tmp_path / "shuffled.parquet", **roles)
    ordered, mixed = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("ordered", "shuffled"))
    assert list(mixed) == ["z0", "z1", "z2"]
    assert (mixed.dtypes == np.float32).all()  # rounded at release, computed in float64
    distance, order = KDTree(ordered).query(mixed)
    assert distance.max() < 1e-5
    assert sorted(order) == list(range(N))
    # Random over the whole file, and not only within batches: rank correlation of a random order is about 1/√n.
    assert abs(np.corrcoef(order, np.arange(N))[0, 1]) < 6 / np.sqrt(N)


def test_every_order_is_equally_likely(tmp_path):
    counts = {}
    for i in range(300):
        folder = tmp_path / str(i)
        folder.mkdir()
        batches = [pa.table({"x": [0, 1]}), pa.table({"x": [2]})]
        order = tuple(v for part in shuffled(batches, 2, folder) for v in part["x"].to_pylist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    expected = 50
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 25.7  # χ²(5), one in ten thousand


def test_text_and_dates_of_a_file_come_back_as_they_were_written(tmp_path):
    rng = np.random.default_rng(1)
    texts = pd.DataFrame(
        {
            "zip": rng.choice(["00123", "04567", "10001"], 200),
            "town": rng.choice(["NA", "None", "Ulm"], 200),
            "day": rng.choice(pd.date_range("2020-01-01", periods=50).strftime("%Y-%m-%d"), 200),
            "sex": rng.choice(["f", "m"], 200),
            "person": [f"{i:03}" for i in range(200)],
        }
    )
    source, encoded, back = (tmp_path / name for name in ("a.csv", "z.csv", "back.csv"))
    texts.to_csv(source, index=False)
    table = Table.read(source, sensitive="sex", identifier="person")
    flow = ff.FairFlow(n_epochs=1, hidden=(8,), density=ff.density.MixtureDensity(1)).fit(
        table.X, sensitive_features=table.a
    )
    roles = {"sensitive": "sex", "identifier": "person"}
    encode_file(flow, source, encoded, keep=["sex", "person"], keep_order=True, precision="float64", **roles)
    decode_file(flow, encoded, back, **roles)
    assert back.read_text() == texts[["zip", "town", "day"]].to_csv(index=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="age"), "'age' is not in the table"),
        (lambda f: f.drop(columns="sex"), "'sex' is not in the table"),
        (lambda f: f.assign(sex="x"), "must be one of the groups"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_no_file(change, message, frame, flow, tmp_path):
    source = write(change(frame), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=message):
        encode_file(flow, source, tmp_path / "z.parquet", sensitive="sex", identifier="person")
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("target", ["z.csv", "z.parquet"])
def test_a_file_without_a_row_gives_one_without_a_row(target, frame, flow, tmp_path):
    source = write(frame.iloc[:0], tmp_path / "a.parquet")
    assert encode_file(flow, source, tmp_path / target, sensitive="sex", identifier="person") == 0
    assert list(read(tmp_path / target)) == list(flow.get_feature_names_out())


@pytest.mark.parametrize("target", ["z.csv", "z.parquet"])
def test_the_header_stands_once_where_the_first_batches_are_dropped(target, frame, matching, tmp_path):
    holes = frame[["town", "sex", "person"]].assign(sex=frame["sex"].where(frame.index >= 250))
    source, settings = write(holes, tmp_path / "a.parquet"), {"sensitive": "sex", "missing_group": "drop"}
    with pytest.warns(ff.DataWarning, match="250 rows without a group"):
        assert encode_file(matching, source, tmp_path / target, keep_order=True, identifier="person", **settings) == 750
    assert len(read(tmp_path / target)) == 750


def test_a_target_is_what_its_name_says(frame, flow, tmp_path):
    source, settings = write(frame, tmp_path / "rows.csv"), {"sensitive": "sex", "identifier": "person"}
    encode_file(flow, source, tmp_path / "z.parquet", keep_order=True, keep=["town", "town"], **settings)
    encode_file(flow, source, tmp_path / "z.csv", keep_order=True, keep=["town"], **settings)
    written = pd.read_parquet(tmp_path / "z.parquet"), pd.read_csv(tmp_path / "z.csv")
    pd.testing.assert_frame_equal(*written, check_dtype=False)
    for name in ("z.csv.gz", "z.tsv", "z.xlsx"):
        with pytest.raises(DataError, match=r"a file is written as \.csv or \.parquet"):
            encode_file(flow, source, tmp_path / name, **settings)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        encode_file(flow, tmp_path / "folder.csv", tmp_path / "z.csv", **settings)


def test_a_file_is_never_written_over_what_is_read(frame, flow, tmp_path):
    source = write(frame, tmp_path / "rows.csv")
    (tmp_path / "link.csv").symlink_to(source)
    before = source.read_bytes()
    for target in (source, tmp_path / "link.csv", tmp_path / "." / "rows.csv"):
        with pytest.raises(DataError, match="would be lost"):
            encode_file(flow, source, target, sensitive="sex", identifier="person")
        with pytest.raises(DataError, match="would be lost"):
            decode_file(flow, source, target, sensitive="sex", identifier="person")
    assert source.read_bytes() == before


def test_other_refusals(frame, flow, tmp_path):
    source = write(frame, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="no such file"):
        encode_file(flow, tmp_path / "nothing.csv", tmp_path / "z.csv", sensitive="sex")
    with pytest.raises(DataError, match="name it"):
        encode_file(flow, source, tmp_path / "z.csv")
    with pytest.raises(DataError, match="there is no folder"):
        encode_file(flow, source, tmp_path / "no" / "z.csv", sensitive="sex", identifier="person")
    with pytest.raises(ValueError, match="precision must be"):
        encode_file(flow, source, tmp_path / "z.csv", sensitive="sex", precision="half")
    table = Table(frame[[*FEATURES, "sex", "repaid", "person"]], sensitive="sex", label="repaid", identifier="person")
    release = Release.around(flow, table, n_cells=2, output="cell")
    encode_file(release, source, tmp_path / "cells.parquet", sensitive="sex", identifier="person")
    assert set(pd.read_parquet(tmp_path / "cells.parquet")["cell"]) == {0, 1}
    with pytest.raises(DataError, match="cannot be decoded"):
        decode_file(release, tmp_path / "cells.parquet", tmp_path / "back.csv", sensitive="sex")


ENCODE = """
import sys, warnings; warnings.simplefilter("ignore")
from fairflows.stream.files import encode_file
from fairflows.storage import load
encode_file(load(sys.argv[1]), sys.argv[2], sys.argv[3], sensitive="sex", identifier="person")
"""


def encode_and_die(model, source, target):
    def in_the_middle(done, total, text):
        if done > 500:
            os.kill(os.getpid(), signal.SIGKILL)

    files.BATCH_ROWS = 100  # in this process
    files.progress_bar = lambda verb: nullcontext(in_the_middle)
    encode_file(load(model), source, target, sensitive="sex", identifier="person")


def test_killed_in_the_middle_the_old_file_is_left_and_a_rerun_works(frame, matching, tmp_path):
    save(matching, tmp_path / "model")
    source, target = write(frame, tmp_path / "a.parquet"), tmp_path / "z.parquet"
    target.write_bytes(b"the old one")
    killed = start(encode_and_die, tmp_path / "model", source, target)
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".z.parquet.partial")]
    assert target.read_bytes() == b"the old one"
    assert encode_file(matching, source, target, sensitive="sex", identifier="person") == N
    assert len(pd.read_parquet(target)) == N


# Linux counts the peak of the parent into ru_maxrss of a child; VmHWM is the process's own.
PEAK = """
{encode}
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
def test_memory_does_not_grow_with_the_file(flow, tmp_path):
    save(flow, tmp_path / "model")
    peaks = []
    for n in (500_000, 2_000_000):
        source = tmp_path / f"{n}.parquet"
        rows(n).to_parquet(source, index=False, row_group_size=2**17)
        code = PEAK.format(encode=ENCODE)
        done = subprocess.run([sys.executable, "-c", code, tmp_path / "model", source, tmp_path / "z.parquet"],
                              capture_output=True, text=True, check=True)  # fmt: skip
        peaks.append(int(done.stdout))
    assert peaks[1] < 1.15 * peaks[0]


def test_whole_numbers_with_gaps_are_written_whole(tmp_path):
    """As floats they would lose digits, and look otherwise than in the parts of the file without gaps."""
    path = tmp_path / "t.csv"
    table = pa.table({"a": [2**53 + 1, None, 7], "b": [True, None, False], "c": [0.5, None, 2.0]})
    assert write_table([table], path, path) == 3
    assert path.read_text().splitlines() == ["a,b,c", "9007199254740993,True,0.5", ",,", "7,False,2.0"]

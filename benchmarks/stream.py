"""Encode a large Parquet file of Crime's shape; print rows a second and peak memory.

python benchmarks/stream.py [rows]        (needs FAIRFLOWS_DATA with the Crime data)
"""

import multiprocessing
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairflows import FairFlow
from fairflows.paper import load_crime
from fairflows.storage import load, save
from fairflows.stream.files import encode_file


def write_rows(path: Path, n_rows: int) -> None:
    """Crime's rows, drawn with replacement, under a new identifier each."""
    crime = load_crime()
    frame = crime.X.reset_index(drop=True).assign(minority=crime.a.to_numpy())
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(path, pa.Table.from_pandas(frame.assign(person=0), preserve_index=False).schema) as writer:
        for start in range(0, n_rows, 2**18):
            part = frame.iloc[rng.integers(len(frame), size=min(2**18, n_rows - start))]
            part = part.assign(person=np.arange(start, start + len(part)))
            writer.write_table(pa.Table.from_pandas(part, preserve_index=False))


def main() -> None:
    n_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    crime = load_crime()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        save(FairFlow(0.9, n_epochs=5).fit(crime.X, crime.y, sensitive_features=crime.a), folder / "model")
        write_rows(folder / "rows.parquet", n_rows)
        for keep_order in (True, False):
            # A process of its own, so that the peak is that of encoding alone.
            worker = multiprocessing.get_context("spawn").Process(target=encode, args=(folder, n_rows, keep_order))
            worker.start()
            worker.join()


def encode(folder: Path, n_rows: int, keep_order: bool) -> None:
    warnings.simplefilter("ignore")
    model = load(folder / "model")
    start, cpu = time.perf_counter(), time.process_time()
    encode_file(
        model,
        folder / "rows.parquet",
        folder / "encoded.parquet",
        sensitive="minority",
        identifier="person",
        keep_order=keep_order,
    )
    seconds, busy = time.perf_counter() - start, time.process_time() - cpu
    # The process's own peak, in kB: ru_maxrss would count that of the process that started it.
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 2**20
    order = "in order" if keep_order else "shuffled"
    print(
        f"{n_rows:,} rows, {order}: {n_rows / seconds:,.0f} rows a second ({n_rows / busy:,.0f} a processor second), "
        f"peak memory {peak:.2f} GiB"
    )


if __name__ == "__main__":
    main()

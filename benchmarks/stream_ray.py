"""Encode a folder of Parquet files of Crime's shape on Ray with one and two local workers, and compare with our stream.

python benchmarks/stream_ray.py [rows]        (needs fairflows[ray], and FAIRFLOWS_DATA with the Crime data)
"""

import logging
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import pyarrow.dataset
import pyarrow.parquet as pq
import ray
from stream import write_rows

from fairflows import FairFlow, load_crime
from fairflows.stream.files import encode_file
from fairflows.stream.ray_folders import encode_folder

COLUMNS = {"sensitive": "minority", "identifier": "person", "keep": ["person"]}


class PeakMemory(threading.Thread):
    """The most memory that Ray's workers had at once, in bytes; pages that they share are counted once."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes, self._over = 0, threading.Event()

    def run(self) -> None:
        """Look twice a second."""
        while not self._over.wait(0.5):
            self.bytes = max(self.bytes, sum(map(_proportional_bytes, Path("/proc").glob("[0-9]*"))))

    def stop(self) -> int:
        """The peak."""
        self._over.set()
        self.join()
        return self.bytes


def _proportional_bytes(process: Path) -> int:
    try:
        if not (process / "cmdline").read_bytes().startswith(b"ray::"):
            return 0
        lines = (process / "smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    except (OSError, StopIteration):  # it has ended
        return 0


def main() -> None:
    n_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    crime = load_crime()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # Ray sets the levels of its loggers itself
    model = FairFlow(0.9, n_epochs=5).fit(crime.X, crime.y, sensitive_features=crime.a)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder / "all.parquet", n_rows)
        (folder / "parts").mkdir()
        whole = pq.ParquetFile(folder / "all.parquet")
        for i in range(whole.num_row_groups):
            pq.write_table(whole.read_row_group(i), folder / "parts" / f"{i:03d}.parquet")
        start = time.perf_counter()
        encode_file(model, folder / "all.parquet", folder / "one.parquet", keep_order=True, **COLUMNS)
        print(f"our stream: {time.perf_counter() - start:,.0f} s for {n_rows:,} rows", flush=True)
        one = pq.read_table(folder / "one.parquet").sort_by("person")
        for n_workers in (1, 2):
            ray.init(num_cpus=n_workers, logging_level="ERROR", log_to_driver=False, include_dashboard=False)
            ray.data.DataContext.get_current().enable_progress_bars = False
            peak, start, out = PeakMemory(), time.perf_counter(), folder / f"out-{n_workers}"
            peak.start()
            encode_folder(model, folder / "parts", out, **COLUMNS)
            seconds = time.perf_counter() - start
            ray.shutdown()
            other = pyarrow.dataset.dataset(out, format="parquet").to_table().sort_by("person")
            same = sum(one[c].combine_chunks().equals(other[c].combine_chunks()) for c in one.column_names)
            print(
                f"Ray, {n_workers} worker{'s' * (n_workers > 1)}: {seconds:,.0f} s, {len(list(out.iterdir()))} tasks, "
                f"{peak.stop() / 2**30:.1f} GiB at most, {same} of {one.num_columns} columns equal",
                flush=True,
            )


if __name__ == "__main__":
    main()

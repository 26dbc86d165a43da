"""Encode a folder of Parquet files of Crime's shape on Ray with two local workers, and compare with one process.

python benchmarks/stream_ray.py [rows]        (needs fairflows[ray], and FAIRFLOWS_DATA with the Crime data)
"""

import sys
import tempfile
import time
import warnings
from pathlib import Path

import pyarrow.dataset
import pyarrow.parquet as pq
import ray
from stream import write_rows

from fairflows import FairFlow, load_crime
from fairflows.stream.files import encode_file, encode_folder

COLUMNS = {"sensitive": "minority", "identifier": "person", "keep": ["person"]}


def main() -> None:
    n_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    crime = load_crime()
    warnings.simplefilter("ignore")
    model = FairFlow(0.9, n_epochs=5).fit(crime.X, crime.y, sensitive_features=crime.a)
    ray.init(num_cpus=2, logging_level="ERROR", log_to_driver=False, include_dashboard=False)
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name).resolve()
        write_rows(folder / "all.parquet", n_rows)
        (folder / "parts").mkdir()
        whole = pq.ParquetFile(folder / "all.parquet")
        for i in range(whole.num_row_groups):
            pq.write_table(whole.read_row_group(i), folder / "parts" / f"{i:03d}.parquet")
        start = time.perf_counter()
        encode_file(model, folder / "all.parquet", folder / "one.parquet", keep_order=True, **COLUMNS)
        print(f"one process: {n_rows / (time.perf_counter() - start):,.0f} rows a second")
        start = time.perf_counter()
        encode_folder(model, folder / "parts", folder / "out", **COLUMNS)
        print(f"Ray, two workers: {n_rows / (time.perf_counter() - start):,.0f} rows a second")
        one = pq.read_table(folder / "one.parquet").sort_by("person")
        two = pyarrow.dataset.dataset(folder / "out", format="parquet").to_table().sort_by("person")
        same = all(one[c].combine_chunks().equals(two[c].combine_chunks()) for c in one.column_names)
        print(f"the same values in every row: {same}")


if __name__ == "__main__":
    main()

"""A random order of more rows than fit in memory.

The order of rows is information: a file is often sorted by place, date or name, and whoever has another copy of it can
put persons back to their rows. Shuffling within batches would leave nearly all of that. So rows are dealt out at random
to buckets on disk, and each bucket, small enough for memory, is shuffled (Rao, 1961; Sandelius, 1962): every order of
all rows is equally likely.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

ROWS_PER_BUCKET = 2**18
MOST_BUCKETS = 512  # files that are open at once


def number_of_buckets(n_rows: int) -> int:
    """Buckets for about so many rows."""
    return int(np.clip(-(-n_rows // ROWS_PER_BUCKET), 1, MOST_BUCKETS))


def shuffled(batches: Iterable[pa.Table], n_buckets: int, folder: Path) -> Iterator[pa.Table]:
    """The rows of all batches in random order.

    Parameters
    ----------
    batches : iterable of pyarrow.Table
        All of one schema.
    n_buckets : int
        In how many parts the rows are held in memory, one after the other.
    folder : Path
        An empty, private folder for the buckets.
    """
    rng = np.random.default_rng(secrets.randbits(128))  # an order that a seed repeats would be no secret
    paths = [folder / f"{i}.arrow" for i in range(n_buckets)]
    writers: list[pa.RecordBatchFileWriter] = []
    try:
        for table in batches:
            if not writers:
                writers = [pa.ipc.new_file(path, table.schema) for path in paths]
            bucket = rng.integers(n_buckets, size=table.num_rows)
            order = np.argsort(bucket, kind="stable")
            ends = np.cumsum(np.bincount(bucket, minlength=n_buckets))
            dealt = table.take(order)
            for i, end in enumerate(ends):
                start = 0 if i == 0 else int(ends[i - 1])
                if end > start:
                    writers[i].write_table(dealt.slice(start, int(end) - start))
    finally:
        for writer in writers:
            writer.close()
    for path in paths if writers else []:
        with pa.OSFile(str(path)) as source:
            bucket_rows = pa.ipc.open_file(source).read_all()
        path.unlink()
        if bucket_rows.num_rows:
            yield bucket_rows.take(rng.permutation(bucket_rows.num_rows))

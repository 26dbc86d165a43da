"""A random sample of persons from a folder of Parquet files, with all their rows, in bounded memory.

Fitting and certifying hold their rows in memory, and need no more of them than a bound takes. Persons are sampled, and
not rows, since a certificate counts persons.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fairflows.exceptions import DataError, ParameterError
from fairflows.table.columns import check_known
from fairflows.table.persons import Hashes, Persons, fingerprint, keyed_hashes
from fairflows.table.reading import explained, parquet_folder, refuse_other_columns


def sample_persons(source: Path, target: Path, n: int, identifier: str | None, key: bytes) -> None:
    """Write all rows of n random persons to a Parquet file; of all persons where there are no more.

    Every set of n persons is equally likely to whoever does not know the key; with the same key, one folder always
    gives the same persons. The folder is read twice, once for the identifiers alone. Without an identifier, every row
    counts as another person.
    """
    if n < 1:
        raise ParameterError("sample", "must be at least 1", n)
    with explained(source):
        rows = parquet_folder(source)
        if identifier is not None:
            check_known(identifier, pd.Index(rows.schema.names), "identifier")
        refuse_other_columns(rows, source)
        lowest = np.empty(0, dtype=np.uint64)
        names = rows.to_batches(columns=[] if identifier is None else [identifier])
        for _, lots in _with_lots(names, identifier, key):
            lowest = np.unique(np.concatenate([lowest, lots]))[:n]
        if not len(lowest):
            raise DataError(f"{source}: the table has no rows.")
        with pq.ParquetWriter(target, rows.schema) as writer:
            for batch, lots in _with_lots(rows.to_batches(), identifier, key):
                writer.write_batch(batch.filter(pa.array(lots <= lowest[-1])))


def _with_lots(
    batches: Iterator[pa.RecordBatch], identifier: str | None, key: bytes
) -> Iterator[tuple[pa.RecordBatch, Hashes]]:
    """Batches, each with the lot of every row: a keyed hash of its person, or for rows without names a random number.

    The same numbers come again for the same folder, as its rows do.
    """
    generator = np.random.default_rng(int(fingerprint(["sample"], key), 16))
    for batch in batches:
        if identifier is None:
            yield batch, generator.integers(2**64, size=batch.num_rows, dtype=np.uint64)
        elif batch.num_rows:
            persons = Persons.of(batch.column(identifier).to_pandas())
            yield batch, keyed_hashes(np.asarray(persons.names), key, "sample")[persons.codes]

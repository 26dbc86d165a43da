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
import pyarrow.dataset
import pyarrow.parquet as pq

from fairflows.exceptions import DataError, ParameterError
from fairflows.table.columns import check_known
from fairflows.table.persons import Hashes, Persons, fingerprint, keyed_hashes
from fairflows.table.reading import explained, parquet_folder


def sample_persons(source: Path, target: Path, n: int, identifier: str | None, key: bytes) -> None:
    """Write all rows of n random persons; of all persons where there are no more.

    Every set of n persons is equally likely to whoever does not know the key; with the same key, one folder always
    gives the same persons. The folder is read twice, once for the identifiers alone.

    Parameters
    ----------
    source : Path
        A folder of Parquet files of one schema, or one such file, as `parquet_folder` reads it.
    target : Path
        The Parquet file to write.
    n : int
        How many persons.
    identifier : str or None
        The column that names a row's person; without one, every row counts as another person.
    key : bytes
        What decides who is taken: a seed as text, or a secret.
    """
    if n < 1:
        raise ParameterError("sample", "must be at least 1", n)
    with explained(source):
        rows = parquet_folder(source)
        if identifier is not None:
            check_known(identifier, pd.Index(rows.schema.names), "identifier")
        _refuse_other_columns(rows, source)
        lowest = np.empty(0, dtype=np.uint64)
        names = rows.to_batches(columns=[] if identifier is None else [identifier])
        for _, lots in _with_lots(names, identifier, key):
            lowest = np.unique(np.concatenate([lowest, lots]))[:n]
        if not len(lowest):
            raise DataError(f"{source}: the table has no rows.")
        with pq.ParquetWriter(target, rows.schema) as writer:
            for batch, lots in _with_lots(rows.to_batches(), identifier, key):
                writer.write_batch(batch.filter(pa.array(lots <= lowest[-1])))


def _refuse_other_columns(rows: pyarrow.dataset.FileSystemDataset, source: Path) -> None:
    """Arrow reads all files by the schema of the first, and would leave out, empty or round what others hold."""
    in_names = rows.partitioning.schema.names
    first = {field.name: field.type for field in rows.schema if field.name not in in_names}
    for fragment in rows.get_fragments():
        own = dict(zip(fragment.physical_schema.names, fragment.physical_schema.types, strict=True))
        for name in [*first, *own]:
            here, there = (str(columns.get(name, "absent")) for columns in (first, own))
            if here != there and there != "null":  # a column without any value, in this file
                raise DataError(
                    f"{source}: all files must have the same columns; {name!r} is {here} in the first, and {there} in "
                    f"{Path(fragment.path).name}."
                )


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

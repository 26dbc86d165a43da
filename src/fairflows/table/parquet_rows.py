"""The rows of a Parquet file, whose columns are all alike: none becomes the index of a frame."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_UNNAMED = re.compile(r"__index_level_\d+__")  # as pandas calls an index that has no name


class ParquetRows:
    """The columns of a Parquet file as Arrow tables.

    An index that pandas stored under a name is a column with that name. One without a name is left out: it numbers the
    rows of the frame that was written, and says nothing about them.

    Attributes
    ----------
    columns : list of str
        The names of the columns.
    n_rows : int
        How many rows there are.
    """

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path)
        self.n_rows = self._file.metadata.num_rows
        schema = self._file.schema_arrow
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        unnamed = {name for name in index if isinstance(name, str) and _UNNAMED.fullmatch(name)}
        # pandas stores an index that counts as three numbers; under other tools they may outlive the rows they counted.
        counts = {
            part["name"]: range(part["start"], part["stop"], part["step"])
            for part in index
            if isinstance(part, dict) and part["name"] is not None
        }
        self._counts = {name: count for name, count in counts.items() if len(count) == self.n_rows}
        self.columns = [*(name for name in schema.names if name not in unnamed), *self._counts]

    def read(self) -> pa.Table:
        """All rows and columns."""
        return self._completed(self._file.read(self._stored(self.columns)), self.columns, 0)

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.Table]:
        """These columns, so many rows at a time."""
        start = 0
        for batch in self._file.iter_batches(batch_rows, columns=self._stored(columns), use_threads=False):
            yield self._completed(pa.Table.from_batches([batch]), columns, start)
            start += batch.num_rows

    def _stored(self, columns: Sequence[str]) -> list[str]:
        return [name for name in columns if name not in self._counts]

    def _completed(self, table: pa.Table, columns: Sequence[str], start: int) -> pa.Table:
        """The rows from `start` on, with the index that counts, and without pandas' notes about it."""
        stop = start + table.num_rows
        for name in columns:
            if name in self._counts:
                table = table.append_column(name, pa.array(self._counts[name][start:stop], pa.int64()))
        return table.replace_schema_metadata(None).select(list(columns))

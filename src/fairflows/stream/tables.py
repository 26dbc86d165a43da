"""Tables that stream: CSV and Parquet files read and written a batch at a time, and their rows in random order.

The order of rows is information: a file is often sorted by place, date or name, and whoever has another copy of it can
put persons back to their rows. Shuffling within batches would leave nearly all of that. So rows are dealt out at random
to buckets on disk, and each bucket, small enough for memory, is shuffled (Rao, 1961; Sandelius, 1962): every order of
all rows is equally likely.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fairflows.exceptions import DataError
from fairflows.table.columns import check_known
from fairflows.table.dialect import Dialect, own_dialect
from fairflows.table.field_types import as_types, column_types, number_marks
from fairflows.table.frames import NULLABLE, Values, as_arrow, from_arrow
from fairflows.table.reading import (
    ParquetRows,
    explaining_errors,
    kind_of,
    naming_file,
    open_table,
    say_what_was_recognised,
    with_identifier,
)
from fairflows.table.schema import Schema
from fairflows.table.text_files import COMPRESSION

_ROW_GROUP = 2**17
ROWS_PER_BUCKET = 2**18
MOST_BUCKETS = 512  # files that are open at once


class TableReader:
    """The rows of a CSV (plain or compressed), Excel or Parquet file in batches, the last of which may be shorter.

    Columns of text files are read by the `schema`, where it has them; the `identifier`, which names persons, is text,
    whatever it looks like; others are judged by the whole file. What `dialect` does not state is recognised, and a
    warning says as what.
    """

    def __init__(
        self,
        path: Path,
        batch_rows: int,
        schema: Schema | None = None,
        identifier: str | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        self.path = path
        self.batch_rows = batch_rows
        self._schema = Schema({}) if schema is None else schema
        self._identifier = identifier
        self._stated = dialect or Dialect()
        self._rows = open_table(path, self._stated)
        self.columns = self._rows.columns

    @property
    def n_rows(self) -> int | None:
        """How many rows there are, where the file says so."""
        return self._rows.n_rows if isinstance(self._rows, ParquetRows) else None

    def batches(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """These columns, each once, batch by batch, checked; the index counts the rows of the whole file."""
        schema, start = self._schema.part(columns), 0
        for table in self.tables(columns):
            frame = from_arrow(table)
            with naming_file(self.path):
                schema.check(frame)
            yield frame.set_axis(pd.RangeIndex(start, start + len(frame), name="row"))
            start += len(frame)

    def tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """These columns, each once, batch by batch, as Arrow tables."""
        for name in columns:
            check_known(name, pd.Index(self.columns), "needed")
        columns = list(dict.fromkeys(columns))
        n_rows = 0
        with explaining_errors(self.path), naming_file(self.path):
            for table in self._tables(columns, self._schema.part(columns)):
                n_rows += table.num_rows
                yield table
        if not n_rows:
            raise DataError(f"{self.path}: the table has no rows.")

    def _tables(self, columns: list[str], schema: Schema) -> Iterator[pa.Table]:
        if isinstance(self._rows, ParquetRows):
            yield from self._rows.batches(columns, self.batch_rows)
            return
        # Marks and types must hold for the whole file: a batch of digits alone may be of a column of text.
        *_, last = self.columns
        fields = [*(name for name in columns if name != last), last]
        kinds = with_identifier(schema.kinds, self._identifier)
        dialect = number_marks(self._rows.batches(fields), self._rows.dialect, kinds)
        say_what_was_recognised(self.path, self._stated, dialect)
        types = column_types(self._rows.batches(fields), kinds, dialect)
        for table in _slices(self._rows.batches(columns), self.batch_rows):
            yield as_types(table, types, dialect)


def _slices(batches: Iterable[pa.RecordBatch], n_rows: int) -> Iterator[pa.Table]:
    """The rows of the batches, so many at a time."""
    waiting: pa.Table | None = None
    for batch in batches:
        table = pa.Table.from_batches([batch])
        waiting = table if waiting is None else pa.concat_tables([waiting, table])
        while waiting.num_rows >= n_rows:
            yield waiting.slice(0, n_rows)
            waiting = waiting.slice(n_rows)
    if waiting is not None and waiting.num_rows:
        yield waiting


class TableWriter:
    """A CSV or Parquet file, written batch by batch; the first batch fixes the columns' types.

    What it will be called, its `name`, says of which kind it is.
    """

    def __init__(self, path: Path, name: Path) -> None:
        self._path, self._kind = path, kind_of(name)
        if name.suffix.lower() in COMPRESSION:
            raise DataError(f"{name}: a packed CSV file is read but not written; choose .csv, .tsv or .parquet.")
        if self._kind == "excel":
            raise DataError(f"{name}: an Excel file is read but not written; choose .csv, .tsv or .parquet.")
        self._separator = own_dialect(name).separator
        self._parquet: pq.ParquetWriter | None = None
        self._csv: Any = None
        self._waiting: list[pa.Table] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._flush()
        finally:
            for stream in (self._parquet, self._csv):
                if stream is not None:
                    stream.close()

    def write(self, table: pa.Table) -> None:
        """Append rows; they are written in groups of a size that readers of Parquet like."""
        self._waiting.append(table)
        if sum(part.num_rows for part in self._waiting) >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting)
        self._waiting = []
        if self._kind == "csv":
            if self._csv is None:
                self._csv = self._path.open("w", encoding="utf-8", newline="")
            is_first = self._csv.tell() == 0
            has_gaps = any(column.null_count for column in table.columns)  # pandas makes floats of whole numbers then
            frame = _with_texts(table).to_pandas(types_mapper=NULLABLE.get if has_gaps else None)
            frame.to_csv(self._csv, sep=self._separator, index=False, header=is_first)
            return
        if self._parquet is None:
            # Encoded numbers hardly repeat: dictionaries would only cost time.
            texts = [field.name for field in table.schema if not pa.types.is_floating(field.type)]
            self._parquet = pq.ParquetWriter(self._path, table.schema, use_dictionary=texts)
        self._parquet.write_table(table)


def _with_texts(table: pa.Table) -> pa.Table:
    """The table with text in place of bytes, which pandas would write as Python shows them."""
    for j, field in enumerate(table.schema):
        if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            table = table.set_column(j, field.name, table.column(j).cast(pa.string()))
    return table


def to_arrow(columns: Mapping[str, Values], schema: pa.Schema | None, single: bool) -> pa.Table:
    """A batch as an Arrow table of a schema, or of its own; with `single`, floats are rounded to 32 bits."""
    if schema is None and single:  # a schema's types say so already
        columns = {name: _in_single_precision(values) for name, values in columns.items()}
    table = as_arrow(columns, schema)
    return plain_types(table) if schema is None else table


def _in_single_precision(values: Values) -> Values:
    return values.astype(np.float32) if values.dtype == np.float64 else values


def plain_type(given: pa.DataType) -> pa.DataType:
    """A type that all batches of a column share, whatever values they hold: dictionaries differ between batches."""
    if pa.types.is_dictionary(given):
        return plain_type(given.value_type)
    return pa.string() if pa.types.is_null(given) or pa.types.is_large_string(given) else given


def plain_types(table: pa.Table) -> pa.Table:
    """The table with the values of its dictionaries in their places, and columns without any value as text."""
    return table.cast(pa.schema([field.with_type(plain_type(field.type)) for field in table.schema]))


def number_of_buckets(n_rows: int) -> int:
    """Buckets for about so many rows."""
    return int(np.clip(-(-n_rows // ROWS_PER_BUCKET), 1, MOST_BUCKETS))


def shuffled(batches: Iterable[pa.Table], n_buckets: int, folder: Path) -> Iterator[pa.Table]:
    """The rows of all batches, of one schema, in random order; held in memory one bucket after the other.

    The folder for the buckets is empty and private.
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

"""Encode and decode files of any size in bounded memory.

The order of rows is information: a file is often sorted by place, date or name, and somebody with another copy of it
finds persons by the place of their rows. Shuffling within batches would leave nearly all of that order. So rows are
dealt out at random to buckets on disk, and each bucket, small enough for memory, is shuffled (Rao, 1961; Sandelius,
1962): every order of all rows is equally likely.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fairflows.exceptions import DataError
from fairflows.release.released import Model, Released, beside, role_values
from fairflows.stream.batches import (
    BatchEncoder,
    Encoded,
    Precision,
    attribute_of,
    encoder_of,
    sensitive_columns,
    to_arrow,
    warn_of_unknown,
)
from fairflows.table.columns import Schema, check_known
from fairflows.table.folders import check_file, new_file, side_folder
from fairflows.table.frames import NULLABLE, columns_of, from_arrow
from fairflows.table.grouping import Grouping
from fairflows.table.persons import Persons
from fairflows.table.reading import PACKED_SUFFIXES, kind_of, naming_file, open_table, reading, with_identifier
from fairflows.table.text_format import TextFormat, own_format

BATCH_ROWS = 2**14  # whose values in a network stay in a core's cache: four times as many take twice as long each
ROWS_PER_BUCKET = 2**18
MOST_BUCKETS = 512  # files that are open at once
_ROW_GROUP = 2**17

Item = TypeVar("Item")
Result = TypeVar("Result")
OnProgress = Callable[[int, int | None], None]


def encode_file(
    model: Model,
    source: str | Path,
    target: str | Path,
    *,
    sensitive: str | Sequence[str] | None = None,
    grouping: Grouping | None = None,
    identifier: str | None = None,
    text_format: TextFormat | None = None,
    keep: Sequence[str] = (),
    keep_order: bool = False,
    precision: Precision = "float32",
    on_progress: OnProgress | None = None,
) -> int:
    """Encode a CSV, Excel or Parquet file into another one. Memory grows with an Excel sheet, not with other files.

    Rows are written in a random order, every order being equally likely, unless `keep_order` is set. Only the encoded
    columns are written, and those that `keep` names: a certificate is about the encoded columns alone. The target
    appears when it is complete.

    Parameters
    ----------
    model : encoder or pipeline
        Fitted model.
    source, target : path
        CSV or Parquet files, by their names; they need not be of one kind. The source may be an Excel file. A CSV file
        is written in UTF-8, with decimal points and commas, or tabs where its name ends in .tsv.
    sensitive : str or list of str, optional
        Columns that hold the sensitive attribute; by default those that the encoder was told.
    grouping : Grouping, optional
        How these columns become the groups that the model knows: the `grouping` of the table that it was fitted on.
    identifier : str, optional
        Column that names the person of a row: noise, coin and fold are keyed hashes of it. Without one, every row gets
        fresh randomness.
    text_format : TextFormat, optional
        How the source is written, if it is a CSV file whose header does not show it.
    keep : sequence of str, default=()
        Columns of the source that are written unchanged, after the others.
    keep_order : bool, default=False
        Whether rows keep their order, which may identify persons.
    precision : {"float32", "float64"}, default="float32"
        Type of encoded numbers. They are computed in float64, which exact decoding needs. Whole rows in the table's own
        columns keep their types.
    on_progress : callable, optional
        Called with the number of encoded rows and, where known, of all rows.

    Returns
    -------
    int
        The number of encoded rows.
    """
    check_file(Path(target), Path(source))
    encode = BatchEncoder(model, sensitive, grouping, identifier, keep, precision)
    reader = TableReader(Path(source), BATCH_ROWS, encode.schema, encode.identifier, text_format)

    def encoded(batch: pa.Table) -> Encoded:
        with naming_file(reader.path):
            return encode(batch)

    unknown: Counter[Hashable] = Counter()
    tables = _counted(in_order(encoded, reader.tables(encode.columns)), unknown)
    # A CSV file does not say how many rows it has; rows of fewer than 32 bytes are rare.
    n_buckets = number_of_buckets(reader.n_rows or reader.path.stat().st_size // 32)
    n_rows = _write(_shown(tables, reader.n_rows, on_progress), Path(target), None if keep_order else n_buckets)
    warn_of_unknown(unknown)
    return n_rows


def decode_file(
    model: Model,
    source: str | Path,
    target: str | Path,
    *,
    sensitive: str | Sequence[str] | None = None,
    sensitive_from: str | Path | None = None,
    grouping: Grouping | None = None,
    identifier: str | None = None,
    text_format: TextFormat | None = None,
    keep: Sequence[str] = (),
    on_progress: OnProgress | None = None,
) -> int:
    """Decode a file of encoded rows, in their order.

    Parameters
    ----------
    model : encoder
        Fitted encoder with an inverse. Cells cannot be decoded.
    source, target : path
        CSV or Parquet files.
    sensitive : str or list of str, optional
        Columns that hold the sensitive attribute, in the source or in `sensitive_from`; by default those that the
        encoder was told.
    sensitive_from : path, optional
        File with the sensitive attribute of each row of the source, in the same order.
    grouping : Grouping, optional
        How these columns become the groups that the model knows: the `grouping` of the table that it was fitted on.
    identifier : str, optional
        Column that names the person of a row, which randomised encoders need.
    text_format : TextFormat, optional
        How the source and `sensitive_from` are written, if they are CSV files whose headers do not show it.
    keep : sequence of str, default=()
        Columns of the source that are written unchanged.
    on_progress : callable, optional
        Called with the number of decoded rows and, where known, of all rows.

    Returns
    -------
    int
        The number of decoded rows.
    """
    check_file(Path(target), Path(source), None if sensitive_from is None else Path(sensitive_from))
    decode = RowDecoder(model, sensitive, identifier, keep, grouping)
    reader = TableReader(Path(source), BATCH_ROWS, decode.schema, decode.identifier, text_format)
    if sensitive_from is None:
        frames = reader.batches([*decode.columns, *decode.sensitive])
    else:
        beside = TableReader(Path(sensitive_from), BATCH_ROWS, decode.schema, text_format=text_format)
        attributes = beside.batches(decode.sensitive)
        frames = _side_by_side(reader.batches(decode.columns), attributes, reader.path, Path(sensitive_from))
    decoded = _of_one_schema(in_order(decode, frames))
    return _write(_shown(decoded, reader.n_rows, on_progress), Path(target), None)


class RowDecoder:
    """Decode frames that hold encoded rows (`columns`) and the attribute (`sensitive`), of the types in `schema`."""

    def __init__(
        self,
        model: Model,
        sensitive: str | Sequence[str] | None,
        identifier: str | None,
        keep: Sequence[str],
        grouping: Grouping | None,
    ) -> None:
        released = Released.of(model)
        encoder = encoder_of(released)
        if released.n_cells is not None or released.steps:
            raise DataError("A release of cells cannot be decoded: the cell is all that is left of a row.")
        self._encoder = encoder
        self._names = [str(name) for name in encoder.get_feature_names_out()]
        self.sensitive = sensitive_columns(encoder, sensitive)
        self.identifier = identifier if identifier is not None else encoder.identifier
        self._keep = list(dict.fromkeys(keep))
        extra = [*([] if self.identifier is None else [self.identifier]), *self._keep]
        self.columns = list(dict.fromkeys([*self._names, *extra]))
        self._grouping = grouping
        taken = encoder.output_.schema.with_values(role_values(encoder, self.sensitive))
        self.schema = taken if grouping is None else Schema(taken.kinds | grouping.schema(self.sensitive).kinds)

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Decode the rows of a frame, and append the columns to keep."""
        persons = None if self.identifier is None else Persons.of(frame[self.identifier])
        attribute = attribute_of(frame, self.sensitive, self._grouping)
        X = self._encoder.inverse_transform(frame[self._names], sensitive_features=attribute, persons=persons)
        return beside(X, frame[self._keep]).set_axis(frame.index)


class TableReader:
    """Read the rows of a CSV (plain or compressed), Excel or Parquet file in batches.

    The `schema` says what columns of a CSV file must hold, and the `identifier` is always text. Other columns are
    judged by the whole file.
    """

    def __init__(
        self,
        path: Path,
        batch_rows: int,
        schema: Schema | None = None,
        identifier: str | None = None,
        text_format: TextFormat | None = None,
    ) -> None:
        self.path, self._batch_rows = path, batch_rows
        self._schema = Schema({}) if schema is None else schema
        self._identifier = identifier
        self._rows = open_table(path, text_format)
        self.columns = self._rows.columns

    @property
    def n_rows(self) -> int | None:
        """Number of rows, where the file states it."""
        return self._rows.n_rows

    def batches(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Yield these columns, each once, batch by batch, checked; the index counts the rows of the whole file."""
        schema, start = self._schema.part(columns), 0
        for table in self.tables(columns):
            frame = from_arrow(table)
            with naming_file(self.path):
                schema.check(frame)
            yield frame.set_axis(pd.RangeIndex(start, start + len(frame), name="row"))
            start += len(frame)

    def tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield these columns, each once, batch by batch, as Arrow tables."""
        for name in columns:
            check_known(name, pd.Index(self.columns), "needed")
        columns = list(dict.fromkeys(columns))
        n_rows = 0
        kinds = with_identifier(self._schema.part(columns), self._identifier)
        with reading(self.path):
            for table in self._rows.batches(columns, self._batch_rows, kinds):
                n_rows += table.num_rows
                yield table
        if not n_rows:
            raise DataError(f"{self.path}: the table has no rows.")


class TableWriter:
    """Write a CSV or Parquet file batch by batch. The first batch fixes the columns' types, and `name` the kind."""

    def __init__(self, path: Path, name: Path) -> None:
        self._path, self._kind = path, kind_of(name)
        if name.suffix.lower() in PACKED_SUFFIXES:
            raise DataError(f"{name}: a packed CSV file is read but not written; choose .csv, .tsv or .parquet.")
        if self._kind == "excel":
            raise DataError(f"{name}: an Excel file is read but not written; choose .csv, .tsv or .parquet.")
        self._separator = own_format(name).separator
        self._file: Any = None  # a text file, or a writer of Parquet
        self._waiting: list[pa.Table] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._waiting:
                self._flush()
        finally:
            if self._file is not None:
                self._file.close()

    def write(self, table: pa.Table) -> None:
        """Append rows. They are written in groups of a size that suits readers of Parquet."""
        self._waiting.append(table)
        if sum(part.num_rows for part in self._waiting) >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        table, self._waiting = pa.concat_tables(self._waiting), []
        is_first = self._file is None
        if self._kind == "csv":
            if is_first:
                self._file = self._path.open("w", encoding="utf-8", newline="")
            has_gaps = any(column.null_count for column in table.columns)  # pandas makes floats of whole numbers then
            frame = table.to_pandas(types_mapper=NULLABLE.get if has_gaps else None)
            frame.to_csv(self._file, sep=self._separator, index=False, header=is_first)
            return
        if is_first:
            # Encoded numbers hardly repeat: dictionaries would only cost time.
            texts = [field.name for field in table.schema if not pa.types.is_floating(field.type)]
            self._file = pq.ParquetWriter(self._path, table.schema, use_dictionary=texts)
        self._file.write_table(table)


def number_of_buckets(n_rows: int) -> int:
    """Return the number of buckets for about so many rows."""
    return int(np.clip(-(-n_rows // ROWS_PER_BUCKET), 1, MOST_BUCKETS))


def shuffled(batches: Iterable[pa.Table], n_buckets: int, folder: Path) -> Iterator[pa.Table]:
    """Yield the rows of all batches, of one schema, in random order, one bucket in memory at a time.

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
            dealt = table.take(np.argsort(bucket, kind="stable"))
            ends = np.cumsum(np.bincount(bucket, minlength=n_buckets))
            for writer, start, end in zip(writers, [0, *ends[:-1]], ends, strict=True):
                if end > start:
                    writer.write_table(dealt.slice(int(start), int(end - start)))
    finally:
        for writer in writers:
            writer.close()
    for path in paths if writers else []:
        with pa.OSFile(str(path)) as source:
            rows = pa.ipc.open_file(source).read_all()
        path.unlink()
        if rows.num_rows:
            yield rows.take(rng.permutation(rows.num_rows))


def in_order(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Map by one thread per processor, a few items ahead at most: NumPy and torch work outside Python's lock."""
    n_workers = os.cpu_count() or 1
    from fairflows.bijection.steps import one_thread  # loads torch, which a command of another kind can do without

    with one_thread(), ThreadPoolExecutor(n_workers) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > n_workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _counted(encoded: Iterable[Encoded], unknown: Counter[Hashable]) -> Iterator[pa.Table]:
    """Yield encoded batches in one schema, and add the counts of rows with unknown values to `unknown`."""
    schema: pa.Schema | None = None
    for batch in encoded:
        unknown.update(batch.unknown)
        # Where a model ends with somebody else's step, the first batch fixes the columns.
        table = batch.table if schema is None else batch.table.cast(schema)
        schema = table.schema
        yield table


def _of_one_schema(frames: Iterable[pd.DataFrame]) -> Iterator[pa.Table]:
    """Yield frames as Arrow tables. The first one fixes the columns' types."""
    schema: pa.Schema | None = None
    for frame in frames:
        table = to_arrow(columns_of(frame), schema, single=False)
        schema = table.schema
        yield table


def _shown(tables: Iterable[pa.Table], n_rows: int | None, on_progress: OnProgress | None) -> Iterator[pa.Table]:
    """Yield the tables, and report the number of rows so far."""
    done = 0
    for table in tables:
        done += table.num_rows
        if on_progress is not None:
            on_progress(done, n_rows)
        yield table


def _write(tables: Iterable[pa.Table], target: Path, n_buckets: int | None) -> int:
    done = 0
    with new_file(target) as side, side_folder(target) as buckets:
        rows = tables if n_buckets is None else shuffled(tables, n_buckets, buckets)
        with TableWriter(side, target) as writer:
            for table in rows:
                writer.write(table)
                done += table.num_rows
    return done


def _side_by_side(
    rows: Iterator[pd.DataFrame], attributes: Iterator[pd.DataFrame], path: Path, other: Path
) -> Iterator[pd.DataFrame]:
    """Join the batches of two files. Raise if one of them has more rows."""
    while (part := next(rows, None)) is not None:
        beside = next(attributes, None)
        if beside is None or len(beside) != len(part):
            word = "more" if beside is not None and len(beside) > len(part) else "fewer"
            raise DataError(f"{other} must have a row for each row of {path}, in the same order; it has {word}.")
        yield pd.concat([part.drop(columns=[c for c in beside if c in part]), beside], axis=1)
    if next(attributes, None) is not None:
        raise DataError(f"{other} must have a row for each row of {path}, in the same order; it has more.")

"""Encode and decode files of any size in bounded memory, and folders on a Ray cluster (``fairflows[ray]``).

The order of rows is information: a file is often sorted by place, date or name, and somebody with another copy of it
finds persons by the place of their rows. Shuffling within batches would leave nearly all of that order. So rows are
dealt out at random to buckets on disk, and each bucket, small enough for memory, is shuffled (Rao, 1961; Sandelius,
1962): every order of all rows is equally likely.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

from fairflows.exceptions import DataError
from fairflows.release.released import Model, Released, role_values
from fairflows.stream.batches import (
    BatchEncoder,
    Encoded,
    FileRows,
    Found,
    Precision,
    attribute_of,
    encode_batch,
    encoder_of,
    sensitive_columns,
    to_arrow,
)
from fairflows.table.columns import Schema, check_known
from fairflows.table.folders import check_file, new_file, new_folder, side_folder
from fairflows.table.frames import NULLABLE, columns_of, from_arrow
from fairflows.table.grouping import Grouping, MissingGroup, MissingLabel
from fairflows.table.persons import Persons
from fairflows.table.reading import PACKED_SUFFIXES, kind_of, naming_file, open_table, reading, with_identifier
from fairflows.table.text_format import TextFormat, own_format
from fairflows.threads import one_thread

BATCH_ROWS = 2**14  # whose values in a network stay in a core's cache: four times as many take twice as long each
ROWS_PER_BUCKET = 2**18
MOST_BUCKETS = 512  # files that are open at once

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
    label: str | None = None,
    missing_group: MissingGroup = "error",
    missing_label: MissingLabel = "error",
    text_format: TextFormat | None = None,
    keep: Sequence[str] = (),
    keep_order: bool = False,
    precision: Precision = "float32",
    time_formats: Mapping[str, str] | None = None,
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
        fresh randomness. Nobody may have more rows than somebody in training had.
    label : str, optional
        Column of the label, where the model was fitted to a table with one. The source need not have it.
    missing_group, missing_label : str, default="error"
        What is done with rows that miss their group or their label, as in the `Table` that the model was fitted to. A
        certificate is about rows that were treated so. Rows that are dropped are counted in a warning.
    text_format : TextFormat, optional
        How the source is written, if it is a CSV file whose header does not show it.
    keep : sequence of str, default=()
        Columns of the source that are written unchanged, after the others.
    keep_order : bool, default=False
        Whether rows keep their order, which may identify persons.
    precision : {"float32", "float64"}, default="float32"
        Type of encoded numbers. They are computed in float64, which exact decoding needs. Whole rows in the table's own
        columns keep their types.
    time_formats : dict, optional
        How a CSV file is to write times, by column: the ``time_formats`` of the table that the model was fitted on.
    on_progress : callable, optional
        Called with the number of encoded rows and, where known, of all rows.

    Returns
    -------
    int
        The number of encoded rows.
    """
    check_file(Path(target), Path(source))
    rows = FileRows(sensitive, grouping, identifier, label, missing_group, missing_label)
    encode = BatchEncoder(model, rows, keep, precision)
    reader = TableReader(Path(source), BATCH_ROWS, encode.schema, encode.identifier, text_format)

    def encoded(batch: pa.Table) -> Encoded:
        with naming_file(reader.path):
            return encode(batch)

    found = Found()
    show = on_progress or (lambda done, total: None)
    batches = in_order(encoded, reader.tables(encode.needed(reader.columns)))
    tables = _counted(batches, found, lambda done: show(done, reader.n_rows))
    # A CSV file does not say how many rows it has; rows of fewer than 32 bytes are rare.
    n_expected = reader.n_rows or reader.path.stat().st_size // 32
    n_buckets = int(np.clip(-(-n_expected // ROWS_PER_BUCKET), 1, MOST_BUCKETS))
    with new_file(Path(target)) as side, side_folder(Path(target)) as folder:
        tables = tables if keep_order else shuffled(tables, n_buckets, folder)
        n_rows = write_table(tables, side, Path(target), time_formats)
        with naming_file(reader.path):
            encode.check_number_of_rows(found)
    found.warn(label)
    return n_rows


def decode_file(
    model: Model,
    source: str | Path,
    target: str | Path,
    *,
    sensitive: str | Sequence[str] | None = None,
    grouping: Grouping | None = None,
    identifier: str | None = None,
    text_format: TextFormat | None = None,
) -> int:
    """Decode a file of encoded rows, in their order.

    Parameters
    ----------
    model : encoder
        Fitted encoder with an inverse. Cells cannot be decoded.
    source, target : path
        CSV or Parquet files.
    sensitive : str or list of str, optional
        Columns of the source that hold the sensitive attribute; by default those that the encoder was told.
    grouping : Grouping, optional
        How these columns become the groups that the model knows: the `grouping` of the table that it was fitted on.
    identifier : str, optional
        Column that names the person of a row, which randomised encoders need.
    text_format : TextFormat, optional
        How the source is written, if it is a CSV file whose header does not show it.

    Returns
    -------
    int
        The number of decoded rows.
    """
    check_file(Path(target), Path(source))
    released = Released.of(model)
    encoder = encoder_of(released)
    if released.n_cells is not None or released.steps:
        raise DataError("A release of cells cannot be decoded: the cell is all that is left of a row.")
    names = [str(name) for name in encoder.get_feature_names_out()]
    sensitive = sensitive_columns(encoder, sensitive)
    identifier = identifier if identifier is not None else encoder.identifier
    schema = encoder.output_.schema.with_values(role_values(encoder, sensitive))
    if grouping is not None:
        schema = Schema(schema.kinds | grouping.schema(sensitive).kinds)

    def decoded(frame: pd.DataFrame) -> pd.DataFrame:
        persons = None if identifier is None else Persons.of(frame[identifier])
        attribute = attribute_of(frame, sensitive, grouping)
        return encoder.inverse_transform(frame[names], sensitive_features=attribute, persons=persons)

    reader = TableReader(Path(source), BATCH_ROWS, schema, identifier, text_format)
    frames = reader.batches([*names, *sensitive, *([] if identifier is None else [identifier])])
    with new_file(Path(target)) as side:
        return write_table(_of_one_schema(in_order(decoded, frames)), side, Path(target))


def encode_folder(model: Model, source: str | Path, target: str | Path, **settings: Any) -> int:
    """Encode a folder of Parquet files on a Ray cluster, with Ray Data's own reading, shuffling and writing.

    The secret key travels to the workers and lies in Ray's object store until the job ends. The ledger stays here.

    Parameters
    ----------
    model : encoder or pipeline
        Fitted model.
    source, target : path or URI
        Folders that all workers reach. A target on a file system must not exist, and appears when it is complete.
    **settings
        Parameters of `encode_batch`. A model with coins or noise needs an `identifier`, because a task may run twice.

    Returns
    -------
    int
        The number of encoded rows.
    """
    try:
        data = import_module("ray.data")
    except ImportError:
        raise DataError("Ray is not installed: pip install 'fairflows[ray]'.") from None
    names = {field.name for field in fields(FileRows)}
    of_rows = {name: given for name, given in settings.items() if name in names}
    others = {name: given for name, given in settings.items() if name not in names}
    encode = BatchEncoder(model, FileRows(**of_rows), **others)
    if encode.needs_identifier:
        raise DataError("On a cluster a task may run twice: name the column of the persons (identifier=...).")
    is_local = "://" not in str(target)
    if is_local and Path(target).exists():
        raise DataError(f"{target}: exists already; Ray writes into a new folder.")
    place: AbstractContextManager[str | Path] = new_folder(Path(target)) if is_local else nullcontext(target)
    with place as written:
        try:
            rows = data.read_parquet(str(source))
            schema = rows.schema().base_schema
            encode.output_schema(schema)
            work = partial(encode_batch, model, key=encode.keys, **settings)
            needed = rows.select_columns(encode.needed(schema.names))
            encoded = needed.map_batches(work, batch_format="pyarrow", batch_size=BATCH_ROWS)
            encoded.random_shuffle(seed=secrets.randbits(31)).write_parquet(str(written))
        except Exception as error:  # Ray wraps the errors of its workers
            raise DataError(f"{source}: {_reason(error)}") from error
        return int(pyarrow.dataset.dataset(str(written), format="parquet").count_rows())


def _reason(error: Exception) -> str:
    """Return the message of our own error on a worker, of which Ray hands over the text alone, or else of the last."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    own = [line.split("DataError: ", 1)[1] for line in lines if "DataError: " in line]
    return own[0] if own else lines[-1]


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


def write_table(
    parts: Iterable[pa.Table], path: Path, name: Path, time_formats: Mapping[str, str] | None = None
) -> int:
    """Write parts of a table, all of one schema, into a CSV or Parquet file of the kind that the `name` tells.

    A CSV file writes times in these formats, else as pandas does. Return the number of rows.
    """
    if name.suffix.lower() in PACKED_SUFFIXES:
        raise DataError(f"{name}: a packed CSV file is read but not written; choose .csv, .tsv or .parquet.")
    kind = kind_of(name)
    if kind == "excel":
        raise DataError(f"{name}: an Excel file is read but not written; choose .csv, .tsv or .parquet.")
    if kind == "parquet":
        return _write_parquet(iter(parts), path)
    n_rows = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        for table in parts:
            has_gaps = any(column.null_count for column in table.columns)  # pandas makes floats of whole numbers then
            frame = table.to_pandas(types_mapper=NULLABLE.get if has_gaps else None)
            for column, written in (time_formats or {}).items():
                if column in frame and frame[column].dtype.kind == "M":
                    frame[column] = frame[column].dt.strftime(written)
            frame.to_csv(file, sep=own_format(name).separator, index=False, header=not n_rows)
            n_rows += table.num_rows
    return n_rows


def _write_parquet(parts: Iterator[pa.Table], path: Path) -> int:
    """Write each part as a group of rows."""
    table, n_rows = next(parts), 0
    # Encoded numbers hardly repeat: dictionaries would only cost time.
    texts = [field.name for field in table.schema if not pa.types.is_floating(field.type)]
    with pq.ParquetWriter(path, table.schema, use_dictionary=texts) as file:
        for part in chain([table], parts):
            file.write_table(part)
            n_rows += part.num_rows
    return n_rows


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


def _counted(encoded: Iterable[Encoded], found: Found, show: Callable[[int], None]) -> Iterator[pa.Table]:
    """Yield encoded batches in one schema; add up what was found in them, and show how many rows are done."""
    schema: pa.Schema | None = None
    done = 0
    for batch in encoded:
        found.add(batch.found)
        done += batch.table.num_rows
        show(done)
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

"""Encode and decode files of any size, in bounded memory.

The order of rows is information: a file is often sorted by place, date or name, and a reader with another copy of it
finds persons by the place of their rows. Shuffling within batches would leave nearly all of that order. So rows are
dealt out at random to buckets on disk, and each bucket, small enough for memory, is shuffled (Rao, 1961; Sandelius,
1962): every order of all rows is equally likely.
"""

from __future__ import annotations

import csv
import os
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fairflows.certificate.model_hash import origin_of
from fairflows.certificate.releases import check_record, new_release, record_key
from fairflows.display import progress_bar
from fairflows.encoder.base import Model, fitted_model
from fairflows.exceptions import DataError
from fairflows.stream.batches import BatchEncoder, BatchFindings, attribute_of, role_values, sensitive_columns, to_arrow
from fairflows.table.folders import check_file, new_file, side_folder
from fairflows.table.frames import NULLABLE, from_arrow
from fairflows.table.persons import Persons
from fairflows.table.reading import TextFormat, naming_file, open_table, read_batches
from fairflows.threads import one_thread

BATCH_ROWS = 2**14  # whose values in a network stay in a core's cache: four times as many take twice as long each
ROWS_PER_BUCKET = 2**18
MOST_BUCKETS = 512  # files that are open at once

Item = TypeVar("Item")
Result = TypeVar("Result")


def encode_file(
    model: Model,
    source: str | Path,
    target: str | Path,
    *,
    keep_order: bool = False,
    text_format: TextFormat | None = None,
    time_formats: Mapping[str, str] | None = None,
    found: BatchFindings | None = None,
    **settings: Any,
) -> int:
    """Encode a CSV, Excel or Parquet file into another one. Memory grows with an Excel sheet, not with other files.

    A release of persons with all of their rows reads the whole file into memory.

    Rows are written in a random order, every order being equally likely, unless `keep_order` is set. Only the encoded
    columns are written, and those that `keep` names: a certificate is about the encoded columns alone. The target
    appears when it is complete. ``with fairflows.display.stages():`` around it shows a progress bar.

    Parameters
    ----------
    model : encoder
        Fitted encoder, such as a `Release`.
    source, target : path
        CSV or Parquet files, by their names; they need not be of one kind. The source may be an Excel file. A CSV file
        is written in UTF-8, with decimal points and commas.
    keep_order : bool, default=False
        Whether rows keep their order, which may identify persons.
    text_format : TextFormat, default=None
        How the source is written, if it is a CSV file whose header does not show it.
    time_formats : dict, default=None
        How a CSV file writes times, by column: the source, where it does so, and the target.
    found : BatchFindings, default=None
        Filled with the findings about the rows, such as the counts of their cells.
    **settings
        Columns, their roles and the precision: the parameters of `BatchEncoder`.

    Returns
    -------
    int
        The number of encoded rows.
    """
    model = fitted_model(model)
    source, target, found = Path(source), Path(target), BatchFindings() if found is None else found
    check_file(target, source)
    check_record()
    with side_folder(target) as folder:
        written = folder / f"rows{target.suffix}"
        settings |= {"keep_order": keep_order, "text_format": text_format, "time_formats": time_formats}
        n_rows = encode_rows(model, source, written, found=found, **settings)
        place = new_release(found.released, origin_of(model), written, target)
        with place, new_file(target) as side:
            os.replace(written, side)
    found.warn()
    return n_rows


def encode_rows(
    model: Model,
    source: Path,
    target: Path,
    *,
    found: BatchFindings,
    keep_order: bool = False,
    text_format: TextFormat | None = None,
    time_formats: Mapping[str, str] | None = None,
    **settings: Any,
) -> int:
    """Encode a file, as `encode_file` does, into one that is not released yet: nothing is recorded.

    The target is in a private folder. The findings are what the record of releases, and a certificate, take.
    """
    file = open_table(source, replace(text_format or TextFormat(), dates=time_formats or {}))
    encode, key = BatchEncoder(model, **settings), record_key()
    needed = encode.needed(file.columns)
    batches = read_batches(source, file, needed, BATCH_ROWS, encode.schema, encode.identifier)
    batches = _at_least_one(batches, needed)
    if model.traits.unit == "person":  # all rows of a person are needed at once; persons are drawn in a random order
        batches, keep_order = iter([pa.concat_tables(batches)]), True
    # A CSV file does not say how many rows it has; rows of fewer than 32 bytes are rare.
    n_expected = file.n_rows or source.stat().st_size // 32

    def encoded(batch: pa.Table) -> tuple[pa.Table, BatchFindings]:
        with naming_file(source):
            return encode(batch, key, n_expected)

    def counted() -> Iterator[pa.Table]:
        done = 0
        with progress_bar("encoding") as show:
            for table, of_batch in in_order(encoded, batches):
                found.add(of_batch)
                done += table.num_rows
                show(done, file.n_rows, f"{done:,} rows")
                yield table

    n_buckets = int(np.clip(-(-n_expected // ROWS_PER_BUCKET), 1, MOST_BUCKETS))
    with side_folder(target) as folder:
        tables = counted() if keep_order else shuffled(counted(), n_buckets, folder)
        n_rows = write_table(tables, target, target, time_formats)
    with naming_file(source):
        encode.check_number_of_rows(found)
    return n_rows


def _at_least_one(batches: Iterable[pa.Table], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield batches; of a file without a row one batch without a row, which gives a file that has none either."""
    is_empty = True
    for batch in batches:
        is_empty = False
        yield batch
    if is_empty:
        yield pa.table({name: pa.array([], pa.string()) for name in columns})


def decode_file(
    model: Model,
    source: str | Path,
    target: str | Path,
    *,
    sensitive: str | Sequence[str] | None = None,
    identifier: str | None = None,
) -> int:
    """Decode a file of encoded rows, in their order.

    Parameters
    ----------
    model : encoder
        Fitted encoder with an inverse. Cells cannot be decoded.
    source, target : path
        CSV files as `encode_file` writes them, or Parquet files.
    sensitive : str or list of str, default=None
        Columns of the source that hold the groups; by default those that the encoder was told.
    identifier : str, default=None
        Column that names the person of a row, which randomised encoders need.

    Returns
    -------
    int
        The number of decoded rows.
    """
    check_file(Path(target), Path(source))
    encoder = fitted_model(model).inner_encoder
    if model.traits.n_cells is not None:
        raise DataError("A release of cells cannot be decoded: the cell is all that is left of a row.")
    names = [str(name) for name in encoder.get_feature_names_out()]
    sensitive = sensitive_columns(encoder, sensitive)
    identifier = identifier if identifier is not None else encoder.identifier
    schema = encoder.output_.schema.with_values(role_values(encoder, sensitive))
    path, columns = Path(source), [*names, *sensitive, *([] if identifier is None else [identifier])]

    def decoded(batch: pa.Table) -> pd.DataFrame:
        frame = from_arrow(batch)
        with naming_file(path):
            schema.part(columns).check(frame)
        persons = None if identifier is None else Persons.of(frame[identifier])
        attribute = attribute_of(frame, sensitive, None)
        return encoder.inverse_transform(frame[names], sensitive_features=attribute, persons=persons)

    batches = read_batches(path, open_table(path), columns, BATCH_ROWS, schema, identifier)
    tables = (to_arrow(frame) for frame in in_order(decoded, batches))
    with new_file(Path(target)) as side:
        return write_table(_of_one_schema(tables), side, Path(target))


def write_table(
    parts: Iterable[pa.Table], path: Path, name: Path, time_formats: Mapping[str, str] | None = None
) -> int:
    """Write parts of a table, all of one schema, into a CSV or Parquet file of the kind that the `name` tells.

    A CSV file writes times in these formats, else as pandas does. Return the number of rows.
    """
    kind = name.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise DataError(f"{name}: a file is written as .csv or .parquet; got {kind!r}.")
    if kind == ".parquet":
        return _write_parquet(iter(parts), path)
    n_rows = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        for place, table in enumerate(parts):
            has_gaps = any(column.null_count for column in table.columns)  # pandas makes floats of whole numbers then
            frame = table.to_pandas(types_mapper=NULLABLE.get if has_gaps else None)
            for column, written in (time_formats or {}).items():
                if column in frame and frame[column].dtype.kind == "M":
                    frame[column] = frame[column].dt.strftime(written)
            quoting = csv.QUOTE_NONNUMERIC if _has_carriage_return(table) else csv.QUOTE_MINIMAL
            frame.to_csv(file, index=False, header=place == 0, quoting=quoting)
            n_rows += table.num_rows
    return n_rows


def _has_carriage_return(table: pa.Table) -> bool:
    """Return whether a text or a name ends a line by a carriage return, which csv leaves without quotes."""
    texts = (column for column in table.columns if pa.types.is_string(column.type))
    return "\r" in "".join(table.column_names) or any(pc.any(pc.match_substring(t, "\r")).as_py() for t in texts)


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

    Batches without a row give one table without a row. The folder for the buckets is empty and private.
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
    n_rows = 0
    for path in paths if writers else []:
        with pa.OSFile(str(path)) as source:
            rows = pa.ipc.open_file(source).read_all()
        path.unlink()
        n_rows += rows.num_rows
        if rows.num_rows or (not n_rows and path == paths[-1]):
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


def _of_one_schema(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables in the types of the first one."""
    schema: pa.Schema | None = None
    for table in tables:
        schema = schema or table.schema
        yield table.cast(schema)

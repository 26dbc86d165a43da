"""Encode and decode files of any size in bounded memory."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pandas as pd
import pyarrow as pa

from fairflows.compute.resources import one_thread
from fairflows.exceptions import DataError
from fairflows.release.released import Model, Released, beside, role_values
from fairflows.stream.batches import (
    BatchEncoder,
    Encoded,
    Precision,
    attribute_of,
    encoder_of,
    say_what_is_unknown,
    sensitive_columns,
)
from fairflows.stream.tables import TableReader, TableWriter, number_of_buckets, shuffled, to_arrow
from fairflows.table.columns import TableColumns
from fairflows.table.dialect import Dialect
from fairflows.table.folders import check_file, new_file, side_folder
from fairflows.table.frames import columns_of
from fairflows.table.grouping import Grouping
from fairflows.table.persons import Persons
from fairflows.table.reading import naming_file
from fairflows.table.schema import Schema

BATCH_ROWS = 2**14
"""What a network makes of so many rows stays in a core's cache; of four times as many, each takes twice as long."""

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
    dialect: Dialect | None = None,
    keep: Sequence[str] = (),
    keep_order: bool = False,
    precision: Precision = "float32",
    n_workers: int | None = None,
    batch_rows: int = BATCH_ROWS,
    on_progress: OnProgress | None = None,
) -> int:
    """Encode a CSV, Excel or Parquet file into another; memory does not grow with the file, but with an Excel sheet.

    Rows come out in a random order, every order being equally likely, unless `keep_order` asks for the file's own. Only
    the encoded columns are written, and those that `keep` names: a certificate speaks of the encoded columns alone.
    The target appears when it is complete.

    Parameters
    ----------
    model : encoder or pipeline
        Fitted.
    source, target : path
        CSV or Parquet, by their names; they need not be of one kind. The source may be an Excel file. A CSV file is
        written in UTF-8, with decimal points and commas, or tabs where its name ends in .tsv.
    sensitive : str or list of str, optional
        The columns that hold the sensitive attribute; those that the encoder was told when not given.
    grouping : Grouping, optional
        How these columns become the groups that the model knows: the `grouping` of the table that it was fitted on.
    identifier : str, optional
        The column that names a row's person. Without one, rows are known by their number in the file.
    label : str, optional
        The column of the label, to be written after the encoded ones: for a release of both, certified together.
    dialect : Dialect, optional
        How the source is written; what it does not state is recognised, and a warning says as what.
    keep : sequence of str
        Columns of the source to write as they are, after the others.
    keep_order : bool
        Keep the rows in order.
    precision : {"float32", "float64"}
        How encoded numbers are written. They are computed in float64, which decoding needs to be exact. Whole rows in
        the table's own columns are written as they are.
    n_workers : int, optional
        Batches that are encoded at once; the number of processors when not given.
    batch_rows : int
        Rows of a batch.
    on_progress : callable, optional
        Called with the rows done and, where known, all rows.

    Returns
    -------
    int
        How many rows were encoded.
    """
    check_file(Path(target), Path(source))
    encode = BatchEncoder(model, sensitive, grouping, identifier, label, keep, precision)
    reader = TableReader(Path(source), batch_rows, encode.schema, encode.identifier, dialect)
    encode.check_label(reader.columns, reader.path)

    def encoded(batch: pa.Table) -> Encoded:
        with naming_file(reader.path):
            return encode(batch)

    unknown: Counter[Hashable] = Counter()
    tables = _counted(in_order(encoded, reader.tables(encode.columns), _checked_workers(n_workers)), unknown)
    shown = _shown(tables, reader.n_rows, on_progress)
    n_rows = _write(shown, Path(target), None if keep_order else _buckets(reader))
    say_what_is_unknown(unknown)
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
    dialect: Dialect | None = None,
    keep: Sequence[str] = (),
    n_workers: int | None = None,
    batch_rows: int = BATCH_ROWS,
    on_progress: OnProgress | None = None,
) -> int:
    """Decode a file of encoded rows, in their order.

    Parameters
    ----------
    model : encoder
        Fitted; a release of cells cannot be decoded.
    source, target : path
        CSV or Parquet.
    sensitive : str or list of str, optional
        The columns that hold the sensitive attribute, in the source or in `sensitive_from`.
    sensitive_from : path, optional
        A file with the sensitive attribute of each row of the source, in the same order.
    grouping : Grouping, optional
        As for `encode_file`.
    identifier : str, optional
        The column that names a row's person, which randomised encoders need.
    dialect : Dialect, optional
        How the source is written, as for `encode_file`; `sensitive_from` is recognised.
    keep : sequence of str
        Columns of the source to write as they are.
    n_workers, batch_rows, on_progress
        As for `encode_file`.

    Returns
    -------
    int
        How many rows were decoded.
    """
    check_file(Path(target), Path(source), None if sensitive_from is None else Path(sensitive_from))
    decode = RowDecoder(model, sensitive, identifier, keep, grouping)
    reader = TableReader(Path(source), batch_rows, decode.schema, decode.identifier, dialect)
    if sensitive_from is None:
        frames = reader.batches([*decode.columns, *decode.sensitive])
    else:
        attributes = TableReader(Path(sensitive_from), batch_rows, decode.schema).batches(decode.sensitive)
        frames = _side_by_side(reader.batches(decode.columns), attributes, reader.path, Path(sensitive_from))
    decoded = in_order(decode, frames, _checked_workers(n_workers))
    return _write(_shown(_of_one_schema(decoded), reader.n_rows, on_progress), Path(target), None)


class RowDecoder:
    """Decodes frames that hold encoded rows (`columns`) and the attribute (`sensitive`), of the types in `schema`."""

    def __init__(
        self,
        model: Model,
        sensitive: str | Sequence[str] | None,
        identifier: str | None,
        keep: Sequence[str],
        grouping: Grouping | None = None,
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
        taken = encoder.encoded_schema.with_values(role_values(encoder, self.sensitive))
        self.schema = taken if grouping is None else Schema(taken.kinds | grouping.schema(self.sensitive).kinds)

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The decoded rows, and the columns to keep, with the frame's index."""
        persons = None if self.identifier is None else Persons.of(frame[self.identifier])
        attribute = attribute_of(TableColumns(frame), self.sensitive, self._grouping)
        X = self._encoder.inverse_transform(frame[self._names], sensitive_features=attribute, persons=persons)
        return beside(X, frame[self._keep]).set_axis(frame.index)


def in_order(work: Callable[[Item], Result], items: Iterable[Item], n_workers: int) -> Iterator[Result]:
    """``map`` by several threads, a few items ahead at most: NumPy and torch work outside Python's lock."""
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
    """Encoded batches of one schema; rows with unknown values are counted into `unknown`."""
    schema: pa.Schema | None = None
    for batch in encoded:
        unknown.update(batch.unknown)
        # Where a model ends with somebody else's step, the first batch says what the columns are.
        table = batch.table if schema is None else batch.table.cast(schema)
        schema = table.schema
        yield table


def _of_one_schema(frames: Iterable[pd.DataFrame]) -> Iterator[pa.Table]:
    """Frames as Arrow tables; the first one fixes the columns' types."""
    schema: pa.Schema | None = None
    for frame in frames:
        table = to_arrow(columns_of(frame), schema, single=False)
        schema = table.schema
        yield table


def _shown(tables: Iterable[pa.Table], n_rows: int | None, on_progress: OnProgress | None) -> Iterator[pa.Table]:
    """The tables; the rows so far are shown."""
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


def _buckets(reader: TableReader) -> int:
    """A CSV file does not say how many rows it has; a row of fewer than 32 bytes would be rare."""
    return number_of_buckets(reader.n_rows or reader.path.stat().st_size // 32)


def _checked_workers(n_workers: int | None) -> int:
    if n_workers is not None and n_workers < 1:
        raise DataError(f"n_workers must be at least 1; got {n_workers!r}.")
    return n_workers or os.cpu_count() or 1


def _side_by_side(
    rows: Iterator[pd.DataFrame], attributes: Iterator[pd.DataFrame], path: Path, other: Path
) -> Iterator[pd.DataFrame]:
    while (part := next(rows, None)) is not None:
        beside = next(attributes, None)
        if beside is None or len(beside) != len(part):
            word = "more" if beside is not None and len(beside) > len(part) else "fewer"
            raise DataError(f"{other} must have a row for each row of {path}, in the same order; it has {word}.")
        yield pd.concat([part.drop(columns=[c for c in beside if c in part]), beside], axis=1)
    if next(attributes, None) is not None:
        raise DataError(f"{other} must have a row for each row of {path}, in the same order; it has more.")

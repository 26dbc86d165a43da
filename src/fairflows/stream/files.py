"""Encode and decode files of any size in bounded memory; folders of files on a Ray cluster (``fairflows[ray]``)."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from fairflows.compute.resources import import_ray, one_thread
from fairflows.encoder.base import Encoder
from fairflows.exceptions import DataError, Parameter, ParameterError, warn_user
from fairflows.release.released import Released, beside, role_values
from fairflows.storage.folders import check_file, new_file, side_folder
from fairflows.stream.tables import TableReader, TableWriter, number_of_buckets, shuffled, to_arrow
from fairflows.table.dialect import Dialect
from fairflows.table.frames import from_arrow
from fairflows.table.grouping import Grouping
from fairflows.table.persons import Persons
from fairflows.table.schema import Schema

BATCH_ROWS = 2**14
"""What a network makes of so many rows stays in a core's cache; of four times as many, each takes twice as long."""

Item = TypeVar("Item")
Result = TypeVar("Result")
OnProgress = Callable[[int, int | None], None]


def encode_file(
    model: Any,
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
    precision: Literal["float32", "float64"] = "float32",
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
    if precision not in ("float32", "float64"):
        raise ValueError(f"precision must be 'float32' or 'float64'; got {precision!r}.")
    check_file(Path(target), Path(source))
    encode = RowEncoder(model, sensitive, identifier, keep, grouping, label)
    reader = TableReader(Path(source), batch_rows, encode.schema, _names(encode.identifier), dialect)
    encode.check_label(reader.columns, reader.path)
    frames = reader.batches(encode.columns)
    encoded = in_order(encode, frames, _checked_workers(n_workers))
    tables = _tables(encoded, encode.rounds(precision), reader.n_rows, on_progress)
    n_rows = _write(tables, Path(target), None if keep_order else _buckets(reader))
    encode.say_what_is_unknown()
    return n_rows


def decode_file(
    model: Any,
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
    reader = TableReader(Path(source), batch_rows, decode.schema, _names(decode.identifier), dialect)
    if sensitive_from is None:
        frames = reader.batches([*decode.columns, *decode.sensitive])
    else:
        attributes = TableReader(Path(sensitive_from), batch_rows, decode.schema).batches(decode.sensitive)
        frames = _side_by_side(reader.batches(decode.columns), attributes, reader.path, Path(sensitive_from))
    decoded = in_order(decode, frames, _checked_workers(n_workers))
    return _write(_tables(decoded, False, reader.n_rows, on_progress), Path(target), None)


class RowEncoder:
    """Encodes frames that hold a file's columns.

    Attributes
    ----------
    columns : list of str
        The columns that it needs.
    identifier : str or None
        The one that names a row's person.
    schema : Schema
        What the features and the sensitive attribute held when the model was fitted.
    unknown : Counter
        How many rows of each group held values that could not be brought back into the fitted domain.
    """

    def __init__(
        self,
        model: Any,
        sensitive: str | Sequence[str] | None,
        identifier: str | None,
        keep: Sequence[str],
        grouping: Grouping | None = None,
        label: str | None = None,
    ) -> None:
        self._released = Released.of(model)
        encoder = _encoder(self._released)
        self._features = encoder.feature_names
        if not self._features:
            raise DataError("The model was fitted on rows without column names, so a file's columns cannot be matched.")
        self._sensitive = _sensitive_columns(encoder, sensitive) if encoder.needs_attribute else []
        self.identifier = identifier if identifier is not None else encoder.identifier
        self._label = label
        self._keep = list(dict.fromkeys([*([] if label is None else [label]), *keep]))
        extra = [*self._sensitive, *([] if self.identifier is None else [self.identifier]), *self._keep]
        self.columns = list(dict.fromkeys([*self._features, *extra]))
        self._grouping = grouping
        self.schema = self._released.table_schema(self._sensitive, label, grouping)
        self.unknown: Counter[Any] = Counter()
        self._lock = Lock()  # batches are encoded by several threads

    def rounds(self, precision: Literal["float32", "float64"]) -> bool:
        """Whether numbers are rounded to single precision; those of rows in the table's own columns never are."""
        return precision == "float32" and not self._released.draws_rows

    def check_label(self, columns: Sequence[str], path: Path) -> None:
        """Refuse rows without the label where it is to be written."""
        if self._label is not None and self._label not in columns:
            raise DataError(
                f"{path}: has no column {self._label!r}: this model is released and certified together with the label, "
                "which must be written beside the cells."
            )

    def say_what_is_unknown(self) -> None:
        """Warn of rows with values that the training rows did not have, counted by group."""
        if total := self.unknown.total():
            counts = ", ".join(f"{group}: {count:,}" for group, count in self.unknown.items())
            warn_user(
                f"{total:,} rows hold categories that the training rows did not have, or miss a value where none was "
                f"missing ({counts}). They take one map, the same for every group."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The encoded rows, and the columns to keep, with the frame's index."""
        attribute = _attribute(frame, self._sensitive, self._grouping) if self._sensitive else None
        persons = None if self.identifier is None else Persons.of(frame[self.identifier])
        Z, unknown = self._released.encode_rows(frame[self._features], attribute, persons)
        with self._lock:
            self.unknown.update(unknown)
        return beside(Z, frame[self._keep]).set_axis(frame.index)


def _names(identifier: str | None) -> list[str]:
    return [] if identifier is None else [identifier]


class RowDecoder:
    """Decodes frames of encoded rows.

    Attributes
    ----------
    columns, sensitive : list of str
        The columns that it needs.
    schema : Schema
        What the encoded columns and the sensitive attribute hold.
    """

    def __init__(
        self,
        model: Any,
        sensitive: str | Sequence[str] | None,
        identifier: str | None,
        keep: Sequence[str],
        grouping: Grouping | None = None,
    ) -> None:
        released = Released.of(model)
        encoder = _encoder(released)
        if released.n_cells is not None or released.steps:
            raise DataError("A release of cells cannot be decoded: the cell is all that is left of a row.")
        self._encoder = encoder
        self._names = [str(name) for name in encoder.get_feature_names_out()]
        self.sensitive = _sensitive_columns(encoder, sensitive)
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
        attribute = _attribute(frame, self.sensitive, self._grouping)
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


def _tables(
    frames: Iterable[pd.DataFrame], single: bool, n_rows: int | None, on_progress: OnProgress | None
) -> Iterator[pa.Table]:
    schema: pa.Schema | None = None
    done = 0
    for frame in frames:
        table = to_arrow(frame, schema, single)
        schema = table.schema
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


def _encoder(released: Released) -> Encoder:
    if released.encoder is None:
        raise DataError(f"Files are encoded by fairflows' own encoders; got {type(released.model).__name__}.")
    return released.encoder


def _sensitive_columns(encoder: Encoder, given: str | Sequence[str] | None) -> list[str]:
    names = given if given is not None else encoder.sensitive
    if names is None:
        raise DataError(
            "The model does not say which column holds the sensitive attribute: name it (",
            Parameter("sensitive", ...),
            ").",
        )
    return [names] if isinstance(names, str) else list(dict.fromkeys(names))


def _checked_workers(n_workers: int | None) -> int:
    if n_workers is not None and n_workers < 1:
        raise ParameterError("n_workers", "must be at least 1", n_workers)
    return n_workers or os.cpu_count() or 1


def _attribute(frame: pd.DataFrame, names: list[str], grouping: Grouping | None) -> pd.Series | pd.DataFrame:
    if grouping is not None:
        return grouping.apply(frame[names])
    return frame[names[0]] if len(names) == 1 else frame[names]


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


def _encode_batch(batch: pa.Table, encode: RowEncoder, single: bool) -> pd.DataFrame:
    made = encode(from_arrow(batch.replace_schema_metadata(None)))
    doubles = [name for name in made if made[name].dtype == np.float64] if single else []
    return made.astype(dict.fromkeys(doubles, np.float32)).reset_index(drop=True)


def encode_folder(
    model: Any,
    source: str | Path,
    target: str | Path,
    *,
    identifier: str | None = None,
    sensitive: str | Sequence[str] | None = None,
    grouping: Grouping | None = None,
    label: str | None = None,
    keep: Sequence[str] = (),
    keep_order: bool = False,
    precision: Literal["float32", "float64"] = "float32",
    batch_rows: int = BATCH_ROWS,
) -> int:
    """Encode a folder of Parquet files into another, on the Ray cluster that this process is connected to.

    Each row becomes what `encode_file` makes of it, by whichever worker. Parameters are those of `encode_file`, with
    folders in place of files. On a cluster a row has no number, so `identifier` must name its person.

    Returns
    -------
    int
        How many rows were encoded.
    """
    ray = import_ray()
    encode = RowEncoder(model, sensitive, identifier, keep, grouping, label)
    if encode.identifier is None:
        raise DataError(
            "On a cluster a row has no number: name the column that says whose row it is (",
            Parameter("identifier", ...),
            ").",
        )
    if not Path(source).is_dir():
        raise DataError(f"{source}: there is no such folder.")
    if Path(target).exists():
        raise DataError(f"{target}: exists already; Ray writes into a new folder.")
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = keep_order
    encode.check_label(ray.data.read_parquet(str(source)).columns(), Path(source))
    rows = ray.data.read_parquet(str(source), columns=encode.columns)
    encoded = rows.map_batches(
        _encode_batch,
        fn_args=(encode, encode.rounds(precision)),
        batch_format="pyarrow",
        batch_size=batch_rows,
    )
    if not keep_order:
        encoded = encoded.random_shuffle()
    encoded = encoded.materialize()
    encoded.write_parquet(str(target))
    return encoded.count()

"""Encode batches, files of any size in bounded memory, and folders on a Ray cluster (``fairflows[ray]``).

A batch is rows in, encoded rows out, with no state between batches: any engine that moves Arrow batches can run it.

The order of rows is information: a file is often sorted by place, date or name, and a reader with another copy of it
finds persons by the place of their rows. Shuffling within batches would leave nearly all of that order. So rows are
dealt out at random to buckets on disk, and each bucket, small enough for memory, is shuffled (Rao, 1961; Sandelius,
1962): every order of all rows is equally likely.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

from fairflows.display import progress_bar
from fairflows.encoder.base import MORE_ROWS, Model, fitted_model
from fairflows.exceptions import DataError, check_choice, warn_user
from fairflows.table import columns as kinds
from fairflows.table.columns import Schema, check_known
from fairflows.table.domain import Reason, warn_of_outside
from fairflows.table.folders import check_file, new_file, new_folder, side_folder
from fairflows.table.frames import NULLABLE, as_arrow, check_names, from_arrow
from fairflows.table.grouping import Grouping, MissingGroup, MissingLabel, rows_kept
from fairflows.table.persons import Hashes, Persons, check_most_rows, keyed_hashes
from fairflows.table.reading import TextFormat, naming_file, open_table, read_batches
from fairflows.threads import one_thread

Precision = Literal["float32", "float64"]
Batch = TypeVar("Batch", pa.RecordBatch, pa.Table)

_TYPES = {
    kinds.TEXT: pa.string(),
    kinds.BOOLEANS: pa.bool_(),
    kinds.WHOLE: pa.int64(),
    kinds.NUMBERS: pa.float64(),
    kinds.TIMES: pa.timestamp("us"),
    kinds.MOMENTS: pa.timestamp("us", "UTC"),
    kinds.DURATIONS: pa.duration("us"),
}


def encode_batch(model: Model, batch: Batch, *, key: bytes | None = None, **settings: Any) -> Batch:
    """Encode an Arrow record batch or table. The result depends on the batch alone.

    Each row becomes the same as in `encode_file`, in the order of the batch. Rows without a group or a label are
    dropped if that is asked for, with a warning that counts them. An empty batch gives an empty result, and so tells
    the schema of all results.

    **Without an identifier** every row gets fresh coins and noise at each call, and a warning says so. An engine may
    compute a batch twice, when a worker is lost or when a result that is not stored is used twice, and two encodings of
    one person with different coins tell more than the certificate says. So either name the persons, or encode once and
    use only the stored result. A cross-fitted release looks for its own training rows within each batch alone, and
    seldom recognises few rows: name the persons there. Rows that are drawn (``output="row"``) are fresh at each call,
    with an identifier too, but always from the person's own cell, so that the certificate covers all of them.

    The order of rows may identify persons. Shuffle before you release, as `encode_file` does.

    Parameters
    ----------
    model : encoder
        Fitted encoder, such as a `Release`.
    batch : RecordBatch or Table
        Rows with the columns that the model was fitted on.
    key : bytes, default=None
        Secret key of the model, ``bytes(model.key_)``. Engines send a model to their workers as a pickle, which leaves
        the key out, and a model without its key encodes nothing. So you decide whether the workers get the key, and
        how.
    **settings
        Columns, their roles and the precision: the parameters of `BatchEncoder`.

    Returns
    -------
    RecordBatch or Table
        The encoded rows, then the columns to keep.

    Examples
    --------
    >>> from fairflows import FairTree, load_adult
    >>> adult = load_adult().take(range(2000))
    >>> model = FairTree(n_cells=4).fit(adult)
    >>> rows = adult.X.assign(sex=adult.a, person=range(len(adult)))
    >>> batch = pa.RecordBatch.from_pandas(rows, preserve_index=False)
    >>> encode_batch(model, batch, sensitive="sex", identifier="person", keep=["person"]).schema.names
    ['cell', 'person']
    """
    encode = BatchEncoder(model, **settings)
    if key is not None:
        model.key_.restore(key)
    is_table = isinstance(batch, pa.Table)
    encoded, found = encode(batch if is_table else pa.Table.from_batches([batch]))
    encode.check_number_of_rows(found)
    found.warn()
    if is_table:
        return encoded
    parts = encoded.combine_chunks().to_batches()
    return parts[0] if parts else pa.RecordBatch.from_pylist([], schema=encoded.schema)


@dataclass
class Found:
    """Findings about encoded rows, added up over batches."""

    outside: Counter[tuple[str, Reason]] = field(default_factory=Counter)  # values that training did not have
    dropped: int = 0  # rows without a group or a label
    counts: npt.NDArray[np.int64] | None = None  # (K, k): rows by group and cell, of a release
    no_label: list[str] = field(default_factory=list)  # labels that the rows lack
    persons: list[Hashes] = field(default_factory=list)  # hashes of the rows' persons, batch by batch

    def add(self, other: Found) -> None:
        """Add the findings of another batch."""
        self.outside.update(other.outside)
        self.dropped += other.dropped
        if other.counts is not None:
            self.counts = other.counts if self.counts is None else self.counts + other.counts
        self.no_label = other.no_label
        self.persons += other.persons

    def warn(self) -> None:
        """Warn of all that a reader of the result must know."""
        if self.dropped:
            warn_user(f"{self.dropped:,} rows without a group or a label were dropped, as before fitting.")
        if self.no_label:
            warn_user(
                f"The model was fitted to rows with a known {' and '.join(map(repr, self.no_label))}, a column that "
                "these rows lack: the certificate does not cover persons who would never have one."
            )
        warn_of_outside(self.outside)


class BatchEncoder:
    """Encode Arrow tables that hold a file's columns.

    Parameters
    ----------
    model : encoder
        Fitted encoder, such as a `Release`.
    sensitive : str or list of str, default=None
        Columns that hold the sensitive attribute; by default those that the encoder was told.
    grouping : Grouping, default=None
        How these columns become the groups that the model knows: the `grouping` of the table that it was fitted on.
    identifier : str, default=None
        Column that names the person of a row. No person may have more rows in a batch than the most in training.
    label : str or list of str, default=None
        Columns of the labels, where the model was fitted to a table with some. A batch need not have them.
    missing_group, missing_label : str, default="error"
        What is done with rows that miss their group or their label, as in the `Table` that the model was fitted to. A
        certificate is about rows that were treated so.
    keep : sequence of str, default=()
        Columns of the batch that are written unchanged, after the others.
    precision : {"float32", "float64"}, default="float32"
        Type of encoded numbers. They are computed in float64. Whole rows in the table's own columns keep their types.

    Attributes
    ----------
    identifier : str or None
        The column that names a row's person.
    schema : Schema
        The kinds of the features, of the sensitive attribute and of the label when the model was fitted.
    """

    def __init__(
        self,
        model: Model,
        *,
        sensitive: str | Sequence[str] | None = None,
        grouping: Grouping | None = None,
        identifier: str | None = None,
        label: str | Sequence[str] | None = None,
        missing_group: MissingGroup = "error",
        missing_label: MissingLabel = "error",
        keep: Sequence[str] = (),
        precision: Precision = "float32",
    ) -> None:
        check_choice("precision", precision, get_args(Precision))
        check_choice("missing_group", missing_group, get_args(MissingGroup))
        check_choice("missing_label", missing_label, get_args(MissingLabel))
        encoder = self._encoder = fitted_model(model)
        self._grouping = grouping
        self._missing_group, self._missing_label = missing_group, missing_label
        self._features = list(map(str, encoder.schema_.kinds))
        if not self._features:
            raise DataError("The model was fitted on rows without column names, so a file's columns cannot be matched.")
        self._sensitive = sensitive_columns(encoder, sensitive) if encoder.traits.needs_attribute else []
        self.identifier = identifier if identifier is not None else encoder.identifier
        named = [label] if isinstance(label, str) else list(label or [])
        self._labels = named if missing_label != "keep" else []
        self._keep = list(dict.fromkeys(keep))
        self.schema = table_schema(encoder, self._sensitive, self._labels, grouping)
        # Rows in the table's own columns keep their types.
        self._types = _types(encoder, single=precision == "float32" and not encoder.traits.draws_rows)

    def needed(self, source: Collection[str]) -> list[str]:
        """Return the columns of a source that are needed. Raise if it lacks one; it may lack labels."""
        label = [name for name in self._labels if name in source]
        person = [] if self.identifier is None else [self.identifier]
        columns = list(dict.fromkeys([*self._features, *self._sensitive, *person, *self._keep, *label]))
        for name in columns:
            check_known(name, source, "needed")
        return columns

    def output_schema(self, source: pa.Schema) -> pa.Schema:
        """Return the schema of encoded batches of a source."""
        self.needed(known := set(source.names))
        if len(known) < len(source.names):
            check_names(source.names)
        for name in self._keep:
            if name in self._types.names:
                raise DataError(
                    f"Column {name!r} is written by the model and cannot be kept as well: rename the column of the "
                    "table."
                )
        return pa.schema([*self._types, *(pa.field(name, plain_type(source.field(name).type)) for name in self._keep)])

    def __call__(self, batch: pa.Table) -> tuple[pa.Table, Found]:
        """Encode the rows of a table, and append the columns to keep. Return also the findings about the rows."""
        schema = self.output_schema(batch.schema)
        columns = self.needed(batch.schema.names)
        frame = from_arrow(batch.select(columns).replace_schema_metadata())
        self.schema.part(name for name in columns if name not in self._features).check(frame)
        found, labels = Found(), frame[[name for name in self._labels if name in columns]]
        if self._missing_label == "drop":
            found.no_label = [name for name in self._labels if name not in columns]
        kept = rows_kept(frame[self._sensitive], labels, self._missing_group, self._missing_label)
        if not kept.all():
            frame, batch, found.dropped = frame[kept], batch.filter(pa.array(kept)), int((~kept).sum())
        if not len(frame):
            return schema.empty_table(), found
        attribute = attribute_of(frame, self._sensitive, self._grouping) if self._sensitive else None
        persons = None if self.identifier is None else Persons.of(frame[self.identifier])
        features = frame[self._features]  # which are checked as they are read
        encoder = self._encoder
        rows = encoder.read(features, attribute, persons)
        if encoder.released_table is None:
            encoded = encoder.encode(rows)
        else:
            cells, shape = encoder.cells(rows), (len(encoder.groups_), encoder.n_cells_)
            found.counts = np.bincount(rows.group * shape[1] + cells, minlength=shape[0] * shape[1]).reshape(shape)
            encoded = encoder.draw(cells)
        found.outside = rows.outside.counts()
        if persons is not None and persons.names is not None:
            found.persons = [keyed_hashes(persons.names, b"", "rows of a person")[persons.codes]]
        table = as_arrow(encoded, self._types)
        for name in self._keep:
            kept_column = batch.column(name)
            table = table.append_column(name, kept_column.cast(plain_type(kept_column.type)))
        return table, found

    def check_number_of_rows(self, found: Found) -> None:
        """Raise if a person has more rows than those that the model was fitted to."""
        most, hashes = self._encoder.most_rows_ or 1, np.concatenate([*found.persons, np.empty(0, np.uint64)])
        hashes.sort()
        if (hashes[most:] == hashes[:-most]).any():  # a file of any size: they are counted only if somebody has more
            check_most_rows(np.unique(hashes, return_counts=True)[1], most, MORE_ROWS)


def table_schema(
    encoder: Model, sensitive: Sequence[str], labels: Sequence[str] = (), grouping: Grouping | None = None
) -> Schema:
    """Return the content that the columns of a file must have to be read as rows of the encoder.

    With a grouping, the sensitive columns hold what it makes groups of.
    """
    schema = encoder.schema_.with_values(_role_values(encoder, sensitive, labels))
    return schema if grouping is None or not sensitive else Schema(schema.kinds | grouping.schema(sensitive).kinds)


def _role_values(
    encoder: Model, sensitive: Sequence[str], labels: Sequence[str] = ()
) -> dict[str, Sequence[Hashable] | np.ndarray]:
    """Return the values of the sensitive column, where it is a single one, and of the first label."""
    values: dict[str, Sequence[Hashable] | np.ndarray] = {}
    if len(sensitive) == 1 and encoder.groups_:
        values[sensitive[0]] = encoder.groups_
    return values if not labels or encoder.classes_ is None else {**values, labels[0]: encoder.classes_}


def sensitive_columns(encoder: Model, given: str | Sequence[str] | None) -> list[str]:
    """Return the columns of the sensitive attribute, as given or as the encoder was told."""
    names = given if given is not None else encoder.sensitive
    if names is None:
        raise DataError("The model does not say which column holds the sensitive attribute: name it (sensitive=...).")
    return [names] if isinstance(names, str) else list(dict.fromkeys(names))


def attribute_of(rows: pd.DataFrame, names: list[str], grouping: Grouping | None) -> pd.Series | pd.DataFrame:
    """Return the sensitive attribute of rows, in the groups that the model knows."""
    if grouping is not None:
        return grouping.apply(rows[names])
    return rows[names[0]] if len(names) == 1 else rows[names]


def to_arrow(frame: pd.DataFrame) -> pa.Table:
    """Convert a frame to an Arrow table of types that all batches share."""
    table = as_arrow(frame)
    types = [plain_type(t) for t in table.schema.types]
    return table.cast(pa.schema(list(zip(table.schema.names, types, strict=True))))


def plain_type(given: pa.DataType) -> pa.DataType:
    """Return a type that all batches of a column share: dictionaries differ between batches, and null has no type."""
    if pa.types.is_dictionary(given):
        return plain_type(given.value_type)
    return pa.string() if pa.types.is_null(given) or pa.types.is_large_string(given) else given


def _types(encoder: Model, single: bool) -> pa.Schema:
    """Return the Arrow types of encoded columns; of columns of objects, by the values that they held at the fit."""
    held = {str(name): kind for name, kind in encoder.output_.schema.kinds.items()}
    fields = []
    for name, dtype in encoder.output_.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype) or dtype == np.dtype(object):
            found = _TYPES.get(held.get(name, kinds.TEXT), pa.string())
        else:
            found = plain_type(pa.Array.from_pandas(pd.Series(dtype=dtype)).type)
        fields.append(pa.field(name, pa.float32() if single and found == pa.float64() else found))
    return pa.schema(fields)


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
    found: Found | None = None,
    **settings: Any,
) -> int:
    """Encode a CSV, Excel or Parquet file into another one. Memory grows with an Excel sheet, not with other files.

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
        How a CSV file is to write times, by column.
    found : Found, default=None
        Filled with the findings about the rows, such as the counts of their cells.
    **settings
        Columns, their roles and the precision: the parameters of `BatchEncoder`.

    Returns
    -------
    int
        The number of encoded rows.
    """
    check_file(Path(target), Path(source))
    encode = BatchEncoder(model, **settings)
    path, file = Path(source), open_table(Path(source), text_format)

    found = Found() if found is None else found
    batches = read_batches(path, file, encode.needed(file.columns), BATCH_ROWS, encode.schema, encode.identifier)

    def encoded(batch: pa.Table) -> tuple[pa.Table, Found]:
        with naming_file(path):
            return encode(batch)

    def counted() -> Iterator[pa.Table]:
        done = 0
        with progress_bar("encoding") as show:
            for table, of_batch in in_order(encoded, batches):
                found.add(of_batch)
                done += table.num_rows
                show(done, file.n_rows, f"{done:,} rows")
                yield table

    # A CSV file does not say how many rows it has; rows of fewer than 32 bytes are rare.
    n_expected = file.n_rows or path.stat().st_size // 32
    n_buckets = int(np.clip(-(-n_expected // ROWS_PER_BUCKET), 1, MOST_BUCKETS))
    with new_file(Path(target)) as side, side_folder(Path(target)) as folder:
        tables = counted() if keep_order else shuffled(counted(), n_buckets, folder)
        n_rows = write_table(tables, side, Path(target), time_formats)
        with naming_file(path):
            encode.check_number_of_rows(found)
    found.warn()
    return n_rows


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
    if model.traits.n_cells:
        raise DataError("A release of cells cannot be decoded: the cell is all that is left of a row.")
    names = [str(name) for name in encoder.get_feature_names_out()]
    sensitive = sensitive_columns(encoder, sensitive)
    identifier = identifier if identifier is not None else encoder.identifier
    schema = encoder.output_.schema.with_values(_role_values(encoder, sensitive))
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


def encode_folder(model: Model, source: str | Path, target: str | Path, **settings: Any) -> int:
    """Encode a folder of Parquet files on a Ray cluster, with Ray Data's own reading, shuffling and writing.

    The secret key travels to the workers and lies in Ray's object store until the job ends. The ledger stays here.

    Parameters
    ----------
    model : encoder
        Fitted encoder, such as a `Release`.
    source, target : path or URI
        Folders that all workers reach. A target on a file system must not exist, and appears when it is complete.
    **settings
        Parameters of `BatchEncoder`. A model with coins or noise needs an `identifier`, because a task may run twice.

    Returns
    -------
    int
        The number of encoded rows.
    """
    try:
        data = import_module("ray.data")
    except ImportError:
        raise DataError("Ray is not installed: pip install 'fairflows[ray]'.") from None
    encode = BatchEncoder(model, **settings)
    if encode.identifier is None and model.traits.randomised:
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
            work = partial(encode_batch, model, key=bytes(model.key_), **settings)
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


def sampled_persons(path: Path, identifier: str, n_rows: int, text_format: TextFormat | None = None) -> pd.DataFrame:
    """Read all rows of a random share of a file's persons, about so many rows, in bounded memory."""
    file = open_table(path, text_format)
    check_known(identifier, file.columns, "identifier")
    read = partial(read_batches, path, file, batch_rows=ROWS_PER_BUCKET, identifier=identifier)
    in_all = file.n_rows or sum(table.num_rows for table in read(columns=[identifier]))
    parts = []
    for frame in map(from_arrow, read(columns=file.columns)):
        u = Persons.of(frame[identifier]).uniform(b"sample: 0", "sample")
        parts.append(frame[u < n_rows / in_all])
    return pd.concat(parts, ignore_index=True)


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
        for table in parts:
            has_gaps = any(column.null_count for column in table.columns)  # pandas makes floats of whole numbers then
            frame = table.to_pandas(types_mapper=NULLABLE.get if has_gaps else None)
            for column, written in (time_formats or {}).items():
                if column in frame and frame[column].dtype.kind == "M":
                    frame[column] = frame[column].dt.strftime(written)
            frame.to_csv(file, index=False, header=not n_rows)
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


def _of_one_schema(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables in the types of the first one."""
    schema: pa.Schema | None = None
    for table in tables:
        schema = schema or table.schema
        yield table.cast(schema)

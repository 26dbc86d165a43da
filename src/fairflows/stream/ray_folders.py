"""Encode a folder of Parquet files on a Ray cluster (``fairflows[ray]``)."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.dataset
from pyarrow.fs import FileSystem, FileType, LocalFileSystem

from fairflows.compute.resources import import_ray, one_thread
from fairflows.exceptions import DataError, DataWarning
from fairflows.release.released import Model
from fairflows.stream.batches import BatchEncoder, Precision, say_what_is_unknown
from fairflows.stream.files import BATCH_ROWS
from fairflows.table.folders import new_folder
from fairflows.table.grouping import Grouping
from fairflows.table.persons import fingerprint
from fairflows.table.reading import parquet_folder, refuse_other_columns

if TYPE_CHECKING:
    from ray import ObjectRef
    from ray.actor import ActorHandle

_LOT, _LOTS = "fairflows: lot", 2**63
_MOST_ROWS_OF_A_TASK = 2**17
_MOST_BYTES_TO_SORT = 2**27  # in one task; Ray's gibibyte would leave most workers idle, and fill the memory of one
_TASKS_PER_PROCESSOR = 2
_COMPLETE = "_SUCCESS"  # as Spark calls it; readers of Parquet skip names that begin with an underscore


def encode_folder(
    model: Model,
    source: str | Path,
    target: str | Path,
    *,
    sensitive: str | Sequence[str] | None = None,
    grouping: Grouping | None = None,
    identifier: str | None = None,
    label: str | None = None,
    keep: Sequence[str] = (),
    keep_order: bool = False,
    precision: Precision = "float32",
    batch_rows: int = BATCH_ROWS,
    filesystem: FileSystem | None = None,
) -> int:
    """Encode a folder of Parquet files into another, on the Ray cluster that this process is connected to.

    Each row becomes what `encode_batch` makes of it, by whichever worker. Rows come out in a random order, every order
    being equally likely, unless `keep_order` asks for that of the files and their names.

    **The model's secret key travels to the workers**, beside the encoder, and lies in Ray's object store until the
    job ends: whoever can read the memory, or the spilled objects, of the cluster's machines can read it. The ledger,
    which lists the persons that the model was fitted to, stays here.

    A new folder on a file system appears when it is complete. An object store (S3, Google Cloud) has no folders that
    could appear: there the last thing that is written is an empty file ``_SUCCESS``, and all files are removed if the
    job fails.

    Parameters
    ----------
    model : encoder or pipeline
        Fitted.
    source, target : path or URI
        Folders that all workers reach: on a shared file system, or ``s3://…``, ``gs://…``. The target must not exist.
        Folders within the source that are called ``year=2024`` give a column ``year``.
    sensitive, grouping, label, keep, precision
        As for `encode_file`.
    identifier : str, optional
        The column that names a row's person. Needed where the model uses coins or noise: a task may run twice, and
        must give a person the same ones.
    keep_order : bool
        Keep the rows in order.
    batch_rows : int
        Rows that are encoded at once.
    filesystem : pyarrow.fs.FileSystem, optional
        Where both folders are, with its credentials; found by the paths when not given.

    Returns
    -------
    int
        How many rows were encoded.
    """
    ray = import_ray()
    encode = BatchEncoder(model, sensitive, grouping, identifier, label, keep, precision)
    if encode.needs_identifier:
        raise DataError(
            "On a cluster a task may run twice, and must give a person the same coins: name the column that says "
            "whose row it is (identifier=...)."
        )
    (origin, folder), (destination, place) = _located(source, filesystem), _located(target, filesystem)
    rows = _dataset(origin, folder, source)
    encode.check_label(rows.schema.names, source)
    encode.output_schema(rows.schema)  # refuses what is missing before anything is started
    refuse_other_columns(rows, source, encode.columns)
    if destination.get_file_info(place).type != FileType.NotFound:
        raise DataError(f"{target}: exists already; Ray writes into a new folder.")
    n_rows = rows.count_rows()
    if not n_rows:
        raise DataError(f"{source}: the table has no rows.")

    context = ray.data.DataContext.get_current().copy()
    context.execution_options.preserve_order = keep_order
    with ray.data.DataContext.current(context), _appearing(destination, place) as written:
        tally = ray.remote(num_cpus=0)(Tally).remote()
        n_tasks = _number_of_tasks(n_rows, batch_rows, int(ray.cluster_resources().get("CPU", 1)))
        # Ray's own reading of Parquet deals files out to tasks in an order of its own.
        parts = _parts(rows, ceil(n_rows / n_tasks))
        read = ray.data.range(len(parts), override_num_blocks=len(parts)).map_batches(
            _read,
            fn_args=(ray.put(parts), rows.schema, encode.columns, None if keep_order else token_bytes(16)),
            batch_format="numpy",
            batch_size=1,
        )
        if not keep_order:
            # Ray's own shuffle takes its seed from the clock, and deals blocks out evenly.
            context.shuffle_input_batch_bytes = _MOST_BYTES_TO_SORT
            n_tasks = max(n_tasks, 2)  # without boundaries there would be as many as Ray thinks fit
            read = read.sort(_LOT, boundaries=[_LOTS * i // n_tasks for i in range(1, n_tasks)])
        encoded = read.map_batches(
            _encoded,
            fn_args=(encode, encode.keys, tally, batch_rows),
            batch_format="pyarrow",
            batch_size=None,  # with a size, Ray would gather so many numbers of parts into one task
        )
        try:
            encoded.write_parquet(written, filesystem=destination)
        except Exception:  # Ray wraps what a worker raised, in classes of its own
            refusal = ray.get(tally.refusal.remote())
            if refusal is None:
                raise
            raise DataError(*refusal) from None
        n_written = _dataset(destination, written, target).count_rows()
        if n_written != n_rows:
            raise DataError(f"{target}: {n_written:,} of {n_rows:,} rows were written.")
        unknown: Counter[Hashable] = ray.get(tally.total.remote())
    say_what_is_unknown(unknown)
    return n_rows


class Tally:
    """What the workers have to say: how many rows of each group held unknown values, and what they refused.

    An actor of the cluster, so that it is said once, and in our words.
    """

    def __init__(self) -> None:
        self._counts: Counter[Hashable] = Counter()
        self._refusal: str | None = None

    def add(self, counts: Counter[Hashable]) -> None:
        """Counts of a batch."""
        self._counts.update(counts)

    def total(self) -> Counter[Hashable]:
        """Counts of all batches."""
        return self._counts

    def refuse(self, message: str) -> None:
        """The message of a `DataError`."""
        self._refusal = message

    def refusal(self) -> str | None:
        """The last one."""
        return self._refusal


def _parts(rows: pyarrow.dataset.FileSystemDataset, n_rows: int) -> list[list[pyarrow.dataset.ParquetFileFragment]]:
    """The row groups of all files, in order, in parts of about so many rows."""
    parts: list[list[pyarrow.dataset.ParquetFileFragment]] = []
    waiting = 0
    for file in rows.get_fragments():
        for group in file.split_by_row_group():
            if waiting <= 0:
                parts.append([])
                waiting += n_rows
            parts[-1].append(group)
            waiting -= group.row_groups[0].num_rows
    return parts


def _read(
    batch: dict[str, np.ndarray],
    parts: ObjectRef[list[list[pyarrow.dataset.ParquetFileFragment]]],
    schema: pa.Schema,
    columns: list[str],
    secret: bytes | None,
) -> pa.Table:
    """The rows of a part; each with its random place in the order of all rows, where there is a secret."""
    part = int(batch["id"][0])
    groups = import_ray().get(parts)[part]
    rows = pa.concat_tables([group.to_table(schema=schema, columns=columns, use_threads=False) for group in groups])
    return rows if secret is None else _with_lots(rows, part, secret)


def _with_lots(rows: pa.Table, part: int, secret: bytes) -> pa.Table:
    """The rows of a part, each with its random place in the order of all rows.

    The numbers hang on the part and on a secret of the job: where a lost task runs again, rows that others have taken
    from it must keep their places, or some would be written twice and others never. They do not hang on what the rows
    hold: of two files with the same rows, the two rows of each person would come out side by side.
    """
    seed = fingerprint([str(part)], secret)
    lots = np.random.default_rng(int(seed, 16)).integers(_LOTS, size=rows.num_rows)
    return rows.append_column(_LOT, pa.array(lots))


def _encoded(rows: pa.Table, encode: BatchEncoder, keys: list[bytes], tally: ActorHandle, batch_rows: int) -> pa.Table:
    encode.restore_keys(keys)
    batches, unknown = [], Counter[Hashable]()
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # which would come once per batch
        try:
            for start in range(0, max(rows.num_rows, 1), batch_rows):
                encoded = encode(rows.slice(start, batch_rows))
                batches.append(encoded.table)
                unknown.update(encoded.unknown)
        except DataError as error:
            import_ray().get(tally.refuse.remote(str(error)))  # Ray would hand over its text alone
            raise
    if unknown.total():
        import_ray().get(tally.add.remote(unknown))  # else it may arrive after the total was asked for
    return pa.concat_tables(batches, promote_options="permissive")  # a step that is not ours may give other types


def _number_of_tasks(n_rows: int, batch_rows: int, n_processors: int) -> int:
    """Enough for all processors, none with less than a batch, and each within a worker's memory."""
    wanted = min(_TASKS_PER_PROCESSOR * n_processors, ceil(n_rows / batch_rows))
    return max(wanted, ceil(n_rows / _MOST_ROWS_OF_A_TASK))


def _located(path: str | Path, filesystem: FileSystem | None) -> tuple[FileSystem, str]:
    """The file system of a path or URI, and the path in it."""
    if filesystem is not None:
        return filesystem, str(path)
    uri = re.fullmatch(r"([a-z][a-z0-9+.-]+):/+(.+)", str(path))  # pathlib makes one slash of several
    if uri is None:
        return LocalFileSystem(), str(Path(path).resolve())
    try:
        return FileSystem.from_uri(f"{uri[1]}://{'/' if uri[1] == 'file' else ''}{uri[2]}")
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be reached: {str(error).splitlines()[0]}") from None


def _dataset(filesystem: FileSystem, folder: str, name: str | Path) -> pyarrow.dataset.FileSystemDataset:
    if filesystem.get_file_info(folder).type != FileType.Directory:
        raise DataError(f"{name}: there is no such folder.")
    try:
        return parquet_folder(folder, filesystem)
    except DataError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(f"{name}: cannot be read: {str(error).splitlines()[0]}") from None


@contextmanager
def _appearing(filesystem: FileSystem, folder: str) -> Iterator[str]:
    """A folder to write to, which is complete or gone when the block ends."""
    if isinstance(filesystem, LocalFileSystem):
        with new_folder(Path(folder)) as side:
            yield str(side)
        return
    try:
        yield folder
        with filesystem.open_output_stream(f"{folder}/{_COMPLETE}"):
            pass
    except BaseException:
        if filesystem.get_file_info(folder).type != FileType.NotFound:
            filesystem.delete_dir(folder)
        raise

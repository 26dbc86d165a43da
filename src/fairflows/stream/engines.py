"""Encode folders of Parquet files on a Ray cluster (``fairflows[ray]``)."""

from __future__ import annotations

import secrets
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.dataset

from fairflows.encoder.base import Model
from fairflows.exceptions import DataError
from fairflows.stream.batches import BatchEncoder, encode_batch
from fairflows.stream.files import BATCH_ROWS
from fairflows.table.folders import new_folder


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
    encode.refuse_panels()
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

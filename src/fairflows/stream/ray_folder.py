"""The same on a Ray cluster: files of a folder encoded by many workers.

Needs the extra ``fairflows[ray]``. Reading, scheduling, shuffling and writing are Ray Data's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from fairflows.compute.resources import import_ray
from fairflows.exceptions import DataError, Parameter
from fairflows.stream.files import BATCH_ROWS, RowEncoder
from fairflows.table.frames import from_arrow
from fairflows.table.grouping import Grouping


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

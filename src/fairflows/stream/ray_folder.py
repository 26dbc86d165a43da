"""The same on a Ray cluster: files of a folder encoded by many workers, and the models of a frontier trained on many.

Needs the extra ``fairflows[ray]``. Reading, scheduling, shuffling and writing are Ray Data's.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from fairflows.exceptions import DataError
from fairflows.frontiers.sweep import Frontier, frontier
from fairflows.stream.files import BATCH_ROWS, RowEncoder
from fairflows.table.frames import from_arrow
from fairflows.table.persons import new_key
from fairflows.table.table import Table


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
    ray = _ray()
    encode = RowEncoder(model, sensitive, identifier, keep)
    if encode.identifier is None:
        raise DataError("On a cluster a row has no number: name the column that says whose row it is (identifier=...).")
    if not Path(source).is_dir():
        raise DataError(f"{source}: there is no such folder.")
    if Path(target).exists():
        raise DataError(f"{target}: exists already; Ray writes into a new folder.")
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = keep_order
    rows = ray.data.read_parquet(str(source), columns=encode.columns)
    encoded = rows.map_batches(
        _encode_batch,
        fn_args=(encode, precision == "float32"),
        batch_format="pyarrow",
        batch_size=batch_rows,
    )
    if not keep_order:
        encoded = encoded.random_shuffle()
    encoded = encoded.materialize()
    encoded.write_parquet(str(target))
    return encoded.count()


def frontier_on_ray(
    estimator: Any,
    table: Table,
    *,
    gammas: Sequence[float],
    seeds: int | Sequence[int] = 1,
    test: Table | None = None,
    n_parts: int = 2,
    n_draws: int = 10_000,
) -> Frontier:
    """`fairflows.frontier` with the seeds spread over the Ray cluster in so many parts; the same models come out.

    Every worker trains all gammas of its seeds in one run: models of a run share densities, and do not depend on which
    others are trained beside them.
    """
    ray = _ray()
    seeds = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if test is None:
        table, test = table.split(validation=0)
    if estimator.key is None:
        estimator = type(estimator)(**{**estimator.get_params(deep=False), "key": new_key()})  # one key for all parts
    parts = [part.tolist() for part in np.array_split(seeds, min(n_parts, len(seeds)))]
    train = ray.remote(frontier)
    shared = [ray.put(thing) for thing in (estimator, table)]
    held_out = ray.put(test)
    jobs = [train.remote(*shared, gammas=gammas, seeds=part, test=held_out, n_draws=n_draws) for part in parts]
    found: list[Frontier] = ray.get(jobs)
    measured = pd.concat([part.measured for part in found], keys=range(len(found)), names=["part", "place"])
    order = {(gamma, seed): i for i, (gamma, seed) in enumerate((float(g), s) for g in gammas for s in seeds)}
    measured = measured.iloc[np.argsort([order[key] for key in zip(measured["gamma"], measured["seed"], strict=True)])]
    encoders = [found[part].encoders[place] for part, place in measured.index]
    trained = [encoder for encoder in encoders if hasattr(encoder, "ledger_")]
    for encoder in trained:  # the parts saw the same rows: one ledger counts the certificates of all
        encoder.ledger_ = trained[0].ledger_
    return Frontier(encoders, measured.reset_index(drop=True))


def _ray() -> Any:
    try:
        import_module("ray.data")
        return import_module("ray")
    except ImportError:
        raise DataError("Ray is not installed: pip install 'fairflows[ray]'.") from None

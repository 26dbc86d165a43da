"""The latency of encoding one row at a time, and that it warns of nothing.

    OMP_NUM_THREADS=1 python benchmarks/latency.py [--encoders NAME ...] [--calls N]

Each call gets another row, drawn as in `growth.py` (8 columns, categories as text), of a person whom the encoder has
not seen: ``transform`` a pandas frame and an Arrow table, `encode_batch` an Arrow record batch. Numbers are
milliseconds: the median and the 99th percentile of the wall clock, and the median of the processor's time; then the
function calls of one row, which do not depend on what else the machine does. A warning would end the run.
"""

from __future__ import annotations

import argparse
import cProfile
import time
import warnings
from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd
import pyarrow as pa
from growth import as_table, drawn_rows, encoder_named

from fairflows import Release
from fairflows.encoder.base import Encoder
from fairflows.encoder.fair_tree import FairTree
from fairflows.stream.batches import encode_batch

N_COLUMNS, N_GROUPS = 8, 2
N_FITTED = 20_000
WARM_UP = 20
ENCODERS: dict[str, Callable[[], Encoder]] = {
    name: lambda name=name: encoder_named(name, briefly=True)
    for name in ("FairTree", "FairCells", "FairMatching", "FairFlow", "Release", "one model")
} | {"FairTree, whole rows": lambda: Release(FairTree(), n_cells=64)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", nargs="+", choices=ENCODERS, default=list(ENCODERS))
    parser.add_argument("--calls", type=int, default=1_000)
    arguments = parser.parse_args()
    rows = within_range(drawn_rows(arguments.calls + WARM_UP, N_COLUMNS, N_GROUPS, seed=2)).set_index("person")
    features = [f"x{j}" for j in range(N_COLUMNS)]
    frames = [rows.iloc[i : i + 1][[*features, "group"]] for i in range(len(rows))]
    tables = [pa.Table.from_pandas(frame.reset_index(), preserve_index=False) for frame in frames]
    for name in arguments.encoders:
        fitted = fit(ENCODERS[name]())
        print(name)
        report("transform, pandas", fitted.transform, frames)
        report("transform, Arrow", fitted.transform, tables)
        batches = [table.to_batches()[0] for table in tables]
        report("encode_batch", lambda batch, model=fitted: encode_batch(model, batch), batches)


def fit(encoder: Encoder) -> Encoder:
    """The encoder, fitted to a table whose columns it finds by name in later rows."""
    owner = encoder
    while "sensitive" not in owner.get_params(deep=False):  # the encoder inside a release
        owner = owner.get_params(deep=False).get("release") or owner.get_params(deep=False)["encoder"]
    owner.set_params(sensitive="group", identifier="person")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return encoder.fit(as_table(with_text(fitted_rows())))


def fitted_rows() -> pd.DataFrame:
    """The rows that encoders are fitted to."""
    return drawn_rows(N_FITTED, N_COLUMNS, N_GROUPS, seed=1)


def within_range(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows whose decimals lie in the training range, since a value outside is brought back with a warning."""
    decimals = [name for name in rows if rows[name].dtype == float]
    known = fitted_rows()[decimals]
    return with_text(rows.assign(**rows[decimals].clip(known.min(), known.max(), axis=1)))


def with_text(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with categories as text, as a request to a service holds them."""
    return rows.astype({name: str for name in rows if isinstance(rows[name].dtype, pd.CategoricalDtype)})


def report(what: str, encode: Callable[[object], object], rows: Iterable[object]) -> None:
    wall, processor = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for row in rows:
            start, busy = time.perf_counter(), time.process_time()
            encode(row)
            wall.append(1e3 * (time.perf_counter() - start))
            processor.append(1e3 * (time.process_time() - busy))
        profile = cProfile.Profile()
        profile.runcall(encode, row)
    n_calls = sum(entry.callcount for entry in profile.getstats())
    median, p99 = np.quantile(wall[WARM_UP:], [0.5, 0.99])
    busy_median = np.median(processor[WARM_UP:])
    print(
        f"  {what:<20} median {median:6.2f}  99 % {p99:6.2f}  processor {busy_median:6.2f}  calls {n_calls:6,}",
        flush=True,
    )


if __name__ == "__main__":
    main()

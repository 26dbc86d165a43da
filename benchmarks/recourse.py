"""Time recourse for a hundred thousand rejected rows, beside encoding the same rows once.

    OMP_NUM_THREADS=1 python benchmarks/recourse.py

Law School where its data are at hand (rows drawn with replacement, each a person of its own), else drawn Gaussians.
"""

from __future__ import annotations

import time
import warnings

import numpy as np

from fairflows import FairFlow, Table
from fairflows.exceptions import DataError, DataWarning
from fairflows.explain import recourse
from fairflows.paper import load_law_school, make_gaussians

N_REJECTED = 100_000


def main() -> None:
    warnings.simplefilter("ignore", DataWarning)
    try:
        table, keep = load_law_school(), ["college"]
    except DataError:
        table, keep = make_gaussians(20_000, random_state=0)[0], ["x2"]
    # With a key and names for persons every run has the same noise, and so the same rows to advise.
    encoder = FairFlow(1.0, n_epochs=5, ramp_epochs=2, batch_size=512, device="cpu", identifier="person", key=bytes(32))
    persons = table.X.set_axis(np.arange(len(table))).rename_axis("person")
    encoder.fit(persons, table.y, sensitive_features=table.a)
    answers = encoder.predict(persons, sensitive_features=table.a)
    rejected = np.random.default_rng(0).choice(np.flatnonzero(answers == 0), N_REJECTED)
    rows: Table = table.take(rejected)
    frame, attribute = rows.X.reset_index(drop=True).rename_axis("person"), rows.a.reset_index(drop=True)
    start, busy = time.perf_counter(), time.process_time()
    encoder.transform(frame, sensitive_features=attribute)
    encoding, encoding_busy = time.perf_counter() - start, time.process_time() - busy
    start, busy = time.perf_counter(), time.process_time()
    advice = recourse(encoder, frame, sensitive_features=attribute, keep=keep)
    seconds, seconds_busy = time.perf_counter() - start, time.process_time() - busy
    print(f"{table.name}: {N_REJECTED:,} rejected rows, {keep[0]} kept; {len(advice.after):,} could be advised")
    print(f"encode once {encoding:.2f} s, recourse {seconds:.1f} s ({seconds / encoding:.0f} times)")
    print(f"of the processor: {encoding_busy:.2f} s and {seconds_busy:.1f} s")
    print(advice.summary().to_string())


if __name__ == "__main__":
    main()

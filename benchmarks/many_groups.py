"""Many groups: what a `FairFlow` loses and gains by comparing a draw with few other groups in a step, not with all.

    OMP_NUM_THREADS=1 python benchmarks/many_groups.py [--groups 8 15] [--rows 30000] [--seeds 3]

Rows are drawn as in growth.py, γ is .9. For each way: processor seconds of the fit, the largest and the mean estimated
distance between the latents of two groups (20,000 draws of each), the accuracy of the best guess of the group, and that
of the predicted label on other rows; means over seeds.
"""

from __future__ import annotations

import argparse
import time
import warnings
from functools import partial

import numpy as np
import pandas as pd
from growth import as_table, drawn_rows

from fairflows import FairFlow, bounds
from fairflows.training import algorithm1

N_COLUMNS, N_DRAWS, GAMMA = 8, 20_000, 0.9


def measured(n_groups: int, n_rows: int, seed: int) -> dict[str, float]:
    """One fit, and what came of it."""
    encoder = FairFlow(GAMMA, random_state=seed)
    start = time.process_time()
    encoder.fit(as_table(drawn_rows(n_rows, N_COLUMNS, n_groups, seed=1)))
    seconds = time.process_time() - start
    table = encoder.latent_law().log_density_table(N_DRAWS, seed + 1)
    distances = bounds.distance_terms(table).mean(axis=1)
    other_rows = as_table(drawn_rows(20_000, N_COLUMNS, n_groups, seed=2))
    return {
        "processor s": seconds,
        "largest Δ": distances.max(),
        "mean Δ": distances.mean(),
        "guess of the group": bounds.adversary_accuracy(table),
        "label": (encoder.predict(other_rows) == np.asarray(other_rows.y)).mean(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", nargs="+", type=int, default=[8, 15])
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    few, share_out = algorithm1.MOST_COMPARED, algorithm1.draws_compared
    found = []
    for n_groups in arguments.groups:
        for most in (n_groups - 1, few):
            algorithm1.draws_compared = partial(share_out, most=most)
            for seed in range(arguments.seeds):
                way = {"groups": n_groups, "compared with": most}
                found.append(way | measured(n_groups, arguments.rows, seed))
                print(found[-1], flush=True)
    print(pd.DataFrame(found).groupby(["groups", "compared with"]).mean().round(4).to_string())


if __name__ == "__main__":
    main()

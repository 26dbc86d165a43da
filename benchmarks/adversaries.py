"""How strong and how slow each adversary of `audit` is.

    OMP_NUM_THREADS=1 python benchmarks/adversaries.py [--seeds N] [--only NAME ...]

30,000 rows of Adult with nine columns, without sex, are attacked as they are, as a matching at γ = .9 gives them (but
for the native country, because a matching takes few cells), and as whole rows drawn from a matched tree. Printed are
means over the seeds: processor seconds, the difference of an adversary's answers between the groups on validation
persons, and the lower bound on Δ that it proves on test persons.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator

import numpy as np
import pandas as pd
from share_command import COLUMNS

from fairflows import FairMatching, Release, load_adult
from fairflows.attack.adversaries import LEARNERS
from fairflows.attack.attacked_release import AttackedRelease
from fairflows.table.frames import to_pandas
from fairflows.table.table import Table

N_ROWS = 30_000
DELTA = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--only", nargs="+", choices=LEARNERS, default=list(LEARNERS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = []
    for seed in range(arguments.seeds):
        train, test = rows(seed)
        for name, given in representations(train, test, seed):
            attacked = AttackedRelease.of(given, train, test, seed=seed)
            for trial in attacked.trials((), False):
                if trial.name in arguments.only:
                    start = time.process_time()
                    attack = trial.run(DELTA, seed)
                    seconds = time.process_time() - start
                    lines.append((name, trial.name, seconds, attack.validation, attack.lower))
    found = pd.DataFrame(lines, columns=["rows", "adversary", "processor s", "validation", "lower"])
    print(found.groupby(["rows", "adversary"], sort=False).mean().round(3).to_string())


def rows(seed: int) -> tuple[Table, ...]:
    """Rows to learn from and rows of other persons."""
    adult = load_adult("all")
    chosen = np.random.default_rng(seed).permutation(len(adult))[:N_ROWS]
    return Table(adult.X[COLUMNS], sensitive=adult.a, label=adult.y).take(chosen).split(0.3, 0, seed)


def representations(train: Table, test: Table, seed: int) -> Iterator[tuple[str, tuple[pd.DataFrame, pd.DataFrame]]]:
    """What adversaries see of both."""
    yield "raw", (train.X, test.X)
    few = [Table(part.X.drop(columns="native_country"), sensitive=part.a, label=part.y) for part in (train, test)]
    matching, tree = FairMatching(0.9, random_state=seed), Release(n_cells=64, random_state=seed)
    for name, encoder, parts in (("matching", matching, few), ("drawn from a tree", tree, (train, test))):
        yield name, (to_pandas(encoder.fit_transform(parts[0])), to_pandas(encoder.transform(parts[1])))


if __name__ == "__main__":
    main()

"""Time a certificate with a million draws, beyond the passes through the flow, and an audit of Adult.

OMP_NUM_THREADS=1 python benchmarks/certify.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fairflows import FairMatching, load_adult
from fairflows.attack.auditing import audit
from fairflows.certificate.certify import certify
from fairflows.encoder.fair_flow import FairFlow
from fairflows.paper import make_gaussians
from fairflows.release.release import Release

N_DRAWS = 1_000_000


def timed(name: str, run: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    result = run()
    print(f"{name:<60} {time.perf_counter() - start:7.1f} s", flush=True)
    return result


def main() -> None:
    table, densities = make_gaussians(4000, random_state=0)
    train, test = table.split(test=0.5, validation=0)
    flow = FairFlow(density=densities, n_epochs=5).fit(train.X, train.y, sensitive_features=train.a)
    timed("flow passes alone, a million draws a group", lambda: flow.latent_law().log_density_table(N_DRAWS))
    timed("certify the flow, a million draws a group", lambda: certify(flow, test, n_draws=N_DRAWS))

    train, _, test = load_adult().paper_split()
    matching = FairMatching(gamma=0.1).fit(train.X, train.y, sensitive_features=train.a)
    found = timed("audit Adult, FairMatching, all adversaries", lambda: audit(matching, train, test, n_jobs=2))
    timed("audit Adult, FairMatching, quick", lambda: audit(matching, train, test, quick=True, n_jobs=2))
    timed("certify Adult, FairMatching", lambda: certify(matching, test, audit=found))

    cells = Release(FairMatching(density="counts"), n_cells=8, output="cell").fit(train)
    certificate = timed("certify Adult, FairMatching, 8 cells", lambda: certify(cells, test, target=0.05))
    right = cells.predict(test) == test.y.to_numpy()
    balanced = sum(right[(test.a == a).to_numpy()].mean() for a in test.groups) / len(test.groups)
    print(f"  {certificate.status}: Δ ≤ {certificate.cell_upper:.4f}, balanced accuracy {balanced:.4f}")


if __name__ == "__main__":
    main()

"""Attack the paper's own Health setting in full: γ = 0.95, its small flow density, every adversary. Wants a GPU.

    python benchmarks/health_audit.py [--device cuda] [--jobs 8]

The paper's test rows are attacked; training leaves out all rows of the persons in them, as a fair attack needs.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from sweep import SETTINGS

from fairflows.attack.auditing import audit
from fairflows.certificate.certifying import certify
from fairflows.encoder.fair_flow import FairFlow
from fairflows.exceptions import DataWarning


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)
    health = SETTINGS["health"]
    table = health["load"]()
    test = table.take(table.parts == "test")
    train = table.take((table.parts != "test") & ~np.isin(table.identifier, test.identifier))
    encoder = FairFlow(0.95, **health["flow"], validation=0.01, device=arguments.device, key=bytes(32))
    encoder.fit(train.X, train.y, sensitive_features=train.a)
    attack = audit(encoder, train, test, n_jobs=arguments.jobs)
    print(attack)
    print(certify(encoder, test, audit=attack, n_draws=200_000))


if __name__ == "__main__":
    main()

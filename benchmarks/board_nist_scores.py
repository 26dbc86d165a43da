"""Score tables with SDNist's own metrics; run by ``board_nist.py`` in SDNist's environment.

python benchmarks/board_nist_scores.py DATA_ROOT TABLES

DATA_ROOT has the layout of SDNist's BenchmarkData. Each CSV file in the folder TABLES gets a JSON file of its scores.
The metrics are called as ``sdnist.report`` calls them. The whole report would also compute DiSCO, which takes hours.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path


def main() -> None:
    root, folder = map(Path, sys.argv[1:])
    for path in sorted(folder.glob("*.csv")):
        path.with_suffix(".json").write_text(json.dumps(scores(path, root)))


def scores(path: Path, root: Path) -> dict[str, object]:
    # Only SDNist's environment has it; the metrics import its report in a circle, which works in this order only.
    import sdnist.report  # noqa: F401
    from sdnist.load import TestDatasetName
    from sdnist.metrics.inconsistency import Inconsistencies
    from sdnist.metrics.kmarginal import KMarginal
    from sdnist.metrics.propensity import PropensityMSE
    from sdnist.metrics.unique_exact_matches import unique_exact_matches
    from sdnist.report.dataset import Dataset, get_stable_features
    from sdnist.utils import SimpleLogger

    data = Dataset(path, SimpleLogger(), TestDatasetName.national2019, root, download=False)
    stable = get_stable_features(data.config, data.c_target_data.columns.tolist())
    k_marginal = KMarginal(data.d_target_data, data.d_synthetic_data, stable[0] if stable else None)
    matched, matched_percent, _, _ = unique_exact_matches(data.t_target_data, data.t_synthetic_data)
    with tempfile.TemporaryDirectory() as out:
        propensity = PropensityMSE(data.t_target_data, data.t_synthetic_data, Path(out), data.features)
        inconsistencies = Inconsistencies(data.c_synthetic_data, Path(out))
        inconsistencies.compute()
        found: dict[str, object] = {
            "features": len(data.features),
            "rows": len(data.synthetic_data),
            "k_marginal": int(k_marginal.compute_score()),
            "unique_matches": int(matched),
            "unique_matches_percent": float(matched_percent),
            "propensity": round(float(propensity.compute_score()), 3),
        }
    for group in inconsistencies.report_data["summary"]:
        found["inconsistent_" + group["Inconsistency Group"].lower()] = int(group["Number of Records Inconsistent"])
    return found


if __name__ == "__main__":
    main()

"""Repair numbers with AIF360's DisparateImpactRemover; run by ``board_instead.py`` in the environment of AIF360.

python benchmarks/board_repair.py FOLDER

Reads FOLDER/fit.parquet and FOLDER/other.parquet, whose column "(group)" is 0 or 1, and writes the repaired columns to
changed-fit.parquet and changed-other.parquet. The remover has no `transform`: as in AIF360's examples, each part is
repaired by itself, with the groups of its persons.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

GROUP, LABEL = "(group)", "(label)"


def main() -> None:
    folder = Path(sys.argv[1])
    for part in ("fit", "other"):
        repaired(pd.read_parquet(folder / f"{part}.parquet")).to_parquet(folder / f"changed-{part}.parquet")


def repaired(numbers: pd.DataFrame) -> pd.DataFrame:
    """Return the columns beside the group, fully repaired."""
    from aif360.algorithms.preprocessing import DisparateImpactRemover
    from aif360.datasets import BinaryLabelDataset

    dataset = BinaryLabelDataset(
        df=numbers.assign(**{LABEL: 0.0}), label_names=[LABEL], protected_attribute_names=[GROUP]
    )
    found = DisparateImpactRemover(repair_level=1.0, sensitive_attribute=GROUP).fit_transform(dataset)
    return pd.DataFrame(found.features, columns=found.feature_names).drop(columns=GROUP)


if __name__ == "__main__":
    main()

"""Four attributes at once: sex, age (two groups), marital status and race of ACSIncome, from one release.

    FAIRFLOWS_DATA=... OMP_NUM_THREADS=1 python benchmarks/several_attributes.py [--rows 40000] [--merge-small 400]

A release is fitted to some persons of California and Michigan (ACS 2018). Printed are its statements about the four
attributes, the six pairs and the intersection, and how many of 20,000 other persons have the label that is most
frequent in their cell; beside it the same of a release that hides sex alone, and boosted trees on the raw columns.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

import fairflows as ff
from fairflows.table.grouping import joined

DATA = Path(os.environ.get("FAIRFLOWS_DATA", "data"))
COLUMNS = ["SEX", "AGEP", "MAR", "RAC1P"]


def drawn(frame: pd.DataFrame, n_rows: int, n_new: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Draw persons who are released, and others."""
    order = np.random.default_rng(0).permutation(len(frame))
    return frame.iloc[order[:n_rows]], frame.iloc[order[n_rows : n_rows + n_new]]


def released(first: pd.DataFrame, new: pd.DataFrame, sensitive: list[str], merge_small: int) -> float:
    """Fit a release, print its statements, and return how often its cells are right about the label."""
    cuts = {"AGEP": [43]} if "AGEP" in sensitive else None
    roles = {"sensitive": sensitive, "label": "PINCP", "identifier": "person"}
    table = ff.Table(first, cuts=cuts, merge_small=merge_small, **roles)
    release = ff.Release(ff.FairTree(identifier="person"), target=0.3, output="cell").fit(table)
    certificate = ff.certify(release, table, target=0.3)
    small = f", {(table.a == 'other').sum():,} persons in the merged one" if table.grouping.merged_groups else ""
    print(f"\n{len(table.groups)} groups{small}; {release.n_cells_} cells; {certificate.status}")
    for s in certificate.statements:
        print(f"  {s.name:<40} {s.distance:.3f}")
    known = set(map(str, table.grouping.merged)) or None
    if known is not None:  # an intersection that the table did not have has no group
        values = table.grouping.values(new[sensitive])
        texts = joined(values)
        new = new[texts.isin(known).to_numpy()]
    others = ff.Table(new, cuts=table.grouping, **roles)
    return float((release.predict(others) == others.y.to_numpy()).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--merge-small", type=int, default=400)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    frame = pd.read_parquet(DATA / "folktables" / "acsincome-2018-ca-mi.parquet").drop(columns=["OCCP", "POBP"])
    frame["person"] = np.arange(len(frame))
    first, new = drawn(frame, arguments.rows, 20_000)
    start = time.process_time()
    right = {"four attributes": released(first, new, COLUMNS, arguments.merge_small)}
    right["sex alone"] = released(first, new, ["SEX"], 0)
    features = [name for name in frame if name not in ("PINCP", "person", *COLUMNS)]
    raw = HistGradientBoostingClassifier(random_state=0).fit(first[features], first["PINCP"])
    right["raw columns but the four"] = float(raw.score(new[features], new["PINCP"]))
    right["blind guess"] = float(max((new["PINCP"] == v).mean() for v in new["PINCP"].unique()))
    print(f"\nlabel right, of others ({time.process_time() - start:.0f} processor seconds):")
    print("\n".join(f"  {name:<30} {share:.3f}" for name, share in right.items()))


if __name__ == "__main__":
    main()

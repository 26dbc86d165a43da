"""Ages without cutting: the correlation that adversaries reach on shared rows of new persons, beside the bound.

    FAIRFLOWS_DATA=... OMP_NUM_THREADS=1 python benchmarks/ages.py adult acs health [--runs 40] [--control]

In every run a release is fitted to `rows` random persons of the data, and certified at δ = .2. `new` others are
encoded: on one half boosted trees, a random forest and a linear model of all columns learn the rank of age, and on the
other half their predictions are correlated with it, narrow groups alike. "mean of the cell" is told the cell itself,
and takes the mean rank in it. The bound may be exceeded in a fifth of the runs.

`--control` fits the release to two groups instead, and states the bound that would hold if these were all that age is:
the correlation between the groups alone. It must be exceeded in nearly all runs.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import OrdinalEncoder

import fairflows as ff
from fairflows.bounds.ages import halves_upper_bound
from fairflows.table.columns import has_order

DATA = Path(os.environ.get("FAIRFLOWS_DATA", "data"))
DELTA = 0.2
ADVERSARIES = ["boosted trees", "random forest", "rank regression", "mean of the cell"]
ADULT = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
]


def adult() -> tuple[pd.DataFrame, str]:
    """Adult as it was published, without rows that lack a value: age from 17 to 90."""
    parts = (DATA / "adult" / name for name in ("adult.data.xz", "adult.test.xz"))
    frame = pd.concat(pd.read_csv(p, names=ADULT, skipinitialspace=True, na_values="?", comment="|") for p in parts)
    frame = frame.dropna().drop(columns="fnlwgt").reset_index(drop=True)
    return frame.assign(income=frame["income"].str.rstrip(".")), "income"


def acs() -> tuple[pd.DataFrame, str]:
    """ACSIncome of California and Michigan: age from 17 to 94. Codes of occupation and place of birth are left out."""
    frame = pd.read_parquet(DATA / "folktables" / "acsincome-2018-ca-mi.parquet").rename(columns={"AGEP": "age"})
    return frame.drop(columns=["OCCP", "POBP"]), "PINCP"


def health() -> tuple[pd.DataFrame, str]:
    """Health, one row of each member whose age is known. The data gives decades alone, from 0-9 to 80+."""
    table = ff.paper.load_health().one_row_per_person(0)
    members = pd.read_csv(DATA / "health" / "Members.csv.xz").set_index("MemberID")["AgeAtFirstClaim"]
    ages = members.reindex(table.identifier.to_numpy()).str.extract(r"^(\d+)")[0].astype(float).to_numpy()
    frame = table.X.assign(charlson=table.y, age=ages // 10).dropna(subset=["age"]).reset_index(drop=True)
    return frame.assign(age=frame["age"].astype(int)), "charlson"


SOURCES = {"adult": adult, "acs": acs, "health": health}


def weights_of(narrow: np.ndarray, n_narrow: int) -> np.ndarray:
    """Weights by which all narrow groups count alike."""
    counts = np.bincount(narrow, minlength=n_narrow)
    return 1 / counts[narrow]


def ranks_of(ages: pd.Series, weights: np.ndarray) -> np.ndarray:
    """The rank of each age among persons with these weights; the middle one of equal ages."""
    total = pd.Series(weights, index=ages.index).groupby(ages).sum()
    return ages.map(total.cumsum() - total / 2).to_numpy()


def correlation(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> float:
    """The absolute weighted correlation."""
    x, y = x - np.average(x, weights=w), y - np.average(y, weights=w)
    scale = np.sqrt(np.average(x**2, weights=w) * np.average(y**2, weights=w))
    return float(abs(np.average(x * y, weights=w)) / scale) if scale > 0 else 0.0


def attacked(
    rows: pd.DataFrame, cells: np.ndarray | None, ages: pd.Series, narrow: np.ndarray, n_narrow: int, seed: int
) -> dict[str, float]:
    """The correlations that learners reach on rows that they did not learn from."""
    texts = [name for name, dtype in rows.dtypes.items() if not has_order(dtype)]
    codes = rows.assign(**dict.fromkeys(texts, 0)).astype(float)
    if texts:
        codes[texts] = OrdinalEncoder().fit_transform(rows[texts].astype(str))
    wide = pd.get_dummies(rows, columns=texts).astype(float)
    wide = (wide - wide.mean()) / wide.std().replace(0, 1)
    w = weights_of(narrow, n_narrow)
    rank = ranks_of(ages, w)
    learnt = np.random.default_rng(seed).random(len(rows)) < 0.5
    learners = {
        "boosted trees": (HistGradientBoostingRegressor(max_iter=50, random_state=seed), codes.to_numpy()),
        "random forest": (RandomForestRegressor(25, min_samples_leaf=20, random_state=seed), codes.to_numpy()),
        "rank regression": (RidgeCV(np.logspace(-1, 4, 6)), wide.to_numpy()),
    }
    found = {
        name: correlation(
            learner.fit(x[learnt], rank[learnt], sample_weight=w[learnt]).predict(x[~learnt]), rank[~learnt], w[~learnt]
        )
        for name, (learner, x) in learners.items()
    }
    if cells is not None:
        sums, sizes = (np.bincount(cells[learnt], v, cells.max() + 1) for v in ((w * rank)[learnt], w[learnt]))
        means = np.where(sizes > 0, sums / np.maximum(sizes, 1e-300), np.average(rank, weights=w))
        found["mean of the cell"] = correlation(means[cells][~learnt], rank[~learnt], w[~learnt])
    return found


def one_run(frame: pd.DataFrame, label: str, n_rows: int, n_new: int, run: int, *, control: bool) -> dict[str, float]:
    """Fit a release to some persons, certify it at δ = .2, and attack the shared rows of others."""
    order = np.random.default_rng(run).permutation(len(frame))
    frame = frame.assign(person=np.arange(len(frame)))
    first, new = (frame.iloc[some] for some in (order[:n_rows], order[n_rows : n_rows + n_new]))
    roles = {"sensitive": "age", "label": label, "identifier": "person"}
    uncut = ff.Table(first, uncut="age", **roles)
    narrow_of_new = ff.Table(new, cuts=uncut.grouping, **roles).a.to_numpy()
    n_narrow, ages = uncut.grouping.n_narrow, new["age"].reset_index(drop=True)
    fitted, later = uncut, ff.Table(new, cuts=uncut.grouping, **roles)
    if control:
        low = [uncut.grouping.cuts["age"][n_narrow // 2 - 1]]
        fitted = ff.Table(first, cuts={"age": low}, **roles)
        later = ff.Table(new, cuts=fitted.grouping, **roles)
    release = ff.Release(ff.FairTree(identifier="person"), target=0.1, delta=DELTA, random_state=run)
    release.fit(fitted)
    certificate = ff.certify(release, fitted, target=0.1, delta=DELTA)
    # In the control: the sign of R - 1/2 has the correlation sqrt(3)/2 with R, and η of two groups is at most Δ.
    bound = certificate.cell_upper * np.sqrt(3) / 2 if control else certificate.rank_upper
    cells = release.cells(release.read(later))
    found = attacked(release.draw(cells), cells, ages, narrow_of_new, n_narrow, run)
    raw = attacked(later.X.reset_index(drop=True), None, ages, narrow_of_new, n_narrow, run) if run == 0 else {}
    return {
        "cells": release.n_cells_,
        "narrow groups": n_narrow,
        "bound": bound,
        "halves": halves_upper_bound(release.table_.blocks, DELTA) if not control else certificate.cell_upper,
        "counted": certificate.find("table rank").distance if not control else certificate.table_distance,
        **found,
        "raw": max(raw.values(), default=np.nan),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", choices=[*SOURCES, []], default=list(SOURCES))
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--new", type=int, default=8_000)
    parser.add_argument("--control", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for source in arguments.sources:
        frame, label = SOURCES[source]()
        found, start = [], time.process_time()
        for run in range(arguments.runs):
            found.append(one_run(frame, label, arguments.rows, arguments.new, run, control=arguments.control))
            if run in (0, 4, 9, 19) or run == arguments.runs - 1:
                table = pd.DataFrame(found)
                best = table[ADVERSARIES]
                missed = int((best.max(axis=1) > table["bound"]).sum())
                print(f"\n{source}, {run + 1} runs, {time.process_time() - start:.0f} processor seconds:", flush=True)
                print(table.mean().round(3).to_string())
                print(
                    f"largest by an attack {best.max().max():.3f}; above the bound {missed} of {len(table)}", flush=True
                )


if __name__ == "__main__":
    main()

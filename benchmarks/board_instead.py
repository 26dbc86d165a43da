"""What people use instead of fairflows: same persons, same adversaries, same label.

    benchmarks/board_environments.sh FOLDER                       # once: SDV, AIF360, LEACE and two credit tables
    python benchmarks/board_instead.py --environments FOLDER      # adult acs nist credit german
    python benchmarks/board_instead.py --summary                  # the tables of docs/boards.md, out of the results

Of at most 20,000 random rows, 60 % of the persons are fitted to and 40 % are held out. Columns of the result
(docs/results/board-instead.csv):

``lower``
    Δ that adversaries prove, δ = .01 for both attempts together. The whole suite of `ff.audit` learns from the released
    rows and the groups of the fitted persons, and is judged on held-out persons. The quick suite learns from half of
    the held-out persons, and is judged on the other half. They see every released column, except a true label beside
    encoded columns. Adversaries of the flow also know its encoders; ``lower_black`` is by those who do not.
``promise``
    Δ that the method itself promises, and ``about`` whom.
``label_raw``, ``label_released``
    AUC of boosted trees for the label, learnt from the released rows of fitted persons, and judged on the original rows
    and on the released rows of held-out persons.
``worst``
    Largest distance between the distributions of a released column and of the held-out persons' column.
``seconds``
    Processor time of fitting and releasing, which other programs change little.

A synthesiser gets the sensitive attribute among its columns, which is then dropped. Its rows belong to no person:
``lower`` is about the group that a synthetic row was made with, and ``lower_persons`` about held-out persons when the
adversaries learn from synthetic rows and see the persons' original rows.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from fairlearn.preprocessing import CorrelationRemover, PrototypeRepresentationLearner
from rows import TABLES, Source, distance, learnt, made_elsewhere
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import fairflows as ff
from fairflows.bounds.planning import TARGETS
from fairflows.encoder.base import Encoder
from fairflows.release.row_law import RowLaw

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "board-instead.csv"
DELTA, TARGET = 0.01, 0.1
ACS_INCOME = ["Age", "Workclass", "Education", "Marital Status", "Occupation", "Place of birth", "Race"]
COPIES = {"german": ["sex-age"], "nist": ["PINCP", "PINCP_DECILE", "POVPIP"]}  # of the group, and of the label
MOST_CATEGORIES = 40  # that a column of numbers is made for; rarer ones share one
PROTOTYPES, LFR_PERSONS, LFR_STEPS = 5, 1_000, 30  # gradients are numerical: more persons take many minutes
FIRST_CELLS, PERSONS_PER_CELL = 256, 40  # of k-means
CLOSENESS = [
    0.5,
    0.4,
    0.3,
    0.25,
    0.2,
    0.15,
    0.12,
    0.1,
    0.08,
    0.06,
    0.05,
    0.04,
    0.03,
    0.02,
    0.01,
    0.0,
]  # t, tried in turn


@dataclass(frozen=True)
class Task:
    """The persons that a method is fitted to, and held-out persons."""

    fit: ff.Table
    other: ff.Table
    environments: Path
    epochs: int

    def numbers(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the rows of both as standardised numbers and flags of categories."""
        numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
        flags = OneHotEncoder(max_categories=MOST_CATEGORIES, handle_unknown="infrequent_if_exist", sparse_output=False)
        is_number = make_column_selector(dtype_include=["number", "bool"])
        is_text = make_column_selector(dtype_exclude=["number", "bool"])
        columns = ColumnTransformer([("n", numbers, is_number), ("c", flags, is_text)]).set_output(transform="pandas")
        return columns.fit_transform(self.fit.X), columns.transform(self.other.X)

    def groups(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the group numbers of both."""
        return self.fit.group_numbers(self.fit.groups), self.other.group_numbers(self.fit.groups)

    def whole(self) -> pd.DataFrame:
        """Return the fitted persons' rows with label and group."""
        return self.fit.X.assign(**{str(self.fit.y.name): self.fit.y, str(self.fit.a.name): self.fit.a})


@dataclass(frozen=True)
class Released:
    """What a method releases."""

    fit: pd.DataFrame  # of the fitted persons
    other: pd.DataFrame  # of the held-out persons
    originals: pd.DataFrame | None  # the held-out persons' own values in the released columns, if these have any
    promise: float | None = None
    about: str = "nothing"
    model: Encoder | None = None  # an encoder that adversaries know


@dataclass(frozen=True)
class Synthetic:
    """Rows that belong to no person, with the group that they were made with."""

    rows: pd.DataFrame


# Methods --------------------------------------------------------------------------------------------------------------


def column_dropped(task: Task) -> Released:
    return Released(task.fit.X, task.other.X, task.other.X)


def correlation_remover(task: Task) -> Released:
    """fairlearn: columns without linear correlation with the group."""
    (fit, other), groups, name = task.numbers(), task.groups(), "(group)"
    remover = CorrelationRemover(sensitive_feature_ids=[name]).fit(fit.assign(**{name: groups[0]}))
    parts = [
        pd.DataFrame(np.asarray(remover.transform(part.assign(**{name: group}))), columns=part.columns)
        for part, group in zip((fit, other), groups, strict=True)
    ]
    return Released(parts[0], parts[1], other, about="no linear correlation")


def prototypes(task: Task) -> Released:
    """fairlearn: probabilities of prototypes (LFR)."""
    (fit, other), (group, _) = task.numbers(), task.groups()
    some = np.random.default_rng(0).permutation(len(fit))[:LFR_PERSONS]
    labels = (task.fit.y == task.fit.labels[-1]).to_numpy(dtype=int)
    settings = {"n_prototypes": PROTOTYPES, "max_iter": LFR_STEPS, "fairness_weight": 10.0, "random_state": 0}
    learner = PrototypeRepresentationLearner(**settings)
    learner.fit(fit.to_numpy()[some], labels[some], sensitive_features=group[some])
    parts = [pd.DataFrame(learner.transform(part.to_numpy())).add_prefix("prototype") for part in (fit, other)]
    return Released(parts[0], parts[1], None)


def impact_remover(task: Task) -> Released:
    """AIF360: every column repaired to one distribution in both groups."""
    return _changed_elsewhere(task, "aif360", "board_repair.py", "each column by itself")


def leace(task: Task) -> Released:
    """concept-erasure: the least change after which no linear map tells the group."""
    return _changed_elsewhere(task, "groups", "board_erase.py", "no linear guess")


def _changed_elsewhere(task: Task, environment: str, script: str, about: str) -> Released:
    """Let a script change the rows as numbers, in its environment."""
    (fit, other), groups = task.numbers(), task.groups()
    with tempfile.TemporaryDirectory() as folder:
        for part, numbers, group in zip(("fit", "other"), (fit, other), groups, strict=True):
            numbers.assign(**{"(group)": group.astype(float)}).to_parquet(Path(folder) / f"{part}.parquet")
        python = task.environments / environment / "bin" / "python"
        subprocess.run([python, Path(__file__).with_name(script), folder], check=True, stderr=subprocess.DEVNULL)
        parts = [pd.read_parquet(Path(folder) / f"changed-{part}.parquet") for part in ("fit", "other")]
    return Released(parts[0], parts[1], other, about=about)


def microaggregation(task: Task) -> Released:
    """Cells of similar persons, merged until they are t-close; released are means and most frequent values."""
    (fit, other), (group, _) = task.numbers(), task.groups()
    n_cells = max(2, min(FIRST_CELLS, len(fit) // PERSONS_PER_CELL))
    means = KMeans(n_cells, n_init=1, random_state=0).fit(fit)
    for t in CLOSENESS:  # the first that keeps Δ within the target: fewer merged cells tell more of the label
        merged = t_close_cells(means.labels_, group, means.cluster_centers_, t)
        cells = merged[means.labels_]
        if cell_distance(cells, group) <= TARGET:
            break
    values = typical_rows(task.fit.X, cells)
    parts = [values.loc[places].reset_index(drop=True) for places in (cells, merged[means.predict(other)])]
    return Released(parts[0], parts[1], task.other.X, cell_distance(cells, group), "this table, exactly")


def t_close_cells(cells: np.ndarray, group: np.ndarray, centres: np.ndarray, t: float) -> np.ndarray:
    """Merge cells until all are t-close; return the new number of each cell.

    A cell is t-close if the total variation between its law of groups and the table's is at most t. The worst cell
    joins the nearest one that has too few of the groups that it has too many of.
    """
    counts = np.zeros((len(centres), group.max() + 1))
    np.add.at(counts, (cells, group), 1)
    table, centres, joined = counts.sum(axis=0) / counts.sum(), centres.copy(), np.arange(len(centres))
    while True:
        excess = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1) - table
        excess[counts.sum(axis=1) == 0] = 0
        worst = int(np.abs(excess).sum(axis=1).argmax())
        if np.abs(excess[worst]).sum() / 2 <= t:
            return np.unique(joined, return_inverse=True)[1]
        helps = excess @ excess[worst] < 0
        nearest = np.where(helps, np.linalg.norm(centres - centres[worst], axis=1), np.inf)
        partner = int(nearest.argmin())
        weights = counts[[worst, partner]].sum(axis=1)
        centres[partner] = np.average(centres[[worst, partner]], axis=0, weights=weights)
        counts[partner] += counts[worst]
        counts[worst] = 0
        joined[joined == worst] = partner


def cell_distance(cells: np.ndarray, group: np.ndarray) -> float:
    """Return Δ of the cells between two groups, counted."""
    laws = [np.bincount(cells[group == a], minlength=cells.max() + 1) / (group == a).sum() for a in (0, 1)]
    return float(np.abs(laws[0] - laws[1]).sum() / 2)


def typical_rows(rows: pd.DataFrame, cells: np.ndarray) -> pd.DataFrame:
    """Return the mean of each number and the most frequent category of each cell."""
    by_cell = rows.reset_index(drop=True).groupby(cells)
    columns = {
        name: by_cell[name].mean() if pd.api.types.is_numeric_dtype(column) else by_cell[name].agg(_most_frequent)
        for name, column in rows.items()
    }
    return pd.DataFrame(columns)


def _most_frequent(column: pd.Series) -> object:
    counts = column.value_counts()
    return counts.index[0] if len(counts) else None


def flow(task: Task) -> Released:
    """The paper's flows; their bound holds if the densities are right."""
    model = ff.FairFlow(gamma=0.9).fit(task.fit)
    parts = [model.transform(part.X, sensitive_features=part.a) for part in (task.fit, task.other)]
    promise = ff.certify(model, task.other, delta=DELTA, n_draws=100_000).model_upper
    return Released(parts[0], parts[1], None, promise, "its own densities", model)


def fair_tree_rows(task: Task) -> Released:
    return _release(task, ff.Release())


def fair_cells_rows(task: Task) -> Released:
    """Eight cells for the label, or fewer, with the smallest of `share`'s targets that so many persons can certify."""
    for n_cells, target in product((8, 4, 2), TARGETS):
        encoder = ff.FairCells(n_cells, target=target, n_certify=len(task.fit) // 2)
        with suppress(ff.DataError):
            return _release(task, ff.Release(encoder, target=target))
    raise ff.DataError("No target is within reach of so few persons.")


def _release(task: Task, release: ff.Release) -> Released:
    """Release rows as `share` does; the promise is about persons to come."""
    fit = release.fit_transform(task.fit)
    other = release.transform(task.other.X, sensitive_features=task.other.a)
    promise = ff.certify(release, task.fit, delta=DELTA).cell_upper
    return Released(fit.reset_index(drop=True), other.reset_index(drop=True), task.other.X, promise, "persons to come")


def gaussian_copula(task: Task) -> Synthetic:
    return _by_sdv(task, "gaussian-copula")


def ctgan(task: Task) -> Synthetic:
    return _by_sdv(task, "ctgan")


def _by_sdv(task: Task, maker: str) -> Synthetic:
    python = str(task.environments / "sdv" / "bin" / "python")
    arguments = argparse.Namespace(maker=maker, python=python, epochs=task.epochs)
    whole, one_cell = task.whole().reset_index(drop=True), np.zeros(len(task.fit), dtype=int)
    drawn, again, _ = made_elsewhere(whole, one_cell, one_cell, arguments)
    return Synthetic(pd.concat([drawn, again], ignore_index=True))


def sequential_trees(task: Task) -> Synthetic:
    """The law of rows of fairflows alone, in a single cell and with the attribute among the columns."""
    whole = task.whole().reset_index(drop=True)
    law = RowLaw.fit(whole, np.zeros(len(whole), dtype=int), 1)
    return Synthetic(law.sample(np.zeros(2 * len(whole), dtype=int)).reset_index(drop=True))


METHODS: dict[str, Callable[[Task], Released | Synthetic]] = {
    "column dropped": column_dropped,
    "fairlearn CorrelationRemover": correlation_remover,
    "fairlearn prototypes (LFR)": prototypes,
    "AIF360 DisparateImpactRemover": impact_remover,
    "LEACE": leace,
    "microaggregation, t-close": microaggregation,
    "FNF (`FairFlow`, γ = .9)": flow,
    "fairflows `share` (`FairTree`)": fair_tree_rows,
    "fairflows `FairCells`": fair_cells_rows,
    "SDV GaussianCopula": gaussian_copula,
    "SDV CTGAN": ctgan,
    "fairflows `RowLaw`, no cells": sequential_trees,
}


# Measures -------------------------------------------------------------------------------------------------------------


def measured(method: Callable[[Task], Released | Synthetic], task: Task, seed: int) -> dict[str, object]:
    """Run a method, attack what it releases, and learn the label from it."""
    start = processor_seconds()
    try:
        released = method(task)
    except ff.DataError:  # of ours: too few persons for its promise
        return {"about": "refused"}
    seconds = processor_seconds() - start
    found = _of_rows(released, task, seed) if isinstance(released, Released) else _of_synthetic(released, task, seed)
    return found | {"seconds": round(seconds, 1)}


def processor_seconds() -> float:
    """Return the processor time of this process and of the environments that it has called."""
    return sum(os.times()[:4])


def _of_rows(released: Released, task: Task, seed: int) -> dict[str, object]:
    pair = _without_index(released.fit), _without_index(released.other)
    attacked = released.model or pair
    first = ff.audit(attacked, task.fit, task.other, delta=DELTA / 2, n_jobs=2, random_state=seed)
    half = task.other.persons.split(0.5, random_state=seed + 1)
    halves = tuple(pair[1].iloc[places] for places in half), *(task.other.take(places) for places in half)
    second = ff.audit(*halves, delta=DELTA / 2, quick=True, n_jobs=2, random_state=seed)
    best = max((first, second), key=lambda audit: audit.attack_lower)  # each holds with probability 1 − δ/2
    label = str(task.fit.y.name)
    learn_from = pair[0].assign(**{label: pair[0].get(label, task.fit.y.to_numpy())})
    found: dict[str, object] = {"lower": best.attack_lower, "adversary": best.best}
    found |= {"promise": released.promise, "about": released.about}
    if released.model is not None:
        found["lower_black"] = next(attack.lower for attack in first.attacks if attack.box == "black")
    truth = task.other.y.to_numpy()
    found["label_released"] = learnt(learn_from, pair[1].assign(**{label: truth})[list(learn_from)], label)
    if released.originals is not None:
        originals = _without_index(released.originals)
        own = learn_from[[*originals, label]]
        found["label_raw"] = learnt(own, originals.assign(**{label: truth}), label)
        found["worst"] = max(distance(originals[name], own[name]) for name in originals)
    return found


def _of_synthetic(synthetic: Synthetic, task: Task, seed: int) -> dict[str, object]:
    label, sensitive = str(task.fit.y.name), str(task.fit.a.name)
    table = ff.Table(synthetic.rows, sensitive=sensitive, label=label, identifier=np.arange(len(synthetic.rows)))
    learn, judge = table.split(0.5, 0, random_state=seed)
    own = ff.audit((learn.X, judge.X), learn, judge, delta=DELTA, n_jobs=2, random_state=seed)
    persons = _renamed(task.other)
    of_persons = ff.audit((learn.X, persons.X), learn, persons, delta=DELTA, quick=True, n_jobs=2, random_state=seed)
    originals, rows = _without_index(task.other.X), synthetic.rows[[*task.fit.X, label]]
    return {
        "lower": own.attack_lower,
        "adversary": own.best,
        "lower_persons": of_persons.attack_lower,
        "about": "nothing",
        "label_raw": learnt(rows[: len(task.fit)], originals.assign(**{label: task.other.y.to_numpy()}), label),
        "worst": max(distance(originals[name], rows[name]) for name in originals),
    }


def _renamed(table: ff.Table) -> ff.Table:
    """Return persons under other names than those of synthetic rows."""
    whole = table.X.assign(**{str(table.y.name): table.y, str(table.a.name): table.a})
    names = [f"person {i}" for i in range(len(whole))]
    return ff.Table(whole, sensitive=str(table.a.name), label=str(table.y.name), identifier=names)


def _without_index(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.reset_index(drop=True)


# The board ------------------------------------------------------------------------------------------------------------


def split(source: Source, most_rows: int, seed: int) -> tuple[ff.Table, ff.Table]:
    """Return the persons to fit to, and held-out persons."""
    frame = source.frame.sample(min(most_rows, len(source.frame)), random_state=seed).reset_index(drop=True)
    for name in frame.select_dtypes("category"):
        frame[name] = frame[name].astype(str)
    table = ff.Table(frame, sensitive=source.sensitive, label=source.label, identifier=np.arange(len(frame)))
    fit, other = table.split(0.4, 0, random_state=seed)
    return fit, other


def source_of(name: str, wheels: Path) -> Source:
    """Read a table without copies of the group and of the label; of ACS the features of ACSIncome that it has."""
    source = TABLES[name](wheels)
    kept = [*ACS_INCOME, source.sensitive, source.label] if name == "acs" else list(source.frame)
    return Source(
        source.frame[[column for column in kept if column not in COPIES.get(name, ())]], source.sensitive, source.label
    )


def summary(results: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of a Markdown table for each data set."""
    titles = ["method", "Δ proved", "guessed right", "promised", "AUC, original rows", "AUC, released rows"]
    titles += ["worst column", "seconds"]
    for table, lines in results.groupby("table", sort=False):
        first = lines.iloc[0]
        yield ""
        yield (
            f"**{table}**: {first['fitted']:,} persons fitted to, {first['held_out']:,} held out, {first['columns']} "
            f"columns. The true label alone tells Δ = {first['label_alone']:.3f}."
        )
        yield ""
        yield f"| {' | '.join(titles)} |"
        yield "|---" * len(titles) + "|"
        for _, line in lines.iterrows():
            yield f"| {' | '.join(_shown(line))} |"


def overview(results: pd.DataFrame) -> Iterator[str]:
    """Yield one Markdown table of all data sets: Δ proved, AUC on original rows, AUC on released rows."""
    tables = list(dict.fromkeys(results["table"]))
    yield ""
    yield f"| method | {' | '.join(tables)} |"
    yield "|---" * (len(tables) + 1) + "|"
    for method, lines in results.groupby("method", sort=False):
        by_table = lines.set_index("table").reindex(tables)
        cells = [_in_short(line) for _, line in by_table.iterrows()]
        yield f"| {method} | {' | '.join(cells)} |"


def _in_short(line: pd.Series) -> str:
    names = ("lower", "label_raw", "label_released")
    return " / ".join("–" if pd.isna(line[name]) else f"{line[name]:.3f}".lstrip("0") for name in names)


def _shown(line: pd.Series) -> list[str]:
    """Return the texts of a line."""
    measures = [
        "–" if pd.isna(line[name]) else f"{line[name]:.3f}" for name in ("label_raw", "label_released", "worst")
    ]
    promise = line["about"] if pd.isna(line["promise"]) else f"Δ ≤ {line['promise']:.3f}, {line['about']}"
    if pd.isna(line["lower"]):
        return [line["method"], "–", "–", promise, *measures, "–"]
    proved = f"≥ {line['lower']:.3f}" + ("" if pd.isna(line.get("lower_persons")) else "*")
    return [line["method"], proved, f"≥ {50 * (1 + line['lower']):.1f} %", promise, *measures, f"{line['seconds']:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=["adult", "acs", "nist", "credit", "german"])
    parser.add_argument("--environments", type=Path, default=Path("environments"), help="made by board_environments.sh")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--most-rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=50, help="of CTGAN")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--summary", action="store_true", help="print the results that there are, and run nothing")
    arguments = parser.parse_args()
    if arguments.summary:
        results = pd.read_csv(arguments.out)
        print("\n".join([*summary(results), *overview(results)]))
        return
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as ledger:
        os.environ["FAIRFLOWS_LEDGER"] = ledger  # a board is no look at anybody's data
        for name in arguments.tables:
            fit, other = split(source_of(name, arguments.environments / "wheels"), arguments.most_rows, arguments.seed)
            task = Task(fit, other, arguments.environments, arguments.epochs)
            rates = (fit.y == fit.labels[-1]).groupby(fit.a.to_numpy()).mean()
            about = {"fitted": len(fit), "held_out": len(other), "columns": fit.X.shape[1]}
            about |= {"label_alone": float(np.ptp(rates)), "seed": arguments.seed, "epochs": arguments.epochs}
            for method in arguments.methods:
                line = {"table": name, "method": method} | measured(METHODS[method], task, arguments.seed) | about
                print(", ".join(f"{key} {value}" for key, value in line.items()), flush=True)
                write(line, arguments.out)


def write(line: dict[str, object], path: Path) -> None:
    """Write a result in the place of an older one of the same table and method."""
    results, names = pd.DataFrame([line]), ["table", "method"]
    if path.exists():
        results = pd.concat([pd.read_csv(path), results]).drop_duplicates(names, keep="last")
    order = {name: place for place, name in enumerate([*TABLES, *METHODS])}
    results.sort_values(names, key=lambda column: column.map(order)).round(4).to_csv(path, index=False)


if __name__ == "__main__":
    main()

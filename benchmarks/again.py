"""Twelve monthly releases of persons like those of ACS, linked and compared: one set of cells, and twelve of their own.

    python benchmarks/again.py --trials 200 [--first 0]
    python benchmarks/again.py --adult

Every month 5 % of the persons leave and 5 % come; in month 6 there is one new column, and the cells are cut further by
it. ``joined``: Δ of the twelve cells of each person who is in all releases, counted on these persons: no adversary who
links the releases is better, whatever else is known of the tables. Another adversary knows the groups of
half of these persons, and learns the group by boosted trees; judged on the other half. ``rows``: from the twelve rows
of each person. ``cells``: from the twelve cells. ``certificates``: an adversary who knows no group takes the group that
the counts in all certificates make likelier at the cells of each person, one certificate after another. ``who left``:
an adversary who knows who left between two months guesses that they are of the group that shrank most, by the sizes
that the certificates state; it is about persons who are not in all releases. ``stated``: Δ of all releases together,
and ``half known`` the 95 % point of what is told by knowing half of the groups. Advantages are twice the balanced
accuracy, less one. Control: twelve trees, whose certificates all print their counts.

``--adult``: a release of Adult, 45,222 rows, with seven columns at the target .057 (64 cells); then with five others,
drawn from the same cells, and from cells that are cut further at the target .102. ``told``: the share of the variance
of a new column (of ranks, or of indicators of categories) that the cells tell, in the mean of these columns. Control: a
second tree, of all twelve columns.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from ages import adult as whole_adult
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import balanced_accuracy_score

import fairflows as ff

DATA = Path(os.environ.get("FAIRFLOWS_DATA", "data"))
COLUMNS = ["Age", "Workclass", "Education", "Marital Status", "Mobility status", "Nativity"]
LATER = "Means of transportation to work"
MONTHS, TARGET = 12, 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial, of a part of them")
    parser.add_argument("--controls", type=int, default=5)
    parser.add_argument("--persons", type=int, default=4000)
    parser.add_argument("--adult", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.adult:
        adult()
        return
    frame = pd.read_parquet(DATA / "acs" / "acs-income-2018-holdout.parquet").reset_index(names="person")
    frame = frame[[*COLUMNS, LATER, "Gender", "person"]]
    frame = frame.astype({name: object for name in frame if isinstance(frame[name].dtype, pd.CategoricalDtype)})
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FAIRFLOWS_LEDGER"] = f"{folder}/ledger"
        controls = pd.DataFrame([judged(frame, arguments.persons, t, None) for t in range(arguments.controls)])
        said = ", ".join(f"{name} {c.mean():.3f} ({c.min():.3f} to {c.max():.3f})" for name, c in controls.items())
        if arguments.controls:
            print(f"control, twelve trees: {said}", flush=True)
        found: list[dict[str, float]] = []
        for trial in range(arguments.first, arguments.first + arguments.trials):
            os.environ["FAIRFLOWS_LEDGER"] = f"{folder}/ledger {trial}"  # a record is read whole for each release
            found.append(judged(frame, arguments.persons, trial, Path(folder) / f"{trial}"))
            if len(found) % 5 == 0 or len(found) == arguments.trials:
                rates = pd.DataFrame(found)
                said = ", ".join(f"{name} {value:.3f}" for name, value in rates.mean().items())
                above = (rates[["rows", "cells"]].max(axis=1) > rates["half known"]).mean()
                too_far = (rates[["joined", "certificates"]].max(axis=1) > rates["stated"]).mean()
                print(
                    f"{len(found)} trials: {said}; joined or certificates above stated: {too_far:.3f}, rows or cells "
                    f"above the stated 95 % point: {above:.3f}",
                    flush=True,
                )


def adult() -> None:
    """Print what cells of seven columns of Adult tell of five others, before and after they are cut further."""
    frame = whole_adult()[0].drop(columns="income")
    frame["person"] = np.arange(len(frame))
    new = ["race", "capital_gain", "capital_loss", "hours_per_week", "native_country"]
    roles = {"sensitive": "sex", "identifier": "person"}
    old, whole = ff.Table(frame.drop(columns=new), **roles), ff.Table(frame, **roles)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FAIRFLOWS_LEDGER"] = f"{folder}/ledger"
        first = ff.share(old, target=0.057, quick=True).save(f"{folder}/1")
        before = first.release.released_table.kept_cells(old.persons, first.release.key_)
        for name, settings in (("drawn again", {}), ("cut further", {"extend": True, "target": 0.102})):
            shared = ff.share(whole, again=first, **settings)
            cells = shared.release.released_table.kept_cells(whole.persons, shared.release.key_)
            told = np.mean([told_of(frame[column], cells) for column in new])
            together, later = (shared.certificate.find(about).distance for about in ("together", "population"))
            print(
                f"{name}: {shared.release.n_cells_} cells, Δ of both together {together:.3f}, persons to come ≤ "
                f"{later:.3f}, new columns told {told:.3f}",
                flush=True,
            )
        tree = ff.Release(ff.FairTree(identifier="person"), output="cell", target=0.057, random_state=1)
        own = tree.fit_transform(whole)["cell"].to_numpy()
        told = np.mean([told_of(frame[column], own) for column in new])
        print(f"control, a second tree: {tree.n_cells_} cells, new columns told {told:.3f}, ", end="")
        print(f"Δ of both together {distance(before * tree.n_cells_ + own, frame['sex'].eq('Male').to_numpy()):.3f}")


def distance(cells: np.ndarray, group: np.ndarray) -> float:
    """Return the distance of two groups by their cells, counted."""
    code = np.unique(cells, return_inverse=True)[1]
    counts = np.stack([np.bincount(code[group == a], minlength=code.max() + 1) for a in (False, True)])
    return float(np.abs(counts[0] / counts[0].sum() - counts[1] / counts[1].sum()).sum() / 2)


def told_of(column: pd.Series, cells: np.ndarray) -> float:
    """Return the share of a column's variance that cells tell."""
    numbers = column.rank().to_frame() if column.dtype.kind in "if" else pd.get_dummies(column).astype(float)
    inside = numbers - numbers.groupby(cells).transform("mean").to_numpy()
    return float(1 - inside.var().sum() / numbers.var().sum())


def judged(frame: pd.DataFrame, n: int, trial: int, folder: Path | None) -> dict[str, float]:
    """One year; without a folder every month has a tree of its own."""
    rng = np.random.default_rng([6, trial])
    pool = frame.iloc[rng.choice(len(frame), n + MONTHS * n, replace=False)]
    here, others = pool.iloc[:n], pool.iloc[n:]
    releases: list[pd.DataFrame] = []
    certificates: list[ff.Certificate] = []
    printed: list[np.ndarray] = []  # log ratio of the groups' shares of each cell, by the counts of a certificate
    left: list[np.ndarray] = []  # whether those who left are of group 1, and whether they are guessed to be
    shared = None
    for month in range(MONTHS):
        if month:
            leaves = rng.random(len(here)) < 0.05
            gone, here = here[leaves], here[~leaves]
            came, others = others.iloc[: len(gone)], others.iloc[len(gone) :]
            here = pd.concat([here, came])
        columns = [*COLUMNS, *([LATER] if month >= 5 else []), "Gender", "person"]
        table = ff.Table(here[columns], sensitive="Gender", identifier="person")
        if folder is None:
            tree = ff.FairTree(identifier="person")
            release = ff.Release(tree, output="cell", target=TARGET, random_state=month)
            rows = release.fit_transform(table)
            printed.append(told_by(release.released_table.counts.sum(axis=0)))
        else:
            last = shared
            if last is None:
                shared = ff.share(table, target=TARGET, quick=True)
            else:
                shared = ff.share(table, again=last, extend=month == 5)
            shared = shared.save(folder / f"{month}")
            release = shared.release
            cells = release.released_table.kept_cells(table.persons, release.key_)
            rows = release.draw(cells)
            rows["cell"] = cells
            certificates.append(shared.certificate)
            counts = shared.certificate.find("table").counts
            if counts is not None:  # all cells are counted one by one: each has ten persons of every group at least
                printed.append(told_by(np.array([counts.counts[group] for group in release.groups_])))
            if month:
                sizes = [c.n for c in certificates[-2:]]
                groups = list(sizes[0])
                shrank = min(groups, key=lambda group: sizes[1][group] - sizes[0][group])
                is_second = (gone["Gender"] == groups[1]).to_numpy()
                left.append(np.stack([is_second, np.full(len(gone), shrank == groups[1])]))
        releases.append(pd.DataFrame(rows).set_axis(here["person"].to_numpy()))
    always = releases[0].index
    for rows in releases[1:]:
        always = always.intersection(rows.index)
    linked = pd.concat([rows.loc[always].add_suffix(f" {m}") for m, rows in enumerate(releases)], axis=1)
    X = pd.DataFrame({c: linked[c] if linked[c].dtype.kind in "if" else pd.factorize(linked[c])[0] for c in linked})
    group = frame.set_index("person").loc[always, "Gender"].eq("Female").to_numpy()
    learns = rng.random(len(always)) < 0.5

    def reached(columns: list[str]) -> float:
        model = HistGradientBoostingClassifier(max_iter=40, random_state=0).fit(X.loc[learns, columns], group[learns])
        return 2 * balanced_accuracy_score(group[~learns], model.predict(X.loc[~learns, columns])) - 1

    of_cells = [name for name in X if name.startswith("cell ")]
    code = np.unique(X[of_cells].to_numpy(), axis=0, return_inverse=True)[1].ravel()
    counts = np.stack([np.bincount(code[group == a], minlength=code.max() + 1) for a in (False, True)])
    joined = float(np.abs(counts[0] / counts[0].sum() - counts[1] / counts[1].sum()).sum() / 2)
    told = sum(ratio[linked[f"cell {month}"].to_numpy()] for month, ratio in enumerate(printed))
    likelier = np.where(told == 0, rng.random(len(always)) < 0.5, told > 0)
    second = frame.set_index("person").loc[always, "Gender"].eq(sorted(frame["Gender"].unique())[1]).to_numpy()
    found = {"joined": joined, "cells": reached(of_cells)}
    found |= {"certificates": 2 * balanced_accuracy_score(second, likelier) - 1}
    if certificates:
        together = certificates[-1].find("together")
        found |= {"rows": reached([name for name in X if name not in of_cells])}
        found |= {"who left": 2 * balanced_accuracy_score(*np.concatenate(left, axis=1)) - 1}
        found |= {"stated": together.distance, "half known": together.known_half}
    return found


def told_by(counts: np.ndarray) -> np.ndarray:
    """Return how much likelier the second group is at each cell, in logarithms, by counts (2, k)."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    return np.log(shares[1] / shares[0])


if __name__ == "__main__":
    main()

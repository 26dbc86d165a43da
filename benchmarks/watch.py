"""Watching later persons: false alarms, delays, time for a million persons, and real drifts.

    python benchmarks/watch.py alarms --streams 1000   # quiet streams by ff.watch, with three controls
    python benchmarks/watch.py controls --streams 200  # the three controls over 60 batches, by counts that are drawn
    python benchmarks/watch.py commands --streams 1000 [--first 0]  # through `fairflows encode --watch`
    python benchmarks/watch.py delays --runs 9
    python benchmarks/watch.py million
    python benchmarks/watch.py acs --picture docs/images/watch.svg

`alarms`: every stream has a release of its own, fitted to 600 persons of one population, then 20 batches of 100 others
over five months, α = .05. The bound that is watched is the true Δ of its cells, so that it holds by nothing to spare.
Controls: the test of one fixed size of new persons after every batch; a z-test of the truth's best rule after every
batch; best cells that have seen their own batch.

`controls`: the same controls where 60 batches of 100 are looked at, the first of them at every other batch, of a
release of 45,200 persons. True laws are drawn from the blocks, and counts from them.

`delays`: 64 cells that were cut at 22,600 persons; to half of the tree, or to a random half of the cells, so many of
one group go over that Δ is over the bound by so much; the median of the persons until the alarm, α = .01, batches of
200, of at most 150,000 persons.

`acs`: cut at 8,194 persons of Texas; others of Texas, and those of other states, come in batches of 200.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import typer

import fairflows as ff
from fairflows.bounds import blocks_p_value
from fairflows.bounds.anytime import Coarsenings, GapSums
from fairflows.cli.main import main as entry_point
from fairflows.table.persons import Persons

DATA = Path(os.environ.get("FAIRFLOWS_DATA", "data"))
ACS = [
    "Age", "Workclass", "Education", "Marital Status", "Race", "Citizenship status", "Ability to speak English",
    "Means of transportation to work", "Mobility status", "Military service", "Nativity",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["alarms", "controls", "commands", "delays", "million", "acs"])
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first stream, of a part of them")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    {
        "alarms": lambda: alarms(arguments.streams),
        "controls": lambda: controls(arguments.streams),
        "commands": lambda: commands(arguments.streams, arguments.first),
        "delays": lambda: delays(arguments.runs),
        "million": million,
        "acs": lambda: acs(arguments.picture),
    }[arguments.what]()


def persons(rng: np.random.Generator, n: int, name: str) -> pd.DataFrame:
    """Two groups with a column that is uniform in (0, 1)."""
    group = np.where(np.arange(n) < n // 2, "g0", "g1")
    return pd.DataFrame({"x": rng.random(n), "group": group, "person": name + pd.RangeIndex(n).astype(str)})


def table(frame: pd.DataFrame) -> ff.Table:
    return ff.Table(frame, sensitive="group", identifier="person")


def fitted(rng: np.random.Generator, n: int, n_cells: int) -> ff.Release:
    tree = ff.FairTree(identifier="person")
    return ff.Release(tree, output="cell", n_cells=n_cells).fit(table(persons(rng, n, "fitted ")))


def cells_of(release: ff.Release, n: int) -> np.ndarray:
    """The cells, (2, n), of persons of both groups at the middles of n parts of (0, 1)."""
    tree, grid = release.encoder_, pd.DataFrame({"x": (np.arange(n) + 0.5) / n})
    return np.stack([tree.cells(tree.read(grid, np.repeat(g, n), Persons.newly_named(n))) for g in ("g0", "g1")])


def masses(release: ff.Release, n: int = 4_000) -> np.ndarray:
    """The true law of the cells, (2, k), of persons without drift."""
    return np.stack([np.bincount(c, minlength=release.n_cells_) for c in cells_of(release, n)]) / n


def alarms(n_streams: int, alpha: float = 0.05) -> None:
    found = []
    for stream in range(n_streams):
        rng = np.random.default_rng([1, stream])
        release = fitted(rng, 600, 8)
        law = masses(release)
        truth = float(np.abs(law[0] - law[1]).sum() / 2)
        best = law[0] > law[1]
        # The first watch spends α·6/π²: take what makes that α.
        watched = ff.watch(release, bound=truth, alpha=alpha * np.pi**2 / 6)
        levels = release.encoder_.structure_.levels()
        cells, own, fixed, z_test = Coarsenings.of(levels), GapSums.zero(2, Coarsenings.of(levels)), False, False
        before, seen_own = np.zeros_like(release.table_.blocks), False
        for batch in range(20):
            watched.update(table(persons(rng, 100, f"{batch} ")), date=f"2026-{1 + batch // 4:02d}-{1 + batch % 4:02d}")
            counts = np.array(watched.state["counts"])
            new, before = counts - before, counts
            own = own.plus(new, new, cells)
            seen_own |= own.log_e(truth) >= -np.log(alpha)
            if stream < 100 and batch % 2:  # 20,000 draws at every look
                fixed |= blocks_p_value(release.table_.blocks, counts) < alpha
            p = counts[:, best].sum(axis=1) / counts.sum(axis=1)
            z_test |= (p[0] - p[1] - truth) / np.sqrt((p * (1 - p) / counts.sum(axis=1)).sum()) > 1.645
        found.append([watched.moved is not None, watched.refuted is not None, fixed, z_test, seen_own])
        if (stream + 1) % 100 == 0 or stream + 1 == n_streams:
            rates = np.mean(found, axis=0)
            rates[2] = np.mean([row[2] for row in found[:100]])
            names = ("law", "bound", "fixed size", "z-test", "saw its batch")
            said = ", ".join(f"{n} {r:.3f}" for n, r in zip(names, rates, strict=True))
            print(f"{stream + 1} streams, α = {alpha}: {said}", flush=True)


def controls(n_streams: int, alpha: float = 0.05, n_batches: int = 60) -> None:
    found = []
    release = fitted(np.random.default_rng(5), 45_200, 8)
    blocks, cells = release.table_.blocks, Coarsenings.of(release.encoder_.structure_.levels())
    for stream in range(n_streams):
        rng = np.random.default_rng([5, stream])
        law = np.stack([rng.dirichlet(b) for b in blocks])  # as true masses are, given blocks
        truth, best = float(np.abs(law[0] - law[1]).sum() / 2), law[0] > law[1]
        own, counts, fixed, z_test, seen_own = GapSums.zero(2, cells), np.zeros_like(blocks), False, False, False
        for batch in range(n_batches):
            new = np.stack([rng.multinomial(50, p) for p in law])
            own, counts = own.plus(new, new, cells), counts + new
            seen_own |= own.log_e(truth) >= -np.log(alpha)
            if not fixed and batch % 2:  # 20,000 draws at every look
                fixed |= blocks_p_value(blocks, counts) < alpha
            p = counts[:, best].sum(axis=1) / counts.sum(axis=1)
            z_test |= (p[0] - p[1] - truth) / np.sqrt((p * (1 - p) / counts.sum(axis=1)).sum()) > 1.645
        found.append([fixed, z_test, seen_own])
    said = ", ".join(
        f"{n} {r:.3f}" for n, r in zip(("fixed size", "z-test", "saw its batch"), np.mean(found, axis=0), strict=True)
    )
    print(f"{n_streams} streams of {n_batches} batches, α = {alpha}: {said}")


def commands(n_streams: int, first: int, alpha: float = 0.05) -> None:
    """Quiet streams through `fairflows encode --watch`, ten batches each; lamps by the evidence in watch.json."""
    found = []
    command = functools.cache(typer.main.get_command)
    with tempfile.TemporaryDirectory() as name, mock.patch.object(typer.main, "get_command", command):
        folder = Path(name)
        out, new = folder / "out", folder / "new.csv"
        words = ["fairflows", "encode", str(out), str(new), "-o", str(folder / "z.csv"), "--watch"]
        for stream in range(first, first + n_streams):
            rng = np.random.default_rng([2, stream])
            os.environ["FAIRFLOWS_LEDGER"] = str(folder / f"ledger {stream}")  # read whole for each release
            shared = ff.share(table(persons(rng, 600, "fitted ")), output="cell", target=0.3, quick=True)
            release = shared.save(out, replace=True).release
            law = masses(release)
            truth = float(np.abs(law[0] - law[1]).sum() / 2)
            lamps = np.zeros(6, dtype=bool)
            for batch in range(10):
                persons(rng, 200, f"{batch} ").to_csv(new, index=False)
                with mock.patch.object(sys, "argv", words), redirect_stdout(io.StringIO()):
                    code = ended()
                state = json.loads((out / "watch.json").read_text())
                look, watched = state["looks"][-1], state["starts"][0]
                sums = GapSums(*(np.array(watched[part]) for part in "SWVD"))
                evidence = [look["law"], look["gap"], sums.log_e(truth)]
                lamps |= [e >= -np.log(alpha) for e in evidence] + [
                    sums.lower(alpha) > truth,
                    sums.upper(alpha) < truth,
                    code != 0,
                ]
            found.append(lamps)
            if len(found) % 50 == 0 or len(found) == n_streams:
                names = (
                    "law",
                    "bound",
                    "bound = truth",
                    "lower sequence",
                    "upper sequence",
                    "exit code (α = .01·6/π²)",
                )
                said = ", ".join(f"{n} {r:.3f}" for n, r in zip(names, np.mean(found, axis=0), strict=True))
                print(f"{len(found)} streams of the command, α = {alpha}: {said}", flush=True)


def ended() -> int:
    """Run the command in this process, and return its exit code."""
    try:
        entry_point()
    except SystemExit as end:
        if end.code not in (0, 3, 4):
            raise
        return int(end.code or 0)
    return 0


def delays(n_runs: int) -> None:
    release = fitted(np.random.default_rng(3), 45_200, 64)
    law, bound = masses(release), ff.watch(release).bound
    truth = float(np.abs(law[0] - law[1]).sum() / 2)
    print(f"64 cells, Δ ≤ {bound:.4f}; the truth {truth:.4f}", flush=True)
    n_grid = 4_000
    cell_of = cells_of(release, n_grid)[1]
    for half, over in product(("half of the tree", "random half of the cells"), (0.2, 0.1, 0.05, 0.02)):
        at = {"law": [], "bound": []}
        for run in range(n_runs):
            rng, watched, n = np.random.default_rng([4, run]), ff.watch(release, alpha=0.01 * np.pi**2 / 6), 0
            order = np.argsort(release.encoder_.structure_.levels()[0], kind="stable")  # of one half of the tree first
            if half == "random half of the cells":
                order = rng.permutation(order)
            to = np.isin(cell_of, order[32:])  # where more of g1 are, from one day on
            while n < 150_000 and "OK" in watched.lamps.values():
                frame = persons(rng, 200, f"{n} ")
                x, moves = frame["x"].to_numpy(), frame["group"].eq("g1") & (rng.random(200) < (bound + over) / 0.5)
                moves &= ~to[(n_grid * x).astype(int)]
                frame["x"] = np.where(moves, (rng.choice(np.flatnonzero(to), 200) + rng.random(200)) / n_grid, x)
                watched.update(table(frame), date="2026-01-01")
                n += 200
                for name, lamp in watched.lamps.items():
                    if lamp != "OK" and len(at[name]) == run:
                        at[name].append(n)
            for name in at:
                at[name] += [150_000] * (run + 1 - len(at[name]))
        found = ", ".join(f"{name} {np.median(times):,.0f}" for name, times in at.items())
        print(f"{half}, over by {over}: median of the persons: {found}", flush=True)


def million() -> None:
    adult = ff.load_adult()
    frame = adult.X.assign(sex=adult.a.to_numpy(), person=np.arange(len(adult)))
    release = ff.Release(ff.FairTree(identifier="person"), output="cell").fit(
        ff.Table(frame, sensitive="sex", identifier="person")
    )
    many = frame.iloc[np.random.default_rng(0).integers(0, len(frame), 10**6)].assign(person=np.arange(10**6) + 10**6)
    later = ff.Table(many, sensitive="sex", identifier="person")
    watched, start, started = ff.watch(release), time.perf_counter(), time.process_time()
    watched.update(later)
    seconds, of_cores = time.perf_counter() - start, time.process_time() - started
    size = len(json.dumps(watched.state))
    print(
        f"{release.n_cells_} cells, a million persons: {seconds:.1f} s, {of_cores:.1f} s of cores; "
        f"state {size:,} bytes; {watched.lamps}"
    )


def acs(picture: Path | None) -> None:
    frame = pd.read_parquet(DATA / "acs" / "acs-income-2018-holdout.parquet").reset_index(names="person")
    frame = frame[[*ACS, "Gender", "State", "person"]]
    texas = frame[frame["State"] == "Texas/TX"].sample(frac=1, random_state=0)

    def of(rows: pd.DataFrame) -> ff.Table:
        return ff.Table(rows.drop(columns="State"), sensitive="Gender", identifier="person")

    release = ff.Release(ff.FairTree(identifier="person"), output="cell").fit(of(texas.iloc[:16_388]))
    others = texas.iloc[16_388:24_388]
    print(f"{release.n_cells_} cells; persons to come Δ ≤ {ff.watch(release).bound:.4f}")
    streams = {"Texas": others}
    for state in ("California/CA", "New York/NY", "Florida/FL"):
        streams[state] = frame[frame["State"] == state].sample(frac=1, random_state=0)
    for name, rows in streams.items():
        watched, n = ff.watch(release), 0
        for part in parts(rows, 200):
            watched.update(of(part), date="2018-01-01")
            n += len(part)
            if watched.moved and name != "Texas":
                break
        print(f"{name}: {watched.lamps} after {n:,} persons; Δ {watched.last.lower:.3f} to {watched.last.upper:.3f}")
    if picture is not None:
        watched = ff.watch(release)
        drift = [*parts(others, 250), *parts(streams["California/CA"].iloc[:12_000], 250)]
        for week, part in enumerate(drift):
            watched.update(of(part), date=str(np.datetime64("2018-01-01") + 7 * week))
        axes = watched.plot()
        from_then = np.datetime64("2018-01-01") + 7 * len(list(parts(others, 250)))
        axes.axvline(from_then, color="#5f6368", linestyle=":")
        axes.annotate("Californians from here on", (from_then, 0.045), (3, 0), textcoords="offset points", fontsize=8)
        axes.figure.savefig(picture)
        print(f"drift: {watched.lamps}, moved on {watched.moved}, Californians since {from_then}")


def parts(rows: pd.DataFrame, n: int) -> Iterator[pd.DataFrame]:
    return (rows.iloc[start : start + n] for start in range(0, len(rows) - n + 1, n))


if __name__ == "__main__":
    main()

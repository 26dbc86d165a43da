"""Certificates of persons with histories against the truth, through the command, and controls that must fail."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from panel_populations import PANELS, PanelKinds
from scipy.stats import beta

import fairflows as ff
from fairflows.table.panels import Panels

DELTA = 0.2
N, RUNS = 600, 40
FEW_COPIES, COPIES = 8_000, 40_000  # persons of each group that the true distance is computed from

pytestmark = [
    pytest.mark.usefixtures("few_trees"),
    pytest.mark.filterwarnings("ignore::fairflows.exceptions.DataWarning"),
]


def lower_limit(missed: int, n_runs: int) -> float:
    """The 99 % lower Clopper-Pearson limit of the share of misses."""
    return float(beta.ppf(0.01, missed, n_runs - missed + 1)) if missed else 0.0


def true_distance(release: ff.Release, known: PanelKinds, copies: int) -> float:
    """The distance of the law of the cells of persons who come later, from many persons of each kind and group."""
    n_kinds = len(known.kinds)
    copies = copies // n_kinds
    kind, group = np.tile(np.repeat(np.arange(n_kinds), copies), 2), np.repeat([0, 1], n_kinds * copies)
    cells = release.cells(release.read(known.table(kind, group, "later")))
    shares = np.zeros((2, n_kinds, release.n_cells_))
    np.add.at(shares, (group, kind, cells), 1 / copies)
    law = np.einsum("ak,akc->ac", known.law, shares)
    return float(np.abs(law[0] - law[1]).sum() / 2)


def shared(run, known: PanelKinds, seed: int, folder: Path, copies: int) -> tuple[float, ff.Certificate]:
    """Share the file of a table of persons by the command; the true distance, and the certificate."""
    rows, *own = known.files(np.random.default_rng([seed, 5]), N, f"r{seed}-", folder)
    files = [own[0], "--with", rows] if own else [rows]
    roles = ["--sensitive", "group", "--id", "who", "--time", "day"]
    settings = ["--output", "cell", "--delta", DELTA, "--target", 0.2, "--quick", "--random-state", seed]
    code, _, err = run("share", *files, *roles, *settings, "-o", folder / "out")
    assert code in (0, 1), err
    certificate = ff.Certificate.read(folder / "out" / "certificate.json")
    assert certificate.unit == "person", "which is the default where the identifier repeats"
    return true_distance(ff.load(folder / "out" / "model"), known, copies), certificate


@pytest.mark.parametrize("known", PANELS, ids=lambda known: known.name)
def test_a_certificate_covers_persons_who_come_later(known, run, tmp_path):
    truth, certificate = shared(run, known, 0, tmp_path, FEW_COPIES)
    assert truth <= certificate.cell_upper + 0.03
    assert certificate.n == {"a": N // 2, "b": N // 2}
    assert certificate.table_distance < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("known", PANELS, ids=lambda known: known.name)
def test_certificates_of_persons_miss_no_more_often_than_they_say(known, run, tmp_path):
    results = []
    for seed in range(1, RUNS + 1):
        (folder := tmp_path / str(seed)).mkdir()
        truth, certificate = shared(run, known, seed, folder, COPIES)
        results.append((truth, certificate.cell_upper))
        shutil.rmtree(folder)
    missed = sum(truth > upper for truth, upper in results)
    means = np.mean(results, axis=0)
    print(f"\n{known.name}: missed {missed} of {RUNS}, mean truth {means[0]:.3f}, mean bound {means[1]:.3f}")
    assert lower_limit(missed, RUNS) <= DELTA, results


def three_equal_rows(seed: int, n: int) -> pd.DataFrame:
    rng = np.random.default_rng([seed, 9])
    rows = pd.DataFrame(
        {"x": rng.random(n), "y": rng.random(n), "group": np.repeat(["a", "b"], n // 2), "who": range(n)}
    )
    return rows.loc[rows.index.repeat(3)].reset_index(drop=True)


def test_three_equal_rows_taken_for_three_persons_miss():
    """The control: the bound for three times as many persons, who are not independent. As persons they are covered."""
    fresh = three_equal_rows(10**6, 12_000).drop_duplicates("who").assign(who=lambda d: -1 - d["who"])
    group = (fresh["group"] == "b").to_numpy().astype(int)
    missed, n_runs = {"rows": 0, "persons": 0}, 10
    for seed in range(n_runs):
        rows = three_equal_rows(seed, 400)
        for taken, who in (("rows", np.arange(len(rows))), ("persons", rows["who"])):
            table = ff.Table(rows.assign(who=who), sensitive="group", identifier="who")
            release = ff.Release(unit="person", output="cell", n_cells=8).fit(table)
            later = ff.Table(fresh, sensitive="group", identifier="who")
            cells = release.cells(release.read(Panels.of(later)))
            shares = np.stack([np.bincount(cells[group == a], minlength=8) / (group == a).sum() for a in (0, 1)])
            missed[taken] += (
                np.abs(shares[0] - shares[1]).sum() / 2 > ff.certify(release, table, delta=DELTA).cell_upper
            )
    assert missed["rows"] > 0.5 * n_runs
    assert lower_limit(missed["persons"], n_runs) <= DELTA

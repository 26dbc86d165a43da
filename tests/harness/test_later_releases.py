"""Releases from the cells of an earlier one against the truth: whole runs of the command on a population of known law.

`share --again` draws next month's table from the same cells, and `--extend` cuts these further by a column that came
since. Persons who come later still get cells whose distance is within the bound that is stated.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from populations import Population, _one_row_each
from scipy.stats import beta
from test_known_truth import DELTA, REPEATED, distance, written_law

from fairflows import Certificate

pytestmark = pytest.mark.usefixtures("few_trees", "few_measured")

KINDS = pd.DataFrame([(x, z) for x in range(6) for z in "abc"], columns=["x", "z"]).assign(chance=0.5)
_TILT = np.exp(0.25 * KINDS["x"].to_numpy()) * np.where(KINDS["z"] == "a", 2.0, 1.0)
LAW = np.stack([_TILT / _TILT.sum(), _TILT[::-1] / _TILT.sum()])
ALL = Population("later", KINDS, LAW, _one_row_each(LAW), n_persons=1500)
FIRST = replace(ALL, kinds=KINDS.drop(columns="z"))
"""The same persons, as the first file holds them: without the column that comes later."""

ROLES = ["--sensitive", "sex", "--label", "paid", "--id", "person", "--output", "cell", "--quick"]
COPIES = 1000  # of each kind and group


def later_release(run, folder, seed: int, how: str) -> tuple[float, Certificate]:
    """Share a table, and next month's from its cells; the true distance of later persons, and the certificate."""
    rng = np.random.default_rng([seed, 3])
    drawn = ALL.draw(rng, 1800)
    paid = np.where(rng.random(1800) < 0.5, "yes", "no")
    months = FIRST.as_file(drawn).iloc[:1500], (ALL if how == "extend" else FIRST).as_file(drawn).iloc[300:]
    for name, rows in zip("12", months, strict=True):
        rows.assign(paid=paid[rows.index]).to_csv(folder / f"{name}.csv", index=False)
    settings = ["--delta", DELTA, "--random-state", seed, "-o", folder / "first"]
    run("share", folder / "1.csv", *ROLES, "--target", "0.12", *settings, ends=0)
    extend = ["--extend", "--target", "0.25"] if how == "extend" else []
    words = [*ROLES, "--again", folder / "first", *extend, "-o", folder / "out"]
    code, _, err = run("share", folder / "2.csv", *words)
    assert code in (0, 1), err
    certificate = Certificate.read(folder / "out" / "certificate.json")
    law = written_law(run, ALL if how == "extend" else FIRST, folder, seed, COPIES)
    return distance(law), certificate


@pytest.mark.parametrize("how", ["again", "extend"])
def test_one_later_release_is_covered(how, run, tmp_path):
    truth, certificate = later_release(run, tmp_path, 0, how)
    assert len(certificate.previous) == 1
    assert bool(certificate.find("population").leaves) == (how == "extend")
    assert 0 < truth <= certificate.cell_upper + 0.03


@pytest.mark.slow
@pytest.mark.parametrize("how", ["again", "extend"])
def test_later_releases_miss_no_more_often_than_they_say(how, run, tmp_path_factory, monkeypatch):
    results = []
    for seed in range(1, REPEATED + 1):
        folder = tmp_path_factory.mktemp(f"run-{seed}")
        monkeypatch.setenv("FAIRFLOWS_LEDGER", str(folder / "ledger"))
        truth, certificate = later_release(run, folder, seed, how)
        results.append((truth, certificate.cell_upper))
    truth, upper = np.array(results).T
    missed = int((truth > upper).sum())
    print(f"\n{how}: {missed} of {REPEATED} missed, largest ratio {(truth / upper).max():.3f}")
    assert missed == 0 or beta.ppf(0.01, missed, REPEATED - missed + 1) <= DELTA

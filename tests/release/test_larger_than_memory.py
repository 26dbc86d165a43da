"""A file larger than memory: fitted to a sample of its persons, encoded and counted in one stream."""

import json

import numpy as np
import pandas as pd
import pytest
from known_tables import people

import fairflows as ff
from fairflows.bounds import table_distance

pytestmark = pytest.mark.usefixtures("few_trees", "few_measured")


@pytest.mark.parametrize("kind", ["csv", pytest.param("parquet", marks=pytest.mark.slow)])
def test_all_rows_are_released_and_counted(kind, run, tmp_path, monkeypatch):
    monkeypatch.setattr("fairflows.stream.files.BATCH_ROWS", 700)
    whole, source, out = people(9000), tmp_path / f"rows.{kind}", tmp_path / "out"
    whole.to_csv(source, index=False) if kind == "csv" else whole.to_parquet(source)
    settings = ["--sensitive", "sex", "--label", "repaid", "--id", "person", "--quick", "--output", "cell"]
    run("share", source, *settings, "--target", 0.2, "--sample", 3000, "-o", out, ends=0)
    shared = out / f"shared.{kind}"
    cells = (pd.read_csv if kind == "csv" else pd.read_parquet)(shared)["cell"]
    stated = json.loads((out / "certificate.json").read_text())
    table = next(s for s in stated["statements"] if s["about"] == "table")
    counts = np.array(list(table["counts"]["counts"].values()))
    assert stated["n"] == whole["sex"].value_counts().sort_index().to_dict()
    np.testing.assert_array_equal(counts.sum(axis=0), np.bincount(cells, minlength=counts.shape[1]))
    assert table["distance"] == pytest.approx(table_distance(counts)), "counted over all rows"
    population = next(s for s in stated["statements"] if s["about"] == "population")
    assert 1350 < sum(population["persons"].values()) < 1650, "by a cut at half of the sample"
    assert table["distance"] < 2 * population["distance"], (
        "rows that were not matched are of the size of persons to come"
    )
    assert ff.check(out / "certificate.json", shared)
    cut = cells.iloc[5:].to_frame()
    cut.to_csv(shared, index=False) if kind == "csv" else cut.to_parquet(shared)
    assert not ff.check(out / "certificate.json", shared)


def test_a_sample_needs_names(run, tmp_path):
    people(600).to_csv(tmp_path / "rows.csv", index=False)
    settings = ["--sensitive", "sex", "--label", "repaid", "--quick", "--sample", 400, "-o", tmp_path / "out"]
    code, _, err = run("share", tmp_path / "rows.csv", *settings)
    assert (code, "names persons" in err) == (2, True)
    assert not (tmp_path / "out").exists(), "nothing half-written"


def test_what_was_counted_in_a_sample_alone_is_refused(run, tmp_path):
    """Held-out persons of the sample beside counts of the whole file: `check` would refuse the true files."""
    people(5000).to_csv(tmp_path / "rows.csv", index=False)
    settings = ["--sensitive", "sex", "--label", "repaid", "--id", "person", "--quick", "-o", tmp_path / "out"]
    code, _, err = run(
        "share", tmp_path / "rows.csv", "--sample", 2500, "--method", "cells", "--target", 0.4, *settings
    )
    assert (code, "(--method tree)" in err) == (2, True), err
    assert not (tmp_path / "out").exists()


def test_a_release_by_a_sample_is_verified_and_drawn_again_by_a_sample_or_whole(run, tmp_path, monkeypatch):
    """Persons beyond the sample keep their cell, too, though their rows change: it is not found by their rows again."""
    monkeypatch.setattr("fairflows.stream.files.BATCH_ROWS", 700)
    first, rng = people(4000), np.random.default_rng(0)
    later = first.iloc[200:].assign(grade=rng.integers(0, 10, 3800), visits=rng.integers(0, 9, 3800))
    later = pd.concat([later, people(200, 1).assign(visits=3)])
    first.to_csv(tmp_path / "1.csv", index=False)
    later.to_csv(tmp_path / "2.csv", index=False)
    roles = ["--sensitive", "sex", "--label", "repaid", "--id", "person"]
    share = ["share", tmp_path / "1.csv", *roles, "--quick", "--target", 0.3, "--sample", 2000, "-o", tmp_path / "a"]
    run(*share, ends=0)
    run("verify", tmp_path / "a", tmp_path / "1.csv", ends=0)
    run("verify", tmp_path / "a", tmp_path / "2.csv", ends=1)
    again = ["share", tmp_path / "2.csv", *roles, "--again", tmp_path / "a"]
    run(*again, "--sample", 2000, "-o", tmp_path / "b", ends=0)
    run(*again, "-o", tmp_path / "c", ends=0)
    models = {name: ff.load(tmp_path / name / "model") for name in "abc"}
    kept = {
        name: pd.Series(model.released_table.cell, index=model.released_table.person) for name, model in models.items()
    }
    assert {name: len(cells) for name, cells in kept.items()} == {"a": 4000, "b": 4200, "c": 4200}
    for name in "bc":
        assert (kept[name][kept["a"].index] == kept["a"]).all()
        assert "visits" in pd.read_csv(tmp_path / name / "shared.csv")
        assert len(pd.read_csv(tmp_path / name / "shared.csv")) == 4000
        run("verify", tmp_path / name, tmp_path / "2.csv", ends=0)
        run("check", tmp_path / name, ends=0)
    stated = {name: json.loads((tmp_path / name / "certificate.json").read_text()) for name in "bc"}
    assert stated["b"]["membership"] == stated["c"]["membership"]
    assert stated["b"]["membership"]["in all releases"] == 3800
    together = [next(s for s in each["statements"] if s["about"] == "together") for each in stated.values()]
    assert together[0] == together[1]
    assert "whole file" in run(*again, "--extend", "--sample", 2000, "-o", tmp_path / "d", ends=2)[2]


@pytest.mark.parametrize("kind", [pytest.param("csv", marks=pytest.mark.slow), "parquet"])
def test_no_row_of_one_person_of_the_whole_file(kind, run, tmp_path):
    """The sample has half of the persons: what one person of the others has is known by reading the whole file."""
    rng, n, source = np.random.default_rng(0), 6000, tmp_path / f"rows.{kind}"
    x = np.minimum(rng.geometric(0.12, n), 30)  # rare values, so that many combinations are of one person
    whole = pd.DataFrame({"x": x, "t": rng.choice(list("abcdefgh"), n), "f": rng.integers(0, 9, n) / 4, "y": x % 3})
    whole = whole.assign(y=whole["y"].where(rng.random(n) < 0.9), c=pd.Categorical(rng.integers(0, 3, n)))
    whole = whole.assign(sex=rng.choice(["f", "m"], n), person=np.arange(n))
    whole.to_csv(source, index=False) if kind == "csv" else whole.to_parquet(source)
    settings = ["--sensitive", "sex", "--label", "y", "--missing-label", "keep", "--id", "person", "--quick"]
    run("share", source, *settings, "--target", 0.3, "--sample", 3000, "-o", tmp_path / "out", ends=0)
    shared = (pd.read_csv if kind == "csv" else pd.read_parquet)(tmp_path / f"out/shared.{kind}")
    whole["y"] = whole["y"].map("{:.0f}".format, na_action="ignore").fillna("missing")
    for columns in (list("xtfc"), list("xtfyc")):
        rows, released = (frame[columns].astype(str).agg("|".join, axis=1) for frame in (whole, shared))
        own = set(rows[~rows.duplicated(keep=False)])
        assert len(own) > 300, "there are such rows"
        assert not own & set(released)
    assert ff.check(tmp_path / "out")

"""Several sensitive attributes at once: a number of its own for each, each pair, and the intersection."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows.certificate.certificate import status_of

pytestmark = pytest.mark.usefixtures("few_trees")

ROLES = {"label": "paid", "identifier": "person"}


def persons(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    sex, old, race = (
        rng.choice(["f", "m"], n),
        rng.choice(["no", "yes"], n),
        rng.choice(list("abc"), n, p=[0.7, 0.27, 0.03]),
    )
    tells = (sex == "f") + (old == "yes") + (race == "a") + rng.normal(size=n)
    return pd.DataFrame(
        {
            "person": [f"p{i}" for i in range(n)], "sex": sex, "old": old, "race": race, "pay": np.round(tells, 2),
            "town": rng.choice(list("xyz"), n), "paid": np.where(tells + rng.normal(size=n) > 2, "yes", "no"),
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def table() -> ff.Table:
    with pytest.warns(ff.DataWarning, match="'other', of .* persons. They are hidden as one"):
        return ff.Table(persons(5000, 1), sensitive=["sex", "old", "race"], merge_small=100, **ROLES)


@pytest.fixture(scope="module")
def release(table) -> ff.Release:
    return ff.Release(ff.FairTree(identifier="person"), target=0.3).fit(table)


@pytest.fixture(scope="module")
def certificate(release, table) -> ff.Certificate:
    return ff.certify(release, table, target=0.3)


def test_every_attribute_and_pair_has_its_number(certificate):
    of = [s.of for s in certificate.statements if s.about == "table"]
    singles, pairs = [("sex",), ("old",), ("race",)], [("sex", "old"), ("sex", "race"), ("old", "race")]
    assert of == [(), *singles, *pairs]
    assert [s.of for s in certificate.statements if s.about == "population"] == of
    whole = certificate.cell_upper
    for columns in singles:
        assert certificate.find("population", of=columns).distance < whole
    assert certificate.find("table", of=["sex"]).distance <= 0.3
    assert "their sex" in repr(certificate)


@pytest.mark.parametrize("about", ["table", "inside"])
def test_the_statement_of_the_table_is_that_of_its_rows(certificate, release, table, about):
    cells = release.table_.kept_cells(table.persons, release.key_)
    counted = table.a.to_numpy() == "other" if about == "inside" else np.ones(len(table), dtype=bool)
    counts = pd.crosstab(table.attributes["sex"].to_numpy()[counted], cells[counted]).to_numpy()
    shares = counts / counts.sum(axis=1, keepdims=True)
    true = np.abs(shares[0] - shares[1]).sum() / 2
    stated = certificate.find(about, of=["sex"], group="other" if about == "inside" else None).distance
    assert true <= stated <= true + 0.001


def test_small_intersections_are_one_value_and_what_differs_inside_is_measured(certificate, table):
    race = certificate.find("population", of=["race"])
    assert list(race.parts) == ["a", "b", "other"], "nobody of race c is outside of the merged group"
    sex = certificate.find("population", of=["sex"])
    assert all(part["other"] % 10 == 0 for part in sex.parts.values())
    inside = certificate.find("inside", group="other", of=["sex"])
    assert inside.distance > certificate.find("table", of=["sex"]).distance
    assert inside.met is None


def test_check_and_verify(certificate, release, table, tmp_path):
    path = tmp_path / "certificate.json"
    path.write_text(certificate.to_json())
    assert ff.check(path)
    assert ff.verify(certificate, release, table)

    def changed(about: str, **fields: object) -> ff.Certificate:
        statements = tuple(
            replace(s, **fields) if (s.about, s.of) == (about, ("sex",)) else s for s in certificate.statements
        )
        return replace(certificate, statements=statements, status=status_of(statements, certificate.target))

    stated = certificate.find("population", of=["sex"])
    fewer = {value: {group: n for group, n in part.items() if group != "other"} for value, part in stated.parts.items()}
    for each in (
        changed("population", distance=stated.distance / 2),
        changed("population", parts=fewer),
        changed("population", parts={}),
        changed("population", of=("income",)),
        changed("population", delta=0.2),
    ):
        path.write_text(each.to_json())
        assert not ff.check(path)
    assert not ff.verify(changed("table", distance=0.0).sealed(release.key_), release, table)
    table_ = release.table_
    moved = [replace(m, cells=np.roll(m.cells, 1, axis=1)) for m in table_.margins]
    release.table_ = replace(table_, margins=moved)
    try:
        assert not ff.verify(certificate, release, table)
    finally:
        release.table_ = table_


def test_large_groups_are_not_merged():
    rows = persons(3000, 2)
    rows["race"] = np.where(
        np.arange(3000) < 30, "c", np.where(np.arange(3000) < 40, "d", rows["race"].where(rows["race"] != "c", "b"))
    )
    with pytest.warns(ff.DataWarning, match="of 40 persons.* fewer than 100, and larger groups do not join"):
        table = ff.Table(rows, sensitive="race", merge_small=100, **ROLES)
    assert sorted(table.groups) == ["a", "b", "other"]
    assert (table.a == "other").sum() == 40


def test_a_saved_release_keeps_them(release, table, certificate, tmp_path):
    ff.save(release, tmp_path / "model")
    assert ff.verify(certificate, ff.load(tmp_path / "model"), table)

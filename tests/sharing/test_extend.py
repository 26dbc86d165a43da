"""Cells that are cut further by new columns: the new cells refine the old ones, and one statement covers both."""

import json

import known_tables
import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows import DataError, DataWarning

pytestmark = pytest.mark.usefixtures("few_trees")
N = 3000


def people(n: int, seed: int) -> pd.DataFrame:
    return known_tables.people(n, seed, sex=np.where(np.arange(n) % 2, "m", "f"))


def with_visits(rows: pd.DataFrame) -> pd.DataFrame:
    """Add a column that tells the sex, and one that tells nothing."""
    rng = np.random.default_rng(len(rows))
    return rows.assign(
        visits=rng.integers(0, 20, len(rows)) + 5 * (rows["sex"] == "m"), plan=rng.choice(list("ab"), len(rows))
    )


def table(rows: pd.DataFrame, **settings) -> ff.Table:
    return ff.Table(rows, **{"sensitive": "sex", "label": "repaid", "identifier": "person"} | settings)


@pytest.fixture(scope="module")
def months() -> list[pd.DataFrame]:
    """Three months; every month 100 persons leave and 100 come, and from the second on there are new columns."""
    first = people(N, 0)
    second = with_visits(pd.concat([first.iloc[100:], people(100, 1)]))
    return [first, second, pd.concat([second.iloc[100:], with_visits(people(100, 2))])]


@pytest.fixture(scope="module")
def results(months, tmp_path_factory):
    folder = tmp_path_factory.mktemp("extend")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRFLOWS_LEDGER", str(folder / "ledger"))
        found = [ff.share(table(months[0]), target=0.15, quick=True).save(folder / "1")]
        found.append(ff.share(table(months[1]), again=found[0], extend=True, target=0.25).save(folder / "2"))
        found.append(ff.share(table(months[2]), again=folder / "2").save(folder / "3"))
    return folder, found


def cells(shared: ff.Shared, rows: pd.DataFrame) -> pd.Series:
    kept = shared.release.released_table.kept_cells(table(rows).persons, shared.release.key_)
    return pd.Series(kept, index=rows["person"])


def told(cell: pd.Series, column: pd.Series) -> float:
    """The share of a column's variance that cells tell."""
    column = pd.Series(column.to_numpy())
    return 1 - (column - column.groupby(cell.to_numpy()).transform("mean")).var() / column.var()


def test_new_cells_refine_the_old_ones(months, results):
    _, (first, second, third) = results
    leaf = second.release.released_table.leaves[0].of_cell
    assert first.release.n_cells_ == leaf.max() + 1 < second.release.n_cells_ == len(leaf)
    before, after = cells(first, months[0]), cells(second, months[0])
    np.testing.assert_array_equal(leaf[after], before)  # also of those who left
    new = months[2].iloc[-100:]
    trees = first.release.encoder_, second.release.encoder_
    old = trees[0].cells(trees[0].read(table(new.drop(columns=["visits", "plan"]))))
    cut = trees[1].cells(trees[1].read(table(new)))
    np.testing.assert_array_equal(leaf[cut], old)
    np.testing.assert_array_equal(cells(third, new), cut)
    stay = months[2].iloc[:-100]
    np.testing.assert_array_equal(cells(third, stay), cells(second, stay))


def test_new_columns_are_told_better(months, results):
    second = results[1][1]
    here = months[1]
    leaf = second.release.released_table.leaves[0].of_cell
    from_old, from_new = (
        told(cell, here["visits"]) for cell in (pd.Series(leaf[cells(second, here)]), cells(second, here))
    )
    assert from_new > 0.2 + from_old


def test_the_certificate_covers_both_and_is_checked_and_verified(months, results, tmp_path):
    folder, (first, second, third) = results
    c, before = second.certificate, first.certificate.find("population")
    assert (c.status, c.target, c.target_by, c.releases) == ("CERTIFIED", 0.25, "user", 1)
    population = c.find("population")
    assert before.distance < population.distance <= 0.25
    assert population.persons == before.persons
    assert population.leaves[0].blocks == before.blocks
    both = months[0].iloc[100:]
    counts = pd.crosstab(both["sex"], cells(second, both).to_numpy()).to_numpy()
    exact = float(np.abs(counts[0] / counts[0].sum() - counts[1] / counts[1].sum()).sum() / 2)
    assert exact - 1e-9 <= c.find("together").distance <= exact + 0.001 < 0.25
    for shared, rows in ((second, months[1]), (third, months[2])):
        assert ff.verify(shared.certificate, shared.release, table(rows))
    said = {number: repr(ff.check(folder / number)) for number in "23"}
    assert "cut further since" in said["2"]
    assert "cut further since" in said["3"]
    assert all(ff.check(folder / number) for number in "23")
    values = json.loads((folder / "2" / "certificate.json").read_text())
    place = [s["about"] for s in values["statements"]].index("population")
    for change in ("more", "other leaf", "none"):
        forged = json.loads(json.dumps(values))
        statement = forged["statements"][place]
        if change == "more":
            statement["leaves"][0]["blocks"]["f"][0] += 400
        elif change == "other leaf":
            statement["leaves"][0]["of_cell"][0] = 99
        else:
            statement["leaves"] = []
        (tmp_path / "forged.json").write_text(json.dumps(forged))
        assert not ff.check(tmp_path / "forged.json"), change


def test_later_persons_are_encoded_and_watched(months, results):
    folder, (_, second, _) = results
    release = ff.load(folder / "2" / "model")
    later = with_visits(people(400, 5))
    drawn = release.transform(table(later))
    assert "visits" in drawn
    watched = ff.watch(release).update(table(later))
    assert watched.lamps == {"law": "OK", "bound": "OK"}
    assert watched.bound == second.certificate.find("population").distance
    moved = later[later["sex"] == "m"].assign(grade=9, income=70.0)
    others = later[later["sex"] == "f"]
    assert ff.watch(release).update(table(pd.concat([moved, others]))).lamps["law"] == "MOVED"
    assert ff.certify(second.release, table(later)).find("new persons").p_value > 0.001


def test_cells_are_cut_further_twice(months, results, tmp_path):
    first = results[1][0]
    second = ff.share(table(months[1]), again=first, extend=True, target=0.165).save(tmp_path / "2")
    rows = months[2].assign(shift=np.arange(len(months[2])) % 3)
    third = ff.share(table(rows), again=second, extend=True, target=0.5).save(tmp_path / "3")
    leaves = third.release.released_table.leaves
    assert [part.of_cell.max() + 1 for part in leaves] == [s.release.n_cells_ for s in (second, first)]
    stay = rows.iloc[:-100]
    np.testing.assert_array_equal(leaves[0].of_cell[cells(third, stay)], cells(second, stay))
    assert len(third.certificate.find("population").leaves) == 2
    assert ff.check(tmp_path / "3")
    assert ff.verify(third.certificate, third.release, table(rows))


def test_persons_whose_group_has_changed_cut_no_further(tmp_path):
    """An age is in another group next year: cells had more blocks of the group than the leaf, and nothing was cut."""
    rows = people(2000, 3)
    first = ff.share(table(rows), target=0.15, quick=True, output="cell").save(tmp_path / "1")
    is_older = (np.arange(len(rows)) < 800) & (rows["sex"] == "f")
    rows = with_visits(rows.assign(sex=rows["sex"].mask(is_older, "m")))
    second = ff.share(table(rows), again=first, extend=True, target=0.5, output="cell").save(tmp_path / "2")
    known = second.release.released_table
    place = known.places_of_cut(table(rows).persons, second.release.key_)
    cuts_further = known.cut_leaf[place] >= 0
    assert cuts_further[(place >= 0) & ~is_older].mean() > 0.8
    assert not cuts_further[(place >= 0) & is_older].any()
    assert second.release.n_cells_ > first.release.n_cells_
    assert ff.check(tmp_path / "2")


def test_another_way_to_cut_further_is_another_release(months, results, tmp_path, monkeypatch):
    folder, (first, _, _) = results
    monkeypatch.setenv("FAIRFLOWS_LEDGER", str(folder / "ledger"))
    other = ff.share(table(months[1].drop(columns="plan")), again=first, extend=True, target=0.25)
    with pytest.warns(DataWarning, match="released before"):
        other.save(tmp_path / "other")


@pytest.mark.parametrize(
    ("settings", "change", "message"),
    [
        ({"again": True}, lambda rows: rows.drop(columns=["visits", "plan"]), "cuts cells further by new columns"),
        ({"again": True, "target": 0.1}, lambda rows: rows, "No cell can be cut further within the target"),
        ({"again": True}, lambda rows: rows.drop(columns="grade"), "lacks the column 'grade'"),
        ({}, lambda rows: rows, "name it \\(again="),
    ],
)
def test_what_cannot_be_cut_further_is_said(months, results, settings, change, message):
    again = {"again": results[1][0]} if settings.pop("again", False) else {}
    rows = change(months[1])
    if "grade" not in rows:
        rows = rows.iloc[:-100]
    with pytest.raises(DataError, match=message):
        ff.share(table(rows), extend=True, **settings, **again)

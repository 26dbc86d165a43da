"""An attribute that is not cut, from the table to the certificate."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows.certificate.certificate import status_of
from fairflows.exceptions import DataError

pytestmark = pytest.mark.usefixtures("few_trees")

ROLES = {"sensitive": "age", "label": "paid", "identifier": "person"}


def persons(n: int, seed: int, name: str = "p") -> pd.DataFrame:
    """Persons whose columns tell much of their age."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 78, n)
    tells = age / 10 + rng.normal(size=n)
    return pd.DataFrame(
        {
            "person": [f"{name}{i}" for i in range(n)],
            "age": age,
            "pay": np.round(tells + rng.normal(size=n), 2),
            "town": rng.choice(list("abc"), n),
            "paid": np.where(tells + rng.normal(size=n) > 5, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return persons(2400, 1)


@pytest.fixture(scope="module")
def table(rows) -> ff.Table:
    return ff.Table(rows, uncut="age", **ROLES)


@pytest.fixture(scope="module")
def release(table) -> ff.Release:
    return ff.Release(ff.FairTree(identifier="person"), target=0.2).fit(table)


@pytest.fixture(scope="module")
def certificate(release, table) -> ff.Certificate:
    return ff.certify(release, table, target=0.2)


def test_the_table_shows_halves_and_holds_narrow_groups(table):
    assert table.grouping.n_narrow > 20
    assert np.bincount(table.a).min() > 20
    assert list(table.in_halves().groups) == sorted(table.grouping.halves)
    assert len(table.summary()) == 3
    assert "age is not cut" in table.notes[-1]


def test_edges_follow_from_those_who_choose_the_structure(table, rows):
    """Other ages of all other persons change no edge, and those who chose are in the structure."""
    chose = table.persons.chose_edges
    changed = rows.assign(age=np.where(chose, rows["age"], 18 + (7 * rows["age"] - 3) % 60))
    again = ff.Table(changed, uncut="age", **ROLES)
    assert again.grouping.cuts == table.grouping.cuts
    assert (again.a.to_numpy()[~chose] != table.a.to_numpy()[~chose]).any()
    tree = ff.FairTree(2, identifier="person").fit(table)
    first, others = tree.read(table).split(0.5, 3)
    assert set(np.flatnonzero(chose)) <= set(first)
    assert len(others) == pytest.approx(len(table) / 2, rel=0.02)


def test_a_part_of_the_table_knows_who_chose(table):
    part = table.take(np.arange(0, len(table), 3))
    assert np.array_equal(part.persons.chose_edges, table.persons.chose_edges[::3])
    unnamed = ff.Table(
        table.X.assign(age=np.arange(len(table)) % 50).reset_index(drop=True), sensitive="age", uncut="age"
    )
    assert np.array_equal(unnamed.take([5, 7]).persons.chose_edges, unnamed.persons.chose_edges[[5, 7]])


def test_no_edge_is_a_value_of_many_digits():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"income": np.exp(rng.normal(10, 1, 3000)), "x": rng.random(3000)})
    grouping = ff.Table(rows, sensitive="income", uncut=["income"]).grouping
    assert all(float(f"{edge:.4g}") == edge for edge in grouping.cuts["income"])
    assert 35 < grouping.n_narrow == grouping.wide <= 40


def test_later_rows_have_the_same_narrow_groups(table, release):
    later = ff.Table(persons(300, 2, "later"), cuts=table.grouping, **ROLES)
    assert set(later.a) <= set(range(table.grouping.n_narrow))
    shared = release.transform(later)
    assert list(shared)[:2] == ["pay", "town"]


def test_the_certificate_states_ranks_and_halves(certificate, table):
    found = {s.about: s for s in certificate.statements}
    assert list(found) == ["table", "table rank", "population", "population rank"]
    assert certificate.status == "CERTIFIED"
    assert certificate.covers_population
    assert list(certificate.n) == table.grouping.halves
    assert found["table rank"].counts is None, "counts of narrow groups are not published"
    assert found["table rank"].distance < found["table rank"].known_half <= 0.2
    assert certificate.cell_upper < certificate.rank_upper <= 0.2
    assert "correlation" in repr(certificate)


def test_ranks_in_the_file_are_within_the_statement(release, table, certificate, rows):
    cells = release.table_.kept_cells(table.persons, release.key_)
    narrow, n = table.a.to_numpy(), table.grouping.n_narrow
    weights = (1 / np.bincount(narrow))[narrow] / n
    total = pd.Series(weights).groupby(rows["age"]).sum()
    rank = rows["age"].map(total.cumsum() - total / 2).to_numpy() - 0.5
    sums, mass = np.bincount(cells, weights * rank), np.bincount(cells, weights)
    true = np.sqrt((sums**2 / mass).sum() / (weights * rank**2).sum())
    assert 0 < true <= certificate.find("table rank").distance


def test_check_and_verify(certificate, release, table, tmp_path):
    from fairflows import check

    path = tmp_path / "certificate.json"
    path.write_text(certificate.to_json())
    assert check(path)
    assert ff.verify(certificate, release, table)

    def changed(about: str, **fields: object) -> ff.Certificate:
        statements = tuple(replace(s, **fields) if s.about == about else s for s in certificate.statements)
        return replace(certificate, statements=statements, status=status_of(statements, certificate.target))

    rank = certificate.find("population rank")
    fewer = {name: tuple(2 * b for b in blocks) for name, blocks in rank.blocks.items()}
    wrong = [
        changed("population rank", distance=rank.distance / 2),
        changed("population rank", within=0.0),
        changed("population rank", within=0.5, distance=min(1.0, rank.distance + 0.5 - rank.within)),
        changed("population rank", blocks=fewer),
        changed("population", distance=0.01),
        changed("population rank", delta=0.3),
        changed("table", delta=0.01),
        replace(certificate, labels=("paid",)),  # which cells say nothing about
    ]
    for each in wrong:
        path.write_text(each.to_json())
        assert not check(path), each.statements
    lower = changed("table rank", distance=0.001).sealed(release.key_)
    path.write_text(lower.to_json())
    assert check(path), "no receiver can know it"
    assert not ff.verify(lower, release, table), "the holder of the model can"


def test_a_missed_target_is_not_certified(release, table):
    missed = ff.certify(release, table, target=0.05)
    assert missed.status == "NOT_MET"
    assert not missed.covers_population


def test_new_persons_test_it(release, table):
    others = ff.Table(persons(1200, 3, "new"), cuts=table.grouping, **ROLES)
    tested = ff.certify(release, others, target=0.2).find("new persons")
    assert not tested.contradicts
    assert list(tested.persons) == table.grouping.halves
    moved = persons(1200, 4, "moved")
    moved["pay"] += np.where(moved["age"] > 50, 6, -6)
    assert ff.certify(release, ff.Table(moved, cuts=table.grouping, **ROLES), target=0.2).status == "REFUTED"


def test_what_is_refused(rows, table, release):
    with pytest.raises(DataError, match="only sensitive column"):
        ff.Table(rows, sensitive=["age", "town"], uncut="age")
    with pytest.raises(DataError, match="merge_small"):
        ff.Table(rows, uncut="age", merge_small=50, **ROLES)
    with pytest.raises(DataError, match="column of numbers"):
        ff.Table(rows, sensitive="town", uncut="town")
    with pytest.raises(DataError, match="400 persons and 8 different values"):
        ff.Table(rows.head(300), uncut="age", **ROLES)
    with pytest.raises(DataError, match="FairTree"):
        ff.Release(ff.FairCells(identifier="person")).fit(table)
    with pytest.raises(DataError, match="too few for the target r"):
        ff.Release(ff.FairTree(identifier="person"), target=0.03).fit(table)
    with pytest.raises(DataError, match="spend needs groups, and 'age' is not cut"):
        ff.Release(ff.FairTree(identifier="person"), target=0.3, spend=0.1).fit(table)
    twice = ff.Table(pd.concat([rows, rows.head(50)], ignore_index=True), uncut="age", **ROLES)
    with pytest.raises(DataError, match="one row of every person"):
        ff.Release(ff.FairTree(identifier="person")).fit(twice)
    with pytest.raises(DataError, match="not watched"):
        ff.watch(release).update(table)
    tree = ff.FairTree(identifier="person", n_cells=2).fit(table)
    with pytest.raises(DataError, match="cut it into groups"):
        ff.certify(tree, ff.Table(persons(500, 9, "x"), cuts=table.grouping, **ROLES))


@pytest.mark.slow
def test_share_attacks_and_measures_the_halves(table):
    shared = ff.share(table, target=0.2)
    assert shared.audit.groups == tuple(table.grouping.halves)
    assert shared.audit.attack_lower <= shared.certificate.cell_upper
    assert "correlation at most" in repr(shared)
    assert shared.usefulness.sensitive.told < 0.3

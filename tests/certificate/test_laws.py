"""Which law a certificate is about: a random row of what is released, and a random person; both with a known truth."""

from dataclasses import dataclass
from itertools import count

import numpy as np
import pandas as pd
import pytest
from known_encoders import FixedCells, column

from fairflows import DataError, Release, Table, certify, verify
from fairflows.bounds import cell_upper_bound, delta_of_look, exact_statistical_distance

FIRST = delta_of_look(0.01, 1)
FILES = count()


@dataclass
class Population:
    """Persons of several types, which decide how many rows a person has and what these hold."""

    types: np.ndarray  # (K, T): how likely each type is in each group
    rows: np.ndarray  # (K, T): how many rows a person of the type has
    cells: np.ndarray  # (K, T, k): how likely each cell is in a row of hers
    labels: np.ndarray | None = None  # (K, k): how likely the label 1 is for a row, by group and cell

    def draw(self, n: int, rng: np.random.Generator) -> Table:
        """Rows of n persons whom nobody has seen before."""
        a = rng.integers(len(self.types), size=n)
        t = (rng.random(n)[:, None] > self.types[a].cumsum(axis=1)[:, :-1]).sum(axis=1)
        who = np.repeat(np.arange(n), self.rows[a, t])
        laws = self.cells[a[who], t[who]].cumsum(axis=1)[:, :-1]
        frame = pd.DataFrame({"x": (rng.random(len(who))[:, None] > laws).sum(axis=1), "a": a[who]})
        label = None
        if self.labels is not None:
            label = "y"
            frame["y"] = (rng.random(len(who)) < self.labels[frame["a"], frame["x"]]).astype(int)
        frame["row"] = who + 1_000_000 * next(FILES)
        frame = frame.sample(frac=1, random_state=0).reset_index(drop=True)
        return Table(frame, sensitive="a", label=label, identifier="row", kinds={"x": "categorical"})

    def laws(self, *, of_rows: bool) -> np.ndarray:
        """The law of the cell in each group, of a random row or of a random person's random row, (K, k)."""
        weight = self.types * (self.rows if of_rows else 1)
        law = np.einsum("at,atk->ak", weight, self.cells)
        return law / law.sum(axis=1, keepdims=True)

    def laws_given(self, label: int) -> np.ndarray:
        law = self.laws(of_rows=True) * (self.labels if label else 1 - self.labels)
        return law / law.sum(axis=1, keepdims=True)


HALF = np.full((2, 2), 0.5)
OWN_CELL = np.stack([np.eye(2)] * 2)

VISITS = Population(np.ones((2, 1)), np.full((2, 1), 8), np.array([[[0.7, 0.3]], [[0.3, 0.7]]]))
"""Everybody has eight rows: of three in ten the column is 1 in one group, of seven in ten in the other."""

TELLING = Population(HALF, np.array([[12, 1], [1, 12]]), OWN_CELL)
"""Persons of both groups are alike, but who has many rows is in cell 0 in one group and in cell 1 in the other."""

MIXED = Population(
    np.array([[0.5, 0.5], [0.4, 0.6]]),
    np.array([[1, 2], [1, 8]]),
    np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.8, 0.2], [0.1, 0.9]]]),
)
"""Rows of one person differ, and how many she has depends on group and type."""

THREE = Population(
    np.array([[0.5, 0.5], [0.3, 0.7], [0.6, 0.4]]),
    np.array([[1, 2], [3, 1], [1, 6]]),
    np.array([[[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]]] * 3),
    np.array([[0.2, 0.5, 0.8], [0.3, 0.5, 0.6], [0.2, 0.6, 0.7]]),
)
"""Three groups and a label."""


def release_of(population: Population, rng: np.random.Generator) -> FixedCells:
    return FixedCells(column("x"), population.cells.shape[2]).fit(population.draw(200, rng))


def test_of_several_rows_of_a_person_a_random_one_is_counted():
    """Not always the same value: everybody has rows of both, and Δ would be seen as 0 where it is .4."""
    rng = np.random.default_rng(0)
    release = release_of(VISITS, rng)
    for seed in range(2):
        certificate = certify(release, VISITS.draw(1500, rng), random_state=seed)
        assert certificate.find("population", "person").n == certificate.n, (
            "all have equally many rows, and M is that number"
        )
        assert sum(certificate.n.values()) == 1500
        for law in ("row", "person"):
            statement = certificate.find("population", law)
            assert statement.observed == pytest.approx(0.4, abs=0.1)
            assert 0.4 < statement.distance < 0.55


def test_a_file_of_rows_is_certified_by_rows():
    """Certified ≤ .07 for persons, who tell nothing, while the rows of the file are .846 apart."""
    rng = np.random.default_rng(0)
    truth = exact_statistical_distance(TELLING.laws(of_rows=True))
    assert truth == pytest.approx(11 / 13)
    rows = TELLING.draw(4000, rng)
    model = release_of(TELLING, rng)
    certificate = certify(model, rows, target=0.3)
    assert truth <= certificate.cell_upper < truth + 0.1
    assert certificate.find("population", "person").distance < 0.12
    assert certificate.status == "NOT_MET", "what is released is rows"
    assert certificate.most_rows == 12
    assert [(s.name, s.delta) for s in certificate.statements] == [
        ("population row", FIRST),
        ("population person", FIRST),
    ]
    written = pd.DataFrame({"cell": model.transform(rows)["cell"].to_numpy(), "a": rows.a.to_numpy()})
    counts = pd.crosstab(written["a"], written["cell"], normalize="index").to_numpy()
    assert exact_statistical_distance(counts) == pytest.approx(truth, abs=0.05), "the truth is that of the written file"
    assert "a random person" in repr(certificate)
    assert any("No person has more than 12 rows" in a.text for a in certificate.assumptions)
    assert verify(certificate, model, rows)


def test_both_numbers_are_those_of_their_samples():
    rng = np.random.default_rng(0)
    rows, model = MIXED.draw(2000, rng), release_of(MIXED, rng)
    certificate = certify(model, rows, random_state=5)
    person = certificate.find("population", "person")
    for sample, n, upper in (
        (rows.random_rows(5, most=8), certificate.n, certificate.cell_upper),
        (rows.one_row_per_person(5), person.n, person.distance),
    ):
        assert sample.persons.rows_each().max() == 1
        counts = pd.crosstab(sample.a.to_numpy(), sample.X["x"].to_numpy()).to_numpy()
        assert list(n.values()) == counts.sum(axis=1).tolist()
        assert upper == pytest.approx(cell_upper_bound(counts, FIRST))


def misses(population, statements, *, runs, n, tmp_path, monkeypatch):
    """How often each statement of a certificate is below its truth."""
    rng = np.random.default_rng(3)
    model = release_of(population, rng)
    missed = dict.fromkeys(statements, 0)
    for run in range(runs):
        monkeypatch.setenv("FAIRFLOWS_LEDGER", str(tmp_path / str(run)))
        certificate = certify(model, population.draw(n, rng), delta=0.2, random_state=run)
        for name, (bound, truth) in statements.items():
            missed[name] += bound(certificate) < truth
    return {name: times / runs for name, times in missed.items()}


def test_both_statements_miss_no_more_often_than_delta(tmp_path, monkeypatch):
    """At δ = .2, of which the first look spends .12."""
    rows, persons = (exact_statistical_distance(MIXED.laws(of_rows=of_rows)) for of_rows in (True, False))
    assert abs(rows - persons) > 0.1, "two statements, not one"
    statements = {
        "rows": (lambda c: c.cell_upper, rows),
        "persons": (lambda c: c.find("population", "person").distance, persons),
        "rows by persons": (lambda c: c.find("population", "person").distance, rows),
    }
    missed = misses(MIXED, statements, runs=40, n=400, tmp_path=tmp_path, monkeypatch=monkeypatch)
    assert missed["rows"] <= 0.2
    assert missed["persons"] <= 0.2
    assert missed["rows by persons"] > 0.4, "what this test would show of a certificate that counts persons"


@pytest.mark.slow
def test_of_three_groups_with_labels_all_statements_hold(tmp_path, monkeypatch):
    statements = {
        "rows": (lambda c: c.cell_upper, exact_statistical_distance(THREE.laws(of_rows=True))),
        "label 0": (lambda c: c.cell_odds_upper["0"], exact_statistical_distance(THREE.laws_given(0))),
        "label 1": (lambda c: c.cell_odds_upper["1"], exact_statistical_distance(THREE.laws_given(1))),
        "persons": (
            lambda c: c.find("population", "person").distance,
            exact_statistical_distance(THREE.laws(of_rows=False)),
        ),
    }
    missed = misses(THREE, statements, runs=200, n=600, tmp_path=tmp_path, monkeypatch=monkeypatch)
    assert all(share <= 0.2 for share in missed.values()), missed


def test_the_most_rows_of_a_person_are_stated_before_they_are_seen():
    rng = np.random.default_rng(0)
    few = Population(MIXED.types, np.ones((2, 2), dtype=int), MIXED.cells)
    model = release_of(few, rng)
    rows = MIXED.draw(1000, rng)
    with pytest.raises(DataError, match=r"at most 1 row, which is what was stated or seen in training; .* up to 8"):
        certify(model, rows)
    with pytest.raises(DataError, match="at most 7 rows"):
        certify(model, rows, most_rows=7)
    stated = certify(model, rows, most_rows=16)
    assert stated.most_rows == 16
    assert stated.cell_upper >= exact_statistical_distance(MIXED.laws(of_rows=True))
    assert sum(stated.n.values()) < 0.5 * sum(stated.find("population", "person").n.values()), (
        "half of the largest is taken half as often"
    )
    assert verify(stated, model, rows)


def test_cells_that_were_matched_for_one_attribute_certify_no_other_one():
    """The bound on persons to come is about the groups that the cells were matched for: `b` is told by every cell."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=1200), "a": np.arange(1200) % 2, "person": np.arange(1200)})
    frame["b"] = (frame["x"] > 0).astype(int)
    old, new = frame[:800], frame[800:]
    release = Release(n_cells=4).fit(Table(old.drop(columns="b"), sensitive="a", identifier="person"))
    assert certify(release, Table(new.drop(columns="b"), sensitive="a", identifier="person")).sensitive == ("a",)
    with pytest.raises(DataError, match="The cells were matched for groups of 'a', and say nothing of 'b'"):
        certify(release, Table(new.drop(columns="a"), sensitive="b", identifier="person"))

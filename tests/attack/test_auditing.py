"""audit: bounds that hold, adversaries that find what is there, white-box ones that find what z alone hides."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from known_encoders import FixedCells, column
from scipy.stats import norm

from fairflows import DataError, DataWarning, FairFlow, FairMatching, Release, Table, audit, certify, load_adult
from fairflows.attack.adversaries import LEARNERS
from fairflows.attack.attacked_release import AttackedRelease
from fairflows.certificate.certify import ContradictionError
from fairflows.encoder.base import EncodedColumns, encode_again
from fairflows.paper import make_shifted_gaussians
from fairflows.paper.baselines import RawFeatures

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def adult():
    table = load_adult()
    table.X = table.X[["education", "occupation", "relationship", "race"]]
    train, validation, test = table.paper_split()
    return train.take(np.arange(6000)), validation, test.take(np.arange(8000))


@pytest.fixture(scope="module")
def matching(adult):
    train, _, test = adult
    encoder = FairMatching(gamma=1.0, density="counts").fit(train)
    return encoder, audit(encoder, train, test, quick=True)


@pytest.fixture(scope="module")
def cells(adult):
    train = adult[0]
    return Release(FairMatching(0.9, density="counts"), n_cells=8, output="cell").fit(train)


def pair_of(make, **settings):
    table = make(**settings)[0]
    train, test = table.split(test=0.5, validation=0)
    return train, test


class TestArrays:
    def test_known_distance(self):
        train, test = pair_of(make_shifted_gaussians, distance=1.0, n_samples=8000, random_state=0)
        found = audit((train.X, test.X.to_numpy()), train, test, quick=True)
        truth = 2 * norm.cdf(0.5) - 1
        assert truth - 0.09 < found.attack_lower < truth
        assert found.released == "representation"
        assert set(found.to_frame()["box"]) == {"closed"}

    def test_nothing_there(self):
        train, test = pair_of(make_shifted_gaussians, distance=0.0, n_samples=4000, random_state=0)
        found = audit((train.X, test.X), train, test, quick=True)
        assert found.attack_lower == 0

    def test_every_adversary_reads_enormous_numbers(self):
        train, test = pair_of(make_shifted_gaussians, distance=1.0, n_samples=2000, random_state=1)
        found = audit((1e300 * train.X, 1e300 * test.X), train, test, n_jobs=2)
        assert set(found.to_frame().index) == set(LEARNERS)
        assert (found.to_frame()["lower"] > 0.15).all()
        assert found.best in repr(found)

    def test_lengths_must_fit(self):
        train, test = pair_of(make_shifted_gaussians, distance=1.0, n_samples=400, random_state=0)
        with pytest.raises(DataError, match="as many rows"):
            audit((test.X.iloc[1:], train.X), train, test)
        for wrong in (test.X, (train.X,), 7):
            with pytest.raises(DataError, match=r"pair.*\(Z_train, Z_test\)|must be an encoder of fairflows; got"):
                audit(wrong, train, test)

    def test_a_label_beside_an_array_is_seen(self):
        train, test = pair_of(make_shifted_gaussians, distance=0.0, n_samples=4000, random_state=0)
        train, test = (Table(t.X.assign(a=t.a, y=t.a), sensitive="a", label="y") for t in (train, test))
        assert audit((train.X, test.X), train, test, quick=True).attack_lower == 0
        found = audit((train.X, test.X), train, test, quick=True, with_labels=True)
        assert (found.released, found.labels) == ("representation", ("y",))
        assert found.attack_lower > 0.9, "the label is the group"

    def test_a_missing_group_is_named(self):
        train, test = pair_of(make_shifted_gaussians, distance=1.0, n_samples=400, random_state=0)
        with pytest.raises(DataError, match=r"the test part, \d+ rows of 2 groups, has none of 0"):
            audit((train.X, test.X[test.a == 1]), train, test.take((test.a == 1).to_numpy()))

    @pytest.mark.parametrize("seed", range(4))
    def test_three_persons_of_a_group_are_in_all_parts(self, seed):
        train, test = pair_of(make_shifted_gaussians, distance=1.0, n_samples=400, random_state=0)
        few = train.take(np.r_[np.flatnonzero(train.a == 0), np.flatnonzero(train.a == 1)[:3]])
        group = AttackedRelease.of((few.X, test.X), few, test, seed=seed).group
        assert [np.bincount(group[part])[1] for part in ("reference", "fit", "validation")] == [1, 1, 1]


class TestCategorical:
    def test_matching_and_its_certificate(self, adult, matching):
        encoder, found = matching
        lines = found.to_frame()
        assert {"likelihood ratio", "boosted trees on inversions", "frequencies of values"} <= set(lines.index)
        assert 0.03 < found.attack_lower < 0.3
        assert set(found.density_gap_lower) == {"0", "1"}
        certificate = certify(encoder, adult[2], audit=found)
        assert certificate.attack_lower == found.attack_lower
        assert certificate.find("attack").source == found.best
        assert certificate.model == found.model == found.to_dict()["model"]

    def test_the_same_key_and_seed_give_the_same_audit(self, adult, cells):
        _, others, test = (part.take(np.arange(2000)) for part in adult)
        assert audit(cells, others, test, quick=True) == audit(cells, others, test, quick=True, n_jobs=2)

    def test_a_released_label_is_seen_by_the_adversary(self, adult, cells):
        found = audit(cells, adult[1], adult[2], quick=True, with_labels=True)
        assert found.attack_lower > 0.1, "the label alone tells .20"
        certificate = certify(cells, adult[2], audit=found, with_labels=True)
        assert certificate.cell_upper > found.attack_lower

    def test_a_wrong_density_is_found(self, adult, matching):
        """Women's density fitted to men's rows, and the other way round."""
        train, _, test = adult
        assert max(matching[1].density_gap_lower.values()) < 0.15
        swapped = FairMatching(gamma=1.0, density="counts")
        swapped.fit(train.X, train.y, sensitive_features=1 - train.a)
        assert min(audit(swapped, train, test, quick=True).density_gap_lower.values()) > 0.3


def test_persons_are_the_units():
    """Copies of a person's row are not more persons, and never on both sides of a split."""
    table = make_shifted_gaussians(1.0, 2000, random_state=0)[0]
    frame = table.X.assign(a=table.a.to_numpy(), who=np.arange(2000))
    many = Table(pd.concat([frame] * 3), sensitive="a", identifier="who")
    train, test = many.split(test=0.5, validation=0)
    found = audit((train.X, test.X), train, test, quick=True)
    assert sum(found.n) == 1000
    assert found.attack_lower < 2 * norm.cdf(0.5) - 1


def several_rows(seed, n=2500, group_in_cell=0.0):
    """Persons with one to four rows, more in one group; two cells, which tell the group now and then."""
    rng = np.random.default_rng(seed)
    a = rng.integers(2, size=n)
    who = np.repeat(np.arange(n), rng.integers(1, 3 + a))
    x = np.where(rng.random(len(who)) < group_in_cell, a[who], rng.integers(2, size=len(who)))
    frame = pd.DataFrame({"x": x, "noise": rng.normal(size=len(who)), "a": a[who], "who": who + 1_000_000 * seed})
    return Table(frame, sensitive="a", identifier="who")


@pytest.mark.parametrize("most_rows", [None, 6])
def test_audit_and_certificate_count_the_same_rows(most_rows):
    """At most one row of each person, drawn by the same seed: so a contradiction is noticed."""
    train, test = several_rows(0), several_rows(1)
    release = FixedCells(column("x")).fit(train)
    found = audit(release, train, test, quick=True, most_rows=most_rows, random_state=4)
    certificate = certify(release, test, audit=found, most_rows=most_rows, random_state=4)
    assert tuple(certificate.n.values()) == found.n
    assert sum(found.n) < test.persons.n, "whoever has few rows is taken seldom"
    sample = test.random_rows(4, most_rows or 3)
    assert found.rows == sample.fingerprint(release.key_) != certificate.rows
    lucky = replace(found, attack_lower=certificate.cell_upper + 0.1)
    with pytest.raises(ContradictionError, match="same release on the same rows"):
        certify(release, test, audit=lucky, most_rows=most_rows, random_state=4)
    with pytest.warns(DataWarning, match="on other rows"):
        certify(release, test, audit=lucky, most_rows=most_rows, random_state=5)


class LastDigits(RawFeatures):
    """Hides the group in digits that a float32 number does not have."""

    def learn(self, rows):
        self.output_ = EncodedColumns.of_numbers(["z"])

    def encode(self, rows):
        return pd.DataFrame({"z": np.round(rows.X["noise"], 3) + 1e-12 * rows.group})


class FirstDigits(LastDigits):
    """Hides the group in digits that it has."""

    def encode(self, rows):
        return pd.DataFrame({"z": np.round(rows.X["noise"], 1) + 1e-3 * rows.group})


def test_what_is_written_is_attacked():
    """Numbers in single precision, cells as names without an order."""
    train, test = several_rows(0), several_rows(1)
    assert audit(LastDigits().fit(train), train, test, quick=True).attack_lower < 0.1
    assert audit(FirstDigits().fit(train), train, test, quick=True).attack_lower > 0.9
    target = AttackedRelease.of(LastDigits().fit(train), train, test, quick=True)
    assert {z["z"].dtype for z in target.Z.values()} == {np.dtype(np.float32)}
    cells = AttackedRelease.of(FixedCells(column("x")).fit(train), train, test, quick=True)
    assert set(cells.Z["test"]["cell"]) == {"0", "1"}


def test_adversaries_do_not_meet_again_the_noise_that_they_learnt_from():
    """Equal rows of the training and of the test part would have equal noise, and an adversary knew them by heart."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.integers(0, 3, 300), "v": rng.integers(0, 3, 300), "sex": rng.integers(0, 2, 300)})
    table = Table(frame, sensitive="sex")
    flow = FairFlow(0.5, n_epochs=1, density="mixture", device="cpu").fit(table)
    learnt, tested = (encode_again(flow, table, part) for part in ("fit", "test"))
    assert set(learnt.iloc[:, 0]).isdisjoint(tested.iloc[:, 0])
    pd.testing.assert_frame_equal(encode_again(flow, table, "test"), tested)


def test_bounds_are_printed_rounded_down():
    train, test = pair_of(make_shifted_gaussians, distance=1.0, n_samples=1000, random_state=0)
    found = audit((train.X, test.X), train, test, quick=True)
    attacks = tuple(replace(attack, lower=0.12349) for attack in found.attacks)
    text = repr(replace(found, attacks=attacks, attack_lower=0.12349, density_gap_lower={"0": 0.00019}))
    assert "Δ ≥ 0.1234 (balanced accuracy ≥ 56.1 %)" in text
    assert "0.1235" not in text
    assert "0: 0.0001" in text


def test_persons_that_adversaries_learnt_from_prove_nothing():
    train, _ = pair_of(make_shifted_gaussians, distance=1.0, n_samples=1000, random_state=0)
    both = train.take(np.arange(100))
    with pytest.raises(DataError, match="100 test rows are among the training rows"):
        audit((train.X, both.X), train, both)


def test_gaps_among_numbers_are_seen_by_adversaries():
    """Where the values tell nothing and only their absence does, the audit finds it."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 6000)
    missing = rng.random(6000) < np.where(group == 1, 0.6, 0.1)
    table = Table(
        pd.DataFrame({"x": np.where(missing, np.nan, rng.normal(size=6000)), "a": group}),
        sensitive="a",
    )  # fmt: skip
    train, test = table.split(test=0.5, validation=0)
    assert 0.4 < audit(RawFeatures().fit(train), train, test, quick=True).attack_lower <= 0.5
    names = [part.X["x"].map(lambda value: None if pd.isna(value) else f"{value:.6f}") for part in (train, test)]
    pair = [column.to_frame() for column in names]  # categories, nearly all of them different
    assert 0.4 < audit(pair, train, test, quick=True).attack_lower <= 0.5

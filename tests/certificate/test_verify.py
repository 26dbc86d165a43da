"""verify: a certificate computed again, and what it says of another model, other rows, another look, a forgery."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from known_encoders import ClaimingTree, KnownGaussians

from fairflows import Certificate, FairCells, FairTree, Release, Table, certify, load, save, verify
from fairflows.certificate.about import About
from fairflows.certificate.certify import Case
from fairflows.certificate.statements import blocks_statement

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def adult(adult):
    """A part of its rows: what is verified here holds of few as well as of many."""
    return [part.take(np.arange(n)) for part, n in zip(adult, (6000, 2000, 4000), strict=True)]


@pytest.fixture(scope="module")
def model(adult):
    return ClaimingTree(n_cells=8, key=bytes(32)).fit(adult[0])


@pytest.fixture(scope="module")
def certificate(model, adult, found):
    """For tests that come to no judgement of the look: it is in no test's own book."""
    return certify(model, adult[2], target=0.2, audit=found(model, attack_lower=0.001))


@pytest.fixture
def entered(model, adult, found):
    """A certificate in the test's own book of looks."""
    return certify(model, adult[2], target=0.2, audit=found(model, attack_lower=0.001))


def whats(*arguments):
    return {difference.what for difference in verify(*arguments).differences}


def test_what_was_written_and_read_holds(entered, model, adult):
    assert verify(Certificate.from_json(entered.to_json()), model, adult[2])
    shuffled = adult[2].take(np.random.default_rng(0).permutation(len(adult[2])))
    assert verify(entered, model, shuffled)


@pytest.mark.parametrize(
    "changes", [{"status": "REFUTED"}, {"delta": 7.0}, {"look": 0}, {"released": "latent"}, {"sensitive": ("age",)},
                {"labels": ("income",)}, {"unit": "person"}, {"issued": "2020-01-01"}, {"previous": ("ab" * 32,)},
                {"about": About(purpose="another")}]
)  # fmt: skip
def test_a_changed_statement_breaks_the_seal(certificate, model, adult, changes):
    assert whats(replace(certificate, **changes), model, adult[2]) == {"seal"}


def test_nothing_is_computed_for_a_broken_seal(certificate, model, adult, monkeypatch):
    """A forged number of draws would keep whoever verifies it at work for ever."""

    def refuse(*_, **__):
        raise AssertionError("work was done for a forgery")

    monkeypatch.setattr(Case, "certificate", refuse)
    assert whats(replace(certificate, n_draws=2_000_000_000), model, adult[2]) == {"seal"}


def test_a_seal_made_with_another_key(certificate, model, adult, changed):
    forged = changed(certificate, "attack", distance=0.0).sealed(b"another key")
    assert whats(forged, model, adult[2]) == {"seal"}


@pytest.mark.parametrize(
    ("about", "name"), [("population", "distance"), ("population", "observed"), ("model", "distance")]
)
def test_a_wrong_bound_under_the_right_seal_is_named(certificate, model, adult, changed, about, name):
    """As a bug of the release that made it would leave one."""
    forged = changed(certificate, about, **{name: 0.0123}).sealed(model.key_)
    assert f"{about} row" in whats(forged, model, adult[2])
    assert f"{name} is" in repr(verify(forged, model, adult[2]))


def test_a_wrong_status_or_count_under_the_right_seal_is_named(certificate, model, adult, changed):
    assert whats(replace(certificate, status="NOT_MET").sealed(model.key_), model, adult[2]) == {"status"}
    printed = certificate.headline.counts
    group, counts = next(iter(printed.counts.items()))
    other = replace(printed, counts={**printed.counts, group: counts[::-1]})
    forged = changed(certificate, counts=other).sealed(model.key_)
    assert "the counts are not those of these rows" in repr(verify(forged, model, adult[2]))


def test_a_statement_that_was_left_out_or_added_is_named(certificate, model, adult):
    fewer = replace(certificate, statements=certificate.statements[1:]).sealed(model.key_)
    assert "population row" in whats(fewer, model, adult[2])
    added = replace(certificate.headline, law="person")
    more = replace(certificate, statements=(*certificate.statements, added)).sealed(model.key_)
    assert "population person" in whats(more, model, adult[2])


@pytest.mark.parametrize("changes", [{"delta": 7.0}, {"look": 0}, {"n_draws": 0}, {"n_draws": 2_000_000_000},
                                     {"most_rows": 0}])  # fmt: skip
def test_settings_that_no_certificate_has(certificate, model, adult, changes):
    assert whats(replace(certificate, **changes).sealed(model.key_), model, adult[2]) >= {"settings"}


def test_draws_that_cannot_be_kept_are_refused_before_they_are_made(monkeypatch):
    """Sealed or not: 90,000,000 draws are within reason for no table of log-densities."""
    rng = np.random.default_rng(0)
    train, test = (Table({"x": rng.normal(size=500), "a": np.arange(500) % 2}, sensitive="a") for _ in range(2))
    encoder = KnownGaussians([0.0, 1.0]).fit(train)
    certificate = replace(certify(encoder, test, n_draws=1000), n_draws=90_000_000).sealed(encoder.key_)
    difference = verify(certificate, encoder, test).differences[-1]
    assert difference.what == "settings"
    assert "n_draws must be at most 67,108,864 for 2 groups" in difference.text
    with pytest.raises(ValueError, match="n_draws must be at most 67,108,864 for 2 groups"):
        certify(encoder, test, n_draws=90_000_000)


def test_other_rows(certificate, model, adult):
    assert whats(certificate, model, adult[1]) == {"rows"}
    one_less = adult[2].take(np.arange(1, len(adult[2])))
    assert "rows" in whats(certificate, model, one_less)


def test_another_model(certificate, model, adult):
    train, _, test = adult
    other = ClaimingTree(n_cells=8, key=bytes(32), random_state=1).fit(train)
    assert whats(certificate, other, test) == {"model"}
    other_cells = ClaimingTree(n_cells=9, key=bytes(32)).fit(train)
    assert whats(certificate, other_cells, test) == {"model"}


def test_another_model_with_another_key(certificate, adult):
    """Under another key nothing but the model can be judged: neither the rows nor the seal is to blame."""
    other = ClaimingTree(n_cells=8, key=b"k" * 32).fit(adult[0])
    assert whats(certificate, other, adult[2]) == {"model"}
    assert "no more can be said" in repr(verify(certificate, other, adult[2]))


def test_rows_that_the_model_cannot_read(certificate, model, adult):
    test = adult[2]
    strange = Table(test.X.assign(a=test.a + 1, y=test.y), sensitive="a", label="y")
    lacking = Table(test.X.iloc[:, 1:].assign(a=test.a, y=test.y), sensitive="a", label="y")
    assert whats(certificate, model, strange) == {"rows"}
    assert whats(certificate, model, lacking) == {"rows"}


def test_reused_rows(model, adult, monkeypatch, ledger_of_test):
    """The best of several looks, dressed up as the first: made with a book of looks of its own."""
    test = adult[2]
    frame = test.X.assign(sex=test.a, income=test.y, person=[f"p{i}" for i in range(len(test))])
    named = Table(frame, sensitive="sex", label="income", identifier="person")
    entered, again = (certify(model, named, target=0.2, random_state=seed) for seed in (0, 7))
    assert (entered.look, again.look) == (1, 2)
    monkeypatch.setenv("FAIRFLOWS_LEDGER", str(ledger_of_test / "other"))
    best = certify(model, named, target=0.2, random_state=3)
    assert best.look == 1
    monkeypatch.setenv("FAIRFLOWS_LEDGER", str(ledger_of_test))
    (ledger_of_test / "other").rename(ledger_of_test.parent / f"{ledger_of_test.name}-other")
    assert whats(best, model, named) == {"look"}
    assert "Another certificate is look 1" in repr(verify(best, model, named))
    assert verify(again, model, named)


def test_training_rows(certificate, model, adult):
    checked = verify(certificate, model, adult[0].take(np.arange(5000)))
    assert "fitted to" in repr(checked)
    assert not checked


def test_cells_of_rows_without_names_are_said_not_to_be_counted_again():
    """Folds and coins of such rows are gone: the model could keep any counts."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=900).round(2), "a": rng.choice(["f", "m"], 900), "who": range(900)})
    named, bare = Table(frame, sensitive="a", identifier="who"), Table(frame[["x", "a"]], sensitive="a")
    for fitted, rows, is_counted in ((named, named, True), (named, bare, False), (bare, bare, False)):
        release = Release(n_cells=4, output="cell").fit(fitted)
        found = verify(certify(release, fitted, target=0.5), release, rows)
        assert found
        assert ("everything was computed again" in repr(found)) == is_counted
        assert ("not put into cells again" in repr(found)) != is_counted


def patients(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    frame = pd.DataFrame({"x": rng.normal(size=n).round(2), "z": rng.integers(9, size=n) + (sex == "m"), "sex": sex})
    ill = np.where(frame["x"] + rng.normal(size=n) > 0, "yes", "no")
    return Table(frame.assign(ill=ill, who=range(n)), sensitive="sex", label="ill", identifier="who")


@pytest.fixture(scope="module")
def releases():
    """A release of each kind: by two cuts, and by cells that held-out persons count."""
    encoders = {"tree": FairTree(identifier="who"), "cells": FairCells(identifier="who")}
    return {
        name: Release(encoder, n_cells=4, target=0.6, output="cell").fit(patients())
        for name, encoder in encoders.items()
    }


KINDS = pytest.mark.parametrize("kind", ["tree", "cells"])


@KINDS
@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"released": "row"}, "released"),
        ({"released": "latent"}, "released"),
        ({"sensitive": ("age",)}, "sensitive"),
        ({"unit": "row"}, "unit"),
        ({"n": {"f": 1, "m": 1}}, "n"),
        ({"n_cells": 8}, "n_cells"),
        ({"labels": ("ill",)}, "n_cells"),
    ],
)
def test_a_wrong_field_of_a_release_under_the_right_seal_is_named(releases, kind, changes, what):
    release = releases[kind]
    certificate = certify(release, patients(), target=0.6)
    assert verify(certificate, release, patients())
    assert what in whats(replace(certificate, **changes).sealed(release.key_), release, patients())


def test_blocks_that_are_not_those_of_the_model_are_named(releases):
    release = releases["tree"]
    certificate = certify(release, patients())
    table, to_come = certificate.statements
    blocks = {group: (b[0] + 5, b[1] - 5, *b[2:]) for group, b in to_come.blocks.items()}
    forged = replace(certificate, statements=(table, blocks_statement(blocks, to_come.delta))).sealed(release.key_)
    assert "population row: the blocks are not those of these rows." in repr(verify(forged, release, patients()))


def moved(counts):
    """The same counts, with three of the first cell in the second."""
    changed = np.array(counts)
    changed[..., 0, 0] -= 3
    changed[..., 0, 1] += 3
    return changed


def with_table(release, **changes):
    release.table_ = replace(release.table_, **{name: change(release.table_) for name, change in changes.items()})


def with_threshold(release):
    tree = release.encoder_.tree_
    release.encoder_.tree_ = replace(tree, threshold=np.nextafter(tree.threshold, np.inf))


FORGERIES = {
    ("tree", "counts of the table"): lambda r: with_table(r, counts=lambda t: moved(t.counts)),
    ("cells", "counts of the table"): lambda r: with_table(r, counts=lambda t: moved(t.counts)),
    ("tree", "kept cells"): lambda r: with_table(r, cell=lambda t: np.roll(t.cell, 1)),
    ("cells", "kept cells"): lambda r: with_table(r, cell=lambda t: np.roll(t.cell, 1)),
    ("tree", "blocks"): lambda r: with_table(r, blocks=lambda t: moved(t.blocks)),
    ("tree", "thresholds for persons to come"): with_threshold,
    ("cells", "counts of held-out persons"): lambda r: with_table(
        r, held_out=lambda t: {law: moved(counts) for law, counts in t.held_out.items()}
    ),
}


@pytest.mark.filterwarnings("ignore:Another model was certified on some of these persons")
@pytest.mark.parametrize(("kind", "what"), FORGERIES)
def test_a_forged_model_does_not_verify_its_own_certificate(releases, kind, what, tmp_path):
    """The holder of the key changes what the model keeps, and certifies by it: only the persons themselves show it."""
    save(releases[kind], tmp_path / "model")
    model = load(tmp_path / "model")
    assert verify(certify(model, patients(), target=0.6), model, patients())
    FORGERIES[kind, what](model)
    forged = certify(model, patients(), target=0.6)
    assert forged.sealed(model.key_) == forged
    assert not verify(forged, model, patients())

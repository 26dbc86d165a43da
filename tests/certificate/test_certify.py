"""certify: status, refusals, joint releases, groups, attacks, what is said of it."""

from dataclasses import replace
from datetime import date

import numpy as np
import pandas as pd
import pytest
from known_encoders import FixedCells, column

from fairflows import DataError, FairMatching, FairTree, Table, certify, verify
from fairflows.bounds import cell_upper_bound, delta_of_look, exact_statistical_distance
from fairflows.certificate.looks import open_looks
from fairflows.encoder.base import cells_of
from fairflows.table.ledger import RowsSeen

pytestmark = pytest.mark.usefixtures("few_trees")

FIRST = delta_of_look(0.01, 1)


def counts_of(model, rows, where=slice(None)):
    cells = cells_of(model, rows)[where]
    group = pd.Index(model.groups_).get_indexer(rows.a)[where]
    counts = np.zeros((len(model.groups_), model.n_cells_))
    np.add.at(counts, (group, cells), 1)
    return counts, cells, group


def spent(certificate):
    """The probability of error of each statement; of those given a label together."""
    sums = {}
    for s in certificate.statements:
        name = s.name if s.given is None else "given"
        sums[name] = sums.get(name, 0.0) + s.delta
    return sums


def next_look(rows):
    with open_looks() as looks:
        return looks.find(RowsSeen.of(rows.X, rows.persons, looks.key), "a model", "a new request")[0].number


def test_cells_of_adult_are_certified(model, adult):
    test = adult[2]
    certificate = certify(model, test, target=0.05)
    counts, _, _ = counts_of(model, test)
    assert certificate.status == "CERTIFIED"
    assert certificate.cell_upper == pytest.approx(cell_upper_bound(counts, FIRST))
    assert certificate.headline.met
    assert certificate.n == {"0": int(counts[0].sum()), "1": int(counts[1].sum())}
    assert certificate.model_upper == 0
    assert spent(certificate) == {"population row": FIRST, "given": FIRST, "model row": 0.0}
    assert certificate.attack_lower is None
    assert certificate.find("population", "person") is None, "every row is another person: one statement is enough"
    assert certificate.sensitive == ("sex",)
    assert (certificate.released, certificate.labels, certificate.unit) == ("cell", (), "row")
    assert certificate.issued == date.today().isoformat()
    assert "sex" in repr(certificate)
    assert verify(certificate, model, test)


def test_equalized_odds_are_bounded_within_labels(model, adult):
    test = adult[2]
    certificate = certify(model, test)
    by_label = {str(y): counts_of(model, test, (test.y == y).to_numpy())[0] for y in test.labels}
    for label, counts in by_label.items():
        from_full_counts = cell_upper_bound(counts, FIRST / 2)
        assert from_full_counts - 1e-12 <= certificate.cell_odds_upper[label] <= from_full_counts + 0.1
    given = [statement for statement in certificate.statements if statement.given is not None]
    assert certificate.cell_odds_upper == {statement.given: statement.distance for statement in given}
    assert sum(statement.delta for statement in given) == pytest.approx(FIRST)


def test_every_statement_says_whether_the_target_is_met(model, adult):
    test = adult[2]
    assert [s.met for s in certify(model, test).statements] == [None] * 4, "nothing was asked for"
    low = certify(model, test, target=0.03)
    assert {s.name: s.met for s in low.statements if s.given is None} == {"population row": False, "model row": True}
    assert low.status == "MODEL_ONLY"


def test_a_latent_is_never_more_than_model_only(adult, found):
    train, _, test = adult
    encoder = FairMatching(gamma=1.0, density="counts").fit(train)
    certificate = certify(encoder, test, target=0.5)
    assert certificate.status == "MODEL_ONLY"
    assert certificate.released == "latent"
    assert certificate.cell_upper is None
    attacked = found(encoder, released="latent", attack_lower=certificate.model_upper + 0.02)
    refuted = certify(encoder, test, target=0.5, audit=attacked)
    assert refuted.status == "REFUTED"
    assert "the densities err by at least 0.0200 together" in repr(refuted)


def test_certified_comes_before_refuted(model, adult, found):
    """Cells are certified on the truth: that the densities are wrong takes nothing from it."""
    certificate = certify(model, adult[2], target=0.05, audit=found(model, attack_lower=0.01))
    assert certificate.model_upper < 0.01
    assert certificate.status == "CERTIFIED"


@pytest.fixture(scope="module")
def split(adult):
    """Adult matched within labels: a distance between .05 and .5."""
    encoder = FairMatching(gamma=0.0, density="counts").fit(adult[0])
    assert 0.05 < exact_statistical_distance(encoder.latent_laws_) < 0.5
    return encoder


@pytest.mark.parametrize(
    ("target", "status"), [(None, "MODEL_ONLY"), (0.5, "MODEL_ONLY"), (0.05, "NOT_MET"), (0.0, "NOT_MET")]
)
def test_status_without_cells(adult, split, target, status):
    assert certify(split, adult[2], target=target).status == status


def test_cell_and_label_are_certified_as_a_pair(model, adult):
    """What the label itself tells is in the bound: Adult's labels alone are .20 apart."""
    test = adult[2]
    alone, pair = certify(model, test), certify(model, test, with_labels=True)
    gap = abs(np.subtract(*[(test.y[test.a == a] == 1).mean() for a in test.groups]))
    assert pair.cell_upper > gap > alone.cell_upper
    assert pair.n_cells == 2 * alone.n_cells
    _, cells, group = counts_of(model, test)
    joint = np.zeros((2, 16))
    np.add.at(joint, (group, cells * 2 + test.y.to_numpy()), 1)
    assert pair.labels == (test.y.name,)
    printed = pair.headline.counts
    assert [list(counts) for counts in printed.counts.values()] == joint[:, list(printed.cells)].tolist()
    assert pair.cell_upper >= cell_upper_bound(joint, FIRST) - 1e-12
    assert pair.model_upper is None, "no density says how z and y go together"
    assert verify(pair, model, test)


def test_coins_of_named_persons_are_kept_and_of_others_fresh(model, adult):
    test = adult[2].take(np.arange(2000))
    unnamed = certify(model, test)
    frame = test.X.assign(sex=test.a, income=test.y, who=[f"p{i}" for i in range(len(test))])
    named = certify(model, Table(frame, sensitive="sex", label="income", identifier="who"))
    assert any("fresh for every row" in a.text for a in unnamed.assumptions)
    assert any("No identifier says whose rows" in a.text for a in unnamed.assumptions)
    assert not any("No person has more than" in a.text for a in (*named.assumptions, *unnamed.assumptions))
    assert any("secret" in a.text for a in named.assumptions)
    assert not any("fresh for every row" in a.text for a in named.assumptions)


def test_a_group_too_small_for_the_target_is_refused_with_the_number_needed(model, adult):
    few = adult[2].take(np.arange(400))
    with pytest.raises(DataError, match=r"too small for the target Δ ≤ 0.05.*need ([\d,]+) of '0', ([\d,]+) of '1'"):
        certify(model, few, target=0.05)
    assert next_look(few) == 1, "the sizes of the groups are no look at what is released"
    assert certify(model, few, target=0.4).status == "CERTIFIED"


def test_training_rows_are_refused(adult):
    train, validation, _ = adult
    model = FairTree(n_cells=8).fit(train)
    with pytest.raises(DataError, match="fitted to, or chosen by, 5,000 of the 5,000 rows"):
        certify(model, train.take(np.random.default_rng(0).permutation(len(train))[:5000]))
    certify(model, validation)
    model.ledger_.use(validation.X, validation.persons)
    with pytest.raises(DataError, match="chosen by"):
        certify(model, validation)


def test_named_persons_are_recognised_in_any_row(adult):
    train = adult[0].take(np.arange(3000))
    frame = train.X.assign(a=train.a, y=train.y, who=[f"p{i}" for i in range(3000)])
    encoder = FairMatching(0.9, density="counts").fit(Table(frame, sensitive="a", label="y", identifier="who"))
    other = adult[1].take(np.arange(3000))
    strangers = other.X.assign(a=other.a, y=other.y, who=[f"q{i}" for i in range(3000)])
    assert certify(encoder, Table(strangers, sensitive="a", label="y", identifier="who")).status == "MODEL_ONLY"
    strangers.loc[strangers.index[5], "who"] = "p77"
    with pytest.raises(DataError, match="1 of the 3,000 persons"):
        certify(encoder, Table(strangers, sensitive="a", label="y", identifier="who"))
    renamed = frame.assign(who=[f"q{i}" for i in range(3000)])
    with pytest.raises(DataError, match="fitted to, or chosen by, 3,000 of the 3,000 persons"):
        certify(encoder, Table(renamed, sensitive="a", label="y", identifier="who"))


def test_an_attack_on_another_release_is_refused(model, adult, found):
    with pytest.raises(ValueError, match="must have attacked what is released"):
        certify(model, adult[2], audit=found(model, released="latent"))


def test_an_attack_on_another_model_is_refused(model, adult, found):
    other = FairTree(n_cells=2, key=bytes(32)).fit(adult[0])
    with pytest.raises(ValueError, match="it attacked another one"):
        certify(model, adult[2], audit=found(other))
    with pytest.raises(ValueError, match="it attacked an array"):
        certify(model, adult[2], audit=replace(found(model), model=""))
    assert next_look(adult[2]) == 1, "what was refused has not looked"


@pytest.mark.parametrize("wrong", [-1, 2])
def test_a_cell_that_is_none_of_them_is_refused(wrong):
    """Counted as it is, −1 would be the last cell: certified .291 where what is released is .732 apart."""
    rng = np.random.default_rng(0)
    tables = []
    for _ in range(2):
        a = rng.integers(2, size=2000)
        x = np.where(rng.random(2000) < np.where(a == 1, 0.8, 0.1), wrong, rng.integers(2, size=2000))
        tables.append(Table({"x": x, "a": a}, sensitive="a"))
    model = FixedCells(column("x")).fit(tables[0])
    with pytest.raises(
        DataError, match=rf"FixedCells must give cells in 0 … 1 .*\d rows have another, the first {wrong}\."
    ):
        certify(model, tables[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"delta": 0}, "delta must be"),
        ({"target": 1.5}, r"target must be a distance in \[0, 1\]; got 1.5"),
        ({"target": 0.0}, "no number of persons proves Δ = 0"),
        ({"n_draws": 0}, "n_draws must be a whole number of at least 1; got 0"),
        ({"n_draws": 2_000_000_000}, "n_draws must be at most 67,108,864 for 2 groups"),
        ({"random_state": None}, "random_state must be a whole number of at least 0; got None"),
        ({"most_rows": 3}, "most_rows must be 1 where no identifier says whose rows these are; got 3"),
    ],
)
def test_wrong_arguments_are_named(model, adult, arguments, message):
    with pytest.raises(ValueError, match=message):
        certify(model, adult[2], **arguments)
    assert next_look(adult[2]) == 1, "what was refused has not looked"

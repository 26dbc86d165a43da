"""The ledger recognises persons and rows that were seen before, and nothing more."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from fairflows import DataError, load_adult
from fairflows.table.ledger import Ledger, RowsSeen
from fairflows.table.persons import Persons

KEY = b"a secret of thirty-two bytes ...."


@pytest.fixture(scope="module")
def parts():
    return load_adult().split(random_state=0)


def ledger_of(X):
    """The ledger of a model that was fitted to rows which nobody named."""
    return Ledger.of(X, Persons.unnamed(len(X)), KEY)


def read(ledger, X):
    return RowsSeen.of(X, Persons.unnamed(len(X)), ledger.key)


def test_named_persons_are_found_wherever_their_rows_went():
    frame = pd.DataFrame({"x": range(100)}, index=pd.Index([f"id{i // 2}" for i in range(100)], name="member"))
    ledger = Ledger.of(frame, Persons.of(frame.index), KEY)
    moved = frame.iloc[::-1].assign(x=0.5)
    assert ledger.already_used(RowsSeen.of(moved, Persons.of(moved.index), ledger.key)) == 50, (
        "persons, not rows, and whatever their values are now"
    )
    strangers = frame.set_axis(pd.Index([f"new{i}" for i in range(100)], name="member")).assign(x=range(100, 200))
    assert ledger.already_used(RowsSeen.of(strangers, Persons.of(strangers.index), ledger.key)) == 0
    renamed = frame.set_axis(strangers.index)
    assert ledger.already_used(RowsSeen.of(renamed, Persons.of(renamed.index), ledger.key)) == 100, (
        "rows that nobody else has"
    )


def test_training_rows_are_refused_under_any_name():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=500)})
    named = Ledger.of(frame, Persons.of(np.arange(500)), KEY)
    named.refuse_training_rows(frame, Persons.of([f"{i:07d}" for i in range(500)]))  # known by name, as others encode
    with pytest.raises(DataError, match="fitted to 500 of these rows at least .* under other names"):
        named.refuse_training_rows(frame, Persons.of(np.arange(500) + 10**6))
    unnamed = ledger_of(frame)
    for persons in (Persons.unnamed(500), Persons.of(np.arange(500))):
        with pytest.raises(DataError, match="fitted to 500 of these rows at least .* without an identifier") as error:
            unnamed.refuse_training_rows(frame, persons)
        assert "identifier=" not in str(error.value), "no advice that would get around it"


def test_the_parts_of_one_table_do_not_overlap(parts):
    """Six categorical columns: most rows of one part are like rows of another."""
    train, validation, test = parts
    ledger = ledger_of(train.X)
    assert ledger.already_used(read(ledger, test.X)) == 0
    assert ledger.already_used(read(ledger, validation.X)) == 0
    shuffled = train.X.sample(2000, random_state=0).reset_index(drop=True)
    assert ledger.already_used(read(ledger, shuffled)) == 2000, "fresh rows would have brought new values"
    assert ledger.already_used(read(ledger, train.X.iloc[:20])) == 0, "so few might have brought none"
    assert not ledger.comparable(read(ledger, train.X.iloc[:20])), "so the certificate says that it took it on trust"


def test_single_rows_are_recognised_where_no_two_are_alike():
    rng = np.random.default_rng(0)
    train, new = (pd.DataFrame({"x": rng.normal(size=2000), "y": rng.normal(size=2000)}) for _ in range(2))
    ledger = ledger_of(train)
    assert ledger.already_used(read(ledger, train.iloc[[7]])) == 1
    assert ledger.already_used(read(ledger, pd.concat([new, train.iloc[:40]]))) == 40
    assert ledger.already_used(read(ledger, new)) == 0


@pytest.mark.parametrize("n_values", [20_000, 200_000, 2_000_000])
def test_rows_that_are_alike_by_chance_are_not_taken_for_the_same(n_values):
    rng = np.random.default_rng(0)
    for _ in range(20):
        train, new = (pd.DataFrame({"x": rng.integers(n_values, size=2000)}) for _ in range(2))
        ledger = ledger_of(train)
        assert ledger.already_used(read(ledger, new)) == 0


@pytest.mark.parametrize("seed", range(5))
def test_unrelated_files_of_any_two_laws_are_not_mistaken_for_each_other(seed):
    """Values rare in one file and common in the other, as after a drift, are alike by chance, and no more."""
    rng = np.random.default_rng(seed)
    mild, steep = rng.dirichlet(np.ones(3000)), rng.dirichlet(np.full(3000, 0.1))
    one, two = (pd.DataFrame({"x": rng.choice(3000, n, p=p)}) for n, p in ((2000, mild), (3000, steep)))
    ledger = ledger_of(one)
    alike = np.intersect1d(*(part["x"].value_counts().loc[lambda n: n == 1].index for part in (one, two)))
    assert len(alike) > 20, "the case that this test is about"
    assert ledger.already_used(read(ledger, two)) == 0


def test_rows_that_are_all_common_cannot_be_told_apart():
    few = pd.DataFrame({"x": np.arange(1000) % 5})
    ledger = ledger_of(few)
    shuffled = few.sample(frac=1, random_state=0).reset_index(drop=True)
    assert not ledger.comparable(read(ledger, shuffled)), "so the certificate says that it took this on trust"


def test_json_keeps_everything_but_the_key(parts):
    train, _, test = parts
    ledger = ledger_of(train.X.iloc[:500])
    ledger.use(test.X.iloc[:500], Persons.unnamed(500))
    text = json.dumps(ledger.to_dict())
    assert KEY.decode() not in text
    again = Ledger.from_dict(json.loads(text), KEY)
    assert again.to_dict() == ledger.to_dict()
    assert again.already_used(read(again, test.X.iloc[:100])) == 100
    without = Ledger.from_dict(json.loads(text), b"another key")
    assert without.already_used(read(without, train.X.iloc[:500])) == 0, "hashes say nothing without the key"


def test_rows_that_come_in_several_threads_are_looked_up():
    """An index of pandas 2 is not ready for a second thread while the first one fills it."""
    hashes = np.random.default_rng(0).integers(0, 2**63, 200_000).astype(np.uint64)
    other = RowsSeen(True, hashes[:1] + np.uint64(1), hashes[:1])
    for _ in range(5):
        seen = RowsSeen(True, hashes, hashes)
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(seen.under_other_names, [other] * 16)) == {1}, "one row under another name"

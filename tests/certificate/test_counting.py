"""Certificates are counted for persons: whatever is fitted again, saved elsewhere, or done at the same time."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from fairflows import DataWarning, FairTree, Table, certify, load, save, verify
from fairflows.bounds import delta_of_look
from fairflows.certificate.certify import Case
from fairflows.certificate.looks import open_looks
from fairflows.table.ledger import RowsSeen
from processes import start

pytestmark = pytest.mark.usefixtures("few_trees")

TWO_MODELS = "two models' encodings of one person"


def people(seed, n=800, names="{seed}-{i}"):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": rng.normal(size=n).round(3), "z": rng.normal(size=n).round(3)})
    frame = frame.assign(a=rng.integers(2, size=n), y=(frame["x"] > 0).astype(int))
    frame["who"] = [names.format(seed=seed, i=i) for i in range(n)]
    return Table(frame, sensitive="a", label="y", identifier="who")


def fitted(**settings):
    return FairTree(2, **settings).fit(people(0))


def numbers_given(n):
    model, rows = fitted(key=bytes(32)), people(1)
    return [certify(model, rows, random_state=seed).look for seed in range(n)]


def test_the_same_request_gives_the_same_certificate():
    """The same counts are known already: nothing new is looked at, and nothing is spent."""
    model, rows = fitted(), people(1)
    first, second, third = (certify(model, rows) for _ in range(3))
    assert first == second == third
    assert first.look == 1
    shuffled = rows.take(np.random.default_rng(0).permutation(len(rows)))
    assert certify(model, shuffled) == first, "the order of the rows does not matter"


def test_a_target_or_an_attack_is_no_new_look(found):
    """Neither changes what is counted, nor the bound."""
    model, rows = fitted(), people(1)
    first = certify(model, rows)
    other = certify(model, rows, target=0.5, audit=found(model, attack_lower=0.01))
    assert (other.look, other.cell_upper) == (1, first.cell_upper)
    assert verify(first, model, rows)
    assert verify(other, model, rows)


def test_each_new_look_at_the_same_persons_spends_its_share():
    model, rows = fitted(), people(1)
    settings = [{}, {"random_state": 1}, {"random_state": 2}, {"delta": 0.1}, {"with_labels": True}]
    looks = [certify(model, rows, **values) for values in settings]
    assert [c.look for c in looks] == [1, 2, 3, 4, 5]
    assert ["look" in {a.key for a in c.assumptions} for c in looks] == [False, *[True] * 4]
    assert [c.headline.delta for c in looks[:3]] == [delta_of_look(0.01, j) for j in (1, 2, 3)]
    assert looks[0].cell_upper < looks[1].cell_upper < looks[2].cell_upper
    assert certify(model, people(2)).look == 1, "other persons"
    assert all(verify(certificate, model, rows) for certificate in looks)
    assert "look" not in [a.key for a in looks[0].assumptions]
    assert any("This is look 3 of these persons" in a.text for a in looks[2].assumptions)
    assert "look 3 of these persons" in repr(looks[2])
    assert certify(model, rows, **settings[2]) == looks[2], "an earlier look stays what it was"


@pytest.mark.filterwarnings(f"ignore:.*{TWO_MODELS}")
def test_fitting_again_until_lucky_is_counted(tmp_path):
    """Every fit has a key and a ledger of its own, and may go to the same folder or to another."""
    rows, looks = people(1), []
    for attempt in range(4):
        save(fitted(random_state=attempt), tmp_path / f"out{attempt % 2}")
        looks.append(certify(load(tmp_path / f"out{attempt % 2}"), rows).look)
    assert looks == [1, 2, 3, 4]


@pytest.mark.filterwarnings(f"ignore:.*{TWO_MODELS}")
def test_persons_are_recognised_however_they_are_written():
    first = people(1, names="{i}")
    again = people(1, names="{i:07d}.0").take(np.random.default_rng(0).permutation(800)[:500])
    assert certify(fitted(), first).look == 1
    assert certify(fitted(), again).look == 2, "some of the same persons, spelt differently"
    without = Table(first.X.assign(a=first.a, y=first.y).reset_index(drop=True), sensitive="a", label="y")
    unnamed = certify(fitted(), without)
    assert unnamed.look == 1, "the same rows, and nobody says whose: what cannot be counted is said"
    assert "looks not counted" in {assumption.key for assumption in unnamed.assumptions}
    assert "earlier looks are not counted" in repr(unnamed)


def test_a_second_model_on_the_same_persons_warns():
    certify(fitted(), people(1))
    with pytest.warns(DataWarning, match=TWO_MODELS):
        assert certify(fitted(), people(1)).look == 2


def test_a_certificate_that_was_interrupted_has_looked(monkeypatch):
    model, rows = fitted(), people(1)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Case, "certificate", interrupt)
        with pytest.raises(KeyboardInterrupt):
            certify(model, rows)
    assert certify(model, rows, random_state=1).look == 2
    assert certify(model, rows).look == 1, "made in the end, it is what it would have been"


def write_numbers_given(path):
    path.write_text(" ".join(map(str, [*numbers_given(4), "torch" in sys.modules])))


def test_two_processes_count_together(tmp_path):
    running = [start(write_numbers_given, tmp_path / str(i)) for i in range(2)]
    for process in running:
        process.join()
    told = [path.read_text().split() for path in tmp_path.iterdir()]
    given = [sorted(int(number) for number in numbers) for *numbers, _ in told]
    assert given == [[1, 2, 3, 4]] * 2, "the same requests are the same looks, whoever comes first"
    with open_looks() as looks:
        rows = RowsSeen.of(people(1).X, people(1).persons, looks.key)
        assert [look.number for look in looks.at(rows)] == [1, 2, 3, 4]
    assert [has_torch for *_, has_torch in told] == ["False", "False"], (
        "cells of scores need no torch, which loads slowly"
    )


def test_four_threads_count_together():
    model, rows = fitted(), people(1)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda seed: certify(model, rows, random_state=seed), range(8)))
    assert sorted(certificate.look for certificate in made) == list(range(1, 9))
    assert all(verify(certificate, model, rows) for certificate in made)

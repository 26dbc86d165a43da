"""The whole job: a table to share, its certificate, and what is said of both."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows.bounds.derived import rounded_up


def test_share_fits_attacks_and_certifies(shared, adult):
    c = shared.certificate
    assert c.status == "CERTIFIED"
    assert c.cell_upper <= 0.2
    assert shared.audit.attack_lower <= c.cell_upper
    assert shared.meets_target
    assert shared.certificate.table_distance is not None
    assert sum(c.n.values()) == len(adult), "every row is counted"
    assert [s.about for s in c.statements] == ["table", "population"], "the adversaries attacked a second release"
    assert c.table_distance < 0.03 < c.known_half <= 0.2
    assert c.look == 0, "trees look at nobody"
    assert ff.certify(shared.release, adult, target=0.2) == ff.certify(shared.release, adult, target=0.2)


def test_the_shared_table_is_shuffled_and_has_a_fresh_index(shared, adult):
    assert list(shared.table.index) == list(range(len(adult)))
    with pytest.warns(ff.DataWarning, match="12,000 of these rows are of persons of the table"):
        expected = shared.release.transform(adult)["cell"]
    assert sorted(shared.table["cell"]) == sorted(expected)
    assert shared.table["cell"].tolist() != expected.tolist()


def test_cells_are_counted_on_persons_who_were_held_out(held_out, adult):
    c = held_out.certificate
    assert [(s.about, s.by) for s in c.statements if s.given is None][:2] == [
        ("table", "counted"), ("population", "held-out")
    ]  # fmt: skip
    assert c.status == "CERTIFIED"
    assert 0.25 < sum(c.n.values()) / len(adult) < 0.35, "persons who were held out"
    assert sum(c.headline.n.values()) == len(adult) == len(held_out.table), "every row of the table is counted"
    assert c.look == 1


def test_a_notebook_shows_the_result_in_short(shared):
    html, text = shared._repr_html_(), repr(shared)
    c = shared.certificate
    of_table, to_come = (f"{rounded_up(50 * (1 + d), 1)} %" for d in (c.table_distance, c.cell_upper))
    for part in (of_table, to_come, "CERTIFIED", "this table is within the target", shared.audit.best):
        assert part in html
        assert part in text
    assert "What the table is good for" in text
    assert "Not covered" in html
    assert len(text.splitlines()) < 30, "no frame, no model"
    named = replace(shared, certificate=replace(shared.certificate, sensitive=("<b>sex</b>",)))
    assert "<b>" not in named._repr_html_()
    assert "NOT CHECKED" in replace(shared, certificate=replace(shared.certificate, unchecked=True))._repr_html_()


@pytest.mark.filterwarnings("ignore:Categories that the training rows did not have")
def test_quick_leaves_measurements_out_and_no_statement(few):
    quick = ff.share(few, target=0.3, output="cell", quick=True)
    assert (quick.audit, quick.before, quick.usefulness) == (None, None, None)
    assert [s.about for s in quick.certificate.statements] == ["table", "population"]
    assert "Nothing was attacked or measured" in repr(quick)
    assert "was not measured" in quick.report.to_html()


def test_too_few_persons_to_measure_with_are_enough_to_share():
    rng = np.random.default_rng(0)
    rows = {"x": rng.integers(9, size=110), "sex": ["f"] * 25 + ["m"] * 85}
    shared = ff.share(ff.Table(rows, sensitive="sex"), target=0.9, output="cell")
    assert shared.usefulness is None
    assert "takes a second release" in shared.report.contents["data"]["split"]
    rows = {"x": rng.integers(9, size=1_000), "sex": ["f"] * 56 + ["m"] * 944}
    shared = ff.share(ff.Table(rows, sensitive="sex"), target=0.9, output="cell", random_state=4)
    assert "more persons of the smallest group" in shared.report.contents["data"]["split"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": 1.5}, r"in \(0, 1\]"),
        ({"target": 0.01}, "Group 1 is too small for the target Δ ≤ 0.01: it has 3,936 persons, and the lowest target"),
        ({"delta": 2.0}, r"delta must be in \(0, 1\)"),
        (
            {"method": "magic"},
            "method must be one of 'tree', 'cells', 'cells-without-attribute'; got 'magic'",
        ),
        ({"output": "magic"}, "output must be one of 'row', 'cell'; got 'magic'"),
        ({"method": "cells", "spend": 0.1}, "method must be 'tree' to spend a part of the target; got 'cells'"),
    ],
)
def test_what_cannot_be_is_refused_before_any_training(adult, settings, message):
    with pytest.raises(ff.DataError, match=message):
        ff.share(adult, **settings)


def test_cells_for_a_label_need_one(few):
    unlabelled = ff.Table(few.X, sensitive=few.a.to_numpy(), identifier=few.identifier)
    with pytest.raises(ff.DataError, match="Cells are made for a label"):
        ff.share(unlabelled, method="cells")


def test_the_terminal_names_the_look_and_what_it_cost(held_out):
    assert "look" not in repr(held_out).split("To know")[1].split("Not covered")[0]
    fifth = replace(held_out, certificate=replace(held_out.certificate, look=5))
    assert "This is look 5 of these persons: the bound is wider" in " ".join(repr(fifth).split())


@pytest.mark.filterwarnings("ignore:Categories that the training rows did not have")
def test_a_merged_group_is_said_not_to_hide_what_differs_inside(few):
    rng = np.random.default_rng(0)
    rows = few.X.assign(race=rng.choice(list("abcd"), len(few), p=[0.5, 0.4, 0.06, 0.04]))
    with pytest.warns(ff.DataWarning, match="'c' and 'd' are one group"):
        merged = ff.Table(rows, sensitive="race", merge_small=300)
    shared = ff.share(merged, target=0.3, output="cell", quick=True)
    assert "what differs inside a group that was merged" in " ".join(repr(shared).split())
    assert "even the worst pair" in shared.report.to_html()


@pytest.fixture(scope="module")
def two_labels(few):
    noise = np.random.default_rng(0).normal(size=len(few))
    hours = 20 + 3 * (few.X["education"].factorize()[0] % 7) + noise.round(2)
    rows = few.X.reset_index().assign(sex=few.a.to_numpy(), income=few.y.to_numpy(), hours=hours)
    return ff.Table(rows, sensitive="sex", label=["income", "hours"], identifier="person")


@pytest.mark.filterwarnings("ignore:Categories that the training rows did not have")
def test_every_label_has_a_score_and_is_measured(run, two_labels, tmp_path):
    shared = ff.share(two_labels, target=0.3)
    assert list(shared.table) == [*two_labels.X, "income", "hours", "income_score", "hours_score"]
    income, hours = shared.usefulness.labels
    assert (income.name, income.classes, hours.name, hours.classes) == ("income", ("0", "1"), "hours", ())
    assert income.rules["trained"].auc > 0.7
    assert hours.rules["trained"].right > 0.5, "R²"
    assert hours.rules["score"].right > 0.5, "the tree splits by both labels"
    said = " ".join(repr(shared).split())
    assert "ranks them by income" in said
    assert "of the variance of hours" in said
    assert "the labels are income, hours" in shared.report.to_html()

    shared.save(tmp_path / "out")
    rows = two_labels.X.reset_index().assign(sex=two_labels.a.to_numpy())
    rows.assign(income=two_labels.y.to_numpy(), hours=two_labels.more_labels["hours"].to_numpy()).to_csv(
        tmp_path / "rows.csv", index=False
    )
    code, said, err = run("verify", tmp_path / "out", tmp_path / "rows.csv")
    assert code == 0, said + err
    rows.head(50).assign(
        person=np.arange(50) + 10**6, education=rows["education"].iloc[::-1].iloc[:50].to_numpy()
    ).to_csv(tmp_path / "later.csv", index=False)
    run("encode", tmp_path / "out", tmp_path / "later.csv", "-o", tmp_path / "later-shared.csv", ends=0)
    assert list(pd.read_csv(tmp_path / "later-shared.csv")) == list(shared.table), "later files need no label"


@pytest.mark.parametrize("method", ["cells", "cells-without-attribute"])
def test_other_methods_take_one_label_and_say_so(two_labels, method):
    with pytest.raises(ff.DataError, match=r"2 labels, and this encoder takes one: name one \(label=\.\.\.\), or take"):
        ff.share(two_labels, method=method, target=0.9, quick=True)


def test_a_group_too_small_to_measure_is_left_out_by_name():
    rng = np.random.default_rng(0)
    group = np.where(np.arange(2000) < 30, "tiny", rng.choice(["a", "b"], 2000))
    rows = pd.DataFrame({"x": rng.normal(size=2000).round(2) + (group == "a"), "group": group})
    table = ff.Table(rows, sensitive="group")
    shared = ff.share(table, target=0.4)
    assert shared.usefulness is not None
    assert set(shared.certificate.n) == {"a", "b", "tiny"}, "what is certified is all of it"
    split = shared.report.contents["data"]["split"]
    assert "They leave out tiny, of whom there are too few persons." in split
    two = ff.share(table.take(np.flatnonzero(table.a != "b")), target=0.4)
    assert two.usefulness is None
    assert "Nothing was attacked or measured" in repr(two)


def test_who_cannot_be_encoded_later_is_said_at_once():
    rng = np.random.default_rng(0)
    n = 9_000
    rows = {"x": rng.integers(99, size=n), "sex": rng.choice(["f", "m", "x"], n, p=[0.49, 0.48, 0.03])}
    table = ff.Table(rows | {"person": range(n)}, sensitive="sex", identifier="person")
    shared = ff.share(table, target=0.1, output="cell", quick=True)
    said = "Persons who come later cannot be encoded, because there are too few persons for that: target="
    text = " ".join(repr(shared).split())
    assert said in text
    new = pd.DataFrame({"x": [1], "sex": ["f"], "person": [n]})
    with pytest.raises(ff.DataError, match="a larger target, or small groups that are merged, may allow it"):
        ff.encode_batch(shared.release, new, sensitive="sex", identifier="person")
    wider = float(text.split(said)[1].split(" ")[0])
    shared = ff.share(table, target=wider, output="cell", quick=True)
    assert shared.certificate.find("population").distance <= wider
    assert "cannot be encoded" not in repr(shared)

"""The whole job, from a table to a folder."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows.bounds.derived import rounded_up
from fairflows.workflow import certified_part, read_run

pytestmark = pytest.mark.usefixtures("few_trees", "few_measured", "short_made")


@pytest.fixture(scope="module", autouse=True)
def one_job():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ff.workflow, "N_JOBS", 1)
        yield


@pytest.fixture(scope="module")
def adult():
    """Some rows and columns of Adult: few cells, so that everything is quick."""
    table = ff.load_adult()
    few = table.take(np.random.default_rng(0).permutation(len(table))[:12_000])
    X = few.X[["education", "relationship", "workclass"]].reset_index(drop=True)
    names = pd.Series(np.arange(len(few)), name="person")
    return ff.Table(
        X.assign(sex=few.a.to_numpy(), income=few.y.to_numpy()), sensitive="sex", label="income", identifier=names
    )


@pytest.fixture(scope="module")
def few(adult):
    """A third of them, where it is not the question how well a model does."""
    return adult.take(range(4000))


@pytest.fixture(scope="module")
def shared(adult):
    return ff.share(adult, target=0.2, output="cell")


@pytest.fixture(scope="module")
def chosen(adult, tmp_path_factory):
    """The best of a frontier; the looks at its persons are counted apart."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRFLOWS_LEDGER", str(tmp_path_factory.mktemp("ledger")))
        return ff.share(adult, target=0.25, method="matching", output="cell", quick=True)


def test_share_fits_attacks_and_certifies(shared, adult):
    c = shared.certificate
    assert c.status == "CERTIFIED"
    assert c.cell_upper <= 0.2
    assert shared.audit.attack_lower <= c.cell_upper
    assert shared.is_good
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


def test_the_best_of_a_frontier_covers_persons_whom_nothing_was_fitted_to_or_chosen_by(chosen, adult):
    assert chosen.certificate.status == "CERTIFIED"
    assert chosen.certificate.table_distance is None
    assert sum(chosen.certificate.n.values()) < len(adult) / 2
    assert len(chosen.release.ledger_.used) == 2
    assert "are not covered" in chosen.report.contents["data"]["split"]
    assert "not the rows that the model was trained on" in repr(chosen)
    assert len(chosen.table) == len(adult)


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
    named = replace(shared, certificate=replace(shared.certificate, sensitive="<b>sex</b>"))
    assert "<b>" not in named._repr_html_()
    assert "NOT CHECKED" in replace(shared, certificate=replace(shared.certificate, unchecked=True))._repr_html_()


def test_a_saved_result_can_be_loaded_and_verified(shared, adult, tmp_path):
    out = tmp_path / "out"
    shared.save(out, kind="parquet")
    names = {"model", "certificate.json", "report.html", "report.json", "report-public.html", "run.json"}
    names.add("shared.parquet")
    assert {path.name for path in out.iterdir()} == names | {
        "attestation.json",
        "card.md",
        "croissant.json",
        "spdx.json",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert out.stat().st_mode & 0o777 == 0o700
    pd.testing.assert_frame_equal(pd.read_parquet(out / "shared.parquet"), shared.table)
    model, certificate = ff.load(out / "model"), ff.Certificate.read(out / "certificate.json")
    assert ff.verify(certificate, model, certified_part(adult, read_run(out), certificate, model))
    assert certificate.seal in (out / "report.html").read_text()
    assert json.loads((out / "report.json").read_text())["usefulness"]["n"] == shared.usefulness.n


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


def test_only_an_earlier_result_is_replaced_and_only_when_asked(shared, tmp_path):
    out, mine = tmp_path / "out", tmp_path / "mine"
    shared.save(out)
    with pytest.raises(ff.DataError, match="the key of an earlier result"):
        shared.save(out)
    shared.save(out, replace=True)
    mine.mkdir()
    (mine / "thesis.txt").write_text("")
    with pytest.raises(ff.DataError, match="choose another one"):
        shared.save(mine, replace=True)
    (mine / "run.json").write_text('{"script": "train.py"}')  # of somebody else
    with pytest.raises(ff.DataError, match="not a result of `fairflows share`"):
        shared.save(mine, replace=True)
    for place in (out / "thesis.txt", out / "model" / "notes.txt"):
        place.write_text("")
        with pytest.raises(ff.DataError, match=f"holds '{place.name}', which fairflows did not write"):
            shared.save(out, replace=True)
        place.unlink()
    with pytest.raises(ff.DataError, match="kind must be one of 'csv', 'parquet'; got 'xlsx'"):
        shared.save(tmp_path / "new", kind="xlsx")


def test_the_certified_part_of_a_table_is_found_again(chosen, adult, tmp_path):
    chosen.save(tmp_path / "out")
    model, run = ff.load(tmp_path / "out" / "model"), read_run(tmp_path / "out")
    part = certified_part(adult, run, chosen.certificate, model)
    assert len(part) < len(adult)
    assert ff.verify(chosen.certificate, model, part)
    again = ff.load_adult().take(np.random.default_rng(1).permutation(45_222)[: len(adult)])
    other = ff.Table(again.X[adult.X.columns], sensitive=again.a.to_numpy(), label=again.y.to_numpy(),
                  identifier=np.arange(10**6, 10**6 + len(adult)))  # fmt: skip
    certificate = ff.certify(model, other)
    assert certified_part(other, run, certificate, model) is other, "a file with as many rows by chance"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "written by another release of fairflows"),
        ({"sensitive": []}, "damaged: a run cannot state sensitive = "),
        ({"sensitive": [7]}, "damaged: a run cannot state sensitive = "),
        ({"missing_label": "never"}, "damaged: a run cannot state missing_label = "),
        ({"random_state": "0"}, "damaged: a run cannot state random_state = "),
        ({"format": None}, "states no format"),
    ],
)
def test_a_changed_record_of_a_run_is_refused(change, message, tmp_path):
    run = {"format": 1, "sensitive": ["sex"], "rows": 9, "random_state": 0}
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert read_run(tmp_path).missing_label == "error"
    (tmp_path / "run.json").write_text(json.dumps({**run, **change}))
    with pytest.raises(ff.DataError, match=message):
        read_run(tmp_path)


def test_a_latent_is_judged_by_its_model(few):
    shared = ff.share(few, target=0.9, method="matching", output="latent", quick=True)
    assert shared.certificate.released == ("latent",)
    assert shared.certificate.cell_upper is None
    assert shared.certificate.status in ("MODEL_ONLY", "REFUTED")
    assert shared.is_good == (shared.certificate.status == "MODEL_ONLY")
    assert isinstance(shared.release, ff.FairMatching)
    assert shared.usefulness is None


def test_rows_are_drawn_from_the_cells_of_a_frontier_too(few):
    rows = pd.concat([few.y, few.X], axis=1)
    table = ff.Table(rows, sensitive=few.a, label="income", identifier=few.identifier)
    shared = ff.share(table, target=0.5, method="matching", quick=True)
    assert list(shared.table) == ["income", *few.X.columns, "income_score"]
    assert set(shared.table["education"]) <= set(few.X["education"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": 1.5}, r"in \(0, 1\]"),
        ({"target": 0.01}, "Group 1 is too small for the target Δ ≤ 0.01: it has 3,936 persons, and the lowest target"),
        ({"delta": 2.0}, r"delta must be in \(0, 1\)"),
        (
            {"method": "magic"},
            "method must be one of 'tree', 'cells', 'cells-without-attribute', 'flow', 'matching'; got 'magic'",
        ),
        ({"output": "magic"}, "output must be one of 'row', 'cell', 'latent'; got 'magic'"),
        ({"output": "latent"}, "method must be 'flow' or 'matching' for output='latent'; got 'tree'"),
    ],
)
def test_what_cannot_be_is_refused_before_any_training(adult, settings, message):
    with pytest.raises(ff.DataError, match=message):
        ff.share(adult, **settings)


def test_cells_for_a_label_need_one(few):
    unlabelled = ff.Table(few.X, sensitive=few.a.to_numpy(), identifier=few.identifier)
    with pytest.raises(ff.DataError, match="Cells are made for a label"):
        ff.share(unlabelled, method="cells")


def test_the_terminal_names_the_look_and_what_it_cost(chosen):
    assert "look" not in repr(chosen).split("To know")[1].split("Not covered")[0]
    fifth = replace(chosen, certificate=replace(chosen.certificate, look=5))
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


@pytest.mark.parametrize("method", ["cells", "matching"])
def test_other_methods_take_one_label_and_say_so(two_labels, method):
    with pytest.raises(ff.DataError, match=r"2 labels, and this encoder takes one: name one \(label=\.\.\.\), or take"):
        ff.share(two_labels, method=method, target=0.9, quick=True)

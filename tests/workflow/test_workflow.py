"""The whole job, from a table to a folder."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fairflows import DataError, DataWarning, FairMatching, Table, load_adult
from fairflows.bounds.derived import rounded_up
from fairflows.certificate.certificate import Certificate
from fairflows.certificate.certify import certify
from fairflows.certificate.verify import verify
from fairflows.frontiers.selection import Candidate, Target, choose
from fairflows.storage import load
from fairflows.tradeoff import frontier
from fairflows.workflow.job import fit_table, report
from fairflows.workflow.results import certified_part, read_report, read_run, write_fit

pytestmark = pytest.mark.usefixtures("undrawn_figures", "few_trees", "few_measured", "few_passes")


@pytest.fixture(scope="module")
def adult():
    """Some rows and columns of Adult: few cells, so that everything is quick."""
    table = load_adult()
    few = table.take(np.random.default_rng(0).permutation(len(table))[:12_000])
    X = few.X[["education", "relationship", "workclass"]].reset_index(drop=True)
    names = pd.Series(np.arange(len(few)), name="person")
    return Table(X, sensitive=few.a.to_numpy(), label=few.y.to_numpy(), identifier=names, name="adult")


@pytest.fixture(scope="module")
def few(adult):
    """A third of them, where it is not the question how well a model does."""
    return adult.take(range(4000))


@pytest.fixture(scope="module")
def cells(adult):
    return fit_table(
        adult, method="matching", release="cells", max_adversary_accuracy=0.6, density="counts", quick=True, n_jobs=1
    )


def test_fit_chooses_certifies_and_attacks(cells):
    c = cells.certificate
    assert c.status == "CERTIFIED"
    assert c.headline.accuracy <= 0.6
    assert c.attack_lower <= c.cell_upper
    assert cells.is_good
    frame = cells.frontier()
    assert set(frame["method"]) == {"FNF, matching"}
    assert frame["chosen"].sum() == 1
    within = frame[frame["expected"] <= 0.6]
    assert frame.loc[frame["chosen"], "accuracy"].item() == within["accuracy"].max()
    # One look at persons whom nothing was fitted to or chosen by.
    assert c.look == 1
    assert len(cells.model.ledger_.used) == 2


def test_a_notebook_shows_the_result_in_short(cells):
    html, text = cells._repr_html_(), repr(cells)
    after = f"at most {rounded_up(50 * (1 + cells.certificate.cell_upper), 1)} %"
    for part in (after, "CERTIFIED", "holds for the true distribution", cells.audit.best):
        assert part in html
        assert part in text
    assert len(text.splitlines()) < 15, "no frame, no model"
    named = replace(cells, certificate=replace(cells.certificate, sensitive="<b>sex</b>"))
    assert "<b>" not in named._repr_html_()
    assert "NOT CHECKED" in replace(cells, certificate=replace(cells.certificate, unchecked=True))._repr_html_()


def test_what_is_written_can_be_loaded_and_verified(cells, adult, tmp_path):
    run = {"sensitive": ["sex"], "label": "income", "drop": [], "rows": len(adult), "seed": 0}
    out = tmp_path / "out"
    write_fit(cells, adult, out, run)
    names = {"model", "certificate.json", "frontier.csv", "report.html", "report-public.html", "report.json",
             "run.json", "shared.parquet"}  # fmt: skip
    assert {path.name for path in out.iterdir()} == names
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert out.stat().st_mode & 0o777 == 0o700

    model, certificate = load(out / "model"), Certificate.read(out / "certificate.json")
    rows = certified_part(adult, read_run(out), certificate, model)
    assert verify(certificate, model, rows)
    with pytest.raises(DataError, match="fitted to, or chosen by"):
        certify(model, adult)

    encoded = pd.read_parquet(out / "shared.parquet")
    assert list(encoded) == ["cell"]  # no identifier, no attribute, no label
    assert len(encoded) == len(adult)
    expected = model.transform(adult)["cell"]
    assert sorted(encoded["cell"]) == sorted(expected)
    assert encoded["cell"].tolist() != expected.tolist()

    contents = json.loads((out / "report.json").read_text())
    assert contents["certificate"] == certificate.to_dict()
    page = (out / "report.html").read_text()
    assert certificate.seal in page
    write_fit(cells, adult, out, run)  # an earlier result is replaced
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    with pytest.raises(DataError, match="choose another one"):
        write_fit(cells, adult, tmp_path / "mine", run)
    (tmp_path / "mine" / "run.json").write_text('{"script": "train.py"}')  # of somebody else
    with pytest.raises(DataError, match="not a result of fairflows"):
        write_fit(cells, adult, tmp_path / "mine", run)
    for place in (out / "thesis.txt", out / "model" / "notes.txt"):
        place.write_text("")
        with pytest.raises(DataError, match=f"holds '{place.name}', which fairflows did not write"):
            write_fit(cells, adult, out, run)
        place.unlink()


def test_a_file_that_happens_to_have_as_many_rows_is_verified_as_it_is(cells, adult, tmp_path):
    out = tmp_path / "out"
    write_fit(cells, adult, out, {"sensitive": ["sex"], "label": "income", "drop": [], "rows": len(adult), "seed": 0})
    model, rng = load(out / "model"), np.random.default_rng(1)
    again = load_adult().take(rng.permutation(45_222)[: len(adult)])
    other = Table(again.X[adult.X.columns], sensitive=again.a.to_numpy(), label=again.y.to_numpy(),
                  identifier=np.arange(10**6, 10**6 + len(adult)))  # fmt: skip
    certificate = certify(model, other)
    assert certified_part(other, read_run(out), certificate, model) is other
    assert len(certified_part(adult, read_run(out), cells.certificate, model)) < len(adult)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "written by another release of fairflows"),
        ({"sensitive": []}, "damaged: a run cannot state sensitive = "),
        ({"sensitive": [7]}, "damaged: a run cannot state sensitive = "),
        ({"released": 7}, "damaged: a run cannot state released = "),
        ({"missing": "never"}, "damaged: a run cannot state missing = "),
        ({"seed": "0"}, "damaged: a run cannot state seed = "),
        ({"format": None}, "states no format"),
    ],
)
def test_a_changed_record_of_a_run_is_refused(change, message, tmp_path):
    run = {"format": 1, "sensitive": ["sex"], "drop": [], "rows": 9, "seed": 0, "shared": "shared.csv",
           "released": ["cell"]}  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert read_run(tmp_path).missing == "error"
    (tmp_path / "run.json").write_text(json.dumps({**run, **change}))
    with pytest.raises(DataError, match=message):
        read_run(tmp_path)


def test_a_report_that_is_not_about_its_certificate_is_refused(cells, adult, tmp_path):
    out = tmp_path / "out"
    write_fit(cells, adult, out, {"sensitive": ["sex"], "label": "income", "drop": [], "rows": len(adult), "seed": 0})
    assert read_report(out).verified
    contents = json.loads((out / "report.json").read_text())
    other = {**contents, "certificate": {**contents["certificate"], "delta": 0.5}}
    (out / "report.json").write_text(json.dumps(other))
    with pytest.raises(DataError, match="its certificate is not the one in certificate.json"):
        read_report(out)
    for damaged in ({}, {**contents, "data": 7}, []):
        (out / "report.json").write_text(json.dumps(damaged))
        with pytest.raises(DataError, match="report.json: the file is damaged"):
            read_report(out)


@pytest.mark.parametrize("text", ["[" * 999 + "]" * 999, '{"a":' * 200 + "0" + "}" * 200, "[" * 100_000, "{", "\0"])
def test_files_that_are_no_json_or_nested_deeply_are_refused(text, tmp_path):
    for name in ("run.json", "certificate.json", "report.json"):
        (tmp_path / name).write_text(text)
    for read in (read_run, read_report, lambda out: Certificate.read(out / "certificate.json")):
        with pytest.raises(DataError, match=r"\.json: .*(levels deep|not JSON)"):
            read(tmp_path)


def test_a_latent_is_judged_by_its_model(few):
    settings = {"release": "latent", "density": "counts", "quick": True, "n_jobs": 1}
    made = fit_table(few, target=0.9, **settings)
    assert made.certificate.released == ("latent",)
    assert made.certificate.cell_upper is None
    assert made.certificate.status in ("MODEL_ONLY", "REFUTED")
    assert made.is_good == (made.certificate.status == "MODEL_ONLY")
    assert isinstance(made.model, FairMatching)
    assert made.report.contents["bins"]
    assert made.report.contents["matches"]


def test_releasing_the_label_too_is_certified_as_a_pair(few):
    made = fit_table(
        few, method="matching", release="cells", gamma=1.0, with_label=True, density="counts", quick=True, n_jobs=1
    )
    assert made.certificate.released == ("cell", "label")
    # What the label itself tells is in the bound: the groups' rates differ by .2.
    assert made.certificate.cell_upper > 0.15


def test_without_a_label_the_paper_has_no_cells(few):
    table = Table(few.X, sensitive=few.a.to_numpy(), identifier=few.identifier)
    with pytest.raises(DataError, match="Take FairTree, which gives cells without one"):
        fit_table(table, method="matching", release="cells", target=0.5, density="counts", quick=True, n_jobs=1)


def test_a_frontier_has_the_cells_that_were_asked_for(few):
    made = fit_table(few, method="matching", gamma=1.0, n_cells=5, density="counts", quick=True, n_jobs=1)
    assert made.frontier()["n_cells"].tolist() == [5]
    assert made.model.n_cells_ == 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": 0.1, "gamma": 0.5}, "give one of"),
        ({"target": 1.5}, r"in \(0, 1\]"),
        ({"max_adversary_accuracy": 0.501}, "A group is too small for the target"),
        ({"max_adversary_accuracy": 0.4}, "above that of a blind guess"),
        ({"max_adversary_accuracy": 0.4, "release": "latent"}, "above that of a blind guess"),
        ({"delta": 2.0}, r"delta must be in \(0, 1\)"),
        ({"method": "magic"}, "method must be"),
        ({"n_cells": 1}, "n_cells must be a whole number of at least 2; got 1"),
        ({"n_cells": 4, "release": "latent"}, "n_cells and release exclude each other"),
    ],
)
def test_what_cannot_be_is_refused_before_any_training(adult, settings, message):
    with pytest.raises(ValueError, match=message):
        fit_table(adult, **settings)


@pytest.mark.parametrize(
    ("accuracy", "n_groups", "said"),
    [
        (0.6, 4, "The target of 60 % says next to nothing: of 4 groups a blind guess is right 25 % of the time"),
        (1.0, 2, "with a release that gives everything away a guess is right 100 % of the time"),
    ],
)
def test_a_target_that_a_blind_guess_nearly_meets_is_called_empty(accuracy, n_groups, said):
    rng = np.random.default_rng(0)
    rows = Table({"x": rng.normal(size=400), "a": rng.integers(0, n_groups, 400)}, sensitive="a")
    with pytest.warns(DataWarning, match=said):
        Target(accuracy=accuracy).check_reachable(rows, cells=False)


def test_a_target_that_says_something_gives_no_warning():
    rng = np.random.default_rng(0)
    rows = Table({"x": rng.normal(size=400), "a": rng.integers(0, 4, 400)}, sensitive="a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Target(accuracy=0.4).check_reachable(rows, cells=False)
        Target(distance=0.3).check_reachable(rows, cells=False)
    with pytest.warns(DataWarning, match="Every release meets a distance of 1"):
        Target(distance=1.0).check_reachable(rows, cells=False)


def test_choice():
    def candidate(expected, accuracy):
        return Candidate("m", 0.0, 0, None, expected, accuracy, 2)

    some = [candidate(0.1, 0.7), candidate(0.2, 0.8), candidate(0.3, 0.9)]
    assert choose(some, Target(distance=0.25)) is some[1]
    assert choose(some, Target(distance=0.05)) is some[0]  # none is within: the closest
    assert choose(some, Target()) is some[2]
    alike = [candidate(0.3, 0.9), candidate(0.1, 0.897)]
    assert choose(alike, Target()) is alike[1]
    with pytest.raises(DataError, match="diverged"):
        choose([], Target())


def test_the_expected_bound_is_about_what_certificates_come_out_at():
    rng = np.random.default_rng(0)
    from fairflows.bounds import cell_upper_bound, delta_of_look

    laws, n = np.array([[0.3, 0.7], [0.4, 0.6]]), np.array([2000, 3000])
    bounds = []
    for _ in range(300):
        counts = np.stack([rng.multinomial(size, law) for size, law in zip(n, laws, strict=True)])
        bounds.append(cell_upper_bound(counts, delta_of_look(0.05, 1)))
    share = np.mean(np.array(bounds) <= Target(distance=0.2).expected(laws, n))
    assert share > 0.8  # one standard deviation to spare
    told, few = np.eye(2), np.array([20, 20])
    assert Target(distance=0.2).expected(told, few) == Target(accuracy=0.7).expected(told, few) == 1
    assert Target(accuracy=0.7).expected(np.eye(3), np.array([20] * 3)) == 1
    three = np.array([[0.2, 0.8], [0.3, 0.7], [0.4, 0.6]])
    assert Target(accuracy=0.5).expected(three, np.array([10**9] * 3)) == pytest.approx((0.4 + 0.8) / 3, abs=1e-3)


def test_report_of_an_encoder(adult):
    train, test = adult.split(validation=0)
    train, validation = train.split(validation=0)
    front = frontier(FairMatching(density="counts"), train, strengths=[0.0, 1.0], validation=validation)
    page = report(front.encoders[1], test, train=train, front=front)
    assert page.contents["certificate"]["status"] == "MODEL_ONLY"
    assert [point["chosen"] for point in page.contents["frontier"]["points"]] == [False, True]
    overall = {line["name"]: line for line in page.contents["metrics"]["overall"]}
    predicted = front.encoders[1].predict(test)
    assert overall["accuracy"]["after"] == pytest.approx((predicted == test.y).mean())
    from fairlearn.metrics import demographic_parity_difference

    expected = demographic_parity_difference(test.y, predicted, sensitive_features=test.a)
    assert overall["demographic parity difference"]["after"] == pytest.approx(expected)


def test_small_bins_are_not_shown(adult):
    train, test = adult.split(validation=0)
    encoder = FairMatching(density="counts").fit(train)
    contents = report(encoder, test).contents
    sizes = test.a.value_counts()
    for group, size in zip(contents["bins"]["groups"], sizes.sort_index(), strict=True):
        people = np.array(group["shares"]) * size
        assert np.all((people < 0.5) | (people > 9.5))

"""Every experiment runs: here on few rows and epochs; as quick runs in the slow tier."""

import numpy as np
import pandas as pd
import pytest

from fairflows import load_adult, make_gaussians
from fairflows.paper.experiments import baseline_comparison, drawn_data, list_experiments, problems, run
from fairflows.paper.experiments.adversaries import adversary_accuracies, balanced_accuracy
from fairflows.paper.experiments.certificates import simulated
from fairflows.paper.experiments.problems import apart_from
from fairflows.paper.experiments.result import Setting
from fairflows.paper.experiments.trade_offs import area

FROM_ADULT_ALONE = ["certificates", "figure-2"]
ON_CRIME = ["table-5", *(pytest.param(name, marks=pytest.mark.slow) for name in ("table-2", "figure-7", "figure-8"))]


class Identity:
    """An encoder that hides nothing."""

    groups_ = (0, 1)

    def transform(self, table):
        return table.X


def test_the_papers_adversary_reads_what_is_not_hidden_and_guesses_what_is():
    train, _ = make_gaussians(600, random_state=0)
    test, _ = make_gaussians(600, random_state=1)
    hidden = type("Nothing", (Identity,), {"transform": lambda self, table: 0 * table.X})
    shown, blank = adversary_accuracies([Identity(), hidden()], train, test, epochs=30)
    assert shown > 0.98
    assert blank == pytest.approx(0.5)


def test_balanced_accuracy_is_the_mean_over_the_groups():
    guess, truth, group = np.array([[1, 1, 0, 0]]), np.array([1, 1, 1, 0]), np.array([0, 0, 0, 1])
    assert balanced_accuracy(guess, truth, group) == pytest.approx([(2 / 3 + 1) / 2])


def test_the_bounds_hold_and_ours_is_the_tightest():
    line = simulated(10_000, 50, 40, np.random.default_rng(0))
    assert line["true Δ"] == pytest.approx(0.1)
    assert line["true Δ"] < line["ours"] < line["Weissman"] < line["FARE"]
    assert line["ours missed"] <= 0.2


def test_the_area_of_a_known_curve():
    assert area(pd.Series([1.0, 0.0]), pd.Series([1.0, 0.5])) == pytest.approx(0.75)


def test_adversaries_meet_no_test_person():
    from fairflows import Table

    data = {"x": [1.0, 2.0, 3.0, 4.0] * 2, "a": [0, 1] * 4, "who": [1, 2, 3, 4, 1, 2, 5, 6]}
    table = Table(data, sensitive="a", identifier="who")
    train, test = table.take(range(4)), table.take(range(4, 8))
    assert apart_from(train, test).identifier.tolist() == [3, 4]


@pytest.mark.parametrize("name", FROM_ADULT_ALONE)
def test_experiments_without_data_files(name, tmp_path):
    result = run(name, quick=True, out=tmp_path)
    assert not result.skipped
    assert len(result.table) > 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a tiny model may diverge; the run goes on without it
@pytest.mark.parametrize("name", ON_CRIME)
def test_experiments_on_crime(name, tmp_path, tiny_problems, data_folder):
    result = run(name, quick=True, seeds=1, out=tmp_path)
    assert not result.skipped
    assert result.table.notna().any(axis=None)
    assert (tmp_path / f"{name}.csv").exists()


@pytest.mark.slow
def test_the_blobs_in_tiny(tmp_path, monkeypatch):
    monkeypatch.setattr(drawn_data, "RECOVERY_EPOCHS", 1)
    result = run("figure-3", quick=True, seeds=2, out=tmp_path)
    assert result.table["method"].tolist() == ["FNF", "adversarial"]
    assert len(result.details["models"]) == 4


@pytest.mark.slow
def test_baselines_in_tiny(tmp_path, monkeypatch, few_rows):
    monkeypatch.setattr(baseline_comparison, "load_adult", few_rows(load_adult))
    result = run("table-1", quick=True, seeds=1, out=tmp_path)
    assert result.table["method"].tolist()[-2:] == ["FNF", "transport, 16 cells"]
    assert result.table["bound"].notna().tolist() == [False] * 7 + [True] * 2


def test_misses_are_named():
    line = dict.fromkeys(baseline_comparison.MEASURES, 0.7)
    paper = {f"paper: {name}": value for name, value in zip(line, (0.71, 0.5, np.nan, np.nan), strict=True)}
    said = baseline_comparison.misses(pd.DataFrame([{"method": "LAFTR-DP", **line, **paper}]))
    assert said == "Misses, more than 0.02 from the paper: LAFTR-DP, adversary in G: 0.700 (paper 0.500)."


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", list_experiments()["id"])
def test_quick_runs(name, tmp_path, data_folder):
    result = run(name, quick=True, out=tmp_path)
    assert not result.skipped
    assert len(result.table) > 0


def test_audits_keep_the_order_of_their_targets(monkeypatch):
    monkeypatch.setattr(problems, "audit", lambda encoder, train, test, *, quick: encoder)
    targets = [("few rows", range(1), None), ("many rows", range(5), None), ("some rows", range(3), None)]
    assert problems.audits(targets, Setting()) == ["few rows", "many rows", "some rows"]


def test_a_model_is_attacked_once(tiny_problems, monkeypatch, few_rows):
    monkeypatch.setattr(problems.datasets, "load_adult", few_rows(load_adult))
    attacked = []
    monkeypatch.setattr(problems, "audit", lambda encoder, train, test, *, quick: attacked.append(encoder))
    model = problems.trained("adult", Setting(quick=True, seeds=2))
    for _ in range(2):
        found = problems.audited([model], Setting(quick=True, seeds=2))
        assert [i for _, i in found] == model.first_seed()
    assert len(attacked) == len(model.problem.gammas) == len(model.frontier.encoders) / 2


def test_frontiers_are_trained_once(tiny_problems, monkeypatch, few_rows):
    monkeypatch.setattr(problems.datasets, "load_adult", few_rows(load_adult))
    first, second = (problems.trained("adult", Setting(quick=True)) for _ in range(2))
    assert first is second
    assert len(first.frontier.encoders) == 5

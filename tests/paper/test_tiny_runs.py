"""Every experiment runs: here on few rows and epochs; as quick runs in the slow tier."""

import numpy as np
import pandas as pd
import pytest
import torch

from fairflows import Table, load_adult
from fairflows.paper import make_gaussians
from fairflows.paper.experiments import (
    attacks,
    certificates,
    drawn_data,
    list_experiments,
    problems,
    run,
)
from fairflows.paper.experiments.problems import apart_from
from fairflows.paper.experiments.result import Setting
from fairflows.paper.experiments.trade_offs import area
from fairflows.paper.experiments.trained_heads import (
    adversary_accuracies,
    balanced_accuracy,
    thirds,
    thirds_in_batches,
    trained_networks,
)

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


def test_the_rate_that_counts_batches_as_epochs_vanishes():
    """100 epochs of 16 batches, and as many of validation: divided by ten after every 33."""
    by_batch, by_epoch = (schedule(0.01, 100, 16) for schedule in (thirds_in_batches, thirds))
    assert by_batch[0] == pytest.approx(0.01)
    assert by_batch[1, :3] == pytest.approx([0.01, 0.001, 0.001])
    assert by_batch[6].max() < 1e-6
    assert by_epoch[32] == pytest.approx(0.01)
    assert by_epoch[[33, 66], 0] == pytest.approx([0.001, 0.0001])


def test_an_attack_whose_rate_vanishes_recovers_less():
    """A ring around a ring: seen by a network that is trained to the end, and not in fifty steps."""
    rng = np.random.default_rng(0)
    a = np.tile([0, 1], 1024)
    angle, radius = rng.uniform(0, 2 * np.pi, 2048), 0.5 + 0.1 * a + rng.normal(0, 0.02, 2048)
    x = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    table = Table(pd.DataFrame(x, columns=["x1", "x2"]).assign(a=a), sensitive="a")
    undertrained, trained = (
        adversary_accuracies([Identity()], table, table, epochs=60, schedule=schedule)[0]
        for schedule in (thirds_in_batches, thirds)
    )
    assert trained > undertrained + 0.2


def test_strata_decide_what_the_loss_is_the_mean_of():
    """Nine in ten rows are of a group without a pattern; with the groups as strata both count alike."""
    group = np.repeat([0, 1], [900, 100])
    target = np.where(group == 1, 1, np.arange(1000) % 10 == 0).astype(int)
    z, y = torch.ones(1, 1000, 1), torch.tensor(target)
    settings = {"hidden": (8,), "epochs": 60, "seeds": [0], "batch_size": 100}
    plain = trained_networks(z, y, **settings)
    by_group = trained_networks(z, y, strata=group, **settings)
    share = [network(z).softmax(-1)[0, 0, 1].item() for network in (plain, by_group)]
    assert share == pytest.approx([0.19, 0.55], abs=0.06)


def test_balanced_accuracy_is_the_mean_over_the_groups():
    guess, truth, group = np.array([[1, 1, 0, 0]]), np.array([1, 1, 1, 0]), np.array([0, 0, 0, 1])
    assert balanced_accuracy(guess, truth, group) == pytest.approx([(2 / 3 + 1) / 2])


def test_the_bounds_hold_and_ours_is_the_tightest():
    line = certificates.simulated(10_000, 50, 40, np.random.default_rng(0))
    assert line["true Δ"] == pytest.approx(0.1)
    assert line["true Δ"] < line["ours"] < line["Weissman"] < line["FARE"]
    assert line["ours missed"] <= 0.2


def test_the_area_of_a_known_curve():
    assert area(pd.Series([1.0, 0.0]), pd.Series([1.0, 0.5])) == pytest.approx(0.75)


def test_adversaries_meet_no_test_person():
    data = {"x": [1.0, 2.0, 3.0, 4.0] * 2, "a": [0, 1] * 4, "who": [1, 2, 3, 4, 1, 2, 5, 6]}
    table = Table(data, sensitive="a", identifier="who")
    train, test = table.take(range(4)), table.take(range(4, 8))
    assert apart_from(train, test).identifier.tolist() == [3, 4]


def test_certificates_in_tiny(tmp_path, monkeypatch, few_rows):
    monkeypatch.setattr(certificates, "ROWS", (1_000, 10_000))
    monkeypatch.setattr(certificates, "CELLS", (2, 50))
    monkeypatch.setattr(certificates, "load_adult", few_rows(load_adult))
    result = run("certificates", quick=True, out=tmp_path)
    assert not result.skipped
    assert result.table[["rows", "cells"]].to_numpy().tolist() == [[n, k] for n in (1_000, 10_000) for k in (2, 50)]
    assert len(result.details["adult"]) == 4 * 3


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a tiny model may diverge; the run goes on without it
@pytest.mark.parametrize("name", ON_CRIME)
def test_experiments_on_crime(name, tmp_path, tiny_problems, data_folder):
    result = run(name, quick=True, seeds=1, out=tmp_path)
    assert not result.skipped
    assert result.table.notna().any(axis=None)
    assert (tmp_path / f"{name}.csv").exists()


@pytest.mark.slow
def test_the_blobs_in_tiny(tmp_path, monkeypatch):
    monkeypatch.setattr(drawn_data, "QUICK_FLOW_EPOCHS", {"realnvp": 1, "spline": 1})
    result = run("figure-3", quick=True, seeds=2, out=tmp_path)
    methods, attacks = result.table["method"].unique(), result.table["attack"].unique()
    assert len(methods) == 4
    assert len(attacks) == 2
    assert len(result.table) == len(methods) * len(attacks)
    assert len(result.details["models"]) == 2 * len(methods)


@pytest.mark.slow
def test_baselines_in_tiny(tmp_path, monkeypatch, few_rows):
    monkeypatch.setattr(attacks, "load_adult", few_rows(load_adult))
    result = run("table-1", quick=True, seeds=1, out=tmp_path)
    assert result.table["method"].tolist()[-2:] == ["FNF", "FairTree, 16 cells"]
    assert result.table["bound"].notna().tolist() == [False] * 7 + [True] * 2


def test_misses_are_named():
    line = dict.fromkeys(attacks.MEASURES, 0.7)
    paper = {f"paper: {name}": value for name, value in zip(line, (0.71, 0.5, np.nan, np.nan), strict=True)}
    said = attacks.misses(pd.DataFrame([{"method": "LAFTR-DP", **line, **paper}]))
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


def test_a_frontier_is_trained_once_and_its_first_seed_is_attacked(tiny_problems, monkeypatch, few_rows):
    monkeypatch.setattr(problems.datasets, "load_adult", few_rows(load_adult, columns=["education", "relationship"]))
    attacked = []
    monkeypatch.setattr(problems, "audit", lambda encoder, train, test, *, quick: attacked.append(encoder))
    model = problems.trained("adult", Setting(quick=True, seeds=2))
    assert problems.trained("adult", Setting(quick=True, seeds=2)) is model
    assert len(model.frontier.encoders) == 2 * 5
    found = problems.audited([model], Setting(quick=True, seeds=2))
    assert [i for _, i in found] == model.first_seed()
    assert len(attacked) == len(model.problem.gammas) == len(model.frontier.encoders) / 2

"""Every experiment runs: here on few rows and epochs; as quick runs in the slow tier."""

import numpy as np
import pandas as pd
import pytest

from fairflows import Table, load_adult
from fairflows.paper import make_gaussians
from fairflows.paper.experiments import certificates, list_experiments, problems, run
from fairflows.paper.experiments.outcome import Setting
from fairflows.paper.experiments.problems import apart_from
from fairflows.paper.experiments.trained_heads import adversary_accuracies, thirds, thirds_in_batches


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
def test_an_experiment_on_crime(tmp_path, tiny_problems, data_folder):
    result = run("table-5", quick=True, seeds=1, out=tmp_path)
    assert not result.skipped
    assert result.table.notna().any(axis=None)
    assert (tmp_path / "table-5.csv").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", list_experiments()["id"])
def test_quick_runs(name, tmp_path, data_folder):
    result = run(name, quick=True, out=tmp_path)
    assert not result.skipped
    assert len(result.table) > 0


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

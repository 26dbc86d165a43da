"""Running by name: every experiment has a function, runs are saved and printed, missing data are reported."""

import io
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout

import pandas as pd
import pytest

from fairflows.paper import experiments
from fairflows.paper.experiments import Outcome, list_experiments, run, run_many
from fairflows.paper.experiments.outcome import Setting, new_pool
from fairflows.paper.experiments.problems import crime, health, law

PAPER = [f"figure-{i}" for i in (1, 2, 3, "4a", "4b", 5, 6, 7, 8, 9)] + [f"table-{i}" for i in range(1, 6)]


def test_every_experiment_of_the_paper_is_there_and_has_its_own_function():
    ids = list_experiments()["id"].tolist()
    assert set(PAPER) | {"recourse", "transfer", "certificates", "honest-front"} == set(ids)
    functions = [experiments.function_of(name) for name in ids]
    assert all(callable(function) for function in functions)
    assert len(set(functions)) == len(ids)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """An experiment that needs no data files: what it found, what it printed, and the folder that it wrote."""
    folder = tmp_path_factory.mktemp("drawn")
    with redirect_stdout(io.StringIO()) as printed:
        result = run("figure-2", quick=True, out=folder)
    return result, printed.getvalue(), folder


def test_a_run_prints_and_saves(drawn):
    result, printed, folder = drawn
    assert "figure-2" in printed
    assert not result.skipped
    assert "400" in result.data or "200 rows" in result.data
    saved = json.loads((folder / "figure-2.json").read_text())
    assert len(result.table) > 0
    assert saved["table"] == json.loads(result.table.to_json(orient="records"))
    assert pd.read_csv(folder / "figure-2.csv").shape == result.table.shape
    assert (folder / "figure-2.png").stat().st_size > 1000


def test_errors_name_what_is_wrong(tmp_path):
    with pytest.raises(ValueError, match="there is no experiment 'figure-99'"):
        run("figure-99")
    with pytest.raises(ValueError, match="seeds must be at least 1"):
        run("figure-2", seeds=0)


def test_seeds_are_those_that_no_setting_was_chosen_with():
    assert Setting().seed_list() == [200, 201, 202, 203, 204]
    assert Setting(seeds=2).seed_list(full=100) == [200, 201]
    assert Setting(quick=True).seed_list(quick=1) == [200]


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, pytest.param(new_pool, marks=pytest.mark.slow)])
def test_experiments_side_by_side_give_what_they_give_alone(pool, tmp_path, drawn, monkeypatch):
    """In processes, which import all that an experiment needs once more; where that takes too long, in threads."""
    monkeypatch.setattr(experiments, "new_pool", pool)
    alone, _, _ = drawn
    (beside,) = run_many(["figure-2"], n_jobs=2, quick=True, out=tmp_path)
    pd.testing.assert_frame_equal(beside.table, alone.table)
    assert (tmp_path / "figure-2.png").stat().st_size > 1000
    assert "torch" in beside.setting["machine"]


def test_one_experiment_that_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    one_row = Outcome(pd.DataFrame({"x": [1.0]}), "drawn")
    functions = {"figure-1": lambda setting: 1 / 0, "figure-2": lambda setting: one_row}
    monkeypatch.setattr(experiments, "function_of", functions.get)
    failed, done = run_many(["figure-1", "figure-2"], quick=True, out=tmp_path)
    assert "ZeroDivisionError" in failed.failed
    assert "failed" in str(failed)
    assert done.failed == ""
    assert len(done.table)


def test_the_papers_settings():
    assert crime().gammas == (0.0, 0.02, 0.1, 0.2, 0.9)
    assert crime().encoder.dequantise is False
    assert [d.n_components for d in crime().encoder.density] == [2, 4]
    assert law().encoder.n_epochs == 100
    assert health().encoder.hidden == (100, 100, 50)
    assert health().encoder.n_blocks == 6
    density = health().encoder.density
    assert (density.hidden, density.batch_size, density.n_steps) == ((20,), 256, 15_520)
    assert health().encoder.validation == 0.2
    for problem in (crime(), law(), health()):
        assert (problem.encoder.smoothing, problem.encoder.turn) == (0, False)

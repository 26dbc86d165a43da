"""The recipes of docs/how-to/watch.md run as they stand, with `fairflows` on the path."""

import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from known_tables import people

import fairflows as ff

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "watch.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def watched(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")
    people(1200, 0).to_csv(folder / "loans.csv", index=False)
    words = ["--sensitive", "sex", "--id", "person", "--quick", "--target", "0.3", "--output", "cell"]
    run("share", folder / "loans.csv", *words, "-o", folder / "out", ends=0)
    (folder / "fairflows").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fairflows "$@"\n')
    (folder / "fairflows").chmod(0o755)
    return folder


def ran(folder, script, **environment):
    path = f"{folder}:{os.environ['PATH']}"
    source = str(Path(ff.__file__).parents[1])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": source, "WATCHED": str(folder), **environment}
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_script_for_cron_mails_what_is_wrong(watched):
    (script,) = blocks("sh")
    mail = watched / "mail.txt"
    people(200, 1).to_csv(watched / "tonight.csv", index=False)
    done = ran(watched, script, MAIL=f"tee {mail}")
    assert (done.returncode, mail.exists()) == (0, False), done.stderr
    apart = people(1500, 2)
    apart.assign(grade=9 * (apart["sex"] == "m"), income=20.0 + 20 * (apart["sex"] == "m")).to_csv(
        watched / "tonight.csv", index=False
    )
    assert ran(watched, script, MAIL=f"tee {mail}").returncode == 4
    assert "REFUTED" in mail.read_text()


def test_the_step_of_the_workflow_fails_by_the_exit_code_of_the_watch(watched):
    (workflow,) = blocks("yaml")
    step = re.search(r"run: \|\n((?: {10}.*\n)+)", workflow)[1].replace(" " * 10, "")
    people(200, 3).to_csv(watched / "tonight.csv", index=False)
    done = ran(watched, step, GITHUB_STEP_SUMMARY=str(watched / "summary.md"))
    assert done.returncode == 4, "the bound stays refuted"
    assert "bound  REFUTED" in (watched / "summary.md").read_text()


def test_the_recipe_for_mlflow_logs_each_look_and_the_lamps(watched, monkeypatch):
    release, roles = ff.load(watched / "out" / "model"), {"sensitive": "sex", "identifier": "person"}
    found = ff.watch(release)
    for seed in (4, 5):
        found.update(ff.Table(people(200, seed), **roles), date=f"2026-10-0{seed}")
    mlflow = mock.MagicMock()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    (recipe,) = blocks("py")
    exec(recipe, {"watched": found})
    logged = {call.kwargs["step"]: call.args[0] for call in mlflow.log_metrics.call_args_list}
    assert {step: m["delta_upper"] for step, m in logged.items()} == {0: found.looks[0].upper, 1: found.last.upper}
    assert all(isinstance(value, float) for metrics in logged.values() for value in metrics.values())
    mlflow.set_tags.assert_called_once_with({"law": "OK", "bound": "OK"})

"""The recipes of docs/how-to/tracking.md, where MLflow and W&B are installed; none of fairflows' extras brings them."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "how-to" / "tracking.md").read_text()

pytestmark = pytest.mark.filterwarnings("ignore")  # of the trackers


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def run_recipe(tmp_path, monkeypatch):
    """A function that runs the page's recipe for a tracker, and returns the tracker and what the page has made."""
    monkeypatch.chdir(tmp_path)

    def run(package):
        tracker, made = pytest.importorskip(package), {}
        recipe = next(block for block in blocks("py") if f"import {package}\n" in block)
        exec("\n".join([*blocks("python"), recipe]), made)
        return tracker, made

    return run


def test_mlflow_gets_the_numbers_and_the_public_files_alone(run_recipe):
    mlflow, made = run_recipe("mlflow")
    (run,) = mlflow.search_runs(output_format="list")
    assert run.data.metrics == pytest.approx(made["logged"])
    assert run.data.params["target"] == "0.25"
    assert run.data.tags["certificate"] == made["shared"].certificate.status
    names = {file.path for file in mlflow.artifacts.list_artifacts(run_id=run.info.run_id)}
    assert names == {"certificate.json", "report-public.html"}


def test_a_model_in_mlflow_has_no_key(run_recipe, tmp_path):
    mlflow, made = run_recipe("mlflow")
    secret = bytes(made["shared"].release.key_)
    mlflow.sklearn.save_model(made["shared"].release, tmp_path / "model", serialization_format="cloudpickle")
    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert any(path.suffix == ".pkl" for path in files)
    assert not any(secret in path.read_bytes() or secret.hex().encode() in path.read_bytes() for path in files)


def test_wandb_gets_the_numbers_and_the_public_files_alone(run_recipe, capfd):
    _, made = run_recipe("wandb")
    said = re.sub(" +", " ", capfd.readouterr().err)  # wandb's own summary of the run, offline
    assert f"certificate {made['shared'].certificate.status}" in said
    for name, value in made["logged"].items():
        assert f"{name} {round(value, 5):g}" in said
    assert set(made["files"].manifest.entries) == {"certificate.json", "report-public.html"}

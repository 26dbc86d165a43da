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

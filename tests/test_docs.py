"""The examples in the docs and docstrings run."""

import doctest
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import sklearn

import fairflows

pytestmark = pytest.mark.usefixtures("few_trees", "few_measured", "few_components", "few_draws")

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = [module.name for module in pkgutil.walk_packages(fairflows.__path__, "fairflows.")]


def python_blocks(page: Path) -> str:
    """All Python of a page, in order: later examples may use what earlier ones made."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL))


README = ROOT / "README.md"
LONG = ("the-paper.md", "index.md")  # trains many flows, and `make docs` runs it; the blocks of the README
WITH_PYTHON = [
    pytest.param(page, marks=[pytest.mark.slow] * (page.name in LONG), id=page.name)
    for page in PAGES
    if python_blocks(page)
]
EPOCHS = {"README.md": 4, "tutorial-representations.md": 12}  # what training reaches is not the question
# Said to the reader on purpose; any other warning is an error.
MAY_WARN = pytest.mark.filterwarnings("ignore::fairflows.exceptions.DataWarning")
# Most examples run with 3,800 of Adult's rows; these reach their targets, or take so many rows as they do, with more.
EVERY = {
    "README.md": 6,
    "a-table-to-share.md": 6,
    "certificates.md": 3,
    "check-a-certificate.md": 6,
    "choosing-a-target.md": 3,
    "fairflows.certificate.certify": 1,
    "fairflows.encoder.fair_cells": 3,
    "fairflows.release.release": 2,
    "fairflows.worth": 3,
    "fairlearn.md": 4,
    "scikit-learn.md": 6,
    "tracking.md": 6,
    "intended-use.md": 6,
    "without-the-attribute.md": 3,
}


@pytest.fixture(scope="module")
def adult():
    """Four columns of Adult, without the soldiers: they are so few that some part of few rows would have none."""
    adult = fairflows.load_adult()
    adult = adult.take(np.flatnonzero(adult.X["occupation"] != "Armed-Forces"))
    adult.X = adult.X[["education", "occupation", "relationship", "race"]]
    return adult


@pytest.fixture
def take_few(adult, monkeypatch):
    """Let the examples of a page or module load few rows of Adult, so that they fit models quickly."""

    def take(name):
        few, load = adult.take(range(0, len(adult), EVERY.get(name, 12))), fairflows.load_adult
        monkeypatch.setattr(fairflows, "load_adult", lambda features="": load(features) if features else few)

    return take


@pytest.fixture
def run_page(take_few, tmp_path, monkeypatch):
    """Run the Python of a page, and give the names that it made."""
    monkeypatch.chdir(tmp_path)

    def run(page):
        take_few(page.name)
        if page.name in EPOCHS:
            monkeypatch.setitem(
                inspect.unwrap(fairflows.FairFlow.__init__).__kwdefaults__, "n_epochs", EPOCHS[page.name]
            )
        if "load_crime" in page.read_text() and not os.environ.get("FAIRFLOWS_DATA"):
            pytest.skip("FAIRFLOWS_DATA does not name a folder with the datasets")
        names: dict[str, object] = {"__name__": "__main__"}
        with sklearn.config_context():
            blocks = python_blocks(page).replace("n_draws=100_000", "n_draws=2_000")
            exec(compile(blocks, page.name, "exec"), names)
        return names

    yield run
    plt.close("all")


@MAY_WARN
@pytest.mark.parametrize("page", [page for page in WITH_PYTHON if page.id != README.name])
def test_python_in_the_docs_runs(page, run_page):
    run_page(page)


@MAY_WARN
def test_what_the_readme_makes_can_be_certified(run_page):
    """By the rows that a reader would take: those held back for a flow, the table itself for a release."""
    names = run_page(README)
    assert fairflows.certify(names["flow"], names["test"]).model_upper is not None
    assert names["shared"].certificate.table_distance is not None
    assert fairflows.check("out/certificate.json", "out/shared.csv")


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PYTHON)
def test_python_in_the_docs_runs_as_a_reader_runs_it(page, tmp_path):
    """In a process of its own, with all rows."""
    done = subprocess.run(
        [sys.executable, "-c", python_blocks(page)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name, take_few, tmp_path, monkeypatch):
    take_few(name)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    docstrings = doctest.DocTestFinder().find(importlib.import_module(name))
    for docstring in [found for found in docstrings if found.examples]:  # to run one without examples takes time, too
        monkeypatch.setenv("FAIRFLOWS_LEDGER", str(tmp_path / docstring.name))  # nobody was certified on before
        runner.run(docstring)
    assert runner.summarize().failed == 0


# Classes that only settings and results refer to, and a function for folders that `share` did not write.
REFERRED = {
    "About", "BatchEncoder", "BatchFindings", "Grouping", "Matches", "PanelLaw", "Panels", "Recourse", "RowLaw",
    "Statement", "TextFormat", "Watch", "encode_folder", "list_files",
}  # fmt: skip


def documented_and_public():
    """The names that the reference shows, and those that packages export; a page shows a package by its exports."""
    entries = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), flags=re.MULTILINE)
    assert [entry for entry, count in Counter(entries).items() if count > 1] == []
    packages = [
        fairflows,
        *(value for name in fairflows.__all__ if inspect.ismodule(value := getattr(fairflows, name))),
    ]
    packages += [value for name in fairflows.paper.__all__ if inspect.ismodule(value := getattr(fairflows.paper, name))]
    public = {(name, getattr(package, name)) for package in packages for name in getattr(package, "__all__", [])}
    shown = set()
    for entry in entries:
        home, name = entry.rsplit(".", 1)
        found = getattr(importlib.import_module(home), name)  # and it exists
        shown |= {(n, getattr(found, n)) for n in found.__all__} if inspect.ismodule(found) else {(name, found)}
    return shown, {(name, value) for name, value in public if not inspect.ismodule(value)}


def test_documented_names_are_the_public_names():
    shown, public = documented_and_public()
    assert sorted(name for name, _ in public - shown) == []
    assert sorted(name for name, _ in shown - public) == sorted(REFERRED)


def test_files_that_contributing_names_are_there():
    """A path of the recipes is one from the root, or one of a module or test."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`([\w./-]+(?:\.(?:py|pyi|md|toml|txt|yml)|/))`", text)
    assert len(paths) > 20
    for path in paths:
        assert any((folder / path).exists() for folder in (ROOT, ROOT / "src" / "fairflows")), path


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert f": {page.relative_to(ROOT / 'docs').as_posix()}\n" in navigation, page.name


def anchor(heading: str) -> str:
    """The name that a heading gets, on GitHub and on the site alike."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def test_links_to_headings_lead_to_one():
    for page in PAGES:
        for target, name in re.findall(r"\]\((?!https?://)([^)#]*)#([^)]+)\)", page.read_text()):
            other = page.parent / target if target else page
            headings = re.findall(r"^#+ (.+)$", other.read_text(), flags=re.MULTILINE)
            assert name.isascii(), f"{page.name}: the site knows no #{name}"
            assert name in map(anchor, headings), f"{page.name} links to {target}#{name}"


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_links_of_the_readme_lead_somewhere_wherever_it_is_read():
    """The README is also the project's page on PyPI, where relative links lead nowhere."""
    text = (ROOT / "README.md").read_text()
    assert re.findall(r"\]\((?!https://)([^)]+)", text) == []
    own = re.findall(
        r"\]\(https://(?:raw\.githubusercontent\.com|github\.com)/fairflows/fairflows/(?:blob/)?main/([^)#]+)", text
    )
    assert len(own) > 5
    assert [target for target in own if not (ROOT / target).exists()] == []

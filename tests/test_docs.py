"""The examples in the docs and docstrings run."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fairflows

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = [module.name for module in pkgutil.walk_packages(fairflows.__path__, "fairflows.")]


def python_blocks(page: Path) -> str:
    """All Python of a page, in order: later examples may use what earlier ones made."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("page", [p for p in PAGES if python_blocks(p)], ids=lambda page: page.name)
def test_python_in_the_docs_runs(page, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", python_blocks(page)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert failed == 0


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"

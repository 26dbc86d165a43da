"""The page, for the tests of its screens."""

import pytest
from client import Page


@pytest.fixture
def page(tmp_path):
    folder = tmp_path / "private"
    folder.mkdir()
    return Page(folder)

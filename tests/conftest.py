"""Settings and fixtures for all tests."""

import os
from pathlib import Path

import pytest

# Two test processes share two cores; more threads than that only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with the five datasets, named by FAIRFLOWS_DATA; tests that need it skip when it is absent."""
    folder = os.environ.get("FAIRFLOWS_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FAIRFLOWS_DATA does not name a folder with the datasets")
    return Path(folder)

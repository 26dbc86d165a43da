"""The command is tested here, not what adversaries and measurements reach."""

import pytest

from fairflows import sharing


@pytest.fixture(scope="module", autouse=True)
def one_job(few_trees, few_measured):
    """What is fitted in this process is small, and nothing runs beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "N_JOBS", 1)
        yield

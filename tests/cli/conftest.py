"""The command is tested here, not what training reaches."""

import pytest

from fairflows.encoder import flow_fitting


@pytest.fixture(scope="module", autouse=True)
def few_epochs():
    """Flows that are fitted in this process train for a few epochs."""
    schedule = flow_fitting.schedule

    def short(settings, n_smallest):
        epochs, batch_size, ramp = schedule(settings, n_smallest)
        return min(epochs, 8), batch_size, min(ramp, 6)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_fitting, "schedule", short)
        yield

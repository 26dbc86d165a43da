"""The command is tested here, not what training reaches."""

from dataclasses import replace

import pytest

from fairflows import frontier, workflow
from fairflows.certificate import certify
from fairflows.encoder import flow_fitting


@pytest.fixture(scope="module", autouse=True)
def few_epochs(few_trees, few_measured, few_components, short_made):
    """Models that are fitted in this process train for a few epochs, and are certified by few draws, in one thread."""
    training_settings = flow_fitting._training_settings

    def short(settings, n_smallest):
        full = training_settings(settings, n_smallest)
        return replace(full, epochs=min(full.epochs, 8), ramp_epochs=min(full.ramp_epochs, 6))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_fitting, "_training_settings", short)
        for module in (workflow, certify):
            patch.setattr(module, "affordable_draws", lambda n, n_groups: 5000)
        patch.setattr(workflow, "N_JOBS", 1)
        patch.setitem(frontier.__kwdefaults__, "n_draws", 1000)
        yield

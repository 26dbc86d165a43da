"""Some rows of Adult, shared once: few cells, so that everything is quick."""

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows import sharing


@pytest.fixture(scope="module", autouse=True)
def one_job(few_trees, few_measured, short_made):
    """What is fitted in this process is small, and nothing runs beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "N_JOBS", 1)
        yield


@pytest.fixture(scope="module")
def adult():
    """Some rows and columns of Adult."""
    table = ff.load_adult()
    few = table.take(np.random.default_rng(0).permutation(len(table))[:12_000])
    X = few.X[["education", "relationship", "workclass"]].reset_index(drop=True)
    names = pd.Series(np.arange(len(few)), name="person")
    return ff.Table(
        X.assign(sex=few.a.to_numpy(), income=few.y.to_numpy()), sensitive="sex", label="income", identifier=names
    )


@pytest.fixture(scope="module")
def few(adult):
    """A third of them, where it is not the question how well a model does."""
    return adult.take(range(4000))


@pytest.fixture(scope="module")
def shared(adult):
    """A table that was shared by a tree."""
    return ff.share(adult, target=0.2, output="cell")


@pytest.fixture(scope="module")
def records_of_held_out(tmp_path_factory):
    return tmp_path_factory.mktemp("ledger")


@pytest.fixture(scope="module")
def held_out(adult, records_of_held_out):
    """A table that was shared by cells for its label; the looks at its persons are counted apart."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRFLOWS_LEDGER", str(records_of_held_out))
        return ff.share(adult, target=0.25, method="cells", output="cell", quick=True)

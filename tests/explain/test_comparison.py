"""compare: one table for models of all kinds."""

import pytest
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer

from fairflows import CellRelease, DataError, FairFlow, audit, certify, compare, make_shifted_gaussians
from fairflows.bounds.arguments import CHOOSING
from fairflows.density import MixtureDensity
from fairflows.exceptions import DataWarning

pytestmark = [
    pytest.mark.usefixtures("few_trees"),
    pytest.mark.filterwarnings("ignore:Values outside the training range"),
]


@pytest.fixture(scope="module")
def parts():
    table, _ = make_shifted_gaussians(1.0, 3000, random_state=0)
    return table.split(random_state=0)


@pytest.fixture(scope="module")
def models(parts):
    train, _, _ = parts
    bins = KBinsDiscretizer(3, encode="ordinal", strategy="uniform")
    return {
        "rows": FunctionTransformer().fit(train.X),
        "first component": PCA(1).fit(train.X),
        "bins": bins.fit(train.X),
        "component in cells": make_pipeline(PCA(1), CellRelease(n_cells=4)).fit(
            train.X, train.y, cellrelease__sensitive_features=train.a
        ),
        "flow": FairFlow(density=MixtureDensity(1), n_epochs=3, n_blocks=2, hidden=(8,), head=(8,)).fit(train),
        "cells": CellRelease(n_cells=4).fit(train),
    }


@pytest.fixture(scope="module")
def compared(models, parts):
    train, _, test = parts
    return compare(models, train, test, quick=True, n_draws=2000)


def test_one_line_per_model_with_what_each_has(compared, models):
    assert list(compared.index) == list(models)
    has_densities, has_cells = compared["model_upper"].notna(), compared["cell_upper"].notna()
    assert compared.index[has_densities].tolist() == ["flow"]
    assert compared.index[has_cells].tolist() == ["bins", "component in cells", "cells"]
    assert (compared.loc[has_cells, "status"] == "CERTIFIED").all()
    assert compared.loc["rows", "status"] == "NOT_MET"
    assert (compared.loc[has_cells, "attack_lower"] <= compared.loc[has_cells, "cell_upper"]).all()
    assert compared.loc["rows", "attack_lower"] > 0.1  # the truth is 0.383


def test_the_label_is_learnt_from_what_is_released(compared):
    """x2 decides it: the rows tell it, and x1, the direction of most variance, does not."""
    assert compared.loc["rows", "accuracy"] > 0.95
    assert compared.loc["first component", "accuracy"] < 0.65
    assert compared.loc["rows", "parity"] < 0.15


def test_the_numbers_are_those_of_audit_and_certify(compared, models, parts):
    train, _, test = parts
    found = audit(models["rows"], train, test, quick=True, random_state=CHOOSING)
    assert compared.loc["rows", "attack_lower"] == pytest.approx(found.attack_lower)
    assert compared.loc["rows", "attack_by"] == found.best
    certificate = certify(models["bins"], test)  # in a book of looks that knows nothing of the comparison
    assert certificate.look == 1
    assert compared.loc["bins", "cell_upper"] == pytest.approx(certificate.cell_upper)


def test_each_bound_for_the_true_distribution_is_a_look_at_the_persons(models, parts):
    train, _, test = parts
    transformers = {name: models[name] for name in ("bins", "component in cells", "first component")}
    found = compare(transformers, train, test, quick=True)
    with pytest.warns(DataWarning, match="Another model was certified on some of these persons"):
        certificate = certify(models["bins"], test)
    assert certificate.look == 3  # two of the three give values that repeat
    assert certificate.cell_upper > found.loc["bins", "cell_upper"]


def test_a_certificate_draws_afresh_after_a_choice(parts):
    train, validation, test = parts
    flow = FairFlow(density=MixtureDensity(1), n_epochs=1, n_blocks=2, hidden=(8,), head=(8,)).fit(train)
    found = compare({"flow": flow}, train, test, quick=True, n_draws=500)
    assert found.loc["flow", "delta"] != certify(flow, validation, n_draws=500).model_delta


def test_a_model_that_was_compared_is_certified_on_other_persons(compared, models, parts):
    train, validation, test = parts
    assert certify(models["cells"], validation).cell_upper < 1
    with pytest.raises(DataError, match="fitted to, or chosen by"):
        certify(models["cells"], test)
    with pytest.raises(DataError, match="cells: The model was fitted to, or chosen by, .* of the"):
        compare({"cells": models["cells"]}, train, test, quick=True)


def test_drawn_rows_bring_their_own_label(parts):
    train, _, test = parts
    release = CellRelease(n_cells=4, output="row").fit(train)
    found = compare({"whole rows": release}, train, test, quick=True)
    assert 0.5 < found.loc["whole rows", "accuracy"] <= 1

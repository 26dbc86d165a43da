"""Somebody else's models: audited as they are; certified where a release follows them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, StandardScaler

from fairflows import Release, Table, audit, certify
from fairflows.exceptions import DataError
from fairflows.paper.baselines import RawFeatures
from fairflows.release.released import Released


class Shift(TransformerMixin, BaseEstimator):
    """Moves each group by its own amount, rounded: takes the attribute."""

    def fit(self, X, y=None):
        return self

    def transform(self, X, sensitive_features):
        return np.round(X[["u"]].to_numpy()) + 100 * (np.asarray(sensitive_features) == "m")[:, None]


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(0)
    n = 4000
    group = rng.choice(["f", "m"], n)
    frame = pd.DataFrame({"u": rng.normal((group == "m") * 0.5, 1), "v": rng.normal(0, 1, n), "sex": group})
    return Table(frame, sensitive="sex").split(test=0.5, validation=0)


@pytest.mark.parametrize("model", [PCA(1), make_pipeline(StandardScaler(), PCA(1)), KBinsDiscretizer(5)])
def test_an_audit_attacks_what_any_transformer_gives(model, parts):
    train, test = parts
    found = audit(model.fit(train.X), train, test, quick=True)
    assert 0.03 < found.attack_lower < 0.25  # the best adversary reaches Φ(1/4) − Φ(−1/4), about 0.197
    with pytest.raises(DataError, match="neither starts nor ends with an encoder of fairflows"):
        certify(model, test)


def test_the_attribute_goes_to_what_takes_it(parts):
    train, test = parts
    found = audit(Shift(), train, test, quick=True)
    assert found.attack_lower > 0.9


def test_cells_of_somebody_elses_representation(parts):
    train, test = parts
    release = make_pipeline(StandardScaler(), PCA(1), Release(RawFeatures(), n_cells=4, output="cell", n_folds=1))
    release.fit(train.X, train.X["u"] > 0, release__sensitive_features=train.a)
    certificate = certify(release, test)
    assert certificate.n_cells == 4
    assert certificate.cell_upper < 0.5
    released = Released.of(release)
    assert (released.cells(test) == release.transform(test.X)[:, 0]).all()
    assert released.ledger is None
    assert released.secret == b""


def test_rows_that_the_cells_were_fitted_to_certify_nothing(parts):
    train, test = parts[0], parts[-1]
    release = make_pipeline(StandardScaler(), Release(RawFeatures(), n_cells=4, output="cell", n_folds=1)).fit(
        train.X, train.X["u"] > 0
    )
    assert Released.of(release).already_used(test) == 0
    with pytest.raises(
        DataError, match=f"The model was fitted to, or chosen by, {len(train):,} of the {len(train):,} rows"
    ):
        certify(release, train)

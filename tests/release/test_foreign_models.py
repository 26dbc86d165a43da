"""Somebody else's models: audited as they are, and certified where their values repeat."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, StandardScaler

from fairflows import Release, Table, audit, certify, verify
from fairflows.bounds import cell_upper_bound
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


def models(train):
    bins = {"n_bins": 3, "strategy": "uniform"}
    return {
        "ordinal": KBinsDiscretizer(encode="ordinal", **bins).fit(train.X),
        "sparse": KBinsDiscretizer(encode="onehot", **bins).fit(train.X),
        "pipeline": make_pipeline(StandardScaler(), KBinsDiscretizer(encode="ordinal", **bins)).fit(train.X),
    }


@pytest.mark.parametrize("model", [PCA(1), make_pipeline(StandardScaler(), PCA(1)), StandardScaler()])
def test_an_audit_attacks_what_any_transformer_gives(model, parts):
    train, test = parts
    found = audit(model.fit(train.X), train, test, quick=True)
    assert 0.03 < found.attack_lower < 0.25  # the best adversary reaches Φ(1/4) − Φ(−1/4), about 0.197
    with pytest.raises(DataError, match="gives another value for each of the 2,000 rows"):
        certify(model, test)


@pytest.mark.parametrize("name", ["ordinal", "sparse", "pipeline"])
def test_values_that_repeat_are_cells(name, parts):
    train, test = parts
    model = models(train)[name]
    certificate = certify(model, test, audit=audit(model, train, test, quick=True))
    values = pd.DataFrame(models(train)["ordinal"].transform(test.X))
    counts = pd.crosstab(test.a.to_numpy(), [values[0].to_numpy(), values[1].to_numpy()])
    assert certificate.released == ("cell",)
    assert certificate.n_cells == counts.shape[1] == 9
    assert certificate.cell_upper == pytest.approx(cell_upper_bound(counts, certificate.headline.delta))
    assert 0.1 < certificate.cell_upper < 0.35
    assert any("depends on that row alone" in a.text for a in certificate.assumptions)
    assert any("keeps no ledger" in a.text for a in certificate.assumptions)
    assert verify(certificate, model, test)


def test_counts_are_of_the_numbers_as_they_are_given(parts):
    """In single precision two numbers may be one, and the bound would be of something else than what is given."""
    _, test = parts

    class Tiny(Shift):
        def transform(self, X):
            return np.where(X[["u"]].to_numpy() > 0, 1.0, 1.0 + 1e-12)

    assert len(np.unique(Released.of(Tiny()).cells(test))) == 2


@pytest.mark.parametrize(
    ("one", "other"), [(-0.0, 0.0), (2**60, 2**60 + 1), (1, "1"), (1, 1.0), (None, "None"), (np.nan, "nan")]
)
def test_cells_are_all_that_a_file_would_tell_apart(one, other, parts):
    """What rounds to -0.0 was below zero, and a file says so."""
    _, test = parts

    class Two(Shift):
        def transform(self, X):
            kind = object if type(one) is not type(other) else None
            values = np.array([one, other], dtype=kind)[(X["u"] > 0).astype(int)]
            return pd.DataFrame({"same": 0, "value": values}, index=X.index)

    cells = Released.of(Two()).cells(test)
    assert len(np.unique(cells)) == 2
    back = np.arange(len(test))[::-1]
    np.testing.assert_array_equal(Released.of(Two()).cells(test.take(back)), cells[back])  # in whatever order they come


def test_the_attribute_goes_to_what_takes_it(parts):
    train, test = parts
    found = audit(Shift(), train, test, quick=True)
    assert found.attack_lower > 0.9
    assert certify(Shift(), test).cell_upper == 1


def test_cells_of_somebody_elses_representation(parts):
    train, test = parts
    release = make_pipeline(StandardScaler(), PCA(1), Release(RawFeatures(), n_cells=4, output="cell", n_folds=1))
    release.fit(train.X, train.X["u"] > 0, release__sensitive_features=train.a)
    certificate = certify(release, test)
    assert certificate.n_cells == 4
    assert certificate.cell_upper < 0.5


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


def test_a_model_that_is_not_fitted(parts):
    train, test = parts
    with pytest.raises(NotFittedError):
        audit(StandardScaler(), train, test)
    with pytest.raises(NotFittedError):
        certify(StandardScaler(), test)

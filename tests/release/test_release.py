"""Release with one model: what comes out, and that cells are functions of z alone."""

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairflows import DataError, DataWarning, Release, Table
from fairflows.certificate.certify import most_rows_of
from fairflows.paper.baselines import RawFeatures
from sklearn_checks import run_check

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(3)
    y = rng.integers(2, size=4000)
    z = pd.DataFrame(rng.normal(size=(4000, 2)) + y[:, None], columns=["z0", "z1"])
    z["town"] = np.where(rng.random(4000) < 0.2 + 0.5 * y, "Ulm", "Bonn")
    z.index = pd.Index([f"p{i}" for i in range(4000)], name="person")
    return z, y


EXPECTED = {"check_estimators_pickle": "pickles leave out the secret key, and an encoder does nothing without it"}


@parametrize_with_checks([Release(RawFeatures(), n_cells=4, output="cell")])
def test_scikit_learn_conventions(estimator, check):
    run_check(check, estimator, EXPECTED)


@parametrize_with_checks([Release(RawFeatures(), n_cells=4)])
def test_scikit_learn_conventions_of_drawn_rows(estimator, check):
    run_check(check, estimator, EXPECTED | {"check_fit_idempotent": "every call draws other rows"})


def test_tree_cells_are_the_leaves_of_scikit_learns_tree():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3000, 3))
    y = (z.sum(axis=1) + rng.normal(size=3000) > 0).astype(int)
    release = Release(RawFeatures(), n_cells=16, output="cell").fit(z, y)
    tree = DecisionTreeClassifier(max_leaf_nodes=16, random_state=0).fit((z - z.mean(0)) / z.std(0), y)
    fresh = rng.normal(size=(3000, 3))
    cells = pd.Series(release.cells(release.read(fresh)))
    pairs = cells.groupby(tree.apply((fresh - z.mean(0)) / z.std(0))).nunique()
    assert len(pairs) == release.n_cells_ == 16
    assert (pairs == 1).all()


def test_predicts_the_label_of_the_cell(blobs):
    z, y = blobs
    release = Release(RawFeatures(), n_cells=8, output="cell").fit(z, np.where(y, "yes", "no"))
    assert (release.predict(z) == np.where(y, "yes", "no")).mean() > 0.8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_cells": 1}, "n_cells must be .* at least 2; got 1"),
        ({"n_cells": "many"}, "n_cells must be .* got 'many'"),
        ({"output": "all"}, "output must be .* got 'all'"),
        ({"n_cells": "auto"}, "encoders that plan their cells"),
        ({"n_folds": 3}, "n_folds must be 1 or 2; got 3"),
    ],
)
def test_wrong_settings_are_named(blobs, settings, message):
    with pytest.raises(ValueError, match=message):
        Release(RawFeatures(), **{"output": "cell", **settings}).fit(*blobs)


def test_what_a_method_cannot_do_without_is_named(blobs):
    with pytest.raises(DataError, match="requires y"):
        Release(RawFeatures(), output="cell").fit(blobs[0])


def test_several_rows_take_an_identifier():
    """How many rows a person may have can be stated only where somebody says whose rows they are."""
    frame = pd.DataFrame(
        {"x": np.arange(200) % 2, "a": np.arange(200) // 2 % 2, "y": np.arange(200) % 2, "who": np.arange(200) // 4}
    )
    nobody = Table(frame.drop(columns="who"), sensitive="a", label="y", kinds={"x": "categorical"})
    named = Table(frame, sensitive="a", label="y", identifier="who", kinds={"x": "categorical"})
    release = Release(RawFeatures(), n_cells=2, output="cell")
    release.fit(nobody)
    assert most_rows_of(release, nobody) == 1
    assert most_rows_of(release, named, 6) == 6
    with pytest.raises(DataError, match=r"most_rows must be 1 where no identifier .*; got 6\."):
        most_rows_of(release, nobody, 6)
    with pytest.raises(DataError, match=r"fitted without persons.*state the most rows.*\(most_rows=\.\.\.\)"):
        most_rows_of(release, named)
    assert most_rows_of(release.fit(named), named) == 4


def test_a_sensitive_column_that_fit_names_is_not_released():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=900).round(1), "sex": rng.choice(["f", "m"], 900)})
    release = Release(n_cells=4)
    rows = release.fit_transform(X, rng.integers(0, 2, 900), sensitive_features="sex")
    assert list(rows) == ["x", "y", "y_score"]
    new = X.assign(x=rng.normal(size=900))
    with pytest.warns(DataWarning, match="fresh randomness"):
        assert list(release.transform(new, sensitive_features="sex")) == list(rows)

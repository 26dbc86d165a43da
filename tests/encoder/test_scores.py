"""Scores as plain arrays predict what scikit-learn's own estimators predict."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier

import fairflows as ff
from fairflows import DataError
from fairflows.encoder.scores import BoostedTrees, LogisticScores, fit_score, rounded, score_columns


def table(n=2100, n_classes=2):
    """Numbers, some missing, times and categories, some missing and many rare."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    X.loc[rng.random(n) < 0.2, "b"] = np.nan
    X["since"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    X["for"] = pd.to_timedelta(rng.integers(0, 900, n), unit="h")
    X["text"] = rng.choice(["u", "v", None], n)
    X["town"] = [f"t{i}" for i in np.minimum(rng.geometric(0.05, n), 90)]
    score = X["a"] + X["b"].fillna(1) * (X["text"] == "u") + (X["town"] < "t3") + rng.normal(size=n) / 3
    return X, np.digitize(score, [0.5, 1.5][: n_classes - 1])


def fitted(estimator, X, y):
    rows = SimpleNamespace(X=X)
    return fit_score(estimator, rows, np.arange(len(X)), y, score_columns(X, {}, "other"), 0)


def new_rows(X):
    missing = X.head(3).assign(a=np.nan, c=np.nan, text=None)
    infinite = X.head(2).assign(a=[np.inf, -np.inf])
    return pd.concat([X.tail(200), *(part.astype(X.dtypes) for part in (missing, infinite))])


@pytest.mark.parametrize(("n_classes", "max_leaf_nodes"), [(2, 2), (2, 31), (3, 33), (3, 100)])
def test_trees_give_the_rounded_probabilities_of_scikit_learn(n_classes, max_leaf_nodes):
    X, y = table(n_classes=n_classes)
    trees = HistGradientBoostingClassifier(
        max_iter=8, max_leaf_nodes=max_leaf_nodes, min_samples_leaf=3, random_state=0
    )
    score, rows = fitted(trees, X, y), new_rows(X)
    assert isinstance(score.model, BoostedTrees)
    own = trees.fit(score.features.matrix(X), y)
    np.testing.assert_array_equal(score.predict_proba(rows), rounded(own.predict_proba(score.features.matrix(rows))))


def test_scores_are_rounded_each_by_itself():
    x = np.array([[1e300, -0.1, np.inf], [1 / 3, 0.0, np.nan], [-np.inf, 5e-324, 1e-200]])
    np.testing.assert_array_equal(rounded(x * (1 + 1e-13)), rounded(x))
    np.testing.assert_allclose(rounded(x), x, rtol=1e-9, atol=0)
    assert rounded(np.nextafter(0.5, 0)) == 0.5
    assert rounded(0.1 + 1e-8) != rounded(0.1)


@pytest.mark.parametrize(
    "estimator",
    [
        HistGradientBoostingClassifier(max_iter=8),
        LogisticRegression(max_iter=200),
        MLPClassifier((30,), max_iter=3, random_state=0),
        LinearRegression(),
    ],
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_a_score_is_the_same_in_every_batch(estimator, monkeypatch):
    X, y = table(n_classes=3)
    X = X.drop(columns=["b", "since", "for"])
    score = fitted(estimator, X, y)
    rows, whole = X.tail(70), score.values(X)
    alone = np.concatenate([score.values(rows.iloc[i : i + 1]) for i in range(len(rows))])
    np.testing.assert_array_equal(alone, whole[-70:])
    monkeypatch.setattr("fairflows.encoder.scores._ROWS_PER_CHUNK", 7)
    np.testing.assert_array_equal(score.values(X), whole)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_logistic_regression(n_classes):
    X, y = table(n_classes=n_classes)
    X = X.drop(columns=["b", "since", "for"])
    score = fitted(LogisticRegression(max_iter=200), X, y)
    assert isinstance(score.model, LogisticScores)
    x = score.features.matrix(X)
    np.testing.assert_allclose(
        score.predict_proba(X), LogisticRegression(max_iter=200).fit(x, y).predict_proba(x), rtol=1e-9
    )
    with pytest.raises(DataError, match="takes no missing values, and 2 rows have some"):
        score.predict_proba(X.head(2).assign(a=np.nan))


def test_the_mean_of_a_number():
    X, y = table()
    score = fitted(HistGradientBoostingRegressor(max_iter=8, random_state=0), X, y + X["a"])
    assert isinstance(score.model, BoostedTrees)
    own = HistGradientBoostingRegressor(max_iter=8, random_state=0).fit(score.features.matrix(X), y + X["a"])
    expected = own.predict(score.features.matrix(new_rows(X)))
    np.testing.assert_array_equal(score.values(new_rows(X))[:, 0], rounded(expected))
    poisson = fitted(HistGradientBoostingRegressor(max_iter=8, loss="poisson"), X, y)
    assert isinstance(poisson.model, HistGradientBoostingRegressor)  # whose mean is another function of the sums


@pytest.fixture
def gaps():
    """Rows as a CSV file gives them: whole numbers with gaps, a column without a value, a label."""
    rng = np.random.default_rng(0)
    n = 800
    days = pd.Series(rng.integers(0, 30, n), dtype="Int64").mask(rng.random(n) < 0.2)
    x = rng.normal(size=n)
    return pd.DataFrame(
        {
            "person": np.arange(n),
            "x": x,
            "days": days,
            "nothing": np.nan,
            "y": (x > 0).astype(int),
            "a": rng.choice(["f", "m"], n),
        }
    )


@pytest.mark.parametrize("kind", ["string", "object", "category", "boolean"])
def test_gaps_are_learnt_from_whatever_pandas_calls_them(kind, gaps):
    text = pd.Series(["a", "b", None, "a"] * 200, dtype="string")
    rows = gaps.assign(c=(text == "a").mask(text.isna()) if kind == "boolean" else text.astype(kind))
    table = ff.Table(rows, sensitive="a", label="y", identifier="person")
    tree = ff.FairTree(n_cells=4, missing="category", identifier="person").fit(table)
    assert (tree.predict(table) == table.y).mean() > 0.9

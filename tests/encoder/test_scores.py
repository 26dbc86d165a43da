"""Trees as plain arrays predict what scikit-learn's own models predict."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

import fairflows as ff
from fairflows.encoder.scores import feature_matrix, fit_score, rounded
from fairflows.table.domain import Domain, Seen, take


def table(n=2100, n_classes=2):
    """Numbers, some missing, times and categories, some missing and many rare."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    X.loc[rng.random(n) < 0.2, "b"] = np.nan
    X["since"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    X["for"] = pd.to_timedelta(rng.integers(0, 900, n), unit="h")
    X["text"] = rng.choice(["u", "v", None], n)
    X["town"] = [f"t{i}" for i in np.minimum(rng.geometric(0.05, n), 35)]
    score = X["a"] + X["b"].fillna(1) * (X["text"] == "u") + (X["town"] < "t3") + rng.normal(size=n) / 3
    return X, np.digitize(score, [0.5, 1.5][: n_classes - 1])


def fitted(model, X, y):
    """The score, and how a frame becomes arrays."""
    domain, codes = Domain.of(X)
    return fit_score(model, codes, np.asarray(y), Seen.of(domain, codes)), lambda frame: domain.read(frame)[0]


def new_rows(X, read):
    """Rows of training, some without values that others lack too, numbers as far away as one likes, a new town."""
    codes = read(pd.concat([X.tail(200), X.head(3).assign(a=np.nan, c=np.nan, text=None), X.head(5)]))
    place = np.arange(208)
    far = np.select([place == 203, place == 204], [np.inf, -np.inf], codes["a"])
    return codes | {"a": far, "town": np.where(place == 205, -1, codes["town"])}


@pytest.mark.parametrize(("n_classes", "max_leaf_nodes"), [(2, 2), (2, 31), (3, 33), (3, 100)])
def test_trees_give_the_rounded_probabilities_of_scikit_learn(n_classes, max_leaf_nodes):
    X, y = table(n_classes=n_classes)
    trees = HistGradientBoostingClassifier(
        max_iter=8, max_leaf_nodes=max_leaf_nodes, min_samples_leaf=3, random_state=0
    )
    score, read = fitted(trees, X, y)
    rows = new_rows(X, read)
    own = trees.fit(feature_matrix(score.features, read(X)), y)
    np.testing.assert_array_equal(
        score.predict_proba(rows), rounded(own.predict_proba(feature_matrix(score.features, rows)))
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rare_categories_of_a_column_of_many_are_told_apart(n_classes):
    rng = np.random.default_rng(0)
    towns, n = 400, 8000
    of_town = rng.integers(0, n_classes, towns)
    place = rng.integers(0, towns, n)
    X = pd.DataFrame({"town": [f"t{i}" for i in place], "noise": rng.normal(size=n)})
    y = np.where(rng.random(n) < 0.8, of_town[place], rng.integers(0, n_classes, n))
    fresh = rng.integers(0, towns, n)
    score, read = fitted(HistGradientBoostingClassifier(random_state=0), X, y)
    asked = pd.DataFrame({"town": [f"t{i}" for i in fresh], "noise": rng.normal(size=n)})
    assert (score.predict_proba(read(asked)).argmax(axis=1) == of_town[fresh]).mean() > 0.95


def test_a_category_of_few_rows_does_not_repeat_its_own_targets():
    rng = np.random.default_rng(0)
    X, y = pd.DataFrame({"town": [f"t{i // 2}" for i in range(4000)]}), rng.integers(0, 2, 4000)
    score, read = fitted(HistGradientBoostingClassifier(random_state=0), X, y)
    told = score.predict_proba(read(X))[:, 1]
    assert abs(told - 0.5).mean() < 0.1, "two rows of a town say nothing about others, and the score knows it"


def test_scores_are_rounded_each_by_itself():
    x = np.array([[1e300, -0.1, np.inf], [1 / 3, 0.0, np.nan], [-np.inf, 5e-324, 1e-200]])
    np.testing.assert_array_equal(rounded(x * (1 + 1e-13)), rounded(x))
    np.testing.assert_allclose(rounded(x), x, rtol=1e-9, atol=0)
    assert rounded(np.array([np.nextafter(0.5, 0)])) == 0.5
    assert rounded(np.array([0.1 + 1e-8])) != rounded(np.array([0.1]))


@pytest.mark.parametrize(
    "model", [HistGradientBoostingClassifier(max_iter=8), HistGradientBoostingRegressor(max_iter=8)], ids=type
)
def test_a_score_is_the_same_in_every_batch(model, monkeypatch):
    X, y = table(n_classes=3)
    score, read = fitted(model, X, y)
    codes = read(X)
    whole = score.values(codes)
    alone = np.concatenate([score.values(take(codes, slice(i, i + 1))) for i in range(len(X) - 70, len(X))])
    np.testing.assert_array_equal(alone, whole[-70:])
    monkeypatch.setattr("fairflows.encoder.scores._ROWS_PER_CHUNK", 7)
    np.testing.assert_array_equal(score.values(codes), whole)


def test_the_mean_of_a_number():
    X, y = table()
    score, read = fitted(HistGradientBoostingRegressor(max_iter=8, random_state=0), X, y + X["a"])
    own = HistGradientBoostingRegressor(max_iter=8, random_state=0)
    own.fit(feature_matrix(score.features, read(X)), y + X["a"])
    rows = new_rows(X, read)
    expected = own.predict(feature_matrix(score.features, rows))
    np.testing.assert_array_equal(score.values(rows)[:, 0], rounded(expected))
    # The mean by this loss is another function of the sums, as if another release had laid out its trees otherwise.
    with pytest.raises(RuntimeError, match="lays out its trees"):
        fitted(HistGradientBoostingRegressor(max_iter=8, loss="poisson"), X, y)


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
    tree = ff.FairTree(n_cells=4, identifier="person").fit(table)
    assert (tree.predict(table) == table.y).mean() > 0.9


@pytest.mark.parametrize(("n_classes", "n_trees"), [(2, 40), (11, 11 * 14), (20, 20 * 10)])
def test_a_label_of_more_classes_has_fewer_rounds(n_classes, n_trees):
    X = pd.DataFrame({"x": np.arange(400.0)})
    table = ff.Table(X.assign(a=np.arange(400) % 2, y=(np.arange(400) // 20 % n_classes)), sensitive="a", label="y")
    tree = ff.FairTree(n_cells=2).fit(table)
    assert len(tree.split_scores_.of_labels[0].trees.roots) == n_trees

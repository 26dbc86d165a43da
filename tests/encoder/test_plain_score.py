"""A score as plain arrays gives the probabilities of the pipeline that was fitted."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from fairflows import DataError
from fairflows.codec.one_column import Levels
from fairflows.encoder.task_score import PlainScore, plain_score, predicted_scores, score_columns, score_pipeline
from fairflows.table.columns import TableColumns


def category_columns(X):
    """The columns that hold categories, by their types."""
    return [name for name, what in score_columns(X, {}, "other").items() if isinstance(what, Levels)]


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


def new_rows(X):
    unseen = X.head(3).assign(text="never seen", town="never seen")
    missing = X.head(3).assign(a=np.nan, c=np.nan, text=None, town=None)
    infinite = X.head(2).assign(a=[np.inf, -np.inf])
    return pd.concat([X.tail(200), *(part.astype(X.dtypes) for part in (unseen, missing, infinite))])


@pytest.mark.parametrize(("n_classes", "max_leaf_nodes"), [(2, 2), (2, 31), (3, 33), (3, 100)])
def test_trees_give_the_probabilities_of_scikit_learn_bit_for_bit(n_classes, max_leaf_nodes):
    X, y = table(n_classes=n_classes)
    trees = HistGradientBoostingClassifier(max_iter=8, max_leaf_nodes=max_leaf_nodes, min_samples_leaf=3)
    pipeline = score_pipeline(trees, X, category_columns(X)).fit(X, y)
    plain = plain_score(pipeline, X)
    assert isinstance(plain, PlainScore)
    rows = new_rows(X)
    np.testing.assert_array_equal(plain.predict_proba(rows), pipeline.predict_proba(rows))
    alone = [plain.raw_scores(rows.iloc[i : i + 1]) for i in range(190, len(rows))]
    np.testing.assert_array_equal(np.concatenate(alone), plain.raw_scores(rows)[190:])


def test_without_rare_categories_they_are_not_counted_and_plain_trees_stay_the_same():
    X, y = table()
    X = X.drop(columns="town")
    pipeline = score_pipeline(HistGradientBoostingClassifier(max_iter=5), X, category_columns(X)).fit(X, y)
    encoder = pipeline[0].named_transformers_["onehotencoder"]
    assert encoder.max_categories is None
    rows = new_rows(X.assign(town="")).drop(columns="town")
    counted = encoder.__class__(**encoder.get_params() | {"max_categories": 40}).fit(X[["text"]])
    np.testing.assert_array_equal(encoder.transform(rows[["text"]]), counted.transform(rows[["text"]]))
    np.testing.assert_array_equal(plain_score(pipeline, X).predict_proba(rows), pipeline.predict_proba(rows))


def test_trees_without_a_split_and_rows_in_several_chunks(monkeypatch):
    X, y = table()
    pipeline = score_pipeline(
        HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=2000), X, category_columns(X)
    ).fit(X, y)
    plain = plain_score(pipeline, X)
    assert len(plain.model.feature) == 0
    np.testing.assert_array_equal(plain.predict_proba(X), pipeline.predict_proba(X))
    np.testing.assert_array_equal(plain.predict_proba(X.head(1)), pipeline.predict_proba(X.head(1)))
    pipeline = score_pipeline(HistGradientBoostingClassifier(max_iter=3), X, category_columns(X)).fit(X, y)
    monkeypatch.setattr("fairflows.encoder.task_score._ROWS_PER_CHUNK", 7)
    np.testing.assert_array_equal(plain_score(pipeline, X).predict_proba(X), pipeline.predict_proba(X))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_logistic_regression(n_classes):
    X, y = table(n_classes=n_classes)
    X = X.drop(columns=["b", "since", "for"])
    pipeline = score_pipeline(LogisticRegression(max_iter=200), X, category_columns(X)).fit(X, y)
    plain = plain_score(pipeline, X)
    assert isinstance(plain, PlainScore)
    np.testing.assert_allclose(plain.predict_proba(X), pipeline.predict_proba(X), rtol=1e-9)
    with pytest.raises(DataError, match="takes no missing values, and 2 rows have some"):
        plain.predict_proba(X.head(2).assign(a=np.nan))


def test_another_classifier_stays_what_it_is():
    X, y = table(300)
    codes = X[["a"]].round().clip(0, 5)
    for classifier in (RandomForestClassifier(3), HistGradientBoostingClassifier(categorical_features=[0])):
        pipeline = score_pipeline(classifier, codes, category_columns(codes)).fit(codes, y)
        assert plain_score(pipeline, codes) is pipeline


def test_the_mean_of_a_number():
    X, y = table()
    pipeline = score_pipeline(HistGradientBoostingRegressor(max_iter=8), X, category_columns(X)).fit(X, y + X["a"])
    plain = plain_score(pipeline, X)
    assert isinstance(plain, PlainScore)
    np.testing.assert_allclose(predicted_scores([plain], new_rows(X))[:, 0], pipeline.predict(new_rows(X)), rtol=1e-12)
    np.testing.assert_array_equal(predicted_scores([pipeline], TableColumns(X))[:, 0], pipeline.predict(X))

"""Encoders in scikit-learn's searches, and the sensitive attribute on its way through pipelines."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from joblib import parallel_config
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder

from fairflows import DataError, DataWarning, FairFlow, FairMatching
from fairflows.density import MixtureDensity

pytestmark = pytest.mark.usefixtures("few_trees")

PLACE, VALUE = 17, 20.5


@pytest.fixture(scope="module")
def people():
    """Whole hours, but for one value of one person; column names as in a frame that holds everything."""
    rng = np.random.default_rng(0)
    n = 240
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 60, n),
            "hours": rng.integers(0, 50, n).astype(float),
            "sex": rng.choice(["f", "m"], n),
            "person": np.arange(n),
        }
    )
    frame.loc[PLACE, "hours"] = VALUE
    return frame, (frame["age"] + 5 * rng.normal(size=n) > 40).astype(int)


FLOW = {"n_epochs": 1, "hidden": (8,), "density": MixtureDensity(1), "sensitive": "sex", "identifier": "person"}


def test_a_grid_search_rounds_a_value_that_is_off_the_grid_in_one_fold(people):
    X, y = people
    folds = KFold(3)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        search = GridSearchCV(FairFlow(**FLOW), {"gamma": [0.0, 0.5]}, cv=folds, scoring="accuracy").fit(X, y)
    assert np.isfinite([search.cv_results_[f"split{i}_test_score"] for i in range(3)]).all()
    rounded = [str(w.message) for w in said if "training grid" in str(w.message)]
    message = "Values between the points of the training grid, to which flows round them: column 'hours' (1)."
    assert rounded == [message, message], "one for each gamma, in the fold that meets the value only when it predicts"


def test_off_the_grid_a_value_is_rounded_alike_in_every_group(people):
    X, y = people
    flow = FairFlow(**FLOW).fit(X.drop(index=PLACE), y.drop(index=PLACE))
    for group in ("f", "m"):
        one = X.iloc[[PLACE]].assign(sex=group)
        with pytest.warns(DataWarning, match="flows round them"):
            rounded = flow.transform(one)
        pd.testing.assert_frame_equal(rounded, flow.transform(one.assign(hours=20.0)))


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture(scope="module")
def towns():
    rng = np.random.default_rng(1)
    n = 900
    a = pd.Series(rng.choice(["old", "young"], n))
    X = pd.DataFrame(
        {
            "town": rng.choice(["Ulm", "Bonn", "Trier"], n),
            "work": np.where(rng.random(n) < np.where(a == "old", 0.7, 0.3), "office", "field"),
        },
        index=pd.Index(np.arange(n), name="person"),
    )
    return X, pd.Series(((X["work"] == "office") ^ (rng.random(n) < 0.2)).astype(int)), a


def test_a_search_routes_the_attribute_to_fits_and_scores(routing, towns):
    X, y, a = towns
    encoder = FairMatching(density="counts", identifier="person")
    chain = make_pipeline(encoder, OneHotEncoder(handle_unknown="ignore"), LogisticRegression())
    search = GridSearchCV(chain, {"fairmatching__gamma": [0.0, 1.0]}, cv=3).fit(X, y, sensitive_features=a)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.score(X, y, sensitive_features=a) > 0.5


def test_scorers_and_cross_validation_predict_from_a_column(towns):
    """What they call is predict(X): the attribute, and who is who, must be in X."""
    X, y, a = towns
    by_column = FairMatching(0.5, density="counts", sensitive="age group", identifier="person")
    with_both = X.assign(**{"age group": a.to_numpy()})
    assert cross_val_predict(by_column, with_both, y, cv=3).shape == y.shape
    search = GridSearchCV(by_column, {"gamma": [0.0, 1.0]}, cv=3, scoring="balanced_accuracy").fit(with_both, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    missing = GridSearchCV(FairMatching(density="counts"), {"gamma": [1.0]}, scoring="accuracy", error_score="raise")
    with sklearn.config_context(enable_metadata_routing=True), pytest.raises(DataError, match="sensitive='...'"):
        missing.fit(X, y, sensitive_features=a)


def test_parts_keep_their_keys_in_threads_and_the_error_says_so_where_they_lost_them(towns):
    X, y, a = towns
    by_column = FairMatching(0.5, density="counts", sensitive="age group", identifier="person")
    parts = FeatureUnion([("half", by_column), ("whole", sklearn.clone(by_column).set_params(gamma=1.0))], n_jobs=2)
    X = X.assign(**{"age group": a.to_numpy()})
    with parallel_config("threading"):
        assert parts.fit(X, y).transform(X).shape == (len(X), 2 * X.shape[1] - 2)
    elsewhere = pickle.loads(pickle.dumps(parts)).set_params(n_jobs=None)  # as parts come back from other processes
    with pytest.raises(DataError, match=r"n_jobs .* other processes .*leave n_jobs out, .*parallel_config"):
        elsewhere.transform(X)

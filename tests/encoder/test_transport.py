"""FairTransport: of cells, and of scores."""

import numpy as np
import pandas as pd
import polars
import pytest
from sklearn.linear_model import LogisticRegression

from fairflows.bounds import exact_statistical_distance
from fairflows.encoder.cell_coupling import class_distance
from fairflows.encoder.fair_transport import Barycentre, FairTransport, _best_threshold
from fairflows.exceptions import DataError, DataWarning
from fairflows.release.cell_release import CellRelease
from fairflows.table.persons import Key
from fairflows.table.table import Table

pytestmark = pytest.mark.usefixtures("few_trees")

KEY = Key(range(32))
CELLS = {"density": "counts", "key": KEY, "identifier": "person"}
SCORE = {"key": KEY, "identifier": "person"}


def fit(table, **settings):
    return FairTransport(**{**CELLS, **settings}).fit(table.X, table.y, sensitive_features=table.a)


def test_full_strength_leaves_no_distance(categorical):
    encoder = fit(categorical)
    assert exact_statistical_distance(encoder.latent_laws_) < 1e-10
    assert np.isclose(encoder.latent_laws_.sum(axis=1), 1).all()


def test_the_frontier_has_its_closed_form(categorical):
    encoders = FairTransport(**CELLS, reference="old").fit_many(
        categorical.X, categorical.y, sensitive_features=categorical.a, strengths=np.linspace(0, 1, 11), seeds=[0]
    )
    model = encoders[0].transport_.model
    labels = model.scores.argmax(axis=1)
    p = np.exp(model.log_p)
    tv_class = class_distance(p[1], p[0], labels)
    for encoder in encoders:
        distance = exact_statistical_distance(encoder.latent_laws_)
        changed = encoder.transport_.couplings[1].label_change(labels)
        assert distance == pytest.approx((1 - encoder.strength) * tv_class, abs=1e-9)
        assert changed == pytest.approx(tv_class - distance, abs=1e-9)


def test_the_law_is_that_of_encoded_draws(categorical):
    encoder = fit(categorical, strength=0.7, output="codes")
    for a, rows in enumerate(encoder.sample_rows(40_000, random_state=1)):
        group = np.full(len(rows), encoder.groups_[a])
        cells = encoder.transform(rows.rename_axis("person"), sensitive_features=group)["cell"]
        frequency = np.bincount(cells, minlength=encoder.latent_laws_.shape[1]) / len(rows)
        np.testing.assert_allclose(frequency, encoder.latent_laws_[a], atol=0.012)


def test_one_person_is_always_encoded_alike(categorical):
    encoder = fit(categorical)
    Z = encoder.transform(categorical.X, sensitive_features=categorical.a)
    order = np.random.default_rng(0).permutation(len(categorical))
    again = encoder.transform(categorical.X.iloc[order], sensitive_features=categorical.a.iloc[order])
    pd.testing.assert_frame_equal(Z.iloc[order], again)
    other = fit(categorical, key=Key([9] * 32)).transform(categorical.X, sensitive_features=categorical.a)
    assert not Z.equals(other)


def test_decoding_samples_the_group(categorical):
    encoder = fit(categorical)
    Z = encoder.transform(categorical.X, sensitive_features=categorical.a)
    back = encoder.inverse_transform(Z, sensitive_features=categorical.a)
    assert not back.equals(categorical.X)  # a sample, not the rows themselves
    for group in encoder.groups_:
        mine = (categorical.a == group).to_numpy()
        share, expected = (frame[mine]["work"].eq("office").mean() for frame in (back, categorical.X))
        assert share == pytest.approx(expected, abs=0.06)


def test_predictions_keep_their_parity(categorical):
    encoder = fit(categorical)
    predicted = encoder.predict(categorical.X, sensitive_features=categorical.a)
    rates = [predicted[(categorical.a == group).to_numpy()].mean() for group in encoder.groups_]
    raw = [categorical.y[(categorical.a == group)].mean() for group in encoder.groups_]
    assert abs(rates[0] - rates[1]) < 0.06 < abs(raw[0] - raw[1])


def scored(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    x = rng.normal(size=(n, 3)) + 1.2 * a[:, None]
    y = (x[:, 0] + 0.5 * rng.normal(size=n) > 0.6).astype(int)
    frame = pd.DataFrame(x).add_prefix("x").assign(person=np.arange(n))
    return Table(frame, sensitive=a, label=y, identifier="person")


def test_scores_get_one_law():
    train, _, test = scored().split()
    encoder = FairTransport(classifier=LogisticRegression(), key=KEY).fit(train)
    t = encoder.transform(test)["score"].to_numpy()
    raw = encoder.transport_.at(0.0).encode(encoder.read(test), KEY)["score"].to_numpy()
    quantiles = np.linspace(0.05, 0.95, 19)
    gap = lambda s: np.abs(np.diff([np.quantile(s[test.a == g], quantiles) for g in (0, 1)], axis=0)).max()  # noqa: E731
    assert gap(t) < 0.1 < gap(raw)
    for g in (0, 1):  # the order within a group is kept
        mine = (test.a == g).to_numpy()
        assert (np.diff(t[mine][np.argsort(raw[mine])]) >= -1e-12).all()
    assert encoder.predict(test).shape == (len(test),)
    assert encoder.log_density_table(500).shape == (500, 2, 2)


def test_scores_of_the_files_rows_get_one_law():
    """In one group, persons with many rows score high: a random row of the file is not a random person's row."""
    rng = np.random.default_rng(0)
    n = 4000
    a = np.arange(n) % 2
    high = rng.random(n) < 0.5
    person = np.repeat(np.arange(n), np.where((a == 1) & high, 9, 1))
    x = rng.normal(size=len(person)) + 2 * high[person]
    y = (x + rng.normal(size=len(person)) > 1).astype(int)
    table = Table(pd.DataFrame({"x": x, "person": person}), sensitive=a[person], label=y, identifier="person")
    train, test = table.split(test=0.4, validation=0)
    encoder = FairTransport(classifier=LogisticRegression(), key=KEY).fit(train)
    t = encoder.transform(test)["score"].to_numpy()
    quantiles = np.linspace(0.05, 0.95, 19)
    rows = np.abs(np.diff([np.quantile(t[test.a == g], quantiles) for g in (0, 1)], axis=0)).max()
    one_each = test.persons.one_row_each(test.contents(), 0)
    t, group = t[one_each], test.a.to_numpy()[one_each]
    persons = np.abs(np.diff([np.quantile(t[group == g], quantiles) for g in (0, 1)], axis=0)).max()
    assert rows < 0.1 < 0.2 < persons


def test_ties_are_broken_by_the_person():
    group = np.repeat([0, 1], 500)
    scores = np.where(np.arange(1000) % 2, 0.2, np.where(group, 0.9, 0.4))
    barycentre = Barycentre.fit(scores, group, 2)
    moved = barycentre.move(scores, group, np.random.default_rng(0).random(1000), 1.0)
    low = moved[:500], moved[500:]
    assert abs(np.mean(low[0]) - np.mean(low[1])) < 0.03


def test_mixed_tables_transport_a_score_by_themselves(mixed):
    encoder = FairTransport(**SCORE).fit(mixed.X, mixed.y, sensitive_features=mixed.a)
    Z = encoder.transform(mixed.X, sensitive_features=mixed.a)
    assert list(Z) == ["score"]
    assert set(encoder.predict(mixed.X, sensitive_features=mixed.a)) <= {"no", "yes"}
    with pytest.raises(DataError, match="cannot be decoded"):
        encoder.inverse_transform(Z, sensitive_features=mixed.a)
    with pytest.raises(AttributeError, match="no law of cells"):
        encoder.latent_laws_  # noqa: B018
    assert encoder.sample_rows(3) is None
    assert encoder.known_cells() is None


def test_several_labels_give_several_scores(mixed):
    labels = pd.DataFrame({"repaid": mixed.y, "town": mixed.X["town"]})
    X = mixed.X.drop(columns="town")
    encoder = FairTransport(classifier=LogisticRegression(max_iter=5000), **SCORE)
    encoder.fit(X[["age", "wage", "rate"]], labels, sensitive_features=mixed.a)
    Z = encoder.transform(X[["age", "wage", "rate"]], sensitive_features=mixed.a)
    assert list(Z) == ["repaid", "town=Bonn", "town=Köln", "town=Ulm"]
    predicted = encoder.predict(X[["age", "wage", "rate"]], sensitive_features=mixed.a)
    assert predicted.shape == (480, 2)


def test_cells_of_several_scores_need_no_label_of_their_own(mixed):
    labels = pd.DataFrame({"repaid": mixed.y, "old": mixed.X["age"] > 50})
    scores = FairTransport(classifier=LogisticRegression(max_iter=5000), **SCORE)
    X = mixed.X[["wage", "rate"]]
    release = CellRelease(scores, 4, method="kmeans").fit(X, labels, sensitive_features=mixed.a)
    assert release.transform(X, sensitive_features=mixed.a)["cell"].nunique() == 4
    with pytest.raises(DataError, match="fitted without a label"):
        release.predict(X, sensitive_features=mixed.a)
    with pytest.raises(DataError, match="was fitted with 2 labels, and this needs one"):
        release.encoder_.label_classes  # noqa: B018
    with pytest.raises(DataError, match="a tree needs a label"):
        CellRelease(scores, 4).fit(X, labels, sensitive_features=mixed.a)


def test_best_threshold():
    assert 0.3 < _best_threshold(np.array([0.1, 0.3, 0.5, 0.9]), np.array([0, 0, 1, 1])) < 0.5
    assert _best_threshold(np.array([0.1, 0.9]), np.array([1, 1])) == -np.inf
    assert _best_threshold(np.array([0.1, 0.9]), np.array([0, 0])) == np.inf
    assert 0.5 < _best_threshold(np.array([0.5, 0.5, 0.5, 0.8]), np.array([0, 1, 0, 1])) < 0.8


def test_wrong_input(categorical, mixed):
    with pytest.raises(ValueError, match=r"strength must be in \[0, 1\]; got 2"):
        fit(categorical, strength=2)
    with pytest.raises(ValueError, match="transport must be one of 'auto', 'cells', 'score'; got 'rows'"):
        fit(categorical, transport="rows")
    with pytest.raises(DataError, match="needs a label to score"):
        FairTransport().fit(mixed.X, sensitive_features=mixed.a)
    with pytest.raises(DataError, match="takes one label; got 2"):
        FairTransport(**CELLS).fit(
            categorical.X, np.column_stack([categorical.y, categorical.y]), sensitive_features=categorical.a
        )
    with pytest.raises(ValueError, match="reference must be"):
        fit(categorical, reference="nobody")
    lacking = categorical.take((categorical.a == "old") | (categorical.y == 0))
    with pytest.raises(DataError, match="group 'young' has none with label 1"):
        fit(lacking)


def mixed_score(mixed, **settings):
    encoder = FairTransport(**{**SCORE, "classifier": LogisticRegression(max_iter=5000), **settings})
    return encoder.fit(mixed.X, mixed.y, sensitive_features=mixed.a)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wage": np.nan}, r"Missing values \(NaN\) are not accepted; found in column 'wage'"),
        ({"since": pd.NaT}, "Missing values .* 'since'"),
        ({"town": None}, "Missing values .* 'town'"),
        ({"wage": np.inf}, "Column 'wage' must hold finite numbers"),
        ({"town": "Rom"}, "Column 'town' must hold one of its 3 categories .* 'Rom'"),
        ({"wage": "much"}, "Column 'wage' must hold numbers, as in the rows that the model was fitted on"),
        ({"since": 7}, "Column 'since' must hold times .*, as in the rows that the model was fitted on"),
    ],
)
def test_columns_of_a_score_are_checked(mixed, change, message):
    encoder = mixed_score(mixed)
    with pytest.raises(DataError, match=message):
        encoder.transform(mixed.X.assign(**change), sensitive_features=mixed.a)
    with pytest.raises(DataError, match=message):
        encoder.predict(mixed.X.assign(**change), sensitive_features=mixed.a)


def test_columns_of_a_score_are_checked_at_fit(mixed):
    several = mixed.X.assign(town=[7, "Ulm"] * 240)
    with pytest.raises(DataError, match="Column 'town' must hold values of one type; got int, str"):
        FairTransport().fit(several, mixed.y, sensitive_features=mixed.a)
    with pytest.raises(DataError, match="Missing values"):
        FairTransport().fit(mixed.X.assign(wage=np.nan), mixed.y, sensitive_features=mixed.a)
    with pytest.raises(DataError, match="'town' is declared discrete, which needs numbers or times"):
        mixed_score(mixed, kinds={"town": "discrete"})


def test_unseen_categories_of_a_score_count_as_other(mixed):
    encoder = mixed_score(mixed, unseen="other")
    with pytest.warns(DataWarning, match="Categories that the training rows did not have"):
        Z = [encoder.transform(mixed.X.assign(town=town), sensitive_features=mixed.a) for town in ("Rom", "Oslo")]
        alike = [encoder.transform(mixed.X.assign(town="Rom"), sensitive_features=np.full(480, g)) for g in "fmx"]
    assert Z[0].equals(Z[1])
    assert alike[0].equals(alike[1]), "one map for all groups: a group's own was never fitted to such rows"
    assert alike[0].equals(alike[2])
    assert not Z[0].isna().any().any()


def test_missing_values_of_a_score_as_a_category(mixed):
    some = np.arange(len(mixed)) % 7 == 0
    X = mixed.X.assign(town=mixed.X["town"].mask(some), wage=mixed.X["wage"].mask(some))
    encoder = FairTransport(**SCORE, missing="category").fit(X, mixed.y, sensitive_features=mixed.a)
    assert encoder.transform(X, sensitive_features=mixed.a)["score"].between(0, 1).all()


def test_a_number_declared_categorical_is_a_category_of_the_score(mixed):
    X = mixed.X.assign(code=np.arange(len(mixed)) % 4)
    kinds = {"code": "categorical"}
    encoder = FairTransport(**SCORE, kinds=kinds).fit(X, mixed.y, sensitive_features=mixed.a)
    with pytest.raises(DataError, match="Column 'code' must hold one of its 4 categories"):
        encoder.transform(X.assign(code=9), sensitive_features=mixed.a)


def test_labels_keep_their_types(mixed):
    X = mixed.X[["age", "wage", "rate"]]
    labels = pd.DataFrame({"repaid": mixed.y, "old": (mixed.X["age"] > 50).astype(int)})
    encoder = FairTransport(classifier=LogisticRegression(max_iter=5000), **SCORE)
    for y in (labels, polars.from_pandas(labels.reset_index(drop=True))):
        encoder.fit(X, y, sensitive_features=mixed.a)
        assert encoder.get_feature_names_out().tolist() == ["repaid", "old"]
        predicted = encoder.predict(X, sensitive_features=mixed.a)
        assert {type(value) for value in predicted[:, 0]} == {str}
        assert {type(value) for value in predicted[:, 1]} == {int}


def test_classes_of_several_types_stay_what_they_are(categorical):
    y = ["yes" if value else 0 for value in categorical.y]
    for labels in (y, pd.Series(y), np.array(y, dtype=object)):
        encoder = FairTransport(**CELLS).fit(categorical.X, labels, sensitive_features=categorical.a)
        assert encoder.classes_.tolist() == [0, "yes"]
        assert set(encoder.predict(categorical.X, sensitive_features=categorical.a)) == {0, "yes"}

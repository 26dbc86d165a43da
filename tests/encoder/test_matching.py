"""FairMatching as its users meet it."""

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from fairflows import DataError, DataWarning, FairMatching
from fairflows.bounds import exact_statistical_distance
from fairflows.table.keys import Key

KEY = Key(range(32))
QUICK = {"density": "counts", "key": KEY, "identifier": "person"}


def fit(table, **settings):
    return FairMatching(**{**QUICK, **settings}).fit(table.X, table.y, sensitive_features=table.a)


def encoded_codes(encoder, Z):
    return encoder.model_.codec.encode(Z)


def test_the_exact_law_is_that_of_encoded_draws(categorical):
    encoder = fit(categorical, gamma=0.4)
    for a, rows in enumerate(encoder.latent_law().sample_rows(40_000, random_state=1)):
        group = np.full(len(rows), encoder.groups_[a])
        codes = encoded_codes(encoder, encoder.transform(rows.rename_axis("person"), sensitive_features=group))
        frequency = np.bincount(codes, minlength=encoder.latent_laws_.shape[1]) / len(rows)
        np.testing.assert_allclose(frequency, encoder.latent_laws_[a], atol=0.012)


def test_more_gamma_is_fairer_and_less_more_accurate(categorical):
    encoders = FairMatching(**QUICK).fit_path(
        categorical.X, categorical.y, sensitive_features=categorical.a, strengths=[0.0, 0.5, 1.0], seeds=[0]
    )
    distances = [exact_statistical_distance(e.latent_laws_) for e in encoders]
    assert distances[0] > distances[1] > distances[2]
    right = [
        (e.predict(categorical.X, sensitive_features=categorical.a) == categorical.y.to_numpy()).mean()
        for e in encoders
    ]
    assert right[0] > 0.75
    assert right[0] >= right[2]


def test_two_keys_disagree_as_often_as_gamma_says(categorical):
    gamma = 0.3
    one, two = (fit(categorical, gamma=gamma, key=Key([i] * 32)) for i in (1, 2))
    Z = [encoded_codes(e, e.transform(categorical.X, sensitive_features=categorical.a)) for e in (one, two)]
    group = (categorical.a == "young").astype(int).to_numpy()
    codes = one.model_.codec.encode(categorical.X)
    parts = one.matched_[group, codes] != one.split_[group, codes]
    assert parts.sum() > 500
    disagree = (Z[0] != Z[1])[parts].mean()
    assert disagree == pytest.approx(2 * gamma * (1 - gamma), abs=4 * np.sqrt(0.25 / parts.sum()))


def test_more_combinations_than_can_be_listed_are_refused(categorical, monkeypatch):
    monkeypatch.setattr("fairflows.encoder.fair_matching._MOST_COMBINATIONS", 10)
    with pytest.raises(DataError, match="at most 10 combinations; got 48 in each of 2 groups. Take fewer columns"):
        fit(categorical)


def test_a_group_may_lack_a_label(categorical):
    lacking = categorical.take((categorical.a == "old") | (categorical.y == 0))
    encoder = fit(lacking, gamma=0)
    np.testing.assert_allclose(encoder.latent_laws_.sum(axis=1), 1)
    back = encoder.inverse_transform(
        encoder.transform(lacking.X, sensitive_features=lacking.a), sensitive_features=lacking.a
    )
    assert_frame_equal(back, lacking.X)


def test_wrong_input(categorical):
    encoder = fit(categorical)
    other = categorical.X.assign(town="Rom")
    with pytest.warns(DataWarning, match=r"treated alike in every group: column 'town' \(3,000\)"):
        Z = encoder.transform(other, sensitive_features=categorical.a)
    with pytest.raises(DataError, match="'town' must hold one of its 4 values .* 'Rom'"):
        encoder.inverse_transform(Z.assign(town="Rom"), sensitive_features=categorical.a)
    assert Z.shape == (3000, 4)
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\]; got -0\.1"):
        fit(categorical, gamma=-0.1)
    with pytest.raises(ValueError, match="density must be 'made' or 'counts'"):
        fit(categorical, density="guess")
    one_value = categorical.X.assign(town="Ulm")
    same = FairMatching(0.5, **QUICK).fit(one_value, categorical.y, sensitive_features=categorical.a)
    assert (same.transform(one_value, sensitive_features=categorical.a)["town"] == "Ulm").all()


def test_a_number_that_training_did_not_have_is_treated_alike_where_numbers_are_their_own_levels():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 2000)
    frame = pd.DataFrame({"rooms": rng.choice([1, 2, 3, 5], 2000, p=[0.1, 0.2, 0.3, 0.4]), "x": rng.normal(size=2000)})
    frame["rooms"] = np.where(a == 1, 6 - frame["rooms"], frame["rooms"])
    encoder = FairMatching(1.0, density="counts", key=KEY).fit(frame, sensitive_features=a)
    later = frame.assign(rooms=np.resize([2, 7], 2000), x=1e6)
    rows = encoder.read(later, a)
    assert rows.outside.counts()["rooms", "unseen"] == 1000
    np.testing.assert_array_equal(rows.encoding_group, np.where(later["rooms"] == 7, 0, a))
    np.testing.assert_array_equal(encoder.read(frame, a).encoding_group, a)


def test_without_a_label_everything_is_matched(categorical):
    encoder = FairMatching(0.0, **QUICK).fit(categorical.X, sensitive_features=categorical.a)
    np.testing.assert_array_equal(encoder.matched_, encoder.split_)
    with pytest.raises(DataError, match="fitted without a label"):
        encoder.predict(categorical.X, sensitive_features=categorical.a)


def test_too_many_levels_for_a_density(categorical, monkeypatch):
    monkeypatch.setattr("fairflows.encoder.fair_matching._MOST_LEVELS", 10)
    with pytest.raises(DataError, match="takes at most 10 levels in all columns; got 11: join rare levels"):
        fit(categorical)


@pytest.fixture(scope="module")
def answers() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    first = rng.choice(["yes", "no"], 400)
    return pd.DataFrame({"first": first, "second": np.where(rng.random(400) < 0.8, first, "no")}).rename_axis("person")


def fitted_to(answers):
    a = np.random.default_rng(1).integers(0, 2, len(answers))
    return FairMatching(1.0, density="counts", key=KEY).fit(answers, sensitive_features=a), a


@pytest.mark.parametrize("as_array", [False, True])
def test_columns_are_known_by_name_or_else_by_place(answers, as_array):
    encoder, a = fitted_to(answers)
    Z = encoder.transform(answers, sensitive_features=a)
    given = Z.to_numpy() if as_array else Z[Z.columns[::-1]]
    back = encoder.inverse_transform(given, sensitive_features=a)
    np.testing.assert_array_equal(back, answers)


def test_other_columns(answers):
    encoder, a = fitted_to(answers)
    Z = encoder.transform(answers, sensitive_features=a)
    with pytest.raises(DataError, match=r"must have the columns first, second \(2 in all\); got first, third"):
        encoder.inverse_transform(Z.rename(columns={"second": "third"}), sensitive_features=a)
    with pytest.raises(DataError, match="must have the columns"):
        encoder.inverse_transform(Z.to_numpy()[:, :1], sensitive_features=a)

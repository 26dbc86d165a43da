"""A frontier is one fit, and gives the model that meets a target; its metrics are fairlearn's."""

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import demographic_parity_difference, equal_opportunity_difference, equalized_odds_difference
from scipy.stats import t
from sklearn.metrics import accuracy_score

from fairflows import DataError, FairFlow, Frontier, Release, certify, frontier
from fairflows.density import MixtureDensity
from fairflows.paper.gaussians import make_gaussians
from fairflows.tradeoff import check_target, count_labels, group_metrics

pytestmark = pytest.mark.filterwarnings("ignore:Values outside the training range")

COLUMNS = ["strength", "seed", "distance", "accuracy", "balanced_accuracy", "parity", "odds", "opportunity"]


@pytest.fixture(scope="module")
def blobs():
    table, _ = make_gaussians(1200, random_state=0)
    return table


@pytest.fixture(scope="module")
def front(blobs):
    quick = FairFlow(density=MixtureDensity(2), smoothing=0, n_epochs=8, ramp_epochs=4, hidden=(16,), head=(16,))
    return frontier(quick, blobs, strengths=[0.0, 0.5, 1.0], seeds=2)


def test_one_row_a_model(front):
    frame = front.to_frame()
    assert list(frame) == COLUMNS
    assert frame[["strength", "seed"]].to_numpy().tolist() == [[g, s] for g in (0, 0.5, 1) for s in (0, 1)]
    assert frame[COLUMNS[2:]].apply(lambda c: c.between(0, 1)).all(axis=None)
    assert frame.loc[frame["strength"] == 1, "distance"].max() < frame.loc[frame["strength"] == 0, "distance"].min()


def test_each_model_is_measured_by_its_own_predictions(front, blobs):
    """Rows are read once for all models of a run."""
    _, validation = blobs.split(validation=0)
    for encoder, accuracy in zip(front.encoders, front.to_frame()["accuracy"], strict=True):
        predicted = encoder.predict(validation.X, sensitive_features=validation.a)
        assert accuracy == pytest.approx((predicted == np.asarray(validation.y)).mean(), abs=2 / len(validation))


def test_a_model_that_diverged_widens_the_interval():
    measured = pd.DataFrame({"strength": 0.5, "seed": range(5), "distance": [0.1, 0.2, 0.4, np.nan, np.nan]})
    summary = Frontier([], measured).summary()
    finite = measured["distance"].dropna()
    assert summary.loc[0.5, "distance ±"] == pytest.approx(t.ppf(0.975, 2) * finite.std() / np.sqrt(3))


def test_select_by_target(front):
    frame = front.to_frame()
    limit = frame["distance"].median()
    chosen = front.select(target=limit)
    assert chosen is front.encoders[frame[frame["distance"] <= limit]["accuracy"].idxmax()]
    with pytest.raises(DataError, match=r"No model .* target = -1.0; the closest has distance"):
        front.select(target=-1.0)
    with pytest.raises(DataError, match="made of encoders"):
        frontier(Release(), None)


@pytest.fixture(scope="module")
def categorical_table():
    from fairflows.table.table import Table

    rng = np.random.default_rng(1)
    a = rng.integers(0, 2, 2000)
    work = np.where(rng.random(2000) < 0.3 + 0.4 * a, "office", "field")
    town = rng.choice(["Ulm", "Bonn", "Köln"], 2000, p=[0.5, 0.3, 0.2])
    y = ((work == "office") ^ (rng.random(2000) < 0.2)).astype(int)
    return Table(pd.DataFrame({"work": work, "town": town}), sensitive=a, label=y)


def test_without_a_label_only_the_distance_is_measured(blobs):
    from fairflows.table.table import Table

    table = Table(blobs.X, sensitive=blobs.a.to_numpy())
    quick = FairFlow(density=MixtureDensity(1), n_epochs=1, hidden=(8,))
    front = frontier(quick, table, strengths=[1.0], validation=table)
    assert list(front.to_frame()) == COLUMNS[:3]


def test_a_certificate_draws_afresh_after_a_choice(blobs):
    train, validation, test = blobs.split(random_state=0)
    quick = FairFlow(density=MixtureDensity(1), n_epochs=1, hidden=(8,))
    front = frontier(quick, train, strengths=[0.5], validation=validation)
    certificate = certify(front.encoders[0], test, n_draws=10_000)
    assert certificate.find("model").observed != front.to_frame()["distance"].iloc[0]


def test_the_most_accurate_within_the_target_is_taken():
    measured = pd.DataFrame(
        {"strength": 0.0, "seed": 0, "distance": [0.3, 0.1, 0.2, np.nan], "accuracy": [0.9, 0.7, 0.8, 0]}
    )
    front = Frontier(["a", "b", "c", "d"], measured)
    assert [front.select(target=target) for target in (0.25, 0.5, 0.15)] == ["c", "a", "b"]
    with pytest.raises(DataError, match=r"No model .* target = 0\.05; the closest has distance 0\.100"):
        front.select(target=0.05)


def test_a_target_that_so_few_persons_cannot_show_is_refused(categorical_table):
    check_target(0.5, categorical_table, 0.05)
    with pytest.raises(DataError, match="too small"):
        check_target(0.01, categorical_table, 0.05)
    with pytest.raises(DataError, match=r"target must be in \(0, 1\]; got 0"):
        check_target(0, categorical_table, 0.05)
    with pytest.warns(UserWarning, match="Every release meets a distance of 1"):
        check_target(1, categorical_table, 0.05)


@pytest.mark.parametrize("n_groups", [2, 3])
def test_binary_metrics_are_those_of_fairlearn(n_groups):
    rng = np.random.default_rng(n_groups)
    y, a, predictions = rng.integers(0, 2, 300), rng.integers(0, n_groups, 300), rng.integers(0, 2, (4, 300))
    for predicted in predictions:
        ours = group_metrics(count_labels([0, 1], y, predicted, a, n_groups))
        assert ours["accuracy"] == pytest.approx(accuracy_score(y, predicted))
        by_group = [accuracy_score(y[a == g], predicted[a == g]) for g in range(n_groups)]
        assert ours["balanced_accuracy"] == pytest.approx(np.mean(by_group))
        for name, reference in (
            ("parity", demographic_parity_difference),
            ("odds", equalized_odds_difference),
            ("opportunity", equal_opportunity_difference),
        ):
            assert ours[name] == pytest.approx(reference(y, predicted, sensitive_features=a)), name


def test_a_group_without_positive_rows_has_no_opportunity():
    metrics = group_metrics(count_labels([0, 1], [0, 0, 1], [0, 1, 1], [0, 0, 1], 2))
    assert np.isnan(metrics["opportunity"])
    assert metrics["parity"] == 0.5


def test_several_classes():
    metrics = group_metrics(count_labels([0, 1, 2], [0, 1, 2, 0, 1, 2], [0, 1, 2, 0, 0, 0], [0, 0, 0, 1, 1, 1], 2))
    assert metrics["accuracy"] == pytest.approx(4 / 6)
    assert metrics["parity"] == pytest.approx(2 / 3)
    assert metrics["odds"] == 1


def test_labels_that_no_model_knows_are_never_predicted_and_leave_the_last_class_last():
    counts = count_labels(["a", "b"], ["a", "b", "c", "b"], ["a", "b", "b", "a"], [0, 0, 1, 1], 2)
    assert counts.tolist() == count_labels([0, 1, 2], [1, 2, 0, 2], [1, 2, 2, 1], [0, 0, 1, 1], 2).tolist()
    assert float(group_metrics(counts)["accuracy"]) == 0.5

"""Our counts against fairlearn's metrics."""

import numpy as np
import pytest
from fairlearn.metrics import (
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
)
from sklearn.metrics import accuracy_score

from fairflows.tradeoff import count_labels, group_metrics


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

"""What encoders of cells refuse or say before they learn anything: memory, weights, classifiers."""

import logging

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from fairflows.density import cell_counts as cells
from fairflows.encoder.fair_matching import FairMatching
from fairflows.exceptions import DataError, DataWarning
from fairflows.table.persons import Key

KEY = Key(range(32))


def fit(table, sample_weight=None, **settings):
    encoder = FairMatching(**{"density": "counts", "key": KEY, "identifier": "person", **settings})
    return encoder.fit(table.X, table.y, sensitive_features=table.a, sample_weight=sample_weight)


class TestMemory:
    def test_the_scores_of_classes_count(self):
        assert cells.cell_space([10, 20], 2, n_classes=3).n_bytes > cells.cell_space([10, 20], 2).n_bytes + 200 * 3 * 8

    def test_cells_that_do_not_fit_are_not_enumerated(self, monkeypatch):
        monkeypatch.setattr(cells, "_machine_memory", lambda: 2**40)
        assert cells.cell_space([1000, 1000], 2).enumerable
        monkeypatch.setattr(cells, "_machine_memory", lambda: 2**28)
        small = cells.cell_space([1000, 1000], 2)
        assert not small.enumerable
        assert str(small) == "1,000,000 cells, 502 MiB if enumerated and there are 256 MiB: only observed cells are " \
            "used, with a tail."  # fmt: skip

    def test_too_many_levels_for_a_density(self):
        with pytest.raises(DataError, match=r"with 9,999,999 levels take [\d,]+ MiB, and there are [\d,]+ MiB"):
            cells.check_pairs_fit([9_999_999], 20)

    def test_the_choice_is_made_by_the_memory_at_hand(self, categorical, monkeypatch):
        monkeypatch.setattr(cells, "_machine_memory", lambda: 20_000)
        with pytest.warns(DataWarning, match="48 cells, 0 MiB if enumerated and there are 0 MiB: only observed"):
            encoder = fit(categorical)
        assert encoder.model_.support is not None
        monkeypatch.setattr(cells, "_machine_memory", lambda: 10_000)
        with pytest.raises(DataError, match="Densities over columns with 11 levels"):
            fit(categorical)

    def test_the_choice_is_said_when_all_cells_are_enumerated(self, categorical, caplog):
        with caplog.at_level(logging.INFO, logger="fairflows"):
            fit(categorical)
        assert "48 cells, 0 MiB if enumerated: every cell is enumerated." in caplog.text

    def test_a_machine_that_does_not_say_its_memory(self, monkeypatch):
        monkeypatch.setattr(cells.os, "sysconf", lambda name: (_ for _ in ()).throw(ValueError(name)))
        assert cells.cell_space([2], 2).memory == 8 * 2**30


def test_a_classifier_without_weights(categorical):
    encoder = fit(categorical, classifier=KNeighborsClassifier(50))
    assert (encoder.predict(categorical.X, sensitive_features=categorical.a) == categorical.y).mean() > 0.7
    with pytest.raises(ValueError, match="classifier must take sample_weight .*; KNeighborsClassifier does not"):
        FairMatching(density="counts", classifier=KNeighborsClassifier()).fit(
            categorical.X, categorical.y, sensitive_features=categorical.a, sample_weight=np.ones(3000)
        )


def test_a_classifier_without_probabilities(categorical):
    with pytest.raises(ValueError, match=r"classifier must give probabilities \(predict_proba\); LinearSVC gives none"):
        FairMatching(density="counts", classifier=LinearSVC()).fit(
            categorical.X, categorical.y, sensitive_features=categorical.a
        )


def test_a_group_with_few_rows_that_count(categorical):
    young = np.flatnonzero(categorical.a == "young")
    weight = np.ones(len(categorical))
    weight[young[12:]] = 0
    encoder = fit(categorical, weight)
    counted = categorical.take(weight > 0)
    same = fit(counted)
    np.testing.assert_allclose(encoder.model_.log_p, same.model_.log_p)


def test_a_group_without_rows_that_count(categorical):
    with pytest.raises(DataError, match="positive sample_weight; group 'young' has none"):
        fit(categorical, (categorical.a == "old").to_numpy(dtype=float))

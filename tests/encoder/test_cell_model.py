"""Tests of what encoders of cells check before they learn anything: levels, weights."""

import numpy as np
import pytest

from fairflows.encoder.fair_matching import FairMatching
from fairflows.exceptions import DataError
from fairflows.table.persons import Key

KEY = Key(range(32))


def fit(table, sample_weight=None, **settings):
    encoder = FairMatching(**{"density": "counts", "key": KEY, "identifier": "person", **settings})
    return encoder.fit(table.X, table.y, sensitive_features=table.a, sample_weight=sample_weight)


def test_too_many_levels_for_a_density(categorical, monkeypatch):
    monkeypatch.setattr("fairflows.encoder.fair_matching._MOST_LEVELS", 10)
    with pytest.raises(DataError, match="takes at most 10 levels in all columns; got 11: join rare levels"):
        fit(categorical)


def test_a_group_with_few_rows_that_count(categorical):
    young = np.flatnonzero(categorical.a == "young")
    weight = np.ones(len(categorical))
    weight[young[12:]] = 0
    encoder = fit(categorical, weight)
    counted = categorical.take(weight > 0)
    same = fit(counted)
    np.testing.assert_allclose(encoder.model_.log_p, same.model_.log_p)

"""Tests of what encoders of cells check before they learn anything: levels, weights."""

import pytest

from fairflows.encoder.fair_matching import FairMatching
from fairflows.exceptions import DataError
from fairflows.table.persons import Key

KEY = Key(range(32))


def fit(table, **settings):
    encoder = FairMatching(**{"density": "counts", "key": KEY, "identifier": "person", **settings})
    return encoder.fit(table.X, table.y, sensitive_features=table.a)


def test_too_many_levels_for_a_density(categorical, monkeypatch):
    monkeypatch.setattr("fairflows.encoder.fair_matching._MOST_LEVELS", 10)
    with pytest.raises(DataError, match="takes at most 10 levels in all columns; got 11: join rare levels"):
        fit(categorical)

"""The hash of a model covers all that decides a released value, and nothing else."""

import copy

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from fairflows import CellRelease, FairFlow, FairMatching, FairTransport, Table
from fairflows.certificate.identification import model_hash
from fairflows.storage.saving import load, save


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = 600
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "code": rng.integers(0, 6, n),
            "town": rng.choice(["Ulm", "Bonn", "Trier"], n),
            "a": rng.integers(0, 2, n),
            "name": np.arange(n),
        }
    )
    frame["y"] = (frame["x"] + (frame["code"] == 2) + rng.normal(size=n) > 0.5).astype(int)
    return Table(frame, sensitive="a", label="y", identifier="name")


CLASSIFIERS = {
    "trees": lambda n: HistGradientBoostingClassifier(max_iter=n),
    "trees of categories": lambda n: HistGradientBoostingClassifier(max_iter=n, categorical_features=[4]),
    "logistic": lambda n: LogisticRegression(C=n),
}


@pytest.mark.parametrize("make", CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_another_classifier_is_another_model(make, table):
    """Though the setting that it was made from is the same again."""
    one, other = (FairTransport(transport="score", classifier=make(n), key=bytes(32)).fit(table) for n in (3, 9))
    assert model_hash(one, b"key") == model_hash(copy.deepcopy(one), b"key")
    same_but_for_the_classifier = copy.deepcopy(one)
    same_but_for_the_classifier.transport_.classifiers[0] = other.transport_.classifiers[0]
    assert model_hash(one, b"key") != model_hash(same_but_for_the_classifier, b"key")


MODELS = {
    "flow": lambda: FairFlow(n_epochs=1, density="mixture"),
    "spline": lambda: FairFlow(n_epochs=1, n_blocks=2, bijection="spline", density="mixture"),
    "cells": lambda: CellRelease(FairTransport(transport="score", classifier=CLASSIFIERS["trees"](3)), n_cells=4),
    "matching": lambda: FairMatching(density="counts"),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_loaded_model_is_the_same_model(make, table, tmp_path):
    model = make().fit(table)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert model_hash(again, b"key") == model_hash(model, b"key")
    again.transform(table)
    assert model_hash(again.set_output(transform="pandas"), b"key") == model_hash(model, b"key")


def test_settings_that_are_no_weights_are_covered(table):
    model = MODELS["spline"]().fit(table)
    other = copy.deepcopy(model)
    other.flow_.bijection.bound = 4.0
    assert model_hash(other, b"key") != model_hash(model, b"key")

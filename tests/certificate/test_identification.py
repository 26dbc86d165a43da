"""The hash of a model covers all that decides what it releases, and nothing else."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import MultivariateNormal

from fairflows import FairFlow, FairMatching, Release, Table, certify, load, save
from fairflows.certificate.model_hash import model_hash
from fairflows.density import FlowDensity, MixtureDensity

pytestmark = [
    pytest.mark.usefixtures("few_trees"),
    pytest.mark.filterwarnings("ignore:Values outside the training range"),
    pytest.mark.usefixtures("short_made"),
]

KEY = bytes(32)


def people(seed, n=600):
    """Columns whose names are also names of attributes that decide nothing."""
    rng = np.random.default_rng(seed)
    a = rng.integers(2, size=n)
    frame = pd.DataFrame({
        "device": rng.integers(10, 60, size=n) + 5 * a,
        "history": rng.normal(size=n).round(2),
        "key": pd.Categorical(rng.choice(["u", "v", "w"], size=n)),
        "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(900, size=n), unit="D"),
    })  # fmt: skip
    y = (frame["device"] + 10 * rng.normal(size=n) > 38).astype(int)
    who = [f"{seed}-{i}" for i in range(n)]
    return Table(frame.assign(a=a, y=y, who=who), sensitive="a", label="y", identifier="who")


@pytest.fixture(scope="module")
def tables():
    return people(0), people(1)


def numbers(table):
    return Table(table.X[["device", "history"]].assign(a=table.a, y=table.y).reset_index(),
                 sensitive="a", label="y", identifier="who")  # fmt: skip


QUICK = {"n_epochs": 2, "key": KEY, "hidden": (8,), "n_blocks": 2, "device": "cpu"}
KNOWN = [MultivariateNormal(torch.tensor([mean, 0.0]), torch.eye(2) * 200) for mean in (35.0, 40.0)]

MODELS = {
    "flow": lambda: FairFlow(0.5, density=MixtureDensity(2), **QUICK),
    "spline flow": lambda: FairFlow(0.5, bijection="spline", density=FlowDensity(n_steps=50), **QUICK),
    "flow, known densities": lambda: FairFlow(0.5, density=KNOWN, **QUICK),
    "flow, odds": lambda: FairFlow(0.5, density=MixtureDensity(1), criterion="equalized_odds", **QUICK),
    "matching": lambda: FairMatching(0.5, density="counts", n_bins=3, key=KEY),
    "matching, made": lambda: FairMatching(0.5, n_bins=2, hidden=(8,), key=KEY),
    "cells": lambda: Release(FairMatching(key=KEY, density="counts"), n_cells=4, output="cell"),
    "drawn rows": lambda: Release(FairMatching(key=KEY, density="counts"), n_cells=4),
}  # fmt: skip
"""One of every kind."""


def data_for(name, tables):
    return [numbers(table) for table in tables] if "flow" in name else tables


@pytest.fixture(scope="module")
def fitted(tables):
    return {name: make().fit(data_for(name, tables)[0]) for name, make in MODELS.items()}


def hash_of(model):
    return model_hash(model, model.key_)


@pytest.mark.parametrize("name", MODELS)
def test_saving_loading_copying_and_using_a_model_leave_its_hash(fitted, tables, tmp_path, name):
    model = fitted[name]
    before = hash_of(model)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert hash_of(loaded) == before
    assert hash_of(copy.deepcopy(model)) == before
    test = data_for(name, tables)[1]
    for used in (model, loaded):
        used.transform(test)
        certify(used, test, n_draws=1000)
        assert hash_of(used) == before
    assert model_hash(model, b"another key") != before


@pytest.mark.parametrize("name", [name for name in MODELS if name != "rows"])
def test_a_model_fitted_to_other_rows_has_another_hash(fitted, name):
    other = people(2)
    assert hash_of(MODELS[name]().fit(numbers(other) if "flow" in name else other)) != hash_of(fitted[name])


@pytest.mark.parametrize("name", ["device", "history", "key", "since"])
def test_columns_may_have_any_name(fitted, name):
    """A column called like an attribute that decides nothing does decide."""
    model = copy.deepcopy(fitted["matching"])
    levels = model.model_.codec.levels_ if name in model.model_.codec.levels_ else model.model_.codec.bins_
    del levels[name]
    assert hash_of(model) != hash_of(fitted["matching"])


def test_every_cell_of_a_partition_counts(fitted):
    model = copy.deepcopy(fitted["cells"])
    model.partition_.tree.threshold[0] += 1e-9
    assert hash_of(model) != hash_of(fitted["cells"])


def test_how_the_work_was_done_and_is_handed_over_decides_nothing(fitted):
    model = copy.deepcopy(fitted["flow"]).set_params(device="auto", progress=True).set_output(transform="pandas")
    assert hash_of(model) == hash_of(fitted["flow"])

"""scikit-learn's own checks, on encoders that take "column 0 above its median" as the sensitive attribute.

The checks pass no sensitive attribute, so the subclasses here make one up; all else is the encoder as it is.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairflows import Encoder, FairCells, FairFlow, FairMatching, FairTree
from fairflows.density import MixtureDensity
from fairflows.encoder import base, rows
from fairflows.encoder.base import CELL, is_fitted
from sklearn_checks import run_check

pytestmark = [
    pytest.mark.usefixtures("few_trees"),
    pytest.mark.filterwarnings("ignore:No identifier says which rows are the same person"),
    pytest.mark.filterwarnings("ignore:Values outside the training range"),
    pytest.mark.filterwarnings("ignore:Values between the points of the training grid"),
    pytest.mark.filterwarnings("ignore:Column .* repeats its values"),
    pytest.mark.filterwarnings("ignore:.* cells were asked for"),
]


def invented_attribute(encoder: Any, X: Any, frame: pd.DataFrame, *given: Any, needed: bool) -> Any:
    """The groups that an encoder here makes up, in place of the attribute that was given."""
    return encoder.invented(frame.iloc[:, 0], fit=not is_fitted(encoder)), []


@pytest.fixture(autouse=True)
def _groups_are_invented(monkeypatch):
    for module in (base, rows):
        monkeypatch.setattr(module, "find_attribute", invented_attribute)


class Flow(FairFlow):
    """Groups by whether column 0 is above the median that training had."""

    def invented(self, first: pd.Series, *, fit: bool) -> pd.Series:
        if fit:
            self.median_ = np.median(first)
        attribute = (first > self.median_).astype(int)
        if fit and attribute.nunique() == 1:
            attribute.iloc[0] = 1 - attribute.iloc[0]
        return attribute


class _NeedsEveryLabel:
    """Groups by the parity of column 0's rank, so that the groups of most of the checks' tables have every label."""

    def invented(self, first: pd.Series, *, fit: bool) -> pd.Series:
        if fit:
            self.known_ = np.unique(first)
        return pd.Series(np.searchsorted(self.known_, first) % 2, index=first.index)


class Matching(_NeedsEveryLabel, FairMatching):
    """Numbers its cells, because the checks subtract one output from another."""

    def learn(self, rows):
        super().learn(rows)
        self.output_ = CELL

    def encode(self, rows):
        return pd.DataFrame({"cell": self.model_.codec.encode(super().encode(rows))})


class Tree(_NeedsEveryLabel, FairTree):
    pass


class BestCells(_NeedsEveryLabel, FairCells):
    pass


CELLS = {"density": "counts", "n_bins": 3}
ENCODERS = {
    "flow": Flow(
        n_epochs=2, n_blocks=2, hidden=(8,), head=(8,), density=MixtureDensity(1), dequantise=False, smoothing=0
    ),
    "matching": Matching(1.0, **CELLS),
    "tree": Tree(4),
    "cells": BestCells(2, target=1.0, n_certify=10**6, n_bins=4),
}

OF_CELLS = {"check_transformer_preserve_dtypes": "the number of a cell is an integer whatever the table holds"}
PICKLES = {"check_estimators_pickle": "pickles leave out the secret key, and an encoder does nothing without it"}
BY_LUCK = {"check_fit_idempotent": "arrays name no persons, so a row has another coin or other noise at every call"}
EXPECTED = {
    "flow": {
        "check_estimators_dtypes": "20 rows make groups with fewer rows than features: no density is fitted to them",
    },
    "matching": OF_CELLS,
    "cells": {
        **dict.fromkeys(
            ["check_estimators_nan_inf", "check_fit2d_1feature"],
            "of so few rows a part, to train the scores or to make the cells from, lacks a group or a label",
        ),
    },
    "tree": {},
}


def expected(encoder: Encoder) -> dict[str, str]:
    """The checks that cannot pass, each with the reason."""
    return PICKLES | next(EXPECTED[name] for name, one in ENCODERS.items() if one is encoder)


@parametrize_with_checks(list(ENCODERS.values()))
def test_scikit_learn_checks(estimator, check):
    torch.set_num_threads(1)
    name = check.func.__name__
    if isinstance(estimator, BestCells) and name == "check_n_features_in_after_fitting":
        pytest.skip("of the ten rows that some releases of scikit-learn draw, a part lacks a group")
    if estimator.traits.randomised and name in BY_LUCK:
        pytest.skip(BY_LUCK[name])  # it may pass as well
    run_check(check, estimator, expected(estimator))


def test_encoders_say_whether_they_repeat_themselves():
    """The tag that makes scikit-learn leave out what fresh coins would fail."""
    tossing = [FairFlow(), Matching(0.5, **CELLS)]
    assert all(get_tags(encoder).non_deterministic for encoder in tossing)
    assert not any(get_tags(ENCODERS[name]).non_deterministic for name in ("flow", "matching"))
    named = [clone(encoder).set_params(identifier="person") for encoder in tossing]
    assert not any(get_tags(encoder).non_deterministic for encoder in named), "a person's coin is always the same"

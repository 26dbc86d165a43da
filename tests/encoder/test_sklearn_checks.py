"""scikit-learn's own checks, on encoders that take "column 0 above its median" as the sensitive attribute.

The checks pass no sensitive attribute, so the subclasses here make one up; all else is the encoder as it is.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairflows.encoder.fair_flow import FairFlow
from fairflows.encoder.fair_matching import FairMatching
from fairflows.encoder.fair_transport import FairTransport
from fairflows.exceptions import DataError
from fairflows.table.persons import Key

pytestmark = [
    pytest.mark.filterwarnings("ignore:No identifier column"),
    pytest.mark.filterwarnings("ignore:Values outside the training range"),
    pytest.mark.filterwarnings("ignore:Column .* repeats its values"),
    pytest.mark.filterwarnings("ignore:.*only observed cells are used"),
]


class _SplitsByColumnZero:
    """Groups by whether column 0 is above the median that training had."""

    def _attribute(self, frame: Any, sensitive_features: Any) -> Any:
        first = frame.iloc[:, 0]
        if not hasattr(self, "groups_"):
            self.median_ = np.median(first)
        attribute = (first > self.median_).astype(int)
        if attribute.nunique() == 1 and not hasattr(self, "groups_"):
            attribute.iloc[0] = 1 - attribute.iloc[0]
        return attribute, []

    def fit(self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None) -> Any:
        self.__dict__.pop("groups_", None)
        return super().fit(X, y, sensitive_features=sensitive_features, sample_weight=sample_weight)


class Flow(_SplitsByColumnZero, FairFlow):
    pass


class _NeedsEveryLabel(_SplitsByColumnZero):
    """Groups by the parity of column 0's rank, so that the groups of most of the checks' tables have every label.

    Fits without the label where a group still lacks one, which encoders of cells refuse.
    """

    def _attribute(self, frame: Any, sensitive_features: Any) -> Any:
        first = frame.iloc[:, 0]
        if not hasattr(self, "groups_"):
            self.known_ = np.unique(first)
        return pd.Series(np.searchsorted(self.known_, first) % 2, index=frame.index), []

    def fit(self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None) -> Any:
        try:
            return super().fit(X, y, sensitive_features=sensitive_features, sample_weight=sample_weight)
        except DataError as error:
            if "Every group needs rows of every label" not in str(error):
                raise
        return super().fit(X, None, sensitive_features=sensitive_features, sample_weight=sample_weight)


class Matching(_NeedsEveryLabel, FairMatching):
    pass


class Transport(_NeedsEveryLabel, FairTransport):
    pass


KEY = Key(32)
ENCODERS = [
    Flow(n_epochs=2, key=KEY),
    Matching(density="counts", output="codes", max_cells=5000, key=KEY),
    Transport(transport="cells", density="counts", output="codes", max_cells=5000, key=KEY),
]

TOO_FEW_ROWS = "a table of 20 rows has groups with fewer rows than features, for which no density is fitted"
STOCHASTIC = "training draws batches at random: weights and repeated rows agree in distribution, not number by number"
BY_POSITION = "rows of an array are known by their position, and their coin with it"
EXPECTED = {
    "Flow": {
        "check_estimators_dtypes": TOO_FEW_ROWS,
        "check_sample_weight_equivalence_on_dense_data": STOCHASTIC,
    },
    "Matching": {
        "check_sample_weight_equivalence_on_dense_data": "a group of that table lacks a label, so nothing is predicted",
        "check_transformer_preserve_dtypes": "the number of a cell is an integer whatever the table holds",
        "check_methods_sample_order_invariance": BY_POSITION,
        "check_methods_subset_invariance": BY_POSITION,
    },
}
EXPECTED["Transport"] = EXPECTED["Matching"]


@parametrize_with_checks(ENCODERS, expected_failed_checks=lambda encoder: EXPECTED[type(encoder).__name__])
def test_scikit_learn_checks(estimator, check):
    torch.set_num_threads(1)
    check(estimator)

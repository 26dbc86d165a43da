"""Decoding checks names and ranges of encoded columns."""

import numpy as np
import pandas as pd
import pytest

from fairflows.encoder.fair_matching import FairMatching
from fairflows.exceptions import DataError
from fairflows.table.persons import Key

KEY = Key(range(32))


@pytest.fixture(scope="module")
def answers() -> pd.DataFrame:
    """Two columns with the same categories."""
    rng = np.random.default_rng(0)
    first = rng.choice(["yes", "no"], 400)
    return pd.DataFrame({"first": first, "second": np.where(rng.random(400) < 0.8, first, "no")}).rename_axis("person")


def fitted(answers):
    a = np.random.default_rng(1).integers(0, 2, len(answers))
    return FairMatching(1.0, density="counts", key=KEY).fit(answers, sensitive_features=a), a


@pytest.mark.parametrize("as_array", [False, True])
def test_columns_are_known_by_name_or_else_by_place(answers, as_array):
    encoder, a = fitted(answers)
    Z = encoder.transform(answers, sensitive_features=a)
    given = Z.to_numpy() if as_array else Z[Z.columns[::-1]]
    back = encoder.inverse_transform(given, sensitive_features=a)
    np.testing.assert_array_equal(back, answers)


def test_other_columns(answers):
    encoder, a = fitted(answers)
    Z = encoder.transform(answers, sensitive_features=a)
    with pytest.raises(DataError, match=r"must have the columns first, second \(2 in all\); got first, third"):
        encoder.inverse_transform(Z.rename(columns={"second": "third"}), sensitive_features=a)
    with pytest.raises(DataError, match="must have the columns"):
        encoder.inverse_transform(Z.to_numpy()[:, :1], sensitive_features=a)

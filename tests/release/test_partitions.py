"""Encoded rows as numbers."""

import numpy as np
import pandas as pd
import pytest

from fairflows.exceptions import DataError
from fairflows.release.partitions import NumericView


def test_missing_numbers_take_the_mean_and_are_marked():
    frame = pd.DataFrame({"x": [1.0, np.nan, 3.0], "when": pd.to_datetime(["2020-01-01", None, "2020-01-03"])})
    view = NumericView.fit(frame, None, 0, has_gaps=True)
    features = view.features(frame)
    assert features[:, [1, 3]].tolist() == [[0, 0], [1, 1], [0, 0]]
    np.testing.assert_allclose(features[:, 0], [-1, 0, 1])
    np.testing.assert_allclose(features[:, 2], [-1, 0, 1])
    whole = pd.DataFrame({"x": pd.array([1, None, 3], dtype="Int64")})
    np.testing.assert_allclose(NumericView.fit(whole, None, 0, has_gaps=True).features(whole)[:, 1], [0, 1, 0])


def test_missing_numbers_are_refused_where_none_may_be():
    gaps = pd.DataFrame({"x": [1.0, np.nan, 3.0]})
    with pytest.raises(DataError, match="Column 'x' must hold finite numbers"):
        NumericView.fit(gaps, None, 0)
    with pytest.raises(DataError, match="Column 'x' must hold finite numbers"):
        NumericView.fit(gaps.fillna(0), None, 0).features(gaps)
    with pytest.raises(DataError, match="Column 'x' must hold finite numbers"):
        NumericView.fit(gaps.replace(3.0, np.inf), None, 0, has_gaps=True)

"""Smoothing: normal noise on numbers alone, kept per person, taken off for those whose persons are known."""

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from scipy.stats import kstest, norm

from fairflows.codec.model_space import Codec
from fairflows.table.persons import Persons

KEY = bytes(range(32))
SIGMA = 0.25


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    n = 3000
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "wage": rng.gamma(2.0, 900.0, n),
            "town": rng.choice(["Ulm", "Bonn", "Kiel"], n),
            "score": pd.Series(np.where(rng.random(n) < 0.2, np.nan, rng.integers(0, 10, n))),
            "since": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
        }
    )


@pytest.fixture(scope="module")
def persons(frame):
    return Persons.of(np.arange(len(frame)))


def fitted(frame, smoothing):
    return Codec(key=KEY, smoothing=smoothing).fit(frame, kinds={"wage": "continuous"})


@pytest.fixture(scope="module")
def noise(frame, persons):
    """What smoothing adds to each dimension."""
    plain, smooth = (fitted(frame, sigma).encode(frame, persons)[0] for sigma in (0.0, SIGMA))
    return pd.DataFrame(smooth - plain, columns=fitted(frame, 0.0).names_)


def test_numbers_get_normal_noise_and_categories_none(noise):
    """Gaps and categories are told exactly; a missing number is a draw, which is smoothed like the others."""
    numbers = ["age", "wage", "score", "since"]
    assert (noise.drop(columns=numbers) == 0).all(axis=None)
    assert {"town", "score is missing"} == set(noise.drop(columns=numbers))
    for name in numbers:
        assert kstest(noise[name], norm(scale=SIGMA).cdf).pvalue > 1e-3, name
    correlation = np.corrcoef(noise[numbers].T) - np.eye(len(numbers))
    assert np.abs(correlation).max() < 0.07, "columns share no noise"


def test_noise_belongs_to_a_person(frame, persons):
    codec = fitted(frame, SIGMA)
    order = np.random.default_rng(1).permutation(len(frame))
    x, _ = codec.encode(frame, persons)
    again, _ = codec.encode(frame.iloc[order], persons.take(order))
    np.testing.assert_array_equal(again, x[order])
    fresh = [codec.encode(frame, Persons.unnamed(len(frame)))[0] for _ in range(2)]
    assert not (fresh[0][:, 0] == fresh[1][:, 0]).any()


def test_what_comes_back(frame, persons):
    """Everything for named persons; for others categories and gaps, and numbers as they were smoothed."""
    codec = fitted(frame, SIGMA)
    x, _ = codec.encode(frame, persons)
    exact = ["age", "town", "score", "since"]
    assert_frame_equal(codec.decode(x, persons)[exact], frame[exact], check_exact=True)
    np.testing.assert_allclose(codec.decode(x, persons)["wage"], frame["wage"], rtol=1e-12)
    unnamed = codec.decode(x, Persons.unnamed(len(frame)))
    assert_frame_equal(unnamed, codec.decode(x))
    assert (unnamed["town"] == frame["town"]).all()
    assert (unnamed["score"].isna() == frame["score"].isna()).all()
    assert unnamed["age"].dtype == frame["age"].dtype
    assert 0.02 < (unnamed["age"] == frame["age"]).mean() < 0.5
    small = fitted(frame, 1e-9)
    assert_frame_equal(small.decode(small.encode(frame, persons)[0])[exact], frame[exact], check_exact=True)


def test_the_log_determinant_is_that_of_the_smoothed_row():
    frame = pd.DataFrame({"v": np.linspace(0.0, 50.0, 401), "w": np.linspace(3.0, 5.0, 401) ** 2})
    codec = Codec(key=KEY, smoothing=0.4).fit(frame, kinds=dict.fromkeys(frame, "continuous"))
    x, log_det = codec.encode(frame, Persons.of(np.arange(401)))
    step = 1e-6
    slopes = (codec.values(x + step) - codec.values(x - step)) / (2 * step)  # ∂(table units)/∂x
    np.testing.assert_allclose(log_det, -np.log(slopes).sum(axis=1), atol=1e-6)


def test_grid_points_and_intervals_are_those_of_the_values(frame, persons):
    """s + w·u with u in [0, 1), before the logit; and the ends of the interval that this is, after it."""
    codec = fitted(frame, SIGMA)
    s, width = codec.grid_points(frame, persons)
    low, high = codec.intervals(frame, persons)
    plain, _ = fitted(frame, 0.0).encode(frame, persons)
    noisy = width > 0
    assert noisy.tolist() == [name != "wage" for name in codec.names_]
    for j in range(len(width)):
        logits = [np.log(p / (1 - p)) for p in (s[:, j], s[:, j] + width[j])]
        np.testing.assert_allclose(low[:, j], logits[0], atol=1e-9)
        np.testing.assert_allclose(high[:, j], logits[1], atol=1e-9)
        assert ((low[:, j] - 1e-9 <= plain[:, j]) & (plain[:, j] <= high[:, j] + 1e-9)).all()
    assert codec.smoothing_.tolist() == [SIGMA, SIGMA, 0, SIGMA, 0, SIGMA]

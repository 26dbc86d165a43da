"""The target as a distance or an accuracy, and the choice of a model by it."""

import warnings

import numpy as np
import pytest

from fairflows import DataError, DataWarning, Table
from fairflows.frontiers.selection import Candidate, Target, choose


@pytest.mark.parametrize(
    ("accuracy", "n_groups", "said"),
    [
        (0.6, 4, "The target of 60 % says next to nothing: of 4 groups a blind guess is right 25 % of the time"),
        (1.0, 2, "with a release that gives everything away a guess is right 100 % of the time"),
    ],
)
def test_a_target_that_a_blind_guess_nearly_meets_is_called_empty(accuracy, n_groups, said):
    rng = np.random.default_rng(0)
    rows = Table({"x": rng.normal(size=400), "a": rng.integers(0, n_groups, 400)}, sensitive="a")
    with pytest.warns(DataWarning, match=said):
        Target(accuracy=accuracy).check_reachable(rows, cells=False)


def test_a_target_that_says_something_gives_no_warning():
    rng = np.random.default_rng(0)
    rows = Table({"x": rng.normal(size=400), "a": rng.integers(0, 4, 400)}, sensitive="a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Target(accuracy=0.4).check_reachable(rows, cells=False)
        Target(distance=0.3).check_reachable(rows, cells=False)
    with pytest.warns(DataWarning, match="Every release meets a distance of 1"):
        Target(distance=1.0).check_reachable(rows, cells=False)


def test_choice():
    def candidate(expected, accuracy):
        return Candidate("m", 0.0, 0, None, expected, accuracy, 2)

    some = [candidate(0.1, 0.7), candidate(0.2, 0.8), candidate(0.3, 0.9)]
    assert choose(some, Target(distance=0.25)) is some[1]
    assert choose(some, Target(distance=0.05)) is some[0]  # none is within: the closest
    assert choose(some, Target()) is some[2]
    alike = [candidate(0.3, 0.9), candidate(0.1, 0.897)]
    assert choose(alike, Target()) is alike[1]
    with pytest.raises(DataError, match="diverged"):
        choose([], Target())


def test_the_expected_bound_is_about_what_certificates_come_out_at():
    rng = np.random.default_rng(0)
    from fairflows.bounds import cell_upper_bound, delta_of_look

    laws, n = np.array([[0.3, 0.7], [0.4, 0.6]]), np.array([2000, 3000])
    bounds = []
    for _ in range(300):
        counts = np.stack([rng.multinomial(size, law) for size, law in zip(n, laws, strict=True)])
        bounds.append(cell_upper_bound(counts, delta_of_look(0.05, 1)))
    share = np.mean(np.array(bounds) <= Target(distance=0.2).expected(laws, n))
    assert share > 0.8  # one standard deviation to spare
    told, few = np.eye(2), np.array([20, 20])
    assert Target(distance=0.2).expected(told, few) == Target(accuracy=0.7).expected(told, few) == 1
    assert Target(accuracy=0.7).expected(np.eye(3), np.array([20] * 3)) == 1
    three = np.array([[0.2, 0.8], [0.3, 0.7], [0.4, 0.6]])
    assert Target(accuracy=0.5).expected(three, np.array([10**9] * 3)) == pytest.approx((0.4 + 0.8) / 3, abs=1e-3)

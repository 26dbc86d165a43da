"""Other risks: found where raw rows are copied, and not above the baseline where rows are drawn from cells."""

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows import DataError
from fairflows.attack.risks import SAID, measure_risks


def rows(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "income": rng.lognormal(3, 0.5, n).round(1),
            "town": rng.choice([f"town {i}" for i in range(40)], n),
            "visits": pd.array(np.where(rng.random(n) < 0.1, None, rng.poisson(3, n)), dtype="Int64"),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "kind": rng.choice(list("abc"), n),
        }
    )


@pytest.fixture(scope="module")
def real():
    return rows(3_000, 0), rows(1_500, 1)


def test_all_three_are_found_where_raw_rows_are_copied(real):
    members, others = real
    found = measure_risks(members.sample(frac=1, random_state=0).sort_index(), members, others)
    assert [risk.name for risk in found] == list(SAID)
    for risk in found:
        assert risk.is_above, risk
        assert risk.found > risk.baseline + 0.2
        assert risk.lower < risk.found - risk.baseline <= risk.upper
    assert found[2].found > 0.95, "a row at distance 0"


def test_none_is_above_the_baseline_where_rows_are_drawn_from_cells():
    members, others = ff.load_adult().take(range(15_000)).split(0.2, 0)
    shared = ff.Release(n_cells=16).fit_transform(members)
    for risk in measure_risks(shared, members.X, others.X, delta=0.001):
        assert not risk.is_above, risk
        assert risk.to_dict()["said"] == SAID[risk.name]


def test_rows_that_have_nothing_to_do_with_the_persons_are_no_risk(real):
    members, others = real
    for risk in measure_risks(rows(3_000, 7), members, others, delta=0.001):
        assert not risk.is_above, risk


def test_too_little_to_measure_with_is_refused(real):
    members, others = real
    with pytest.raises(DataError, match="two columns"):
        measure_risks(members[["age"]], members, others)

"""Tables that the encoders' tests share."""

import numpy as np
import pandas as pd
import pytest

from fairflows import Table


@pytest.fixture(scope="session")
def mixed() -> Table:
    """Text, numbers on grids and without, dates, booleans; three groups with text labels; persons with two rows."""
    rng = np.random.default_rng(0)
    n = 480
    sex = rng.choice(["f", "m", "x"], n, p=[0.4, 0.4, 0.2])
    age = rng.integers(18, 80, n) + 3 * (sex == "f")
    frame = pd.DataFrame(
        {
            "age": age,
            "wage": rng.normal(size=n) + (sex == "m"),
            "rate": np.round(rng.gamma(2, size=n), 2),
            "town": rng.choice(["Ulm", "Bonn", "Köln"], n),
            "owner": rng.random(n) < 0.3,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "sex": sex,
            "repaid": np.where(age + 10 * rng.normal(size=n) > 50, "yes", "no"),
            "person": np.repeat(np.arange(n // 2), 2),
        }
    )
    return Table(frame, sensitive="sex", label="repaid", identifier="person")


@pytest.fixture(scope="session")
def categorical() -> Table:
    """Four text columns, two groups, named persons."""
    rng = np.random.default_rng(1)
    n = 3000
    a = rng.choice(["old", "young"], n, p=[0.6, 0.4])
    work = np.where(rng.random(n) < np.where(a == "old", 0.7, 0.3), "office", "field")
    frame = pd.DataFrame(
        {
            "work": work,
            "town": rng.choice(["Ulm", "Bonn", "Köln", "Trier"], n, p=[0.4, 0.3, 0.2, 0.1]),
            "grade": rng.choice(["a", "b", "c"], n),
            "owner": rng.random(n) < np.where(a == "old", 0.6, 0.4),
            "group": a,
            "label": ((work == "office") ^ (rng.random(n) < 0.2)).astype(int),
            "person": np.arange(n),
        }
    )
    return Table(frame, sensitive="group", label="label", identifier="person")

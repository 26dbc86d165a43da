"""Rows of made-up persons that the tests of several parts share."""

import numpy as np
import pandas as pd


def people(n: int, seed: int = 0, *, sex: np.ndarray | None = None) -> pd.DataFrame:
    """One row of each person; grade and income differ between the groups, and names are new for every seed."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n) if sex is None else sex
    grade = rng.integers(0, 8, n) + 2 * (sex == "m")
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "grade": grade,
            "income": np.round(rng.lognormal(3, 0.5, n) + grade, 2),
            "town": rng.choice(["Bonn", "Köln", "Ulm"], n),
            "sex": sex,
            "repaid": np.where(grade + rng.normal(size=n) > 4.5, "yes", "no"),
            "person": np.arange(n) + 1_000_000 * seed,
        }
    )

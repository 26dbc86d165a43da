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


def histories(n: int, seed: int = 0) -> pd.DataFrame:
    """Rows of persons over some years, in a random order: more rows, and larger values, of women."""
    rng = np.random.default_rng(seed)
    is_f = rng.random(n) < 0.4
    m = 1 + rng.poisson(1 + 2 * is_f)
    who = np.repeat(np.arange(n), m)
    year = rng.integers(2000, 2005, n)[who] + np.arange(len(who)) - np.repeat(np.cumsum(m) - m, m)
    pay = (rng.normal(size=n) + is_f)[who] + 0.3 * rng.normal(size=len(who))
    born = rng.integers(1940, 1990, n)[who]
    rows = pd.DataFrame(
        {
            "year": year,
            "born": born,
            "town": rng.choice(["Bonn", "Köln", "Ulm"], n)[who],
            "pay": pay.round(2),
            "state": rng.choice(["a", "b"], len(who)),
            "age": year - born,
            "repaid": np.where(pay + rng.normal(size=len(who)) > 0, "yes", "no"),
            "sex": np.where(is_f, "f", "m")[who],
            "person": [f"p{seed}-{i}" for i in who],
        }
    )
    return rows.sample(frac=1, random_state=seed).reset_index(drop=True)


def patients_and_visits(n: int, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Two linked tables: one row of each person, and more visits, with larger values, of women; some have none."""
    rng = np.random.default_rng(seed)
    is_f = rng.random(n) < 0.4
    m = rng.poisson(0.8 + 2 * is_f)
    who = np.repeat(np.arange(n), m)
    names = np.array([f"p{seed}-{i}" for i in range(n)])
    born = rng.integers(1940, 1990, n)
    day = 30 * (np.arange(len(who)) - np.repeat(np.cumsum(m) - m, m)) + rng.integers(0, 20, len(who))
    pulse = 70 + 4 * (rng.normal(size=n) + is_f)[who] + rng.normal(size=len(who))
    patients = pd.DataFrame(
        {
            "patient": names,
            "born": born,
            "town": rng.choice(["Bonn", "Köln", "Ulm"], n),
            "frail": np.where(born + 10 * rng.normal(size=n) < 1955, "yes", "no"),
            "sex": np.where(is_f, "f", "m"),
        }
    )
    visits = pd.DataFrame(
        {"patient": names[who], "day": day, "pulse": pulse.round(), "ward": rng.choice(["a", "b"], len(who))}
    )
    visits["turns"] = born[who] + 50 + visits["day"] // 10  # follows from both tables
    return {"patients": patients, "visits": visits.sample(frac=1, random_state=seed).reset_index(drop=True)}

"""What the tests of all engines share: rows of persons, a model, and the rows as our own stream encodes them.

Every test takes an engine by `pytest.importorskip`, so that it skips, and says why, where the engine is not installed;
`make test-engines` installs all of them.
"""

import numpy as np
import pandas as pd
import pytest
from known_tables import people

import fairflows as ff
from fairflows.density import MixtureDensity

N, N_FILES = 4000, 8
FEATURES = ["age", "income", "town"]
ROLES = {"sensitive": "sex", "identifier": "person", "keep": ["person"]}


@pytest.fixture(scope="session")
def frame():
    return people(N).assign(person=[f"p{i}" for i in range(N)])


@pytest.fixture(scope="session")
def model(frame):
    X = frame[[*FEATURES, "person"]]
    return ff.FairFlow(n_epochs=1, hidden=(8,), density=MixtureDensity(1), identifier="person").fit(
        X, frame["repaid"], sensitive_features=frame["sex"]
    )


@pytest.fixture(scope="session")
def folder(frame, tmp_path_factory):
    """The rows in eight files."""
    folder = tmp_path_factory.mktemp("engines") / "rows"
    folder.mkdir()
    for i, part in enumerate(np.array_split(np.arange(N), N_FILES)):
        frame.iloc[part].to_parquet(folder / f"{i}.parquet", index=False)
    return folder


@pytest.fixture(scope="session")
def expected(model, frame, tmp_path_factory):
    """The rows as `encode_file` encodes them, by their persons."""
    place = tmp_path_factory.mktemp("expected")
    frame.to_parquet(place / "rows.parquet", index=False)
    ff.encode_file(model, place / "rows.parquet", place / "z.parquet", **ROLES)
    return by_person(pd.read_parquet(place / "z.parquet"))


def by_person(encoded):
    return encoded.astype({"person": object}).set_index("person").sort_index()


def assert_same_rows(encoded, expected):
    """The same released numbers, up to a rounding tie."""
    pd.testing.assert_frame_equal(by_person(encoded), expected, rtol=1e-6, atol=1e-6, check_index_type=False)

"""A release of Adult's cells, and an audit that may have found anything."""

from dataclasses import dataclass, field

import pytest

from fairflows import CellRelease, FairMatching, load_adult
from fairflows.encoder.model_state import model_hash
from fairflows.release.released import Released


@pytest.fixture(scope="session")
def adult():
    """Four of Adult's columns: 6,720 cells instead of 329,280, whose laws are fitted in no time."""
    table = load_adult()
    table.X = table.X[["education", "occupation", "relationship", "race"]]
    return table.paper_split()


@pytest.fixture(scope="session")
def model(adult):
    """Eight cells of matched Adult."""
    return CellRelease(FairMatching(0.99, density="counts", key=bytes(32)), n_cells=8).fit(adult[0])


@dataclass
class Found:
    """What an audit might have found."""

    model: str
    rows: str = ""
    released: tuple[str, ...] = ("cell",)
    delta: float = 0.05
    attack_lower: float = 0.0
    best: str = "nobody"
    density_gap_lower: dict[str, float] = field(default_factory=dict)
    limits: tuple[str, ...] = ()


@pytest.fixture(scope="session")
def found():
    """An audit of a model, with what it found."""
    return lambda model, **what: Found(model_hash(model, Released.of(model).secret), **what)

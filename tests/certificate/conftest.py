"""Cells of Adult, a certificate of any statements, and an audit that may have found anything."""

from dataclasses import dataclass, field, replace

import pytest
from known_encoders import ClaimingTree

from fairflows import load_adult
from fairflows.certificate.model_hash import model_hash


@pytest.fixture(scope="session")
def adult():
    """Four of Adult's columns."""
    table = load_adult()
    table.X = table.X[["education", "occupation", "relationship", "race"]]
    return table.paper_split()


@pytest.fixture(scope="session")
def model(adult):
    """Eight cells of Adult; a fixed key makes coins the same in every run."""
    return ClaimingTree(n_cells=8, key=bytes(32)).fit(adult[0])


@dataclass
class Found:
    """What an audit might have found."""

    model: str
    rows: str = ""
    released: str = "cell"
    labels: tuple[str, ...] = ()
    delta: float = 0.05
    attack_lower: float = 0.0
    best: str = "nobody"
    density_gap_lower: dict[str, float] = field(default_factory=dict)


@pytest.fixture(scope="session")
def found():
    """An audit of a model, with what it found."""
    return lambda model, **what: Found(model_hash(model, model.key_), **what)


@pytest.fixture(scope="session")
def changed():
    """A certificate with one statement changed: by subject, and what to change in it."""

    def change(certificate, about="population", **values):
        statements = list(certificate.statements)
        place = next(i for i, s in enumerate(statements) if s.about == about and s.given is None)
        statements[place] = replace(statements[place], **values)
        return replace(certificate, statements=tuple(statements))

    return change

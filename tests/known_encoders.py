"""Encoders that learn nothing: their cells are a fixed function of the rows, and their laws are known."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import numpy as np
import pandas as pd
from scipy.stats import norm

from fairflows import Encoder, FairTree
from fairflows.encoder.base import CELL, LatentLaw, Traits
from fairflows.encoder.fair_matching import ExactLaw
from fairflows.paper.baselines import RawFeatures
from fairflows.table.keys import NEW_AT_EACH_FIT, KeySetting


@dataclass(eq=False, repr=False)
class FixedCells(Encoder):
    """Releases a cell that is a function of the row."""

    cell_of: Callable[[pd.DataFrame], np.ndarray]
    n_cells: int = 2
    _: KW_ONLY
    sensitive: str | None = None
    identifier: str | None = None
    key: KeySetting = NEW_AT_EACH_FIT
    random_state: int = 0

    @property
    def traits(self):
        return Traits(needs_attribute=False, learns_groups=False, n_cells=self.n_cells)

    def learn(self, rows):
        self.n_cells_, self.output_ = self.n_cells, CELL

    def cells(self, rows):
        return self.cell_of(rows.X)

    def encode(self, rows):
        return pd.DataFrame({"cell": self.cells(rows)})


class ClaimingTree(FairTree):
    """A tree whose model claims that the groups are alike."""

    def latent_law(self):
        return ExactLaw(np.full((2, 2), 0.5))


class KnownGaussians(RawFeatures):
    """Releases rows of unit Gaussians at known means as they are."""

    def __init__(self, means=(0.0, 1.0), *, sensitive=None, identifier=None, key=None, random_state=0):
        super().__init__(sensitive=sensitive, identifier=identifier, key=key, random_state=random_state)
        self.means = means

    def latent_law(self):
        return GaussianLaws(np.array(self.means))


class GaussianLaws(LatentLaw):
    """Unit Gaussians, one per group."""

    def __init__(self, means: np.ndarray):
        self.means = means

    def log_density_table(self, n, random_state=0, label=None):
        z = np.random.default_rng(random_state).normal(self.means, size=(n, len(self.means)))
        return norm.logpdf(z[:, :, None], self.means)


def column(name: str) -> Callable[[pd.DataFrame], np.ndarray]:
    """The column itself, as the cell."""
    return lambda X: X[name].to_numpy()

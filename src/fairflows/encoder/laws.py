"""The laws of encoded rows under an encoder's own densities: the bridge to bounds that take a model for the truth."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.bounds.arguments import checked_draws
from fairflows.exceptions import DataError

if TYPE_CHECKING:
    from fairflows.encoder.cell_model import KnownCells

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Inversion:
    """The view of an adversary who holds the encoders and decodes z as if it were of one group."""

    names: list[str]  # what each of the D dimensions of model space holds
    rows: pd.DataFrame  # f_b⁻¹(z) as a row of the table
    # (n, D): the same in table units, before numbers are set on their grids and categories on their levels
    values: FloatArray
    x: FloatArray  # (n, D): the same in model space
    log_prob: FloatArray  # (n,): log p̂_b(x)
    log_det: FloatArray  # (n,): log |det ∂x/∂z|, so that log p̂_Zb(z) = log_prob + log_det


class LatentLaw:
    """Base of the groups' laws of encoded rows; a law says what it knows, and None stands for the rest."""

    @property
    def labels(self) -> list[Hashable]:
        """The labels that there are laws given."""
        return []

    def exact(self, label: Hashable = None) -> FloatArray | None:
        """Return the laws over finitely many values, (K, m), of all rows or given a label; None for densities."""
        return None

    def log_density_table(self, n: int, random_state: int = 0, label: Hashable = None) -> FloatArray:
        """Draw from every group's law; return the log-density under every group, (n, K drawn, K density)."""
        raise NotImplementedError

    def sample_rows(self, n: int, random_state: int = 0) -> list[pd.DataFrame] | None:
        """Draw n rows of the table from each group's density p̂_a; None for a law without densities of rows."""
        return None

    def inversions(self, Z: pd.DataFrame) -> list[Inversion] | None:
        """Decode encoded rows by each group's inverse; None where there are no inverses in model space."""
        return None

    def known_cells(self) -> KnownCells | None:
        """Return the knowledge of an adversary about encoded cells; None where no cells are encoded."""
        return None


@dataclass(frozen=True)
class ExactLaw(LatentLaw):
    """Laws over finitely many values."""

    laws: FloatArray  # (K, m): of all rows
    label_laws: Mapping[Hashable, FloatArray]  # given each label, where these are known
    cells: KnownCells | None = None  # what the values are, where they are cells of a table

    @property
    def labels(self) -> list[Hashable]:
        """The labels that there are laws given."""
        return list(self.label_laws)

    def exact(self, label: Hashable = None) -> FloatArray:
        """Return the laws."""
        if label is None:
            return self.laws
        if label not in self.label_laws:
            known = ", ".join(map(repr, self.label_laws)) or "none"
            raise DataError(f"The encoder has no laws given label {label!r}; it was fitted for these labels: {known}.")
        return self.label_laws[label]

    def log_density_table(self, n: int, random_state: int = 0, label: Hashable = None) -> FloatArray:
        """Draw from every group's law; return the log-probabilities under every group."""
        laws, generator = self.exact(label), np.random.default_rng(random_state)
        checked_draws(n, len(laws))
        cumulative = np.cumsum(laws, axis=1)
        draws = [
            np.minimum(np.searchsorted(row, generator.random(n) * row[-1], side="right"), laws.shape[1] - 1)
            for row in cumulative
        ]
        with np.errstate(divide="ignore"):
            log_laws = np.log(laws)
        return np.stack([log_laws[:, values].T for values in draws], axis=1)

    def sample_rows(self, n: int, random_state: int = 0) -> list[pd.DataFrame] | None:
        """Draw n rows of the table from each group's density of cells."""
        return None if self.cells is None else self.cells.model.sample_rows(n, random_state)

    def known_cells(self) -> KnownCells | None:
        """Return the laws and the bijections of cells."""
        return self.cells

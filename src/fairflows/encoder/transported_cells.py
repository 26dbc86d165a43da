"""Transport of cells: a coupling a group, after which the encoded cell has the same law in all."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.encoder.base import Groups, Rows
from fairflows.encoder.cell_coupling import CellCoupling, class_distance, transport_cells
from fairflows.encoder.cell_model import CellModel
from fairflows.encoder.cell_output import cells_from_output, output_names, to_output
from fairflows.encoder.checks import Output

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TransportedCells:
    """The groups' couplings with the reference law.

    Attributes
    ----------
    model : CellModel
        The groups' laws over cells, and the classifier's scores.
    reference : ndarray of shape (m,)
        The law that all groups are sent to.
    output : str
        How encoded cells are given back.
    couplings : tuple of CellCoupling
        One a group, at the present strength.
    laws : ndarray of shape (K, m)
        The exact law of the encoded cell in each group, under the model.
    """

    model: CellModel
    reference: FloatArray
    output: Output
    couplings: tuple[CellCoupling, ...] = ()
    laws: FloatArray | None = None

    @classmethod
    def of(cls, model: CellModel, reference: Hashable, groups: list[Hashable], output: Output) -> TransportedCells:
        """With the law of the largest group, of a named one, or the mean of all as the reference."""
        law = np.exp(model.log_reference(reference, groups))
        return cls(model, law / law.sum(), output)

    def at(self, strength: float) -> TransportedCells:
        """The couplings at a point of the frontier: Δ to the reference is (1 − strength)·TV_class."""
        scores = self.model.scores
        labels, sure = (np.zeros(len(self.reference), dtype=np.intp),) * 2 if scores is None else _labels(scores)
        couplings = []
        for log_p in self.model.log_p:
            p = np.exp(log_p)
            p /= p.sum()
            allowed = (1 - strength) * class_distance(p, self.reference, labels, labels)
            couplings.append(transport_cells(p, self.reference, labels, labels, sure, sure, allowed))
        inside = 1 - self.model.tails
        laws = np.stack([c.target_law() * mass for c, mass in zip(couplings, inside, strict=True)])
        return replace(self, couplings=tuple(couplings), laws=laws)

    def encode(self, rows: Rows, key: bytes) -> pd.DataFrame:
        """The encoded cells, as asked for."""
        return to_output(self.model.codec, self.cells(rows, key), self.output)

    def cells(self, rows: Rows, key: bytes) -> IntArray:
        """The encoded cells of rows."""
        u = rows.persons_or_fresh().uniform(key, "transport")
        cells = self.model.codec.encode(rows.X, rows.outside)
        return self._draw(self.couplings, cells, rows.map_group, u)

    def decode(self, rows: Rows, key: bytes) -> pd.DataFrame:
        """Rows that may stand behind encoded ones, drawn from x given z and the group."""
        cells = cells_from_output(self.model.codec, rows.X, self.output)
        back = tuple(coupling.reversed() for coupling in self.couplings)
        u = rows.persons.uniform(key, "transport back")
        return self.model.codec.decode(self._draw(back, cells, rows.group, u))

    def predict(self, cells: IntArray) -> npt.NDArray[np.intp]:
        """The class that each encoded cell suggests."""
        place, known = self.model.place(cells)
        if self.model.scores is not None and known.all():
            return self.model.scores[place].argmax(axis=1)
        return self.model.score(cells).argmax(axis=1)

    def latent_laws(self) -> FloatArray:
        """The laws of the encoded cell, (K, m + K); mass outside the m cells counts as if no two groups met there."""
        return np.concatenate([np.asarray(self.laws), np.diag(self.model.tails)], axis=1)

    @property
    def names(self) -> list[str]:
        """The columns of the encoded frame."""
        return output_names(self.model.codec, self.output)

    def _draw(self, couplings: tuple[CellCoupling, ...], cells: IntArray, group: Groups, u: FloatArray) -> IntArray:
        place, known = self.model.place(cells)
        sent = cells.copy()
        for a, coupling in enumerate(couplings):
            mine = known & (group == a)
            target = coupling.draw(place[mine], u[mine])
            sent[mine] = target if self.model.support is None else self.model.support[target]
        return sent


def _labels(scores: FloatArray) -> tuple[npt.NDArray[np.intp], FloatArray]:
    return scores.argmax(axis=1), scores.max(axis=1)

"""Counts as a certificate prints them: cells of few persons are merged, and no small number follows from others."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairflows.arrays import NDArray
from fairflows.bounds.cells import FEWEST_PERSONS, cells_to_merge, has_few_persons
from fairflows.certificate.statements import CellCounts

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Counted:
    """Rows or persons by label, group and cell."""

    counts: Counts  # (C, K, k), with C = 1 without labels
    labels: Sequence[Hashable]  # the C labels; empty without
    with_label: bool  # whether a cell is the pair of a cell and a label, which are released together

    @classmethod
    def of(cls, counts: Counts, labels: Sequence[Hashable], *, with_label: bool) -> Counted:
        """Count cells, or pairs: with the label, cell c and the j-th of L labels are c·L + j."""
        if not with_label:
            return cls(counts, labels, False)
        L, K, k = counts.shape
        pairs = np.zeros((L, K, k, L), dtype=np.int64)
        for j in range(L):
            pairs[j, :, :, j] = counts[j]
        return cls(pairs.reshape(L, K, k * L), labels, True)

    def printed(self, groups: Sequence[str]) -> CellCounts:
        """Return the counts of all persons."""
        return _printed(self.counts.sum(axis=0), self._merged, groups)

    def printed_by_label(self, groups: Sequence[str]) -> dict[str, CellCounts]:
        """Return the counts of the persons with each label.

        A count that is merged given one label must not follow from that of all persons less those given the other
        labels, nor from the size of a group: where it would, the counts given the label are rounded down.
        """
        merged = has_few_persons(self.counts).any(axis=1) | self._merged
        found: dict[str, CellCounts] = {}
        for label, counts, cells in zip(self.labels, self.counts, merged, strict=False):  # without labels: none
            tells = (merged.any(axis=0) & ~cells).any() or has_few_persons(counts[:, cells].sum(axis=1)).any()
            found[str(label)] = _printed(counts, cells, groups, rounded=bool(tells))
        return found

    @property
    def _merged(self) -> npt.NDArray[np.bool_]:
        """Cells that are merged where all persons are counted."""
        # with the label, the counts of all persons and those by label are the same numbers
        return cells_to_merge(self.counts if self.with_label else self.counts.sum(axis=0))


def _printed(counts: Counts, merged: npt.NDArray[np.bool_], groups: Sequence[str], rounded: bool = False) -> CellCounts:
    """Return the printed counts (K, k): some cells merged, others rounded down to tens if `rounded`."""
    n, kept = counts.sum(axis=1), counts[:, ~merged]
    if rounded:
        kept = kept // FEWEST_PERSONS * FEWEST_PERSONS
    return CellCounts(
        n=dict(zip(groups, n.tolist(), strict=True)),
        cells=tuple(np.flatnonzero(~merged).tolist()),
        counts=dict(zip(groups, map(tuple, kept.tolist()), strict=True)),
        merged=dict(zip(groups, (n - kept.sum(axis=1)).tolist(), strict=True)),
    )

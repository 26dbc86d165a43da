"""The table that was released: the counts of its cells, and the cells that its persons keep."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairflows.encoder.base import Cells, FloatArray, IntArray
from fairflows.encoder.rows import Rows
from fairflows.table.keys import Hashes, Key, keyed_hashes
from fairflows.table.persons import Persons, Places
from fairflows.table.table import Table


@dataclass(frozen=True)
class ReleasedTable:
    """The cells of the table that a release was fitted to, and what is known of persons to come."""

    fingerprint: str  # a keyed hash of the whole table, by which it is recognised; empty where it was no `Table`
    counts: IntArray  # (C, K, k): its rows by label, group and cell
    persons_behind: FloatArray  # (K,): the persons of equal weight that the rows of each group stand for
    # Named persons who keep their cell: sorted keyed hashes, and the cell of each.
    person: Hashes
    cell: IntArray
    blocks: IntArray | None  # (K, k): the blocks of the population cut, where there is one
    # Of an encoder that is counted: persons who were held out by label, group and cell, (C, K, k), for each law.
    held_out: Mapping[str, IntArray]

    @classmethod
    def of(
        cls,
        table: object,
        rows: Rows,
        cells: Cells,
        shape: tuple[int, int],
        key: Key,
        *,
        named: bool,
        blocks: IntArray | None = None,
        held_out: Mapping[str, IntArray] | None = None,
    ) -> ReleasedTable:
        """Count the cells of a table's rows, of which `shape` says groups and cells, and keep those of its persons."""
        persons, kept, hashes = rows.persons, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
        if named and persons.names is not None:
            some_row = np.empty(persons.n, dtype=np.intp)
            order = np.random.default_rng().permutation(len(cells))
            some_row[persons.codes[order]] = order  # of several rows of a person, one at random
            hashes = keyed_hashes(persons.names, key, "person")
            by_hash = np.argsort(hashes)
            hashes, kept = hashes[by_hash], cells[some_row[by_hash]].astype(np.int64)
        behind = persons.equal_weight(rows.group, shape[0])
        fingerprint = table.fingerprint(key) if isinstance(table, Table) else ""
        counts = count_cells(table, rows.group, cells, shape)
        return cls(fingerprint, counts, behind, hashes, kept, blocks, held_out or {})

    def kept_cells(self, persons: Persons, key: Key) -> Cells:
        """Return the cell that each row's person keeps; −1 for everybody else."""
        if persons.names is None or not len(self.person):
            return np.full(len(persons.codes), -1, dtype=np.intp)
        hashes = keyed_hashes(persons.names, key, "person")
        place = np.minimum(np.searchsorted(self.person, hashes), len(self.person) - 1)
        return np.where(self.person[place] == hashes, self.cell[place], -1)[persons.codes].astype(np.intp)

    def counted_again(self, table: Table, groups: Sequence[Hashable], key: Key) -> IntArray | None:
        """Count the cells that the persons of the table keep; None where these do not give the cell of each row."""
        cells = self.kept_cells(table.persons, key)
        if (cells < 0).any() or table.persons.n < len(table):
            return None
        return count_cells(table, table.group_numbers(groups), cells, self.counts.shape[1:])


def count_cells(
    table: object, group: Cells, cells: Cells, shape: tuple[int, int], places: Places | slice = slice(None)
) -> IntArray:
    """Count the rows at some places by label, group and cell, (C, K, k).

    `shape` is (K, k). The labels are those of the whole table; data without roles count as having none.
    """
    y, labels = table.label_codes() if isinstance(table, Table) else (np.zeros_like(group), [])
    counts = np.zeros((max(len(labels), 1), *shape), dtype=np.int64)
    np.add.at(counts, (y[places], group[places], cells[places]), 1)
    return counts

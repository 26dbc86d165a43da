"""The table that was released: the counts of its cells, and the cells that its persons keep."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairflows.encoder.base import Cells, FloatArray, IntArray
from fairflows.encoder.rows import Rows
from fairflows.exceptions import warn_user
from fairflows.table.keys import Hashes, Key, keyed_hashes
from fairflows.table.persons import Persons, Places
from fairflows.table.table import Table

FEW = 10
"""Fewer persons than this are not told apart by the sizes of groups."""


@dataclass(frozen=True)
class Together:
    """Persons who are in all releases from the same cells, counted together, and who is in which."""

    counts: IntArray  # (K, k): persons who are in all of them, by group and cell
    membership: dict[str, int]  # persons of all releases, by where they are


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
    times: IntArray  # (n,): of the same persons, in how many releases from these cells each is
    n_releases: int = 1
    together: Together | None = None  # of the second release on

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
        return cls(fingerprint, counts, behind, hashes, kept, blocks, held_out or {}, np.ones_like(kept))

    def again(self, table: Table, persons: Persons, group: Cells, cells: Cells, key: Key) -> ReleasedTable:
        """Return what is known after another release from these cells, of a table with one row of each person."""
        assert persons.names is not None
        K, k = self.counts.shape[1:]
        here = keyed_hashes(persons.names, key, "person")[persons.codes]
        person, first = np.unique(np.concatenate([self.person, here]), return_index=True)
        cell = np.concatenate([self.cell, cells])[first]
        is_here, before = np.isin(person, here), np.zeros(len(person), dtype=np.int64)
        before[np.searchsorted(person, self.person)] = self.times
        times, n = before + is_here, self.n_releases + 1
        in_all = times[np.searchsorted(person, here)] == n
        places = {
            "in all releases": times == n,
            "in this one alone": is_here & (times == 1),
            "in this one and some others": is_here & (times > 1) & (times < n),
            "not in this one": ~is_here,
        }
        return replace(
            self,
            fingerprint=table.fingerprint(key),
            counts=count_cells(table, group, cells, (K, k)),
            persons_behind=np.bincount(group, minlength=K).astype(np.float64),
            person=person,
            cell=cell,
            times=times,
            n_releases=n,
            together=Together(
                np.bincount(group[in_all] * k + cells[in_all], minlength=K * k).reshape(K, k),
                {what: int(which.sum()) for what, which in places.items()},
            ),
        )

    def is_of(self, table: Table, key: Key) -> bool:
        """Whether a table is the one that was released, in any order of rows."""
        return self.fingerprint == table.fingerprint(key)

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


def warn_of_kept(n: int) -> None:
    """Warn of rows whose persons keep their cell."""
    if n:
        warn_user(
            f"{n:,} of these rows are of persons of the table that was released. They keep the cell that they have "
            "there."
        )


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

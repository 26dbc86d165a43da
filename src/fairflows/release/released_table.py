"""The table that was released: the counts of its cells, and the cells that its persons keep."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fairflows.bounds.blocks import Leaves
from fairflows.encoder.base import Cells, FloatArray, IntArray
from fairflows.encoder.rows import Rows
from fairflows.exceptions import DataError, warn_user
from fairflows.release.margins import Margin
from fairflows.table.keys import Hashes, Key, fingerprint, keyed_hashes
from fairflows.table.persons import Persons, Places
from fairflows.table.table import Table

FEW = 10
"""Fewer persons than this are not told apart by the sizes of groups."""


_NOT_CUT_AT = -2  # of a row, the population cut


@dataclass(frozen=True)
class Together:
    """Persons who are in all releases from the same cells, counted together, and who is in which."""

    counts: IntArray  # (K, k): persons who are in all of them, by group and cell
    membership: dict[str, int]  # persons of all releases, by where they are


@dataclass(frozen=True)
class KeptRows:
    """Rows of persons who keep their cell: the keyed hash of each person, the group and the cell."""

    person: Hashes
    group: IntArray
    cell: IntArray

    @classmethod
    def of(cls, persons: Persons, group: Cells, cells: Cells, key: Key) -> KeptRows:
        """Return the rows of named persons."""
        return cls(_hashes(persons, key), group.astype(np.int64), cells.astype(np.int64))

    @classmethod
    def joined(cls, parts: Sequence[KeptRows]) -> KeptRows:
        """Join the rows of the parts of a file."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("person", "group", "cell")))


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
    # Named persons at whom the population cut was made: sorted keyed hashes, the group of each, and the cell of it that
    # each is strictly inside of; −1 where a threshold used the person up.
    cut_person: Hashes = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    cut_group: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    cut_leaf: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    leaves: tuple[Leaves, ...] = ()  # that these cells were cut from, and those that these were cut from
    of_persons: bool = False  # whether the fingerprint is of persons, of a file that was read in parts
    n_releases: int = 1
    together: Together | None = None  # of the second release on
    margins: list[Margin] = field(default_factory=list)  # of several sensitive columns
    sensitive: list[str] = field(default_factory=list)  # the columns that the groups were of; none of no `Table`

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
        inside: Cells | None = None,
    ) -> ReleasedTable:
        """Count the cells of a table's rows, of which `shape` says groups and cells, and keep those of its persons.

        `inside` has the cell of the population cut that each row is strictly inside of: −1 for a row that a threshold
        used up, −2 for rows that it was not cut at.
        """
        persons, kept, hashes = rows.persons, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
        if named and persons.names is not None:
            some_row = np.empty(persons.n, dtype=np.intp)
            order = np.random.default_rng().permutation(len(cells))
            some_row[persons.codes[order]] = order  # of several rows of a person, one at random
            hashes = keyed_hashes(persons.names, key, "person")
            by_hash = np.argsort(hashes)
            hashes, kept = hashes[by_hash], cells[some_row[by_hash]].astype(np.int64)
        behind = persons.equal_weight(rows.group, shape[0])
        of_table = table.fingerprint(key) if isinstance(table, Table) else ""
        counts = count_cells(table, rows.group, cells, shape)
        found = cls(of_table, counts, behind, hashes, kept, blocks, held_out or {}, np.ones_like(kept))
        sensitive = list(map(str, table.grouping.kinds)) if isinstance(table, Table) else []
        found = replace(found, margins=Margin.all_of(table, rows.group, cells, shape), sensitive=sensitive)
        if not len(hashes) or inside is None:
            return found
        places = np.flatnonzero(inside > _NOT_CUT_AT)  # of one row of each of these persons
        cut_at = _hashes(persons, key)[places]
        order = np.argsort(cut_at)
        cut_group, cut_leaf = (part[places][order].astype(np.int64) for part in (rows.group, inside))
        return replace(found, cut_person=cut_at[order], cut_group=cut_group, cut_leaf=cut_leaf)

    def again(self, table: Table, persons: Persons, group: Cells, cells: Cells, key: Key) -> ReleasedTable:
        """Return what is known after another release from these cells, of a table with one row of each person."""
        counts = count_cells(table, group, cells, self.counts.shape[1:])
        found = self._again(table.fingerprint(key), counts, _hashes(persons, key), group, cells)
        return replace(found, margins=Margin.all_of(table, group, cells, self.counts.shape[1:]))

    def of_file(self, rows: KeptRows, before: ReleasedTable | None, key: Key) -> ReleasedTable:
        """Return the same of a whole file, of whose persons the table is a sample.

        `before` is what was known before this release, where it is another one from the same cells.
        """
        here, group, cells = rows.person, rows.group, rows.cell
        if len(np.unique(here)) < len(here):
            raise DataError("A file that is larger than memory has one row of each person; some persons have several.")
        K, k = self.counts.shape[1:]
        counts = np.bincount(group * k + cells, minlength=K * k).reshape(1, K, k)
        of_persons = fingerprint([np.sort(here)], key)
        if before is not None:
            return replace(before._again(of_persons, counts, here, group, cells), of_persons=True)
        order = np.argsort(here)
        return replace(
            self,
            fingerprint=of_persons,
            of_persons=True,
            counts=counts,
            margins=[],  # those of the sample are not those of the file
            persons_behind=counts.sum(axis=(0, 2)).astype(np.float64),
            person=here[order],
            cell=cells[order].astype(np.int64),
            times=np.ones(len(here), dtype=np.int64),
        )

    def fingerprint_of(self, table: Table, key: Key) -> str:
        """Return the fingerprint by which a table is compared with this one: of its rows, or of its persons."""
        if not self.of_persons:
            return table.fingerprint(key)
        return fingerprint([np.sort(_hashes(table.persons, key))], key) if table.persons.named else ""

    def _again(self, of_table: str, counts: IntArray, here: Hashes, group: Cells, cells: Cells) -> ReleasedTable:
        K, k = self.counts.shape[1:]
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
            fingerprint=of_table,
            of_persons=False,
            counts=counts,
            margins=[],
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
        return self.fingerprint == self.fingerprint_of(table, key)

    def kept_cells(self, persons: Persons, key: Key) -> Cells:
        """Return the cell that each row's person keeps; −1 for everybody else."""
        place = self.places_of(persons, key)
        return np.where(place >= 0, self.cell[place], -1).astype(np.intp) if len(self.cell) else place

    def places_of_cut(self, persons: Persons, key: Key) -> Cells:
        """Return the place in `cut_person` of each row's person; −1 for persons at whom the tree was not cut."""
        return _places_among(self.cut_person, persons, key)

    def places_of(self, persons: Persons, key: Key) -> Cells:
        """Return the place in `person` of each row's person; −1 for everybody else."""
        return _places_among(self.person, persons, key)

    def has_margins_of(self, table: Table, groups: Sequence[Hashable], key: Key) -> bool:
        """Whether the counts of several sensitive columns are those of the table, whose persons have one row each."""
        cells, shape = self.kept_cells(table.persons, key), self.counts.shape[1:]
        again = Margin.all_of(table, table.group_numbers(groups), cells, shape)

        def counts(margin: Margin) -> list[IntArray]:
            return [margin.cells, margin.groups, *margin.inside.values()]

        return len(again) == len(self.margins) and all(
            one.columns == other.columns and all(map(np.array_equal, counts(one), counts(other)))
            for one, other in zip(again, self.margins, strict=True)
        )

    def counted_again(self, table: Table, groups: Sequence[Hashable], key: Key) -> IntArray | None:
        """Count the cells that the persons of the table keep; None where these do not give the cell of each row."""
        cells = self.kept_cells(table.persons, key)
        if (cells < 0).any() or table.persons.n < len(table):
            return None
        counts = count_cells(table, table.group_numbers(groups), cells, self.counts.shape[1:])
        return counts.sum(axis=0, keepdims=True) if self.of_persons else counts


def _hashes(persons: Persons, key: Key) -> Hashes:
    """Return the keyed hash of each row's person, who has a name."""
    assert persons.names is not None
    return keyed_hashes(persons.names, key, "person")[persons.codes]


def _places_among(known: Hashes, persons: Persons, key: Key) -> Cells:
    """Return the place of each row's person among sorted hashes; −1 for everybody else."""
    if persons.names is None or not len(known):
        return np.full(len(persons.codes), -1, dtype=np.intp)
    hashes = keyed_hashes(persons.names, key, "person")
    place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return np.where(known[place] == hashes, place, -1)[persons.codes].astype(np.intp)


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

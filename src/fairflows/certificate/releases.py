"""The user's record of releases: which rows were released before.

Every release has its own tree, and two of them of the same persons, linked, may tell the group. A row is known by a
keyed hash of its person's identifier *and* its values; in a table without an identifier, by its values. An identifier
alone tells nothing, because many tables number their rows from 1 to n. Unrelated tables may agree by chance: in as many
rows as agree when each identifier is given the row of the next one, since tables are often sorted. So rows are released

- *again*, where clearly more rows than by chance agree whose values no other row of their table has, or where values
  alone show it because persons have other identifiers: a certificate states which release of these rows it is;
- *perhaps* again, where only single values of persons agree more often than by chance, as when a column was left out,
  or where nothing shows that two tables without identifiers differ: the owner is warned, and no certificate states it.

Releases from the same cells are one release, because a person keeps the cell: its rows tell no more than the cell does.
A person who came later, and comes again with other values, may get another cell, and two cells tell more than one. So
of such releases the record knows each person's cell, and finds *moved* persons.

Of a file of more than `MOST_ROWS` rows those with small hashes are recorded, about so many: they are small in every
other file, too, so that files of any two sizes can be compared. Of persons all cells are known: one who moved counts.

An entry is written when the released file takes its place. A process that is killed at that moment leaves an entry that
is pending, which the next one settles by the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from fairflows.certificate.file_list import file_sha256
from fairflows.certificate.records import RELEASES, new_name, open_records, read_entry, write_entry
from fairflows.encoder.base import Model
from fairflows.exceptions import warn_user
from fairflows.table.keys import Hashes, Key, Secret, content_hashes, fingerprint, integers_as_text, keyed_hashes
from fairflows.table.ledger import RowsSeen, is_part
from fairflows.table.persons import Persons

Evidence = Literal["again", "perhaps", "none"]

_FORMAT = 5
_PENDING = ".pending"
_FACTS = ("named", "limit", "model", "number", "date", "file", "sha256")
_HASHES = ("contents", "rows", "values", "persons", "placed")
MOST_ROWS = 500_000  # of a file that are recorded
_SAMPLED = 2_000  # persons whose values are hashed one by one
_FEWEST = 10  # rows that are evidence
_DISTINCT = 20  # different rows that two tables without identifiers do not have equally often by chance


@dataclass(frozen=True)
class ReleasedRows:
    """Keyed hashes of rows that are released, and "by chance" the same with the identifiers of the next persons."""

    record: str  # the record by whose key they were hashed
    named: bool  # whether an identifier says whose rows they are; without one there are contents alone
    contents: Hashes  # of each row's values
    rows: Hashes  # of each row's person and values
    rows_by_chance: Hashes
    values: Hashes  # of some persons and each of their values
    values_by_chance: Hashes
    persons: Hashes  # where each has one cell
    placed: Hashes  # of each of these persons and the cell
    _: KW_ONLY
    limit: int = 2**64 - 1  # rows with larger hashes were left out

    @classmethod
    def of(
        cls,
        X: pd.DataFrame,
        persons: Persons,
        key: Secret,
        n_in_all: int | None = None,
        cells: npt.NDArray[np.integer] | None = None,
    ) -> ReleasedRows:
        """Hash the features of rows, whatever the order of the columns, and the persons that they belong to.

        `n_in_all` is the number of rows of the file, about, where these are a part of it. `cells` has the cell of each
        row, where all rows of a person have one.
        """
        X = X[sorted(X.columns, key=str)]
        contents = content_hashes(X, key)
        nothing = np.empty(0, np.uint64)
        if persons.names is None:
            return cls(_name_of(key), False, contents, *[nothing] * 6)
        hashes = keyed_hashes(persons.names, key, "person")
        person, other = hashes[persons.codes], hashes[_following(persons.names)][persons.codes]
        # The same persons in every file of so many rows.
        last_sampled = min(1.0, _SAMPLED / (n_in_all or persons.n)) * (2.0**64 - 1)
        of_columns = keyed_hashes([str(name) for name in X], key, "column")

        def of_values(names: Hashes) -> Hashes:
            some = np.flatnonzero(names <= last_sampled)
            values = (content_hashes(X.iloc[some, [j]], key) ^ column for j, column in enumerate(of_columns))
            return np.concatenate([nothing, *(_paired(names[some], value, key) for value in values)])

        rows, by_chance = _paired(person, contents, key), _paired(other, contents, key)
        placed = nothing if cells is None else _paired(person, cells.astype(np.uint64), key)
        whose = nothing if cells is None else person
        return cls(_name_of(key), True, contents, rows, by_chance, of_values(person), of_values(other), whose, placed)

    @classmethod
    def joined(cls, parts: Sequence[ReleasedRows]) -> ReleasedRows:
        """Join the rows of the parts of a file, and leave those with large hashes out where they are too many."""
        limit = min(part.limit for part in parts)
        parts = [part.up_to(limit) for part in parts]
        whole: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}
        found = replace(parts[0], **whole)
        while len(found.contents) > MOST_ROWS and len((fewer := found.up_to(found.limit // 2)).contents):
            found = fewer
        return found

    def up_to(self, limit: int) -> ReleasedRows:
        """Leave out rows with larger hashes."""
        if limit >= self.limit:
            return self
        names = ("contents", "rows", "rows_by_chance") if self.named else ("contents",)
        is_kept = self.contents <= limit
        kept: dict[str, Any] = {name: getattr(self, name)[is_kept] for name in names}
        return replace(self, limit=limit, **kept)

    @property
    def rows_that_differ(self) -> tuple[Hashes, Hashes]:
        """The hashes of rows whose values no other row has, and the same by chance."""
        _, place, times = np.unique(self.contents, return_inverse=True, return_counts=True)
        is_only_one = times[place] == 1 if self.named else np.empty(0, dtype=bool)
        return self.rows[is_only_one], self.rows_by_chance[is_only_one]


_ARRAYS = [f.name for f in fields(ReleasedRows) if f.name not in ("record", "named", "limit")]


@dataclass(frozen=True)
class Recorded:
    """A release that was recorded."""

    named: bool
    limit: int
    model: str  # hash of its model
    number: int
    date: str
    contents: Hashes
    rows: Hashes  # of rows whose values no other row has
    values: Hashes
    persons: Hashes
    placed: Hashes

    def moved(self, new: ReleasedRows) -> int:
        """Return how many persons have another cell in a new release from the same cells."""
        return _common(new.persons, self.persons) - _common(new.placed, self.placed)

    def evidence(self, new: ReleasedRows) -> Evidence:
        """Return whether rows to be released were among these."""
        if not (self.named and new.named):
            return self._evidence_of_contents(new)
        rows, by_chance = new.rows_that_differ
        if _common(rows, self.rows) > _FEWEST + 1.5 * _common(by_chance, self.rows):
            return "again"
        if self._evidence_of_contents(new) == "again":  # under other identifiers
            return "again"
        agree, expected = _common(new.values, self.values), _common(new.values_by_chance, self.values)
        is_more = agree > 3 * _FEWEST and agree - expected > 6 * np.sqrt(agree + expected)
        return "perhaps" if is_more else "none"

    def _evidence_of_contents(self, new: ReleasedRows) -> Evidence:
        nobody, limit = np.empty(0, np.uint64), min(self.limit, new.limit)
        both = [contents[contents <= limit] for contents in (self.contents, new.contents)]
        here, there = (RowsSeen(False, nobody, contents) for contents in both)
        n_distinct = min(len(np.unique(contents)) for contents in both)
        if here.under_other_names(there) or there.under_other_names(here):
            return "again" if n_distinct >= _DISTINCT else "perhaps"
        return "perhaps" if is_part(*sorted(both, key=len)) else "none"


def one_cell_each(model: Model, cells: npt.NDArray[np.integer]) -> npt.NDArray[np.integer] | None:
    """Return the cell of each row, or None where a person may have several rows, each with a cell of its own."""
    return cells if model.traits.unit == "person" or model.most_rows_ == 1 else None


def record_key() -> Key:
    """Return the secret of the user's records, by which rows are hashed."""
    with open_records() as (_, key):
        return key


def check_record() -> None:
    """Raise, before the work is done, if the record of releases cannot be read."""
    with open_records(RELEASES) as (folder, key):
        for _ in _recorded(folder, key):
            pass


def recorded_releases() -> list[dict[str, Any]]:
    """Return the user's recorded releases, latest first: the date, the file, and which release of its rows it is."""
    with open_records(RELEASES) as (folder, key):
        facts = [_read(path, key)[0] for path in sorted(folder.glob("*.npz"), reverse=True)]
    return [dict(zip(_FACTS, each, strict=True)) for each in facts]


@contextmanager
def new_release(parts: Sequence[ReleasedRows], model: str, written: Path, file: Path) -> Iterator[int]:
    """Count a release of rows, and record it if the block, in which its file takes its place, ends well.

    Yield how many releases these rows have had, this one included. Releases by one model count as one, because its rows
    are drawn from the same cells again, unless persons have other cells than before; and so do those by a model whose
    cells were cut further. Other processes wait meanwhile, so that two releases at once are two.

    Parameters
    ----------
    parts : sequence of ReleasedRows
        The rows of each part of the file.
    model : str
        Hash of the model; where cells were cut further, that of the first model and, after a slash, a name of the cut.
    written : path
        The file, which is complete, before it takes its place.
    file : path
        Its place.
    """
    if not parts:
        yield 1
        return
    rows = ReleasedRows.joined(parts)
    with open_records(RELEASES) as (folder, key):
        if rows.record != _name_of(key):
            warn_user(
                f"{folder}: the record of releases is another one than when these rows were read, so that this release "
                "cannot be found again, and earlier ones are not known. Share the table anew."
            )
        for path in folder.glob(f"*{_PENDING}"):  # of a process that was killed: nobody else writes now
            _settle(path, key)
        agreeing = [(entry, entry.evidence(rows)) for entry in _recorded(folder, key)]
        again, perhaps = (_dates(agreeing, model, evidence) for evidence in ("again", "perhaps"))
        moved = [(entry, n) for entry, _ in agreeing if entry.model == model and (n := entry.moved(rows))]
        _warn(again, perhaps)
        _warn_of_moved(moved)
        known = (e.number for e, evidence in agreeing if _is_of_same_cells(e.model, model) and evidence == "again")
        number = max(next(known, 1 + len(again)), 1 + len({entry.number for entry, _ in moved}))
        pending = _begin(folder, key, rows, [model, number], written, file)
        try:
            yield number
        finally:  # an error may come after the file has taken its place
            _settle(pending, key)


def _begin(folder: Path, key: Key, rows: ReleasedRows, facts: list[Any], written: Path, file: Path) -> Path:
    """Record that a file is about to take its place."""
    name, date = new_name()
    stated = [rows.named, rows.limit, *facts, date, str(file.absolute()), file_sha256(written)]
    hashes = {
        "contents": np.sort(rows.contents),
        "rows": np.sort(rows.rows_that_differ[0]),
        "values": np.unique(rows.values),
        "persons": np.unique(rows.persons),
        "placed": np.unique(rows.placed),
    }
    path = folder / f"{name}{_PENDING}"
    write_entry(path, key, {"format": _FORMAT, **dict(zip(_FACTS, stated, strict=True))}, hashes)
    return path


def _recorded(folder: Path, key: Key) -> Iterator[Recorded]:
    """Yield the recorded releases, oldest first."""
    for path in sorted(folder.glob("*.npz")):
        facts, hashes = _read(path, key)
        yield Recorded(*facts[:5], *hashes)


def _is_of_same_cells(one: str, other: str) -> bool:
    """Whether the cells of two models are the same, or those of one refine those of the other."""
    parts = one.split("/"), other.split("/")
    n = min(map(len, parts))
    return parts[0][:n] == parts[1][:n]


def _dates(agreeing: list[tuple[Recorded, Evidence]], model: str, evidence: Evidence) -> list[str]:
    """Return when other models first released rows that agree so well, oldest first."""
    first: dict[str, str] = {}
    for entry, found in agreeing:
        if found == evidence and not _is_of_same_cells(entry.model, model):
            first.setdefault(entry.model, entry.date)
    return list(first.values())


def _warn(again: list[str], perhaps: list[str]) -> None:
    linked = "Every release has its own tree, and two of them, linked, may tell the group"
    if again:
        times = f"{len(again)} time{'s' * (len(again) > 1)}, last on {again[-1][:10]}"
        warn_user(
            f"Some of these rows were released before ({times}). {linked}: share one of them only, or draw again from "
            "the cells of the first (again=...)."
        )
    elif perhaps:
        warn_user(
            f"Some of these rows may have been released before, on {perhaps[-1][:10]}: what is known of both tables "
            f"agrees more than by chance, or shows no difference. {linked}. If they are the same persons, share one of "
            "them only, or draw again from the cells of the first (again=...). Public files do not state it."
        )


def _warn_of_moved(moved: list[tuple[Recorded, int]]) -> None:
    if moved:
        entry, n = max(moved, key=lambda found: found[1])
        warn_user(
            f"{n:,} persons have another cell here than in the release of {entry.date[:10]} from the same cells, "
            "because they came later and their columns have changed since. Both cells of a person, linked, may tell "
            "the group. Draw this table again from that release (again=...), so that they keep their cell."
        )


def _settle(pending: Path, key: Key) -> None:
    """Keep a pending entry if its file lies in its place, else remove it."""
    *_, place, sha256 = _read(pending, key)[0]
    if Path(place).is_file() and file_sha256(Path(place)) == sha256:
        pending.rename(pending.with_suffix(".npz"))
    else:
        pending.unlink()


def _read(path: Path, key: Key) -> tuple[list[Any], list[Hashes]]:
    return read_entry(path, key, _FORMAT, _FACTS, _HASHES, "a release of rows")


def _following(names: npt.NDArray[np.object_]) -> npt.NDArray[np.intp]:
    """Return the place of the name that follows each name, in the order of numbers."""
    texts = pa.array(names, pa.string())
    by_length = pa.table({"length": pc.utf8_length(texts), "text": texts})
    order = pc.sort_indices(by_length, [("length", "ascending"), ("text", "ascending")]).to_numpy()
    following = np.empty(len(order), dtype=np.intp)
    following[order] = np.roll(order, -1)
    return following


def _name_of(key: Secret) -> str:
    """Return a name of the record that has this key, which tells nothing of it."""
    return fingerprint(["record of releases"], key)


def _paired(persons: Hashes, values: Hashes, key: Secret) -> Hashes:
    """Return a keyed hash of each pair of a person and a value."""
    mixed = persons * np.uint64(0x9E3779B97F4A7C15) ^ values
    return keyed_hashes(integers_as_text(mixed), key, "person and value")


def _common(one: Hashes, other: Hashes) -> int:
    return len(np.intersect1d(one, other))

"""The state of a watch: counts and sums by group and cell, and the file that keeps them. No person is in it.

Keyed hashes of the persons who were counted lie in a private file beside it, so that a person is counted once::

    watch.json      counts, sums and looks
    watch.persons   8 bytes a person, readable by the owner alone

Persons are appended before the state takes its place. The state says how many of them it counts, so that a process that
is killed in between loses a batch whole, and the next one counts it whole.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from fairflows.bounds.anytime import Coarsenings, GapSums, IntArray, share_of_start
from fairflows.exceptions import DataError
from fairflows.table.folders import new_file
from fairflows.table.json_text import read_as, read_json
from fairflows.table.keys import Hashes

FORMAT = 1
"""The version of the JSON that is written and read."""

LOOKS_KEPT = 1_000
"""Looks that a state keeps: for a picture, and to recognise a batch that came before."""

Day = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\d$")]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Counts = list[list[Count]]  # by group and cell
Lamp = Literal["OK", "MOVED", "REFUTED"]


@dataclass(frozen=True, kw_only=True)
class Look:
    """One update of a watch: what it counted, and what was known after it.

    Attributes
    ----------
    date : str
        The day of the update.
    batch : str
        Keyed hash of the table, by which it is recognised.
    persons : dict of str to int
        The persons that were counted, by group.
    not_counted : dict of str to int
        Rows and persons that were not counted, by the reason.
    law, gap : float
        Natural logarithms of the e-values of the law of blocks, and of the certified bound.
    lower, upper : float
        The lower and the upper sequence of the mean Δ since `since`, each wrong with probability at most α.
    since : str
        The start that these are about.
    """

    date: Day
    batch: str
    persons: dict[str, Count]
    not_counted: dict[str, Count]
    law: float
    gap: float
    lower: float
    upper: float
    since: Day


@dataclass(frozen=True)
class Start:
    """A test that begins with a month: the persons before it, and the sums since."""

    date: Day  # of its first batch
    number: Annotated[int, Meta(ge=1)]  # of the month, that of the watch's first batch being 1
    before: Counts
    S: list[list[float]]
    W: list[float]
    V: list[float]
    D: list[list[float]]

    @classmethod
    def of(cls, date: str, number: int, before: IntArray, sums: GapSums) -> Start:
        """Return a start with these sums."""
        return cls(date, number, before.tolist(), *(part.tolist() for part in (sums.S, sums.W, sums.V, sums.D)))

    @property
    def sums(self) -> GapSums:
        """The sums over the batches since."""
        return GapSums(*(np.array(part, dtype=np.float64) for part in (self.S, self.W, self.V, self.D)))

    @property
    def share(self) -> float:
        """The share of α that it spends."""
        return share_of_start(self.number)


@dataclass(frozen=True, kw_only=True)
class State:
    """Counts and sums of a watch."""

    format: int = FORMAT
    model: str  # hash of the release
    groups: list[str]
    bound: Annotated[float, Meta(ge=0, le=1)]
    alpha: Annotated[float, Meta(gt=0, lt=1)]
    number: Annotated[int, Meta(ge=1)]
    counts: Counts  # of all batches that are closed
    pending: Counts  # of persons who wait for one of every group
    starts: list[Start] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    moved: Day | None = None
    refuted: Day | None = None
    seen: Count = 0  # persons in the file beside it

    @classmethod
    def new(cls, model: str, groups: list[str], n_cells: int, **settings: Any) -> State:
        """Return the state before the first batch."""
        nobody = np.zeros((len(groups), n_cells), dtype=np.int64).tolist()
        return cls(model=model, groups=groups, counts=nobody, pending=nobody, **settings)

    @classmethod
    def from_dict(cls, values: object, shape: tuple[int, int], n_levels: int) -> State:
        """Read a state from plain values; raise a `DataError` where it is none of a release with so many groups."""
        written = values.get("format") if isinstance(values, dict) else None
        if written != FORMAT:
            raise DataError(f"it must be the state of a watch in format {FORMAT}; got format {written!r:.40}.")
        try:
            found = read_as(values, cls, "the state of a watch")
        except ValueError as error:
            raise DataError(str(error)) from None
        K, pairs = shape[0], shape[0] * (shape[0] - 1) // 2
        parts: list[tuple[Any, tuple[int, ...]]] = [(found.counts, shape), (found.pending, shape)]
        for start in found.starts:
            parts += [(start.before, shape), (start.S, (pairs, n_levels)), (start.D, (pairs, shape[1]))]
            parts += [(start.W, (pairs,)), (start.V, (pairs,))]
        is_shaped = all(_shape(part) == wanted for part, wanted in parts) and len(found.groups) == K
        order = [(start.number, start.date) for start in found.starts]
        if not is_shaped or order != sorted(order) or len({number for number, _ in order}) < len(order):
            raise DataError("it is damaged: its counts are not of the groups and cells of this release.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them."""
        return dict(msgspec.to_builtins(self))

    @property
    def persons(self) -> int:
        """Number of persons that were counted."""
        return int(np.sum(self.counts)) + int(np.sum(self.pending))

    def merged(self, other: State, cells: Coarsenings) -> State:
        """Return the state of two watches of one release together; looks and lamps start anew from their sums."""
        for name in ("model", "groups", "bound", "alpha"):
            if getattr(self, name) != getattr(other, name):
                raise DataError(
                    f"Two states are merged where they watch one release alike; their {name} differs: "
                    f"{getattr(self, name)!r} and {getattr(other, name)!r}."
                )
        first = min((month_of(s.starts[0].date) for s in (self, other) if s.starts), default=0)
        by_month = [{month_of(start.date): start for start in s.starts} for s in (self, other)]
        starts = []
        for month in sorted({*by_month[0], *by_month[1]}):
            parts = [s._since(month, mine) for s, mine in zip((self, other), by_month, strict=True)]
            date = min(mine[month].date for mine in by_month if month in mine)
            before, sums = parts[0][0] + parts[1][0], _together(parts[0][1], parts[1][1], len(self.groups), cells)
            starts.append(Start.of(date, month - first + 1, before, sums))
        counts, pending = (
            (np.array(getattr(self, name)) + np.array(getattr(other, name))).tolist() for name in ("counts", "pending")
        )
        looks = sorted([*self.looks, *other.looks], key=lambda look: look.date)[-LOOKS_KEPT:]
        return replace(
            self, counts=counts, pending=pending, starts=starts, looks=looks, moved=None, refuted=None, seen=0
        )

    def _since(self, month: int, mine: dict[int, Start]) -> tuple[IntArray, GapSums | None]:
        """Return the persons before a month and the sums since, which are those of the next month with a batch."""
        later = [of for of in sorted(mine) if of >= month]
        if not later:
            return np.array(self.counts, dtype=np.int64), None
        return np.array(mine[later[0]].before, dtype=np.int64), mine[later[0]].sums


def month_of(date: str) -> int:
    """Return the number of a day's month, counted through."""
    return 12 * int(date[:4]) + int(date[5:7])


def read_state(path: Path) -> tuple[Any, Hashes]:
    """Read the plain values of a state and the persons that it counts."""
    values = read_json(path)
    seen = values.get("seen") if isinstance(values, dict) else None
    beside = _persons_beside(path)
    if not isinstance(seen, int) or seen <= 0:
        return values, np.empty(0, np.uint64)
    if not beside.is_file() or beside.stat().st_size < 8 * seen:
        raise DataError(
            f"{beside}: the persons that were counted are missing or cut off: without them a person would be counted "
            "twice. Restore the file, or begin another watch."
        )
    return values, np.fromfile(beside, dtype="<u8", count=seen).astype(np.uint64)


def write_state(path: Path, state: State, persons: Hashes) -> None:
    """Append the persons that the file does not have yet, then write the state, which counts them."""
    beside, before = _persons_beside(path), state.seen - len(persons)
    if state.seen:
        with open(os.open(beside, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            file.truncate(8 * before)  # what a process wrote that was killed before its state took its place
            file.seek(0, os.SEEK_END)
            file.write(persons.astype("<u8").tobytes())
            file.flush()
            os.fsync(file.fileno())
    with new_file(path) as side:
        side.write_text(json.dumps(state.to_dict(), ensure_ascii=False), encoding="utf-8")


def _persons_beside(path: Path) -> Path:
    return path.with_suffix(".persons")


def _shape(nested: Any) -> tuple[int, ...]:
    """Return the shape of nested lists; (−1,) where they are ragged."""
    try:
        return np.array(nested).shape
    except ValueError:
        return (-1,)


def _together(one: GapSums | None, other: GapSums | None, n_groups: int, cells: Coarsenings) -> GapSums:
    found = GapSums.zero(n_groups, cells)
    for part in (one, other):
        found = found if part is None else found.together(part)
    return found

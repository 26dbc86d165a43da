"""watch: whether later persons still are those that a certificate is about."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

from fairflows.bounds.anytime import Coarsenings, GapSums, IntArray, batches_of, log_e_law, share_of_start
from fairflows.bounds.arguments import checked_delta
from fairflows.bounds.blocks import blocks_upper_bound
from fairflows.bounds.derived import rounded_up
from fairflows.certificate.model_hash import model_hash
from fairflows.exceptions import DataError, check_count, warn_user
from fairflows.release.release import Release
from fairflows.table.columns import group_numbers
from fairflows.table.folders import locked
from fairflows.table.keys import Hashes, keyed_hashes
from fairflows.table.persons import Persons
from fairflows.table.table import Table
from fairflows.watching import watch_words
from fairflows.watching.state import LOOKS_KEPT, Look, Start, State, month_of, read_state, write_state

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def watch(
    release: Release,
    state: str | Path | Mapping[str, Any] | None = None,
    *,
    bound: float | None = None,
    alpha: float = 0.01,
    number: int = 1,
) -> Watch:
    """Watch the persons who come after a release, whether its certificate still holds for them.

    Two tests say when it does not. Both hold *at all times*: a false alarm ever, however often one looks, has
    probability α at most.

    - **law**: the cells of later persons follow the law of blocks of the persons that the tree was cut at. MOVED means
      that the population is another one. It may be harmless.
    - **bound**: Δ is within the certified bound on persons to come. REFUTED means that the certificate is wrong about
      these persons.

    A new test begins with every month, so that a change after a long quiet time is found soon.

    Parameters
    ----------
    release : Release
        A fitted release of `FairTree`, whose certificate bounds persons to come.
    state : path or dict, default=None
        The file that the watch is kept in, which is made where there is none; or the `state` of an earlier watch. By
        default the watch lives in memory.
    bound : float, default=None
        The bound on persons to come that is tested; by default that of the release.
    alpha : float, default=0.01
        α, the probability of a false alarm of each test.
    number : int, default=1
        The number of this watch of the release. The j-th spends α·6/(π²j²), so that all of them together spend α.

    Examples
    --------
    >>> from fairflows import Release, Table, load_adult
    >>> first, later = load_adult().split(test=0.1, validation=0)
    >>> release = Release(output="cell", target=0.3).fit(first)
    >>> watched = watch(release)
    >>> watched.update(later, date="2026-10-01").lamps
    {'law': 'OK', 'bound': 'OK'}
    """
    if not isinstance(release, Release) or release.released_table is None or not release.traits.cut_twice:
        raise DataError("watch takes a fitted Release of FairTree, whose cells follow the law of blocks.")
    if release.released_table.blocks is None:
        raise DataError(
            "The release was fitted to too few persons to state anything about persons to come, so that nothing can be "
            "watched."
        )
    check_count("number", number, 1)
    alpha = checked_delta(alpha, "alpha")
    if bound is None:
        bound = blocks_upper_bound(release.released_table.blocks, release.delta, release.released_table.leaves)
    if not 0 <= bound <= 1:
        raise DataError(f"bound must be a distance in [0, 1]; got {bound!r}.")
    settings = {"bound": float(bound), "alpha": alpha, "number": int(number)}
    new = State.new(model_hash(release, release.key_), list(map(str, release.groups_)), release.n_cells_, **settings)
    file = None if state is None or isinstance(state, Mapping) else Path(state)
    watched = Watch(release, new, np.empty(0, np.uint64), file)
    if isinstance(state, Mapping):
        watched._take(dict(state), np.empty(0, np.uint64), "state")
    elif file is not None and file.exists():
        watched._read()
    return watched


@dataclass(repr=False, eq=False)
class Watch:
    """The persons who came after a release, counted; made by `watch`.

    Attributes
    ----------
    state : dict
        Counts and sums, as JSON holds them. No person is in them.
    last : Look or None
        The findings of the last update.
    lamps : dict
        "law": OK or MOVED, "bound": OK or REFUTED. A lamp that is on stays on.
    """

    _release: Release
    _state: State
    _seen: Hashes  # of persons who were counted
    _file: Path | None = None

    def __post_init__(self) -> None:
        levels = self._release.encoder_.structure_.levels()
        self._cells = Coarsenings.of(levels)
        self._levels, self._blocks = _law_of_leaves(self._release, levels)

    # What is known -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """Counts and sums, as JSON holds them, to go on with later or on another machine.

        Persons are not in it: who was counted before is not known from it, and counts again. A file keeps both.
        """
        return replace(self._state, seen=0).to_dict()

    @property
    def last(self) -> Look | None:
        """The findings of the last update; None before the first."""
        return self._state.looks[-1] if self._state.looks else None

    @property
    def lamps(self) -> dict[str, str]:
        """The two tests: law OK or MOVED, bound OK or REFUTED."""
        return {
            "law": "OK" if self._state.moved is None else "MOVED",
            "bound": "OK" if self._state.refuted is None else "REFUTED",
        }

    @property
    def moved(self) -> str | None:
        """The day on which the law of blocks was refuted."""
        return self._state.moved

    @property
    def refuted(self) -> str | None:
        """The day on which the bound on persons to come was refuted."""
        return self._state.refuted

    @property
    def looks(self) -> list[Look]:
        """The findings of the updates, the latest thousand of them."""
        return self._state.looks

    @property
    def persons(self) -> int:
        """The number of persons that were counted."""
        return self._state.persons

    @property
    def waiting(self) -> int:
        """The number of these persons who are in no batch yet, because one of every group has not come with them."""
        return int(np.sum(self._state.pending))

    @property
    def bound(self) -> float:
        """The bound on persons to come that is tested."""
        return self._state.bound

    @property
    def alpha(self) -> float:
        """The probability of a false alarm of each test, ever."""
        return self._state.alpha * share_of_start(self._state.number)

    @property
    def notice(self) -> str:
        """The sentence of a notice to those who rely on the certificate."""
        return (
            f"Later persons refuted the bound on persons to come, Δ ≤ {rounded_up(self.bound)}. The statement about "
            "the table is counted, and stands."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what is known now, as JSON holds it."""
        last = self.last
        return {
            **self.lamps,
            "moved": self.moved,
            "refuted": self.refuted,
            "certified": self.bound,
            "alpha": self.alpha,
            "persons": self.persons,
            "waiting": self.waiting,
            "last": None if last is None else vars(last),
        }

    # Updates -------------------------------------------------------------------------------------------------------

    def update(self, table: Table, *, date: date | str | None = None) -> Watch:
        """Count persons who came after the release, as one table of a night, a week or any other time.

        One row of a person counts, once. Persons of the table that was released, persons who were counted before, and
        rows of other groups are not counted, and `last` says how many they are. A table that was counted before is not
        counted again.

        Parameters
        ----------
        table : Table
            The rows, with the columns and groups of the release's own table.
        date : date or str, default=None
            The day; by default today. Days never go back.

        Returns
        -------
        Watch
            The watch itself.
        """
        if not isinstance(table, Table):
            raise DataError(
                "update takes a Table, with the sensitive columns and the identifier of the release (ff.Table(frame, "
                f"sensitive=..., identifier=...)); got {type(table).__name__}."
            )
        if table.grouping.is_uncut:
            raise DataError("Persons with an attribute that is not cut (uncut=...) are not watched, as yet.")
        day = _day(date)
        with nullcontext() if self._file is None else locked(self._file):
            if self._file is not None and self._file.exists():
                self._read()
            if (last := self.last) is not None and day < last.date:
                anew = "" if self._file is None else f", or remove {self._file} and count all later persons anew"
                raise DataError(
                    f"date must not be before the last update, {last.date}; got {day}. If that day is wrong, give it "
                    f"again (date={last.date!r}){anew}."
                )
            batch = table.fingerprint(self._release.key_)[:16]
            known = next((look.date for look in self._state.looks if look.batch == batch), None)
            if known is not None:
                warn_user(f"{table.name}: this table was counted before, on {known}, and is not counted again.")
                return self
            places, persons, not_counted = self._new_persons(table)
            state = self._counted(places, day)
            shape = self._blocks.shape
            n = np.bincount(places // shape[1], minlength=shape[0]).tolist()
            looked = self._looked(state, day, batch, dict(zip(state.groups, n, strict=True)), not_counted)
            looked = replace(looked, seen=len(self._seen) + len(persons))
            if self._file is not None:
                write_state(self._file, looked, persons)
            self._state, self._seen = looked, np.concatenate([self._seen, persons])
        return self

    def merge(self, other: Watch) -> Watch:
        """Return the watch of two machines together, in memory: their counts are added.

        The persons of the two must differ, and so must their tables, by which persons without names are told. Its tests
        begin with the sums; an alarm of one part is an alarm of that part, which is a watch with a `number` of its own
        where it is looked at alone.
        """
        if not isinstance(other, Watch):
            raise DataError(
                f"merge takes a Watch: make one of a state by ff.watch(release, state); got {type(other).__name__}."
            )
        mine, others = ({look.batch for look in of.looks if any(look.persons.values())} for of in (self, other))
        if mine & others:
            raise DataError("A table was counted by both watches: a person is counted once.")
        state = self._state.merged(other._state, self._cells)
        seen = np.concatenate([self._seen, other._seen])
        if len(np.unique(seen)) < len(seen):
            raise DataError("Some persons were counted by both watches: a person is counted once.")
        if state.looks:
            last = state.looks[-1]
            state = self._looked(state, last.date, "", {}, {})
        return Watch(self._release, replace(state, seen=len(seen)), seen)

    def _new_persons(self, table: Table) -> tuple[IntArray, Hashes, dict[str, int]]:
        """Return group and cell of one row of each new person as one number, their hashes, and who is not counted."""
        release, of_table = self._release, self._release.released_table
        assert of_table is not None
        table = release.units(table)
        is_known = group_numbers(release.groups_, table.a) >= 0
        not_counted = {"rows of other groups": int((~is_known).sum())}
        part, hashes = table.take(is_known), np.empty(0, np.uint64)
        if part.persons.named and len(part):
            hashes = _hashes(part, release)
            is_of_table = of_table.kept_cells(part.persons, release.key_) >= 0
            came_before = np.isin(hashes, self._seen) & ~is_of_table
            not_counted["persons of the table"] = len(np.unique(hashes[is_of_table]))
            not_counted["persons who were counted before"] = len(np.unique(hashes[came_before]))
            part = part.take(~(is_of_table | came_before))
            hashes = np.unique(hashes[~(is_of_table | came_before)])
        if not len(part):
            return np.empty(0, np.int64), np.empty(0, np.uint64), _some(not_counted)
        most = release.most_rows_ or 1
        one_each = part.one_row_per_person(0) if most == 1 else part.random_rows(0, most)
        not_counted["further rows of a person"] = len(part) - len(one_each)
        rows = release.encoder_.read(one_each)
        if not rows.persons.named:  # values alone tell whether they are of the table
            release.ledger_.refuse_training_rows(rows.X, rows.persons)
            rows = replace(rows, persons=Persons.newly_named(len(one_each)))
        cells = release.encoder_.cells(rows)
        rows.outside.warn()
        return rows.group.astype(np.int64) * self._blocks.shape[1] + cells, hashes, _some(not_counted)

    def _counted(self, places: IntArray, day: str) -> State:
        """Return the state with these persons, in batches that close by number."""
        state, shape = self._state, self._blocks.shape
        counts, pending = (np.array(part, dtype=np.int64) for part in (state.counts, state.pending))
        starts = list(state.starts)
        if not starts or month_of(starts[-1].date) < month_of(day):
            number = 1 if not starts else month_of(day) - month_of(starts[0].date) + 1
            starts.append(Start.of(day, number, counts, GapSums.zero(shape[0], self._cells)))
        sums, before = [start.sums for start in starts], [np.array(start.before) for start in starts]
        for batch in batches_of(places, shape) if len(places) else ():
            pending = pending + batch
            if not pending.sum(axis=1).all():
                continue  # a batch that lacks a group joins the next one
            sums = [of.plus(pending, counts - start, self._cells) for of, start in zip(sums, before, strict=True)]
            counts, pending = counts + pending, np.zeros_like(pending)
        starts = [
            Start.of(start.date, start.number, np.array(start.before), of)
            for start, of in zip(starts, sums, strict=True)
        ]
        return replace(state, counts=counts.tolist(), pending=pending.tolist(), starts=starts)

    def _looked(
        self, state: State, day: str, batch: str, persons: dict[str, int], not_counted: dict[str, int]
    ) -> State:
        """Return the state with a look at all of its tests."""
        everybody = np.array(state.counts) + np.array(state.pending)
        shares = np.array([start.share for start in state.starts])
        law = [log_e_law(self._blocks + np.array(s.before), everybody - s.before, self._levels) for s in state.starts]
        gap = [start.sums.log_e(state.bound) for start in state.starts]
        # A start that is still to come has the e-value 1.
        log_law, log_gap = (
            float(logsumexp([0.0, *logs], b=[max(0.0, 1 - shares.sum()), *shares])) for logs in (law, gap)
        )
        alarm = -np.log(state.alpha * share_of_start(state.number))
        moved = state.moved or (day if log_law >= alarm else None)
        refuted = state.refuted or (day if log_gap >= alarm else None)
        # Once the population has moved, Δ is that since the month of the alarm.
        of = state.starts[0] if moved is None else [start for start in state.starts if start.date <= moved][-1]
        alpha, sums = state.alpha * share_of_start(state.number) * of.share, of.sums
        look = Look(
            date=day,
            batch=batch,
            persons=persons,
            not_counted=not_counted,
            law=log_law,
            gap=log_gap,
            lower=sums.lower(alpha),
            upper=sums.upper(alpha),
            since=of.date,
        )
        return replace(state, looks=[*state.looks, look][-LOOKS_KEPT:], moved=moved, refuted=refuted)

    def _read(self) -> None:
        """Read the state in the file, which another process may have updated."""
        assert self._file is not None
        self._take(*read_state(self._file), f"{self._file}")

    def _take(self, values: object, seen: Hashes, where: str) -> None:
        """Go on with a state; raise if it is of another release or was begun with other settings."""
        try:
            state = State.from_dict(values, self._blocks.shape, len(self._levels))
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        for name, what in (("model", "another release"), ("groups", "other groups")):
            if getattr(state, name) != getattr(self._state, name):
                raise DataError(f"{where}: is the watch of {what}. Begin another one in a new file.")
        for name in ("bound", "alpha", "number"):
            if getattr(state, name) != getattr(self._state, name):
                raise DataError(
                    f"{where}: was begun with {name} = {getattr(state, name)!r}; got {getattr(self._state, name)!r}. A "
                    "watch keeps its settings: begin another one, with the next number, to change them."
                )
        self._state, self._seen = state, seen

    # What is shown -------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return "\n".join(watch_words.lines(self))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the present Δ with its lower and upper sequence, the certified bound, and the days of alarms."""
        return watch_words.draw(self, ax)


def _law_of_leaves(release: Release, levels: IntArray) -> tuple[IntArray, IntArray]:
    """Return the divisions of the cells whose law is that of blocks, and blocks (K, k) that add up to theirs.

    Where cells were cut further at fewer persons, these are the divisions above the first leaves.
    """
    table = release.released_table
    assert table is not None
    assert table.blocks is not None
    if not table.leaves:
        return levels, table.blocks
    leaf = np.arange(table.blocks.shape[1])
    for part in table.leaves:
        leaf = part.of_cell[leaf]
    first = table.leaves[-1].blocks
    blocks, one_cell = table.blocks.copy(), np.unique(leaf, return_index=True)[1]
    for a, own in enumerate(first):
        blocks[a, one_cell] += own - np.bincount(leaf, blocks[a], len(own)).astype(np.int64)
    return release.encoder_.structure_.first(first.shape[1]).levels()[:, leaf], blocks


def _day(given: date | str | None) -> str:
    """Return a day as text; today by default."""
    if given is None:
        return datetime.now(UTC).date().isoformat()
    try:
        return (given if isinstance(given, date) else date.fromisoformat(given)).isoformat()[:10]
    except ValueError:
        raise DataError(f"date must be a day such as 2026-12-31; got {given!r}.") from None


def _hashes(table: Table, release: Release) -> Hashes:
    """Return a keyed hash of each row's person."""
    persons = table.persons
    assert persons.names is not None
    return keyed_hashes(persons.names, release.key_, "watched person")[persons.codes]


def _some(counts: dict[str, int]) -> dict[str, int]:
    return {what: n for what, n in counts.items() if n}

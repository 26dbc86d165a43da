"""PanelLaw: all rows of a person, drawn from the person's cell: first what stays, then row by row."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.bounds.cells import FEWEST_PERSONS
from fairflows.encoder.base import IntArray
from fairflows.exceptions import DataError
from fairflows.release.derived_columns import Derived, Formula, find_derived
from fairflows.release.drawn_columns import declared_columns, joined_columns
from fairflows.release.own_rows import RowHashes, held_by_one
from fairflows.release.row_law import RowLaw
from fairflows.release.rules import BoolArray, Rule, check_rules, previous, proposed_rules, with_previous_columns
from fairflows.release.time_steps import ELAPSED, LENGTH, SINCE, UNTIL, TimeSteps
from fairflows.table.columns import WHOLE, Dtype, Schema, has_order, numbers
from fairflows.table.keys import Hashes, Secret
from fairflows.table.panels import PERSON, Panels

_ATTEMPTS = 64  # to draw a panel that is not one person's own
_REDRAWS = 8  # of a row, before its person is drawn anew
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, by which the hash of a row is mixed before those of a person are added

# Columns of the laws beside those of the table. A table that has one of them is refused.
ROWS, LEFT = "(rows)", "(left)"
_BESIDE = (ROWS, LEFT, LENGTH, ELAPSED, SINCE, UNTIL)


@dataclass(frozen=True)
class DrawnPanels:
    """Panels that were drawn from cells."""

    rows: pd.DataFrame  # person by person in the order of time; the first column numbers the persons
    n_redrawn: int  # rows whose first draw broke a rule


@dataclass(frozen=True)
class PanelLaw:
    r"""The law of all rows of a person given a cell, in a table's own columns.

    .. math:: \hat p(x_1, …, x_m \mid j)
        = \hat p(m \mid c_j) \hat p(x_1 \mid c_j, m) \prod_{t=2}^{m} \hat p(x_t \mid c_j, x_{t-1}, …)

    The first law draws the number of rows, the second one the length in time and the first row, with the columns that
    never change within a person. The third one draws each further row, given the cell's coordinates c_j, the columns
    that stay, the row before, the time since the start and since the row before, and the number of rows that are left.
    All are `RowLaw`: products of column trees. Every row but the last is drawn with the step in time to the next one.

    A panel is drawn from nothing but a cell and fresh randomness, so a certificate of the cell covers the whole panel,
    its number of rows included. No panel is drawn that only one training person has, nor a row, a category, a gap or
    an extreme number (`RowLaw`).

    Examples
    --------
    >>> from fairflows.table.table import Table
    >>> rows = pd.DataFrame({"who": np.arange(400) // 2, "year": [2001, 2002] * 200, "ill": [0, 0, 1, 1] * 100})
    >>> panels = Panels.of(Table(rows.assign(sex=list("ffmm") * 100), sensitive="sex", identifier="who", time="year"))
    >>> law = PanelLaw.fit(panels, cells=np.arange(200) % 2, n_cells=2)
    >>> law.sample(np.array([0, 1]))
       person  year  ill
    0       1  2001    0
    1       1  2002    0
    2       2  2001    1
    3       2  2002    1
    """

    schema: Schema  # of the columns, in their order
    dtypes: dict[str, Dtype]
    labels: list[Hashable]
    number: RowLaw | None  # of rows of a person; None where nearly all persons have one
    first: RowLaw
    further: RowLaw | None  # None where nearly all persons have one row, or nothing varies
    stays: list[Hashable]  # the columns that never change within a person
    steps: TimeSteps | None
    own: Hashes  # of the panels that only one training person has, in rising order

    @property
    def derived(self) -> list[str]:
        """Say which columns follow from others, one sentence for each relation."""
        laws = [self.first, *([] if self.further is None else [self.further])]
        texts = dict.fromkeys(text for law in laws for text in law.derived)
        return [text for text in texts if not any(name in text for name in _BESIDE)]

    @property
    def rules(self) -> list[Rule]:
        """The rules that every row obeys; those about the row before hold from the second row on."""
        return (self.further or self.first).rules

    @classmethod
    def fit(
        cls,
        panels: Panels,
        cells: npt.ArrayLike,
        n_cells: int,
        *,
        rules: Sequence[str] = (),
        find_rules: bool = False,
        derive: bool = True,
        key: Secret = b"",
        random_state: int = 0,
    ) -> PanelLaw:
        """Learn the law from panels with their cells. The settings are those of `RowLaw.fit`.

        Rules may name columns of the row before, as in ``year > previous.year``.
        """
        table = panels.rows
        labels = list(table.label_columns())
        whole = joined_columns(table.X, table.label_columns() if labels else None, table.label_place)
        for name in whole:
            if name == PERSON or str(name) in _BESIDE:
                raise DataError(f"The column {name!r} has a name that the released table needs: rename it.")
        histories = _Histories.of(panels, whole, labels, derive, random_state)
        texts = checked_rules(rules, panels) if len(rules) else []
        if find_rules:
            texts = list(dict.fromkeys([*texts, *histories.found_rules()]))
        cells = np.asarray(cells, dtype=np.int64)
        settings: dict[str, Any] = {"derive": derive, "key": key, "random_state": random_state}
        number = further = None
        if histories.has_several:
            number = histories.number_law(cells, n_cells, settings)
            if histories.varying or histories.steps is not None:
                further = histories.further_law(cells, n_cells, texts, settings)
        first = histories.first_law(cells, n_cells, [text for text in texts if "previous." not in text], settings)
        laws = [first, *([] if further is None else [further])]
        computed = [found.column for law in laws for found in law.computed if isinstance(found, Formula)]
        hashes = RowHashes.of(list(whole), labels, [name for name in dict.fromkeys(computed) if name in whole], key)
        of_rows, who, whose = hashes.of_frame(histories.rows), histories.who, histories.whose
        own = held_by_one(of_rows, whose)
        laws = [replace(law, row_hashes=hashes, own=own) for law in laws]
        of_panels = [_panel_hashes(found, who) for found in of_rows]
        return cls(
            schema=Schema({PERSON: WHOLE} | Schema.of(whole).kinds),
            dtypes={PERSON: np.dtype(np.int64)} | {str(n): _drawn_type(n, laws) for n in whole},
            labels=labels,
            number=number,
            first=laws[0],
            further=laws[1] if len(laws) > 1 else None,
            stays=histories.stays,
            steps=histories.steps,
            own=held_by_one(of_panels, whose[histories.is_first]),
        )

    def sample(self, cells: npt.ArrayLike, generator: np.random.Generator | None = None) -> pd.DataFrame:
        """Draw fresh panels, one for each cell, numbered 1, 2, … in the order of the cells."""
        return self.draw(cells, generator).rows

    def draw(self, cells: npt.ArrayLike, generator: np.random.Generator | None = None) -> DrawnPanels:
        """Draw panels as `sample` does, and count the rows that were drawn again because of a rule."""
        cells = np.asarray(cells, dtype=np.int64)
        generator = np.random.default_rng() if generator is None else generator
        parts: list[pd.DataFrame] = []
        waiting, n_redrawn, m = np.arange(len(cells)), 0, np.ones(len(cells), dtype=np.int64)
        for attempt in range(_ATTEMPTS):
            if self.number is not None and attempt in (0, _ATTEMPTS // 2):  # else panels of few rows would be rarer
                m[waiting] = self.number.draw(cells[waiting], generator).rows[ROWS]
            rows, who, is_undrawn, n_broken = self._attempt(cells[waiting], m[waiting], generator)
            is_undrawn |= self._is_own(rows, who, len(waiting))
            is_kept, n_redrawn = ~is_undrawn[who], n_redrawn + n_broken
            rows.insert(0, PERSON, waiting[who] + 1)
            parts.append(rows[is_kept])
            waiting = waiting[is_undrawn]
            if not len(waiting):
                break
        else:
            raise DataError(
                f"The rows of {len(waiting):,} persons cannot be drawn: nearly all that the columns allow are those of "
                "a single training person, or break a rule. Release cells instead, fewer columns, or columns with "
                "fewer values."
            )
        found = pd.concat(parts, ignore_index=True)[list(self.dtypes)]
        found = found.iloc[np.argsort(found[PERSON].to_numpy(), kind="stable")].reset_index(drop=True)
        return DrawnPanels(found.astype(self.dtypes), n_redrawn)

    def _attempt(
        self, cells: IntArray, m: IntArray, generator: np.random.Generator
    ) -> tuple[pd.DataFrame, IntArray, BoolArray, int]:
        """Draw m rows and the place of each row's person; say of which persons they cannot be drawn.

        The loop is over the number of the row, for all persons at once.
        """
        names = [name for name in self.schema.kinds if name != PERSON]
        drawn = self.first.attempt(cells, pd.DataFrame({ROWS: m}), generator, _REDRAWS)
        is_undrawn, n_redrawn = np.zeros(len(cells), dtype=bool), drawn.n_redrawn
        is_undrawn[drawn.undrawn] = True
        row, who = drawn.rows, np.arange(len(cells))
        parts, persons = [row[names]], [who]
        clock = None if self.steps is None else self.steps.begin(row, m - 1)
        left = m - 1 if clock is None else clock.left
        while True:
            goes_on = np.flatnonzero((left > 0) & ~is_undrawn[who])
            if not len(goes_on):
                break
            who, left, row = who[goes_on], left[goes_on] - 1, row.iloc[goes_on].reset_index(drop=True)
            if self.further is None:
                parts.append(row[names])
                persons.append(who)
                continue
            known: dict[Hashable, Any] = {LEFT: left}
            if clock is not None:
                clock = clock.take(goes_on).next(row[UNTIL].to_numpy(), left)
                known.update(clock.columns(row[clock.steps.time].dtype))
            known.update((name, row[name]) for name in self.stays)
            known.update((previous(name), row[name]) for name in row)
            given = pd.DataFrame({name: known[name] for name in self.further.given})
            drawn = self.further.attempt(cells[who], given, generator, _REDRAWS)
            is_undrawn[who[drawn.undrawn]] = True
            n_redrawn += drawn.n_redrawn
            row = given[[name for name in given if name in self.stays or name in names]].join(drawn.rows)
            parts.append(row[names])
            persons.append(who)
        return pd.concat(parts, ignore_index=True), np.concatenate(persons), is_undrawn, n_redrawn

    def _is_own(self, rows: pd.DataFrame, who: IntArray, n: int) -> BoolArray:
        """Return which panels are those of a single training person."""
        order, found = np.argsort(who, kind="stable"), np.zeros(n, dtype=bool)
        for of_rows in self.first.row_hashes.of_frame(rows.iloc[order].reset_index(drop=True)):
            found |= np.isin(_panel_hashes(of_rows, who[order]), self.own)
        return found


@dataclass(frozen=True)
class _Histories:
    """The rows of a table person by person, in the order of time, as the laws learn from them."""

    rows: pd.DataFrame  # the columns of the table, and helpers that others are computed from
    names: list[Hashable]  # the columns of the table
    labels: list[Hashable]
    who: IntArray  # the person of each row
    whose: IntArray  # the household, or else the person; nothing that only one of them has is drawn
    is_first: BoolArray
    size: IntArray  # number of rows of each person
    computed: list[Derived]  # relations within a row
    kinds: dict[Hashable, str]
    stays: list[Hashable]  # columns that are drawn, and never change within a person
    varying: list[Hashable]  # the other ones that are drawn, but for the time
    steps: TimeSteps | None

    @classmethod
    def of(
        cls, panels: Panels, whole: pd.DataFrame, labels: list[Hashable], derive: bool, random_state: int
    ) -> _Histories:
        """Sort the rows, and find which columns follow from others in the same row, and which never change."""
        table, order = panels.rows, _order(panels, random_state)
        rows, who, whose = whole.iloc[order].reset_index(drop=True), panels.owner[order], table.households[order]
        is_first = np.diff(who, prepend=-1) > 0
        clock = [name for name in whole if name == table.time]
        declared = declared_columns(rows, labels, table.declared_kinds)
        drawn, computed = dict(rows.items()), list[Derived]()
        if derive:  # relations within a row are those of all rows, of the first as of further ones
            time_first = rows[[*clock, *(name for name in rows if name not in clock)]]
            drawn, computed = find_derived(time_first, declared, whose, labels, given=clock)
        rows = rows.assign(**{str(name): column for name, column in drawn.items() if name not in rows})
        stays = [name for name, column in drawn.items() if name not in clock and _stays(column, is_first)]
        varying = [name for name in drawn if name not in (*stays, *clock)]
        kinds: dict[Hashable, str] = {name: "categorical" if name in declared else "" for name in rows}
        size = np.bincount(who)
        has_steps = bool(clock) and (size > 1).sum() >= FEWEST_PERSONS
        steps = TimeSteps.of(str(table.time), rows[table.time], whose, is_first) if has_steps else None
        return cls(rows, list(whole), labels, who, whose, is_first, size, computed, kinds, stays, varying, steps)

    @property
    def has_several(self) -> bool:
        """Whether enough persons have several rows."""
        return bool((self.size > 1).sum() >= FEWEST_PERSONS)

    def found_rules(self) -> list[str]:
        """Propose inequalities within a row, and between a column that varies and itself in the row before."""
        rows = self.rows[self.names]
        numeric = [name for name in self.varying if name in rows and has_order(rows[name].dtype)]
        both = rows[numeric].join(_before(rows[numeric]))[~self.is_first]
        return [*proposed_rules(rows), *(text for n in numeric for text in proposed_rules(both[[n, previous(n)]]))]

    def number_law(self, cells: IntArray, n_cells: int, settings: dict[str, Any]) -> RowLaw:
        """Learn the law of the number of rows of a person."""
        sizes = pd.DataFrame({ROWS: self.size})
        return RowLaw.fit(sizes, cells, n_cells, persons=self.whose[self.is_first], **settings)

    def first_law(self, cells: IntArray, n_cells: int, rules: list[str], settings: dict[str, Any]) -> RowLaw:
        """Learn the law of the first row, given the number of rows."""
        first, ahead = self.rows[self.is_first].reset_index(drop=True), list[Hashable]()
        if self.steps is not None:
            beside = self._beside()[self.is_first].reset_index(drop=True)
            first = first.assign(**{LENGTH: beside[LENGTH], UNTIL: beside[UNTIL]})
            ahead = [LENGTH, self.steps.time]
        first.insert(0, ROWS, self.size)
        return RowLaw.fit(
            first.drop(columns=self.labels),
            cells[self.who[self.is_first]],
            n_cells,
            first[self.labels] if self.labels else None,
            persons=self.whose[self.is_first],
            kinds=self.kinds,
            computed=self.computed,
            rules=rules,
            order=ahead,
            given=[ROWS],
            **settings,
        )

    def further_law(self, cells: IntArray, n_cells: int, rules: list[str], settings: dict[str, Any]) -> RowLaw:
        """Learn the law of a further row, given the one before it."""
        at, rows = np.flatnonzero(~self.is_first), self.rows
        place = np.arange(len(rows)) - np.flatnonzero(self.is_first)[self.who]
        given, clock = pd.DataFrame({LEFT: self.size[self.who] - place - 1}), list[Hashable]()
        new = rows[[name for name in (*self.varying, *self._follows) if name not in self.labels]]
        if self.steps is not None:
            beside, clock = self._beside(), [self.steps.time]
            given, new = given.join(beside[[ELAPSED, SINCE]]), new.assign(**{UNTIL: beside[UNTIL]})
        named = {name for rule in map(Rule, rules) for name in rule.columns}
        prior = [name for name in rows if name in self.varying or previous(name) in named]
        given = given.join(rows[[*clock, *self.stays]]).join(_before(rows[prior]))
        changing = [name for name in self.labels if name not in self.stays]
        return RowLaw.fit(
            given.join(new).iloc[at].reset_index(drop=True),
            cells[self.who[at]],
            n_cells,
            rows[changing].iloc[at].reset_index(drop=True) if changing else None,
            persons=self.whose[at],
            kinds=self.kinds,
            computed=self.computed,
            rules=rules,
            given=list(given),
            **settings,
        )

    @property
    def _follows(self) -> list[Hashable]:
        return [found.column for found in self.computed if found.column in self.rows]

    def _beside(self) -> pd.DataFrame:
        """Return the columns of time beside those of the table."""
        assert self.steps is not None
        is_last = np.append(self.is_first[1:], True)
        return self.steps.columns(self.rows[self.steps.time], self.is_first, is_last, self.who)


def _before(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of the row before each row; of the first row its own."""
    shifted = rows.iloc[np.maximum(np.arange(len(rows)) - 1, 0)]
    return shifted.set_axis([previous(name) for name in rows], axis=1).reset_index(drop=True)


def _stays(column: pd.Series, is_first: BoolArray) -> bool:
    """Whether a column, sorted by person, has one value in all rows of each person."""
    codes = pd.factorize(column)[0]
    return bool((is_first[1:] | (codes[1:] == codes[:-1])).all())


def checked_rules(rules: Sequence[str], panels: Panels) -> list[str]:
    """Return rules as texts over columns of a row, and of the row before, after checking them on a table's rows."""
    texts = rules if isinstance(rules, str) or rules is None else [with_previous_columns(str(text)) for text in rules]
    table = panels.rows
    order = _order(panels)
    rows = table.X.assign(**{str(name): column for name, column in table.label_columns().items()})
    rows = rows.iloc[order].reset_index(drop=True)
    is_first = np.diff(panels.owner[order], prepend=-1) > 0
    before = _before(rows)
    before = before.mask(np.repeat(is_first[:, None], before.shape[1], axis=1))  # a rule says nothing about a gap
    in_own_order = np.empty(len(order), dtype=np.intp)
    in_own_order[order] = np.arange(len(order))
    return [rule.text for rule in check_rules(texts, rows.join(before).iloc[in_own_order])] if len(texts) else []


def _order(panels: Panels, random_state: int = 0) -> IntArray:
    """Return the rows of a table person by person, in the order of time.

    Without a time the rows of a person are a set, which has a random order.
    """
    table = panels.rows
    n = len(panels.owner)
    by = numbers(table.X[table.time]) if table.time else np.random.default_rng(random_state).random(n)
    return np.lexsort([by, panels.owner])


def _panel_hashes(of_rows: Hashes, who: IntArray) -> Hashes:
    """Return a hash of the rows of each person, who are sorted.

    The order of the rows does not count: their times are among their values, and rows of one time have no order.
    """
    start = np.flatnonzero(np.diff(who, prepend=-1) > 0)
    size = np.diff(np.append(start, len(who)))
    mixed = (of_rows ^ (of_rows >> np.uint64(31))) * _FACTOR
    return np.add.reduceat(mixed, start) + size.astype(np.uint64)


def _drawn_type(name: Hashable, laws: Sequence[RowLaw]) -> Dtype:
    """Return the type of a column, with the categories that one of the laws draws."""
    types: list[Any] = [law.dtypes[str(name)] for law in laws if str(name) in law.dtypes]
    if not all(isinstance(dtype, pd.CategoricalDtype) for dtype in types):
        return types[0]
    categories = dict.fromkeys(value for dtype in types for value in dtype.categories)
    return pd.CategoricalDtype(list(categories), types[0].ordered)

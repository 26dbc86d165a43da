"""The rows of a table person by person, as the laws of panels learn from them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairflows.bounds.cells import FEWEST_PERSONS
from fairflows.encoder.base import IntArray
from fairflows.release.derived_columns import Derived, find_derived
from fairflows.release.drawn_columns import declared_columns, joined_columns
from fairflows.release.row_law import RowLaw
from fairflows.release.rules import BoolArray, Rule, check_rules, previous, proposed_rules, with_previous_columns
from fairflows.release.time_steps import ELAPSED, LENGTH, REST, SINCE, UNTIL, TimeSteps
from fairflows.table.columns import has_order, numbers
from fairflows.table.linked import LinkedTables
from fairflows.table.panels import Panels
from fairflows.table.table import Table

# Columns of the laws beside those of the table. A table that has one of them is refused.
ROWS, LEFT = "(rows)", "(left)"
BESIDE = (ROWS, LEFT, LENGTH, ELAPSED, REST, SINCE, UNTIL)


@dataclass(frozen=True)
class Histories:
    """The rows of a table person by person, in the order of time, as the laws learn from them."""

    # Columns of the table and of a linked one with one row of each person, and helpers that others are computed from.
    rows: pd.DataFrame
    names: list[Hashable]  # the columns of the table
    labels: list[Hashable]
    parents: list[Hashable]  # the columns of the linked table, which are drawn before
    person: IntArray  # the place of each person who has rows among all persons
    owner: IntArray  # the person of each row, among those who have rows
    houses: IntArray  # the household of each person of all, or else the person: what only one of them has is not drawn
    is_first: BoolArray
    n_rows: IntArray  # number of rows of each person of all
    computed: list[Derived]  # relations within a row
    kinds: dict[Hashable, str]
    stays: list[Hashable]  # columns that are drawn, and never change within a person
    varying: list[Hashable]  # the other ones that are drawn, but for the time
    steps: TimeSteps | None

    @classmethod
    def of(
        cls, panels: Panels, whole: pd.DataFrame, labels: list[Hashable], derive: bool, random_state: int
    ) -> Histories:
        """Sort the rows, and find which columns follow from others in the same row, and which never change."""
        table, order = panels.rows, rows_in_order(panels, random_state)
        houses, n_rows = np.empty(len(panels), dtype=np.intp), np.bincount(panels.owner, minlength=len(panels))
        houses[panels.owner] = table.households
        kinds_stated, beside = table.declared_kinds, parents_of_rows(panels)
        if isinstance(panels, LinkedTables):
            houses, kinds_stated = panels.households, panels.parents.declared_kinds | kinds_stated
        rows = whole.join(beside).iloc[order].reset_index(drop=True)
        person, owner = np.unique(panels.owner[order], return_inverse=True)
        whose, is_first = houses[panels.owner[order]], np.diff(owner, prepend=-1) > 0
        clock = [name for name in whole if name == table.time]
        declared = declared_columns(rows, labels, kinds_stated)
        drawn, computed = dict(rows.items()), list[Derived]()
        if derive:  # relations within a row are those of all rows, of the first as of further ones
            known = [*beside, *clock]
            in_order = rows[[*known, *(name for name in rows if name not in known)]]
            drawn, computed = find_derived(in_order, declared, whose, labels, given=known)
        rows = rows.assign(**{str(name): column for name, column in drawn.items() if name not in rows})
        stays = [name for name, column in drawn.items() if name not in clock and _stays(column, is_first)]
        varying = [name for name in drawn if name not in (*stays, *clock)]
        kinds: dict[Hashable, str] = {name: "categorical" if name in declared else "" for name in rows}
        has_steps = bool(clock) and (n_rows > 1).sum() >= FEWEST_PERSONS
        steps = TimeSteps.of(str(table.time), rows[table.time], whose, is_first) if has_steps else None
        return cls(
            rows,
            list(whole),
            labels,
            list(beside),
            person,
            owner,
            houses,
            is_first,
            n_rows,
            computed,
            kinds,
            stays,
            varying,
            steps,
        )

    @property
    def size(self) -> IntArray:
        """Number of rows of each person who has rows."""
        return self.n_rows[self.person]

    @property
    def whose(self) -> IntArray:
        """The household of each row."""
        return self.houses[self.person[self.owner]]

    @property
    def has_several(self) -> bool:
        """Whether enough persons have several rows."""
        return bool((self.size > 1).sum() >= FEWEST_PERSONS)

    @property
    def has_none(self) -> bool:
        """Whether enough persons have no row."""
        return bool((self.n_rows == 0).sum() >= FEWEST_PERSONS)

    def found_rules(self) -> list[str]:
        """Propose inequalities within a row, and between a column that varies and itself in the row before."""
        rows = self.rows[[*self.parents, *self.names]]
        numeric = [name for name in self.varying if name in rows and has_order(rows[name].dtype)]
        both = rows[numeric].join(_before(rows[numeric]))[~self.is_first]
        return [*proposed_rules(rows), *(text for n in numeric for text in proposed_rules(both[[n, previous(n)]]))]

    def number_law(self, cells: IntArray, n_cells: int, settings: dict[str, Any]) -> RowLaw:
        """Learn the law of the number of rows of a person."""
        sizes = pd.DataFrame({ROWS: self.n_rows})
        return RowLaw.fit(sizes, cells, n_cells, persons=self.houses, **settings)

    def parents_law(
        self, parents: Table, cells: IntArray, n_cells: int, rules: list[str], settings: dict[str, Any]
    ) -> RowLaw:
        """Learn the law of the own row of each person, given the number of rows."""
        X, labels = parents.X.reset_index(drop=True), parents.label_columns()
        X.insert(0, ROWS, self.n_rows)
        return RowLaw.fit(
            X,
            cells,
            n_cells,
            labels if labels.shape[1] else None,
            persons=self.houses,
            kinds=dict[Hashable, str](parents.declared_kinds.items()),
            rules=rules,
            given=[ROWS],
            label_place=parents.label_place + 1,
            **settings,
        )

    def first_law(self, cells: IntArray, n_cells: int, rules: list[str], settings: dict[str, Any]) -> RowLaw:
        """Learn the law of the first row, given the number of rows and the columns that are drawn before."""
        first, ahead = self.rows[self.is_first].reset_index(drop=True), list[Hashable]()
        if self.steps is not None:
            beside = self._beside()[self.is_first].reset_index(drop=True)
            first = first.assign(**{LENGTH: beside[LENGTH], UNTIL: beside[UNTIL]})
            ahead = [LENGTH, self.steps.time]
        first.insert(0, ROWS, self.size)
        given = [ROWS, *self.parents]
        return RowLaw.fit(
            first[[*given, *(name for name in first if name not in (*given, *self.labels))]],
            cells[self.person],
            n_cells,
            first[self.labels] if self.labels else None,
            persons=self.whose[self.is_first],
            kinds=self.kinds,
            computed=self.computed,
            rules=rules,
            order=ahead,
            given=given,
            **settings,
        )

    def further_law(self, cells: IntArray, n_cells: int, rules: list[str], settings: dict[str, Any]) -> RowLaw:
        """Learn the law of a further row, given the one before it."""
        at, rows = np.flatnonzero(~self.is_first), self.rows
        place = np.arange(len(rows)) - np.flatnonzero(self.is_first)[self.owner]
        given, clock = pd.DataFrame({LEFT: self.size[self.owner] - place - 1}), list[Hashable]()
        new = rows[[name for name in (*self.varying, *self._follows) if name not in self.labels]]
        if self.steps is not None:
            beside, clock = self._beside(), [self.steps.time]
            given, new = given.join(beside[[ELAPSED, REST, SINCE]]), new.assign(**{UNTIL: beside[UNTIL]})
        named = {name for rule in map(Rule, rules) for name in rule.columns}
        prior = [name for name in rows if name in self.varying or previous(name) in named]
        given = given.join(rows[[*clock, *self.stays]]).join(_before(rows[prior]))
        changing = [name for name in self.labels if name not in self.stays]
        return RowLaw.fit(
            given.join(new).iloc[at].reset_index(drop=True),
            cells[self.person[self.owner[at]]],
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
        return self.steps.columns(self.rows[self.steps.time], self.is_first, is_last, self.owner)


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
    order = rows_in_order(panels)
    rows = joined_columns(table.X, table.label_columns(), None).join(parents_of_rows(panels))
    rows = rows.iloc[order].reset_index(drop=True)
    is_first = np.diff(panels.owner[order], prepend=-1) > 0
    before = _before(rows)
    before = before.mask(np.repeat(is_first[:, None], before.shape[1], axis=1))  # a rule says nothing about a gap
    in_own_order = np.empty(len(order), dtype=np.intp)
    in_own_order[order] = np.arange(len(order))
    return [rule.text for rule in check_rules(texts, rows.join(before).iloc[in_own_order])] if len(texts) else []


def parents_of_rows(panels: Panels) -> pd.DataFrame:
    """Return the columns of the linked table for each row, which has none where there is one table."""
    if not isinstance(panels, LinkedTables):
        return pd.DataFrame(index=range(len(panels.owner)))
    own = joined_columns(panels.parents.X, panels.parents.label_columns(), None)
    return own.iloc[panels.owner].reset_index(drop=True)


def rows_in_order(panels: Panels, random_state: int = 0) -> IntArray:
    """Return the rows of a table person by person, in the order of time.

    Without a time the rows of a person are a set, which has a random order.
    """
    table = panels.rows
    n = len(panels.owner)
    by = numbers(table.X[table.time]) if table.time else np.random.default_rng(random_state).random(n)
    return np.lexsort([by, panels.owner])

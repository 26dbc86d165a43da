"""PanelLaw: all rows of a person, drawn from the person's cell: first what stays, then row by row."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.encoder.base import IntArray
from fairflows.exceptions import DataError
from fairflows.release.drawn_columns import joined_columns
from fairflows.release.formulas import Formula
from fairflows.release.histories import BESIDE, LEFT, ROWS, Histories, checked_rules
from fairflows.release.own_rows import RowHashes, held_by_one
from fairflows.release.row_law import RowLaw
from fairflows.release.rules import BoolArray, Rule, previous
from fairflows.release.time_steps import UNTIL, TimeSteps
from fairflows.table.columns import WHOLE, Dtype, Schema
from fairflows.table.keys import Hashes, Secret
from fairflows.table.linked import LinkedTables
from fairflows.table.panels import PERSON, Panels

_ATTEMPTS = 64  # to draw a panel that is not one person's own
_REDRAWS = 8  # of a row, before its person is drawn anew
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, by which the hash of a row is mixed before those of a person are added


@dataclass(frozen=True)
class DrawnPanels:
    """Panels that were drawn from cells."""

    rows: pd.DataFrame  # person by person in the order of time; the first column numbers the persons
    n_redrawn: int  # rows whose first draw broke a rule
    parents: pd.DataFrame | None = None  # of two linked tables one row of each person, numbered in the same way

    def numbered(self, persons: IntArray, is_kept: BoolArray) -> DrawnPanels:
        """Return the panels that are kept, of persons who have these places, numbered from 1."""

        def part(rows: pd.DataFrame) -> pd.DataFrame:
            owner = rows[PERSON].to_numpy()
            return rows.assign(**{PERSON: persons[owner] + 1})[is_kept[owner]]

        return DrawnPanels(part(self.rows), self.n_redrawn, None if self.parents is None else part(self.parents))


@dataclass(frozen=True)
class PanelLaw:
    r"""The law of all rows of a person given a cell, in a table's own columns.

    .. math:: \hat p(x_1, …, x_m \mid j)
        = \hat p(m \mid c_j) \hat p(x_1 \mid c_j, m) \prod_{t=2}^{m} \hat p(x_t \mid c_j, x_{t-1}, …)

    The first law draws the number of rows, the second one the length in time and the first row, with the columns that
    never change within a person. The third one draws each further row, given the cell's coordinates c_j, the columns
    that stay, the row before, the time since the start and since the row before, and the number of rows that are left.
    All are `RowLaw`: products of column trees. Every row but the last is drawn with the step in time to the next one.
    Of two linked tables the person's own row is drawn after the number of rows, and before the first of these.

    A panel is drawn from nothing but a cell and fresh randomness, so a certificate of the cell covers the whole panel,
    its number of rows included (proof: [Person cells](proofs.md#person-cells)). No panel is drawn that only one
    training person has, nor a row, a category, a gap or an extreme number (`RowLaw`).

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
    parents: RowLaw | None = None  # of two linked tables the law of the person's own row

    @property
    def derived(self) -> list[str]:
        """Say which columns follow from others, one sentence for each relation."""
        laws = [law for law in (self.parents, self.first, self.further) if law is not None]
        texts = dict.fromkeys(text for law in laws for text in law.derived)
        return [text for text in texts if not any(name in text for name in BESIDE)]

    @property
    def rules(self) -> list[Rule]:
        """The rules that every row obeys; those about the row before hold from the second row on."""
        return [*([] if self.parents is None else self.parents.rules), *(self.further or self.first).rules]

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
        histories = Histories.of(panels, whole, labels, derive, random_state)
        for name in (*whole, *histories.parents):
            if name == PERSON or str(name) in BESIDE:
                raise DataError(f"The column {name!r} has a name that the released table needs: rename it.")
        texts = checked_rules(rules, panels) if len(rules) else []
        if find_rules:
            texts = list(dict.fromkeys([*texts, *histories.found_rules()]))
        of_parents = [text for text in texts if set(Rule(text).columns) <= set(histories.parents)]
        texts = [text for text in texts if text not in of_parents]
        cells = np.asarray(cells, dtype=np.int64)
        settings: dict[str, Any] = {"derive": derive, "key": key, "random_state": random_state}
        number = parents = further = None
        if histories.has_several or histories.has_none:
            number = histories.number_law(cells, n_cells, settings)
        if isinstance(panels, LinkedTables):
            parents = histories.parents_law(panels.parents, cells, n_cells, of_parents, settings)
        if histories.has_several and (histories.varying or histories.steps is not None):
            further = histories.further_law(cells, n_cells, texts, settings)
        first = histories.first_law(cells, n_cells, [text for text in texts if "previous." not in text], settings)
        laws = [first, *([] if further is None else [further])]
        computed = [found.column for law in laws for found in law.computed if isinstance(found, Formula)]
        hashes = RowHashes.of(list(whole), labels, [name for name in dict.fromkeys(computed) if name in whole], key)
        of_rows, owner, whose = hashes.of_frame(histories.rows), histories.owner, histories.whose
        own = held_by_one(of_rows, whose)
        laws = [replace(law, row_hashes=hashes, own=own) for law in laws]
        of_panels = [_panel_hashes(found, owner) for found in of_rows]
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
            parents=parents,
        )

    def sample(self, cells: npt.ArrayLike, generator: np.random.Generator | None = None) -> pd.DataFrame:
        """Draw fresh panels, one for each cell, numbered 1, 2, … in the order of the cells."""
        return self.draw(cells, generator).rows

    def draw(self, cells: npt.ArrayLike, generator: np.random.Generator | None = None) -> DrawnPanels:
        """Draw panels as `sample` does, and count the rows that were drawn again because of a rule."""
        cells = np.asarray(cells, dtype=np.int64)
        generator = np.random.default_rng() if generator is None else generator
        parts: list[DrawnPanels] = []
        waiting, m = np.arange(len(cells)), np.ones(len(cells), dtype=np.int64)
        for attempt in range(_ATTEMPTS):
            if self.number is not None and attempt in (0, _ATTEMPTS // 2):  # else panels of few rows would be rarer
                m[waiting] = self.number.draw(cells[waiting], generator).rows[ROWS]
            drawn, is_undrawn = self._attempt(cells[waiting], m[waiting], generator)
            parts.append(drawn.numbered(waiting, ~is_undrawn))
            waiting = waiting[is_undrawn]
            if not len(waiting):
                break
        else:
            raise DataError(
                f"The rows of {len(waiting):,} persons cannot be drawn: nearly all that the columns allow are those of "
                "a single training person, or break a rule. Release cells instead, fewer columns, or columns with "
                "fewer values."
            )
        rows = _in_order([part.rows for part in parts])[list(self.dtypes)].astype(self.dtypes)
        own = None if self.parents is None else _in_order([part.parents for part in parts if part.parents is not None])
        return DrawnPanels(rows, sum(part.n_redrawn for part in parts), own)

    def _attempt(self, cells: IntArray, m: IntArray, generator: np.random.Generator) -> tuple[DrawnPanels, BoolArray]:
        """Draw m rows of each person, who are numbered from 0; say of which persons they cannot be drawn."""
        own, is_undrawn, n_redrawn = None, np.zeros(len(cells), dtype=bool), 0
        if self.parents is not None:
            drawn = self.parents.attempt(cells, pd.DataFrame({ROWS: m}), generator, _REDRAWS)
            own, n_redrawn = drawn.rows, drawn.n_redrawn
            is_undrawn[drawn.undrawn] = True
        has_rows = np.flatnonzero(m > 0)
        given = pd.DataFrame({ROWS: m})
        given = (given if own is None else given.join(own)).iloc[has_rows].reset_index(drop=True)
        rows, owner, undrawn, n_broken = self._rows(cells[has_rows], given, generator)
        is_undrawn[has_rows[undrawn]] = True
        is_undrawn[has_rows[self._is_own(rows, owner, len(has_rows))]] = True
        rows.insert(0, PERSON, has_rows[owner])
        if own is not None:
            own.insert(0, PERSON, np.arange(len(cells)))
        return DrawnPanels(rows, n_redrawn + n_broken, own), is_undrawn

    def _rows(
        self, cells: IntArray, given: pd.DataFrame, generator: np.random.Generator
    ) -> tuple[pd.DataFrame, IntArray, BoolArray, int]:
        """Draw the rows of each person, given their number and the columns that are drawn before.

        Return the place of each row's person, too, and say of which persons they cannot be drawn. The loop is over the
        number of the row, for all persons at once.
        """
        names = [name for name in self.schema.kinds if name != PERSON]
        left, is_undrawn = given[ROWS].to_numpy() - 1, np.zeros(len(cells), dtype=bool)
        drawn = self.first.attempt(cells, given, generator, _REDRAWS)
        is_undrawn[drawn.undrawn], n_redrawn = True, drawn.n_redrawn
        row, owner = given.drop(columns=ROWS).join(drawn.rows), np.arange(len(cells))
        parts, persons = [row[names]], [owner]
        clock = None if self.steps is None else self.steps.begin(row, left)
        left = left if clock is None else clock.left
        while True:
            goes_on = np.flatnonzero((left > 0) & ~is_undrawn[owner])
            if not len(goes_on):
                break
            owner, left, row = owner[goes_on], left[goes_on] - 1, row.iloc[goes_on].reset_index(drop=True)
            if self.further is None:
                parts.append(row[names])
                persons.append(owner)
                continue
            known: dict[Hashable, Any] = {LEFT: left}
            if clock is not None:
                clock = clock.take(goes_on).next(row[UNTIL].to_numpy(), left)
                known.update(clock.columns(row[clock.steps.time].dtype))
            known.update((name, row[name]) for name in self.stays)
            known.update((previous(name), row[name]) for name in row)
            here = pd.DataFrame({name: known[name] for name in self.further.given})
            drawn = self.further.attempt(cells[owner], here, generator, _REDRAWS)
            is_undrawn[owner[drawn.undrawn]] = True
            n_redrawn += drawn.n_redrawn
            row = here[[name for name in here if name in self.stays or name in names]].join(drawn.rows)
            parts.append(row[names])
            persons.append(owner)
        return pd.concat(parts, ignore_index=True), np.concatenate(persons), is_undrawn, n_redrawn

    def _is_own(self, rows: pd.DataFrame, owner: IntArray, n: int) -> BoolArray:
        """Return which panels are those of a single training person."""
        order, found = np.argsort(owner, kind="stable"), np.zeros(n, dtype=bool)
        for of_rows in self.first.row_hashes.of_frame(rows.iloc[order].reset_index(drop=True)) if n else ():
            found |= np.isin(_panel_hashes(of_rows, owner[order]), self.own)
        return found


def _in_order(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return parts of a table person by person."""
    whole = pd.concat(parts, ignore_index=True)
    return whole.iloc[np.argsort(whole[PERSON].to_numpy(), kind="stable")].reset_index(drop=True)


def _panel_hashes(of_rows: Hashes, owner: IntArray) -> Hashes:
    """Return a hash of the rows of each person, who are sorted.

    The order of the rows does not count: their times are among their values, and rows of one time have no order.
    """
    start = np.flatnonzero(np.diff(owner, prepend=-1) > 0)
    size = np.diff(np.append(start, len(owner)))
    mixed = (of_rows ^ (of_rows >> np.uint64(31))) * _FACTOR
    return np.add.reduceat(mixed, start) + size.astype(np.uint64)


def _drawn_type(name: Hashable, laws: Sequence[RowLaw]) -> Dtype:
    """Return the type of a column, with the categories that one of the laws draws."""
    types: list[Any] = [law.dtypes[str(name)] for law in laws if str(name) in law.dtypes]
    if not all(isinstance(dtype, pd.CategoricalDtype) for dtype in types):
        return types[0]
    categories = dict.fromkeys(value for dtype in types for value in dtype.categories)
    return pd.CategoricalDtype(list(categories), types[0].ordered)

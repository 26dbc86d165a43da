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
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, by whose powers the hashes of a person's rows are added

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

    .. math:: \hat p(x_1, …, x_m \mid j) = \hat p(m, x_1 \mid c_j) \prod_{t=2}^{m} \hat p(x_t \mid c_j, x_{t-1}, …)

    The first law draws the number of rows, the length in time and the first row, with the columns that never change
    within a person. The second one draws each further row, given the cell's coordinates c_j, the columns that stay, the
    row before, the time since the start and since the row before, and the number of rows that are left. Both are
    `RowLaw`: products of column trees. Every row but the last is drawn with the step in time to the next one.

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
    first: RowLaw
    further: RowLaw | None  # None where nearly all persons have one row
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
        order = _order(panels, random_state)
        rows, who = whole.iloc[order].reset_index(drop=True), panels.owner[order]
        is_first = np.diff(who, prepend=-1) > 0
        is_last = np.append(is_first[1:], True)
        declared = declared_columns(rows, labels, table.declared_kinds)
        drawn, computed = dict(rows.items()), list[Derived]()
        if derive:  # relations within a row are those of all rows, of the first as of further ones
            known_first = rows if table.time is None else rows[[table.time, *(n for n in rows if n != table.time)]]
            drawn, computed = find_derived(known_first, declared, who, labels, given=[table.time] if table.time else [])
        rows = rows.assign(**{str(name): column for name, column in drawn.items() if name not in rows})
        stays = [n for n, column in drawn.items() if n != table.time and _stays(column, is_first)]
        varying = [name for name in drawn if name not in (*stays, table.time)]
        follows = [found.column for found in computed if found.column in rows]
        texts = checked_rules(rules, panels) if len(rules) else []
        if find_rules:
            texts = list(dict.fromkeys([*texts, *_found_rules(rows[list(whole)], varying, is_first)]))
        named = {name for rule in map(Rule, texts) for name in rule.columns}
        prior = [name for name in rows if name in varying or previous(name) in named]
        before = _before(rows[prior])
        cells, size = np.asarray(cells, dtype=np.int64), np.bincount(who)
        has_further = (size > 1).sum() >= FEWEST_PERSONS
        steps = TimeSteps.of(table.time, rows[table.time], who, is_first) if table.time and has_further else None
        left = size[who] - (np.arange(len(who)) - np.flatnonzero(is_first)[who]) - 1
        beside = pd.DataFrame() if steps is None else steps.columns(rows[steps.time], is_first, is_last, who)
        kinds = {name: "categorical" if name in declared else "" for name in rows}
        settings: dict[str, Any] = {"kinds": kinds, "computed": computed, "key": key, "random_state": random_state}
        first = rows[is_first].reset_index(drop=True)
        ahead = [] if steps is None else [LENGTH, steps.time]
        if has_further:
            first.insert(0, ROWS, size)
        if steps is not None:
            first = first.assign(**{name: beside.loc[is_first, name].to_numpy() for name in (LENGTH, UNTIL)})
        first_law = RowLaw.fit(
            first.drop(columns=labels),
            cells[who[is_first]],
            n_cells,
            first[labels] if labels else None,
            rules=[text for text in texts if "previous." not in text],
            derive=derive,
            order=[ROWS, *ahead] if has_further else [],
            **settings,
        )
        further_law = None
        if has_further and (varying or steps):
            known = {LEFT: left} | ({} if steps is None else {name: beside[name] for name in (ELAPSED, SINCE)})
            given = pd.DataFrame(known).join(rows[[*([steps.time] if steps else []), *stays]]).join(before)
            changing = [name for name in labels if name not in stays]
            new = rows[[name for name in (*varying, *follows) if name not in labels]]
            new = new if steps is None else new.assign(**{UNTIL: beside[UNTIL]})
            at = np.flatnonzero(~is_first)
            further_law = RowLaw.fit(
                given.join(new).iloc[at].reset_index(drop=True),
                cells[who[at]],
                n_cells,
                rows[changing].iloc[at].reset_index(drop=True) if changing else None,
                persons=who[at],
                rules=texts,
                derive=derive,
                given=list(given),
                **settings,
            )
        laws = [first_law, *([] if further_law is None else [further_law])]
        formulas = dict.fromkeys(
            found.column
            for law in laws
            for found in law.computed
            if isinstance(found, Formula) and found.column in whole
        )
        hashes = RowHashes.of(list(whole), labels, formulas, key)
        of_rows = hashes.of_frame(rows)
        own = held_by_one(of_rows, who)
        laws = [replace(law, row_hashes=hashes, own=own) for law in laws]
        of_panels = [_panel_hashes(found, who, is_ordered=steps is not None) for found in of_rows]
        return cls(
            schema=Schema({PERSON: WHOLE} | Schema.of(whole).kinds),
            dtypes={PERSON: np.dtype(np.int64)} | {str(n): _drawn_type(n, laws) for n in whole},
            labels=labels,
            first=laws[0],
            further=laws[1] if len(laws) > 1 else None,
            stays=stays,
            steps=steps,
            own=held_by_one(of_panels, np.arange(len(size))),
        )

    def sample(self, cells: npt.ArrayLike, generator: np.random.Generator | None = None) -> pd.DataFrame:
        """Draw fresh panels, one for each cell, numbered 1, 2, … in the order of the cells."""
        return self.draw(cells, generator).rows

    def draw(self, cells: npt.ArrayLike, generator: np.random.Generator | None = None) -> DrawnPanels:
        """Draw panels as `sample` does, and count the rows that were drawn again because of a rule."""
        cells = np.asarray(cells, dtype=np.int64)
        generator = np.random.default_rng() if generator is None else generator
        parts: list[pd.DataFrame] = []
        waiting, n_redrawn = np.arange(len(cells)), 0
        for _ in range(_ATTEMPTS):
            rows, who, is_undrawn, n_broken = self._attempt(cells[waiting], generator)
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
        self, cells: IntArray, generator: np.random.Generator
    ) -> tuple[pd.DataFrame, IntArray, BoolArray, int]:
        """Draw rows and the place of each row's person; say of which persons they cannot be drawn.

        The loop is over the number of the row, for all persons at once.
        """
        names = [name for name in self.schema.kinds if name != PERSON]
        drawn = self.first.attempt(cells, pd.DataFrame(index=range(len(cells))), generator, _REDRAWS)
        is_undrawn, n_redrawn = np.zeros(len(cells), dtype=bool), drawn.n_redrawn
        is_undrawn[drawn.undrawn] = True
        row, who = drawn.rows, np.arange(len(cells))
        parts, persons = [row[names]], [who]
        left = row[ROWS].to_numpy() - 1 if ROWS in row else np.zeros(len(row), dtype=np.int64)
        clock = None if self.steps is None else self.steps.begin(row, left)
        left = left if clock is None else clock.left
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
            hashes = _panel_hashes(of_rows, who[order], is_ordered=self.steps is not None)
            found |= np.isin(hashes, self.own)
        return found


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


def _found_rules(rows: pd.DataFrame, varying: Sequence[Hashable], is_first: BoolArray) -> list[str]:
    """Propose inequalities within a row, and between a column that varies and itself in the row before."""
    numeric = [name for name in varying if name in rows and has_order(rows[name].dtype)]
    both = rows[numeric].join(_before(rows[numeric]))[~is_first]
    return [*proposed_rules(rows), *(text for n in numeric for text in proposed_rules(both[[n, previous(n)]]))]


def _order(panels: Panels, random_state: int = 0) -> IntArray:
    """Return the rows of a table person by person, in the order of time.

    Without a time the rows of a person are a set, which has a random order.
    """
    table = panels.rows
    n = len(panels.owner)
    by = numbers(table.X[table.time]) if table.time else np.random.default_rng(random_state).random(n)
    return np.lexsort([by, panels.owner])


def _panel_hashes(of_rows: Hashes, who: IntArray, *, is_ordered: bool) -> Hashes:
    """Return a hash of the rows of each person, who are sorted; of a set the order does not count."""
    start = np.flatnonzero(np.diff(who, prepend=-1) > 0)
    size = np.diff(np.append(start, len(who)))
    place = np.arange(len(who)) - np.repeat(start, size)
    powers = np.cumprod(np.full(int(size.max()), _FACTOR)) if is_ordered else np.full(int(size.max()), _FACTOR)
    mixed = (of_rows ^ (of_rows >> np.uint64(31))) * powers[place]
    return np.add.reduceat(mixed, start) + size.astype(np.uint64)


def _drawn_type(name: Hashable, laws: Sequence[RowLaw]) -> Dtype:
    """Return the type of a column, with the categories that one of the laws draws."""
    types: list[Any] = [law.dtypes[str(name)] for law in laws if str(name) in law.dtypes]
    if not all(isinstance(dtype, pd.CategoricalDtype) for dtype in types):
        return types[0]
    categories = dict.fromkeys(value for dtype in types for value in dtype.categories)
    return pd.CategoricalDtype(list(categories), types[0].ordered)

"""RowLaw: whole rows drawn column by column, each by a tree on the cell and on the columns before it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.display import tracked
from fairflows.encoder.base import IntArray
from fairflows.exceptions import DataError
from fairflows.release.column_tree import ColumnTrees
from fairflows.release.derived_columns import Derived, Lookup, relations
from fairflows.release.drawn_columns import DrawnColumns, Part, joined_columns
from fairflows.release.formulas import Columns, Formula
from fairflows.release.law_trees import fit_trees
from fairflows.release.number_ranges import NumberRanges, Places
from fairflows.release.own_rows import RowHashes, held_by_one, shared_range
from fairflows.release.rules import BoolArray, Rule, check_rules, proposed_rules
from fairflows.table.columns import Dtype, Schema, floats
from fairflows.table.domain import Levels
from fairflows.table.keys import Hashes, Secret

_REDRAWS, _MIXES = 32, 96
_ROWS_AT_ONCE = 2**15


@dataclass(frozen=True)
class DrawnRows:
    """Rows that were drawn from cells."""

    rows: pd.DataFrame
    n_redrawn: int  # rows whose first draw broke a rule
    undrawn: IntArray  # places of rows that cannot be drawn: all that were tried are one person's own, or break a rule


@dataclass(frozen=True)
class RowLaw:
    r"""The law of whole rows given a cell, in a table's own columns.

    .. math:: \hat p(x \mid j) = \prod_{d=1}^{D} \hat p_d(x_d \mid c_j, x_1, …, x_{d-1})

    for cell j with coordinates c_j: the main directions in which the means of cells differ, and the mean of column d.
    Each factor is a decision tree (`ColumnTrees`). A category is drawn by its frequency in the leaf, a number by the
    frequency of its range, and then within the range (`NumberRanges`). Leaves and ranges hold at least ten persons.
    Columns that follow from others are computed (`fairflows.release.derived_columns`).

    A row is drawn from nothing but a cell and fresh randomness, so a certificate of the cell covers the row, however
    well or badly the law fits. The law never sees the sensitive attribute.

    Proof: [Rows drawn from a cell](proofs.md#rows-drawn-from-a-cell).

    No row is drawn that only one training person has: with or without the label, such a row is drawn again. Neither is
    a category or a gap that only one training person has, nor a number of one person that lies below or above those of
    all others, or is the only such one of its range.

    Examples
    --------
    >>> X = pd.DataFrame({"age": [20, 21, 22, 60, 61, 62] * 20, "works": [True, True, True, False, False, False] * 20})
    >>> law = RowLaw.fit(X, cells=np.array([0, 0, 0, 1, 1, 1] * 20), n_cells=2)
    >>> drawn = law.sample(np.array([0, 1]))
    >>> drawn["works"].tolist(), [str(dtype) for dtype in drawn.dtypes]
    ([True, False], ['int64', 'bool'])
    """

    schema: Schema  # of the columns, in their order
    dtypes: dict[str, Dtype]
    # (n_coordinates, n_cells): rank of each cell in each coordinate, the last of which belong to one column each
    coordinates: IntArray
    given: dict[Hashable, Part]  # levels of the columns that are known when a row is drawn
    parts: dict[Hashable, Part]  # levels of the columns that are drawn, in the order in which they are drawn
    trees: dict[Hashable, ColumnTrees]  # predictors are the coordinates, then the columns in the order above
    computed: list[Derived]  # how the other columns are computed, in order
    # Range of each column that is computed by a formula, and whether it has gaps.
    limits: dict[Hashable, tuple[float, float, bool]]
    rules: list[Rule]  # which every row obeys
    row_hashes: RowHashes
    own: Hashes  # of the rows that only one training person has, with or without the label, in rising order

    @property
    def derived(self) -> list[str]:
        """Say which columns follow from others, one sentence for each relation."""
        return relations(self.computed)

    @classmethod
    def fit(
        cls,
        X: pd.DataFrame,
        cells: npt.ArrayLike,
        n_cells: int,
        y: pd.DataFrame | None = None,
        *,
        persons: npt.ArrayLike | None = None,
        kinds: Mapping[Hashable, str] | None = None,
        rules: Sequence[str] = (),
        find_rules: bool = False,
        derive: bool = True,
        order: Sequence[Hashable] = (),
        given: Sequence[Hashable] = (),
        computed: Sequence[Derived] = (),
        label_place: int | None = None,
        known: Mapping[Hashable, tuple[Levels, IntArray]] | None = None,
        key: Secret = b"",
        random_state: int = 0,
    ) -> RowLaw:
        """Learn the law from rows X with their cells, and from labels y, which are drawn together with them.

        `persons` is the person of each row, by default another one. A column of numbers whose kind is "categorical" is
        drawn from its own values. The columns that `order` names are drawn first, then labels, then columns with few
        levels. Columns of X that `given` names, which are its first, are known whenever a row is drawn, and not drawn.
        `computed` says how columns follow from others. In a drawn row labels stand after `label_place` features, by
        default last. `known` has the levels of columns that were coded before, and `key` is the secret of the hashes of
        rows that are not drawn. The other settings are those of `Release`.
        """
        labels = [] if y is None else list(y)
        whole = joined_columns(X, y, label_place)
        cells = np.asarray(cells, dtype=np.int64)
        numbered = np.arange(len(whole)) if persons is None else np.unique(np.asarray(persons), return_inverse=True)[1]
        found = proposed_rules(whole) if find_rules else []
        checked = check_rules(list(dict.fromkeys([*rules, *found])), whole)
        drawn = DrawnColumns.of(
            whole,
            labels,
            numbered,
            kinds=kinds or {},
            derive=derive,
            order=order,
            known=known or {},
            given=given,
            computed=computed,
        )
        coordinates, trees = fit_trees(drawn, cells, n_cells, numbered, random_state)
        parts = {name: part for name, part in drawn.parts.items() if name in trees}
        whole = whole.drop(columns=list(given))
        levels = parts | {found.column: found.values for found in drawn.computed if isinstance(found, Lookup)}
        formulas = [found.column for found in drawn.computed if isinstance(found, Formula)]
        hashes = RowHashes.of(list(whole), labels, formulas, key)
        coded = {n: part for n, part in parts.items() if isinstance(part, Levels) and n in whole}
        of_columns = {n: hashes.of_column(n, pd.Series(part.values))[drawn.codes[n]] for n, part in coded.items()}
        of_columns |= {n: hashes.of_column(n, whole[n]) for n in whole if n not in coded}
        return cls(
            schema=Schema.of(whole),
            dtypes={str(n): levels[n].dtype if n in levels else column.dtype for n, column in whole.items()},
            coordinates=coordinates,
            given={name: part for name, part in drawn.parts.items() if name not in trees},
            parts=parts,
            trees=trees,
            computed=drawn.computed,
            limits={n: shared_range(floats(whole[n]), numbered) for n in whole if n not in levels},
            rules=checked,
            row_hashes=hashes,
            own=held_by_one(hashes.of_rows(of_columns), numbered),
        )

    def sample(self, cells: npt.ArrayLike, generator: np.random.Generator | None = None) -> pd.DataFrame:
        """Draw a fresh row for each cell: equal cells get different rows, and so does one person who comes twice.

        Without a generator, every call has randomness of the operating system's own.
        """
        return self.draw(cells, generator).rows

    def draw(self, cells: npt.ArrayLike, generator: np.random.Generator | None = None) -> DrawnRows:
        """Draw rows as `sample` does, and count those that were drawn again because of a rule."""
        cells = np.asarray(cells, dtype=np.int64)
        generator = np.random.default_rng() if generator is None else generator
        found = self.attempt(cells, pd.DataFrame(index=range(len(cells))), generator, _REDRAWS + _MIXES)
        if len(found.undrawn):
            raise DataError(
                f"{len(found.undrawn):,} rows cannot be drawn: nearly every row that the columns allow is one that a "
                "single training person has, or breaks a rule. Release cells instead, or fewer columns, or columns "
                "with fewer values."
            )
        return found

    def attempt(
        self, cells: IntArray, given: pd.DataFrame, generator: np.random.Generator, n_redraws: int
    ) -> DrawnRows:
        """Draw rows, given the columns that are known of each, and say which cannot be drawn in so many attempts."""
        starts = range(0, max(len(cells), 1), _ROWS_AT_ONCE)
        places = (slice(start, start + _ROWS_AT_ONCE) for start in starts)
        chunks = (self._draw_chunk(cells[rows], given.iloc[rows], generator, n_redraws) for rows in places)
        parts = list(tracked(chunks, "drawing rows", len(starts)))
        if len(parts) == 1:
            return parts[0]
        rows = pd.concat([part.rows for part in parts], ignore_index=True)
        undrawn = [part.undrawn + start for part, start in zip(parts, starts, strict=True)]
        return DrawnRows(rows, sum(part.n_redrawn for part in parts), np.concatenate(undrawn))

    def _draw_chunk(
        self, cells: IntArray, given: pd.DataFrame, generator: np.random.Generator, n_redraws: int
    ) -> DrawnRows:
        """Draw rows, those again that only one person has or that break a rule."""
        given = given.reset_index(drop=True)
        known = np.concatenate([self.coordinates.take(cells, axis=1), self._given_codes(given)])
        codes = self._draw_codes(known, None, generator)
        places = self._draw_places(codes, generator)
        columns = self._columns(places, given)
        breaks_rule = self._breaks_rule(columns)
        broken = breaks_rule | self._is_outside(columns)
        again = np.flatnonzero(self._is_own(places, columns) | broken)
        has_changed = len(again) > 0
        for attempt in range(n_redraws):
            if not len(again):
                break
            kept = {name: code[again] for name, code in codes.items()}
            new = self._draw_codes(known[:, again], kept, generator, broken[again], attempt >= _REDRAWS)
            new_places = self._draw_places(new, generator)
            new_columns = self._columns(new_places, given.iloc[again].reset_index(drop=True))
            for name in self.parts:
                codes[name][again], places[name][again] = new[name], new_places[name]
            broken[again] = self._breaks_rule(new_columns) | self._is_outside(new_columns)
            again = again[self._is_own(new_places, new_columns) | broken[again]]
        columns = self._columns(places, given) if has_changed else columns
        rows = pd.DataFrame({name: columns[name].array for name in self.schema.kinds}, copy=False)
        return DrawnRows(rows, int(breaks_rule.sum()), again)

    def _given_codes(self, given: pd.DataFrame) -> IntArray:
        """Return the levels of the columns that are known, (n_given, n_rows); the first of a value without one."""
        found = np.zeros((len(self.given), len(given)), dtype=np.int64)
        for place, (name, part) in enumerate(self.given.items()):
            found[place] = np.maximum(part.find(given[name]), 0)
        return found

    def _draw_codes(
        self,
        known: IntArray,
        kept: dict[Hashable, IntArray] | None,
        generator: np.random.Generator,
        is_broken: BoolArray | bool = False,
        from_all: bool = False,
    ) -> dict[Hashable, IntArray]:
        """Draw the levels of all columns, one column after the other, from what is known of each row.

        With `kept`, rows that break a rule are drawn again. Other rows get a new value in one random column: whole rows
        drawn again would seldom have the values, such as a missing one, that few rows have.
        `from_all` takes new values from the law of all rows, for rows that cannot be drawn otherwise.
        """
        first, n = known.shape
        known = np.concatenate([known, np.empty((len(self.parts), n), dtype=np.int64)])
        chosen = generator.integers(len(self.parts), size=n) if kept else None
        codes: dict[Hashable, IntArray] = {}
        for place, (name, tree) in enumerate(self.trees.items()):
            new = tree.draw(None if from_all else known, n, generator)
            if kept:
                new = np.where((chosen == place) | np.logical_and(is_broken, not from_all), new, kept[name])
            codes[name] = known[first + place] = new
        return codes

    def _draw_places(self, codes: dict[Hashable, IntArray], generator: np.random.Generator) -> dict[Hashable, Places]:
        """Draw a place within each range; a category is its own place."""
        ranges = {name: part for name, part in self.parts.items() if isinstance(part, NumberRanges)}
        return codes | {name: part.draw(codes[name], generator) for name, part in ranges.items()}

    def _columns(self, places: dict[Hashable, Places], given: pd.DataFrame) -> Columns:
        """Return all columns at these places: those that are given, drawn, and computed."""
        columns: Columns = dict(given.items()) | {name: part.column(places[name]) for name, part in self.parts.items()}
        for found in self.computed:
            columns[found.column] = found.compute(columns)
        return columns

    def _is_own(self, places: dict[Hashable, Places], columns: Columns) -> BoolArray:
        """Return which rows are those of a single training person."""
        found = np.zeros(len(next(iter(places.values()))), dtype=bool)
        if len(self.own):
            of_levels = {n: hashes[places[n].astype(np.intp)] for n, hashes in self._level_hashes.items()}
            others = {n: self.row_hashes.of_column(n, columns[n]) for n in self.row_hashes.names if n not in of_levels}
            for hashes in self.row_hashes.of_rows(of_levels | others):
                found |= self.own.take(self.own.searchsorted(hashes), mode="clip") == hashes
        return found

    @cached_property
    def _level_hashes(self) -> dict[Hashable, Hashes]:
        """The hash of each level of the columns of categories that are drawn."""
        levels = {n: part for n, part in self.parts.items() if isinstance(part, Levels) and n in self.row_hashes.names}
        return {n: self.row_hashes.of_column(n, pd.Series(part.values)) for n, part in levels.items()}

    def _breaks_rule(self, columns: Columns) -> BoolArray:
        """Return which rows break a rule."""
        if not self.rules:
            return np.zeros(len(next(iter(columns.values()))), dtype=bool)
        rows = pd.DataFrame({name: columns[name] for rule in self.rules for name in rule.columns})
        return np.any([rule.is_broken(rows) for rule in self.rules], axis=0)

    def _is_outside(self, columns: Columns) -> BoolArray:
        """Return which rows have a computed number outside the range of the training rows, or a gap that none has."""
        values = {name: floats(columns[name]) for name in self.limits}
        inside = [
            ((low <= values[name]) & (values[name] <= high)) | (np.isnan(values[name]) & may_miss)
            for name, (low, high, may_miss) in self.limits.items()
        ]
        return ~np.all(inside, axis=0)

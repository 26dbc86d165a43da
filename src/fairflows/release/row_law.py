"""RowLaw: whole rows drawn column by column, each by a tree on the cell and on the columns before it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
from joblib import Parallel, delayed

from fairflows.codec import Levels
from fairflows.display import tracked
from fairflows.encoder.base import FloatArray, IntArray
from fairflows.exceptions import DataError
from fairflows.release.column_tree import ColumnTree, Predictor, level_means, main_directions, standardised
from fairflows.release.derived_columns import Columns, Derived, Formula, Lookup, find_derived, name_only
from fairflows.release.number_ranges import NumberRanges, Places, is_shared
from fairflows.release.rules import BoolArray, Rule, check_rules
from fairflows.table.columns import Dtype, Schema, check_known, floats, has_order, is_number
from fairflows.table.keys import Hashes, Secret, keyed_hashes

Part = Levels | NumberRanges

_COORDINATES = 6  # of a cell
_MOST_LEVELS = 64  # of a column that count for the coordinates
_MOST_CANDIDATES = 128  # predictors of a column in a wide table
_ROWS_COMPARED = 2_000
_ROWS_PER_CODE = 50  # of each whole number that may be a code
_FEW_VALUES = 10
_TELLING = 0.01  # share of the variance of the label that codes explain
_IN_ORDER = 0.4  # correlation of the label's rates between neighbouring values of a column with an order
_REDRAWS, _MIXES = 32, 96
_ROWS_AT_ONCE = 2**15


@dataclass(frozen=True)
class RowLaw:
    r"""The law of whole rows given a cell, in a table's own columns.

    .. math:: \hat p(x \mid j) = \prod_{d=1}^{D} \hat p_d(x_d \mid c_j, x_1, …, x_{d-1})

    for cell j with coordinates c_j: the main directions in which the means of cells differ, and the mean of column d.
    Each factor is a decision tree (`ColumnTree`). A category is drawn by its frequency in the leaf, a number by the
    frequency of its range, and then within the range (`NumberRanges`). Leaves and ranges hold at least ten persons.
    Columns that follow from others are computed (`fairflows.release.derived_columns`).

    A row is drawn from nothing but a cell and fresh randomness, so a certificate of the cell covers the row, however
    well or badly the law fits (data-processing inequality). The law never sees the sensitive attribute.

    No row is drawn that only one training person has: with or without the label, such a row is drawn again. Neither is
    a category or a gap that only one training person has, nor a number of one person that is the smallest or largest of
    the column, or the only such one of its range.

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
    labels: list[Hashable]  # which of the columns are labels
    # (n_coordinates, n_cells): rank of each cell in each coordinate, the last of which belong to one column each
    coordinates: IntArray
    parts: dict[Hashable, Part]  # levels of the columns that are drawn, in the order in which they are drawn
    trees: dict[Hashable, ColumnTree]  # predictors are the coordinates, then the columns in the order above
    computed: list[Derived]  # how the other columns are computed, in order
    # Range of each column that is computed by a formula, and whether it has gaps.
    limits: dict[Hashable, tuple[float, float, bool]]
    rules: list[Rule]  # which every row obeys
    taken: Hashes  # keyed hashes of the rows that only one training person has, sorted
    key: Secret

    @property
    def derived(self) -> list[str]:
        """Say which columns follow from others, one sentence for each relation."""
        by_source: dict[Hashable, list[str]] = {}
        for found in self.computed:
            if isinstance(found, Lookup):
                by_source.setdefault(found.source, []).append(str(found.column))
        lookups = [f"{', '.join(sorted(columns))} follow from {source}" for source, columns in by_source.items()]
        return [*(str(found) for found in self.computed if isinstance(found, Formula)), *lookups]

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
        derive: bool = True,
        order: Sequence[Hashable] = (),
        label_place: int | None = None,
        key: Secret = b"",
        random_state: int = 0,
    ) -> RowLaw:
        """Learn the law from rows X with their cells, and from labels y, which are drawn together with them.

        `persons` is the person of each row, by default another one. A column of numbers whose kind is "categorical" is
        drawn from its own values. The columns that `order` names are drawn first, then those with few levels. Labels
        come after `label_place` features, by default last. `key` is the secret of the hashes of rows that are not
        drawn. The other settings are those of `Release`.
        """
        labels = [] if y is None else list(y)
        whole = _joined(X, y, label_place)
        cells = np.asarray(cells, dtype=np.int64)
        who = np.arange(len(whole)) if persons is None else np.unique(np.asarray(persons), return_inverse=True)[1]
        for name in order:
            check_known(name, whole.columns, "first")
        checked = check_rules(rules, whole)
        kinds = kinds or {}
        declared = {n for n, c in whole.items() if has_order(c.dtype) and kinds.get(n) == "categorical"}
        if labels:
            label = pd.factorize(whole[labels[0]])[0]
            declared |= {n for n, c in whole.items() if n not in (*labels, *kinds) and _is_code(c, label)}
        drawn, computed = find_derived(whole, declared, who, labels) if derive else (dict(whole.items()), [])
        exact = declared | {found.source for found in computed if isinstance(found, Lookup)}
        ranges = {n: NumberRanges.fit(c, who) for n, c in drawn.items() if has_order(c.dtype) and n not in exact}
        parts: dict[Hashable, Part] = {n: ranges.get(n) or Levels.fit(str(n), c) for n, c in drawn.items()}
        first = {name: place - len(order) for place, name in enumerate(order)}
        parts = dict(sorted(parts.items(), key=lambda item: first.get(item[0], len(item[1]))))
        codes = {name: part.codes(drawn[name]).astype(np.int64) for name, part in parts.items()}
        columns = [
            Predictor(codes[name], len(part), name not in declared and _is_ordered(drawn[name].dtype))
            for name, part in parts.items()
        ]
        targets = [
            replace(column, codes=_without_own(name, codes[name], part, who))
            for column, (name, part) in zip(columns, parts.items(), strict=True)
        ]
        coordinates = _coordinates(columns, cells, n_cells)
        predictors = [*(Predictor(ranks[cells], n_cells, True) for ranks in coordinates), *columns]
        persons_each = 1 / np.bincount(who)[who]
        # The last trees take longest, and are begun first. scikit-learn grows trees without Python's lock.
        fits = [
            delayed(ColumnTree.fit)(target, predictors, before, persons_each, random_state)
            for target, before in zip(targets, _candidates(predictors, len(targets)), strict=True)
        ]
        fitted = Parallel(n_jobs=-1, prefer="threads", return_as="generator")(reversed(fits))
        trees = list(tracked(fitted, "fitting columns", len(fits)))[::-1]
        own = parts | {found.column: found.values for found in computed if isinstance(found, Lookup)}
        law = cls(
            schema=Schema.of(whole),
            dtypes={str(n): own[n].dtype if n in own else column.dtype for n, column in whole.items()},
            labels=labels,
            coordinates=coordinates,
            parts=parts,
            trees=dict(zip(parts, trees, strict=True)),
            computed=computed,
            limits={n: _limits(floats(whole[n]), who) for n in whole if n not in own},
            rules=checked,
            taken=np.empty(0, dtype=np.uint64),
            key=key,
        )
        places = codes | {n: part.places(drawn[n]) for n, part in parts.items() if isinstance(part, NumberRanges)}
        # A row with a value that is rounded is not drawn as it is, and does not share what is drawn.
        rounded = {n: part.is_rounded(drawn[n]) for n, part in parts.items() if isinstance(part, NumberRanges)}
        is_exact = ~pd.DataFrame(rounded, index=whole.index)
        masks = [is_exact.drop(columns=labels, errors="ignore").all(axis=1), is_exact.all(axis=1)]
        hashes = list(law._hashes(places, dict(whole.items())))
        taken = [_held_by_one(each[of], who[of]) for each, of in zip(hashes, masks[-len(hashes) :], strict=True)]
        return replace(law, taken=np.unique(np.concatenate(taken)))

    def sample(self, cells: npt.ArrayLike, generator: np.random.Generator | None = None) -> pd.DataFrame:
        """Draw a fresh row for each cell: equal cells get different rows, and so does one person who comes twice.

        Without a generator, every call has randomness of the operating system's own. With rules, ``attrs["redrawn"]``
        is the number of rows whose first draw broke a rule.
        """
        cells = np.asarray(cells, dtype=np.int64)
        generator = np.random.default_rng() if generator is None else generator
        starts = range(0, max(len(cells), 1), _ROWS_AT_ONCE)
        drawn = (self._draw_chunk(cells[start : start + _ROWS_AT_ONCE], generator) for start in starts)
        parts = list(tracked(drawn, "drawing rows", len(starts)))
        rows = parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)
        rows.attrs = {name: sum(part.attrs[name] for part in parts) for name in parts[0].attrs}
        return rows

    def _draw_chunk(self, cells: IntArray, generator: np.random.Generator) -> pd.DataFrame:
        """Draw rows, those again that only one person has or that break a rule."""
        codes = self._draw_codes(cells, None, generator)
        places = self._draw_places(codes, generator)
        columns = self._columns(places)
        breaks_rule = self._breaks_rule(columns)
        broken = breaks_rule | self._is_outside(columns)
        again = np.flatnonzero(self._is_own(places, columns) | broken)
        has_changed = len(again) > 0
        for attempt in range(_REDRAWS + _MIXES):
            if not len(again):
                break
            kept = {name: code[again] for name, code in codes.items()}
            new = self._draw_codes(cells[again], kept, generator, broken[again], attempt >= _REDRAWS)
            new_places = self._draw_places(new, generator)
            new_columns = self._columns(new_places)
            for name in self.parts:
                codes[name][again], places[name][again] = new[name], new_places[name]
            broken[again] = self._breaks_rule(new_columns) | self._is_outside(new_columns)
            again = again[self._is_own(new_places, new_columns) | broken[again]]
        if len(again):
            raise DataError(
                f"{len(again):,} rows cannot be drawn: nearly every row that the columns allow is one that a single "
                "training person has, or breaks a rule. Release cells instead, or fewer columns, or columns with fewer "
                "values."
            )
        columns = self._columns(places) if has_changed else columns
        rows = pd.DataFrame({name: columns[name].array for name in self.schema.kinds}, copy=False)
        rows.attrs = {"redrawn": int(breaks_rule.sum())} if self.rules else {}
        return rows

    def _draw_codes(
        self,
        cells: IntArray,
        kept: dict[Hashable, IntArray] | None,
        generator: np.random.Generator,
        is_broken: BoolArray | bool = False,
        from_all: bool = False,
    ) -> dict[Hashable, IntArray]:
        """Draw the levels of all columns, one column after the other.

        With `kept`, rows that break a rule are drawn again. Other rows get a new value in one random column: whole rows
        drawn again would seldom have the values, such as a missing one, that few rows have.
        `from_all` takes new values from the law of all rows, for rows that cannot be drawn otherwise.
        """
        first = len(self.coordinates)
        known = np.empty((first + len(self.parts), len(cells)), dtype=np.int64)
        known[:first] = self.coordinates.take(cells, axis=1)
        chosen = generator.integers(len(self.parts), size=len(cells)) if kept else None
        codes: dict[Hashable, IntArray] = {}
        for place, (name, tree) in enumerate(self.trees.items()):
            new = tree.draw(None if from_all else known, len(cells), generator)
            if kept:
                new = np.where((chosen == place) | np.logical_and(is_broken, not from_all), new, kept[name])
            codes[name] = known[first + place] = new
        return codes

    def _draw_places(self, codes: dict[Hashable, IntArray], generator: np.random.Generator) -> dict[Hashable, Places]:
        """Draw a place within each range; a category is its own place."""
        ranges = {name: part for name, part in self.parts.items() if isinstance(part, NumberRanges)}
        return codes | {name: part.draw(codes[name], generator) for name, part in ranges.items()}

    def _columns(self, places: dict[Hashable, Places]) -> Columns:
        """Return all columns at these places: those that are drawn, and those that are computed."""
        columns: Columns = {name: part.column(places[name]) for name, part in self.parts.items()}
        for found in self.computed:
            columns[found.column] = found.compute(columns)
        return columns

    def _is_own(self, places: dict[Hashable, Places], columns: Columns) -> BoolArray:
        """Return which rows only one training person has, with or without the label."""
        is_own = np.zeros(len(next(iter(places.values()))), dtype=bool)
        if len(self.taken):
            for hashes in self._hashes(places, columns):
                is_own |= self.taken.take(self.taken.searchsorted(hashes), mode="clip") == hashes
        return is_own

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

    def _hashes(self, places: Mapping[Hashable, Places], columns: Columns) -> Iterator[Hashes]:
        """Yield a keyed hash of the features of every row, and of the whole row where it has a label.

        A row is known by the places of its columns that are drawn, and by its computed columns.
        """
        factors, names, levels = self._identity
        mixed = np.zeros(len(next(iter(places.values()))), dtype=np.uint64)
        for place, (name, factor) in enumerate(zip(names, factors, strict=True), start=1):
            if name in places:
                value = places[name]
            else:
                value = levels[name].codes(columns[name]) if name in levels else floats(columns[name]).round(6)
            # −0 and −NaN are 0 and NaN.
            is_real = value.dtype.kind == "f"
            value = np.where(np.isnan(value), np.nan, value + 0.0) if is_real else value.astype(np.int64)
            mixed = (mixed ^ value.view(np.uint64)) * factor
            mixed ^= mixed >> np.uint64(29)
            if place == len(names) or (names[place] in self.labels and name not in self.labels):
                yield mixed.copy()

    @cached_property
    def _identity(self) -> tuple[Hashes, list[Hashable], dict[Hashable, Levels]]:
        """The factors of the hash, the columns that tell rows apart, labels last, and levels of computed categories.

        Helper columns count only if columns of the table are looked up by them. A column that always follows from a
        feature tells nothing more; one that follows from a label, or a rest, does where the features are known alone.
        """
        lookups = [found for found in self.computed if isinstance(found, Lookup)]
        formulas = [found.column for found in self.computed if isinstance(found, Formula)]
        others = {*self.labels, *(found.rest for found in self.computed if isinstance(found, Formula))}
        levels = {each.column: each.values for each in lookups if not each.is_exact or each.source in others}
        counted = {*self.schema.kinds, *(lookup.source for lookup in lookups if lookup.source not in others)}
        names = [name for name in (*self.parts, *levels, *formulas) if name in counted]
        names.sort(key=lambda name: (name in self.labels, str(name)))
        return keyed_hashes([f"column {d}" for d in range(len(names))], self.key, "row") | np.uint64(1), names, levels


def _joined(X: pd.DataFrame, y: pd.DataFrame | None, label_place: int | None) -> pd.DataFrame:
    """Return features and labels side by side, the labels at their place."""
    whole = X.reset_index(drop=True)
    if y is not None:
        place = X.shape[1] if label_place is None else label_place
        whole = pd.concat([whole.iloc[:, :place], y.reset_index(drop=True), whole.iloc[:, place:]], axis=1)
    if whole.columns.has_duplicates:
        name = whole.columns[whole.columns.duplicated()][0]
        raise DataError(f"Column {name!r} is a feature and the label: a row that is drawn has both; rename one.")
    return whole


def _is_code(column: pd.Series, label: IntArray) -> bool:
    """Whether whole numbers are codes: many rows each, and rates of the label that differ between neighbours."""
    known = column.notna().to_numpy()
    if not is_number(column.dtype) or column.nunique() > known.sum() / _ROWS_PER_CODE:
        return False
    values, codes, counts = np.unique(floats(column)[known], return_inverse=True, return_counts=True)
    if len(values) <= _FEW_VALUES or (values != np.rint(values)).any():
        return False
    rate = np.bincount(codes, standardised(label[known])) / counts
    both = np.minimum(counts[1:], counts[:-1])  # the rows that a pair of neighbouring values stands for
    mean = np.average((rate[1:] + rate[:-1]) / 2, weights=both)
    rate, noise = rate - mean, 1 / counts
    alike = np.average(rate[1:] * rate[:-1], weights=both)
    apart = np.average((rate[1:] ** 2 + rate[:-1] ** 2 - noise[1:] - noise[:-1]) / 2, weights=both)
    return bool(apart > _TELLING and alike < _IN_ORDER * apart)


def _is_ordered(dtype: Dtype) -> bool:
    return has_order(dtype) or (isinstance(dtype, pd.CategoricalDtype) and dtype.ordered)


def _without_own(name: Hashable, codes: IntArray, part: Part, who: IntArray) -> IntArray:
    """Return levels with −1 for a category that only one person has, or a gap in numbers that only one person has."""
    is_drawn = is_shared(codes, who, len(part))
    if isinstance(part, NumberRanges):  # of a gap it is asked who has it, of a range what it holds
        is_drawn[: len(part.first)] = part.is_drawn
    if not is_drawn.any():
        raise DataError(
            f"Column {name!r} has a different value for every person, so that every value tells who it is: leave the "
            "column out."
        )
    if isinstance(part, Levels):
        name_only(part, is_drawn)
    return np.where(is_drawn[codes], codes, -1)


def _coordinates(columns: list[Predictor], cells: IntArray, n_cells: int) -> IntArray:
    """Return the rank of each cell in the main directions in which cells differ, then in that of every column."""
    of_columns = [level_means(cells, n_cells, list(_features(column))) for column in columns]
    main = main_directions(np.concatenate(of_columns, axis=1), cells, _COORDINATES)
    values = np.column_stack([main, *(main_directions(means, cells, 1) for means in of_columns)])
    return np.stack([np.unique(value.round(9), return_inverse=True)[1] for value in values.T])


def _features(column: Predictor) -> Iterator[FloatArray]:
    """Yield a column as standardised numbers, whose variances add up to 1."""
    shares = np.bincount(column.codes, minlength=column.n_levels) / len(column.codes)
    if column.is_ordered:
        rank = np.cumsum(shares) - shares / 2
        yield standardised(rank[column.codes])
        return
    scale = np.sqrt((shares * (1 - shares)).sum()) or 1
    for level in np.argsort(-shares, kind="stable")[: _MOST_LEVELS if column.n_levels > 2 else 1]:
        yield ((column.codes == level) - shares[level]) / scale


def _candidates(predictors: list[Predictor], n_columns: int) -> list[list[int]]:
    """Return the predictors that the tree of each column may split.

    These are the main coordinates of the cell, its coordinate in the column itself, and the columns before, or those of
    them that correlate most with the column.
    """
    first = len(predictors) - n_columns  # number of coordinates
    n_main = first - n_columns
    before = [list(range(first, first + place)) for place in range(n_columns)]
    if n_columns > _MOST_CANDIDATES:
        rows = slice(None, None, max(1, len(predictors[0].codes) // _ROWS_COMPARED))
        x = np.stack([standardised(predictor.codes[rows]) for predictor in predictors[first:]]).astype(np.float32)
        for place in range(n_columns):
            strongest = np.argsort(-np.abs(x[:place] @ x[place]), kind="stable")[: _MOST_CANDIDATES // 2]
            before[place] = sorted((first + strongest).tolist())
    return [[*range(n_main), n_main + place, *before[place]] for place in range(n_columns)]


def _limits(values: FloatArray, who: IntArray) -> tuple[float, float, bool]:
    """Return the smallest and the largest value, but for those that only one person has, and whether some are missing.

    A gap that only one person has does not count.
    """
    is_known = ~np.isnan(values)
    different, codes = np.unique(values[is_known], return_inverse=True)
    is_inner = is_shared(codes, who[is_known], len(different))
    is_inner[1:-1] = True
    inner = different[is_inner] if is_inner.any() else different
    return float(inner[0]), float(inner[-1]), len(np.unique(who[~is_known])) > 1


def _held_by_one(hashes: Hashes, who: IntArray) -> Hashes:
    """Return the hashes of the rows that only one person has, once or several times."""
    different, codes = np.unique(hashes, return_inverse=True)
    return different[~is_shared(codes, who, len(different))]

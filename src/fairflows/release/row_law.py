"""RowLaw: whole rows drawn column by column, each by a tree on the cell and on the columns before it."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.codec import Levels
from fairflows.display import ShowProgress
from fairflows.exceptions import DataError
from fairflows.release.column_tree import ColumnTree, Predictor, Target
from fairflows.release.formulas import Columns, Formula
from fairflows.release.number_ranges import NumberRanges, Places
from fairflows.release.recipes import Recipe, drawn_columns, find_classes, find_recipes, take_apart, value_codes
from fairflows.release.rules import Rule, check_rules
from fairflows.table.columns import Dtype, Schema, check_known, floats, has_order
from fairflows.table.frames import only_used_categories
from fairflows.table.persons import Secret, keyed_hashes

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]
Part = Levels | NumberRanges

_COORDINATES = 10  # of a cell
_MOST_LEVELS = 64  # of a column that count for the coordinates
_MOST_CANDIDATES = 128  # predictors of a column in a wide table
_ROWS_COMPARED = 2_000
_MOST_VALUES = 2_000  # of a column of numbers that may be a code
_REDRAWS, _MIXES = 32, 96
_ROWS_AT_ONCE = 2**15


@dataclass(frozen=True)
class Drawn:
    """Rows that were drawn, and how often that took more than one attempt."""

    rows: pd.DataFrame
    own: int  # rows that were drawn again because a single training person has them
    broken: int  # rows that were drawn again because they break a rule, or leave the range of a computed column


@dataclass(frozen=True)
class RowLaw:
    r"""The law of whole rows given a cell, in a table's own columns.

    .. math:: \hat p(x \mid j) = \prod_{d=1}^{D} \hat p_d(x_d \mid c_j, x_1, …, x_{d-1})

    for cell j with coordinates c_j: the main directions in which the means of cells differ, and the mean of column d.
    Each factor is a decision tree (`ColumnTree`). A category is drawn by its frequency in the leaf, a number by the
    frequency of its range, and then within the range (`NumberRanges`). Leaves and ranges hold at least ten persons.
    Columns that follow from others are computed (`fairflows.release.recipes`).

    A row is drawn from nothing but a cell and fresh randomness, so a certificate of the cell covers the row, however
    well or badly the law fits (data-processing inequality). The law never sees the sensitive attribute.

    No row is drawn that only one training person has: with or without the label, such a row is drawn again. Neither is
    a category that only one training person has, nor the smallest or largest value of a column if only one person has
    it.

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
    rows_in: IntArray  # (n_cells,): number of training rows in each cell
    # (n_cells, n_coordinates): rank of each cell in each coordinate, the last of which belong to one column each
    coordinates: IntArray
    order: list[Hashable]  # columns that are drawn, in the order in which they are drawn
    parts: dict[Hashable, Part]  # levels of the columns that are drawn
    trees: dict[Hashable, ColumnTree]  # predictors are the coordinates, then the columns in the order above
    parents: dict[Hashable, Hashable]  # columns that are drawn among the codes of a class, and the column of the class
    recipes: list[Recipe]  # how the other columns are computed, in order
    limits: dict[Hashable, tuple[float, float]]  # range of each column that is computed by a formula
    rules: list[Rule]  # which every row obeys
    taken: Hashes  # keyed hashes of the rows that only one training person has, sorted
    key: Secret

    @property
    def names(self) -> list[Hashable]:
        """The columns, in their order."""
        return list(self.schema.kinds)

    @property
    def derived(self) -> list[str]:
        """Say which columns follow from others, one sentence for each relation."""
        nested = [
            f"{child} is drawn among the values that belong to {parent}" for child, parent in self.parents.items()
        ]
        return [*map(str, self.recipes), *nested]

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
        show: ShowProgress | None = None,
    ) -> RowLaw:
        """Learn the law from training rows.

        Parameters
        ----------
        X : DataFrame
            The features.
        cells : array of int
            Cell of each row, in 0 … n_cells − 1.
        n_cells : int
            Number of cells.
        y : DataFrame, default=None
            Labels: further columns, which are drawn together with the features.
        persons : array of int, default=None
            Person of each row; by default each row belongs to another person.
        kinds : mapping of column to kind, default=None
            Kinds that were declared; a column of numbers that is "categorical" is drawn from its own values.
        rules : sequence of str, default=()
            Expressions over columns that are true in every row (`fairflows.release.rules`).
        derive : bool, default=True
            Whether columns that follow from others are recognised and computed.
        order : sequence of column, default=()
            Columns to draw first; the others follow, those with few levels first.
        label_place : int, default=None
            Number of features before the labels in the drawn rows; by default the labels are last.
        key : bytes, default=b""
            Secret for the hashes of the rows that are not drawn.
        random_state : int, default=0
            Seed of the trees.
        show : callable, default=None
            Shows progress: called with the number of finished columns, of all columns, and a word.
        """
        labels = [] if y is None else list(y)
        whole = _joined(X, y, label_place)
        cells = _checked_cells(cells, n_cells)
        who = np.arange(len(whole)) if persons is None else np.unique(np.asarray(persons), return_inverse=True)[1]
        checked = check_rules(rules, whole)
        plan = _plan(whole, kinds or {}, who, derive)
        codes = {name: plan.parts[name].codes(column).astype(np.int64) for name, column in plan.frame.items()}
        drawn = _drawing_order(plan, order)
        coordinates = _coordinates({name: codes[name] for name in drawn}, plan, cells, n_cells)
        predictors = [Predictor(coordinate[cells], n_cells, True) for coordinate in coordinates.T]
        predictors += [Predictor(codes[name], len(plan.parts[name]), plan.is_ordered[name]) for name in drawn]
        targets = [_target(name, plan, codes, who) for name in drawn]
        formulas = [recipe for recipe in plan.recipes if isinstance(recipe, Formula)]
        return cls(
            schema=Schema.of(whole),
            dtypes={str(name): column.dtype for name, column in whole.items()},
            labels=labels,
            rows_in=np.bincount(cells, minlength=n_cells),
            coordinates=coordinates,
            order=drawn,
            parts=plan.parts,
            trees=dict(zip(drawn, _fit_trees(targets, predictors, who, random_state, show), strict=True)),
            parents=plan.parents,
            recipes=plan.recipes,
            limits={formula.column: _limits(floats(plan.apart[formula.column]), who) for formula in formulas},
            rules=checked,
            taken=_taken(plan, codes, labels, who, key),
            key=key,
        )

    def sample(self, cells: npt.ArrayLike, generator: np.random.Generator | None = None) -> pd.DataFrame:
        """Draw a fresh row for each cell: equal cells get different rows, and so does one person who comes twice.

        Parameters
        ----------
        cells : array of int
            The cells.
        generator : Generator, default=None
            For tests; by default every call has randomness of the operating system's own.
        """
        return self.draw(cells, generator).rows

    def draw(self, cells: npt.ArrayLike, generator: np.random.Generator | None = None) -> Drawn:
        """Draw a fresh row for each cell, and count the rows that took more than one attempt."""
        cells = _checked_cells(cells, len(self.coordinates))
        generator = np.random.default_rng() if generator is None else generator
        is_empty = self.rows_in[cells] == 0  # a cell without training rows has the law of all rows
        shares = self.rows_in / self.rows_in.sum()
        cells = np.where(is_empty, generator.choice(len(shares), len(cells), p=shares), cells)
        parts = [
            self._draw_chunk(cells[start : start + _ROWS_AT_ONCE], generator)
            for start in range(0, max(len(cells), 1), _ROWS_AT_ONCE)
        ]
        rows = parts[0].rows if len(parts) == 1 else pd.concat([part.rows for part in parts], ignore_index=True)
        own, broken = (sum(getattr(part, name) for part in parts) for name in ("own", "broken"))
        types = dict(zip(self.names, self.dtypes.values(), strict=True))
        return Drawn(only_used_categories(rows.astype(types)), own, broken)

    def _draw_chunk(self, cells: IntArray, generator: np.random.Generator) -> Drawn:
        codes = self._draw_codes(cells, generator)
        places = self._draw_places(codes, generator)
        columns = self._columns(places)
        rows = self._rows(columns)
        own, broken = self._is_own(places, columns), self._is_broken(columns, rows)
        counted = int(own.sum()), int(broken.sum())
        again = np.flatnonzero(own | broken)
        for attempt in range(_REDRAWS + _MIXES):
            if not len(again):
                return Drawn(rows, *counted)
            if attempt < _REDRAWS:
                new = self._draw_codes(cells[again], generator)
            else:  # a row that cannot be drawn otherwise gets one value after the other from the law of all rows
                new = self._mixed({name: code[again] for name, code in codes.items()}, generator)
            new_places = self._draw_places(new, generator)
            new_columns = self._columns(new_places)
            new_rows = self._rows(new_columns)
            for name in self.order:
                codes[name][again] = new[name]
            rows = _replaced(rows, again, new_rows)
            again = again[self._is_own(new_places, new_columns) | self._is_broken(new_columns, new_rows)]
        raise DataError(
            f"{len(again):,} rows cannot be drawn: nearly every row that the columns allow is one that a single "
            "training person has, or breaks a rule. Release cells instead, or fewer columns, or columns with fewer "
            "values."
        )

    def _draw_codes(self, cells: IntArray, generator: np.random.Generator) -> dict[Hashable, IntArray]:
        """Draw the levels of all columns, one column after the other."""
        known = [coordinate[cells] for coordinate in self.coordinates.T]
        codes: dict[Hashable, IntArray] = {}
        for name in self.order:
            codes[name] = self.trees[name].draw(known, self._class(name, codes), generator)
            known.append(codes[name])
        return codes

    def _class(self, name: Hashable, codes: Mapping[Hashable, IntArray]) -> IntArray | None:
        """Return the class that a finer code must have, where another column holds it."""
        return codes[self.parents[name]] if name in self.parents else None

    def _mixed(self, codes: dict[Hashable, IntArray], generator: np.random.Generator) -> dict[Hashable, IntArray]:
        """Return the rows with a new value in one random column each, and in the columns that hang on it."""
        n = len(next(iter(codes.values())))
        chosen = generator.integers(len(self.order), size=n)
        changed: dict[Hashable, BoolArray] = {}
        mixed: dict[Hashable, IntArray] = {}
        for place, name in enumerate(self.order):
            changed[name] = chosen == place
            if name in self.parents:
                changed[name] = changed[name] | changed[self.parents[name]]
            new = self.trees[name].draw_from_all(self._class(name, mixed), n, generator)
            mixed[name] = np.where(changed[name], new, codes[name])
        return mixed

    def _draw_places(self, codes: dict[Hashable, IntArray], generator: np.random.Generator) -> dict[Hashable, Places]:
        """Draw a place within each range; a category is its own place. Columns come as hashes take them."""
        return {
            name: part.draw(codes[name], generator) if isinstance(part, NumberRanges) else codes[name]
            for name, part in self.parts.items()
        }

    def _columns(self, places: dict[Hashable, Places]) -> Columns:
        """Return all columns at these places: those that are drawn, and those that are computed."""
        columns: Columns = {name: self.parts[name].column(place) for name, place in places.items()}
        for recipe in self.recipes:
            columns |= recipe.compute(columns)
        return columns

    def _rows(self, columns: Columns) -> pd.DataFrame:
        """Return the columns of the table."""
        return pd.DataFrame({name: columns[name] for name in self.names})

    def _is_own(self, places: dict[Hashable, Places], columns: Columns) -> BoolArray:
        """Return which rows only one training person has, with or without the label."""
        is_own = np.zeros(len(next(iter(places.values()))), dtype=bool)
        if len(self.taken):
            for hashes in _row_hashes(_identity(places, columns, self.recipes), self.labels, self.key):
                at = np.minimum(np.searchsorted(self.taken, hashes), len(self.taken) - 1)
                is_own |= self.taken[at] == hashes
        return is_own

    def _is_broken(self, columns: Columns, rows: pd.DataFrame) -> BoolArray:
        """Return which rows break a rule, or have a computed number outside the range of the training rows."""
        is_broken = np.zeros(len(rows), dtype=bool)
        for rule in self.rules:
            is_broken |= rule.is_broken(rows)
        for name, (low, high) in self.limits.items():
            value = floats(columns[name])
            is_broken |= (value < low) | (value > high)
        return is_broken


@dataclass(frozen=True)
class _Plan:
    """Which columns are drawn, with their levels, and how the others are computed."""

    apart: pd.DataFrame  # the table, and the columns that are drawn instead of computed ones
    frame: pd.DataFrame  # the columns that are drawn
    parts: dict[Hashable, Part]
    is_ordered: dict[Hashable, bool]
    parents: dict[Hashable, Hashable]
    recipes: list[Recipe]


def _plan(whole: pd.DataFrame, kinds: Mapping[Hashable, str], who: IntArray, derive: bool) -> _Plan:
    """Find the columns that follow from others, and the levels of all other columns."""
    declared = {name for name, c in whole.items() if kinds.get(name) == "categorical" and has_order(c.dtype)}
    recipes = find_recipes(whole.drop(columns=list(declared))) if derive else []
    apart = take_apart(whole, recipes)
    parents: dict[Hashable, Hashable] = {}
    exact = set(declared)
    if derive:
        drawn = drawn_columns(apart, recipes)
        candidates = {name: drawn[name] for name in drawn if name in declared or _may_be_code(drawn[name])}
        classes = find_classes(drawn, {name: value_codes(column) for name, column in candidates.items()})
        parents, recipes = classes.parents, [*classes.lookups, *recipes]
        exact |= {*parents, *parents.values(), *(lookup.source for lookup in classes.lookups)}
    frame = drawn_columns(apart, recipes)
    parts = {name: _part(name, column, who, name in exact) for name, column in frame.items()}
    is_ordered = {
        name: not isinstance(part, Levels) or (name not in declared and _is_ordered(frame[name]))
        for name, part in parts.items()
    }
    return _Plan(apart, frame, parts, is_ordered, parents, recipes)


def _may_be_code(column: pd.Series) -> bool:
    """Whether a column may determine others: categories, or not too many different whole numbers."""
    if not has_order(column.dtype):
        return True
    return column.nunique() <= min(_MOST_VALUES, len(column) // 5)


def _is_ordered(column: pd.Series) -> bool:
    return has_order(column.dtype) or (isinstance(column.dtype, pd.CategoricalDtype) and column.dtype.ordered)


def _part(name: Hashable, column: pd.Series, who: IntArray, is_exact: bool) -> Part:
    ranges = NumberRanges.fit(column, who) if has_order(column.dtype) and not is_exact else None
    return Levels.fit(str(name), column) if ranges is None else ranges


def _joined(X: pd.DataFrame, y: pd.DataFrame | None, label_place: int | None) -> pd.DataFrame:
    """Return features and labels side by side, the labels at their place."""
    if not len(X):
        raise DataError("The law of rows needs rows to be fitted to; this table is empty.")
    whole = X.reset_index(drop=True)
    if y is not None:
        place = X.shape[1] if label_place is None else label_place
        whole = pd.concat([whole.iloc[:, :place], y.reset_index(drop=True), whole.iloc[:, place:]], axis=1)
    if whole.columns.has_duplicates:
        name = whole.columns[whole.columns.duplicated()][0]
        raise DataError(f"Column {name!r} is a feature and the label: a row that is drawn has both; rename one.")
    return whole


def _target(name: Hashable, plan: _Plan, codes: dict[Hashable, IntArray], who: IntArray) -> Target:
    """Return the column that a tree predicts."""
    part = plan.parts[name]
    parent = codes[plan.parents[name]] if name in plan.parents else None
    return Target(_without_own(name, codes[name], part, who), len(part), plan.is_ordered[name], parent)


def _fit_trees(
    targets: list[Target],
    predictors: list[Predictor],
    who: IntArray,
    random_state: int,
    show: ShowProgress | None,
) -> list[ColumnTree]:
    """Fit the tree of every column, on the coordinates and on the columns before it, several at a time."""
    persons = 1 / np.bincount(who)[who]
    candidates = _candidates(predictors, len(targets))

    def fit(place: int) -> ColumnTree:
        return ColumnTree.fit(targets[place], predictors, candidates[place], persons, random_state)

    trees: dict[int, ColumnTree] = {}
    # scikit-learn grows trees without Python's lock. The last trees take longest, and are begun first.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2) as pool:
        waiting = {pool.submit(fit, place): place for place in reversed(range(len(targets)))}
        for future in as_completed(waiting):
            trees[waiting[future]] = future.result()
            if show is not None:
                show(len(trees), len(targets), "columns")
    return [trees[place] for place in range(len(targets))]


def _candidates(predictors: list[Predictor], n_columns: int) -> list[list[int]]:
    """Return the predictors that the tree of each column may split.

    These are the main coordinates of the cell, its coordinate in the column itself, and the columns before, or those of
    them that correlate most with the column.
    """
    first = len(predictors) - n_columns  # number of coordinates
    of_all = list(range(first - n_columns))
    before = [list(range(first, first + place)) for place in range(n_columns)]
    if n_columns > _MOST_CANDIDATES:
        rows = slice(None, None, max(1, len(predictors[0].codes) // _ROWS_COMPARED))
        x = np.stack([predictor.codes[rows] for predictor in predictors[first:]]).astype(np.float32)
        x -= x.mean(axis=1, keepdims=True)
        x /= np.maximum(np.sqrt((x**2).sum(axis=1, keepdims=True)), 1e-9)
        for place in range(n_columns):
            strength = np.abs(x[:place] @ x[place])
            best = np.argsort(-strength, kind="stable")[: _MOST_CANDIDATES // 2]
            before[place] = sorted((first + best).tolist())
    return [[*of_all, len(of_all) + place, *before[place]] for place in range(n_columns)]


def _taken(
    plan: _Plan,
    codes: dict[Hashable, IntArray],
    labels: Sequence[Hashable],
    who: IntArray,
    key: Secret,
) -> Hashes:
    """Return the hashes of the rows that only one person has, with or without the label."""
    places = {
        name: part.places(plan.frame[name]) if isinstance(part, NumberRanges) else codes[name]
        for name, part in plan.parts.items()
    }
    hashes = _row_hashes(_identity(places, dict(plan.apart.items()), plan.recipes), labels, key)
    return np.unique(np.concatenate([_held_by_one(found, who) for found in hashes]))


def _coordinates(codes: dict[Hashable, IntArray], plan: _Plan, cells: IntArray, n_cells: int) -> IntArray:
    """Return the rank of each cell in the main directions in which cells differ, then in that of every column."""
    counts = np.maximum(np.bincount(cells, minlength=n_cells), 1)
    of_columns = []
    for name, code in codes.items():
        features = _features(code, len(plan.parts[name]), plan.is_ordered[name])
        of_columns.append(np.stack([np.bincount(cells, feature, n_cells) / counts for feature in features], axis=1))
    main = _main_directions(np.concatenate(of_columns, axis=1), counts, _COORDINATES)
    values = np.column_stack([main, *(_main_directions(means, counts, 1) for means in of_columns)])
    return np.stack([np.unique(value.round(9), return_inverse=True)[1] for value in values.T], axis=1)


def _main_directions(means: FloatArray, counts: IntArray, n: int) -> FloatArray:
    """Return the coordinates of cells in the directions in which their means differ most, shape (n_cells, n)."""
    _, _, directions = np.linalg.svd(means * np.sqrt(counts)[:, None], full_matrices=False)
    found = means @ directions[:n].T
    return np.pad(found, [(0, 0), (0, n - found.shape[1])])


def _features(code: IntArray, n_levels: int, is_ordered: bool) -> Iterator[FloatArray]:
    """Yield a column as standardised numbers, whose variances add up to 1."""
    shares = np.bincount(code, minlength=n_levels) / len(code)
    if is_ordered:
        rank = np.cumsum(shares) - shares / 2
        spread = np.sqrt(shares @ (rank - shares @ rank) ** 2)
        yield ((rank - shares @ rank) / (spread if spread > 0 else 1))[code]
        return
    scale = np.sqrt((shares * (1 - shares)).sum())
    for level in np.argsort(-shares, kind="stable")[: _MOST_LEVELS if n_levels > 2 else 1]:
        yield ((code == level) - shares[level]) / (scale if scale > 0 else 1)


def _drawing_order(plan: _Plan, first: Sequence[Hashable]) -> list[Hashable]:
    """Return the columns in the order in which they are drawn: a class before its codes, few levels before many."""
    for name in first:
        check_known(name, plan.frame.columns, "drawn")
    waiting = [
        *first,
        *sorted(set(plan.parts) - set(first), key=lambda name: (len(plan.parts[name]), list(plan.parts).index(name))),
    ]
    order: list[Hashable] = []
    while waiting:
        name = next(name for name in waiting if plan.parents.get(name) not in waiting)
        waiting.remove(name)
        order.append(name)
    return order


def _without_own(name: Hashable, codes: IntArray, part: Part, who: IntArray) -> IntArray:
    """Return levels with −1 for a category that only one person has."""
    if not isinstance(part, Levels):
        return codes
    somebody = np.zeros(len(part), dtype=who.dtype)
    somebody[codes] = who
    is_shared = np.bincount(codes, who != somebody[codes], minlength=len(part)) > 0
    if not is_shared.any():
        raise DataError(
            f"Column {name!r} has a different value for every person, so that every value tells who it is: leave the "
            "column out."
        )
    return np.where(is_shared[codes], codes, -1)


def _limits(values: FloatArray, who: IntArray) -> tuple[float, float]:
    """Return the smallest and the largest value, but for those that only one person has."""
    is_known = ~np.isnan(values)
    values, who = values[is_known], who[is_known]
    if not len(values):
        return -np.inf, np.inf
    found = []
    for extreme, next_to in ((values.min(), np.min), (values.max(), np.max)):
        at = values == extreme
        alone = len(np.unique(who[at])) == 1 and not at.all()
        found.append(float(next_to(values[~at])) if alone else float(extreme))
    return found[0], found[1]


def _identity(places: Mapping[Hashable, Places], columns: Columns, recipes: Sequence[Recipe]) -> dict[Hashable, Places]:
    """Return the numbers that tell rows apart: places of columns that are drawn, values of computed numbers.

    The rest of a formula is left out, because its rounding is not part of a row.
    """
    formulas = [recipe for recipe in recipes if isinstance(recipe, Formula)]
    rests = {recipe.helper for recipe in formulas}
    return {n: place for n, place in places.items() if n not in rests} | {
        r.column: floats(columns[r.column]) for r in formulas
    }


def _row_hashes(identity: dict[Hashable, Places], labels: Sequence[Hashable], key: Secret) -> Iterator[Hashes]:
    """Yield a keyed hash of the features of every row, and of the whole row where it has a label."""
    names = [*(name for name in identity if name not in labels), *(name for name in identity if name in labels)]
    n_features = sum(name not in labels for name in names)
    factors = keyed_hashes([f"column {d}" for d in range(len(names))], key, "row") | np.uint64(1)
    mixed = np.zeros(len(next(iter(identity.values()))), dtype=np.uint64)
    for d, name in enumerate(names):
        place = identity[name]
        bits = (place + 0.0).view(np.uint64) if place.dtype.kind == "f" else place.astype(np.int64).view(np.uint64)
        mixed = (mixed ^ bits) * factors[d]
        mixed ^= mixed >> np.uint64(29)
        if d + 1 in (n_features, len(names)):
            yield mixed.copy()


def _held_by_one(hashes: Hashes, who: IntArray) -> Hashes:
    """Return the hashes of the rows that only one person has, once or several times."""
    order = np.lexsort([who, hashes])
    hashes, who = hashes[order], who[order]
    starts = np.concatenate([[True], hashes[1:] != hashes[:-1]])
    first = np.flatnonzero(starts)
    last = np.append(first[1:], len(hashes)) - 1
    return hashes[first][who[first] == who[last]]


def _replaced(rows: pd.DataFrame, places: IntArray, new: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with new ones at some places."""
    order = np.arange(len(rows))
    order[places] = len(rows) + np.arange(len(places))
    return pd.concat([rows, new], ignore_index=True).iloc[order].reset_index(drop=True)


def _checked_cells(cells: npt.ArrayLike, n_cells: int) -> IntArray:
    cells = np.asarray(cells)
    if cells.ndim != 1 or cells.dtype.kind not in "iu":
        raise DataError(f"Cells must be whole numbers, one per row; got {cells.dtype} of shape {cells.shape}.")
    if len(cells) and not 0 <= cells.min() <= cells.max() < n_cells:
        raise DataError(f"Cells must be in 0 … {n_cells - 1}; got {cells.min()} … {cells.max()}.")
    return cells.astype(np.int64)

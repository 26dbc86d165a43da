"""ColumnTree: the law of one column given other columns, by a decision tree that is kept as plain arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from fairflows.encoder.scores import ThresholdTrees
from fairflows.release.number_ranges import FEWEST_PERSONS

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
SmallArray = npt.NDArray[np.unsignedinteger]

_MOST_PREDICTORS = 32
_MOST_DEPTH = 24
_MOST_CLASSES = 24  # of a classification tree: its time grows with them
_FREQUENT = 0.02  # share of the rows from which on a value of a number is marked
_PROFILES = 6  # numbers that describe a category of a longer list
_MOST_LEVELS = 64  # of a predictor, while predictors are compared
_MANY_LEVELS = 8  # a longer list of categories is offered in two orders
_ROWS_COMPARED = 10_000
_ROWS_GROWN = 60_000


@dataclass(frozen=True)
class Predictor:
    """A column, or a coordinate of cells, as whole numbers that a tree may split."""

    codes: IntArray  # (n_rows,)
    n_levels: int
    is_ordered: bool


@dataclass(frozen=True)
class Target:
    """The column that a tree predicts."""

    codes: IntArray  # (n_rows,); −1 for a level that is never drawn
    n_levels: int
    is_ordered: bool
    parent: IntArray | None = None  # (n_rows,): class of the level, where another column holds the class


@dataclass(frozen=True)
class Frequencies:
    """How often each level occurs in each leaf; leaf −1 stands for all rows.

    Where another column holds the class of the level, the leaf is divided by that class, unless fewer than ten persons
    remain; all rows are divided by it in any case.
    """

    n_classes: int  # 1 where no other column holds the class of the level
    key: SmallArray  # (n_keys,): (leaf + 1) · n_classes + class, sorted
    start: SmallArray  # (n_keys + 1,): first entry of each key
    level: SmallArray  # (n_entries,)
    count: SmallArray  # (n_entries,): number of rows

    @classmethod
    def fit(cls, leaf: IntArray, target: Target, persons: FloatArray) -> Frequencies:
        """Count the levels in each leaf; `persons` is the inverse number of rows of the person of each row."""
        n_classes = 1 if target.parent is None else int(target.parent.max(initial=0)) + 1
        part = np.zeros(len(leaf), dtype=np.int64) if target.parent is None else target.parent
        in_leaf, in_all = (leaf + 1) * n_classes + part, part
        if target.parent is not None:
            of_key, number = np.unique(in_leaf, return_inverse=True)
            is_large = np.bincount(number, persons, len(of_key)) >= FEWEST_PERSONS - 0.5
            in_leaf = np.where(is_large[number], in_leaf, in_all)
        is_drawn = target.codes >= 0
        keys = np.concatenate([in_leaf[is_drawn & (in_leaf >= n_classes)], in_all[is_drawn]])
        levels = np.concatenate([target.codes[is_drawn & (in_leaf >= n_classes)], target.codes[is_drawn]])
        pair, count = np.unique(keys * target.n_levels + levels, return_counts=True)
        key, level = np.divmod(pair, target.n_levels)
        key, start = np.unique(key, return_index=True)
        return cls(n_classes, _small(key), _small(np.append(start, len(pair))), _small(level), _small(count))

    def draw(self, leaf: IntArray, parent: IntArray | None, generator: np.random.Generator) -> IntArray:
        """Draw a level from each of these leaves, of the class that another column says."""
        part = np.zeros(len(leaf), dtype=np.int64) if parent is None else parent
        place, is_known = self._find((leaf + 1) * self.n_classes + part)
        place = np.where(is_known, place, self._find(part)[0])
        begin, end = self._total[self.start[place]], self._total[self.start[place + 1]]
        row = begin + np.minimum((generator.random(len(leaf)) * (end - begin)).astype(np.int64), end - begin - 1)
        return self.level[np.searchsorted(self._total, row, side="right") - 1].astype(np.int64)

    def _find(self, key: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        place = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return place, self.key[place] == key

    @cached_property
    def _total(self) -> IntArray:
        """Number of rows before each entry."""
        return np.concatenate([[0], np.cumsum(self.count, dtype=np.int64)])


@dataclass(frozen=True)
class ColumnTree:
    """The law of one column given the predictors, which are numbered.

    A category of a predictor is replaced by its place in an order: the order of the rates of the predicted column.
    """

    predictors: IntArray  # (n_features,): predictor behind each feature
    orders: list[IntArray | None]  # per feature, the place of each level in its order; None where levels have an order
    trees: ThresholdTrees  # one tree
    frequencies: Frequencies

    @classmethod
    def fit(
        cls,
        target: Target,
        predictors: Sequence[Predictor],
        candidates: Sequence[int],
        persons: FloatArray,
        random_state: int,
    ) -> ColumnTree:
        """Grow the tree on some rows, then count levels over all rows.

        `candidates` are the numbers of the predictors that the tree may split, `persons` is the inverse number of rows
        of the person of each row.
        """
        generator = np.random.default_rng(random_state)
        rows = np.flatnonzero(target.codes >= 0)
        if len(rows) > _ROWS_GROWN:
            rows = np.sort(generator.choice(rows, _ROWS_GROWN, replace=False))
        described = _described(target, [predictors[number] for number in candidates], rows)
        chosen = _most_telling(described, predictors, candidates, rows)
        features: list[int] = []
        orders: list[IntArray | None] = []
        for number in chosen:
            for order in _orders(described, predictors[number], rows):
                features.append(number)
                orders.append(order)
        trees = _grown(described, _matrix(predictors, features, orders, rows), persons[rows], random_state)
        leaf = np.empty(len(target.codes), dtype=np.int64)
        for part in np.array_split(np.arange(len(leaf)), len(leaf) // 2**15 + 1):
            leaf[part] = trees.leaves(_matrix(predictors, features, orders, part).astype(np.float64))[0]
        return cls(np.array(features, dtype=np.int64), orders, trees, Frequencies.fit(leaf, target, persons))

    def draw(self, codes: Sequence[IntArray], parent: IntArray | None, generator: np.random.Generator) -> IntArray:
        """Draw a level for each row, given the codes of all predictors."""
        n = len(codes[0])
        x = np.empty((n, len(self.predictors)))
        for j, (number, order) in enumerate(zip(self.predictors, self.orders, strict=True)):
            x[:, j] = codes[number] if order is None else order[codes[number]]
        return self.frequencies.draw(self.trees.leaves(x)[0], parent, generator)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values and arrays: features and thresholds are small whole numbers."""
        return {
            "predictors": _small(self.predictors),
            "orders": [None if order is None else _small(order) for order in self.orders],
            "feature": _small(self.trees.feature),
            "threshold": _small(self.trees.threshold.astype(np.int64)),
            "right": _small(self.trees.children[:, 0]),
            "left": _small(self.trees.children[:, 1]),
            "frequencies": self.frequencies,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> ColumnTree:
        """Return the tree that `to_dict` described."""
        feature, right, left = (state[name].astype(np.intp) for name in ("feature", "right", "left"))
        trees = ThresholdTrees(
            feature,
            state["threshold"].astype(np.float64),
            np.zeros(len(feature), dtype=bool),
            np.stack([right, left], axis=1),
            np.zeros(1, dtype=np.intp),
        )
        orders = [None if order is None else order.astype(np.int64) for order in state["orders"]]
        return cls(state["predictors"].astype(np.int64), orders, trees, state["frequencies"])

    def draw_from_all(self, parent: IntArray | None, n: int, generator: np.random.Generator) -> IntArray:
        """Draw levels from the law of all rows."""
        return self.frequencies.draw(np.full(n, -1), parent, generator)


def _described(target: Target, predictors: Sequence[Predictor], rows: IntArray) -> FloatArray | IntArray:
    """Return what the tree predicts at some rows: a class, or several numbers, shape (n_rows,) or (n_rows, n)."""
    codes = target.codes[rows]
    if target.n_levels <= _MOST_CLASSES:
        return codes
    if target.is_ordered:
        return _ranks(codes, target.n_levels)[codes]
    return _profiles(codes, target.n_levels, predictors, rows)[codes]


def _ranks(codes: IntArray, n_levels: int) -> FloatArray:
    """Describe each level by its rank, and mark the two most frequent ones: many rows may be zero, or missing."""
    shares = np.bincount(codes, minlength=n_levels) / len(codes)
    rank = np.cumsum(shares) - shares / 2
    spread = np.sqrt(shares @ (rank - 0.5) ** 2)
    columns = [rank / spread]
    for level in np.argsort(-shares, kind="stable")[:2]:
        if shares[level] > _FREQUENT:
            columns.append((np.arange(n_levels) == level) / np.sqrt(shares[level] * (1 - shares[level])))
    return np.stack(columns, axis=1)


def _profiles(codes: IntArray, n_levels: int, predictors: Sequence[Predictor], rows: IntArray) -> FloatArray:
    """Describe each level by a few numbers: the main directions in which its rows differ in the predictors."""
    columns = [_standardised(p.codes[rows]) for p in predictors if p.is_ordered or p.n_levels <= 2]
    for p in predictors:
        if not p.is_ordered and p.n_levels > 2:
            frequent = np.argsort(-np.bincount(p.codes[rows], minlength=p.n_levels))[:_MOST_CLASSES]
            columns += [_standardised(p.codes[rows] == level) for level in frequent]
    counts = np.bincount(codes, minlength=n_levels)
    sums = np.stack([np.bincount(codes, column, n_levels) for column in columns], axis=1)
    means = sums / (counts[:, None] + FEWEST_PERSONS)  # rare levels are drawn towards the mean, which is 0
    _, _, directions = np.linalg.svd(means * np.sqrt(counts)[:, None], full_matrices=False)
    return means @ directions[:_PROFILES].T


def _standardised(values: npt.NDArray) -> FloatArray:
    values = values - values.mean()
    spread = np.sqrt(np.mean(values**2))
    return values / spread if spread > 0 else values


def _as_numbers(described: FloatArray | IntArray) -> FloatArray:
    """Return classes as indicators, and several numbers as they are."""
    if described.ndim == 2:
        return described.astype(np.float64, copy=False)
    indicators = np.eye(int(described.max(initial=0)) + 1)[described]
    return indicators[:, 1:] if indicators.shape[1] == 2 else indicators


def _most_telling(
    described: FloatArray | IntArray, predictors: Sequence[Predictor], candidates: Sequence[int], rows: IntArray
) -> list[int]:
    """Return the candidates that explain most of the variance of the described column, in their order."""
    if len(candidates) <= _MOST_PREDICTORS:
        return list(candidates)
    some = slice(None, None, max(1, len(rows) // _ROWS_COMPARED))
    y = _as_numbers(described[some])
    y = y - y.mean(axis=0)
    explained = []
    for predictor in (predictors[number] for number in candidates):
        codes = predictor.codes[rows[some]]
        if predictor.n_levels > _MOST_LEVELS:
            codes = _merged(codes, predictor.is_ordered)
        counts = np.bincount(codes)
        sums = np.stack([np.bincount(codes, column) for column in y.T])
        # Each level explains as much as one row's variance by chance alone.
        by_chance = (y**2).sum() / len(y) * np.count_nonzero(counts)
        explained.append((sums**2 / np.maximum(counts, 1)).sum() - by_chance)
    best = np.argsort(-np.array(explained), kind="stable")[:_MOST_PREDICTORS]
    return sorted(candidates[place] for place in best)


def _merged(codes: IntArray, is_ordered: bool) -> IntArray:
    """Return fewer levels: ranges of ordered ones, or the most frequent ones and all others."""
    if is_ordered:
        return np.searchsorted(np.unique(np.quantile(codes, np.linspace(0, 1, _MOST_LEVELS)[1:-1])), codes)
    place = np.empty(codes.max() + 1, dtype=np.int64)
    place[np.argsort(-np.bincount(codes), kind="stable")] = np.arange(len(place))
    return np.minimum(place, _MOST_LEVELS - 1)[codes]


def _orders(described: FloatArray | IntArray, predictor: Predictor, rows: IntArray) -> list[IntArray | None]:
    """Return the orders in which the levels of a predictor are offered to the tree."""
    if predictor.is_ordered or predictor.n_levels <= 2:
        return [None]
    codes, y = predictor.codes[rows], _as_numbers(described)
    counts = np.bincount(codes, minlength=predictor.n_levels)
    sums = np.stack([np.bincount(codes, column, predictor.n_levels) for column in (y - y.mean(axis=0)).T], axis=1)
    means = sums / np.maximum(counts, 1)[:, None]
    _, _, directions = np.linalg.svd(means * np.sqrt(counts)[:, None], full_matrices=False)
    n_orders = min(len(directions), 1 if predictor.n_levels <= _MANY_LEVELS else 2)
    return [np.argsort(np.argsort(means @ direction, kind="stable")) for direction in directions[:n_orders]]


def _matrix(
    predictors: Sequence[Predictor], features: list[int], orders: list[IntArray | None], rows: IntArray
) -> npt.NDArray[np.float32]:
    """Return the features of some rows, shape (n_rows, n_features)."""
    x = np.empty((len(rows), len(features)), dtype=np.float32)
    for j, (number, order) in enumerate(zip(features, orders, strict=True)):
        codes = predictors[number].codes[rows]
        x[:, j] = codes if order is None else order[codes]
    return x


def _grown(
    described: FloatArray | IntArray, x: npt.NDArray[np.float32], persons: FloatArray, random_state: int
) -> ThresholdTrees:
    """Grow a tree in which every leaf holds at least ten persons."""
    if not x.shape[1] or persons.sum() < 2 * FEWEST_PERSONS:
        return _single_leaf()
    kind = DecisionTreeClassifier if described.ndim == 1 else DecisionTreeRegressor
    several = bool((persons < 1).any())
    tree = (
        kind(
            min_samples_leaf=FEWEST_PERSONS,
            min_weight_fraction_leaf=(FEWEST_PERSONS - 0.5) / persons.sum() if several else 0.0,
            max_depth=_MOST_DEPTH,
            random_state=random_state,
        )
        .fit(x, described, sample_weight=persons if several else None)
        .tree_
    )
    is_leaf, itself = tree.children_left < 0, np.arange(tree.node_count)
    children = [np.where(is_leaf, itself, side) for side in (tree.children_right, tree.children_left)]
    return ThresholdTrees(
        np.where(is_leaf, 0, tree.feature).astype(np.intp),
        np.where(is_leaf, 0.0, np.floor(tree.threshold)),  # features are whole numbers
        np.zeros(tree.node_count, dtype=bool),
        np.stack(children, axis=1),
        np.zeros(1, dtype=np.intp),
    )


def _single_leaf() -> ThresholdTrees:
    """Return a tree without a split."""
    nothing = np.zeros(1, dtype=np.intp)
    return ThresholdTrees(nothing, np.zeros(1), np.zeros(1, dtype=bool), np.zeros((1, 2), dtype=np.intp), nothing)


def _small(values: IntArray) -> SmallArray:
    """Return whole numbers in the smallest type that holds them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))

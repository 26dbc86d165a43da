"""ColumnTrees: the law of one column given other columns, by decision trees that are kept as plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from fairflows.bounds.cells import FEWEST_PERSONS
from fairflows.encoder.base import FloatArray, IntArray

_MOST_PREDICTORS = 32
_MOST_DEPTH = 24
_FEWEST_OF_PART = 20  # persons of a leaf of a tree that is grown on a part of them
_SHARE_OF_ROWS = 0.5  # of the rows of so many persons, which a leaf has at least, where persons have several
_MOST_CLASSES = 24  # of a classification tree: its time grows with them
_FREQUENT = 0.02  # share of the rows from which on a value of a number is marked
_PROFILES = 6  # numbers that describe a category of a longer list
_MANY_LEVELS = 8  # a longer list of categories is offered in two orders
_ROWS_COMPARED = 10_000
_ROWS_GROWN = 60_000
_VALUES_GROWN = 6_000_000  # rows times predictors: trees of wide tables are grown on fewer rows
_STEPS = 4  # down the tree before rows that have reached a leaf are left out


@dataclass(frozen=True)
class Predictor:
    """A column, or a coordinate of cells, as whole numbers that a tree may split."""

    codes: IntArray  # (n_rows,); of a column that is predicted, −1 for a level that is never drawn
    n_levels: int
    is_ordered: bool


@dataclass(frozen=True)
class ColumnTrees:
    """The law of one column given the predictors, which are numbered.

    It is that of a tree, or of several of which every draw takes one at random. A node compares the place of a
    predictor's level with a threshold. Numbers have their own order; the categories of a predictor are ordered by the
    rates of the predicted column. The children of a leaf are the leaf itself.

    Each leaf holds the frequencies of levels. All attributes are arrays of whole numbers.
    """

    root: IntArray  # (n_trees,): the first node of each tree
    predictor: IntArray  # (n_nodes,)
    order: IntArray  # (n_nodes,): where the places of the predictor's levels begin in `place`
    threshold: IntArray  # (n_nodes,): at most this place is on the left
    child: IntArray  # (2 · n_nodes,): the node on the right, then the node on the left
    place: IntArray  # place of each level in each order
    start: IntArray  # (n_nodes + 2,): number of counted rows before each node; the last "node" stands for all rows
    level: IntArray  # (n_entries,)
    total: IntArray  # (n_entries,): number of counted rows up to the end of each entry

    @classmethod
    def fit(
        cls,
        target: Predictor,
        predictors: Sequence[Predictor],
        candidates: Sequence[int],
        persons: IntArray,
        parts: Sequence[npt.NDArray[np.bool_]],
        random_state: int,
    ) -> ColumnTrees:
        """Grow a tree on each part of the rows, then count levels over all rows.

        `candidates` are the numbers of the predictors that trees may split, `persons` is the number of the person of
        each row.
        """
        rows = np.flatnonzero(target.codes >= 0)
        n_grown = max(min(_ROWS_GROWN, _VALUES_GROWN // len(predictors)), _ROWS_COMPARED)
        if len(rows) > n_grown:
            rows = np.sort(np.random.default_rng(random_state).choice(rows, n_grown, replace=False))
        described = _described(target, [predictors[number] for number in candidates], rows)
        y = _as_numbers(described)
        features = [
            (number, order)
            for number in _most_telling(y, predictors, candidates, rows)
            for order in _orders(y, predictors[number], rows)
        ]
        x = np.empty((len(rows), len(features)), dtype=np.float32)
        for j, (number, order) in enumerate(features):
            x[:, j] = order[predictors[number].codes[rows]]
        fewest = FEWEST_PERSONS if len(parts) == 1 else _FEWEST_OF_PART
        grown = []
        for on in (part[rows] for part in parts):
            grown.append(_grown(described[on], x[on], persons[rows[on]], fewest, random_state))
        root = np.cumsum([0, *(len(threshold) for _, threshold, _ in grown)])
        feature, threshold = (np.concatenate([tree[i] for tree in grown]) for i in range(2))
        child = np.concatenate([tree[2] + first for tree, first in zip(grown, root, strict=False)])
        predictor = np.array([number for number, _ in features])[feature]
        order = np.cumsum([0, *(len(order) for _, order in features)])[feature]
        place, nothing = np.concatenate([order for _, order in features]), np.empty(0, dtype=np.int64)
        trees = cls(root[:-1], predictor, order, threshold, child, place, nothing, nothing, nothing)
        leaf = np.empty((len(trees.root), len(target.codes)), dtype=np.int64)
        for some in np.array_split(np.arange(leaf.shape[1]), leaf.shape[1] // 2**15 + 1):
            known = np.stack([predictor.codes[some] for predictor in predictors[: int(trees.predictor.max()) + 1]])
            for leaves, first in zip(leaf, trees.root, strict=True):
                leaves[some] = trees.leaves(known, np.full(len(some), first))
        return replace(trees, **_frequencies(leaf, target, len(trees.threshold)))

    def draw(self, known: IntArray | None, n: int, generator: np.random.Generator) -> IntArray:
        """Draw levels for n rows, given the codes of the predictors (`leaves`); None for the law of all rows."""
        if known is None:
            leaf = np.full(n, len(self.threshold))
        else:
            leaf = self.leaves(known, self.root.take(generator.integers(len(self.root), size=n)))
        begin, end = self.start.take(leaf), self.start.take(leaf + 1)
        row = begin + (generator.random(n) * (end - begin)).astype(np.int64)
        return self.level.take(self.total.searchsorted(row, side="right"))

    def leaves(self, known: IntArray, root: IntArray) -> IntArray:
        """Return the leaf of each row below a root, given the codes of the predictors, shape (n_predictors, n_rows)."""
        n = known.shape[1]
        codes, first = known.ravel(), self.predictor * n
        node, row = root, np.arange(n)
        reached, waiting = node.copy(), row
        while len(row):
            for _ in range(_STEPS):
                before = node
                found = self.place.take(self.order.take(node) + codes.take(first.take(node) + row))
                node = self.child.take(2 * node + (found <= self.threshold.take(node)))
            reached[waiting] = node
            goes_on = (node != before).nonzero()[0]
            node, row, waiting = node.take(goes_on), row.take(goes_on), waiting.take(goes_on)
        return reached


def _frequencies(leaf: IntArray, target: Predictor, n_nodes: int) -> dict[str, IntArray]:
    """Count the levels in each leaf, and in all rows, which come last."""
    is_drawn = target.codes >= 0
    level = target.codes[is_drawn]
    node = np.concatenate([leaf[:, is_drawn], np.full((1, len(level)), n_nodes)])
    pair, count = np.unique(node * target.n_levels + level, return_counts=True)
    total = np.cumsum(count)
    entry = np.searchsorted(pair, np.arange(n_nodes + 2) * target.n_levels)
    return {"start": np.append(0, total)[entry], "level": pair % target.n_levels, "total": total}


def _grown(
    described: FloatArray | IntArray, x: npt.NDArray[np.float32], persons: IntArray, fewest: int, random_state: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Return feature, threshold and children of the nodes of a tree whose leaves hold at least so many persons each.

    A leaf may hold a few of the rows of each of its persons: a split that leaves too few persons is taken back.
    """
    each = np.bincount(persons)
    n_persons = np.count_nonzero(each)
    if n_persons < 2 * fewest:
        return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(2, dtype=np.int64)
    kind = DecisionTreeClassifier if described.ndim == 1 else DecisionTreeRegressor
    several = n_persons < len(persons)
    model = kind(
        min_samples_leaf=fewest,
        min_weight_fraction_leaf=_SHARE_OF_ROWS * fewest / n_persons if several else 0.0,
        max_depth=_MOST_DEPTH,
        random_state=random_state,
    )
    tree = model.fit(x, described, sample_weight=1 / each[persons] if several else None).tree_
    is_leaf, itself = tree.children_left < 0, np.arange(tree.node_count)
    if several:
        n_at = _persons_at(model.decision_path(x), persons, tree.weighted_n_node_samples < fewest)
        is_leaf |= (n_at[tree.children_left] < fewest) | (n_at[tree.children_right] < fewest)
    children = [np.where(is_leaf, itself, side) for side in (tree.children_right, tree.children_left)]
    threshold = np.where(is_leaf, 0, np.floor(tree.threshold)).astype(np.int64)  # features are whole numbers
    return np.where(is_leaf, 0, tree.feature), threshold, np.stack(children, axis=1).ravel()


def _persons_at(path: csr_matrix, persons: IntArray, is_asked: npt.NDArray[np.bool_]) -> FloatArray:
    """Return how many persons have rows at some nodes, given the nodes of each row; infinity at the others."""
    node, person = path.indices, np.repeat(persons, np.diff(path.indptr))
    asked = is_asked[node]
    pairs = np.unique(node[asked].astype(np.int64) * (int(persons.max()) + 1) + person[asked])
    n_at = np.bincount(pairs // (int(persons.max()) + 1), minlength=len(is_asked))
    return np.where(is_asked, n_at, np.inf)


def _described(target: Predictor, predictors: Sequence[Predictor], rows: IntArray) -> FloatArray | IntArray:
    """Return the prediction of the tree at some rows: a class or numbers, (n_rows,) or (n_rows, n)."""
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
    columns = []
    for p in predictors:
        if p.is_ordered or p.n_levels <= 2:
            columns.append(standardised(p.codes[rows]))
        else:
            frequent = np.argsort(-np.bincount(p.codes[rows], minlength=p.n_levels))[:_MOST_CLASSES]
            columns += [standardised(p.codes[rows] == level) for level in frequent]
    return main_directions(level_means(codes, n_levels, columns, FEWEST_PERSONS), codes, _PROFILES)


def standardised(values: npt.NDArray) -> FloatArray:
    """Return values with mean 0 and standard deviation 1."""
    values = values - values.mean()
    return values / (np.sqrt(np.mean(values**2)) or 1)


def level_means(codes: IntArray, n_levels: int, columns: Sequence[FloatArray], prior: int = 0) -> FloatArray:
    """Return the means of columns in each level; rare levels are drawn towards 0, as if by so many more rows."""
    sums = np.stack([np.bincount(codes, column, n_levels) for column in columns], axis=1)
    return sums / np.maximum(np.bincount(codes, minlength=n_levels) + prior, 1)[:, None]


def main_directions(means: FloatArray, codes: IntArray, n: int) -> FloatArray:
    """Return the coordinates of levels in the n directions in which their means differ most, shape (n_levels, n)."""
    weighted = means * np.sqrt(np.bincount(codes, minlength=len(means)))[:, None]
    directions = np.linalg.eigh(weighted.T @ weighted)[1][:, ::-1][:, : min(n, len(means))]
    found = means @ directions
    return np.pad(found, [(0, 0), (0, n - found.shape[1])])


def _as_numbers(described: FloatArray | IntArray) -> FloatArray:
    """Return classes as indicators, and several numbers as they are, minus their means."""
    if described.ndim == 1:
        indicators = np.eye(int(described.max(initial=0)) + 1)[described]
        described = indicators[:, 1:] if indicators.shape[1] == 2 else indicators
    return described - described.mean(axis=0)


def _most_telling(
    y: FloatArray, predictors: Sequence[Predictor], candidates: Sequence[int], rows: IntArray
) -> list[int]:
    """Return the candidates that explain most of the variance of the described column, in their order."""
    if len(candidates) <= _MOST_PREDICTORS:
        return list(candidates)
    some = slice(None, None, max(1, len(rows) // _ROWS_COMPARED))
    y = y[some]
    explained = []
    for predictor in (predictors[number] for number in candidates):
        codes = predictor.codes[rows[some]]
        counts = np.bincount(codes, minlength=predictor.n_levels)
        # Each level explains as much as one row's variance by chance alone.
        by_chance = (y**2).mean(axis=0) * np.count_nonzero(counts)
        explained.append((counts @ level_means(codes, predictor.n_levels, list(y.T)) ** 2 - by_chance).sum())
    best = np.argsort(-np.array(explained), kind="stable")[:_MOST_PREDICTORS]
    return sorted(candidates[place] for place in best)


def _orders(y: FloatArray, predictor: Predictor, rows: IntArray) -> list[IntArray]:
    """Return the orders in which the levels of a predictor are offered to the tree: the place of each level."""
    if predictor.is_ordered or predictor.n_levels <= 2:
        return [np.arange(predictor.n_levels)]
    codes = predictor.codes[rows]
    means = level_means(codes, predictor.n_levels, list(y.T))
    coordinates = main_directions(means, codes, 1 if predictor.n_levels <= _MANY_LEVELS or len(y.T) == 1 else 2)
    return [np.argsort(np.argsort(coordinate, kind="stable")) for coordinate in coordinates.T]

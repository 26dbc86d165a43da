"""FairTree: cells for many purposes, each of which holds the same share of every group."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.utils import Tags

from fairflows.encoder.base import CELL, Cells, Encoder, FloatArray, IntArray, Traits
from fairflows.encoder.matched_tree import Coin, MatchedTree, StructureRows, TreeStructure, cut, grow
from fairflows.encoder.ranked_columns import PrincipalComponents
from fairflows.encoder.rows import Label, Rows, TrainingRows, known_label
from fairflows.encoder.scores import Score, ScoreColumn, check_columns, fit_score, score_columns
from fairflows.exceptions import DataError, check_count, warn_user
from fairflows.table.columns import own_types
from fairflows.table.keys import NEW_AT_EACH_FIT, KeySetting, content_hashes
from fairflows.table.persons import Persons, Places

_BOOSTING = {"max_iter": 40, "learning_rate": 0.2}  # as good as twice as many trees, which take twice as long to encode
# Rows that the label's score is learnt from, and those behind the scores that nodes are chosen by.
_MOST_SCORED, _MOST_CHOOSING = 100_000, 25_000
_ROWS_PER_CHUNK = 2**15
_MOST_COMPONENTS = 16
_RATES = 201  # lowest rates that are tried


@dataclass(eq=False, repr=False)
class FairTree(Encoder):
    """Encode rows as cells that keep much of the table and hold the same share of every group.

    Every node of a binary tree splits *each group at its own quantile* of one score. The score is the label's own, by
    gradient-boosted trees, or a principal component of the ranked columns: the one whose split explains most of the
    variance of the label and of all columns, where the label counts as much as all columns together. So the cells serve
    the label and other purposes.

    Scores and nodes are chosen on some persons, and thresholds are set on others, at one row of each. A row at a
    threshold goes left or right by a coin that belongs to the person. A row with a value that the tree cannot know (a
    new category, or a missing value where none was) has the score −∞ at every node, in every group. Encoding needs the
    sensitive attribute.

    Parameters
    ----------
    n_cells : int, default=64
        The number of cells.
    calibration : float or None, default=0.5
        The share of the persons that the thresholds are set on; the others choose scores and nodes. With None all
        persons choose, and `cut` sets the thresholds on others.
    spend : float, default=0.0
        Largest difference between the shares of the groups that the root sends to one side, for the sake of a label
        with two classes.
    kinds : dict of str to {"continuous", "discrete", "categorical"}, default=None
        The kinds of columns that should not be inferred.
    sensitive, identifier : str, default=None
        Columns of X that hold the sensitive attribute and name the person of a row; the identifier may be the index.
    key : bytes, default=None
        The secret behind the coins, at least 16 bytes; by default a new one at each fit.
    random_state : int, default=0
        Seed of the scores and of the split of persons.

    Attributes
    ----------
    structure_ : TreeStructure
        The score that each node splits, and the shares that go to the left.
    tree_ : MatchedTree
        The structure with the thresholds of each group.
    blocks_ : ndarray of shape (K, n_cells_)
        The blocks of each group in each cell (`fairflows.bounds.blocks_upper_bound`): the persons strictly inside of
        it, and one more.
    levels_ : ndarray of shape (n_cells_, n_targets)
        The mean of the first label in each cell.

    Examples
    --------
    >>> from fairflows import load_adult
    >>> tree = FairTree(n_cells=16).fit(load_adult())
    >>> tree.n_cells_, tree.blocks_.shape
    (16, (2, 16))
    """

    n_cells: int = 64
    _: KW_ONLY
    calibration: float | None = 0.5
    spend: float = 0.0
    kinds: Mapping[str, str] | None = None
    sensitive: str | list[str] | None = None
    identifier: str | None = None
    key: KeySetting = NEW_AT_EACH_FIT
    random_state: int = 0

    columns_: dict[Hashable, ScoreColumn] = field(init=False)
    label_: Label | None = field(init=False)
    levels_: FloatArray = field(init=False)
    scores_: TreeScores = field(init=False)
    structure_: TreeStructure = field(init=False)
    tree_: MatchedTree = field(init=False)
    blocks_: IntArray = field(init=False)

    @property
    def traits(self) -> Traits:
        """A coin of the person decides between two cells where the scores do not."""
        return replace(super().traits, randomised=True, strength="n_cells", cut_apart=True)

    def learn(self, rows: TrainingRows) -> None:
        """Choose scores and nodes on some persons, and set the thresholds on the others."""
        check_count("n_cells", self.n_cells, 1)
        if self.calibration is not None and not 0 < self.calibration < 1:
            raise DataError(f"calibration must be above 0 and below 1, or None; got {self.calibration!r}.")
        if not 0 <= self.spend < 1:
            raise DataError(f"spend must be a distance in [0, 1); got {self.spend!r}.")
        self.label_ = replace(rows.labels[0], values=np.empty(0)) if rows.labels else None
        self.output_ = CELL
        choosing, others = np.arange(len(rows.X)), None
        if self.calibration is not None:
            choosing, others = rows.persons.split(self.calibration, random_state=self.random_state)
            others = one_row_each(rows.X, rows.persons, others, self.most_rows_ or 1, self.random_state)
        self.columns_ = score_columns(own_types(rows.X.iloc[choosing]), rows.kinds)
        check_columns(rows.X, self.columns_, rows.outside)
        self._choose(rows, choosing, self._possible_cells(rows, choosing if others is None else others))
        self.levels_ = np.empty((self.n_cells_ or 0, 0))
        if others is not None:
            self.cut(rows.take(others), rows.labels[0].targets()[others] if rows.labels else None)

    def _possible_cells(self, rows: TrainingRows, places: Places) -> int:
        """Return the number of cells, which is smaller than asked for where a group has too few persons."""
        sizes = np.bincount(rows.group[places], minlength=len(rows.groups))
        smallest = int(sizes.min())
        if self.n_cells <= smallest:
            return int(self.n_cells)
        warn_user(
            f"{self.n_cells} cells were asked for, but group {rows.groups[int(sizes.argmin())]!r} has "
            f"{smallest:,} persons to set the thresholds on, so that there are {max(smallest, 1)} cells."
        )
        return max(smallest, 1)

    def _choose(self, rows: TrainingRows, places: Places, n_cells: int) -> None:
        """Fit the scores, and choose the score of each node, on rows at some places."""
        scores = TreeScores.fit(self, rows, places)
        values = scores.values(rows.X.iloc[places])
        values[:, : scores.n_of_label] = _honest_scores(self, scores, rows, places)
        targets = [_standardised(label.targets()[places]) / np.sqrt(len(rows.labels)) for label in rows.labels]
        targets.append(values[:, scores.n_of_label :] / np.sqrt(max(scores.components.total_variance, 1e-300)))
        group, rates = rows.group[places], None
        if self.spend and not (rows.labels and len(rows.labels[0].class_values) == 2):
            raise DataError("spend needs a label with two classes: pass y, or leave spend at 0.")
        if self.spend and scores.of_labels[0]:
            rates = best_rates([values[group == a, 0] for a in range(len(rows.groups))], self.spend)
        grown_on = StructureRows.of(values, group, np.concatenate(targets, axis=1), len(rows.groups), self.random_state)
        self.scores_ = scores
        self.structure_ = grow(grown_on, n_cells, rates if n_cells > 1 else None)
        self.n_cells_ = self.structure_.n_cells

    def cut(self, rows: Rows, label: FloatArray | None = None) -> None:
        """Set the thresholds at persons whom scores and nodes do not depend on.

        The rows are one of each person, and every group has at least as many as the tree has cells. Each cell keeps the
        mean of `label` (n, n_targets), the label of these rows as numbers.
        """
        scores = np.concatenate(list(self._scores(rows)))
        persons = rows.persons.named_or_numbered()
        self.tree_, self.blocks_ = cut(self.structure_, scores, rows.group, self._coin(persons, 0))
        if label is not None:
            cell = self.tree_.cells(scores, rows.group, self._coin(persons, 0))
            self.levels_ = means_in_cells(label, cell, self.structure_.n_cells)

    def cells(self, rows: Rows) -> Cells:
        """Return the cell of each row."""
        persons, found, start = rows.persons_or_fresh(), [], 0
        for scores in self._scores(rows):
            group = rows.group[start : start + len(scores)]
            found.append(self.tree_.cells(scores, group, self._coin(persons, start)))
            start += len(scores)
        return np.concatenate(found)

    def _scores(self, rows: Rows) -> Iterator[FloatArray]:
        """Yield the scores of rows, chunk by chunk; −∞ for a row with a value that the tree cannot know."""
        check_columns(rows.X, self.columns_, rows.outside)
        unknown = rows.outside.unknown
        for start in range(0, len(rows.X), _ROWS_PER_CHUNK):
            chunk = slice(start, start + _ROWS_PER_CHUNK)
            yield np.where(unknown[chunk, None], -np.inf, self.scores_.values(rows.X.iloc[chunk]))

    def _coin(self, persons: Persons, start: int) -> Coin:
        """Return the coins of the rows from `start` on; a person has one for each depth of the tree."""
        return lambda depth, places: persons.take(start + places).uniform(self.key_, f"tree: depth {depth}")

    def encode(self, rows: Rows) -> pd.DataFrame:
        """Return the number of each row's cell."""
        return pd.DataFrame({"cell": self.cells(rows)})

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """Predict the most frequent class of each row's cell, or the mean of a label of numbers."""
        return known_label(self.label_).predict(self.levels_[self.cells(rows)])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags


@dataclass(frozen=True)
class TreeScores:
    """The scores that a tree may split: those of the labels, then principal components."""

    of_labels: list[Score | None]  # None where a label does not vary
    components: PrincipalComponents  # of the columns

    @classmethod
    def fit(cls, tree: FairTree, rows: TrainingRows, places: npt.NDArray[np.intp]) -> TreeScores:
        """Fit the scores of some rows of a table; a label that does not vary among them has none."""
        varies = [len(np.unique(label.values[places])) > 1 for label in rows.labels]
        of_labels = [
            _fit_label_score(tree, rows, label, places, _MOST_SCORED) if has_score else None
            for label, has_score in zip(rows.labels, varies, strict=True)
        ]
        X = rows.X.iloc[places]
        components = PrincipalComponents.fit(X, tree.columns_, _MOST_COMPONENTS, tree.random_state)
        return cls(of_labels, components)

    @property
    def n_of_label(self) -> int:
        """How many scores those of the labels are: one for each of more than two classes."""
        return sum(len(score.baseline) for score in self.of_labels if score is not None)

    def values(self, X: pd.DataFrame) -> FloatArray:
        """Return the scores of rows, (n_rows, n_scores)."""
        of_labels = [score.values(X) for score in self.of_labels if score is not None]
        # Those of columns are exact: see `PrincipalComponents`.
        return np.concatenate([*of_labels, self.components.scores(X)], axis=1)


def one_row_each(X: pd.DataFrame, persons: Persons, places: Places, most: int, random_state: int) -> Places:
    """Return the places of independent draws from the law of a random row, at most one of each person."""
    if most == 1 and persons.n == len(persons.codes):
        return places
    return places[persons.take(places).random_rows(content_hashes(X.iloc[places], b"cells"), random_state, most)]


def _honest_scores(tree: FairTree, scores: TreeScores, rows: TrainingRows, places: Places) -> FloatArray:
    """Return the labels' scores of rows at some places, each by a model that was not fitted to the person.

    The law of a score among the persons that it was fitted to is not its law among others: by it the nodes would
    prefer the label. Where a class of the label is missing in half of the persons, the scores are the model's own.
    """
    found, first = np.empty((len(places), scores.n_of_label)), 0
    halves = rows.persons.take(places).split(0.5, random_state=tree.random_state)
    for label, own in zip(rows.labels, scores.of_labels, strict=True):
        if own is None:
            continue
        y = label.values[places]
        for fitted, judged in (halves, halves[::-1]):
            model = own
            if label.classes is None or np.array_equal(np.unique(y[fitted]), np.unique(y)):
                model = _fit_label_score(tree, rows, label, places[fitted], _MOST_CHOOSING)
            values = model.values(rows.X.iloc[places[judged]])
            found[judged, first : first + values.shape[1]] = values
        first += values.shape[1]
    return found


def _fit_label_score(tree: FairTree, rows: TrainingRows, label: Label, places: Places, most: int) -> Score:
    """Fit the score of a label on rows at some places, or on a sample of them that has the same classes."""
    if len(places) > most:
        some = places[np.random.default_rng(tree.random_state).choice(len(places), most, replace=False)]
        if label.classes is None or len(np.unique(label.values[some])) == len(np.unique(label.values[places])):
            places = some
    values, boosting = label.values[places], HistGradientBoostingRegressor
    if label.classes is not None:
        values, boosting = np.unique(values, return_inverse=True)[1], HistGradientBoostingClassifier
    model = boosting(**_BOOSTING, random_state=tree.random_state)
    return fit_score(model, rows, places, values, tree.columns_)


def best_rates(eta: Sequence[FloatArray], spend: float) -> FloatArray:
    """Return the share of each group to decide for, at most `spend` apart, that predicts the label best.

    With η the probability of the second class, one array of each group, ρ_a* = P(η > ½ | a) is best for group a by
    itself. Because the gain of deciding for the top share ρ of a group is concave in ρ, the best rates in [c, c + b]
    are ρ_a = clip(ρ_a*, c, c + b) (CERTIFICATES, "spending a target"); c is searched.
    """
    n = np.array([len(scores) for scores in eta])
    best = np.array([(scores > 0.5).mean() for scores in eta])
    gains = [np.concatenate([[0.0], np.cumsum(np.sort(2 * scores - 1)[::-1])]) for scores in eta]
    lowest = np.linspace(0, 1 - spend, _RATES)
    rates = np.clip(best, lowest[:, None], lowest[:, None] + spend)  # (_RATES, K)
    gained = sum(gain[np.round(rates[:, a] * n[a]).astype(np.intp)] for a, gain in enumerate(gains))
    return rates[int(np.argmax(gained))]


def _standardised(targets: FloatArray) -> FloatArray:
    """Return a label's targets, centred, with total variance 1."""
    targets = targets - targets.mean(axis=0)
    variance = (targets**2).mean(axis=0).sum()
    return targets / np.sqrt(variance) if variance > 0 else targets


def means_in_cells(targets: FloatArray, cell: Cells, n_cells: int) -> FloatArray:
    """Return the means of targets in each cell, (n_cells, n_targets); over all rows where a cell has none."""
    total = np.bincount(cell, minlength=n_cells)
    sums = np.stack([np.bincount(cell, weights=column, minlength=n_cells) for column in targets.T], axis=1)
    return np.where(total[:, None] > 0, sums / np.maximum(total, 1)[:, None], targets.mean(axis=0))

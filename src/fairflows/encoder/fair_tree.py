"""FairTree: cells for many purposes, each of which holds the same share of every group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import norm
from sklearn.utils import Tags

from fairflows.bounds.cells import FEWEST_PERSONS
from fairflows.bounds.spending import best_rates
from fairflows.encoder.base import CELL, Cells, Encoder, FloatArray, IntArray, Traits
from fairflows.encoder.label import Label, known_label
from fairflows.encoder.matched_tree import Coin, MatchedTree, TreeStructure, cut
from fairflows.encoder.rows import Rows, TrainingRows
from fairflows.encoder.tree_growth import StructureRows, grow
from fairflows.encoder.tree_scores import MoreScores, TreeScores
from fairflows.exceptions import DataError, check_count, warn_user
from fairflows.table.domain import take
from fairflows.table.keys import NEW_AT_EACH_FIT, KeySetting
from fairflows.table.persons import Persons, Places

_ROWS_PER_CHUNK = 2**15
_DELTA = 0.01  # by which the groups' shares of what is spent are compared


@dataclass(eq=False, repr=False)
class FairTree(Encoder):
    """Encode rows as cells that keep much of the table and hold the same share of every group.

    Every node of a binary tree splits *each group at the same quantile* of one score. The score is the label's own, by
    gradient-boosted trees, or a principal component of the ranked columns. Score and quantile are those whose split
    explains most of the variance of the label and of all columns, where the label counts as much as all columns
    together. So the cells serve the label and other purposes.

    Scores and nodes are chosen on some persons, and thresholds are set at others, at one row of each. A row at a
    threshold goes left or right by a coin that belongs to the person. A row with a value that the scores do not know (a
    new category, or a missing value where none was) has the score −∞ at every node, in every group. Encoding needs the
    sensitive attribute.

    Parameters
    ----------
    n_cells : int, default=64
        The number of cells.
    calibration : float, default=0.5
        The share of the persons of each group that the thresholds are set at; the others choose scores and nodes.
    spend : float, default=0.0
        Largest difference between the shares of the groups that the root sends to one side, for the sake of a label
        with two classes. Shares of groups of few persons, which are more uncertain, lie nearer to the middle.
    kinds : dict of str to {"continuous", "discrete", "categorical"}, default=None
        The kinds of columns that should not be inferred.
    sensitive, identifier : str, default=None
        Columns of X that hold the sensitive attribute and name the person of a row; the identifier may be the index.
    key : bytes, default=None
        The secret behind the coins, at least 16 bytes; by default a new one at each fit.
    random_state : int, default=0
        Seed of the scores.

    Attributes
    ----------
    structure_ : TreeStructure
        The score that each node splits, and the shares that go to the left.
    tree_ : MatchedTree
        The structure with the thresholds of each group.
    blocks_ : ndarray of shape (K, n_cells_)
        The blocks of each group in each cell (`fairflows.bounds.blocks_upper_bound`): the persons strictly inside of
        it, and one more.
    cell_means_ : ndarray of shape (n_cells_, n_targets)
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
    calibration: float = 0.5
    spend: float = 0.0
    kinds: Mapping[str, str] | None = None
    sensitive: str | list[str] | None = None
    identifier: str | None = None
    key: KeySetting = NEW_AT_EACH_FIT
    random_state: int = 0

    label_: Label | None = field(init=False)
    cell_means_: Float[FloatArray, "n_cells n_targets"] = field(init=False)
    split_scores_: TreeScores | MoreScores = field(init=False)
    structure_: TreeStructure = field(init=False)
    tree_: MatchedTree | None = field(init=False)
    blocks_: Int[IntArray, "K n_cells"] | None = field(init=False)

    @property
    def traits(self) -> Traits:
        """A coin of the person decides between two cells where the scores do not."""
        return replace(super().traits, randomised=True, strength="n_cells", separate_thresholds=True)

    def learn(self, rows: TrainingRows) -> None:
        """Choose scores and nodes on some persons, and set the thresholds at the others."""
        check_count("n_cells", self.n_cells, 1)
        self.check_settings()
        structure, others = rows.split(1 - self.calibration, self.random_state)
        others = rows.independent(others, self.most_rows_ or 1, self.random_state)
        n_persons = np.bincount(rows.group[others], minlength=len(rows.groups))
        scores = self.learn_apart(rows, structure, others, n_persons, lambda grown: self.n_cells)
        if self.structure_.n_cells < self.n_cells:
            warn_user(
                f"{self.n_cells} cells were asked for; with {FEWEST_PERSONS} persons of every group in each there are "
                f"{self.structure_.n_cells}."
            )
        if self.tree_ is not None and rows.labels:
            coin = self.coin(rows.persons.take(others).named_or_numbered(), 0)
            cells = self.tree_.cells(scores[others], rows.group[others], coin)
            self.cell_means_ = rows.labels[0].take(others).cell_means(cells, self.structure_.n_cells)

    def check_settings(self) -> None:
        """Raise where a setting is out of its range."""
        if not 0 < self.calibration < 1:
            raise DataError(f"calibration must be above 0 and below 1; got {self.calibration!r}.")
        if not 0 <= self.spend < 1:
            raise DataError(f"spend must be a distance in [0, 1); got {self.spend!r}.")

    def learn_apart(
        self,
        rows: TrainingRows,
        structure: Int[Places, " m"],
        cut_at: Int[Places, " l"],
        n_persons: Int[IntArray, " K"],
        n_cells: Callable[[TreeStructure], int],
        fewest: int = FEWEST_PERSONS,
    ) -> Float[FloatArray, "n n_scores"]:
        """Choose scores and nodes on the rows at `structure`, and set the thresholds at the rows at `cut_at`.

        The latter are one of each person, none of whom has rows at `structure`; there may be none of them. The tree
        grows for cuts at so many persons of each group, with `fewest` of each in every leaf, and `n_cells` returns the
        number of cells of a tree that has grown. Return the scores of all rows, each by models that were not fitted to
        its person.
        """
        self.label_ = rows.labels[0].take(np.empty(0, np.intp)) if rows.labels else None
        self.output_, self.cell_means_ = CELL, np.empty((0, 0))
        others = np.setdiff1d(np.arange(len(rows.group)), structure, assume_unique=True)
        split_scores, of_structure = TreeScores.fit(rows, structure, self.random_state)
        split_scores.seen.check_texts(rows.domain, rows.kinds)
        self.split_scores_ = split_scores
        for label in rows.labels:
            label.warn_of_rare(label.lacking(structure), "choose the tree")
        scores = np.empty((len(rows.group), of_structure.shape[1]))
        scores[structure] = of_structure
        if len(others):
            scores[others] = np.concatenate(list(self._scores(rows.take(others))))
        grown = self._grown(rows, structure, split_scores, scores[structure], n_persons, fewest)
        self.structure_ = grown.first(n_cells(grown))
        self.n_cells_ = self.structure_.n_cells
        self.tree_ = self.blocks_ = None
        if len(cut_at):
            self.tree_ = self._cut(scores[cut_at], rows.take(cut_at))
            self.blocks_ = self.structure_.blocks(n_persons)
        return scores

    def cut_again(self, rows: Rows) -> MatchedTree:
        """Return the tree with thresholds at these rows, which are one of each person."""
        return self._cut(np.concatenate(list(self._scores(rows))), rows)

    def _cut(self, scores: Float[FloatArray, "n n_scores"], rows: Rows) -> MatchedTree:
        return cut(self.structure_, scores, rows.group, self.coin(rows.persons.named_or_numbered(), 0))

    def _grown(
        self,
        rows: TrainingRows,
        places: Int[Places, " n"],
        split_scores: TreeScores,
        scores: Float[FloatArray, "n n_scores"],
        n_persons: Int[IntArray, " K"],
        fewest: int,
    ) -> TreeStructure:
        """Grow a tree as far as so many persons of each group allow."""
        K = len(rows.groups)
        grown_on = structure_rows(rows, places, split_scores, scores, self.random_state)
        if not self.spend:
            return grow(grown_on, n_persons, fewest=fewest)
        if not (rows.labels and len(rows.labels[0].class_values) == 2):
            raise DataError("spend needs a label with two classes: pass y, or leave spend at 0.")
        if split_scores.of_labels[0] is None:
            return grow(grown_on, n_persons)
        chance = norm.isf(_DELTA / (2 * K)) / (2 * np.sqrt(np.maximum(n_persons, 1)))
        rates = best_rates([scores[grown_on.group == a, 0] for a in range(K)], self.spend, chance)
        grown = grow(grown_on, n_persons, rates)
        return grown if grown.n_cells > 1 else grow(grown_on, n_persons)

    def cells(self, rows: Rows) -> Int[Cells, " n"]:
        """Return the cell of each row."""
        if self.tree_ is None:
            raise DataError("The tree has no thresholds for other persons: there were too few to set them at.")
        persons, found, start = rows.persons_or_fresh(), [], 0
        for scores in self._scores(rows):
            group = rows.group[start : start + len(scores)]
            found.append(self.tree_.cells(scores, group, self.coin(persons, start)))
            start += len(scores)
        return np.concatenate(found)

    def _scores(self, rows: Rows) -> Iterator[Float[FloatArray, "m n_scores"]]:
        """Yield the scores of rows, chunk by chunk."""
        for start in range(0, len(rows.group), _ROWS_PER_CHUNK):
            yield self.split_scores_.values(take(rows.codes, slice(start, start + _ROWS_PER_CHUNK)))

    def coin(self, persons: Persons, start: int) -> Coin:
        """Return the coins of the rows from `start` on; a person has one for each depth of the tree."""
        return lambda depth, places: persons.take(start + places).uniform(self.key_, f"tree: depth {depth}")

    def encode(self, rows: Rows) -> pd.DataFrame:
        """Return the number of each row's cell."""
        return pd.DataFrame({"cell": self.cells(rows)})

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """Predict the most frequent class of each row's cell, or the mean of a label of numbers."""
        return known_label(self.label_).predict(self.cell_means_[self.cells(rows)])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags


def structure_rows(
    rows: TrainingRows,
    places: Int[Places, " n"],
    split_scores: TreeScores,
    scores: Float[FloatArray, "n n_scores"],
    random_state: int,
) -> StructureRows:
    """Return the rows that a structure is chosen on, whose leaves are to tell the labels and the columns alike."""
    targets = [_standardised(label.targets()[places]) / np.sqrt(len(rows.labels)) for label in rows.labels]
    of_columns = scores[:, split_scores.n_of_label :]
    targets.append(of_columns / np.sqrt(max(split_scores.components.total_variance, 1e-300)))
    group, K = rows.group[places], len(rows.groups)
    return StructureRows.of(scores, group, np.concatenate(targets, axis=1), K, random_state)


def _standardised(targets: Float[FloatArray, "n n_targets"]) -> Float[FloatArray, "n n_targets"]:
    """Return a label's targets, centred, with total variance 1."""
    targets = targets - targets.mean(axis=0)
    variance = (targets**2).mean(axis=0).sum()
    return targets / np.sqrt(variance) if variance > 0 else targets

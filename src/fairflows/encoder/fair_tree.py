"""FairTree: cells for many purposes, each of which holds the same share of every group."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, is_regressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.utils import Tags

from fairflows.bounds.planning import delta_of_look, most_cells_within, planned_cell_bound
from fairflows.display import ShowProgress, progress_bar
from fairflows.encoder.base import CELL, Cells, Encoder, FloatArray, Traits
from fairflows.encoder.labels import (
    Label,
    check_classifier,
    known_label,
    takes_weights,
)
from fairflows.encoder.matched_tree import CalibrationRows, Coin, MatchedTree, grow
from fairflows.encoder.ranked_columns import PrincipalComponents, RankedColumns
from fairflows.encoder.rows import Rows, RowsLike, TrainingRows
from fairflows.encoder.scores import Score, ScoreColumn, checked_columns, fit_score, score_columns
from fairflows.exceptions import DataError, check_choice, check_count, warn_user
from fairflows.table.columns import check_known
from fairflows.table.persons import NEW_AT_EACH_FIT, KeySetting, Persons
from fairflows.table.table import Role

_CANDIDATES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_CHANCE = 0.9  # with which the certificate stays within its plan
_BOOSTING = {"max_iter": 40, "learning_rate": 0.2}  # as good as twice as many trees, which take twice as long to encode
_ROWS_PER_CHUNK = 2**15


@dataclass(eq=False, repr=False)
class FairTree(Encoder):
    """Encode rows as cells that tell much about the table and nothing about the group.

    A binary tree in which every node splits *each group at its own quantile* of one score, so that every cell holds the
    same share of every group: no group can be told from the calibration rows' cells, and what can be told in truth is
    chance, which a certificate bounds. At each node the score is the one whose split explains most of the variance of
    the label and of all columns: the label's own score, or a principal component of the ranked columns. So the cells
    serve the label and other questions too.

    Scores are fitted on some persons, the tree on others (the calibration persons). Rows at a threshold are sent left
    or right by a coin that belongs to the person. Encoding needs the sensitive attribute.

    Parameters
    ----------
    n_cells : int or "auto"
        The number of cells. "auto" takes the most, up to 1024, for which the certificate to expect is within
        ``target`` nine times out of ten.
    targets : sequence of column names, optional
        The columns that the cells are to tell, beside the label; all of them when not given.
    label_weight : float
        What the label counts, where all columns together count 1.
    label_score : classifier or regressor, optional
        Predicts the label from the columns; boosted trees when not given.
    n_components : int
        The most principal components that may be split.
    calibration : float
        The share of the persons that the tree is fitted to; the others fit the scores.
    unit : {"row", "person"}
        Whose law is made alike in all groups: that of a random row, for a file of rows, or that of a random row of a
        random person.
    min_rows : int
        The fewest calibration rows of each group in a cell. Cells that a group cannot fill are merged with their
        neighbours in the tree, with a warning.
    target : float, optional
        With "auto": the distance Δ that is to be certified.
    delta : float
        With "auto": the δ that it is to be certified with, of which the first certificate spends its share.
    n_certify : int, optional
        With "auto": how many persons will certify; as many as the tree is fitted to when not given.
    kinds : dict of str to {"continuous", "discrete", "categorical"}, default=None
        The content of columns whose types do not tell it.
    unseen : {"error", "other"}, default="error"
        Raise for a category that the training rows did not have, or treat it alike in every group.
    missing : {"error", "category"}, default=None
        Raise for missing values, or keep them as a category of their own; by default as the `Table` says, and "error"
        for any other kind of table.
    sensitive, identifier : str, default=None
        Columns of X that hold the sensitive attribute and name the person of a row; the identifier may be the index.
    key : bytes, default=None
        The secret behind the coins, at least 16 bytes; by default a new one at each fit.
    random_state : int, default=0
        Seed of the scores and of the split of persons.
    progress : bool
        Show a progress bar while fitting.

    Attributes
    ----------
    tree_ : MatchedTree
        The thresholds of each group.
    shares_ : ndarray of shape (K, n_cells_)
        The share of each group's calibration rows in each cell: the same for every group, to one row per split.
    levels_ : ndarray of shape (n_cells_, n_targets)
        What is expected of the label in each cell.
    planned_ : dict, or None
        With "auto": the certificate to expect for each number of cells that was tried.

    Examples
    --------
    >>> from fairflows import load_adult
    >>> train, _, test = load_adult().split(random_state=0)
    >>> tree = FairTree(n_cells=16).fit(train)
    >>> bool(np.abs(tree.shares_[0] - tree.shares_[1]).sum() / 2 < 0.01)
    True
    """

    n_cells: int | Literal["auto"] = 64
    _: KW_ONLY
    targets: Sequence[Hashable] | None = None
    label_weight: float = 1.0
    label_score: BaseEstimator | None = None
    n_components: int = 16
    calibration: float = 2 / 3
    unit: Literal["row", "person"] = "row"
    min_rows: int = 5
    target: float | None = None
    delta: float = 0.05
    n_certify: int | None = None
    kinds: Mapping[str, str] | None = None
    unseen: Literal["error", "other"] = "error"
    missing: Literal["error", "category"] | None = None
    sensitive: str | list[str] | None = None
    identifier: str | None = None
    key: KeySetting = NEW_AT_EACH_FIT
    random_state: int = 0
    progress: bool = False

    columns_: dict[Hashable, ScoreColumn] = field(init=False)
    label_: Label | None = field(init=False)
    levels_: FloatArray = field(init=False)
    scores_: TreeScores = field(init=False)
    tree_: MatchedTree = field(init=False)
    shares_: FloatArray = field(init=False)
    planned_: dict[int, float] | None = field(init=False)

    @property
    def traits(self) -> Traits:
        """A coin of the person decides between two cells where the scores do not."""
        return Traits(randomised=True, strength="n_cells", cells=() if self.n_cells_ is None else (self.n_cells_,))

    def learn(self, rows: TrainingRows) -> None:
        """Fit the scores on some persons, and the tree on the others."""
        self._check_settings(rows.X)
        self.label_ = None if rows.label is None else replace(rows.label, values=np.empty(0))
        self.columns_ = score_columns(rows.X, self.kinds or {}, self.unseen)
        self.output_ = CELL
        rows = replace(rows, X=checked_columns(rows.X, self.columns_, rows.missing, rows.outside))
        with progress_bar("growing", enabled=self.progress) as show:
            scores, calibration = self._calibrate(rows, show)
            self._grow(rows, scores, calibration, show)

    def _calibrate(self, rows: TrainingRows, show: ShowProgress) -> tuple[TreeScores, Calibration]:
        """Fit the scores on some persons; return them, and the others as the tree needs them."""
        weight, seed, label = rows.weight_by(self.unit), self.random_state, rows.label
        counted = np.flatnonzero(weight > 0)
        fitted, others = (
            counted[part] for part in rows.persons.take(counted).split(self.calibration, random_state=seed)
        )
        show(0, None, "scores")
        scores = TreeScores.fit(self, rows, fitted)
        values = scores.values(rows.X.iloc[others])
        targets = values[:, scores.n_of_label :] / np.sqrt(max(scores.total_variance, 1e-300))
        if label is not None:
            of_label = np.sqrt(self.label_weight) * _standardised(label.targets()[others], weight[others])
            targets = np.concatenate([of_label, targets], axis=1)
        tree_rows = CalibrationRows.of(values, rows.group[others], weight[others], targets, len(rows.groups), seed)
        return scores, Calibration(others, tree_rows)

    def _grow(self, rows: TrainingRows, scores: TreeScores, calibration: Calibration, show: ShowProgress) -> None:
        """Grow the tree, and set what its cells say."""
        n_cells, self.planned_ = self.n_cells, None
        if n_cells == "auto":
            self.planned_ = self._plan(rows, calibration)
            n_cells = most_cells_within(self.planned_, float(self.target or 0), "Certify on more persons (n_certify).")
        tree, cell = grow(calibration.rows, int(n_cells), self.min_rows, show)
        if tree.n_cells < n_cells:
            sizes = np.bincount(calibration.rows.group, minlength=len(rows.groups))
            smallest = rows.groups[int(sizes.argmin())]
            warn_user(
                f"{int(n_cells)} cells were asked for, but group {smallest!r} has {int(sizes.min()):,} calibration "
                f"rows: cells that a group cannot fill were merged with their neighbours, and {tree.n_cells} are left."
            )
        self.scores_, place = scores.keeping(np.unique(tree.score))
        self.tree_, self.n_cells_ = replace(tree, score=place[tree.score]), tree.n_cells
        weight, self.levels_ = calibration.rows.weight, np.empty((tree.n_cells, 0))
        if rows.label is not None:
            targets = rows.label.targets()[calibration.places]
            self.levels_ = _means_in_cells(targets, cell, weight, tree.n_cells)
        shares = np.zeros((len(rows.groups), tree.n_cells))
        np.add.at(shares, (calibration.rows.group, cell), weight)
        self.shares_ = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)

    def _plan(self, rows: TrainingRows, calibration: Calibration) -> dict[int, float]:
        """Return the certificate to expect for growing numbers of cells, until it is beyond the target.

        In the calibration rows every cell has the same share of every group. What others show differs by the chance of
        both draws, of those who calibrated and of those who certify; the scores were fitted on neither.
        """
        if self.target is None:
            raise DataError("n_cells='auto' needs the distance to certify: set target.")
        K, group, weight = len(rows.groups), calibration.rows.group, calibration.rows.weight
        codes = rows.persons.take(calibration.places).codes
        of_person = np.stack([np.bincount(codes, weight * (group == a)) for a in range(K)])
        calibrating = of_person.sum(axis=1) ** 2 / (of_person**2).sum(axis=1)  # as many persons of equal weight
        shares = rows.persons.count_by(rows.group, K) / rows.persons.n
        thinning = 1.0 if self.unit == "person" else rows.persons.accepted_share
        n = np.maximum(shares * (self.n_certify or rows.persons.n) * thinning, 1)
        planned: dict[int, float] = {}
        for k in _CANDIDATES:
            alike = np.full((K, k), 1 / k)
            delta = delta_of_look(self.delta, 1)
            planned[k] = float(planned_cell_bound(alike, n, delta, chance=_CHANCE, counted_from=calibrating))
            if planned[k] > self.target or k * self.min_rows > calibrating.min():
                break
        return planned

    def cells(self, rows: Rows) -> Cells:
        """Return the cell of each row."""
        persons = rows.persons_or_fresh()
        X = checked_columns(rows.X, self.columns_, self.missing_, rows.outside)
        if self.missing_ == "category":
            self.scores_.components.columns.note_missing(X, rows.outside)
        cells, group = np.empty(len(X), dtype=np.intp), rows.map_group
        for start in range(0, len(X), _ROWS_PER_CHUNK):
            chunk = slice(start, start + _ROWS_PER_CHUNK)
            scores = self.scores_.values(X.iloc[chunk])
            cells[chunk] = self.tree_.cells(scores, group[chunk], self._coin(persons, start))
        return cells

    def _coin(self, persons: Persons, start: int) -> Coin:
        """Return the coins of the rows from `start` on; a person has one for each depth of the tree."""
        return lambda depth, places: persons.take(start + places).uniform(self.key_, f"tree: depth {depth}")

    def encode(self, rows: Rows) -> pd.DataFrame:
        """Return the number of each row's cell."""
        return pd.DataFrame({"cell": self.cells(rows)})

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """Predict the most frequent class of each row's cell, or the mean of a label of numbers."""
        return known_label(self.label_).predict(self.levels_[self.cells(rows)])

    def predict_proba(self, X: RowsLike, *, sensitive_features: Role | None = None) -> FloatArray:
        """Predict the class probabilities of each row's cell."""
        cells = self.cells(self.read(X, sensitive_features))
        return known_label(self.label_).probabilities(self.levels_[cells])

    def _check_settings(self, X: pd.DataFrame) -> None:
        if self.n_cells != "auto":
            check_count("n_cells", self.n_cells, 2)
        check_choice("unit", self.unit, ("row", "person"))
        check_count("n_components", self.n_components, 1)
        check_count("min_rows", self.min_rows, 1)
        if self.n_certify is not None:
            check_count("n_certify", self.n_certify, 1)
        if not 0 < self.calibration < 1:
            raise DataError(f"calibration must be above 0 and below 1; got {self.calibration!r}.")
        if not self.label_weight >= 0:
            raise DataError(f"label_weight must not be negative; got {self.label_weight!r}.")
        if self.target is not None and not 0 < self.target <= 1:
            raise DataError(f"target must be in (0, 1]; got {self.target!r}.")
        for name in self.targets if self.targets is not None else ():
            check_known(name, X.columns, "target")
        if self.targets is not None and not len(self.targets):
            raise DataError(f"targets must name a column at least; got {self.targets!r}.")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags


@dataclass(frozen=True)
class Calibration:
    """The calibration rows: their places in the table, and what a tree is fitted to."""

    places: npt.NDArray[np.intp]
    rows: CalibrationRows


@dataclass(frozen=True)
class TreeScores:
    """The scores that a tree may split: those of the label, then principal components."""

    of_label: Score | None
    components: PrincipalComponents  # of the columns that the cells are to tell
    n_of_label: int  # how many scores those of the label are: one for each of more than two classes
    total_variance: float  # of all columns together

    @classmethod
    def fit(cls, tree: FairTree, rows: TrainingRows, places: npt.NDArray[np.intp]) -> TreeScores:
        """Fit the scores of some rows of a table; a label that does not vary among them has none."""
        label, seed = rows.label, tree.random_state
        of_label, n_of_label = None, 0
        if label is not None and (label.values[places] != label.values[places[0]]).any():
            values, present = np.unique(label.values[places], return_inverse=True)
            model = _estimator_of(label, tree.label_score, weighted=rows.weight is not None, random_state=seed)
            known = label.values[places] if label.classes is None else present
            of_label = fit_score(model, rows, places, known, tree.columns_, seed)
            n_of_label = 1 if label.classes is None or len(values) == 2 else len(values)
        X = rows.X.iloc[places]
        told = {name: tree.columns_[name] for name in (tree.columns_ if tree.targets is None else tree.targets)}
        ranked = RankedColumns.fit(X, told, {name for name in X if rows.X[name].hasnans})
        components = PrincipalComponents.fit(ranked, X, tree.n_components, seed)
        return cls(of_label, components, n_of_label, ranked.total_variance)

    def values(self, X: pd.DataFrame) -> FloatArray:
        """Return the scores of rows, (n_rows, n_scores)."""
        of_columns = self.components.scores(X)
        if self.of_label is None:
            return of_columns
        # Estimators that multiply matrices round differently in another batch; in single precision the same rows tie.
        return np.concatenate([self.of_label.values(X).astype(np.float32), of_columns], axis=1)

    def keeping(self, used: npt.NDArray[np.int64]) -> tuple[TreeScores, npt.NDArray[np.int64]]:
        """Return these scores without those that are not used, and the new number of each."""
        of_label = self.of_label if (used < self.n_of_label).any() else None
        n_of_label = 0 if of_label is None else self.n_of_label
        kept = used[used >= self.n_of_label] - self.n_of_label
        place = np.full(self.n_of_label + self.components.loadings.shape[1], -1)
        place[: self.n_of_label] = np.arange(self.n_of_label)
        place[self.n_of_label + kept] = n_of_label + np.arange(len(kept))
        components = replace(self.components, loadings=self.components.loadings[:, kept])
        return replace(self, of_label=of_label, components=components, n_of_label=n_of_label), place


def _estimator_of(label: Label, estimator: BaseEstimator | None, *, weighted: bool, random_state: int) -> BaseEstimator:
    """Return the estimator that predicts a label; raise for a setting that cannot."""
    if estimator is None:
        kind = HistGradientBoostingRegressor if label.classes is None else HistGradientBoostingClassifier
        return kind(**_BOOSTING, random_state=random_state)
    if label.classes is not None:
        check_classifier(estimator, weighted=weighted)
        return estimator
    if not is_regressor(estimator):
        raise DataError(f"label_score must be a regressor for a label of numbers; got {type(estimator).__name__!r}.")
    if weighted and not takes_weights(estimator):
        raise DataError(f"label_score must take sample_weight, as rows have weights; got {type(estimator).__name__!r}.")
    return estimator


def _standardised(targets: FloatArray, weight: FloatArray) -> FloatArray:
    """Return a label's targets, centred, with total variance 1."""
    targets = targets - np.average(targets, axis=0, weights=weight)
    variance = np.average(targets**2, axis=0, weights=weight).sum()
    return targets / np.sqrt(variance) if variance > 0 else targets


def _means_in_cells(targets: FloatArray, cell: Cells, weight: FloatArray, n_cells: int) -> FloatArray:
    """Return the means of targets in each cell, (n_cells, n_targets); over all rows where a cell has none."""
    total = np.bincount(cell, weights=weight, minlength=n_cells)
    sums = np.stack([np.bincount(cell, weights=weight * column, minlength=n_cells) for column in targets.T], axis=1)
    return np.where(total[:, None] > 0, sums / np.where(total > 0, total, 1)[:, None], targets.mean(axis=0))

"""FairCells: the best cells for a label within a distance, with the sensitive attribute at encoding or without it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from numbers import Real
from typing import Literal

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.utils import Tags

from fairflows.bounds.planning import delta_of_look
from fairflows.encoder.base import CELL, Cells, Encoder, FloatArray, Groups, Traits, label_values
from fairflows.encoder.cell_programme import BinnedScores, Bins, CellProgramme, PlannedProgramme, ScoreBins, calibrated
from fairflows.encoder.labels import (
    Classifier,
    Label,
    check_classifier,
)
from fairflows.encoder.rows import Rows, RowsLike, TrainingRows
from fairflows.encoder.scores import ScoreColumn, checked_columns, fit_score, score_columns
from fairflows.exceptions import DataError, check_choice, check_count
from fairflows.table.columns import shown
from fairflows.table.persons import NEW_AT_EACH_FIT, KeySetting, Persons
from fairflows.table.table import Role

_ATTEMPTS = 20  # to part persons so that both parts have every group and label
_CALIBRATION = 0.3  # share of the persons that the programme, and no score, is made from
_ROWS_PER_CHUNK = 2**12  # whose laws of cells stay in a cache


@dataclass(eq=False, repr=False)
class FairCells(Encoder):
    """The best cells for a label, so that their laws in the groups are at most a target apart.

    A score η of the label is cut into bins, by group where the attribute is known at encoding, or else together with a
    score ρ of the group; a linear programme then sends bins to cells so that the label is kept best while the groups'
    laws of cells stay within Δ. The few bins that it splits are split by the person's coin. Nothing that a certificate
    says rests on the scores: it counts cells of other persons.

    Parameters
    ----------
    n_cells : int
        The most cells.
    target : float
        The distance to be *certified*. The programme's own Δ is chosen so that a certificate comes out within it with
        probability ``chance``; a target that so many persons cannot certify is refused.
    attribute : {"encoding", "training"}
        When the sensitive attribute is known. With "training", `transform` takes none: for those who may not ask for
        it, or do not have it, in production.
    criterion : {"demographic_parity", "equalized_odds", "equal_opportunity"}
        What is to be alike in the groups, and what the target is about: cells; cells given the label; cells given the
        last label.
    label_score : classifier or regressor, optional
        Predicts the label; gradient-boosted trees when not given.
    group_score : classifier, optional
        Predicts the group, with ``attribute="training"``; gradient-boosted trees when not given.
    n_bins : int
        About how many bins there are.
    n_certify : int, optional
        How many persons will certify; as many as the encoder is fitted on when not given.
    delta : float
        δ of the certificate, of which the first one spends its share.
    chance : float
        How probable it should be that the certificate comes out within the target.
    unit : {"row", "person"}
        Whose law is made alike: a random row of the table, or a random row of a random person. The first is the
        headline of a certificate, since all rows are released.
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

    Attributes
    ----------
    distance_ : float
        Δ of the programme.
    planned_ : float
        The bound that a certificate stays within with probability ``chance``.
    levels_ : ndarray of shape (n_cells_, n_targets)
        What is expected of the label in each cell.
    laws_ : ndarray of shape (K, n_cells_)
        Each group's law of cells among the rows that the programme was made from: no statement about others.

    Examples
    --------
    >>> from fairflows import load_adult
    >>> cells = FairCells(n_cells=8, target=0.1, attribute="training").fit(load_adult())
    >>> cells.traits.needs_attribute, cells.planned_ <= 0.1, cells.n_cells_
    (False, True, 8)
    """

    n_cells: int = 8
    _: KW_ONLY
    target: float = 0.05
    attribute: Literal["encoding", "training"] = "encoding"
    criterion: Literal["demographic_parity", "equalized_odds", "equal_opportunity"] = "demographic_parity"
    label_score: Classifier | None = None
    group_score: Classifier | None = None
    n_bins: int = 576
    n_certify: int | None = None
    delta: float = 0.05
    chance: float = 0.9
    unit: Literal["row", "person"] = "row"
    kinds: Mapping[str, str] | None = None
    unseen: Literal["error", "other"] = "error"
    missing: Literal["error", "category"] | None = None
    sensitive: str | list[str] | None = None
    identifier: str | None = None
    key: KeySetting = NEW_AT_EACH_FIT
    random_state: int = 0

    columns_: dict[Hashable, ScoreColumn] = field(init=False)
    label_: Label = field(init=False)
    levels_: FloatArray = field(init=False)
    binned_: BinnedScores = field(init=False)
    cells_of_bin_: FloatArray = field(init=False)
    laws_: FloatArray = field(init=False)
    distance_: float = field(init=False)
    planned_: float = field(init=False)

    @property
    def traits(self) -> Traits:
        """A coin of the person decides where a bin is split; the attribute may be left out at encoding."""
        at_encoding = self.attribute == "encoding"
        cells = () if self.n_cells_ is None else (self.n_cells_,)
        return Traits(
            needs_attribute=at_encoding, takes_attribute=at_encoding, randomised=True, strength="target", cells=cells
        )

    def learn(self, rows: TrainingRows) -> None:
        """Fit the scores on some persons, and solve the programme for the others."""
        self._check_settings(weighted=rows.weight is not None)
        label = rows.label
        if label is None:
            raise DataError(
                "FairCells requires y to be passed, but the target y is None: cells are made for a label. FairTree "
                "needs none."
            )
        self.label_ = replace(label, values=np.empty(0))
        self.columns_ = score_columns(rows.X, self.kinds or {}, self.unseen)
        self.output_ = CELL
        rows = replace(rows, X=checked_columns(rows.X, self.columns_, rows.missing, rows.outside))
        self.binned_, programme, laws = self._plan(rows, label, self.random_state)
        found = programme.within(self.target)
        self.cells_of_bin_, self.levels_, self.n_cells_ = found.channel, found.levels, found.channel.shape[1]
        self.laws_ = laws @ found.channel
        self.distance_, self.planned_ = found.distance, found.planned

    def _plan(self, rows: TrainingRows, label: Label, seed: int) -> tuple[BinnedScores, PlannedProgramme, FloatArray]:
        """Scores fitted on some persons, the programme made from the others, and the laws of bins of all their rows."""
        given = self._label_that_counts(label)
        train, rest = self._part(rows, label, given, seed)
        binned = self._fit_scores(rows, label, given, train, seed)
        X, group, persons = rows.X.iloc[rest], rows.group[rest], rows.persons.take(rest)
        weight = rows.weight_by(self.unit)[rest]
        K, scores, own_bins = len(self.groups_), binned.coordinates(X), binned.own_bins(group)
        bins = ScoreBins.fit(
            scores, own_bins, weight, n_groups=int(own_bins.max()) + 1, n_bins=self.n_bins, random_state=seed
        )
        place = bins.places(scores, own_bins)
        targets = label.targets()[rest]
        eta = _calibrated_by(own_bins, scores[:, : targets.shape[1]], targets, weight)
        mass = _sums(place, bins.n, weight)
        expected = np.column_stack([_sums(place, bins.n, weight * column) for column in eta.T]) / mass[:, None]
        # Row by row, 1 where it is of the group (and of the label that counts): what laws of bins are sums of.
        joint = group if given is None else given[rest] * K + group
        n_joint = K * (1 if given is None else len(label_values(self)))
        is_joint = np.eye(n_joint)[joint]
        counted = self._laws(is_joint, place, bins.n, weight)
        laws = counted
        if binned.group_score is not None:
            # Smoother than what is counted in single bins, whose noise a programme would take for differences.
            belief = calibrated(binned.group_score.predict_proba(X), is_joint, weight)
            laws = self._laws(belief, place, bins.n, weight)
        programme = CellProgramme.of(
            Bins(mass / mass.sum(), expected, laws, label.classes is not None), self.n_cells, seed
        )
        n_joint_persons = _persons_in(rows.persons, rows.group if given is None else given * K + rows.group, n_joint)
        counted_from = self._by_set(_persons_in(persons, joint, n_joint))
        planned = PlannedProgramme(
            programme,
            counted,
            self._by_set(n_joint_persons * self._certifying_share(rows.persons)),
            counted_from if binned.group_score is None else None,
            delta_of_look(self.delta, 1) / len(counted),
            self.chance,
        )
        all_rows = np.stack([_sums(place, bins.n, weight * (group == a)) for a in range(K)])
        return replace(binned, bins=bins), planned, all_rows / all_rows.sum(axis=1, keepdims=True)

    def _fit_scores(
        self, rows: TrainingRows, label: Label, given: Groups | None, train: np.ndarray, seed: int
    ) -> BinnedScores:
        estimator, values = self.label_score, label.values[train]
        if label.classes is None:
            estimator = HistGradientBoostingRegressor(random_state=seed) if estimator is None else estimator
            values = label.targets()[train, 0]
        score = fit_score(estimator, rows, train, values, self.columns_, seed)
        K, group = len(self.groups_), rows.group
        if self.attribute == "encoding":
            return BinnedScores(score, None, K)
        joint = group if given is None else given * K + group
        return BinnedScores(score, fit_score(self.group_score, rows, train, joint[train], self.columns_, seed), K)

    def _laws(self, share: FloatArray, place: np.ndarray, n_bins: int, weight: FloatArray) -> list[FloatArray]:
        """Laws of bins (K, B) for each set, from each row's share in every group (and label), (n, n_joint)."""
        sums = np.stack([_sums(place, n_bins, weight * column) for column in share.T])
        return self._by_set(sums / sums.sum(axis=1, keepdims=True))

    def _by_set(self, joint: FloatArray) -> list[FloatArray]:
        """Split an array over groups, or over labels and groups, into one array of K for each set that counts."""
        sets = list(joint.reshape(-1, len(self.groups_), *joint.shape[1:]))
        return sets[-1:] if self.criterion == "equal_opportunity" else sets

    def _certifying_share(self, persons: Persons) -> float:
        """How many certifying persons are counted for each person here."""
        share = 1.0 if self.n_certify is None else self.n_certify / persons.n
        return share if self.unit == "person" else share * persons.accepted_share

    def _part(self, rows: Rows, label: Label, given: Groups | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Persons to train the scores, and persons to make the cells from; of few persons another part may do."""
        for attempt in range(_ATTEMPTS):
            train, rest = rows.persons.split(_CALIBRATION, random_state=seed + attempt)
            try:
                self._check_parts(rows.group, given, label, (train, rest))
            except DataError:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                break
        return train, rest

    def _check_parts(self, group: Groups, given: Groups | None, label: Label, parts: Sequence[np.ndarray]) -> None:
        """Refuse rows of which a part lacks a group, a class, or a class in a group where that counts."""
        K = len(self.groups_)
        for part in parts:
            sizes = np.bincount(group[part], minlength=K)
            if sizes.min() < 2:
                raise DataError(
                    "Every group needs persons both to train the scores and to make the cells from; of "
                    f"{self.groups_[int(sizes.argmin())]!r} there are {int((group == sizes.argmin()).sum())} rows."
                )
            if label.classes is not None:
                n = len(label.classes)
                joint = label.values[part] if given is None else label.values[part] + n * group[part]
                found = np.bincount(joint, minlength=n * (1 if given is None else K))
                if found.min() < 1:
                    where = "" if given is None else f" in group {self.groups_[int(found.argmin()) // n]!r}"
                    raise DataError(
                        f"Every label needs persons both to train the scores and to make the cells from; "
                        f"{shown(label.classes[int(found.argmin()) % n])} is too rare{where}."
                    )

    def _label_that_counts(self, label: Label) -> Groups | None:
        """Class numbers of the label that the groups are to be alike given; None for demographic parity."""
        if self.criterion == "demographic_parity":
            return None
        if label.classes is None:
            raise DataError(f"criterion {self.criterion!r} speaks of a label with classes.")
        return label.values

    def cells(self, rows: Rows) -> Cells:
        """Return the cell of each row; of a bin that is split, as the person's coin falls."""
        X = checked_columns(rows.X, self.columns_, self.missing_, rows.outside)
        places = self.binned_.places(X, rows.map_group)
        coin = rows.persons_or_fresh().uniform(self.key_, "cell of a bin")
        return _drawn(self.cells_of_bin_, places, coin)

    def encode(self, rows: Rows) -> pd.DataFrame:
        """Return the number of each row's cell."""
        return pd.DataFrame({"cell": self.cells(rows)})

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """Predict the most frequent class of each row's cell, or the mean of a label of numbers."""
        return self.label_.predict(self.levels_[self.cells(rows)])

    def predict_proba(self, X: RowsLike, *, sensitive_features: Role | None = None) -> FloatArray:
        """Predict the class probabilities of each row's cell."""
        cells = self.cells(self.read(X, sensitive_features))
        return self.label_.probabilities(self.levels_[cells])

    def _check_settings(self, *, weighted: bool) -> None:
        check_count("n_cells", self.n_cells, 2)
        check_count("n_bins", self.n_bins, 4)
        check_choice("attribute", self.attribute, ("encoding", "training"))
        check_choice("criterion", self.criterion, ("demographic_parity", "equalized_odds", "equal_opportunity"))
        check_choice("unit", self.unit, ("row", "person"))
        check_classifier(self.group_score, weighted=weighted)
        if self.n_certify is not None:
            check_count("n_certify", self.n_certify, 2)
        for name, value in (("chance", self.chance), ("delta", self.delta)):
            if not (isinstance(value, Real) and 0 < value < 1):
                raise DataError(f"{name} must be in (0, 1); got {value!r}.")
        if not (isinstance(self.target, Real) and 0 < self.target <= 1):
            raise DataError(f"target must be in (0, 1]; got {self.target!r}.")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.target_tags.required = True
        return tags


def _calibrated_by(own_bins: Groups, scores: FloatArray, targets: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the mean of the label given its score, for each set of bins by itself."""
    expected = np.empty_like(targets)
    for a in np.unique(own_bins):
        own = own_bins == a
        expected[own] = calibrated(scores[own], targets[own], weight[own])
    return expected


def _sums(place: np.ndarray, n_bins: int, weight: FloatArray) -> FloatArray:
    return np.bincount(place, weight, n_bins).astype(np.float64)


def _persons_in(persons: Persons, kind: Groups, n: int) -> FloatArray:
    """How many persons have rows of each kind, at least one."""
    return np.maximum(persons.count_by(kind, n), 1).astype(np.float64)


def _drawn(laws: FloatArray, places: np.ndarray, coin: FloatArray) -> Cells:
    """Draw from the law of cells of each row's bin, by a number in [0, 1), a chunk of rows at a time."""
    if len(places) < len(laws):  # of few rows, the laws of their own bins alone
        laws, places = laws[places], np.arange(len(places))
    cumulative = np.cumsum(laws, axis=1)
    cumulative /= cumulative[:, -1:]
    cells = np.empty(len(places), dtype=np.intp)
    for start in range(0, len(places), _ROWS_PER_CHUNK):
        chunk = slice(start, start + _ROWS_PER_CHUNK)
        # A row of the cumulative law is 1 from the last possible cell on.
        cells[chunk] = (cumulative[places[chunk]] <= coin[chunk, None]).sum(axis=1)
    return cells

"""FairCells: the best cells for a label within a distance, with the sensitive attribute at encoding or without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from numbers import Real
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.utils import Tags

from fairflows.arrays import NDArray
from fairflows.bounds.arguments import delta_of_look
from fairflows.encoder.base import CELL, Cells, Encoder, FloatArray, Traits
from fairflows.encoder.cell_programme import BinnedScores, Bins, CellProgramme, PlannedProgramme, ScoreBins, calibrated
from fairflows.encoder.label import Label
from fairflows.encoder.rows import Groups, Rows, TrainingRows
from fairflows.encoder.scores import fit_score
from fairflows.exceptions import DataError, check_choice, check_count
from fairflows.table.columns import shown
from fairflows.table.domain import Seen, take
from fairflows.table.keys import NEW_AT_EACH_FIT, KeySetting
from fairflows.table.persons import Persons, Places

_ATTEMPTS = 20  # to part persons so that both parts have every group and label
_CALIBRATION = 0.3  # share of the persons that the programme, and no score, is made from


@dataclass(eq=False, repr=False)
class FairCells(Encoder):
    """Encode rows as the cells that keep a label best while the groups' cells are at most a target apart.

    A score η of the label, by gradient-boosted trees, is cut into bins b: by group where the attribute is known at
    encoding, else together with a score ρ of the group. A linear programme sends bins to cells by Q(j | b) so that η is
    kept best while ½ Σ_j |Σ_b (p_a − p_a')(b) Q(j | b)| ≤ Δ for all groups. A person's coin decides in the few bins
    that it splits. A certificate does not rest on the scores, because it counts the cells of other persons.

    Parameters
    ----------
    n_cells : int, default=8
        Largest number of cells; there are fewer where the target allows no more.
    target : float, default=0.05
        Distance to be *certified*. The programme's own Δ is chosen so that the certificate is within it with
        probability ``chance``. A target that so many persons cannot certify is refused.
    attribute : {"encoding", "training"}, default="encoding"
        When the sensitive attribute is known. With "training", `transform` needs none.
    n_bins : int, default=576
        Approximate number of bins.
    n_certify : int, default=None
        Number of persons who will certify; by default as many as the encoder is fitted to.
    delta : float, default=0.01
        δ of the certificate; its first look spends a share of it.
    chance : float, default=0.9
        Probability that the certificate is within the target.
    kinds : dict of str to {"continuous", "discrete", "categorical"}, default=None
        The content of columns whose types do not tell it.
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
        The bound that the certificate meets with probability ``chance``.
    cell_means_ : ndarray of shape (n_cells_, n_targets)
        Mean of the label in each cell.
    laws_ : ndarray of shape (K, n_cells_)
        Each group's law of cells among the rows that the programme was made from.

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
    n_bins: int = 576
    n_certify: int | None = None
    delta: float = 0.01
    chance: float = 0.9
    kinds: Mapping[str, str] | None = None
    sensitive: str | list[str] | None = None
    identifier: str | None = None
    key: KeySetting = NEW_AT_EACH_FIT
    random_state: int = 0

    label_: Label = field(init=False)
    cell_means_: Float[FloatArray, "k L"] = field(init=False)
    binned_: BinnedScores = field(init=False)
    cells_of_bin_: Float[FloatArray, "B k"] = field(init=False)
    laws_: Float[FloatArray, "K k"] = field(init=False)
    distance_: float = field(init=False)
    planned_: float = field(init=False)

    @property
    def traits(self) -> Traits:
        """A coin of the person decides where a bin is split; the attribute may be left out at encoding."""
        needed = self.attribute == "encoding"
        return replace(super().traits, needs_attribute=needed, randomised=True, strength="target")

    def learn(self, rows: TrainingRows) -> None:
        """Fit the scores on some persons, and solve the programme for the others."""
        check_count("n_cells", self.n_cells, 2)
        check_count("n_bins", self.n_bins, 4)
        check_choice("attribute", self.attribute, ("encoding", "training"))
        if self.n_certify is not None:
            check_count("n_certify", self.n_certify, 2)
        for name, value in (("chance", self.chance), ("delta", self.delta)):
            if not (isinstance(value, Real) and 0 < value < 1):
                raise DataError(f"{name} must be in (0, 1); got {value!r}.")
        if not (isinstance(self.target, Real) and 0 < self.target <= 1):
            raise DataError(f"target must be in (0, 1]; got {self.target!r}.")
        label = rows.label
        if label is None:
            raise DataError("FairCells requires y to be passed, but the target y is None: cells are made for a label.")
        train, rest, is_rare = self._part(rows, label, self.random_state)
        label.warn_of_rare(is_rare, "train the scores or make the cells")
        label = label.without(is_rare)
        self.label_ = label.take(np.empty(0, np.intp))
        self.output_ = CELL
        self.binned_, programme = self._plan(rows, label, train, rest, self.random_state)
        found = programme.most_cells(self.target, self.random_state).within(self.target)
        self.cells_of_bin_, self.cell_means_, self.n_cells_ = found.channel, found.levels, found.channel.shape[1]
        self.laws_ = programme.counted @ found.channel
        self.distance_, self.planned_ = found.distance, found.planned

    def _plan(
        self, rows: TrainingRows, label: Label, train: Int[Places, " m"], rest: Int[Places, " l"], seed: int
    ) -> tuple[BinnedScores, PlannedProgramme]:
        """Return scores fitted on some persons, with bins, and the programme made from the others."""
        binned = self._fit_scores(rows, label, train, seed)
        codes, group, persons = take(rows.codes, rest), rows.group[rest], rows.persons.take(rest)
        K, scores, own_bins = len(self.groups_), binned.coordinates(codes), binned.own_bins(group)
        bins = ScoreBins.fit(scores, own_bins, self.n_bins, seed)
        place = bins.places(scores, own_bins)
        targets = label.targets()[rest]
        eta = _calibrated_by(own_bins, scores[:, : targets.shape[1]], targets)
        mass = np.bincount(place, minlength=bins.n)
        expected = _sums(place, bins.n, eta).T / mass[:, None]
        is_of_group = np.eye(K)[group]
        laws = counted = _laws(place, bins.n, is_of_group)
        if binned.group_score is not None:
            # Smoother than what is counted in single bins, whose noise a programme would take for differences.
            laws = _laws(place, bins.n, calibrated(binned.group_score.predict_proba(codes), is_of_group))
        certifying = 1.0 if self.n_certify is None else self.n_certify / rows.persons.n
        planned = PlannedProgramme(
            CellProgramme.of(Bins(mass / mass.sum(), expected, laws, label.classes is not None), self.n_cells, seed),
            [str(group) for group in self.groups_],
            counted,
            _persons_in(rows.persons, rows.group, K) * rows.persons.accepted_share * certifying,
            _persons_in(persons, group, K) if binned.group_score is None else None,
            delta_of_look(self.delta, 1),
            self.chance,
        )
        return replace(binned, bins=bins), planned

    def _fit_scores(self, rows: TrainingRows, label: Label, train: Int[Places, " n"], seed: int) -> BinnedScores:
        model, values, of_group = HistGradientBoostingClassifier(random_state=seed), label.values[train], None
        if label.classes is None:
            model, values = HistGradientBoostingRegressor(random_state=seed), label.targets()[train, 0]
        codes = take(rows.codes, train)
        seen = Seen.of(rows.domain, codes)
        score = fit_score(model, codes, values, seen)
        if self.attribute == "training":
            model = HistGradientBoostingClassifier(random_state=seed)
            of_group = fit_score(model, codes, rows.group[train], seen)
        return BinnedScores(score, of_group)

    def _part(
        self, rows: Rows, label: Label, seed: int
    ) -> tuple[Int[Places, " _"], Int[Places, " _"], Bool[NDArray[np.bool_], " n_classes"]]:
        """Return persons to train the scores, and persons to make the cells from; of few, another part may do.

        Return also which classes of the label one of the two parts lacks.
        """
        classes, n_groups = label.class_values.tolist(), len(self.groups_)
        codes = label.values if classes else np.zeros(len(rows.group), dtype=np.intp)
        for attempt in range(_ATTEMPTS):
            train, rest = rows.persons.split(_CALIBRATION, random_state=seed + attempt)
            of_groups = [np.bincount(rows.group[part], minlength=n_groups) >= 2 for part in (train, rest)]
            of_labels = [np.bincount(codes[part], minlength=len(classes)) >= 1 for part in (train, rest)]
            enough, has_label = np.logical_and(*of_groups), np.logical_and(*of_labels)
            if enough.all() and has_label.all():
                break
        if not enough.all():
            lacking = [shown(group) for group, found in zip(self.groups_, enough, strict=True) if not found]
        elif classes and has_label.sum() < 2:
            lacking = [shown(value) for value, found in zip(classes, has_label, strict=True) if not found]
        else:
            return train, rest, ~has_label
        raise DataError(
            "Every group, and two classes of the label, need persons both to train the scores and to make the cells "
            f"from; {lacking[0]} is too rare."
        )

    def cells(self, rows: Rows) -> Int[Cells, " n"]:
        """Return the cell of each row; of a bin that is split, as the person's coin falls."""
        # A row with a value that cannot be known takes the law of cells of all rows, whatever its group and values.
        laws = np.concatenate([self.cells_of_bin_, self.laws_.mean(axis=0, keepdims=True)])
        places = np.where(rows.outside.unknown, len(laws) - 1, self.binned_.places(rows.codes, rows.encoding_group))
        coin = rows.persons_or_fresh().uniform(self.key_, "cell of a bin")
        return _drawn(laws, places, coin)

    def encode(self, rows: Rows) -> pd.DataFrame:
        """Return the number of each row's cell."""
        return pd.DataFrame({"cell": self.cells(rows)})

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """Predict the most frequent class of each row's cell, or the mean of a label of numbers."""
        return self.label_.predict(self.cell_means_[self.cells(rows)])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.target_tags.required = True
        return tags


def _calibrated_by(
    own_bins: Int[Groups, " n"], scores: Float[FloatArray, "n L"], targets: Float[FloatArray, "n L"]
) -> Float[FloatArray, "n L"]:
    """Return the mean of the label given its score, for each set of bins by itself."""
    expected = np.empty_like(targets)
    for a in np.unique(own_bins):
        own = own_bins == a
        expected[own] = calibrated(scores[own], targets[own])
    return expected


def _sums(place: Int[Places, " n"], n_bins: int, columns: Float[FloatArray, "n d"]) -> Float[FloatArray, "d {n_bins}"]:
    """Return the sums of columns in each bin."""
    return np.stack([np.bincount(place, column, n_bins) for column in columns.T])


def _laws(place: Int[Places, " n"], n_bins: int, share: Float[FloatArray, "n K"]) -> Float[FloatArray, "K {n_bins}"]:
    """Return each group's law of bins, from each row's share in every group."""
    sums = _sums(place, n_bins, share)
    return sums / sums.sum(axis=1, keepdims=True)


def _persons_in(persons: Persons, kind: Int[Groups, " _"], n: int) -> Float[FloatArray, " {n}"]:
    """Return how many persons have rows of each kind, at least one."""
    return np.maximum(persons.count_by(kind, n), 1).astype(np.float64)


def _drawn(
    laws: Float[FloatArray, "B k"], places: Int[Places, " n"], coin: Float[FloatArray, " n"]
) -> Int[Cells, " n"]:
    """Draw from the law of cells of each row's bin, by a number in [0, 1)."""
    cumulative = np.cumsum(laws, axis=1)
    cumulative /= cumulative[:, -1:]  # which is 1 from the last possible cell on
    return (cumulative[places] <= coin[:, None]).sum(axis=1)

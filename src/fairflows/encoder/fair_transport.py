"""FairTransport: randomised encoders that leave an adversary nothing, at the least cost to the task."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.encoder.base import ExactLaw, FloatArray, Groups, LabelledRows, Learnt, Rows
from fairflows.encoder.cell_coupling import TransportedCells
from fairflows.encoder.cell_model import (
    CellModel,
    CellModelEncoder,
    KnownCells,
    check_labels,
    fit_cell_models,
)
from fairflows.encoder.labels import Classifier, Label, check_classifier, side_by_side
from fairflows.encoder.scores import (
    Score,
    ScoreColumn,
    checked_columns,
    fit_score,
    predicted_scores,
    score_columns,
)
from fairflows.exceptions import DataError, check_choice
from fairflows.table.columns import TableColumns, infer_kind
from fairflows.table.frames import TableLike, Values
from fairflows.table.persons import Persons, Secret
from fairflows.table.table import Role

_CALIBRATION = 0.3  # share of the persons that the distribution functions, and no classifier, are fitted on
_PROBABILITIES = np.linspace(0, 1, 2001)  # at which the common quantile function is known
_N_BINS = 64  # of the histogram by which Δ is estimated


@dataclass(eq=False, repr=False)
class FairTransport(CellModelEncoder):
    """Encode by optimal transport: of cells for categorical tables, of a task score for all others.

    *Cells.* Each group's cells are sent at random, keyed by person, so that the encoded cell has the same law in every
    group: under the estimated densities Δ = 0 exactly. Among all such encoders, this one changes the fewest predicted
    labels. Below full strength it moves along the closed-form frontier, Δ = (1 − strength)·TV_class.

    *Scores.* A classifier's score is moved, group by group, through its own quantile function onto the groups' common
    barycentre, and mixed with the raw score: t = (1 − strength)·s + strength·Q̄(F_a(s)). All else of the row is lost.
    Release the score's cell (`CellRelease`), never the score itself.

    The encoder is no bijection: `inverse_transform` samples a row that may stand behind z, and exists for cells only.

    Parameters
    ----------
    strength : float
        1 makes the groups alike; 0 leaves every predicted label, or every score, as it is.
    transport : {"auto", "cells", "score"}
        What to transport; "auto" takes cells where every column is categorical.
    classifier : classifier, optional
        Predicts the label: for cells from one-hot columns (logistic regression when not given), for scores from the
        columns themselves (gradient boosting when not given).
    density, hidden, output, n_bins, max_cells
        As for `FairMatching`; for cells only.
    reference : {"mean", "largest"} or group
        The law that all groups are sent to; for cells only. The mean shares the changes among the groups.
    kinds, unseen, missing, sensitive, identifier, key, random_state, device
        As for `FairMatching`.

    Attributes
    ----------
    latent_laws_ : ndarray of shape (K, m)
        For cells: the exact law of the encoded cell in each group, under the estimated densities.

    Examples
    --------
    >>> from fairflows import load_adult
    >>> encoder = FairTransport(density="counts").fit(load_adult())
    >>> bool(np.abs(encoder.latent_laws_[0] - encoder.latent_laws_[1]).sum() < 1e-10)
    True
    """

    strength: float = 1.0
    _: KW_ONLY
    transport: Literal["auto", "cells", "score"] = "auto"
    reference: Hashable = "mean"

    transport_: TransportedCells | TransportedScore = field(init=False)
    columns_: dict[Hashable, ScoreColumn] | None = field(init=False)

    strength_name = "strength"
    is_randomised = True  # cells are sent at random, and a score's ties are broken at random

    def _fit(self, rows: LabelledRows, strengths: Sequence[float], seeds: Sequence[int]) -> list[Learnt | None]:
        self._check_strengths(strengths)
        self._check_cell_settings()
        check_choice("transport", self.transport, ("auto", "cells", "score"))
        labels = self._read_labels(rows, "score", may_be_numbers=False)
        transports: Mapping[int, TransportedCells | TransportedScore]
        if self._transports_cells(rows.X):
            self.columns_ = None
            transports = self._fit_cells(rows, labels, seeds)
        else:
            self.columns_ = score_columns(rows.X, self.kinds or {}, self.unseen)
            transports = self._fit_scores(replace(rows, columns=self._features(rows)), labels, seeds)
        return [{"transport_": transports[seed].at(strength)} for strength in strengths for seed in seeds]

    def _transports_cells(self, X: pd.DataFrame) -> bool:
        kinds = [(self.kinds or {}).get(name) or infer_kind(X[name]) for name in X]
        return self.transport == "cells" or (self.transport == "auto" and all(kind == "categorical" for kind in kinds))

    def _features(self, rows: Rows) -> TableColumns:
        """The columns of a score, checked; cells are checked by their codec."""
        if self.columns_ is None:
            return rows.columns
        return checked_columns(rows.columns, self.columns_, self.missing_, rows.outside)

    def _fit_cells(self, rows: LabelledRows, labels: list[Label], seeds: Sequence[int]) -> dict[int, TransportedCells]:
        if len(labels) > 1:
            raise DataError(
                f"Transport of cells takes one label; got {len(labels)}. Use transport='score' for several."
            )
        y = labels[0].values if labels else None
        if y is not None:
            check_labels(rows.group, y, self.groups_, self.label_classes)
        models = fit_cell_models(self, rows, y, seeds)
        return {
            seed: TransportedCells.of(model, self.reference, self.groups_, self.output)
            for seed, model in models.items()
        }

    def _fit_scores(self, rows: LabelledRows, labels: list[Label], seeds: Sequence[int]) -> dict[int, TransportedScore]:
        if not labels:
            raise DataError("Transport of a score needs a label to score; pass y, or use transport='cells'.")
        for label in labels:
            check_labels(rows.group, label.values, self.groups_, label.class_values)
        check_classifier(self.classifier, weighted=rows.weight is not None)
        settings = len(self.groups_), self.columns_ or {}, self.classifier
        return {seed: TransportedScore.fit(rows, labels, *settings, seed) for seed in seeds}

    @property
    def _cells(self) -> TransportedCells | None:
        """The transport of cells; None for one of scores."""
        self._check_fitted()
        return self.transport_ if isinstance(self.transport_, TransportedCells) else None

    @property
    def _cell_model(self) -> CellModel | None:
        return None if self._cells is None else self._cells.model

    @property
    def latent_laws_(self) -> FloatArray:
        """The law of the encoded cell in each group under the estimated densities, (K, m); for cells only."""
        if self._cells is None:
            raise AttributeError("A transported score has no law of cells; release it as cells and certify those.")
        return np.asarray(self._cells.laws)

    @property
    def held_out_log_likelihood_(self) -> FloatArray | None:  # type: ignore[override]
        """How well each group's density of cells fits rows that it was not fitted on; None for a score."""
        return None if self._cells is None else self._cells.model.held_out_log_likelihood

    def _encode_rows(self, rows: Rows) -> pd.DataFrame | dict[Hashable, Values]:
        """The moved cell or score of each row; one person is always encoded alike."""
        return self.transport_.encode(replace(rows, columns=self._features(rows)), self.key_)

    def _decode_rows(self, Z: TableLike, sensitive_features: Role | None, persons: Persons | None) -> pd.DataFrame:
        """A *sample* of the rows that may stand behind Z, drawn from x given z and the group, keyed by person.

        Transport is not a bijection: these are not the rows that were encoded.
        """
        if self._cells is None:
            raise DataError("A transported score cannot be decoded: the rest of the row is lost.")
        rows = self._read_latent(Z, sensitive_features, persons, by_person=True)
        return self._cells.decode(rows, self.key_)

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """The class that each encoded row suggests; one column per label where there are several."""
        classes = self.classes_ if isinstance(self.classes_, list) else [self.label_classes]
        codes = self.transport_.predict(replace(rows, columns=self._features(rows)), self.key_)
        return side_by_side([values[codes[:, j]] for j, values in enumerate(classes)])

    def latent_law(self) -> ExactLaw | None:
        """Of cells, the law under the estimated densities; of one score, a histogram of calibration rows.

        Of several scores no joint law is known.
        """
        self._check_fitted()
        laws = self.transport_.latent_laws()
        return None if laws is None else ExactLaw(laws, {})

    def known_cells(self) -> KnownCells | None:
        """The laws of cells; None for a score."""
        cells = self._cells
        return None if cells is None else KnownCells(cells.model, self.output, np.asarray(cells.laws))

    def _names_out(self) -> list[str]:
        return self.transport_.names


@dataclass(frozen=True)
class Barycentre:
    """The groups' distribution functions F_a of one score, and their common quantile function Q̄(u) = Σ_a w_a F_a⁻¹(u).

    At λ = 1 a moved score has the same law in every group, and the order within a group is kept. Ties, which trees
    make, are broken by a number that belongs to the person.
    """

    scores: list[FloatArray]  # each group's calibration scores, sorted
    quantiles: FloatArray  # Q̄ on an even grid of [0, 1]

    @classmethod
    def fit(cls, scores: FloatArray, group: Groups, n_groups: int) -> Barycentre:
        """The barycentre that weighs groups by their share of the rows, which moves the fewest rows far."""
        ordered = [np.sort(scores[group == a]) for a in range(n_groups)]
        weights = np.bincount(group, minlength=n_groups) / len(group)
        quantiles = [w * np.quantile(s, _PROBABILITIES) for w, s in zip(weights, ordered, strict=True)]
        return cls(ordered, np.asarray(sum(quantiles)))

    def move(self, scores: FloatArray, group: Groups, tie: FloatArray, strength: float) -> FloatArray:
        """(1 − λ)·s + λ·Q̄(F_a(s)), with ties broken by numbers in [0, 1)."""
        rank = np.empty(len(scores))
        for a, known in enumerate(self.scores):
            rows = group == a
            below = np.searchsorted(known, scores[rows], side="left")
            upto = np.searchsorted(known, scores[rows], side="right")
            rank[rows] = (below + tie[rows] * (upto - below)) / len(known)
        common = np.interp(rank, _PROBABILITIES, self.quantiles)
        return (1 - strength) * scores + strength * common


@dataclass(frozen=True)
class TransportedScore:
    """The scores of one or several labels, transported."""

    names: list[str]  # one column per score
    classifiers: list[Score]  # one per label, as plain arrays where the classifier has such a form
    n_classes: list[int]  # classes of each label: two give one score, more give one score per class
    barycentres: list[Barycentre]  # one per score
    # Of calibration rows: scores, class numbers of the labels, groups, and the numbers that break ties.
    calibration: tuple[FloatArray, npt.NDArray[np.intp], Groups, FloatArray]
    strength: float = 1.0  # λ
    # From which (moved) score on the second of two classes is predicted; chosen on calibration rows.
    thresholds: tuple[float, ...] = ()
    laws: FloatArray | None = None  # (K, bins): histogram of the moved scores of calibration rows in each group

    @classmethod
    def fit(
        cls,
        rows: LabelledRows,
        labels: Sequence[Label],
        n_groups: int,
        columns: Mapping[Hashable, ScoreColumn],
        classifier: Classifier | None,
        random_state: int,
    ) -> TransportedScore:
        """Train on some persons, and learn the groups' distribution functions from the scores of the others."""
        # All rows of the others count: it is the law of the file's rows that is to be alike, and is certified.
        train, rest = rows.persons.split(_CALIBRATION, random_state=random_state)
        sizes = np.bincount(rows.group[rest], minlength=n_groups)
        if sizes.min() < 2 or np.bincount(rows.group[train], minlength=n_groups).min() < 1:
            raise DataError(
                f"Every group needs rows both to train the score and to learn its distribution; the smallest has "
                f"{int(np.bincount(rows.group, minlength=n_groups).min())}."
            )
        classifiers = [
            fit_score(classifier, rows, train, label.values[train], columns, random_state) for label in labels
        ]
        scores = predicted_scores(classifiers, rows.columns.take(rest))
        group = rows.group[rest]
        tie = np.random.default_rng(random_state).random(scores.shape)
        barycentres = [Barycentre.fit(column, group, n_groups) for column in scores.T]
        y = np.column_stack([label.values[rest] for label in labels])
        names = [name for label in labels for name in label.target_names]
        n_classes = [len(label.class_values) for label in labels]
        return cls(names, classifiers, n_classes, barycentres, (scores, y, group, tie))

    def at(self, strength: float) -> TransportedScore:
        """The same scores and distribution functions at another strength."""
        scores, labels, group, tie = self.calibration
        moved = self._move(scores, group, tie, strength)
        thresholds = tuple(
            _best_threshold(part[:, 0], y) if n == 2 else np.nan
            for part, n, y in zip(self._by_label(moved), self.n_classes, labels.T, strict=True)
        )
        return replace(self, strength=strength, thresholds=thresholds, laws=_histogram(moved[:, 0], group))

    def encode(self, rows: Rows, key: Secret) -> pd.DataFrame:
        """The moved scores, a column each."""
        persons = rows.persons_or_fresh()
        tie = np.column_stack([persons.uniform(key, f"tie:{name}") for name in self.names])
        moved = self._move(predicted_scores(self.classifiers, rows.columns), rows.map_group, tie, self.strength)
        return pd.DataFrame(moved, columns=self._column_names.view())

    @cached_property
    def _column_names(self) -> pd.Index:
        return pd.Index(self.names)

    def predict(self, rows: Rows, key: Secret) -> npt.NDArray[np.intp]:
        """The class of each label, (n_rows, n_labels), from the moved scores alone."""
        parts = self._by_label(self.encode(rows, key).to_numpy())
        classes = [
            (part[:, 0] >= threshold).astype(np.intp) if n == 2 else part.argmax(axis=1)
            for part, n, threshold in zip(parts, self.n_classes, self.thresholds, strict=True)
        ]
        return np.column_stack(classes)

    def latent_laws(self) -> FloatArray | None:
        """The histogram of a single score: an estimate that a finer look may exceed. None for several scores."""
        return self.laws if len(self.barycentres) == 1 else None

    def _by_label(self, scores: FloatArray) -> list[FloatArray]:
        """The scores of each label: one for two classes, else one per class."""
        return np.split(scores, np.cumsum([1 if n == 2 else n for n in self.n_classes])[:-1], axis=1)

    def _move(self, scores: FloatArray, group: Groups, tie: FloatArray, strength: float) -> FloatArray:
        columns = [b.move(scores[:, j], group, tie[:, j], strength) for j, b in enumerate(self.barycentres)]
        return np.column_stack(columns)


def _best_threshold(scores: FloatArray, y: npt.NDArray[np.intp]) -> float:
    """The threshold of the highest accuracy: below it class 0, from it on class 1."""
    order = np.argsort(scores, kind="stable")
    right = np.concatenate([[0], np.cumsum(y[order] == 0)]) + np.concatenate(
        [np.cumsum(y[order][::-1] == 1)[::-1], [0]]
    )
    distinct = np.concatenate([[True], np.diff(scores[order]) > 0, [True]])
    best = int(np.where(distinct, right, -1).argmax())
    if best == 0:
        return -np.inf
    if best == len(scores):
        return np.inf
    return float((scores[order][best - 1] + scores[order][best]) / 2)


def _histogram(scores: FloatArray, group: Groups) -> FloatArray:
    """Each group's histogram over bins that hold about equally many rows of all."""
    edges = np.unique(np.quantile(scores, np.linspace(0, 1, _N_BINS + 1)[1:-1]))
    counts = np.stack(
        [np.bincount(np.searchsorted(edges, scores[group == a], side="right"), minlength=len(edges) + 1)
         for a in range(group.max() + 1)]
    )  # fmt: skip
    return counts / counts.sum(axis=1, keepdims=True)

"""Transport of a task score, group by group, onto the groups' common barycentre.

With F_a the distribution function of the score in group a and Q̄(u) = Σ_a w_a F_a⁻¹(u) the quantile function of the
barycentre, a score s becomes t = (1 − λ)·s + λ·Q̄(F_a(s)): at λ = 1 the same law in every group, and the order within a
group is kept. Ties, which trees make, are broken by a number that belongs to the person.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.pipeline import Pipeline

from fairflows.encoder.base import Rows
from fairflows.encoder.checks import Classifier, check_classifier
from fairflows.encoder.plain_score import PlainScore
from fairflows.encoder.task_score import fit_score, predicted_scores
from fairflows.exceptions import DataError

FloatArray = npt.NDArray[np.float64]
Groups = npt.NDArray[np.intp]

_CALIBRATION = 0.3  # share of the persons that the distribution functions, and no classifier, are fitted on
_N_QUANTILES = 2001
_N_BINS = 64  # of the histogram by which Δ is estimated


@dataclass(frozen=True)
class Barycentre:
    """The groups' distribution functions of one score, and their common quantile function.

    Attributes
    ----------
    scores : list of ndarray
        Each group's calibration scores, sorted.
    quantiles : ndarray
        Q̄ on an even grid of [0, 1].
    """

    scores: list[FloatArray]
    quantiles: FloatArray

    @classmethod
    def fit(cls, scores: FloatArray, group: Groups, n_groups: int) -> Barycentre:
        """The barycentre that weighs groups by their share of the rows, which moves the fewest rows far."""
        ordered = [np.sort(scores[group == a]) for a in range(n_groups)]
        weights = np.bincount(group, minlength=n_groups) / len(group)
        u = np.linspace(0, 1, _N_QUANTILES)
        return cls(ordered, np.asarray(sum(w * np.quantile(s, u) for w, s in zip(weights, ordered, strict=True))))

    def move(self, scores: FloatArray, group: Groups, tie: FloatArray, strength: float) -> FloatArray:
        """(1 − λ)·s + λ·Q̄(F_a(s)), with ties broken by numbers in [0, 1)."""
        rank = np.empty(len(scores))
        for a, known in enumerate(self.scores):
            rows = group == a
            below = np.searchsorted(known, scores[rows], side="left")
            upto = np.searchsorted(known, scores[rows], side="right")
            rank[rows] = (below + tie[rows] * (upto - below)) / len(known)
        common = np.interp(rank, np.linspace(0, 1, _N_QUANTILES), self.quantiles)
        return (1 - strength) * scores + strength * common


@dataclass(frozen=True)
class TransportedScore:
    """The scores of one or several labels, transported.

    Attributes
    ----------
    names : list of str
        A column a score.
    classifiers : list of PlainScore or Pipeline
        One per label, as plain arrays where the classifier has such a form.
    n_classes : list of int
        Classes of each label: two give one score, more give one score a class.
    barycentres : list of Barycentre
        One a score.
    thresholds : list of float
        From which (moved) score on the second of two classes is predicted; chosen on calibration rows.
    laws : ndarray of shape (K, bins)
        Histogram of the moved scores of calibration rows in each group.
    strength : float
        λ.
    """

    names: list[str]
    classifiers: list[PlainScore | Pipeline]
    n_classes: list[int]
    barycentres: list[Barycentre]
    calibration: tuple[FloatArray, npt.NDArray[np.intp], Groups, FloatArray]
    strength: float = 1.0
    thresholds: tuple[float, ...] = ()
    laws: FloatArray | None = None

    @classmethod
    def fit(
        cls,
        rows: Rows,
        labels: npt.NDArray[np.intp],
        names: list[str],
        n_classes: list[int],
        *,
        n_groups: int,
        categories: Sequence[Hashable],
        classifier: Classifier | None,
        sample_weight: FloatArray | None,
        random_state: int,
    ) -> TransportedScore:
        """Train on some persons, and learn the groups' distribution functions from the scores of the others.

        `categories` names the columns that hold categories.
        """
        check_classifier(classifier, weighted=sample_weight is not None)
        # All rows of the others count: it is the law of the file's rows that is to be alike, and is certified.
        train, rest = rows.persons.split(_CALIBRATION, random_state=random_state)
        sizes = np.bincount(rows.group[rest], minlength=n_groups)
        if sizes.min() < 2 or np.bincount(rows.group[train], minlength=n_groups).min() < 1:
            raise DataError(
                f"Every group needs rows both to train the score and to learn its distribution; the smallest has "
                f"{int(np.bincount(rows.group, minlength=n_groups).min())}."
            )
        weight = None if sample_weight is None else sample_weight[train]
        classifiers = [
            fit_score(classifier, rows.X.iloc[train], y, categories, weight, random_state) for y in labels[train].T
        ]
        scores = predicted_scores(classifiers, rows.X.iloc[rest])
        group = rows.group[rest]
        tie = np.random.default_rng(random_state).random(scores.shape)
        barycentres = [Barycentre.fit(column, group, n_groups) for column in scores.T]
        return cls(names, classifiers, n_classes, barycentres, (scores, labels[rest], group, tie))

    def at(self, strength: float) -> TransportedScore:
        """The same scores and distribution functions at another strength."""
        scores, labels, group, tie = self.calibration
        moved = self._move(scores, group, tie, strength)
        thresholds, column = [], 0
        for j, n in enumerate(self.n_classes):
            thresholds.append(_best_threshold(moved[:, column], labels[:, j]) if n == 2 else np.nan)
            column += 1 if n == 2 else n
        return replace(self, strength=strength, thresholds=tuple(thresholds), laws=_histogram(moved[:, 0], group))

    def encode(self, rows: Rows, key: bytes) -> pd.DataFrame:
        """The moved scores, a column each."""
        persons = rows.persons_or_fresh()
        tie = np.column_stack([persons.uniform(key, f"tie:{name}") for name in self.names])
        moved = self._move(predicted_scores(self.classifiers, rows.X), rows.map_group, tie, self.strength)
        return pd.DataFrame(moved, columns=self.names)

    def predict(self, moved: FloatArray) -> npt.NDArray[np.intp]:
        """The class of each label, (n_rows, n_labels), from the moved scores alone."""
        classes, column = [], 0
        for n, threshold in zip(self.n_classes, self.thresholds, strict=True):
            if n == 2:
                classes.append((moved[:, column] >= threshold).astype(np.intp))
                column += 1
            else:
                classes.append(moved[:, column : column + n].argmax(axis=1))
                column += n
        return np.column_stack(classes)

    def latent_laws(self) -> FloatArray | None:
        """The histogram of a single score: an estimate that a finer look may exceed. None for several scores."""
        return self.laws if len(self.barycentres) == 1 else None

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

"""Bins of scores: the rows that a linear programme treats alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.spatial import cKDTree
from sklearn.cluster import KMeans
from sklearn.isotonic import IsotonicRegression
from sklearn.pipeline import Pipeline

from fairflows.encoder.plain_score import PlainScore
from fairflows.encoder.task_score import predicted_scores

FloatArray = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Score: TypeAlias = "PlainScore | Pipeline"

_MOST_CLUSTERED = 20_000  # rows that centres are found from
_ROWS_PER_CHUNK = 2**15


@dataclass(frozen=True)
class ScoreBins:
    """Quantile bins of one score, a grid of two, or the nearest of some centres for more.

    Attributes
    ----------
    edges : list of ndarray
        Of one or two scores: the values from which on the next bin begins.
    centre, scale : ndarray of shape (d,)
        What scores are shifted and divided by before distances are measured.
    centres : ndarray of shape (n_centres, d)
        Of more scores: the centres, in these units.
    n_groups : int
        K where every group has bins of its own, 1 where all groups share them.
    kept : ndarray
        The bin, among those that are kept, of every bin: itself, or the nearest where no row was.
    """

    edges: list[FloatArray]
    centre: FloatArray
    scale: FloatArray
    centres: FloatArray
    n_groups: int
    kept: Places

    @classmethod
    def fit(
        cls, scores: FloatArray, group: Places, weight: FloatArray, *, n_groups: int, n_bins: int, random_state: int
    ) -> ScoreBins:
        """About `n_bins` bins of scores (n, d), of equal weight where there are one or two.

        `group` says whose bins a row belongs to, in 0 … n_groups − 1.
        """
        d, each = scores.shape[1], max(n_bins // n_groups, 2)
        scale = np.where(scores.std(axis=0) > 0, scores.std(axis=0), 1)
        none = np.empty((0, d))
        if d <= 2:
            n = each if d == 1 else max(int(np.sqrt(each)), 2)
            edges = [_quantile_edges(column, weight, n) for column in scores.T]
            raw = cls(edges, scores.mean(axis=0), scale, none, n_groups, np.empty(0, dtype=np.intp))
        else:
            some = np.random.default_rng(random_state).permutation(len(scores))[:_MOST_CLUSTERED]
            x = (scores[some] - scores.mean(axis=0)) / scale
            k = min(each, len(np.unique(x, axis=0)))
            found = KMeans(k, n_init=1, random_state=random_state).fit(x, sample_weight=weight[some])
            centres = np.asarray(found.cluster_centers_, dtype=np.float64)
            raw = cls([], scores.mean(axis=0), scale, centres, n_groups, np.empty(0, dtype=np.intp))
        return cls(raw.edges, raw.centre, raw.scale, raw.centres, n_groups, raw._nearest_used(scores, group, weight))

    @property
    def n(self) -> int:
        """How many bins are kept."""
        return int(self.kept.max()) + 1

    def places(self, scores: FloatArray, group: Places) -> Places:
        """Each row's bin."""
        return self.kept[self._raw_places(scores, group)]

    @property
    def _shape(self) -> tuple[int, ...]:
        return (len(self.centres),) if not self.edges else tuple(len(edges) + 1 for edges in self.edges)

    def _raw_places(self, scores: FloatArray, group: Places) -> Places:
        if self.edges:
            columns = [
                np.searchsorted(edges, column, side="right") for edges, column in zip(self.edges, scores.T, strict=True)
            ]
            place = np.ravel_multi_index(columns, self._shape)
        else:
            place = np.empty(len(scores), dtype=np.intp)
            squares = (self.centres**2).sum(axis=1)
            for start in range(0, len(scores), _ROWS_PER_CHUNK):
                x = (scores[start : start + _ROWS_PER_CHUNK] - self.centre) / self.scale
                place[start : start + _ROWS_PER_CHUNK] = (squares - 2 * x @ self.centres.T).argmin(axis=1)
        return place + int(np.prod(self._shape)) * (group if self.n_groups > 1 else 0)

    def _nearest_used(self, scores: FloatArray, group: Places, weight: FloatArray) -> Places:
        """For every bin the number, among bins that hold rows, of the nearest such bin of the same group."""
        each = int(np.prod(self._shape))
        used = np.bincount(self._raw_places(scores, group), weight, each * self.n_groups) > 0
        number = np.cumsum(used) - 1
        at = np.stack(np.unravel_index(np.arange(each), self._shape), axis=1) if self.edges else self.centres
        kept = np.empty(each * self.n_groups, dtype=np.intp)
        for a in range(self.n_groups):
            own = np.arange(a * each, (a + 1) * each)
            _, nearest = cKDTree(at[used[own]]).query(at)
            kept[own] = number[own[used[own]][nearest]]
        return kept


@dataclass(frozen=True)
class BinnedScores:
    """Scores of the label, and of the group where it is not known at encoding, with their bins.

    Attributes
    ----------
    label_scores : list of PlainScore or Pipeline
        η, one per label.
    group_score : PlainScore or Pipeline, or None
        ρ, the belief in the group, or in the label and the group together; None where bins are those of a group.
    n_groups : int
        K.
    bins : ScoreBins or None
        The bins; None until they are cut.
    """

    label_scores: list[Score]
    group_score: Score | None
    n_groups: int
    bins: ScoreBins | None = None

    def coordinates(self, X: pd.DataFrame) -> FloatArray:
        """η, and where the group is not known P(a | x), or P(a | x, y) for every label that counts, (n, d)."""
        eta = predicted_scores(self.label_scores, X)
        if self.group_score is None:
            return eta
        joint = self.group_score.predict_proba(X).reshape(len(X), -1, self.n_groups)
        belief = joint / np.maximum(joint.sum(axis=-1, keepdims=True), 1e-12)
        return np.column_stack([eta, belief[..., 1:].reshape(len(X), -1)])

    def own_bins(self, group: Places) -> Places:
        """Whose bins each row belongs to: its group's where the group is known."""
        return group if self.group_score is None else np.zeros_like(group)

    def places(self, X: pd.DataFrame, group: Places) -> Places:
        """Each row's bin."""
        assert self.bins is not None
        return self.bins.places(self.coordinates(X), self.own_bins(group))


def calibrated(scores: FloatArray, targets: FloatArray, weight: FloatArray) -> FloatArray:
    """What is expected of each target given its score: the monotone fit, column by column."""
    columns = [
        IsotonicRegression(out_of_bounds="clip").fit(score, target, sample_weight=weight).predict(score)
        for score, target in zip(scores.T, targets.T, strict=True)
    ]
    return np.column_stack(columns)


def _quantile_edges(scores: FloatArray, weight: FloatArray, n: int) -> FloatArray:
    order = np.argsort(scores, kind="stable")
    cumulative = np.cumsum(weight[order])
    edges = np.unique(scores[order][np.searchsorted(cumulative, np.arange(1, n) / n * cumulative[-1])])
    return edges[edges > scores.min()]

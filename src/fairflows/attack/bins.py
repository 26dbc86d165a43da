"""Columns of many values in bins, for boosted trees whose rows have weights."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin

FloatArray = npt.NDArray[np.float64]

_BINS = 255  # that scikit-learn's boosted trees tell apart


class Bins(TransformerMixin, BaseEstimator):
    """Each value as the number of its bin: quantiles of the column, in which every group has the same weight.

    scikit-learn makes the same bins, but where rows have weights it sorts the column anew for each of the quantiles,
    which takes several times as long as growing the trees.
    """

    def fit(self, x: FloatArray, group: npt.NDArray[np.intp]) -> Self:
        """Learn where the bins of each column begin."""
        _, place, n = np.unique(group, return_inverse=True, return_counts=True)
        self.edges_ = [_edges(column, 1 / n[place]) for column in np.asarray(x).T]
        return self

    def transform(self, x: FloatArray) -> FloatArray:
        """The numbers of the bins, (n, F)."""
        bins = [np.searchsorted(edges, column) for edges, column in zip(self.edges_, np.asarray(x).T, strict=True)]
        return np.column_stack(bins).astype(np.float64)


def _edges(column: FloatArray, weight: FloatArray) -> FloatArray:
    """The largest value of each bin but the last; where there are few values, each has a bin of its own."""
    different = np.unique(column)
    if len(different) <= _BINS:
        return different[:-1]
    order = np.argsort(column)
    total = np.cumsum(weight[order])
    quantiles = np.searchsorted(total, np.linspace(0, total[-1], _BINS + 1)[1:-1])
    return np.unique(column[order][quantiles])

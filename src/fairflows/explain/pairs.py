"""Matches: which rows of the groups share one representation, and how likely each of them is.

An encoder hides the group where z = f_a(x) could as well be somebody of another group, x̃ = f_b⁻¹(z). Trained for
fairness, the flows match rows that are about equally likely in their groups (Balunović et al., 2022).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.manifold import TSNE
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from fairflows.encoder.base import Encoder
from fairflows.exceptions import DataError
from fairflows.table.frames import TableLike
from fairflows.table.table import Role, Table

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Matches:
    """Each row as it is in its own group, and as every other group would have it.

    Attributes
    ----------
    group : ndarray of shape (n,)
        The group each row is from.
    sides : dict of group to DataFrame
        f_b⁻¹(z) for every row, in the table's columns: the row itself where b is its own group, else its match.
    points : dict of group to ndarray of shape (n, D)
        The same in model space, where densities and distances live.
    log_likelihood : DataFrame of shape (n, K)
        log p̂_b of each side, in model space.
    """

    group: np.ndarray
    sides: dict[Hashable, pd.DataFrame]
    points: dict[Hashable, Array]
    log_likelihood: pd.DataFrame

    def to_frame(self, to: Hashable = None) -> pd.DataFrame:
        """Return one line per row: its group, the row, its match (``match LSAT``), and the log-likelihood of both.

        Parameters
        ----------
        to : group, optional
            The group to match to; with two groups, the other one.
        """
        groups = list(self.sides)
        if to is None and len(groups) > 2:
            raise DataError(f"to must say which of {len(groups)} groups to match to.")
        own = pd.Index(groups).get_indexer(self.group)
        other = 1 - own if to is None else np.full(len(own), self._place(to))
        row, match = (_picked([self.sides[g] for g in groups], side) for side in (own, other))
        log_p = self.log_likelihood.to_numpy()
        line = np.arange(len(own))
        judged = pd.DataFrame({"log p(x)": log_p[line, own], "log p(match)": log_p[line, other]}, index=row.index)
        match = match.add_prefix("match ")
        return pd.concat([pd.DataFrame({"group": self.group}, index=row.index), row, match, judged], axis=1)

    def clusters(self, n_clusters: int = 8) -> npt.NDArray[np.intp]:
        """Return k-means clusters of the last group's side, which their matches share."""
        last = list(self.sides)[-1]
        return KMeans(n_clusters, n_init=10, random_state=0).fit_predict(self._scaled_points(last))

    def summary(self, clusters: npt.NDArray[np.intp]) -> pd.DataFrame:
        """Return each cluster's size, and the mean log-likelihood of its rows and of their matches.

        With several other groups, the matches of all of them count.
        """
        groups = pd.Index(list(self.sides))
        own = groups.get_indexer(self.group)[:, None] == np.arange(len(groups))
        log_p = self.log_likelihood.to_numpy()
        real = np.where(own, log_p, 0).sum(axis=1)
        matched = np.where(own, 0, log_p).sum(axis=1) / (len(groups) - 1)
        frame = pd.DataFrame({"cluster": clusters, "log p(x)": real, "log p(match)": matched})
        by_cluster = frame.groupby("cluster")
        return by_cluster.mean().assign(rows=by_cluster.size())

    def embedding(self, group: Hashable) -> Array:
        """Return the t-SNE embedding of one group's side, (n, 2)."""
        points = self._scaled_points(group)
        return TSNE(perplexity=min(30.0, (len(points) - 1) / 3), random_state=0).fit_transform(points)

    def _scaled_points(self, group: Hashable) -> Array:
        """Return one group's side in model space, standardised."""
        return StandardScaler().fit_transform(self.points[group])

    def _place(self, group: Hashable) -> int:
        if group not in self.sides:
            raise DataError(f"to must be one of {list(self.sides)}; got {group!r}.")
        return list(self.sides).index(group)


def matches(encoder: Encoder, X: TableLike | Table, *, sensitive_features: Role | None = None) -> Matches:
    """Return every row with the rows of the other groups that share its representation.

    Parameters
    ----------
    encoder : FairFlow
        A fitted encoder.
    X : Table, frame or array
        Rows to match.
    sensitive_features : array, optional
        Their groups, unless a column of X holds them.

    Examples
    --------
    >>> from fairflows import FairFlow
    >>> from fairflows.paper import make_gaussians
    >>> table, densities = make_gaussians(400, random_state=0)
    >>> encoder = FairFlow(gamma=1, density=densities, n_epochs=20).fit(table.X, table.y, sensitive_features=table.a)
    >>> pairs = matches(encoder, table.X, sensitive_features=table.a)
    >>> list(pairs.to_frame())
    ['group', 'x1', 'x2', 'match x1', 'match x2', 'log p(x)', 'log p(match)']
    """
    check_is_fitted(encoder)
    refused = DataError(f"Matches are for encoders with an inverse for every group; {type(encoder).__name__} has none.")
    if not isinstance(encoder, Encoder):
        raise refused
    rows = encoder.read(X, sensitive_features)
    index, names = rows.X.index, encoder.groups_
    rows = replace(rows, persons=rows.persons.named_or_numbered())
    law = encoder.latent_law()
    inversions = None if law is None else law.inversions(encoder.encode(rows))
    if inversions is None:
        raise refused
    return Matches(
        pd.Index(names).take(rows.group).to_numpy(),
        {name: side.rows.set_axis(index) for name, side in zip(names, inversions, strict=True)},
        {name: side.x for name, side in zip(names, inversions, strict=True)},
        pd.DataFrame(np.column_stack([side.log_prob for side in inversions]), columns=names, index=index),
    )


def _picked(frames: list[pd.DataFrame], which: npt.NDArray[np.intp]) -> pd.DataFrame:
    """Return row i of frame which[i], for every i."""
    stacked = pd.concat(frames, ignore_index=True)
    return stacked.iloc[which * len(which) + np.arange(len(which))].set_axis(frames[0].index)

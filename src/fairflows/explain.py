"""Explanations of an invertible encoder's decisions: recourse, and matches between groups.

Both show single rows of the table, and must not be part of a public report.

*Recourse* says what would have to change about a rejected row for it to be accepted. A decision h(z) on the
representation can be traced back to the table (Balunović et al., 2022): from the z of a rejected row a straight line
leads to the nearest z̃ that h accepts; the first accepted point on it, decoded by the row's own group, is the advice.

*Matches* are rows of different groups that share one representation. An encoder hides the group where z = f_a(x) could
as well be somebody of another group, x̃ = f_b⁻¹(z). Trained for fairness, the flows match rows that are about equally
likely in their groups.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_is_fitted

from fairflows.arrays import NDArray
from fairflows.encoder.base import Encoder, fitted_model, label_values
from fairflows.encoder.fair_flow import FairFlow
from fairflows.encoder.rows import Rows
from fairflows.exceptions import DataError
from fairflows.table.columns import check_known, floats, has_order, is_time, with_columns
from fairflows.table.frames import Frame, TableLike, to_pandas
from fairflows.table.persons import Persons
from fairflows.table.roles import Role
from fairflows.table.table import Table

Array = NDArray[np.float64]
Accepts = Callable[[Array], npt.NDArray[np.bool_]]

_N_DRAWS = 10_000
_STEPS = np.linspace(0, 1, 11)[1:]  # points on each line
_DAY = 86_400  # seconds


@dataclass(frozen=True)
class Recourse:
    """Rejected rows, each with a row of the same person that would have been accepted.

    Attributes
    ----------
    before, after : DataFrame
        The rejected rows that a change was found for, and those rows changed.
    details : DataFrame
        For each: its ``group``; ``step``, how far along the line, in (0, 1]; ``candidate``, how often the accepted
        points were halved before one led to an accepted row (0: the nearest of all did); ``cost``, the changes of
        numbers in standard deviations plus the number of changed categories; ``plausibility``, the share of the group
        (under its density p̂_a) that is less likely than the changed row.
    rejected : Series
        How many rows of each group were rejected.
    """

    before: pd.DataFrame
    after: pd.DataFrame
    details: pd.DataFrame
    rejected: pd.Series

    def changes(self) -> pd.DataFrame:
        """Return by how much each number column changes, one row per person; times in days."""
        return ordered_values(self.after) - ordered_values(self.before)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per person: details, each column as it is, and as it would have to be (``LSAT → new``)."""
        after = self.after.rename(columns=lambda name: f"{name} → new")
        return pd.concat([self.details, self.before, after], axis=1)

    def summary(self) -> pd.DataFrame:
        """Compare the groups: the share of rejected rows with an accepted change, its mean cost, its plausibility."""
        group = self.details["group"].to_numpy()
        changes = self.changes().groupby(group).mean().add_prefix("mean change of ")
        switched = changed_categories(self.before, self.after).groupby(group).mean().add_prefix("share that changes ")
        judged = self.details.groupby("group").agg(
            **{"mean cost": ("cost", "mean"), "median plausibility": ("plausibility", "median")}
        )
        found = self.details["group"].value_counts().reindex(self.rejected.index, fill_value=0)
        counts = pd.DataFrame({"rejected": self.rejected, "with a way": found / self.rejected.clip(lower=1)})
        return counts.join([changes, switched, judged]).rename_axis("group")


def recourse(
    encoder: FairFlow,
    X: Frame | Table,
    *,
    sensitive_features: Role | None = None,
    classifier: ClassifierMixin | None = None,
    favourable: Hashable = None,
    pool: Table | None = None,
    keep: Sequence[str] = (),
    n_candidates: int = 10,
    random_state: int = 0,
) -> Recourse:
    r"""Return how each rejected row of X could have been accepted.

    For z = f_a(x) with h(z) = 0 and the nearest accepted z̃, the first accepted point of

    .. math:: z_t = z + t\,(\tilde z - z), \qquad t \in \{0, 0.1, \dots, 1\}

    is decoded as :math:`f_a^{-1}(z_t)`, its values set on their grids, and columns that must stay put back. If h does
    not accept the row that results, encoded as this person's rows are, later points and then other z̃ are tried.

    Parameters
    ----------
    encoder : FairFlow
        A fitted encoder with an inverse and densities.
    X : Table or frame
        Rows; accepted ones are left out. Without an identifier a row's noise belongs to its index, before and after the
        change.
    sensitive_features : array, default=None
        Their groups, unless a column of X holds them.
    classifier : classifier, default=None
        Decision h, fitted on encoded rows; by default the encoder's own.
    favourable : label, default=None
        Class that counts as accepted; by default the last one.
    pool : Table, default=None
        Rows whose encodings may be z̃; by default draws from the densities p̂_a, so that advice shows nobody's row.
    keep : sequence of str, default=()
        Columns that must stay as they are.
    n_candidates : int, default=10
        Number of accepted z̃ to try: the nearest of all, of a random half, of a quarter, …
    random_state : int, default=0
        Seed of the draws.

    Examples
    --------
    >>> from fairflows import FairFlow
    >>> from fairflows.paper import make_gaussians
    >>> table, densities = make_gaussians(600, random_state=0)
    >>> encoder = FairFlow(gamma=0.5, density=densities, n_epochs=5).fit(table.X, table.y, sensitive_features=table.a)
    >>> advice = recourse(encoder, table.X, sensitive_features=table.a, keep=["x2"])
    >>> bool((advice.before["x2"] == advice.after["x2"]).all())
    True
    """
    if n_candidates < 1:
        raise DataError(f"n_candidates must be at least 1; got {n_candidates!r}.")
    if not isinstance(encoder, FairFlow):
        raise DataError(
            f"Recourse decodes points between rows and needs an encoder with a continuous inverse (FairFlow); "
            f"{type(encoder).__name__} has none."
        )
    check_is_fitted(encoder)
    if isinstance(X, Table):
        X, sensitive_features = X.X, X.a
    rows = _rows(encoder, to_pandas(X), sensitive_features)
    for name in keep:
        check_known(name, rows.X, "keep")
    accepts = _acceptance(encoder, classifier, favourable)
    z = _encoded(encoder, rows)
    rejected = np.flatnonzero(~accepts(z))
    draws = _Draws.of(encoder, random_state)
    targets = draws.z if pool is None else _encoded(encoder, _rows(encoder, pool.X, pool.a))
    targets = np.random.default_rng(random_state).permutation(targets[accepts(targets)])
    if not len(targets):
        raise DataError("No row of the pool is accepted, so there is nothing to lead the rejected rows to.")
    search = _Search(encoder, accepts, list(keep), rows.take(rejected), z[rejected])
    search.run(targets, n_candidates)

    found = rows.take(rejected[search.step > 0])
    before, groups = found.X, np.array(encoder.groups_, dtype=object)
    after = search.changed(before)
    details = pd.DataFrame(
        {
            "group": groups[found.group],
            "step": search.step[search.step > 0],
            "candidate": search.candidate[search.step > 0],
            "cost": _cost(before, after, ordered_values(rows.X).std()),
            "plausibility": _plausibility(encoder, replace(found, X=after), draws),
        },
        index=before.index,
    )
    counts = np.bincount(rows.group[rejected], minlength=len(groups))
    return Recourse(before, after, details, pd.Series(counts, index=encoder.groups_, name="rejected"))


def ordered_values(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that can rise and fall, as numbers; times in days."""
    columns = {name: column for name, column in frame.items() if has_order(column.dtype)}
    values = {name: floats(column) / (_DAY if is_time(column.dtype) else 1) for name, column in columns.items()}
    return pd.DataFrame(values, index=frame.index)


def changed_categories(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Return a boolean frame: which category values differ between `before` and `after`."""
    names = [name for name in before if not has_order(before[name].dtype)]
    one, other = before[names], after[names].set_axis(before.index)
    return (one.astype(object) != other.astype(object)) & (one.notna() | other.notna())


class _Search:
    """The first accepted and allowed point on the lines from each z to its nearest accepted points.

    ``step`` is the point's place on its line, zero as long as none is found.
    """

    def __init__(self, encoder: FairFlow, accepts: Accepts, keep: list[str], rows: Rows, z: Array):
        self._encoder, self._accepts, self._keep = encoder, accepts, keep
        self._rows, self._z = rows, z
        self._found: list[tuple[npt.NDArray[np.intp], pd.DataFrame]] = []  # places of rows, and the rows changed
        self.step = np.zeros(len(z))
        self.candidate = np.full(len(z), -1)

    def run(self, targets: Array, n_candidates: int) -> None:
        """Lead every row to its nearest target, then those still open to the nearest of half of the targets, and so on.

        The next-nearest target lies where the nearest does, and fails where that one failed; the nearest of a random
        half, quarter, … lies a little further away each time, unless it is the same: then that row waits.
        """
        nearest = np.full(len(self._z), len(targets))
        for j in range(n_candidates):
            part = targets[: -(-len(targets) // 2**j)]
            rows = np.flatnonzero((self.step == 0) & (nearest >= len(part)))
            if len(rows):
                search = NearestNeighbors(n_neighbors=1).fit(part)
                nearest[rows] = search.kneighbors(self._z[rows], return_distance=False)[:, 0]
                self._walk(rows, part[nearest[rows]], j)

    def _walk(self, rows: npt.NDArray[np.intp], targets: Array, candidate: int) -> None:
        """Go along the lines from these rows to their targets until a point is accepted and allowed."""
        for t in _STEPS:
            here = self._z[rows] + t * (targets - self._z[rows])
            accepted = np.flatnonzero(self._accepts(here))
            if not len(accepted):
                continue
            reached = rows[accepted]
            after, allowed = self._decoded(reached, here[accepted])
            reached = reached[allowed]
            self._found.append((reached, after[allowed]))
            self.step[reached], self.candidate[reached] = t, candidate
            kept = self.step[rows] == 0
            rows, targets = rows[kept], targets[kept]
            if not len(rows):
                return

    def _decoded(self, rows: npt.NDArray[np.intp], z: Array) -> tuple[pd.DataFrame, npt.NDArray[np.bool_]]:
        """Decode the points, put back the columns that stay, and say which of these rows are accepted."""
        before = self._rows.take(rows)
        decoded = self._encoder.decode(z, before.group, before.persons).set_axis(before.X.index)
        # Decoding sets values on their grids, and some stay: the row that would be handed in counts.
        after = with_columns(decoded, {name: before.X[name] for name in self._keep})
        encoded = self._encoder.encode(replace(before, X=after)).to_numpy(dtype=np.float64)
        return after, self._accepts(encoded)

    def changed(self, before: pd.DataFrame) -> pd.DataFrame:
        """Return the rows for which a point was found, with the changes that lead there."""
        after = before.copy()
        if self._found:
            places = np.concatenate([places for places, _ in self._found])
            changed = pd.concat([rows for _, rows in self._found]).iloc[np.argsort(places)]
            for name in changed:
                after[name] = changed[name].astype(after[name].dtype).array
        return after


def _acceptance(encoder: FairFlow, classifier: ClassifierMixin | None, favourable: Hashable) -> Accepts:
    """Return the function that says whether h accepts encoded rows."""
    if classifier is None and encoder.classes_ is None:
        raise DataError("The encoder was fitted without a label: pass a classifier that was fitted on encoded rows.")
    classes = label_values(encoder) if classifier is None else classifier.classes_
    favourable = classes[-1] if favourable is None else favourable
    if favourable not in classes:
        raise DataError(f"favourable must be one of the classes {list(classes)}; got {favourable!r}.")
    place = int(np.flatnonzero(np.asarray(classes) == favourable)[0])

    if classifier is None:
        return lambda z: encoder.flow_.predicted(z) == place
    named = hasattr(classifier, "feature_names_in_")

    def accepts(z: Array) -> npt.NDArray[np.bool_]:
        encoded = pd.DataFrame(z, columns=encoder.get_feature_names_out()) if named else z
        return np.asarray(classifier.predict(encoded) == favourable)

    return accepts


def _rows(encoder: FairFlow, frame: pd.DataFrame, attribute: Role | None) -> Rows:
    """Return rows as the encoder sees them; nothing is released, so that unnamed rows may be known by their index."""
    named = encoder.identifier is not None and encoder.identifier in (*frame.columns, frame.index.name)
    return encoder.read(frame, attribute, persons=None if named else Persons.of(frame.index))


def _encoded(encoder: FairFlow, rows: Rows) -> Array:
    return encoder.encode(rows).to_numpy(dtype=np.float64)


@dataclass(frozen=True)
class _Draws:
    """Draws from every group's density."""

    z: Array  # encoded, those of all groups
    log_p: list[Array]  # log p̂_a of those of each group, in model space, in rising order

    @classmethod
    def of(cls, encoder: FairFlow, random_state: int) -> Self:
        law, z, log_p = encoder.latent_law(), [], []
        for a in range(len(encoder.groups_)):
            x = law.draw(a, _N_DRAWS, random_state)
            z.append(encoder.flow_.encode(x, a))
            log_p.append(np.sort(law.log_prob(a, x)))
        return cls(np.concatenate(z), log_p)


def _cost(before: pd.DataFrame, after: pd.DataFrame, scale: pd.Series) -> Array:
    moved = (ordered_values(after) - ordered_values(before)).abs() / scale.where(scale > 0, 1.0)
    return (moved.sum(axis=1) + changed_categories(before, after).sum(axis=1)).to_numpy(dtype=np.float64)


def _plausibility(encoder: FairFlow, rows: Rows, draws: _Draws) -> Array:
    """Return the share of each row's group, under p̂_a, that is less likely than the row."""
    law, share = encoder.latent_law(), np.empty(len(rows.group))
    x, _ = encoder.codec_.encode(rows.X, rows.persons)
    for a in np.unique(rows.group):
        mine = rows.group == a
        share[mine] = np.searchsorted(draws.log_p[a], law.log_prob(a, x[mine])) / len(draws.log_p[a])
    return share


@dataclass(frozen=True)
class Matches:
    """Each row in its own group, and its counterpart in every other group.

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
        to : group, default=None
            The group to match to; with two groups, the other one.
        """
        groups = list(self.sides)
        if to not in (groups if len(groups) > 2 else [None, *groups]):
            raise DataError(f"to must say which of the groups {groups} to match to; got {to!r}.")
        own = pd.Index(groups).get_indexer(self.group)
        other = 1 - own if to is None else np.full(len(own), groups.index(to))
        row, match = (_picked([self.sides[g] for g in groups], side) for side in (own, other))
        log_p = self.log_likelihood.to_numpy()
        line = np.arange(len(own))
        judged = pd.DataFrame({"log p(x)": log_p[line, own], "log p(match)": log_p[line, other]}, index=row.index)
        match = match.add_prefix("match ")
        return pd.concat([pd.DataFrame({"group": self.group}, index=row.index), row, match, judged], axis=1)


def matches(encoder: Encoder, X: TableLike | Table, *, sensitive_features: Role | None = None) -> Matches:
    """Return every row with the rows of the other groups that share its representation.

    Parameters
    ----------
    encoder : FairFlow
        A fitted encoder.
    X : Table, frame or array
        Rows to match.
    sensitive_features : array, default=None
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
    fitted_model(encoder)
    rows, law = encoder.read(X, sensitive_features), encoder.latent_law()
    index, names = rows.X.index, encoder.groups_
    rows = replace(rows, persons=rows.persons.named_or_numbered())
    inversions = None if law is None else law.inversions(encoder.encode(rows))
    if inversions is None:
        raise DataError(f"Matches are for encoders with an inverse for every group; {type(encoder).__name__} has none.")
    sides = {}
    for a, (name, side) in enumerate(zip(names, inversions, strict=True)):
        own, match = rows.group == a, side.rows.set_axis(index)  # a row itself, without its smoothing
        sides[name] = pd.DataFrame({column: match[column].where(~own, rows.X[column]) for column in match})
    return Matches(
        pd.Index(names).take(rows.group).to_numpy(),
        sides,
        {name: side.x for name, side in zip(names, inversions, strict=True)},
        pd.DataFrame(np.column_stack([side.log_prob for side in inversions]), columns=names, index=index),
    )


def _picked(frames: list[pd.DataFrame], which: npt.NDArray[np.intp]) -> pd.DataFrame:
    stacked = pd.concat(frames, ignore_index=True)
    return stacked.iloc[which * len(which) + np.arange(len(which))].set_axis(frames[0].index)

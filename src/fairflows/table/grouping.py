"""Make groups of sensitive columns: cut numbers, merge small groups, combine several columns.

A `Grouping` holds the cut points and the names themselves, so that every later table is grouped as the first one was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.exceptions import DataError, check_count, warn_user
from fairflows.table.columns import (
    Schema,
    check_column,
    check_known,
    floats,
    is_number,
    kind_of_values,
    of_one_type,
    printed,
    single_precision,
    whole_where_exact,
)

OTHER = "other"
"""The name of the group that small groups are merged into."""

MISSING = "missing"
"""The name of the group, or label, of rows in which it is missing, where these are kept."""

MOST_NARROW = 40
"""Narrow groups of an attribute that is not cut, at most: the ranks inside of them count little (1/40)."""

_FEWEST_NARROW = 8
_PERSONS_OF_NARROW = 50
_DIGITS = 4  # of an edge between narrow groups, which shall be no person's own value

MissingGroup = Literal["error", "drop", "group"]
MissingLabel = Literal["error", "drop", "keep"]

Cuts = Mapping[str, Sequence[float]]
"""The cut points of columns of numbers."""


@dataclass(frozen=True)
class Grouping:
    """Rule that makes groups of the values of sensitive columns, the same for every table.

    Attributes
    ----------
    kinds : dict
        What each sensitive column holds before it is grouped, in the words of a `Schema`.
    cuts : dict
        The cut points of a column of numbers, in order. A value belongs to the group above a cut point that it equals.
        Both are compared in single precision, because a later file may hold 0.7 as a float of 32 or of 64 bits.
    merged : dict
        The final name of every group if small groups were merged, else empty.
    missing : bool
        Whether a missing value makes a group of its own, "missing".
    wide : int or None
        Of an attribute that is not cut: how many of the narrow groups between its cut points hold several values. Its
        groups are then their numbers. None where the groups are meant as such.

    Examples
    --------
    >>> ages = pd.DataFrame({"age": [25, 40, 61]})
    >>> Grouping(kinds={"age": "whole numbers"}, cuts={"age": [40.0]}).apply(ages).tolist()
    ['under 40', '40 and over', '40 and over']
    """

    kinds: dict[str, str]
    cuts: dict[str, list[float]] = field(default_factory=dict)
    merged: dict[str, str] = field(default_factory=dict)
    missing: bool = False
    wide: int | None = None

    def __post_init__(self) -> None:
        if not (self.kinds and all(self.cuts.values()) and set(self.cuts) <= set(self.kinds)):
            raise DataError("A grouping needs at least one column, and cut points for columns that it has.")

    @property
    def is_uncut(self) -> bool:
        """Whether the groups are narrow ones of an attribute that is not cut."""
        return self.wide is not None

    @property
    def n_narrow(self) -> int:
        """Number of narrow groups of an attribute that is not cut."""
        return len(next(iter(self.cuts.values()))) + 1

    @property
    def halves(self) -> list[str]:
        """The names of the lower and the upper half of the narrow groups."""
        points = next(iter(self.cuts.values()))
        return _cut_names([points[self.n_narrow // 2 - 1]])

    def half_of(self, narrow: npt.ArrayLike) -> npt.NDArray[np.intp]:
        """Return 0 for the numbers of narrow groups in the lower half, and 1 for the others."""
        return (np.asarray(narrow) >= self.n_narrow // 2).astype(np.intp)

    @property
    def notes(self) -> list[str]:
        """Notes on the groups for the owner of the table."""
        merged = [f"{_listed(names)} are one group, {group!r}" for group, names in self._parts_of_merged().items()]
        return self._notes_on_values() + merged

    @property
    def public_notes(self) -> list[str]:
        """Notes on the groups for receivers of a release, who must not learn the names of small groups."""
        return self._notes_on_values() + [f"small groups are one group, {group!r}" for group in self._parts_of_merged()]

    def _notes_on_values(self) -> list[str]:
        if self.is_uncut:
            low, high = self.halves
            return [
                f"{next(iter(self.cuts))} is not cut: the statements are about its rank, and about {low!r} against "
                f"{high!r}, which is its median"
            ]
        found = [f"{name} was cut into groups: {', '.join(_cut_names(points))}" for name, points in self.cuts.items()]
        if self.missing:
            found.append(f"rows without {' or '.join(self.kinds)} are a group of their own, {MISSING!r}")
        return found

    def _parts_of_merged(self) -> dict[str, list[str]]:
        """Return the groups that each merged group was made of."""
        parts: dict[str, list[str]] = {}
        for before, group in self.merged.items():
            parts.setdefault(group, []).append(before)
        return {group: names for group, names in parts.items() if len(names) > 1}

    def schema(self, columns: Sequence[str]) -> Schema:
        """Return the required kinds of sensitive columns with these names in a later table, in order."""
        self._check_number(len(columns))
        return Schema(dict(zip(columns, self.kinds.values(), strict=True)))

    def apply(self, columns: pd.DataFrame) -> pd.Series:
        """Return the group of each row, from the sensitive columns in the order of `kinds`.

        A missing value has a missing group, unless it makes a group of its own. A group that is not in `merged` is a
        `DataError`.
        """
        index, name, columns = columns.index, " and ".join(map(str, columns)), self._read(columns)
        if self.is_uncut:
            column, points = next(iter(self.cuts.items()))
            return _places(column, columns[column], points).set_axis(index).rename(name)
        group = self._before_merging(columns)
        if self.merged:
            group = _merge(_as_text(group), self.merged, name)
        return group.set_axis(index).rename(name)

    def knows(self, columns: pd.DataFrame) -> npt.NDArray[np.bool_]:
        """Return for which rows there is a group; where small groups were merged, all values are named."""
        if not self.merged:
            return np.ones(len(columns), dtype=bool)
        return _as_text(self._before_merging(self._read(columns))).isin(self.merged).to_numpy()

    def _read(self, columns: pd.DataFrame) -> pd.DataFrame:
        """Return sensitive columns under the names and with the kinds of `kinds`."""
        self._check_number(columns.shape[1])
        return Schema(self.kinds).apply(_of_one_type(columns.set_axis(list(self.kinds), axis=1)))

    def _before_merging(self, columns: pd.DataFrame) -> pd.Series:
        parts = self._values(columns)
        return joined(pd.DataFrame(parts)) if len(parts) > 1 else parts[next(iter(parts))]

    def values(self, columns: pd.DataFrame) -> pd.DataFrame:
        """Return the value of each sensitive column as text, of numbers that are cut their interval."""
        found = self._values(self._read(columns))
        return pd.DataFrame({name: _as_text(part) for name, part in found.items()}, index=columns.index)

    def _values(self, columns: pd.DataFrame) -> dict[str, pd.Series]:
        """Return the value of each sensitive column, before groups are made of them."""
        parts = {
            column: _cut(column, columns[column], self.cuts[column]) if column in self.cuts else _plain(columns[column])
            for column in self.kinds
        }
        if self.missing:
            parts = {column: _as_text(part).fillna(MISSING) for column, part in parts.items()}
        return parts

    @property
    def merged_groups(self) -> list[str]:
        """The names of the groups that were merged from several."""
        return list(self._parts_of_merged())

    def _check_number(self, n_columns: int) -> None:
        if n_columns != len(self.kinds):
            names = ", ".join(self.kinds)
            raise DataError(f"The groups are made of {len(self.kinds)} sensitive columns ({names}); got {n_columns}.")


def make_grouping(
    columns: pd.DataFrame,
    cuts: Cuts | None = None,
    merge_small: int = 0,
    identifier: pd.Series | None = None,
    missing: bool = False,
) -> Grouping:
    """Make groups of sensitive columns.

    Parameters
    ----------
    columns : DataFrame
        The sensitive columns.
    cuts : dict, default=None
        For columns of numbers, the cut points.
    merge_small : int, default=0
        Groups of fewer persons become one group, "other". No other group joins them.
    identifier : Series, default=None
        The person of each row. By default, every row counts as a person.
    missing : bool, default=False
        Whether a missing value makes a group of its own.
    """
    check_count("merge_small", merge_small, 0)
    columns = _of_one_type(columns.set_axis([str(name) for name in columns], axis=1))
    for name in cuts or {}:
        check_known(name, columns.columns, "sensitive")
    kinds = {str(name): kind_of_values(column) for name, column in columns.items()}
    points = {name: _cut_points(name, columns[name], cut) for name, cut in (cuts or {}).items()}
    grouping = Grouping(kinds, points, missing=missing)
    if not merge_small:
        return grouping
    return replace(grouping, merged=_merged(grouping.apply(columns), merge_small, identifier))


def uncut_grouping(column: pd.Series, chose: npt.NDArray[np.bool_], n_persons: int) -> Grouping:
    """Make narrow groups of a column of numbers that is not cut, by the values of some rows.

    Parameters
    ----------
    column : Series
        The sensitive column, without missing values.
    chose : array of bool
        Rows whose values choose the edges. The groups of the others then do not depend on their values.
    n_persons : int
        Number of persons in the table.
    """
    name = str(column.name)
    column = of_one_type(column).rename(name)
    if not is_number(column.dtype):
        raise DataError(
            f"uncut needs a column of numbers; {name!r} holds {kind_of_values(column)}. Make it one of numbers, such "
            "as years, or leave uncut out: its values are then the groups."
        )
    check_column(name, column)
    values = single_precision(column.to_numpy(dtype=np.float64)).astype(np.float64)
    most = min(MOST_NARROW, n_persons // _PERSONS_OF_NARROW)
    points = _edges(values[chose], most)
    if most < _FEWEST_NARROW or len(points) + 1 < _FEWEST_NARROW:
        raise DataError(
            f"uncut needs {_FEWEST_NARROW * _PERSONS_OF_NARROW} persons and {_FEWEST_NARROW} different values, to make "
            f"{_FEWEST_NARROW} narrow groups; column {name!r} has {n_persons:,} persons and "
            f"{len(np.unique(values)):,} values. Cut it into groups (cuts={{{name!r}: [...]}})."
        )
    points = _cut_points(name, column, points)
    place = np.digitize(values, single_precision(points))
    distinct = np.unique(np.stack([place, values]), axis=1)[0]
    wide = int((np.unique(distinct, return_counts=True)[1] > 1).sum())
    return Grouping({name: kind_of_values(column)}, {name: points}, wide=wide)


def _edges(values: npt.NDArray[np.float64], most: int) -> list[float]:
    """Return edges, of few digits, between at most so many groups of nearly equal size, or larger."""
    distinct, counts = np.unique(values, return_counts=True)
    points: list[float] = []
    fewest, inside = len(values) / max(most, 1), 0
    left = len(values)
    for value, count in zip(distinct.tolist(), counts.tolist(), strict=True):
        edge = float(f"{value:.{_DIGITS}g}")
        if inside >= fewest and left >= fewest and edge > (points or [distinct[0]])[-1]:
            points.append(edge)
            inside = 0
        inside += count
        left -= count
    return points


def rows_kept(
    sensitive: pd.DataFrame, labels: pd.DataFrame, missing_group: MissingGroup, missing_label: MissingLabel
) -> npt.NDArray[np.bool_]:
    """Return which rows of a table, or of a later file, are used. Raise if a group or a label must not be missing."""
    kept = np.ones(len(sensitive), dtype=bool)
    for role, parameter, rule, columns, other_rule in (
        ("sensitive", "missing_group", missing_group, sensitive, "group"),
        ("label", "missing_label", missing_label, labels, "keep"),
    ):
        is_missing = columns.isna().any(axis=1).to_numpy()
        if rule == "error" and is_missing.any():
            raise DataError(
                f"The {role} column {' and '.join(map(str, columns))!r} must be known in every row; it is missing in "
                f"{is_missing.sum():,} of {len(kept):,}. Drop those rows ({parameter}='drop'), or keep them as "
                f"{MISSING!r} ({parameter}={other_rule!r})."
            )
        if rule == "drop":
            kept &= ~is_missing
    return kept


def kept_label(column: pd.Series) -> pd.Series:
    """Return a label as text where rows without one are kept, which have one more."""
    return column.astype(object).map(printed, na_action="ignore").fillna(MISSING)


def _of_one_type(columns: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({name: of_one_type(column) for name, column in columns.items()}, index=columns.index)


def read_cuts(texts: Sequence[str]) -> dict[str, list[float]]:
    """Return the cuts that the command states: "AGE:40" or "AGE:30,50" for each column."""
    cuts: dict[str, list[float]] = {}
    for text in texts:
        column, _, points = text.rpartition(":")
        try:
            cut = [float(point) for point in points.split(",")]
        except ValueError:
            column = ""
        if not column or column in cuts:
            raise DataError(f"groups must be COLUMN:40 or COLUMN:30,50, once for each column; got {text!r}.")
        cuts[column] = cut
    return cuts


def joined(columns: pd.DataFrame) -> pd.Series:
    """Return one group for each combination of values that occurs: 'sex=female, race=black'."""
    if columns.shape[1] == 1:
        return columns.iloc[:, 0]
    texts = [f"{name}=" + _as_text(columns[name]).astype(object) for name in columns]  # floats where all are missing
    together = texts[0].str.cat(texts[1:], sep=", ")
    if together.nunique() != len(columns.dropna().drop_duplicates()):
        raise DataError(f"The values of {', '.join(map(repr, columns))} run together when joined; rename some.")
    return together.rename(" and ".join(map(str, columns)))


def _cut_points(name: str, column: pd.Series, wanted: Sequence[float]) -> list[float]:
    """Return the cut points of a column, each with rows on both sides."""
    if not is_number(column.dtype) or column.isna().all():
        found = kind_of_values(column)
        raise DataError(f"Column {name!r} must hold numbers to be cut into groups; it holds {found}.")
    check_column(name, column)
    values = column.dropna().to_numpy(dtype=np.float64)
    points = [float(point) for point in wanted]
    held_points = single_precision(points)
    if not points or not np.isfinite(held_points).all() or any(b <= a for a, b in pairwise(held_points)):
        raise DataError(f"Cut points of column {name!r} must be in rising order; got {wanted!r}.")
    for point, held in zip(points, held_points.astype(np.float64), strict=True):
        is_other = (values != point) & ((values != held) | point.is_integer())
        alike = values[(single_precision(values) == held) & is_other]
        if len(alike):
            raise DataError(
                f"Column {name!r} holds {float(alike[0])!r}, which a float of 32 bits cannot tell from the cut point "
                f"{point!r}: a file with such floats would have other groups. Choose a cut point between two values."
            )
    counts = np.bincount(np.digitize(single_precision(values), held_points), minlength=len(points) + 1)
    if not counts.all():
        empty = _cut_names(points)[int(np.argmin(counts > 0))]
        raise DataError(
            f"Column {name!r} has values from {values.min():g} to {values.max():g}: no row is {empty!r} with the cut "
            f"points {', '.join(f'{point:g}' for point in points)}."
        )
    return points


def _cut_names(points: Sequence[float]) -> list[str]:
    texts = [f"{point:.12g}" for point in points]
    between = [f"{low} to under {high}" for low, high in pairwise(texts)]
    return [f"under {texts[0]}", *between, f"{texts[-1]} and over"]


def _cut(name: str, column: pd.Series, points: Sequence[float]) -> pd.Series:
    """Return the group of each value, the same whether a file holds it as a float of 32 or of 64 bits."""
    place = _places(name, column, points)
    group = np.array(_cut_names(points), dtype=object)[place.fillna(0).astype(np.intp)]
    return pd.Series(group, index=column.index, dtype=object).where(column.notna())


def _places(name: str, column: pd.Series, points: Sequence[float]) -> pd.Series:
    """Return the number of the interval that each value is in."""
    check_column(name, column)
    if column.dtype == np.float16:
        raise DataError(f"Column {name!r} must hold floats of at least 32 bits to be cut into groups; got float16.")
    place = np.digitize(single_precision(floats(column)), single_precision(points))
    found = pd.Series(place, index=column.index)
    return found if column.notna().all() else found.where(column.notna())


def _plain(column: pd.Series) -> pd.Series:
    """Return codes such as 0.0 and 1.0 as whole numbers, which they become in parts of a table, too."""
    is_known_number = is_number(column.dtype) and not column.isna().any()
    return whole_where_exact(column) if is_known_number else column


def _merged(group: pd.Series, fewest: int, identifier: pd.Series | None) -> dict[str, str]:
    """Return the final name of every group."""
    persons = np.arange(len(group)) if identifier is None else identifier.to_numpy()
    rows = pd.DataFrame({"group": _as_text(group).to_numpy(), "person": persons})
    ascending = rows.groupby("group")["person"].nunique().sort_values(kind="stable")
    n_merged = int((ascending < fewest).sum())
    if not n_merged:
        return {}
    n_together = ascending.iloc[:n_merged].sum()
    if n_merged == len(ascending):
        raise DataError(
            f"Fewer than two groups of {group.name!r} remain when groups of fewer than {fewest:,} persons become one "
            f"(merge_small={fewest!r}): the largest, {ascending.index[-1]!r}, has {ascending.iloc[-1]:,}, and all "
            f"others together {ascending.iloc[:-1].sum():,}."
        )
    small = sorted(ascending.index[:n_merged])
    more = ""
    if n_together < fewest:
        following, size = ascending.index[n_merged], int(ascending.iloc[n_merged])
        more = (
            f" That is fewer than {fewest:,}, and larger groups do not join: the next, {following!r}, has {size:,} "
            f"persons (merge_small={size + 1} merges it, too)."
        )
    if n_merged == 1:
        warn_user(f"{group.name}: {small[0]!r} stays a group of {n_together:,} persons.{more}")
        return {}
    other = next((name for name in ascending.index if name.casefold() == OTHER), OTHER)
    warn_user(
        f"{group.name}: {_listed(small)} are one group, {other!r}, of {n_together:,} persons. They are hidden as one: "
        f"what differs inside of the group is not.{more}"
    )
    return {name: other if name in small else name for name in sorted(ascending.index)}


def _merge(group: pd.Series, merged: Mapping[str, str], name: str) -> pd.Series:
    if unknown := sorted(set(group.dropna()) - set(merged)):
        raise DataError(
            f"The sensitive column {name!r} holds {_listed(unknown[:5])}, which the rows that the groups were made of "
            f"did not have. The groups are {_listed(list(dict.fromkeys(merged.values()))[:20])}."
        )
    return group.map(merged, na_action="ignore")


def _as_text(group: pd.Series) -> pd.Series:
    return group.astype(object).map(printed, na_action="ignore")


def _listed(values: Sequence[str]) -> str:
    quoted = [repr(value) for value in values]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"

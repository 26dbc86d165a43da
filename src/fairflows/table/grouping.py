"""Groups from the values of sensitive columns: cut points for numbers, one spelling for text, small groups merged.

`GroupRules` say what is wanted. Fitted to a table they become a `Grouping`, which holds the cut points and the names
themselves, so that every later table is grouped as the first one was.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TypeAlias, cast

import numpy as np
import pandas as pd

from fairflows.exceptions import DataError, warn_user
from fairflows.table.columns import check_known, floats, is_number, shown, sorted_values
from fairflows.table.json_text import read_as
from fairflows.table.schema import TEXT, Schema, kind_of_values

OTHER = "other"
"""What the group of all small groups is called."""

_QUANTILES = "quantiles="


@dataclass(frozen=True)
class Grouping:
    """How the values of sensitive columns become groups, the same way for every table.

    Attributes
    ----------
    kinds : dict
        What each sensitive column holds before it is grouped, as a `Schema` has it.
    cuts : dict
        The cut points of a column of numbers, in order. A value belongs to the group above a cut point that it equals.
    spellings : dict
        For each column of text, the group of each value; values are known without blanks around them, in lower case.
    merged : dict
        The final name of every group, where small ones were merged; else empty.

    Examples
    --------
    >>> ages = pd.DataFrame({"age": [25, 40, 61]})
    >>> Grouping(kinds={"age": "whole numbers"}, cuts={"age": [40.0]}).apply(ages).tolist()
    ['under 40', '40 and over', '40 and over']
    """

    kinds: dict[str, str]
    cuts: dict[str, list[float]] = field(default_factory=dict)
    spellings: dict[str, dict[str, str]] = field(default_factory=dict)
    merged: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, dict[str, object]]:
        """Plain values, as JSON has them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, object]) -> Grouping:
        """The grouping of plain values that `to_dict` gave; others are refused."""
        try:
            found: Grouping = read_as(fields, cls)
        except ValueError as error:
            raise DataError(f"These are not the fields of a grouping: {error}") from None
        is_whole = set(fields) == set(vars(found)) and found.kinds and all(found.cuts.values())
        if not (is_whole and {*found.cuts, *found.spellings} <= set(found.kinds)):
            raise DataError("These are not the fields of a grouping.")
        return found

    @property
    def notes(self) -> list[str]:
        """What a reader of any result must know about the groups."""
        cut = [f"{name} was cut into groups: {', '.join(_cut_names(points))}" for name, points in self.cuts.items()]
        others: dict[str, list[str]] = {}
        for before, group in self.merged.items():
            others.setdefault(group, []).append(before)
        return cut + [f"{_listed(names)} are one group, {group!r}" for group, names in others.items() if len(names) > 1]

    def schema(self, columns: Sequence[str]) -> Schema:
        """What sensitive columns of these names must hold in a later table; the names count by their order."""
        self._check_number(len(columns))
        return Schema(dict(zip(columns, self.kinds.values(), strict=True)))

    def apply(self, columns: pd.DataFrame) -> pd.Series:
        """The group of each row; missing where a value is missing.

        Parameters
        ----------
        columns : DataFrame
            The sensitive columns, in the order of `kinds`.

        Raises
        ------
        DataError
            A value belongs to no group: the rows that the groups were made of did not have it.
        """
        self._check_number(columns.shape[1])
        index, name = columns.index, " and ".join(map(str, columns))
        columns = Schema(self.kinds).apply(columns.set_axis(list(self.kinds), axis=1))
        parts = {column: self._by_column(column, columns[column]) for column in self.kinds}
        group = joined(pd.DataFrame(parts)) if len(parts) > 1 else parts[next(iter(parts))]
        if self.merged:
            group = _looked_up(_as_text(group), self.merged, name)
        return group.set_axis(index).rename(name)

    def _by_column(self, name: str, column: pd.Series) -> pd.Series:
        if name in self.cuts:
            return _cut(column, self.cuts[name])
        if name in self.spellings:
            spelt = _looked_up(column, self.spellings[name], name, fold=True)
            return column if (spelt == column).all() else spelt  # its type stays where nothing changes
        return column

    def _check_number(self, n_columns: int) -> None:
        if n_columns != len(self.kinds):
            names = ", ".join(self.kinds)
            raise DataError(f"The groups are made of {len(self.kinds)} sensitive columns ({names}); got {n_columns}.")


CutsLike: TypeAlias = "Sequence[float] | int | str"
"""Cut points, or into how many quantiles: as numbers, or as the command has it ("30,50" or "quantiles=4")."""


@dataclass(frozen=True)
class GroupRules:
    """What groups to make of sensitive columns.

    Parameters
    ----------
    cuts : dict
        For columns of numbers, the cut points; or into how many groups of about equal size to cut, as one whole number.
    merge_small : int
        Groups of fewer persons become one group, "other"; if that is still smaller, the next smallest groups join it.
    keep_case : bool
        Keep text apart that differs only in blanks around it or in upper and lower case.

    Examples
    --------
    >>> ages = pd.DataFrame({"age": [19, 25, 33, 38, 47, 61]})
    >>> GroupRules(cuts={"age": [30, 45]}).fit(ages).apply(ages).tolist()
    ['under 30', 'under 30', '30 to under 45', '30 to under 45', '45 and over', '45 and over']
    """

    cuts: Mapping[str, CutsLike] = field(default_factory=dict)
    merge_small: int = 0
    keep_case: bool = False

    def __post_init__(self) -> None:
        if self.merge_small < 0:
            raise DataError(f"merge_small must be 0 or more persons; got {self.merge_small!r}.")
        object.__setattr__(self, "cuts", {str(name): _checked_cuts(name, cuts) for name, cuts in self.cuts.items()})

    @classmethod
    def of(cls, texts: Sequence[str], merge_small: int = 0, keep_case: bool = False) -> GroupRules:
        """The rules as the command has them: "AGE:40", "AGE:30,50" or "AGE:quantiles=4" for each column."""
        cuts: dict[str, str] = {}
        for text in texts:
            column, colon, points = text.rpartition(":")
            if not (colon and column and points):
                raise DataError(f"groups must be COLUMN:40, COLUMN:30,50 or COLUMN:quantiles=4; got {text!r}.")
            if column in cuts:
                raise DataError(f"groups must name each column once; {column!r} occurs again; got {text!r}.")
            cuts[column] = points
        return cls(cuts, merge_small, keep_case)

    def fit(self, columns: pd.DataFrame, identifier: pd.Series | None = None) -> Grouping:
        """The groups of these sensitive columns; says which values were joined.

        Parameters
        ----------
        columns : DataFrame
            The sensitive columns.
        identifier : Series, optional
            The person of each row; without, every row counts as a person.
        """
        columns = columns.set_axis([str(name) for name in columns], axis=1)
        for name in self.cuts:
            check_known(name, columns.columns, "sensitive")
        kinds = {str(name): kind_of_values(column) for name, column in columns.items()}
        cuts = {name: _cut_points(name, columns[name], wanted) for name, wanted in self.cuts.items()}
        spellings = {
            name: _spellings(name, columns[name])
            for name, kind in kinds.items()
            if kind == TEXT and name not in cuts and not self.keep_case
        }
        grouping = Grouping(kinds, cuts, spellings)
        if self.merge_small:
            merged = self._merged(grouping.apply(columns), identifier)
            grouping = Grouping(kinds, cuts, spellings, merged)
        return grouping

    def _merged(self, group: pd.Series, identifier: pd.Series | None) -> dict[str, str]:
        """The final name of every group."""
        persons = np.arange(len(group)) if identifier is None else identifier.to_numpy()
        rows = pd.DataFrame({"group": _as_text(group).to_numpy(), "person": persons})
        ascending = rows.groupby("group")["person"].nunique().sort_values(kind="stable")
        n_merged = int((ascending < self.merge_small).sum())
        if not n_merged:
            return {}
        while ascending.iloc[:n_merged].sum() < self.merge_small and n_merged < len(ascending):
            n_merged += 1
        if n_merged == len(ascending):
            raise DataError(
                f"Fewer than two groups of {group.name!r} remain when groups of fewer than {self.merge_small:,} "
                f"persons become one (merge_small={self.merge_small!r}): the largest, {ascending.index[-1]!r}, has "
                f"{ascending.iloc[-1]:,}, and all others together {ascending.iloc[:-1].sum():,}."
            )
        small = sorted(ascending.index[:n_merged])
        other = next((name for name in ascending.index if name.casefold() == OTHER), OTHER)
        warn_user(
            f"{group.name}: {_listed(small)} are one group, {other!r}, of {ascending.iloc[:n_merged].sum():,} persons, "
            f"so that no group has fewer than {self.merge_small:,}."
        )
        return {name: other if name in small else name for name in sorted(ascending.index)}


def joined(columns: pd.DataFrame) -> pd.Series:
    """One group for each combination of values that occurs: 'sex=female, race=black'."""
    if columns.shape[1] == 1:
        return columns.iloc[:, 0]
    texts = [columns[name].map(lambda value, name=name: f"{name}={value}", na_action="ignore") for name in columns]
    together = texts[0].str.cat(texts[1:], sep=", ")
    if together.nunique() != len(columns.dropna().drop_duplicates()):
        raise DataError(f"The values of {', '.join(map(repr, columns))} run together when joined; rename some.")
    return together.rename(" and ".join(map(str, columns)))


def _checked_cuts(name: Hashable, cuts: CutsLike) -> list[float] | int:
    """Cut points in order, or a number of quantiles."""
    rule = f"must be cut points in rising order for column {name!r}, such as 40 or 30,50, or quantiles=4"
    if isinstance(cuts, str):
        is_number_of_quantiles = cuts.startswith(_QUANTILES)
        try:
            cuts = int(cuts.removeprefix(_QUANTILES)) if is_number_of_quantiles else [*map(float, cuts.split(","))]
        except ValueError:
            raise DataError(f"groups {rule}; got {cuts!r}.") from None
    if isinstance(cuts, int):
        if cuts < 2:
            raise DataError(f"groups must ask for two quantiles or more of column {name!r}; got {cuts!r}.")
        return cuts
    points = [float(point) for point in cuts]
    if not points or not np.isfinite(points).all() or any(b <= a for a, b in pairwise(points)):
        raise DataError(f"groups {rule}; got {cuts!r}.")
    return points


def _cut_points(name: str, column: pd.Series, wanted: CutsLike) -> list[float]:
    """The cut points of a column, each with rows on both sides."""
    if not is_number(column.dtype):
        values = column.dropna()
        example = f", for example {shown(_first_not_a_number(values))}" if len(values) else ""
        raise DataError(f"Column {name!r} must hold numbers to be cut into groups; it holds {column.dtype}{example}.")
    values = column.dropna().to_numpy(dtype=np.float64)
    if not len(values):
        raise DataError(f"Column {name!r} must hold numbers to be cut into groups; every value is missing.")
    if isinstance(wanted, int):
        places = np.arange(1, wanted) / wanted
        points = np.unique(np.quantile(values, places, method="inverted_cdf"))
        points = points[points > values.min()]
        if len(points) < wanted - 1:
            warn_user(
                f"{name}: many rows have the same value, so that {len(points) + 1} groups of about equal size can be "
                f"made, not {wanted}."
            )
        if not len(points):
            raise DataError(f"Column {name!r} cannot be cut into quantiles: most rows have the value {values.min():g}.")
        return points.tolist()
    edges = cast("list[float]", wanted)
    counts = np.histogram(values, [-np.inf, *edges, np.inf])[0]
    if not counts.all():
        empty = _cut_names(edges)[int(np.argmin(counts > 0))]
        raise DataError(
            f"Column {name!r} has values from {values.min():g} to {values.max():g}: no row is {empty!r} with the cut "
            f"points {', '.join(f'{edge:g}' for edge in edges)}."
        )
    return edges


def _first_not_a_number(values: pd.Series) -> object:
    """The first value that cannot be read as a number, if there is one; else the first."""
    strange = pd.to_numeric(values.astype(str), errors="coerce").isna()
    return values[strange].iloc[0] if strange.any() else values.iloc[0]


def _cut_names(points: Sequence[float]) -> list[str]:
    texts = [f"{point:.12g}" for point in points]
    between = [f"{low} to under {high}" for low, high in pairwise(texts)]
    return [f"under {texts[0]}", *between, f"{texts[-1]} and over"]


def _cut(column: pd.Series, points: Sequence[float]) -> pd.Series:
    if not is_number(column.dtype):
        raise DataError(f"Column {column.name!r} must hold numbers, to be cut into groups; it holds {column.dtype}.")
    group = np.array(_cut_names(points), dtype=object)[np.digitize(floats(column), points)]
    return pd.Series(group, index=column.index, dtype=object).where(column.notna())


def _spellings(name: str, column: pd.Series) -> dict[str, str]:
    """The group of each spelling: the most frequent one of those that differ in blanks or case only."""
    counts = column.astype(object).value_counts()
    variants: dict[str, list[str]] = {}
    for value in sorted_values(column):
        variants.setdefault(_folded(str(value)), []).append(str(value))
    chosen = {}
    for folded, values in variants.items():
        frequent = max(values, key=lambda value: counts[value])
        chosen[folded] = frequent.strip() if len(values) > 1 else frequent
        if len(values) > 1:
            warn_user(
                f"{name}: {_listed(values)} count as one group, {chosen[folded]!r}. Keep them apart with "
                "keep_case=True."
            )
    return chosen


def _folded(value: str) -> str:
    return value.strip().casefold()


def _looked_up(column: pd.Series, names: Mapping[str, str], name: str, *, fold: bool = False) -> pd.Series:
    """The name of each value; values without one are refused."""
    values = {value: names.get(_folded(str(value)) if fold else str(value)) for value in column.dropna().unique()}
    if unknown := sorted(str(value) for value, found in values.items() if found is None):
        known = list(dict.fromkeys(names.values()))
        raise DataError(
            f"The sensitive column {name!r} holds {_listed(unknown[:5])}, which the rows that the groups were made of "
            f"did not have. The groups are {_listed(known[:20])}."
        )
    return column.astype(object).map(values, na_action="ignore")


def _as_text(group: pd.Series) -> pd.Series:
    """Groups by name; a whole number has one name, whether a table holds it as an integer or not."""
    numeric = is_number(group.dtype)
    return group.astype(object).map(
        lambda value: str(int(value)) if numeric and value == int(value) else str(value), na_action="ignore"
    )


def _listed(values: Sequence[str]) -> str:
    quoted = [repr(value) for value in values]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"

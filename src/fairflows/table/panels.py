"""Persons with histories: the rows of a person become one row of summaries.

A person with one row is the case of a history of length one. Summaries read the whole history: for each column its
first and its last value, mean, change and number of different values; the number of rows and of gaps; length and
spacing in time. They depend on nothing but the person's own rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.exceptions import DataError
from fairflows.table.columns import Schema, distinct_values, floats, has_order, missing, numbers, order_of, shown
from fairflows.table.keys import Secret, content_hashes
from fairflows.table.persons import Persons, Places
from fairflows.table.table import Table

PERSON = "person"
"""The column that numbers the persons of a table of drawn histories."""


_OF_ROWS = ("kinds", "persons", "households")  # what a table knows of its rows


@dataclass(frozen=True)
class PanelForm:
    """How the rows of a person become one row.

    Without a time the rows of a person are a set: "first" and "last" then stand for the smallest and the largest value.
    """

    schema: Schema  # of the features
    time: str | None
    categories: tuple[str, ...]  # columns of numbers that are categories
    parents: Schema | None = None  # of the features in a table with one row of each person, which is linked with theirs
    names: tuple[str, str] | None = None  # of both tables

    @classmethod
    def of(cls, table: Table, parents: Table | None = None, names: tuple[str, str] | None = None) -> PanelForm:
        """Return the form of a table's rows, and of the linked table that has one row of each person."""
        declared = tuple(name for name, kind in table.declared_kinds.items() if kind == "categorical")
        return cls(Schema.of(table.X), table.time, declared, None if parents is None else Schema.of(parents.X), names)

    def check_linked(self, *, is_linked: bool) -> None:
        """Raise if two linked tables came where there was one table, or one where there were two."""
        if is_linked == (self.names is not None):
            return
        needed = "one table" if self.names is None else f"two linked tables, {' and '.join(map(repr, self.names))}"
        came = "two linked tables" if is_linked else "one table"
        raise DataError(f"The release was fitted to {needed}; got {came}. Two are given as LinkedTables.")

    def summaries(self, rows: pd.DataFrame, owner: Places, n: int, parents: pd.DataFrame | None = None) -> pd.DataFrame:
        """Return one row for each of n persons, given the rows and the person of each row.

        Of two linked tables `parents` has the own row of each person, whose columns are summaries of their own.

        Examples
        --------
        >>> rows = pd.DataFrame({"year": [2001, 2000, 2000], "pay": [7.0, 5.0, 4.0]})
        >>> form = PanelForm(Schema.of(rows), "year", ())
        >>> form.summaries(rows, np.array([0, 0, 1]), 2)[["rows", "pay: first", "pay: change", "year: longest step"]]
           rows  pay: first  pay: change  year: longest step
        0     2         5.0          2.0                 1.0
        1     1         4.0          0.0                 0.0
        """
        order = self._order(rows, owner)
        found: dict[str, npt.NDArray | pd.Series] = {}
        if parents is not None and self.names is not None:
            found |= {f"{self.names[0]}: {name}": c.reset_index(drop=True) for name, c in parents.items()}
        found["rows"] = np.bincount(owner, minlength=n)
        found["gaps"] = sum((np.bincount(owner, missing(column), n) for _, column in rows.items()), np.zeros(n))
        for name, column in rows.items():
            found |= {f"{name}: {what}": values for what, values in self._of_column(column, owner, n, order)}
        return pd.DataFrame(found)

    def last(self, column: pd.Series, rows: pd.DataFrame, owner: Places, n: int) -> pd.Series:
        """Return the last value of a column, such as a label, for each person; the largest without a time."""
        ranks = _ranks(column)
        order = np.lexsort([ranks, owner]) if self.time is None else self._order(rows, owner, ranks)
        return column.iloc[order[np.cumsum(np.bincount(owner, minlength=n)) - 1]]

    def _order(self, rows: pd.DataFrame, owner: Places, *ranks: npt.NDArray[np.integer]) -> Places:
        """Return the rows person by person, in the order of time.

        Rows of one time are in an order of their values, and then of their ranks, so that the file's order does not
        count.
        """
        if self.time is None:
            return np.argsort(owner, kind="stable")
        if missing(rows[self.time]).any():
            raise DataError(f"The time column {self.time!r} must be known in every row, because it orders them.")
        time = numbers(rows[self.time])
        order = np.lexsort([time, owner])
        is_tied = (owner[order][1:] == owner[order][:-1]) & (time[order][1:] == time[order][:-1])
        if is_tied.any():
            order = np.lexsort([*ranks, content_hashes(rows, b"rows of one time"), time, owner])
        return order

    def _of_column(
        self, column: pd.Series, owner: Places, n: int, order: Places
    ) -> Iterator[tuple[str, npt.NDArray | pd.Series]]:
        is_known = ~missing(column)
        codes = pd.factorize(column)[0] + 1
        pairs = np.unique(owner * (int(codes.max(initial=0)) + 1) + codes)
        different = np.bincount(pairs // (int(codes.max(initial=0)) + 1), minlength=n)
        if not has_order(column.dtype) or column.name in self.categories:
            is_known = np.ones(len(column), dtype=bool)  # a gap is a category
        if self.time is None:
            order = np.lexsort([_ranks(column), owner])
        known = order[is_known[order]]
        first, last = (np.full(n, -1) for _ in range(2))
        first[owner[known[::-1]]], last[owner[known]] = known[::-1], known
        plain = column.reset_index(drop=True)
        ends = [plain.iloc[end] if (end >= 0).all() else plain.reindex(end) for end in (first, last)]
        yield "first", ends[0].reset_index(drop=True)
        yield "last", ends[1].reset_index(drop=True)
        yield "different", different
        if not has_order(column.dtype) or column.name in self.categories:
            return
        values, count = floats(column), np.bincount(owner[known], minlength=n)
        with np.errstate(invalid="ignore"):
            yield "mean", np.bincount(owner[known], values[known], n) / np.where(count, count, np.nan)
        yield "change", np.where(count > 0, values[last] - values[first], np.nan)
        if column.name == self.time:
            step = np.where(np.diff(owner[order]) == 0, np.diff(values[order]), 0.0)
            longest = np.zeros(n)
            np.maximum.at(longest, owner[order][1:], step)
            yield "longest step", longest


class Panels(Table):
    """The persons of a table with all of their rows: a table that has one row of summaries for each person.

    The group of a person is the same in all of their rows. The label is that of their last row, or without a time the
    largest.

    Attributes
    ----------
    rows : Table
        The rows of all persons.
    owner : ndarray
        The place of the person of each row.
    form : PanelForm
        How rows became summaries.

    Examples
    --------
    >>> rows = Table({"pay": [5.0, 7.0, 4.0], "sex": list("ffm"), "who": [1, 1, 2]}, sensitive="sex", identifier="who")
    >>> panels = Panels.of(rows)
    >>> len(panels), panels.X["rows"].tolist()
    (2, [2, 1])
    """

    rows: Table
    owner: Places
    form: PanelForm

    @classmethod
    def of(cls, table: Table, form: PanelForm | None = None) -> Panels:
        """Return the persons of a table; later tables take the form of the one that a model was fitted to."""
        if isinstance(table, Panels):
            return table if form is None or form == table.form else table.formed(form)
        if form is not None:
            form.check_linked(is_linked=False)
        if table.identifier is None:
            raise DataError(
                "All rows of a person are released together (unit='person'), and the table does not say whose rows "
                "these are: name the column that does (identifier=...)."
            )
        if table.grouping.is_uncut:
            raise DataError(
                f"uncut needs one row of every person; the table has {len(table):,} rows of {table.persons.n:,} "
                f"persons. Keep one row of each, or cut {table.a.name!r} into groups (cuts=...)."
            )
        form, persons = PanelForm.of(table) if form is None else form, table.persons
        X = form.schema.apply(table.X)
        check_one_group_each(table.a, persons)
        found = cls.__new__(cls)
        found.__dict__.update({name: part for name, part in vars(table).items() if name not in _OF_ROWS})
        found.rows, found.owner, found.form = table, persons.codes, form
        some_row = np.unique(persons.codes, return_index=True)[1]
        found.identifier = table.identifier.iloc[some_row]
        index = found.identifier.index
        found.a = table.a.iloc[some_row]
        found.X = form.summaries(X, persons.codes, persons.n).set_axis(index)
        check_no_names(found.X, table)
        found.household = None if table.household is None else table.household.iloc[some_row]
        found.attributes = None if table.attributes is None else table.attributes.iloc[some_row]
        found.parts = None if table.parts is None else table.parts[some_row]
        labels = {
            name: form.last(column, X, persons.codes, persons.n).set_axis(index)
            for name, column in table.label_columns().items()
        }
        if table.y is not None:
            found.y = labels.pop(table.y.name)
            found.more_labels = pd.DataFrame(labels, index=index)
        else:
            found.more_labels = table.more_labels.iloc[some_row]
        kinds = table.declared_kinds
        found.declared_kinds = {f"{name}: {end}": kind for name, kind in kinds.items() for end in ("first", "last")}
        return found

    def formed(self, form: PanelForm) -> Panels:
        """Return the same persons with summaries of another form."""
        return Panels.of(self.rows, form)

    def take(self, rows: Any) -> Self:
        """Return the panels of some persons."""
        places = np.asarray(rows)
        places = np.flatnonzero(places) if places.dtype == bool else places
        part = super().take(places)
        new = np.full(len(self), -1)
        new[places] = np.arange(len(places))
        is_left = new[self.owner] >= 0
        part.rows, part.owner = self.rows.take(is_left), new[self.owner[is_left]]
        return part

    def fingerprint(self, key: Secret) -> str:
        """Return the keyed hash of all rows, which their order does not change."""
        return self.rows.fingerprint(key)


def check_no_names(summaries: pd.DataFrame, table: Table) -> None:
    """Raise if a text column has another value for every person."""
    for name, column in table.X.items():
        may_be_name = not has_order(column.dtype) and str(name) not in table.declared_kinds
        if not may_be_name or (summaries[f"{name}: different"] > 1).any():
            continue
        if 2 < len(summaries) == summaries[f"{name}: first"].nunique(dropna=False):
            raise DataError(
                f"Column {name!r} is text with as many values as persons ({len(summaries):,}): it names them and "
                f"cannot be learnt from. Drop it (drop=[{name!r}])."
            )


def check_one_group_each(groups: pd.Series, persons: Persons) -> None:
    """Raise if the rows of a person have several groups."""
    codes = pd.factorize(groups)[0]
    of_person = np.empty(persons.n, dtype=np.intp)
    of_person[persons.codes] = codes
    differs = codes != of_person[persons.codes]
    if differs.any():
        n, values = len(np.unique(persons.codes[differs])), groups[persons.codes == persons.codes[differs.argmax()]]
        raise DataError(
            f"The sensitive attribute must be the same in all rows of a person; {n:,} of {persons.n:,} persons have "
            f"several groups, the first {' and '.join(map(shown, values.unique()[:2]))}. Give every person one group, "
            "such as that of the first row, or release rows that are not linked (unit='row')."
        )


def _ranks(column: pd.Series) -> npt.NDArray[np.integer]:
    """Return the rank of each value in the order of a column's values; a gap comes last."""
    codes, values = distinct_values(column)
    rank = np.empty(len(values) + 1, dtype=np.intp)
    rank[order_of(values)] = np.arange(len(values))
    rank[-1] = len(values)
    return rank[codes]

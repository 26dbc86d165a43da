"""Two linked tables: one row of each person, and any number of rows of theirs in another table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import pandas as pd

from fairflows.exceptions import DataError
from fairflows.table.columns import check_known, kind_of_values, missing, shown
from fairflows.table.frames import to_pandas
from fairflows.table.grouping import Grouping
from fairflows.table.keys import Secret, fingerprint
from fairflows.table.panels import PanelForm, Panels, check_no_names
from fairflows.table.persons import Persons, Places
from fairflows.table.table import Table


class LinkedTables(Panels):
    """Two linked tables: a table with one row of each person, and one with any number of rows of each.

    Both are released together: every person has one cell, from which the row and the rows are drawn.

    Parameters
    ----------
    tables : dict of str to DataFrame
        Two tables by their names, the one with one row of each person first. A person may have no row in the other one.
        It may be any table that `Table` takes.
    identifier : str
        The column that names the person in both tables. Other columns have different names.
    sensitive : str or list of str
        The sensitive attribute: columns of the first table.
    label : str or list of str, default=None
        Columns of either table. A label of the second one takes a row of every person; it is that of the last row.
    time : str, default=None
        The column of the second table that orders the rows of a person.
    household : str, default=None
        The column of the first table that names the household.
    **settings
        The other parameters of `Table`. Those that name columns may name columns of both.

    Attributes
    ----------
    parents : Table
        The first table, with a group for each person.
    rows : Table
        The second table; its groups are those of its persons.
    names : tuple of str
        The names of both.

    Examples
    --------
    >>> patients = pd.DataFrame({"patient": [1, 2, 3], "born": [1950, 1960, 1970], "sex": ["f", "m", "f"]})
    >>> visits = pd.DataFrame({"patient": [1, 1, 3], "day": [3, 9, 4]})
    >>> both = LinkedTables({"patients": patients, "visits": visits}, identifier="patient", sensitive="sex", time="day")
    >>> len(both), both.X[["patients: born", "rows"]].to_numpy().tolist()
    (3, [[1950, 2], [1960, 0], [1970, 1]])
    """

    parents: Table
    names: tuple[str, str]
    has_histories = True

    def __init__(
        self,
        tables: Mapping[str, Any],
        *,
        identifier: str,
        sensitive: str | list[str],
        label: str | list[str] | None = None,
        time: str | None = None,
        household: str | None = None,
        **settings: Any,
    ) -> None:
        if settings.get("uncut"):
            raise DataError("uncut takes one table; of two linked ones the sensitive attribute is cut (cuts=...).")
        names, (first, second) = _two_names(tables), map(to_pandas, tables.values())
        for name, frame in zip(names, (first, second), strict=True):
            _check_identifier(identifier, name, frame)
        _check_one_row_each(identifier, names, first, second)
        _check_parents(identifier, names, first, second)
        _check_columns(identifier, names, first, second)
        check_known(sensitive if isinstance(sensitive, str) else sensitive[0], first, "sensitive")
        labels = [label] if isinstance(label, str) else list(label or [])
        for column in labels:
            check_known(column, [*first, *second], "label")
        parts = [{**settings, **_named_in(frame, names, (first, second), settings)} for frame in (first, second)]
        name = settings.pop("name", " and ".join(names))
        of_parents = [column for column in labels if column in first]
        parents = Table(
            first,
            identifier=identifier,
            sensitive=sensitive,
            label=of_parents or None,
            household=household,
            **parts[0] | {"name": name},
        )
        owner = _places(Persons.of(second[identifier]), parents.persons)  # -1 of persons who are dropped
        second = second[owner >= 0]
        if not len(second):
            raise DataError(f"No person of {names[0]!r} has a row in {names[1]!r}: share the first table alone.")
        group = parents.a.iloc[owner[owner >= 0]].set_axis(second.index)
        own = {"cuts": Grouping({str(parents.a.name): kind_of_values(group)}), "merge_small": 0, "name": names[1]}
        of_rows = [column for column in labels if column not in first]
        rows = Table(second, identifier=identifier, sensitive=group, label=of_rows or None, time=time, **parts[1] | own)
        self._set(parents, rows, names, first_label=labels[0] if labels else None)

    def _set(
        self,
        parents: Table,
        rows: Table,
        names: tuple[str, str],
        form: PanelForm | None = None,
        first_label: str | None = None,
    ) -> Self:
        """Set rows of summaries, one for each person."""
        known = ("kinds", "persons", "households")  # which are found anew
        self.__dict__.update({name: part for name, part in vars(parents).items() if name not in known})
        self.parents, self.rows, self.names = parents, rows, names
        of_rows = PanelForm.of(rows)
        self.form = PanelForm.of(rows, parents, names) if form is None else form
        self.owner = _places(rows.persons, parents.persons)
        self.X = self.form.summaries(
            self.form.schema.apply(rows.X),
            self.owner,
            len(parents),
            self.form.parents.apply(parents.X),  # type: ignore[union-attr]
        ).set_axis(parents.X.index)
        check_no_names(self.X, rows)
        self._set_labels(of_rows, first_label)
        kinds = rows.declared_kinds
        self.declared_kinds = {f"{name}: {end}": kind for name, kind in kinds.items() for end in ("first", "last")}
        self.declared_kinds |= {f"{names[0]}: {name}": kind for name, kind in parents.declared_kinds.items()}
        self.time, self.time_formats = rows.time, parents.time_formats | rows.time_formats
        self.keep_numbers = [*parents.keep_numbers, *rows.keep_numbers]
        self.notes = (*parents.notes, *(note for note in rows.notes if note not in parents.notes))
        return self

    def _set_labels(self, form: PanelForm, first_label: str | None) -> None:
        """Set the labels of the persons: those of their own row, and of the last of their rows."""
        labels = dict(self.parents.label_columns().items())
        for name, column in self.rows.label_columns().items():
            n_without = len(self) - self.rows.persons.n
            if n_without:
                raise DataError(
                    f"The label {name!r} is a column of {self.names[1]!r}, in which {n_without:,} of {len(self):,} "
                    f"persons have no row: take a label of {self.names[0]!r}, or none. The column is shared in any "
                    "case."
                )
            labels[name] = form.last(column, self.rows.X, self.owner, len(self)).set_axis(self.X.index)
        self.y = None if not labels else labels.pop(first_label if first_label in labels else next(iter(labels)))
        self.more_labels = pd.DataFrame(labels, index=self.X.index)

    def _of(self, parents: Table, rows: Table, form: PanelForm | None = None) -> Self:
        """Return linked tables of these two, with the names and the first label of these."""
        first_label = None if self.y is None else str(self.y.name)
        return type(self).__new__(type(self))._set(parents, rows, self.names, form, first_label)

    def formed(self, form: PanelForm) -> Self:
        """Return the same persons with summaries of another form."""
        form.check_linked(is_linked=True)
        return self._of(self.parents, self.rows, form)

    def take(self, rows: Any) -> Self:
        """Return some persons with their rows."""
        places = np.asarray(rows)
        part = super().take(places)
        part.parents = self.parents.take(places)
        return part

    def without(self, columns: Any) -> Self:
        """Return the tables without some features."""
        return self._of(self.parents.without(columns), self.rows.without(columns))

    @property
    def tables(self) -> tuple[Table, ...]:
        """Both tables."""
        return self.parents, self.rows

    def columns(self) -> pd.DataFrame:
        """Return kind, distinct values, missing values and range of each feature of both tables."""
        return pd.concat([part.columns() for part in self.tables])

    def fingerprint(self, key: Secret) -> str:
        """Return the keyed hash of both tables, which the order of rows does not change."""
        return fingerprint([part.fingerprint(key) for part in self.tables], key)

    def __repr__(self) -> str:
        n_without = len(self) - self.rows.persons.n
        return (
            f"{self.parents!r}\nand {len(self.rows):,} rows of {self.rows.persons.n:,} of these persons in "
            f"{self.names[1]!r}, {n_without:,} have none"
        )


def _two_names(tables: Mapping[str, Any]) -> tuple[str, str]:
    if len(tables) != 2:
        listed = ", ".join(map(repr, tables))
        raise DataError(
            "Two linked tables are released together, one row of each person and rows of these persons; got "
            f"{len(tables)} ({listed}). Join a further table, such as one with rows of rows, to one of the two, or "
            "leave it out."
        )
    first, second = map(str, tables)
    return first, second


def _check_identifier(identifier: str, name: str, frame: pd.DataFrame) -> None:
    """Raise unless a column of one of the tables names a person in every row."""
    if identifier not in frame:
        raise DataError(
            f"The identifier {identifier!r} must be a column of both tables; {name!r} has {', '.join(map(str, frame))}."
        )
    if (is_missing := missing(frame[identifier])).any():
        raise DataError(
            f"The identifier {identifier!r} must name a person in every row of {name!r}; {int(is_missing.sum()):,} are "
            f"missing, the first in row {int(is_missing.argmax()):,}."
        )


def _check_one_row_each(identifier: str, names: tuple[str, str], first: pd.DataFrame, second: pd.DataFrame) -> None:
    persons, others = (Persons.of(frame[identifier]) for frame in (first, second))
    if persons.n == len(first):
        return
    place = int(pd.Series(persons.codes).duplicated().argmax())
    swap = f" {names[1]!r} has one row of each: state it first." if others.n == len(second) else ""
    raise DataError(
        f"The first of two linked tables has one row of each person; {shown(first[identifier].iloc[place])} repeats in "
        f"{names[0]!r}, in row {place:,}.{swap}"
    )


def _check_columns(identifier: str, names: tuple[str, str], first: pd.DataFrame, second: pd.DataFrame) -> None:
    if both := [column for column in first if column in second and column != identifier]:
        raise DataError(f"Column {both[0]!r} is in {names[0]!r} and in {names[1]!r}: rename one, or leave one out.")


def _named_in(
    frame: pd.DataFrame, names: tuple[str, str], frames: tuple[pd.DataFrame, pd.DataFrame], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings that name columns, with those of one of the tables alone."""
    found: dict[str, Any] = {}
    for setting in ("drop", "keep_numbers", "kinds"):
        given = settings.get(setting) or ()
        stated = [given] if isinstance(given, str) else given
        for column in stated:
            check_known(column, [*frames[0], *frames[1]], "dropped" if setting == "drop" else "stated")
        own = [column for column in stated if column in frame]
        found[setting] = {column: given[column] for column in own} if isinstance(given, Mapping) else own
    return found


def _check_parents(identifier: str, names: tuple[str, str], first: pd.DataFrame, second: pd.DataFrame) -> None:
    """Raise if a row of the second table is of a person whom the first one lacks."""
    lacking = _places(Persons.of(second[identifier]), Persons.of(first[identifier])) < 0
    if lacking.any():
        place = int(lacking.argmax())
        raise DataError(
            f"{int(lacking.sum()):,} rows of {names[1]!r} are of persons whom {names[0]!r} lacks, the first of "
            f"{shown(second[identifier].iloc[place])} in row {place:,}: add these persons, or leave the rows out."
        )


def _places(persons: Persons, among: Persons) -> Places:
    """Return the place of the person of each row among others with one row each; -1 of a person who is not there."""
    return pd.Index(among.names).get_indexer(pd.Index(persons.names))[persons.codes]

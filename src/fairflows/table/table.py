"""A table: features, label and sensitive attribute, and which rows are the same person."""

from __future__ import annotations

import copy
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from fairflows.exceptions import DataError, check_choice
from fairflows.table.columns import (
    KINDS,
    Kind,
    Schema,
    check_column,
    check_kinds,
    check_known,
    check_plain,
    distinct_values,
    group_numbers,
    has_order,
    infer_kind,
    is_continuous,
    of_one_type,
    places_in,
    shown,
    sorted_values,
)
from fairflows.table.frames import is_polars, materialised, to_pandas
from fairflows.table.grouping import (
    MISSING,
    Cuts,
    Grouping,
    MissingGroup,
    MissingLabel,
    joined,
    kept_label,
    make_grouping,
    rows_kept,
    uncut_grouping,
)
from fairflows.table.keys import Hashes, Secret, content_hashes, fingerprint
from fairflows.table.persons import Persons, check_identifier, households_of
from fairflows.table.reading import TextFormat, read_with_formats
from fairflows.table.roles import check_one_role_each, check_uncut, checked_time, role_column, role_columns

PARTS = ("train", "validation", "test")

_CHOOSING_EDGES = 0.2  # share of the persons whose values are the edges of narrow groups


class Table:
    """Features X, label y and sensitive attribute a, checked once for all later stages.

    Parameters
    ----------
    data : DataFrame, polars.DataFrame, pyarrow.Table, dict or array of shape (n_rows, n_features)
        The table, or another object that hands over its rows as Arrow, such as a relation of DuckDB. Columns of an
        array are named x0, x1, ...
    sensitive : str, list of str, or array
        The sensitive attribute: columns of `data`, or one value per row. Several columns make intersectional groups.
        A list with one text per row counts as names of columns if one of them is the name of a column.
    label : str, list of str, or array, default=None
        The target of later predictions: a column of `data`, several, or one value per row.
    cuts : dict or Grouping, default=None
        Cut points for sensitive columns of numbers (``{"age": [30, 50]}``), or the `grouping` of another table. By
        default, every value is a group.
    merge_small : int, default=0
        Groups of fewer persons become one group, "other".
    uncut : str or list of str, default=()
        The sensitive column of numbers, such as the age, if it is to be hidden without being cut into groups: the
        statements are then about the correlation of anything that is shared with its rank, and about those above its
        median against the others. It is the only sensitive column, and every person has one row.
    identifier : str or array, default=None
        The person of each row. Splits never part a person, and a person's noise is always the same. By default, each
        row counts as a person.
    household : str or array, default=None
        The household of each row, or another larger unit, such as a firm. Values and rows that only one household has
        are not shared, as those of one person are not.
    time : str, default=None
        The column of numbers or times that orders the rows of a person, such as the year. It is a feature, too.
    drop : str or sequence of str, default=()
        Columns to leave out.
    kinds : dict, default=None
        ``{column: "continuous" | "discrete" | "categorical"}``, for columns whose inferred kind is wrong.
    keep_numbers : sequence of str, default=()
        Columns of whole numbers that look like names of rows, and are measurements.
    missing_group : {"error", "drop", "group"}, default="error"
        What is done with rows whose sensitive attribute is missing: raise, drop them, or make them a group of their
        own, "missing". A missing value among the features is always kept, as a category of its own.
    missing_label : {"error", "drop", "keep"}, default="error"
        What is done with rows whose label is missing: raise, drop them, or keep them with the label "missing". Later
        files are treated in the same way.
    name : str, default="table"
        Shown in the repr.

    Attributes
    ----------
    X : DataFrame
        The features. The index is the identifier, or without one the index of `data`.
    y, a : Series
        Label (or None), the first of several, and sensitive attribute.
    more_labels : DataFrame
        The other labels; without columns by default.
    grouping : Grouping
        How the sensitive columns became groups, for later tables.
    identifier, household : Series or None
        The person and the household behind each row.
    attributes : DataFrame or None
        The value of each sensitive column, where there are several: their combinations are the groups.
    time : str or None
        The column that orders the rows of a person.
    keep_numbers : list of str
        Columns of numbers that are measurements, as stated.
    kinds : dict
        The kind of each feature.
    declared_kinds : dict
        The kinds that were declared.
    label_place : int
        Number of features that stand before the label in the data.
    like : polars.DataFrame, pyarrow.Table or None
        No rows of the kind of frame that came; None for one of pandas.
    time_formats : dict
        How the CSV file that the table was read from writes times, by column.
    missing_group, missing_label : str
        Treatment of rows without a group or a label.
    group_names : dict
        Readable text for the values of a, if these are codes.
    parts : array of {"train", "validation", "test"}, or None
        The part of each row in a published split, which `paper_split` returns.
    notes : tuple of str
        What a reader of any result on this table must know.

    Examples
    --------
    >>> table = Table({"age": [31, 45, 27, 60], "repaid": [1, 0, 1, 1], "sex": list("fmmf")},
    ...               sensitive="sex", label="repaid")
    >>> table
    Table 'table': 4 rows, 1 feature (1 discrete), sensitive 'sex', label 'repaid'
         rows  share  P(repaid = 1)
    f       2    0.5           1.00
    m       2    0.5           0.50
    all     4    1.0           0.75
    """

    X: pd.DataFrame
    y: pd.Series | None
    more_labels: pd.DataFrame
    a: pd.Series
    identifier: pd.Series | None
    household: pd.Series | None

    def __init__(
        self,
        data: Any,
        *,
        sensitive: Any,
        label: Any = None,
        cuts: Cuts | Grouping | None = None,
        merge_small: int = 0,
        uncut: str | Sequence[str] = (),
        identifier: Any = None,
        household: Any = None,
        time: str | None = None,
        drop: str | Sequence[str] = (),
        kinds: Mapping[str, str] | None = None,
        keep_numbers: str | Sequence[str] = (),
        missing_group: MissingGroup = "error",
        missing_label: MissingLabel = "error",
        name: str = "table",
    ) -> None:
        check_choice("missing_group", missing_group, get_args(MissingGroup))
        check_choice("missing_label", missing_label, get_args(MissingLabel))
        data = materialised(data)
        self.like = data[:0] if is_polars(data) or isinstance(data, pa.Table) else None
        frame = to_pandas(data)
        self.time_formats: dict[str, str] = {}
        if not len(frame):
            raise DataError("A table needs at least one row; this one is empty.")
        if isinstance(frame.index, pd.MultiIndex) and identifier is None:
            raise DataError("The rows of a table must be known by one index, not several; use reset_index() first.")
        drop = [drop] if isinstance(drop, str) else list(drop)
        for column in drop:
            check_known(column, frame.columns, "dropped")
        frame = frame.drop(columns=drop)

        given, used_a = role_columns(frame, sensitive, "sensitive")
        raw = given if isinstance(given, pd.DataFrame) else given.to_frame()
        for column, values in raw.items():
            check_plain(str(column), values)
        self.a = joined(raw)
        labels, used_y = (None, []) if label is None else role_columns(frame, label, "label")
        if isinstance(labels, pd.DataFrame):
            self.y, self.more_labels = labels.iloc[:, 0], labels.iloc[:, 1:]
        else:
            self.y, self.more_labels = labels, frame.iloc[:, :0]
        self.identifier, used_id = (None, []) if identifier is None else role_column(frame, identifier, "identifier")
        self.household, used_hh = (None, []) if household is None else role_column(frame, household, "household")
        for values in [self.y, self.identifier, self.household, *(column for _, column in self.more_labels.items())]:
            if values is not None:
                check_plain(str(values.name), values)
        check_one_role_each({"sensitive": used_a, "label": used_y, "identifier": used_id, "household": used_hh})
        self.X = frame.drop(columns=[*used_a, *used_y, *used_id, *used_hh])
        self.time = checked_time(time, frame, self.X)
        before = frame.columns[: frame.columns.get_loc(used_y[0])] if used_y else self.X.columns
        self.label_place = int(self.X.columns.isin(before).sum())
        self._name_rows()
        self.name, self.missing_group, self.missing_label = name, missing_group, missing_label
        self.notes: tuple[str, ...] = ()
        self.group_names: dict[Any, str] = {}
        self.parts: npt.NDArray[np.object_] | None = None
        self._chose_edges: npt.NDArray[np.bool_] | None = None
        self.attributes: pd.DataFrame | None = None
        kept = self._settle_missing(raw)
        uncut = [uncut] if isinstance(uncut, str) else list(uncut)
        check_uncut(uncut, list(map(str, raw)), cuts, merge_small, missing_group)
        self._group(raw[kept], cuts, merge_small, is_uncut=bool(uncut))
        self._check(kinds or {}, fewest_groups=1 if isinstance(cuts, Grouping) else 2)
        self.keep_numbers = [keep_numbers] if isinstance(keep_numbers, str) else list(keep_numbers)
        for column in self.keep_numbers:
            check_known(column, self.X.columns, "kept")
        self.declared_kinds = {str(column): cast(Kind, kind) for column, kind in (kinds or {}).items()}

    @classmethod
    def read(
        cls,
        path: str | Path,
        schema: Schema | None = None,
        *,
        separator: str | None = None,
        encoding: str | None = None,
        decimal: str | None = None,
        sheet: str | None = None,
        dates: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Table:
        """Read a table from a CSV, Excel or Parquet file.

        Parameters
        ----------
        path : path
            The file; its name says of which kind it is. A CSV file may be compressed.
        schema : Schema, default=None
            What columns must hold: a model's `schema_`.
        separator : str, default=None
            The character between two fields of a CSV file. By default, the one of ``,`` ``;`` tab ``|`` that the header
            line has.
        encoding : str, default="utf-8"
            The encoding of a CSV file.
        decimal : {".", ","}, default=None
            The decimal mark of a CSV file. By default ``","`` if fields are separated by ``";"``, else ``"."``.
        sheet : str, default=None
            The sheet of an Excel file; by default the first.
        dates : dict, default=None
            The form of a column's dates, in the words of `strftime`: ``{"born": "%d.%m.%Y"}``. With an empty text it is
            the common form that fits all values, which is taken without being stated where there is only one.
        **settings
            The parameters of `Table`.
        """
        text_format = TextFormat(separator, encoding, decimal, sheet, dates or {})
        identifier = settings.get("identifier")
        name = identifier if isinstance(identifier, str) else None
        frame, time_formats = read_with_formats(path, schema, name, text_format)
        table = cls(frame, **{"name": Path(path).name, **settings})
        table.time_formats = time_formats
        return table

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """Kind of each feature: as declared, else inferred from these rows alone."""
        return {str(name): self.declared_kinds.get(str(name)) or infer_kind(column) for name, column in self.X.items()}

    @property
    def groups(self) -> list[Any]:
        """Sorted values of the sensitive attribute."""
        return sorted_values(self.a)

    @property
    def labels(self) -> list[Any]:
        """Sorted values of the label; the last of two is the positive one."""
        return [] if self.y is None else sorted_values(self.y)

    def label_columns(self) -> pd.DataFrame:
        """Return all labels, a column each."""
        return self.more_labels if self.y is None else pd.concat([self.y, self.more_labels], axis=1)

    @cached_property
    def persons(self) -> Persons:
        """Person of each row; without an identifier, every row counts as another person."""
        found = Persons.unnamed(len(self)) if self.identifier is None else Persons.of(self.identifier)
        if self._chose_edges is None:
            return found
        chose = np.zeros(found.n, dtype=bool)
        chose[found.codes[self._chose_edges]] = True
        return replace(found, chose_edges=chose)

    @cached_property
    def households(self) -> npt.NDArray[np.intp]:
        """Number of each row's household; without one, every person is a household."""
        if self.household is None:
            return self.persons.codes
        return households_of(self.persons.codes, distinct_values(self.household)[0])

    @property
    def has_histories(self) -> bool:
        """Whether some persons have several rows."""
        return self.persons.n < len(self)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables whose columns are released: this one, or both of two linked ones."""
        return (self,)

    def contents(self) -> Hashes:
        """Return a hash of each row's features, label and group."""
        return content_hashes(self.whole(), b"whole rows")

    def fingerprint(self, key: Secret) -> str:
        """Return a keyed hash of all features, labels and groups, which the order of rows does not change."""
        return fingerprint([np.sort(content_hashes(self.whole(), key))], key)

    def whole(self) -> pd.DataFrame:
        """Return features, group and label side by side, with a fresh index."""
        labels = [self.y.rename("y"), self.more_labels.add_prefix("y: ")] if self.y is not None else []
        columns = [self.X, self.a.rename("a"), *labels]
        return pd.concat([column.reset_index(drop=True) for column in columns], axis=1)

    def group_numbers(self, groups: Sequence[Hashable]) -> npt.NDArray[np.intp]:
        """Return the place of each row's group among the groups that a model knows."""
        numbers = group_numbers(groups, self.a)
        if (numbers < 0).any():
            first = self.a.iloc[int((numbers < 0).argmax())]
            raise DataError(f"The rows have a group that the model does not know: {first!r}.")
        return numbers

    def group_sizes(self, groups: Sequence[Hashable]) -> npt.NDArray[np.intp]:
        """Return the number of rows of each of these groups."""
        return np.bincount(self.group_numbers(groups), minlength=len(groups))

    def label_codes(self) -> tuple[npt.NDArray[np.intp], list[Hashable]]:
        """Return the number of each row's label, and the labels that have one: the classes, or combinations of several.

        Without a label, and with a label of numbers, all rows have the number 0, and there are no labels.
        """
        columns = self.label_columns()
        if self.y is None or any(is_continuous(column) for _, column in columns.items()):
            return np.zeros(len(self), dtype=np.intp), []
        label = joined(columns)
        labels = sorted_values(label)
        return places_in(pd.Index(labels, dtype=object), label), labels

    def one_row_per_person(self, seed: int) -> Table:
        """Return one random row of every person."""
        return self if self.identifier is None else self.take(self.persons.one_row_each(self.contents(), seed))

    def random_rows(self, seed: int, most: int) -> Table:
        """Return independent draws from the law of a random row, at most one of each person (of `most` rows)."""
        return self if self.identifier is None else self.take(self.persons.random_rows(self.contents(), seed, most))

    def take(self, rows: Any) -> Self:
        """Return the table of these rows: positions or a boolean mask."""
        rows = np.asarray(rows)
        part = copy.copy(self)
        for known in ("kinds", "persons", "households"):  # inferred anew, from the rows of the part
            part.__dict__.pop(known, None)
        part.X, part.a = self.X.iloc[rows], self.a.iloc[rows]
        part.y, part.more_labels = None if self.y is None else self.y.iloc[rows], self.more_labels.iloc[rows]
        part.identifier = None if self.identifier is None else self.identifier.iloc[rows]
        part.household = None if self.household is None else self.household.iloc[rows]
        part.parts = None if self.parts is None else self.parts[rows]
        part.attributes = None if self.attributes is None else self.attributes.iloc[rows]
        part._chose_edges = None if self._chose_edges is None else self._chose_edges[rows]
        return part

    def in_halves(self) -> Table:
        """Return the table with two groups, if its attribute is not cut: those below and above its median."""
        if not self.grouping.is_uncut:
            return self
        part, names = copy.copy(self), np.array(self.grouping.halves, dtype=object)
        part.a = pd.Series(names[self.grouping.half_of(self.a)], index=self.a.index, name=self.a.name)
        points = self.grouping.cuts[str(self.a.name)]
        part.grouping = replace(
            self.grouping, cuts={str(self.a.name): [points[self.grouping.n_narrow // 2 - 1]]}, wide=None
        )
        part._chose_edges = None
        part.__dict__.pop("persons", None)
        return part

    def without(self, columns: Collection[str]) -> Table:
        """Return the table without some features."""
        part = copy.copy(self)
        part.__dict__.pop("kinds", None)
        part.X = self.X[[name for name in self.X if str(name) not in columns]]
        part.label_place = sum(str(name) not in columns for name in self.X.columns[: self.label_place])
        part.declared_kinds = {name: kind for name, kind in self.declared_kinds.items() if name not in columns}
        part._check(part.declared_kinds, fewest_groups=1)
        return part

    def split(self, test: float = 0.2, validation: float = 0.2, random_state: int | None = 0) -> tuple[Self, ...]:
        """Split into random train, validation and test rows, with all rows of a person in the same part.

        Parameters
        ----------
        test : float
            Share of the persons for the test part.
        validation : float
            Share of the remaining persons for the validation part; 0 leaves that part out.
        random_state : int or None
            Seed of the split.

        Returns
        -------
        train, validation, test : Table
            Or train, test where ``validation=0``.
        """
        if not 0 < test < 1:
            raise DataError(f"test must be a share in (0, 1), because new rows certify; got {test!r}.")
        if not 0 <= validation < 1:
            raise DataError(f"validation must be a share in [0, 1); got {validation!r}.")
        shares = (test, validation) if validation else (test,)
        train, held_out, *chosen_by = map(self.take, self.persons.split(*shares, random_state=random_state))
        return train, *chosen_by, held_out

    def paper_split(self) -> tuple[Table, Table, Table]:
        """Return the published train, validation and test rows of the paper's datasets."""
        if self.parts is None:
            raise DataError(f"{self.name!r} has no published split; use split().")
        train, validation, test = (self.take(self.parts == part) for part in PARTS)
        return train, validation, test

    def summary(self) -> pd.DataFrame:
        """Return rows and share of each group, and of all, with the rates of the label or the mean of a number."""
        if self.grouping.is_uncut:
            return self.in_halves().summary()
        rows = []
        for group in [*self.groups, None]:
            mask = np.ones(len(self), dtype=bool) if group is None else (self.a == group).to_numpy()
            row = {"group": "all" if group is None else group, "rows": int(mask.sum()), "share": float(mask.mean())}
            if self.y is not None and is_continuous(self.y):
                row[f"mean {self.y.name}"] = float(self.y[mask].mean())
            elif self.y is not None:
                shown_labels = self.labels[1:] if len(self.labels) == 2 else self.labels
                row |= {f"P({self.y.name} = {v})": float((self.y[mask] == v).mean()) for v in shown_labels}
            rows.append(row)
        return pd.DataFrame(rows).set_index("group")

    def label_counts(self) -> npt.NDArray[np.int64]:
        """Return the number of rows by class of the label and group, shape (C, K); without rows for a number."""
        if self.y is None or is_continuous(self.y):
            return np.empty((0, len(self.groups)), dtype=np.int64)
        counts = np.zeros((len(self.labels), len(self.groups)), dtype=np.int64)
        y = places_in(pd.Index(self.labels, dtype=object), self.y)
        np.add.at(counts, (y, self.group_numbers(self.groups)), 1)
        return counts

    def columns(self) -> pd.DataFrame:
        """Return kind, distinct values, missing values and range of each feature."""
        X = self.X.set_axis(self.X.columns.map(str), axis=1)
        ordered = X[[name for name, column in X.items() if has_order(column.dtype)]].dropna(axis=1, how="all")
        ranges = {name: " … ".join(map(_short, column.agg(["min", "max"]))) for name, column in ordered.items()}
        found = {
            "kind": pd.Series(self.kinds),
            "type": X.dtypes.astype(str),
            "values": X.nunique(),
            "missing": X.isna().sum(),
            "range": pd.Series(ranges, dtype=object).reindex(X.columns, fill_value=""),
        }
        return pd.DataFrame(found).rename_axis("column")

    def __repr__(self) -> str:
        counts = {kind: sum(found == kind for found in self.kinds.values()) for kind in KINDS}
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        n_features = self.X.shape[1]
        roles = [("sensitive", self.a.name), *(("label", name) for name in self.label_columns())]
        roles += [] if self.identifier is None else [("identifier", self.identifier.name)]
        roles += [] if self.household is None else [("household", self.household.name)]
        named = [f"{role} {name!r}" for role, name in roles]
        heading = f"Table {self.name!r}: {len(self):,} rows, {n_features} feature{'s' * (n_features != 1)} ({kinds})"
        groups = self.summary().rename(index=self.group_names).rename_axis(None).round(3)
        return "\n".join([", ".join([heading, *named]), groups.to_string(), *(f"note: {note}" for note in self.notes)])

    def _name_rows(self) -> None:
        """Make the identifier the index, so that an encoder finds it by its name."""
        if self.identifier is None:
            return
        index = pd.Index(self.identifier, name=self.identifier.name)
        self.X, self.a, self.more_labels = (part.set_axis(index) for part in (self.X, self.a, self.more_labels))
        self.y = None if self.y is None else self.y.set_axis(index)
        self.identifier = self.identifier.set_axis(index)

    def _group(
        self,
        columns: pd.DataFrame,
        cuts: Mapping[str, Sequence[float]] | Grouping | None,
        merge_small: int,
        *,
        is_uncut: bool,
    ) -> None:
        """Make groups of the values of the sensitive columns."""
        if is_uncut or (isinstance(cuts, Grouping) and cuts.is_uncut and self.identifier is not None):
            persons = Persons.unnamed(len(self)) if self.identifier is None else Persons.of(self.identifier)
            self._chose_edges = (persons.drawn(0, "edges") < _CHOOSING_EDGES)[persons.codes]
        if isinstance(cuts, Grouping):
            self.grouping = cuts
        elif is_uncut:
            assert self._chose_edges is not None
            self.grouping = uncut_grouping(columns.iloc[:, 0], self._chose_edges, persons.n)
        else:
            missing = self.missing_group == "group"
            self.grouping = make_grouping(columns, cuts, merge_small, self.identifier, missing)
        self.a = self.grouping.apply(columns).set_axis(self.a.index).rename(self.a.name)
        self.attributes = self.grouping.values(columns).set_axis(self.a.index) if columns.shape[1] > 1 else None
        self.notes = (*self.notes, *self.grouping.notes)

    def _settle_missing(self, sensitive: pd.DataFrame) -> npt.NDArray[np.bool_]:
        """Drop rows without a group or a label, if that is asked for. Return which rows are kept."""
        kept = rows_kept(sensitive, self.label_columns(), self.missing_group, self.missing_label)
        if not kept.any():
            raise DataError("Every row lacks its group or its label, so none is left after dropping them.")
        if not kept.all():
            self.__dict__.update(self.take(kept).__dict__)
            self.notes = (*self.notes, f"{(~kept).sum():,} rows without a group or a label were dropped")
        if self.y is not None:
            settled = {name: self._settled_label(column) for name, column in self.label_columns().items()}
            self.y, self.more_labels = settled.pop(self.y.name), pd.DataFrame(settled, index=self.y.index)
        gaps = [f"{name!r} ({count:,})" for name, count in self.X.isna().sum().items() if count]
        if gaps:
            self.notes = (*self.notes, f"missing values are a category of their own: {', '.join(gaps)}")
        return kept

    def _settled_label(self, y: pd.Series) -> pd.Series:
        """Return a label of one type: as text where rows without one are kept, which have one more."""
        y = of_one_type(y)
        if self.missing_label != "keep":
            return y
        if is_continuous(y):
            raise DataError(
                f"The label column {y.name!r} holds {y.nunique():,} different numbers, beside which {MISSING!r} cannot "
                "be a label: drop the rows without one (missing_label='drop')."
            )
        return kept_label(y)

    def _check(self, kinds: Mapping[str, str], fewest_groups: int) -> None:
        if not self.X.shape[1]:
            raise DataError("A table needs at least one feature beside the label and the sensitive attribute.")
        check_kinds(self.X, kinds)
        for name, column in self.X.items():
            check_column(str(name), column)
            _check_not_a_name(str(name), column, declared=name in kinds)
        if self.identifier is not None:
            check_identifier(self.identifier)
        if len(groups := self.groups) < fewest_groups:  # later rows may all be of one group
            raise DataError(
                f"The sensitive column {self.a.name!r} needs at least two groups; every row is {shown(groups[0])}."
            )
        for name, label in self.label_columns().items():
            check_column(str(name), label)
            if len(values := sorted_values(label)) < 2:
                raise DataError(
                    f"The label column {name!r} needs at least two values; every row is {shown(values[0])}."
                )


def _short(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _check_not_a_name(name: str, column: pd.Series, declared: bool) -> None:
    """Raise if every row of a text column is different: a name, a key, a free text."""
    if has_order(column.dtype) or declared or len(column) <= 2:
        return
    if column.nunique(dropna=False) == len(column):
        is_text = column.dtype == object or isinstance(column.dtype, pd.StringDtype)
        what = f"Column {name!r} is {'text' if is_text else f'of type {column.dtype}'}"
        raise DataError(naming_rows(name, what, len(column)))


def naming_rows(name: str, what: str, n_rows: int) -> str:
    """Return the message about a column in which every row differs; `what` describes it."""
    return (
        f"{what} with as many values as rows ({n_rows:,}): it names the rows and cannot be learnt from. Drop it "
        f"(drop=[{name!r}]), or make it the identifier (identifier={name!r})."
    )

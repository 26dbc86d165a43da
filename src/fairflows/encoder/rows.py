"""Tables of any kind as `Rows`: features, groups and persons, checked by the rules of an encoder.

The functions read the settings of an encoder (``sensitive``, ``identifier``, ``kinds``) and
what its fit found (``groups_``, ``schema_``). `read_training_rows` reads the rows that `fit` is given,
`Encoder.read` those that are encoded, and `read_latent` encoded rows that are decoded.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import poisson
from sklearn.utils.validation import check_array, validate_data

from fairflows.codec import OutsideValues
from fairflows.exceptions import DataError, warn_user_once
from fairflows.table.columns import (
    Schema,
    check_kinds,
    floats,
    group_numbers,
    has_order,
    is_continuous,
    of_one_type,
    places_in,
    shown,
    sorted_values,
)
from fairflows.table.frames import ColumnLike, Frame, TableLike, has_names, is_polars, materialised, to_pandas
from fairflows.table.persons import Key, Persons, check_key, new_key
from fairflows.table.table import Role, Table, role_column

if TYPE_CHECKING:
    from fairflows.encoder.base import Encoder

FloatArray = npt.NDArray[np.float64]
Groups = npt.NDArray[np.intp]
LabelsLike: TypeAlias = "ColumnLike | Frame"
"""One label per row."""

RowsLike: TypeAlias = "Table | TableLike"
"""Rows as users bring them to an encoder."""

_BY_CHANCE = 1e-4  # probability that fresh rows have so many values beyond the training range

FRESH_COINS = (
    "No identifier says which rows are the same person, so every row gets fresh randomness. Encoding a person twice "
    "then tells more about them than encoding them once: give identifier=... if a person may come again."
)


@dataclass(frozen=True)
class Label:
    """The label."""

    classes: np.ndarray | None  # its values; None for a number
    # Mean and standard deviation of a number.
    centre: float = 0.0
    scale: float = 1.0
    # (n_rows,): class numbers, or numbers; of the rows it was read from, and not kept with a model
    values: npt.NDArray = field(default_factory=lambda: np.empty(0), repr=False)

    @classmethod
    def read(cls, y: LabelsLike, n_rows: int) -> Label:
        """Read a column of labels: many different numbers are a number to predict, all else are classes."""
        column = pd.Series(np.asarray(y, dtype=object if isinstance(y, list | tuple) else None).ravel()).infer_objects()
        if len(column) != n_rows:
            raise DataError(f"y must have one value per row ({n_rows} rows); got {len(column)}.")
        if column.isna().any():
            raise DataError(f"y must be known in every row; {int(column.isna().sum())} values are missing (NaN).")
        if is_continuous(column):
            numbers = column.to_numpy(dtype=np.float64)
            if not np.isfinite(numbers).all():
                raise DataError(f"y must hold finite numbers; {int((~np.isfinite(numbers)).sum())} are infinite.")
            return cls(None, float(numbers.mean()), float(numbers.std()), numbers)
        values = sorted_values(column)
        if len(values) < 2:
            raise DataError(f"y must have at least two classes; every row is {shown(values[0])}.")
        several_types = len({type(value) for value in values}) > 1  # which NumPy would make text of
        codes = places_in(pd.Index(values, dtype=object), column)
        return cls(np.array(values, dtype=object if several_types else None), values=codes)

    @property
    def class_values(self) -> np.ndarray:
        """Its classes; none for a number."""
        return np.empty(0) if self.classes is None else self.classes

    def targets(self) -> FloatArray:
        """Return the numbers that represent each row's label, one column or one per class; their mean is kept."""
        if self.classes is None:
            return ((self.values - self.centre) / self.scale)[:, None]
        if len(self.classes) == 2:
            return (self.values == 1).astype(np.float64)[:, None]
        return np.eye(len(self.classes))[self.values]

    def predict(self, means: FloatArray) -> np.ndarray:
        """Predict the most probable class, or the mean of a number, from means of the targets."""
        if self.classes is None:
            return means[:, 0] * self.scale + self.centre
        if len(self.classes) == 2:
            return self.classes[(means[:, 0] > 0.5).astype(np.intp)]
        return self.classes[means.argmax(axis=1)]


def label_columns(y: LabelsLike) -> pd.DataFrame:
    """Return labels as columns with names; a label without a name is called y."""
    if is_polars(y):
        y = y.to_pandas()
    if isinstance(y, pd.DataFrame):
        return y
    column = y if isinstance(y, pd.Series) else pd.Series(np.asarray(y).ravel())
    return column.to_frame("y" if column.name is None else column.name)


def known_label(label: Label | None) -> Label:
    """Return the label that an encoder predicts; raise where it was fitted without one."""
    if label is None:
        raise DataError("The encoder was fitted without a label and cannot predict one.")
    return label


@dataclass(frozen=True)
class Rows:
    """Rows as an encoder sees them."""

    X: pd.DataFrame  # the features, without the sensitive and identifier columns
    # Each row's group, as a place in the encoder's ``groups_``; 0 where an encoder needs no attribute and none came.
    group: Groups
    persons: Persons  # whose rows they are
    outside: OutsideValues  # values outside of the fitted domain, noted while the rows are encoded

    def take(self, places: npt.NDArray[np.intp]) -> Rows:
        """Return some of the rows, with nothing noted about their values."""
        return Rows(self.X.iloc[places], self.group[places], self.persons.take(places), OutsideValues(len(places)))

    @property
    def map_group(self) -> Groups:
        """The group whose map each row takes, once its values have been looked up.

        A row with a value that cannot be brought back into the fitted domain (a new category, or a missing value where
        none was) takes the first group's map, because another group's map of such values could give the group away.
        """
        return np.where(self.outside.unknown, 0, self.group)

    def persons_or_fresh(self) -> Persons:
        """Return the persons whose coins the rows get; warn where they are unnamed and the coins fresh."""
        if not self.persons.named:
            warn_user_once(FRESH_COINS)
        return self.persons


@dataclass(frozen=True)
class TrainingRows(Rows):
    """Rows that an encoder is fitted to."""

    groups: list[Hashable]  # the values of the sensitive attribute
    labels: list[Label]
    key: Key  # the secret behind noise and coins
    schema: Schema  # the content of the columns; empty for an array
    kinds: Mapping[str, str]  # of columns for which the encoder, or else the table, declares one

    @property
    def label(self) -> Label | None:
        """The only label, or None without one."""
        if len(self.labels) > 1:
            raise DataError(
                f"The table has {len(self.labels)} labels, and this encoder takes one: name one (label=...), or take "
                "FairTree (method='tree'), which takes several."
            )
        return self.labels[0] if self.labels else None

    def label_with_classes(self, reader: str) -> Label | None:
        """Return the label, which must have classes, or None without one; `reader` is who needs it so."""
        label = self.label
        if label is not None and label.classes is None:
            raise DataError(
                f"y holds {len(np.unique(label.values)):,} different numbers, and {reader} predicts classes: cut it "
                "into a few (pandas.qcut), or use FairCells or FairTree, which take a number to predict."
            )
        return label


def read_training_rows(
    encoder: Encoder, X: RowsLike, y: LabelsLike | None, sensitive_features: Role | None
) -> TrainingRows:
    """Read the rows that an encoder is fitted to; scikit-learn's own attributes of the columns are set on it."""
    check_key(encoder.key)
    X = materialised(X)
    frame = whole_frame(X)
    if len(frame) < 2:
        raise DataError(f"Found a table with {len(frame)} sample(s); an encoder needs two.")
    attribute, taken = find_attribute(encoder, X, frame, sensitive_features, needed=encoder.traits.learns_groups)
    groups = [] if attribute is None else _find_groups(attribute)
    persons = find_persons(encoder, X, frame, needed=True)
    features = find_features(encoder, frame, taken)
    named = isinstance(X, Table) or has_names(X)
    numbered = [name for name in features if not isinstance(name, str)]
    if named and 0 < len(numbered) < features.shape[1]:
        raise DataError(f"The name of column {numbered[0]!r} is no text, and others are texts: rename it.")
    validate_data(encoder, features if named else features.to_numpy(), skip_check_array=True, reset=True)
    kinds = getattr(encoder, "kinds", None)
    if kinds is None and isinstance(X, Table):
        kinds = X.declared_kinds
    check_kinds(features, kinds)
    group = group_places(attribute, groups, len(frame))
    labels = [] if y is None else [Label.read(y, len(frame))]
    if y is None and isinstance(X, Table):
        labels = [Label.read(column, len(frame)) for _, column in X.label_columns().items()]
    return TrainingRows(
        features,
        group,
        persons,
        OutsideValues(len(frame)),
        groups,
        labels,
        encoder.key if encoder.key is not None else new_key(),
        Schema.of(features) if named else Schema({}),
        kinds or {},
    )


def fitted_ranges(rows: TrainingRows) -> dict[Hashable, tuple[float, float, int]]:
    """Return smallest value, largest value and number of values of each column of numbers or times."""
    ranges = {}
    for name, column in rows.X.items():
        if has_order(column.dtype) and column.dtype.kind != "c" and rows.kinds.get(name) != "categorical":
            x = floats(column)
            known = x[~np.isnan(x)]
            if len(known):
                ranges[name] = (float(known.min()), float(known.max()), len(known))
    return ranges


def note_beyond(ranges: Mapping[Hashable, tuple[float, float, int]], rows: Rows) -> None:
    """Note the numbers beyond the training range, where they are more than fresh rows of the same law would have.

    Of n training rows and one more, each is the largest or the smallest with probability 2/(n + 1) at most.
    """
    for name, (low, high, n) in ranges.items():
        if not has_order(rows.X[name].dtype):
            continue  # the encoder refuses it
        x = floats(rows.X[name])
        beyond = (x < low) | (x > high)
        if beyond.any() and poisson.sf(beyond.sum() - 1, 2 * len(x) / (n + 1)) < _BY_CHANCE:
            rows.outside.note(str(name), "beyond", beyond)


def read_latent(
    encoder: Encoder, Z: TableLike, sensitive_features: Role | None, persons: Persons | None, *, by_person: bool
) -> Rows:
    """Read encoded rows, their columns by name in the encoder's order; `by_person` where decoding repeats coins."""
    Z = materialised(Z)
    frame, names = whole_frame(Z), list(encoder.output_.dtypes)
    if not has_names(Z) and frame.shape[1] == len(names):
        frame = frame.set_axis(names, axis=1)
    attribute, taken = find_attribute(encoder, Z, frame, sensitive_features, needed=True)
    latent = frame.drop(columns=[name for name in (*taken, encoder.identifier) if name in frame])
    latent = latent.set_axis(latent.columns.astype(str), axis=1)
    if set(latent.columns) != set(names):
        got, wanted = (", ".join(map(str, list(some)[:8])) for some in (latent.columns, names))
        raise DataError(f"Encoded rows must have the columns {wanted} ({len(names)} in all); got {got}.")
    if persons is None:
        persons = find_persons(encoder, Z, frame, needed=by_person)
    group = group_places(attribute, encoder.groups_, len(frame))
    return Rows(encoder.output_.schema.apply(latent[names]), group, persons, OutsideValues(len(frame)))


def group_places(attribute: pd.Series | None, groups: list[Hashable], n_rows: int) -> Groups:
    """Return each row's place in `groups`; 0 without an attribute or without fitted groups."""
    if attribute is None or not groups:
        return np.zeros(n_rows, dtype=np.intp)
    group = group_numbers(groups, attribute)
    if (group < 0).any():
        first = attribute.iloc[int((group < 0).argmax())]
        raise DataError(
            "The sensitive attribute must be one of the groups that the encoder was fitted on "
            f"({', '.join(map(shown, groups))}); {int((group < 0).sum())} rows are not, the first is {shown(first)}."
        )
    return group


def whole_frame(X: RowsLike) -> pd.DataFrame:
    """Return all columns of a table."""
    if isinstance(X, Table):
        return X.X
    if isinstance(X, pd.DataFrame) or has_names(X):
        return to_pandas(X)
    if _has_text(X):
        return to_pandas(check_array(X, dtype=object, ensure_all_finite="allow-nan")).infer_objects()
    return to_pandas(check_array(X, dtype="numeric", ensure_all_finite="allow-nan"))


def find_attribute(
    encoder: Encoder, X: RowsLike, frame: pd.DataFrame, sensitive_features: Role | None, *, needed: bool
) -> tuple[pd.Series | None, list[Hashable]]:
    """Return the sensitive attribute, and the columns of the table that hold it."""
    names = [encoder.sensitive] if isinstance(encoder.sensitive, str) else list(encoder.sensitive or [])
    in_table: list[Hashable] = [name for name in names if name in frame]
    if sensitive_features is None and isinstance(X, Table):
        sensitive_features = X.a
    if isinstance(sensitive_features, pd.Series | np.ndarray) and sensitive_features.shape == (len(frame),):
        return pd.Series(sensitive_features), in_table
    if sensitive_features is not None:
        listed = isinstance(sensitive_features, list | tuple)
        given = np.asarray(sensitive_features) if listed else sensitive_features
        attribute, named = role_column(frame, given, "sensitive")
        return attribute, list(dict.fromkeys([*in_table, *named]))
    if encoder.sensitive is not None and (needed or in_table):
        return role_column(frame, encoder.sensitive, "sensitive")
    if not needed:
        return None, []
    why = "encodes each group its own way" if encoder.traits.needs_attribute else "is fitted to groups"
    raise DataError(
        f"{type(encoder).__name__} {why} and needs the sensitive attribute: pass sensitive_features=..., or name its "
        "column in the constructor (sensitive='...')."
    )


def _find_groups(attribute: pd.Series) -> list[Hashable]:
    if attribute.isna().any():
        raise DataError(f"The sensitive attribute must be known in every row; {int(attribute.isna().sum())} are not.")
    groups = sorted_values(of_one_type(attribute))
    if len(groups) < 2:
        raise DataError(f"The sensitive attribute needs at least two groups; every row is {shown(groups[0])}.")
    return groups


def find_persons(encoder: Encoder, X: RowsLike, frame: pd.DataFrame, *, needed: bool) -> Persons:
    """Return who is who, by the table's own identifier, or the column or index that the constructor named."""
    if isinstance(X, Table) and X.identifier is not None:
        return X.persons
    identifier = encoder.identifier
    if identifier is None:
        return Persons.unnamed(len(frame))
    if identifier in frame:
        return Persons.of(frame[identifier])
    if identifier == frame.index.name:
        return Persons.of(frame.index)
    if needed:
        raise DataError(
            f"The encoder reads the names of persons from {identifier!r} (identifier={identifier!r}), which these rows "
            "lack: add that column, or make it the index."
        )
    return Persons.unnamed(len(frame))


def find_features(encoder: Encoder, frame: pd.DataFrame, taken: Sequence[Hashable]) -> pd.DataFrame:
    """Return the columns without the sensitive attribute and the identifier."""
    features = frame.drop(columns=[name for name in {*taken, encoder.identifier} if name in frame])
    if not features.shape[1]:
        raise DataError("0 feature(s) are left to encode beside the sensitive attribute and the identifier.")
    return features


def _has_text(X: object) -> bool:
    """Return whether an array has text columns, or a list of rows has a text value."""
    if isinstance(X, list | tuple):
        X = np.asarray(X, dtype=object)
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "OU":
        return False
    return X.dtype.kind == "U" or any(isinstance(value, str) for value in X.flat)

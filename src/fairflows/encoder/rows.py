"""Tables of any kind as `Rows`: features, groups and persons, checked by the rules of an encoder.

The functions read the settings of an encoder (``sensitive``, ``identifier``, ``kinds``) and
what its fit found (``groups_``, ``schema_``). `read_training_rows` reads the rows that `fit` is given,
`Encoder.read` those that are encoded, and `read_latent` encoded rows that are decoded.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Int
from sklearn.utils.validation import check_array, validate_data

from fairflows.arrays import NDArray
from fairflows.encoder.label import Label, LabelsLike
from fairflows.exceptions import DataError, warn_user_once
from fairflows.table.columns import Schema, check_kinds, group_numbers, of_one_type, shown, sorted_values
from fairflows.table.domain import Codes, Domain, Outside, take
from fairflows.table.frames import TableLike, has_names, materialised, to_pandas
from fairflows.table.keys import Key, check_key, content_hashes, new_key
from fairflows.table.persons import Persons, Places
from fairflows.table.roles import Role, role_column
from fairflows.table.table import Table

if TYPE_CHECKING:
    from fairflows.encoder.base import Encoder

FloatArray = NDArray[np.float64]
Groups = NDArray[np.intp]
RowsLike: TypeAlias = "Table | TableLike"
"""Rows as users bring them to an encoder."""

FRESH_COINS = (
    "No identifier says which rows are the same person, so every row gets fresh randomness. Encoding a person twice "
    "then tells more about them than encoding them once: give identifier=... if a person may come again."
)


@dataclass(frozen=True)
class Rows:
    """Rows as an encoder sees them."""

    X: pd.DataFrame  # the features, without the sensitive and identifier columns
    codes: Codes  # the same as arrays
    outside: Outside  # values that the domain of the encoder does not have
    # Each row's group, as a place in the encoder's ``groups_``; 0 where an encoder needs no attribute and none came.
    group: Int[Groups, " n"]
    persons: Persons  # whose rows they are

    def take(self, places: Int[Places, " m"]) -> Rows:
        """Return some of the rows."""
        outside, persons = self.outside.take(places), self.persons.take(places)
        return Rows(self.X.iloc[places], take(self.codes, places), outside, self.group[places], persons)

    def split(self, share: float, random_state: int) -> tuple[Int[Places, " _"], Int[Places, " _"]]:
        """Return the rows of a random share of the persons of each group, and the rows of the others.

        A person with a name is in the same part whatever the order of the rows is. Persons who chose the edges of
        narrow groups are among the first, because the groups of the others then do not depend on them.
        """
        persons = self.persons
        of_person = np.zeros(persons.n, dtype=np.intp)
        np.maximum.at(of_person, persons.codes, self.group)
        order = persons.drawn(random_state, "structure")
        order = order if persons.chose_edges is None else order - persons.chose_edges
        rank = pd.Series(order).groupby(of_person).rank().to_numpy() - 1
        is_first = rank < np.round(share * np.bincount(of_person))[of_person]
        is_first = (is_first if persons.chose_edges is None else is_first | persons.chose_edges)[persons.codes]
        return np.flatnonzero(is_first), np.flatnonzero(~is_first)

    def independent(self, places: Int[Places, " m"], most: int, random_state: int) -> Int[Places, " _"]:
        """Return those of the rows at these places that are independent draws from the law of a random row.

        They are at most one row of each person; no person has more than `most`.
        """
        if most == 1 and self.persons.n == len(self.persons.codes):
            return places
        contents = content_hashes(self.X.iloc[places], b"cells")
        return places[self.persons.take(places).random_rows(contents, random_state, most)]

    @property
    def encoding_group(self) -> Int[Groups, " n"]:
        """The group whose map each row takes.

        A row with a value that cannot be brought back into the domain (a new category, or a missing value where none
        was) takes the first group's map, because another group's map of such values could give the group away.
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
    domain: Domain  # the values of the columns
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
        raise DataError(f"The name of column {numbered[0]!r} is not a text, and those of other columns are: rename it.")
    validate_data(encoder, features if named else features.to_numpy(), skip_check_array=True, reset=True)
    kinds = getattr(encoder, "kinds", None)
    if kinds is None and isinstance(X, Table):
        kinds = X.declared_kinds
    check_kinds(features, kinds)
    group = group_places(attribute, groups, len(frame))
    labels = [] if y is None else [Label.read(y, len(frame))]
    if y is None and isinstance(X, Table):
        labels = [Label.read(column, len(frame)) for _, column in X.label_columns().items()]
    domain, codes = Domain.of(features, kinds)
    return TrainingRows(
        features,
        codes,
        Outside(len(frame)),
        group,
        persons,
        groups,
        labels,
        encoder.key if encoder.key is not None else new_key(),
        domain,
        Schema.of(features) if named else Schema({}),
        kinds or {},
    )


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
    return Rows(encoder.output_.schema.apply(latent[names]), {}, Outside(len(frame)), group, persons)


def group_places(attribute: pd.Series | None, groups: list[Hashable], n_rows: int) -> Int[Groups, " {n_rows}"]:
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
        n_missing = int(attribute.isna().sum())
        raise DataError(f"The sensitive attribute is missing in {n_missing:,} rows; drop them or fill them in.")
    groups = sorted_values(of_one_type(attribute))
    if len(groups) < 2:
        raise DataError(f"The sensitive attribute needs at least two groups; every row is {shown(groups[0])}.")
    return groups


def find_persons(encoder: Encoder, X: RowsLike, frame: pd.DataFrame, *, needed: bool) -> Persons:
    """Return who is who, by the table's own identifier, or the column or index that the constructor named."""
    if isinstance(X, Table) and (X.identifier is not None or X.persons.chose_edges is not None):
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

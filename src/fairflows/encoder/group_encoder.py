"""What the encoders that treat each group its own way share: reading tables, groups, labels, weights, keys."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import ClassVar, Literal, Self

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.base import clone
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight, check_array, validate_data

from fairflows.codec.outside import Outside
from fairflows.encoder.base import Encoder, FloatArray, Given, Groups, LabelledRows, Learnt, Rows, RowsLike
from fairflows.encoder.labels import Label, read_labels
from fairflows.exceptions import DataError, check_choice
from fairflows.table.columns import Dtype, TableColumns, check_kinds, check_known, places_in, shown, sorted_values
from fairflows.table.frames import (
    TableLike,
    columns_from_arrow,
    has_names,
    has_pandas_notes,
    materialised,
    to_pandas,
)
from fairflows.table.ledger import Ledger
from fairflows.table.persons import NEW_AT_EACH_FIT, Key, KeySetting, Persons, check_key, new_key
from fairflows.table.schema import Schema
from fairflows.table.table import Role, Table, role_column


@dataclass(eq=False, repr=False, kw_only=True)
class GroupEncoder(Encoder):
    """Base of the encoders that are fitted to rows directly, and not around another encoder.

    An encoder is a dataclass: its settings are fields, each with its default, and what fitting adds is no argument. The
    settings here are those that all of them have.
    """

    sensitive: str | list[str] | None = None
    identifier: str | None = None
    key: KeySetting = NEW_AT_EACH_FIT
    random_state: int = 0

    _fit_needs_attribute: ClassVar[bool] = True
    """Whether fitting needs the sensitive attribute, though encoding may not."""

    schema_: Schema | None = field(init=False)
    missing_: Literal["error", "category"] = field(init=False)
    """What is done with missing values, as the setting or the table said."""

    @abstractmethod
    def _fit(self, rows: LabelledRows, strengths: Sequence[float], seeds: Sequence[int]) -> list[Learnt | None]:
        """What is learnt at each strength with each seed, strength by strength; None stands for a run that diverged.

        What all of them share may be set on the estimator itself.
        """

    def _fit_to(self, given: Given) -> Rows:
        strength = self.get_params(deep=False).get(self.strength_name, 1.0)
        rows = self._start(given)
        (learnt,) = self._fit(rows, [strength], [self.random_state])
        if learnt is None:
            raise DataError(f"Training of {type(self).__name__} diverged: its loss is not finite.")
        self.__dict__.update(learnt)
        return rows

    def _fitted_to(self, given: Given, strengths: Sequence[float], seeds: Sequence[int]) -> list[Self]:
        shared = clone(self)
        learnt = shared._fit(shared._start(given), strengths, seeds)
        common = {name: value for name, value in shared.__dict__.items() if name.endswith("_")}
        known = self.get_params(deep=False)  # plain rows have no strength
        found = []
        for (strength, seed), own in zip([(g, s) for g in strengths for s in seeds], learnt, strict=True):
            settings = {self.strength_name: strength, "random_state": seed}
            encoder = clone(self).set_params(**{name: settings[name] for name in settings if name in known})
            if own is not None:
                encoder.__dict__.update(common | own)
            found.append(encoder)
        return found

    def sharing(self, key: Key | None, share: float) -> Self:
        """A copy that is not fitted, with this key and this share of δ, where it has such settings."""
        settings = self.get_params(deep=False)
        changed = {"key": key, "delta": share * settings.get("delta", 0)}
        return clone(self).set_params(**{name: value for name, value in changed.items() if name in settings})

    def read(self, X: RowsLike, sensitive_features: Role | None = None, persons: Persons | None = None) -> Rows:
        """The rows of a table as the encoder sees them, checked."""
        self._check_ready()
        return self._rows(X, sensitive_features, persons, fit=False)

    @property
    def feature_names(self) -> list[str]:
        """The columns of X that are encoded; none where the encoder was fitted to an array."""
        self._check_fitted()
        return [str(name) for name in vars(self).get("feature_names_in_", ())]

    @property
    def row_schema(self) -> Schema:
        """What the columns of X hold, by which later files are read; empty where the encoder was fitted to an array."""
        self._check_fitted()
        return Schema({}) if self.schema_ is None else self.schema_

    def _start(self, given: Given) -> LabelledRows:
        """Rows to fit to; groups, key and ledger are made anew."""
        check_key(self.key)
        self.missing_ = self._rule_for_missing(given.X)
        rows = self._rows(given.X, given.sensitive_features, None, fit=True)
        self.key_ = self.key if self.key is not None else new_key()
        self.ledger_ = Ledger.of(rows.X, rows.persons, self.key_)
        self.most_rows_ = int(rows.persons.rows_each().max()) if rows.persons.named else None
        weight: FloatArray | None = None
        if given.sample_weight is not None:
            weight = _check_sample_weight(given.sample_weight, rows.X, dtype=np.float64, ensure_non_negative=True)
            for a, group in enumerate(self.groups_):
                if not weight[rows.group == a].any():
                    raise DataError(f"Every group needs rows of positive sample_weight; group {shown(group)} has none.")
        return LabelledRows(**vars(rows), y=given.label, weight=weight)

    def _check_strengths(self, strengths: Sequence[float]) -> None:
        for strength in strengths:
            if not (isinstance(strength, Real) and 0 <= strength <= 1):
                raise DataError(f"{self.strength_name} must be in [0, 1]; got {strength!r}.")

    def _rule_for_missing(self, X: RowsLike) -> Literal["error", "category"]:
        """What is done with missing values."""
        return "error"

    def _check_columns(self, frame: pd.DataFrame) -> None:
        """Refuse settings about columns that do not fit those of the training rows."""

    def _rows(self, X: RowsLike, sensitive_features: Role | None, persons: Persons | None, *, fit: bool) -> Rows:
        table = self._table(X)
        if len(table) < (2 if fit else 1):
            raise DataError(f"Found a table with {len(table)} sample(s); an encoder needs {'two' if fit else 'one'}.")
        attribute, taken = self._attribute(X, table, sensitive_features, fit=fit)
        if fit:
            self.groups_ = [] if attribute is None else self._find_groups(attribute)
        group = self._group_of(attribute, len(table))
        if persons is None and isinstance(X, Table) and X.identifier is not None:
            persons = X.persons
        if persons is None:
            if fit and self.identifier not in (None, table.index.name):
                check_known(self.identifier, table, "identifier")
            persons = self._persons(table, needed=self.is_randomised)
        features = table.without([*taken, self.identifier])
        if not features.names:
            raise DataError("0 feature(s) are left to encode beside the sensitive attribute and the identifier.")
        features = self._checked_features(X, features, fit=fit)
        return Rows(features, group, persons, Outside(len(features)))

    def _checked_features(self, X: RowsLike, features: TableColumns, *, fit: bool) -> TableColumns:
        """The features as scikit-learn checks them: with the names, or the number, of those that were fitted."""
        named = isinstance(X, Table | TableColumns) or has_names(X)
        if fit or not named or features.names != list(vars(self).get("feature_names_in_", ())):
            frame = features.frame
            validate_data(self, frame if named else frame.to_numpy(), skip_check_array=True, reset=fit)
        if fit:
            self._check_columns(features.frame)
            self.schema_ = Schema.of(features.frame) if named else None
        return features if fit or self.schema_ is None else self.schema_.apply_to(features)

    def _read_latent(
        self, Z: TableLike, sensitive_features: Role | None, persons: Persons | None, *, by_person: bool
    ) -> Rows:
        """Encoded rows, their columns by name in our order; their persons too, where decoding repeats their coins."""
        self._check_ready()
        frame, names = self._frame(Z), self._names_out()
        if not has_names(Z) and frame.shape[1] == len(names):
            frame = frame.set_axis(names, axis=1)
        table = TableColumns(frame)
        attribute, taken = self._attribute(Z, table, sensitive_features, fit=False)
        latent = table.without([*taken, self.identifier]).frame
        latent = latent.set_axis(latent.columns.astype(str), axis=1)
        if set(latent.columns) != set(names):
            got, wanted = (", ".join(map(str, list(some)[:8])) for some in (latent.columns, names))
            raise DataError(f"Encoded rows must have the columns {wanted} ({len(names)} in all); got {got}.")
        columns = self.encoded_schema.apply_to(TableColumns(latent, names))
        group = self._group_of(attribute, len(table))
        persons = self._persons(table, needed=by_person) if persons is None else persons
        return Rows(columns, group, persons, Outside(len(table)))

    def _persons(self, table: TableColumns, needed: bool) -> Persons:
        """Who is who, by the column or index that the constructor named."""
        if self.identifier is None:
            return Persons.unnamed(len(table))
        if self.identifier in table:
            return Persons.of(table[self.identifier])
        if self.identifier == table.index.name:
            return Persons.of(table.index)
        if not needed:
            return Persons.unnamed(len(table))
        raise DataError(
            f"The encoder knows persons by their {self.identifier!r} (identifier={self.identifier!r}), which these "
            "rows lack: add that column, or make it the index."
        )

    def _read_label(self, rows: LabelledRows) -> Groups | None:
        """The label as class numbers, remembering the classes; None without a label."""
        if rows.y is None:
            self.classes_ = None
            return None
        label = Label.read("label", rows.y, len(rows.X))
        self._refuse_numbers(label)
        self.classes_ = label.classes
        return label.values

    def _read_labels(self, rows: LabelledRows, name: str = "label", *, may_be_numbers: bool) -> list[Label]:
        """Any number of labels, remembering their classes; a label without a name is called `name`."""
        labels = [] if rows.y is None else read_labels(rows.y, len(rows.X), name)
        for label in labels:
            if not may_be_numbers:
                self._refuse_numbers(label)
        classes = [label.class_values for label in labels]
        self.classes_ = classes if len(labels) > 1 else labels[0].classes if labels else None
        return labels

    def _refuse_numbers(self, label: Label) -> None:
        if label.classes is None:
            raise DataError(
                f"y holds {len(np.unique(label.values)):,} different numbers, and {type(self).__name__} predicts "
                "classes: cut it into a few (pandas.qcut), or use FairCells or FairTree, which take a number to "
                "predict."
            )

    def _table(self, X: RowsLike) -> TableColumns:
        """All columns of a table."""
        if isinstance(X, TableColumns):
            return X
        X = materialised(X)
        if isinstance(X, pa.Table) and not has_pandas_notes(X):
            return TableColumns(columns_from_arrow(X))
        return TableColumns(X.X if isinstance(X, Table) else self._frame(X))

    def _frame(self, X: TableLike) -> pd.DataFrame:
        X = materialised(X)
        if has_names(X):
            return to_pandas(X)
        finite: bool | Literal["allow-nan"] = "allow-nan" if self.missing_ == "category" else True
        if _has_text(X):
            return to_pandas(check_array(X, dtype=object, ensure_all_finite=finite)).infer_objects()
        return to_pandas(check_array(X, dtype="numeric", ensure_all_finite=finite))

    def _attribute(
        self, X: RowsLike, table: TableColumns, sensitive_features: Role | None, *, fit: bool
    ) -> tuple[pd.Series | None, list[Hashable]]:
        """The sensitive attribute, and which columns of the table it is (none when it came as an argument alone)."""
        names = [self.sensitive] if isinstance(self.sensitive, str) else list(self.sensitive or [])
        in_table: list[Hashable] = [name for name in names if name in table]
        if sensitive_features is None and isinstance(X, Table):
            sensitive_features = X.a
        if sensitive_features is not None:
            listed = isinstance(sensitive_features, list | tuple)
            given = np.asarray(sensitive_features) if listed else sensitive_features
            return role_column(table, given, "sensitive")[0], in_table
        needed = self._fit_needs_attribute if fit else self.needs_attribute
        if self.sensitive is not None and (needed or in_table):
            return role_column(table, self.sensitive, "sensitive")
        if not needed:
            return None, []
        why = "is fitted to groups" if not self.needs_attribute else "encodes each group its own way"
        raise DataError(
            f"{type(self).__name__} {why} and needs the sensitive attribute: pass sensitive_features=..., or name its "
            "column in the constructor (sensitive='...')."
        )

    def _find_groups(self, attribute: pd.Series) -> list[Hashable]:
        if attribute.isna().any():
            raise DataError(
                f"The sensitive attribute must be known in every row; {int(attribute.isna().sum())} are not."
            )
        groups = sorted_values(attribute)
        if len(groups) < 2:
            raise DataError(f"The sensitive attribute needs at least two groups; every row is {shown(groups[0])}.")
        return groups

    def _group_of(self, attribute: pd.Series | None, n_rows: int) -> Groups:
        """Each row's place in `groups_`; 0 where there is no attribute, or no groups were fitted."""
        if attribute is None or not self.groups_:
            return np.zeros(n_rows, dtype=np.intp)
        group = places_in(self.groups_, attribute)
        if (group < 0).any():
            first = attribute.iloc[int((group < 0).argmax())]
            known = ", ".join(map(shown, self.groups_))
            raise DataError(
                f"The sensitive attribute must be one of the groups that the encoder was fitted on ({known}); "
                f"{int((group < 0).sum())} rows are not, the first is {shown(first)}."
            )
        return group


@dataclass(eq=False, repr=False, kw_only=True)
class ColumnEncoder(GroupEncoder):
    """Base of the encoders that learn from columns of every kind, with rules for values that fitting did not see."""

    kinds: Mapping[str, str] | None = None
    unseen: Literal["error", "other"] = "error"
    missing: Literal["error", "category"] | None = None

    def _rule_for_missing(self, X: RowsLike) -> Literal["error", "category"]:
        """The encoder's own rule for missing values, else the table's."""
        if self.missing is not None:
            check_choice("missing", self.missing, ("error", "category"))
            return self.missing
        return "category" if isinstance(X, Table) and X.missing == "category" else "error"

    def _check_columns(self, frame: pd.DataFrame) -> None:
        check_choice("unseen", self.unseen, ("error", "other"))
        check_kinds(frame, self.kinds)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "category"
        return tags


@dataclass(eq=False, repr=False)
class Unencoded(GroupEncoder):
    """The rows themselves; needs no attribute."""

    needs_attribute = False
    _fit_needs_attribute = False  # nothing is learnt; without the attribute there are no groups

    def _fit(self, rows: LabelledRows, strengths: Sequence[float], seeds: Sequence[int]) -> list[Learnt | None]:
        self._read_label(rows)
        self.columns_ = list(rows.X.columns)
        return [{} for _ in strengths for _ in seeds]

    @property
    def encoded_schema(self) -> Schema:
        """What the columns of X hold."""
        return self.row_schema

    def encoded_dtypes(self) -> dict[str, Dtype]:
        """Any values; what the columns hold is in `encoded_schema`."""
        return dict.fromkeys(self._names_out(), np.dtype(object))

    def _encode_rows(self, rows: Rows) -> pd.DataFrame:
        """The features."""
        return rows.X

    def _names_out(self) -> list[str]:
        return [str(name) for name in self.columns_]


def _has_text(X: object) -> bool:
    """Whether an array has columns of text, or a list of rows a value of it."""
    if isinstance(X, list | tuple):
        X = np.asarray(X, dtype=object)
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "OU":
        return False
    return X.dtype.kind == "U" or any(isinstance(value, str) for value in X.flat)

"""The contract of all encoders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from jaxtyping import Float, Int, Shaped
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from fairflows.arrays import NDArray
from fairflows.encoder.label import LabelsLike
from fairflows.encoder.rows import (
    FloatArray,
    Rows,
    RowsLike,
    TrainingRows,
    find_attribute,
    find_features,
    find_persons,
    group_places,
    read_training_rows,
    whole_frame,
)
from fairflows.exceptions import DataError, warn_user
from fairflows.table.columns import Dtype, Schema
from fairflows.table.domain import Domain
from fairflows.table.frames import Frame, as_kind_of, has_names, materialised
from fairflows.table.keys import Key, new_key
from fairflows.table.ledger import Ledger, RowsSeen
from fairflows.table.persons import Persons, check_most_rows
from fairflows.table.roles import Role
from fairflows.table.table import Table

IntArray = NDArray[np.int64]
Cells = NDArray[np.intp]

MORE_ROWS = (
    "Keep fewer rows of each person, or fit the model to a table that states the most rows that anybody may have "
    "(most_rows=...)."
)
"""What to do if later persons have more rows than those that a model was fitted to."""


@dataclass(frozen=True)
class Traits:
    """The abilities of an encoder, by which certificates, attacks, files and reports treat it."""

    needs_attribute: bool = True  # encoding needs the sensitive attribute
    learns_groups: bool = True  # fitting needs the sensitive attribute
    invertible: bool = False  # `inverse_transform` gives back the rows that were encoded
    randomised: bool = False  # encoding uses coins or noise, which belong to a person
    draws_rows: bool = False  # the output is a row drawn from the cell, anew at every call
    strength: str = "gamma"  # the setting that a frontier varies
    n_cells: int | None = None  # the number of cells; None where the output is not a cell
    separate_thresholds: bool = False  # thresholds are set at persons who chose no node (`FairTree.learn_apart`)
    cut_twice: bool = False  # the law of blocks covers persons to come
    unit: Literal["row", "person"] = "row"  # what has a cell: each row, or each person with all of their rows


@dataclass(frozen=True)
class EncodedColumns:
    """The columns that an encoder gives."""

    dtypes: Mapping[str, Dtype]  # their types, by name
    # what they hold, where a file of them could be read in several ways
    schema: Schema = field(default_factory=lambda: Schema({}))

    @classmethod
    def of_numbers(cls, names: Iterable[str]) -> EncodedColumns:
        """Return columns of numbers."""
        return cls(dict.fromkeys(names, np.dtype(np.float64)))


CELL = EncodedColumns({"cell": np.dtype(np.int64)})
"""The output of an encoder that gives the number of a cell."""


@dataclass(frozen=True)
class Inversion:
    """The view of an adversary who holds the encoders and decodes z as if it were of one group."""

    names: list[str]  # what each of the D dimensions of model space holds
    rows: pd.DataFrame  # f_b⁻¹(z) as a row of the table
    # the same in table units, before numbers are set on their grids and categories on their levels
    values: Float[FloatArray, "n D"]
    x: Float[FloatArray, "n D"]  # the same in model space
    log_prob: Float[FloatArray, " n"]  # log p̂_b(x)
    log_det: Float[FloatArray, " n"]  # log |det ∂x/∂z|, so that log p̂_Zb(z) = log_prob + log_det


class LatentLaw:
    """Base of the groups' laws of encoded rows; a method returns None for what a law does not have."""

    @property
    def labels(self) -> list[Hashable]:
        """Labels with conditional laws."""
        return []

    def exact(self) -> Float[FloatArray, "K m"] | None:
        """Return the laws over finitely many values; None for densities."""
        return None

    def log_density_table(self, n: int, random_state: int = 0, label: Hashable = None) -> Float[FloatArray, "{n} K K"]:
        """Draw from every group's law; return the log-density under every group, (n, K drawn, K density)."""
        raise NotImplementedError

    def sample_rows(self, n: int, random_state: int = 0) -> list[pd.DataFrame] | None:
        """Draw n rows of the table from each group's density p̂_a; None for a law without densities of rows."""
        return None

    def inversions(self, Z: pd.DataFrame) -> list[Inversion] | None:
        """Decode encoded rows by each group's inverse, or return None without inverses in model space."""
        return None


class Model(Protocol):
    """A fitted encoder or release: the view of certificates, attacks, files and reports."""

    sensitive: Any
    identifier: Any
    groups_: Any
    classes_: Any
    key_: Any
    ledger_: Ledger
    most_rows_: int | None
    n_cells_: Any
    schema_: Any
    output_: EncodedColumns

    @property
    def traits(self) -> Traits:
        """The abilities."""

    @property
    def inner_encoder(self) -> Encoder:
        """The encoder that turns features into z or a cell, inside any release."""

    @property
    def released_table(self) -> Any:
        """The `ReleasedTable` that a release was fitted to, or None."""

    def units(self, table: Table) -> Table:
        """Return the table that has one row for everything that has a cell: a row, or a person."""

    def read(self, X: RowsLike, sensitive_features: Role | None = None, persons: Persons | None = None) -> Rows:
        """Return the rows of a table as the encoder sees them, checked."""

    def encode(self, rows: Rows) -> pd.DataFrame:
        """Encode rows that `read` returned."""

    def cells(self, rows: Rows) -> Int[Cells, " n"]:
        """Return the cell of each row."""

    def cells_and_kept(self, rows: Rows) -> tuple[Int[Cells, " n"], int]:
        """Return the same, and how many rows are of persons of a released table, who keep theirs."""

    def draw(self, cells: Int[Cells, " n"]) -> pd.DataFrame:
        """Return what is released of these cells."""

    def predict_rows(self, rows: Rows) -> Shaped[np.ndarray, " n"]:
        """Predict the label of rows that `read` returned."""

    def latent_law(self) -> LatentLaw | None:
        """Return the groups' laws of encoded rows; None without densities."""

    def bound_follows_from(self, table: Table) -> bool | None:
        """Whether the bound on persons to come follows again from a release's own table; None if unknown."""

    def already_used(self, table: Table) -> int:
        """Count the persons of a table that certify nothing."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings."""

    def get_feature_names_out(self, input_features: object = None) -> npt.NDArray[np.object_]:
        """Return the names of the encoded columns."""


class Encoder(TransformerMixin, BaseEstimator, ABC):
    """Base of all encoders: scikit-learn transformers that are fitted to a table and a sensitive attribute.

    A subclass is a dataclass whose fields are its settings, among them ``sensitive``, ``identifier``, ``key`` and
    ``random_state``. It says its `traits`, learns from rows in `learn`, where it also sets ``output_``, and encodes
    rows in `encode`. The other methods have defaults: `cells` and `predict_rows` raise an error, `latent_law` gives
    None.

    X may be a `Table`, which knows its roles. For any other table the sensitive attribute comes with each call
    (``sensitive_features=a``), or is a column of X that the constructor names (``sensitive="sex"``), because pipelines
    and scorers do not always pass arguments on. The column is never a feature. A person is named by the column, or the
    index, that the constructor names (``identifier="person"``), or by the table's own identifier; without either, every
    row counts as another person.

    Attributes
    ----------
    groups_ : list
        The values of the sensitive attribute.
    classes_ : ndarray or None
        The values of the first label; None without a label, or with one of numbers.
    key_ : Key
        The secret behind noise and coins; ``bytes(encoder.key_)`` shows it. A pickle leaves it out, and
        ``encoder.key_.restore(secret)`` gives it back.
    ledger_ : Ledger
        The rows that the encoder was fitted to, or chosen by.
    most_rows_ : int or None
        The most rows of a person in the training rows; None without an identifier.
    n_features_in_ : int
        How many columns of X are encoded.
    schema_ : Schema
        The content of these columns, by which later files are read; empty after a fit to an array.
    domain_ : Domain
        The values of these columns.
    output_ : EncodedColumns
        The columns of encoded rows.
    n_cells_ : int or None
        The number of cells, for an encoder whose output is a cell.
    """

    sensitive: str | list[str] | None
    identifier: str | None
    random_state: int

    groups_: list[Hashable]
    classes_: np.ndarray | None
    key_: Key
    ledger_: Ledger
    most_rows_: int | None
    schema_: Schema
    domain_: Domain
    output_: EncodedColumns
    n_cells_: int | None = None

    # With metadata routing an encoder gets the attribute without being told to ask for it (set_fit_request and others).
    __metadata_request__fit: ClassVar = {"sensitive_features": True}
    __metadata_request__transform: ClassVar = {"sensitive_features": True}
    __metadata_request__inverse_transform: ClassVar = {"sensitive_features": True}
    __metadata_request__predict: ClassVar = {"sensitive_features": True}

    @property
    def traits(self) -> Traits:
        """The abilities of the encoder."""
        return Traits(n_cells=self.n_cells_)

    @abstractmethod
    def learn(self, rows: TrainingRows) -> None:
        """Learn from rows; set ``output_`` and all that `encode` needs as attributes."""

    @abstractmethod
    def encode(self, rows: Rows) -> pd.DataFrame:
        """Encode rows that `read` returned; the result has the columns of ``output_``."""

    def fit(self, X: RowsLike, y: LabelsLike | None = None, *, sensitive_features: Role | None = None) -> Self:
        """Fit the encoder.

        Parameters
        ----------
        X : Table, frame or array
            Rows to learn from.
        y : array, default=None
            The label; without one, the encoder keeps no task in mind.
        sensitive_features : array, default=None
            The sensitive attribute, unless X holds it.
        """
        rows = begin_fit(self, X, y, sensitive_features)
        self.learn(rows)
        self.ledger_ = Ledger.of(rows.X, rows.persons, rows.key)  # last: it says that the fit ended well
        return self

    def fit_path(
        self,
        X: RowsLike,
        y: LabelsLike | None = None,
        *,
        sensitive_features: Role | None = None,
        strengths: Sequence[float],
        seeds: Sequence[int],
    ) -> list[Self]:
        """Fit an encoder for every strength and seed, strength by strength; all have one key and one ledger.

        A model that cannot be fitted is returned unfitted, unless that goes for all of them.
        """
        X, key = materialised(X), new_key() if self.key is None else self.key
        found, errors = [], []
        known = self.get_params(deep=False)  # an encoder that learns nothing has no strength
        for strength, seed in product(strengths, seeds):
            settings = {self.traits.strength: strength, "random_state": seed, "key": key}
            encoder = clone(self).set_params(**{name: value for name, value in settings.items() if name in known})
            try:
                encoder.fit(X, y, sensitive_features=sensitive_features)
            except DataError as error:
                errors.append(error)
            encoder.key = self.key
            found.append(encoder)
        if len(errors) == len(found):
            raise errors[0]
        for unfitted in errors:
            warn_user(str(unfitted))
        fitted = [encoder for encoder in found if is_fitted(encoder)]
        for encoder in fitted:
            encoder.ledger_ = fitted[0].ledger_  # a choice between them uses the same rows
        return found

    def read(self, X: RowsLike, sensitive_features: Role | None = None, persons: Persons | None = None) -> Rows:
        """Return the rows of a table as the encoder sees them, checked.

        Parameters
        ----------
        X : Table, frame or array
            Rows to encode.
        sensitive_features : array, default=None
            The sensitive attribute, unless X holds it.
        persons : Persons, default=None
            Who is who; by default as the table or the identifier says.
        """
        if "ledger_" not in vars(self):
            check_is_fitted(self, "ledger_")  # raises
        bytes(self.key_)  # raises for a model that came out of a pickle without its key
        X = materialised(X)
        frame = whole_frame(X)
        if not len(frame):
            raise DataError("Found a table with 0 sample(s); an encoder needs one.")
        attribute, taken = find_attribute(self, X, frame, sensitive_features, needed=self.traits.needs_attribute)
        group = group_places(attribute, self.groups_, len(frame))
        if persons is None:
            persons = find_persons(self, X, frame, needed=self.traits.randomised)
        features = find_features(self, frame, taken)
        named = isinstance(X, Table | pd.DataFrame) or has_names(X)
        if not named or features.columns.tolist() != list(getattr(self, "feature_names_in_", ())):
            validate_data(self, features if named else features.to_numpy(), skip_check_array=True, reset=False)
        features = self.schema_.apply(features)
        return Rows(features, *self.domain_.read(features), group, persons)

    def transform(self, X: RowsLike, *, sensitive_features: Role | None = None) -> Frame:
        """Encode rows; the result is the kind of table that X is."""
        X = materialised(X)
        rows = self.read(X, sensitive_features)
        if rows.persons.named:  # a certificate is about so many rows of a person
            check_most_rows(rows.persons.rows_each(), self.most_rows_ or 1, MORE_ROWS)
        encoded = self.encode(rows)
        rows.outside.warn()
        return as_input_type(X, encoded)

    def fit_transform(
        self, X: RowsLike, y: LabelsLike | None = None, *, sensitive_features: Role | None = None
    ) -> Frame:
        """Fit the encoder, then encode the same rows."""
        X = materialised(X)
        self.fit(X, y, sensitive_features=sensitive_features)
        return self.transform(X, sensitive_features=sensitive_features)

    def cells(self, rows: Rows) -> Int[Cells, " n"]:
        """Return the cell of each row, which a certificate counts."""
        raise DataError(f"{type(self).__name__} does not give cells.")

    def cells_and_kept(self, rows: Rows) -> tuple[Int[Cells, " n"], int]:
        """Return the cell of each row, and how many rows are of persons of a released table, who keep theirs."""
        return self.cells(rows), 0

    def draw(self, cells: Int[Cells, " n"]) -> pd.DataFrame:
        """Return the numbers of these cells."""
        return pd.DataFrame({"cell": cells})

    def predict(self, X: RowsLike, *, sensitive_features: Role | None = None) -> Shaped[np.ndarray, " n"]:
        """Predict the label from each encoded row, a class or a number."""
        rows = self.read(X, sensitive_features)
        predicted = self.predict_rows(rows)
        rows.outside.warn()
        return predicted

    def predict_rows(self, rows: Rows) -> Shaped[np.ndarray, " n"]:
        """Predict the label of rows that `read` returned."""
        raise DataError(f"{type(self).__name__} does not predict a label.")

    def latent_law(self) -> LatentLaw | None:
        """Return the groups' laws of encoded rows if the encoder's densities are the truth; None without densities."""
        return None

    released_table = None

    def units(self, table: Table) -> Table:
        """Return the table itself: an encoder gives every row a cell."""
        return table

    @property
    def inner_encoder(self) -> Encoder:
        """The encoder itself."""
        return self

    def bound_follows_from(self, table: Table) -> bool | None:
        """Return None: only a release has a table."""
        return None

    def already_used(self, table: Table) -> int:
        """Count the persons of a table (or rows, at least) that the encoder was fitted to, or chosen by."""
        return self.ledger_.already_used(RowsSeen.of(table.X, table.persons, self.ledger_.key))

    def get_feature_names_out(self, input_features: object = None) -> npt.NDArray[np.object_]:
        """Return the names of the encoded columns."""
        check_is_fitted(self, "ledger_")
        return np.array(list(self.output_.dtypes), dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags, traits = super().__sklearn_tags__(), self.traits
        tags.non_deterministic = traits.draws_rows or (traits.randomised and self.identifier is None)
        tags.input_tags.allow_nan = True  # a missing value is a category of its own
        tags.transformer_tags.preserves_dtype = []  # cells are whole numbers, z is computed in double precision
        return tags


def begin_fit(encoder: Encoder, X: RowsLike, y: LabelsLike | None, sensitive_features: Role | None) -> TrainingRows:
    """Forget an earlier fit, read the rows, and set the attributes that every fit has."""
    reset_fitted(encoder)
    rows = read_training_rows(encoder, X, y, sensitive_features)
    encoder.groups_, encoder.key_ = rows.groups, rows.key
    encoder.schema_, encoder.domain_ = rows.schema, rows.domain
    encoder.most_rows_ = int(rows.persons.rows_each().max()) if rows.persons.named else None
    encoder.classes_ = rows.labels[0].classes if rows.labels else None
    return rows


def reset_fitted(encoder: Encoder) -> None:
    """Remove the attributes of an earlier fit, so that a failed fit leaves an unfitted encoder."""
    for name in [name for name in vars(encoder) if name.endswith("_")]:
        delattr(encoder, name)


def is_fitted(encoder: object) -> bool:
    """Return whether `fit` was called, and ended well."""
    return "ledger_" in vars(encoder)


def fitted_model(model: Any) -> Model:
    """Return the model, which must be a fitted encoder or release."""
    if not isinstance(getattr(model, "traits", None), Traits):
        raise DataError(
            f"The model must be an encoder or a Release of fairflows; got {type(model).__name__}. Hand over the "
            "encoder itself. Attack the output of other transformers as a pair, audit((Z_train, Z_test), train, test); "
            "to certify it, fit a Release to a Table of it."
        )
    check_is_fitted(model, "ledger_")
    return model


def label_values(encoder: Model) -> np.ndarray:
    """Return the values of the label; raise for an encoder without a label with classes."""
    if encoder.classes_ is None:
        raise DataError(f"{type(encoder).__name__} was fitted without a label with classes, and this needs one.")
    return encoder.classes_


def read_repeatable(encoder: Model, table: Table, part: str = "") -> Rows:
    """Read rows with coins that can be repeated: unnamed rows are identified by their values.

    Rows of another `part` have other coins, so that adversaries who learn from one part know none of another's.
    """
    named = table.persons.named
    return encoder.read(table, None, table.persons if named else Persons.by_contents(table.contents(), part))


def encode_again(encoder: Model, table: Table, part: str = "") -> pd.DataFrame:
    """Encode rows as files hold them, with coins that can be repeated. Whole rows are drawn anew all the same."""
    encoded = encoder.encode(read_repeatable(encoder, table, part)).set_axis(table.X.index)
    return encoded if encoder.traits.draws_rows else in_single_precision(encoded)


def in_single_precision(frame: pd.DataFrame) -> pd.DataFrame:
    """Round encoded numbers to single precision, as files hold them."""
    doubles = [name for name, dtype in frame.dtypes.items() if dtype == np.float64]
    return frame.astype(dict.fromkeys(doubles, np.float32))


def cells_of(encoder: Model, table: Table) -> Int[Cells, " n"]:
    """Return the cell of each row, with coins that can be repeated."""
    cells, n_cells = np.asarray(encoder.cells(read_repeatable(encoder, table))), encoder.n_cells_ or 0
    wrong = (cells < 0) | (cells >= n_cells)
    if wrong.any():  # counting it would put it among the others
        raise DataError(
            f"{type(encoder).__name__} must give cells in 0 … {n_cells - 1} (n_cells_ = {n_cells}); "
            f"{int(wrong.sum()):,} rows have another, the first {cells[wrong.argmax()]}."
        )
    return cells


def as_input_type(X: RowsLike, frame: pd.DataFrame) -> Frame:
    """Return `frame` with the index of X, as the kind of table that X is."""
    if isinstance(X, Table | pd.DataFrame):
        return frame.set_axis(X.X.index if isinstance(X, Table) else X.index)
    return as_kind_of(X if has_names(X) else np.empty(0), frame)

"""The contract of all encoders: what they can do, and how rows reach them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import Tags
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted

from fairflows.bounds.arguments import checked_draws
from fairflows.codec.outside import Outside
from fairflows.exceptions import DataError, warn_user
from fairflows.table.columns import Dtype, TableColumns
from fairflows.table.frames import (
    ColumnLike,
    Frame,
    TableLike,
    Values,
    as_kind_of,
    columns_of,
    has_names,
    is_arrow,
    materialised,
    with_dates,
)
from fairflows.table.ledger import Ledger
from fairflows.table.persons import Key, Persons
from fairflows.table.schema import Schema
from fairflows.table.table import Role, Table

if TYPE_CHECKING:
    from fairflows.encoder.cell_model import KnownCells

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Cells = npt.NDArray[np.intp]
Groups = npt.NDArray[np.intp]
Learnt = dict[str, object]
"""What fitting adds to an estimator: attributes by name."""

AnyEncoder = TypeVar("AnyEncoder", bound="Encoder")

RowsLike: TypeAlias = "Table | TableColumns | TableLike"
"""Rows as users bring them to an encoder."""

LabelsLike: TypeAlias = "ColumnLike | Frame"
"""One label per row; several, a column each, where an encoder takes them."""

_CELL = pd.Index(["cell"])  # which takes pandas longer to make than a table of one row

FRESH_COINS = (
    "No identifier says which rows are the same person, so every row gets fresh randomness. Encoding a person twice "
    "then tells more about her than encoding her once: give identifier=... if a person may come again."
)


@dataclass(frozen=True)
class Given:
    """What `fit` was given, row by row; a stream is read into a table."""

    X: RowsLike
    y: LabelsLike | None = None
    sensitive_features: Role | None = None
    sample_weight: ColumnLike | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "X", materialised(self.X))

    @property
    def label(self) -> LabelsLike | None:
        """The label, which a `Table` may bring itself."""
        return self.X.y if self.y is None and isinstance(self.X, Table) else self.y

    def fit(self, encoder: AnyEncoder) -> AnyEncoder:
        """The encoder, fitted to these rows."""
        given = {"sensitive_features": self.sensitive_features, "sample_weight": self.sample_weight}
        return encoder.fit(self.X, self.y, **given)

    def fit_many(self, encoder: AnyEncoder, strengths: Sequence[float], seeds: Sequence[int]) -> list[AnyEncoder]:
        """Encoders of every strength and seed, fitted to these rows."""
        given = {"sensitive_features": self.sensitive_features, "sample_weight": self.sample_weight}
        return encoder.fit_many(self.X, self.y, **given, strengths=strengths, seeds=seeds)


@dataclass(frozen=True)
class Rows:
    """Rows as an encoder sees them."""

    columns: TableColumns  # the features, without the sensitive and identifier columns
    # Each row's group, as a place in the encoder's ``groups_``; 0 where an encoder needs no attribute and none came.
    group: Groups
    persons: Persons  # whose rows they are
    outside: Outside  # values outside of what the encoder was fitted on, noted while the rows are encoded

    @property
    def X(self) -> pd.DataFrame:  # noqa: N802
        """The features as a frame."""
        return self.columns.frame

    def take(self, places: npt.NDArray[np.intp]) -> Rows:
        """Some of the rows, nothing noted about their values."""
        columns = self.columns.take(places)
        return Rows(columns, self.group[places], self.persons.take(places), Outside(len(columns)))

    @property
    def map_group(self) -> Groups:
        """The group whose map each row takes, once its values have been looked up.

        A row with a value that cannot be brought back into the fitted domain, a new category or a missing value where
        none was, takes the first group's map, whatever its own group is: a group's own map of values that it was never
        fitted on could give the group away.
        """
        return np.where(self.outside.unknown, 0, self.group)

    def persons_or_fresh(self) -> Persons:
        """The persons whose coins and noise the rows get; warns where nobody named them, and all of it is fresh."""
        if not self.persons.named:
            warn_user(FRESH_COINS)
        return self.persons

    def named_persons(self) -> Persons:
        """The persons whose coins were used before, which nobody can repeat who does not know their names."""
        if not self.persons.named:
            raise DataError("Decoding repeats each person's coin, so the rows must be named: give identifier=....")
        return self.persons

    def count_unknown(self, groups: Sequence[Hashable]) -> dict[Hashable, int]:
        """How many rows of each group hold a value that could not be brought back, once they were encoded."""
        counts = np.bincount(self.group[self.outside.unknown], minlength=len(groups))
        return dict(zip(groups, counts.tolist(), strict=False))  # without groups all rows have the number 0


@dataclass(frozen=True)
class LabelledRows(Rows):
    """Rows that an encoder is fitted to."""

    y: LabelsLike | None  # the label, or several, as they came
    weight: FloatArray | None  # what each row counts; None where all count alike

    def weight_by(self, unit: Literal["row", "person"]) -> FloatArray:
        """What each row counts in the law of a random row, or of a random row of a random person."""
        weight = np.ones(len(self.group)) if self.weight is None else self.weight
        return weight / self.persons.rows_each()[self.persons.codes] if unit == "person" else weight


@dataclass(frozen=True)
class Inversion:
    """What an adversary who holds the encoders sees when she decodes z as if it were of one group."""

    names: list[str]  # what each of the D dimensions of model space holds
    rows: pd.DataFrame  # f_b⁻¹(z) as a row of the table
    # (n, D): the same in table units, before numbers are set on their grids and categories on their levels
    values: FloatArray
    x: FloatArray  # (n, D): the same in model space
    log_prob: FloatArray  # (n,): log p̂_b(x)
    log_det: FloatArray  # (n,): log |det ∂x/∂z|, so that log p̂_Zb(z) = log_prob + log_det


class LatentLaw(Protocol):
    """The laws of what an encoder gives for each group, if its estimated densities are the truth."""

    @property
    def labels(self) -> list[Hashable]:
        """The labels that there are laws given."""

    def exact(self, label: Hashable = None) -> FloatArray | None:
        """The laws over finitely many values, (K, m), of all rows or given a label; None where they are continuous."""

    def log_density_table(self, n: int, random_state: int = 0, label: Hashable = None) -> FloatArray:
        """Draws from every group's law and their log-density under every group, (n, K drawn, K density)."""


@dataclass(frozen=True)
class ExactLaw:
    """Laws over finitely many values."""

    laws: FloatArray  # (K, m): of all rows
    label_laws: Mapping[Hashable, FloatArray]  # given each label, where these are known

    @property
    def labels(self) -> list[Hashable]:
        """The labels that there are laws given."""
        return list(self.label_laws)

    def exact(self, label: Hashable = None) -> FloatArray:
        """The laws."""
        if label is None:
            return self.laws
        if label not in self.label_laws:
            known = ", ".join(map(repr, self.label_laws)) or "none"
            raise DataError(f"The encoder has no laws given label {label!r}; it was fitted for these labels: {known}.")
        return self.label_laws[label]

    def log_density_table(self, n: int, random_state: int = 0, label: Hashable = None) -> FloatArray:
        """Draws from every group's law and their log-probability under every group."""
        laws, generator = self.exact(label), np.random.default_rng(random_state)
        checked_draws(n, len(laws))
        cumulative = np.cumsum(laws, axis=1)
        draws = [
            np.minimum(np.searchsorted(row, generator.random(n) * row[-1], side="right"), laws.shape[1] - 1)
            for row in cumulative
        ]
        with np.errstate(divide="ignore"):
            log_laws = np.log(laws)
        return np.stack([log_laws[:, values].T for values in draws], axis=1)


class Encoder(TransformerMixin, BaseEstimator, ABC):
    """What certificates, attacks, reports and files ask of whatever is fitted to a table and released.

    An encoder says what it is: `needs_attribute`, `is_invertible`, `is_randomised`, `draws_rows`, `latent_law`,
    `n_cells_`, `sample_rows` and `inversions`. What it gives for rows is written once, in ``_encode_rows``, from which
    `transform`, `encode` and `encode_columns` follow.

    X may be a `Table`, which says which column is what. In any other table the sensitive attribute comes with each call
    (``sensitive_features=a``), or is a column of X that the constructor names (``sensitive="sex"``), since pipelines
    and scorers do not always pass arguments on. Both ways give the same result; the column is never a feature. The
    person of a row is named by the column, or by the index, that the constructor names (``identifier="person"``), or by
    the table's own identifier; without either, every row counts as another person.

    Attributes
    ----------
    groups_ : list
        The values of the sensitive attribute.
    classes_ : ndarray, list of ndarray, or None
        The values of the label; where there are several, a list with an array for each, empty for a label of numbers.
        None where the encoder was fitted without a label, or with a single label of numbers.
    key_ : Key
        The secret behind noise and coins; ``bytes(encoder.key_)`` shows it. Pickles leave it out (`restore_key`).
    ledger_ : Ledger
        The rows that the encoder was fitted to, or chosen by.
    most_rows_ : int or None
        The most rows of a person that the encoder was fitted to; None where nobody said who is who.
    n_features_in_ : int
        How many columns of X are encoded.
    n_cells_ : int or None
        How many cells there are, for an encoder whose output is a cell.
    held_out_log_likelihood_ : ndarray of shape (K,), or None
        How well the densities fit rows that they were not fitted on.
    """

    groups_: list[Hashable]
    classes_: np.ndarray | list[np.ndarray] | None
    key_: Key
    ledger_: Ledger
    most_rows_: int | None
    n_features_in_: int
    n_cells_: int | None = None
    held_out_log_likelihood_: FloatArray | None = None

    strength_name: ClassVar[str] = "gamma"
    """The setting that a frontier varies."""

    is_invertible: ClassVar[bool] = False
    """Whether `inverse_transform` gives back the rows that were encoded."""

    # With metadata routing an encoder gets the attribute without being told to ask for it (set_fit_request and others).
    __metadata_request__fit: ClassVar = {"sensitive_features": True}
    __metadata_request__transform: ClassVar = {"sensitive_features": True}
    __metadata_request__inverse_transform: ClassVar = {"sensitive_features": True}
    __metadata_request__predict: ClassVar = {"sensitive_features": True}

    @property
    @abstractmethod
    def sensitive(self) -> str | list[str] | None:
        """The columns of X that hold the sensitive attribute, where X holds it."""

    @property
    @abstractmethod
    def identifier(self) -> str | None:
        """The column of X, or its index, that names the person of a row."""

    @property
    def key(self) -> Key | None:
        """The secret that the user gave; None where each fit makes its own."""
        return None

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` was called, and ended well."""
        return "groups_" in vars(self)

    @property
    def needs_attribute(self) -> bool:
        """Whether encoding needs the sensitive attribute."""
        return True

    @property
    def is_randomised(self) -> bool:
        """Whether encoding uses coins or noise, which belong to a person."""
        return False

    @property
    def draws_rows(self) -> bool:
        """Whether what is given is a row drawn from the cell, anew for every row and at every call."""
        return False

    @property
    def gives_cell_numbers(self) -> bool:
        """Whether what is given is the number of a cell, and not a row that stands for it."""
        return self.n_cells_ is not None and not self.draws_rows

    @property
    def cells_of_models(self) -> list[int]:
        """How many cells each of the models has that share out the persons evenly; one model has all of them."""
        return [int(self.n_cells_ or 0)]

    @property
    def feature_names(self) -> list[str]:
        """The columns of X that are encoded; none where the encoder was fitted to an array."""
        return []

    @property
    def row_schema(self) -> Schema:
        """What the columns of X hold, by which later files are read; empty where the encoder was fitted to an array."""
        return Schema({})

    @property
    def encoded_schema(self) -> Schema:
        """What the encoded columns hold, where a file of them could be read in several ways."""
        return Schema({})

    def encoded_dtypes(self) -> dict[str, Dtype]:
        """The types of the encoded columns: of cell numbers, or of numbers."""
        return dict.fromkeys(self._names_out(), np.dtype(np.int64 if self.gives_cell_numbers else np.float64))

    def restore_key(self, key: bytes) -> Self:
        """Give the secret key back to an encoder that came out of a pickle, which holds neither key nor ledger.

        Parameters
        ----------
        key : bytes
            What ``bytes(encoder.key_)`` was before.

        Examples
        --------
        >>> import pickle
        >>> from fairflows import FairTree, load_adult
        >>> adult = load_adult()
        >>> encoder = FairTree(n_cells=4).fit(adult)
        >>> secret = bytes(encoder.key_)  # keep it where secrets are kept
        >>> again = pickle.loads(pickle.dumps(encoder)).restore_key(secret)
        >>> again.key_ == encoder.key_
        True
        """
        held = self.key_ if self.is_fitted else self.key
        if held is None:
            raise DataError(f"{type(self).__name__} has neither been fitted nor given a key: there is none to restore.")
        held.restore(key)
        return self

    def _check_fitted(self) -> None:
        """Refuse what needs a fitted encoder."""
        if not self.is_fitted:  # asked first, since scikit-learn takes longer to find out than one row to be encoded
            check_is_fitted(self)

    def _check_ready(self) -> None:
        """Refuse to encode before `fit`, or without the secret key."""
        self._check_fitted()
        bytes(self.key_)

    def latent_law(self) -> LatentLaw | None:
        """The groups' laws of what the encoder gives, if its densities are the truth; None where it has none."""
        return None

    def log_density_table(self, n: int, random_state: int = 0, *, label: Hashable = None) -> FloatArray:
        """Draws from every group's latent law and their log-density under every group, (n, K drawn, K density).

        With ``label``, of the laws given that label (for equalized odds).
        """
        law = self.latent_law()
        if law is None:
            raise DataError(f"{type(self).__name__} knows no law of what it gives.")
        return law.log_density_table(n, random_state, label)

    def sample_rows(self, n: int, random_state: int = 0) -> list[pd.DataFrame] | None:
        """n rows of each group drawn from its density p̂_a; None for an encoder that estimates no density of rows."""
        return None

    def inversions(self, Z: pd.DataFrame) -> list[Inversion] | None:
        """What each group's inverse makes of encoded rows; None where there are no inverses in model space."""
        return None

    def already_used(self, table: Table) -> int:
        """How many persons of a table, or rows at least, it was fitted to or chosen by: these certify nothing."""
        return self.ledger_.already_used(self.ledger_.read(table.X, table.persons))

    def kept_counts(self, table: Table) -> IntArray | None:
        """Counts by label, group and cell that were kept from fitting, where `table` is what it was fitted to.

        None where the rows are to be encoded, and their cells counted, as those of any other table.
        """
        return None

    def sharing(self, key: Key | None, share: float) -> Self:
        """A copy that is not fitted, with this key, and with this share of the δ that it plans a certificate with."""
        return clone(self)

    def known_cells(self) -> KnownCells | None:
        """What whoever holds the encoder knows about encoded cells; None where it does not encode cells."""
        return None

    def fit(
        self,
        X: RowsLike,
        y: LabelsLike | None = None,
        *,
        sensitive_features: Role | None = None,
        sample_weight: ColumnLike | None = None,
    ) -> Self:
        """Learn from rows.

        Parameters
        ----------
        X : Table, frame or array
            Rows to learn from.
        y : array, optional
            The label; without one, the encoder keeps no task in mind.
        sensitive_features : array, optional
            The sensitive attribute, unless X holds it.
        sample_weight : array, optional
            Weight of each row.
        """
        with self._restored_if_fit_fails():
            self._fit_to(Given(X, y, sensitive_features, sample_weight))
        return self

    def fit_many(
        self,
        X: RowsLike,
        y: LabelsLike | None = None,
        *,
        sensitive_features: Role | None = None,
        sample_weight: ColumnLike | None = None,
        strengths: Sequence[float],
        seeds: Sequence[int],
    ) -> list[Self]:
        """Encoders for every strength (gamma) and seed, strength by strength; one that diverged is not fitted.

        They share what does not depend on these, and the key and the ledger.
        """
        return self._fitted_to(Given(X, y, sensitive_features, sample_weight), strengths, seeds)

    @abstractmethod
    def _fit_to(self, given: Given) -> Rows:
        """Learn from what `fit` was given; the rows as they were read."""

    @abstractmethod
    def _fitted_to(self, given: Given, strengths: Sequence[float], seeds: Sequence[int]) -> list[Self]:
        """Encoders for every strength and seed, which `fit_many` describes."""

    @abstractmethod
    def read(self, X: RowsLike, sensitive_features: Role | None = None, persons: Persons | None = None) -> Rows:
        """The rows of a table as the encoder sees them, checked.

        Parameters
        ----------
        X, sensitive_features
            As for `fit`.
        persons : Persons, optional
            Who is who; as the table or the identifier says when not given.
        """

    @abstractmethod
    def _encode_rows(self, rows: Rows) -> pd.DataFrame | dict[Hashable, Values]:
        """What is given for rows that were read: as a frame, or as its columns, which take less time to make."""

    def encode(self, rows: Rows) -> pd.DataFrame:
        """What is given for rows that were read: `transform` without the reading."""
        given = self._encode_rows(rows)
        return given if isinstance(given, pd.DataFrame) else _framed(given)

    def encode_columns(self, rows: Rows) -> dict[str, Values]:
        """The columns of what `encode` gives, as arrays: a frame takes longer to make than a few rows to encode."""
        given = self._encode_rows(rows)
        return columns_of(given) if isinstance(given, pd.DataFrame) else {str(name): given[name] for name in given}

    @abstractmethod
    def _names_out(self) -> list[str]:
        """Names of the encoded columns."""

    def cells(self, rows: Rows) -> Cells:
        """Each row's cell, which a certificate counts."""
        raise DataError(f"{type(self).__name__} does not give cells.")

    @overload
    def transform(self, X: Table | pd.DataFrame, *, sensitive_features: Role | None = None) -> pd.DataFrame: ...

    @overload
    def transform(self, X: TableLike, *, sensitive_features: Role | None = None) -> Frame: ...

    def transform(self, X: RowsLike, *, sensitive_features: Role | None = None) -> Frame:
        """Encode rows, each by its group's encoder."""
        with self._reading(X, sensitive_features) as rows:
            return self._handed_over(X, rows)

    @contextmanager
    def _reading(self, X: RowsLike, sensitive_features: Role | None) -> Iterator[Rows]:
        """The rows of a table; after the block, which encodes them, one warning counts the values brought back."""
        self._refuse_attribute(sensitive_features)
        rows = self.read(X, sensitive_features)
        yield rows
        rows.outside.warn()

    def _handed_over(self, X: RowsLike, rows: Rows) -> Frame:
        """What is given for the rows of X, as the kind of table that X is.

        Where `set_output` names another kind, scikit-learn makes that.
        """
        if not is_arrow(X):
            return wrap_output(X, self.encode(rows))
        if _get_output_config("transform", self)["dense"] == "default":
            return with_dates(self.encode_columns(rows))
        return self.encode(rows)  # since scikit-learn cannot make anything of Arrow tables

    def fit_transform(
        self,
        X: RowsLike,
        y: LabelsLike | None = None,
        *,
        sensitive_features: Role | None = None,
        sample_weight: ColumnLike | None = None,
    ) -> Frame:
        """Fit, then encode the same rows."""
        given = Given(X, y, sensitive_features, sample_weight)
        given.fit(self)
        return self.transform(given.X, sensitive_features=sensitive_features if self.needs_attribute else None)

    def _refuse_attribute(self, sensitive_features: Role | None) -> None:
        """Refuse the attribute where somebody who gave it would be wrong to believe that it is used."""

    def inverse_transform(
        self, X: TableLike, *, sensitive_features: Role | None = None, persons: Persons | None = None
    ) -> Frame:
        """The rows behind encoded ones: exactly those that were encoded, where the encoder is invertible.

        Parameters
        ----------
        X : frame or array
            Encoded rows.
        sensitive_features
            As for `fit`.
        persons : Persons, optional
            Who is who, where coins are repeated to decode; as the identifier says when not given.
        """
        return wrap_output(X, self._decode_rows(X, sensitive_features, persons))

    def _decode_rows(self, Z: TableLike, sensitive_features: Role | None, persons: Persons | None) -> pd.DataFrame:
        raise DataError(f"{type(self).__name__} cannot be decoded: what it gives is all that is left of a row.")

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """The label that what is given for each row suggests."""
        raise DataError(f"{type(self).__name__} does not predict a label.")

    def predictions(self, models: Sequence[Self], table: Table, persons: Persons) -> Iterator[np.ndarray]:
        """What each of the models that `fit_many` fitted, this one among them, predicts for the rows of a table."""
        return (model.predict_rows(model.read(table, None, persons)) for model in models)

    def predict(self, X: RowsLike, *, sensitive_features: Role | None = None) -> np.ndarray:
        """The label that each encoded row suggests, a class or a number; a column for each of several labels."""
        with self._reading(X, sensitive_features) as rows:
            return self.predict_rows(rows)

    @property
    def label_classes(self) -> np.ndarray:
        """The values of the label, for an encoder that was fitted with one."""
        if not isinstance(self.classes_, np.ndarray):
            fitted = "without a label" if self.classes_ is None else f"with {len(self.classes_)} labels"
            raise DataError(f"{type(self).__name__} was fitted {fitted}, and this needs one.")
        return self.classes_

    def get_feature_names_out(self, input_features: object = None) -> npt.NDArray[np.object_]:
        """Names of the encoded columns."""
        self._check_fitted()
        return np.array(self._names_out(), dtype=object)

    @contextmanager
    def _restored_if_fit_fails(self) -> Iterator[None]:
        """Restores the old state if fit fails."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        has_fresh_coins = self.is_randomised and self.identifier is None
        tags.non_deterministic = has_fresh_coins or self.draws_rows
        return tags


def _framed(columns: dict[Hashable, Values]) -> pd.DataFrame:
    """A table of these columns; of cell numbers alone in a way that takes pandas a fraction of the time."""
    if list(columns) == ["cell"]:
        return pd.DataFrame(columns["cell"], columns=_CELL.view())
    return pd.DataFrame(columns, copy=False)


def wrap_output(X: RowsLike, frame: pd.DataFrame) -> Frame:
    """`frame` with the index of X, as the kind of table that X is."""
    if isinstance(X, Table):
        return frame.set_axis(X.X.index)
    if isinstance(X, pd.DataFrame):
        frame = frame.set_axis(X.index)
    return as_kind_of(X if has_names(X) else np.empty(0), frame)

"""CrossFit: several models, each for the persons it never saw, so that a certificate covers every row."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from numbers import Real
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from sklearn.utils import Tags, _safe_indexing, get_tags
from sklearn.utils.validation import _num_samples

from fairflows.codec.outside import Outside
from fairflows.encoder.base import (
    FRESH_COINS,
    Cells,
    Encoder,
    Given,
    IntArray,
    LabelsLike,
    Rows,
    RowsLike,
)
from fairflows.encoder.labels import label_columns
from fairflows.exceptions import DataError, check_count, warn_user
from fairflows.table.columns import Dtype, check_known, is_among, shown
from fairflows.table.frames import ColumnLike, Frame, Values, has_names, only_used_categories, to_pandas
from fairflows.table.ledger import Ledger, RowsSeen
from fairflows.table.persons import Key, Persons, Places, content_hashes, fingerprint, keyed_hashes, new_key
from fairflows.table.reading import check_texts
from fairflows.table.schema import Schema, common_schema, own_type, own_types, plain_numbers
from fairflows.table.table import Role, Table

T = TypeVar("T")
Folds = npt.NDArray[np.intp]


@dataclass(eq=False, repr=False)
class CrossFit(Encoder):
    """Release every row of a table under a certificate: a meta-estimator around a release of cells.

    A certificate holds for persons that the model has not seen. So persons are dealt out to folds, by a keyed hash of
    their identifier, and there is one model per fold: model f is fitted, tuned and chosen on the persons of all other
    folds, and encodes the persons of fold f, for ever: the rows of the table that it was fitted with as well as new
    ones. Nobody is held back, and every row that is released is covered.

    The bound is the mean of the folds' bounds, each at its share of δ, whether or not a released row tells its fold:
    Δ ≤ Σ_f (1/F)·upper_f. The numbers of cells tell the fold: those of model 1 follow those of model 0, and so on.

    All models have one key, the release's own or a new one. As no person is encoded by two models, no coin is tossed
    for two purposes; and one key means one seal of the certificate, and one file to keep secret.

    **Without an identifier** nobody can recognise a person who comes again, so that folds exist only while `fit` or
    `fit_transform` runs. `fit_transform` releases the table that it is fitted to; the counts of its cells are kept, and
    `certify` uses them when it is given this table again, as a whole. `transform` takes every row for a new person, who
    is encoded by a model at random; rows of the training table are refused where they are recognised by their values,
    and otherwise not covered.

    Parameters
    ----------
    release : encoder
        What each model is: an encoder that gives cells, or rows made from cells, such as `FairTree`, `FairCells` or
        `CellRelease`. A category that only one fold has is new to the model that encodes it: let the release take such
        categories (``unseen="other"``), unless they should be refused.
    n_folds : int
        F, how many folds there are.
    most_rows : int, optional
        The most rows that a person may have, where it is known beforehand. It is one number for all folds and must not
        depend on who is in them: when it is not given, it is what the persons of the other folds show, and a
        certificate is refused where somebody in a fold has more.
    text_columns : sequence of str
        Columns that are text by their meaning, say codes, even where all values in a fold could be read as numbers,
        dates or truth values. A column that is text only because of some persons is refused.

    Attributes
    ----------
    models_ : list of encoder
        Model f encodes the persons of fold f.
    n_cells_ : int
        How many cells all models have together.
    most_rows_ : int or None
        The most rows of a person: as stated, else what the persons outside of every fold reach; None where nobody said
        who is who.
    ledger_ : Ledger
        Whose rows `fit` had, then those of every later choice.

    Examples
    --------
    >>> from fairflows import FairTree, certify, load_adult
    >>> adult = load_adult()
    >>> shared = CrossFit(FairTree(n_cells=8))
    >>> cells = shared.fit_transform(adult)
    >>> len(cells) == len(adult), cells["cell"].nunique()
    (True, 16)
    >>> certify(shared, adult, target=0.1).status
    'CERTIFIED'
    """

    release: Encoder
    n_folds: int = 2
    _: KW_ONLY
    most_rows: int | None = None
    text_columns: Sequence[Hashable] = ()

    is_randomised = True  # the fold of a person is a coin

    models_: list[Encoder] = field(init=False)
    n_cells_: int = field(init=False)
    types_: dict[Hashable, Dtype] = field(init=False)
    kept_: KeptCounts | None = field(init=False)

    @property
    def sensitive(self) -> str | list[str] | None:
        """As the release says."""
        return self.release.sensitive

    @property
    def identifier(self) -> str | None:
        """As the release says."""
        return self.release.identifier

    @property
    def key(self) -> Key | None:
        """As the release says."""
        return self.release.key

    @property
    def needs_attribute(self) -> bool:
        """Whether the release does."""
        return self.release.needs_attribute

    @property
    def draws_rows(self) -> bool:
        """Whether the release draws whole rows."""
        return self.release.draws_rows

    @property
    def gives_cell_numbers(self) -> bool:
        """Whether the models give them."""
        self._check_fitted()
        return self.models_[0].gives_cell_numbers

    @property
    def cells_of_models(self) -> list[int]:
        """How many cells each model has."""
        self._check_fitted()
        return [int(model.n_cells_ or 0) for model in self.models_]

    @property
    def feature_names(self) -> list[str]:
        """The columns of X that are encoded."""
        self._check_fitted()
        return self.models_[0].feature_names

    @property
    def row_schema(self) -> Schema:
        """What the columns of X hold."""
        self._check_fitted()
        return common_schema([model.row_schema for model in self.models_])

    @property
    def encoded_schema(self) -> Schema:
        """What the columns of whole rows hold."""
        self._check_fitted()
        return common_schema([model.encoded_schema for model in self.models_])

    def encoded_dtypes(self) -> dict[str, Dtype]:
        """The types of cell numbers, or of rows in the table's own types."""
        self._check_fitted()
        of_model = self.models_[0].encoded_dtypes()
        if self.gives_cell_numbers:
            return of_model
        return of_model | {str(name): dtype for name, dtype in self.types_.items() if str(name) in of_model}

    def fit_transform(
        self,
        X: RowsLike,
        y: LabelsLike | None = None,
        *,
        sensitive_features: Role | None = None,
        sample_weight: ColumnLike | None = None,
    ) -> Frame:
        """Fit, then encode the same rows, each by the model that has not seen its person."""
        with self._restored_if_fit_fails():
            rows = self._fit_to(Given(X, y, sensitive_features, sample_weight))
        encoded = self._handed_over(X, rows)
        rows.outside.warn()
        return encoded

    def _fitted_to(self, given: Given, strengths: Sequence[float], seeds: Sequence[int]) -> list[Self]:
        """The same folds around a release of every strength and seed; they share the key and the ledger."""
        self._check_settings()
        dealt = self._deal(given)
        by_fold = [
            part.fit_many(self.release.sharing(dealt.key, 1 / self.n_folds), strengths, seeds)
            for part in dealt.parts(self.n_folds, self.text_columns)
        ]
        found: list[Self] = []
        for models in zip(*by_fold, strict=True):
            shared = clone(self).set_params(release=models[0].sharing(self.key, self.n_folds))
            if all(model.is_fitted for model in models):
                shared._settle(list(models), dealt)
            found.append(shared)
        fitted = [shared for shared in found if shared.is_fitted]
        for shared in fitted:
            shared.ledger_ = fitted[0].ledger_
        return found

    def sharing(self, key: Key | None, share: float) -> Self:
        """A copy that is not fitted, around a release with this key and this share of δ."""
        return clone(self).set_params(release=self.release.sharing(key, share))

    def _fit_to(self, given: Given) -> Rows:
        """Fit a model for every fold; the rows come back with persons who have names, be they made up."""
        self._check_settings()
        dealt = self._deal(given)
        models = [
            part.fit(self.release.sharing(dealt.key, 1 / self.n_folds))
            for part in dealt.parts(self.n_folds, self.text_columns)
        ]
        return self._settle(models, dealt)

    def _deal(self, given: Given) -> Dealt:
        key, persons = new_key() if self.key is None else self.key, _persons(given.X, self.identifier)
        known = persons if persons.named else Persons.newly_named(len(persons.codes))
        fold = _folds(known, key, self.n_folds)
        sizes = np.bincount(fold, minlength=self.n_folds)
        if (sizes == 0).any():
            raise DataError(f"Each of the {self.n_folds} folds needs persons; {persons.n} are too few.")
        return Dealt(given, known, persons.named, fold, key)

    def _settle(self, models: list[Encoder], dealt: Dealt) -> Rows:
        """Take the models, if they agree on what they encode."""
        for model in models:
            if model.n_cells_ is None:
                raise DataError(
                    f"CrossFit takes a release of cells, and {type(model).__name__} gives none: put it into a "
                    "CellRelease."
                )
        _check_alike("Group", [model.groups_ for model in models])
        _check_alike("Label", [_all_classes(model) for model in models])
        common_schema([model.row_schema for model in models])
        self.models_, self.key_ = models, dealt.key
        self.groups_, self.classes_ = models[0].groups_, models[0].classes_
        self.n_features_in_ = models[0].n_features_in_
        self.n_cells_ = sum(self.cells_of_models)
        self.types_ = _types(dealt.given)
        self.most_rows_ = self.most_rows
        seen_by_models = [model.most_rows_ for model in models if model.most_rows_ is not None]
        if self.most_rows is None and seen_by_models:
            self.most_rows_ = min(seen_by_models)
        X = dealt.given.X
        rows = models[0].read(X, dealt.given.sensitive_features, dealt.persons)
        self.ledger_ = Ledger(self.key_, [_seen(rows.X, dealt.persons if dealt.named else None, self.key_)])
        self.kept_ = None
        if not dealt.named and isinstance(X, Table) and self.groups_:
            counts = X.count_cells(rows.group, self.cells(rows), (len(self.groups_), self.n_cells_))
            self.kept_ = KeptCounts(_fingerprint(X, self.key_), counts)
        return replace(rows, outside=Outside(len(rows.X)))

    def already_used(self, table: Table) -> int:
        """How many persons of a table (or rows, at least) certify nothing.

        A person of the training table is encoded by the model that has not seen her, and may certify it. Whoever was
        used to choose between models may not, nor may rows of the training table under other names or none, unless it
        is the whole table, whose cells were counted when the models were fitted.
        """
        of_training, of_choices = Ledger(self.key_, self.ledger_.used[:1]), Ledger(self.key_, self.ledger_.used[1:])
        seen = self.ledger_.read(table.X, table.persons)
        chosen_by = of_choices.already_used(seen)
        if self.kept_counts(table) is not None:
            return chosen_by
        others = np.ones(len(table), dtype=bool)
        if table.persons.names is not None and of_training.used[0].named:
            known = is_among(keyed_hashes(table.persons.names, self.key_, "person"), of_training.used[0].persons)
            others = ~known[table.persons.codes]
        if not others.any():
            return chosen_by
        unnamed = _seen(table.X[others], None, self.key_)
        return min(chosen_by + of_training.already_used(unnamed), table.persons.n)

    def kept_counts(self, table: Table) -> IntArray | None:
        """The counts of the table that the models were fitted to, where nobody could recognise its persons later."""
        self._check_fitted()
        if self.kept_ is None or table.identifier is not None:
            return None
        return self.kept_.counts if self.kept_.table == _fingerprint(table, self.key_) else None

    def read(self, X: RowsLike, sensitive_features: Role | None = None, persons: Persons | None = None) -> Rows:
        """The rows of a table as the models see them, checked."""
        self._check_ready()
        # Attacks and reports know the rows of such a table by their values, which no fold was dealt by.
        is_unnamed = isinstance(X, Table) and X.identifier is None
        rows = self.models_[0].read(X, sensitive_features, None if is_unnamed and self.identifier else persons)
        if not rows.persons.named or (is_unnamed and self.identifier is None):
            self._refuse_training_rows(rows)
        return rows

    def _refuse_training_rows(self, rows: Rows) -> None:
        """Of rows that nobody named, refuse those that are known by their values."""
        if self.identifier is not None:
            raise DataError(
                f"CrossFit knows the model that has not seen a person by her {self.identifier!r} "
                f"(identifier={self.identifier!r}), which these rows lack: add that column, or make it the index."
            )
        used = Ledger(self.key_, self.ledger_.used[:1]).already_used(_seen(rows.X, None, self.key_))
        if used:
            raise DataError(
                f"The models were fitted to {used:,} of these rows at least, and without an identifier nobody knows "
                "which of the models has not seen whom. fit_transform releases the table that it is fitted to, and "
                "transform takes new persons. Or name the persons (identifier=...)."
            )

    def cells(self, rows: Rows) -> Cells:
        """Each row's cell; those of model 1 follow those of model 0, and so on."""
        self._check_fitted()
        parts, order = self._by_fold(rows, lambda f, part: self._first_cell(f) + self.models_[f].cells(part))
        return np.concatenate(parts)[order]

    def _encode_rows(self, rows: Rows) -> pd.DataFrame | dict[Hashable, Values]:
        """What is released for each row, by the model of its person's fold; rows have the table's own types."""
        self._check_fitted()
        if self.gives_cell_numbers:
            return {"cell": self.cells(rows)}
        parts, order = self._by_fold(rows, lambda f, part: self.models_[f].encode(part))
        whole = parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True).iloc[order].reset_index(drop=True)
        return only_used_categories(whole.astype({name: self.types_[name] for name in whole if name in self.types_}))

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """The label that is suggested by what is given for each row, by the model of its person's fold."""
        self._check_fitted()
        parts, order = self._by_fold(rows, lambda f, part: self.models_[f].predict_rows(part))
        return np.concatenate(parts)[order]

    def _by_fold(self, rows: Rows, do: Callable[[int, Rows], T]) -> tuple[list[T], Places]:
        """What is done with the rows of each fold that has any, and how to put them back into their order."""
        persons = rows.persons
        if not persons.named:
            warn_user(f"{FRESH_COINS} Rows that the models were fitted to are not covered.")
            persons = Persons.newly_named(len(rows.X))
        fold = _folds(persons, self.key_, self.n_folds)
        parts, order = [], []
        for f in np.unique(fold).tolist():
            places, schema = np.flatnonzero(fold == f), self.models_[f].row_schema
            X = rows.columns if len(places) == len(fold) else rows.columns.take(places)
            X = X if schema == self.models_[0].row_schema else schema.apply_to(X)  # which model 0 read them by
            part = Rows(plain_numbers(X), rows.group[places], persons.take(places), Outside(len(places)))
            parts.append(do(f, part))
            order.append(places)
            rows.outside.note_part(places, part.outside)
        return parts, np.argsort(np.concatenate(order))

    def _first_cell(self, f: int) -> int:
        """The number of model f's first cell."""
        return sum(self.cells_of_models[:f])

    def _names_out(self) -> list[str]:
        return self.models_[0].get_feature_names_out().tolist()

    def _refuse_attribute(self, sensitive_features: Role | None) -> None:
        self._check_fitted()
        self.models_[0]._refuse_attribute(sensitive_features)

    def _check_settings(self) -> None:
        check_count("n_folds", self.n_folds, 2)
        if self.most_rows is not None:
            check_count("most_rows", self.most_rows, 1)

    def __sklearn_tags__(self) -> Tags:
        tags, inner = super().__sklearn_tags__(), get_tags(self.release)
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        tags.transformer_tags.preserves_dtype = []
        return tags


@dataclass(frozen=True)
class KeptCounts:
    """How many rows of a table whose persons have no names were released in each cell, when the models were fitted."""

    table: str  # a keyed hash of the whole table, by which it is recognised
    counts: IntArray  # (C, K, k): its rows by label, group and cell


@dataclass(frozen=True)
class Dealt:
    """What `fit` was given, dealt out to folds."""

    given: Given  # all rows
    persons: Persons  # who is who; persons without names have new ones
    named: bool  # whether they had names
    fold: Folds  # the fold of each row
    key: Key  # the key that they were dealt out by

    def parts(self, n_folds: int, text_columns: Sequence[Hashable]) -> list[Given]:
        """What each model is fitted to: the rows of all folds but its own."""
        parts = [_take(self.given, np.flatnonzero(self.fold != f)) for f in range(n_folds)]
        frames = [frame for part in parts if (frame := _frame(part.X)) is not None]
        if frames:
            check_texts(frames, text_columns)
        return parts


def _folds(persons: Persons, key: Key, n_folds: int) -> Folds:
    """The fold of each row's person."""
    return (persons.uniform(key, "fold") * n_folds).astype(np.intp)


def _frame(X: RowsLike) -> pd.DataFrame | None:
    """The rows as a frame; None for an array."""
    if isinstance(X, Table):
        return X.X
    return to_pandas(X) if has_names(X) else None


def _types(given: Given) -> dict[Hashable, Dtype]:
    """The types of the columns, and of the label, where they have names."""
    frame, y = _frame(given.X), given.label
    if frame is None:
        return {}
    types = dict(frame.dtypes)
    return types if y is None else types | dict(label_columns(y).dtypes)


def _persons(X: RowsLike, identifier: str | None) -> Persons:
    """Who is who."""
    if isinstance(X, Table) and X.identifier is not None:
        return X.persons
    frame = _frame(X)
    if frame is None or identifier is None:
        return Persons.unnamed(_num_samples(X if frame is None else frame))
    if identifier == frame.index.name:
        return Persons.of(frame.index)
    check_known(identifier, frame.columns, "identifier")
    return Persons.of(frame[identifier])


def _take(given: Given, places: Places) -> Given:
    """The rows at these places, their columns in the types that these rows have."""
    a, weight = given.sensitive_features, given.sample_weight
    return Given(
        _take_rows(given.X, places),
        None if given.y is None else _take_values(given.y, places),
        a if a is None or isinstance(a, str | int) else _take_values(a, places),
        weight if weight is None or isinstance(weight, Real) else _take_values(weight, places),
    )


def _take_rows(X: RowsLike, places: Places) -> RowsLike:
    if isinstance(X, Table):
        part = X.take(places)
        part.X, part.a, part.y = own_types(part.X), own_type(part.a), None if part.y is None else own_type(part.y)
        return part
    return own_types(to_pandas(X).iloc[places]) if has_names(X) else _safe_indexing(X, places)


def _take_values(values: T, places: Places) -> T:
    taken = _safe_indexing(values, places)
    if isinstance(taken, pd.DataFrame):
        return own_types(taken)
    return own_type(taken) if isinstance(taken, pd.Series) else taken


def _seen(X: pd.DataFrame, persons: Persons | None, key: Key) -> RowsSeen:
    """Rows as a ledger knows them, by their persons and always by their values."""
    seen = RowsSeen.of(X, Persons.unnamed(len(X)) if persons is None else persons, key)
    return replace(seen, contents=content_hashes(X, key))


def _fingerprint(table: Table, key: Key) -> str:
    """One keyed hash of a table, in whatever order its rows come."""
    return fingerprint([np.sort(table.contents())], key)


def _all_classes(model: Encoder) -> list[Hashable]:
    """The values of the label; of several, one after the other."""
    if model.classes_ is None:
        return []
    labels = [model.classes_] if isinstance(model.classes_, np.ndarray) else model.classes_
    return [value for classes in labels for value in classes.tolist()]


def _check_alike(what: str, found: Sequence[Sequence[Hashable]]) -> None:
    """Refuse a group or a label that some models have not met."""
    for values in found[1:]:
        if list(values) != list(found[0]):
            only = sorted(set(values) ^ set(found[0]), key=str)
            which = f"{what} {shown(only[0])}" if only else f"A {what.lower()}"
            raise DataError(
                f"{which} is missing in the persons of one fold, and every model must know all of them: leave out, or "
                "merge, what is this rare."
            )

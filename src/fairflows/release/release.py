"""Release: the table that leaves the house, as cells or as rows drawn from cells, made by models that are dealt out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from numbers import Real
from typing import Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_array

from fairflows.codec import OutsideValues
from fairflows.encoder.base import (
    CELL,
    Cells,
    EncodedColumns,
    Encoder,
    Groups,
    IntArray,
    Traits,
    check_fitted,
    forget,
    handed_over,
    is_fitted,
    label_values,
    share_ledger,
)
from fairflows.encoder.fair_tree import FairTree
from fairflows.encoder.labels import LabelsLike, label_columns
from fairflows.encoder.rows import FRESH_COINS, Rows, RowsLike, TrainingRows
from fairflows.exceptions import DataError, check_choice, check_count, warn_user
from fairflows.release.partitions import NumericView, TreePartition
from fairflows.release.row_law import RowLaw
from fairflows.table.columns import (
    Dtype,
    check_known,
    common_schema,
    own_type,
    own_types,
    places_in,
    plain_numbers,
    shown,
)
from fairflows.table.frames import ColumnLike, Frame, has_names, materialised, only_used_categories, to_pandas
from fairflows.table.ledger import Ledger, RowsSeen
from fairflows.table.persons import Key, Persons, Places, content_hashes, fingerprint, keyed_hashes, new_key
from fairflows.table.reading import check_texts
from fairflows.table.table import Role, Table

T = TypeVar("T")
Folds = npt.NDArray[np.intp]

_LEAVES = 16  # of the tree that cuts encoded rows into cells, by default


@dataclass(eq=False, repr=False)
class Release(Encoder):
    """Release every row of a table as a cell, or as a row drawn from it, under a certificate.

    A certificate holds for persons that a model has not seen. Therefore persons are dealt out to folds, by a keyed hash
    of their identifier, and there is one model per fold: model f is fitted to the persons of all other folds, and
    encodes the persons of fold f, in this and every later table. Every released row is covered. With ``n_folds=1``
    there is one model, fitted to all persons, and other persons certify it.

    The cells are those of the encoder, or, for an encoder that gives none, the leaves of a decision tree for the label
    that is grown on encoded rows. The numbers of cells tell the fold: those of model 1 follow those of model 0. The
    bound is the mean of the folds' bounds, each at its share of δ: Δ ≤ Σ_f (1/F)·upper_f. All models have one key.

    **Without an identifier** nobody can recognise a person who comes again, so that folds exist only while `fit` or
    `fit_transform` runs. `fit_transform` releases the table that it is fitted to; the counts of its cells are kept, and
    `certify` uses them when it is given this table again, as a whole. `transform` takes every row for a new person, who
    is encoded by a model at random; rows of the training table are refused where they are recognised by their values,
    and are not covered otherwise.

    Parameters
    ----------
    encoder : Encoder, default=None
        The encoder of each model; by default ``FairTree(unseen="other")``. A category that only one fold has is new to
        the model that encodes it, so that an encoder with ``unseen="error"`` refuses it.
    n_cells : int or "auto", default=None
        The number of cells of each model, "auto" for as many as the target allows. By default as the encoder says; for
        an encoder that gives no cells, 16 leaves at most.
    output : {"row", "cell"}, default="row"
        A whole row in the table's own columns, drawn anew each time from a law of rows given the cell
        (`fairflows.release.row_law`), together with the label; or the number of the cell. The law is the same for every
        group, so that the cell's certificate covers the row.
    target, delta : float, default=None
        The distance that is to be certified, and the δ for it, where the encoder plans its cells for a certificate. By
        default as the encoder says.
    n_folds : int, default=2
        The number F of folds.
    most_rows : int, default=None
        The most rows that a person may have, where it is known beforehand. It must not depend on who is in a fold: by
        default it is the most that the persons of the other folds have, and a certificate is refused where somebody in
        a fold has more.
    text_columns : sequence of str, default=()
        Columns that are text by their meaning, such as codes, even where all values in a fold could be read as numbers,
        dates or truth values. A column that is text only because of some persons is refused.
    rules : sequence of str, default=()
        Expressions over columns that are true in every row that is drawn, such as ``"start <= end"``
        (`fairflows.release.rules`).
    derive : bool, default=True
        Whether columns that follow from others are recognised, and computed instead of drawn
        (`fairflows.release.recipes`).
    random_state : int, default=0
        Seed of the trees that cut encoded rows, and of the law of rows.

    Attributes
    ----------
    models_ : list of FoldModel
        Model f encodes the persons of fold f.
    n_cells_ : int
        The number of cells of all models together.
    most_rows_ : int or None
        The most rows of a person: as stated, else what the persons outside of every fold reach; None without an
        identifier.

    Examples
    --------
    >>> from fairflows import FairTree, certify, load_adult
    >>> adult = load_adult()
    >>> release = Release(FairTree(n_cells=8), output="cell")
    >>> cells = release.fit_transform(adult)
    >>> len(cells) == len(adult), cells["cell"].nunique()
    (True, 16)
    >>> certify(release, adult, target=0.1).status
    'CERTIFIED'
    """

    encoder: Encoder | None = None
    _: KW_ONLY
    n_cells: int | Literal["auto"] | None = None
    output: Literal["row", "cell"] = "row"
    target: float | None = None
    delta: float | None = None
    n_folds: int = 2
    most_rows: int | None = None
    text_columns: Sequence[Hashable] = ()
    rules: Sequence[str] = ()
    derive: bool = True
    random_state: int = 0

    n_cells_: int = field(init=False)
    models_: list[FoldModel] = field(init=False)
    types_: dict[Hashable, Dtype] = field(init=False)
    kept_: KeptCounts | None = field(init=False)

    @property
    def sensitive(self) -> str | list[str] | None:  # type: ignore[override]
        """The encoder's setting."""
        return _encoder_of(self).sensitive

    @property
    def identifier(self) -> str | None:  # type: ignore[override]
        """The encoder's setting."""
        return _encoder_of(self).identifier

    @property
    def key(self) -> Key | None:
        """The encoder's setting."""
        return _encoder_of(self).key

    @property
    def traits(self) -> Traits:
        """Those of the encoder, but for what comes out; the fold of a person is a coin."""
        models = vars(self).get("models_", [])
        single = models[0].encoder if len(models) == 1 else None
        of_encoder = _encoder_of(self).traits if not models else models[0].encoder.traits
        return replace(
            of_encoder,
            invertible=False,
            randomised=self.n_folds > 1 or of_encoder.randomised,
            draws_rows=self.output == "row",
            cells=tuple(model.n_cells for model in models),
            inside=single,
        )

    @property
    def derived(self) -> list[str]:
        """Say which columns follow from others, as the laws of rows of all models found it."""
        laws = [model.law for model in self.models_ if model.law is not None]
        return list(dict.fromkeys(text for law in laws for text in law.derived))

    def learn(self, rows: TrainingRows) -> None:
        """Not used: a release is fitted by its encoders."""
        raise NotImplementedError

    def fit(
        self,
        X: RowsLike,
        y: LabelsLike | None = None,
        *,
        sensitive_features: Role | None = None,
        sample_weight: ColumnLike | None = None,
    ) -> Self:
        """Fit one model per fold, each to the persons of all other folds.

        Parameters
        ----------
        X : Table, frame or array
            The rows.
        y : array, default=None
            The label.
        sensitive_features : array, default=None
            The sensitive attribute, unless X holds it.
        sample_weight : array, default=None
            Weight of each row, for the encoders.
        """
        self._fit(_Given(materialised(X), y, sensitive_features, sample_weight))
        return self

    def fit_transform(
        self,
        X: RowsLike,
        y: LabelsLike | None = None,
        *,
        sensitive_features: Role | None = None,
        sample_weight: ColumnLike | None = None,
    ) -> Frame:
        """Fit the models, then release the same rows, each by the model that has not seen its person."""
        X = materialised(X)
        rows = self._fit(_Given(X, y, sensitive_features, sample_weight))
        encoded = self.encode(rows)
        rows.outside.warn()
        return handed_over(X, encoded)

    def fit_path(
        self,
        X: RowsLike,
        y: LabelsLike | None = None,
        *,
        sensitive_features: Role | None = None,
        sample_weight: ColumnLike | None = None,
        strengths: Sequence[float],
        seeds: Sequence[int],
    ) -> list[Self]:
        """Fit a release around an encoder of every strength and seed; all have the same folds, key and ledger."""
        dealt = _deal(self, _Given(materialised(X), y, sensitive_features, sample_weight))
        template = _fold_encoder(self, dealt)
        by_fold = [
            template.fit_path(part.X, part.y, **part.roles, strengths=strengths, seeds=seeds) for part in dealt.parts
        ]
        found = []
        for encoders in zip(*by_fold, strict=True):
            settings = {encoders[0].traits.strength, "random_state"} & set(encoders[0].get_params(deep=False))
            changed = {name: getattr(encoders[0], name) for name in settings}
            release = clone(self).set_params(encoder=clone(_encoder_of(self)).set_params(**changed))
            if all(map(is_fitted, encoders)):
                release._settle([release._model(e, p) for e, p in zip(encoders, dealt.parts, strict=True)], dealt)
            found.append(release)
        share_ledger(found)
        return found

    def fit_around(self, encoder: Encoder, rows: Rows, Z: pd.DataFrame | None, y: LabelsLike | None = None) -> Self:
        """Fit a release with one model around an encoder that is fitted already.

        Parameters
        ----------
        encoder : Encoder
            The fitted encoder, which the release holds as it is.
        rows : Rows
            The rows to choose the cells by, as the encoder reads them.
        Z : DataFrame or None
            These rows, encoded, where that was done already.
        y : array, default=None
            Their label.
        """
        self._check_settings()
        forget(self)
        self.encoder, self.n_folds = encoder, 1
        self.models_ = [self._around(encoder, rows, Z, y)]
        self._take_over(encoder)
        self.types_, self.kept_ = {}, None
        self.ledger_ = encoder.ledger_
        self.ledger_.use(rows.X, rows.persons)
        if encoder.most_rows_ is not None and rows.persons.named:
            self.most_rows_ = max(encoder.most_rows_, int(rows.persons.rows_each().max()))
        return self

    def _fit(self, given: _Given) -> Rows:
        """Fit a model for every fold; return the rows, whose unnamed persons have been given random names."""
        forget(self)
        dealt = _deal(self, given)
        template = _fold_encoder(self, dealt)
        models = [self._model(clone(template).fit(part.X, part.y, **part.roles), part) for part in dealt.parts]
        return self._settle(models, dealt)

    def _model(self, encoder: Encoder, part: _Given) -> FoldModel:
        """Choose the cells of a fitted encoder, and fit the law of rows, by the rows that it was fitted to."""
        rows = encoder.read(part.X, part.sensitive_features if encoder.traits.takes_attribute else None)
        place = part.X.label_place if isinstance(part.X, Table) and part.y is None else None
        return self._around(encoder, rows, None, part.label, place)

    def _around(
        self,
        encoder: Encoder,
        rows: Rows,
        Z: pd.DataFrame | None,
        y: LabelsLike | None,
        label_place: int | None = None,
    ) -> FoldModel:
        """Choose the cells, and fit the law of rows, in which the label comes after so many features."""
        known = rows if rows.persons.named else replace(rows, persons=_by_contents(rows))
        codes, cut = _label_codes(encoder, y), None
        if encoder.traits.cells:
            cells, n_cells = encoder.cells(known), sum(encoder.traits.cells)
        else:
            Z = encoder.encode(known) if Z is None else Z
            if self.n_cells == "auto":
                raise DataError("n_cells='auto' is for encoders that plan their cells (FairTree); give a number.")
            if codes is None:
                raise DataError(
                    "Release requires y to be passed, but the target y is None: the cells of encoded rows are grown "
                    "for a label with classes. Take FairTree, which gives cells without one."
                )
            cut = CutCells.fit(Z, codes, self.n_cells or _LEAVES, self.random_state)
            cells, n_cells = cut.cells(Z), cut.tree.n_cells
        law = None
        if self.output == "row":
            labels = None if y is None else label_columns(y)
            law = RowLaw.fit(
                rows.X,
                cells,
                n_cells,
                labels,
                persons=rows.persons.codes,
                kinds=encoder.get_params(deep=False).get("kinds"),
                rules=self.rules,
                derive=self.derive,
                label_place=label_place,
                key=encoder.key_,
                random_state=self.random_state,
            )
        label_of_cell = None if codes is None else label_values(encoder)[_most_frequent(cells, codes, n_cells)]
        return FoldModel(encoder, n_cells, cut, law, label_of_cell)

    def _settle(self, models: list[FoldModel], dealt: _Dealt) -> Rows:
        """Take the models, if they agree on what they encode."""
        encoders = [model.encoder for model in models]
        _check_alike("Group", [encoder.groups_ for encoder in encoders])
        _check_alike("Label", [[] if encoder.classes_ is None else encoder.classes_.tolist() for encoder in encoders])
        self.models_ = models
        self._take_over(encoders[0])
        self.schema_ = common_schema([encoder.schema_ for encoder in encoders])
        self.types_ = _types(dealt.given)
        if models[0].law is not None:
            types = {str(name): dtype for name, dtype in self.types_.items()}
            of_law = models[0].law.dtypes
            schemas = [model.law.schema for model in models if model.law is not None]
            own = {name: types.get(name, dtype) for name, dtype in of_law.items()}
            self.output_ = EncodedColumns(own, common_schema(schemas))
        given = dealt.given
        roles = given.sensitive_features if encoders[0].traits.takes_attribute else None
        rows = encoders[0].read(given.X, roles, dealt.persons)
        self.kept_ = None
        if self.n_folds == 1:
            self.ledger_ = encoders[0].ledger_
            return replace(rows, outside=OutsideValues(len(rows.X)))
        seen_by_models = [encoder.most_rows_ for encoder in encoders if encoder.most_rows_ is not None]
        if self.most_rows is None and seen_by_models:
            self.most_rows_ = min(seen_by_models)
        self.ledger_ = Ledger(self.key_, [_seen(rows.X, dealt.persons if dealt.named else None, self.key_)])
        if not dealt.named and isinstance(given.X, Table) and self.groups_:
            counts = given.X.count_cells(rows.group, self.cells(rows), (len(self.groups_), self.n_cells_))
            self.kept_ = KeptCounts(_fingerprint(given.X, self.key_), counts)
        return replace(rows, outside=OutsideValues(len(rows.X)))

    def _take_over(self, encoder: Encoder) -> None:
        """Set what all models have in common."""
        self.groups_, self.classes_, self.key_ = encoder.groups_, encoder.classes_, encoder.key_
        self.n_features_in_, self.missing_ = encoder.n_features_in_, encoder.missing_
        self.schema_ = encoder.schema_
        self.most_rows_ = encoder.most_rows_ if self.most_rows is None else self.most_rows
        self.n_cells_ = sum(model.n_cells for model in self.models_)
        law = self.models_[0].law
        self.output_ = CELL if law is None else EncodedColumns(law.dtypes, law.schema)

    def read(self, X: RowsLike, sensitive_features: Role | None = None, persons: Persons | None = None) -> Rows:
        """Return the rows of a table as the models see them, checked."""
        check_fitted(self)
        X, encoder = materialised(X), self.models_[0].encoder
        if self.n_folds == 1:
            return encoder.read(X, sensitive_features, persons)
        # Attacks and reports know the rows of such a table by their values, which no fold was dealt by.
        is_unnamed = isinstance(X, Table) and X.identifier is None
        rows = encoder.read(X, sensitive_features, None if is_unnamed and self.identifier else persons)
        if not rows.persons.named or (is_unnamed and self.identifier is None):
            self._refuse_training_rows(rows)
        return rows

    def cells(self, X: Rows | RowsLike, *, sensitive_features: Role | None = None) -> Cells:
        """Return the cell of each row of a table, or of rows that `read` returned."""
        rows = X if isinstance(X, Rows) else self.read(X, sensitive_features)
        first = np.cumsum([0, *(model.n_cells for model in self.models_)])
        parts, order = self._by_fold(rows, lambda f, part: first[f] + self.models_[f].cells(part))
        return np.concatenate(parts)[order]

    def encode(self, rows: Rows) -> pd.DataFrame:
        """Return the cell of each row, or a row drawn from it in the table's own types."""
        if self.output == "cell":
            return pd.DataFrame({"cell": self.cells(rows)})
        parts, order = self._by_fold(rows, lambda f, part: self.models_[f].draw(part))
        whole = parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True).iloc[order].reset_index(drop=True)
        return only_used_categories(whole.astype({name: self.types_[name] for name in whole if name in self.types_}))

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """Predict the label from the cell of each row, by the model of its person's fold."""
        parts, order = self._by_fold(rows, lambda f, part: self.models_[f].predict(part))
        return np.concatenate(parts)[order]

    def already_used(self, table: Table) -> int:
        """Count the persons of a table (or rows, at least) that certify nothing.

        A person of the training table is encoded by the model that has not seen them, and may certify it. Persons who
        were used to choose between models may not; neither may rows of the training table under other names or none,
        unless it is the whole table, whose cells were counted when the models were fitted.
        """
        if self.n_folds == 1:
            return super().already_used(table)
        of_training, of_choices = Ledger(self.key_, self.ledger_.used[:1]), Ledger(self.key_, self.ledger_.used[1:])
        seen = self.ledger_.read(table.X, table.persons)
        chosen_by = of_choices.already_used(seen)
        if self.kept_counts(table) is not None:
            return chosen_by
        others = np.ones(len(table), dtype=bool)
        if table.persons.names is not None and of_training.used[0].named:
            known = np.isin(keyed_hashes(table.persons.names, self.key_, "person"), of_training.used[0].persons)
            others = ~known[table.persons.codes]
        if not others.any():
            return chosen_by
        unnamed = _seen(table.X[others], None, self.key_)
        return min(chosen_by + of_training.already_used(unnamed), table.persons.n)

    def kept_counts(self, table: Table) -> IntArray | None:
        """Return the counts of the training table, where nobody could recognise its persons later."""
        check_fitted(self)
        if self.kept_ is None or table.identifier is not None:
            return None
        return self.kept_.counts if self.kept_.table == _fingerprint(table, self.key_) else None

    def _refuse_training_rows(self, rows: Rows) -> None:
        """Raise where unnamed rows are rows of the training table, which their values tell."""
        if self.identifier is not None:
            raise DataError(
                f"A release knows the model that has not seen a person by their {self.identifier!r} "
                f"(identifier={self.identifier!r}), which these rows lack: add that column, or make it the index."
            )
        used = Ledger(self.key_, self.ledger_.used[:1]).already_used(_seen(rows.X, None, self.key_))
        if used:
            raise DataError(
                f"The models were fitted to {used:,} of these rows at least, and without an identifier nobody knows "
                "which of the models has not seen whom. fit_transform releases the table that it is fitted to, and "
                "transform takes new persons. Or name the persons (identifier=...)."
            )

    def _by_fold(self, rows: Rows, do: Callable[[int, Rows], T]) -> tuple[list[T], Places]:
        """Apply `do` to the rows of each fold that has any; return the results, and how to put rows back into order."""
        if self.n_folds == 1:
            return [do(0, rows)], np.arange(len(rows.X))
        persons = rows.persons
        if not persons.named:
            warn_user(f"{FRESH_COINS} Rows that the models were fitted to are not covered.")
            persons = Persons.newly_named(len(rows.X))
        fold = _folds(persons, self.key_, self.n_folds)
        parts, order = [], []
        for f in np.unique(fold).tolist():
            places, schema = np.flatnonzero(fold == f), self.models_[f].encoder.schema_
            X = rows.X if len(places) == len(fold) else rows.X.iloc[places]
            X = X if schema == self.models_[0].encoder.schema_ else schema.apply(X)  # which model 0 read them by
            part = Rows(plain_numbers(X), rows.group[places], persons.take(places), OutsideValues(len(places)))
            parts.append(do(f, part))
            order.append(places)
            rows.outside.note_part(places, part.outside)
        return parts, np.argsort(np.concatenate(order))

    def _check_settings(self) -> None:
        check_choice("output", self.output, ("row", "cell"))
        check_count("n_folds", self.n_folds, 1)
        if self.n_cells not in (None, "auto"):
            check_count("n_cells", self.n_cells, 2)
        if self.most_rows is not None:
            check_count("most_rows", self.most_rows, 1)

    def __sklearn_tags__(self) -> Tags:
        tags, inner = super().__sklearn_tags__(), get_tags(_encoder_of(self))
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        return tags


@dataclass(frozen=True)
class CutCells:
    """Encoded rows cut into cells: the leaves of a decision tree for the label."""

    view: NumericView
    tree: TreePartition

    @classmethod
    def fit(cls, Z: pd.DataFrame, codes: Groups, n_cells: int, random_state: int) -> CutCells:
        """Grow the tree on encoded rows with these class codes of the label."""
        view = NumericView.fit(Z, codes, int(codes.max()) + 1)
        return cls(view, TreePartition.fit(view.features(Z), codes, n_cells, random_state))

    def cells(self, Z: pd.DataFrame) -> Cells:
        """Return the cell of each encoded row."""
        return self.tree.cells(self.view.features(Z))


@dataclass(frozen=True)
class FoldModel:
    """The model of one fold."""

    encoder: Encoder
    n_cells: int
    cut: CutCells | None  # how encoded rows are cut into cells; None where the encoder gives cells itself
    law: RowLaw | None  # what whole rows are drawn from; None where the number of the cell is released
    label_of_cell: np.ndarray | None  # the most frequent label in each cell; None without a label with classes

    def cells(self, rows: Rows) -> Cells:
        """Return the cell of each row."""
        return self.encoder.cells(rows) if self.cut is None else self.cut.cells(self.encoder.encode(rows))

    def draw(self, rows: Rows) -> pd.DataFrame:
        """Draw a row from the cell of each row."""
        if self.law is None:
            raise DataError("The release was fitted to give the numbers of cells (output='cell').")
        return self.law.sample(self.cells(rows))

    def predict(self, rows: Rows) -> np.ndarray:
        """Predict the label from the cell of each row."""
        if self.label_of_cell is None:  # a label of numbers
            return self.encoder.predict_rows(rows)
        return self.label_of_cell[self.cells(rows)]


@dataclass(frozen=True)
class KeptCounts:
    """Counts of the cells of a table whose persons have no names, made when the models were fitted."""

    table: str  # a keyed hash of the whole table, by which it is recognised
    counts: IntArray  # (C, K, k): its rows by label, group and cell


@dataclass(frozen=True)
class _Given:
    """The arguments of `fit`."""

    X: RowsLike
    y: LabelsLike | None
    sensitive_features: Role | None
    sample_weight: ColumnLike | None

    @property
    def roles(self) -> dict[str, Any]:
        """The keyword arguments."""
        return {"sensitive_features": self.sensitive_features, "sample_weight": self.sample_weight}

    @property
    def label(self) -> LabelsLike | None:
        """The label, which a `Table` may bring itself."""
        return self.X.y if self.y is None and isinstance(self.X, Table) else self.y

    def take(self, places: Places) -> _Given:
        """Return the rows at these places, their columns in the types that these rows have."""
        a, weight = self.sensitive_features, self.sample_weight
        return _Given(
            _take_rows(self.X, places),
            None if self.y is None else _take_values(self.y, places),
            a if a is None or isinstance(a, str | int) else _take_values(a, places),
            weight if weight is None or isinstance(weight, Real) else _take_values(weight, places),
        )


@dataclass(frozen=True)
class _Dealt:
    """The arguments of `fit`, dealt out to folds."""

    given: _Given  # all rows
    persons: Persons  # who is who; unnamed persons have been given random names
    named: bool  # whether they had names
    key: Key  # the key that they were dealt out by
    parts: list[_Given]  # what each model is fitted to


def _deal(release: Release, given: _Given) -> _Dealt:
    """Deal the persons out to folds: model f is fitted to all folds but its own, a single model to all rows."""
    release._check_settings()
    if not isinstance(given.X, Table) and not has_names(given.X):
        given = replace(given, X=check_array(given.X, dtype=None, ensure_all_finite=False))
    key, persons, F = release.key, _persons(given.X, release.identifier), release.n_folds
    key = new_key() if key is None else key
    if F == 1:
        return _Dealt(given, persons, persons.named, key, [given])
    known = persons if persons.named else Persons.newly_named(len(persons.codes))
    fold = _folds(known, key, F)
    if (np.bincount(fold, minlength=F) == 0).any():
        raise DataError(f"Each of the {F} folds needs persons; {persons.n} are too few.")
    parts = [given.take(np.flatnonzero(fold != f)) for f in range(F)]
    frames = [frame for part in parts if (frame := _frame(part.X)) is not None]
    if frames:
        check_texts(frames, release.text_columns)
    return _Dealt(given, known, persons.named, key, parts)


def _encoder_of(release: Release) -> Encoder:
    return FairTree(unseen="other") if release.encoder is None else release.encoder


def _fold_encoder(release: Release, dealt: _Dealt) -> Encoder:
    """Return the encoder of a fold: unfitted, with the release's key and settings, and the fold's share of δ.

    The kinds of columns that a table declares hold for the encoder, too.
    """
    encoder = clone(_encoder_of(release))
    settings = encoder.get_params(deep=False)
    changed: dict[str, object] = {"key": dealt.key, "n_cells": release.n_cells, "target": release.target}
    if isinstance(dealt.given.X, Table) and settings.get("kinds") is None:
        changed["kinds"] = dealt.given.X.declared_kinds or None
    if "delta" in settings:
        changed["delta"] = (settings["delta"] if release.delta is None else release.delta) / release.n_folds
    return encoder.set_params(**{name: v for name, v in changed.items() if name in settings and v is not None})


def _folds(persons: Persons, key: Key, n_folds: int) -> Folds:
    """Return the fold of each row's person."""
    return (persons.uniform(key, "fold") * n_folds).astype(np.intp)


def _frame(X: RowsLike) -> pd.DataFrame | None:
    """Return the rows as a frame; None for an array."""
    if isinstance(X, Table):
        return X.X
    return to_pandas(X) if has_names(X) else None


def _types(given: _Given) -> dict[Hashable, Dtype]:
    """Return the types of the columns, and of the label, where they have names."""
    frame, y = _frame(given.X), given.label
    if frame is None:
        return {}
    types = dict(frame.dtypes)
    return types if y is None else types | dict(label_columns(y).dtypes)


def _persons(X: RowsLike, identifier: str | None) -> Persons:
    """Return who is who."""
    if isinstance(X, Table) and X.identifier is not None:
        return X.persons
    frame = _frame(X)
    if frame is None or identifier is None:
        return Persons.unnamed(len(np.asarray(X) if frame is None else frame))
    if identifier == frame.index.name:
        return Persons.of(frame.index)
    check_known(identifier, frame.columns, "identifier")
    return Persons.of(frame[identifier])


def _take_rows(X: RowsLike, places: Places) -> RowsLike:
    if isinstance(X, Table):
        part = X.take(places)
        part.X, part.a, part.y = own_types(part.X), own_type(part.a), None if part.y is None else own_type(part.y)
        return part
    return own_types(to_pandas(X).iloc[places]) if has_names(X) else np.asarray(X)[places]


def _take_values(values: Any, places: Places) -> Any:
    if has_names(values):
        return own_types(to_pandas(values).iloc[places])
    if isinstance(values, pd.Series):
        return own_type(values.iloc[places])
    return np.asarray(values)[places]


def _label_codes(encoder: Encoder, y: LabelsLike | None) -> Groups | None:
    """Return the class codes of the label; None without a label, or for a label of numbers."""
    if y is None or encoder.classes_ is None:
        return None
    return places_in(pd.Index(encoder.classes_, dtype=object), pd.Series(np.asarray(y).ravel()))


def _by_contents(rows: Rows) -> Persons:
    """Return persons whose coins can be repeated: rows that a model is fitted to are not released."""
    return Persons.by_contents(content_hashes(rows.X, b"cells"))


def _most_frequent(cells: Cells, values: Groups, n_cells: int) -> Groups:
    """Return the most frequent value in each cell."""
    counts = np.zeros((n_cells, values.max() + 1), dtype=np.int64)
    np.add.at(counts, (cells, values), 1)
    return counts.argmax(axis=1)


def _seen(X: pd.DataFrame, persons: Persons | None, key: Key) -> RowsSeen:
    """Return rows as a ledger knows them, by their persons and always by their values."""
    seen = RowsSeen.of(X, Persons.unnamed(len(X)) if persons is None else persons, key)
    return replace(seen, contents=content_hashes(X, key))


def _fingerprint(table: Table, key: Key) -> str:
    """Return one keyed hash of a table, in whatever order its rows come."""
    return fingerprint([np.sort(table.contents())], key)


def _check_alike(what: str, found: Sequence[Sequence[Hashable]]) -> None:
    """Raise where some models have not met a group or a label."""
    for values in found[1:]:
        if list(values) != list(found[0]):
            only = sorted(set(values) ^ set(found[0]), key=str)
            which = f"{what} {shown(only[0])}" if only else f"A {what.lower()}"
            raise DataError(
                f"{which} is missing in the persons of one fold, and every model must know all of them: leave out, or "
                "merge, what is this rare."
            )

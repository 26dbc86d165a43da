"""Release: the table that leaves the house, as cells or as rows drawn from cells, made by two models."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_array, check_is_fitted

from fairflows.bounds.arguments import checked_delta
from fairflows.bounds.cells import FEWEST_PERSONS
from fairflows.bounds.planning import TARGETS, CellPlan, lowest_target, plan_cells
from fairflows.codec import OutsideValues
from fairflows.encoder.base import (
    CELL,
    Cells,
    EncodedColumns,
    Encoder,
    FloatArray,
    IntArray,
    Traits,
    forget,
    handed_over,
)
from fairflows.encoder.fair_tree import FairTree, means_in_cells, one_row_each
from fairflows.encoder.rows import (
    FRESH_COINS,
    Groups,
    Label,
    LabelsLike,
    Rows,
    RowsLike,
    TrainingRows,
    find_attribute,
    find_persons,
    known_label,
    label_columns,
)
from fairflows.exceptions import DataError, check_choice, check_count, warn_user
from fairflows.release.partitions import TreePartition
from fairflows.release.row_law import RowLaw
from fairflows.release.score import cell_scores, releases_score
from fairflows.table.columns import Dtype, common_schema, own_type, own_types, places_in, plain_numbers, shown
from fairflows.table.frames import Frame, has_names, materialised, to_pandas
from fairflows.table.keys import Hashes, Key, content_hashes, keyed_hashes, new_key
from fairflows.table.ledger import Ledger, RowsSeen
from fairflows.table.persons import Persons, Places
from fairflows.table.table import Role, Table
from fairflows.table.text_types import check_texts
from fairflows.threads import one_thread

Folds = npt.NDArray[np.intp]

_LEAVES = 16  # of the tree that cuts encoded rows into cells, by default


@dataclass(eq=False, repr=False)
class Release(Encoder):
    """Release every row of a table as a cell, or as a row that is drawn from the cell.

    The persons are dealt to two folds with one model each, so that two statements hold and all persons are used. *This
    table*: the cells of its rows are counted exactly. *Persons to come* go to a fold by a keyed hash of their
    identifier, and are new to both models.

    With `FairTree`, the scores and nodes of fold f's tree are chosen on the other fold, and its thresholds are set at
    the persons of fold f. So every cell holds nearly the same share of every group of the table. Persons of the table
    **keep their cell**: a later row of theirs is drawn from it. With another encoder of cells, model f is fitted to
    the other fold and encodes the persons of fold f in this and every later table. `FairFlow` and `FairMatching` give
    no cells; a decision tree for the label cuts their output. All models have one key, and the numbers of the cells of
    model 1 follow those of model 0.

    **Without an identifier** a person who comes again cannot be recognised. Folds and coins then exist only while
    `fit` or `fit_transform` runs. `transform` takes every row for a new person; rows of the training table are refused
    where their values identify them, and are not covered otherwise.

    Parameters
    ----------
    encoder : Encoder, default=None
        The encoder of each model; by default ``FairTree()``. A category that only one fold has is new to the model of
        the other.
    n_cells : int or "auto", default=None
        The number of cells of each model, or "auto" for as many as the target allows (`fairflows.bounds.plan_cells`).
        By default as the encoder says, and "auto" without an encoder; for an encoder that gives no cells, 16 leaves at
        most.
    output : {"row", "cell"}, default="row"
        A whole row in the table's own columns, drawn anew each time from a law of rows given the cell
        (`fairflows.release.row_law`), together with the label; or the number of the cell. The law is the same for every
        group, so that the statements about the cell cover the row.
    target : float, default=None
        The distance to stay within. By default 0.1, or the first of 0.15, 0.2 and 0.3 that allows eight cells.
    delta : float, default=0.01
        δ of the bound on persons to come.
    spend : float, default=0.0
        How much of the target the root of a `FairTree` may spend on a label with two classes.
    n_folds : {1, 2}, default=2
        With 1 there is one model, fitted to all persons, and other persons certify it.
    most_rows : int, default=None
        Largest number of rows of a person. By default the most that the persons of one fold have; a table in which a
        person of the other fold has more is refused.
    rules : sequence of str, default=()
        Expressions over columns that are true in every row that is drawn, such as ``"start <= end"``
        (`fairflows.release.rules`). ``attrs["redrawn"]`` of the drawn frame counts the rows that broke one at first.
    derive : bool, default=True
        Whether columns that follow from others are recognised, and computed instead of drawn.
    with_score : bool, default=None
        Whether whole rows get one more column with the expected label of their cell (`fairflows.release.score`), which
        tells more of a person than a label that is drawn. By default where there is a label of at most ten classes, or
        of numbers, and every person has one row.
    random_state : int, default=0
        Seed of scores, of the trees that cut encoded rows, and of the law of rows.

    Attributes
    ----------
    models_ : list of FoldModel
        Model f encodes the persons of fold f.
    n_cells_ : int
        The number of cells of all models together.
    law_ : RowLaw or None
        The law of rows given the cell; None where the numbers of cells are released.
    table_ : ReleasedTable
        The cells of the table that the release was fitted to.
    scores_ : DataFrame or None
        The expected label of each cell, one column for a label of two classes or of numbers; None where it is not
        released.
    plan_ : CellPlan or None
        The cells that the target allows, with `FairTree`.
    most_rows_ : int or None
        The most rows of a person; None without an identifier.

    Examples
    --------
    >>> from fairflows import certify, load_adult
    >>> adult = load_adult()
    >>> release = Release(output="cell", target=0.05)
    >>> cells = release.fit_transform(adult)
    >>> len(cells) == len(adult), cells["cell"].nunique() == release.n_cells_
    (True, True)
    >>> certify(release, adult, target=0.05).status
    'CERTIFIED'
    """

    encoder: Encoder | None = None
    _: KW_ONLY
    n_cells: int | Literal["auto"] | None = None
    output: Literal["row", "cell"] = "row"
    target: float | None = None
    delta: float = 0.01
    spend: float = 0.0
    n_folds: Literal[1, 2] = 2
    most_rows: int | None = None
    rules: Sequence[str] = ()
    derive: bool = True
    with_score: bool | None = None  # not `score`, which is a method of scikit-learn's estimators
    random_state: int = 0

    n_cells_: int = field(init=False)
    models_: list[FoldModel] = field(init=False)
    law_: RowLaw | None = field(init=False)
    label_: Label | None = field(init=False)
    levels_: FloatArray = field(init=False)
    scores_: pd.DataFrame | None = field(init=False)
    plan_: CellPlan | None = field(init=False)
    table_: ReleasedTable | None = field(init=False)

    # The settings of the encoder.
    sensitive = property(lambda self: _encoder_of(self).sensitive)
    identifier = property(lambda self: _encoder_of(self).identifier)
    key = property(lambda self: _encoder_of(self).key)

    @property
    def traits(self) -> Traits:
        """Traits of the encoder with those of the output; the fold of a person is a coin."""
        models = vars(self).get("models_", [])
        single = models[0].encoder if len(models) == 1 else None
        of_encoder = _encoder_of(self).traits if not models else models[0].encoder.traits
        return replace(
            of_encoder,
            invertible=False,
            randomised=self.n_folds > 1 or of_encoder.randomised,
            draws_rows=self.output == "row",
            cells=tuple(model.n_cells for model in models),
            cut_apart=of_encoder.cut_apart and vars(self).get("table_") is not None,
            inside=single,
        )

    @property
    def derived(self) -> list[str]:
        """Say which columns follow from others, as the law of rows found it."""
        return [] if self.law_ is None else list(self.law_.derived)

    def learn(self, rows: TrainingRows) -> None:
        """Not used: a release is fitted by its encoders."""
        raise NotImplementedError

    def fit(self, X: RowsLike, y: LabelsLike | None = None, *, sensitive_features: Role | None = None) -> Self:
        """Fit a model for each fold.

        Parameters
        ----------
        X : Table, frame or array
            The rows.
        y : array, default=None
            The label.
        sensitive_features : array, default=None
            The sensitive attribute, unless X holds it.
        """
        self._fit(_Given.of(X, y, sensitive_features))
        return self

    def fit_transform(
        self, X: RowsLike, y: LabelsLike | None = None, *, sensitive_features: Role | None = None
    ) -> Frame:
        """Fit the models, then release the same rows."""
        X = materialised(X)
        cells, outside = self._fit(_Given.of(X, y, sensitive_features))
        outside.warn()
        return handed_over(X, self.draw(cells))

    def fit_around(self, encoder: Encoder, rows: Rows, Z: pd.DataFrame | None, y: Table | LabelsLike | None) -> Self:
        """Fit a release with one model around an encoder that is fitted already. Other persons certify it.

        The cells are chosen by `rows`, as the encoder reads them, their label y, or the table that they come from, and
        their encodings Z, where these are known already. The release holds the encoder as it is.
        """
        given = _Given(y, None, None) if isinstance(y, Table) else _Given(rows.X, y, None)
        self._check_settings()
        forget(self)
        repeatable = _repeatable(rows)
        if Z is None and not encoder.traits.cells:
            Z = encoder.encode(repeatable)
        model = self._model_of(encoder, Z, given.label)
        cells = encoder.cells(repeatable) if model.cut is None else model.cut.cells(Z)
        self.encoder, self.n_folds, self.models_ = encoder, 1, [model]
        self._take_over([encoder], rows, cells, given)
        self.plan_ = self.table_ = None
        self.ledger_ = encoder.ledger_
        self.ledger_.use(rows.X, rows.persons)
        if encoder.most_rows_ is not None and rows.persons.named:
            self.most_rows_ = max(encoder.most_rows_, int(rows.persons.rows_each().max()))
        return self

    def _fit(self, given: _Given) -> tuple[Cells, OutsideValues]:
        """Fit a model for every fold; return the cells of the rows, and the values that their models do not know."""
        forget(self)
        self._check_settings()
        dealt = _deal(self, given)
        template = _fold_encoder(self, dealt)
        # Trees grow side by side. Densities are fitted one after the other, since they set filters of warnings.
        # The pool waits for both, also where one raises: a solver's threads must not outlive the interpreter.
        unfitted = [clone(template) for _ in dealt.parts]
        with one_thread(), ThreadPoolExecutor(2 if dealt.cut_at else 1) as pool:
            encoders = list(pool.map(_fitted_to, unfitted, dealt.parts))
        _check_alike("Group", [encoder.groups_ for encoder in encoders])
        _check_alike("Label", [[] if encoder.classes_ is None else encoder.classes_.tolist() for encoder in encoders])
        persons = dealt.persons
        rows = encoders[0].read(given.X, given.sensitive_features, persons)
        for f, encoder in enumerate(encoders):
            if isinstance(encoder, FairTree) and dealt.cut_at:
                encoder.cut(_as_read_by(encoder, rows, dealt.cut_at[f], encoders[0]))
        self.models_ = []
        for encoder, part in zip(encoders, dealt.parts, strict=True):
            Z = None
            if not encoder.traits.cells:
                Z = encoder.encode(_repeatable(encoder.read(part.X, part.sensitive_features)))
            self.models_.append(self._model_of(encoder, Z, part.label))
        cells, outside = self._cells_by_fold(_repeatable(rows), dealt.fold)
        self._take_over(encoders, rows, cells, given)
        self.plan_, self.table_ = dealt.plan, None
        if self.n_folds == 1:
            self.ledger_ = encoders[0].ledger_
            return cells, outside
        if self.most_rows is None and dealt.most_rows is not None:
            self.most_rows_ = dealt.most_rows
        self.table_ = self._released_table(rows, cells, dealt)
        self.ledger_ = Ledger.of(rows.X, persons if dealt.named else Persons.unnamed(len(rows.X)), self.key_)
        return cells, outside

    def _model_of(self, encoder: Encoder, Z: pd.DataFrame | None, y: LabelsLike | None) -> FoldModel:
        """Return the model of a fitted encoder; where that gives no cells, encoded rows are cut into some."""
        if Z is None:
            return FoldModel(encoder, sum(encoder.traits.cells), None)
        if self.n_cells == "auto":
            raise DataError("n_cells='auto' is for encoders that plan their cells (FairTree); give a number.")
        if y is None or encoder.classes_ is None:
            raise DataError(
                "Release requires y to be passed, but the target y is None: the cells of encoded rows are grown "
                "for a label with classes. Take FairTree, which gives cells without one."
            )
        codes = places_in(pd.Index(encoder.classes_, dtype=object), label_columns(y).iloc[:, 0])
        cut = TreePartition.fit(Z, codes, self.n_cells or _LEAVES, self.random_state)
        return FoldModel(encoder, int(cut.cell.max()) + 1, cut)

    def _take_over(self, encoders: Sequence[Encoder], rows: Rows, cells: Cells, given: _Given) -> None:
        """Set the attributes that all models share, and the mean label of each cell."""
        encoder, y = encoders[0], given.label
        self.groups_, self.classes_, self.key_ = encoder.groups_, encoder.classes_, encoder.key_
        self.n_features_in_ = encoder.n_features_in_
        self.schema_ = common_schema([each.schema_ for each in encoders])
        self.most_rows_ = encoder.most_rows_ if self.most_rows is None else self.most_rows
        self.n_cells_ = sum(model.n_cells for model in self.models_)
        columns = pd.DataFrame() if y is None else label_columns(y)
        labels = [Label.read(column, len(cells)) for _, column in columns.items()]
        levels = [means_in_cells(label.targets(), cells, self.n_cells_) for label in labels]
        self.label_ = replace(labels[0], values=np.empty(0)) if labels else None
        self.levels_ = levels[0] if labels else np.empty((self.n_cells_, 0))
        self.law_, self.scores_, self.output_ = None, None, CELL
        if self.output == "row":
            own = {n: t for n, t in given.types.items() if n in rows.X and str(t) != str(rows.X[n].dtype)}
            self.law_ = RowLaw.fit(
                rows.X.astype(own),
                cells,
                self.n_cells_,
                columns if labels else None,
                persons=rows.persons.codes,
                kinds=encoder.get_params(deep=False).get("kinds"),
                rules=self.rules,
                derive=self.derive,
                label_place=given.label_place,
                key=encoder.key_,
                random_state=self.random_state,
            )
            types = dict(self.law_.dtypes)
            scores = [
                cell_scores(label, column, means, rows.persons.codes)
                for label, (_, column), means in zip(labels, columns.items(), levels, strict=True)
                if releases_score(self.with_score, label, rows.persons)
            ]
            if any(part.shape[1] for part in scores):
                self.scores_ = pd.concat(scores, axis=1)
                if both := [name for name in self.scores_ if name in types]:
                    raise DataError(
                        f"Column {both[0]!r} has the name of the score of the label: rename it, or release no score "
                        "(with_score=False; score=False or --no-score of `share`)."
                    )
                types |= {str(name): dtype for name, dtype in self.scores_.dtypes.items()}
            self.output_ = EncodedColumns(types, self.law_.schema)

    def _released_table(self, rows: Rows, cells: Cells, dealt: _Dealt) -> ReleasedTable:
        """Count the cells of the table, and keep those of persons with names."""
        X, shape = dealt.given.X, (max(len(self.groups_), 1), self.n_cells_)
        if isinstance(X, Table):
            counts, table = X.count_cells(rows.group, cells, shape), X.fingerprint(self.key_)
        else:
            in_cells = np.bincount(rows.group * shape[1] + cells, minlength=shape[0] * shape[1])
            counts, table = in_cells.reshape(1, *shape).astype(np.int64), ""
        persons, kept, hashes = rows.persons, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64)
        if dealt.named and persons.names is not None and self.models_[0].encoder.traits.cut_apart:
            some_row = np.empty(persons.n, dtype=np.intp)
            order = np.random.default_rng().permutation(len(cells))
            some_row[persons.codes[order]] = order  # of several rows of a person, one at random
            hashes = keyed_hashes(persons.names, self.key_, "person")
            by_hash = np.argsort(hashes)
            hashes, kept = hashes[by_hash], cells[some_row[by_hash]].astype(np.int64)
        blocks = [m.encoder.blocks_ for m in self.models_ if isinstance(m.encoder, FairTree) and len(self.models_) > 1]
        behind = persons.equal_weight(rows.group, shape[0])
        return ReleasedTable(table, counts, behind, hashes, kept, tuple(blocks))

    def read(self, X: RowsLike, sensitive_features: Role | None = None, persons: Persons | None = None) -> Rows:
        """Return the rows of a table as the models see them, checked."""
        check_is_fitted(self, "ledger_")
        X, encoder = materialised(X), self.models_[0].encoder
        if self.table_ is None:
            return encoder.read(X, sensitive_features, persons)
        # Attacks and reports know the rows of such a table by their values, which no fold was dealt by.
        is_unnamed = isinstance(X, Table) and X.identifier is None
        rows = encoder.read(X, sensitive_features, None if is_unnamed and self.identifier else persons)
        if not rows.persons.named and self.identifier is not None:
            raise DataError(
                f"A release knows the model that has not seen a person by their {self.identifier!r} "
                f"(identifier={self.identifier!r}), which these rows lack: add that column, or make it the index."
            )
        self.ledger_.refuse_training_rows(rows.X, Persons.unnamed(len(rows.X)) if is_unnamed else rows.persons)
        return rows

    def cells(self, X: Rows | RowsLike, *, sensitive_features: Role | None = None) -> Cells:
        """Return the cell of each row of a table, or of rows that `read` returned."""
        rows = X if isinstance(X, Rows) else self.read(X, sensitive_features)
        if self.table_ is None:
            return self.models_[0].cells(rows)
        found = self.table_.kept_cells(rows.persons, self.key_)
        new = np.flatnonzero(found < 0)
        if len(new):
            if len(self.models_) == 1:
                raise DataError(
                    f"{len(new):,} of these rows are of persons who come later, and the release was fitted to too few "
                    "persons to encode others: there is one model, for its own table."
                )
            part = rows if len(new) == len(found) else rows.take(new)
            if not part.persons.named:
                warn_user(f"{FRESH_COINS} Rows that the models were fitted to are not covered.")
                part = replace(part, persons=Persons.newly_named(len(new)))
            found[new], outside = self._cells_by_fold(part, _folds(part.persons, self.key_, len(self.models_)))
            rows.outside.note_part(new, outside)
        if len(new) < len(found) and len(self.table_.person):
            warn_user(
                f"{len(found) - len(new):,} of these rows are of persons of the table that was released. They keep "
                "the cell that they have there."
            )
        return found

    def _cells_by_fold(self, rows: Rows, fold: Folds) -> tuple[Cells, OutsideValues]:
        """Return the cell of each row by the model of its fold, and the values outside the fitted domain."""
        found, outside, first = np.empty(len(fold), dtype=np.intp), OutsideValues(len(fold)), 0
        for f, model in enumerate(self.models_):
            places = np.flatnonzero(fold == f)
            if len(places):
                part = _as_read_by(model.encoder, rows, places, self.models_[0].encoder)
                found[places] = first + model.cells(part)
                outside.note_part(places, part.outside)
            first += model.n_cells
        return found, outside

    def encode(self, rows: Rows) -> pd.DataFrame:
        """Return the cell of each row, or a row drawn from it in the table's own types."""
        return self.draw(self.cells(rows))

    def draw(self, cells: Cells) -> pd.DataFrame:
        """Return the numbers of cells, or a row drawn from each."""
        if self.law_ is None:
            return pd.DataFrame({"cell": cells})
        drawn = self.law_.sample(cells)
        for name, score in () if self.scores_ is None else self.scores_.items():
            drawn[name] = score.to_numpy()[cells]
        return drawn

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """Predict the most frequent label of each row's cell, or the mean of a label of numbers."""
        return known_label(self.label_).predict(self.levels_[self.cells(rows)])

    def already_used(self, table: Table) -> int:
        """Count the persons of a table (or rows, at least) that certify nothing.

        A person of the training table is encoded by the model that has not seen them, and may certify it. Persons who
        were used to choose between models may not; neither may rows of the training table under other names or none,
        unless it is the whole table, whose cells were counted when the models were fitted.
        """
        if self.table_ is None:
            return super().already_used(table)
        training, *choices = self.ledger_.used
        seen = RowsSeen.of(table.X, table.persons, self.ledger_.key)
        used = Ledger(self.key_, choices).already_used(seen)
        if self.kept_counts(table) is None:
            used += training.under_other_names(seen)
        return min(used, table.persons.n)

    def is_of(self, table: Table) -> bool:
        """Whether a table is the one that the release was fitted to, in any order of rows."""
        return self.table_ is not None and self.table_.fingerprint == table.fingerprint(self.key_)

    def counts_again(self, table: Table) -> IntArray | None:
        """Count the cells of the training table again, by the trees; None where its persons have no names."""
        if self.table_ is None or not len(self.table_.person) or table.identifier is None:
            return None
        rows = self.models_[0].encoder.read(table)
        first = np.cumsum([model.n_cells for model in self.models_])
        fold = np.searchsorted(first, self.table_.kept_cells(rows.persons, self.key_), side="right")
        cells, _ = self._cells_by_fold(rows, fold)
        return table.count_cells(rows.group, cells, (len(self.groups_), self.n_cells_))

    def kept_counts(self, table: Table) -> IntArray | None:
        """Return the counts of a training table whose persons cannot be recognised later."""
        if table.identifier is not None or self.table_ is None or not self.is_of(table):
            return None
        return self.table_.counts

    def _check_settings(self) -> None:
        check_choice("output", self.output, ("row", "cell"))
        if self.n_folds not in (1, 2):
            raise DataError(f"n_folds must be 1 or 2; got {self.n_folds!r}.")
        if self.n_cells not in (None, "auto"):
            check_count("n_cells", self.n_cells, 2)
        if self.most_rows is not None:
            check_count("most_rows", self.most_rows, 1)
        if self.target is not None and not 0 < self.target <= 1:
            raise DataError(f"target must be in (0, 1]; got {self.target!r}.")
        checked_delta(self.delta)
        if self.spend and not 0 <= self.spend < (self.target or TARGETS[0]):
            raise DataError(
                f"spend must be below the target, {self.target or TARGETS[0]}, and not negative; got {self.spend!r}."
            )

    def __sklearn_tags__(self) -> Tags:
        tags, inner = super().__sklearn_tags__(), get_tags(_encoder_of(self))
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        return tags


@dataclass(frozen=True)
class FoldModel:
    """The model of one fold."""

    encoder: Encoder
    n_cells: int
    cut: TreePartition | None  # how encoded rows are cut into cells; None where the encoder gives cells itself

    def cells(self, rows: Rows) -> Cells:
        """Return the cell of each row."""
        return self.encoder.cells(rows) if self.cut is None else self.cut.cells(self.encoder.encode(rows))


@dataclass(frozen=True)
class ReleasedTable:
    """The cells of the table that a release was fitted to."""

    fingerprint: str  # a keyed hash of the whole table, by which it is recognised; empty where it was no `Table`
    counts: IntArray  # (C, K, k): its rows by label, group and cell
    persons_behind: FloatArray  # (K,): the persons of equal weight that the rows of each group stand for
    # Of persons with names who keep their cell: the keyed hash of each, in rising order, and the cell.
    person: Hashes
    cell: IntArray
    blocks: tuple[IntArray, ...]  # (K, k) each: the blocks of each fold's tree; empty where no trees were cut apart

    def kept_cells(self, persons: Persons, key: Key) -> Cells:
        """Return the cell that each row's person keeps; −1 for everybody else."""
        if persons.names is None or not len(self.person):
            return np.full(len(persons.codes), -1, dtype=np.intp)
        hashes = keyed_hashes(persons.names, key, "person")
        place = np.minimum(np.searchsorted(self.person, hashes), len(self.person) - 1)
        return np.where(self.person[place] == hashes, self.cell[place], -1)[persons.codes].astype(np.intp)


@dataclass(frozen=True)
class _Given:
    """The arguments of `fit`."""

    X: Table | pd.DataFrame | np.ndarray
    y: LabelsLike | None
    sensitive_features: Role | None

    @classmethod
    def of(cls, X: RowsLike, y: LabelsLike | None, sensitive_features: Role | None) -> _Given:
        """Read the rows: every table with names for its columns becomes a pandas frame."""
        X = materialised(X)
        if not isinstance(X, Table):
            X = to_pandas(X) if has_names(X) else check_array(X, dtype=None, ensure_all_finite=False)
        return cls(X, y, sensitive_features)

    @property
    def frame(self) -> pd.DataFrame:
        """The rows as a frame; columns of an array have numbers for names."""
        return self.X.X if isinstance(self.X, Table) else pd.DataFrame(self.X)

    @property
    def label(self) -> LabelsLike | None:
        """The label, or several as a frame, which a `Table` may bring itself."""
        if self.y is not None or not isinstance(self.X, Table):
            return self.y
        return self.X.label_columns() if self.X.more_labels.shape[1] else self.X.y

    @property
    def types(self) -> dict[Hashable, Dtype]:
        """The types of the columns, and of the label, where they have names."""
        if isinstance(self.X, np.ndarray):
            return {}
        return dict(self.frame.dtypes) | ({} if self.label is None else dict(label_columns(self.label).dtypes))

    @property
    def label_place(self) -> int | None:
        """The number of features before the label; None where the label is not a column of the table."""
        return self.X.label_place if self.y is None and isinstance(self.X, Table) else None

    def take(self, places: Places) -> _Given:
        """Return the rows at these places, their columns in the types that these rows have."""
        a = self.sensitive_features
        if isinstance(self.X, Table):
            X = self.X.take(places)
            X.X, X.a, X.more_labels = own_types(X.X), own_type(X.a), own_types(X.more_labels)
            X.y = None if X.y is None else own_type(X.y)
        else:
            X = _take_values(self.X, places)
        y = None if self.y is None else _take_values(self.y, places)
        return _Given(X, y, a if a is None or isinstance(a, str | int) else _take_values(a, places))


@dataclass(frozen=True)
class _Dealt:
    """The arguments of `fit`, dealt out to folds."""

    given: _Given  # all rows
    persons: Persons  # who is who; unnamed persons have been given random names
    named: bool  # whether they had names
    key: Key  # the key that they were dealt out by
    fold: Folds  # the fold of each row
    parts: list[_Given]  # the rows that each model is fitted to
    cut_at: list[Places]  # the rows that thresholds of each model are set at, at most one of each person
    plan: CellPlan | None
    n_cells: int | None  # of each model, where it is planned
    most_rows: int | None  # the most rows of a person


def _deal(release: Release, given: _Given) -> _Dealt:
    """Deal the persons out to two folds: model f is fitted to the persons of the other fold."""
    encoder = _encoder_of(release)
    persons = find_persons(encoder, given.X, given.frame, needed=True)
    key = new_key() if encoder.key is None else encoder.key
    known = persons if persons.named else Persons.newly_named(len(persons.codes))
    if release.n_folds == 1:
        fold = np.zeros(len(persons.codes), dtype=np.intp)
        return _Dealt(given, persons, persons.named, key, fold, [given], [], None, None, None)
    plan = n_cells = None
    cut_at: list[Places] = [np.empty(0, dtype=np.intp)] * 2
    if encoder.traits.cut_apart:
        attribute, _ = find_attribute(encoder, given.X, given.frame, given.sensitive_features, needed=True)
        codes, names = pd.factorize(attribute)
        group = np.maximum(codes, 0)  # the fit refuses a missing value
        fold = _matched_folds(known, group, key)
        most = _most_rows(release, known, fold) if persons.named else None
        sample = partial(one_row_each, given.frame, known, most=most or 1, random_state=release.random_state)
        cut_at = [sample(np.flatnonzero(fold == f)) for f in (0, 1)]
        plan, n_cells = _planned(release, known, group, names, cut_at, most)
        if plan is not None and plan.n_folds == 1:
            cut_at, fold = [sample(np.arange(len(fold)))], np.zeros_like(fold)
            return _Dealt(given, known, persons.named, key, fold, [given], cut_at, plan, n_cells, most)
    else:
        fold = _folds(known, key, 2)
        most = _most_rows(release, known, fold) if persons.named else None
    if (np.bincount(fold, minlength=2) == 0).any():
        raise DataError(f"Each of the two folds needs persons; {persons.n} are too few.")
    parts = [given.take(np.flatnonzero(fold != f)) for f in (0, 1)]
    if not isinstance(given.X, np.ndarray):
        check_texts([part.frame for part in parts], _declared_kinds(encoder, given) or ())
    return _Dealt(given, known, persons.named, key, fold, parts, cut_at, plan, n_cells, most)


def _planned(
    release: Release, persons: Persons, group: Groups, names: Sequence[Hashable], cut_at: list[Places], most: int | None
) -> tuple[CellPlan | None, int | None]:
    """Return the plan, and the number of cells of each tree, from the numbers of persons alone."""
    K = len(names)
    matched = None if most in (None, 1) else sum(np.bincount(group[places], minlength=K) for places in cut_at)
    n = persons.equal_weight(group, K)
    asked = release.n_cells
    if asked is None:
        asked = "auto" if release.encoder is None else release.encoder.get_params(deep=False)["n_cells"]
    if asked != "auto":
        fewest = min(int(np.bincount(group[places], minlength=K).min()) for places in cut_at)
        possible = (fewest + 1) // (FEWEST_PERSONS + 1)
        if possible < 2:
            raise DataError(
                f"Group {shown(names[int(n.argmin())])} is too small for two cells: {fewest:,} of its persons are in a "
                f"fold, one row of each, and it takes {2 * FEWEST_PERSONS + 1} for ten in every cell. Merge small "
                "groups (merge_small=...), or leave the group out."
            )
        if int(asked) > possible:
            warn_user(
                f"{asked} cells were asked for, but group {shown(names[int(n.argmin())])} has {fewest:,} persons in a "
                f"fold: with ten of them in every cell there are {possible} cells."
            )
        return None, min(int(asked), possible)
    plan = plan_cells(n, release.target, release.delta, n_matched=matched, spend=release.spend)
    if plan is None:
        lowest = lowest_target(n, matched, release.spend)
        raise DataError(_too_small(release, names, persons.count_by(group, K), matched, lowest))
    return plan, plan.n_cells


def _too_small(release: Release, names: Sequence[Hashable], n: IntArray, matched: Any, lowest: float | None) -> str:
    """Return which group is too small for two cells, of n persons each, and the remedy."""
    cut_at = np.asarray(n if matched is None else matched)
    small, several = int(cut_at.argmin()), matched is not None
    drawn = f", {cut_at[small]:,} of whom are drawn to cut cells at, those with few rows less often" if several else ""
    needed = f"every group needs {2 * FEWEST_PERSONS + 1}{' of these' if several else ''} at least"
    if lowest is not None:
        needed = f"the lowest target for so many persons is {lowest}"
    return (
        f"Group {shown(names[small])} is too small for the target Δ ≤ {release.target or TARGETS[-1]:.4g}: it has "
        f"{n[small]:,} persons{drawn}, and {needed}. Merge small groups (merge_small=...), or leave the group out."
    )


def _matched_folds(persons: Persons, group: Groups, key: Key) -> Folds:
    """Return the fold of each row's person: half of each group, by the rank of a keyed hash within the group."""
    of_person = np.zeros(persons.n, dtype=np.intp)
    np.maximum.at(of_person, persons.codes, group)
    u = np.empty(persons.n)
    u[persons.codes] = persons.uniform(key, "fold")
    rank = pd.Series(u).groupby(of_person).rank(method="first").to_numpy() - 1
    return (2 * rank >= np.bincount(of_person)[of_person]).astype(np.intp)[persons.codes]


def _folds(persons: Persons, key: Key, n_folds: int) -> Folds:
    """Return the fold of each row's person, by a keyed hash."""
    return (persons.uniform(key, "fold") * n_folds).astype(np.intp)


def _most_rows(release: Release, persons: Persons, fold: Folds) -> int:
    """Return the largest number of rows of a person: as stated, else the maximum of one fold."""
    if release.most_rows is not None:
        return release.most_rows
    each, of_person = persons.rows_each(), np.zeros(persons.n, dtype=np.intp)
    of_person[persons.codes] = fold
    return int(min(each[of_person == f].max(initial=1) for f in (0, 1)))


def _encoder_of(release: Release) -> Encoder:
    return FairTree() if release.encoder is None else release.encoder


def _fold_encoder(release: Release, dealt: _Dealt) -> Encoder:
    """Return the encoder of a fold: unfitted, with the release's key and settings, and the fold's share of δ.

    The kinds of columns that a table declares hold for the encoder, too.
    """
    encoder = clone(_encoder_of(release))
    settings = encoder.get_params(deep=False)
    changed: dict[str, object] = {"key": dealt.key, "n_cells": dealt.n_cells or release.n_cells}
    changed |= {"target": release.target, "delta": release.delta / 2}
    if dealt.cut_at and encoder.traits.cut_apart:
        changed |= {"spend": release.spend or None, "random_state": release.random_state}
        encoder.set_params(calibration=None)
    changed["kinds"] = _declared_kinds(encoder, dealt.given)
    return encoder.set_params(**{name: v for name, v in changed.items() if name in settings and v is not None})


def _declared_kinds(encoder: Encoder, given: _Given) -> Mapping[str, str] | None:
    """Return the kinds of columns that the encoder declares, else those that the table declares."""
    of_table = given.X.declared_kinds if isinstance(given.X, Table) else None
    return encoder.get_params(deep=False).get("kinds") or of_table or None


def _fitted_to(encoder: Encoder, part: _Given) -> Encoder:
    """Fit an encoder to a part of the rows, on one core."""
    with one_thread():
        return encoder.fit(part.X, part.y, sensitive_features=part.sensitive_features)


def _as_read_by(encoder: Encoder, rows: Rows, places: Places, first: Encoder) -> Rows:
    """Return some rows, which the first encoder has read, as the encoder of a fold reads them."""
    part = rows.take(places)
    X = part.X if encoder.schema_ == first.schema_ else encoder.schema_.apply(part.X)
    return replace(part, X=plain_numbers(X))


def _take_values(values: Any, places: Places) -> Any:
    """Return the values at these places, in the types that these values have."""
    if has_names(values):
        return own_types(to_pandas(values).iloc[places])
    if isinstance(values, pd.Series):
        return own_type(values.iloc[places])
    return np.asarray(values)[places]


def _repeatable(rows: Rows) -> Rows:
    """Return rows whose coins can be repeated: unnamed persons are known by their values."""
    return rows if rows.persons.named else replace(rows, persons=Persons.by_contents(content_hashes(rows.X, b"cells")))


def _check_alike(what: str, found: Sequence[Sequence[Hashable]]) -> None:
    """Raise where some models have not met a group or a label."""
    for values in found[1:]:
        if list(values) != list(found[0]):
            only = sorted(set(values) ^ set(found[0]), key=str)
            raise DataError(
                f"{what} {shown(only[0])} is missing in the persons of one fold, and every model must know all of "
                "them: leave out, or merge, what is this rare."
            )

"""Release: the table that leaves the house, as cells or as rows drawn from cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from fairflows.bounds.arguments import checked_delta
from fairflows.bounds.planning import TARGETS, CellPlan
from fairflows.encoder.base import (
    CELL,
    MORE_ROWS,
    Cells,
    EncodedColumns,
    Encoder,
    FloatArray,
    LatentLaw,
    Traits,
    as_input_type,
    reset_fitted,
)
from fairflows.encoder.fair_tree import FairTree
from fairflows.encoder.label import Label, LabelsLike, known_label
from fairflows.encoder.rows import FRESH_COINS, Rows, RowsLike
from fairflows.exceptions import DataError, check_choice, check_count, warn_user
from fairflows.release.fit_arguments import FitArguments
from fairflows.release.fitted_cells import (
    FittedCells,
    cells_of_encoder,
    counted_rows,
    declared_kinds,
    fit_held_out,
    fit_tree,
    held_out_parts,
    unfitted_encoder,
)
from fairflows.release.panel_law import DrawnPanels, PanelLaw
from fairflows.release.partitions import TreePartition
from fairflows.release.person_reading import persons_with_summaries
from fairflows.release.released_table import ReleasedTable, count_cells, warn_of_kept
from fairflows.release.row_law import RowLaw
from fairflows.release.score import cell_scores, releases_score
from fairflows.table.columns import Schema
from fairflows.table.frames import Frame, materialised
from fairflows.table.keys import content_hashes
from fairflows.table.ledger import Ledger, RowsSeen
from fairflows.table.linked import LinkedTables
from fairflows.table.panels import PERSON, PanelForm, Panels
from fairflows.table.persons import Persons, check_most_rows
from fairflows.table.roles import Role
from fairflows.table.table import Table


@dataclass(eq=False, repr=False)
class Release(TransformerMixin, BaseEstimator):
    """Release every row of a table as a cell, or as a row that is drawn from the cell.

    Two statements hold. *This table*: the cells of its rows are counted exactly. *Persons to come*, who are encoded
    later, are covered by a bound.

    With `FairTree`, a part of the persons chooses scores and nodes, and the tree is cut twice: at the other persons,
    which gives the bound on persons to come, and at all persons, so that every cell of the table holds nearly the same
    share of every group. With another encoder a part of the persons is held out, and counted for the bound. `FairFlow`
    and `FairMatching` give no cells; a decision tree for the label cuts their output. Persons of the table **keep their
    cell**: a later row of theirs is drawn from it.

    **Without an identifier** a person who comes again cannot be recognised. Coins then exist only while `fit` or
    `fit_transform` runs. `transform` takes every row for a new person; rows of the training table are refused where
    their values identify them, and are not covered otherwise.

    Proofs: [Two cuts](proofs.md#two-cuts), [Counted persons](proofs.md#counted-persons),
    [Person cells](proofs.md#person-cells).

    Parameters
    ----------
    encoder : Encoder, default=None
        The encoder; by default ``FairTree()``. The settings that it shares with the release are the release's own.
    output : {"row", "cell"}, default="row"
        A whole row in the table's own columns, drawn anew each time from a law of rows given the cell
        (`fairflows.release.row_law`), together with the label; or the number of the cell. The law is the same for every
        group, so that the statements about the cell cover the row.
    unit : {"row", "person"}, default="row"
        What has a cell: each row, or each person with all of their rows, which takes a `Table` with an identifier. With
        "person" the statements are about persons, and cover all rows of a person together, their number included: what
        is released are panels that are drawn from the cells of persons (`fairflows.release.panel_law`).
    n_cells : int or "auto", default="auto"
        The number of cells; by default as many as the target allows for a `FairTree`, 8 for `FairCells`, and at most 16
        for an encoder that gives no cells.
    target : float, default=None
        The distance to stay within. By default 0.1, or the first of 0.15, 0.2 and 0.3 that allows eight cells.
    delta : float, default=0.01
        δ of the bound on persons to come.
    spend : float, default=0.0
        How much of the target the root of a `FairTree` may spend on a label with two classes.
    most_rows : int, default=None
        Largest number of rows of a person. By default the most that the persons have who choose the encoder; a table in
        which another person has more is refused.
    rules : sequence of str, default=()
        Expressions over columns that are true in every row that is drawn, such as ``"start <= end"``
        (`fairflows.release.rules`).
    find_rules : bool, default=True
        Whether inequalities between two columns that every row of the table keeps are rules, too (`kept_rules`).
    derive : bool, default=True
        Whether columns that follow from others are recognised, and computed instead of drawn.
    with_score : bool, default=None
        Whether whole rows get one more column with the expected label of their cell (`fairflows.release.score`), which
        tells more of a person than a label that is drawn. By default where there is a label of at most ten classes, or
        of numbers, and every person has one row.
    random_state : int, default=0
        Seed of the division of the persons, of scores, of the trees that cut encoded rows, and of the law of rows.

    Attributes
    ----------
    encoder_ : Encoder
        The fitted encoder.
    n_cells_ : int
        The number of cells.
    law_ : RowLaw, PanelLaw or None
        The law of rows, or of panels, given the cell; None where the numbers of cells are released.
    form_ : PanelForm or None
        How the rows of a person become the row of summaries that has a cell; None where every row has one.
    table_ : ReleasedTable or None
        The cells of the table that the release was fitted to; None for a release `around` an encoder.
    cell_means_ : ndarray of shape (n_cells_, n_targets)
        The mean of the first label in each cell.
    cell_scores_ : DataFrame or None
        The expected label of each cell, one column for a label of two classes or of numbers; None where it is not
        released.
    plan_ : CellPlan or None
        The statements that were planned, with `FairTree`.
    most_rows_ : int or None
        The most rows of a person; None without an identifier.
    redrawn_ : int
        How many rows of the table were drawn again because they broke a rule.

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
    output: Literal["row", "cell"] = "row"
    unit: Literal["row", "person"] = "row"
    n_cells: int | Literal["auto"] = "auto"
    target: float | None = None
    delta: float = 0.01
    spend: float = 0.0
    most_rows: int | None = None
    rules: Sequence[str] = ()
    find_rules: bool = True
    derive: bool = True
    with_score: bool | None = None  # not `score`, which is a method of scikit-learn's estimators
    random_state: int = 0

    encoder_: Encoder = field(init=False)
    partition_: TreePartition | None = field(init=False)
    n_cells_: int = field(init=False)
    law_: RowLaw | PanelLaw | None = field(init=False)
    form_: PanelForm | None = field(init=False)
    label_: Label | None = field(init=False)
    cell_means_: FloatArray = field(init=False)
    cell_scores_: pd.DataFrame | None = field(init=False)
    plan_: CellPlan | None = field(init=False)
    table_: ReleasedTable | None = field(init=False)
    ledger_: Ledger = field(init=False)
    output_: EncodedColumns = field(init=False)
    most_rows_: int | None = field(init=False)
    redrawn_: int = field(init=False)
    origin_: str = field(init=False)  # hash of the release whose cells these are; empty for its own

    __metadata_request__fit: ClassVar = {"sensitive_features": True}
    __metadata_request__transform: ClassVar = {"sensitive_features": True}

    # What a release has from its encoder.
    sensitive = property(lambda self: self._encoder.sensitive)
    identifier = property(lambda self: self._encoder.identifier)
    key_ = property(lambda self: self.encoder_.key_)
    groups_ = property(lambda self: self.encoder_.groups_)
    classes_ = property(lambda self: self.encoder_.classes_)
    schema_ = property(lambda self: self.encoder_.schema_ if self.form_ is None else self.form_.schema)
    n_features_in_ = property(lambda self: self.encoder_.n_features_in_)

    @property
    def parents_schema(self) -> Schema:
        """Schema of the first of two linked tables, which has one row of each person; without columns of one table."""
        return Schema({}) if self.form_ is None or self.form_.parents is None else self.form_.parents

    @property
    def _encoder(self) -> Encoder:
        return vars(self).get("encoder_") or self.encoder or FairTree()

    @property
    def traits(self) -> Traits:
        """Traits of the encoder with those of the output."""
        fitted = "encoder_" in vars(self)
        return replace(
            self._encoder.traits,
            invertible=False,
            draws_rows=self.output == "row",
            n_cells=self.n_cells_ if fitted else None,
            unit=self.unit,
            cut_twice=fitted and self.table_ is not None and self._encoder.traits.separate_thresholds,
        )

    def fit(self, X: RowsLike, y: LabelsLike | None = None, *, sensitive_features: Role | None = None) -> Self:
        """Fit the encoder and its cells.

        Parameters
        ----------
        X : Table, frame or array
            The rows.
        y : array, default=None
            The label.
        sensitive_features : array, default=None
            The sensitive attribute, unless X holds it.
        """
        self._fit(FitArguments.of(X, y, sensitive_features))
        return self

    def fit_transform(
        self, X: RowsLike, y: LabelsLike | None = None, *, sensitive_features: Role | None = None
    ) -> Frame:
        """Fit the encoder and its cells, then release the same rows; two linked tables as a dict of both."""
        X = materialised(X)
        cells = self._fit(FitArguments.of(X, y, sensitive_features))
        if self.form_ is not None:  # persons have fresh numbers, in a random order
            cells = np.random.default_rng().permutation(cells)
        released, self.redrawn_ = self._drawn(cells)
        return as_input_type(X, released[0]) if self.form_ is None else self._tables(released)

    def _fit(self, given: FitArguments) -> Cells:
        """Fit the encoder and its cells; return the cells of the rows, or of the persons."""
        reset_fitted(self)
        self.check_settings()
        given = self._of_units(given)
        self.form_ = given.X.form if isinstance(given.X, Panels) else None
        encoder = unfitted_encoder(self, given)
        fit = fit_tree if encoder.traits.separate_thresholds else fit_held_out
        found = fit(self, encoder, given)
        self._set_fitted(found, given)
        key = encoder.key_
        shape = (max(len(encoder.groups_), 1), found.n_cells)
        self.table_ = ReleasedTable.of(
            given.X,
            found.rows,
            found.cells,
            shape,
            key,
            named=found.named,
            blocks=found.blocks,
            held_out=found.held_out,
            inside=found.inside,
        )
        persons = found.rows.persons if found.named else Persons.unnamed(len(found.cells))
        self.ledger_ = encoder.ledger_ = Ledger.of(found.rows.X, persons, key)
        return found.cells

    def units(self, table: Table) -> Table:
        """Return the table itself, or its persons where these have cells."""
        return Panels.of(table, vars(self).get("form_")) if self.unit == "person" else table

    def _of_units(self, given: FitArguments) -> FitArguments:
        if self.unit == "row" and isinstance(given.X, LinkedTables):
            raise DataError("Two linked tables are released by persons: unit must be 'person'; got 'row'.")
        if self.unit == "row":
            return given
        if not isinstance(given.X, Table) or given.y is not None or given.sensitive_features is not None:
            raise DataError(
                "A release of persons (unit='person') reads its roles from a Table: Table(data, sensitive=..., "
                "identifier=..., label=..., time=...)."
            )
        return FitArguments(Panels.of(given.X), None, None)

    @classmethod
    def around(cls, encoder: Encoder, table: Table, **settings: object) -> Release:
        """Return a fitted release of an encoder that is fitted already; other persons certify it.

        Parameters
        ----------
        encoder : Encoder
            The fitted encoder, which the release holds as it is.
        table : Table
            Rows that the cells and the law of rows are chosen by, such as those that the encoder was fitted to.
        **settings
            The settings of the release.
        """
        release = cls(encoder, **settings)  # type: ignore[arg-type]
        release.check_settings()
        if release.unit == "person":
            raise DataError("A release around a fitted encoder gives every row a cell (unit='row').")
        release.form_ = None
        given = FitArguments.of(table, None, None)
        rows = encoder.read(table)
        named = rows.persons.named
        if not named:  # coins that can be repeated
            rows = replace(rows, persons=Persons.by_contents(content_hashes(rows.X, b"cells")))
        Z = None if encoder.traits.n_cells else encoder.encode(rows)
        partition, n_cells = cells_of_encoder(release, encoder, Z, given.labels)
        cells = encoder.cells(rows) if Z is None or partition is None else partition.cells(Z)
        most = encoder.most_rows_
        if most is not None and named:
            most = max(most, int(rows.persons.rows_each().max()))
        release._set_fitted(FittedCells(encoder, partition, n_cells, rows, named, cells, most), given)
        release.ledger_ = encoder.ledger_
        release.ledger_.use(rows.X, table.persons)
        return release

    def _set_fitted(self, found: FittedCells, given: FitArguments) -> None:
        """Set what was learnt, and learn the law of rows."""
        self.encoder_, self.partition_, self.n_cells_ = found.encoder, found.partition, found.n_cells
        self.most_rows_, self.plan_, self.table_, self.redrawn_ = found.most_rows, found.plan, None, 0
        self.origin_ = ""
        columns, cells, households = given.labels, found.cells, given.households(found.rows.persons)
        labels = [Label.read(column, len(cells)) for _, column in columns.items()]
        means = [label.cell_means(cells, found.n_cells) for label in labels]
        self.label_ = labels[0].take(np.empty(0, np.intp)) if labels else None
        self.cell_means_ = means[0] if labels else np.empty((found.n_cells, 0))
        self.law_, self.cell_scores_, self.output_ = None, None, CELL
        if self.output == "cell":
            return
        X = given.X
        law = self.law_ = self._panel_law(found, X) if isinstance(X, Panels) else self._row_law(found, given)
        types = dict(law.dtypes)
        with_score = self.with_score if self.form_ is None else bool(self.with_score)
        scores = [
            cell_scores(label, column, mean, households)
            for label, (_, column), mean in zip(labels, columns.items(), means, strict=True)
            if releases_score(with_score, label, found.rows.persons)
        ]
        if any(part.shape[1] for part in scores):
            self.cell_scores_ = pd.concat(scores, axis=1)
            if both := [name for name in self.cell_scores_ if name in types]:
                raise DataError(
                    f"Column {both[0]!r} has the name of the score of the label: rename it, or release no score "
                    "(with_score=False; score=False or --no-score of `share`)."
                )
            if self.form_ is None or self.form_.names is None:  # else they stand in the persons' own rows
                types |= {str(name): dtype for name, dtype in self.cell_scores_.dtypes.items()}
        self.output_ = EncodedColumns(types, law.schema)

    def _panel_law(self, found: FittedCells, panels: Panels) -> PanelLaw:
        """Learn the law of panels from the rows behind the persons."""
        return PanelLaw.fit(
            panels,
            found.cells,
            found.n_cells,
            rules=self.rules,
            find_rules=self.find_rules,
            derive=self.derive,
            key=found.encoder.key_,
            random_state=self.random_state,
        )

    def _row_law(self, found: FittedCells, given: FitArguments) -> RowLaw:
        """Learn the law of rows."""
        X, columns = found.rows.X, given.labels
        own = {n: t for n, t in given.types.items() if n in X and str(t) != str(X[n].dtype)}
        return RowLaw.fit(
            X.astype(own),
            found.cells,
            found.n_cells,
            columns if columns.shape[1] else None,
            persons=given.households(found.rows.persons),
            kinds=declared_kinds(found.encoder, given),
            rules=self.rules,
            find_rules=self.find_rules,
            derive=self.derive,
            label_place=given.label_place,
            known=found.levels,
            key=found.encoder.key_,
            random_state=self.random_state,
        )

    def read(self, X: RowsLike, sensitive_features: Role | None = None, persons: Persons | None = None) -> Rows:
        """Return the rows of a table as the encoder sees them, checked."""
        check_is_fitted(self, "ledger_")
        X = materialised(X)
        if self.form_ is not None and isinstance(X, Panels):
            X = Panels.of(X, self.form_)
        elif self.form_ is not None:
            X, sensitive_features, persons = persons_with_summaries(
                self.form_, self.encoder_, X, sensitive_features, persons
            )
        if self.table_ is None:
            return self.encoder_.read(X, sensitive_features, persons)
        # Attacks and reports know the rows of such a table by their values, which the release was not fitted by.
        is_unnamed = isinstance(X, Table) and X.identifier is None
        rows = self.encoder_.read(X, sensitive_features, None if is_unnamed and self.identifier else persons)
        if not rows.persons.named and self.identifier is not None:
            raise DataError(
                f"A release recognises the persons of its table by their {self.identifier!r} "
                f"(identifier={self.identifier!r}), which these rows lack: add that column, or make it the index."
            )
        self.ledger_.refuse_training_rows(rows.X, Persons.unnamed(len(rows.X)) if is_unnamed else rows.persons)
        return rows

    def transform(self, X: RowsLike, *, sensitive_features: Role | None = None) -> Frame:
        """Release rows; the result is the kind of table that X is, or a dict of two linked tables."""
        X = materialised(X)
        rows = self.read(X, sensitive_features)
        if rows.persons.named:  # a certificate is about so many rows of a person
            check_most_rows(rows.persons.rows_each(), self.most_rows_ or 1, MORE_ROWS)
        if self.form_ is not None:
            cells = np.random.default_rng().permutation(self.cells(rows))
            released = self._tables(self._drawn(cells)[0])
        else:
            released = as_input_type(X, self.encode(rows))
        rows.outside.warn()
        return released

    @property
    def encodes_others(self) -> bool:
        """Whether persons who come later can be encoded, which takes enough persons for a second cut of the tree."""
        return self.table_ is None or not self.traits.cut_twice or self.table_.blocks is not None

    def cells(self, rows: Rows) -> Cells:
        """Return the cell of each row; persons of the table keep theirs."""
        found, n_kept = self.cells_and_kept(rows)
        warn_of_kept(n_kept)
        return found

    def cells_and_kept(self, rows: Rows) -> tuple[Cells, int]:
        """Return the cell of each row, and how many rows are of persons of the table, who keep theirs."""
        if self.table_ is None:
            return self._encoded_cells(rows), 0
        found = self.table_.kept_cells(rows.persons, self.key_)
        new = np.flatnonzero(found < 0)
        if len(new):
            if not self.encodes_others:
                raise DataError(
                    f"{len(new):,} of these rows are of persons who come later, and the release was fitted to too few "
                    "persons to encode others: a larger target, or small groups that are merged, may allow it."
                )
            part = rows if len(new) == len(found) else rows.take(new)
            if not part.persons.named:
                unnamed = FRESH_COINS if self.encoder_.traits.randomised else "The rows name no persons."
                warn_user(f"{unnamed} Rows that the release was fitted to are not covered.")
                part = replace(part, persons=Persons.newly_named(len(new)))
            found[new] = self._encoded_cells(part)
        return found, len(found) - len(new)

    def _encoded_cells(self, rows: Rows) -> Cells:
        """Return the cells of rows by the encoder."""
        if self.partition_ is None:
            return self.encoder_.cells(rows)
        return self.partition_.cells(self.encoder_.encode(rows))

    def encode(self, rows: Rows) -> pd.DataFrame:
        """Return the cell of each row, or a row drawn from it in the table's own types.

        Of persons with all of their rows, these are the summaries of the rows that are drawn for each of them.
        """
        return self.summaries(*self._drawn(self.cells(rows))[0])

    def summaries(self, released: pd.DataFrame, parents: pd.DataFrame | None = None) -> pd.DataFrame:
        """Return one row for each unit: rows as they are, and of a table of panels one row for each person.

        The label of a person is that of the last row, as in `Panels`. Of two linked tables `parents` has the own row of
        each person.
        """
        if self.form_ is None or self.law_ is None:
            return released
        owner = released[PERSON].to_numpy() - 1
        n, rows = int(owner.max(initial=-1)) + 1, released[list(self.form_.schema.kinds)]
        own, labels = None, dict[str, Any]()
        if parents is not None and self.form_.parents is not None:
            n, own = len(parents), parents[list(self.form_.parents.kinds)]
            labels = {name: parents[name].array for name in parents if name not in (PERSON, *own)}
        found = self.form_.summaries(rows, owner, n, own)
        others = [name for name in released if name not in (PERSON, *rows)]  # labels, and their scores
        labels |= {name: self.form_.last(released[name], rows, owner, n).array for name in others}
        return found.assign(**labels)

    def draw(self, cells: Cells) -> pd.DataFrame:
        """Return the numbers of cells, or a row drawn from each; of cells of persons, all of their rows."""
        return self._drawn(cells)[0][0]

    def _tables(self, drawn: tuple[pd.DataFrame, ...]) -> pd.DataFrame | dict[str, pd.DataFrame]:
        """Return what was drawn; two linked tables by their names, the one with one row of each person first."""
        names = None if self.form_ is None else self.form_.names
        return drawn[0] if names is None or len(drawn) == 1 else dict(zip(names, reversed(drawn), strict=True))

    def _drawn(self, cells: Cells) -> tuple[tuple[pd.DataFrame, ...], int]:
        """Return the same, and of two linked tables the other one; how many rows were drawn again because of rules."""
        if self.law_ is None:
            return (pd.DataFrame({"cell": cells}),), 0
        found = self.law_.draw(cells)
        parents = found.parents if isinstance(found, DrawnPanels) else None
        drawn = (found.rows,) if parents is None else (found.rows, parents)
        of_row = cells if self.form_ is None else cells[drawn[-1][PERSON].to_numpy() - 1]
        for name, score in () if self.cell_scores_ is None else self.cell_scores_.items():
            drawn[-1][name] = score.to_numpy()[of_row]
        return drawn, found.n_redrawn

    def predict(self, X: RowsLike, *, sensitive_features: Role | None = None) -> np.ndarray:
        """Predict the label from each released row, a class or a number."""
        return self.predict_rows(self.read(X, sensitive_features))

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """Predict the most frequent label of each row's cell, or the mean of a label of numbers."""
        return known_label(self.label_).predict(self.cell_means_[self.cells(rows)])

    def latent_law(self) -> LatentLaw | None:
        """Return the groups' laws of encoded rows, inside the cells, by the encoder's own densities."""
        return self.encoder_.latent_law()

    def bound_follows_from(self, table: Table) -> bool | None:
        """Whether thresholds and blocks, or held-out counts, follow again from its own table; None if unknown.

        That takes the names of persons, and for held-out counts one row of each.
        """
        if self.table_ is None or not table.persons.named or self.origin_:
            return None
        if self.traits.cut_twice:
            return self._is_cut_at(self.encoder_.read(table))
        if self.table_.counted_again(table, self.groups_, self.key_) is None:
            return None
        rows, cells = self.encoder_.read(table), self.table_.kept_cells(table.persons, self.key_)
        held_out, shape = held_out_parts(table, self.random_state)[1], self.table_.counts.shape[1:]
        laws = counted_rows(rows, held_out, self.most_rows_ or 1, self.random_state)
        again = {law: count_cells(table, rows.group, cells, shape, places) for law, places in laws.items()}
        return all(np.array_equal(again[law], counts) for law, counts in self.table_.held_out.items())

    def _is_cut_at(self, rows: Rows) -> bool | None:
        """Whether the population cut and its blocks are those of these rows; None without a population cut."""
        tree, table = self.encoder_, self.table_
        if tree.tree_ is None or table is None or table.blocks is None:
            return None
        if table.of_persons:  # it was cut at persons of a sample
            at = rows.take(np.flatnonzero(table.places_of_cut(rows.persons, self.key_) >= 0))
        else:
            others = rows.split(1 - tree.calibration, self.random_state)[1]
            at = rows.take(rows.independent(others, self.most_rows_ or 1, self.random_state))
        again = tree.cut_again(at)
        blocks = tree.structure_.blocks(np.bincount(at.group, minlength=len(self.groups_)))
        pairs = (again.threshold, tree.tree_.threshold), (again.coin, tree.tree_.coin), (blocks, table.blocks)
        return all(np.array_equal(*pair) for pair in pairs)

    @property
    def inner_encoder(self) -> Encoder:
        """The fitted encoder."""
        return self.encoder_

    @property
    def released_table(self) -> ReleasedTable | None:
        """The cells of the table that the release was fitted to."""
        return self.table_

    @property
    def derived(self) -> list[str]:
        """Say which columns follow from others, as the law of rows found it."""
        return [] if self.law_ is None else list(self.law_.derived)

    @property
    def kept_rules(self) -> list[str]:
        """The rules that every drawn row keeps, as they were stated and found."""
        return [] if self.law_ is None else [rule.text for rule in self.law_.rules]

    def already_used(self, table: Table) -> int:
        """Count the persons of a table (or rows, at least) that certify nothing.

        These are the persons of the training table, unless it is the whole table, whose cells were counted.
        """
        if self.table_ is not None and self.table_.is_of(table, self.key_):
            return 0
        table = self.units(table)
        return self.ledger_.already_used(RowsSeen.of(table.X, table.persons, self.ledger_.key))

    def get_feature_names_out(self, input_features: object = None) -> npt.NDArray[np.object_]:
        """Return the names of the released columns."""
        check_is_fitted(self, "ledger_")
        return np.array(list(self.output_.dtypes), dtype=object)

    def check_settings(self) -> None:
        """Raise where a setting is out of its range."""
        check_choice("output", self.output, ("row", "cell"))
        check_choice("unit", self.unit, ("row", "person"))
        if self.unit == "person" and self.most_rows is not None:
            raise DataError(
                f"most_rows must be left out where all rows of a person are released together (unit='person'), which "
                f"covers any number of rows; got {self.most_rows!r}."
            )
        if self.n_cells != "auto":
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
        tags, inner = super().__sklearn_tags__(), get_tags(self._encoder)
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        tags.non_deterministic = self.output == "row" or self.identifier is None
        tags.transformer_tags.preserves_dtype = []
        return tags

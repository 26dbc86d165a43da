"""CellRelease: release one of k cells, or a row drawn from it, so that a distribution-free certificate exists."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal, Self

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils import Tags

from fairflows.bounds.planning import delta_of_look, most_cells_within, planned_cell_bound
from fairflows.encoder.base import Cells, Encoder, Given, Groups, LabelsLike, Rows, RowsLike
from fairflows.encoder.group_encoder import Unencoded
from fairflows.encoder.labels import label_columns
from fairflows.encoder.rows_given_cell import RowsGivenCell
from fairflows.exceptions import DataError, check_choice
from fairflows.release.partitions import NumericView, TreePartition
from fairflows.table.columns import Dtype, places_in
from fairflows.table.frames import Values
from fairflows.table.persons import Key, Persons, content_hashes
from fairflows.table.schema import Schema
from fairflows.table.table import Role

_CANDIDATES = (2, 4, 8, 16, 32, 64, 128)
_VALIDATION = 0.3


@dataclass(eq=False, repr=False)
class CellRelease(Encoder):
    """Release the cell that an encoded row falls into: a meta-estimator around an encoder.

    Few rows of a table can certify nothing about arbitrary continuous laws, but they can about coarse cells, whatever
    the law (`fairflows.bounds.cell_upper_bound`). The cells are functions of z alone: only the encoder needs the
    attribute. They are the leaves of a decision tree for the label, grown on z.

    Parameters
    ----------
    encoder : encoder, optional
        What the rows are encoded by first; when not given, the rows themselves are cut into cells. The cells of an
        encoder that gives cells are taken as they are: ``n_cells`` and ``target`` are then not used.
    n_cells : int or "auto"
        The most cells; there are fewer where the encoded rows do not differ enough. "auto" takes the most of
        2, 4, …, 128 for which the bound to expect is within ``target``, judged on persons kept aside in ``fit``.
    output : {"cell", "row"}
        Release the cell's number; or a whole row in the table's own columns, drawn anew each time from a law of rows
        given the cell (`fairflows.encoder.rows_given_cell`), together with the label where there is one. That law is
        the same for every group, so that the cell's certificate covers the row.
    draw_label : bool
        Whether whole rows have a label, drawn with the rest; without, for those who release the true one beside it.
    target : float, optional
        With "auto": the distance Δ that is to be certified.
    delta : float
        With "auto": the δ that it is to be certified with, of which the first certificate spends its share.
    random_state : int
        Seed of the tree and the split.

    Attributes
    ----------
    encoder_ : encoder
        The fitted encoder.
    n_cells_ : int
        How many cells there are.
    rows_given_cell_ : RowsGivenCell or None
        What whole rows are drawn from.
    class_of_cell_ : ndarray, or None
        The most frequent label in each cell.
    planned_ : dict, or None
        With "auto": the bound to expect for each number of cells.

    Examples
    --------
    >>> from fairflows import FairMatching, load_adult
    >>> train, _, test = load_adult().split(random_state=0)
    >>> release = CellRelease(FairMatching(density="counts"), n_cells=4).fit(train)
    >>> release.n_cells_, len(release.read(test).X) == len(test)
    (4, True)
    """

    encoder: Encoder | None = None
    n_cells: int | Literal["auto"] = 16
    _: KW_ONLY
    output: Literal["cell", "row"] = "cell"
    draw_label: bool = True
    target: float | None = None
    delta: float = 0.05
    random_state: int = 0

    encoder_: Encoder = field(init=False)
    view_: NumericView | None = field(init=False)
    partition_: TreePartition | None = field(init=False)
    planned_: dict[int, float] | None = field(init=False)
    n_cells_: int = field(init=False)
    rows_given_cell_: RowsGivenCell | None = field(init=False)

    @property
    def sensitive(self) -> str | list[str] | None:
        """As the encoder says."""
        return self._fitted_or_given().sensitive

    @property
    def identifier(self) -> str | None:
        """As the encoder says."""
        return self._fitted_or_given().identifier

    @property
    def key(self) -> Key | None:
        """As the encoder says."""
        return self._fitted_or_given().key

    @property
    def needs_attribute(self) -> bool:
        """Whether the encoder does."""
        return self._fitted_or_given().needs_attribute

    @property
    def is_randomised(self) -> bool:
        """Whether the encoder is."""
        return self._fitted_or_given().is_randomised

    @property
    def draws_rows(self) -> bool:
        """Whether whole rows are released."""
        return self.output == "row"

    @property
    def gives_cell_numbers(self) -> bool:
        """Whether no whole rows are released."""
        return self.output == "cell"

    @property
    def feature_names(self) -> list[str]:
        """The columns of X that are encoded."""
        self._check_fitted()
        return self.encoder_.feature_names

    @property
    def row_schema(self) -> Schema:
        """What the columns of X hold."""
        self._check_fitted()
        return self.encoder_.row_schema

    @property
    def encoded_schema(self) -> Schema:
        """What the columns of whole rows hold."""
        self._check_fitted()
        return Schema({}) if self.rows_given_cell_ is None else self.rows_given_cell_.schema

    def encoded_dtypes(self) -> dict[str, Dtype]:
        """The types of cell numbers, or of the columns of whole rows."""
        self._check_fitted()
        return super().encoded_dtypes() if self.rows_given_cell_ is None else self.rows_given_cell_.dtypes

    def _fit_to(self, given: Given) -> Rows:
        """Fit the encoder, and choose the cells."""
        self._check_settings()
        return self._fit_cells(given.fit(clone(self._given())), given)

    def _fitted_to(self, given: Given, strengths: Sequence[float], seeds: Sequence[int]) -> list[Self]:
        """The same cells around an encoder of every strength and seed."""
        self._check_settings()
        found = []
        for encoder in given.fit_many(clone(self._given()), strengths, seeds):
            release = clone(self) if self.encoder is None else clone(self).set_params(encoder=clone(encoder))
            if encoder.is_fitted:
                release._fit_cells(encoder, given)
            found.append(release)
        return found

    def sharing(self, key: Key | None, share: float) -> Self:
        """A copy that is not fitted, around an encoder with this key, and with this share of δ."""
        encoder = self._given().sharing(key, share)
        return clone(self).set_params(encoder=encoder, delta=share * self.delta)

    def _fit_cells(self, encoder: Encoder, given: Given) -> Rows:
        rows = encoder.read(given.X, given.sensitive_features)
        self.fit_around(encoder, rows, None, given.label)
        return rows

    def fit_around(self, encoder: Encoder, rows: Rows, Z: pd.DataFrame | None, y: LabelsLike | None = None) -> Self:
        """Choose the cells for an encoder that is fitted already.

        Parameters
        ----------
        encoder : encoder
            The fitted encoder, which the release holds as it is.
        rows : Rows
            The rows to choose by, as the encoder reads them.
        Z : DataFrame or None
            These rows, encoded, where that was done already.
        y : array, optional
            Their label.
        """
        self._check_settings()
        classes = encoder.classes_ if isinstance(encoder.classes_, np.ndarray) and y is not None else None
        labels = None
        if classes is not None:
            labels = places_in(pd.Index(classes, dtype=object), pd.Series(np.asarray(y).ravel()))
        self.encoder_ = encoder
        self.groups_, self.classes_, self.n_features_in_ = encoder.groups_, classes, encoder.n_features_in_
        self.key_, self.ledger_, self.most_rows_ = encoder.key_, encoder.ledger_, _most_rows(encoder, rows)
        self.ledger_.use_if_new(rows.X, rows.persons)
        self.view_ = self.partition_ = self.planned_ = None
        if encoder.n_cells_ is None:
            Z = encoder.encode(_with_coins(rows)) if Z is None else Z
            n_cells = self._plan_number(encoder, rows, Z, labels) if self.n_cells == "auto" else self.n_cells
            self.view_, self.partition_ = self._cut(Z, labels, 0 if classes is None else len(classes), n_cells)
            self.n_cells_, cells = self.partition_.n_cells, self.partition_.cells(self.view_.features(Z))
        else:
            self.n_cells_, cells = encoder.n_cells_, encoder.cells(_with_coins(rows))
        self.class_of_cell_ = None
        if labels is not None:
            self.class_of_cell_ = self.label_classes[_most_frequent(cells, labels, self.n_cells_)]
        self.rows_given_cell_ = None
        if self.draws_rows:
            self.rows_given_cell_ = RowsGivenCell.fit(
                rows.X,
                cells,
                self.n_cells_,
                None if y is None or not self.draw_label else label_columns(y),
                persons=rows.persons.codes,
                key=self.key_,
                random_state=self.random_state,
            )
        return self

    def read(self, X: RowsLike, sensitive_features: Role | None = None, persons: Persons | None = None) -> Rows:
        """The rows of a table as the encoder sees them, checked."""
        self._check_ready()
        return self.encoder_.read(X, sensitive_features, persons)

    def cells(self, rows: Rows) -> Cells:
        """Each row's cell, which a certificate counts."""
        self._check_fitted()
        if self.view_ is None or self.partition_ is None:
            return self.encoder_.cells(rows)
        return self.partition_.cells(self.view_.features(self.encoder_.encode(rows)))

    def _encode_rows(self, rows: Rows) -> pd.DataFrame | dict[Hashable, Values]:
        """What is released for each row: its cell's number, or a row drawn from the cell."""
        cells = self.cells(rows)
        return {"cell": cells} if self.rows_given_cell_ is None else self.rows_given_cell_.sample(cells)

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """The label that each row's released cell suggests."""
        if self.class_of_cell_ is None:
            raise DataError("CellRelease was fitted without a label and cannot predict one.")
        return self.class_of_cell_[self.cells(rows)]

    def _names_out(self) -> list[str]:
        if self.rows_given_cell_ is not None:
            return [str(name) for name in self.rows_given_cell_.names]
        return ["cell"]

    def _given(self) -> Encoder:
        return Unencoded() if self.encoder is None else self.encoder

    def _fitted_or_given(self) -> Encoder:
        return vars(self).get("encoder_", self._given())

    def _cut(
        self, Z: pd.DataFrame, y: Groups | None, n_classes: int, n_cells: int
    ) -> tuple[NumericView, TreePartition]:
        if y is None:
            raise DataError(
                "CellRelease requires y to be passed, but the target y is None: the cells of encoded rows are grown "
                "for a label. Take FairTree, which gives cells without one."
            )
        view = NumericView.fit(Z, y, n_classes)
        return view, TreePartition.fit(view.features(Z), y, n_cells, self.random_state)

    def _plan_number(self, encoder: Encoder, rows: Rows, Z: pd.DataFrame, y: Groups | None) -> int:
        """The most cells for which the bound to expect is within the target."""
        if self.target is None:
            raise ValueError("n_cells='auto' needs the distance to certify: set target.")
        if not encoder.groups_:
            raise DataError("n_cells='auto' judges cells by what they tell of the groups: pass sensitive_features.")
        self.planned_ = self._plan(encoder, rows, Z, y)
        advice = "Encode more strongly, or certify on more persons."
        return most_cells_within(self.planned_, self.target, advice)

    def _plan(self, encoder: Encoder, rows: Rows, Z: pd.DataFrame, y: Groups | None) -> dict[int, float]:
        """The bound to expect for each number of cells, from persons that the cells were not fitted on."""
        n_groups = len(encoder.groups_)
        fitted, held = rows.persons.split(_VALIDATION, random_state=self.random_state)
        contents, most = content_hashes(rows.X.iloc[held], b"planning"), _most_rows(encoder, rows) or 1
        held = held[rows.persons.take(held).random_rows(contents, self.random_state, most)]  # as a certificate counts
        group = rows.group[held]
        n = np.bincount(group, minlength=n_groups)
        if (n == 0).any():
            raise DataError(
                "n_cells='auto' keeps rows of every group aside, but of "
                f"{encoder.groups_[int(n.argmin())]!r} it has none."
            )
        delta = delta_of_look(self.delta, 1)  # what the first certificate spends
        n_classes = 0 if y is None else len(encoder.label_classes)
        planned = {}
        for k in _CANDIDATES:
            view, partition = self._cut(Z.iloc[fitted], None if y is None else y[fitted], n_classes, k)
            counts = np.zeros((n_groups, partition.n_cells))
            np.add.at(counts, (group, partition.cells(view.features(Z.iloc[held]))), 1)
            planned[k] = float(planned_cell_bound(counts / n[:, None], n, delta))
        return planned

    def _check_settings(self) -> None:
        if self.n_cells != "auto" and (not isinstance(self.n_cells, int | np.integer) or self.n_cells < 2):
            raise ValueError(f"n_cells must be 'auto' or a whole number of at least 2; got {self.n_cells!r}.")
        check_choice("output", self.output, ("cell", "row"))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = []  # a cell is a whole number
        return tags


def _with_coins(rows: Rows) -> Rows:
    """Rows to fit to: they are not released, so the coins of persons whom nobody named may be repeatable."""
    if rows.persons.named:
        return rows
    return replace(rows, persons=Persons.by_contents(content_hashes(rows.X, b"cells")))


def _most_rows(encoder: Encoder, rows: Rows) -> int | None:
    """The most rows of a person, among those that the encoder was fitted to and those that cells are chosen by."""
    if encoder.most_rows_ is None or not rows.persons.named:
        return encoder.most_rows_
    return max(encoder.most_rows_, int(rows.persons.rows_each().max()))


def _most_frequent(cells: Cells, values: Groups, n_cells: int) -> Groups:
    """The most frequent value in each cell."""
    counts = np.zeros((n_cells, values.max() + 1), dtype=np.int64)
    np.add.at(counts, (cells, values), 1)
    return counts.argmax(axis=1)

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
from fairflows.encoder.base import Cells, Encoder, FloatArray, Given, Groups, LabelsLike, Rows, RowsLike
from fairflows.encoder.group_encoder import Unencoded
from fairflows.encoder.labels import label_columns
from fairflows.encoder.rows_given_cell import RowsGivenCell
from fairflows.exceptions import DataError, check_choice
from fairflows.release.partitions import CentrePartition, NumericView, Partition, QuantilePartition, TreePartition
from fairflows.table.columns import Dtype, has_order, places_in
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
    attribute.

    Parameters
    ----------
    encoder : encoder, optional
        What the rows are encoded by first; when not given, the rows themselves are cut into cells. The cells of an
        encoder that gives cells are taken as they are: ``n_cells``, ``method`` and ``target`` are then not used.
    n_cells : int or "auto"
        The most cells; there are fewer where the encoded rows do not differ enough. "auto" takes the most of
        2, 4, …, 128 for which the bound to expect is within ``target``, judged on persons kept aside in ``fit``.
    method : {"tree", "quantiles", "kmeans"}
        Leaves of a decision tree for the label; quantile bins of a score, which is z itself where it is one column and
        else a logistic regression of the label; or the nearest of k centres, without a label. Weights of rows are for
        the encoder alone.
    output : {"cell", "typical", "row"}
        Release the cell's number; or its typical row, the median or most frequent value of each column among the rows
        it was fitted on; or a whole row in the table's own columns, drawn anew each time from a law of rows given the
        cell (`fairflows.encoder.rows_given_cell`), together with the label where there is one. Typical rows and the law
        of rows are the same for every group, so that the cell's certificate covers them.
    draw_label : bool
        Whether whole rows have a label, drawn with the rest; without, for those who release the true one beside it.
    randomise : float
        The probability that a person's cell is replaced by one drawn evenly from all (randomised response). The coin
        is keyed by the person. It shrinks every distance by the factor 1 − randomise.
    target : float, optional
        With "auto": the distance Δ that is to be certified.
    delta : float
        With "auto": the δ that it is to be certified with, of which the first certificate spends its share.
    random_state : int
        Seed of the tree, the centres and the split.

    Attributes
    ----------
    encoder_ : encoder
        The fitted encoder.
    n_cells_ : int
        How many cells there are.
    channel_ : ndarray of shape (n_cells_, n_cells_)
        Row i is the law of what is released for a person in cell i; the identity without randomisation.
    typical_rows_ : DataFrame or None
        One row per cell; None for whole rows.
    rows_given_cell_ : RowsGivenCell or None
        What whole rows are drawn from.
    class_of_cell_ : ndarray, or None
        The most frequent label in each cell.
    planned_ : dict, or None
        With "auto": the bound to expect for each number of cells.

    Examples
    --------
    >>> from fairflows import FairTransport, load_adult
    >>> train, _, test = load_adult().split(random_state=0)
    >>> release = CellRelease(FairTransport(density="counts"), n_cells=4).fit(train)
    >>> release.n_cells_, len(release.read(test).X) == len(test)
    (4, True)
    """

    encoder: Encoder | None = None
    n_cells: int | Literal["auto"] = 16
    _: KW_ONLY
    method: Literal["tree", "quantiles", "kmeans"] = "tree"
    output: Literal["cell", "typical", "row"] = "cell"
    draw_label: bool = True
    randomise: float = 0.0
    target: float | None = None
    delta: float = 0.05
    random_state: int = 0

    encoder_: Encoder = field(init=False)
    view_: NumericView | None = field(init=False)
    partition_: Partition | None = field(init=False)
    planned_: dict[int, float] | None = field(init=False)
    n_cells_: int = field(init=False)
    typical_rows_: pd.DataFrame | None = field(init=False)
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
        """Whether the encoder is, or the cells are drawn anew."""
        return self.randomise > 0 or self._fitted_or_given().is_randomised

    @property
    def draws_rows(self) -> bool:
        """Whether whole rows are released."""
        return self.output == "row"

    @property
    def gives_cell_numbers(self) -> bool:
        """Whether neither typical rows nor whole rows are released."""
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
        """What the columns of whole rows, or of typical rows, hold."""
        self._check_fitted()
        if self.rows_given_cell_ is not None:
            return self.rows_given_cell_.schema
        return Schema({}) if self._typical is None else Schema.of(self._typical)

    def encoded_dtypes(self) -> dict[str, Dtype]:
        """The types of cell numbers, or of the columns of whole rows or typical rows."""
        self._check_fitted()
        if self.rows_given_cell_ is not None:
            return self.rows_given_cell_.dtypes
        if self._typical is not None:
            return {str(name): dtype for name, dtype in self._typical.dtypes.items()}
        return super().encoded_dtypes()

    @property
    def _typical(self) -> pd.DataFrame | None:
        """The typical row of each cell, where these are released."""
        return self.typical_rows_ if self.output == "typical" else None

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
        elif encoder.channel_ is None:
            self.n_cells_, cells = encoder.n_cells_, encoder.cells(_with_coins(rows))
        else:
            raise DataError(f"{type(encoder).__name__} randomises its cells by itself: CellRelease takes plain cells.")
        self.class_of_cell_ = None
        if labels is not None:
            self.class_of_cell_ = self.label_classes[_most_frequent(cells, labels, self.n_cells_)]
        self.typical_rows_ = self.rows_given_cell_ = None
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
        else:
            self.typical_rows_ = _typical_rows(rows.X, cells, self.n_cells_)
        return self

    @property
    def channel_(self) -> FloatArray | None:
        """The law of what is released for a person in each cell; None without randomisation."""
        self._check_fitted()
        return None if self.randomise == 0 else self._channel(self.n_cells_)

    def read(self, X: RowsLike, sensitive_features: Role | None = None, persons: Persons | None = None) -> Rows:
        """The rows of a table as the encoder sees them, checked."""
        self._check_ready()
        return self.encoder_.read(X, sensitive_features, persons)

    def cells(self, rows: Rows) -> Cells:
        """Each row's own cell, before any randomisation: what a certificate counts, and never what is released."""
        self._check_fitted()
        if self.view_ is None or self.partition_ is None:
            return self.encoder_.cells(rows)
        return self.partition_.cells(self.view_.features(self.encoder_.encode(rows)))

    def _encode_rows(self, rows: Rows) -> pd.DataFrame | dict[Hashable, Values]:
        """What is released for each row: its cell's number, the cell's typical row, or a row drawn from the cell."""
        cells = self._released(rows)
        if self.rows_given_cell_ is not None:
            return self.rows_given_cell_.sample(cells)
        if self._typical is not None:
            return self._typical.iloc[cells].reset_index(drop=True)
        return {"cell": cells}

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """The label that each row's released cell suggests."""
        if self.class_of_cell_ is None:
            raise DataError("CellRelease was fitted without a label and cannot predict one.")
        return self.class_of_cell_[self._released(rows)]

    def _names_out(self) -> list[str]:
        if self.rows_given_cell_ is not None:
            return [str(name) for name in self.rows_given_cell_.names]
        return ["cell"] if self._typical is None else list(map(str, self._typical))

    def _given(self) -> Encoder:
        return Unencoded() if self.encoder is None else self.encoder

    def _fitted_or_given(self) -> Encoder:
        return vars(self).get("encoder_", self._given())

    def _released(self, rows: Rows) -> Cells:
        cells = self.cells(rows)
        if self.randomise == 0:
            return cells
        persons = rows.persons_or_fresh()
        replaced = persons.uniform(self.key_, "release: is replaced") < self.randomise
        drawn = (persons.uniform(self.key_, "release: drawn cell") * self.n_cells_).astype(np.intp)
        return np.where(replaced, drawn, cells)

    def _channel(self, k: int) -> FloatArray:
        return (1 - self.randomise) * np.eye(k) + self.randomise / k

    def _cut(self, Z: pd.DataFrame, y: Groups | None, n_classes: int, n_cells: int) -> tuple[NumericView, Partition]:
        by_label = y is not None and self.method != "kmeans"
        view = NumericView.fit(Z, y if by_label else None, n_classes if by_label else 0)
        features = view.features(Z)
        if self.method == "kmeans":
            return view, CentrePartition.fit(features, n_cells, self.random_state)
        if self.method == "quantiles":
            if features.shape[1] > 1 and (y is None or n_classes != 2):
                raise DataError(
                    "method='quantiles' cuts one score into bins: encoded rows of several columns need a label with "
                    "two classes to be scored by."
                )
            return view, QuantilePartition.fit(features, y, n_cells)
        if y is None:
            raise DataError(
                "CellRelease(method='tree') requires y to be passed, but the target y is None: a tree needs a label to "
                "grow for. Or use method='kmeans'."
            )
        return view, TreePartition.fit(features, y, n_cells, self.random_state)

    def _plan_number(self, encoder: Encoder, rows: Rows, Z: pd.DataFrame, y: Groups | None) -> int:
        """The most cells for which the bound to expect is within the target."""
        if self.target is None:
            raise ValueError("n_cells='auto' needs the distance to certify: set target.")
        if not encoder.groups_:
            raise DataError("n_cells='auto' judges cells by what they tell of the groups: pass sensitive_features.")
        self.planned_ = self._plan(encoder, rows, Z, y)
        advice = "Encode more strongly, randomise, or certify on more persons."
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
            laws = counts / n[:, None] @ self._channel(partition.n_cells)
            planned[k] = float(planned_cell_bound(laws, n, delta, eta=1 - self.randomise))
        return planned

    def _check_settings(self) -> None:
        if self.n_cells != "auto" and (not isinstance(self.n_cells, int | np.integer) or self.n_cells < 2):
            raise ValueError(f"n_cells must be 'auto' or a whole number of at least 2; got {self.n_cells!r}.")
        check_choice("method", self.method, ("tree", "quantiles", "kmeans"))
        check_choice("output", self.output, ("cell", "typical", "row"))
        if not 0 <= self.randomise < 1:
            raise ValueError(f"randomise must be in [0, 1); got {self.randomise!r}.")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.target_tags.required = self.method == "tree"
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


def _typical_rows(rows: pd.DataFrame, cells: Cells, n_cells: int) -> pd.DataFrame:
    """The (lower) median of each number column and the mode of each other, cell by cell; of all rows in empty ones."""
    columns = {}
    for name in rows:
        column = rows[name].reset_index(drop=True)
        if has_order(column.dtype):
            by_cell = column.groupby(cells).quantile(0.5, interpolation="lower")
            whole = column.quantile(0.5, interpolation="lower")
        else:
            codes, levels = pd.factorize(column, sort=True, use_na_sentinel=False)
            by_cell = pd.Series(levels.take(_most_frequent(cells, codes, n_cells)))
            whole = column.mode().iloc[0]
        columns[name] = by_cell.reindex(range(n_cells), fill_value=whole).astype(column.dtype)
    return pd.DataFrame(columns).rename_axis("cell")

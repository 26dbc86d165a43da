"""CellRelease: release one of k cells instead of the encoded row, so that a distribution-free certificate exists."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from fairflows.bounds.planning import planned_cell_bound
from fairflows.bounds.spending import delta_of_look
from fairflows.exceptions import DataError, ParameterError
from fairflows.release.numeric_view import NumericView
from fairflows.release.partitions import CentrePartition, Partition, QuantilePartition, TreePartition
from fairflows.table.columns import is_number, is_time, sorted_values
from fairflows.table.frames import is_polars, like, to_pandas
from fairflows.table.ledger import named_persons
from fairflows.table.persons import KeySetting, Persons, new_key

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

_CANDIDATES = (2, 4, 8, 16, 32, 64, 128)
_VALIDATION = 0.3


class CellRelease(TransformerMixin, BaseEstimator):
    """Release the cell that an encoded row falls into: the step after an encoder.

    Few rows of a table can certify nothing about arbitrary continuous laws, but they can about coarse cells, whatever
    the law (`cell_upper_bound`). The cells are functions of z alone, so no attribute is needed to find them.

    Parameters
    ----------
    n_cells : int or "auto"
        The most cells; there are fewer where the encoded rows do not differ enough. "auto" takes the most of
        2, 4, …, 128 for which the bound to expect is within ``target``, judged on persons kept aside in ``fit``, which
        then needs ``sensitive_features``.
    method : {"tree", "quantiles", "kmeans"}
        Leaves of a decision tree for the label; quantile bins of a score, which is z itself where it is one column and
        else a logistic regression of the label; or the nearest of k centres, without a label.
    output : {"cell", "row"}
        Release the cell's number, or its typical row: the median or most frequent value of each column among the rows
        it was fitted on, the same for every group.
    randomise : float
        The probability that a person's cell is replaced by one drawn evenly from all (randomised response). The coin
        is keyed by the person. It shrinks every distance by the factor 1 − randomise.
    target : float, optional
        With "auto": the distance Δ that is to be certified.
    delta : float
        With "auto": the δ that it is to be certified with, of which the first certificate spends its share.
    key : bytes, optional
        The secret behind the coins; a new one at each fit when not given.
    random_state : int
        Seed of the tree, the centres and the split.

    Attributes
    ----------
    n_cells_ : int
        How many cells there are.
    channel_ : ndarray of shape (n_cells_, n_cells_)
        Row i is the law of what is released for a person in cell i; the identity without randomisation.
    typical_rows_ : DataFrame
        One row a cell.
    class_of_cell_ : ndarray, or None
        The most frequent label in each cell.
    planned_ : dict, or None
        With "auto": the bound to expect for each number of cells.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(1000, 2))
    >>> release = CellRelease(n_cells=4).fit(z, z[:, 0] + z[:, 1] > 0)
    >>> release.transform(z).shape, release.n_cells_
    ((1000, 1), 4)
    """

    view_: NumericView
    partition_: Partition
    classes_: Any
    key = KeySetting()

    def __init__(
        self,
        n_cells: int | Literal["auto"] = 16,
        *,
        method: Literal["tree", "quantiles", "kmeans"] = "tree",
        output: Literal["cell", "row"] = "cell",
        randomise: float = 0.0,
        target: float | None = None,
        delta: float = 0.05,
        key: bytes | None = None,
        random_state: int = 0,
    ) -> None:
        self.n_cells = n_cells
        self.method = method
        self.output = output
        self.randomise = randomise
        self.target = target
        self.delta = delta
        self.key = key
        self.random_state = random_state

    def fit(self, Z: Any, y: Any = None, *, sensitive_features: Any = None, rows: Any = None) -> Self:
        """Choose the cells.

        Parameters
        ----------
        Z : frame or array
            Encoded rows.
        y : array, optional
            The label, which a tree and the score of several columns need.
        sensitive_features : array, optional
            The sensitive attribute, to choose the number of cells by; not used otherwise.
        rows : frame, optional
            The rows behind Z in the table's own columns, to take typical ones from; Z itself when not given.
        """
        self._check_settings()
        frame = self._frame(Z, reset=True)
        labels = self._read_label(y, len(frame))
        self.key_ = self.key if self.key is not None else new_key()
        self.planned_ = None
        n_cells = self.n_cells
        if n_cells == "auto":
            if self.target is None:
                raise ValueError("n_cells='auto' needs the distance to certify: set target.")
            self.planned_ = self._plan(frame, labels, sensitive_features)
            n_cells = _most_within(self.planned_, self.target)
        self.view_, self.partition_ = self._cut(frame, labels, n_cells)
        self.n_cells_ = self.partition_.n_cells
        cells = self._cells(frame)
        self.class_of_cell_ = None if labels is None else self.classes_[_most_frequent(cells, labels, self.n_cells_)]
        self.typical_rows_ = _typical_rows(frame if rows is None else to_pandas(rows), cells, self.n_cells_)
        return self

    @property
    def channel_(self) -> FloatArray:
        """The law of what is released for a person in each cell."""
        check_is_fitted(self)
        return self._channel(self.n_cells_)

    def cells(self, Z: Any) -> IntArray:
        """Each row's own cell, before any randomisation: what a certificate counts, and never what is released."""
        check_is_fitted(self)
        return self._cells(self._frame(Z))

    def transform(self, Z: Any) -> Any:
        """Each row's released cell, as its number or as its typical row."""
        released = self._released(Z)
        frame = pd.DataFrame({"cell": released}) if self.output == "cell" else self.typical_rows_.iloc[released]
        index = Z.index if isinstance(Z, pd.DataFrame) else pd.RangeIndex(len(released))
        return like(Z, frame.set_axis(index))

    def predict(self, Z: Any) -> npt.NDArray[Any]:
        """The label that each row's released cell suggests."""
        released = self._released(Z)
        if self.class_of_cell_ is None:
            raise DataError("CellRelease was fitted without a label and cannot predict one.")
        return self.class_of_cell_[released]

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Names of the released columns."""
        check_is_fitted(self)
        names = ["cell"] if self.output == "cell" else [str(name) for name in self.typical_rows_]
        return np.array(names, dtype=object)

    def _released(self, Z: Any) -> IntArray:
        check_is_fitted(self)
        frame = self._frame(Z)
        cells = self._cells(frame)
        if self.randomise == 0:
            return cells
        persons = named_persons(frame) or Persons.of_rows(frame)
        replaced = persons.uniform(self.key_, "release: is replaced") < self.randomise
        drawn = (persons.uniform(self.key_, "release: drawn cell") * self.n_cells_).astype(np.intp)
        return np.where(replaced, drawn, cells)

    def _cells(self, frame: pd.DataFrame) -> IntArray:
        return self.partition_.cells(self.view_.features(frame))

    def _channel(self, k: int) -> FloatArray:
        return (1 - self.randomise) * np.eye(k) + self.randomise / k

    def _cut(self, frame: pd.DataFrame, y: IntArray | None, n_cells: int) -> tuple[NumericView, Partition]:
        by_label = y is not None and self.method != "kmeans"
        view = NumericView.fit(frame, y if by_label else None, len(self.classes_) if by_label else 0)
        features = view.features(frame)
        if self.method == "kmeans":
            return view, CentrePartition.fit(features, n_cells, self.random_state)
        if self.method == "quantiles":
            self._check_score(features.shape[1], y)
            return view, QuantilePartition.fit(features, y, n_cells)
        if y is None:
            raise DataError(
                "CellRelease(method='tree') requires y to be passed, but the target y is None: a tree needs a label to "
                "grow for. Or use method='kmeans'."
            )
        return view, TreePartition.fit(features, y, n_cells, self.random_state)

    def _plan(self, frame: pd.DataFrame, y: IntArray | None, sensitive_features: Any) -> dict[int, float]:
        """The bound to expect for each number of cells, from persons that the cells were not fitted on."""
        if sensitive_features is None:
            raise DataError("n_cells='auto' compares the groups on rows kept aside: pass sensitive_features to fit.")
        group, groups = pd.factorize(np.asarray(sensitive_features))
        persons = named_persons(frame)
        person = np.arange(len(frame)) if persons is None else persons.codes
        rng = np.random.default_rng(self.random_state)
        held = rng.random(person.max() + 1)[person] < _VALIDATION
        # One row a person: the first of a random order.
        order = rng.permutation(np.flatnonzero(held))
        held_rows = order[np.unique(person[order], return_index=True)[1]]
        n = np.bincount(group[held_rows], minlength=len(groups))
        if (n == 0).any() or held.all():
            raise DataError(
                f"n_cells='auto' keeps rows of every group aside, but of {groups[n.argmin()]!r} it has none."
            )
        delta = delta_of_look(self.delta, 1)  # what the first certificate spends
        planned = {}
        for k in _CANDIDATES:
            view, partition = self._cut(frame[~held], None if y is None else y[~held], k)
            cells = partition.cells(view.features(frame.iloc[held_rows]))
            counts = np.zeros((len(groups), partition.n_cells))
            np.add.at(counts, (group[held_rows], cells), 1)
            laws = counts / n[:, None] @ self._channel(partition.n_cells)
            planned[k] = float(planned_cell_bound(laws, n, delta, eta=1 - self.randomise))
        return planned

    def _check_settings(self) -> None:
        if self.n_cells != "auto" and (not isinstance(self.n_cells, int | np.integer) or self.n_cells < 2):
            raise ValueError(f"n_cells must be 'auto' or a whole number of at least 2; got {self.n_cells!r}.")
        if self.method not in ("tree", "quantiles", "kmeans"):
            raise ParameterError("method", "must be 'tree', 'quantiles' or 'kmeans'", self.method)
        if self.output not in ("cell", "row"):
            raise ValueError(f"output must be 'cell' or 'row'; got {self.output!r}.")
        if not 0 <= self.randomise < 1:
            raise ValueError(f"randomise must be in [0, 1); got {self.randomise!r}.")

    def _check_score(self, n_features: int, y: IntArray | None) -> None:
        if n_features > 1 and (y is None or len(self.classes_) != 2):
            raise DataError(
                "method='quantiles' cuts one score into bins: encoded rows of several columns need a label with two "
                "classes to be scored by."
            )

    def _read_label(self, y: Any, n_rows: int) -> IntArray | None:
        if y is None:
            self.classes_ = None
            return None
        column = pd.Series(np.asarray(y).ravel())
        if len(column) != n_rows:
            raise DataError(f"y must have one value a row ({n_rows} rows); got {len(column)}.")
        if column.isna().any():
            raise DataError("y must be known in every row; it has missing values (NaN).")
        self.classes_ = np.array(sorted_values(column))
        return np.searchsorted(self.classes_, column.to_numpy(dtype=self.classes_.dtype))

    def _frame(self, Z: Any, reset: bool = False) -> pd.DataFrame:
        has_names = isinstance(Z, pd.DataFrame) or is_polars(Z)
        frame = to_pandas(Z if has_names else check_array(Z, dtype="numeric"))
        validate_data(self, frame if has_names else frame.to_numpy(), skip_check_array=True, reset=reset)
        if not len(frame):
            raise DataError("Found array with 0 sample(s): a release needs at least one row.")
        return frame

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.target_tags.required = self.method == "tree"
        tags.transformer_tags.preserves_dtype = []  # a cell is a whole number
        return tags


def _most_within(planned: dict[int, float], target: float) -> int:
    """The most cells for which the bound to expect is within the target."""
    within = [k for k, bound in planned.items() if bound <= target]
    if not within:
        k = min(planned, key=lambda k: planned[k])
        raise DataError(
            f"target {target} is out of reach for these rows: the lowest bound to expect is {planned[k]:.3f}, with "
            f"{k} cells. Encode more strongly, randomise, or certify on more persons."
        )
    return max(within)


def _most_frequent(cells: IntArray, values: IntArray, n_cells: int) -> IntArray:
    """The most frequent value in each cell."""
    counts = np.zeros((n_cells, values.max() + 1), dtype=np.int64)
    np.add.at(counts, (cells, values), 1)
    return counts.argmax(axis=1)


def _typical_rows(rows: pd.DataFrame, cells: IntArray, n_cells: int) -> pd.DataFrame:
    """The (lower) median of each number column and the mode of each other, cell by cell; of all rows in empty ones."""
    columns = {}
    for name in rows:
        column = rows[name].reset_index(drop=True)
        if is_number(column.dtype) or is_time(column.dtype):
            by_cell = column.groupby(cells).quantile(0.5, interpolation="lower")
            whole = column.quantile(0.5, interpolation="lower")
        else:
            codes, levels = pd.factorize(column, sort=True, use_na_sentinel=False)
            by_cell = pd.Series(levels.take(_most_frequent(cells, codes, n_cells)))
            whole = column.mode().iloc[0]
        columns[name] = by_cell.reindex(range(n_cells), fill_value=whole).astype(column.dtype)
    return pd.DataFrame(columns).rename_axis("cell")

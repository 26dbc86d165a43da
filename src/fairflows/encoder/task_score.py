"""`ScoredCells`: the base of the encoders that make cells from scores of labels (`fairflows.encoder.scores`)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from sklearn.utils import Tags

from fairflows.encoder.base import FloatArray, LabelledRows, Rows, RowsLike
from fairflows.encoder.group_encoder import ColumnEncoder
from fairflows.encoder.labels import Label, class_probabilities, predicted_labels
from fairflows.encoder.scores import ScoreColumn, checked_columns, score_columns
from fairflows.exceptions import DataError
from fairflows.table.columns import TableColumns
from fairflows.table.table import Role


@dataclass(eq=False, repr=False, kw_only=True)
class ScoredCells(ColumnEncoder):
    """Base of the encoders that make cells from scores of the labels: each cell says what to expect of the labels."""

    unit: Literal["row", "person"] = "row"
    delta: float = 0.05
    n_certify: int | None = None

    is_randomised = True  # a coin of the person decides between two cells where the scores do not

    columns_: dict[Hashable, ScoreColumn] = field(init=False)
    labels_: list[Label] = field(init=False)
    levels_: FloatArray = field(init=False)
    n_cells_: int = field(init=False)

    def _labels_and_features(self, rows: LabelledRows) -> tuple[list[Label], LabelledRows]:
        """The labels, and the rows with columns as scores know them; what both are is remembered."""
        labels = self._read_labels(rows, may_be_numbers=True)
        self.labels_ = [replace(label, values=np.empty(0)) for label in labels]
        self.columns_ = score_columns(rows.X, self.kinds or {}, self.unseen)
        return labels, replace(rows, columns=self._features(rows))

    def _features(self, rows: Rows) -> TableColumns:
        """The columns of rows, checked; values that are unknown are noted."""
        return checked_columns(rows.columns, self.columns_, self.missing_, rows.outside)

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """The label that each row's cell suggests: the most frequent class, or the mean of a label of numbers."""
        return predicted_labels(self.labels_, self._levels(rows))

    def predict_proba(self, X: RowsLike, *, sensitive_features: Role | None = None) -> FloatArray | list[FloatArray]:
        """The class probabilities that each row's cell suggests; a list where there are several labels."""
        with self._reading(X, sensitive_features) as rows:
            return class_probabilities(self.labels_, self._levels(rows))

    def _levels(self, rows: Rows) -> FloatArray:
        """What each row's cell says of the labels."""
        if not self.labels_:
            raise DataError(f"{type(self).__name__} was fitted without a label and cannot predict one.")
        return self.levels_[self.cells(rows)]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []  # a cell is a whole number
        return tags

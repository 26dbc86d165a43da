"""The label of a table: classes, or a number to predict."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped

from fairflows.arrays import NDArray
from fairflows.exceptions import DataError, warn_user
from fairflows.table.columns import check_column, is_continuous, places_in, shown, sorted_values
from fairflows.table.frames import ColumnLike, Frame, is_polars

FloatArray = NDArray[np.float64]
LabelsLike: TypeAlias = "ColumnLike | Frame"
"""One label per row."""


@dataclass(frozen=True)
class Label:
    """The label."""

    classes: np.ndarray | None  # its values; None for a number
    # Mean and standard deviation of a number.
    centre: float = 0.0
    scale: float = 1.0
    # class numbers, or numbers; of the rows it was read from, and not kept with a model
    values: Shaped[NDArray, " n"] = field(default_factory=lambda: np.empty(0), repr=False)

    @classmethod
    def read(cls, y: LabelsLike, n_rows: int) -> Label:
        """Read a column of labels: many different numbers are a number to predict, all else are classes."""
        column = pd.Series(np.asarray(y, dtype=object if isinstance(y, list | tuple) else None).ravel()).infer_objects()
        if len(column) != n_rows:
            raise DataError(f"y must have one value per row ({n_rows} rows); got {len(column)}.")
        if column.isna().any():
            raise DataError(f"y must be known in every row; {int(column.isna().sum())} values are missing (NaN).")
        check_column("y", column)
        if is_continuous(column):
            numbers = column.to_numpy(dtype=np.float64)
            return cls(None, float(numbers.mean()), float(numbers.std()), numbers)
        values = sorted_values(column)
        if len(values) < 2:
            raise DataError(f"y must have at least two classes; every row is {shown(values[0])}.")
        several_types = len({type(value) for value in values}) > 1  # which NumPy would make text of
        codes = places_in(pd.Index(values, dtype=object), column)
        return cls(np.array(values, dtype=object if several_types else None), values=codes)

    def take(self, places: Int[NDArray[np.intp], " m"]) -> Label:
        """Return the label of some of the rows; of no rows, what is kept with a model."""
        return replace(self, values=self.values[places])

    @property
    def class_values(self) -> np.ndarray:
        """Its classes; none for a number."""
        return np.empty(0) if self.classes is None else self.classes

    def without(self, is_rare: Bool[NDArray[np.bool_], " n_classes"]) -> Label:
        """Return the label without some of its classes, whose rows count as of the most frequent other one."""
        if self.classes is None or not is_rare.any():
            return self
        counts = np.where(is_rare, -1, np.bincount(self.values, minlength=len(self.classes)))
        place = np.cumsum(~is_rare) - 1
        place[is_rare] = place[counts.argmax()]
        return replace(self, classes=self.classes[~is_rare], values=place[self.values])

    def lacking(self, places: Int[NDArray[np.intp], " m"]) -> Bool[NDArray[np.bool_], " n_classes"]:
        """Return which classes no row at these places has; none for a number."""
        return np.bincount(self.values[places] if len(self.class_values) else [], minlength=len(self.class_values)) == 0

    def warn_of_rare(self, is_rare: Bool[NDArray[np.bool_], " n_classes"], what: str) -> None:
        """Warn that no score is learnt for some classes, because no person who `what` has them."""
        if self.classes is not None and is_rare.any():
            counts = np.bincount(self.values, minlength=len(self.classes))[is_rare]
            rare = ", ".join(f"{shown(c)} ({n:,})" for c, n in zip(self.classes[is_rare].tolist(), counts, strict=True))
            warn_user(
                f"Classes of the label are too rare to be among the persons who {what} (rows): {rare}. No "
                "score is learnt for them, and they are drawn with the rest."
            )

    def targets(self) -> Float[FloatArray, "n n_targets"]:
        """Return the numbers that represent each row's label, one column or one per class; their mean is kept."""
        if self.classes is None:
            return ((self.values - self.centre) / self.scale)[:, None]
        if len(self.classes) == 2:
            return (self.values == 1).astype(np.float64)[:, None]
        return np.eye(len(self.classes))[self.values]

    def cell_means(self, cells: Int[NDArray[np.intp], " n"], n_cells: int) -> Float[FloatArray, "{n_cells} n_targets"]:
        """Return the means of the targets in each cell; over all rows where a cell has none."""
        targets, total = self.targets(), np.bincount(cells, minlength=n_cells)
        sums = np.stack([np.bincount(cells, weights=column, minlength=n_cells) for column in targets.T], axis=1)
        return np.where(total[:, None] > 0, sums / np.maximum(total, 1)[:, None], targets.mean(axis=0))

    def predict(self, means: Float[FloatArray, "n n_targets"]) -> Shaped[np.ndarray, " n"]:
        """Predict the most probable class, or the mean of a number, from means of the targets."""
        if self.classes is None:
            return means[:, 0] * self.scale + self.centre
        if len(self.classes) == 2:
            return self.classes[(means[:, 0] > 0.5).astype(np.intp)]
        return self.classes[means.argmax(axis=1)]


def label_columns(y: LabelsLike) -> pd.DataFrame:
    """Return labels as columns with names; a label without a name is called y."""
    if is_polars(y):
        y = y.to_pandas()
    if isinstance(y, pd.DataFrame):
        return y
    column = y if isinstance(y, pd.Series) else pd.Series(np.asarray(y).ravel())
    return column.to_frame("y" if column.name is None else column.name)


def known_label(label: Label | None) -> Label:
    """Return the label that an encoder predicts; raise where it was fitted without one."""
    if label is None:
        raise DataError("The encoder was fitted without a label and cannot predict one.")
    return label

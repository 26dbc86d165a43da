"""The label as numbers whose mean is kept by encoders, and the classifiers that predict it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.exceptions import DataError
from fairflows.table.columns import is_number, places_in, shown, sorted_values
from fairflows.table.frames import ColumnLike, Frame, is_polars

FloatArray = npt.NDArray[np.float64]
LabelsLike: TypeAlias = "ColumnLike | Frame"
"""One label per row."""

_MOST_FRACTIONS, _MOST_INTEGERS = 20, 100  # different numbers that may still be the names of classes


@dataclass(frozen=True)
class Label:
    """The label."""

    classes: np.ndarray | None  # its values; None for a number
    # Mean and standard deviation of a number.
    centre: float = 0.0
    scale: float = 1.0
    # (n_rows,): class numbers, or numbers; of the rows it was read from, and not kept with a model
    values: npt.NDArray = field(default_factory=lambda: np.empty(0), repr=False)

    @classmethod
    def read(cls, y: LabelsLike, n_rows: int) -> Label:
        """Read a column of labels: many different numbers are a number to predict, all else are classes."""
        column = label_column(y, n_rows)
        if is_continuous(column):
            numbers = column.to_numpy(dtype=np.float64)
            if not np.isfinite(numbers).all():
                raise DataError(f"y must hold finite numbers; {int((~np.isfinite(numbers)).sum())} are infinite.")
            return cls(None, float(numbers.mean()), float(numbers.std()), numbers)
        classes, codes = label_classes(column)
        return cls(classes, values=codes)

    @property
    def class_values(self) -> np.ndarray:
        """Its classes; none for a number."""
        return np.empty(0) if self.classes is None else self.classes

    @property
    def width(self) -> int:
        """How many numbers stand for it: one for a number or two classes, one per class for more."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

    def targets(self) -> FloatArray:
        """Return the numbers that stand for each row's label, (n_rows, width): what is kept is their mean."""
        if self.classes is None:
            return ((self.values - self.centre) / self.scale)[:, None]
        if len(self.classes) == 2:
            return (self.values == 1).astype(np.float64)[:, None]
        return np.eye(len(self.classes))[self.values]

    def probabilities(self, means: FloatArray) -> FloatArray:
        """Class probabilities behind means of the targets, (n, n_classes)."""
        if self.classes is None:
            raise DataError("The label is a number and has no class probabilities.")
        positive = np.clip(means, 0, 1)
        if len(self.classes) == 2:
            return np.concatenate([1 - positive, positive], axis=1)
        total = positive.sum(axis=1, keepdims=True)
        return np.where(total > 0, positive / np.where(total > 0, total, 1), 1 / len(self.classes))

    def predict(self, means: FloatArray) -> np.ndarray:
        """Predict the most probable class, or the mean of a number."""
        if self.classes is None:
            return means[:, 0] * self.scale + self.centre
        return self.classes[self.probabilities(means).argmax(axis=1)]


def label_column(y: LabelsLike, n_rows: int) -> pd.Series:
    """Return a label as a column of its natural type, known in every row."""
    column = pd.Series(np.asarray(y, dtype=object if isinstance(y, list | tuple) else None).ravel()).infer_objects()
    if len(column) != n_rows:
        raise DataError(f"y must have one value per row ({n_rows} rows); got {len(column)}.")
    if column.isna().any():
        raise DataError(f"y must be known in every row; {int(column.isna().sum())} values are missing (NaN).")
    return column


def is_continuous(column: pd.Series) -> bool:
    """Whether a label is a number to predict: more different numbers than anybody names classes by."""
    if not is_number(column.dtype):
        return False
    different = column.drop_duplicates().to_numpy(dtype=np.float64)
    whole = np.isfinite(different).all() and (different == np.floor(different)).all()
    return len(different) > (_MOST_INTEGERS if whole else _MOST_FRACTIONS)


def label_classes(column: pd.Series) -> tuple[np.ndarray, npt.NDArray[np.intp]]:
    """Return the classes of a label, at least two, and each row's class number."""
    values = sorted_values(column)
    if len(values) < 2:
        raise DataError(f"y must have at least two classes; every row is {shown(values[0])}.")
    several_types = len({type(value) for value in values}) > 1  # which NumPy would make text of
    codes = places_in(pd.Index(values, dtype=object), column)
    return np.array(values, dtype=object if several_types else None), codes


def label_columns(y: LabelsLike) -> pd.DataFrame:
    """Labels as columns with names; a label without a name is called y."""
    if is_polars(y):
        y = y.to_pandas()
    if isinstance(y, pd.DataFrame):
        return y
    column = y if isinstance(y, pd.Series) else pd.Series(np.asarray(y).ravel())
    return column.to_frame("y" if column.name is None else column.name)


class Classifier(Protocol):
    """A scikit-learn classifier that gives probabilities; it is cloned before it is fitted."""

    classes_: np.ndarray

    def predict_proba(self, X: object) -> np.ndarray:
        """Class probabilities, (n_rows, n_classes)."""


def check_classifier(classifier: object) -> None:
    """Raise for a classifier that gives no probabilities."""
    if classifier is not None and not hasattr(classifier, "predict_proba"):
        name = type(classifier).__name__
        raise DataError(f"classifier must give probabilities (predict_proba); {name} gives none.")


def known_label(label: Label | None) -> Label:
    """Return the label that an encoder predicts; raise where it was fitted without one."""
    if label is None:
        raise DataError("The encoder was fitted without a label and cannot predict one.")
    return label

"""The arguments of `fit`: rows with their label and sensitive attribute, as users bring them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_array

from fairflows.encoder.label import LabelsLike, label_columns
from fairflows.encoder.rows import RowsLike
from fairflows.table.columns import Dtype, own_type, own_types
from fairflows.table.frames import has_names, materialised, to_pandas
from fairflows.table.persons import Persons, Places
from fairflows.table.roles import Role
from fairflows.table.table import Table


@dataclass(frozen=True)
class FitArguments:
    """The arguments of `fit`."""

    X: Table | pd.DataFrame | np.ndarray
    y: LabelsLike | None
    sensitive_features: Role | None

    @classmethod
    def of(cls, X: RowsLike, y: LabelsLike | None, sensitive_features: Role | None) -> FitArguments:
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
    def labels(self) -> pd.DataFrame:
        """The labels, one column each, which a `Table` may bring itself."""
        if self.y is not None:
            return label_columns(self.y)
        return self.X.label_columns() if isinstance(self.X, Table) else pd.DataFrame()

    def households(self, persons: Persons) -> Places:
        """Return the number of each row's household; persons are households where the table states none."""
        if isinstance(self.X, Table) and self.X.household is not None:
            return self.X.households
        return persons.codes

    @property
    def types(self) -> dict[Hashable, Dtype]:
        """The types of the columns, where they have names."""
        return {} if isinstance(self.X, np.ndarray) else dict(self.frame.dtypes)

    @property
    def label_place(self) -> int | None:
        """The number of features before the label; None where the label is not a column of the table."""
        return self.X.label_place if self.y is None and isinstance(self.X, Table) else None

    def take(self, places: Places) -> FitArguments:
        """Return the rows at these places, their columns in the types that these rows have."""
        a = self.sensitive_features
        if isinstance(self.X, Table):
            X = self.X.take(places)
            X.X, X.a, X.more_labels = own_types(X.X), own_type(X.a), own_types(X.more_labels)
            X.y = None if X.y is None else own_type(X.y)
        else:
            X = _take_values(self.X, places)
        y = None if self.y is None else _take_values(self.y, places)
        return FitArguments(X, y, a if a is None or isinstance(a, str | int) else _take_values(a, places))


def _take_values(values: Any, places: Places) -> Any:
    """Return the values at these places, in the types that these values have."""
    if has_names(values):
        return own_types(to_pandas(values).iloc[places])
    if isinstance(values, pd.Series):
        return own_type(values.iloc[places])
    return np.asarray(values)[places]

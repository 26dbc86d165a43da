"""The values that a categorical column takes, and their numbers."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.codec.outside import Outside
from fairflows.exceptions import DataError
from fairflows.table.columns import shown, sorted_values

OTHER = "other"
"""The value that stands for all unseen ones where these are accepted."""


class Levels:
    """The values of a categorical column, numbered 0, 1, ...

    Parameters
    ----------
    name : str
        The column, for error messages.
    values : sequence
        Its values without the missing one, in the order of their numbers.
    dtype : dtype
        The column's type, which decoded columns get again.
    has_missing : bool
        Whether a missing value counts as a level, the last one.
    unseen : {"error", "other"}
        Whether a value that is not among the levels is refused or counted as the level "other" (text columns only;
        it is added when the column has no such value).
    """

    def __init__(
        self,
        name: str,
        values: list[Any],
        dtype: Any,
        has_missing: bool = False,
        unseen: Literal["error", "other"] = "error",
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.has_missing = has_missing
        self.takes_unseen = unseen == "other" and all(isinstance(value, str) for value in values)
        if self.takes_unseen and OTHER not in values:
            values = [*values, OTHER]
            if isinstance(dtype, pd.CategoricalDtype):
                self.dtype = pd.CategoricalDtype([*dtype.categories, OTHER], ordered=dtype.ordered)
        self.index = pd.Index(values, dtype=object)

    @classmethod
    def fit(
        cls,
        name: str,
        column: pd.Series,
        y: npt.NDArray[np.float64] | None = None,
        unseen: Literal["error", "other"] = "error",
    ) -> Levels:
        """The levels of a column: all that its type declares, or all that occur.

        They are numbered by the mean of `y` over their rows, so that neighbours behave alike; an ordered type keeps
        its own order, and without `y` the values are sorted.
        """
        declared = column.dtype.categories.tolist() if isinstance(column.dtype, pd.CategoricalDtype) else None
        values = sorted_values(column) if declared is None else declared
        is_ordered = declared is not None and column.dtype.ordered
        levels = cls(name, values, column.dtype, bool(column.isna().any()), unseen)
        if y is None or is_ordered:
            return levels
        codes = levels.codes(column)
        counts = np.bincount(codes, minlength=len(levels))
        sums = np.bincount(codes, weights=y, minlength=len(levels))
        rates = (sums + y.mean()) / (counts + 1)  # one row's worth of the overall rate, so that no level is without
        known = np.argsort(rates[: len(levels.index)], kind="stable")
        levels.index = levels.index[known]
        return levels

    def __len__(self) -> int:
        return len(self.index) + self.has_missing

    def codes(self, column: pd.Series, found: Outside | None = None) -> npt.NDArray[np.intp]:
        """The number of each value.

        With `found`, the rows that hold an unseen value, or miss one where none was missing, are noted there; the
        latter are refused otherwise.
        """
        if isinstance(column.dtype, pd.CategoricalDtype):  # look up each category once, not each row
            of_category = np.append(self.index.get_indexer(column.dtype.categories.astype(object)), -1)
            codes = of_category[column.cat.codes.to_numpy()]
        else:
            codes = self.index.get_indexer(column.astype(object))
        missing = column.isna().to_numpy()
        codes[missing] = self.code_of_missing(missing, found)
        unseen = codes < 0
        if unseen.any():
            if not self.takes_unseen:
                value = column.to_numpy(dtype=object)[unseen.argmax()]
                raise DataError(
                    f"Column {self.name!r} must hold one of its {len(self.index)} categories from the rows it was "
                    f"fitted on; {unseen.sum():,} values do not, the first is {shown(value)}. Text columns take them "
                    f"as {OTHER!r} with unseen='other'."
                )
            if found is not None:
                found.note(self.name, "unseen", unseen)
            codes[unseen] = self.index.get_loc(OTHER)
        return codes

    named = codes

    def code_of_missing(self, missing: npt.NDArray[np.bool_], found: Outside | None) -> int:
        """The number of a missing value; where none was missing in training, that of a level which stands in for it."""
        if self.has_missing or not missing.any():
            return len(self.index)
        if found is None:
            raise DataError(
                f"Column {self.name!r} had no missing values in the rows it was fitted on; {missing.sum():,} values "
                "are missing now."
            )
        found.note(self.name, "missing", missing)
        return int(self.index.get_loc(OTHER)) if self.takes_unseen else 0

    def column(self, codes: npt.NDArray[np.intp]) -> pd.Series:
        """The values with these numbers; a number outside gets the nearest level."""
        codes = np.clip(codes, 0, len(self) - 1)
        missing = codes == len(self.index)
        if isinstance(self.dtype, pd.CategoricalDtype):
            of_level = self.dtype.categories.get_indexer(self.index)
            return pd.Series(pd.Categorical.from_codes(np.append(of_level, -1)[codes], dtype=self.dtype))
        values = self.index.to_numpy()[np.where(missing, 0, codes)] if len(self.index) else np.full(len(codes), None)
        column = pd.Series(values, dtype=object)
        if missing.any():
            column[missing] = None
        return column.astype(self.dtype)

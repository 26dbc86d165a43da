"""The columns of a table, each taken out of it once."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

Places = npt.NDArray[np.intp] | npt.NDArray[np.bool_] | slice


class TableColumns:
    """Columns of a table, each taken out of it once, when it is first asked for.

    A frame makes a new object whenever it is asked for a column. For a single row that takes longer than most of what
    is done with the column, and many parts of an encoder ask for it. Names, rows and columns are asked for as those of
    a frame are: ``for name in X``, ``name in X``, ``len(X)``, ``X[name]``.

    Parameters
    ----------
    table : DataFrame or dict of Series
        The table, whose columns have different names; or columns of the same index, by their names.
    names : sequence, optional
        The columns, in their order; all of the table's when not given.

    Examples
    --------
    >>> X = TableColumns(pd.DataFrame({"age": [31, 45], "town": ["Ulm", "Bonn"], "sex": ["f", "m"]})).without(["sex"])
    >>> X.names, len(X), X["age"].tolist()
    (['age', 'town'], 2, [31, 45])
    >>> X.with_columns({"age": pd.Series([32, 46])}).frame.shape
    (2, 2)
    """

    def __init__(
        self, table: pd.DataFrame | dict[Hashable, pd.Series], names: Sequence[Hashable] | None = None
    ) -> None:
        self._table = table
        self.names: list[Hashable] = list(table if names is None else names)
        self._columns: dict[Hashable, pd.Series] = {}  # those taken out of the table
        self._changed: dict[Hashable, pd.Series] = {}  # those that take the place of the table's own

    @classmethod
    def of(cls, X: pd.DataFrame | TableColumns) -> TableColumns:
        """The columns of a frame; those of `TableColumns` as they are."""
        return X if isinstance(X, TableColumns) else cls(X)

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __getitem__(self, name: Hashable) -> pd.Series:
        if name not in self._known:  # the table may have it, but it was left out: the sensitive column, say
            raise KeyError(name)
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._table[name]
        return column

    @cached_property
    def _known(self) -> frozenset[Hashable]:
        return frozenset(self.names)

    @property
    def index(self) -> pd.Index:
        """The names of the rows."""
        table = self._table
        return next(column.index for column in table.values()) if isinstance(table, dict) else table.index

    def part(self, names: Sequence[Hashable]) -> TableColumns:
        """The columns with these names, in this order."""
        if list(names) == self.names:
            return self
        part = TableColumns(self._table, names)
        part._columns, part._changed = self._columns, self._changed
        return part

    def without(self, names: Collection[Hashable]) -> TableColumns:
        """The columns but those with these names."""
        return self.part([name for name in self.names if name not in names])

    def with_columns(self, changed: Mapping[Hashable, pd.Series]) -> TableColumns:
        """The columns with some that take the place of others; they have the same rows."""
        if not changed:
            return self
        whole = TableColumns(self._table, self.names)
        whole._columns, whole._changed = {**self._columns, **changed}, {**self._changed, **changed}
        return whole

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The columns as a frame."""
        if isinstance(self._table, dict):
            return pd.DataFrame({name: self[name] for name in self.names}, index=self.index, copy=False)
        frame = self._table if self._table.columns.tolist() == self.names else self._table[self.names]
        changed = [name for name in self.names if name in self._changed]
        if changed:
            frame = frame.copy(deep=False)
            for name in changed:
                frame[name] = self._changed[name]
        return frame

    def take(self, rows: Places) -> TableColumns:
        """The same columns of some rows."""
        return TableColumns(self.frame.iloc[rows])

    def chunks(self, n_rows: int) -> Iterator[tuple[slice, TableColumns]]:
        """The rows, so many at a time, with their places."""
        if len(self) <= n_rows:
            yield slice(0, len(self)), self
            return
        for start in range(0, len(self), n_rows):
            chunk = slice(start, min(start + n_rows, len(self)))
            yield chunk, self.take(chunk)

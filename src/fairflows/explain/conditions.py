"""Conditions on recourse: columns that must not change, or may change in one direction only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.exceptions import DataError
from fairflows.table.columns import check_known, is_number, is_time


@dataclass(frozen=True)
class Conditions:
    """Columns that must stay as they are, that may only rise, and that may only fall."""

    keep: tuple[str, ...] = ()
    increase: tuple[str, ...] = ()
    decrease: tuple[str, ...] = ()

    @classmethod
    def on(
        cls, columns: pd.DataFrame, keep: Sequence[str], increase: Sequence[str], decrease: Sequence[str]
    ) -> Conditions:
        """The conditions, checked against a table's columns."""
        lists = {"keep": keep, "increase": increase, "decrease": decrease}
        given = {role: (names,) if isinstance(names, str) else tuple(names) for role, names in lists.items()}
        for role, names in given.items():
            for name in names:
                check_known(name, columns.columns, role)
                if role != "keep" and not has_order(columns[name]):
                    raise DataError(f"{role} needs a column of numbers or times; {name!r} is {columns[name].dtype}.")
        return cls(**given)

    def restore(self, before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
        """`after` with every forbidden change undone."""
        restored = after.copy()
        for name in {*self.keep, *self.increase, *self.decrease}:
            forbidden = self._forbidden(name, before[name], after[name])
            restored[name] = after[name].where(~forbidden, before[name].array)
        return restored

    def _forbidden(self, name: str, before: pd.Series, after: pd.Series) -> npt.NDArray[np.bool_]:
        forbidden = np.zeros(len(after), dtype=bool)
        if name in self.keep:
            forbidden |= ~_same(before, after)
        if name in self.increase:
            forbidden |= after.to_numpy() < before.to_numpy()
        if name in self.decrease:
            forbidden |= after.to_numpy() > before.to_numpy()
        return forbidden


def has_order(column: pd.Series) -> bool:
    """Whether a column's values can rise and fall."""
    return is_number(column.dtype) or is_time(column.dtype)


def ordered_values(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns that can rise and fall, as numbers; times in days."""
    names = [name for name in frame if has_order(frame[name])]
    return pd.DataFrame({name: _as_numbers(frame[name]) for name in names}, index=frame.index)


def changed_categories(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """In which rows each other column has another value."""
    names = [name for name in before if not has_order(before[name])]
    return pd.DataFrame({name: ~_same(before[name], after[name]) for name in names}, index=before.index)


def _as_numbers(column: pd.Series) -> npt.NDArray[np.float64]:
    if is_number(column.dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    zero = pd.Timedelta(0) if column.dtype.kind == "m" else pd.Timestamp(0, tz=getattr(column.dtype, "tz", None))
    return ((column - zero) / pd.Timedelta(days=1)).to_numpy(dtype=np.float64)


def _same(before: pd.Series, after: pd.Series) -> npt.NDArray[np.bool_]:
    """Where two columns agree; a missing value agrees with a missing one."""
    missing = before.isna().to_numpy() & after.isna().to_numpy()
    return (before.to_numpy() == after.to_numpy()) | missing

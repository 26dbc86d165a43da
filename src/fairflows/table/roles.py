"""The roles of columns: how a user names the label, the sensitive attribute, persons and times, and what is refused."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import pandas as pd

from fairflows.exceptions import DataError
from fairflows.table.columns import check_known, has_order, shown
from fairflows.table.frames import ColumnLike, Frame, is_polars
from fairflows.table.grouping import Cuts, Grouping, MissingGroup, joined

Role: TypeAlias = "str | int | Sequence[str] | ColumnLike | Frame"
"""A column's name, several names, or the values themselves."""


def role_column(table: pd.DataFrame, given: Role, role: str) -> tuple[pd.Series, list[Hashable]]:
    """Return the column that plays a role, and the names of the table's columns that it is made of.

    `given` is a column's name, or one value per row. Several columns, by name or as a frame, make intersectional
    groups; only the role "sensitive" may have several. A list with one text per row counts as names if one of them is
    the name of a column.
    """
    columns, used = role_columns(table, given, role)
    return joined(columns) if isinstance(columns, pd.DataFrame) else columns, used


def role_columns(table: pd.DataFrame, given: Role, role: str) -> tuple[pd.Series | pd.DataFrame, list[Hashable]]:
    """Return the columns that play a role, and the names of those that are in the table."""
    if isinstance(given, str | int):
        check_known(given, table, role)
        return table[given], [given]
    if _names_columns(given, table):
        names = list(dict.fromkeys(given))
        for column in names:
            check_known(column, table, role)
        return _checked_number(table[names], role), list(names)
    if is_polars(given):
        given = given.to_pandas()
    if isinstance(given, pd.DataFrame):
        return _checked_number(given.set_axis(table.index) if len(given) == len(table) else given, role), []
    values = given.to_numpy() if isinstance(given, pd.Series) else np.asarray(given)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (len(table),):
        raise DataError(f"The {role} values must be one per row ({len(table)} rows); got shape {values.shape}.")
    name = given.name if isinstance(given, pd.Series | pd.Index) else None
    return pd.Series(values, index=table.index, name=role if name is None else name), []


def _names_columns(given: Role, table: pd.DataFrame) -> TypeGuard[Sequence[str]]:
    if not (isinstance(given, list | tuple) and given and all(isinstance(name, str) for name in given)):
        return False
    return len(given) != len(table) or any(name in table for name in given)


def _checked_number(columns: pd.DataFrame, role: str) -> pd.DataFrame:
    if columns.shape[1] > 1 and role == "identifier":
        raise DataError(f"{role} must be one column; got {list(columns)!r}.")
    return columns


def checked_time(name: str | None, frame: pd.DataFrame, X: pd.DataFrame) -> str | None:
    """Return the name of the column of time, which must be a feature that orders rows."""
    if name is None:
        return None
    check_known(name, frame.columns, "time")
    if name not in X:
        raise DataError(f"time must name a feature; {name!r} is the sensitive column, the label or the identifier.")
    column = X[name]
    if not has_order(column.dtype):
        place = _first_unordered(column)
        raise DataError(
            f"The time column {name!r} must hold numbers or times, which order the rows of a person; it is "
            f"{column.dtype}, such as {shown(column.iloc[place])} in row {place:,}. Write years as numbers, and days "
            "as YYYY-MM-DD."
        )
    if column.isna().any():
        raise DataError(
            f"The time column {name!r} must be known in every row; {int(column.isna().sum()):,} are missing, the first "
            f"in row {int(column.isna().to_numpy().argmax()):,}."
        )
    return name


def _first_unordered(column: pd.Series) -> int:
    """Return the place of the first text that is no number, or no day where no text is a number."""
    texts = column.where(column.isna(), column.astype(str)).reset_index(drop=True)
    is_read = pd.to_numeric(texts, errors="coerce").notna()
    if not is_read.any():
        is_read = pd.to_datetime(texts, errors="coerce", format="ISO8601", utc=True).notna()
    return int((~is_read & texts.notna()).to_numpy().argmax())


def check_uncut(
    uncut: Sequence[str],
    sensitive: Sequence[str],
    cuts: Cuts | Grouping | None,
    merge_small: int,
    missing_group: MissingGroup,
) -> None:
    """Raise where an attribute that is not cut is not the only sensitive column, or is grouped in another way, too."""
    if not uncut:
        return
    if len(sensitive) > 1 or list(uncut) != list(sensitive):
        raise DataError(
            f"uncut must name the only sensitive column; got uncut = {list(uncut)!r} and sensitive = "
            f"{list(sensitive)!r}. Beside others, cut it into groups (cuts=...)."
        )
    for name, is_given in (
        ("cuts", bool(cuts)),
        ("merge_small", bool(merge_small)),
        ("missing_group='group'", missing_group == "group"),
    ):
        if is_given:
            raise DataError(f"uncut makes no groups that {name} could change: leave one of the two out.")


def check_one_role_each(used: Mapping[str, list[Any]]) -> None:
    """Raise where a column was named for two roles."""
    roles: dict[Any, str] = {}
    for role, columns in used.items():
        for column in columns:
            if column in roles:
                raise DataError(f"Column {column!r} cannot be both the {roles[column]} and the {role} column.")
            roles[column] = role

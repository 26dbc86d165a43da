"""Which values play a role in a table: the sensitive attribute, the label, the identifier."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias, TypeGuard

import numpy as np
import pandas as pd

from fairflows.exceptions import DataError, ParameterError
from fairflows.table.columns import check_known
from fairflows.table.frames import ColumnLike, Frame, is_polars

Role: TypeAlias = "str | int | Sequence[str] | ColumnLike | Frame"
"""A column's name, several names, or the values themselves."""


def role_column(frame: pd.DataFrame, given: Role, role: str) -> tuple[pd.Series, list[Hashable]]:
    """The column that plays a role, and which columns of the frame it takes up.

    Parameters
    ----------
    frame : DataFrame
        The table.
    given : str, list of str, array or frame
        A column's name, or one value per row. Several columns, by name or as a frame, make intersectional groups. A
        list of text with one value per row counts as names where one of them is a column's.
    role : str
        "sensitive", "label" or "identifier"; only the first may be several columns.
    """
    if isinstance(given, str | int):
        check_known(given, frame.columns, role)
        return frame[given], [given]
    if _names_columns(given, frame):
        for column in given:
            check_known(column, frame.columns, role)
        return _joined(frame[list(given)], role), list(given)
    if is_polars(given):
        given = given.to_pandas()
    if isinstance(given, pd.DataFrame):
        return _joined(given.set_axis(frame.index) if len(given) == len(frame) else given, role), []
    values = given.to_numpy() if isinstance(given, pd.Series) else np.asarray(given)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (len(frame),):
        raise DataError(f"The {role} values must be one per row ({len(frame)} rows); got shape {values.shape}.")
    name = given.name if isinstance(given, pd.Series | pd.Index) else None
    return pd.Series(values, index=frame.index, name=role if name is None else name), []


def _names_columns(given: Role, frame: pd.DataFrame) -> TypeGuard[Sequence[str]]:
    if not (isinstance(given, list | tuple) and given and all(isinstance(name, str) for name in given)):
        return False
    return len(given) != len(frame) or any(name in frame.columns for name in given)


def _joined(columns: pd.DataFrame, role: str) -> pd.Series:
    """One group for each combination of values that occurs: 'sex=female, race=black'."""
    if columns.shape[1] == 1:
        return columns.iloc[:, 0]
    if role != "sensitive":
        raise ParameterError(role, "must be one column", list(columns))
    texts = [columns[name].map(lambda value, name=name: f"{name}={value}", na_action="ignore") for name in columns]
    joined = texts[0].str.cat(texts[1:], sep=", ")
    if joined.nunique() != len(columns.dropna().drop_duplicates()):
        raise DataError(f"The values of {', '.join(map(repr, columns))} run together when joined; rename some.")
    return joined.rename(" and ".join(map(str, columns)))

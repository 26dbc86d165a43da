"""The same kind of frame out as came in: pandas, polars or NumPy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd

from fairflows.exceptions import DataError


def is_polars(data: Any) -> bool:
    """Whether `data` is a polars frame or series (without importing polars)."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(data, polars.DataFrame | polars.Series)


def to_pandas(data: Any, columns: list[str] | None = None) -> pd.DataFrame:
    """A pandas frame of `data`: a pandas or polars frame, a mapping of columns, or a two-dimensional array.

    Columns of an array are named ``columns``, else x0, x1, ...; duplicate column names are refused, since no
    value could be given back to the right one.
    """
    if is_polars(data):
        frame = data.to_pandas()
    elif isinstance(data, pd.DataFrame):
        frame = data
    elif isinstance(data, dict):
        frame = pd.DataFrame(data)
    else:
        array = np.asarray(data)
        if array.ndim != 2:
            raise DataError(
                f"A table needs two dimensions, rows and columns; got an array of shape {array.shape}. "
                "Reshape your data: a single column is array.reshape(-1, 1)."
            )
        frame = pd.DataFrame(array, columns=columns or [f"x{j}" for j in range(array.shape[1])])
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise DataError(f"Column names must be unique; {str(repeated[0])!r} occurs more than once.")
    return frame


def like(original: Any, frame: pd.DataFrame) -> Any:
    """`frame` as the kind of object that `original` is."""
    if is_polars(original):
        import polars

        return polars.from_pandas(frame)
    if isinstance(original, np.ndarray):
        return frame.to_numpy()
    return frame

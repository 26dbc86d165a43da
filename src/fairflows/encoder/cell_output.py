"""Encoded cells as a frame: the table's own categories, one-hot columns, or codes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.codec.cell_codec import Bins, CellCodec
from fairflows.density.cell_density import level_columns, one_hot
from fairflows.encoder.cell_model import one_hot_names
from fairflows.encoder.checks import Output
from fairflows.exceptions import DataError
from fairflows.table.columns import shown
from fairflows.table.schema import Schema

IntArray = npt.NDArray[np.int64]


def to_output(codec: CellCodec, cells: IntArray, output: Output) -> pd.DataFrame:
    """Cells as the kind of frame that was asked for."""
    if output == "categories":
        return codec.decode(cells)
    if output == "codes":
        return pd.DataFrame({"cell": cells})
    return pd.DataFrame(one_hot(codec.levels_of(cells), codec.shape_).toarray(), columns=one_hot_names(codec))


def output_names(codec: CellCodec, output: Output) -> list[str]:
    """The columns of that frame."""
    if output == "one-hot":
        return one_hot_names(codec)
    return ["cell"] if output == "codes" else [str(name) for name in codec.levels_]


def output_schema(codec: CellCodec, output: Output) -> Schema:
    """What the columns of that frame hold, where they are the table's own: a bin, too, is known by its name."""
    if output != "categories":
        return Schema({})
    levels = {name: part.levels if isinstance(part, Bins) else part for name, part in codec.levels_.items()}
    return Schema({}).with_values({str(name): part.index.to_numpy() for name, part in levels.items()})


def cells_from_output(codec: CellCodec, frame: pd.DataFrame, output: Output) -> IntArray:
    """The cells behind such a frame."""
    if output == "categories":
        levels = [part.named(frame.iloc[:, j]) for j, part in enumerate(codec.levels_.values())]
        return codec.cells_of(np.column_stack(levels))
    if output == "codes":
        return _codes(codec, frame.iloc[:, 0])
    return codec.cells_of(_levels_of_one_hot(codec, frame))


def _codes(codec: CellCodec, column: pd.Series) -> IntArray:
    values = column.to_numpy() if column.dtype.kind in "iu" else _numbers(column.to_frame())[:, 0]
    wrong = (values != np.floor(values)) | (values < 0) | (values >= codec.n_cells_)
    if wrong.any():
        raise DataError(
            f"A cell must be a whole number in 0 … {codec.n_cells_ - 1}; {int(wrong.sum())} rows are not, the first is "
            f"{shown(column.iloc[int(wrong.argmax())])}."
        )
    return values.astype(np.int64)


def _levels_of_one_hot(codec: CellCodec, frame: pd.DataFrame) -> IntArray:
    columns = _numbers(frame)
    levels = []
    for name, block in zip(codec.levels_, level_columns(codec.shape_), strict=True):
        part = columns[:, block]
        wrong = ~(((part == 0) | (part == 1)).all(axis=1) & (part.sum(axis=1) == 1))
        if wrong.any():
            raise DataError(
                f"The one-hot columns of {str(name)!r} must hold a single 1 in every row, and 0 else; "
                f"{int(wrong.sum())} rows do not, the first is row {int(wrong.argmax())}."
            )
        levels.append(part.argmax(axis=1))
    return np.column_stack(levels).astype(np.int64)


def _numbers(frame: pd.DataFrame) -> npt.NDArray[np.float64]:
    try:
        return frame.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise DataError(f"Encoded columns {', '.join(map(str, frame.columns[:8]))} must hold numbers.") from None

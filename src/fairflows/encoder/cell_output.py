"""Encoded cells as a frame: the table's own categories, one-hot columns, or codes."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.data.cells import CellCodec
from fairflows.encoder.cell_model import one_hot, one_hot_names
from fairflows.exceptions import DataError

Output = Literal["categories", "one-hot", "codes"]
IntArray = npt.NDArray[np.int64]


def to_output(codec: CellCodec, cells: IntArray, output: str) -> pd.DataFrame:
    """Cells as the kind of frame that was asked for."""
    if output == "categories":
        return codec.decode(cells)
    if output == "codes":
        return pd.DataFrame({"cell": cells})
    if output == "one-hot":
        return pd.DataFrame(one_hot(codec, cells).toarray(), columns=one_hot_names(codec))
    raise ValueError(f"output must be one of {', '.join(get_args(Output))}; got {output!r}.")


def output_names(codec: CellCodec, output: str) -> list[str]:
    """The columns of that frame."""
    if output == "one-hot":
        return one_hot_names(codec)
    return ["cell"] if output == "codes" else [str(name) for name in codec.levels_]


def cells_from_output(codec: CellCodec, frame: pd.DataFrame, output: str) -> IntArray:
    """The cells behind such a frame."""
    expected = output_names(codec, output)
    if frame.shape[1] != len(expected):
        raise DataError(f"Encoded rows must have the columns {', '.join(expected[:8])}; got {frame.shape[1]} columns.")
    if output == "codes":
        return frame.iloc[:, 0].to_numpy(dtype=np.int64)
    if output == "categories":
        return codec.cells_of(
            np.column_stack([part.named(frame.iloc[:, j]) for j, part in enumerate(codec.levels_.values())])
        )
    columns, starts = frame.to_numpy(dtype=np.float64), np.cumsum([0, *codec.shape_])
    levels = [columns[:, i:j].argmax(axis=1) for i, j in pairwise(starts)]
    return codec.cells_of(np.column_stack(levels).astype(np.int64))

"""The table Adult, which ships inside the package, with the split of the paper on Fair Normalizing Flows."""

from __future__ import annotations

import io
import lzma
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.exceptions import check_choice
from fairflows.table.table import Table

_PAPER_FEATURES = ["workclass", "education", "marital_status", "occupation", "relationship", "race"]


def load_adult(features: Literal["paper", "all"] = "paper") -> Table:
    """Load Adult (Census Income, UCI): is the income above 50,000 dollars? The sensitive attribute is sex.

    Parameters
    ----------
    features : {"paper", "all"}, default="paper"
        The paper's six text columns, 7·16·7·14·6·5 = 329,280 cells; or all 13 columns but sex and income.

    Returns
    -------
    Table
        45,222 complete rows; a = 1 for women, y = 1 above 50,000 dollars.

    Examples
    --------
    >>> adult = load_adult()
    >>> [len(part) for part in adult.paper_split()]
    [24129, 6033, 15060]
    >>> adult.X["race"].cat.categories.tolist()
    ['Amer-Indian-Eskimo', 'Asian-Pac-Islander', 'Black', 'Other', 'White']
    """
    check_choice("features", features, ("paper", "all"))
    packed = files("fairflows.table").joinpath("files", "adult.csv.xz").read_bytes()
    rows = pd.read_csv(io.BytesIO(lzma.decompress(packed)))
    from_data = (rows.pop("file") == "data").to_numpy()
    sex, income = rows.pop("sex"), rows.pop("income")
    parts = np.full(len(rows), "test", dtype=object)
    parts[from_data] = paper_parts(int(from_data.sum()), "validation")  # the publisher's own test file is kept
    return coded_table(
        rows[_PAPER_FEATURES] if features == "paper" else rows,
        name="adult",
        sensitive=(sex == "Female").rename("sex"),
        group_names={0: "male", 1: "female"},
        label=(income == ">50K").rename("income"),
        parts=parts,
    )


def paper_parts(n_rows: int, *held_out: str) -> npt.NDArray[np.object_]:
    """Return the paper's split: each part in turn takes 20 % of the rows still left; "train" takes the rest.

    Examples
    --------
    >>> dict(pd.Series(paper_parts(100, "test", "validation")).value_counts())
    {'train': np.int64(64), 'test': np.int64(20), 'validation': np.int64(16)}
    """
    from sklearn.model_selection import train_test_split

    parts = np.full(n_rows, "train", dtype=object)
    rest = np.arange(n_rows)
    for part in held_out:
        rest, rows = train_test_split(rest, test_size=0.2, random_state=0)
        parts[rows] = part
    return parts


def coded_table(
    data: pd.DataFrame,
    *,
    sensitive: pd.Series,
    group_names: dict[Any, str],
    label: pd.Series,
    parts: npt.NDArray[np.object_] | None = None,
    notes: Sequence[str] = (),
    **settings: Any,
) -> Table:
    """Return a table with 0/1 codes and, where one was published, a split.

    Text becomes categories that every part of the table knows.
    """
    texts = [name for name in data if pd.api.types.is_string_dtype(data[name].dtype)]
    table = Table(
        data.astype(dict.fromkeys(texts, "category")),
        sensitive=sensitive.astype(np.int64),
        label=label.astype(np.int64),
        **settings,
    )
    table.group_names, table.parts, table.notes = group_names, parts, tuple(notes)
    return table

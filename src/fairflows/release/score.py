"""The expected label of each cell: one more column of rows that are drawn, computed from the cell alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.bounds.cells import FEWEST_PERSONS
from fairflows.encoder.label import Label
from fairflows.release.number_ranges import grid_of_most, is_shared
from fairflows.table.columns import numbers
from fairflows.table.persons import Persons

_MOST_CLASSES = 10  # of a label that has a score unless it is asked for
_DECIMALS = 2  # of a probability
_STEPS = 1_000  # a number without a grid is rounded to about this fraction of its range


def releases_score(asked: bool | None, label: Label, persons: Persons) -> bool:
    """Whether rows get the score of their cell: as asked, else where persons have one row each and classes are few."""
    if asked is not None:
        return asked
    return len(label.class_values) <= _MOST_CLASSES and int(persons.rows_each().max()) == 1


def cell_scores(
    label: Label, column: pd.Series, means: npt.NDArray[np.float64], persons_of_rows: npt.NDArray[np.integer]
) -> pd.DataFrame:
    """Return the expected label of each cell: of a number, of the second of two classes, or of every class.

    Probabilities of classes have two decimals. A class that only one person has gets no column, which would be named
    after it. The mean of a number stays within the values that ten persons reach on either side, and lies on the grid
    of the column. `column` holds the values of the label, `means` (n_cells, n_targets) the mean of its targets in each
    cell, `persons_of_rows` the person of each row.
    """
    name, classes = f"{column.name}_score", label.class_values
    if label.classes is not None:
        is_told = is_shared(label.values, persons_of_rows, len(classes))
        names = [f"{name}_{value}" for value in classes]
        if len(classes) <= 2:
            is_told, names = np.array([is_told.all()]), [name]
        return pd.DataFrame(np.clip(means, 0, 1).round(_DECIMALS), columns=names).loc[:, is_told]
    values = numbers(column).astype(np.float64)
    low, high = _reached_by_ten(values, persons_of_rows)
    expected = np.clip(label.predict(means), low, high)
    grid = grid_of_most(numbers(column))
    if grid is None:
        decimals = int(np.ceil(np.log10(_STEPS / (high - low)))) if high > low else _DECIMALS
        return pd.DataFrame({name: expected.round(decimals)})
    return pd.DataFrame({name: grid.value(grid.index(expected)[0], numbers(column).dtype)})


def _reached_by_ten(values: npt.NDArray[np.float64], persons_of_rows: npt.NDArray[np.integer]) -> tuple[float, float]:
    """Return the smallest and the largest value that at least ten persons reach or pass; the median where few are."""
    each = pd.Series(values).groupby(persons_of_rows)
    lowest, highest = np.sort(each.min().to_numpy()), np.sort(each.max().to_numpy())
    if len(lowest) < 2 * FEWEST_PERSONS:
        return float(np.median(values)), float(np.median(values))
    return float(lowest[FEWEST_PERSONS - 1]), float(highest[-FEWEST_PERSONS])

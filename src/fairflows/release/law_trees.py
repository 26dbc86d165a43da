"""The factors of a law of rows: coordinates of cells, and a tree for each column."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed

from fairflows.display import tracked
from fairflows.encoder.base import FloatArray, IntArray
from fairflows.release.column_tree import ColumnTrees, Predictor, level_means, main_directions, standardised
from fairflows.release.drawn_columns import DrawnColumns

_COORDINATES = 6  # of a cell
_MOST_LEVELS = 64  # of a column that count for the coordinates
_MOST_CANDIDATES = 128  # predictors of a column in a wide table
_ROWS_COMPARED = 2_000
_LARGE = 8_000  # persons of a table of which one tree is grown for each column
_TREES, _PART = 5, 0.6  # of a smaller table: trees, and the share of the persons that each is grown on


def fit_trees(
    drawn: DrawnColumns, cells: IntArray, n_cells: int, persons: IntArray, random_state: int
) -> tuple[IntArray, dict[Hashable, ColumnTrees]]:
    """Return the coordinates of cells, (n_coordinates, n_cells), and the tree of each column that is not given."""
    columns, targets, n_given = drawn.predictors(), drawn.targets(persons), drawn.n_given
    coordinates = _coordinates(columns[n_given:], cells, n_cells)
    predictors = [*(Predictor(ranks[cells], n_cells, True) for ranks in coordinates), *columns]
    parts = _parts(persons, random_state)
    # The last trees take longest, and are begun first. scikit-learn grows trees without Python's lock.
    fits = [
        delayed(ColumnTrees.fit)(target, predictors, before, persons, parts, random_state)
        for target, before in zip(targets, _candidates(predictors, n_given, len(targets)), strict=True)
    ]
    fitted = Parallel(n_jobs=-1, prefer="threads", return_as="generator")(reversed(fits))
    trees = list(tracked(fitted, "fitting columns", len(fits)))[::-1]
    return coordinates, dict(zip(list(drawn.parts)[n_given:], trees, strict=True))


def _parts(persons: IntArray, random_state: int) -> list[npt.NDArray[np.bool_]]:
    """Return the rows that each tree of a column is grown on.

    One tree of a small table would remember its rows if its leaves were small, and say little if they were large: of
    several, grown on other persons each, a draw takes one at random.
    """
    n = int(persons.max()) + 1
    if n >= _LARGE:
        return [np.ones(len(persons), dtype=bool)]
    generator = np.random.default_rng(random_state)
    return [(generator.permutation(n) < _PART * n)[persons] for _ in range(_TREES)]


def _coordinates(columns: list[Predictor], cells: IntArray, n_cells: int) -> IntArray:
    """Return the rank of each cell in the main directions in which cells differ, then in that of every column."""
    of_columns = [level_means(cells, n_cells, list(_features(column))) for column in columns]
    main = main_directions(np.concatenate(of_columns, axis=1), cells, _COORDINATES)
    values = np.column_stack([main, *(main_directions(means, cells, 1) for means in of_columns)])
    return np.stack([np.unique(value.round(9), return_inverse=True)[1] for value in values.T])


def _features(column: Predictor) -> Iterator[FloatArray]:
    """Yield a column as standardised numbers, whose variances add up to 1."""
    shares = np.bincount(column.codes, minlength=column.n_levels) / len(column.codes)
    if column.is_ordered:
        rank = np.cumsum(shares) - shares / 2
        yield standardised(rank[column.codes])
        return
    scale = np.sqrt((shares * (1 - shares)).sum()) or 1
    for level in np.argsort(-shares, kind="stable")[: _MOST_LEVELS if column.n_levels > 2 else 1]:
        yield ((column.codes == level) - shares[level]) / scale


def _candidates(predictors: list[Predictor], n_given: int, n_columns: int) -> list[list[int]]:
    """Return the predictors that the tree of each column may split.

    These are the main coordinates of the cell, its coordinate in the column itself, and the columns that are given or
    come before, or those of them that correlate most with the column.
    """
    first = len(predictors) - n_columns - n_given  # number of coordinates
    n_main = first - n_columns
    before = [list(range(first, first + n_given + place)) for place in range(n_columns)]
    if n_given + n_columns > _MOST_CANDIDATES:
        rows = slice(None, None, max(1, len(predictors[0].codes) // _ROWS_COMPARED))
        x = np.stack([standardised(predictor.codes[rows]) for predictor in predictors[first:]]).astype(np.float32)
        for place in range(n_columns):
            end = n_given + place
            strongest = np.argsort(-np.abs(x[:end] @ x[end]), kind="stable")[: _MOST_CANDIDATES // 2]
            before[place] = sorted((first + strongest).tolist())
    return [[*range(n_main), n_main + place, *before[place]] for place in range(n_columns)]

"""What densities over cells share: the sample as distinct cells with weights, choice by held-out likelihood, tails.

A *cell* is one combination of levels of D categorical variables with m_1, ..., m_D levels. Its code is the mixed-radix
number with the last variable fastest, as in `numpy.ravel_multi_index`; there are m_1 ⋯ m_D of them.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from fairflows.exceptions import DataError
from fairflows.table.columns import distinct

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

MOST_CELLS_ENUMERATED = 10_000_000
ROWS_PER_CHUNK = 8_192  # whose one-hot columns are in memory at a time
_HELD_OUT_SHARE = 0.2
# Measured. Held per cell and group: log p̂ (8), two maps (16), a coupling and its tables for drawing both ways (128).
# On top, once, what building a coupling takes while it runs.
_BYTES_HELD, _BYTES_AT_WORK = 152, 222
_BYTES_OF_A_SCORE = 24  # per cell and class: the classifier's probability, and two arrays of its size at work
_BYTES_OF_A_PAIR = 48  # per group and pair of levels: what a tree of pairs, or a network's direct connections, take
_MEMORY_WHERE_UNKNOWN = 8 * 2**30


class CellDensity(Protocol):
    """A law p̂ over the cells of one group (or one group and label).

    Cells come in as codes of shape (n,) or as levels of shape (n, D); log-probabilities come out in float64.
    """

    levels: tuple[int, ...]

    def fit(
        self,
        x: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        validation: ArrayLike | None = None,
        validation_weight: ArrayLike | None = None,
    ) -> Self:
        """Estimate p̂ from the cells of a sample; without `validation`, a fifth of the rows is held out inside."""

    def log_prob(self, x: ArrayLike) -> FloatArray:
        """The log-probability of each row's cell, of shape (n,)."""

    def log_prob_of_all_cells(self) -> FloatArray:
        """The log-probability of every cell, in the order of its code; the probabilities sum to 1 within 1e-10."""

    def sample(self, n: int, generator: np.random.Generator) -> IntArray:
        """Draw n cells from p̂, as levels of shape (n, D)."""


Density = TypeVar("Density", bound=CellDensity)


@dataclass(frozen=True)
class CellCounts:
    """A weighted sample reduced to its distinct cells: n rows of a categorical table are often far fewer cells."""

    cells: IntArray
    weights: FloatArray

    @classmethod
    def of(cls, x: ArrayLike, levels: Sequence[int], sample_weight: ArrayLike | None = None) -> Self:
        """Count the cells of x; rows of weight zero do not count."""
        codes = cell_codes(x, levels)
        weight = _weight_of_rows(sample_weight, len(codes))
        codes, weight = codes[weight > 0], weight[weight > 0]
        if not len(codes):
            raise DataError("A density over cells needs at least one row of positive weight; got none.")
        cells, cell_of_row = np.unique(codes, return_inverse=True)
        return cls(cell_levels(cells, levels), np.bincount(cell_of_row, weights=weight).astype(np.float64))

    def mean(self, values: FloatArray) -> float:
        """The sample's weighted mean of a value per cell."""
        return float(self.weights @ values / self.weights.sum())


def number_of_cells(levels: Sequence[int]) -> int:
    """m_1 ⋯ m_D, as a Python integer that cannot overflow."""
    return math.prod(int(m) for m in levels)


def checked_levels(levels: Sequence[int]) -> tuple[int, ...]:
    """The level counts as a tuple; raises unless there is at least one variable and each has at least one level."""
    counts = tuple(int(m) for m in levels)
    if not counts or min(counts) < 1:
        raise ValueError(f"levels must name at least one variable, each with at least one level; got {list(levels)}.")
    if number_of_cells(counts) >= 2**63:
        raise DataError(
            f"{len(counts)} variables make {number_of_cells(counts):.1e} cells; codes need fewer than 2**63."
        )
    return counts


def cell_codes(x: ArrayLike, levels: Sequence[int]) -> IntArray:
    """Codes of the rows' cells; x holds codes (n,) or levels (n, D), and every one must be in range.

    Examples
    --------
    >>> cell_codes([[0, 2], [1, 0]], levels=[2, 3])
    array([2, 3])
    """
    rows = np.asarray(x)
    if rows.dtype.kind not in "iu" or not (rows.ndim == 1 or (rows.ndim == 2 and rows.shape[1] == len(levels))):
        raise DataError(f"Cells must be integers of shape (n,) or (n, {len(levels)}); got {rows.dtype}, {rows.shape}.")
    bounds = np.asarray(levels) if rows.ndim == 2 else np.asarray([number_of_cells(levels)])
    table = rows if rows.ndim == 2 else rows[:, None]
    outside = (table < 0) | (table >= bounds)
    if outside.any():
        row, column = np.argwhere(outside)[0]
        name = f"Variable {column}" if rows.ndim == 2 else "A cell's code"
        raise DataError(f"{name} must be in 0..{bounds[column] - 1}; got {table[row, column]} in row {row}.")
    return rows.astype(np.int64) if rows.ndim == 1 else np.ravel_multi_index(tuple(rows.T), tuple(levels))


def cell_levels(codes: ArrayLike, levels: Sequence[int]) -> IntArray:
    """Levels (n, D) of cell codes (n,): the inverse of `cell_codes`.

    Examples
    --------
    >>> cell_levels([2, 3], levels=[2, 3])
    array([[0, 2],
           [1, 0]])
    """
    return np.stack(np.unravel_index(np.asarray(codes), tuple(levels)), axis=1).astype(np.int64)


def one_hot(cells: IntArray, levels: Sequence[int]) -> sparse.csr_matrix:
    """Sparse one-hot columns (n, m_1 + ⋯ + m_D) of levels (n, d); where d < D, the other variables' are zero.

    Examples
    --------
    >>> one_hot(np.array([[0, 2], [1, 0]]), levels=[2, 3]).toarray()
    array([[1., 0., 0., 0., 1.],
           [0., 1., 1., 0., 0.]])
    """
    n, d = cells.shape
    columns = cells + np.cumsum([0, *levels[:-1]])[:d]
    return sparse.csr_matrix((np.ones(n * d), columns.ravel(), np.arange(n + 1) * d), shape=(n, sum(levels)))


def level_columns(levels: Sequence[int]) -> list[slice]:
    """The one-hot columns of each variable."""
    return [slice(int(start), int(stop)) for start, stop in pairwise(np.cumsum([0, *levels]))]


def draw_levels(probabilities: FloatArray, generator: np.random.Generator) -> IntArray:
    """One level for each row of a table (n, m) of probabilities, by inversion."""
    cumulative = np.cumsum(probabilities, axis=1)
    u = generator.random((len(probabilities), 1)) * cumulative[:, -1:]
    return (u >= cumulative).sum(axis=1)


def _weight_of_rows(sample_weight: ArrayLike | None, n: int) -> FloatArray:
    weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,) or not np.all(np.isfinite(weight)) or weight.min(initial=0.0) < 0.0:
        raise DataError(f"sample_weight must hold one finite number >= 0 for each of {n} rows; got {weight.shape}.")
    return weight


def training_and_validation(
    x: ArrayLike,
    levels: Sequence[int],
    sample_weight: ArrayLike | None,
    validation: ArrayLike | None,
    validation_weight: ArrayLike | None,
    random_state: int,
) -> tuple[CellCounts, CellCounts]:
    """Counts to fit and counts to choose by: the validation rows given, else a fifth of x held out at random."""
    if validation is not None:
        held_out = CellCounts.of(validation, levels, validation_weight)
        return CellCounts.of(x, levels, sample_weight), held_out
    codes = cell_codes(x, levels)
    if len(codes) < 2:
        raise DataError(f"A density over cells needs 2 rows, one of them held out; got {len(codes)}.")
    weight = _weight_of_rows(sample_weight, len(codes))
    order = np.random.default_rng(random_state).permutation(len(codes))
    cut = max(1, round(_HELD_OUT_SHARE * len(codes)))
    fit, held = order[cut:], order[:cut]
    return CellCounts.of(codes[fit], levels, weight[fit]), CellCounts.of(codes[held], levels, weight[held])


class CountedDensity(ABC):
    """A density that is fitted to counts of cells, and chooses by those of held-out rows."""

    levels: tuple[int, ...]
    random_state: int

    def fit(
        self,
        x: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        validation: ArrayLike | None = None,
        validation_weight: ArrayLike | None = None,
    ) -> Self:
        """Estimate p̂ from the cells of a sample; see `CellDensity`."""
        given = x, self.levels, sample_weight, validation, validation_weight
        self._fit_counts(*training_and_validation(*given, self.random_state))
        return self

    @abstractmethod
    def _fit_counts(self, counts: CellCounts, held_out: CellCounts) -> None:
        """Estimate p̂ from counts."""

    def log_prob(self, x: ArrayLike) -> FloatArray:
        """The log-probability of each row's cell."""
        codes = cell_codes(x, self.levels)
        log_p = np.empty(len(codes))
        for start in range(0, len(codes), ROWS_PER_CHUNK):
            rows = slice(start, start + ROWS_PER_CHUNK)
            log_p[rows] = self._log_prob(cell_levels(codes[rows], self.levels))
        return log_p

    @abstractmethod
    def _log_prob(self, cells: IntArray) -> FloatArray:
        """The log-probabilities of cells that are given by their levels (n, D)."""

    def log_prob_of_all_cells(self) -> FloatArray:
        """The log-probability of every cell, in the order of its code."""
        return self.log_prob(np.arange(number_of_cells(self.levels)))


def choose_density(
    candidates: Sequence[Density],
    x: ArrayLike,
    validation: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    validation_weight: ArrayLike | None = None,
) -> tuple[Density, FloatArray]:
    """Fit every candidate; return the one of largest held-out mean log-likelihood, and all their values."""
    held_out = CellCounts.of(validation, candidates[0].levels, validation_weight)
    for density in candidates:
        density.fit(x, sample_weight=sample_weight, validation=validation, validation_weight=validation_weight)
    scores = np.array([held_out.mean(density.log_prob(held_out.cells)) for density in candidates])
    return candidates[int(np.argmax(scores))], scores


@dataclass(frozen=True)
class CellSpace:
    """How large a space of cells is, and whether to enumerate it."""

    n_cells: int  # m_1 ⋯ m_D
    # memory for the densities and for the log-probabilities, maps, couplings and scores of all groups, were every cell
    # enumerated
    n_bytes: int
    n_bytes_of_densities: int  # memory for the densities alone, which they take in any case
    memory: int  # the bytes that this machine has
    # whether n_cells is below the limit and n_bytes fits the memory; if not, work on the observed support and bound the
    # tail
    enumerable: bool

    def __str__(self) -> str:
        choice = "every cell is enumerated" if self.enumerable else "only observed cells are used, with a tail"
        at_hand = f" and there are {_mebibytes(self.memory)}" if self.n_bytes > self.memory else ""
        return f"{self.n_cells:,} cells, {_mebibytes(self.n_bytes)} if enumerated{at_hand}: {choice}."

    def check_densities(self) -> None:
        """Refuse levels so many that the densities themselves do not fit the memory."""
        if self.n_bytes_of_densities > self.memory:
            raise DataError(
                f"Densities of {self.n_cells:,} cells over columns with so many levels take "
                f"{_mebibytes(self.n_bytes_of_densities)}, and there are {_mebibytes(self.memory)}: join rare levels, "
                "leave out the column with the most of them, or use density='latent_class'."
            )


def _mebibytes(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.0f} MiB"


def cell_space(
    levels: Sequence[int],
    n_groups: int,
    most_cells: int = MOST_CELLS_ENUMERATED,
    *,
    n_classes: int = 0,
    pairs: bool = True,
    memory: int | None = None,
) -> CellSpace:
    """Number of cells and memory needed, before anything is allocated.

    Each group has a density, which with `pairs` keeps a number for every pair of levels, and each class a score. From
    `most_cells` on, none are enumerated. The memory is the machine's own when not given.

    Examples
    --------
    >>> print(cell_space([7, 16, 7, 14, 6, 5], n_groups=2))
    329,280 cells, 165 MiB if enumerated: every cell is enumerated.
    """
    n_cells = number_of_cells(levels)
    of_densities = n_groups * _BYTES_OF_A_PAIR * sum(levels) ** 2 if pairs else 0
    of_cells = n_cells * (n_groups * _BYTES_HELD + n_classes * _BYTES_OF_A_SCORE + _BYTES_AT_WORK)
    memory = _machine_memory() if memory is None else memory
    enumerable = n_cells < most_cells and of_cells + of_densities <= memory
    return CellSpace(n_cells, of_cells + of_densities, of_densities, memory, enumerable)


def _machine_memory() -> int:
    """All memory of the machine; not what is free just now, or the same call would choose differently every time."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return _MEMORY_WHERE_UNKNOWN


def observed_support(samples: Sequence[ArrayLike], levels: Sequence[int]) -> IntArray:
    """Codes of the cells seen in any of the samples, sorted."""
    return distinct(np.concatenate([cell_codes(x, levels) for x in samples]))


def log_prob_on_support(densities: Sequence[CellDensity], support: IntArray) -> tuple[FloatArray, FloatArray]:
    """Log-probabilities on the support, (K, S), and the tails 1 − Σ p̂_a, (K,): what each p̂_a puts outside it."""
    log_p = np.stack([density.log_prob(support) for density in densities])
    return log_p, np.maximum(0.0, 1.0 - np.exp(log_p).sum(axis=1))

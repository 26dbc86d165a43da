"""RowLaw: whole rows drawn from p̂(x | cell), a law that is the same for every group."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse

from fairflows.codec.one_column import Levels, Positions, Ranges
from fairflows.exceptions import DataError
from fairflows.table.columns import Dtype, has_order
from fairflows.table.frames import only_used_categories
from fairflows.table.persons import Secret, keyed_hashes
from fairflows.table.schema import Schema

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Part = Levels | Ranges

_ROWS_PER_CLASS = 16
_MOST_CLASSES = 2_048  # of all cells together
_MOST_NUMBERS = 2**23  # levels · classes
_MOST_WORK = 2**31  # rows · columns · classes of a cell: some seconds for a pass of EM
_ROWS_SEEN, _FEWEST_PASSES, _MOST_PASSES = 200_000, 3, 12  # of EM: few rows are gone through more often
_BATCHES, _FEWEST_IN_BATCH, _MOST_IN_BATCH = 24, 64, 8_192  # of a pass
_STEP = 0.6  # step t of stepwise EM weighs (t + 2)^−0.6: any power in (½, 1] converges
_PSEUDO_ROWS = 1.0
_DETERMINED = 0.97  # of a blind guess's errors that another column avoids, for it to determine this one
_ROWS_COMPARED = 20_000
_REDRAWS, _MIXES = 16, 64
_RESOLUTION = 2**40  # of the uniform numbers: a class's number and such a number fit into a float64


@dataclass(frozen=True)
class RowLaw:
    r"""Draws whole rows, in a table's own columns, for cells: latent classes within each cell.

    .. math:: \hat p(x \mid j) = \sum_{c=1}^{C} π_{jc} \prod_{d=1}^{D} θ_{jcd}(x_d)

    for cell j: within a class the columns are independent (Lazarsfeld and Henry, 1968). Categories are levels as they
    are; numbers and times are cut into ranges (`Ranges`), and drawn within a range on the column's grid. The law is
    fitted by stepwise EM (Cappé and Moulines, 2009). A class is smoothed towards its cell, and a cell towards all rows,
    so that a cell without rows has a law, too. What a cell tells of a single column is kept, but for the smoothing;
    of the dependence between columns within a cell, what so many classes hold. A column that another one determines,
    as a code does its name, is drawn from the other's value, so that rows do not contradict themselves.

    Whoever draws a row passes nothing but a cell and randomness, so a certificate of the cell covers the row, however
    well or badly the law fits (data-processing inequality).

    No row is drawn that only one training person has: with or without the label, such a row is drawn again. Nor is a
    category that only one training person has, unless the column has no other.

    Attributes
    ----------
    schema : Schema
        What the columns hold; those of the label are last.
    parts : list of Levels or Ranges
        Their levels.
    n_features : int
        How many of the columns are features.
    given : dict of int to tuple of (int, ndarray or None)
        For a column that another one determines: the other, and the law of the one's levels given each of the other's;
        None where both always have the same place.
    pi : ndarray of shape (n_cells, C)
        The shares of each cell's classes.
    theta : ndarray of shape (m_1 + ⋯ + m_D, n_cells · C)
        The law of the levels of every other column in each class of each cell.
    marginals : list of ndarray
        The law of each column's levels among all rows.
    taken : ndarray of uint64
        Hashes of the rows that only one training person has, sorted.
    key : bytes
        The secret behind these hashes.

    Examples
    --------
    >>> X = pd.DataFrame({"age": [20, 21, 22, 60, 61, 62] * 20, "works": [True, True, True, False, False, False] * 20})
    >>> rows = RowLaw.fit(X, cells=np.array([0, 0, 0, 1, 1, 1] * 20), n_cells=2)
    >>> drawn = rows.sample(np.array([0, 1]))
    >>> drawn["works"].tolist(), [str(dtype) for dtype in drawn.dtypes]
    ([True, False], ['int64', 'bool'])
    """

    schema: Schema
    parts: list[Part]
    n_features: int
    given: dict[int, tuple[int, FloatArray | None]]
    pi: FloatArray
    theta: FloatArray
    marginals: list[FloatArray]
    taken: npt.NDArray[np.uint64]
    key: Secret

    @property
    def names(self) -> list[Hashable]:
        """The columns, those of the label last."""
        return list(self.schema.kinds)

    @classmethod
    def fit(
        cls,
        X: pd.DataFrame,
        cells: npt.ArrayLike,
        n_cells: int,
        y: pd.DataFrame | None = None,
        *,
        persons: npt.ArrayLike | None = None,
        key: Secret = b"",
        n_classes: int | None = None,
        random_state: int = 0,
    ) -> RowLaw:
        """Learn the law from training rows.

        Parameters
        ----------
        X : DataFrame
            The features.
        cells : array of int
            Each row's cell, in 0 … n_cells − 1.
        n_cells : int
            How many cells there are.
        y : DataFrame, optional
            Labels: further columns, which are drawn together with the features.
        persons : array of int, optional
            Which person each row belongs to; every row is another person's when not given.
        key : bytes
            A secret: the model keeps keyed hashes of the rows that it must not draw.
        n_classes : int, optional
            C, the most classes of a cell. A cell has one class per 16 rows at most; by default there are 2,048 classes
            in all at most, and fewer for wide tables.
        random_state : int
            Seed of EM.
        """
        whole = X if y is None else pd.concat([X, y.set_axis(X.index)], axis=1)
        if whole.columns.has_duplicates:
            name = whole.columns[whole.columns.duplicated()][0]
            raise DataError(f"Column {name!r} is a feature and the label: a row that is drawn has both; rename one.")
        cells = _checked_cells(cells, n_cells)
        who = np.arange(len(X)) if persons is None else np.asarray(persons)
        if n_classes is not None and n_classes < 1:
            raise DataError(f"n_classes must be at least 1; got {n_classes!r}.")
        parts = [_fit_part(str(name), column) for name, column in whole.items()]
        codes = np.column_stack([part.codes(column) for part, (_, column) in zip(parts, whole.items(), strict=True)])
        sizes = np.array([len(part) for part in parts])
        places = [part.places(column) for part, (_, column) in zip(parts, whole.items(), strict=True)]
        hashes = list(_row_hashes(places, X.shape[1], key))
        codes = _without_rare(codes, parts, who)
        marginals = [_law(codes[codes[:, d] >= 0, d], size) for d, size in enumerate(sizes)]
        given: dict[int, tuple[int, FloatArray | None]] = {}
        for d, e in _determined(codes, sizes).items():
            is_copy = np.array_equal(places[d], places[e], equal_nan=True)
            given[d] = e, None if is_copy else _law_given(codes, d, e, sizes, marginals[d])
        free = [d for d in range(len(parts)) if d not in given]
        mixture = _Mixture(codes[:, free], sizes[free], cells, n_cells, random_state)
        pi, theta = mixture.fit(n_classes or mixture.affordable_classes())
        taken = np.unique(np.concatenate([_held_by_one(found, who) for found in hashes]))
        return cls(Schema.of(whole), parts, X.shape[1], given, pi, theta, marginals, taken, key)

    @property
    def dtypes(self) -> dict[str, Dtype]:
        """The types of the columns of whole rows."""
        return {str(name): part.dtype for name, part in zip(self.names, self.parts, strict=True)}

    def sample(self, cells: npt.ArrayLike, generator: np.random.Generator | None = None) -> pd.DataFrame:
        """One fresh row for each cell: equal cells get different rows, and so does one person who comes twice.

        Parameters
        ----------
        cells : array of int
            The cells.
        generator : Generator, optional
            For tests; by default every call has randomness of the operating system's own.
        """
        cells = _checked_cells(cells, len(self.pi))
        generator = np.random.default_rng() if generator is None else generator
        places = self._draw(cells, generator)
        again = np.flatnonzero(self._is_taken(places))
        for attempt in range(_REDRAWS + _MIXES):
            if not len(again):
                break
            some = [place[again] for place in places]
            # What stays a training person's own row gets one value after the other from the law of all rows.
            some = self._draw(cells[again], generator) if attempt < _REDRAWS else self._mixed(some, generator)
            for place, new in zip(places, some, strict=True):
                place[again] = new
            again = again[self._is_taken(some)]
        if len(again):
            raise DataError(
                f"{len(again):,} rows cannot be drawn: nearly every row that the columns allow is one that a single "
                "training person has. Fit on more rows, or release the cell's number (output='cell')."
            )
        columns = [part.column(place) for part, place in zip(self.parts, places, strict=True)]
        drawn = pd.DataFrame(dict(zip(self.names, columns, strict=True)), index=columns[0].index, copy=False)
        return only_used_categories(drawn)

    def _draw(self, cells: IntArray, generator: np.random.Generator) -> list[Positions]:
        """A class of each cell, then every column from that class: places, column by column."""
        classes = cells * self.pi.shape[1] + _draw_levels(self.pi, cells, generator)
        order = np.argsort(classes, kind="stable")  # rows of one class side by side are looked up faster
        back = np.argsort(order)
        met, which = np.unique(classes[order], return_inverse=True)
        levels, start = {}, 0
        for d, part in enumerate(self.parts):
            if d not in self.given:
                stop = start + len(part)
                levels[d], start = _draw_levels(self.theta[start:stop, met].T, which, generator), stop
        levels |= {d: _draw_levels(law, levels[e], generator) for d, (e, law) in self.given.items() if law is not None}
        places = {d: self.parts[d].draw(levels[d], generator)[back] for d in levels}
        places |= {d: places[e].copy() for d, (e, law) in self.given.items() if law is None}
        return [places[d] for d in range(len(self.parts))]

    def _mixed(self, places: list[Positions], generator: np.random.Generator) -> list[Positions]:
        """The rows with one value each, of a random column, drawn from the law of all rows."""
        n = len(places[0])
        chosen, nothing = generator.integers(len(places), size=n), np.zeros(n, dtype=np.int64)
        mixed = []
        for d, part in enumerate(self.parts):
            levels = _draw_levels(self.marginals[d][None], nothing, generator)
            mixed.append(np.where(chosen == d, part.draw(levels, generator), places[d]))
        return mixed

    def _is_taken(self, places: list[Positions]) -> BoolArray:
        """Which rows only one training person has, with or without the label."""
        is_taken = np.zeros(len(places[0]), dtype=bool)
        if len(self.taken):
            for hashes in _row_hashes(places, self.n_features, self.key):
                at = np.minimum(np.searchsorted(self.taken, hashes), len(self.taken) - 1)
                is_taken |= self.taken[at] == hashes
        return is_taken


class _Mixture:
    """Stepwise EM: after every batch of rows the expected counts move a step towards those of the batch.

    A row's one-hot columns are pairs of a level and its cell, and the cell itself, so that all cells are fitted in the
    same products of matrices. Counts have shape ((M + 1) · k, C), M = m_1 + ⋯ + m_D: those by level, cell and class,
    and then those by cell and class. Parameters have the same shape: θ, and then π.
    """

    def __init__(self, codes: IntArray, sizes: IntArray, cells: IntArray, n_cells: int, random_state: int) -> None:
        self._codes, self._sizes, self._cells, self._k = codes, sizes, cells, n_cells
        self._starts, self._M = np.cumsum(sizes) - sizes, int(sizes.sum())
        self._generator = np.random.default_rng(random_state)
        pairs = np.column_stack([(codes + self._starts) * n_cells, np.full(len(codes), self._M * n_cells)])
        known = np.column_stack([codes >= 0, np.ones(len(codes), dtype=bool)])
        self._one_hot = _one_hot(pairs + cells[:, None], known, (self._M + 1) * n_cells)
        self._levels_of = sparse.csr_matrix(  # (D, M): which levels each column has
            (np.ones(self._M, dtype=np.float32), np.arange(self._M), np.append(self._starts, self._M))
        )
        counts = np.asarray(self._one_hot.sum(axis=0), dtype=np.float32).reshape(-1, n_cells)[:-1]
        of_all = counts.sum(axis=1, keepdims=True)
        counts = counts + _PSEUDO_ROWS * of_all / self._totals(of_all)
        self._of_cells = counts / self._totals(counts)
        self._rows_in = np.bincount(cells, minlength=n_cells)

    def affordable_classes(self) -> int:
        """The most classes of a cell that keep memory and time within bounds."""
        n, D = self._codes.shape
        return max(1, min(_MOST_CLASSES // self._k, _MOST_NUMBERS // (self._M * self._k), _MOST_WORK // (n * D)))

    def fit(self, n_classes: int) -> tuple[FloatArray, FloatArray]:
        """π, of shape (k, C), and θ, of shape (M, k · C)."""
        n = len(self._codes)
        classes_of = np.clip(self._rows_in // _ROWS_PER_CLASS, 1, n_classes)
        self._is_used = np.arange(classes_of.max()) < classes_of[:, None]
        counts = self._first_counts()
        size = min(_MOST_IN_BATCH, max(_FEWEST_IN_BATCH, n // _BATCHES))
        passes = min(_MOST_PASSES, max(_FEWEST_PASSES, _ROWS_SEEN // n))
        for t, batch in enumerate(self._batches(size, passes)):
            step = (t + 2.0) ** -_STEP
            expected = self._expected(batch, self._maximise(counts))
            counts *= np.float32(1 - step)
            counts += np.float32(step * n / len(batch)) * expected
        law = self._maximise(counts)
        counts = np.zeros_like(counts)
        for batch in self._batches(size, 1):  # one step of plain EM
            counts += self._expected(batch, law)
        law = self._maximise(counts)
        return law[-self._k :], law[: -self._k].reshape(self._M, -1)

    def _first_counts(self) -> FloatArray:
        """Every class begins as one row of its cell, half smoothed."""
        (k, C), n = self._is_used.shape, self._rows_in
        by_cell = np.argsort(self._cells, kind="stable")
        place = np.cumsum(n)[:, None] - n[:, None] + (self._generator.random((k, C)) * n[:, None]).astype(np.intp)
        codes = self._codes[by_cell[np.minimum(place, len(by_cell) - 1)]]  # (k, C, D)
        j, c, d = np.nonzero(codes >= 0)
        levels = np.repeat(self._of_cells[:, :, None], C, axis=2)
        levels[codes[j, c, d] + self._starts[d], j, c] += 1
        classes = (n[:, None] * self._is_used / self._is_used.sum(axis=1, keepdims=True)).astype(np.float32)
        return np.concatenate([(levels * classes / 2).reshape(-1, C), classes])

    def _batches(self, size: int, n_passes: int) -> Iterator[IntArray]:
        for _ in range(n_passes):
            order = self._generator.permutation(len(self._codes))
            yield from (order[start : start + size] for start in range(0, len(order), size))

    def _expected(self, rows: IntArray, law: FloatArray) -> FloatArray:
        """Expected counts among some rows."""
        columns = self._one_hot[rows]
        log_law = np.maximum(law, np.float32(1e-30))
        log_joint = columns @ np.log(log_law, out=log_law)
        log_joint -= log_joint.max(axis=1, keepdims=True)
        responsibility = np.exp(log_joint, out=log_joint)
        responsibility /= responsibility.sum(axis=1, keepdims=True)
        return columns.T @ responsibility

    def _maximise(self, counts: FloatArray) -> FloatArray:
        """θ and π of largest likelihood given expected counts, the pseudo-rows added."""
        law = np.empty_like(counts)
        levels, theta = (whole[: -self._k].reshape(self._M, self._k, -1) for whole in (counts, law))
        smoothed = np.add(levels, _PSEUDO_ROWS * self._of_cells[:, :, None], out=theta)
        theta /= self._totals(smoothed)
        shares = (counts[-self._k :] + _PSEUDO_ROWS) * self._is_used
        law[-self._k :] = shares / shares.sum(axis=1, keepdims=True)
        return law

    def _totals(self, counts: FloatArray) -> FloatArray:
        """For each level, the sum over its column's levels."""
        sums = self._levels_of @ counts.reshape(self._M, -1)
        return np.repeat(sums, self._sizes, axis=0).reshape(counts.shape)


def _checked_cells(cells: npt.ArrayLike, n_cells: int) -> IntArray:
    cells = np.asarray(cells)
    if cells.ndim != 1 or cells.dtype.kind not in "iu":
        raise DataError(f"Cells must be whole numbers, one per row; got {cells.dtype} of shape {cells.shape}.")
    if len(cells) and not 0 <= cells.min() <= cells.max() < n_cells:
        raise DataError(f"Cells must be in 0 … {n_cells - 1}; got {cells.min()} … {cells.max()}.")
    return cells.astype(np.int64)


def _fit_part(name: str, column: pd.Series) -> Part:
    ranges = Ranges.fit(column) if has_order(column.dtype) else None
    return Levels.fit(name, column) if ranges is None else ranges


def _without_rare(codes: IntArray, parts: list[Part], who: npt.NDArray) -> IntArray:
    """Levels with −1 for a category that only one person has, unless nobody shares any."""
    codes = codes.copy()
    for d, part in enumerate(parts):
        if isinstance(part, Levels):
            somebody = np.zeros(len(part), dtype=who.dtype)
            somebody[codes[:, d]] = who  # who has the category
            is_shared = np.bincount(codes[:, d], who != somebody[codes[:, d]], minlength=len(part)) > 0
            if is_shared.any():
                codes[~is_shared[codes[:, d]], d] = -1
    return codes


def _law(codes: IntArray, n_levels: int) -> FloatArray:
    counts = np.bincount(codes, minlength=n_levels).astype(np.float32)
    return counts / max(counts.sum(), 1)


def _law_given(codes: IntArray, d: int, e: int, sizes: IntArray, otherwise: FloatArray) -> FloatArray:
    """The law of column d's levels given each level of column e; that of all rows where no row has such a level."""
    known = (codes[:, d] >= 0) & (codes[:, e] >= 0)
    counts = np.zeros((sizes[e], sizes[d]), dtype=np.float32)
    np.add.at(counts, (codes[known, e], codes[known, d]), 1)
    return np.where(counts.any(axis=1, keepdims=True), counts, otherwise)


def _determined(codes: IntArray, sizes: IntArray) -> dict[int, int]:
    """Columns that another one determines, and which one: always one with at least as many levels, that is free itself.

    Column e determines d where the most frequent level of d given that of e is right nearly always, compared with a
    blind guess. A row does not count for itself, so that a level of e which only one row has determines nothing.
    """
    codes = codes[:: max(1, len(codes) // _ROWS_COMPARED)]
    D, starts, known = codes.shape[1], np.cumsum(sizes) - sizes, codes >= 0
    one_hot = _one_hot(codes + starts, known, int(sizes.sum())).tocsc()
    found: dict[int, int] = {}
    order = np.argsort(-sizes, kind="stable")
    is_free = np.zeros(D, dtype=bool)
    for d in order:
        own = one_hot[:, starts[d] : starts[d] + sizes[d]]
        majority = own.sum(axis=0).max()
        if is_free.any() and majority < known[:, d].sum():
            together = np.asarray((own.T @ one_hot).todense()).max(axis=0)
            right = np.add.reduceat(np.maximum(together - 1, 0), starts)
            avoided = np.where(is_free, (right - majority) / (known[:, d].sum() - majority), -np.inf)
            if avoided.max() >= _DETERMINED:
                found[int(d)] = int(avoided.argmax())
        is_free[d] = int(d) not in found
    return found


def _one_hot(columns: IntArray, known: BoolArray, n_columns: int) -> sparse.csr_matrix:
    """Rows with a one in each of these columns (n, D), where it is known."""
    ends = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
    ones = np.ones(ends[-1], dtype=np.float32)
    return sparse.csr_matrix((ones, columns[known], ends), shape=(len(columns), n_columns))


def _draw_levels(laws: FloatArray, rows: IntArray, generator: np.random.Generator) -> IntArray:
    """A level from the law in each of these rows of a table, by inversion: all laws laid end to end on one line."""
    cumulative = np.cumsum(laws, axis=1, dtype=np.float64)
    cumulative /= cumulative[:, -1:]
    line = (cumulative + np.arange(len(laws))[:, None]).ravel()
    u = generator.integers(_RESOLUTION, size=len(rows)) / _RESOLUTION
    return np.searchsorted(line, rows + u, side="right") - rows * laws.shape[1]


def _row_hashes(places: list[Positions], n_features: int, key: Secret) -> Iterator[npt.NDArray[np.uint64]]:
    """A keyed hash of every row's features, and of the whole row where it has a label."""
    factors = keyed_hashes([f"column {d}" for d in range(len(places))], key, "row") | np.uint64(1)
    mixed = np.zeros(len(places[0]), dtype=np.uint64)
    for d, place in enumerate(places):
        bits = (place + 0.0).view(np.uint64) if place.dtype.kind == "f" else place.astype(np.int64).view(np.uint64)
        mixed = (mixed ^ bits) * factors[d]
        mixed ^= mixed >> np.uint64(29)
        if d + 1 in (n_features, len(places)):
            yield mixed.copy()


def _held_by_one(hashes: npt.NDArray[np.uint64], who: npt.NDArray) -> npt.NDArray[np.uint64]:
    """The rows that only one person has, be it several times."""
    order = np.lexsort([who, hashes])
    hashes, who = hashes[order], who[order]
    starts = np.concatenate([[True], hashes[1:] != hashes[:-1]])
    first = np.flatnonzero(starts)
    last = np.append(first[1:], len(hashes)) - 1
    return hashes[first][who[first] == who[last]]

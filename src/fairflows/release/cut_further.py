"""The cells of a release, cut further by the columns that came since: the new cells refine the old ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairflows.bounds.blocks import Leaves, blocks_upper_bound, foreseen_blocks_bound
from fairflows.bounds.cells import FEWEST_PERSONS
from fairflows.bounds.planning import ROOM, TARGETS, known_half
from fairflows.encoder.base import Cells, IntArray
from fairflows.encoder.fair_tree import FairTree
from fairflows.encoder.label import Label
from fairflows.encoder.rows import TrainingRows
from fairflows.encoder.tree_extension import Extended, Grown, extend_tree
from fairflows.exceptions import DataError, warn_user
from fairflows.release.release import Release
from fairflows.release.released_table import ReleasedTable
from fairflows.table.columns import Schema, check_kinds
from fairflows.table.domain import Domain, Outside
from fairflows.table.table import Table

_SMALLER = 0.97  # of the cells that are tried next where the exact bound is above the foreseen one


@dataclass(frozen=True)
class CutFurther:
    """The cells of a release that were cut further."""

    tree: FairTree
    cells: Cells  # of the table's rows
    known: ReleasedTable  # what is kept of the earlier tables, by these cells
    target: float


def cut_further(
    release: Release, known: ReleasedTable, table: Table, group: Cells, cells: Cells, target: float | None
) -> CutFurther:
    """Cut the cells of a release further by the columns that a table has beside those of the release.

    Persons at whom the tree was cut cut it further, as far as they are still in the table, in their group, and in the
    cell of the population cut that they were in. The other persons choose scores and nodes.

    Parameters
    ----------
    release : Release
        The earlier release.
    known : ReleasedTable
        What is kept of its tables.
    table : Table
        The table, with one row of each person.
    group, cells : ndarray of shape (n,)
        The group of each row, and the cell that its person keeps.
    target : float or None
        The distance to stay within; by default the first of the release's own, 0.15, 0.2 and 0.3 that allows twice as
        many cells.
    """
    tree = release.encoder_
    if (blocks := known.blocks) is None or not len(known.cut_person):
        raise DataError(
            "The release was fitted to too few persons to encode others, so that its cells stay as they are."
        )
    columns = list(tree.schema_.kinds)
    if missing := [name for name in columns if name not in table.X]:
        raise DataError(
            f"The table lacks the column {missing[0]!r}, which decides on the cells that are cut further: add it, or "
            "draw again without cutting further."
        )
    new = [name for name in table.X if name not in columns]
    if not new:
        raise DataError("extend cuts cells further by new columns, and the table has those of the release alone.")
    at = known.places_of_cut(table.persons, release.key_)
    has_group = (at >= 0) & (known.cut_group[at] == group)  # an age is in another group next year
    inside = _still_inside(release, table, np.where(has_group, known.cut_leaf[at], -1))
    found: list[float] = []

    def most_cells(grown: Grown, most: int) -> int:
        k, earlier = release.n_cells_, release.target or (TARGETS[0] if release.plan_ is None else release.plan_.target)
        candidates = [target] if target is not None else [earlier, *(t for t in TARGETS if t > earlier)]
        for each in candidates:
            n = _most_within(grown, k, most, each, release.delta, known)
            if n > k and (target is not None or n >= min(2 * k, most)):
                found.append(each)
                return n
        if most == k:
            raise DataError(
                f"None of the {k} cells can be cut further: each part needs {FEWEST_PERSONS} persons of every group "
                "at whom the tree was cut, and who are still in the table, in their group and in their cell. Draw "
                "again without cutting further."
            )
        raise DataError(
            f"No cell can be cut further within the target Δ ≤ {candidates[-1]:.4g}: the bound on persons to come is "
            f"{blocks_upper_bound(blocks, release.delta, known.leaves):.3f} with the {k} cells of the release. "
            "State a larger target (target=...), or draw again without cutting further."
        )

    rows = _training_rows(release, table, new, group)
    extended = extend_tree(tree, rows, cells, inside, at < 0, most_cells)
    stay = int((inside >= 0).sum())
    if (gone := len(known.cut_person) - stay) > len(known.cut_person) / 2:
        warn_user(
            f"{gone:,} of the {len(known.cut_person):,} persons at whom the tree was cut are not in this table, or not "
            "in their cell or group any more: the bound on persons to come takes the others to be like them."
        )
    return CutFurther(extended.tree, extended.cells, _refined(known, extended, table, release), found[0])


def _still_inside(release: Release, table: Table, of_cut: Cells) -> Cells:
    """Return the cells of the population cut that persons are strictly inside of, now as then; −1 for others."""
    tree, inside = release.encoder_, np.full(len(table), -1, dtype=np.intp)
    places = np.flatnonzero(of_cut >= 0)
    part = table.take(places)
    part.X = part.X[list(tree.schema_.kinds)]
    now = tree.cells(tree.read(part))
    inside[places] = np.where(now == of_cut[places], now, -1)
    return inside


def _training_rows(release: Release, table: Table, columns: list[str], group: Cells) -> TrainingRows:
    """Return the rows that the leaves are cut further by, of these columns alone."""
    X = table.X[columns].reset_index(drop=True)
    kinds = {name: kind for name, kind in table.declared_kinds.items() if name in X}
    check_kinds(X, kinds)
    domain, codes = Domain.of(X, kinds)
    labels = [Label.read(column, len(X)) for _, column in table.label_columns().items()]
    return TrainingRows(
        X,
        codes,
        Outside(len(X)),
        group,
        table.persons,
        release.groups_,
        labels,
        release.key_,
        domain,
        Schema.of(X),
        kinds,
    )


def _most_within(grown: Grown, k: int, most: int, target: float, delta: float, known: ReleasedTable) -> int:
    """Return the most cells, k at least, for which the statements on the table and on persons to come are within."""
    of_leaves = known.blocks
    assert of_leaves is not None

    def bound(n_cells: int, of_blocks: Callable[[IntArray, float, Sequence[Leaves]], float]) -> float:
        leaf_of_cell, _, of_cut = grown(n_cells)
        return of_blocks(of_cut, delta, (Leaves(leaf_of_cell, of_leaves), *known.leaves))

    def is_foreseen(n_cells: int) -> bool:
        of_table = grown(n_cells)[1]
        return ROOM * known_half(of_table) <= target and bound(n_cells, foreseen_blocks_bound) <= target

    low, high = k, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_foreseen(middle) else (low, middle - 1)
    while low > k and bound(low, blocks_upper_bound) > target:
        low = max(k, min(low - 1, int(_SMALLER * low)))
    return low


def _refined(known: ReleasedTable, extended: Extended, table: Table, release: Release) -> ReleasedTable:
    """Return what is kept of the earlier tables by the new cells.

    Persons who are not in this table get one of the new cells in their cell at random, by the number of rows there.
    """
    of_cell = extended.leaf_of_cell
    n = np.bincount(extended.cells, minlength=len(of_cell)).astype(np.float64)
    order = np.argsort(of_cell, kind="stable")
    start = np.searchsorted(of_cell[order], np.arange(of_cell.max() + 2))
    rng, cell = np.random.default_rng(), np.empty_like(known.cell)
    for leaf in range(len(start) - 1):
        inside = order[start[leaf] : start[leaf + 1]]
        here, weights = np.flatnonzero(known.cell == leaf), n[inside] + 1e-9
        cell[here] = rng.choice(inside, size=len(here), p=weights / weights.sum())
    places = known.places_of(table.persons, release.key_)
    is_known = places >= 0
    cell[places[is_known]] = extended.cells[is_known]
    assert known.blocks is not None
    cut_leaf, places = np.full_like(known.cut_leaf, -1), np.flatnonzero(extended.inside >= 0)
    cut_leaf[known.places_of_cut(table.persons, release.key_)[places]] = extended.inside[places]
    return replace(
        known,
        cell=cell,
        counts=np.zeros((1, known.counts.shape[1], len(of_cell)), dtype=np.int64),
        blocks=extended.blocks,
        leaves=(extended.leaves(known.blocks), *known.leaves),
        cut_leaf=cut_leaf,
    )

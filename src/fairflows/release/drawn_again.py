"""Another release from the same cells: next month's rows, with other columns and some other persons.

Persons keep their cells, and the law of rows is fitted anew given the cells. So all releases together, linked by
person, tell no more of a person than the cell does: each is a function of the cell, the releases before it and fresh
randomness.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Hashable, Sequence

import numpy as np
from sklearn.base import clone

from fairflows.encoder.base import Cells
from fairflows.encoder.rows import Rows, group_places
from fairflows.exceptions import DataError, warn_user
from fairflows.release.cut_further import cut_further
from fairflows.release.fit_arguments import FitArguments
from fairflows.release.fitted_cells import FittedCells
from fairflows.release.release import Release
from fairflows.release.released_table import FEW, ReleasedTable
from fairflows.release.rules import BoolArray
from fairflows.table.columns import shown
from fairflows.table.domain import Outside
from fairflows.table.panels import Panels
from fairflows.table.table import Table


def draw_again(
    release: Release,
    table: Table,
    origin: str,
    *,
    extend: bool = False,
    target: float | None = None,
    **settings: object,
) -> Release:
    """Return a release of another table of the same persons, and of new ones, from the cells of a fitted release.

    Persons of earlier tables keep their cell. New persons are encoded by the population cut, which takes the columns
    that the release was fitted to. Other columns may be new, and columns may be missing where no person is new. Persons
    with all of their rows are drawn again with all of their rows; no column may be missing then.

    Parameters
    ----------
    release : Release
        A release of `FairTree` with one row of each person, who is named, or with all rows of each person.
    table : Table
        The rows, with the same groups and the same identifier.
    origin : str
        Hash of the release, by which its record knows releases from the same cells.
    extend : bool, default=False
        Whether the cells are cut further by the new columns.
    target : float, default=None
        The distance to stay within where cells are cut further; by default as `cut_further` says.
    **settings
        Settings of the new release, such as its rules; the others stay.
    """
    known = release.released_table
    if known is None or not release.traits.cut_twice or not len(known.person) or (release.most_rows_ or 1) > 1:
        raise DataError(
            "Rows are drawn again from the cells of a release of FairTree whose persons are named (identifier=...) and "
            "have one row each: only then each person has one cell."
        )
    if table.grouping.is_uncut:
        raise DataError("Rows with an attribute that is not cut (uncut=...) are not drawn again, as yet.")
    if extend and release.unit == "person":
        raise DataError("extend cuts cells of rows further; persons with all rows (unit='person') keep theirs.")
    whole = Panels.of(table) if release.unit == "person" else table  # with columns that the release does not know
    table = release.units(table)
    persons = table.persons
    if not persons.named or persons.n < len(table):
        raise DataError(
            "A table that is drawn again names its persons (identifier=...), with one row of each, who keep their cell."
        )
    group = group_places(table.a, release.groups_, len(table))
    cells, rows = _cells(release, known, table, group)
    known_now = known
    encoder, n_cells, origin = release.encoder_, release.n_cells_, release.origin_ or origin
    if extend:
        further = cut_further(release, known, table, group, cells, target)
        encoder, cells, known_now = further.tree, further.cells, further.known
        settings["target"], n_cells = further.target, encoder.structure_.n_cells
        origin = f"{origin}/{secrets.token_hex(16)}"  # another way to cut them further is another release
    again = clone(release).set_params(**settings)
    again.check_settings()
    again.form_ = release.form_
    found = FittedCells(encoder, None, n_cells, rows, True, cells, 1, release.plan_)
    again._set_fitted(found, FitArguments.of(whole, None, None))
    again.plan_ = release.plan_
    again.origin_ = origin
    again.table_ = known_now.again(table, persons, group, cells, release.key_)
    _check_shared_persons(again.table_, release.groups_)
    again.ledger_ = copy.deepcopy(release.ledger_)
    again.ledger_.use(table.X, persons)
    _warn_of_few(known, again.table_)
    _warn_of_one_group(known, group, known.places_of(persons, release.key_) < 0, release.groups_)
    return again


def _cells(release: Release, known: ReleasedTable, table: Table, group: Cells) -> tuple[Cells, Rows]:
    """Return the cell that each person keeps, or gets by the population cut, and the rows."""
    cells = known.kept_cells(table.persons, release.key_)
    new = np.flatnonzero(cells < 0)
    if len(new):
        if known.blocks is None:
            raise DataError(
                f"{len(new):,} persons are new, and the release was fitted to too few persons to encode others."
            )
        columns = list(release.encoder_.schema_.kinds)
        missing = [name for name in columns if name not in table.X]
        if missing:
            raise DataError(
                f"{len(new):,} persons are new, and the table lacks the column {missing[0]!r}, which decides on their "
                "cells: add it, or leave these persons out."
            )
        part = table.take(new)
        part.X = part.X[columns]
        rows = release.encoder_.read(part)
        cells[new] = release.encoder_.cells(rows)
        rows.outside.warn()
    return cells, Rows(table.X, {}, Outside(len(table)), group, table.persons)


def _check_shared_persons(now: ReleasedTable, groups: Sequence[Hashable]) -> None:
    """Raise where no person of a group is in all releases, about whom they are stated together."""
    assert now.together is not None
    for group, n in zip(groups, now.together.counts.sum(axis=1).tolist(), strict=True):
        if not n:
            raise DataError(
                f"No person of group {shown(group)} is in all releases from these cells, so that nothing can be stated "
                "about them together: share the table by itself, without again."
            )


def _warn_of_few(before: ReleasedTable, now: ReleasedTable) -> None:
    """Warn where so few persons came or left that the sizes of the groups tell who they are."""
    came, left = len(now.person) - len(before.person), int((now.times < now.n_releases).sum())
    for n, what in ((came, "came since the first release"), (left, "are not in all releases")):
        if 0 < n < FEW:
            warn_user(
                f"Only {n} persons {what}: two tables that differ by so few persons tell their groups by the sizes of "
                "the groups. Release the change together with the next one."
            )


def _warn_of_one_group(before: ReleasedTable, group: Cells, is_new: BoolArray, groups: Sequence[Hashable]) -> None:
    """Warn where all persons who came, or left, are of one group: the sizes of the groups tell the group of each."""
    came, stayed = (np.bincount(group[which], minlength=len(groups)) for which in (is_new, ~is_new))
    left = before.counts.sum(axis=(0, 2)) - stayed if before.n_releases == 1 else np.zeros_like(came)
    for n, what in ((came, "came since the first release"), (left, "left")):
        if n.sum() >= FEW and (n != 0).sum() == 1:
            warn_user(
                f"All {n.sum():,} persons who {what} are of group {shown(groups[int(n.argmax())])}: two certificates "
                "tell it by the sizes of the groups. Release the change together with the next one."
            )

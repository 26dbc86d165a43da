"""The cells of a table: by one structure with two cuts, or by an encoder whose cells held-out persons count."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from fairflows.bounds.ages import FEWEST_OF_NARROW, most_cells_for_ranks, plan_ranks, spread_within
from fairflows.bounds.cells import FEWEST_PERSONS
from fairflows.bounds.planning import TARGETS, CellPlan, known_and_matched, lowest_target, most_cells, plan_cells
from fairflows.encoder.base import Cells, Encoder, IntArray, begin_fit
from fairflows.encoder.fair_tree import FairTree
from fairflows.encoder.matched_tree import TreeStructure, cut
from fairflows.encoder.rows import Rows, TrainingRows, find_persons
from fairflows.exceptions import DataError, warn_user
from fairflows.release.fit_arguments import FitArguments
from fairflows.release.partitions import TreePartition
from fairflows.release.released_table import count_cells
from fairflows.table.columns import places_in, shown
from fairflows.table.domain import Domain, Levels, Seen, take
from fairflows.table.keys import content_hashes
from fairflows.table.persons import Persons, Places, check_most_rows
from fairflows.table.table import Table

if TYPE_CHECKING:
    from fairflows.release.release import Release

HELD_OUT = 0.3
"""Share of the persons that count the cells of an encoder that was fitted to the others."""

_LEAVES = 16  # of the tree that cuts encoded rows into cells, by default
_STATE_MOST_ROWS = "State the most rows that a person may have (most_rows=...)."
_OWNED = ("n_cells", "target", "delta", "spend", "random_state")  # settings of a release, which its encoder may share


@dataclass(frozen=True)
class FittedCells:
    """An encoder, and the cells of the rows of a table by it."""

    encoder: Encoder
    partition: TreePartition | None  # how encoded rows are cut into cells; None where the encoder gives cells itself
    n_cells: int
    rows: Rows  # unnamed persons have been given random names
    named: bool  # whether the persons had names
    cells: Cells
    most_rows: int | None = None
    plan: CellPlan | None = None
    blocks: IntArray | None = None  # (K, n_cells) of the population cut
    inside: Cells | None = None  # the cell of it that each row is strictly inside of; −1 if used up, −2 if not cut at
    held_out: Mapping[str, IntArray] = field(default_factory=dict)  # (C, K, n_cells), by law
    # Levels and codes of columns of categories, where all rows were coded by one domain.
    levels: Mapping[Hashable, tuple[Levels, IntArray]] = field(default_factory=dict)


def unfitted_encoder(release: Release, given: FitArguments) -> Encoder:
    """Return the encoder of a release, with the settings that the release owns.

    Raise where the encoder states another value of one of them. The kinds of columns that a table declares hold for the
    encoder, too.
    """
    encoder = clone(FairTree() if release.encoder is None else release.encoder)
    settings, defaults = encoder.get_params(deep=False), signature(type(encoder)).parameters
    for name in set(_OWNED) & set(settings):
        stated, own = settings[name], getattr(release, name)
        if stated not in (defaults[name].default, own):
            raise DataError(
                f"{name} = {stated!r} of {type(encoder).__name__} contradicts {name} = {own!r} of the release: "
                "state it in the release alone."
            )
        if own not in (None, "auto"):
            encoder.set_params(**{name: own})
    if "kinds" in settings:
        encoder.set_params(kinds=declared_kinds(encoder, given))
    return encoder


def declared_kinds(encoder: Encoder, given: FitArguments) -> Mapping[Any, str] | None:
    """Return the kinds of columns that the encoder declares, else those that the table declares."""
    of_table = given.X.declared_kinds if isinstance(given.X, Table) else None
    return encoder.get_params(deep=False).get("kinds") or of_table or None


# One structure, two cuts ---------------------------------------------------------------------------------------------


def fit_tree(release: Release, encoder: FairTree, given: FitArguments) -> FittedCells:
    """Cut one structure twice: at the persons who did not choose it, and at all persons of the table.

    The first cut gives the bound on persons to come, who are encoded by it; the second gives the rows of the table
    their cells, which are counted. With too few persons for the first, everybody chooses the structure.

    Proof: [Two cuts](proofs.md#two-cuts).
    """
    rows = begin_fit(encoder, given.X, given.y, given.sensitive_features)
    encoder.check_settings()
    named, K = rows.persons.named, len(rows.groups)
    structure, others = rows.split(1 - encoder.calibration, release.random_state)
    most = most_rows(release, rows.persons, structure) if named else 1
    rows = rows if named else replace(rows, persons=Persons.newly_named(len(rows.group)))
    at_table = rows.independent(np.arange(len(rows.group)), most, release.random_state)
    at_others = rows.independent(others, most, release.random_state)
    n = rows.persons.equal_weight(rows.group, K)
    matched = np.bincount(rows.group[at_table], minlength=K)
    several = matched if most > 1 else None
    plan, ranks = None, _within_of_uncut(release, given, rows)
    if release.n_cells == "auto" and ranks is not None:
        plan = plan_ranks(n, release.target, release.delta, ranks, calibration=encoder.calibration)
        if plan is None:
            raise DataError(
                f"{rows.persons.n:,} persons are too few for the target r ≤ {release.target or TARGETS[-1]:.4g} of an "
                "attribute that is not cut: state a higher target, or cut it into groups (cuts=...)."
            )
    elif release.n_cells == "auto":
        plan = plan_cells(
            n, release.target, release.delta, calibration=encoder.calibration, n_matched=several, spend=release.spend
        )
        if plan is None:
            raise DataError(_too_small(release, rows, lowest_target(n, several, release.spend), several))
        if plan.population is None:
            structure, at_others = np.arange(len(rows.group)), at_others[:0]
    n_cut = np.bincount(rows.group[at_others], minlength=K) if len(at_others) else matched
    known = known_and_matched(n, several)[0].astype(np.int64)

    def chosen(grown: TreeStructure) -> int:
        if plan is None:
            return _as_many_as_possible(release, rows, grown, n_cut)
        if ranks is not None:
            of_cut = grown.blocks_of_first(n_cut)
            return max(most_cells_for_ranks(of_cut, grown.n_cells, plan.target, release.delta, ranks), 1)
        population = grown.blocks_of_first(n_cut) if len(at_others) else None
        k = most_cells(grown.blocks_of_first(known), population, grown.n_cells, plan.target, release.delta)
        return max(k, 1)

    fewest = FEWEST_PERSONS if ranks is None else FEWEST_OF_NARROW
    scores = encoder.learn_apart(rows, structure, at_others, n_cut, chosen, fewest)
    coin = encoder.coin(rows.persons.take(at_table), 0)
    tree = cut(encoder.structure_, scores[at_table], rows.group[at_table], coin)
    cells = tree.cells(scores, rows.group, encoder.coin(rows.persons, 0))
    inside = np.full(len(cells), -2, dtype=np.intp)
    if encoder.tree_ is not None:
        part = encoder.coin(rows.persons.take(at_others), 0)
        group = rows.group[at_others]
        inside[at_others] = encoder.tree_.cells(scores[at_others], group, part, strictly=True)
    levels = {n: (of, rows.codes[n]) for n, of in rows.domain.columns.items() if isinstance(of, Levels)}
    return FittedCells(
        encoder,
        None,
        encoder.structure_.n_cells,
        rows,
        named,
        cells,
        most if named else None,
        plan,
        encoder.blocks_,
        inside,
        levels=levels,
    )


def _within_of_uncut(release: Release, given: FitArguments, rows: TrainingRows) -> float | None:
    """Return how much ranks vary inside the narrow groups of an attribute that is not cut; None if it is cut.

    Raise where it is not covered.
    """
    table = given.X
    if not isinstance(table, Table) or not table.grouping.is_uncut:
        return None
    G, name = table.grouping.n_narrow, table.a.name
    if table.has_histories:
        raise DataError(
            f"uncut needs one row of every person; the table has {len(table):,} rows of {table.persons.n:,} persons. "
            f"Keep one row of each, or cut {name!r} into groups (cuts=...)."
        )
    if release.spend:
        raise DataError(f"spend needs groups, and {name!r} is not cut (uncut=...); got spend = {release.spend!r}.")
    if len(rows.groups) < G:
        raise DataError(
            f"The rows are of {len(rows.groups)} of the {G} narrow groups of {name!r}: make the table of these rows "
            "alone, so that all of its narrow groups have persons."
        )
    return spread_within(G, table.grouping.wide or 0)


def _as_many_as_possible(release: Release, rows: TrainingRows, grown: TreeStructure, n: IntArray) -> int:
    """Return the number of cells that was asked for, or fewer where a group is too small."""
    asked, small = int(release.n_cells), int(n.argmin())
    group = f"group {shown(rows.groups[small])} has {n[small]:,} persons to set thresholds at, one row of each"
    if grown.n_cells < 2:
        raise DataError(
            f"Two cells need {2 * FEWEST_PERSONS + 1} persons of every group, and {group}. Merge small groups "
            "(merge_small=...), or leave the group out."
        )
    if asked > grown.n_cells:
        warn_user(f"{asked} cells were asked for, but {group}: with ten in every cell there are {grown.n_cells} cells.")
    return min(asked, grown.n_cells)


def _too_small(release: Release, rows: TrainingRows, lowest: float | None, matched: IntArray | None) -> str:
    """Return which group is too small for two cells, and the remedy."""
    n = rows.persons.count_by(rows.group, len(rows.groups))
    cut_at = n if matched is None else matched
    small, several = int(cut_at.argmin()), matched is not None
    drawn = f", {cut_at[small]:,} of whom are drawn to cut cells at, those with few rows less often" if several else ""
    needed = f"every group needs {2 * FEWEST_PERSONS + 1}{' of these' if several else ''} at least"
    if lowest is not None:
        needed = f"the lowest target for so many persons is {lowest}"
    target = release.target or TARGETS[-1]
    return (
        f"Group {shown(rows.groups[small])} is too small for the target Δ ≤ {target:.4g}: it has {n[small]:,} "
        f"persons{drawn}, and {needed}. Merge small groups (merge_small=...), or leave the group out."
    )


def most_rows(release: Release, persons: Persons, places: Places) -> int:
    """Return the largest number of rows of a person: as stated, else of those with rows at these places."""
    if release.most_rows is not None:
        return release.most_rows
    return int(persons.rows_each()[np.unique(persons.codes[places])].max(initial=1))


# Encoders that are counted -------------------------------------------------------------------------------------------


def fit_held_out(release: Release, encoder: Encoder, given: FitArguments) -> FittedCells:
    """Fit an encoder to a part of the persons, and count the cells of the others."""
    if isinstance(given.X, Table) and given.X.grouping.is_uncut:
        raise DataError(
            f"uncut needs the cells of a FairTree (method='tree'); got {type(encoder).__name__}. Cut "
            f"{given.X.a.name!r} into groups (cuts=...)."
        )
    persons = find_persons(encoder, given.X, given.frame, needed=True)
    fitted, held_out = _divided(persons, release.random_state)
    if not (len(fitted) and len(held_out)):
        raise DataError(f"Found a table with {persons.n} sample(s): some persons are fitted to, and others counted.")
    most = 1
    if persons.named:
        most = most_rows(release, persons, fitted)
        check_most_rows(persons.rows_each(), most, _STATE_MOST_ROWS)
    part = given.take(fitted)
    if not isinstance(given.X, np.ndarray):
        domain, codes = Domain.of(given.frame)
        Seen.of(domain, take(codes, fitted)).check_texts(domain, declared_kinds(encoder, given) or ())
    settings = encoder.get_params(deep=False)
    if settings.get("n_certify", 0) is None:
        encoder.set_params(n_certify=max(2, len(np.unique(persons.codes[held_out]))))
    encoder.fit(part.X, part.y, sensitive_features=part.sensitive_features)
    named = persons if persons.named else Persons.newly_named(len(persons.codes))
    rows = encoder.read(given.X, given.sensitive_features, named)
    Z = None if encoder.traits.n_cells else encoder.encode(rows)
    Z_fitted = None if Z is None else Z.iloc[fitted]
    partition, n_cells = cells_of_encoder(release, encoder, Z_fitted, part.labels)
    cells = encoder.cells(rows) if partition is None else partition.cells(Z)
    shape = max(len(encoder.groups_), 1), n_cells
    laws = counted_rows(rows, held_out, most, release.random_state)
    counted = {law: count_cells(given.X, rows.group, cells, shape, places) for law, places in laws.items()}
    most_stated = most if persons.named else None
    return FittedCells(encoder, partition, n_cells, rows, persons.named, cells, most_stated, held_out=counted)


def counted_rows(rows: Rows, held_out: Places, most: int, random_state: int) -> dict[str, Places]:
    """Return the rows of held-out persons that count the cells: of the law of a random row, and of a random person."""
    laws = {"row": rows.independent(held_out, most, random_state)}
    if most > 1:
        contents = content_hashes(rows.X.iloc[held_out], b"cells")
        laws["person"] = held_out[rows.persons.take(held_out).one_row_each(contents, random_state)]
    return laws


def held_out_parts(table: Table, random_state: int) -> tuple[Places, Places]:
    """Return the rows of a table that an encoder is fitted to, and the rows of the persons who are held out."""
    return _divided(table.persons, random_state)


def _divided(persons: Persons, random_state: int) -> tuple[Places, Places]:
    is_held_out = (persons.drawn(random_state, "held out") < HELD_OUT)[persons.codes]
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


def cells_of_encoder(
    release: Release, encoder: Encoder, Z: pd.DataFrame | None, labels: pd.DataFrame
) -> tuple[TreePartition | None, int]:
    """Return how rows encoded as Z are cut into cells, None where the encoder gives cells, and how many there are."""
    if Z is None:
        return None, int(encoder.traits.n_cells or 0)
    if not labels.shape[1] or encoder.classes_ is None:
        raise DataError(
            "Release requires y to be passed, but the target y is None: the cells of encoded rows are grown "
            "for a label with classes. Take FairTree, which gives cells without one."
        )
    codes = places_in(pd.Index(encoder.classes_, dtype=object), labels.iloc[:, 0])
    n_cells = _LEAVES if release.n_cells == "auto" else int(release.n_cells)
    partition = TreePartition.fit(Z, codes, n_cells, release.random_state)
    return partition, int(partition.cell.max()) + 1

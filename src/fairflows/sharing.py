"""share: fit a release to a table, attack it, certify it, and measure the worth of the shared table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from fairflows.attack.auditing import Audit, audit
from fairflows.bounds.planning import TARGETS
from fairflows.certificate.about import About
from fairflows.certificate.certificate import Certificate
from fairflows.certificate.certify import certify
from fairflows.certificate.model_hash import origin_of
from fairflows.certificate.notices import earlier_notices
from fairflows.certificate.releases import ReleasedRows, check_record, one_cell_each, record_key
from fairflows.display import say
from fairflows.encoder.fair_cells import FairCells
from fairflows.encoder.fair_tree import FairTree
from fairflows.exceptions import DataError, check_choice, warn_user
from fairflows.release.drawn_again import draw_again
from fairflows.release.fitted_cells import held_out_parts
from fairflows.release.release import Release
from fairflows.report.page import Report, report_contents
from fairflows.result import CERTIFICATE, MODEL, Run, Shared, read_run
from fairflows.storage import load
from fairflows.table.frames import to_pandas
from fairflows.table.grouping import Grouping
from fairflows.table.linked import LinkedTables
from fairflows.table.names import check_numbers, columns_of_own_values
from fairflows.table.prospects import check_groups
from fairflows.table.table import Table
from fairflows.tradeoff import check_target
from fairflows.worth.measured import MeasuredRelease, second_release
from fairflows.worth.usefulness import Usefulness
from fairflows.worth.usefulness import usefulness as measure

Method = Literal["tree", "cells", "cells-without-attribute"]
Output = Literal["row", "cell"]
Unit = Literal["person", "row"]

N_JOBS = 2  # adversaries, and forests that measure usefulness, at once


def share(
    table: Table | Any,
    *,
    target: float | None = None,
    delta: float = 0.01,
    method: Method = "tree",
    output: Output = "row",
    unit: Unit | None = None,
    spend: float = 0.0,
    most_rows: int | None = None,
    rules: Sequence[str] = (),
    find_rules: bool = True,
    derive: bool = True,
    score: bool | None = None,
    about: About | None = None,
    random_state: int = 0,
    quick: bool = False,
    again: Shared | str | Path | None = None,
    extend: bool = False,
    **roles: Any,
) -> Shared:
    """Turn a table into one that can be shared: fit, attack, certify and measure.

    ``with fairflows.display.stages():`` around it prints what it does, and shows progress bars.

    Each person is assigned to a *cell*: a set of similar people with nearly the same share of every group. The shared
    row is drawn from a model of that cell. The certificate states how much the rows of this table reveal about the
    group, counted exactly, and a bound for persons to come.

    Parameters
    ----------
    table : Table, DataFrame, polars.DataFrame, pyarrow.Table or dict
        All rows: a `Table`, or a frame whose roles are stated beside it; or two linked tables by their names, the one
        with one row of each person first (`LinkedTables`).
    target : float, default=None
        Largest distance Δ between two groups, so that a guess between them is right at most (1 + Δ)/2 of the time. By
        default 0.1, or for a "tree" of a small table the first of 0.15, 0.2 and 0.3 that allows eight cells.
    delta : float, default=0.01
        Probability δ that the bound on persons to come is wrong.
    method : {"tree", "cells", "cells-without-attribute"}, default="tree"
        "tree" is `FairTree`: cells for many purposes, for any number of labels. "cells" is `FairCells`: the best cells
        for one label; "cells-without-attribute" encodes persons who come later without the sensitive attribute.
    output : {"row", "cell"}, default="row"
        Share a whole row in the table's own columns, drawn from the cell, or the cell's number.
    unit : {"person", "row"}, default=None
        With "person" every person has one cell, from which all of their rows are drawn together: the statements are
        about persons, and cover all rows of a person, their number included. With "row" every row has a cell, and rows
        of one person that are linked are not covered. By default "person" where the identifier of the table repeats,
        unless `most_rows` is stated.
    spend : float, default=0.0
        Part of the target that a "tree" may spend on a label with two classes: the shares of the groups that its first
        split sends to one side may differ by so much.
    most_rows : int, default=None
        Most rows that a person may have, with ``unit="row"``; by default the most of the persons that a model was
        fitted to.
    rules : sequence of str, default=()
        Expressions over columns, such as ``"start <= end"``, that are true in every row that is shared. With
        ``unit="person"`` they may name columns of the row before, such as ``"year > previous.year"``.
    find_rules : bool, default=True
        Whether inequalities between two columns that every row of the table keeps are rules, too.
    derive : bool, default=True
        Whether columns that follow from others are recognised, and computed instead of drawn.
    score : bool, default=None
        Whether whole rows get one more column with the expected label of their cell, which decisions are made by; by
        default where there is a label of at most ten classes, or of numbers, and every person has one row.
    about : About, default=None
        Issuer, purpose, recipient, population and the like, which the certificate and the reports state.
    random_state : int, default=0
        Seed of the split and of training, but never of keys, coins and drawn rows.
    quick : bool, default=False
        Leave out adversaries and measurements of the table's worth, but no statement.
    again : Shared or path, default=None
        An earlier result, saved, or its folder, from whose cells the rows are drawn. Persons of earlier tables keep
        their cell, so that all releases together, linked by person, tell no more than the cell does (proof: [Several
        releases](proofs.md#several-releases)). New persons get a cell by the population cut, and columns may be others.
        Method, target, δ and cells are those of the earlier release, and nothing is attacked or measured.
    extend : bool, default=False
        With `again`: whether the cells are cut further by the new columns, which the shared rows then tell better. Each
        new cell lies in an old one, so that the statements still cover all releases together; they allow more, by
        default the first of the earlier target, 0.15, 0.2 and 0.3 that allows twice as many cells (or `target`).
    **roles
        The parameters of `Table`, or of `LinkedTables`, where frames are given.

    Returns
    -------
    Shared
        The table to share, of the kind of frame that came, its certificate, and what is known about both.

    Examples
    --------
    >>> from fairflows import load_adult
    >>> shared = share(load_adult(), target=0.4, output="cell", quick=True)
    >>> shared.certificate.status, list(shared.table)
    ('CERTIFIED', ['cell'])
    """
    check_choice("method", method, get_args(Method))
    table = _as_table(table, roles)
    if unit is None and again is None:
        unit = "person" if table.has_histories and most_rows is None else "row"
    check_groups(table)
    for part in table.tables:
        check_numbers(part)
    check_record()
    if output == "row" and (own := dict(said for part in table.tables for said in columns_of_own_values(part).items())):
        for said in own.values():
            warn_user(said)
        table = table.without(own)
    if again is not None and isinstance(table, LinkedTables):
        raise DataError("again draws one table; two linked tables are not drawn again.")
    if again is not None:
        first, earlier, notices = _earlier(again)
        stated = {"target": None if extend else target, "delta": delta, "method": method, "unit": unit, "spend": spend}
        _refuse_other_settings(first, earlier, stated)
        _refuse_other_groups(
            (again.run if isinstance(again, Shared) else read_run(Path(again))).grouping, table.grouping
        )
        of_rows = {"output": output, "rules": rules, "find_rules": find_rules, "derive": derive, "with_score": score}
        return _shared_again(first, earlier, notices, table, of_rows, about, extend=extend, target=target)
    if extend:
        raise DataError("extend cuts the cells of an earlier release further: name it (again=...).")
    settings: dict[str, Any] = {"output": output, "unit": unit, "delta": delta, "spend": spend, "most_rows": most_rows}
    settings |= {
        "rules": rules,
        "find_rules": find_rules,
        "derive": derive,
        "with_score": score,
        "random_state": random_state,
    }
    release = _unfitted(table, method, target, settings)
    release.check_settings()
    say("fitting the cells and the law of rows")
    released = release.fit_transform(table)
    parents, rows = released.values() if isinstance(released, dict) else (None, to_pandas(released))
    target = release.target or (TARGETS[0] if release.plan_ is None else release.plan_.target)
    by_size = release.plan_ if release.target is None else None
    split = f"{len(table):,} rows, all of them released."
    if unit == "person":
        n_rows = len(table.rows) if isinstance(table, LinkedTables) else len(table)
        split = f"{n_rows:,} rows of {table.persons.n:,} persons: each person has one cell for all of their rows."
    apart, told = (None, "") if quick else _measured_release(release, table, rows, random_state)
    before, after = (None, None) if apart is None else _attacked(apart, release, delta, random_state, most_rows)
    say("certifying")
    is_own = apart is not None and apart.model is release
    certificate = certify(
        release,
        table,
        target=by_size or target,
        audit=after if is_own else None,
        delta=delta,
        about=about,
        most_rows=most_rows,
        random_state=random_state,
    )
    if before is not None and after is not None:
        refuse_a_release_that_tells_more(before, after, certificate)
    worth = None
    if apart is not None:
        say("measuring what the shared table is worth")
        worth = measure(
            apart.model,
            apart.learn,
            apart.judge,
            encoded=apart.rows,
            distance=certificate.cell_upper or certificate.table_distance or target,
            n_jobs=N_JOBS,
            random_state=random_state,
        )
    say("writing the report")
    contents = report_contents(
        release, table, certificate, audit=after, before=before, usefulness=worth, split=f"{split}{told}"
    )
    return _result(release, table, rows, certificate, contents, worth, after, before, parents)


def _as_table(data: Any, roles: Mapping[str, Any]) -> Table:
    """Return the table of frames with their roles; two linked tables come as a dict of frames."""
    if unknown := [name for name in roles if name not in signature(Table).parameters or name == "data"]:
        raise TypeError(f"share() got an unexpected keyword argument {unknown[0]!r}")
    if isinstance(data, Table):
        if roles:
            raise DataError(f"A Table has its roles already; got {next(iter(roles))}=... beside it.")
        return data
    if "sensitive" not in roles:
        raise DataError("A frame is shared with its roles: name the sensitive column (sensitive=...), or make a Table.")
    is_linked = isinstance(data, Mapping) and all(np.ndim(part) == 2 for part in data.values())
    return LinkedTables(data, **roles) if is_linked else Table(data, **roles)


def _earlier(again: Shared | str | Path) -> tuple[Release, Certificate, tuple[str, ...]]:
    """Return release and certificate of an earlier result, and the notices; raise unless it was saved as it is."""
    if isinstance(again, str | Path):
        release, certificate = load(Path(again) / MODEL), Certificate.read(Path(again) / CERTIFICATE)
        notices = earlier_notices(Path(again) / CERTIFICATE)
    else:
        release, certificate = again.release, again.certificate
        notices = certificate.notices
    if not isinstance(release, Release) or not certificate.released_files:
        raise DataError("again takes a result of `share` that was saved, because the new certificate names its own.")
    if certificate.sealed(release.key_).seal != certificate.seal:
        raise DataError("again takes a result as it was saved; its certificate was changed since.")
    return release, certificate, notices


def _refuse_other_groups(earlier: Grouping | None, now: Grouping) -> None:
    """Raise unless groups are made of the same columns in the same way: the cells were matched for these."""
    if earlier is None:
        return
    if list(now.kinds) != list(earlier.kinds):
        columns = [" and ".join(map(repr, of.kinds)) for of in (earlier, now)]
        raise DataError(f"again takes the sensitive column of the earlier release, {columns[0]}; got {columns[1]}.")
    groups = {value: earlier.merged.get(value, "" if earlier.merged else value) for value in now.merged}
    if now.cuts != earlier.cuts or groups != now.merged:
        raise DataError(
            "again takes the groups of the earlier release; this table has other cut points, or merged other groups."
        )


def _refuse_other_settings(first: Release, earlier: Certificate, stated: Mapping[str, Any]) -> None:
    """Raise if settings are stated that the cells of an earlier release do not have."""
    its: dict[str, Any] = {"target": earlier.target, "delta": earlier.delta, "method": "tree"}
    its |= {"unit": first.unit, "spend": first.spend}
    for name, value in stated.items():
        if value not in (signature(share).parameters[name].default, its[name]):
            advice = ", or cut the cells further (extend=True)" if name == "target" else ""
            raise DataError(
                f"{name} must be that of the earlier release, {its[name]!r}, whose cells persons keep; got {value!r}. "
                f"Leave it out{advice}."
            )


def _shared_again(
    first: Release,
    earlier: Certificate,
    notices: tuple[str, ...],
    table: Table,
    settings: dict[str, Any],
    about: About | None,
    *,
    extend: bool,
    target: float | None,
) -> Shared:
    """Share a table from the cells of an earlier release."""
    say("fitting the law of rows to the cells that persons keep")
    known = None if extend else first.released_table
    release = draw_again(first, table, origin_of(first), extend=extend, target=target, **settings)
    cells = release.released_table.kept_cells(release.units(table).persons, release.key_)  # type: ignore[union-attr]
    rows = release.draw(cells if release.unit == "row" else np.random.default_rng().permutation(cells))
    say("certifying")
    stated = release.target if extend else earlier.target
    certificate = certify(release, table, target=stated, delta=earlier.delta, about=about)
    sha256 = hashlib.sha256(earlier.to_json().encode()).hexdigest()  # of its file
    by: Literal["user", "size"] = earlier.target_by
    if extend and stated != earlier.target:
        by = "size" if target is None else "user"
    certificate = replace(certificate, previous=(*earlier.previous, sha256), target_by=by, notices=notices)
    certificate = certificate.sealed(release.key_)
    split = (
        f"{len(table):,} rows, all of them released, from the cells of an earlier release. Nothing was attacked or "
        "measured, which takes another release of the same persons."
    )
    say("writing the report")
    contents = report_contents(release, table, certificate, split=split)
    return replace(_result(release, table, rows, certificate, contents), earlier=known)


def _result(
    release: Release,
    table: Table,
    rows: pd.DataFrame,
    certificate: Certificate,
    contents: dict[str, Any],
    worth: Usefulness | None = None,
    after: Audit | None = None,
    before: Audit | None = None,
    parents: pd.DataFrame | None = None,
) -> Shared:
    """Return the result, its rows in random order."""
    shuffled = rows
    if release.unit == "row":  # persons are in a random order already
        order = np.random.default_rng().permutation(len(rows))  # from the system's entropy: no seed repeats it
        shuffled = rows.iloc[order].reset_index(drop=True)
    known, cells = release.released_table, None
    if known is not None and table.persons.named:
        cells = one_cell_each(release, known.kept_cells(table.persons, release.key_))
    seen = ReleasedRows.of(table.X, table.persons, record_key(), cells=cells)
    run = Run.of(table, release.random_state)
    return Shared(
        shuffled,
        certificate,
        worth,
        after,
        before,
        release,
        Report(contents),
        run,
        seen,
        parents=parents,
        like=table.like,
    )


def _unfitted(table: Table, method: Method, target: float | None, settings: dict[str, Any]) -> Release:
    """Return the release that a method asks for."""
    identifier = None if table.identifier is None else str(table.identifier.name)
    if method == "tree":
        return Release(FairTree(identifier=identifier), target=target, **settings)
    if settings["spend"]:
        raise DataError(f"method must be 'tree' to spend a part of the target; got {method!r}.")
    if table.y is None:
        raise DataError("Cells are made for a label, and the table has none: name it (label=...), or take 'tree'.")
    target = target or TARGETS[0]
    check_target(target, table, settings["delta"])
    attribute: Literal["training", "encoding"] = "encoding" if method == "cells" else "training"
    return Release(FairCells(attribute=attribute, identifier=identifier), target=target, **settings)


def _measured_release(
    release: Release, table: Table, rows: Any, random_state: int
) -> tuple[MeasuredRelease | None, str]:
    """Return the release that attacks and measurements use, and a sentence about it.

    A tree is fitted to all persons, so that a second release is fitted to four fifths of them. Other encoders have
    persons who were held out.
    """
    if not release.traits.separate_thresholds:
        units = release.units(table)
        learn, judge = held_out_parts(units, random_state)
        told = (
            f" The encoder was fitted to {len(learn):,} of them; the persons of the others are counted for the bound "
            "on persons to come, and attacks and measurements are judged on them."
        )
        shared = None if release.unit == "person" else (rows.iloc[learn], rows.iloc[judge])
        return MeasuredRelease(release, units.take(learn), units.take(judge), shared), told
    say("fitting a second release, which is used for measurements only")
    part, left_out = table, []
    while True:
        try:
            apart = _attackable(second_release(release, part, random_state), part.in_halves().groups)
            break
        except DataError as error:  # too few persons of the smallest group
            sizes = part.persons.count_by(part.group_numbers(part.groups), len(part.groups))
            if len(sizes) < 3 or table.grouping.is_uncut:
                return None, f" Nothing was attacked or measured, which takes a second release. {error}"
            left_out.append(part.groups[int(sizes.argmin())])
            part = part.take(np.flatnonzero(part.a != left_out[-1]))
    without = ""
    if left_out:
        without = f" They leave out {', '.join(map(str, left_out))}, of whom there are too few persons."
    what = "persons, as one row of summaries each," if release.unit == "person" else "rows,"
    return apart, (
        " Attacks and measurements use a second release, which is not shared: it was fitted to "
        f"{len(apart.learn):,} of these {what} and judged on {len(apart.judge):,} others.{without}"
    )


def _attackable(apart: MeasuredRelease, groups: list[Any]) -> MeasuredRelease:
    """Return a second release; raise if adversaries cannot learn, be tuned and be compared in every group."""
    unseen = apart.unseen()
    for part in (unseen.learn, unseen.judge):
        if np.bincount(part.in_halves().group_numbers(groups), minlength=len(groups)).min() < 3:
            raise DataError("It needs more persons of the smallest group.")
    return apart


def _attacked(
    apart: MeasuredRelease, release: Release, delta: float, random_state: int, most_rows: int | None
) -> tuple[Audit, Audit]:
    """Attack the raw rows, then the shared ones, and the persons behind them."""
    settings: dict[str, Any] = {"delta": delta, "most_rows": most_rows, "random_state": random_state}
    say("attacking the raw rows")
    before = audit((apart.learn.X, apart.judge.X), apart.learn, apart.judge, quick=True, n_jobs=N_JOBS, **settings)
    say("attacking the shared rows")
    of = apart if apart.model is release else apart.unseen()
    after = audit(of.model, of.learn, of.judge, encoded=of.rows, n_jobs=N_JOBS, **settings)
    if release.output == "row" and apart.rows is not None:
        say("attacking the persons behind the shared rows")
        after = replace(after, risks=apart.risks(delta, random_state))
    return before, after


def refuse_a_release_that_tells_more(before: Audit, after: Audit, certificate: Certificate) -> None:
    """Raise if the target is missed and adversaries learn more of the group than from the raw rows."""
    raw = max(attack.validation for attack in before.attacks)
    if certificate.meets_target or after.attack_lower <= raw:
        return
    raise DataError(
        f"The shared rows would tell more of the group than the raw rows do: adversaries are right at least "
        f"{50 * (1 + after.attack_lower):.1f} % of the time with them (groups counted alike), and about "
        f"{50 * (1 + raw):.1f} % with the raw rows. Allow fewer "
        "cells by a smaller target (target=...)."
    )

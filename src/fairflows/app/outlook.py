"""The Target and Result screens: what a target allows, and what a result says, as plain values for the page."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from fairflows.bounds.derived import rounded_up
from fairflows.bounds.planning import CellPlan, plan_cells
from fairflows.exceptions import DataError
from fairflows.report import verdict, worth_words
from fairflows.report.numbers import percent
from fairflows.report.people import guesses_of_100, headline, people_svg
from fairflows.result import Shared
from fairflows.table.columns import floats, has_order, places_in
from fairflows.table.panels import Panels
from fairflows.table.table import Table
from fairflows.worth.label_worth import label_prospect

TARGETS = [round(0.02 + 0.01 * i, 2) for i in range(29)]
"""The targets of the slider."""

_DELTA = 0.01
_LEVELS = 8  # of a column in the picture of a pair


def of_100(distance: float) -> str:
    """Say how many of 100 guesses between two groups are right at most, at a distance."""
    return f"{rounded_up(50 * (1 + distance), 0)} of 100 instead of 50"


def _persons_of(table: Table) -> tuple[int, ...]:
    """Return the number of persons of each group."""
    units = Panels.of(table) if table.has_histories else table
    return tuple(units.group_sizes(units.groups).tolist())


@lru_cache(maxsize=512)
def _plan(n: tuple[int, ...], target: float | None) -> CellPlan | None:
    return plan_cells(n, target, _DELTA)


def default_target(table: Table) -> float | None:
    """Return the target that `share` takes by itself; None where no target allows two cells."""
    plan = _plan(_persons_of(table), None)
    return None if plan is None else plan.target


def outlook(table: Table, target: float) -> list[str]:
    """Say what can be stated with a target, before anything is fitted."""
    n = _persons_of(table)
    plan, pair = _plan(n, target), "" if len(n) == 2 else ", of the worst pair of groups"
    if plan is None:
        return [f"Nothing can be promised within {target:g}: there are too few persons for two cells."]
    to_come = "Persons to come: nothing will be said; there are too few persons for that."
    if plan.population is not None:
        to_come = f"Persons to come: at most {of_100(plan.population)} are guessed right{pair}, for every method."
    return [
        f"About {plan.n_cells:,} cells of similar people; rows are drawn from cells, and more cells keep more.",
        f"This table: who looks at a row, and knows the group of half of the persons, guesses at most "
        f"{of_100(plan.known_half)} right{pair}.",
        to_come,
    ]


def of_label(table: Table, name: str) -> dict[float, str]:
    """Say for each target the best that any table within it could give for a label; empty where nothing is known."""
    try:
        found = label_prospect(table, name, TARGETS)
    except DataError:  # too few persons, or rows with a rare label
        found = None
    if found is None:
        return {}
    return {
        target: f"To decide by, for {name}: the best that any table within this target could give is right for about "
        f"{percent(found.best[f'{target:g}'])} of other persons (original rows: {percent(found.raw)}; blind guess: "
        f"{percent(found.blind)})."
        for target in TARGETS
    }


def result(shared: Shared, table: Table) -> dict[str, Any]:
    """Return what the Result screen shows."""
    c, contents = shared.certificate, shared.report.contents
    before = contents["before"]
    useful = contents["usefulness"]
    rows = useful["rows"] if useful else None
    return {
        "headline": headline(c, before),
        "people": people_svg(guesses_of_100(c, before)),
        "light": verdict.light(c),
        "verdict": verdict.verdict(c),
        "leaving out": verdict.leaving_out_would_do(c, before),
        "good for": worth_words.good_for(useful),
        "not covered": verdict.not_covered(c, useful, contents["data"]["merged"]),
        "remedies": verdict.remedies(c),
        "risks": verdict.other_risks(contents["audit"]),
        "notes": contents["data"]["notes"],
        "shapes": [] if rows is None else rows["shapes"],
        "apart": {} if rows is None else rows["columns"],
        "columns": list(shared.rows),
        "rows": shared.rows.head(20).astype(object).where(shared.rows.head(20).notna(), "").to_numpy().tolist(),
        "pairs": [str(name) for name in shared.rows if name in table.X or name in table.label_columns()],
    }


def pair(shared: Shared, table: Table, x: str, y: str) -> dict[str, Any]:
    """Return the shares of the values of two columns together, in the real and in the shared table."""
    real = pd.concat([table.X, table.label_columns()], axis=1).reset_index(drop=True)
    codes: list[list[np.ndarray]] = []
    names = []
    for name in (x, y):
        of_column, levels = _levels(real[name], shared.rows[name])
        codes.append(of_column)
        names.append(levels)
    size = (len(names[0]), len(names[1]))
    shares = []
    for one, other in zip(*codes, strict=True):
        both = (one >= 0) & (other >= 0)
        counted = np.bincount(one[both] * size[1] + other[both], minlength=size[0] * size[1])
        shares.append((counted / max(both.sum(), 1)).reshape(size))
    return {
        "names": names,
        "shares": [part.tolist() for part in shares],
        "top": max(part.max() for part in shares) or 1,
    }


def _levels(real: pd.Series, shared: pd.Series) -> tuple[list[np.ndarray], list[str]]:
    """Return the place of each value among ranges or frequent values, in both tables, and their names."""
    if has_order(real.dtype) and real.nunique() > _LEVELS:
        values = [floats(part) for part in (real, shared)]
        edges = np.unique(np.nanquantile(values[0], np.linspace(0, 1, _LEVELS + 1)))
        codes = [np.clip(np.searchsorted(edges, part, side="right") - 1, 0, len(edges) - 2) for part in values]
        known = [np.where(np.isnan(part), -1, code) for part, code in zip(values, codes, strict=True)]
        is_moment = real.dtype.kind == "M"
        starts = [str(pd.Timestamp(edge, unit="s"))[:10] if is_moment else f"{edge:g}" for edge in edges[:-1]]
        return known, [f"from {start}" for start in starts]
    index = real.astype(object).value_counts().index[:_LEVELS]
    return [places_in(index, part) for part in (real, shared)], list(map(str, index))

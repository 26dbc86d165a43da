"""What `fairflows describe` says of a table: all of its problems in one run, also those that `share` refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from fairflows.bounds.planning import CellPlan
from fairflows.cli.options import Reading, in_options, listed, with_options
from fairflows.exceptions import DataError
from fairflows.release.histories import checked_rules
from fairflows.release.rules import check_rules, proposed_rules
from fairflows.table.columns import check_column, check_known
from fairflows.table.gaps import unlike
from fairflows.table.names import columns_of_own_values, numbers_like_names
from fairflows.table.panels import Panels
from fairflows.table.persons import check_identifier
from fairflows.table.prospects import best_bounds, find_names, find_problems
from fairflows.table.table import Table

_FEW = 10  # persons of a group with one label, below which no statement is made given the label


@dataclass
class Description:
    """A table as it would be without its problems, these problems, and the statements that so many persons allow."""

    name: str
    columns: pd.DataFrame
    problems: list[str] = field(default_factory=list)
    table: Table | None = None
    rules: list[str] = field(default_factory=list)
    persons: int | None = None
    most_rows: int | None = None  # of a person, where all rows of a person are drawn together
    plans: list[CellPlan] = field(default_factory=list)
    default: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them."""
        groups = [] if self.table is None else self.table.summary().drop("all").reset_index().to_dict("records")
        return {
            "name": self.name,
            "rows": None if self.table is None else len(self.table),
            "persons": self.persons,
            "groups": groups,
            "columns": self.columns.to_dict("records"),
            "problems": [with_options(problem) for problem in self.problems],
            "rules": self.rules,
            "statements": [asdict(plan) | {"is_default": plan.target == self.default} for plan in self.plans],
        }

    def __str__(self) -> str:
        """Return the text for the terminal."""
        said = [f"{self.name}: no table can be made of it yet." if self.table is None else repr(self.table)]
        said += ["Columns", self.columns.to_string(index=False, float_format="{:.4g}".format), ""]
        said += [f"! {with_options(problem)}" for problem in self.problems]
        if self.rules:
            said.append(
                "Every row keeps these rules, and every shared row will (--no-rules leaves them out): "
                f"{'; '.join(self.rules)}."
            )
        if self.most_rows is not None:
            said.append(
                f"{self.persons:,} persons have up to {self.most_rows:,} rows. All rows of a person are drawn together "
                "from one cell, and the statements are about persons (--unit person)."
            )
        return "\n".join([*said, *([] if self.table is None else self._at_best())])

    def _at_best(self) -> list[str]:
        """Print the statements that so many persons allow."""
        if not self.plans:
            few = (
                "Nothing can be certified about these groups with so many persons: merge small ones (merge_small=...)."
            )
            return [in_options(few)]
        lines = ["What `share` can state with so many persons, for each target (the one with * is its default):"]
        for plan in self.plans:
            to_come = "nothing about persons to come"
            if plan.population:
                to_come = f"persons to come Δ ≤ {plan.population:.3f}"
            if plan.ranks is not None:
                to_come += f", and a correlation ≤ {plan.ranks:.3f} with the rank"
            of_table = f"this table, half of the groups known: Δ ≤ {plan.known_half:.3f}"
            star = "*" * (plan.target == self.default)
            lines.append(f"  {plan.target:g}{star}: {plan.n_cells:,} cells or more; {of_table}; {to_come}")
        return [*lines, "A guess between two groups is right (1 + Δ)/2 of the time."]


def describe(reading: Reading, frame: pd.DataFrame, name: str, delta: float) -> Description:
    """Describe the table in a frame. Raise for options that do not fit the frame, such as unknown columns."""
    sensitive, label = listed(reading.sensitive, frame), listed(reading.label, frame)
    drop = listed(reading.drop, frame)
    one = {"identifier": reading.identifier, "household": reading.household, "time": reading.time}
    named = {"sensitive": sensitive, "label": label, **{role: [column] for role, column in one.items() if column}}
    for role, columns in named.items():
        for column in columns:
            check_known(column, frame.columns, role)
    roles = [column for columns in named.values() for column in columns]
    problems = [*_of_features(frame.drop(columns=[c for c in {*roles, *drop} if c in frame]))]
    named_rows = find_names(frame, [*roles, *drop])
    problems += named_rows.items()
    drop += [column for column, _ in problems]
    if reading.identifier is not None:
        try:
            check_identifier(frame[reading.identifier])
        except DataError as error:
            problems.append((reading.identifier, str(error)))
            drop.append(reading.identifier)
            reading = replace(reading, identifier=None)
    stated, reading = (
        reading,
        replace(
            reading,
            drop=drop,
            missing_group=reading.missing_group or "drop",
            missing_label=reading.missing_label or "drop",
        ),
    )
    table, refused = _table(reading, frame, name)
    while table is not None and (numbered := {of: said for of, said, stops in numbers_like_names(table) if stops}):
        problems += numbered.items()  # findings about the number of a row would hide the others
        named_rows |= numbered
        drop += numbered
        table, refused = _table(reading, frame, name)
    unnamed = frame.drop(columns=[c for c in {*named_rows, stated.identifier, stated.household} if c in frame])
    found = [*_of_gaps(unnamed, sensitive, label, stated), *(text for _, text in problems), *refused]
    if table is None:
        columns = pd.DataFrame({"column": list(map(str, frame)), "type": frame.dtypes.astype(str).to_list()})
        return Description(name, columns.assign(missing=frame.isna().sum().to_list()), found)
    described = Description(name, table.columns().reset_index(), found, table, proposed_rules(table.X))
    units = _units(table, reading, described)
    described.problems += [*columns_of_own_values(table).values(), *find_problems(table), *_of_rare_labels(table)]
    described.persons = units.persons.n
    described.plans, described.default = best_bounds(units, delta=delta)
    return described


def _of_features(features: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield the columns that cannot be features, each with the reason."""
    for name, column in features.items():
        try:
            check_column(str(name), column)
        except DataError as error:
            yield str(name), f"{error} It must be mended, or left out (drop=[{str(name)!r}])."


def _of_gaps(frame: pd.DataFrame, sensitive: list[str], label: list[str], reading: Reading) -> Iterator[str]:
    """Say of how many rows the group or the label is missing, and how they differ from the others."""
    for columns, parameter, chosen, kept in (
        (sensitive, "missing_group", reading.missing_group, "group"),
        (label, "missing_label", reading.missing_label, "keep"),
    ):
        is_missing = frame[columns].isna().any(axis=1).to_numpy()
        if not is_missing.any():
            continue
        others = [column for column in frame if column not in columns or len(columns) > 1]
        first = unlike(frame[[column for column in sensitive if column in others]], is_missing)
        differ = [*first, *unlike(frame[[c for c in others if c not in sensitive]], is_missing)][:3]
        part = "less than 1%" if is_missing.mean() < 0.005 else f"{is_missing.mean():.0%}"
        share = f"{is_missing.sum():,} of {len(frame):,} rows ({part})"
        said = f"{' and '.join(columns)}: missing in {share}."
        if differ:
            said += f" These rows differ from the others: {'; '.join(differ)}. To drop them changes the table so."
        if chosen is None:
            said += f" Drop them ({parameter}='drop'), or keep them as 'missing' ({parameter}={kept!r})."
        yield said


def _table(reading: Reading, frame: pd.DataFrame, name: str) -> tuple[Table | None, list[str]]:
    """Return the table, without a role that its columns do not allow, and what was refused."""
    refused: list[str] = []
    relaxed = {
        "": reading,
        "time": replace(reading, time=None),
        "household": replace(reading, household=None),
        "label": replace(reading, label=None),
    }
    for role, read in relaxed.items():
        if role and not getattr(reading, role):
            continue
        try:
            return read.table(frame, name), refused
        except DataError as error:
            if str(error) not in refused:
                refused.append(str(error))
    if reading.groups or reading.merge_small or reading.categorical:
        raise DataError(refused[-1])
    return None, refused


def _units(table: Table, reading: Reading, described: Description) -> Table:
    """Return what has cells: the rows, or the persons where these have several."""
    units, rules = table, reading.rules or ()
    try:
        if table.has_histories and reading.most_rows is None:
            units = Panels.of(table)
        elif reading.most_rows is not None:
            table.random_rows(0, reading.most_rows)  # raises if a person has more
    except DataError as error:
        described.problems.append(str(error))
    if isinstance(units, Panels):
        checked_rules(rules, units)
        described.most_rows = int(units.X["rows"].max())
    else:
        check_rules(rules, table.X)
    return units


def _of_rare_labels(table: Table) -> Iterator[str]:
    """Name the classes of the label of which a group has few persons."""
    counts, groups = table.label_counts(), table.groups
    few = [(int(counts[c, a]), table.labels[c], groups[a]) for c, a in np.argwhere(counts < _FEW)]
    if few and table.y is not None:
        first = ", ".join(f"{label} in {group} ({n})" for n, label, group in sorted(few, key=lambda one: one[0])[:8])
        more = f" and {len(few) - 8:,} more" if len(few) > 8 else ""
        yield (
            f"Few rows have the label {table.y.name}: {first}{more}. No statement is made given a label with "
            f"fewer than {_FEW} persons of a group, and little is learnt about it: give classes that can be one the "
            "same name."
        )

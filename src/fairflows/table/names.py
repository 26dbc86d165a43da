"""Columns that may name persons, rows or households: what tells who a row is must not be shared as a feature."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import chi2_contingency

from fairflows.exceptions import DataError
from fairflows.table.columns import floats, has_order, is_number, numbers
from fairflows.table.grid import find_grid
from fairflows.table.table import Table

_FEWEST_ROWS = 50  # for a column with as many values as rows to be suspicious
_NEARLY_ALL = 0.95  # share of the rows with a value of their own, in a column of names
_IN_ORDER = 0.99  # rank correlation with the number of the row, of numbers that follow it
_BY_CHANCE = 0.001  # probability at which a column counts as related to others
_MOST_ROWS = 20_000  # that relations are looked for in
_PARTS = 12  # of the values of a column of numbers, for relations
_MOSTLY_OWN = 0.5  # share of the texts that one person has, in a column of names
_FINE = 100  # steps of a column's grid for each row, from which on equal values are no chance
_OFTEN_EQUAL = 0.2  # share of the rows whose fine number others have, too
_FEW_PERSONS = 12  # that may be a household
_FEWEST_NAMES = 20  # values with several rows, in a column that may name persons with histories
_ONE_GROUP = 0.99  # share of these values of which all rows are of one group
_MOST_BY_CHANCE = 0.9  # of them that would be by chance, if that says anything


def check_numbers(table: Table) -> None:
    """Raise if a column of whole numbers looks like names of rows, unless it is stated to be a measurement."""
    for _, said, is_certain in numbers_like_names(table):
        if is_certain:
            raise DataError(said)


def numbers_like_names(table: Table) -> Iterator[tuple[str, str, bool]]:
    """Yield each column of whole numbers that may name rows, a sentence about it, and whether it is refused."""
    for name, column in table.X.items():
        if name in table.keep_numbers or not _are_different_whole_numbers(column):
            continue
        follows, is_related = _follows_rows(column), _is_related(table, name)
        why = "which follow the rows" if follows else "which are related to no other column"
        looks = f", {why}: it looks like names of persons or rows" if follows or not is_related else ""
        yield (
            str(name),
            f"Column {name!r} holds {column.nunique():,} different whole numbers in {len(column):,} rows{looks}. Make "
            f"it the identifier (identifier={name!r}) if it names persons or rows, drop it (drop=[{name!r}]), or state "
            f"that it is a measurement (keep_numbers=[{name!r}]).",
            bool(looks),
        )


def columns_of_own_values(table: Table) -> dict[str, str]:
    """Return columns of categories of which most persons have a value of their own, and a sentence about each.

    No value that one person has is shared, and the other values would stand in most rows.
    """
    found = {}
    for name, column in table.X.items():
        if has_order(column.dtype) and table.declared_kinds.get(str(name)) != "categorical":
            continue
        codes, values = pd.factorize(column)
        is_known = codes >= 0
        pairs = pd.DataFrame({"value": codes, "who": table.households})[is_known].drop_duplicates()
        is_own = np.bincount(pairs["value"], minlength=len(values)) == 1
        if is_known.sum() > 2 and is_own[codes[is_known]].mean() > _MOSTLY_OWN:
            found[str(name)] = (
                f"{name} is dropped: {is_own.sum():,} of its {len(values):,} values are of one person alone. Such "
                "values are never shared, and the others would stand in their place."
            )
    return found


def names_of_histories(table: Table) -> Iterator[str]:
    """Ask whether a column names persons: its values have several rows each, which are of one group."""
    if table.identifier is not None:
        return
    groups = pd.factorize(table.a)[0]
    shares = np.bincount(groups) / len(groups)
    for name, column in table.X.items():
        if name in table.keep_numbers or not _may_be_names(column):
            continue
        codes, values = pd.factorize(column)
        rows = np.bincount(codes[codes >= 0], minlength=len(values))
        pairs = pd.DataFrame({"value": codes, "group": groups})[codes >= 0].drop_duplicates()
        is_of_one = np.bincount(pairs["value"], minlength=len(values)) == 1
        several = rows[rows > 1]
        if len(several) < _FEWEST_NAMES or is_of_one[rows > 1].mean() < _ONE_GROUP:
            continue
        if (shares ** several[:, None]).sum(axis=1).mean() < _MOST_BY_CHANCE:
            yield (
                f"{name} may name persons: rows with the same {name} have the same {table.a.name}, and each of its "
                f"{len(values):,} values has {rows.mean():.1f} rows on average. If so, make it the identifier "
                f"(identifier={name!r}): otherwise each row counts as another person."
            )


def _may_be_names(column: pd.Series) -> bool:
    """Return whether a column holds categories or whole numbers."""
    if not is_number(column.dtype):
        return not has_order(column.dtype)
    known = floats(column[column.notna()])
    return bool((known == np.rint(known)).all())


def values_of_households(table: Table) -> Iterator[str]:
    """Ask for the household, in a sentence about all columns of fine numbers that few persons share."""
    shares = {}
    for name, column in table.X.items():
        if not is_number(column.dtype) or not _is_fine(column[column.duplicated(keep=False)].dropna()):
            continue
        codes = pd.factorize(column)[0]
        known = codes >= 0
        pairs = pd.DataFrame({"value": codes, "who": table.households})[known].drop_duplicates()
        shared_by = np.bincount(pairs["value"])[codes[known]]
        share = float(((shared_by > 1) & (shared_by <= _FEW_PERSONS)).mean())
        if share > _OFTEN_EQUAL:
            shares[str(name)] = share
    if shares:
        yield (
            f"{', '.join(shares)}: in {max(shares.values()):.0%} of the rows is a number with many digits that 2 to "
            f"{_FEW_PERSONS} persons have, such as those of one household. If the persons of a household, a firm or a "
            "class have it, name the column that says which (household=...): then no value that only one of these has "
            "is shared."
        )


def _are_different_whole_numbers(column: pd.Series) -> bool:
    """Return whether nearly every row has a whole number of its own."""
    if not is_number(column.dtype):
        return False
    known = floats(column[column.notna()])
    is_whole = (known == np.rint(known)).all()
    return bool(is_whole and len(known) >= _FEWEST_ROWS and len(np.unique(known)) >= _NEARLY_ALL * len(known))


def _follows_rows(column: pd.Series) -> bool:
    """Return whether numbers rise or fall with the rows."""
    known = pd.Series(floats(column)).dropna()
    return abs(float(np.corrcoef(known.rank(), np.arange(len(known)))[0, 1])) > _IN_ORDER


def _is_related(table: Table, name: object) -> bool:
    """Return whether a column of numbers is related to another one, the group or a label, more than by chance."""
    others = pd.concat([table.X.drop(columns=[name]), table.a, table.label_columns()], axis=1)
    some = np.sort(np.random.default_rng(0).permutation(len(table))[:_MOST_ROWS])
    own = _parts(table.X[name].iloc[some])
    limit = _BY_CHANCE / others.shape[1]
    return any(_chance(own, _parts(others.iloc[some, j])) < limit for j in range(others.shape[1]))


def _chance(one: npt.NDArray[np.intp], other: npt.NDArray[np.intp]) -> float:
    """Return the probability that two columns without a relation differ so much from what is expected."""
    counts = np.zeros((one.max() + 1, other.max() + 1))
    np.add.at(counts, (one, other), 1)
    counts = counts[counts.any(axis=1)][:, counts.any(axis=0)]
    return float(chi2_contingency(counts).pvalue) if min(counts.shape) > 1 else 1.0


def _parts(column: pd.Series) -> npt.NDArray[np.intp]:
    """Return the part of each value: numbers and times are cut, rare categories are one, missing values another."""
    if has_order(column.dtype) and column.nunique() > _PARTS:
        values = pd.Series(floats(column))
        return np.asarray(pd.qcut(values.rank(), _PARTS, labels=False, duplicates="drop").fillna(-1) + 1, dtype=np.intp)
    codes = pd.factorize(column)[0] + 1
    is_often = np.bincount(codes) >= _PARTS
    return np.where(is_often[codes], codes, len(is_often)).astype(np.intp)


def _is_fine(known: pd.Series) -> bool:
    """Return whether numbers are so fine that equal ones are no chance."""
    if len(known) < _FEWEST_ROWS:
        return False
    grid = find_grid(numbers(known))
    return grid is None or (grid.n_steps > _FINE * len(known) and grid.decimals > 2)

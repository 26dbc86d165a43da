"""The columns of a law of rows: those that are drawn, as levels, and those that are computed from them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairflows.encoder.base import IntArray
from fairflows.exceptions import DataError
from fairflows.release.column_tree import Predictor, standardised
from fairflows.release.derived_columns import Derived, Lookup, find_derived, without_undrawn
from fairflows.release.formulas import Columns
from fairflows.release.number_ranges import NumberRanges, is_shared
from fairflows.table.columns import Dtype, check_known, floats, has_order, is_number
from fairflows.table.domain import Levels

Part = Levels | NumberRanges

_ROWS_PER_CODE = 50  # of each whole number that may be a code
_FEW_VALUES = 10
_TELLING = 0.01  # share of the variance of the label that codes explain
_IN_ORDER = 0.4  # correlation of the label's rates between neighbouring values of a column with an order


@dataclass(frozen=True)
class DrawnColumns:
    """The columns of training rows that a law draws, in the order in which it draws them."""

    parts: dict[Hashable, Part]  # those that are given come first
    n_given: int  # columns that are known when the others are drawn
    codes: dict[Hashable, IntArray]  # the level of each row
    is_ordered: dict[Hashable, bool]
    computed: list[Derived]  # how the other columns follow from these

    @classmethod
    def of(
        cls,
        whole: pd.DataFrame,
        labels: Sequence[Hashable],
        persons: IntArray,
        *,
        kinds: Mapping[Hashable, str],
        derive: bool,
        order: Sequence[Hashable],
        known: Mapping[Hashable, tuple[Levels, IntArray]],
        given: Sequence[Hashable] = (),
        computed: Sequence[Derived] = (),
    ) -> DrawnColumns:
        """Find the columns to draw in training rows, whose persons are numbered.

        `known` has the levels of columns that were coded before. The columns of `given` come first, then those that
        `order` names, then labels, then columns with few levels. A label that came last would depend on all features by
        one small tree; features that come later depend on the label by a tree each, which keeps more of a small table.
        `computed` says how some columns follow from others. The other settings are those of `RowLaw.fit`.
        """
        for name in (*given, *order):
            check_known(name, whole.columns, "first")
        order = list(dict.fromkeys([*given, *order, *labels]))
        follows = {found.column for found in computed}
        drawn: Columns = {name: column for name, column in whole.items() if name not in follows}
        looked_up = {found.source for found in computed if isinstance(found, Lookup)}  # which are drawn as they are
        declared, found_here = declared_columns(whole, labels, kinds) | looked_up, list[Derived]()
        if derive:
            named = [name for name in labels if name in drawn]
            drawn, found_here = find_derived(pd.DataFrame(drawn), declared, persons, named, known, given)
        computed = [*found_here, *computed]
        exact = declared | {found.source for found in computed if isinstance(found, Lookup)}
        parts, codes = dict[Hashable, Part](), dict[Hashable, IntArray]()
        for name, column in drawn.items():
            is_range = has_order(column.dtype) and name not in exact
            found = NumberRanges.fit(column, persons) if is_range else None
            coded = found or (known[name] if name in known else Levels.of(str(name), column))
            parts[name], codes[name] = coded[0], coded[1].astype(np.int64)
        first = {name: place - len(order) for place, name in enumerate(order)}
        names = sorted(parts, key=lambda name: first.get(name, len(parts[name])))
        is_ordered = {name: name not in declared and _is_ordered(drawn[name].dtype) for name in names}
        return cls({n: parts[n] for n in names}, len(given), codes, is_ordered, computed)

    def predictors(self) -> list[Predictor]:
        """Return the columns as whole numbers that a tree may split."""
        return [Predictor(self.codes[n], len(part), self.is_ordered[n]) for n, part in self.parts.items()]

    def targets(self, persons: IntArray) -> list[Predictor]:
        """Return the columns as they are drawn: a level that only one person has is −1, and never drawn.

        Such a level is a category, or a gap in numbers.
        """
        found = []
        for name in list(self.parts)[self.n_given :]:
            part, codes = self.parts[name], self.codes[name]
            is_drawn = is_shared(codes, persons, len(part))
            if isinstance(part, NumberRanges):  # of a gap it is asked who has it, of a range what it holds
                is_drawn[: len(part.first)] = part.is_drawn
            if not is_drawn.any():
                raise DataError(
                    f"Column {name!r} has a different value for every person, so that every value tells who it is: "
                    "leave the column out."
                )
            if isinstance(part, Levels):
                self.parts[name] = without_undrawn(part, is_drawn)
            found.append(Predictor(np.where(is_drawn[codes], codes, -1), len(part), self.is_ordered[name]))
        return found


def joined_columns(X: pd.DataFrame, y: pd.DataFrame | None, label_place: int | None) -> pd.DataFrame:
    """Return features and labels side by side, the labels at their place."""
    whole = X.reset_index(drop=True)
    if y is not None:
        place = X.shape[1] if label_place is None else label_place
        whole = pd.concat([whole.iloc[:, :place], y.reset_index(drop=True), whole.iloc[:, place:]], axis=1)
    if whole.columns.has_duplicates:
        name = whole.columns[whole.columns.duplicated()][0]
        raise DataError(f"Column {name!r} is a feature and the label: a row that is drawn has both; rename one.")
    return whole


def declared_columns(whole: pd.DataFrame, labels: Sequence[Hashable], kinds: Mapping[Any, str]) -> set[Hashable]:
    """Return the columns of numbers that are categories: as declared, or where they are codes."""
    declared = {n for n, c in whole.items() if has_order(c.dtype) and kinds.get(n) == "categorical"}
    if labels:
        label = pd.factorize(whole[labels[0]])[0]
        declared |= {n for n, c in whole.items() if n not in (*labels, *kinds) and _is_code(c, label)}
    return declared


def _is_code(column: pd.Series, label: IntArray) -> bool:
    """Whether whole numbers are codes: many rows each, and rates of the label that differ between neighbours."""
    known = column.notna().to_numpy()
    if not is_number(column.dtype) or column.nunique() > known.sum() / _ROWS_PER_CODE:
        return False
    values, codes, counts = np.unique(floats(column)[known], return_inverse=True, return_counts=True)
    if len(values) <= _FEW_VALUES or (values != np.rint(values)).any():
        return False
    rate = np.bincount(codes, standardised(label[known])) / counts
    both = np.minimum(counts[1:], counts[:-1])  # the rows that a pair of neighbouring values stands for
    mean = np.average((rate[1:] + rate[:-1]) / 2, weights=both)
    rate, noise = rate - mean, 1 / counts
    alike = np.average(rate[1:] * rate[:-1], weights=both)
    apart = np.average((rate[1:] ** 2 + rate[:-1] ** 2 - noise[1:] - noise[:-1]) / 2, weights=both)
    return bool(apart > _TELLING and alike < _IN_ORDER * apart)


def _is_ordered(dtype: Dtype) -> bool:
    return has_order(dtype) or (isinstance(dtype, pd.CategoricalDtype) and dtype.ordered)

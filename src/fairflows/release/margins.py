"""Several sensitive columns: rows counted by the values of one of them, or of two."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from fairflows.encoder.base import Cells, IntArray
from fairflows.table.grouping import joined
from fairflows.table.table import Table


@dataclass(frozen=True)
class Margin:
    """Rows counted by the values of some of several sensitive columns."""

    columns: tuple[str, ...]
    values: list[str]
    cells: IntArray  # (V, k): by value and cell
    groups: IntArray  # (V, K): by value and group
    # For each group that was merged from several: the rows of each value and cell in it, (V, k).
    inside: dict[str, IntArray]
    values_inside: list[str]

    @classmethod
    def all_of(cls, table: object, group: Cells, cells: Cells, shape: tuple[int, int]) -> list[Margin]:
        """Count every single attribute of several, and every pair of more than two.

        Where a value occurs in merged groups alone, these groups are a value of their own.
        """
        if not isinstance(table, Table) or table.attributes is None:
            return []
        K, k = shape
        names, found = list(map(str, table.attributes)), []
        merged = [(name, table.a.to_numpy() == name) for name in table.grouping.merged_groups]
        for n in (1, 2) if len(names) > 2 else (1,):
            for columns in combinations(names, n):
                true = joined(table.attributes[list(columns)]).astype(object)
                shown = true
                for name, is_inside in merged:
                    if set(true[is_inside]) - set(true[~is_inside]):
                        shown = shown.mask(is_inside, name)
                codes, values = pd.factorize(shown, sort=True)
                true_codes, true_values = pd.factorize(true, sort=True)

                inside = {name: _crossed(true_codes[some], cells[some], len(true_values), k) for name, some in merged}
                if len(values) > 1:
                    of_cells, of_groups = (_crossed(codes, by, len(values), n) for by, n in ((cells, k), (group, K)))
                    texts = list(map(str, values)), list(map(str, true_values))
                    found.append(cls(columns, texts[0], of_cells, of_groups, inside, texts[1]))
        return found


def _crossed(one: Cells, other: Cells, n: int, m: int) -> IntArray:
    """Count pairs, (n, m)."""
    return np.bincount(one * m + other, minlength=n * m).reshape(n, m).astype(np.int64)

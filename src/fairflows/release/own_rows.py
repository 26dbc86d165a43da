"""The rows, numbers and gaps that only one training person has, none of which is drawn."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.encoder.base import FloatArray, IntArray
from fairflows.release.number_ranges import is_shared, is_within_others
from fairflows.table.columns import floats, has_order
from fairflows.table.keys import Hashes, Secret, keyed_hashes, value_hashes


@dataclass(frozen=True)
class RowHashes:
    """How the rows of a table are hashed, by the values of their columns, with and without the labels."""

    names: list[Hashable]  # the columns, labels last
    n_features: int  # how many of them are no labels
    factors: Hashes  # one for each column, from a secret key
    rounded: list[Hashable]  # computed numbers, which differ from those of the table in their last digits

    @classmethod
    def of(
        cls, columns: Sequence[Hashable], labels: Sequence[Hashable], rounded: Iterable[Hashable], key: Secret
    ) -> Self:
        """Hash these columns with a key."""
        names = sorted(columns, key=lambda name: (name in labels, str(name)))
        factors = keyed_hashes([f"column {d}" for d in range(len(names))], key, "row") | np.uint64(1)
        return cls(names, sum(name not in labels for name in names), factors, list(rounded))

    def of_column(self, name: Hashable, column: pd.Series) -> Hashes:
        """Return a hash of each value of a column."""
        if not has_order(column.dtype):
            return value_hashes(column)
        values = floats(column)
        values = np.where(np.isnan(values), np.nan, values + 0.0)  # −0 and −NaN are 0 and NaN
        return pd.util.hash_array(values.round(6) if name in self.rounded else values)

    def of_rows(self, columns: Mapping[Hashable, Hashes]) -> list[Hashes]:
        """Return a keyed hash of the features of every row, and of the whole row where it has a label."""
        found, mixed = [], np.zeros(len(next(iter(columns.values()))), dtype=np.uint64)
        for place, (name, factor) in enumerate(zip(self.names, self.factors, strict=True), start=1):
            mixed = (mixed ^ columns[name]) * factor
            mixed ^= mixed >> np.uint64(29)
            if place in (self.n_features, len(self.names)):
                found.append(mixed.copy())
        return found

    def of_frame(self, frame: pd.DataFrame) -> list[Hashes]:
        """Return the same of the rows of a table."""
        return self.of_rows({name: self.of_column(name, frame[name]) for name in self.names})


def held_by_one(hashes: Sequence[Hashes], persons: npt.NDArray[np.integer]) -> Hashes:
    """Return the hashes that only one person has, once or several times, in rising order."""
    found = []
    for each in hashes:
        different, codes = np.unique(each, return_inverse=True)
        found.append(different[~is_shared(codes, persons, len(different))])
    return np.unique(np.concatenate(found))


def shared_range(values: FloatArray, persons: IntArray) -> tuple[float, float, bool]:
    """Return the smallest and the largest value, but for extremes of one person, and whether some are missing.

    A gap that only one person has does not count.
    """
    is_known = ~np.isnan(values)
    different, codes = np.unique(values[is_known], return_inverse=True)
    owner = np.empty(len(different), dtype=persons.dtype)
    owner[codes] = persons[is_known]
    is_inner = is_within_others(np.where(is_shared(codes, persons[is_known], len(different)), -1, owner))
    inner = different[is_inner] if is_inner.any() else different
    return float(inner[0]), float(inner[-1]), len(np.unique(persons[~is_known])) > 1

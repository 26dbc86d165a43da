"""The rows, numbers and gaps that only one training person has, none of which is drawn."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fairflows.encoder.base import FloatArray, IntArray
from fairflows.release.derived_columns import Columns, Derived, Formula, Lookup
from fairflows.release.drawn_columns import DrawnColumns
from fairflows.release.number_ranges import Places, is_shared
from fairflows.release.rules import BoolArray
from fairflows.table.columns import floats
from fairflows.table.domain import Levels
from fairflows.table.keys import Hashes, Secret, keyed_hashes


@dataclass(frozen=True)
class OwnRows:
    """The training rows that only one person has, with or without the label, as keyed hashes.

    A row is known by the places of its columns that are drawn, and by its computed columns.
    """

    names: list[Hashable]  # the columns that tell rows apart, labels last
    n_features: int  # how many of them are no labels
    factors: Hashes  # of the hash, one for each column
    levels: dict[Hashable, Levels]  # of the computed categories among them
    taken: Hashes  # the hashes, in rising order

    @classmethod
    def of(
        cls,
        drawn: DrawnColumns,
        whole: pd.DataFrame,
        labels: Sequence[Hashable],
        persons: IntArray,
        key: Secret,
    ) -> OwnRows:
        """Find the rows of a table that only one of its persons has."""
        names = _telling(drawn.parts, drawn.computed, list(whole), labels)
        n_features = sum(name not in labels for name in names)
        factors = keyed_hashes([f"column {d}" for d in range(len(names))], key, "row") | np.uint64(1)
        levels = {f.column: f.values for f in drawn.computed if isinstance(f, Lookup) and f.column in names}
        own = cls(names, n_features, factors, levels, np.empty(0, dtype=np.uint64))
        # A row with a value that is rounded is not drawn as it is, and does not share what is drawn.
        rounded = pd.DataFrame(drawn.is_rounded, index=whole.index)
        hashes = list(own.hashes(drawn.places, dict(whole.items())))
        is_rounded = [rounded.drop(columns=labels, errors="ignore").any(axis=1), rounded.any(axis=1)][-len(hashes) :]
        taken = []
        for each, left_out in zip(hashes, is_rounded, strict=True):
            kept = ~left_out.to_numpy()
            different, codes = np.unique(each[kept], return_inverse=True)
            taken.append(different[~is_shared(codes, persons[kept], len(different))])
        return replace(own, taken=np.unique(np.concatenate(taken)))

    def are_among(self, places: Mapping[Hashable, Places], columns: Columns) -> BoolArray:
        """Return which rows are one person's own."""
        found = np.zeros(len(next(iter(places.values()))), dtype=bool)
        if len(self.taken):
            for hashes in self.hashes(places, columns):
                found |= self.taken.take(self.taken.searchsorted(hashes), mode="clip") == hashes
        return found

    def hashes(self, places: Mapping[Hashable, Places], columns: Columns) -> Iterator[Hashes]:
        """Yield a keyed hash of the features of every row, and of the whole row where it has a label."""
        mixed = np.zeros(len(next(iter(places.values()))), dtype=np.uint64)
        for place, (name, factor) in enumerate(zip(self.names, self.factors, strict=True), start=1):
            if name in places:
                value = places[name]
            else:
                value = (
                    self.levels[name].codes(columns[name]) if name in self.levels else floats(columns[name]).round(6)
                )
            # −0 and −NaN are 0 and NaN.
            is_real = value.dtype.kind == "f"
            value = np.where(np.isnan(value), np.nan, value + 0.0) if is_real else value.astype(np.int64)
            mixed = (mixed ^ value.view(np.uint64)) * factor
            mixed ^= mixed >> np.uint64(29)
            if place in (self.n_features, len(self.names)):
                yield mixed.copy()


def _telling(
    parts: Mapping[Hashable, object],
    computed: Sequence[Derived],
    columns: Sequence[Hashable],
    labels: Sequence[Hashable],
) -> list[Hashable]:
    """Return the columns that tell rows apart, labels last.

    Helper columns count only if columns of the table are looked up by them. A column that always follows from a feature
    tells nothing more; one that follows from a label, or a rest, does where the features are known alone.
    """
    lookups = [found for found in computed if isinstance(found, Lookup)]
    formulas = [found for found in computed if isinstance(found, Formula)]
    others = {*labels, *(formula.rest for formula in formulas)}
    looked_up = [each.column for each in lookups if not each.is_exact or each.source in others]
    counted = {*columns, *(lookup.source for lookup in lookups if lookup.source not in others)}
    names = [name for name in (*parts, *looked_up, *(formula.column for formula in formulas)) if name in counted]
    return sorted(names, key=lambda name: (name in labels, str(name)))


def shared_range(values: FloatArray, persons: IntArray) -> tuple[float, float, bool]:
    """Return the smallest and the largest value, but for those that only one person has, and whether some are missing.

    A gap that only one person has does not count.
    """
    is_known = ~np.isnan(values)
    different, codes = np.unique(values[is_known], return_inverse=True)
    is_inner = is_shared(codes, persons[is_known], len(different))
    is_inner[1:-1] = True
    inner = different[is_inner] if is_inner.any() else different
    return float(inner[0]), float(inner[-1]), len(np.unique(persons[~is_known])) > 1

"""Count the values that a codec did not meet when it was fitted, by column and row.

Two kinds of them are brought back by a rule that does not depend on the row's group: a number between the points of the
grid is rounded, a number beyond the training range continues it. Two kinds cannot be brought back: an unseen category,
and a missing value in a column that had none. The encoder decides about rows with such a value, without regard to their
group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from fairflows.exceptions import warn_user

BoolArray = npt.NDArray[np.bool_]
Reason = Literal["unseen", "missing", "beyond", "off grid"]

UNKNOWN: tuple[Reason, ...] = ("unseen", "missing")
"""The reasons for which a value cannot be brought back."""


@dataclass(frozen=True)
class OutsideValues:
    """The values of a table that a codec was not fitted on. The codec fills it in while encoding.

    Examples
    --------
    >>> outside = OutsideValues(3)
    >>> outside.note("town", "unseen", np.array([False, True, True]))
    >>> outside.note("age", "beyond", np.array([True, False, False]))
    >>> outside.unknown
    array([False,  True,  True])
    >>> outside.by_column()
    {'town': {'unseen': 2}, 'age': {'beyond': 1}}
    """

    n_rows: int  # rows of the table
    # For a column and a reason, the rows whose value is outside: a category that was not there ("unseen"), missing
    # where none was ("missing"), beyond the training range ("beyond"), between the points of the grid ("off grid").
    rows: dict[tuple[str, Reason], BoolArray] = field(default_factory=dict)

    def note(self, column: str, reason: Reason, rows: BoolArray) -> None:
        """Note rows whose value in a column is outside."""
        if rows.any():
            self.rows[column, reason] = rows

    def note_part(self, places: npt.NDArray[np.intp], part: OutsideValues) -> None:
        """Note the findings in a part of the rows, which are at these places."""
        for at, rows in part.rows.items():
            whole = self.rows.get(at, np.zeros(self.n_rows, dtype=bool))
            whole[places] |= rows
            self.rows[at] = whole

    @property
    def unknown(self) -> BoolArray:
        """The rows with a value that cannot be brought back."""
        unknown = np.zeros(self.n_rows, dtype=bool)
        for (_, reason), rows in self.rows.items():
            if reason in UNKNOWN:
                unknown |= rows
        return unknown

    def warn(self) -> None:
        """Warn once of all values that were brought back or could not be."""
        messages: dict[Reason, str] = {
            "beyond": "Values outside the training range",
            "off grid": "Values between the points of the training grid, rounded to them",
            "unseen": "Categories that the training rows did not have, treated alike in every group",
            "missing": "Values that are missing where none was in training, treated alike in every group",
        }
        counts, said = self.by_column(), []
        for reason, message in messages.items():
            columns = [f"{name!r} ({count[reason]:,})" for name, count in counts.items() if reason in count]
            if columns:
                said.append(f"{message}: column {', '.join(columns)}.")
        if said:
            warn_user(" ".join(said))

    def by_column(self) -> dict[str, dict[str, int]]:
        """Return the number of values outside, by column and reason."""
        counts: dict[str, dict[str, int]] = {}
        for (column, reason), rows in self.rows.items():
            if rows.any():
                counts.setdefault(column, {})[reason] = int(rows.sum())
        return counts

"""A release that is measured: the rows that it was fitted to, rows of other persons, and the shared rows of both."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.base import clone

from fairflows.attack.risks import Risk, measure_risks
from fairflows.encoder.base import Model, encode_again
from fairflows.exceptions import DataWarning
from fairflows.table.frames import to_pandas
from fairflows.table.table import Table
from fairflows.worth.likeness import real_columns

_MOST_MEASURED = 25_000  # persons that a second release is fitted to and judged on; more say the same
_JUDGED = 0.2  # share of them whom it has not seen


@dataclass(frozen=True)
class MeasuredRelease:
    """A model, rows that it was fitted to and rows of others, and the shared rows of both (None: encode on demand)."""

    model: Model
    learn: Table
    judge: Table
    rows: tuple[pd.DataFrame, pd.DataFrame] | None

    def risks(self, delta: float, random_state: int = 0) -> tuple[Risk, ...]:
        """Measure other risks of the rows that were drawn for the persons that the model was fitted to."""
        if self.rows is None:
            return ()
        members, others = (real_columns(part, self.rows[0]) for part in (self.learn, self.judge))
        if members.shape[1] < 2:
            return ()
        return measure_risks(self.rows[0].reset_index(drop=True), members, others, delta, random_state)

    def unseen(self) -> MeasuredRelease:
        """Return both halves of the other persons, the only ones that attackers of a second release know."""
        places = self.judge.persons.split(0.5, random_state=0)
        rows = None if self.rows is None else (self.rows[1].iloc[places[0]], self.rows[1].iloc[places[1]])
        return MeasuredRelease(self.model, self.judge.take(places[0]), self.judge.take(places[1]), rows)


def second_release(release: Model, table: Table, random_state: int = 0) -> MeasuredRelease:
    """Fit a second release to four fifths of the persons, at most 20,000, and release the others by it, too.

    Raise a DataError if there are too few persons for that.
    """
    table = release.units(table)
    persons, some = table.persons, np.arange(len(table))
    share = min(1.0, _MOST_MEASURED / persons.n)
    if share < 1:
        some = persons.split(share, random_state=random_state)[1]
    places = persons.take(some).split(_JUDGED, random_state=random_state)
    learn, judge = (table.take(some[part]) for part in places)
    twin = clone(release)
    if release.traits.separate_thresholds:
        twin.set_params(n_cells=release.n_cells_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # of the first release
        if release.traits.unit == "person":  # one row of summaries for each person, who keep their cells
            twin.fit(learn)
            return MeasuredRelease(twin, learn, judge, (encode_again(twin, learn), encode_again(twin, judge)))
        return MeasuredRelease(twin, learn, judge, (to_pandas(twin.fit_transform(learn)), encode_again(twin, judge)))

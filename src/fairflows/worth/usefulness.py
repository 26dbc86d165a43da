"""usefulness: what a shared table is worth, to train on, to decide by, beside the real one, and column by column."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from fairflows.encoder.base import Model, encode_again, fitted_model
from fairflows.exceptions import DataError
from fairflows.table.panels import Panels
from fairflows.table.table import Table
from fairflows.threads import one_thread
from fairflows.worth.label_worth import LabelWorth, label_worth
from fairflows.worth.leakage import ColumnLeakage, Forests
from fairflows.worth.likeness import Likeness, likeness, real_columns
from fairflows.worth.measured import MeasuredRelease, second_release
from fairflows.worth.panel_worth import PanelWorth, panel_worth

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Usefulness:
    """Measures of the worth of a shared table.

    Attributes
    ----------
    labels : tuple of LabelWorth
        What it is worth to train on and to decide by, for each label.
    rows : Likeness or None
        How much its rows are like real ones; None where no rows are drawn.
    columns : tuple of ColumnLeakage
        How much a shared row tells of the person's own values, most told first. Of a number its quarter is predicted,
        of a column with many categories the most frequent ones and "another".
    sensitive : ColumnLeakage
        The same of the sensitive attribute, by balanced accuracy: every group counts alike.
    n : int
        How many rows of persons whom nothing was learnt from were judged.
    n_learnt : int
        How many rows were learnt from.
    panels : PanelWorth or None
        How much the histories are like real ones; None where no histories are drawn.
    """

    labels: tuple[LabelWorth, ...]
    rows: Likeness | None
    columns: tuple[ColumnLeakage, ...]
    sensitive: ColumnLeakage
    n: int
    n_learnt: int
    panels: PanelWorth | None = None

    @property
    def label(self) -> LabelWorth | None:
        """The first of the labels; None without one."""
        return self.labels[0] if self.labels else None

    def to_frame(self) -> pd.DataFrame:
        """Return how much a shared row reveals: one line per column, then the sensitive attribute."""
        frame = pd.DataFrame([line.to_dict() for line in [*self.columns, self.sensitive]])
        return frame.rename(columns={"name": "column"}).set_index("column")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them."""
        told = {"columns": [line.to_dict() for line in self.columns], "sensitive": self.sensitive.to_dict()}
        return asdict(self) | told

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw how much a shared row tells of each column, and of the sensitive attribute.

        Parameters
        ----------
        ax : Axes, default=None
            Axes to draw on; a new figure when not given.
        """
        from fairflows.report.pictures import draw_usefulness

        return draw_usefulness(self, ax)

    def __repr__(self) -> str:
        from fairflows.report.worth_words import usefulness_text

        return usefulness_text(self)


def usefulness(
    model: Model,
    table: Table,
    others: Table | None = None,
    *,
    encoded: tuple[pd.DataFrame, pd.DataFrame] | None = None,
    distance: float = 0.1,
    most_measured: int = 20_000,
    n_jobs: int | None = None,
    random_state: int = 0,
) -> Usefulness:
    """Measure what a shared table is worth: to train on, to decide by, beside the real one, and column by column.

    Everything is judged on persons whom nothing was learnt from. Where the model was fitted to all rows, a second
    release is fitted to four fifths of the persons, and judged on the others.

    Parameters
    ----------
    model : encoder or Shared
        What is released.
    table : Table
        The rows that it was fitted to.
    others : Table, default=None
        Rows of other persons. By default a second release is fitted, which needs a `Release`.
    encoded : pair of DataFrame, default=None
        What was released for the rows of `table` and of `others`, where the model cannot encode them again.
    distance : float, default=0.1
        Δ: the best that any release within it could give is estimated, beside that for Δ = 0.
    most_measured : int, default=20_000
        The most rows of each part; of wide tables forests take fewer.
    n_jobs : int, default=None
        Trees to grow at once, as for joblib.
    random_state : int, default=0
        Seed of the parts and of trees.

    Returns
    -------
    Usefulness

    Examples
    --------
    >>> from fairflows import Release, load_adult
    >>> adult = load_adult()
    >>> found = usefulness(Release(n_cells=16).fit(adult), adult, most_measured=2000)
    >>> found.label.rules["trained"].auc > 0.8, found.sensitive.told < 0.2
    (True, True)
    """
    if most_measured < 1:
        raise DataError(f"most_measured must be at least 1; got {most_measured!r}.")
    fitted = fitted_model(getattr(model, "release", model))
    table, others = fitted.units(table), None if others is None else fitted.units(others)
    if others is not None:
        parts = MeasuredRelease(fitted, table, others, encoded)
    elif fitted.released_table is not None:
        parts = second_release(fitted, table, random_state)
    else:
        raise DataError("others must be rows of persons whom the model was not fitted to, unless it is a Release.")
    learn, judge = parts.learn, parts.judge
    if list(learn.X) != list(judge.X):
        raise DataError("Both tables must have the same columns.")
    generator = np.random.default_rng(random_state)
    places = [generator.permutation(len(part))[:most_measured] for part in (learn, judge)]
    learn, judge = learn.take(places[0]), judge.take(places[1])
    frames = parts.rows or [encode_again(parts.model, *part) for part in ((learn, "train"), (judge, "test"))]
    if parts.rows is not None:
        frames = [frame.iloc[some] for frame, some in zip(frames, places, strict=True)]
    rows = frames[0].reset_index(drop=True), frames[1].reset_index(drop=True)
    learn, judge = learn.in_halves(), judge.in_halves()
    forests = Forests.of(learn, judge, rows, generator)
    named = [str(name) for name in learn.label_columns() if name in judge.label_columns()]
    tasks = [delayed(label_worth)(name, learn, judge, rows, distance, random_state) for name in named]
    draws_rows = parts.model.traits.draws_rows
    if draws_rows:
        real = [real_columns(part, rows[0]) for part in (learn, judge)]
        tasks.append(delayed(likeness)(real[0], rows[0][list(real[0])], real[1], random_state))
    with one_thread():
        measured = Parallel(n_jobs=n_jobs, prefer="threads")([*tasks, *forests.tasks(random_state)])
        panels = None
        if draws_rows and isinstance(learn, Panels) and isinstance(judge, Panels):
            panels = panel_worth(parts.model, learn, judge, random_state)
    columns, sensitive = forests.told(measured[len(tasks) :])
    labels = tuple(label for label in measured[: len(named)] if label is not None)
    alike = measured[len(named)] if draws_rows else None
    return Usefulness(labels, alike, columns, sensitive, forests.n, len(learn), panels)

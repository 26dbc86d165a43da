"""Table 3: sizes and rates of every split."""

from __future__ import annotations

import pandas as pd

from fairflows.exceptions import DataError
from fairflows.paper import datasets
from fairflows.paper.experiments.result import Result
from fairflows.paper.experiments.settings import Setting, labels_of
from fairflows.table.table import Table

LOADERS = {
    "Adult": datasets.load_adult,
    "Compas": datasets.load_compas,
    "Crime": datasets.load_crime,
    "Health": datasets.load_health,
    "Law School": datasets.load_law_school,
}
# size, a = 1, y = 1 given a = 0, y = 1 given a = 1, y = 1; percentages
PAPER = {
    "Adult": ((24129, 32.6, 28.5, 21.6, 24.9), (6033, 31.9, 28.3, 19.9, 24.9), (15060, 32.6, 27.9, 19.1, 24.6)),
    "Compas": ((3377, 60.6, 60.9, 46.8, 52.3), (845, 60.0, 60.1, 46.9, 52.2), (1056, 58.9, 61.8, 51.3, 55.6)),
    "Crime": ((1276, 42.3, 71.3, 17.8, 48.7), (319, 40.8, 78.8, 21.5, 55.5), (399, 43.1, 74.9, 16.3, 49.6)),
    "Health": ((139785, 35.7, 79.0, 48.3, 68.0), (34947, 35.6, 79.3, 49.2, 68.6), (43683, 35.4, 78.8, 48.3, 68.0)),
    "Law School": ((55053, 18.0, 28.5, 21.6, 27.3), (13764, 17.5, 28.3, 19.9, 26.8), (17205, 17.5, 27.9, 19.1, 26.3)),
}
COLUMNS = ("size", "a = 1", "y = 1 | a = 0", "y = 1 | a = 1", "y = 1")


def run(setting: Setting) -> Result:
    """Count."""
    rows, notes, data = [], [], []
    for name, load in LOADERS.items():
        try:
            table = load()
        except DataError as error:
            notes.append(f"{name} was skipped: {error}")
            continue
        data.append(f"{name} ({len(table):,} rows)")
        notes += [f"{name}: {note}" for note in table.notes]
        for part, split, paper in zip(("train", "validation", "test"), table.paper_split(), PAPER[name], strict=True):
            row: dict[str, object] = {"data": name, "part": part}
            for column, ours, theirs in zip(COLUMNS, _rates(split), paper, strict=True):
                row |= {column: ours, f"paper: {column}": theirs}
            rows.append(row)
    notes += [
        "The paper's P(y | a) of Adult are those of Law School, copied by mistake: they contradict its own P(y).",
        "Health: one row of the validation part is missing from the published aggregate.",
    ]
    return Result(pd.DataFrame(rows), ", ".join(data), notes)


def _rates(part: Table) -> tuple[float, ...]:
    y, a = labels_of(part) == 1, part.a.to_numpy() == 1
    return len(part), *(round(100 * float(rate), 1) for rate in (a.mean(), y[~a].mean(), y[a].mean(), y.mean()))

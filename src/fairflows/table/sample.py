"""Read the rows of a random share of a file's persons."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd

from fairflows.table.columns import check_known
from fairflows.table.frames import from_arrow
from fairflows.table.persons import Persons
from fairflows.table.reading import TextFormat, open_table, read_batches

_ROWS_READ = 2**18  # at a time


def sampled_persons(
    path: Path, identifier: str, n_rows: int, text_format: TextFormat | None = None
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Read all rows of a random share of a file's persons, about so many rows, in bounded memory.

    Return also how a CSV file writes its dates, where they are not YYYY-MM-DD.
    """
    file = open_table(path, text_format)
    check_known(identifier, file.columns, "identifier")
    read = partial(read_batches, path, file, batch_rows=_ROWS_READ, identifier=identifier)
    in_all = file.n_rows or sum(table.num_rows for table in read(columns=[identifier]))
    parts = []
    for frame in map(from_arrow, read(columns=file.columns)):
        u = Persons.of(frame[identifier]).uniform(b"sample: 0", "sample")
        parts.append(frame[u < n_rows / in_all])
    return pd.concat(parts, ignore_index=True), dict(file.time_formats)

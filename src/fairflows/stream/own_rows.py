"""The rows that only one person of a whole file has, where a law of rows was fitted to a sample of the file."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fairflows.display import progress_bar
from fairflows.release.own_rows import held_by_one
from fairflows.release.release import Release
from fairflows.table.frames import from_arrow
from fairflows.table.grouping import MissingGroup, MissingLabel, kept_label, rows_kept
from fairflows.table.keys import keyed_hashes
from fairflows.table.persons import Persons
from fairflows.table.reading import TextFormat, naming_file, open_table, read_batches

_ROWS_READ = 2**18  # at a time


def knowing_whole_file(
    release: Release,
    source: Path,
    text_format: TextFormat | None = None,
    *,
    sensitive: Sequence[str],
    label: Sequence[str],
    identifier: str | None,
    missing_group: MissingGroup,
    missing_label: MissingLabel,
) -> Release:
    """Return a release whose law draws no row that only one person of a whole file has.

    The release was fitted to a sample of the file's persons. The file is read once, in bounded memory but for three
    hashes a row.
    """
    law = release.law_
    if law is None:
        return release
    file = open_table(source, text_format)
    columns = dict.fromkeys([*map(str, law.schema.kinds), *sensitive, *filter(None, [identifier])])
    found, done = [], 0
    with progress_bar("looking for rows of one person") as show, naming_file(source):
        # Without the kinds of a schema, as the sample was read, so that values are the same.
        for batch in read_batches(source, file, columns, _ROWS_READ, identifier=identifier):
            frame = from_arrow(batch)
            frame = frame[rows_kept(frame[list(sensitive)], frame[list(label)], missing_group, missing_label)]
            if missing_label == "keep":
                frame = frame.assign(**{name: kept_label(frame[name]) for name in label})
            person = np.arange(done, done + len(frame), dtype=np.uint64)
            if identifier is not None:
                persons = Persons.of(frame[identifier])
                names = np.asarray(persons.names, dtype=object)
                person = keyed_hashes(names, release.key_, "rows of one person")[persons.codes]
            found.append([person, *law.row_hashes.of_frame(frame)])
            done += batch.num_rows
            show(done, file.n_rows, f"{done:,} rows")
    person, *rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
    release = copy.copy(release)
    release.law_ = replace(law, own=held_by_one(rows, person))
    return release

"""The rows that one person, or household, of a whole file has, where a law of rows was fitted to a sample of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fairflows.display import progress_bar
from fairflows.exceptions import DataError
from fairflows.release.own_rows import held_by_one
from fairflows.release.release import Release
from fairflows.release.row_law import RowLaw
from fairflows.table.columns import missing
from fairflows.table.frames import from_arrow
from fairflows.table.grouping import MissingGroup, MissingLabel, kept_label, rows_kept
from fairflows.table.keys import Hashes, keyed_hashes, value_hashes
from fairflows.table.persons import Persons, households_of
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
    household: str | None,
    missing_group: MissingGroup,
    missing_label: MissingLabel,
) -> Release:
    """Return a release whose law draws no row that only one person, or household, of a whole file has.

    The release was fitted to a sample of the file's persons. The file is read once, in bounded memory but for three
    hashes a row.
    """
    law = release.law_
    if law is None:
        return release
    if not isinstance(law, RowLaw):
        raise DataError("A sample of a file is shared row by row: a person may have one row (unit='row').")
    file = open_table(source, text_format)
    columns = dict.fromkeys([*map(str, law.schema.kinds), *sensitive, *filter(None, [identifier, household])])
    rows, done = [], 0
    names: list[list[Hashes]] = []  # of persons and households, batch by batch
    with progress_bar("looking for rows of one person") as show, naming_file(source):
        # Without the kinds of a schema, as the sample was read, so that values are the same.
        for batch in read_batches(source, file, columns, _ROWS_READ, identifier=identifier):
            frame = from_arrow(batch)
            frame = frame[rows_kept(frame[list(sensitive)], frame[list(label)], missing_group, missing_label)]
            if missing_label == "keep":
                frame = frame.assign(**{name: kept_label(frame[name]) for name in label})
            rows.append(law.row_hashes.of_frame(frame))
            persons = Persons.unnamed(len(frame)) if identifier is None else Persons.of(frame[identifier])
            of_person = np.arange(done, done + len(frame), dtype=np.uint64)
            if persons.names is not None:
                of_person = keyed_hashes(persons.names, release.key_, "rows of one person")[persons.codes]
            names.append([of_person])
            if household is not None:  # a person without one is a household
                of_household = np.where(missing(frame[household]), of_person, value_hashes(frame[household]))
                names[-1].append(of_household)
            done += batch.num_rows
            show(done, file.n_rows, f"{done:,} rows")
    codes, *households = (np.unique(np.concatenate(part), return_inverse=True)[1] for part in zip(*names, strict=True))
    if households:
        codes = households_of(codes, households[0])
    release = copy.copy(release)
    release.law_ = replace(law, own=held_by_one([np.concatenate(part) for part in zip(*rows, strict=True)], codes))
    return release

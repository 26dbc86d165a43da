"""The checks that a file is the table that was certified."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from fairflows.certificate.certificate import Certificate, Released
from fairflows.certificate.checked import Result
from fairflows.certificate.digest import Contents, contents_of, difference, open_released, released_columns
from fairflows.certificate.file_list import FileList, file_sha256
from fairflows.certificate.statements import Statement
from fairflows.exceptions import DataError
from fairflows.table.columns import TEXT, WHOLE
from fairflows.table.panels import PERSON

_ANOTHER = "It is not the table that was certified"


def check_file(path: Path, c: Certificate, listed: FileList | None, *, has_counts: bool) -> Iterator[Result]:
    """Check whether the producer named a file, its columns, and where it should, its cells.

    Of two linked tables a file is compared with the one whose columns it has.
    """
    c = _of_file(path, c)
    result, is_counted = _compare_file(path, c, listed)
    yield result
    if is_counted and c.contents is not None and (wrong := _difference_from_contents(path, c.contents)):
        yield Result("contents", "FAILED", f"The certificate states other contents of this file: {wrong}")
        return
    try:
        yield _check_columns(open_released(path, c.columns).columns, c)
    except DataError:
        if result.verdict != "FAILED":
            raise
    if has_counts:
        yield _check_histogram(path, c, is_counted=is_counted and result.verdict == "ok")


def check_links(paths: tuple[Path, Path], c: Certificate) -> Result:
    """Check that the persons of one of two linked tables, whose rows come first, are in the other one."""
    assert c.contents is not None
    assert c.parents is not None
    numbers = []
    for path, kinds in zip(paths, (c.contents.kinds, c.parents.kinds), strict=True):
        found = [columns[PERSON].to_pylist() for columns in released_columns(path, kinds)]
        numbers.append({number for part in found for number in part})
    if lacking := sorted(numbers[0] - numbers[1]):
        text = f"{paths[0].name} has rows of {len(lacking):,} persons whom {paths[1].name} lacks, such as {lacking[0]}."
        return Result("links", "FAILED", text)
    return Result("links", "ok", f"Every person of {paths[0].name} is in {paths[1].name}.")


def _of_file(path: Path, c: Certificate) -> Certificate:
    """Return the certificate as it is about a file, which may be one of two linked tables."""
    if c.parents is None:
        return c
    of_parents = c.of_parents()
    is_parents = set(open_released(path, of_parents.columns).columns) == set(of_parents.columns)
    return of_parents if is_parents else replace(c, counted_file="")


def difference_from_counts(path: Path, headline: Statement, kinds: Mapping[str, str], released: Released) -> str:
    """Say how a file's rows differ from a statement's counts of all groups together; empty where they do not.

    A file of cells is compared cell by cell, a file of panels by its number of persons, any other by its number of
    rows.
    """
    n_rows, n_counted, found, persons = 0, sum(headline.n.values()), Counter[str](), set[str]()
    has_cells = released == "cell" and list(kinds) == ["cell"]  # a column of the table may have this name
    if released == "panel" and PERSON not in kinds:
        return f"It has no column {PERSON!r}, but persons were counted."
    for columns in released_columns(path, kinds):
        n_rows += len(next(iter(columns.values())))
        if released == "panel":
            persons.update(columns[PERSON].unique().to_pylist())
        if has_cells:
            found.update(columns["cell"].to_pylist())
    if released == "panel" and len(persons) != n_counted:
        return f"It has {len(persons):,} persons; {n_counted:,} were counted."
    if released != "panel" and n_rows != n_counted:
        return f"It has {n_rows:,} rows; {n_counted:,} were counted."
    if not has_cells:
        return "" if headline.about == "table" else "It has no column 'cell', but cells were counted."
    counted: Counter[int] = Counter()
    if headline.counts is not None:
        for counts in headline.counts.counts.values():
            counted.update(dict(zip(headline.counts.cells, counts, strict=True)))
    different = [cell for cell in sorted(counted) if found[str(cell)] != counted[cell]]
    if different:
        cell = different[0]
        numbers = f"cell {cell} has {found[str(cell)]:,} and not {counted[cell]:,}"
        return f"{len(different)} cells have other numbers of rows than were counted: {numbers}."
    return ""


def _compare_file(path: Path, c: Certificate, listed: FileList | None) -> tuple[Result, bool]:
    """Compare a file with those that the producer named, and return whether it is one that the certificate names."""
    sha256, others = file_sha256(path), {} if listed is None else listed.files
    names = [name for name, known in c.released_files.items() if known == sha256]
    if names:
        return Result("file", "ok", f"It is {names[0]!r}, byte for byte, which the certificate names."), True
    if sha256 in others.values():
        return Result("file", "ok", "It is in the producer's list, byte for byte."), False
    if c.contents is None:
        if path.name in c.released_files or path.name in others:
            text = f"It is not the {path.name!r} that was released: it was changed or replaced."
            return Result("file", "FAILED", text), False
        return Result("file", "UNKNOWN", "No list names it. That it comes from the same model is only claimed."), False
    try:
        found = contents_of(path, c.contents.kinds)
    except DataError as error:
        reason = str(error).removeprefix(f"{path}: ").rstrip(".")
        return Result("file", "FAILED", f"{_ANOTHER}: {reason}."), False
    if found.sha256 == c.contents.sha256:
        named = repr(next(iter(c.released_files), "the certified table"))
        text = f"It holds what {named} holds, which the certificate names, in another form."
        return Result("file", "ok", text), True
    if listed is not None and found.sha256 in listed.contents.values():
        return Result("file", "ok", "It holds what a file in the producer's list holds, in another form."), False
    return Result("file", "FAILED", f"{_ANOTHER}, and no list names it: {difference(c.contents, found)}"), False


def _difference_from_contents(path: Path, stated: Contents) -> str:
    """Say how a file's contents differ from those that a certificate states; empty where they do not."""
    try:
        found = contents_of(path, stated.kinds)
    except DataError as error:
        return str(error).removeprefix(f"{path}: ")
    return "" if found == stated else difference(stated, found)


def _check_columns(found: list[str], c: Certificate) -> Result:
    """Check that a file has the columns of a released row, and not the sensitive one."""
    sensitive = [name for name in found if name in c.sensitive and name not in c.columns]
    if sensitive:
        return Result(
            "columns", "FAILED", f"It holds the sensitive column {sensitive[0]!r}: it is not a released file."
        )
    if len(set(c.columns)) < len(c.columns) or (c.released == "cell" and "cell" not in c.columns):
        return Result("columns", "FAILED", f"No released {c.released} has the columns {', '.join(c.columns)}.")
    missing, others = ([name for name in a if name not in b] for a, b in ((c.columns, found), (found, c.columns)))
    if others:
        return Result("columns", "FAILED", f"It holds the column {others[0]!r}, which no released row has.")
    if missing:
        return Result("columns", "FAILED", f"It lacks the column {missing[0]!r}, which every released row has.")
    return Result("columns", "ok", "It has the columns of a released row, and no others.")


def _check_histogram(path: Path, c: Certificate, *, is_counted: bool) -> Result:
    """Check whether a file has as many rows in each cell as were counted, where it should."""
    if c.headline is None or not c.counted_file or not is_counted:
        text = "Not compared with the counts: its rows are not exactly those that were counted."
        return Result("histogram", "note", text)
    of_cells = {name: WHOLE if name == "cell" else TEXT for name in c.columns}
    kinds = of_cells if c.contents is None else c.contents.kinds
    found = difference_from_counts(path, c.headline, kinds, c.released)
    unit = "persons" if c.released == "panel" else "rows"
    text = found or f"Its {unit} are as many as were counted, in each cell where it gives them."
    return Result("histogram", "FAILED" if found else "ok", text)

"""check: the checks of a certificate and a file that need neither the model nor a secret.

A certificate names the files that were written with it; a list beside it names those that were encoded later.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fairflows.bounds.arguments import checked_delta, delta_of_look
from fairflows.bounds.derived import rounded_up
from fairflows.certificate.certificate import (
    Certificate,
    FoldCounts,
    Statement,
    blocks_statement,
    differing,
    from_counts,
    status_of,
    table_statement,
)
from fairflows.certificate.checked import Checked, Result
from fairflows.certificate.file_checks import check_file
from fairflows.certificate.file_list import FileList, file_sha256, list_beside

_TOLERANCE = 1e-9
_TOLERANCE_OF_DRAWS = 0.01  # relative: quantiles are found by draws, whose numbers differ between versions and machines


def check(
    certificate: str | Path,
    file: str | Path | None = None,
    *,
    max_known_half: float | None = None,
    max_population: float | None = None,
) -> Checked:
    """Check a certificate and a released file without the model, the key and the original rows.

    Every bound on the true distribution is computed again from the counts that its statement prints. The file is
    compared with those that the certificate names, and with the producer's list beside it
    (``certificate.files.json``): it is one of them byte for byte, or has the same contents in another form, or is
    another table. Where the file holds the cells of exactly the persons that were counted, its own histogram is
    compared with the counts. That persons were counted in their true groups cannot be checked.

    Parameters
    ----------
    certificate : path
        ``certificate.json``, or a folder that holds it.
    file : path, default=None
        A released file; by default the file in that folder that the certificate names.
    max_known_half, max_population : float, default=None
        Limits, for a gate in a pipeline: on the 95 % point of the table's Δ when half of its groups are known, and on
        the bound on persons to come. A certificate that states more, or nothing about it, fails.

    Returns
    -------
    Checked
        True where every check passed. A file that no list names has not passed.

    Raises
    ------
    DataError
        A file cannot be read, or is not a certificate.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fairflows import FairTree, certify, load_adult
    >>> train, _, test = load_adult().split(random_state=0)
    >>> release = FairTree(n_cells=8).fit(train)
    >>> certificate = certify(release, test)
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "certificate.json"
    ...     _ = path.write_text(certificate.to_json(), encoding="utf-8")
    ...     print(check(path).conclusion)
    All checks passed: the bounds follow from the counts. No file was compared.
    """
    path = Path(certificate)
    in_folder = path.is_dir()
    path = path / "certificate.json" if in_folder else path
    document = Certificate.read(path)
    results = list(_check_statements(document))
    if in_folder and file is None and document.released_files:
        named = path.parent / Path(next(iter(document.released_files))).name
        if named.is_file():
            file = named
        else:
            text = f"The folder holds no {named.name!r}, which the certificate names: state the file to be checked."
            results.append(Result("file", "UNKNOWN", text))
    listed = FileList.read(list_beside(path)) if list_beside(path).is_file() else None
    if listed is not None and listed.certificate != file_sha256(path):
        wrong = "The producer's list of files is about another certificate, or this one was changed since."
        results.append(Result("list", "FAILED", wrong))
        listed = None
    results.append(Result("author", "note", "Nothing here shows who wrote it: get it from the producer directly."))
    if file is not None:
        has_counts = all(result.what != "counts" or result.verdict != "FAILED" for result in results)
        results += check_file(Path(file), document, listed, has_counts=has_counts)
    for name, found, most in (
        ("half known", document.known_half, max_known_half),
        ("persons to come", document.cell_upper, max_population),
    ):
        if most is not None:
            is_within = found is not None and found <= most
            said = "nothing" if found is None else f"Δ ≤ {rounded_up(found, 4)}"
            results.append(
                Result(f"limit, {name}", "ok" if is_within else "FAILED", f"It states {said}; asked: {most}.")
            )
    results += _what_cannot_be_known(document)
    checked = Checked(document, tuple(results))
    return replace(checked, certificate=replace(document, unchecked=not checked))


# Statements ---------------------------------------------------------------------------------------------------------


def _check_statements(c: Certificate) -> Iterator[Result]:
    """Compare every statement with its recomputation, and the status with the statements."""
    wrong = next(_faults_of_counts(c), None)
    if wrong is not None:
        yield Result("counts", "FAILED", wrong)
        return
    if c.headline is None:
        yield Result("counts", "note", "It certifies nothing about the true distribution, so there are no counts.")
    else:
        counted = ", ".join(f"{count:,} of {group!r}" for group, count in c.n.items())
        yield Result("counts", "ok", f"{counted} were counted; all sums agree.")
        spending = _check_spending(c)
        yield spending
        if spending.verdict == "FAILED":
            return
    for statement in c.statements:
        if statement.about == "table":
            yield from _compared(statement, table_statement(statement.counts[0], statement.persons))
        elif statement.by == "blocks":
            yield from _compared(statement, blocks_statement(statement.blocks), _TOLERANCE_OF_DRAWS)
        elif statement.about == "population":
            yield from _compared(statement, from_counts(statement.law, statement.given, statement.counts))
    yield _check_status(c)


def _check_status(c: Certificate) -> Result:
    status = status_of(c.statements, c.target)
    if status != c.status:
        return Result("status", "FAILED", f"The bounds make it {status}; it says {c.status}.")
    for statement in c.statements:
        if statement.met != statement.judged(c.target).met:
            return Result("status", "FAILED", f"It says met = {statement.met} of {_said(statement)}, which is wrong.")
    return Result("status", "ok", f"{c.status} follows from the bounds.")


def _faults_of_counts(c: Certificate) -> Iterator[str]:
    """Yield the faults of the counts, as sentences; the first one makes the others meaningless."""
    for statement in c.statements:
        yield from (f"{fault} ({_said(statement)})." for fault in _faults_of_statement(statement, c))
    held_out = [s for s in c.statements if s.by == "held-out"]
    every = next((s for s in held_out if s.law == "row" and s.given is None), None)
    given = [s for s in held_out if s.given is not None]
    if every is None:
        if held_out:
            yield "It states bounds on the true distribution, but none for a random row."
        return
    if every.n != c.n:
        yield "The counts do not sum up to the number of persons of each group."
    if given:
        if {group: sum(each.n[group] for each in given) for group in c.n} != c.n:
            yield "The counts given each label do not sum up to the number of persons of each group."
        yield from _faults_of_labels(every, given)


def _faults_of_statement(s: Statement, c: Certificate) -> Iterator[str]:
    if "latent" in c.released and s.about in ("table", "population"):
        yield "It counts cells, which say nothing about a latent"
    if "label" in c.released and s.by == "blocks":
        yield "The law of cells says nothing about the true label, which is released, too"
    if s.about == "table":
        yield from _faults_of_table(s, c)
    elif s.by == "blocks":
        yield from _faults_of_blocks(s, c)
    elif s.about == "population" and not s.counts:
        yield "It states a bound on the true distribution, and no counts that show it"
    shares = [fold.share for fold in s.counts or s.blocks]
    if any(abs(share - 1 / len(shares)) > _TOLERANCE for share in shares):
        yield "The folds must have equal shares, which sum to 1"
    cells = [cell for fold in s.counts for cell in fold.cells]
    if len(cells) != len(set(cells)):
        yield "A cell is counted in two folds"
    for fold in s.counts:
        yield from _faults_of_fold(fold, list(c.n), c.n_cells or 0)
        if not 0 <= fold.delta < 1 or (fold.delta > 0) != (s.by == "held-out"):
            yield "delta must be a probability, and 0 where nothing is left to chance"


def _faults_of_table(s: Statement, c: Certificate) -> Iterator[str]:
    if len(s.counts) != 1:
        yield "The rows of a table are counted once"
    elif s.n != c.n and all(other.by != "held-out" for other in c.statements):  # else these are the persons of `n`
        yield "The counts do not sum up to the number of rows of each group"
    elif s.persons and list(s.persons) != list(c.n):
        yield "The persons are not of the groups that it names"
    elif any(not 1 <= persons <= s.n[group] for group, persons in s.persons.items() if group in s.n):
        yield "There are more persons than rows"


def _faults_of_blocks(s: Statement, c: Certificate) -> Iterator[str]:
    """Yield the faults of blocks, alone and beside the counts of the table."""
    table = c.find("table")
    if not s.blocks:
        yield "It states a bound on persons to come, and no blocks that show it"
    elif any(list(fold.blocks) != list(c.n) for fold in s.blocks) or len(c.n) < 2:
        yield "The blocks are not of the groups that it names"
    elif any(len({len(b) for b in fold.blocks.values()}) != 1 for fold in s.blocks):
        yield "There must be one number of blocks of each group for each cell"
    elif any(min(b, default=0) < 1 for fold in s.blocks for b in fold.blocks.values()):
        yield "A number of blocks is below 1"
    elif any(not 0 < fold.delta < 1 for fold in s.blocks):
        yield "delta must be a probability"
    elif table is None or sum(len(fold.blocks[next(iter(c.n))]) for fold in s.blocks) != c.n_cells:
        yield "The blocks are not of the cells that were counted"
    elif len(table.counts) == 1 and list(table.counts[0].counts) == list(c.n):
        for group in c.n:
            inside = [b - 1 for fold in s.blocks for b in fold.blocks[group]]
            n_cut = sum(inside) + sum(len(fold.blocks[group]) - 1 for fold in s.blocks)
            counts = zip(table.counts[0].cells, table.counts[0].counts[group], strict=False)
            if n_cut != s.persons.get(group) or n_cut > c.n[group]:
                yield f"The blocks of {group!r} are not those of the persons that it names"
            elif any(cell < len(inside) and count < inside[cell] for cell, count in counts):
                yield f"A cell has fewer rows of {group!r} than its blocks say"


def _faults_of_fold(fold: FoldCounts, groups: list[str], n_cells: int) -> Iterator[str]:
    parts = fold.n, fold.counts, fold.merged
    if any(list(part) != groups for part in parts) or len(groups) < 2:
        yield "The counts are not of the groups that it names"
    elif list(fold.cells) != sorted(set(fold.cells)) or any(len(c) != len(fold.cells) for c in fold.counts.values()):
        yield "There must be one count of each group for each cell"
    elif max(fold.cells, default=-1) >= n_cells:
        yield f"Cells must be in 0 … {n_cells - 1}"
    elif min([*fold.cells, *fold.merged.values(), *(min(c, default=0) for c in fold.counts.values())]) < 0:
        yield "A count is negative"
    elif any(sum(fold.counts[group]) + fold.merged[group] != fold.n[group] for group in groups):
        yield "The counts do not sum up to the number of persons of each group"


def _faults_of_labels(every: Statement, given: list[Statement]) -> Iterator[str]:
    """Yield the groups that have more persons in a cell given the labels than in all."""
    for number, fold in enumerate(every.counts):
        parts = [each.counts[number] for each in given if number < len(each.counts)]
        for group in fold.n:
            inside: Counter[int] = Counter()
            for part in parts:
                inside.update(dict(zip(part.cells, part.counts[group], strict=True)))
            counts = zip(fold.cells, fold.counts[group], strict=True)
            if any(inside[cell] > count for cell, count in counts):
                yield f"A cell has more persons of {group!r} given the labels than it has in all."


def _check_spending(c: Certificate) -> Result:
    """Compare the δ of the bounds on the true distribution with the allowed share."""
    try:
        delta = checked_delta(c.delta)
        allowed = delta_of_look(delta, c.look) if c.look else delta
    except ValueError as error:
        return Result("error", "FAILED", f"No certificate can have these settings: {error}")
    spent: dict[str, float] = {}
    for s in c.statements:
        if s.about == "population":
            if (s.by == "blocks") != (c.look == 0):
                return Result("error", "FAILED", "Counting looks at held-out persons; trees look at none.")
            name = f"a random {s.law}{'' if s.given is None else ', given the labels'}"
            spent[name] = spent.get(name, 0.0) + s.delta
    for name, found in spent.items():
        if abs(found - allowed) > _TOLERANCE:
            text = f"The bounds on {name} spend {found:.4g}; look {c.look} of the same persons may {allowed:.4g}."
            return Result("error", "FAILED", text)
    look = f"look {c.look} of these persons, at" if c.look else "the bound on persons to come:"
    return Result(
        "error", "ok", f"Probability of error of {look} δ = {c.delta:g}: {allowed:.4g} for each kind of bound."
    )


def _compared(stated: Statement, again: Statement, of_draws: float = 0.0) -> Iterator[Result]:
    """Compare a statement with the same one computed from its counts; a bound by draws within a relative tolerance."""
    about, relation = _said(stated), "=" if stated.about == "table" else "≤"
    is_close = math.isclose(stated.distance, again.distance, rel_tol=of_draws, abs_tol=_TOLERANCE)
    if is_close:
        said = f"Δ {relation} {rounded_up(again.distance, 6)} follows from the counts, as it says."
        yield Result(f"bound, {about}", "ok", said)
    for name in differing(stated, replace(again, met=stated.met), _TOLERANCE):
        if name != "distance" or not is_close:
            follows, says = getattr(again, name), getattr(stated, name)
            what = "bound" if name == "distance" else name
            yield Result(f"{what}, {about}", "FAILED", f"{name} = {follows} follows from the counts; it says {says}.")


def _what_cannot_be_known(c: Certificate) -> Iterator[Result]:
    if c.releases > 1:
        text = f"It is release {c.releases} of these rows, by the producer's record. Two, linked, may tell the group."
        yield Result("releases", "note", text)
    if any(s.about in ("model", "attack", "new persons") for s in c.statements):
        text = "The model-based bound, the attack and tests do not follow from counts: they are taken on trust."
        yield Result("not checked", "note", text)
    counted = [s for s in c.statements if s.counts]
    shown = "That persons were counted in their true groups, that the model had not seen them, and that no earlier "
    shown += "certificate from them is kept back"
    if c.find("table") is not None:
        shown = "That the counts are true, and that the rows were drawn from their cells alone"
    elif counted and all(len(s.counts) == 1 for s in counted):
        text = "It is about new persons. Rows that the model was fitted to are not covered, even in the same file."
        yield Result("covered", "note", text)
    if counted:
        text = f"{shown}: only the holder of the model and the rows can show it (fairflows verify)."
        yield Result("not checked", "note", text)


def _said(s: Statement) -> str:
    about = f"a random {s.law}" if s.about == "population" else f"{s.about}, a random {s.law}"
    return about if s.given is None else f"{about} given label {s.given}"

"""check: the checks of a certificate and a file that need neither the model nor a secret.

A certificate names the files that were written with it; a list beside it names those that were encoded later.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from fairflows.bounds.ages import spread_within
from fairflows.bounds.arguments import checked_delta, delta_of_look
from fairflows.bounds.derived import rounded_up
from fairflows.certificate.certificate import Certificate, status_of
from fairflows.certificate.checked import Checked, Result
from fairflows.certificate.file_checks import check_file, check_links
from fairflows.certificate.file_list import FileList, file_sha256, list_beside
from fairflows.certificate.notices import Notices, notices_beside
from fairflows.certificate.statements import (
    Blocks,
    CellCounts,
    Statement,
    blocks_statement,
    differing,
    held_out_statement,
    mixed_blocks_statements,
    narrow_blocks_statements,
    table_statement,
)

_TOLERANCE = 1e-9
_MOST_WORK = 5_000_000  # of computing a bound again, see `_work`: some minutes. One of 3,000 groups would take hours
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
    files = [] if file is None else [Path(file)]
    if in_folder and file is None:
        named = [path.parent / Path(name).name for name in document.released_files]
        for lacking in named if document.parents is not None else named[:1]:
            if lacking.is_file():
                files.append(lacking)
                continue
            text = f"The folder holds no {lacking.name!r}, which the certificate names: state the file to be checked."
            results.append(Result("file", "UNKNOWN", text))
    listed = FileList.read(list_beside(path)) if list_beside(path).is_file() else None
    if listed is not None and listed.certificate != file_sha256(path):
        wrong = "The producer's list of files is about another certificate, or this one was changed since."
        results.append(Result("list", "FAILED", wrong))
        listed = None
    results += [*_notices(path), *_previous(path, document)]
    if document.about.is_over:
        results.append(
            Result("validity", "FAILED", f"Its issuer states that it was valid until {document.about.valid_until}.")
        )
    results.append(Result("author", "note", "Nothing here shows who wrote it: get it from the producer directly."))
    has_counts = all(result.what != "counts" or result.verdict != "FAILED" for result in results)
    for each in files:
        results += check_file(each, document, listed, has_counts=has_counts)
    if len(files) == 2 and all(result.verdict != "FAILED" for result in results):
        results.append(check_links((files[0], files[1]), document))
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


def _notices(path: Path) -> Iterator[Result]:
    """Show the producer's notices about a certificate: a statement that was refuted is not to be relied on."""
    if not notices_beside(path).is_file():
        return
    found = Notices.read(notices_beside(path))
    if found.certificate != file_sha256(path):
        wrong = "The producer's notices are about another certificate, or this one was changed since."
        yield Result("notice", "FAILED", wrong)
        return
    for notice in found.notices:
        yield Result("notice", "FAILED", f"{notice.date}: {notice.text}")


def _previous(path: Path, c: Certificate) -> Iterator[Result]:
    """Follow the certificates of earlier releases, in this folder and those beside it; compare cells and groups."""
    if not c.previous:
        return
    folder = path.resolve().parent
    others = {*folder.glob("*.json"), *folder.parent.glob("*/*.json")}
    by_hash: dict[str, list[Path]] = {}
    for other in sorted(others):
        if other.is_file():
            by_hash.setdefault(file_sha256(other), []).append(other)
    for number, sha256 in enumerate(c.previous, 1):
        copies = by_hash.get(sha256, [])
        if not copies:
            text = f"Release {number} of {len(c.previous) + 1}: its certificate (SHA-256 {sha256[:12]}…) is not here."
            yield Result("previous", "note", text)
            continue
        found, earlier = copies[0], Certificate.read(copies[0])
        same, refined = _cells_of(c)[0] == _cells_of(earlier)[0], _cells_of(earlier)[0] in _cells_of(c)
        if not refined or list(c.n) != list(earlier.n) or earlier.previous != c.previous[: number - 1]:
            yield Result("previous", "FAILED", f"Release {number} ({found}) is not of the same cells.")
        else:
            how = "of the same cells" if same else "of cells that were cut further since"
            text = f"Release {number} of {len(c.previous) + 1}, of {earlier.issued}, is {how} ({found})."
            yield Result("previous", "ok", text)
            yield from dict.fromkeys(notice for copy in copies for notice in _notices(copy))


def _cells_of(c: Certificate) -> list[tuple[int | None, Blocks]]:
    """Return number and blocks of a certificate's cells, then of the leaves that these were cut from."""
    stated = c.find("population")
    if stated is None:
        return [(c.n_cells, {})]
    leaves = [(max(part.of_cell, default=-1) + 1, part.blocks) for part in stated.leaves]
    return [(c.n_cells, stated.blocks), *leaves]


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
        if statement.by == "undisclosed":
            why, letter = "beside earlier ones they would tell who came and left", "Δ"
            if statement.about == "table rank":
                why, letter = "they are of narrow groups, which hold few persons", "r"
            elif statement.of:
                why = "beside those of the groups they would tell counts of few persons"
            text = f"{letter} = {rounded_up(statement.distance, 6)}. Its counts are not printed, because {why}."
            yield Result(f"bound, {_said(statement, c)}", "note", text)
        elif statement.about == "table":
            yield from _compared(c, statement, table_statement(_counts_of(statement), statement.persons))
        elif statement.by == "blocks":
            again = blocks_statement(statement.blocks, statement.delta, statement.leaves)
            yield from _compared(c, statement, again, _TOLERANCE_OF_DRAWS)
        elif statement.by == "mixed blocks":
            of_all = c.find("population")
            assert of_all is not None  # as was checked
            again = mixed_blocks_statements(of_all.blocks, {statement.of: statement.parts}, statement.delta)[0]
            yield from _compared(c, statement, again, _TOLERANCE_OF_DRAWS)
        elif statement.by == "narrow blocks":
            both = narrow_blocks_statements(statement.blocks, statement.delta, statement.within or 0.0)
            again = next(s for s in both if s.about == statement.about)
            yield from _compared(c, statement, again, _TOLERANCE_OF_DRAWS)
        elif statement.about == "population":
            again = held_out_statement(statement.law, statement.given, _counts_of(statement), statement.delta)
            yield from _compared(c, statement, again)
    yield _check_status(c)


def _check_status(c: Certificate) -> Result:
    status = status_of(c.statements, c.target)
    if status != c.status:
        return Result("status", "FAILED", f"The bounds make it {status}; it says {c.status}.")
    for statement in c.statements:
        if statement.met != statement.judged(c.target).met:
            return Result(
                "status", "FAILED", f"It says met = {statement.met} of {_said(statement, c)}, which is wrong."
            )
    return Result("status", "ok", f"{c.status} follows from the bounds.")


def _faults_of_counts(c: Certificate) -> Iterator[str]:
    """Yield the faults of the counts, as sentences; the first one makes the others meaningless."""
    for statement in c.statements:
        yield from (f"{fault} ({_said(statement, c)})." for fault in _faults_of_statement(statement, c))
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
        yield from _faults_of_labels(_counts_of(every), [_counts_of(each) for each in given])


def _work(s: Statement) -> int:
    """Return about how long a bound takes: a draw for each cell of a group takes as long as 20 pairs of groups."""
    parts: list[Mapping[str, tuple[int, ...]]] = [s.blocks, {} if s.counts is None else s.counts.counts]
    n_groups, n_cells = max(map(len, parts)), max(len(next(iter(part.values()), ())) for part in parts)
    return n_cells * n_groups * (20 + n_groups // 2)


def _faults_of_statement(s: Statement, c: Certificate) -> Iterator[str]:
    if _work(s) > _MOST_WORK:
        yield "It counts so many groups and cells that its bound would take hours to compute again"
    if c.released == "latent" and s.about in ("table", "population"):
        yield "It counts cells, which say nothing about a latent"
    if c.labels and s.by in ("blocks", "narrow blocks", "mixed blocks"):
        yield "The law of cells says nothing about true labels, which are released, too"
    if (s.counts is None) != (s.by not in ("counted", "held-out")):
        yield "It states a distance that is counted, and no counts that show it, or counts of something else"
    if s.about == "table rank" and len(c.n) != 2:
        yield "It states the rank of an attribute that is not cut, and has not the two groups of its halves"
    elif (s.of or s.about == "inside") and (not set(s.of) < set(c.sensitive) or s.by in ("counted", "blocks")):
        yield "It is not about some of several sensitive columns"
    elif (s.by == "undisclosed" or s.about == "together") and not (s.of or s.about == "table rank" or c.previous):
        yield "It states releases together, and names no earlier one"
    if s.by == "undisclosed":
        return
    if s.about == "table":
        yield from _faults_of_table(s, c)
    elif s.by == "blocks":
        yield from _faults_of_blocks(s, c)
    elif s.by == "mixed blocks":
        yield from _faults_of_parts(s, c)
    elif s.by == "narrow blocks":
        yield from _faults_of_narrow_blocks(s, c)
    if s.counts is not None:
        yield from _faults_of_counts_of(s.counts, list(c.n), c.n_cells or 0)
    if not 0 <= s.delta < 1 or (
        (s.delta > 0) != (s.by in ("held-out", "blocks", "narrow blocks", "mixed blocks"))
        and s.about in ("table", "population", "population rank")
    ):
        yield "delta must be a probability, and 0 where nothing is left to chance"


def _faults_of_table(s: Statement, c: Certificate) -> Iterator[str]:
    if s.n != c.n and all(other.by != "held-out" for other in c.statements):  # else these are the persons of `n`
        yield "The counts do not sum up to the number of rows of each group"
    elif s.persons and list(s.persons) != list(c.n):
        yield "The persons are not of the groups that it names"
    elif any(not 1 <= persons <= s.n[group] for group, persons in s.persons.items() if group in s.n):
        yield "There are more persons than rows"


def _faults_of_blocks(s: Statement, c: Certificate) -> Iterator[str]:
    """Yield the faults of blocks, alone and beside the counts of the table."""
    if list(s.blocks) != list(c.n) or len(c.n) < 2:
        yield "The blocks are not of the groups that it names"
    elif len({len(b) for b in s.blocks.values()}) != 1:
        yield "There must be one number of blocks of each group for each cell"
    elif any(min(b, default=0) < 1 for b in s.blocks.values()):
        yield "A number of blocks is below 1"
    elif c.find("table") is None or len(s.blocks[next(iter(c.n))]) != c.n_cells:
        yield "The blocks are not of the cells that were counted"
    else:
        yield from _faults_of_leaves(s)
        first = s.leaves[-1].blocks if s.leaves else s.blocks
        for group, n in c.n.items():
            n_cut = sum(first.get(group, ())) - 1
            if n_cut != s.persons.get(group) or (n_cut > n and not c.previous):
                yield f"The blocks of {group!r} are not those of the persons that it names"


def _faults_of_parts(s: Statement, c: Certificate) -> Iterator[str]:
    """Yield the faults of the rows of each value of some sensitive columns."""
    of_all = c.find("population")
    if of_all is None or of_all.by != "blocks" or not s.of or len(s.parts) < 2:
        yield "The bound is not of some of several sensitive columns, whose groups have blocks"
        return
    for part in s.parts.values():
        if not part or not set(part) <= set(c.n) or min(part.values()) < 1:
            yield "The rows of a value are not of the groups that it names"
            return
    for group, n in c.n.items():
        rows = [part[group] for part in s.parts.values() if group in part]
        if sum(rows) < n or sum(rows) >= n + 10 * len(s.parts):  # those of merged groups are in tens, upwards
            yield f"The rows of the values in {group!r} do not sum up to those of the group"


def _faults_of_leaves(s: Statement) -> Iterator[str]:
    """Yield the faults of the leaves that cells were cut from."""
    below = s.blocks
    for part in s.leaves:
        k = max(part.of_cell, default=-1) + 1
        if list(part.blocks) != list(s.blocks) or any(len(b) != k or min(b) < 1 for b in part.blocks.values()):
            yield "The leaves that were cut further are not of the groups that it names, or have no blocks"
            return
        if any(len(part.of_cell) != len(b) for b in below.values()) or set(part.of_cell) != set(range(k)):
            yield "There must be one leaf for each cell"
            return
        for group, own in part.blocks.items():
            inside = Counter[int]()
            for leaf, n in zip(part.of_cell, below[group], strict=True):
                inside[leaf] += n
            if any(inside[leaf] > n for leaf, n in enumerate(own)):
                yield f"The cells of a leaf have more blocks of {group!r} than the leaf"
                return
        below = part.blocks


def _faults_of_narrow_blocks(s: Statement, c: Certificate) -> Iterator[str]:
    """Yield the faults of the blocks of narrow groups."""
    blocks = list(s.blocks.values())
    halves, rank = c.find("population"), c.find("population rank")
    if len(blocks) < 2 or len(c.n) != 2 or c.find("table rank") is None:
        yield "The blocks are not of narrow groups whose halves it names"
    elif any(len(b) != c.n_cells for b in blocks) or any(min(b, default=0) < 1 for b in blocks):
        yield "There must be a number of blocks, at least 1, of each narrow group for each cell"
    elif sum(sum(b) - 1 for b in blocks) > sum(c.n.values()) and not c.previous:
        yield "The blocks are of more persons than the table has"
    elif halves is None or rank is None or halves.blocks != rank.blocks:
        yield "The distance of the halves and the correlation are not of the same blocks"
    elif not 0 <= (s.within or 0) <= spread_within(len(blocks), len(blocks)) or (s is rank) != (s.within is not None):
        yield "What ranks inside of narrow groups add is not what so many groups allow"


def _faults_of_counts_of(counts: CellCounts, groups: list[str], n_cells: int) -> Iterator[str]:
    parts = counts.n, counts.counts, counts.merged
    of_cells = counts.counts.values()
    if any(list(part) != groups for part in parts) or len(groups) < 2:
        yield "The counts are not of the groups that it names"
    elif list(counts.cells) != sorted(set(counts.cells)) or any(len(c) != len(counts.cells) for c in of_cells):
        yield "There must be one count of each group for each cell"
    elif max(counts.cells, default=-1) >= n_cells:
        yield f"Cells must be in 0 … {n_cells - 1}"
    elif min([*counts.cells, *counts.merged.values(), *(min(c, default=0) for c in of_cells)]) < 0:
        yield "A count is negative"
    elif any(sum(counts.counts[group]) + counts.merged[group] != counts.n[group] for group in groups):
        yield "The counts do not sum up to the number of persons of each group"


def _faults_of_labels(every: CellCounts, given: list[CellCounts]) -> Iterator[str]:
    """Yield the groups that have more persons in a cell given the labels than in all."""
    for group in every.n:
        inside: Counter[int] = Counter()
        for part in given:
            inside.update(dict(zip(part.cells, part.counts[group], strict=True)))
        counts = zip(every.cells, every.counts[group], strict=True)
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
        if s.about in ("population", "population rank"):
            if (s.by in ("blocks", "narrow blocks", "mixed blocks")) != (c.look == 0):
                return Result("error", "FAILED", "Counting looks at held-out persons; trees look at none.")
            name = f"a random {s.law}{'' if s.given is None else ', given the labels'}"
            name = " and ".join(s.of) or name
            name = "a rank" if s.about == "population rank" else name
            spent[name] = spent.get(name, 0.0) + s.delta
    for name, found in spent.items():
        if abs(found - allowed) > _TOLERANCE:
            text = f"The bounds on {name} spend {found:.4g}; look {c.look} of the same persons may {allowed:.4g}."
            return Result("error", "FAILED", text)
    look = f"look {c.look} of these persons, at" if c.look else "the bound on persons to come:"
    return Result(
        "error", "ok", f"Probability of error of {look} δ = {c.delta:g}: {allowed:.4g} for each kind of bound."
    )


def _compared(c: Certificate, stated: Statement, again: Statement, of_draws: float = 0.0) -> Iterator[Result]:
    """Compare a statement with the same one computed from its counts; a bound by draws within a relative tolerance."""
    about, relation = _said(stated, c), "=" if stated.about == "table" else "≤"
    is_close = math.isclose(stated.distance, again.distance, rel_tol=of_draws, abs_tol=_TOLERANCE)
    if is_close:
        letter = "r" if stated.about == "population rank" else "Δ"
        said = f"{letter} {relation} {rounded_up(again.distance, 6)} follows from the counts, as it says."
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
    counted = [s for s in c.statements if s.counts is not None]
    shown = "That persons were counted in their true groups, that the model had not seen them, and that no earlier "
    shown += "certificate from them is kept back"
    if c.find("table") is not None:
        shown = "That the counts are true, and that the rows were drawn from their cells alone"
    elif counted:
        text = "It is about new persons. Rows that the model was fitted to are not covered, even in the same file."
        yield Result("covered", "note", text)
    if counted:
        text = f"{shown}: only the holder of the model and the rows can show it (fairflows verify)."
        yield Result("not checked", "note", text)


def _counts_of(s: Statement) -> CellCounts:
    """Return the counts of a statement that has some, as was checked before."""
    assert s.counts is not None
    return s.counts


def _said(s: Statement, c: Certificate) -> str:
    unit = "all rows of a random person" if c.released == "panel" else f"a random {s.law}"
    about = unit if s.about == "population" else f"{s.about}, {unit}"
    about += f", of {' and '.join(s.of)}" if s.of else ""
    return about if s.given is None else f"{about} given label {s.given}"

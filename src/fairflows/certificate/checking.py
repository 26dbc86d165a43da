"""check: what a receiver can find out about a certificate and a file, with neither the model nor any secret."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fairflows.bounds.arguments import checked_delta, checked_priors
from fairflows.bounds.derived import rounded_up
from fairflows.bounds.planning import delta_of_look
from fairflows.certificate.counted import CountedStatement, FoldCounts
from fairflows.certificate.document import Certificate, Plain
from fairflows.certificate.file_list import FileList, canonical_sha256, file_sha256, is_signed, list_beside
from fairflows.certificate.making import status_of
from fairflows.table.json_text import read_text
from fairflows.table.reading import kind_of, read_frame
from fairflows.table.text_format import own_format

Verdict = Literal["ok", "FAILED", "UNKNOWN", "note"]

_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Result:
    """What one check found."""

    what: str  # what was checked
    verdict: Verdict  # UNKNOWN where a check that was asked for could not be made; a note: no receiver can check it
    text: str  # the finding, in a sentence


@dataclass(frozen=True)
class Checked:
    """What `check` found; true where every check passed."""

    certificate: Certificate  # it counts as checked where every check passed
    results: tuple[Result, ...]  # one for each check

    def __bool__(self) -> bool:
        return all(result.verdict in ("ok", "note") for result in self.results)

    @property
    def conclusion(self) -> str:
        """All of it in one sentence."""
        failed = sum(result.verdict == "FAILED" for result in self.results)
        if failed:
            return f"Do not rely on this certificate: {failed} {'checks' if failed > 1 else 'check'} failed."
        has_counts = bool(self.certificate.counts)
        shown = "the bounds follow from the counts" if has_counts else "nothing is certified of the true distribution"
        if not self:
            return f"{shown.capitalize()}; that this file belongs to the certificate is only claimed."
        if any(result.what == "file" for result in self.results):
            return f"All checks passed: {shown}, and the file is one that the producer names."
        return f"All checks passed: {shown}. No file was compared."

    def to_dict(self) -> dict[str, Plain]:
        """Plain values, as JSON holds them."""
        return {"passed": bool(self), "conclusion": self.conclusion, "results": [vars(r) for r in self.results]}

    def __repr__(self) -> str:
        width = max(len(result.what) for result in self.results)
        lines = [f"{result.verdict:<8} {result.what:<{width}}  {result.text}" for result in self.results]
        return "\n".join([*lines, "", self.conclusion])


def check(certificate: str | Path, file: str | Path | None = None, *, public_key: str | Path | None = None) -> Checked:
    """Check a certificate, and a released file, with what a receiver has: no model, no key, no original rows.

    Every bound on the true distribution is computed again from the counts that the certificate prints. The file's
    SHA-256 is compared with those that the certificate names, and with the producer's list beside it
    (``certificate.files.json``); where the file holds the cells of exactly the persons that were counted, its own
    histogram is compared with the counts. That the groups were counted truthfully cannot be known from outside.

    Parameters
    ----------
    certificate : path
        ``certificate.json``.
    file : path, optional
        A released file.
    public_key : path, optional
        The producer's public key: the list of files, which covers the certificate, must then be signed with it.

    Returns
    -------
    Checked
        True where every check passed. A file that nobody lists has not passed.

    Raises
    ------
    DataError
        A file cannot be read, or is no certificate.

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
    document, text = Certificate.read(path), read_text(path)
    results = list(_check_bounds(document))
    listed = FileList.read(list_beside(path)) if list_beside(path).is_file() else None
    results += _check_signature(listed, text, None if public_key is None else Path(public_key))
    if file is not None:
        failed = {result.what for result in results if result.verdict == "FAILED"}
        path, sha256 = Path(file), file_sha256(Path(file))
        names = [name for name, known in document.released_files.items() if known == sha256]
        results.append(_check_file(path, sha256, names, document, None if failed & {"list", "signature"} else listed))
        if "counts" not in failed:
            results.append(_check_histogram(path, names, document))
    results += _what_cannot_be_known(document)
    checked = Checked(document, tuple(results))
    return replace(checked, certificate=replace(document, unchecked=not checked))


def _check_bounds(c: Certificate) -> Iterator[Result]:
    """Whether the certificate's numbers follow from its counts."""
    if not c.counts:
        if c.cell_odds_upper or any(b is not None for b in (c.cell_upper, c.cell_accuracy_upper, c.person_upper)):
            yield Result("counts", "FAILED", "It states bounds on the true distribution, and no counts that show them.")
            return
        yield Result("counts", "note", "It certifies nothing about the true distribution, so there are no counts.")
        yield _check_status(c)
        return
    wrong = next(_faults_of_counts(c), None)
    if wrong is not None:
        yield Result("counts", "FAILED", wrong)
        return
    persons = ", ".join(f"{count:,} persons of {group!r}" for group, count in c.n.items())
    yield Result("counts", "ok", f"{persons} were counted; all sums agree.")
    spending = _check_spending(c)
    yield spending
    if spending.verdict == "FAILED":
        return
    yield from _check_each_bound(c)
    yield _check_status(c)


def _check_status(c: Certificate) -> Result:
    status = status_of(c)
    agrees = status == c.status
    text = f"{c.status} follows from the bounds" if agrees else f"The bounds make it {status}; it says {c.status}"
    return Result("status", "ok" if agrees else "FAILED", f"{text}.")


def _faults_of_counts(c: Certificate) -> Iterator[str]:
    """What is wrong with the counts, in sentences; the first one makes the others meaningless."""
    names = [(statement.law, statement.label) for statement in c.counts]
    stated = [("row", None), *(("row", label) for label in c.cell_odds_upper)]
    stated += [("person", None)] if c.person_upper is not None else []
    if sorted(names, key=str) != sorted(stated, key=str):
        yield "The counts are not those of the bounds that it states."
    for statement in c.counts:
        about = _name(statement)
        shares = [fold.share for fold in statement.folds]
        if not shares or not all(_agree(share, 1 / len(shares)) for share in shares):
            yield f"The folds must have equal shares, which sum to 1 ({about})."
        cells = [cell for fold in statement.folds for cell in fold.cells]
        if len(cells) != len(set(cells)):
            yield f"A cell is counted in two folds ({about})."
        for fold in statement.folds:
            yield from (f"{fault} ({about})." for fault in _faults_of_fold(fold, list(c.n), c.n_cells or 0))
    by_name = dict(zip(names, c.counts, strict=True))
    if by_name["row", None].n != c.n or (c.person_upper is not None and by_name["person", None].n != c.n_persons):
        yield "The counts do not sum up to the number of persons of each group."
    given = [by_name["row", label] for label in c.cell_odds_upper]
    if given:
        if {group: sum(each.n[group] for each in given) for group in c.n} != c.n:
            yield "The counts given each label do not sum up to the number of persons of each group."
        yield from _faults_of_labels(by_name["row", None], given)


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
    elif not (0 <= fold.eta <= 1 and 0 < fold.delta < 1):
        yield "eta and delta must be probabilities"
    elif not _agree(fold.radius, fold.computed_radius):
        yield f"The radius is {fold.computed_radius:.6g} for so many persons; it says {fold.radius:.6g}"


def _faults_of_labels(every: CountedStatement, given: list[CountedStatement]) -> Iterator[str]:
    """Whether a cell has more persons given the labels than in all."""
    for number, fold in enumerate(every.folds):
        parts = [each.folds[number] for each in given if number < len(each.folds)]
        for group in fold.n:
            inside: Counter[int] = Counter()
            for part in parts:
                inside.update(dict(zip(part.cells, part.counts[group], strict=True)))
            counts = zip(fold.cells, fold.counts[group], strict=True)
            if any(inside[cell] > count for cell, count in counts):
                yield f"A cell has more persons of {group!r} given the labels than it has in all."


def _check_spending(c: Certificate) -> Result:
    """Whether the counts were judged at the δ that the number of the look allows."""
    try:
        allowed = delta_of_look(checked_delta(c.delta), c.look)
        checked_priors(c.priors, len(c.n))
    except ValueError as error:
        return Result("error", "FAILED", f"No certificate can have these settings: {error}")
    spent = {"cells": 0.0, "odds": 0.0, "persons": 0.0}
    for statement in c.counts:
        spent["persons" if statement.law == "person" else "odds" if statement.label is not None else "cells"] += (
            statement.delta
        )
    for name, delta in spent.items():
        if delta and not (_agree(delta, allowed) and _agree(c.spent.get(name, -1.0), allowed)):
            text = (
                f"The bounds on {name} spend {delta:.4g}; certificate {c.look} from the same persons may {allowed:.4g}."
            )
            return Result("error", "FAILED", text)
    text = f"certificate {c.look} from these persons, at δ = {c.delta:g}: {allowed:.4g} for each kind of bound."
    return Result("error", "ok", f"Probability of error of {text}")


def _check_each_bound(c: Certificate) -> Iterator[Result]:
    for statement in c.counts:
        if statement.law == "person":
            claimed, observed = c.person_upper, c.person_delta
        elif statement.label is None:
            claimed, observed = c.cell_upper, c.cell_delta
        else:
            claimed, observed = c.cell_odds_upper[statement.label], statement.observed
        yield _compared(f"bound, {_name(statement)}", "Δ ≤ ", claimed, statement.upper)
        if not _agree(observed, statement.observed):
            yield _compared(f"observed, {_name(statement)}", "Δ = ", observed, statement.observed)
        if statement.law == "row" and statement.label is None:
            accuracy = statement.accuracy_upper(c.priors)
            yield _compared("bound, adversary's accuracy", "A ≤ ", c.cell_accuracy_upper, accuracy)


def _compared(what: str, relation: str, claimed: float | None, computed: float) -> Result:
    found = f"{relation}{rounded_up(computed, 6)} follows from the counts"
    if _agree(claimed, computed):
        return Result(what, "ok", f"{found}, as it says.")
    says = "nothing" if claimed is None else f"{claimed:.6f}"
    return Result(what, "FAILED", f"{found}; it says {says}.")


def _check_signature(listed: FileList | None, certificate: str, public_key: Path | None) -> Iterator[Result]:
    if listed is not None and listed.certificate != canonical_sha256(certificate):
        text = "The producer's list of files is about another certificate, or this one was changed since."
        yield Result("list", "FAILED", text)
    if public_key is None:
        if listed is None or not listed.signature:
            text = "It is not signed: whoever handed it over may have written it."
        else:
            text = "It is signed. Whose signature it is was not checked: that takes the producer's public key."
        yield Result("signature", "note", text)
    elif listed is None or not listed.signature:
        yield Result("signature", "FAILED", "It is not signed, and a signature was asked for.")
    elif is_signed(listed.signed_bytes, listed.signature, public_key):
        yield Result("signature", "ok", "The certificate's list of files is signed with this key.")
    else:
        text = "The signature was not made with this key, or the list was changed since: it is forged or edited."
        yield Result("signature", "FAILED", text)


def _check_file(path: Path, sha256: str, names: list[str], c: Certificate, listed: FileList | None) -> Result:
    """Whether the producer named the file; `names` are those that the certificate has for its contents."""
    others = {} if listed is None else listed.files
    if names:
        return Result("file", "ok", f"It is {names[0]!r}, byte for byte, which the certificate names.")
    if sha256 in others.values():
        how = "signed list" if listed is not None and listed.signature else "list, which is not signed"
        return Result("file", "ok", f"It is in the producer's {how}, byte for byte.")
    if path.name in c.released_files or path.name in others:
        return Result("file", "FAILED", f"It is not the {path.name!r} that was released: it was changed or replaced.")
    return Result("file", "UNKNOWN", "No list names it. That it comes from the same model is only claimed.")


def _check_histogram(path: Path, names: list[str], c: Certificate) -> Result:
    """Whether the file has as many rows in each cell as were counted, where it should."""
    if not c.counts or not c.counted_file or c.counted_file not in (path.name, *names):
        text = "Not compared with the counts: its rows are not the cells of exactly the persons that were counted."
        return Result("histogram", "note", text)
    difference = difference_from_counts(path, c)
    if difference:
        return Result("histogram", "FAILED", difference)
    return Result("histogram", "ok", "Its rows are in the cells as they were counted, all groups together.")


def difference_from_counts(path: Path, certificate: Certificate) -> str:
    """How a file's rows differ from the counts of a random row, all groups together; empty where they do not."""
    frame = read_frame(path, text_format=own_format(path) if kind_of(path) == "csv" else None)
    if "cell" not in frame:
        return "It has no column 'cell', and should hold the cells that were counted."
    n_counted = sum(certificate.n.values())
    if len(frame) != n_counted:
        return f"It has {len(frame):,} rows; {n_counted:,} persons were counted."
    headline = certificate.headline
    if headline is None:
        return "The certificate has no counts of a random row."
    counted: Counter[int] = Counter()
    for fold in headline.folds:
        for counts in fold.counts.values():
            counted.update(dict(zip(fold.cells, counts, strict=True)))
    found = frame["cell"].value_counts().to_dict()
    different = [cell for cell in sorted(counted) if found.get(cell, 0) != counted[cell]]
    if different:
        cell = different[0]
        numbers = f"cell {cell} has {found.get(cell, 0):,} and not {counted[cell]:,}"
        return f"{len(different)} cells have other numbers of rows than were counted: {numbers}."
    return ""


def _what_cannot_be_known(c: Certificate) -> Iterator[Result]:
    if c.model_upper is not None or c.attack_lower is not None:
        text = "The model-based bound and the attack do not follow from counts: they are taken on trust."
        yield Result("not checked", "note", text)
    if any(fold.eta < 1 for statement in c.counts for fold in statement.folds):
        text = "That a released cell is random as often as eta says is taken on trust."
        yield Result("not checked", "note", text)
    if c.counts and all(len(statement.folds) == 1 for statement in c.counts):
        text = (
            "The bound is about new persons. Rows that the model was fitted to are not covered, even in the same file."
        )
        yield Result("covered", "note", text)
    elif c.counts:
        yield Result("covered", "note", "The bound is about every row of the fitted table, and about new persons.")
    if c.counts:
        yield Result(
            "not checked",
            "note",
            "That persons were counted in their true groups, that the model had not seen them, and that no earlier "
            "certificate from them is kept back: only whoever has the model and the rows can show it (fairflows "
            "verify).",
        )


def _name(statement: CountedStatement) -> str:
    about = f"a random {statement.law}"
    return about if statement.label is None else f"{about} given label {statement.label}"


def _agree(one: float | None, other: float) -> bool:
    return one is not None and math.isclose(one, other, rel_tol=0, abs_tol=_TOLERANCE)

"""The check that a reader can make: the counts, the formula with the numbers in it, and the command."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from fairflows.bounds.derived import rounded_up
from fairflows.certificate.counted import CountedStatement, FoldCounts
from fairflows.reporting.words import CertificateFields
from fairflows.table.json_text import read_as

_MOST_GROUPS, _MOST_CELLS = 8, 300  # a larger table is for machines: certificate.json has it


class Recomputing(NamedTuple):
    """What a reader needs to compute the headline again.

    Attributes
    ----------
    formulas : list of str
        The formula, and the same with the numbers in it; for two models one for each, and their sum.
    groups : list of str
        The groups, for the columns of the tables.
    tables : list of list of list of str
        For each model the counts, one row per cell, with the merged ones and the sums below; none where too large.
    merged : int
        Cells that are merged.
    command : str
        What to type.
    """

    formulas: list[str]
    groups: list[str]
    tables: list[list[list[str]]]
    merged: int
    command: str


def recomputing(certificate: CertificateFields) -> Recomputing | None:
    """What a reader needs to compute the certificate's headline again; None where nothing was counted."""
    statements: tuple[CountedStatement, ...] = read_as(certificate["counts"], tuple[CountedStatement, ...])
    headline = next((each for each in statements if each.law == "row" and each.label is None), None)
    if headline is None:
        return None
    folds = headline.folds
    formulas = [_formula(fold) for fold in folds]
    if len(folds) > 1:
        parts = " + ".join(f"{fold.share:g}·{fold.upper:.6f}" for fold in folds)
        formulas.append(f"Δ ≤ {parts} = {rounded_up(headline.upper, 6)}")
    is_small = len(folds[0].n) <= _MOST_GROUPS and all(len(fold.cells) <= _MOST_CELLS for fold in folds)
    file = next(iter(certificate["released_files"]), "")
    return Recomputing(
        formulas=formulas,
        groups=list(folds[0].n),
        tables=[_table(fold) for fold in folds] if is_small else [],
        merged=sum(int(certificate["n_cells"] or 0) - len(fold.cells) for fold in folds),
        command=" ".join(["fairflows check certificate.json", *([shlex.quote(file)] if file else [])]),
    )


def _formula(fold: FoldCounts) -> str:
    """The bound of one model, with its numbers."""
    pair = fold.worst_pair
    a, b = f"{fold.n[pair.one]:,}", f"{fold.n[pair.other]:,}"
    eta = "" if fold.eta == 1 else f"{fold.eta:g}·"
    distance = f"{eta}½·Σ|c/{a} − c′/{b}|"
    merged = f"{eta}½·({fold.merged[pair.one]:,}/{a} + {fold.merged[pair.other]:,}/{b})"
    if len(fold.n) == 2:
        radius = f"{eta}√(½·(1/{a} + 1/{b})·ln(1/{fold.delta:.6g}))"
    else:
        radius = f"the radius of {len(fold.n)} groups at δ = {fold.delta:.6g}"
    terms = f"{pair.printed:.6f} + {pair.merged:.6f} + {pair.radius:.6f}"
    return f"Δ ≤ {distance} + {merged} + {radius} = {terms} = {rounded_up(fold.upper, 6)}"


def _table(fold: FoldCounts) -> list[list[str]]:
    counts = zip(*fold.counts.values(), strict=True)
    rows = [[str(cell), *(f"{count:,}" for count in row)] for cell, row in zip(fold.cells, counts, strict=True)]
    rows.append(["merged", *(f"{count:,}" for count in fold.merged.values())])
    rows.append(["all", *(f"{count:,}" for count in fold.n.values())])
    return rows

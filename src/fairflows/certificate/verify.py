"""verify: compute a certificate again with the model and the rows, and list the differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fairflows.bounds.arguments import delta_of_look
from fairflows.certificate.certificate import Certificate, status_of
from fairflows.certificate.certify import Case, request_of
from fairflows.certificate.looks import open_looks
from fairflows.certificate.model_hash import model_hash
from fairflows.certificate.statements import Statement, differing
from fairflows.encoder.base import Model, fitted_model
from fairflows.exceptions import DataError
from fairflows.table.ledger import RowsSeen
from fairflows.table.table import Table

_TOLERANCE = 1e-6  # of sums over many draws, between machines
_ANOTHER = "This is another model than the one that was certified."


@dataclass(frozen=True)
class Difference:
    """One thing that is not as the certificate says."""

    what: str  # "model", "rows", "look", "seal", "settings", the name of a statement, or of another field
    text: str  # the difference, in a sentence


@dataclass(frozen=True)
class Verification:
    """Differences between a certificate and its recomputation; true if there are none."""

    differences: tuple[Difference, ...]
    recounted: bool = True  # whether rows were put into cells again, which takes the names of their persons

    def __bool__(self) -> bool:
        return not self.differences

    def __repr__(self) -> str:
        if not self.differences:
            if self.recounted:
                return "The certificate holds: everything was computed again and agrees."
            return (
                "The certificate holds: it follows from the counts that the model keeps of this table. The rows were "
                "not put into cells again, because these rows do not name their persons."
            )
        return "\n".join(["The certificate does not hold:", *(f"  - {d.text}" for d in self.differences)])


def verify(certificate: Certificate, model: Model, rows: Table) -> Verification:
    """Compute a certificate again and list the differences: model, rows, reused rows, statements.

    The attack is not run again; the seal shows that its result was not changed. Nor are the rows of a release put into
    their cells again where they do not name their persons: folds and coins of such rows are not kept.

    Parameters
    ----------
    certificate : Certificate
        The certificate to verify.
    model : encoder
        The model that it should be about, with its key and its ledger.
    rows : Table
        The rows that it should be about.

    Returns
    -------
    Verification
        True where nothing differs; it lists the differences.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from fairflows import FairTree, certify, load_adult
    >>> train, _, test = load_adult().split(random_state=0)
    >>> release = FairTree(n_cells=8).fit(train)
    >>> certificate = certify(release, test, target=0.3)
    >>> verify(certificate, release, test)
    The certificate holds: everything was computed again and agrees.
    >>> bool(verify(replace(certificate, target=0.2), release, test))
    False
    """
    model = fitted_model(model)
    rows = model.units(rows)
    key, name = model.key_, model_hash(model, model.key_)
    same_model = name == certificate.model
    released = model.released_table
    of_rows = rows.fingerprint(key) if released is None else released.fingerprint_of(rows, key)
    same_rows = of_rows == certificate.rows
    intact = certificate.sealed(key).seal == certificate.seal
    if not (same_model or same_rows or intact):
        # Hashes and seal under another key say nothing: only the model is known to differ.
        return Verification((Difference("model", _ANOTHER + " Its key is another, too: no more can be said."),))
    found = []
    if not same_model:
        found.append(Difference("model", _ANOTHER))
    if not same_rows:
        found.append(Difference("rows", "These are other rows than those that were certified on."))
    if not intact:
        # Nothing that it states can be relied on, not even how much work it would be to compute it again.
        found.append(Difference("seal", "The seal is broken: the certificate was changed after it was made."))
        return Verification(tuple(found))
    used = model.already_used(rows) if same_model and certificate.look else 0
    if used:
        found.append(Difference("rows", f"The model was fitted to, or chosen by, {used:,} of these persons or rows."))
    if same_model and same_rows:
        found += _differences(certificate, model, name, rows)
    table = model.released_table if same_model and same_rows else None
    recounted = table is None or not table.is_of(rows, key) or table.counted_again(rows, model.groups_, key) is not None
    return Verification(tuple(found), recounted=recounted)


def _differences(c: Certificate, model: Model, name: str, rows: Table) -> Iterator[Difference]:
    try:
        case = Case(
            model,
            rows,
            name,
            with_labels=bool(c.labels),
            delta=c.delta,
            target=c.target,
            n_draws=c.n_draws,
            seed=c.seed,
            most_rows=c.most_rows,
        )
        look = 0 if case.trees is not None else c.look
        delta_of_look(case.delta, look if case.trees is None else 1)
    except ValueError as error:
        yield Difference("settings", f"No certificate can have these settings: {error}")
        return
    try:
        again = case.certificate(look)
    except DataError as error:
        yield Difference("rows", f"It cannot be computed again from these rows: {error}")
        return
    key = model.key_
    counts = None if case.table is None else case.table.counted_again(rows, model.groups_, key)
    if case.trees is None:
        yield from _differences_in_looks(c, case)
    if case.table is not None and counts is not None and not np.array_equal(counts, case.table.counts):
        yield Difference("table row", "The cells of the table, counted again, are not those that were released.")
    elif case.table is not None and counts is not None and not case.table.has_margins_of(rows, model.groups_, key):
        text = "The cells of several sensitive columns, counted again, are not those that were released."
        yield Difference("table row", text)
    if case.table is not None and model.bound_follows_from(rows) is False:
        text = "The thresholds, blocks or counts behind the bound on persons to come are not those of the table."
        yield Difference("population row", text)
    trusted = [  # an attack is not run again: its numbers are taken as they are
        Statement(about=s.about, by=s.by, group=s.group, distance=s.distance, delta=s.delta, source=s.source)
        for s in c.statements
        if s.is_lower
    ]
    statements = (*again.statements, *trusted)
    again = replace(again, statements=statements, status=status_of(statements, c.target))
    for what in ("status", "released", "labels", "sensitive", "unit", "n", "n_cells"):
        if getattr(c, what) != getattr(again, what):
            yield Difference(what, f"{what} is {getattr(again, what)}; the certificate says {getattr(c, what)}.")
    stated, computed = ({s.name: s for s in part.statements if s.about != "new persons"} for part in (c, again))
    for what in dict.fromkeys([*stated, *computed]):
        yield from _differences_in_statement(what, stated.get(what), computed.get(what))


def _differences_in_statement(what: str, stated: Statement | None, computed: Statement | None) -> Iterator[Difference]:
    if stated is None or computed is None:
        said, found = ("states", "does not follow") if computed is None else ("does not state", "follows")
        yield Difference(what, f"The certificate {said} {what!r}, which {found}.")
        return
    for name in differing(stated, computed, _TOLERANCE):
        if name in ("counts", "blocks"):  # too long to print
            yield Difference(what, f"{what}: the {name} are not those of these rows.")
        else:
            one, other = getattr(stated, name), getattr(computed, name)
            yield Difference(what, f"{what}: {name} is {_shown(other)}; the certificate says {_shown(one)}.")


def _differences_in_looks(c: Certificate, case: Case) -> Iterator[Difference]:
    """Compare the number of the look with the user's record, if it has one for these persons."""
    if not case.rows.persons.named:
        return
    with open_looks() as looks:
        rows = RowsSeen.of(case.rows.X, case.rows.persons, looks.key)
        look, others = looks.find(rows, case.name, request_of(looks, case))
    if not look.date and any(other.number == c.look for other in others):
        yield Difference("look", f"Another certificate is look {c.look} of these persons in the user's record.")
    elif look.date and look.number != c.look:
        text = f"The user's record has it as look {look.number} of these persons; it spends δ as look {c.look}."
        yield Difference("look", text)


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
